//! Fossil's own sync protocol, one request at a time: how unversioned files and control artifacts reach the server as the
//! session's user. Nothing goes through a clone, so none is written, and nothing that others sent is fetched.
//!
//! What is sent twice is there once: an artifact is named by its bytes, a file by its name and content. So an answer that
//! did not come costs only another try, and the caller asks the server what it has.

use std::fs::File;
use std::io::{self, Cursor, Read, Seek as _};
use std::time::Duration;

use serde_json::Value;
use sha1::Digest as _;

use super::blob::hex;
use super::http::FossilError;
use super::login::Session;
use super::post::Again;

/// Longest a file may take to the server.
pub const TRANSFER_WAIT: Duration = Duration::from_secs(600);
/// How much of a file is read at once, in bytes.
const PART_BYTES: usize = 64 << 10;
/// Longest part of the server's words in a reason, in characters.
const EXCERPT: usize = 200;

/// A file as the server is to name it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Outgoing<'a> {
    /// Its name.
    pub name: &'a str,
    /// Its content's SHA3-256, in hex.
    pub sha3: &'a str,
    /// Its size in bytes.
    pub bytes: u64,
    /// When it was written, in seconds since 1970: of two of one name the server keeps the later.
    pub at: u64,
}

/// An unversioned file the server has.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unversioned {
    /// Its name.
    pub name: String,
    /// Its content's hash: SHA3-256, or SHA1 where an old Fossil wrote it.
    pub hash: String,
    /// When it was written, in seconds since 1970.
    pub at: u64,
    /// Who sent it; none for a user who is no more.
    pub from: Option<String>,
}

/// Why something was not sent, or perhaps not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NotSent {
    /// Why, for a person.
    pub why: String,
    /// Whether trying again can help.
    pub again: Again,
}

/// Why the server would take no file of this name, if so: its protocol separates words by white space, and names are
/// plain relative paths.
#[must_use]
pub fn name_fault(name: &str) -> Option<&'static str> {
    if name.is_empty() {
        Some("the name is empty")
    } else if name.chars().any(|c| c.is_whitespace() || c.is_control()) {
        Some("the name holds white space or control characters, which Fossil takes in none")
    } else if name.contains(['\\', '*', '[', ']', '?']) {
        Some("the name holds one of \\ * [ ] ?, which Fossil takes in none")
    } else if name.split('/').any(|part| matches!(part, "" | "." | "..")) {
        Some("the name is no plain relative path, and Fossil takes no other")
    } else {
        None
    }
}

impl Session {
    /// Sends one unversioned file, read from `content` from its beginning. Needs `o`, and `y`, without which the server
    /// passes it over in silence: ask [`Self::unversioned`] what it has.
    ///
    /// # Errors
    /// [`NotSent`]. After no answer the server may have it.
    pub fn send_unversioned(&self, project: &str, file: &Outgoing<'_>, content: &File) -> Result<(), NotSent> {
        let Outgoing { name, sha3, bytes, at } = file;
        // It asks for the list of files, as one with another list does: that makes the table where there never was a file.
        let none = "0".repeat(40);
        let head = format!("pull x {project}\npragma uv-hash {none}\nuvfile {name} {at} {sha3} {bytes} 0\n");
        self.transfer(project, &head, Some((content, *bytes)))
    }

    /// Sends one artifact of text. Needs `i`.
    ///
    /// # Errors
    /// [`NotSent`]. After no answer the server may have it.
    pub fn push_artifact(&self, project: &str, artifact: &str) -> Result<(), NotSent> {
        let hash = hex(&sha3::Sha3_256::digest(artifact.as_bytes()));
        let head = format!("push x {project}\nfile {hash} {}\n{artifact}", artifact.len());
        self.transfer(project, &head, None)
    }

    /// Every unversioned file of the server. Needs `o`.
    ///
    /// # Errors
    /// As any request; `Answered` when it is no such list.
    pub fn unversioned(&self) -> Result<Vec<Unversioned>, FossilError> {
        const PAGE: &str = "/juvlist";
        let answer = self.get(PAGE, self.answer_wait())?;
        let wrong = |why: &str| FossilError::Answered {
            what: format!("GET {PAGE}"),
            status: answer.status,
            why: why.to_owned(),
        };
        if self.to_login(&answer) {
            return Err(wrong("the user may not list unversioned files: it needs the letter o on the server"));
        }
        if answer.status != 200 || answer.is_robot_page() {
            return Err(wrong("no list of unversioned files"));
        }
        // Of a table without a file Fossil writes no more than the list's end (seen in 2.21).
        if matches!(answer.text.trim(), "" | "]") {
            return Ok(Vec::new());
        }
        let list: Value =
            serde_json::from_str(&answer.text).map_err(|error| wrong(&format!("broken JSON: {error}")))?;
        let files = list.as_array().ok_or_else(|| wrong("not a list"))?.iter().map(listed);
        files.collect::<Option<Vec<_>>>().ok_or_else(|| wrong("a file in it without name, hash or time"))
    }

    /// One signed request: `head`, then a file's content.
    fn transfer(&self, project: &str, head: &str, content: Option<(&File, u64)>) -> Result<(), NotSent> {
        let reading = |error: io::Error| NotSent { why: format!("reading the file: {error}"), again: Again::Later };
        let mut random = [0; 20];
        rustix::rand::getrandom(&mut random, rustix::rand::GetRandomFlags::empty()).map_err(|e| reading(e.into()))?;
        // The server takes no message twice.
        let tail = format!("# {}\n", hex(&random));
        let size = content.map_or(0, |(_, bytes)| bytes);
        let mut digest = sha1::Sha1::new();
        digest.update(head.as_bytes());
        if let Some(content) = content {
            let read = feed(|part| digest.update(part), part(content).map_err(reading)?).map_err(reading)?;
            if read != size {
                return Err(NotSent { why: "the file became shorter".to_owned(), again: Again::Later });
            }
        }
        digest.update(tail.as_bytes());
        let nonce = hex(&digest.finalize());
        let login = self.login_card(project, &nonce);
        let length = [login.len(), head.len(), tail.len()].iter().fold(size, |sum, it| sum.saturating_add(*it as u64));
        let before = Cursor::new(format!("{login}{head}"));
        let sent = match content {
            Some(content) => {
                let file = part(content).map_err(reading)?;
                self.http().send_stream(
                    "/xfer",
                    &mut before.chain(file).chain(Cursor::new(tail)),
                    length,
                    TRANSFER_WAIT,
                )
            }
            None => self.http().send_stream("/xfer", &mut before.chain(Cursor::new(tail)), length, TRANSFER_WAIT),
        };
        match sent {
            Ok(answer) => judge(answer.status, &answer.content_type, &answer.text),
            Err(error) => Err(NotSent { why: error.to_string(), again: Again::Later }),
        }
    }
}

fn listed(file: &Value) -> Option<Unversioned> {
    let text = |key: &str| file.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(Unversioned {
        name: text("name")?,
        hash: text("hash").unwrap_or_default(),
        at: file.get("mtime").and_then(Value::as_u64)?,
        from: text("user"),
    })
}

/// So much of a file, from its beginning.
fn part((mut file, bytes): (&File, u64)) -> io::Result<io::Take<&File>> {
    file.rewind()?;
    Ok(file.take(bytes))
}

/// Reads to the end, in parts; how many bytes.
///
/// # Errors
/// As `read(2)` fails.
pub(crate) fn feed(mut to: impl FnMut(&[u8]), mut from: impl Read) -> io::Result<u64> {
    let mut part = vec![0; PART_BYTES];
    let mut read = 0_u64;
    loop {
        match from.read(&mut part) {
            Ok(0) => return Ok(read),
            Ok(n) => {
                to(part.get(..n).unwrap_or_default());
                read = read.saturating_add(n as u64);
            }
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// What the answer's cards say. Fossil says nothing of success.
fn judge(status: u16, content_type: &str, text: &str) -> Result<(), NotSent> {
    let not = |why: String, again: Again| Err(NotSent { why: format!("POST /xfer: {why}"), again });
    if status == 413 {
        return not("refused: larger than the server takes".to_owned(), Again::Never);
    }
    if status != 200 || !content_type.starts_with("application/x-fossil") {
        return not(format!("answered {status}, {content_type}: no answer of Fossil's sync protocol"), Again::Later);
    }
    let error = text.lines().find_map(|line| line.strip_prefix("error "));
    let Some(error) = error else { return Ok(()) };
    let error = error.replace("\\s", " ").replace("\\n", " ");
    let error: String = error.chars().filter(|c| !c.is_control()).take(EXCERPT).collect();
    let definite = ["not authorized", "malformed", "wrong project", "invalid"].iter().any(|word| error.contains(word));
    not(format!("refused: {error}"), if definite { Again::Never } else { Again::Later })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_word_of_refusal_is_for_good() {
        let xfer = "application/x-fossil-uncompressed";
        assert_eq!(judge(200, xfer, "# timestamp 2026-01-01T00:00:00\n"), Ok(()));
        let again = |status, kind, text| judge(status, kind, text).err().map(|it| it.again);
        assert_eq!(again(200, xfer, "error not\\sauthorized\\sto\\swrite\n"), Some(Again::Never));
        assert_eq!(again(200, xfer, "error malformed\\suvfile\\sline\n"), Some(Again::Never));
        assert_eq!(again(200, xfer, "error login\\sfailed\n"), Some(Again::Later));
        assert_eq!(again(200, xfer, "error Database\\serror:\\sdatabase\\sis\\slocked\n"), Some(Again::Later));
        assert_eq!(again(200, "text/html", "<html>"), Some(Again::Later));
        assert_eq!(again(503, xfer, ""), Some(Again::Later));
        assert_eq!(again(413, "text/html", ""), Some(Again::Never));
    }

    #[test]
    fn names_that_fossil_does_not_take_are_known_before() {
        for name in ["a", "a/b.tgz", "é", "..a", "a..", "-x", "\"quoted\""] {
            assert_eq!(name_fault(name), None, "{name}");
        }
        for name in ["", "a b", "a\n", "/a", "a/", "a//b", "./a", "a/../b", "..", "a\\b", "a\u{7f}", "a*"] {
            assert!(name_fault(name).is_some(), "{name}");
        }
    }
}

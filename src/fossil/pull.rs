//! Pulling into a clone by the `fossil` program, and whether a pull counts.
//!
//! Fossil's exit status says little: it is 0 with the server down, the password wrong or the answer garbage. What
//! counts as done is read from its output.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::clone::telling;
use super::post::jitter;
use super::program::{Program, ProgramError};
use super::store::CloneFile;

/// Pulls made in one call: an approved post whose reply came before takes two.
pub const PULLS_MAX: u32 = 2;

/// Tries of one pull while another writer holds the server's file or the clone's: some seconds in all.
const LOCKED_TRIES: u32 = 10;
/// Shortest and longest wait between two such tries, in milliseconds.
const LOCKED_WAIT_MS: (u64, u64) = (100, 1000);

/// Why a pull does not count. What came of it in the clone is sound, and the next pull brings the rest.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PullError {
    /// The server refused the login.
    LoginRefused,
    /// The user lacks `o`.
    NotAllowed,
    /// No connection to the server.
    NoConnection(String),
    /// The program gave no result, or was ended after the time given.
    Program(ProgramError),
    /// An answer came that was cut short or empty, which Fossil itself takes for a whole one.
    Cut {
        /// How many requests were sent.
        requests: usize,
        /// How many whole answers came.
        answers: usize,
    },
    /// Anything else: Fossil's own words.
    Failed(String),
}

impl fmt::Display for PullError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoginRefused => write!(f, "pull: the server refused the login the clone remembers"),
            Self::NotAllowed => write!(f, "pull: the user may not pull: it needs the letter o on the server"),
            Self::NoConnection(why) => write!(f, "pull: no connection: {why}"),
            Self::Program(error) => write!(f, "pull: {error}"),
            Self::Cut { requests, answers } => {
                write!(
                    f,
                    "pull: {requests} requests, {answers} whole answers: the server's answer was cut short or empty"
                )
            }
            Self::Failed(why) => write!(f, "pull: {why}"),
        }
    }
}

impl std::error::Error for PullError {}

/// A pull that counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pulled {
    /// Pulls it took.
    pub pulls: u32,
    /// Artifacts that are named but have not come, and are not held back as private: perhaps shunned.
    pub missing: u64,
}

/// Pulls all that is new into the clone `file`, and once more when the first pull named artifacts still to come.
/// One caller at a time for a clone: Fossil does not wait for another writer of it.
///
/// # Errors
/// See [`PullError`]; each pull is ended after `wait` (use [`TRANSFER_WAIT`](super::clone::TRANSFER_WAIT)).
pub fn pull(program: &Program, file: &Path, wait: Duration) -> Result<Pulled, PullError> {
    let deadline = Instant::now() + wait;
    let clone = CloneFile::new(file, program);
    let missing = || clone.missing().map_err(|error| PullError::Failed(error.to_string()));
    let mut before = missing()?;
    for pulls in 1.. {
        once(program, file, deadline, wait)?;
        let after = missing()?;
        // What was missing before and after was asked for and did not come: it is not asked for a second time.
        if after.is_empty() || after == before || pulls >= PULLS_MAX {
            return Ok(Pulled { pulls, missing: after.len() as u64 });
        }
        before = after;
    }
    Err(PullError::Failed("no pull was made".to_owned()))
}

/// One pull that counts; while a file is held by another writer it is tried again, within bounds.
fn once(program: &Program, file: &Path, deadline: Instant, wait: Duration) -> Result<(), PullError> {
    // With --verbose it says of each exchange what was sent and what came.
    let args = [OsStr::new("pull"), OsStr::new("--verbose"), OsStr::new("-R"), file.as_os_str()];
    let mut tries = 1;
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        let ran = program.run(&args, left).map_err(|error| {
            PullError::Program(match error {
                ProgramError::TimedOut(_) => ProgramError::TimedOut(wait),
                other @ (ProgramError::NotStarted(_) | ProgramError::Lost(_)) => other,
            })
        })?;
        let judged = judge(ran.status.success(), &ran.stdout, &ran.stderr);
        let locked = [&ran.stdout, &ran.stderr].iter().any(|it| it.contains("database is locked"));
        if judged.is_ok() || !locked || tries >= LOCKED_TRIES {
            return judged;
        }
        tries += 1;
        std::thread::sleep(jitter(LOCKED_WAIT_MS.0, LOCKED_WAIT_MS.1));
    }
}

/// A pull counts only if all hold: exit 0, nothing on standard error, no `Error:`, `Pull done` with an address, and
/// something that came for each exchange. An answer that ends in the middle of its head, after the 200, is to Fossil an
/// answer without words: it says `Pull done` and nothing else (seen in 2.21 and 2.26).
fn judge(exit_0: bool, stdout: &str, stderr: &str) -> Result<(), PullError> {
    let stdout = stdout.replace('\r', "\n");
    let stderr = stderr.replace('\r', "\n");
    let both = format!("{stdout}\n{stderr}");
    let bad = |line: &str| ["Error:", "Warning:", "warning:", "server says:"].iter().any(|word| line.starts_with(word));
    let done = stdout.lines().any(is_done);
    let rows = |word: &str| stdout.lines().filter(|line| is_row(line, word)).count();
    let answered = rows("Sent:") > 0 && rows("Received:") == rows("Sent:");
    if exit_0 && stderr.trim().is_empty() && done && !both.lines().any(bad) {
        if answered {
            return Ok(());
        }
        return Err(PullError::Cut { requests: rows("Sent:"), answers: rows("Received:") });
    }
    if both.contains("login failed") || both.contains("missing or incorrect password") {
        Err(PullError::LoginRefused)
    } else if both.contains("not authorized to read") {
        Err(PullError::NotAllowed)
    } else if both.contains("cannot connect to host") || both.contains("can't resolve host name") {
        Err(PullError::NoConnection(telling(&stderr)))
    } else {
        Err(PullError::Failed(telling(&both)))
    }
}

/// `Received: BYTES CARDS ARTIFACTS DELTAS`, with a card at least; so for `Sent:`.
fn is_row(line: &str, word: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |word: &str| word.parse::<u64>().ok();
    matches!(words.as_slice(), [first, bytes, cards, artifacts, deltas]
        if *first == word && number(cards).is_some_and(|it| it > 0)
            && [bytes, artifacts, deltas].iter().all(|it| number(it).is_some()))
}

/// `Pull done, wire bytes sent: N  received: N  remote: ADDRESS`.
fn is_done(line: &str) -> bool {
    let words: Vec<&str> = line.split_whitespace().collect();
    let number = |word: &str| !word.is_empty() && word.bytes().all(|b| b.is_ascii_digit());
    matches!(words.as_slice(), ["Pull", "done,", "wire", "bytes", "sent:", sent, "received:", received, "remote:", address]
        if number(sent) && number(received) && !address.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    const DONE: &str = "Pull from http://lab-1@127.0.0.1:1/\n                Bytes      Cards  Artifacts     Deltas\n\
        waiting for server...\r\rSent:             174          1          0          0\n\rprocessed: 73%         \r\
        \rReceived:         155          3          0          0\n\
        Pull done, wire bytes sent: 365  received: 365  remote: 127.0.0.1\n\
        Uncompressed payload sent: 174  received: 155\n";
    /// What it says of an answer cut in its head.
    const CUT: &str = "                Bytes      Cards  Artifacts     Deltas\nwaiting for server...\r\r\
        Sent:             174          1          0          0\nRound-trips: 0   Artifacts sent: 0  received: 0\n\
        Pull done, wire bytes sent: 309  received: 24  remote: 127.0.0.1\nUncompressed payload sent: 174  received: 0\n";

    #[test]
    fn only_a_whole_pull_counts() {
        assert_eq!(judge(true, DONE, ""), Ok(()));
        let down = "Pull done, wire bytes sent: 0  received: 0  remote: \n";
        assert!(matches!(judge(true, down, "cannot connect to host 127.0.0.1:1\n"), Err(PullError::NoConnection(_))));
        assert!(matches!(judge(true, down, ""), Err(PullError::Failed(_))));
        assert!(matches!(judge(false, DONE, ""), Err(PullError::Failed(_))));
        assert!(matches!(judge(true, DONE, "server did not reply"), Err(PullError::Failed(_))));
        assert_eq!(judge(true, &format!("Error: login failed\n{DONE}"), ""), Err(PullError::LoginRefused));
        assert_eq!(judge(true, &format!("Error: not authorized to read\n{DONE}"), ""), Err(PullError::NotAllowed));
        assert!(matches!(judge(true, "", ""), Err(PullError::Failed(_))));
        assert!(judge(true, CUT, "") == Err(PullError::Cut { requests: 1, answers: 0 }));
        // The second of two exchanges.
        assert!(judge(true, &format!("{DONE}{CUT}"), "") == Err(PullError::Cut { requests: 2, answers: 1 }));
        assert_eq!(judge(true, &format!("{DONE}{DONE}"), ""), Ok(()));
        let none = DONE.replace("155          3", "155          0");
        assert!(judge(true, &none, "") == Err(PullError::Cut { requests: 1, answers: 0 }));
    }
}

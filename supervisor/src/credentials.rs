//! `ROOT/passwords/PROJECT.json` (decisions C-66): which projects there are, and one project's credential as a
//! descriptor, without the `runs` map (C-99).

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;

use serde::{Deserialize, Serialize};
use supervisor::wire::frame;

use crate::durable;

/// Largest passwords file, in bytes.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// Most projects of one host.
const PROJECTS_MAX: usize = 256;
/// Longest project's name, in bytes.
const NAME_BYTES_MAX: usize = 100;

/// The file as it is written by the host's administrator.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct PasswordsFile {
    server: String,
    user: String,
    password: String,
    /// Passwords of processes' users: each crosses alone, when a run of that user is prepared.
    #[serde(default)]
    runs: std::collections::BTreeMap<String, String>,
}

/// What crosses.
#[derive(Serialize)]
struct Credential<'a> {
    server: &'a str,
    user: &'a str,
    password: &'a str,
}

/// What crosses of the `runs` map.
#[derive(Serialize)]
struct RunPassword<'a> {
    password: &'a str,
}

/// A project's name, checked: letters, digits, `-`, `_` and inner dots, so that it names one file of the directory.
fn is_name(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    !name.is_empty() && name.len() <= NAME_BYTES_MAX && !name.starts_with('.') && name.chars().all(plain)
}

/// The projects that have a passwords file, in order.
///
/// # Errors
/// When the directory cannot be read, or holds more than [`PROJECTS_MAX`] files.
pub(crate) fn projects(root: &Path) -> io::Result<Vec<String>> {
    let names = durable::names(durable::directory(&root.join("passwords"))?, PROJECTS_MAX)?;
    let name = |file: &String| file.strip_suffix(".json").filter(|name| is_name(name)).map(str::to_owned);
    let mut projects: Vec<String> = names.iter().filter_map(name).collect();
    projects.sort();
    Ok(projects)
}

/// One project's credential in a sealed memfd, or the one of `user` in its `runs` map; none when there is none.
///
/// # Errors
/// When the file cannot be read or is not of its form. Says nothing of what the file holds.
pub(crate) fn open(root: &Path, project: &str, user: Option<&str>) -> io::Result<Option<OwnedFd>> {
    if !is_name(project) {
        return Ok(None);
    }
    let directory = durable::directory(&root.join("passwords"))?;
    let bytes = match durable::read(directory.as_fd(), &format!("{project}.json"), FILE_BYTES_MAX) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        other => other?,
    };
    let file: PasswordsFile = serde_json::from_slice(&bytes).map_err(|error| {
        // serde's own message can quote a value; only where it stands is told.
        io::Error::other(format!("not a passwords file, line {} column {}", error.line(), error.column()))
    })?;
    let text = match user {
        None => serde_json::to_vec(&Credential { server: &file.server, user: &file.user, password: &file.password })?,
        Some(user) => match file.runs.get(user) {
            Some(password) => serde_json::to_vec(&RunPassword { password })?,
            None => return Ok(None),
        },
    };
    frame::seal("ocx-credential", &text).map(Some)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::testing::Scratch;

    fn root(files: &[(&str, &str)]) -> Scratch {
        let root = Scratch::new();
        std::fs::create_dir(root.path().join("passwords")).unwrap();
        for (name, text) in files {
            std::fs::write(root.path().join("passwords").join(name), text).unwrap();
        }
        root
    }

    #[test]
    fn c_99_a_credential_crosses_sealed_and_without_the_runs_map() {
        let text = r#"{"server":"https://h/p","user":"lab-1","password":"s3","runs":{"builder":"other"}}"#;
        let root = root(&[("proj.json", text), ("notes.txt", ""), ("a.b.json", text)]);
        assert_eq!(projects(root.path()).unwrap(), ["a.b", "proj"]);
        let fd = open(root.path(), "proj", None).unwrap().unwrap();
        let crossed = String::from_utf8(frame::read_sealed(&fd, 4096).unwrap()).unwrap();
        assert_eq!(crossed, r#"{"server":"https://h/p","user":"lab-1","password":"s3"}"#);
        // Control: the map is there to be left out, and one entry of it crosses alone.
        let fd = open(root.path(), "proj", Some("builder")).unwrap().unwrap();
        assert_eq!(frame::read_sealed(&fd, 4096).unwrap(), br#"{"password":"other"}"#);
        assert!(open(root.path(), "proj", Some("pat")).unwrap().is_none());
    }

    #[test]
    fn a_name_that_climbs_or_has_no_file_is_unset() {
        let root = root(&[]);
        std::fs::write(root.path().join("outside.json"), r#"{"server":"","user":"","password":""}"#).unwrap();
        for name in ["../outside", "", ".", "a/b", "none", "\0"] {
            assert!(open(root.path(), name, None).unwrap().is_none(), "{name:?}");
        }
    }

    #[test]
    fn a_fault_in_the_file_is_told_without_its_passwords() {
        let root = root(&[("p.json", r#"{"server":"h","user":"u","password":"s3cret","extra":"s3cret"}"#)]);
        let error = open(root.path(), "p", None).unwrap_err().to_string();
        assert!(error.contains("line 1") && !error.contains("s3cret"), "{error}");
    }
}

//! The store of approvals (C-62): for each process's user its password, and the clones whose hosts may collect it.
//!
//! `ocx/approvals.json` beside the repository. What cannot be read whole is an error, never an empty store: writing it
//! over would lose passwords that clones still use.

use std::collections::BTreeMap;
use std::fmt;
use std::io;

use serde::{Deserialize, Serialize};

use super::kept::{Draft, Folder, Lock};
use crate::protocol::names::{CloneCode, Login};

const FILE: &str = "approvals.json";
const LOCK: &str = "approvals.lock";
/// Largest store, in bytes.
pub(super) const STORE_BYTES_MAX: u64 = 1 << 20;
/// Most clones approved for one user.
pub(super) const CLONES_MAX: usize = 1000;

/// Every approval.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Approvals {
    /// By the process's user.
    pub(super) users: BTreeMap<String, Approval>,
}

/// What is approved for one process's user.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Approval {
    /// Set once, when the first clone was approved.
    pub(super) password: String,
    /// The clones whose hosts may collect it.
    pub(super) clones: Vec<Pair>,
    /// Who approved the first.
    pub(super) by: String,
    /// When, RFC 3339 in UTC.
    pub(super) at: String,
}

/// A clone's user and the server-code of its clone.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Pair {
    pub(super) login: String,
    pub(super) clone: String,
}

impl fmt::Debug for Approval {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Approval").field("clones", &self.clones).field("by", &self.by).finish_non_exhaustive()
    }
}

impl Approvals {
    /// The approval by which a host signed in as `login` may collect `user`'s password for `clone`.
    pub(super) fn of(&self, user: &str, login: &str, clone: &str) -> Option<&Approval> {
        self.users.get(user).filter(|it| it.clones.iter().any(|pair| pair.login == login && pair.clone == clone))
    }
}

/// Waits for the right to change the store.
pub(super) fn lock(folder: &Folder) -> io::Result<Lock> {
    folder.lock(LOCK)
}

/// The store; an absent one is empty.
pub(super) fn read(folder: &Folder) -> io::Result<Approvals> {
    let Some(bytes) = folder.read_private(FILE, STORE_BYTES_MAX)? else { return Ok(Approvals::default()) };
    // By place alone: the parser's own words may show what stands there, a password.
    let malformed = |what: &str| io::Error::other(format!("{}: {what}", folder.file(FILE).display()));
    let approvals: Approvals = serde_json::from_slice(&bytes).map_err(|error| {
        malformed(&format!("not as approvals are written, line {} column {}", error.line(), error.column()))
    })?;
    match approvals.users.iter().find(|(user, approval)| !is_sound(user, approval)) {
        Some((user, _)) => {
            Err(malformed(&format!("user {user:?}: an empty password, no clones, or a name that is none")))
        }
        None => Ok(approvals),
    }
}

fn is_sound(user: &str, approval: &Approval) -> bool {
    let pair = |it: &Pair| Login::new(&it.login).is_some() && CloneCode::new(&it.clone).is_some();
    Login::new(user).is_some()
        && !approval.password.is_empty()
        && !approval.clones.is_empty()
        && approval.clones.iter().all(pair)
}

/// Writes the store beside the one that stands. The caller holds [`lock`] and has read what it changes.
pub(super) fn draft<'a>(folder: &'a Folder, approvals: &Approvals) -> io::Result<Draft<'a>> {
    let bytes = serde_json::to_vec_pretty(approvals)?;
    if bytes.len() as u64 > STORE_BYTES_MAX {
        return Err(io::Error::other(format!(
            "{}: it would pass {STORE_BYTES_MAX} bytes",
            folder.file(FILE).display()
        )));
    }
    folder.draft(FILE, &bytes)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::path::PathBuf;

    use super::*;

    const CODE: &str = "0123456789012345678901234567890123456789";

    /// A folder beside a file that stands for a repository, in a directory of the test's own.
    fn folder(test: &str) -> (Folder, PathBuf) {
        let dir = std::env::temp_dir().join(format!("ocx-test-approvals-{test}-{}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        std::fs::write(dir.join("x.fossil"), "").unwrap();
        (Folder::beside(&dir.join("x.fossil")).unwrap(), dir)
    }

    fn one() -> Approvals {
        let clones = vec![Pair { login: "lab-1".into(), clone: CODE.into() }];
        let approval =
            Approval { password: "hunter2".into(), clones, by: "stone".into(), at: "2026-01-01T00:00:00Z".into() };
        Approvals { users: [("builder".to_owned(), approval)].into() }
    }

    #[test]
    fn c_62_the_store_is_read_as_it_is_written() {
        let (folder, dir) = folder("shape");
        assert_eq!(read(&folder).unwrap(), Approvals::default());
        draft(&folder, &one()).unwrap().publish().unwrap();
        assert_eq!(read(&folder).unwrap(), one());
        let text = std::fs::read_to_string(folder.file(FILE)).unwrap();
        let expected = serde_json::json!({"users": {"builder": {"password": "hunter2",
            "clones": [{"login": "lab-1", "clone": CODE}], "by": "stone", "at": "2026-01-01T00:00:00Z"}}});
        assert_eq!(serde_json::from_str::<serde_json::Value>(&text).unwrap(), expected);
        assert!(!format!("{:?}", one()).contains("hunter2"));
        std::fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_pair_is_a_login_and_a_clone_together() {
        let approvals = one();
        assert!(approvals.of("builder", "lab-1", CODE).is_some());
        let other = CODE.replace('0', "a");
        for (user, login, clone) in [("builder", "lab-2", CODE), ("builder", "lab-1", &other), ("lab-1", "lab-1", CODE)]
        {
            assert_eq!(approvals.of(user, login, clone), None);
        }
    }

    #[test]
    fn a_store_that_is_not_sound_is_an_error_that_shows_no_password() {
        let (folder, dir) = folder("malformed");
        let good = serde_json::to_string(&one()).unwrap();
        for bad in [
            "{".to_owned(),
            "{}".to_owned(),
            "[]".to_owned(),
            good.replace(r#""hunter2""#, r#"["hunter2"]"#),
            good.replace(r#"{"password":"hunter2""#, r#""hunter2", {"#),
            good.replace("\"by\"", "\"bye\""),
            good.replace("hunter2", ""),
            good.replace(CODE, "0123"),
            good.replace("}}}", "}, \"hunter2\": 1}}"),
        ] {
            assert_ne!(bad, good);
            folder.write(FILE, bad.as_bytes()).unwrap();
            let why = read(&folder).unwrap_err().to_string();
            assert!(why.contains(FILE) && !why.contains("hunter2"), "{why}");
        }
        std::fs::remove_dir_all(dir).unwrap();
    }
}

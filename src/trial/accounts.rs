//! The users of a trial's server, and their passwords.

use std::fs::OpenOptions;
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::Trouble;

/// One user of the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct User {
    /// Its login.
    pub login: &'static str,
    /// Fossil's letters.
    pub letters: &'static str,
    /// What it is in a trial.
    pub is: &'static str,
}

/// The setup user, who asks for the run.
pub const SETUP: User = User { login: "setup", letters: "s", is: "asks for runs" };
/// An admin.
pub const ADMIN: User = User { login: "admin", letters: "a", is: "could stop them" };
/// The clone's user, whose letters are those a node's has (protocol 2.14, refusal 4).
pub const NODE: User = User { login: "lab-1", letters: "goC4w", is: "the node's clone" };
/// The process's user (decisions C-51).
pub const PROCESS: User = User { login: "builder", letters: "ghijor234", is: "the process's user" };

/// All of them. `nobody` and `anonymous` hold nothing.
pub const USERS: &[User] = &[SETUP, ADMIN, NODE, PROCESS];

/// The passwords, each its own; printed only by `--keep`.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Passwords {
    /// [`SETUP`]'s.
    pub setup: String,
    /// [`ADMIN`]'s.
    pub admin: String,
    /// [`NODE`]'s.
    pub node: String,
    /// [`PROCESS`]'s.
    pub process: String,
}

impl std::fmt::Debug for Passwords {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Passwords")
    }
}

/// Characters of a password: some 124 random bits.
const PASSWORD_LENGTH: usize = 24;

impl Passwords {
    /// New ones.
    ///
    /// # Errors
    /// As getrandom(2) fails.
    pub fn new() -> Result<Self, Trouble> {
        let new = || super::random(PASSWORD_LENGTH);
        Ok(Self { setup: new()?, admin: new()?, node: new()?, process: new()? })
    }

    /// One user's.
    #[must_use]
    pub fn of(&self, user: User) -> &str {
        match user.login {
            "setup" => &self.setup,
            "admin" => &self.admin,
            "lab-1" => &self.node,
            _ => &self.process,
        }
    }
}

/// Writes a file only root may read.
///
/// # Errors
/// When it is there already or cannot be written.
pub fn write_private(path: &Path, text: &str) -> Result<(), Trouble> {
    let at = |e| Trouble::at(path.display(), e);
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path).map_err(at)?;
    file.write_all(text.as_bytes()).map_err(at)
}

/// The passwords file of the project (decisions C-66).
#[must_use]
pub fn project(server: &str, passwords: &Passwords) -> String {
    json!({"server": server, "user": NODE.login, "password": passwords.node}).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_user_has_a_password_of_its_own() -> Result<(), Trouble> {
        let passwords = Passwords::new()?;
        let all: std::collections::BTreeSet<&str> = USERS.iter().map(|user| passwords.of(*user)).collect();
        assert_eq!(all.len(), USERS.len());
        assert!(all.iter().all(|p| p.len() == PASSWORD_LENGTH && p.bytes().all(|b| b.is_ascii_alphanumeric())));
        assert_eq!(passwords.of(NODE), passwords.node);
        Ok(())
    }
}

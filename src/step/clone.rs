//! The `clone` step: the process's clone, made as the process's user with a password that no argument, environment or
//! log ever holds (protocol 2.7; decisions C-97).

use std::fmt;
use std::io::Read;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::tree;
use crate::fossil::{Program, clone};

/// Largest credential, in bytes.
const CREDENTIAL_BYTES_MAX: u64 = 16 << 10;

/// What standard input holds: of which server, as whom, with which password.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Credential {
    /// The server's URL.
    pub server: String,
    /// The process's user.
    pub user: String,
    /// Their password.
    pub password: String,
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential").field("server", &self.server).field("user", &self.user).finish_non_exhaustive()
    }
}

/// Makes the clone at `into`, strictly below `workspace`.
pub(super) fn make(workspace: &Path, into: &Path, from: impl Read) -> Result<(), String> {
    let mut text = Vec::new();
    from.take(CREDENTIAL_BYTES_MAX).read_to_end(&mut text).map_err(|error| format!("its credential: {error}"))?;
    // serde's own words could quote the password.
    let credential: Credential = serde_json::from_slice(&text).map_err(|_words| "its credential is not of its form")?;
    let fossil = Program::find().ok_or("the program fossil is not installed on this host")?;
    let program = Program::new(&fossil, Path::new("/tmp"), &credential.user);
    if let Some(folder) = into.parent().filter(|folder| *folder != workspace) {
        tree::make_directories(workspace, folder).map_err(|error| error.to_string())?;
    }
    clone::make(&program, &credential.server, &credential.user, &credential.password, into)
        .map_err(|error| error.to_string())
}

//! Pulling into a clone by the `fossil` program, and whether a pull counts.
//!
//! Fossil's exit status says little: it is 0 with the server down, the password wrong or the answer garbage. What
//! counts as done is read from its output.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::time::{Duration, Instant};

use super::clone::telling;
use super::program::{Program, ProgramError};
use super::store::CloneFile;

/// Pulls made in one call: an approved post whose reply came before takes two.
pub const PULLS_MAX: u32 = 2;

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
        let left = deadline.saturating_duration_since(Instant::now());
        let args = [OsStr::new("pull"), OsStr::new("-R"), file.as_os_str()];
        let ran = program.run(&args, left).map_err(|error| {
            PullError::Program(match error {
                ProgramError::TimedOut(_) => ProgramError::TimedOut(wait),
                other @ (ProgramError::NotStarted(_) | ProgramError::Lost(_)) => other,
            })
        })?;
        judge(ran.status.success(), &ran.stdout, &ran.stderr)?;
        let after = missing()?;
        // What was missing before and after was asked for and did not come: it is not asked for a second time.
        if after.is_empty() || after == before || pulls >= PULLS_MAX {
            return Ok(Pulled { pulls, missing: after.len() as u64 });
        }
        before = after;
    }
    Err(PullError::Failed("no pull was made".to_owned()))
}

/// A pull counts only if all hold: exit 0, nothing on standard error, no `Error:`, and `Pull done` with an address.
fn judge(exit_0: bool, stdout: &str, stderr: &str) -> Result<(), PullError> {
    let stdout = stdout.replace('\r', "\n");
    let stderr = stderr.replace('\r', "\n");
    let both = format!("{stdout}\n{stderr}");
    let bad = |line: &str| ["Error:", "Warning:", "warning:", "server says:"].iter().any(|word| line.starts_with(word));
    let done = stdout.lines().any(is_done);
    if exit_0 && stderr.trim().is_empty() && done && !both.lines().any(bad) {
        return Ok(());
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

    const DONE: &str = "Round-trips: 1   Artifacts sent: 0  received: 0\rRound-trips: 1   Artifacts sent: 0  received: 0\n\
        Pull done, wire bytes sent: 365  received: 365  remote: 127.0.0.1\n";

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
    }
}

//! Making a clone by the `fossil` program, with the password never on a command line: Fossil asks for it, on a
//! terminal made for the question.

use std::ffi::OsStr;
use std::fmt;
use std::fs::{self, File, OpenOptions};
use std::io::Write as _;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

use super::http::{Base, form};
use super::program::{self, OUTPUT_MAX, Program, ProgramError};
pub use super::pull::{PULLS_MAX, PullError, Pulled, pull};
use super::store::CloneFile;

/// Longest a clone or a pull may take (C-68). Fossil itself waits for ever on a server that never answers.
pub const TRANSFER_WAIT: Duration = Duration::from_secs(600);
/// Longest password, in bytes: a terminal's line holds 4095.
pub const PASSWORD_MAX: usize = 1024;

/// Why no clone was made. No file is left at its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CloneError {
    /// The server refused the login.
    LoginRefused,
    /// The user lacks `g`.
    NotAllowed,
    /// There is a file at its place already.
    Exists(PathBuf),
    /// The program gave no result.
    Program(ProgramError),
    /// Anything else; Fossil's own words.
    Failed(String),
}

impl fmt::Display for CloneError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::LoginRefused => write!(f, "clone: the server refused the login: wrong password or unknown user"),
            Self::NotAllowed => write!(f, "clone: the user may not clone: it needs the letter g on the server"),
            Self::Exists(file) => write!(f, "clone: {} exists already; it was left as it is", file.display()),
            Self::Program(error) => write!(f, "clone: {error}"),
            Self::Failed(why) => write!(f, "clone: {why}"),
        }
    }
}

impl std::error::Error for CloneError {}

/// Makes the clone `file` (mode 0600) of the server at `server_url` as `user`, remembering the password in it.
/// It has a server-code of its own. Its folder must be private: the password is obscured, not encrypted.
///
/// # Errors
/// See [`CloneError`]; `TRANSFER_WAIT` bounds it.
pub fn make(program: &Program, server_url: &str, user: &str, password: &str, file: &Path) -> Result<(), CloneError> {
    let failed = |what: &str, error: &dyn fmt::Display| CloneError::Failed(format!("{what}: {error}"));
    let base = Base::parse(server_url).map_err(|error| CloneError::Failed(error.to_string()))?;
    if password.is_empty() || password.len() > PASSWORD_MAX || password.chars().any(char::is_control) {
        // A control character would be a command to the terminal, not a part of the password.
        return Err(CloneError::Failed(format!("a password is 1 to {PASSWORD_MAX} bytes without control characters")));
    }
    if fs::symlink_metadata(file).is_ok() {
        return Err(CloneError::Exists(file.to_owned()));
    }
    let folder = file.parent().ok_or_else(|| CloneError::Failed("the clone's path has no folder".to_owned()))?;
    let name = file.file_name().ok_or_else(|| CloneError::Failed("the clone's path has no name".to_owned()))?;
    // Made beside its place and renamed when whole, so that a crash leaves no half clone that looks like one.
    let mut part = std::ffi::OsString::from(".part-");
    part.push(name);
    let part = folder.join(part);
    remove_part(&part);
    let made = dialogue(program, &with_user(&base, user), password, &part).and_then(|()| {
        fs::set_permissions(&part, fs::Permissions::from_mode(0o600)).map_err(|error| failed("chmod", &error))?;
        File::open(&part).and_then(|file| file.sync_all()).map_err(|error| failed("fsync", &error))?;
        let clone = CloneFile::new(&part, program);
        if !clone.remembers_password().map_err(|error| failed("reading the new clone", &error))? {
            return Err(CloneError::Failed("the new clone did not remember its password".to_owned()));
        }
        // Not over a file that came meanwhile.
        fs::hard_link(&part, file).map_err(|error| failed("naming the new clone", &error))?;
        File::open(folder).and_then(|folder| folder.sync_all()).map_err(|error| failed("fsync of the folder", &error))
    });
    remove_part(&part);
    made
}

fn remove_part(part: &Path) {
    for suffix in ["", "-journal", "-wal", "-shm"] {
        let mut name = part.as_os_str().to_owned();
        name.push(suffix);
        // Most often there is none.
        drop(fs::remove_file(name));
    }
}

/// `http://USER@host/path/`, the login percent-encoded.
fn with_user(base: &Base, user: &str) -> String {
    let user = form(&[("", user)]);
    let user = user.trim_start_matches('=');
    let whole = base.as_str();
    let (scheme, rest) = whole.split_once("://").unwrap_or(("http", whole));
    format!("{scheme}://{user}@{rest}/")
}

/// Runs `fossil clone` on a terminal of its own and answers its two questions.
fn dialogue(program: &Program, url: &str, password: &str, part: &Path) -> Result<(), CloneError> {
    let failed = |what: &str, error: &dyn fmt::Display| CloneError::Failed(format!("{what}: {error}"));
    let (master, slave) = terminal().map_err(|error| failed("a terminal for the password", &error))?;
    let again = |fd: &OwnedFd| fd.try_clone().map(Stdio::from).map_err(|error| failed("a terminal", &error));
    // A session without a controlling terminal: else the question would go to whoever started this program. There is
    // no safe way to setsid between fork and exec, so the small program of util-linux does it and execs fossil.
    let mut command = Command::new("/usr/bin/setsid");
    program.dress(&mut command);
    command.arg(&program.path).arg("clone").arg(url).arg(part).current_dir("/");
    command.stdin(again(&slave)?).stdout(again(&slave)?).stderr(again(&slave)?);
    let mut child = command
        .spawn()
        .map_err(|error| CloneError::Program(ProgramError::NotStarted(format!("/usr/bin/setsid: {error}"))))?;
    // Our copies go, so that the terminal ends with the program.
    drop(command);
    drop(slave);
    let deadline = Instant::now() + TRANSFER_WAIT;
    let said = converse(&master, password, deadline);
    let said = match said {
        Ok(said) => said,
        Err(error) => {
            program::end(&mut child);
            return Err(error);
        }
    };
    let status = program::finish(&mut child, deadline, TRANSFER_WAIT).map_err(CloneError::Program)?;
    let done = said.lines().any(|line| line.starts_with("Clone done,"));
    if status.success() && done && part.is_file() {
        return Ok(());
    }
    let lines = telling(&said);
    if said.contains("login failed") {
        Err(CloneError::LoginRefused)
    } else if said.contains("not authorized to clone") {
        Err(CloneError::NotAllowed)
    } else {
        Err(CloneError::Failed(format!("fossil ended with {status}: {lines}")))
    }
}

fn terminal() -> std::io::Result<(OwnedFd, OwnedFd)> {
    let master = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC)?;
    grantpt(&master)?;
    unlockpt(&master)?;
    let name = ptsname(&master, Vec::new())?;
    let name = Path::new(OsStr::new(name.to_str().map_err(std::io::Error::other)?));
    let noctty = i32::try_from(rustix::fs::OFlags::NOCTTY.bits()).map_err(std::io::Error::other)?;
    let slave = OpenOptions::new().read(true).write(true).custom_flags(noctty).open(name)?;
    Ok((master, slave.into()))
}

/// Reads what Fossil says to its end, giving the password once and `y` to "remember password".
fn converse(master: &OwnedFd, password: &str, deadline: Instant) -> Result<String, CloneError> {
    let failed = |error: std::io::Error| CloneError::Failed(format!("the terminal: {error}"));
    let mut writer = File::from(master.try_clone().map_err(failed)?);
    let (mut said, mut seen, mut given, mut remembered) = (Vec::new(), 0, false, false);
    let mut buffer = [0; 4096];
    loop {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(CloneError::Program(ProgramError::TimedOut(TRANSFER_WAIT)));
        }
        let wait = Timespec::try_from(left).map_err(|error| CloneError::Failed(error.to_string()))?;
        match poll(&mut [PollFd::new(&master.as_fd(), PollFlags::IN)], Some(&wait)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => continue,
            Ok(_) => {}
            Err(error) => return Err(failed(error.into())),
        }
        match rustix::io::read(master, &mut buffer) {
            // The other end is closed: EIO on Linux.
            Ok(0) | Err(rustix::io::Errno::IO) => break,
            Ok(read) => said.extend_from_slice(buffer.get(..read).unwrap_or(&buffer)),
            Err(rustix::io::Errno::INTR) => continue,
            Err(error) => return Err(failed(error.into())),
        }
        if said.len() as u64 > OUTPUT_MAX {
            return Err(CloneError::Failed(format!("fossil said more than {OUTPUT_MAX} bytes")));
        }
        let new = String::from_utf8_lossy(said.get(seen..).unwrap_or(&[])).into_owned();
        if new.contains("assword for ") && new.trim_end_matches([' ', '\n']).ends_with(':') {
            if given {
                // Asked again: the first was not accepted.
                return Err(CloneError::LoginRefused);
            }
            given = true;
            seen = said.len();
            writer.write_all(format!("{password}\n").as_bytes()).map_err(failed)?;
        } else if !remembered && new.contains("emember password") {
            remembered = true;
            seen = said.len();
            writer.write_all(b"y\n").map_err(failed)?;
        }
    }
    Ok(String::from_utf8_lossy(&said).replace('\r', "\n"))
}

/// Fossil's own words without its progress lines and without the random password of a new clone's user.
pub(super) fn telling(said: &str) -> String {
    let kept: Vec<&str> = said
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("Round-trips:") && !line.contains("assword"))
        .collect();
    let kept = kept.join("; ");
    if kept.is_empty() { "fossil said nothing".to_owned() } else { kept.chars().take(500).collect() }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn the_login_is_encoded_in_the_url() {
        let base = Base::parse("http://127.0.0.1:80/p").unwrap();
        assert_eq!(with_user(&base, "a b@c/d"), "http://a%20b%40c%2Fd@127.0.0.1:80/p/");
    }

    #[test]
    fn no_password_is_repeated_in_a_reason() {
        assert_eq!(telling("password for x: \nabc\nadmin-user: bob (password is \"x\")"), "abc");
    }
}

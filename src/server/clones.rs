//! The tool `clones` (C-61): which host acts for which clone, as the hosts themselves say.
//!
//! Kept in `ocx/clones.json` beside the repository; written whole, by rename, under a lock.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::Path;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use rustix::fs::{FlockOperation, flock};
use serde_json::{Map, Value, json};

use super::cgi::{BAD, Caller, FORBIDDEN, Stop, UNAVAILABLE, only_keys};

/// Most clones listed; the one not seen for the longest goes.
pub(super) const LISTED_MAX: usize = 1000;
/// Most clones listed for one login, so that one user cannot push out the others' lines.
pub(super) const LISTED_PER_LOGIN: usize = 20;
/// Longest host or release name, in bytes.
pub(super) const NAME_MAX: usize = 255;
/// Longest wait for another caller's write.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(5);

pub(super) fn answer(repository: &Path, caller: &Caller, question: &Map<String, Value>) -> Result<Value, Stop> {
    if !(caller.letters.admin() || caller.letters.node()) {
        return Err(Stop::new(FORBIDDEN, "only a clone's user (letters g, o, C, 4, w) or an admin may ask"));
    }
    only_keys(question, &["clone", "host", "release"])?;
    let folder = repository.parent().unwrap_or(Path::new("/")).join("ocx");
    let failed = |error: io::Error| Stop::new(UNAVAILABLE, format!("the list could not be kept: {error}"));
    match DirBuilder::new().mode(0o700).create(&folder) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(failed(error)),
        _ => {}
    }
    // Held to the end of this call; the file stays, as removing it would let two callers hold two locks.
    let lock = locked(&folder.join("clones.lock")).map_err(failed)?;
    let file = folder.join("clones.json");
    let mut list = read(&file).map_err(failed)?;
    if !question.is_empty() {
        let line = line(caller, question)?;
        list.retain(|old| old.get("login") != line.get("login") || old.get("clone") != line.get("clone"));
        let own = |old: &Value| old.get("login") == line.get("login");
        if list.iter().filter(|old| own(old)).count() >= LISTED_PER_LOGIN
            && let Some(oldest) = list.iter().position(own)
        {
            list.remove(oldest);
        }
        list.push(line);
        list.drain(..list.len().saturating_sub(LISTED_MAX));
        write(&folder, &file, &list).map_err(failed)?;
    }
    drop(lock);
    Ok(Value::Array(list))
}

fn line(caller: &Caller, question: &Map<String, Value>) -> Result<Value, Stop> {
    let text = |key: &str| match question.get(key) {
        Some(Value::String(text)) if text.len() <= NAME_MAX && !text.chars().any(char::is_control) => Ok(text),
        _ => Err(Stop::new(BAD, format!("{key} is not a text of {NAME_MAX} bytes at most"))),
    };
    let clone = text("clone")?;
    if clone.len() != 40 || !clone.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)) {
        return Err(Stop::new(BAD, "clone is not a server-code of 40 lower-case hex digits"));
    }
    Ok(
        json!({ "login": caller.login, "clone": clone, "host": text("host")?, "release": text("release")?, "seen": now() }),
    )
}

/// The list; a file that is not there is an empty one, and one that cannot be read is not overwritten.
fn read(file: &Path) -> io::Result<Vec<Value>> {
    let bytes = match fs::read(file) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(error) => return Err(error),
    };
    serde_json::from_slice(&bytes).map_err(|error| io::Error::other(format!("{}: {error}", file.display())))
}

fn write(folder: &Path, file: &Path, list: &[Value]) -> io::Result<()> {
    let part = folder.join("clones.json.part");
    let mut out = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&part)?;
    out.write_all(&serde_json::to_vec(list)?)?;
    out.sync_all()?;
    fs::rename(&part, file)?;
    File::open(folder)?.sync_all()
}

fn locked(path: &Path) -> io::Result<File> {
    let lock = OpenOptions::new().write(true).create(true).truncate(false).mode(0o600).open(path)?;
    let deadline = Instant::now() + LOCK_WAIT;
    loop {
        match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => return Ok(lock),
            Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => {
                std::thread::sleep(Duration::from_millis(20))
            }
            Err(error) => return Err(error.into()),
        }
    }
}

fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
    time(seconds)
}

/// RFC 3339 in UTC, of seconds since 1970 (the civil calendar counted from 1 March, so that leap days come last).
fn time(seconds: u64) -> String {
    let (days, second) = (seconds / 86_400, seconds % 86_400);
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let shifted = (5 * day + 2) / 153;
    let date = day - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    let year = year + era * 400 + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{date:02}T{:02}:{:02}:{:02}Z", second / 3600, second / 60 % 60, second % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_utc() {
        assert_eq!(time(0), "1970-01-01T00:00:00Z");
        assert_eq!(time(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(time(1_772_323_199), "2026-02-28T23:59:59Z");
        assert_eq!(time(1_772_323_200), "2026-03-01T00:00:00Z");
    }
}

//! The tool `clones` (C-61): which host acts for which clone, as the hosts themselves say.
//!
//! Kept in `ocx/clones.json` beside the repository.

use std::io;

use serde_json::{Map, Value, json};

use super::cgi::{Asked, BAD, Caller, FORBIDDEN, Stop, UNAVAILABLE, only_keys};
use super::kept::Folder;
use super::stamp::now;
use crate::protocol::names::CloneCode;

/// Most clones listed; the one not seen for the longest goes.
pub(super) const LISTED_MAX: usize = 1000;
/// Most clones listed for one login, so that one user cannot push out the others' lines.
pub(super) const LISTED_PER_LOGIN: usize = 20;
/// Longest host or release name, in bytes.
pub(super) const NAME_MAX: usize = 255;
const FILE: &str = "clones.json";
/// Larger than `LISTED_MAX` of the longest lines: a name's bytes may each be written as six.
const FILE_BYTES_MAX: u64 = 8 << 20;

pub(super) fn answer(asked: &Asked<'_>) -> Result<Value, Stop> {
    let (caller, question) = (asked.caller, asked.question);
    if !(caller.letters.admin() || caller.letters.node()) {
        return Err(Stop::new(FORBIDDEN, "only a clone's user (letters g, o, C, 4, w) or an admin may ask"));
    }
    only_keys(question, &["clone", "host", "release"])?;
    let failed = |error: io::Error| Stop::new(UNAVAILABLE, format!("the list could not be kept: {error}"));
    let folder = Folder::beside(asked.repository).map_err(failed)?;
    let lock = folder.lock("clones.lock").map_err(failed)?;
    let mut list = read(&folder).map_err(failed)?;
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
        let bytes = serde_json::to_vec(&list).map_err(|error| failed(error.into()))?;
        folder.write(FILE, &bytes).map_err(failed)?;
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
    if CloneCode::new(clone).is_none() {
        return Err(Stop::new(BAD, "clone is not a server-code of 40 lower-case hex digits"));
    }
    Ok(
        json!({ "login": caller.login, "clone": clone, "host": text("host")?, "release": text("release")?, "seen": now() }),
    )
}

/// The list; a file that is not there is an empty one, and one that cannot be read is not overwritten.
fn read(folder: &Folder) -> io::Result<Vec<Value>> {
    let Some(bytes) = folder.read(FILE, FILE_BYTES_MAX)? else { return Ok(Vec::new()) };
    serde_json::from_slice(&bytes)
        .map_err(|error| io::Error::other(format!("{}: {error}", folder.file(FILE).display())))
}

/// Whether a host has said that it acts for this clone as this user. False too when the list cannot be read.
pub(super) fn is_listed(folder: &Folder, login: &str, clone: &str) -> bool {
    let is = |line: &Value, key: &str, text: &str| line.get(key).and_then(Value::as_str) == Some(text);
    read(folder).is_ok_and(|list| list.iter().any(|line| is(line, "login", login) && is(line, "clone", clone)))
}

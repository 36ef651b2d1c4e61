//! The tool `receipt` (C-60): who sent what, told from the server's own receipts.

use std::collections::BTreeSet;

use rusqlite::{Connection, OptionalExtension as _};
use serde_json::{Map, Value, json};

use super::cgi::{Asked, BAD, FORBIDDEN, Stop, only_keys};
use super::letters::busy;

/// Most names in each list of one question.
pub(super) const NAMES_MAX: usize = 500;
/// Longest name, in bytes.
pub(super) const NAME_MAX: usize = 200;

pub(super) fn answer(asked: &Asked<'_>) -> Result<Value, Stop> {
    let Asked { db, users, caller, question, .. } = asked;
    if !(caller.letters.admin() || (caller.letters.holds('o') && caller.letters.holds('C'))) {
        return Err(Stop::new(
            FORBIDDEN,
            "only users who may check out and chat (letters o and C), or an admin, may ask",
        ));
    }
    only_keys(question, &["artifacts", "users", "high"])?;
    let hashes = names(question, "artifacts")?;
    let mut logins: BTreeSet<String> = names(question, "users")?.into_iter().collect();
    let high = match question.get("high") {
        None | Some(Value::Bool(false)) => None,
        // First of all: what is in it is also in what is looked up after.
        Some(Value::Bool(true)) => Some(highest(db).map_err(|error| busy(&error))?),
        Some(_) => return Err(Stop::new(BAD, "high is neither true nor false")),
    };
    let mut artifacts = Map::new();
    for hash in hashes {
        let receipt = receipt(db, &hash).map_err(|error| busy(&error))?;
        let told = match receipt {
            None => Value::Null,
            Some((receipt, row, from)) => {
                // A login that is no user's any more holds no right, and is told as nobody.
                let from = from.filter(|login| users.of(login).is_some());
                logins.extend(from.clone());
                json!({ "receipt": receipt, "row": row, "from": from })
            }
        };
        artifacts.insert(hash, told);
    }
    let users: Map<String, Value> = logins
        .into_iter()
        .map(|login| {
            let told = users.of(&login).map_or(Value::Null, |letters| {
                json!({
                    "admin": letters.admin(),
                    "setup": letters.holds('s'),
                    "R": letters.holds('R'),
                    "letters": letters.text(),
                    "node": letters.node(),
                })
            });
            (login, told)
        })
        .collect();
    let mut result = json!({
        "artifacts": artifacts,
        "users": users,
        "caller": { "login": caller.login, "letters": caller.letters.text() },
    });
    if let (Some(high), Some(map)) = (high, result.as_object_mut()) {
        map.insert("high".to_owned(), high.into());
    }
    Ok(result)
}

fn names(question: &Map<String, Value>, key: &str) -> Result<Vec<String>, Stop> {
    let list = match question.get(key) {
        None => return Ok(Vec::new()),
        Some(Value::Array(list)) => list,
        Some(_) => return Err(Stop::new(BAD, format!("{key} is not a list"))),
    };
    if list.len() > NAMES_MAX {
        return Err(Stop::new(BAD, format!("{key} holds more than {NAMES_MAX} names")));
    }
    list.iter()
        .map(|name| {
            let name = name.as_str().filter(|name| name.len() <= NAME_MAX);
            name.map(str::to_owned).ok_or_else(|| Stop::new(BAD, format!("{key} holds what is no name")))
        })
        .collect()
}

fn highest(db: &Connection) -> Result<i64, rusqlite::Error> {
    db.query_row("SELECT coalesce(max(rcvid), 0) FROM rcvfrom", [], |row| row.get(0))
}

/// Receipt, row and sender of an artifact that has come and is not held for moderation.
pub(super) fn receipt(db: &Connection, hash: &str) -> Result<Option<(i64, i64, Option<String>)>, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "SELECT b.rcvid, b.rid, u.login FROM blob b
           JOIN rcvfrom r USING (rcvid) LEFT JOIN user u ON u.uid = r.uid
          WHERE b.uuid = ?1 AND b.size >= 0 AND NOT EXISTS (SELECT 1 FROM private p WHERE p.rid = b.rid)",
    )?;
    statement.query_row([hash], |row| Ok((row.get(0)?, row.get(1)?, row.get(2)?))).optional()
}

//! Who sent what, asked of the server's receipt tool (C-60), and the reader's checks of its answer.
//!
//! Nothing about a sender is ever taken from an artifact itself.

use std::collections::BTreeMap;
use std::time::Duration;

use serde_json::{Map, Value, json};

use super::http::FossilError;
use super::login::Session;
use super::tool;

/// Most names asked about in one request (C-60).
pub const NAMES_MAX: usize = 500;
/// Longest name asked about, in bytes, as the tool takes it: no user has a longer one.
pub const NAME_BYTES_MAX: usize = 200;
/// Longest wait for one answer: the tool itself waits 10 s at most for the database.
pub const RECEIPT_WAIT: Duration = Duration::from_secs(30);

/// What is asked.
#[derive(Debug, Clone, Copy, Default)]
pub struct Ask<'a> {
    /// Full hashes of artifacts, any number; asked in batches.
    pub artifacts: &'a [String],
    /// Logins whose letters are wanted.
    pub users: &'a [String],
    /// Whether the highest receipt number is wanted.
    pub high: bool,
}

/// A whole, checked answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipts {
    /// The server's highest receipt number, if asked: taken before anything else was looked up.
    pub high: Option<u64>,
    /// Every hash asked. `None`: not received, or held for moderation.
    pub artifacts: BTreeMap<String, Option<Receipt>>,
    /// Every login asked, and every sender. `None`: no such user.
    pub users: BTreeMap<String, Option<User>>,
    /// Who asked, as the server sees it.
    pub caller: Caller,
}

/// How an artifact reached the server. Ordered by (receipt, row), the server's order.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Receipt {
    /// The receipt's number.
    pub receipt: u64,
    /// The artifact's row on the server.
    pub row: u64,
    /// The login it was received from; `None` for a user who is no more, who holds no right.
    pub from: Option<String>,
}

/// A user's rights, after Fossil's inheritance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct User {
    /// Holds `a` or `s`.
    pub admin: bool,
    /// Holds `s`.
    pub setup: bool,
    /// Holds `R`: may send runs.
    pub r: bool,
    /// All letters.
    pub letters: String,
    /// Holds all of g, o, C, 4, w: may be a clone's user.
    pub node: bool,
}

/// The caller.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// Its login.
    pub login: String,
    /// Its letters.
    pub letters: String,
}

impl Session {
    /// Asks the receipt tool; either every name asked is answered, or it is an error.
    ///
    /// A login longer than any user's is answered here: the tool refuses the whole question for one, and a run of
    /// anyone's may name it.
    ///
    /// # Errors
    /// As any request; `Stopped` when the caller may not ask; `Answered` for an answer that fails a check.
    pub fn receipt(&self, ask: &Ask<'_>) -> Result<Receipts, FossilError> {
        let (asked, too_long): (Vec<String>, Vec<String>) =
            ask.users.iter().cloned().partition(|login| login.len() <= NAME_BYTES_MAX);
        let mut artifacts = ask.artifacts.chunks(NAMES_MAX);
        let mut users = asked.chunks(NAMES_MAX);
        // The first request is made in any case, and is the one that asks `high`: what it covers came before.
        let mut whole = self.receipt_once(artifacts.next().unwrap_or(&[]), users.next().unwrap_or(&[]), ask.high)?;
        loop {
            let (more_artifacts, more_users) = (artifacts.next(), users.next());
            if more_artifacts.is_none() && more_users.is_none() {
                whole.users.extend(too_long.into_iter().map(|login| (login, None)));
                return Ok(whole);
            }
            let more = self.receipt_once(more_artifacts.unwrap_or(&[]), more_users.unwrap_or(&[]), false)?;
            whole.artifacts.extend(more.artifacts);
            whole.users.extend(more.users);
            whole.caller = more.caller;
        }
    }

    fn receipt_once(&self, artifacts: &[String], users: &[String], high: bool) -> Result<Receipts, FossilError> {
        let question = json!({ "artifacts": artifacts, "users": users, "high": high });
        let result = tool::ask(self, "receipt", &question, RECEIPT_WAIT)?;
        check(&result, self.user(), artifacts, users, high).map_err(|why| FossilError::Answered {
            what: "POST /ext/ocx/receipt".to_owned(),
            status: 200,
            why,
        })
    }
}

/// The reader's checks: the login asked as, every name asked, every sender's rights, types right; more is tolerated.
pub(super) fn check(
    result: &Value,
    login: &str,
    artifacts: &[String],
    users: &[String],
    high: bool,
) -> Result<Receipts, String> {
    let top = object(result, "result")?;
    let caller = object(top.get("caller").unwrap_or(&Value::Null), "caller")?;
    let caller = Caller { login: text(caller, "login")?, letters: text(caller, "letters")? };
    if caller.login != login {
        return Err(format!("asked as {login}, answered to {}", caller.login));
    }
    let high = match high {
        true => Some(number(top, "high")?),
        false => None,
    };
    let mut receipts = Receipts { high, artifacts: BTreeMap::new(), users: BTreeMap::new(), caller };
    let told = object(top.get("users").unwrap_or(&Value::Null), "users")?;
    let user = |login: &String| match told.get(login) {
        None => Err(format!("says nothing about user {login}")),
        Some(Value::Null) => Ok(None),
        Some(value) => read_user(value).map(Some).map_err(|why| format!("user {login}: {why}")),
    };
    for login in users {
        receipts.users.insert(login.clone(), user(login)?);
    }
    let told = object(top.get("artifacts").unwrap_or(&Value::Null), "artifacts")?;
    for hash in artifacts {
        let receipt = match told.get(hash) {
            None => return Err(format!("says nothing about artifact {hash}")),
            Some(Value::Null) => None,
            Some(value) => Some(read_receipt(value).map_err(|why| format!("artifact {hash}: {why}"))?),
        };
        if let Some(from) = receipt.as_ref().and_then(|receipt| receipt.from.as_ref()) {
            receipts.users.insert(from.clone(), user(from)?);
        }
        receipts.artifacts.insert(hash.clone(), receipt);
    }
    Ok(receipts)
}

fn read_receipt(value: &Value) -> Result<Receipt, String> {
    let map = object(value, "receipt")?;
    let from = match map.get("from") {
        Some(Value::Null) => None,
        Some(Value::String(login)) => Some(login.clone()),
        _ => return Err("from is neither a login nor null".to_owned()),
    };
    Ok(Receipt { receipt: number(map, "receipt")?, row: number(map, "row")?, from })
}

fn read_user(value: &Value) -> Result<User, String> {
    let map = object(value, "user")?;
    Ok(User {
        admin: flag(map, "admin")?,
        setup: flag(map, "setup")?,
        r: flag(map, "R")?,
        letters: text(map, "letters")?,
        node: flag(map, "node")?,
    })
}

fn object<'a>(value: &'a Value, name: &str) -> Result<&'a Map<String, Value>, String> {
    value.as_object().ok_or_else(|| format!("{name} is not an object"))
}

fn number(map: &Map<String, Value>, key: &str) -> Result<u64, String> {
    map.get(key).and_then(Value::as_u64).ok_or_else(|| format!("{key} is not a number"))
}

fn text(map: &Map<String, Value>, key: &str) -> Result<String, String> {
    map.get(key).and_then(Value::as_str).map(str::to_owned).ok_or_else(|| format!("{key} is not a text"))
}

fn flag(map: &Map<String, Value>, key: &str) -> Result<bool, String> {
    map.get(key).and_then(Value::as_bool).ok_or_else(|| format!("{key} is neither true nor false"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;

    fn good() -> Value {
        json!({
            "high": 9, "new": true,
            "artifacts": {"aa": {"receipt": 4, "row": 5, "from": "bob", "x": 1}, "bb": null, "cc": {"receipt": 1, "row": 2, "from": null}},
            "users": {"bob": {"admin": false, "setup": false, "R": true, "letters": "Rgo", "node": false}, "eve": null},
            "caller": {"login": "lab-1", "letters": "goC4w"},
        })
    }

    fn read(value: &Value) -> Result<Receipts, String> {
        check(value, "lab-1", &["aa".into(), "bb".into(), "cc".into()], &["eve".into()], true)
    }

    #[test]
    fn a_good_answer_is_read_and_extra_keys_tolerated() {
        let receipts = read(&good()).unwrap();
        assert_eq!(receipts.high, Some(9));
        assert_eq!(receipts.artifacts["aa"], Some(Receipt { receipt: 4, row: 5, from: Some("bob".into()) }));
        assert_eq!(receipts.artifacts["bb"], None);
        assert_eq!(receipts.users["bob"].as_ref().unwrap().letters, "Rgo");
        assert_eq!(receipts.users["eve"], None);
    }

    #[test]
    fn an_answer_that_fails_any_check_is_none() {
        type Spoil = fn(&mut Value);
        let spoils: [Spoil; 11] = [
            |v| v["caller"]["login"] = json!("lab-2"),
            |v| v["high"] = json!("9"),
            |v| v["high"] = json!(-1),
            |v| drop(v["artifacts"].as_object_mut().unwrap().remove("bb")),
            |v| v["artifacts"]["aa"]["receipt"] = json!(4.5),
            |v| v["artifacts"]["aa"]["from"] = json!(7),
            |v| drop(v["artifacts"]["aa"].as_object_mut().unwrap().remove("from")),
            |v| drop(v["users"].as_object_mut().unwrap().remove("eve")),
            // A sender whose rights are not told.
            |v| drop(v["users"].as_object_mut().unwrap().remove("bob")),
            |v| v["users"]["bob"]["admin"] = json!("yes"),
            |v| v["users"] = json!([]),
        ];
        for (i, spoil) in spoils.iter().enumerate() {
            let mut value = good();
            spoil(&mut value);
            assert!(read(&value).is_err(), "spoil {i}");
        }
    }
}

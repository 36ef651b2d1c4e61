//! `ocx` as a program that Fossil runs under `/ext/ocx`: one JSON question on standard input, one JSON answer.
//!
//! Fossil asks no token and no letter of a caller here, so the tool does: a question is a POST of `application/json`,
//! which no form of another site can send, and each tool says who may ask it. It acts only on what Fossil itself says of the caller.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use serde_json::{Map, Value, json};

use super::letters::Letters;
use super::{clones, letters, receipt};

/// Largest question, in bytes.
pub const QUESTION_MAX: u64 = 1 << 20;

/// A refusal: the HTTP status line and the reason.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Stop {
    pub(super) status: &'static str,
    pub(super) why: String,
}

impl Stop {
    pub(super) fn new(status: &'static str, why: impl Into<String>) -> Self {
        Self { status, why: why.into() }
    }
}

/// The status of a question that cannot be answered as it is.
pub(super) const BAD: &str = "400 Bad Request";
/// The status of a caller without the right.
pub(super) const FORBIDDEN: &str = "403 Forbidden";
/// The status of a failure that may pass.
pub(super) const UNAVAILABLE: &str = "503 Service Unavailable";

/// The caller, as Fossil signed it in.
pub(super) struct Caller {
    pub(super) login: String,
    pub(super) letters: Letters,
}

/// Whether this process was started as an extension of a web server.
pub fn is_wanted() -> bool {
    std::env::var_os("GATEWAY_INTERFACE").is_some()
}

/// Answers the one question this process was started for.
pub fn main() -> ExitCode {
    let env: HashMap<String, String> = std::env::vars_os()
        .map(|(k, v)| (k.to_string_lossy().into_owned(), v.to_string_lossy().into_owned()))
        .collect();
    let sent = env.get("CONTENT_LENGTH").and_then(|length| length.trim().parse().ok()).unwrap_or(0);
    let mut input = std::io::stdin().lock().take(sent);
    let answer = answer(&env, &mut input);
    // A question refused unread is read all the same: Fossil, when it cannot hand it over whole, answers that there is
    // no such page. It has taken it whole from the caller before, so this waits for no one.
    drop(std::io::copy(&mut input, &mut std::io::sink()));
    match std::io::stdout().lock().write_all(answer.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(_) => ExitCode::FAILURE,
    }
}

/// The whole answer, headers included.
fn answer(env: &HashMap<String, String>, input: &mut dyn Read) -> String {
    let path = env.get("PATH_INFO").map_or("", String::as_str);
    let tool = path.trim_matches('/');
    let (status, result, stopped) = match act(tool, env, input) {
        Ok(result) => ("200 OK", result, Value::Null),
        Err(stop) => (stop.status, Value::Null, Value::String(stop.why)),
    };
    // An unknown word of the caller's is not repeated as the tool's name.
    let tool = if matches!(tool, "receipt" | "clones") { tool } else { "" };
    let body = json!({ "tool": tool, "dry_run": false, "log": [], "result": result, "stopped": stopped });
    // The blank line always: without a header Fossil would eat the first line.
    format!(
        "Status: {status}\r\nContent-Type: application/json\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n{body}\n"
    )
}

fn act(tool: &str, env: &HashMap<String, String>, input: &mut dyn Read) -> Result<Value, Stop> {
    if !matches!(tool, "receipt" | "clones") {
        return Err(Stop::new("404 Not Found", "there is no such tool: receipt and clones are there"));
    }
    let question = question(env, input)?;
    let login = match env.get("FOSSIL_USER") {
        Some(login) if !login.is_empty() && login != "nobody" => login.clone(),
        // Not 403: the client signs in once again when it sees this.
        _ => return Err(Stop::new("401 Unauthorized", "not signed in")),
    };
    let repository = env.get("FOSSIL_REPOSITORY").filter(|path| !path.is_empty());
    let repository = PathBuf::from(
        repository.ok_or_else(|| Stop::new("500 Internal Server Error", "FOSSIL_REPOSITORY is not set"))?,
    );
    let db = letters::open(&repository)?;
    let users = letters::Users::read(&db)?;
    // From the repository rather than FOSSIL_CAPABILITIES, so that caller and users are judged alike in every version.
    let letters =
        users.of(&login).ok_or_else(|| Stop::new("401 Unauthorized", "not signed in as a user of this server"))?;
    let caller = Caller { login, letters };
    match tool {
        "receipt" => receipt::answer(&db, &users, &caller, &question),
        _ => clones::answer(&repository, &caller, &question),
    }
}

/// The question, once its outside is as it must be.
fn question(env: &HashMap<String, String>, input: &mut dyn Read) -> Result<Map<String, Value>, Stop> {
    let var = |name: &str| env.get(name).map_or("", String::as_str);
    if var("REQUEST_METHOD") != "POST" {
        return Err(Stop::new("405 Method Not Allowed", "a question is sent by POST"));
    }
    let kind = var("CONTENT_TYPE").split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    if kind != "application/json" {
        return Err(Stop::new("415 Unsupported Media Type", "a question is sent as application/json"));
    }
    let length: u64 = var("CONTENT_LENGTH")
        .trim()
        .parse()
        .map_err(|_bad| Stop::new("411 Length Required", "Content-Length is lacking"))?;
    if length > QUESTION_MAX {
        return Err(Stop::new("413 Content Too Large", format!("a question is {QUESTION_MAX} bytes at most")));
    }
    let mut bytes = Vec::new();
    input
        .take(length)
        .read_to_end(&mut bytes)
        .map_err(|error| Stop::new(BAD, format!("the question was cut short: {error}")))?;
    if bytes.len() as u64 != length {
        return Err(Stop::new(BAD, "the question was cut short"));
    }
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(question)) => Ok(question),
        Ok(_) => Err(Stop::new(BAD, "the question is not a JSON object")),
        Err(error) => Err(Stop::new(BAD, format!("the question is not JSON: {error}"))),
    }
}

/// Refuses a key that the tool does not know: a misspelt one would be ignored in silence.
pub(super) fn only_keys(question: &Map<String, Value>, keys: &[&str]) -> Result<(), Stop> {
    match question.keys().find(|key| !keys.contains(&key.as_str())) {
        Some(key) => Err(Stop::new(BAD, format!("unknown key {key:?}"))),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::indexing_slicing, reason = "tests")]
    use super::*;

    fn ask(changes: &[(&str, &str)], body: &str) -> String {
        let mut env: HashMap<String, String> = [
            ("PATH_INFO", "/receipt"),
            ("REQUEST_METHOD", "POST"),
            ("CONTENT_TYPE", "application/json"),
            ("CONTENT_LENGTH", &body.len().to_string()),
            ("FOSSIL_USER", "bob"),
            ("FOSSIL_REPOSITORY", "/nonexistent/x.fossil"),
        ]
        .map(|(k, v)| (k.to_owned(), v.to_owned()))
        .into();
        for (name, value) in changes {
            env.insert((*name).to_owned(), (*value).to_owned());
        }
        answer(&env, &mut body.as_bytes())
    }

    #[test]
    fn every_refusal_is_json_with_its_status_and_a_blank_line() {
        for (status, changes, body) in [
            ("404", vec![("PATH_INFO", "/<script>")], "{}"),
            ("404", vec![("PATH_INFO", "")], "{}"),
            ("405", vec![("REQUEST_METHOD", "GET")], "{}"),
            ("415", vec![("CONTENT_TYPE", "text/plain")], "{}"),
            ("411", vec![("CONTENT_LENGTH", "-1")], "{}"),
            ("413", vec![("CONTENT_LENGTH", "1048577")], "{}"),
            ("400", vec![("CONTENT_LENGTH", "9")], "{}"),
            ("400", vec![], "[]"),
            ("400", vec![], "{"),
            ("401", vec![("FOSSIL_USER", "")], "{}"),
            ("503", vec![], "{}"),
        ] {
            let answer = ask(&changes, body);
            assert!(answer.starts_with(&format!("Status: {status} ")), "{answer}");
            let (_, json) = answer.split_once("\r\n\r\n").unwrap_or_default();
            let json: Value = serde_json::from_str(json).unwrap_or_default();
            assert!(json["stopped"].is_string() && json["result"].is_null(), "{answer}");
            assert!(!answer.contains("script"), "{answer}");
        }
        let deep = "[".repeat(100_000);
        assert!(ask(&[], &deep).starts_with("Status: 400 "));
    }
}

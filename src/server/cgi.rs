//! `ocx` as a program that Fossil runs under `/ext/ocx`: one JSON question on standard input, one JSON answer.
//!
//! Fossil asks no token and no letter of a caller here, so the tool does: a question is a POST of `application/json`,
//! which no form of another site can send, and each tool says who may ask it. It acts only on what Fossil itself says of the caller.

use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use rusqlite::Connection;
use serde_json::{Map, Value, json};

use super::letters::{Letters, Users};
use super::{clones, collect, letters, receipt};

/// Largest question, in bytes.
pub const QUESTION_MAX: u64 = 1 << 20;

/// What a tool is asked, and by whom.
pub(super) struct Asked<'a> {
    pub(super) repository: &'a Path,
    /// One snapshot of the repository, read-only.
    pub(super) db: &'a Connection,
    pub(super) users: &'a Users,
    pub(super) caller: &'a Caller,
    pub(super) peer: &'a Peer,
    pub(super) question: &'a Map<String, Value>,
}

/// One tool under `/ext/ocx`.
struct Tool {
    name: &'static str,
    answer: fn(&Asked<'_>) -> Result<Value, Stop>,
}

/// Every tool under `/ext/ocx`.
const TOOLS: &[Tool] = &[
    Tool { name: "receipt", answer: receipt::answer },
    Tool { name: "clones", answer: clones::answer },
    Tool { name: "collect", answer: collect::answer },
];

/// Where a question came from, as Fossil tells it: the web server's word, or that of a client or proxy that adds a
/// header `HTTPS` or, on loopback, `X-Forwarded-For`. It keeps an honest client's answer off an open network; no right
/// is given by it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Peer {
    pub(super) https: bool,
    /// None for one that is named by no address, as on a local socket.
    pub(super) address: Option<IpAddr>,
}

impl Peer {
    fn of(env: &HashMap<String, String>) -> Self {
        let https = env.get("HTTPS").is_some_and(|word| word.eq_ignore_ascii_case("on"));
        // With `--https` Fossil says HTTPS=on, and REQUEST_SCHEME=http all the same.
        let address: Option<IpAddr> = env.get("REMOTE_ADDR").and_then(|text| text.parse().ok());
        Self { https, address: address.map(|it| it.to_canonical()) }
    }

    /// Whether nobody on a network between can read the answer.
    pub(super) fn is_private(&self) -> bool {
        self.https || self.address.is_some_and(|it| it.is_loopback())
    }
}

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
    let name = env.get("PATH_INFO").map_or("", String::as_str).trim_matches('/');
    let tool = TOOLS.iter().find(|tool| tool.name == name);
    let (status, result, stopped) = match act(tool, env, input) {
        Ok(result) => ("200 OK", result, Value::Null),
        Err(stop) => (stop.status, Value::Null, Value::String(stop.why)),
    };
    // An unknown word of the caller's is not repeated as the tool's name.
    let tool = tool.map_or("", |tool| tool.name);
    let body = json!({ "tool": tool, "dry_run": false, "log": [], "result": result, "stopped": stopped });
    // The blank line always: without a header Fossil would eat the first line.
    format!(
        "Status: {status}\r\nContent-Type: application/json\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n\r\n{body}\n"
    )
}

fn act(tool: Option<&Tool>, env: &HashMap<String, String>, input: &mut dyn Read) -> Result<Value, Stop> {
    let Some(tool) = tool else {
        let names: Vec<&str> = TOOLS.iter().map(|tool| tool.name).collect();
        return Err(Stop::new("404 Not Found", format!("there is no such tool; there are {}", names.join(", "))));
    };
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
    let users = Users::read(&db)?;
    // From the repository rather than FOSSIL_CAPABILITIES, so that caller and users are judged alike in every version.
    let letters =
        users.of(&login).ok_or_else(|| Stop::new("401 Unauthorized", "not signed in as a user of this server"))?;
    let caller = Caller { login, letters };
    (tool.answer)(&Asked {
        repository: &repository,
        db: &db,
        users: &users,
        caller: &caller,
        peer: &Peer::of(env),
        question: &question,
    })
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
    fn a_peer_is_private_over_https_or_loopback_alone() {
        let private = |https: &str, address: &str| {
            let env = [("HTTPS", https), ("REMOTE_ADDR", address)].map(|(k, v)| (k.to_owned(), v.to_owned()));
            Peer::of(&env.into()).is_private()
        };
        for (https, address) in
            [("", "127.0.0.1"), ("off", "::1"), ("", "::ffff:127.0.0.9"), ("on", "10.0.0.9"), ("ON", "")]
        {
            assert!(private(https, address), "{https} {address}");
        }
        for (https, address) in
            [("", "10.0.0.9"), ("off", "fe80::1"), ("", ""), ("0", "localhost"), ("", "::ffff:10.0.0.9")]
        {
            assert!(!private(https, address), "{https} {address}");
        }
    }

    #[test]
    fn names_of_tools_stand_once() {
        for (index, tool) in TOOLS.iter().enumerate() {
            assert!(TOOLS.iter().skip(index + 1).all(|other| other.name != tool.name), "{} twice", tool.name);
        }
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

//! One HTTP request to a Fossil server, and what is known of it when it fails.
//!
//! Every request carries `Referer: BASE/`: without it Fossil serves with the database read-only. Redirects are answers,
//! never followed, and a status is not an error. No proxy is used, no connection kept.

use std::fmt;
use std::io::{ErrorKind, Read as _};
use std::time::Duration;

/// Longest wait for a connection, name lookup included.
pub const CONNECT_WAIT: Duration = Duration::from_secs(10);
/// Longest wait for a whole answer. Fossil itself waits up to 15 s (30 s from 2.26) for a locked database.
pub const ANSWER_WAIT: Duration = Duration::from_secs(60);
/// Largest answer read, in bytes after decompression: 500 receipts are some 100 KiB; pages of a thread may be long.
pub const ANSWER_MAX: u64 = 32 << 20;

/// Why Fossil gave no usable answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FossilError {
    /// The server's URL is not one that can be used. Nothing was sent.
    BadUrl {
        /// What is wrong with it.
        why: String,
    },
    /// No connection was made: the server has surely not seen the request.
    NoConnection {
        /// The request, as `POST /forume1`.
        what: String,
        /// The cause.
        why: String,
    },
    /// The request may have arrived and been carried out; no whole answer came.
    NoAnswer {
        /// The request.
        what: String,
        /// The cause.
        why: String,
    },
    /// The server knows no such login with this password, or the user holds no letter.
    LoginRefused {
        /// The login that was tried.
        user: String,
    },
    /// The server answered, but not as this page answers: `why` says what came instead.
    Answered {
        /// The request.
        what: String,
        /// The HTTP status.
        status: u16,
        /// What came instead.
        why: String,
    },
    /// The tool under `/ext/ocx` answered, and refused.
    Stopped {
        /// The tool.
        tool: String,
        /// Its reason.
        why: String,
    },
}

impl fmt::Display for FossilError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::BadUrl { why } => write!(f, "server URL: {why}"),
            Self::NoConnection { what, why } => write!(f, "{what}: no connection, nothing was sent: {why}"),
            Self::NoAnswer { what, why } => write!(f, "{what}: no answer, it may have been carried out: {why}"),
            Self::LoginRefused { user } => {
                write!(f, "login as {user}: refused: wrong password, unknown login, or a user without letters")
            }
            Self::Answered { what, status, why } => write!(f, "{what}: answered {status}: {why}"),
            Self::Stopped { tool, why } => write!(f, "/ext/ocx/{tool}: stopped: {why}"),
        }
    }
}

impl std::error::Error for FossilError {}

/// A server's URL, split once: `http://host:port/path` without a final slash.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Base {
    whole: String,
    path_at: usize,
}

impl Base {
    /// Checks `url`: http or https, a host, no user, query or fragment.
    pub fn parse(url: &str) -> Result<Self, FossilError> {
        let bad = |why: &str| FossilError::BadUrl { why: format!("{url:?}: {why}") };
        let whole = url.trim_end_matches('/');
        let after = whole
            .strip_prefix("http://")
            .or_else(|| whole.strip_prefix("https://"))
            .ok_or_else(|| bad("does not begin with http:// or https://"))?;
        let host = after.split('/').next().unwrap_or("");
        if host.is_empty() {
            return Err(bad("names no host"));
        }
        if host.contains('@') {
            // A password belongs in the passwords file, not where lists and logs show it.
            return Err(FossilError::BadUrl { why: "it holds a user or password; name them apart".to_owned() });
        }
        if whole.chars().any(|c| c.is_whitespace() || c.is_control() || matches!(c, '?' | '#' | '"' | '\\')) {
            return Err(bad("holds a character no server URL has"));
        }
        let path_at = whole.len() - after.len() + host.len();
        Ok(Self { whole: whole.to_owned(), path_at })
    }

    /// The URL without a final slash.
    pub fn as_str(&self) -> &str {
        &self.whole
    }

    /// The path of `location`, below this server, as `/forumpost/12ab`; `None` when it points elsewhere.
    pub fn below<'a>(&self, location: &'a str) -> Option<&'a str> {
        let rest = match location.strip_prefix(&self.whole) {
            Some(rest) => rest,
            None => location.strip_prefix(self.whole.get(self.path_at..)?)?,
        };
        (rest.starts_with('/') && !rest.starts_with("//")).then_some(rest)
    }
}

/// What a server answered: any status, redirects included.
#[derive(Debug, Clone)]
pub struct Answer {
    /// HTTP status.
    pub status: u16,
    /// `Location`, when there is one.
    pub location: Option<String>,
    /// `Content-Type` up to any `;`, in lower case; empty when absent.
    pub content_type: String,
    /// Every `Set-Cookie`.
    pub cookies: Vec<String>,
    /// The body as text, lossily: Fossil serves what it holds, valid UTF-8 or not. Empty for a redirect.
    pub text: String,
}

impl Answer {
    /// Whether this is a page that keeps robots out, answered 200 in place of what was asked.
    pub fn is_robot_page(&self) -> bool {
        self.content_type == "text/html"
            && (self.text.contains("I think you are a robot") || self.text.contains("Browser Verification"))
    }
}

/// A body to send.
#[derive(Debug, Clone, Copy)]
pub enum Body<'a> {
    /// Form fields, URL-encoded.
    Form(&'a [(&'a str, &'a str)]),
    /// JSON text.
    Json(&'a str),
}

/// Sends requests to one server.
#[derive(Debug, Clone)]
pub struct Http {
    base: Base,
    agent: ureq::Agent,
}

impl Http {
    /// A client of the server at `base`; nothing is sent yet.
    pub fn new(base: Base) -> Self {
        let agent = ureq::Agent::config_builder()
            .http_status_as_error(false)
            .max_redirects(0)
            .max_redirects_will_error(false)
            .proxy(None)
            // Fossil closes each connection; a kept one could only make a failure harder to judge.
            .max_idle_connections(0)
            .max_idle_connections_per_host(0)
            .timeout_resolve(Some(CONNECT_WAIT))
            .timeout_connect(Some(CONNECT_WAIT))
            .user_agent(concat!("ocx/", env!("CARGO_PKG_VERSION")))
            .build()
            .new_agent();
        Self { base, agent }
    }

    /// The server.
    pub fn base(&self) -> &Base {
        &self.base
    }

    /// `GET path`.
    pub fn get(&self, path: &str, cookie: Option<&str>, wait: Duration) -> Result<Answer, FossilError> {
        let mut request = self
            .agent
            .get(format!("{}{path}", self.base.as_str()))
            .header("Referer", format!("{}/", self.base.as_str()))
            .config()
            .timeout_global(Some(wait))
            .build();
        if let Some(cookie) = cookie {
            request = request.header("Cookie", cookie);
        }
        read(&format!("GET {}", without_query(path)), request.call())
    }

    /// `POST path` with `body`.
    pub fn post(
        &self,
        path: &str,
        cookie: Option<&str>,
        body: Body<'_>,
        wait: Duration,
    ) -> Result<Answer, FossilError> {
        let (kind, text) = match body {
            Body::Form(fields) => ("application/x-www-form-urlencoded", form(fields)),
            Body::Json(text) => ("application/json", text.to_owned()),
        };
        let mut request = self
            .agent
            .post(format!("{}{path}", self.base.as_str()))
            .header("Referer", format!("{}/", self.base.as_str()))
            .header("Content-Type", kind)
            .config()
            .timeout_global(Some(wait))
            .build();
        if let Some(cookie) = cookie {
            request = request.header("Cookie", cookie);
        }
        read(&format!("POST {}", without_query(path)), request.send(text.as_bytes()))
    }
}

impl Http {
    /// `POST path` with so many bytes of Fossil's sync protocol, read as they are sent. No cookie: it is signed itself.
    pub(super) fn send_stream(
        &self,
        path: &str,
        body: &mut dyn std::io::Read,
        bytes: u64,
        wait: Duration,
    ) -> Result<Answer, FossilError> {
        let request = self
            .agent
            .post(format!("{}{path}", self.base.as_str()))
            .header("Content-Type", "application/x-fossil-uncompressed")
            // Fossil reads no body in chunks.
            .header("Content-Length", bytes)
            .config()
            .timeout_global(Some(wait))
            .build();
        read(&format!("POST {}", without_query(path)), request.send(ureq::SendBody::from_reader(body)))
    }
}

fn without_query(path: &str) -> &str {
    path.split('?').next().unwrap_or(path)
}

fn read(what: &str, sent: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> Result<Answer, FossilError> {
    let mut response = sent.map_err(|error| failed(what, &error))?;
    let header = |name: &str| response.headers().get(name).map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned());
    let status = response.status().as_u16();
    let location = header("location");
    let content_type = header("content-type").unwrap_or_default();
    let content_type = content_type.split(';').next().unwrap_or("").trim().to_ascii_lowercase();
    let cookies = response
        .headers()
        .get_all("set-cookie")
        .iter()
        .map(|v| String::from_utf8_lossy(v.as_bytes()).into_owned())
        .collect();
    let mut bytes = Vec::new();
    // A redirect's header says all there is; a body cut short must not make a known outcome unknown.
    if !(300..400).contains(&status) {
        let body = response.body_mut().with_config().limit(ANSWER_MAX.saturating_add(1)).reader();
        body.take(ANSWER_MAX.saturating_add(1)).read_to_end(&mut bytes).map_err(|error| FossilError::NoAnswer {
            what: what.to_owned(),
            why: format!("answer cut short: {error}"),
        })?;
        if bytes.len() as u64 > ANSWER_MAX {
            let why = format!("the answer is larger than {ANSWER_MAX} bytes");
            return Err(FossilError::Answered { what: what.to_owned(), status, why });
        }
    }
    Ok(Answer { status, location, content_type, cookies, text: String::from_utf8_lossy(&bytes).into_owned() })
}

/// Only what surely came before a connection stood is "no connection"; all else is unknown.
fn failed(what: &str, error: &ureq::Error) -> FossilError {
    let what = what.to_owned();
    let why = error.to_string();
    #[expect(clippy::wildcard_enum_match_arm, reason = "whatever the library adds is unknown too")]
    let before = match error {
        ureq::Error::HostNotFound | ureq::Error::ConnectionFailed | ureq::Error::BadUri(_) => true,
        ureq::Error::Timeout(limit) => matches!(limit, ureq::Timeout::Resolve | ureq::Timeout::Connect),
        ureq::Error::Io(io) => matches!(
            io.kind(),
            ErrorKind::ConnectionRefused
                | ErrorKind::HostUnreachable
                | ErrorKind::NetworkUnreachable
                | ErrorKind::AddrNotAvailable
                | ErrorKind::NetworkDown
        ),
        _ => false,
    };
    if before { FossilError::NoConnection { what, why } } else { FossilError::NoAnswer { what, why } }
}

/// `name=value&…`, everything but letters, digits and `-._~` as %HH.
pub fn form(fields: &[(&str, &str)]) -> String {
    let mut out = String::new();
    for (name, value) in fields {
        if !out.is_empty() {
            out.push('&');
        }
        percent(&mut out, name);
        out.push('=');
        percent(&mut out, value);
    }
    out
}

fn percent(out: &mut String, text: &str) {
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~') {
            out.push(char::from(byte));
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_base_url_is_checked_and_split() {
        let base = Base::parse("http://127.0.0.1:8080/proj/").unwrap();
        assert_eq!(base.as_str(), "http://127.0.0.1:8080/proj");
        assert_eq!(base.below("http://127.0.0.1:8080/proj/forumpost/ab"), Some("/forumpost/ab"));
        assert_eq!(base.below("/proj/forumpost/ab"), Some("/forumpost/ab"));
        assert_eq!(base.below("http://127.0.0.1:8080/project/forumpost/ab"), None);
        assert_eq!(base.below("http://127.0.0.1:8080@evil/forumpost/ab"), None);
        assert_eq!(Base::parse("https://h").unwrap().below("//evil/forumpost/ab"), None);
        assert_eq!(Base::parse("https://h").unwrap().below("/forumpost/ab"), Some("/forumpost/ab"));
        for bad in ["ftp://h", "http://", "http://bob:pw@h/", "http://h/?a", "http://h /"] {
            let error = Base::parse(bad).unwrap_err();
            assert!(!error.to_string().contains("bob:pw"), "{error}");
        }
    }

    #[test]
    fn forms_encode_every_special_byte() {
        assert_eq!(form(&[("a", "x y&z=%\r\né"), ("b", "")]), "a=x%20y%26z%3D%25%0D%0A%C3%A9&b=");
    }
}

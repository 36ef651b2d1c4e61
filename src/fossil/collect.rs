//! Collecting a process's user's password from the server's `collect` tool (C-62), to memory only.

use std::fmt;
use std::net::{Ipv4Addr, Ipv6Addr};
use std::time::Duration;

use serde_json::{Value, json};

use super::http::FossilError;
use super::login::Session;
use super::tool;

/// Longest wait for the answer: the tool itself waits 10 s at most for the database, and 5 s for each of its locks.
pub const COLLECT_WAIT: Duration = Duration::from_secs(30);
/// Longest password taken, in bytes; the server's own are 64.
pub const PASSWORD_BYTES_MAX: usize = 1024;

/// A collected password. Shown nowhere.
#[derive(Clone, PartialEq, Eq)]
pub struct Password(String);

impl Password {
    /// The text, for the one that signs in with it.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Password {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Password(..)")
    }
}

/// Why there is no password.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CollectError {
    /// The server is reached over plain http on another host. Nothing was sent.
    Plain {
        /// The server's URL.
        server: String,
    },
    /// The server was asked, and gave none; `FossilError::Stopped` has its reason.
    Fossil(FossilError),
}

impl fmt::Display for CollectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Plain { server } => {
                write!(
                    f,
                    "{server}: a password is not collected over plain http from another host: nothing was sent; the server needs https"
                )
            }
            Self::Fossil(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for CollectError {}

impl From<FossilError> for CollectError {
    fn from(error: FossilError) -> Self {
        Self::Fossil(error)
    }
}

/// The password of `user`, for the run `run` (its full hash) that this session's user takes with the clone whose
/// server-code is `clone`.
///
/// # Errors
/// See [`CollectError`]. No error holds the password.
pub fn collect(session: &Session, run: &str, user: &str, clone: &str) -> Result<Password, CollectError> {
    if !is_private(session.server()) {
        return Err(CollectError::Plain { server: session.server().to_owned() });
    }
    let question = json!({ "run": run, "user": user, "clone": clone });
    let result = tool::ask(session, "collect", &question, COLLECT_WAIT)?;
    check(&result, user).map_err(|why| {
        FossilError::Answered { what: "POST /ext/ocx/collect".to_owned(), status: 200, why: why.to_owned() }.into()
    })
}

/// Whether nobody on a network between can read what this server answers. A name other than `localhost` is not looked
/// up: what it means may change.
fn is_private(server: &str) -> bool {
    let Some(rest) = server.strip_prefix("http://") else { return server.starts_with("https://") };
    let authority = rest.split('/').next().unwrap_or_default();
    if let Some(bracketed) = authority.strip_prefix('[') {
        let address = bracketed.split(']').next().unwrap_or_default();
        return address.parse::<Ipv6Addr>().is_ok_and(|it| it.to_canonical().is_loopback());
    }
    let host = authority.split(':').next().unwrap_or_default();
    host.eq_ignore_ascii_case("localhost") || host.parse::<Ipv4Addr>().is_ok_and(|it| it.is_loopback())
}

/// The reader's checks: the user asked is the one answered, and the password one that can be typed to a program.
pub(super) fn check(result: &Value, user: &str) -> Result<Password, &'static str> {
    let text = |key: &str| result.get(key).and_then(Value::as_str);
    if text("user") != Some(user) {
        return Err("another user was answered than was asked");
    }
    let password = text("password").ok_or("no password is in the answer")?;
    let fit = (1..=PASSWORD_BYTES_MAX).contains(&password.len()) && !password.chars().any(char::is_control);
    if fit {
        Ok(Password(password.to_owned()))
    } else {
        Err("what came is no password: empty, too long, or with control characters")
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_password_is_shown_nowhere() {
        let password = check(&json!({"user": "builder", "password": "hunter2"}), "builder").unwrap();
        assert_eq!(format!("{password:?}"), "Password(..)");
        assert_eq!(password.text(), "hunter2");
    }

    #[test]
    fn only_the_user_asked_is_taken() {
        for bad in [
            json!({"user": "bob", "password": "hunter2"}),
            json!({"password": "hunter2"}),
            json!({"user": "builder"}),
            json!({"user": "builder", "password": ""}),
            json!({"user": "builder", "password": ["hunter2"]}),
            json!({"user": "builder", "password": "hunter\n2"}),
            json!({"user": "builder", "password": "x".repeat(PASSWORD_BYTES_MAX + 1)}),
            json!("hunter2"),
        ] {
            let why = check(&bad, "builder").unwrap_err();
            assert!(!why.contains("hunter"), "{why}");
        }
    }

    #[test]
    fn c_62_over_plain_http_only_this_host_is_asked() {
        for private in [
            "https://server.example/p",
            "http://127.0.0.1:8080/p",
            "http://127.9.9.9",
            "http://localhost:80",
            "http://[::1]:8080/p",
            "http://[::ffff:127.0.0.1]",
        ] {
            assert!(is_private(private), "{private}");
        }
        for open in [
            "http://server.example/p",
            "http://10.0.0.9",
            "http://localhost.example",
            "http://127.0.0.1.example",
            "http://[fe80::1]/p",
            "http://[::ffff:10.0.0.9]",
            "http://0.0.0.0",
            "http://127.1",
        ] {
            assert!(!is_private(open), "{open}");
        }
        let session = Session::new("http://192.0.2.1", "lab-1", "pw").unwrap();
        let error = collect(&session, &"a".repeat(64), "builder", &"0".repeat(40)).unwrap_err();
        assert_eq!(error, CollectError::Plain { server: "http://192.0.2.1".to_owned() });
        assert!(error.to_string().contains("https"));
    }
}

//! A signed-in user of one server: cookie and csrf token, renewed once when the server ended the session.
//!
//! Never signs out: all clients of a user share one cookie, and a logout would end the others (C-109).

use std::fmt;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use sha1::Digest as _;

use super::blob::hex;
use super::http::{ANSWER_WAIT, Answer, Base, Body, FossilError, Http};
use super::tag::escaped;

/// A user of one server. Signs in at the first request; may be shared among threads.
pub struct Session {
    http: Http,
    user: String,
    password: String,
    answer_wait: Duration,
    signed: Mutex<Option<Signed>>,
}

/// What a sign-in gave.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Signed {
    /// `NAME=VALUE`, sent back as received.
    cookie: String,
    /// The token forms carry; empty where no page shows one.
    csrf: String,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Neither the password nor the cookie, which is as good.
        f.debug_struct("Session").field("server", &self.server()).field("user", &self.user).finish_non_exhaustive()
    }
}

/// Fields that a page's form needs beside its own.
pub(super) const CSRF: &str = "csrf";

impl Session {
    /// A session of `user` with the server at `server_url` (`http://host/path`, no user in it). Sends nothing.
    ///
    /// # Errors
    /// `FossilError::BadUrl`.
    pub fn new(server_url: &str, user: &str, password: &str) -> Result<Self, FossilError> {
        Ok(Self {
            http: Http::new(Base::parse(server_url)?),
            user: user.to_owned(),
            password: password.to_owned(),
            answer_wait: ANSWER_WAIT,
            signed: Mutex::new(None),
        })
    }

    /// Another bound than [`ANSWER_WAIT`] for signing in and posting.
    #[must_use]
    pub fn answer_within(mut self, wait: Duration) -> Self {
        self.answer_wait = wait;
        self
    }

    /// The server's URL, without a final slash.
    pub fn server(&self) -> &str {
        self.http.base().as_str()
    }

    /// The login.
    pub fn user(&self) -> &str {
        &self.user
    }

    /// Signs in now, if not done: a check of the password before work begins.
    ///
    /// # Errors
    /// As any request; `LoginRefused` for a wrong password.
    pub fn sign_in(&self) -> Result<(), FossilError> {
        self.signed().map(drop)
    }

    /// The sync protocol's signature of a message whose SHA1 is `nonce`.
    pub(super) fn login_card(&self, project: &str, nonce: &str) -> String {
        let sha1 = |text: String| hex(&sha1::Sha1::digest(text.as_bytes()));
        let secret = sha1(format!("{project}/{}/{}", self.user, self.password));
        format!("login {} {nonce} {}\n", escaped(&self.user), sha1(format!("{nonce}{secret}")))
    }

    pub(super) fn answer_wait(&self) -> Duration {
        self.answer_wait
    }

    pub(super) fn http(&self) -> &Http {
        &self.http
    }

    /// The sign-in that holds, made now if there is none.
    pub(super) fn signed(&self) -> Result<Signed, FossilError> {
        // The lock is held while signing in: two threads would else sign in at once for nothing.
        let mut signed = self.signed.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(signed) = &*signed {
            return Ok(signed.clone());
        }
        let fresh = self.post_login()?;
        *signed = Some(fresh.clone());
        Ok(fresh)
    }

    /// Forgets `ended`, so that the next request signs in; a newer sign-in by another thread stays.
    pub(super) fn ended(&self, ended: &Signed) {
        let mut signed = self.signed.lock().unwrap_or_else(PoisonError::into_inner);
        if signed.as_ref() == Some(ended) {
            *signed = None;
        }
    }

    /// Sends by `send`; when the answer says that the session had ended, signs in once again and sends again.
    /// `has_ended` must hold only for answers to which the server did nothing.
    pub(super) fn with_session(
        &self,
        send: impl Fn(&Signed) -> Result<Answer, FossilError>,
        has_ended: impl Fn(&Answer) -> bool,
    ) -> Result<Answer, FossilError> {
        let signed = self.signed()?;
        let answer = send(&signed)?;
        if !has_ended(&answer) {
            return Ok(answer);
        }
        self.ended(&signed);
        let signed = self.signed()?;
        send(&signed)
    }

    /// GET of a page as this user.
    ///
    /// # Errors
    /// As any request. A redirect to the login page is returned as the answer.
    pub fn get(&self, path: &str, wait: Duration) -> Result<Answer, FossilError> {
        self.with_session(|signed| self.http.get(path, Some(&signed.cookie), wait), |answer| self.to_login(answer))
    }

    /// Whether `answer` sends the caller to the login page: not signed in, or a letter lacking.
    pub(super) fn to_login(&self, answer: &Answer) -> bool {
        let below = answer.location.as_deref().and_then(|location| self.http.base().below(location));
        answer.status == 302 && below.is_some_and(|path| path == "/login" || path.starts_with("/login?"))
    }

    fn post_login(&self) -> Result<Signed, FossilError> {
        const WHAT: &str = "POST /login";
        let fields = [("u", self.user.as_str()), ("p", self.password.as_str()), ("in", "Login")];
        let answer = self.http.post("/login", None, Body::Form(&fields), self.answer_wait)?;
        let answered =
            |why: &str| FossilError::Answered { what: WHAT.to_owned(), status: answer.status, why: why.to_owned() };
        if answer.status == 401 {
            return Err(FossilError::LoginRefused { user: self.user.clone() });
        }
        let cookie = answer.cookies.iter().find_map(|set| login_cookie(set));
        let Some(cookie) = cookie.filter(|_| answer.status == 302) else {
            return Err(answered(match answer.status {
                _ if answer.is_robot_page() => {
                    "the server takes this client for a robot: `login` must not be in its robot-restrict"
                }
                301 | 302 => "sent elsewhere without a cookie: is the URL's scheme the server's?",
                200 if self.password.is_empty() => "the password is empty",
                200 => "a page, not a sign-in: this may be no Fossil server",
                503 => "the server is over its load limit",
                _ => "no sign-in came of it",
            }));
        };
        let csrf = self.csrf(&cookie)?;
        Ok(Signed { cookie, csrf })
    }

    /// The token as a page shows it: each version of Fossil makes it in its own way.
    fn csrf(&self, cookie: &str) -> Result<String, FossilError> {
        // 2.23 on shows it in all three; before, only where tickets may be written, and only tickets ask for it.
        for page in ["/forume1", "/tktnew", "/login"] {
            let answer = self.http.get(page, Some(cookie), self.answer_wait)?;
            if answer.status == 200
                && let Some(token) = csrf_in(&answer.text)
            {
                return Ok(token.to_owned());
            }
        }
        // Up to 2.22: the first ten characters of the cookie's secret, for a user who may append but not file tickets.
        let value = cookie.split_once('=').map_or("", |(_, value)| value);
        Ok(value.chars().take_while(char::is_ascii_hexdigit).take(10).collect())
    }
}

impl Signed {
    pub(super) fn cookie(&self) -> &str {
        &self.cookie
    }

    pub(super) fn csrf(&self) -> &str {
        &self.csrf
    }
}

/// `fossil-…=VALUE` of a Set-Cookie that signs in; a logout sets an empty or already expired value.
fn login_cookie(set: &str) -> Option<String> {
    let pair = set.split(';').next()?.trim();
    let (name, value) = pair.split_once('=')?;
    let usable = !value.is_empty() && value.bytes().all(|b| b.is_ascii_graphic() && b != b',');
    (name.starts_with("fossil-") && name != "fossil-goto" && usable).then(|| pair.to_owned())
}

/// The value of the first input named csrf, written by Fossil as `name="csrf" value="…"` or with single quotes.
fn csrf_in(page: &str) -> Option<&str> {
    for quote in ['"', '\''] {
        let mark = format!("name={quote}csrf{quote} value={quote}");
        if let Some(at) = page.find(&mark) {
            let rest = page.get(at + mark.len()..)?;
            let value = rest.get(..rest.find(quote)?)?;
            if !value.is_empty() && value.len() <= 200 {
                return Some(value);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn debug_shows_no_password() {
        let session = Session::new("http://127.0.0.1:1", "bob", "hunter2").unwrap();
        assert_eq!(format!("{session:?}"), r#"Session { server: "http://127.0.0.1:1", user: "bob", .. }"#);
    }

    #[test]
    fn the_csrf_token_is_read_from_either_spelling() {
        assert_eq!(csrf_in(r#"<input type="hidden" name="csrf" value="aB-/9">"#), Some("aB-/9"));
        assert_eq!(csrf_in("<input type='hidden' name='csrf' value='0123456789'>"), Some("0123456789"));
        assert_eq!(csrf_in(r#"name="csrf" value="#), None);
        assert_eq!(csrf_in(r#"name="csrf" value="""#), None);
    }

    #[test]
    fn only_a_login_cookie_counts() {
        assert_eq!(login_cookie("fossil-ab=12%2F3%2Fbob; path=/; HttpOnly").as_deref(), Some("fossil-ab=12%2F3%2Fbob"));
        assert_eq!(login_cookie("fossil-ab=; path=/"), None);
        assert_eq!(login_cookie("other=1"), None);
        assert_eq!(login_cookie("fossil-ab=1\r\nX: y"), None);
    }
}

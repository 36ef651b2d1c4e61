//! Forum posts and ticket changes through the server's pages, and what became of each.
//!
//! Only `302 Location: BASE/forumpost/HEX` or `BASE/tktview/ID` means stored. Whenever anyone else writes, Fossil
//! answers 400 `database is locked` at once, and nothing is stored: that is tried again here, within bounds.

use std::hash::{BuildHasher as _, Hasher as _};
use std::time::Duration;

use super::http::{Answer, Body, FossilError};
use super::login::{CSRF, Session};

/// Tries of one post while the server's database is locked: some 10 s in all, beyond any load measured
/// (8 clients posting without pause needed 4 at most).
pub const LOCKED_TRIES: u32 = 40;
/// Shortest wait between two such tries, in milliseconds.
pub const LOCKED_WAIT_MIN: u64 = 20;
/// Longest wait between two such tries, in milliseconds.
pub const LOCKED_WAIT_MAX: u64 = 500;

const MARKDOWN: &str = "text/x-markdown";
/// Digits of an answer shown in a reason.
const EXCERPT: usize = 200;

/// What became of a post.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Posted {
    /// The server has it (publicly, if the user holds `4`; the answer does not differ for a held post).
    Stored {
        /// The post's hash, as many digits as the server shows: 10, or all with its setting `hash-digits` 64.
        /// `None` for tickets.
        hash_digits: Option<String>,
        /// The ticket's id, 40 digits; `None` for forum posts.
        ticket: Option<String>,
    },
    /// The server does not have it.
    NotStored {
        /// Why, for a person.
        why: String,
        /// Whether and when trying again can help.
        again: Again,
    },
    /// The server may have it: look for it before sending again (C-106).
    Unknown {
        /// Why, for a person.
        why: String,
    },
}

/// Whether and when a post that was not stored can be sent again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Again {
    /// At once. Used inside only: after `LOCKED_TRIES` it becomes `Later`.
    AtOnce,
    /// Later, with a back-off: no connection, an overloaded or failing server, a lock that stays (C-107).
    Later,
    /// Never as it is: a closed thread, a letter lacking, an unknown post or ticket.
    Never,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Page {
    Forum,
    Ticket,
}

impl Session {
    /// Starts a thread. The title should be one line.
    pub fn new_thread(&self, title: &str, text: &str) -> Posted {
        self.post(
            "/forume1",
            Page::Forum,
            &[("title", title), ("mimetype", MARKDOWN), ("content", text), ("submit", "Submit")],
        )
    }

    /// Replies to the post `post_hash` (full, or a unique prefix).
    pub fn reply(&self, post_hash: &str, text: &str) -> Posted {
        let fields =
            [("fpid", post_hash), ("reply", "1"), ("mimetype", MARKDOWN), ("content", text), ("submit", "Submit")];
        self.post("/forume2", Page::Forum, &fields)
    }

    /// Files a ticket whose first remark is `text`.
    pub fn new_ticket(&self, title: &str, text: &str) -> Posted {
        let fields = [("title", title), ("icomment", text), ("mutype", "Markdown"), ("submit", "1")];
        self.post("/tktnew", Page::Ticket, &fields)
    }

    /// Adds the remark `text` to the ticket `ticket_id` (40 digits, or a unique prefix).
    pub fn change_ticket(&self, ticket_id: &str, text: &str) -> Posted {
        let fields = [("name", ticket_id), ("icomment", text), ("mutype", "Markdown"), ("submit", "1")];
        self.post("/tktedit", Page::Ticket, &fields)
    }

    fn post(&self, path: &str, page: Page, fields: &[(&str, &str)]) -> Posted {
        let mut last = String::new();
        let mut most = 2 * LOCKED_WAIT_MIN;
        for _ in 0..LOCKED_TRIES {
            match self.post_once(path, page, fields) {
                Posted::NotStored { why, again: Again::AtOnce } => last = why,
                done @ (Posted::Stored { .. } | Posted::NotStored { .. } | Posted::Unknown { .. }) => return done,
            }
            // Short at first: most locks are one other post long.
            std::thread::sleep(jitter(LOCKED_WAIT_MIN, most));
            most = (most * 2).min(LOCKED_WAIT_MAX);
        }
        Posted::NotStored { why: format!("{last}, {LOCKED_TRIES} tries"), again: Again::Later }
    }

    fn post_once(&self, path: &str, page: Page, fields: &[(&str, &str)]) -> Posted {
        let sent = self.with_session(
            |signed| {
                let mut fields = fields.to_vec();
                fields.push((CSRF, signed.csrf()));
                self.http().post(path, Some(signed.cookie()), Body::Form(&fields), self.answer_wait())
            },
            |answer| self.to_login(answer) || is_stale_token(answer),
        );
        match sent {
            Ok(answer) => self.judge(path, page, &answer),
            // Signing in comes before the post and stores nothing, whatever its own outcome.
            Err(FossilError::NoAnswer { what, why }) if what == format!("POST {path}") => {
                Posted::Unknown { why: format!("{what}: no answer: {why}") }
            }
            Err(error) => Posted::NotStored { why: error.to_string(), again: Again::Later },
        }
    }

    /// The tables of Fossil's answers; anything unforeseen is not believed stored.
    fn judge(&self, path: &str, page: Page, answer: &Answer) -> Posted {
        let what = format!("POST {path}");
        let not = |why: &str, again: Again| Posted::NotStored { why: format!("{what}: {why}"), again };
        if answer.is_robot_page() {
            return not("the server takes this client for a robot", Again::Later);
        }
        let text = answer.text.as_str();
        match answer.status {
            301..=303 | 307 | 308 => {
                let location = answer.location.as_deref().unwrap_or("");
                let below = self.http().base().below(location);
                if let Some(stored) = below.filter(|_| answer.status == 302).and_then(|path| stored(page, path)) {
                    return stored;
                }
                if self.to_login(answer) {
                    // Signed in a moment ago: what lacks is the letter.
                    return not("the user may not write here: a letter is lacking", Again::Never);
                }
                not(&format!("not stored: sent elsewhere, to {}", excerpt(location)), Again::Later)
            }
            200 if text.contains("is CLOSED and can only be") => not("the thread is closed", Again::Never),
            200 if text.contains("Invalid CSRF token") => {
                not("the server does not accept the csrf token", Again::Later)
            }
            200 => not(
                "not stored, a page came instead: is the text blank, or the server's URL another than the one given?",
                Again::Later,
            ),
            400 | 500 if is_locked(text) => not("database is locked", Again::AtOnce),
            // A full disk or a damaged file is mended by a person, and says nothing against the post.
            400 | 500 if text.contains("Database error") => {
                not(&format!("not stored: {}", excerpt(text)), Again::Later)
            }
            400 => not(&format!("refused: {}", excerpt(text)), Again::Never),
            500 if text.contains("fpid") || text.contains("no such ticket") => {
                not(&format!("refused: {}", excerpt(text)), Again::Never)
            }
            // A server in front gave up on the one behind, which may have stored it all the same.
            502 | 504 => Posted::Unknown { why: format!("{what}: answered {} by a server in front", answer.status) },
            413 => not("refused: the text is larger than the server takes", Again::Never),
            status => not(&format!("not stored: answered {status}: {}", excerpt(text)), Again::Later),
        }
    }
}

/// The redirect of a stored post or ticket change, or nothing.
fn stored(page: Page, path: &str) -> Option<Posted> {
    let hex = |text: &str, len: std::ops::RangeInclusive<usize>| {
        len.contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    };
    match page {
        Page::Forum => {
            let digits = path.strip_prefix("/forumpost/")?;
            hex(digits, 4..=64).then(|| Posted::Stored { hash_digits: Some(digits.to_owned()), ticket: None })
        }
        Page::Ticket => {
            let id = path.strip_prefix("/tktview/").or_else(|| path.strip_prefix("/tktview?name="))?;
            hex(id, 40..=40).then(|| Posted::Stored { hash_digits: None, ticket: Some(id.to_owned()) })
        }
    }
}

/// Two first posts at once in a young repository also meet `table forumpost already exists`.
fn is_locked(text: &str) -> bool {
    text.contains("database is locked") || text.contains("forumpost already exists")
}

/// The session was renewed by another client since our token was read: nothing was stored.
fn is_stale_token(answer: &Answer) -> bool {
    (answer.status == 200 && answer.text.contains("Invalid CSRF token"))
        || (answer.status == 400 && answer.text.contains("Cross-site request forgery attempt"))
}

/// The start of a page's text, markup dropped, on one line.
fn excerpt(text: &str) -> String {
    let mut plain = String::new();
    let mut in_tag = false;
    for c in text.chars() {
        match c {
            '<' => in_tag = true,
            '>' => in_tag = false,
            _ if in_tag => {}
            c if c.is_whitespace() || c.is_control() => {
                if !plain.ends_with(' ') {
                    plain.push(' ');
                }
            }
            c => plain.push(c),
        }
        if plain.len() >= EXCERPT {
            break;
        }
    }
    plain.trim().to_owned()
}

/// A wait chosen at random, so that two clients that met a lock do not meet again.
pub(super) fn jitter(min_ms: u64, max_ms: u64) -> Duration {
    // Each RandomState is keyed anew; no crate is needed for a number that need not be secret.
    let random = std::collections::hash_map::RandomState::new().build_hasher().finish();
    Duration::from_millis(min_ms + random % (max_ms - min_ms + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_right_redirect_is_a_stored_post() {
        let digits = |path| match stored(Page::Forum, path) {
            Some(Posted::Stored { hash_digits, .. }) => hash_digits,
            _ => None,
        };
        assert_eq!(digits("/forumpost/0123456789").as_deref(), Some("0123456789"));
        for other in ["/forumpost/", "/forumpost/xyz1", "/forumpost/0123456789/x", "/forum", "/tktview/0123456789"] {
            assert_eq!(digits(other), None, "{other}");
        }
        let id = "0123456789012345678901234567890123456789";
        assert_eq!(
            stored(Page::Ticket, &format!("/tktview/{id}")),
            Some(Posted::Stored { hash_digits: None, ticket: Some(id.to_owned()) })
        );
        assert_eq!(stored(Page::Ticket, "/tktview/0123"), None);
    }

    #[test]
    fn waits_stay_within_their_bounds() {
        for _ in 0..1000 {
            let wait = jitter(LOCKED_WAIT_MIN, LOCKED_WAIT_MAX).as_millis();
            assert!((20..=500).contains(&wait), "{wait}");
        }
    }
}

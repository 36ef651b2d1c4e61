//! Waiting for the server to say that something came: Fossil's chat, used as a bell only.
//!
//! With the server's setting `chat-timeline-user`, each post, ticket change and push makes a chat message. Approvals
//! make none, so an answer without messages is also a reason to look.

use std::time::Duration;

use serde_json::Value;

use super::http::{Answer, FossilError};
use super::login::Session;

/// Longest wait for the answer that begins a chat.
const BEGIN_WAIT: Duration = Duration::from_secs(30);

/// What a waiter should add to the server's `chat-poll-timeout` for its own time-out.
pub const CHAT_MARGIN: Duration = Duration::from_secs(30);

pub(super) enum Bell {
    Highest(u64),
    Error(String),
}

impl Session {
    /// Has the server keep chat messages from now on, without waiting for one: a chat nobody ever asked has no table, and
    /// what is posted then rings for nobody.
    ///
    /// # Errors
    /// As any request; `Answered` as [`Self::chat_wait`] has it.
    pub fn chat_begin(&self) -> Result<(), FossilError> {
        // Asked for what came before a message, Fossil answers at once.
        let path = "/chat-poll?before=1&n=1";
        let answer = self.with_session(
            |signed| self.http().get(path, Some(signed.cookie()), BEGIN_WAIT),
            |answer| self.to_login(answer) || matches!(read(answer, 0), Ok(Bell::Error(_))),
        )?;
        let wrong =
            |why: String| FossilError::Answered { what: "GET /chat-poll".to_owned(), status: answer.status, why };
        match read(&answer, 0) {
            Ok(Bell::Highest(_)) => Ok(()),
            Ok(Bell::Error(why)) | Err(why) => Err(wrong(why)),
        }
    }

    /// Waits until the chat holds a message after number `after`, or the server tires of waiting
    /// (`chat-poll-timeout`), and gives the highest number known then: `after` itself when nothing came.
    ///
    /// `wait` is this client's own bound, beyond the server's. A first call with `after` 0 answers at once unless the
    /// chat is empty.
    ///
    /// # Errors
    /// As any request. `NoAnswer` after `wait`: harmless, ask again with the same number. `Answered` when the server
    /// twice answers with an error, as to a user without `C`.
    pub fn chat_wait(&self, after: u64, wait: Duration) -> Result<u64, FossilError> {
        let path = format!("/chat-poll?name={after}");
        let answer = self.with_session(
            |signed| self.http().get(&path, Some(signed.cookie()), wait),
            |answer| self.to_login(answer) || matches!(read(answer, after), Ok(Bell::Error(_))),
        )?;
        let wrong =
            |why: String| FossilError::Answered { what: "GET /chat-poll".to_owned(), status: answer.status, why };
        match read(&answer, after) {
            Ok(Bell::Highest(highest)) => Ok(highest),
            Ok(Bell::Error(why)) => Err(wrong(why)),
            Err(why) => Err(wrong(why)),
        }
    }
}

pub(super) fn read(answer: &Answer, after: u64) -> Result<Bell, String> {
    if answer.is_robot_page() {
        return Err("the server takes this client for a robot".to_owned());
    }
    if answer.status != 200 {
        return Err("not a chat answer".to_owned());
    }
    // Messages hold what people wrote; nothing of them is read but the number.
    let value: Value = match serde_json::from_str(&answer.text) {
        Ok(value) => value,
        // A message that is no JSON must not silence the bell for good: go on after the first.
        Err(error) => {
            let first = first_number(&answer.text).filter(|first| *first > after);
            return first.map(Bell::Highest).ok_or_else(|| format!("not a chat answer: {error}"));
        }
    };
    let items = value.get("msgs").and_then(Value::as_array).ok_or("not a chat answer: no msgs")?;
    let mut highest = after;
    for item in items {
        if item.get("isError").and_then(Value::as_bool) == Some(true) {
            let why = item.get("xmsg").and_then(Value::as_str).unwrap_or("no reason given");
            return Ok(Bell::Error(format!("the chat refused: {}", why.chars().take(200).collect::<String>())));
        }
        let number = item.get("msgid").and_then(Value::as_u64).ok_or("a chat message without a number")?;
        highest = highest.max(number);
    }
    Ok(Bell::Highest(highest))
}

/// The number of the first message, which comes before all that anyone wrote.
fn first_number(text: &str) -> Option<u64> {
    let digits: String = text
        .trim_start()
        .strip_prefix("{\"msgs\":[")?
        .trim_start()
        .strip_prefix("{\"msgid\":")?
        .chars()
        .take_while(char::is_ascii_digit)
        .collect();
    digits.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bell(text: &str) -> Result<u64, String> {
        let answer = Answer {
            status: 200,
            location: None,
            content_type: "text/json".into(),
            cookies: vec![],
            text: text.into(),
        };
        match read(&answer, 7)? {
            Bell::Highest(highest) => Ok(highest),
            Bell::Error(why) => Err(why),
        }
    }

    #[test]
    fn the_bell_is_read() {
        assert_eq!(bell("{\"msgs\":[\n\n]}"), Ok(7));
        assert_eq!(bell(r#"{"msgs":[{"msgid":9,"xmsg":"\u0000"},{"msgid":8}]}"#), Ok(9));
        assert!(bell(r#"{"msgs":[{"isError":true,"xfrom":null,"xmsg":"not allowed"}]}"#).is_err());
        assert_eq!(
            bell("{\"msgs\":[\n{\"msgid\":9,\"xmsg\":\"\u{1}\"},{\"msgid\":999}]}"),
            Ok(9),
            "a control character"
        );
        assert!(bell("{\"msgs\":[\n{\"msgid\":7,\"xmsg\":\"\u{1}\"}]}").is_err(), "nothing new");
        assert!(bell("<html>").is_err());
        assert!(bell(r#"{"msgs":[{"msgid":"9"}]}"#).is_err());
    }
}

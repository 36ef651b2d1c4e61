//! A text to its first OCX message (protocol 2.1; decisions C-12, C-13).

use serde_json::{Map, Value};

use super::{fences, strict};
use crate::protocol::VERSION;
use crate::protocol::kinds::Kind;

/// A version 2 message as it was found: an envelope, a kind, and content no layer has read.
#[derive(Debug, Clone, PartialEq)]
pub struct Message {
    /// The login asked to act; nothing when absent or no text.
    pub to: Option<String>,
    /// The hash of the message answered, as written; nothing when absent or no text.
    pub re: Option<String>,
    /// The kind, which need not be one OCX knows.
    pub kind: String,
    /// The content.
    pub content: Map<String, Value>,
}

impl Message {
    /// The kind, when it is one of KINDS.
    #[must_use]
    pub fn known_kind(&self) -> Option<Kind> {
        Kind::from_word(&self.kind)
    }
}

/// The keys of the envelope besides the kind.
const ENVELOPE: [&str; 3] = ["ocx", "to", "re"];

/// The text's message: its first fenced block that holds one.
///
/// For a forum post the text is the post's; for a ticket change it is what the change adds to `icomment`.
#[must_use]
pub fn find(text: &str) -> Option<Message> {
    fences::message_blocks(text).into_iter().find_map(read)
}

/// How many messages stand after the one that is read, and are read by nobody. For people.
#[must_use]
pub fn unread_after_first(text: &str) -> usize {
    fences::message_blocks(text).into_iter().filter(|block| read(block).is_some()).count().saturating_sub(1)
}

/// Why each fenced block that may hold a message holds none, in order; the first that does ends the list. For people.
#[must_use]
pub fn unread(text: &str) -> Vec<String> {
    fences::message_blocks(text)
        .into_iter()
        .map_while(|block| read(block).is_none().then(|| why_unread(block)))
        .collect()
}

fn why_unread(block: &str) -> String {
    let why = match strict::parse(block) {
        Err(why) => return format!("it is no JSON text that this protocol reads: {why}"),
        Ok(Value::Object(object)) if object.get("ocx").and_then(Value::as_u64) != Some(VERSION) => {
            "its ocx is not the integer 2"
        }
        Ok(Value::Object(_)) => "beside ocx, to and re it has not one key, whose value is an object",
        Ok(_) => "it is no JSON object",
    };
    why.to_owned()
}

/// Whether the text holds an OCX message of any version; sessions are not given such text (protocol 2.11).
#[must_use]
pub fn any_block(text: &str) -> bool {
    fences::message_blocks(text).into_iter().any(|block| {
        let Ok(Value::Object(object)) = strict::parse(block) else { return false };
        let version = object.get("ocx").and_then(Value::as_u64);
        version.is_some_and(|version| version != VERSION) || envelope(object).is_some()
    })
}

fn read(block: &str) -> Option<Message> {
    if let Value::Object(object) = strict::parse(block).ok()? { envelope(object) } else { None }
}

fn envelope(mut object: Map<String, Value>) -> Option<Message> {
    // The JSON integer 2 alone: 2.0 and 2e0 are read as no integer, "2" as text.
    if object.get("ocx").and_then(Value::as_u64) != Some(VERSION) {
        return None;
    }
    let text = |value: Option<Value>| value.and_then(|value| value.as_str().map(str::to_owned));
    let to = text(object.remove("to"));
    let re = text(object.remove("re"));
    let mut others = object.into_iter().filter(|(key, _)| !ENVELOPE.contains(&key.as_str()));
    let (kind, content) = others.next()?;
    match (content, others.next()) {
        (Value::Object(content), None) => Some(Message { to, re, kind, content }),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test fails by panicking")]
    use super::*;

    fn block(json: &str) -> String {
        format!("```json\n{json}\n```\n")
    }

    #[test]
    fn a_message_is_its_envelope_its_kind_and_its_content() {
        let message = find(&block(r#"{"ocx":2,"to":"lab-1","re":"abc","greeting":{"ocx":1,"to":5}}"#)).unwrap();
        assert_eq!(message.to.as_deref(), Some("lab-1"));
        assert_eq!(message.re.as_deref(), Some("abc"));
        assert_eq!(message.kind, "greeting");
        assert_eq!(message.content.get("to"), Some(&Value::from(5)));
        assert_eq!(message.known_kind(), None);
    }

    #[test]
    fn a_second_message_is_counted() {
        let one = block(r#"{"ocx":2,"stop":{}}"#);
        assert_eq!((unread_after_first("words"), unread_after_first(&one)), (0, 0));
        assert_eq!(unread_after_first(&format!("{one}\n{}\n{one}", block("{}"))), 1);
    }

    #[test]
    fn each_block_that_is_none_says_why() {
        let said = |json: &str| unread(&block(json)).first().cloned().unwrap_or_default();
        assert!(said("{\n\"ocx\": 2,}").contains("line 2 column"));
        assert!(said(r#"{"ocx":2,"ocx":2,"stop":{}}"#).contains("a key is repeated"));
        assert!(said(r#"{"ocx":1,"stop":{}}"#).contains("integer 2"));
        assert!(said(r#"{"ocx":2,"stop":[]}"#).contains("one key"));
        assert!(said("[]").contains("no JSON object"));
        assert!(unread(&block(r#"{"ocx":2,"stop":{}}"#)).is_empty() && unread("words").is_empty());
    }

    #[test]
    fn v2_2_1_09_ocx_is_the_integer_2() {
        assert!(find(&block(r#"{"ocx":2,"stop":{}}"#)).is_some());
        for wrong in ["\"2\"", "1", "3", "2.0", "2e0", "20e-1", "-2", "null", "[2]", "18446744073709551618"] {
            assert_eq!(find(&block(&format!("{{\"ocx\":{wrong},\"stop\":{{}}}}"))), None, "{wrong}");
        }
        assert_eq!(find(&block(r#"{"stop":{}}"#)), None);
    }

    #[test]
    fn v2_2_1_10_exactly_one_other_key_whose_value_is_an_object() {
        for wrong in [
            r#"{"ocx":2}"#,
            r#"{"ocx":2,"to":"a"}"#,
            r#"{"ocx":2,"run":{},"stop":{}}"#,
            r#"{"ocx":2,"stop":[]}"#,
            r#"{"ocx":2,"stop":null}"#,
            r#"{"ocx":2,"stop":{},"x":1}"#,
        ] {
            assert_eq!(find(&block(wrong)), None, "{wrong}");
        }
    }

    #[test]
    fn v2_2_1_12_the_first_block_that_holds_a_message_is_the_texts_message() {
        let text =
            format!("{}{}{}", block("{\"no\": 1}"), block(r#"{"ocx":2,"a":{"n":1}}"#), block(r#"{"ocx":2,"b":{}}"#));
        assert_eq!(find(&text).unwrap().kind, "a");
    }

    #[test]
    fn v2_2_1_13_a_version_1_block_is_no_message_but_is_an_ocx_block() {
        let text = block(r#"{"ocx":1,"kind":"run","node":"lab-1"}"#);
        assert_eq!(find(&text), None);
        assert!(any_block(&text));
        assert!(any_block(&block(r#"{"ocx":2,"greeting":{}}"#)));
        for none in [block("{}"), block(r#"{"ocx":2}"#), block("[1]"), "ocx 2".to_owned()] {
            assert!(!any_block(&none), "{none}");
        }
    }

    #[test]
    fn v2_2_1_15_a_to_that_is_no_text_is_no_address() {
        assert_eq!(find(&block(r#"{"ocx":2,"to":7,"run":{}}"#)).unwrap().to, None);
        assert_eq!(find(&block(r#"{"ocx":2,"to":["lab-1"],"run":{}}"#)).unwrap().to, None);
    }
}

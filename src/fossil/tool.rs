//! Asking a tool under `/ext/ocx`: a JSON question, and the answer's common shape checked.

use std::time::Duration;

use serde_json::Value;

use super::http::{Answer, Body, FossilError};
use super::login::Session;

/// Asks `tool`, and gives its `result` once the answer has the shape every tool's has.
pub(super) fn ask(session: &Session, tool: &str, question: &Value, wait: Duration) -> Result<Value, FossilError> {
    let text = question.to_string();
    let answer = session.with_session(
        |signed| session.http().post(&format!("/ext/ocx/{tool}"), Some(signed.cookie()), Body::Json(&text), wait),
        // An extension runs signed out as well: the tool says so itself, and does nothing else then.
        |answer| session.to_login(answer) || is_signed_out(answer),
    );
    match answer {
        // Fossil 2.21 that cannot start an extension begins a second answer within the headers of the first.
        Err(FossilError::NoAnswer { what, why }) if why.contains("http parse fail") => Err(FossilError::NoAnswer {
            what,
            why: format!("{why}; so answers a server that could not start the extension"),
        }),
        answer => result(tool, &answer?),
    }
}

/// The tool's answer to a caller whose session the server ended (status 401, set by our own tool).
fn is_signed_out(answer: &Answer) -> bool {
    answer.status == 401 && answer.content_type == "application/json"
}

pub(super) fn result(tool: &str, answer: &Answer) -> Result<Value, FossilError> {
    let wrong = |why: &str| FossilError::Answered {
        what: format!("POST /ext/ocx/{tool}"),
        status: answer.status,
        why: why.to_owned(),
    };
    if answer.is_robot_page() {
        return Err(wrong("the server takes this client for a robot"));
    }
    if answer.content_type != "application/json" {
        // Fossil answers 200 `Not Found` for a program it cannot start.
        return Err(wrong(match answer.status {
            200 if answer.text.contains("Not Found") => {
                "the server could not start the extension: is it in a jail, or no program for this machine?"
            }
            404 => "the server has no extension ocx: was it started with --extroot?",
            503 => "the server is over its load limit",
            _ => "no JSON came: this is not the extension's answer",
        }));
    }
    let value: Value = serde_json::from_str(&answer.text).map_err(|error| wrong(&format!("broken JSON: {error}")))?;
    let Value::Object(mut whole) = value else { return Err(wrong("not an object")) };
    if whole.get("tool").and_then(Value::as_str) != Some(tool) {
        return Err(wrong("another tool answered"));
    }
    let shaped =
        matches!(whole.get("dry_run"), Some(Value::Bool(_))) && matches!(whole.get("log"), Some(Value::Array(_)));
    if !shaped {
        return Err(wrong("the answer lacks dry_run or log"));
    }
    match whole.get("stopped") {
        Some(Value::Null) => {}
        Some(Value::String(why)) => return Err(FossilError::Stopped { tool: tool.to_owned(), why: why.clone() }),
        _ => return Err(wrong("the answer lacks stopped")),
    }
    if answer.status != 200 {
        return Err(wrong("a result, but not status 200"));
    }
    whole.remove("result").ok_or_else(|| wrong("the answer lacks result"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "tests")]
    use super::*;

    fn answer(status: u16, content_type: &str, text: &str) -> Answer {
        Answer { status, location: None, content_type: content_type.into(), cookies: vec![], text: text.into() }
    }

    #[test]
    fn only_the_tools_own_whole_answer_counts() {
        let good = r#"{"tool":"receipt","dry_run":false,"log":[],"stopped":null,"result":{"a":1},"more":2}"#;
        assert_eq!(result("receipt", &answer(200, "application/json", good)).unwrap()["a"], 1);
        for (status, kind, text) in [
            (200, "text/html", "Not Found"),
            (200, "text/html", good),
            (404, "text/html", "<h1>Not found</h1>"),
            (500, "application/json", good),
            (200, "application/json", "{"),
            (200, "application/json", "[]"),
            (200, "application/json", r#"{"tool":"clones","dry_run":false,"log":[],"stopped":null,"result":{}}"#),
            (200, "application/json", r#"{"tool":"receipt","log":[],"stopped":null,"result":{}}"#),
            (200, "application/json", r#"{"tool":"receipt","dry_run":false,"log":[],"result":{}}"#),
            (200, "application/json", r#"{"tool":"receipt","dry_run":false,"log":[],"stopped":null}"#),
        ] {
            assert!(
                matches!(result("receipt", &answer(status, kind, text)), Err(FossilError::Answered { .. })),
                "{text}"
            );
        }
        let stopped = r#"{"tool":"receipt","dry_run":false,"log":[],"stopped":"no","result":null}"#;
        let error = result("receipt", &answer(403, "application/json", stopped)).unwrap_err();
        assert_eq!(error, FossilError::Stopped { tool: "receipt".into(), why: "no".into() });
    }
}

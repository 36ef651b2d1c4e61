//! What OCX writes, byte for byte, and what counts of it (protocol 2.3, 2.4, 2.10, 2.12).

use ocx::engine::check::{self, ReportFacts, Sender};
use ocx::engine::message::{self, Message};
use ocx::engine::report::{self, Ended, How, Place, Tail};
use ocx::protocol::kinds::Kind;
use ocx::protocol::outcomes::OUTCOMES;
use serde_json::json;

use super::support::{RUN, post, r_user, run_id, setup_user};

fn message(value: &serde_json::Value) -> Message {
    message::find(&post(value)).unwrap()
}

#[test]
fn v2_2_12_each_ended_has_the_keys_of_its_outcome_and_is_read_back() {
    let note = || "why\n```json\n".to_owned();
    for (how, content) in [
        (How::Refused { note: note() }, r#"{"outcome":"refused","note":"why\u000a```json\u000a"}"#),
        (How::Stopped, r#"{"outcome":"stopped"}"#),
        (How::Exited { exit: 143 }, r#"{"outcome":"exited","exit":143}"#),
        (How::Budget { note: note() }, r#"{"outcome":"budget","note":"why\u000a```json\u000a"}"#),
        (How::Lost { note: note() }, r#"{"outcome":"lost","note":"why\u000a```json\u000a"}"#),
    ] {
        let row = OUTCOMES.iter().find(|row| row.outcome == how.outcome()).unwrap();
        let text = report::ended(&run_id(), &Ended::new(how));
        assert_eq!(text, format!("```json\n{{\"ocx\":2,\"re\":\"{RUN}\",\"ended\":{content}}}\n```\n"));
        let read = report::read_ended(&message::find(&text).unwrap()).unwrap();
        assert_eq!((read.outcome.as_str(), read.run), (row.outcome.word(), run_id()));
        assert_eq!((read.exit.is_some(), read.note.is_some()), (row.exit, row.note.is_some()));
    }
}

#[test]
fn c_26_outputs_and_the_workspace_stand_in_ended() {
    let ended = Ended {
        workspace: Some("kept: EXTRA made.txt".to_owned()),
        outputs: vec![("a".to_owned(), Some("ff".repeat(32))), ("b".to_owned(), None)],
        ..Ended::new(How::Exited { exit: 0 })
    };
    let message = message::find(&report::ended(&run_id(), &ended)).unwrap();
    assert_eq!(
        serde_json::Value::Object(message.content),
        json!({"outcome": "exited", "exit": 0, "workspace": "kept: EXTRA made.txt",
            "outputs": [{"as": "a", "sha256": "ff".repeat(32)}, {"as": "b", "sha256": null}]})
    );
}

#[test]
fn v2_2_3_24_unknown_keys_and_outcomes_are_read_and_no_outcome_is_not() {
    let ended = message(&json!({"ocx": 2, "re": RUN, "ended": {"outcome": "vanished", "x": 1, "exit": "y"}}));
    let read = report::read_ended(&ended).unwrap();
    assert_eq!((read.outcome.as_str(), read.exit), ("vanished", None));
    assert_eq!(report::read_ended(&message(&json!({"ocx": 2, "re": RUN, "ended": {"outcome": 1}}))), None);
    assert_eq!(report::read_ended(&message(&json!({"ocx": 2, "re": &RUN[..10], "ended": {"outcome": "lost"}}))), None);
    let started = message(&json!({"ocx": 2, "re": RUN, "started": {"values": {"checkin": "c", "n": 1}, "x": {}}}));
    assert_eq!(report::read_started(&started).unwrap().values, [("checkin".to_owned(), "c".to_owned())].into());
    assert_eq!(report::read_started(&ended), None);
}

#[test]
fn v2_2_4_03_to_05_what_counts_is_in_its_place_from_the_runs_to() {
    let run = run_id();
    let (stone, pat, lab_1) = (setup_user("stone"), r_user("pat"), setup_user("lab-1"));
    let bob = Sender { login: Some("bob".to_owned()), ..Sender::default() };
    let started = message(&json!({"ocx": 2, "re": RUN, "started": {"values": {}, "limits": {}}}));
    let ended = message(&json!({"ocx": 2, "re": RUN, "ended": {"outcome": "refused", "note": "x"}}));
    let other = message(&json!({"ocx": 2, "re": "f".repeat(40), "ended": {"outcome": "lost", "note": "x"}}));
    let run_itself = message(&json!({"ocx": 2, "re": RUN, "run": {}}));
    let facts = |message, run_sender| ReportFacts {
        message,
        from: Some("lab-1"),
        in_the_runs_place: true,
        run: &run,
        to: "lab-1",
        run_sender,
    };
    assert_eq!(check::report_counts(&facts(&started, &stone)), Some(Kind::Started));
    assert_eq!(check::report_counts(&facts(&ended, &stone)), Some(Kind::Ended));
    // 2.4-05: a refusal's ended needs no such sender; 2.4-04: a started does, and a different one.
    assert_eq!(check::report_counts(&facts(&ended, &bob)), Some(Kind::Ended));
    assert_eq!(check::report_counts(&facts(&started, &bob)), None);
    assert_eq!(check::report_counts(&facts(&started, &lab_1)), None);
    assert_eq!(check::report_counts(&facts(&started, &pat)), Some(Kind::Started));
    assert_eq!(check::report_counts(&facts(&other, &stone)), None);
    assert_eq!(check::report_counts(&facts(&run_itself, &stone)), None);
    let no_outcome = message(&json!({"ocx": 2, "re": RUN, "ended": {}}));
    assert_eq!(check::report_counts(&facts(&no_outcome, &stone)), None);
    assert_eq!(check::report_counts(&ReportFacts { from: Some("bob"), ..facts(&ended, &stone) }), None);
    assert_eq!(check::report_counts(&ReportFacts { from: None, ..facts(&ended, &stone) }), None);
    assert_eq!(check::report_counts(&ReportFacts { in_the_runs_place: false, ..facts(&ended, &stone) }), None);
}

#[test]
fn v2_2_3_05_a_stop_names_its_run_in_full_and_holds_nothing() {
    assert_eq!(check::stop_of(&message(&json!({"ocx": 2, "re": RUN, "stop": {}}))), Some(run_id()));
    // C-20: a to beside it is not read.
    assert_eq!(check::stop_of(&message(&json!({"ocx": 2, "to": "x", "re": RUN, "stop": {}}))), Some(run_id()));
    for wrong in [
        json!({"ocx": 2, "re": RUN, "stop": {"why": "x"}}),
        json!({"ocx": 2, "stop": {}}),
        json!({"ocx": 2, "re": &RUN[..10], "stop": {}}),
        json!({"ocx": 2, "re": RUN.to_uppercase(), "stop": {}}),
        json!({"ocx": 2, "re": RUN, "publish": {}}),
    ] {
        assert_eq!(check::stop_of(&message(&wrong)), None, "{wrong}");
    }
}

#[test]
fn v2_2_3_08_a_publish_names_its_clone_and_its_run_and_holds_nothing() {
    let publish = message(&json!({"ocx": 2, "to": "lab-1", "re": RUN, "publish": {}}));
    assert_eq!(check::publish_of(&publish), Some(("lab-1", run_id())));
    for wrong in [
        json!({"ocx": 2, "to": "lab-1", "re": RUN, "publish": {"force": true}}),
        json!({"ocx": 2, "to": "lab-1", "publish": {}}),
        json!({"ocx": 2, "re": RUN, "publish": {}}),
    ] {
        assert_eq!(check::publish_of(&message(&wrong)), None, "{wrong}");
    }
}

#[test]
fn v2_2_3_06_and_09_who_may_stop_and_who_may_publish() {
    let bob = Sender { login: Some("bob".to_owned()), ..Sender::default() };
    assert!(check::stop_allowed(&setup_user("stone"), Some("pat")));
    assert!(check::stop_allowed(&r_user("pat"), Some("pat")));
    assert!(!check::stop_allowed(&r_user("pat"), Some("stone")));
    assert!(!check::stop_allowed(&bob, Some("bob")));
    assert!(!check::stop_allowed(&Sender { r: true, ..Sender::default() }, None));
    assert!(check::publish_allowed(&bob, Some("bob")));
    assert!(!check::publish_allowed(&bob, Some("pat")));
    assert!(!check::publish_allowed(&Sender::default(), None));
    assert!(check::publish_allowed(&setup_user("stone"), Some("pat")));
}

fn tail(bytes: &[u8]) -> Tail<'_> {
    Tail { bytes, keep_bytes: 65_536 }
}

#[test]
fn c_23_the_kept_log_reply_names_the_run_the_end_and_each_stream() {
    let text = report::kept_log(&run_id(), "exit 3", Some(tail(b"oops\n")), Some(tail(b"hello")));
    assert_eq!(
        text.as_deref(),
        Some("Run 0123456789abcdef0123456789abcdef01234567: exit 3\n\n```stderr\noops\n```\n\n```stdout\nhello\n```\n")
    );
    assert_eq!(report::kept_log(&run_id(), "exit 0", None, Some(tail(b""))), None);
}

#[test]
fn v2_2_10_36_and_c_59_a_message_in_a_stream_is_never_read_as_one() {
    let run = post(&json!({"ocx": 2, "to": "lab-1", "run": {}}));
    assert!(message::find(&run).is_some());
    for printed in [
        run.clone(),
        format!("````\n```\n{run}"),
        format!("```stderr\n```\n{run}"),
        format!("`````````\n\n{run}"),
        run.replace('\n', "\r"),
        format!("~~~\n{run}"),
    ] {
        let text =
            report::kept_log(&run_id(), "exit 1", Some(tail(printed.as_bytes())), Some(tail(printed.as_bytes())));
        let text = text.unwrap();
        assert_eq!(message::find(&text), None, "{text}");
        assert!(!message::any_block(&text), "{text}");
    }
}

#[test]
fn c_80_a_post_shows_what_is_no_text_and_says_when_it_was_cut() {
    let text = report::kept_log(&run_id(), "signal 9", Some(tail(b"a\xffb\0c\n")), None).unwrap();
    assert!(text.contains("a\u{fffd}b\u{2400}c\n"), "{text}");
    let printed = "é".repeat(4);
    let cut = Tail { bytes: &printed.as_bytes()[1..], keep_bytes: 7 };
    let text = report::kept_log(&run_id(), "exit 0", None, Some(cut)).unwrap();
    assert!(text.ends_with("\nThe last 7 bytes of stdout:\n\n```stdout\nééé\n```\n"), "{text}");
}

#[test]
fn c_20_a_misplaced_stop_is_told_where_to_go_and_is_no_message() {
    assert_eq!(
        report::misplaced_stop(&run_id(), Place::Thread("abc")),
        format!(
            "Nothing was done: this stop of run {RUN} is not where its run is. Post it as a reply in the thread of forum \
             post \"abc\".\n"
        )
    );
    let hostile = report::misplaced(Kind::Publish, &run_id(), Place::Ticket("```json\n{\"ocx\":2,\"stop\":{}}\n```"));
    assert!(!message::any_block(&hostile), "{hostile}");
}

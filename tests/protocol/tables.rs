//! The tables over themselves: what no row of one may say against a row of another.

use std::collections::BTreeSet;

use ocx::engine::read;
use ocx::protocol::filters::{Arrival, FILTERS, Filter, line_keys};
use ocx::protocol::forms::{Deliveries, Form, StdoutWhen};
use ocx::protocol::keys::{Acts, KEYS, Reads, Within, keys_within};
use ocx::protocol::kinds::{KINDS, Kind};
use ocx::protocol::outcomes::{OUTCOMES, Outcome};
use ocx::protocol::refusals::REFUSALS;
use ocx::protocol::steps::{STEPS, StepKind, step};
use ocx::protocol::values::{SetBy, VALUES, ValueName};
use serde_json::Value;

use super::support::{asking, plain, with};

#[test]
fn no_key_stands_twice_in_one_place() {
    for (index, row) in KEYS.iter().enumerate() {
        let same = |other: &&ocx::protocol::keys::KeyRow| other.within == row.within && other.key == row.key;
        assert_eq!(KEYS.iter().position(|other| same(&other)), Some(index), "{}", row.key);
    }
}

#[test]
fn every_optional_key_says_what_its_absence_means_and_no_required_one_does() {
    for row in KEYS {
        assert_eq!(row.default.is_empty(), row.required, "{}", row.key);
    }
}

#[test]
fn every_object_and_list_of_objects_has_rows_of_its_own() {
    for row in KEYS {
        if let Form::Object(within) | Form::Objects(within) = row.form {
            assert!(keys_within(within).next().is_some(), "{}", row.key);
        }
    }
}

#[test]
fn every_key_that_acts_only_as_its_default_says_that_default_in_json() {
    for row in KEYS {
        if let Acts::Only(meaning) = row.acts {
            assert!(serde_json::from_str::<Value>(meaning).is_ok(), "{}", row.key);
            assert_eq!(meaning, row.default, "{}", row.key);
        }
    }
}

#[test]
fn v2_2_3_01_a_run_has_the_seven_content_keys_of_the_protocol() {
    let keys: Vec<&str> = keys_within(Within::Content(Kind::Run)).map(|row| row.key).collect();
    assert_eq!(keys, ["clone", "objective", "of", "workspace", "sandbox", "limits", "process"]);
}

#[test]
fn v2_2_17_03_the_keys_of_a_run_with_their_forms_and_defaults_are_these() {
    let names = |within| keys_within(within).map(|row| row.key).collect::<Vec<_>>().join(" ");
    assert_eq!(
        names(Within::Sandbox),
        "uid gid linux_capabilities network isolate_terminal ends_with_parent proc dev tmp read_only read_write devices \
         homes workspace_at created_files"
    );
    assert_eq!(names(Within::Limits), "wall cpu processes file_size memory");
    assert_eq!(
        names(Within::Process),
        "user command env cwd manual session hears checkins deliveries terminal ends keep verdict unversioned_files"
    );
    assert_eq!(names(Within::Keep), "stderr stdout stdout_when");
    let optional = |within| keys_within(within).filter(|row| !row.required).map(|row| row.key).collect::<Vec<_>>();
    // V2-2.8-01: every sandbox key but these two is required.
    assert_eq!(optional(Within::Sandbox), ["devices", "workspace_at"]);
    let defaults: Vec<_> = keys_within(Within::Process).map(|row| row.default).collect();
    assert_eq!(
        defaults,
        [
            "",
            "",
            "{}",
            "$$workspace$$, or / with no workspace",
            "false",
            "false",
            "[]",
            "[]",
            "\"feed\"",
            "false",
            "false",
            "{}",
            "false",
            "[]"
        ]
    );
}

#[test]
fn v2_2_6_04_values_are_not_read_where_the_protocol_says_so() {
    for (within, key) in [
        (Within::Sandbox, "workspace_at"),
        (Within::Process, "user"),
        (Within::Process, "deliveries"),
        (Within::Process, "hears"),
        (Within::Process, "checkins"),
        (Within::Step(StepKind::Directory), "remove_on"),
        (Within::Step(StepKind::Directory), "remove"),
        (Within::Content(Kind::Run), "clone"),
        (Within::Content(Kind::Run), "objective"),
        (Within::Content(Kind::Run), "of"),
    ] {
        let row = keys_within(within).find(|row| row.key == key).unwrap();
        assert_eq!(row.reads, Reads::Nothing, "{key}");
    }
}

#[test]
fn v2_2_6_03_values_are_read_in_every_other_text_of_workspace_sandbox_and_process() {
    let unread = ["workspace_at", "user", "deliveries", "hears", "checkins", "remove_on", "remove"];
    for row in KEYS {
        let of_a_run = matches!(
            row.within,
            Within::Step(_) | Within::Sandbox | Within::CreatedFile | Within::Process | Within::UnversionedFile
        );
        let is_text = !matches!(
            row.form,
            Form::Flag | Form::Whole(_) | Form::Count | Form::Object(_) | Form::Objects(_) | Form::Steps
        );
        if of_a_run && is_text && !unread.contains(&row.key) {
            assert_ne!(row.reads, Reads::Nothing, "{}", row.key);
        }
    }
}

#[test]
fn c_11_host_paths_are_read_as_the_host_has_them_and_the_rest_as_the_process_does() {
    let host: BTreeSet<&str> = KEYS.iter().filter(|row| row.reads == Reads::Host).map(|row| row.key).collect();
    assert_eq!(host, ["at", "devices", "homes", "into", "of", "read_only", "read_write"].into());
    let created = keys_within(Within::CreatedFile).map(|row| row.reads).collect::<Vec<_>>();
    assert_eq!(created, [Reads::Process, Reads::Process]);
}

#[test]
fn words_of_forms_are_the_words_of_their_enums() {
    let words = |within, key: &str| match keys_within(within).find(|row| row.key == key).unwrap().form {
        Form::Word(words) => words.to_vec(),
        other => panic!("{other:?}"),
    };
    let deliveries: Vec<_> = Deliveries::ALL.iter().map(|word| word.word()).collect();
    assert_eq!(words(Within::Process, "deliveries"), deliveries);
    let stdout_when: Vec<_> = StdoutWhen::ALL.iter().map(|word| word.word()).collect();
    assert_eq!(words(Within::Keep, "stdout_when"), stdout_when);
}

#[test]
fn every_kind_step_value_filter_and_outcome_has_one_row_in_the_order_of_its_words() {
    assert_eq!(KINDS.iter().map(|row| row.kind).collect::<Vec<_>>(), Kind::ALL);
    assert_eq!(STEPS.iter().map(|row| row.kind).collect::<Vec<_>>(), StepKind::ALL);
    assert_eq!(VALUES.iter().map(|row| row.name).collect::<Vec<_>>(), ValueName::ALL);
    assert_eq!(FILTERS.iter().map(|row| row.filter).collect::<Vec<_>>(), Filter::ALL);
    assert_eq!(OUTCOMES.iter().map(|row| row.outcome).collect::<Vec<_>>(), Outcome::ALL);
    for &kind in StepKind::ALL {
        assert_eq!(step(kind).kind, kind);
    }
}

#[test]
fn every_step_sets_what_values_say_it_sets_and_its_needs_can_stand_before_it() {
    for row in STEPS {
        let set: Vec<ValueName> = VALUES
            .iter()
            .filter(|value| matches!(value.set_by, SetBy::Steps { kinds, .. } if kinds.contains(&row.kind)))
            .map(|value| value.name)
            .collect();
        assert_eq!(row.sets, set, "{}", row.kind);
        assert!(row.needs.iter().all(|need| *need < row.kind), "{}", row.kind);
    }
}

#[test]
fn every_key_of_a_step_belongs_to_a_step_with_that_key_in_the_protocol() {
    let keys = |kind| keys_within(Within::Step(kind)).map(|row| row.key).collect::<Vec<_>>();
    assert_eq!(keys(StepKind::Directory), ["at", "remove_on", "remove"]);
    assert!(keys(StepKind::Password).is_empty());
    assert_eq!(keys(StepKind::Clone), ["into"]);
    assert_eq!(keys(StepKind::Checkout), ["of", "into"]);
    assert_eq!(keys(StepKind::Files), ["of", "into"]);
}

#[test]
fn refusals_are_numbered_in_their_order_and_1_and_2_alone_come_before_a_stop() {
    let rows: Vec<u8> = REFUSALS.iter().map(|row| row.row).collect();
    assert_eq!(rows, [1, 2, 3, 4, 5, 6, 7, 8, 9]);
    for row in REFUSALS {
        assert_eq!(row.before_stop, row.row <= 2);
        assert!(!row.holds_when.is_empty() && !row.note_names.is_empty());
    }
}

#[test]
fn v2_2_12_each_outcome_has_an_exit_or_a_note_or_neither_and_only_a_process_that_ran_publishes() {
    for row in OUTCOMES {
        assert!(!(row.exit && row.note.is_some()), "{}", row.outcome);
        let ran = matches!(row.outcome, Outcome::Exited | Outcome::Budget);
        assert_eq!(row.publishes, ran, "{}", row.outcome);
    }
}

#[test]
fn v2_2_11_a_delivery_names_itself_first_and_who_sent_it() {
    for &arrival in Arrival::ALL {
        assert_eq!(line_keys(arrival)[0], arrival.word());
        assert!(line_keys(arrival).contains(&"from"));
    }
}

/// Keeps the rows and the reader from parting: a row's key is read, and its absence is a fault exactly if required.
#[test]
fn every_key_of_the_run_sandbox_limits_and_process_is_known_to_the_reader() {
    for (within, place) in [
        (Within::Content(Kind::Run), ""),
        (Within::Sandbox, "/sandbox"),
        (Within::Limits, "/limits"),
        (Within::Process, "/process"),
    ] {
        for row in keys_within(within) {
            let pointer = format!("{place}/{}", row.key);
            // No form of the protocol holds null.
            let fault = read::run(&asking(&with(plain(), &pointer, Value::Null)).content).unwrap_err();
            assert_eq!(fault.key, pointer.trim_start_matches('/').replace('/', "."));
            let mut content = plain();
            if let Some(object) = content.pointer_mut(place).and_then(Value::as_object_mut) {
                object.remove(row.key);
            }
            assert_eq!(read::run(&asking(&content).content).is_err(), row.required, "{pointer}");
        }
    }
}

//! Walks a run's content along KEYS: the strings in which values are read, and what this release does not act on.

use serde_json::{Map, Value};

use super::held::{STEP, join};
use super::quote::shown;
use crate::protocol::forms::Form;
use crate::protocol::keys::{Acts, KeyRow, Reads, Within, keys_within};
use crate::protocol::kinds::Kind;
use crate::protocol::steps::StepKind;

/// A string of a run in which values are read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ReadString<'a> {
    /// The key, with its layer.
    pub path: String,
    /// The workspace step it stands in, from 0.
    pub step: Option<usize>,
    /// As written.
    pub text: &'a str,
}

/// Every string of a run's content in which values are read, in the order of KEYS: workspace, sandbox, process.
#[must_use]
pub fn strings(content: &Map<String, Value>) -> Vec<ReadString<'_>> {
    let mut found = Vec::new();
    visit(&Place { path: "", within: Within::Content(Kind::Run), step: None }, content, &mut |key| {
        if key.row.reads != Reads::Nothing {
            gather_texts(key.path, key.value, key.step, &mut found);
        }
    });
    found
}

/// Every text in a value, at any depth; never an object's keys.
fn gather_texts<'a>(path: &str, value: &'a Value, step: Option<usize>, found: &mut Vec<ReadString<'a>>) {
    match value {
        Value::String(text) => found.push(ReadString { path: path.to_owned(), step, text }),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                gather_texts(&format!("{path}[{index}]"), item, step, found);
            }
        }
        Value::Object(object) => {
            for (key, item) in object {
                gather_texts(&format!("{path}[{}]", shown(key)), item, step, found);
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The name of each key of a run's content whose asking this release does not act on (refusal 6). The content is one that
/// `read::run` reads.
#[must_use]
pub fn not_acted_on(content: &Map<String, Value>) -> Vec<String> {
    let mut names = Vec::new();
    visit(&Place { path: "", within: Within::Content(Kind::Run), step: None }, content, &mut |key| {
        let acts = match key.row.acts {
            Acts::Yes => true,
            Acts::No => false,
            Acts::Only(meaning) => serde_json::from_str::<Value>(meaning).is_ok_and(|meaning| meaning == *key.value),
        };
        if !acts {
            names.push(key.path.to_owned());
        }
    });
    names
}

/// A key that is there.
struct Visited<'p, 'a> {
    path: &'p str,
    step: Option<usize>,
    row: &'static KeyRow,
    value: &'a Value,
}

/// An object of the content.
struct Place<'p> {
    path: &'p str,
    within: Within,
    step: Option<usize>,
}

/// Visits every key that is there and has a row, outer before inner.
fn visit<'a>(place: &Place<'_>, object: &'a Map<String, Value>, each: &mut dyn FnMut(Visited<'_, 'a>)) {
    for row in keys_within(place.within) {
        let Some(value) = object.get(row.key) else { continue };
        let path = join(place.path, row.key);
        each(Visited { path: &path, step: place.step, row, value });
        let items = value.as_array().into_iter().flatten().enumerate();
        if let Form::Object(within) = row.form
            && let Some(object) = value.as_object()
        {
            visit(&Place { path: &path, within, step: place.step }, object, each);
        } else if let Form::Objects(within) = row.form {
            for (index, item) in items {
                let Some(object) = item.as_object() else { continue };
                visit(&Place { path: &format!("{path}[{index}]"), within, step: place.step }, object, each);
            }
        } else if row.form == Form::Steps {
            for (index, item) in items {
                let (Some(kind), Some(object)) = (kind_of(item), item.as_object()) else { continue };
                let path = format!("{path}[{index}]");
                visit(&Place { path: &path, within: Within::Step(kind), step: Some(index) }, object, each);
            }
        }
    }
}

fn kind_of(step: &Value) -> Option<StepKind> {
    StepKind::from_word(step.get(STEP)?.as_str()?)
}

//! Holds a run's content against KEYS and FORMS: unknown, missing and malformed keys (refusal 2).

use serde_json::{Map, Value};

use super::quote::shown;
use crate::protocol::forms::{self, Form};
use crate::protocol::keys::{Within, keys_within};
use crate::protocol::names::{CloneCode, Login};
use crate::protocol::steps::StepKind;

/// What is wrong with a run's form: refusal 2.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The key, with its layer, such as `sandbox.read_only[2]`.
    pub key: String,
    /// Why, such as `is required`.
    pub why: String,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.key, self.why)
    }
}

pub(super) fn fault<T>(key: &str, why: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { key: key.to_owned(), why: why.into() })
}

/// The key of a workspace step that names its kind.
pub(super) const STEP: &str = "step";
/// Every login, in `hears`.
pub(super) const EVERYONE: &str = "*";
/// Why a missing key is a fault.
pub(super) const REQUIRED: &str = "is required";
const UNKNOWN: &str = "is no key of version 2";

/// Holds an object against the rows of its place.
pub(super) fn check_object(path: &str, within: Within, object: &Map<String, Value>) -> Result<(), Fault> {
    let is_step = matches!(within, Within::Step(_));
    for key in object.keys() {
        if !(keys_within(within).any(|row| row.key == key) || is_step && key == STEP) {
            return fault(&join(path, &name_of_unknown(key)), UNKNOWN);
        }
    }
    for row in keys_within(within) {
        if row.required && !object.contains_key(row.key) {
            return fault(&join(path, row.key), REQUIRED);
        }
    }
    for row in keys_within(within) {
        if let Some(value) = object.get(row.key) {
            check_value(&join(path, row.key), row.form, value)?;
        }
    }
    Ok(())
}

/// Holds a value against a form.
fn check_value(path: &str, form: Form, value: &Value) -> Result<(), Fault> {
    let text = |why: &str| value.as_str().ok_or_else(|| Fault { key: path.to_owned(), why: why.to_owned() });
    let list = |why: &str| value.as_array().ok_or_else(|| Fault { key: path.to_owned(), why: why.to_owned() });
    match form {
        Form::Flag if !value.is_boolean() => return fault(path, "is not true or false"),
        Form::Flag => {}
        Form::Text => {
            text("is not text")?;
        }
        Form::Argument => {
            if text("is not text")?.contains('\0') {
                return fault(path, "holds a NUL character");
            }
        }
        Form::Name => {
            let text = text("is not text")?;
            if text.is_empty() {
                return fault(path, "is empty");
            }
            if text.contains('\0') {
                return fault(path, "holds a NUL character");
            }
        }
        Form::Login => {
            if Login::new(text("is not a login")?).is_none() {
                return fault(path, "is not a login");
            }
        }
        Form::CloneCode => {
            if CloneCode::new(text("is not 40 lower-case hex digits")?).is_none() {
                return fault(path, "is not 40 lower-case hex digits");
            }
        }
        Form::Exactly(number) => {
            if value.as_u64() != Some(number) {
                return fault(path, format!("is not {number}"));
            }
        }
        Form::Whole(max) => {
            if value.as_u64().is_none_or(|number| number > max) {
                return fault(path, format!("is not a whole number from 0 to {max}"));
            }
        }
        Form::Count => {
            if value.as_u64().is_none_or(|number| number == 0 || number > forms::SIZE_BYTES_MAX) {
                return fault(path, "is not a whole number from 1");
            }
        }
        Form::Duration => {
            let text = text("is not a whole number and s, m, h or d, as text, such as \"10m\"")?;
            forms::duration(text).or_else(|why| fault(path, why))?;
        }
        Form::Size => {
            size(value).or_else(|why| fault(path, why))?;
        }
        Form::Word(words) => {
            if !words.contains(&text("is not text")?) {
                return fault(path, format!("is not {}", words.join(" or ")));
            }
        }
        Form::PlaceOfWorkspace => {
            let text = text("is not text")?;
            if !forms::is_normal_path(text) {
                return fault(
                    path,
                    "is not an absolute path other than /, without . or .. parts or repeated or final /",
                );
            }
            if super::expand::names(text).next().is_some() {
                return fault(path, "names a value, and none is read in it");
            }
        }
        Form::Device => {
            let text = text("is not text")?;
            let odd = text.split('/').skip(1).any(|part| part.is_empty() || part == "." || part == "..");
            if text.is_empty() || text.contains('\0') || odd {
                return fault(path, "is not a device's path: a . or .. part, or a / repeated or at its end");
            }
        }
        Form::List(item) => {
            for (index, value) in list("is not a list")?.iter().enumerate() {
                check_value(&format!("{path}[{index}]"), *item, value)?;
            }
        }
        Form::Command => {
            let words = list("is not a list of text")?;
            if words.is_empty() {
                return fault(path, "names no program");
            }
            for (index, word) in words.iter().enumerate() {
                let form = if index == 0 { Form::Name } else { Form::Argument };
                check_value(&format!("{path}[{index}]"), form, word)?;
            }
        }
        Form::Hears => {
            let logins = list("is not a list of logins")?;
            for (index, login) in logins.iter().enumerate() {
                check_value(&format!("{path}[{index}]"), Form::Login, login)?;
            }
            if logins.len() > 1 && logins.iter().any(|login| login.as_str() == Some(EVERYONE)) {
                return fault(path, "has \"*\" beside other names");
            }
        }
        Form::Environment => {
            let Some(variables) = value.as_object() else { return fault(path, "is not an object of texts") };
            for (name, value) in variables {
                let path = format!("{path}[{}]", shown(name));
                if name.is_empty() || name.contains(['=', '\0']) {
                    return fault(&path, "is no name of an environment variable");
                }
                check_value(&path, Form::Argument, value)?;
            }
        }
        Form::Object(within) => {
            let Some(object) = value.as_object() else { return fault(path, "is not an object") };
            check_object(path, within, object)?;
        }
        Form::Objects(within) => {
            for (index, value) in list("is not a list of objects")?.iter().enumerate() {
                check_value(&format!("{path}[{index}]"), Form::Object(within), value)?;
            }
        }
        Form::Steps => {
            for (index, value) in list("is not a list of steps")?.iter().enumerate() {
                check_step(&format!("{path}[{index}]"), value)?;
            }
        }
        Form::AnyObject if !value.is_object() => return fault(path, "is not an object"),
        Form::AnyList if !value.is_array() => return fault(path, "is not a list"),
        Form::AnyObject | Form::AnyList => {}
    }
    Ok(())
}

/// A step of an unknown kind has no keys to be held against; refusal 3 names it.
fn check_step(path: &str, value: &Value) -> Result<(), Fault> {
    let Some(object) = value.as_object() else { return fault(path, "is not an object") };
    match object.get(STEP).map(Value::as_str) {
        None => fault(&join(path, STEP), REQUIRED),
        Some(None) => fault(&join(path, STEP), "is not text"),
        Some(Some(kind)) => match StepKind::from_word(kind) {
            Some(kind) => check_object(path, Within::Step(kind), object),
            None => Ok(()),
        },
    }
}

/// Bytes of a size, as a number or as text.
pub(super) fn size(value: &Value) -> Result<u64, &'static str> {
    const WRONG: &str = "is not a whole number of bytes, nor text of digits and K, M or G";
    match value {
        Value::String(text) => forms::size(text),
        Value::Number(number) => match number.as_u64() {
            Some(bytes) if bytes <= forms::SIZE_BYTES_MAX => Ok(bytes),
            Some(_) => Err(forms::SIZE_TOO_LARGE),
            None => Err(WRONG),
        },
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => Err(WRONG),
    }
}

pub(super) fn join(path: &str, key: &str) -> String {
    if path.is_empty() { key.to_owned() } else { format!("{path}.{key}") }
}

/// An unknown key in a note: as it is when it looks like a key, else as a JSON string.
fn name_of_unknown(key: &str) -> String {
    let plain = !key.is_empty() && key.len() <= 64 && key.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
    if plain { key.to_owned() } else { shown(key) }
}

//! The content of a `run` to a [`Run`], key by key of KEYS (protocol 2.3, 2.7 to 2.10; refusal 2).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::quote::shown;
use super::run::{Hears, Keep, LimitsAsked, ProcessAsked, Run, SandboxAsked, StepAsked};
use crate::protocol::forms::{self, Deliveries, Form, StdoutWhen};
use crate::protocol::keys::{Within, keys_within};
use crate::protocol::kinds::Kind;
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

fn fault<T>(key: &str, why: impl Into<String>) -> Result<T, Fault> {
    Err(Fault { key: key.to_owned(), why: why.into() })
}

/// How much of a stream is kept unless the run says (protocol 2.10).
const KEEP_BYTES_DEFAULT: u64 = 64 << 10;
/// The key of a workspace step that names its kind.
pub(super) const STEP: &str = "step";

/// Reads a run's content.
///
/// # Errors
/// The first [`Fault`], outer objects before inner ones, unknown keys before missing ones.
pub fn run(content: &Map<String, Value>) -> Result<Run, Fault> {
    check_object("", Within::Content(Kind::Run), content)?;
    let top = Object { path: String::new(), map: content };
    let sandbox = top.object("sandbox").map(|object| sandbox(&object)).transpose()?;
    let process = match top.object("process") {
        Some(object) => process(&object)?,
        None => return fault("process", REQUIRED),
    };
    let run = Run {
        clone: CloneCode::new(&top.text("clone")?).ok_or_else(|| top.wrong("clone"))?,
        objective: top.text("objective")?,
        of: top.text_if("of"),
        workspace: top.list("workspace").map(|steps| steps.iter().enumerate().map(step).collect()).transpose()?,
        sandbox,
        limits: top.object("limits").map(|object| limits(&object)).unwrap_or_default(),
        process,
    };
    check_together(&run)?;
    Ok(run)
}

const REQUIRED: &str = "is required";
const UNKNOWN: &str = "is no key of version 2";

/// Holds an object against the rows of its place.
fn check_object(path: &str, within: Within, object: &Map<String, Value>) -> Result<(), Fault> {
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
            let text = text("is not a whole number and s, m, h or d, as text")?;
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

/// What keys ask of each other and no value bears on.
fn check_together(run: &Run) -> Result<(), Fault> {
    let process = &run.process;
    if process.verdict && process.session {
        return fault("process.verdict", "is never written for a session");
    }
    if !process.unversioned_files.is_empty() && process.session && process.deliveries == Deliveries::Start {
        return fault("process.unversioned_files", "are never sent for a session whose deliveries is start");
    }
    for (index, step) in run.workspace.iter().flatten().enumerate() {
        let removed = matches!(step, StepAsked::Directory { removed_once_saved: true, .. });
        if removed && !run.sandbox.as_ref().is_some_and(|sandbox| sandbox.ends_with_parent) {
            return fault(&format!("workspace[{index}].remove_on"), "needs a sandbox with ends_with_parent true");
        }
    }
    Ok(())
}

/// Every login, in `hears`.
const EVERYONE: &str = "*";

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

/// An object that has been held against its rows, and where it stands.
struct Object<'a> {
    path: String,
    map: &'a Map<String, Value>,
}

impl<'a> Object<'a> {
    fn wrong(&self, key: &str) -> Fault {
        let why = if self.map.contains_key(key) { "has the wrong type or form" } else { REQUIRED };
        Fault { key: join(&self.path, key), why: why.to_owned() }
    }

    fn object(&self, key: &str) -> Option<Object<'a>> {
        let map = self.map.get(key)?.as_object()?;
        Some(Object { path: join(&self.path, key), map })
    }

    fn list(&self, key: &str) -> Option<&'a [Value]> {
        self.map.get(key)?.as_array().map(Vec::as_slice)
    }

    fn text_if(&self, key: &str) -> Option<String> {
        self.map.get(key)?.as_str().map(str::to_owned)
    }

    fn text(&self, key: &str) -> Result<String, Fault> {
        self.text_if(key).ok_or_else(|| self.wrong(key))
    }

    fn texts(&self, key: &str) -> Vec<String> {
        let texts = self.list(key).unwrap_or_default();
        texts.iter().filter_map(|text| text.as_str().map(str::to_owned)).collect()
    }

    fn flag(&self, key: &str) -> bool {
        self.map.get(key).and_then(Value::as_bool).unwrap_or(false)
    }

    fn number(&self, key: &str) -> Option<u64> {
        self.map.get(key).and_then(Value::as_u64)
    }

    fn size(&self, key: &str) -> Option<u64> {
        self.map.get(key).and_then(|value| size(value).ok())
    }

    fn id(&self, key: &str) -> Result<u32, Fault> {
        self.number(key).and_then(|id| u32::try_from(id).ok()).ok_or_else(|| self.wrong(key))
    }

    /// The two texts of each object of a list.
    fn pairs(&self, key: &str, first: &str, second: &str) -> Result<Vec<(String, String)>, Fault> {
        let mut pairs = Vec::new();
        for item in self.list(key).unwrap_or_default() {
            let map = item.as_object().ok_or_else(|| self.wrong(key))?;
            let item = Object { path: join(&self.path, key), map };
            pairs.push((item.text(first)?, item.text(second)?));
        }
        Ok(pairs)
    }
}

fn step((index, value): (usize, &Value)) -> Result<StepAsked, Fault> {
    let path = format!("workspace[{index}]");
    let Some(map) = value.as_object() else { return fault(&path, "is not an object") };
    let object = Object { path, map };
    let kind = object.text(STEP)?;
    Ok(match StepKind::from_word(&kind) {
        None => StepAsked::Unknown { kind },
        Some(StepKind::Directory) => StepAsked::Directory {
            at: object.text("at")?,
            removed_once_saved: map.contains_key("remove_on") || map.contains_key("remove"),
        },
        Some(StepKind::Password) => StepAsked::Password,
        Some(StepKind::Clone) => StepAsked::Clone { into: object.text("into")? },
        Some(StepKind::Checkout) => StepAsked::Checkout { of: object.text("of")?, into: object.text("into")? },
        Some(StepKind::Files) => StepAsked::Files { of: object.text("of")?, into: object.text("into")? },
    })
}

fn sandbox(object: &Object<'_>) -> Result<SandboxAsked, Fault> {
    Ok(SandboxAsked {
        uid: object.id("uid")?,
        gid: object.id("gid")?,
        linux_capabilities: object.texts("linux_capabilities"),
        network: object.flag("network"),
        isolate_terminal: object.flag("isolate_terminal"),
        ends_with_parent: object.flag("ends_with_parent"),
        proc: object.text("proc")?,
        dev: object.text("dev")?,
        tmp: object.text("tmp")?,
        read_only: object.texts("read_only"),
        read_write: object.texts("read_write"),
        devices: object.texts("devices"),
        homes: object.texts("homes"),
        workspace_at: object.text_if("workspace_at"),
        created_files: object.pairs("created_files", "at", "text")?,
    })
}

fn limits(object: &Object<'_>) -> LimitsAsked {
    LimitsAsked {
        written: object.map.clone(),
        units: sandbox::spec::Limits {
            wall_s: object.text_if("wall").and_then(|text| forms::duration(&text).ok()),
            cpu_s: object.number("cpu"),
            processes: object.number("processes"),
            file_size_bytes: object.size("file_size"),
            memory_bytes: object.size("memory"),
        },
    }
}

fn process(object: &Object<'_>) -> Result<ProcessAsked, Fault> {
    let keep = object.object("keep");
    let kept = |key: &str| keep.as_ref().and_then(|keep| keep.size(key)).unwrap_or(KEEP_BYTES_DEFAULT);
    let hears = object.texts("hears");
    let env: BTreeMap<String, String> = object.object("env").map_or_else(BTreeMap::new, |env| {
        env.map.keys().filter_map(|name| env.text_if(name).map(|value| (name.clone(), value))).collect()
    });
    Ok(ProcessAsked {
        user: Login::new(&object.text("user")?).ok_or_else(|| object.wrong("user"))?,
        command: object.texts("command"),
        env,
        cwd: object.text_if("cwd"),
        manual: object.flag("manual"),
        session: object.flag("session"),
        hears: if hears.first().is_some_and(|login| login == EVERYONE) {
            Hears::Everyone
        } else {
            Hears::Logins(hears.iter().filter_map(|login| Login::new(login)).collect())
        },
        checkins: object.texts("checkins"),
        deliveries: object
            .text_if("deliveries")
            .and_then(|word| Deliveries::from_word(&word))
            .unwrap_or(Deliveries::Feed),
        terminal: object.flag("terminal"),
        ends: object.flag("ends"),
        keep: Keep {
            stderr_bytes: kept("stderr"),
            stdout_bytes: kept("stdout"),
            stdout_when: keep
                .as_ref()
                .and_then(|keep| keep.text_if("stdout_when"))
                .and_then(|word| StdoutWhen::from_word(&word))
                .unwrap_or(StdoutWhen::Failure),
        },
        verdict: object.flag("verdict"),
        unversioned_files: object.pairs("unversioned_files", "at", "as")?,
    })
}

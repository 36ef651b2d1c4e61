//! The content of a `run` to a [`Run`], key by key of KEYS (protocol 2.3, 2.7 to 2.10; refusal 2).

use std::collections::BTreeMap;

use serde_json::{Map, Value};

pub use super::held::Fault;
use super::held::{EVERYONE, REQUIRED, STEP, check_object, fault, join, size};
use super::run::{Hears, Keep, LimitsAsked, ProcessAsked, Run, SandboxAsked, StepAsked};
use crate::protocol::forms::{self, Deliveries, StdoutWhen};
use crate::protocol::keys::Within;
use crate::protocol::kinds::Kind;
use crate::protocol::names::{CloneCode, Login};
use crate::protocol::steps::StepKind;

/// How much of a stream is kept unless the run says (protocol 2.10).
const KEEP_BYTES_DEFAULT: u64 = 64 << 10;

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

//! Refusal 3: a step kind unknown, a step's needs unmet, a value nothing sets before it (protocol 2.6, 2.7).

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::{Run, StepAsked, StepKind, ValueName, expand, shown, step, walk};
use crate::engine::walk::ReadString;
use crate::protocol::values::{SetBy, VALUES};

/// What is not there, if something is.
pub(super) fn refusal(run: &Run, content: &Map<String, Value>) -> Option<String> {
    let mut strings: BTreeMap<Option<usize>, Vec<ReadString<'_>>> = BTreeMap::new();
    for string in walk::strings(content) {
        strings.entry(string.step).or_default().push(string);
    }
    let unset_in = |at: Option<usize>, set: &BTreeSet<ValueName>| {
        strings.get(&at).into_iter().flatten().find_map(|string| {
            let name = expand::first_unset(string.text, &|name| set.contains(&name))?;
            Some(format!("{} names {}, which nothing sets before it", string.path, shown(&format!("$${name}$$"))))
        })
    };
    let mut set: BTreeSet<ValueName> =
        VALUES.iter().filter(|row| row.set_by == SetBy::Ocx).map(|row| row.name).collect();
    if run.of.is_some() {
        set.insert(ValueName::Checkin);
    }
    let mut done: Vec<StepKind> = Vec::new();
    for (index, asked) in run.workspace.iter().flatten().enumerate() {
        let kind = match asked {
            StepAsked::Directory { .. } => StepKind::Directory,
            StepAsked::Password => StepKind::Password,
            StepAsked::Clone { .. } => StepKind::Clone,
            StepAsked::Checkout { .. } => StepKind::Checkout,
            StepAsked::Files { .. } => StepKind::Files,
            StepAsked::Unknown { kind } => {
                return Some(format!("workspace[{index}]: there is no step {}", shown(kind)));
            }
        };
        if let Some(need) = step(kind).needs.iter().find(|need| !done.contains(need)) {
            return Some(format!("workspace[{index}]: {kind} needs {need} before it"));
        }
        if let Some(what) = unset_in(Some(index), &set) {
            return Some(what);
        }
        done.push(kind);
        set.extend(step(kind).sets);
    }
    if let Some(what) = unset_in(None, &set) {
        return Some(what);
    }
    if let Some(sandbox) = &run.sandbox
        && !set.contains(&ValueName::Workspace)
    {
        if !sandbox.homes.is_empty() {
            return Some("sandbox.homes: there is no workspace to see them in".to_owned());
        }
        if sandbox.workspace_at.is_some() {
            return Some("sandbox.workspace_at: there is no workspace".to_owned());
        }
    }
    (run.process.verdict && !set.contains(&ValueName::Checkin))
        .then(|| "process.verdict: neither of nor a step sets $$checkin$$".to_owned())
}

//! Refusal 1: who may send a run, and what one from R alone must not ask (protocol 2.14; decisions C-07, C-08, C-63).

use super::ceiling::Ceiling;
use super::{
    EXPANDED_BYTES_MAX, Expander, Facts, Reads, Run, Sender, StepAsked, ValueName, Values, expand, forms, paths, shown,
};
use crate::protocol::values::SECRET_PREFIX;

/// What holds, if something does. A run that could not be read is held to what its raw keys show: it is refused for
/// its form next, and nothing is made of it.
pub(super) fn refusal(facts: &Facts<'_>, sender: &Sender, run: Option<&Run>, known: &Values) -> Option<String> {
    if !sender.may_send_runs() {
        let from = sender
            .login
            .as_deref()
            .map_or_else(|| "its sender".to_owned(), |login| format!("its sender {}", shown(login)));
        return Some(format!("{from} holds none of admin, setup and R on the server"));
    }
    if sender.login.is_some() && sender.login == facts.message.to {
        return Some("the run's to sent it".to_owned());
    }
    if !sender.holds_r_alone() {
        return None;
    }
    let what = isolation_of_raw(facts).or_else(|| run.and_then(|run| isolation(facts, run, known)));
    what.map(|what| format!("its sender holds R alone, and {what}"))
}

/// What can be told without the run's form being right.
fn isolation_of_raw(facts: &Facts<'_>) -> Option<String> {
    let Some(sandbox) = facts.message.content.get("sandbox") else { return Some("it has no sandbox".to_owned()) };
    if sandbox.get("ends_with_parent").and_then(serde_json::Value::as_bool) == Some(false) {
        return Some("sandbox.ends_with_parent is false".to_owned());
    }
    let devices = sandbox.get("devices").and_then(|devices| devices.as_array());
    devices.is_some_and(|devices| !devices.is_empty()).then(|| "sandbox.devices names devices".to_owned())
}

/// What was not looked at whole is not allowed.
const TOO_LONG: &str = "its paths are too long with their values in place";

fn isolation(facts: &Facts<'_>, run: &Run, known: &Values) -> Option<String> {
    let mut expander = Expander::new(known, paths::workspace_at(run), EXPANDED_BYTES_MAX);
    for (key, path, reads) in every_path(run) {
        if forms::climbs(path) || forms::climbs(&expander.expand_known(path, reads)) {
            return Some(format!("{key} {} has a .. part", shown(path)));
        }
    }
    if expander.was_too_long() {
        return Some(TOO_LONG.to_owned());
    }
    for (index, step) in run.workspace.iter().flatten().enumerate() {
        match step {
            StepAsked::Directory { at, .. } if !expand::ends_in(at, ValueName::Run) => {
                return Some(format!("workspace[{index}].at {} does not end in $$run$$", shown(at)));
            }
            StepAsked::Password => return Some(format!("workspace[{index}] is a password step")),
            StepAsked::Directory { .. }
            | StepAsked::Clone { .. }
            | StepAsked::Checkout { .. }
            | StepAsked::Files { .. }
            | StepAsked::Unknown { .. } => {}
        }
    }
    for (index, (_, name)) in run.process.unversioned_files.iter().enumerate() {
        if !expand::uses(name, ValueName::Run) {
            return Some(format!("process.unversioned_files[{index}].as {} is without $$run$$", shown(name)));
        }
    }
    let mut strings = super::walk::strings(&facts.message.content).into_iter();
    if let Some(string) = strings.find(|it| expand::names(it.text).any(|name| name.starts_with(SECRET_PREFIX))) {
        return Some(format!("{} names a secret", string.path));
    }
    match &facts.host.r_senders {
        Some(ceiling) if ceiling.allow => above_ceiling(run, known, ceiling),
        Some(_) | None => Some("this host's owner allows no run from such a user".to_owned()),
    }
}

/// Every path of the run, as written.
fn every_path(run: &Run) -> Vec<(String, &str, Reads)> {
    let mut paths = paths::absolute(run);
    for (index, step) in run.workspace.iter().flatten().enumerate() {
        match step {
            StepAsked::Directory { at, .. } => paths.push((format!("workspace[{index}].at"), at, Reads::Host)),
            StepAsked::Clone { into } | StepAsked::Checkout { into, .. } | StepAsked::Files { into, .. } => {
                paths.push((format!("workspace[{index}].into"), into, Reads::Host));
            }
            StepAsked::Password | StepAsked::Unknown { .. } => {}
        }
    }
    for (index, (at, _)) in run.process.unversioned_files.iter().enumerate() {
        paths.push((format!("process.unversioned_files[{index}].at"), at, Reads::Host));
    }
    paths
}

/// What the run asks above the owner's ceiling.
fn above_ceiling(run: &Run, known: &Values, ceiling: &Ceiling) -> Option<String> {
    let sandbox = run.sandbox.as_ref()?;
    let mut expander = Expander::new(known, None, EXPANDED_BYTES_MAX);
    let refused = |key: String, text: &str| Some(format!("this host's owner does not allow it {key} {}", shown(text)));
    if sandbox.network && !ceiling.network {
        return Some("this host's owner does not allow it sandbox.network".to_owned());
    }
    let not_allowed = |name: &&String| !ceiling.capabilities.contains(name);
    if let Some(capability) = sandbox.linux_capabilities.iter().find(not_allowed) {
        return refused("sandbox.linux_capabilities".to_owned(), capability);
    }
    let own = |name: ValueName| known.get(&name).cloned();
    let workspace = own(ValueName::Workspace).filter(|_| run.directory().is_some());
    let release = own(ValueName::Release);
    for (index, path) in sandbox.read_only.iter().enumerate() {
        let path = expander.expand_known(path, Reads::Host);
        let readable = ceiling.read.iter().chain(&ceiling.write).chain(&release).chain(&workspace);
        if !is_within(&path, readable) {
            return refused(format!("sandbox.read_only[{index}]"), &path);
        }
    }
    for (index, path) in sandbox.read_write.iter().enumerate() {
        let path = expander.expand_known(path, Reads::Host);
        if !is_within(&path, ceiling.write.iter().chain(&workspace)) {
            return refused(format!("sandbox.read_write[{index}]"), &path);
        }
    }
    if expander.was_too_long() {
        return Some(TOO_LONG.to_owned());
    }
    for (index, home) in sandbox.homes.iter().enumerate() {
        if !ceiling.homes.contains(home) {
            return refused(format!("sandbox.homes[{index}]"), home);
        }
    }
    let (asked, most) = (&run.limits.units, &ceiling.limits);
    let limits = [
        ("wall", asked.wall_s, most.wall),
        ("cpu", asked.cpu_s, most.cpu),
        ("processes", asked.processes, most.processes),
        ("file_size", asked.file_size_bytes, most.file_size),
        ("memory", asked.memory_bytes, most.memory),
    ];
    let (key, ..) =
        limits.into_iter().find(|(_, asked, most)| most.is_some_and(|most| asked.is_none_or(|asked| asked > most)))?;
    Some(format!("limits.{key} is absent or above what this host's owner allows"))
}

/// Whether a path is one of these folders or lies below one.
fn is_within<'a>(path: &str, mut folders: impl Iterator<Item = &'a String>) -> bool {
    forms::normalised(path).is_some_and(|path| folders.any(|folder| path == *folder || forms::is_below(&path, folder)))
}

//! Refusal 7, as far as text alone shows it; what links lead to, the supervisor's policy sees.

use super::{EXPANDED_BYTES_MAX, Expander, Known, Reads, Run, StepAsked, ValueName, forms, shown};

/// The path at fault, if there is one.
pub(super) fn refusal(run: &Run, known: &Known, workspaces_in_care: &[String]) -> Option<String> {
    let mut expander = Expander::new(&known.values, workspace_at(run), EXPANDED_BYTES_MAX);
    let root = known.values.get(&ValueName::Root).map_or("/", String::as_str);
    let mut workspace: Option<String> = None;
    for (index, (step, at)) in run.workspace.iter().flatten().zip(&known.places).enumerate() {
        let Some(at) = at else { continue };
        if !matches!(step, StepAsked::Directory { .. }) {
            let place = forms::normalised(at);
            if !place.zip(workspace.as_ref()).is_some_and(|(place, workspace)| forms::is_below(&place, workspace)) {
                let none = || "a workspace: no step before makes one".to_owned();
                let within = workspace.as_deref().map_or_else(none, shown);
                return Some(format!("workspace[{index}].into {} is not within {within}", shown(at)));
            }
            continue;
        }
        let key = format!("workspace[{index}].at {}", shown(at));
        let Some(place) = forms::normalised(at).filter(|place| forms::is_below(place, root)) else {
            return Some(format!("{key} is not within {}", shown(root)));
        };
        let meets =
            |other: &&String| place == **other || forms::is_below(other, &place) || forms::is_below(&place, other);
        if workspaces_in_care.iter().any(|other| meets(&other)) {
            return Some(format!("{key} is, holds or lies within the workspace of another run in care"));
        }
        workspace = Some(place);
    }
    for (key, path, reads) in absolute(run) {
        let path = expander.expand_known(path, reads);
        if !path.starts_with('/') {
            return Some(format!("{key} {} is not an absolute path", shown(&path)));
        }
    }
    for (index, device) in run.sandbox.iter().flat_map(|sandbox| &sandbox.devices).enumerate() {
        let device = expander.expand_known(device, Reads::Host);
        if !(forms::is_normal_path(&device) && forms::is_below(&device, "/dev")) {
            return Some(format!("sandbox.devices[{index}] {} is not within /dev", shown(&device)));
        }
    }
    None
}

pub(super) fn workspace_at(run: &Run) -> Option<&str> {
    run.sandbox.as_ref().and_then(|sandbox| sandbox.workspace_at.as_deref())
}

/// Every path of the sandbox and process layers that must be absolute (decisions C-30), devices apart.
pub(super) fn absolute(run: &Run) -> Vec<(String, &str, Reads)> {
    let mut paths = Vec::new();
    if let Some(sandbox) = &run.sandbox {
        for (key, path) in [("proc", &sandbox.proc), ("dev", &sandbox.dev), ("tmp", &sandbox.tmp)] {
            paths.push((format!("sandbox.{key}"), path.as_str(), Reads::Process));
        }
        let lists = [("read_only", &sandbox.read_only), ("read_write", &sandbox.read_write), ("homes", &sandbox.homes)];
        for (key, list) in lists {
            for (index, path) in list.iter().enumerate() {
                paths.push((format!("sandbox.{key}[{index}]"), path, Reads::Host));
            }
        }
        for (index, (at, _)) in sandbox.created_files.iter().enumerate() {
            paths.push((format!("sandbox.created_files[{index}].at"), at, Reads::Process));
        }
    }
    if let Some(cwd) = &run.process.cwd {
        paths.push(("process.cwd".to_owned(), cwd, Reads::Process));
    }
    paths
}

//! What of a run is known before anything is made of it.

use super::{EXPANDED_BYTES_MAX, Expander, Facts, Reads, Run, StepAsked, StepKind, ValueName, Values, forms, step};

/// What is known of a run before anything is made.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// OCX's own values, and the places steps will set; of several steps that set one, the last.
    pub(super) values: Values,
    /// The place each step names, read with what stands before it; nothing for a step that names none.
    pub(super) places: Vec<Option<String>>,
}

/// Looks ahead, before anything is decided.
pub(super) fn look_ahead(facts: &Facts<'_>, run: &Run) -> Known {
    let host = facts.host;
    let root = if run.sandbox.is_some() { &host.root } else { &host.root_open };
    let mut values: Values = [
        (ValueName::Root, root.as_str()),
        (ValueName::RepositoryName, &host.repository_name),
        (ValueName::ServerUrl, &host.server_url),
        (ValueName::Run, facts.run.as_str()),
        (ValueName::CloneUser, &facts.clone_user.login),
        (ValueName::ProcessUser, run.process.user.as_str()),
        (ValueName::Releases, &host.releases),
        (ValueName::Release, &host.release),
    ]
    .into_iter()
    .map(|(name, value)| (name, value.to_owned()))
    .collect();
    let mut places = Vec::new();
    let mut left_bytes = EXPANDED_BYTES_MAX;
    for asked in run.workspace.iter().flatten() {
        let (kind, place) = match asked {
            StepAsked::Directory { at, .. } => (StepKind::Directory, at),
            StepAsked::Clone { into } => (StepKind::Clone, into),
            StepAsked::Checkout { into, .. } => (StepKind::Checkout, into),
            StepAsked::Files { into, .. } => (StepKind::Files, into),
            StepAsked::Password | StepAsked::Unknown { .. } => {
                places.push(None);
                continue;
            }
        };
        let mut expander = Expander::new(&values, None, left_bytes);
        let place = expander.expand_known(place, Reads::Host);
        left_bytes = expander.left_bytes();
        places.push(Some(place.clone()));
        let place = forms::normalised(&place).unwrap_or(place);
        // A step's places are those of its paths; the check-in's hash is learned when the step is carried out.
        for name in step(kind).sets.iter().filter(|name| **name != ValueName::Checkin) {
            values.insert(*name, place.clone());
        }
    }
    Known { values, places }
}

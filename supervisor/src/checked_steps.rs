//! Workspace steps as the node claims them → steps that may be carried out, their paths as the step sees them.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use supervisor::wire::plan::Step;

use crate::run_hash::RunHash;
use crate::workspaces::{Place, Roots};

/// Most steps of one run.
pub(crate) const STEPS_MAX: usize = 64;
/// Longest check-in name, in bytes.
const NAME_BYTES_MAX: usize = 1024;

/// What of the workspaces a step sees.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sees {
    /// Their root, in which it makes or removes one.
    Root,
    /// Its own alone.
    Workspace,
}

/// A step that may be carried out.
#[derive(Debug)]
pub(crate) struct CheckedStep {
    /// The word of its program.
    pub(crate) kind: &'static str,
    /// The workspace it works in.
    pub(crate) place: Place,
    /// Where it sees that, when not at its host path.
    pub(crate) workspace_at: Option<String>,
    /// What it sees.
    pub(crate) sees: Sees,
    /// The check-in it sets, known before it is carried out.
    pub(crate) checkin: Option<RunHash>,
    /// Whether it has the network: `clone` alone (decisions C-97).
    pub(crate) network: bool,
    /// Its standard input; none, it reads nothing.
    pub(crate) input: Option<OwnedFd>,
    /// The words after its kind.
    pub(crate) words: Vec<String>,
}

impl CheckedStep {
    fn of_root(kind: &'static str, place: Place) -> Self {
        let words = vec![place.root().path.display().to_string(), place.text()];
        Self { kind, place, workspace_at: None, sees: Sees::Root, checkin: None, network: false, input: None, words }
    }

    /// The removal of a workspace.
    pub(crate) fn removal(place: Place) -> Self {
        Self::of_root("remove", place)
    }
}

/// A look at what a workspace holds: its clone, if it has one, and its checkouts.
///
/// # Errors
/// Which path is not within it, in words.
pub(crate) fn inspection(
    place: &Place,
    workspace_at: Option<&str>,
    clone: Option<&String>,
    checkouts: &[String],
) -> Result<CheckedStep, String> {
    let paths: Vec<&String> = clone.into_iter().chain(checkouts).collect();
    let mut step = within(Some(place), workspace_at, "inspect", &paths, None)?;
    if clone.is_none() {
        step.words.insert(1, "-".to_owned());
    }
    Ok(step)
}

/// Checks the steps of one run, in order. `others` are the workspaces of other runs in care.
///
/// # Errors
/// Which step may not be carried out, and why, in words for the run's author.
pub(crate) fn check(
    steps: &[Step],
    workspace_at: Option<&str>,
    descriptors: Vec<OwnedFd>,
    roots: &Roots,
    others: &[&Place],
) -> Result<VecDeque<CheckedStep>, (u32, String)> {
    let mut descriptors = descriptors.into_iter();
    let mut checked = VecDeque::new();
    let mut place: Option<Place> = None;
    for (index, step) in (0_u32..).zip(steps) {
        let input = if step.carries_descriptor() { descriptors.next() } else { None };
        let one = match step {
            Step::Directory { at } => Place::check(roots, at, others.iter().copied()).and_then(|found| match &place {
                Some(first) if *first != found => {
                    Err(format!("{at}: a run has one workspace, and another step names another"))
                }
                _ => {
                    place = Some(found.clone());
                    Ok(CheckedStep::of_root("directory", found))
                }
            }),
            Step::Clone { into } => within(place.as_ref(), workspace_at, "clone", &[into], input),
            Step::Checkout { clone, of, into } => {
                within(place.as_ref(), workspace_at, "checkout", &[clone, into], input).and_then(|mut step| {
                    let plain = !of.is_empty() && of.len() <= NAME_BYTES_MAX && !of.starts_with('-');
                    if !plain || of.chars().any(char::is_control) {
                        return Err(
                            "not a check-in's name: empty, too long, with control characters or a leading -".to_owned()
                        );
                    }
                    step.words.push(of.clone());
                    Ok(step)
                })
            }
            Step::Files { into, checkin } => {
                within(place.as_ref(), workspace_at, "files", &[into], input).and_then(|mut step| {
                    step.checkin = Some(RunHash::parse(checkin).ok_or("its check-in is no full hash")?);
                    Ok(step)
                })
            }
        };
        checked.push_back(one.map_err(|why| (index, why))?);
    }
    Ok(checked)
}

/// A step whose claimed paths are strictly below the workspace, as it sees them there.
fn within(
    place: Option<&Place>,
    workspace_at: Option<&str>,
    kind: &'static str,
    paths: &[&String],
    input: Option<OwnedFd>,
) -> Result<CheckedStep, String> {
    let place = place.ok_or("no directory step stands before it")?;
    let seen_at = workspace_at.map_or_else(|| place.text(), str::to_owned);
    let mut words = vec![seen_at.clone()];
    for path in paths {
        let workspace = place.text();
        let below = Path::new(path).strip_prefix(&workspace).ok();
        let below = below.filter(|it| {
            it.components().next().is_some() && it.components().all(|part| matches!(part, Component::Normal(_)))
        });
        let below = below.ok_or_else(|| format!("{path}: not within the workspace, {workspace}"))?;
        // Components pass over `.` and doubled slashes: the path must be what its parts make.
        if Path::new(&workspace).join(below).as_os_str() != path.as_str() || path.chars().any(char::is_control) {
            return Err(format!("{path}: not a plain absolute path"));
        }
        words.push(Path::new(&seen_at).join(below).to_string_lossy().into_owned());
    }
    let network = kind == "clone";
    let workspace_at = workspace_at.map(str::to_owned);
    Ok(CheckedStep {
        kind,
        place: place.clone(),
        workspace_at,
        sees: Sees::Workspace,
        checkin: None,
        network,
        input,
        words,
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use supervisor::wire::accounts::derive;

    use super::*;

    fn checked(steps: &[Step], workspace_at: Option<&str>) -> Result<Vec<Vec<String>>, (u32, String)> {
        let roots = Roots::of(Path::new("/r"), &derive(Path::new("/r")));
        let steps = check(steps, workspace_at, Vec::new(), &roots, &[])?;
        Ok(steps.into_iter().map(|it| it.words).collect())
    }

    fn directory() -> Step {
        Step::Directory { at: "/r/workspaces/a".to_owned() }
    }

    #[test]
    fn c_95_a_step_sees_the_workspace_where_the_process_does() {
        let checkout = Step::Checkout {
            clone: "/r/workspaces/a/c.fossil".to_owned(),
            of: "trunk".to_owned(),
            into: "/r/workspaces/a/tree/x".to_owned(),
        };
        let steps = [directory(), checkout];
        let seen = checked(&steps, Some("/seen")).unwrap();
        assert_eq!(seen.last().unwrap(), &["/seen", "/seen/c.fossil", "/seen/tree/x", "trunk"]);
        assert_eq!(seen.first().unwrap(), &["/r/workspaces", "/r/workspaces/a"]);
        let seen = checked(&steps, None).unwrap();
        assert_eq!(seen.last().unwrap().first().unwrap(), "/r/workspaces/a");
    }

    #[test]
    fn v2_2_7_18_within_means_strictly_below() {
        let files = |into: &str| Step::Files { into: into.to_owned(), checkin: "c".repeat(64) };
        assert!(checked(&[directory(), files("/r/workspaces/a/x")], None).is_ok());
        for into in [
            "/r/workspaces/a",
            "/r/workspaces/a/",
            "/r/workspaces/a/../b",
            "/r/workspaces/a/./x",
            "/r/workspaces/ab",
            "/r/workspaces/a//x",
            "x",
            "",
            "/r/workspaces/a/x\n",
            "/",
        ] {
            assert_eq!(checked(&[directory(), files(into)], None).unwrap_err().0, 1, "{into}");
        }
        assert_eq!(checked(&[files("/r/workspaces/a/x")], None).unwrap_err().0, 0);
        let no_hash = Step::Files { into: "/r/workspaces/a/x".to_owned(), checkin: "../x".to_owned() };
        assert!(checked(&[directory(), no_hash], None).is_err());
    }

    #[test]
    fn c_98_a_name_that_would_be_an_option_is_none() {
        let checkout = |of: &str| {
            let (clone, into) = ("/r/workspaces/a/c".to_owned(), "/r/workspaces/a/t".to_owned());
            checked(&[directory(), Step::Checkout { clone, of: of.to_owned(), into }], None)
        };
        assert!(checkout("trunk").is_ok());
        for of in ["", "-R", "a\nb", &"x".repeat(NAME_BYTES_MAX + 1)] {
            assert!(checkout(of).is_err(), "{of}");
        }
    }
}

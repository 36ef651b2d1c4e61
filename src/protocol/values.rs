//! VALUES: what `$$name$$` may name, and what sets it (protocol 2.6).

use super::steps::StepKind;
use super::words::words;

words! {
    /// A value a run's strings may name. Secrets have names of their own and are not listed.
    ValueName {
        Root = "root",
        RepositoryName = "repository_name",
        ServerUrl = "server_url",
        Run = "run",
        CloneUser = "clone_user",
        ProcessUser = "process_user",
        Releases = "releases",
        Release = "release",
        Workspace = "workspace",
        ProcessClone = "process_clone",
        Tree = "tree",
        Checkin = "checkin",
    }
}

/// What a secret's name begins with.
pub const SECRET_PREFIX: &str = "secret:";

/// What sets a value.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SetBy {
    /// OCX, when the run arrives.
    Ocx,
    /// A step of these kinds; the run's `of` too where `or_of` says so.
    Steps {
        /// The steps.
        kinds: &'static [StepKind],
        /// Whether the run's `of` sets it as well.
        or_of: bool,
    },
}

/// One value.
#[derive(Debug, Clone, Copy)]
pub struct ValueRow {
    /// Its name.
    pub name: ValueName,
    /// What sets it.
    pub set_by: SetBy,
    /// Whether, when it is the workspace or lies within it, the process sees it under `workspace_at` (decisions C-11).
    pub moves: bool,
    /// What it holds, for people.
    pub holds: &'static str,
}

const fn by_ocx(name: ValueName, holds: &'static str) -> ValueRow {
    ValueRow { name, set_by: SetBy::Ocx, moves: false, holds }
}

const fn by_steps(name: ValueName, kinds: &'static [StepKind], moves: bool, holds: &'static str) -> ValueRow {
    ValueRow { name, set_by: SetBy::Steps { kinds, or_of: false }, moves, holds }
}

/// Every value, in the order in which `started` is read.
pub const VALUES: &[ValueRow] = &[
    by_ocx(ValueName::Root, "the directory under which OCX makes runs' workspaces"),
    by_ocx(ValueName::RepositoryName, "the last part of the server's URL"),
    by_ocx(ValueName::ServerUrl, "the server's URL"),
    by_ocx(ValueName::Run, "the run's hash, in full"),
    by_ocx(ValueName::CloneUser, "the run's to"),
    by_ocx(ValueName::ProcessUser, "the run's process.user"),
    by_ocx(ValueName::Releases, "the release root"),
    by_ocx(ValueName::Release, "the directory of the OCX release that acts"),
    by_steps(ValueName::Workspace, &[StepKind::Directory], true, "the workspace's directory"),
    by_steps(ValueName::ProcessClone, &[StepKind::Clone], true, "the path of the process's clone"),
    by_steps(
        ValueName::Tree,
        &[StepKind::Checkout, StepKind::Files],
        true,
        "the directory holding the check-in's files",
    ),
    ValueRow {
        name: ValueName::Checkin,
        set_by: SetBy::Steps { kinds: &[StepKind::Checkout, StepKind::Files], or_of: true },
        moves: false,
        holds: "the check-in's hash, in full",
    },
];

//! A run as it was asked: every key's form is right, no value is in place, nothing is decided (protocol 2.3 to 2.10).

use std::collections::BTreeMap;

use sandbox::spec::Limits;
use serde_json::{Map, Value};

use crate::protocol::forms::{Deliveries, StdoutWhen};
use crate::protocol::names::{CloneCode, Login};

/// A run well formed. Only `read::run` makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Run {
    /// The server-code of the repository that is to run it.
    pub clone: CloneCode,
    /// What it is for.
    pub objective: String,
    /// A check-in name.
    pub of: Option<String>,
    /// The steps; absent, it gets no workspace.
    pub workspace: Option<Vec<StepAsked>>,
    /// The sandbox; absent, it is to run unconfined.
    pub sandbox: Option<SandboxAsked>,
    /// The limits.
    pub limits: LimitsAsked,
    /// The process.
    pub process: ProcessAsked,
}

/// One workspace step (protocol 2.7).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepAsked {
    /// Makes the workspace.
    Directory {
        /// Where.
        at: String,
        /// Whether it is to be removed once saved, by either name.
        removed_once_saved: bool,
    },
    /// Collects the process's user's password.
    Password,
    /// Makes the process's clone.
    Clone {
        /// Where.
        into: String,
    },
    /// Opens a checkout.
    Checkout {
        /// The check-in's name.
        of: String,
        /// Where.
        into: String,
    },
    /// Writes a check-in's files.
    Files {
        /// The check-in's name.
        of: String,
        /// Where.
        into: String,
    },
    /// A kind version 2 does not have: refused (3), not malformed.
    Unknown {
        /// As written.
        kind: String,
    },
}

/// The sandbox layer, values not in place (protocol 2.8).
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "the fields are the protocol's keys and `sandbox::spec::Confinement`'s")]
pub struct SandboxAsked {
    pub uid: u32,
    pub gid: u32,
    pub linux_capabilities: Vec<String>,
    pub network: bool,
    pub isolate_terminal: bool,
    pub ends_with_parent: bool,
    pub proc: String,
    pub dev: String,
    pub tmp: String,
    pub read_only: Vec<String>,
    pub read_write: Vec<String>,
    pub devices: Vec<String>,
    pub homes: Vec<String>,
    pub workspace_at: Option<String>,
    /// `at` and `text` of each.
    pub created_files: Vec<(String, String)>,
}

/// The limits, as written and in plain units (protocol 2.9).
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LimitsAsked {
    /// As written, for `started`.
    pub written: Map<String, Value>,
    /// In plain units.
    pub units: Limits,
}

/// Whose posts a session is given (protocol 2.10; decisions C-06).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Hears {
    /// These users'.
    Logins(Vec<Login>),
    /// Every user's, but for clones' users.
    Everyone,
}

/// How much of the end of each stream is kept (protocol 2.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keep {
    /// Of STDERR, in bytes.
    pub stderr_bytes: u64,
    /// Of STDOUT, in bytes.
    pub stdout_bytes: u64,
    /// When STDOUT is kept.
    pub stdout_when: StdoutWhen,
}

/// The process layer, values not in place (protocol 2.10).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessAsked {
    /// The process's user.
    pub user: Login,
    /// The program, then its arguments.
    pub command: Vec<String>,
    /// The whole environment.
    pub env: BTreeMap<String, String>,
    /// Where it starts; absent, the workspace or `/`.
    pub cwd: Option<String>,
    /// Whether it waits for a person.
    pub manual: bool,
    /// Whether it is a session.
    pub session: bool,
    /// Whose posts it is given.
    pub hears: Hears,
    /// The branches whose check-ins it is given.
    pub checkins: Vec<String>,
    /// How deliveries reach it.
    pub deliveries: Deliveries,
    /// Whether it runs on a terminal.
    pub terminal: bool,
    /// Whether it is given counted `ended` reports.
    pub ends: bool,
    /// What is kept of its streams.
    pub keep: Keep,
    /// Whether a verdict is asked.
    pub verdict: bool,
    /// `at` and `as` of each file to be sent.
    pub unversioned_files: Vec<(String, String)>,
}

impl Run {
    /// Whether its workspace is to be removed once the server has what it holds.
    #[must_use]
    pub fn removes_once_saved(&self) -> bool {
        let asks = |step: &StepAsked| matches!(step, StepAsked::Directory { removed_once_saved: true, .. });
        self.workspace.iter().flatten().any(asks)
    }

    /// The place of the `directory` step's workspace, as written, if there is such a step.
    #[must_use]
    pub fn directory(&self) -> Option<&str> {
        self.workspace.iter().flatten().rev().find_map(|step| match step {
            StepAsked::Directory { at, .. } => Some(at.as_str()),
            StepAsked::Password
            | StepAsked::Clone { .. }
            | StepAsked::Checkout { .. }
            | StepAsked::Files { .. }
            | StepAsked::Unknown { .. } => None,
        })
    }
}

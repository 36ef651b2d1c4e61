//! An accepted run to what the supervisor is asked to prepare and launch (protocol 2.7 to 2.10).

use sandbox::spec::{Confinement, CreatedFile};
use supervisor::wire::plan::{LaunchPlan, Process};

use super::check::Accepted;
use super::expand::{Expander, Unexpanded, Values};
use super::quote;
use super::run::{Run, SandboxAsked, StepAsked};
use crate::protocol::forms::{StdoutWhen, normalised};
use crate::protocol::keys::Reads;
use crate::protocol::names::RunId;
use crate::protocol::steps::StepKind;
use crate::protocol::values::ValueName;

/// One workspace step of a run that is to be carried out, its paths in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StepLaid {
    /// Makes the workspace.
    Directory {
        /// Where.
        at: String,
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
        /// The clone, as the last `clone` step makes it.
        clone: String,
        /// The check-in's name, values not in place.
        of: String,
        /// Where.
        into: String,
    },
    /// Writes a check-in's files.
    Files {
        /// The check-in's name, values not in place.
        of: String,
        /// Where.
        into: String,
    },
}

/// Longest check-in name that Fossil is asked to resolve, in bytes.
const NAME_BYTES_MAX: usize = 1024;

impl StepLaid {
    /// Its kind.
    #[must_use]
    pub const fn kind(&self) -> StepKind {
        match self {
            Self::Directory { .. } => StepKind::Directory,
            Self::Password => StepKind::Password,
            Self::Clone { .. } => StepKind::Clone,
            Self::Checkout { .. } => StepKind::Checkout,
            Self::Files { .. } => StepKind::Files,
        }
    }

    /// How many bytes it takes in a frame, a check-in's name at its longest.
    pub(super) fn bytes(&self) -> usize {
        /// Its kind, its keys and the marks between them.
        const AROUND: usize = 160;
        let path = |text: &str| quote::json(text).len();
        AROUND
            + match self {
                Self::Directory { at } => path(at),
                Self::Password => 0,
                Self::Clone { into } | Self::Files { into, .. } => path(into),
                Self::Checkout { clone, into, .. } => path(clone) + path(into) + 2 * NAME_BYTES_MAX,
            }
    }
}

/// The launch.
#[must_use]
pub fn launch(accepted: &Accepted) -> LaunchPlan {
    accepted.plan().clone()
}

/// Every value set, for `started`; secrets and passwords are no values.
#[must_use]
pub fn values_started(accepted: &Accepted) -> &Values {
    accepted.values()
}

/// The first line of STDIN, with its line ending: the run and its objective, in this order (protocol 2.10).
#[must_use]
pub fn first_line(accepted: &Accepted) -> String {
    first_line_of(accepted.id(), &accepted.run().objective)
}

pub(super) fn first_line_of(run: &RunId, objective: &str) -> String {
    format!("{{\"run\":{},\"objective\":{}}}\n", quote::json(run.as_str()), quote::json(objective))
}

/// When STDOUT is kept.
#[must_use]
pub fn keep_stdout_when(accepted: &Accepted) -> StdoutWhen {
    accepted.run().process.keep.stdout_when
}

/// The steps of a run that no refusal holds for, at their places.
pub(super) fn lay_out_steps(run: &Run, places: &[Option<String>]) -> Vec<StepLaid> {
    let mut clone = String::new();
    let mut laid = Vec::new();
    for (asked, place) in run.workspace.iter().flatten().zip(places) {
        let place = place.as_deref().map(|at| normalised(at).unwrap_or_else(|| at.to_owned())).unwrap_or_default();
        laid.push(match asked {
            StepAsked::Directory { .. } => StepLaid::Directory { at: place },
            StepAsked::Password => StepLaid::Password,
            StepAsked::Clone { .. } => {
                clone.clone_from(&place);
                StepLaid::Clone { into: place }
            }
            StepAsked::Checkout { of, .. } => StepLaid::Checkout { clone: clone.clone(), of: of.clone(), into: place },
            StepAsked::Files { of, .. } => StepLaid::Files { of: of.clone(), into: place },
            // Refusal 3 came first.
            StepAsked::Unknown { .. } => continue,
        });
    }
    laid
}

/// The launch of a run, every string with its values in place.
pub(super) fn lay_out(run: &RunId, asked: &Run, values: &Values, bytes_max: usize) -> Result<LaunchPlan, Unexpanded> {
    let workspace_at = asked.sandbox.as_ref().and_then(|sandbox| sandbox.workspace_at.as_deref());
    let mut expander = Expander::new(values, workspace_at, bytes_max);
    let workspace = asked.directory().and_then(|_| values.get(&ValueName::Workspace));
    let process = &asked.process;
    let sandbox = asked.sandbox.as_ref().map(|sandbox| confinement(sandbox, &mut expander)).transpose()?;
    let cwd = match (&process.cwd, workspace) {
        (Some(cwd), _) => expander.expand(cwd, Reads::Process)?,
        (None, Some(workspace)) => workspace_at.map_or_else(|| workspace.clone(), str::to_owned),
        (None, None) => "/".to_owned(),
    };
    Ok(LaunchPlan {
        run: run.as_str().to_owned(),
        workspace: workspace.cloned(),
        sandbox,
        limits: asked.limits.units,
        process: Process {
            command: all(&process.command, Reads::Process, &mut expander)?,
            env: process
                .env
                .iter()
                .map(|(name, value)| Ok((name.clone(), expander.expand(value, Reads::Process)?)))
                .collect::<Result<_, Unexpanded>>()?,
            cwd,
            keep_stderr_bytes: process.keep.stderr_bytes,
            keep_stdout_bytes: process.keep.stdout_bytes,
        },
    })
}

fn confinement(asked: &SandboxAsked, expander: &mut Expander<'_>) -> Result<Confinement, Unexpanded> {
    Ok(Confinement {
        uid: asked.uid,
        gid: asked.gid,
        linux_capabilities: all(&asked.linux_capabilities, Reads::Process, expander)?,
        network: asked.network,
        isolate_terminal: asked.isolate_terminal,
        ends_with_parent: asked.ends_with_parent,
        proc: expander.expand(&asked.proc, Reads::Process)?,
        dev: expander.expand(&asked.dev, Reads::Process)?,
        tmp: expander.expand(&asked.tmp, Reads::Process)?,
        read_only: all(&asked.read_only, Reads::Host, expander)?,
        read_write: all(&asked.read_write, Reads::Host, expander)?,
        devices: all(&asked.devices, Reads::Host, expander)?,
        homes: all(&asked.homes, Reads::Host, expander)?,
        workspace_at: asked.workspace_at.clone(),
        created_files: asked
            .created_files
            .iter()
            .map(|(at, text)| {
                let at = expander.expand(at, Reads::Process)?;
                Ok(CreatedFile { at, text: expander.expand(text, Reads::Process)? })
            })
            .collect::<Result<_, Unexpanded>>()?,
    })
}

fn all(texts: &[String], reads: Reads, expander: &mut Expander<'_>) -> Result<Vec<String>, Unexpanded> {
    texts.iter().map(|text| expander.expand(text, reads)).collect()
}

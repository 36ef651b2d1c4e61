//! Plans: what the protocol process asks the supervisor to prepare and to launch. All claims, checked by policy.

use std::collections::BTreeMap;
use std::fmt;

use sandbox::spec::{Confinement, Limits};
use serde::de::{Error as _, MapAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize};

/// Largest plan, in bytes of JSON, carried in a sealed memfd (decisions C-113).
pub const PLAN_BYTES_MAX: u64 = 2 << 20;

/// Largest kept tail of one stream, in bytes (decisions C-87).
pub const KEEP_BYTES_MAX: u64 = 4 << 20;

/// One launch, with every `$$value$$` in place.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LaunchPlan {
    /// The run's full hash.
    pub run: String,
    /// The host path of the run's workspace, below the workspaces' root; absent when it has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace: Option<String>,
    /// The sandbox layer; absent asks for an unconfined run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sandbox: Option<Confinement>,
    /// The limits applied.
    pub limits: Limits,
    /// What is run.
    pub process: Process,
}

/// The process of a launch (protocol 2.10).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Process {
    /// The program, then its arguments; a program without `/` is found on `env`'s `PATH`.
    pub command: Vec<String>,
    /// The whole environment.
    #[serde(deserialize_with = "each_once")]
    pub env: BTreeMap<String, String>,
    /// Where it starts, as the process sees it.
    pub cwd: String,
    /// How many bytes of the end of STDERR are kept.
    pub keep_stderr_bytes: u64,
    /// How many bytes of the end of STDOUT are kept.
    pub keep_stdout_bytes: u64,
}

/// Reads a map in which no key is said twice: who checks and who acts would each believe another value.
fn each_once<'de, D: Deserializer<'de>>(from: D) -> Result<BTreeMap<String, String>, D::Error> {
    struct EachOnce;
    impl<'de> Visitor<'de> for EachOnce {
        type Value = BTreeMap<String, String>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("an object of texts")
        }

        fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
            let mut all = BTreeMap::new();
            while let Some((key, value)) = map.next_entry::<String, String>()? {
                if let Some(_first) = all.insert(key, value) {
                    return Err(A::Error::custom("a key is said twice"));
                }
            }
            Ok(all)
        }
    }
    from.deserialize_map(EachOnce)
}

/// A workspace step, carried out as the runs' account (protocol 2.7). Every path is an absolute host path.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Step {
    /// Makes the directory afresh, removing what was there.
    Directory {
        /// Strictly below the workspaces' root.
        at: String,
    },
    /// Makes the process's clone. Carries a memfd that says of which server, as whom and with which password.
    Clone {
        /// Strictly below the workspace.
        into: String,
    },
    /// Opens a checkout from a clone that a step before it made.
    Checkout {
        /// The clone, strictly below the workspace.
        clone: String,
        /// A check-in's name, as Fossil resolves it.
        of: String,
        /// Strictly below the workspace.
        into: String,
    },
    /// Writes the files that a pipe carries.
    Files {
        /// Strictly below the workspace.
        into: String,
        /// The full hash of the check-in whose they are.
        checkin: String,
    },
}

impl Step {
    /// Whether a descriptor crosses for it, in the order of the steps.
    #[must_use]
    pub const fn carries_descriptor(&self) -> bool {
        matches!(self, Self::Clone { .. } | Self::Files { .. })
    }
}

/// How many changed files of a workspace are told by name (decisions C-05).
pub const CHANGES_TOLD: usize = 5;
/// Most hashes of artifacts of a workspace's own clone that are told: as many as the server is asked about at once.
pub const UNSENT_MAX: usize = 500;

/// What a workspace holds that the server may lack, as its `inspect` step told.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Holds {
    /// Changed and extra files of its checkouts, such as `EXTRA made.txt`; [`CHANGES_TOLD`] at most.
    pub changes: Vec<String>,
    /// How many there are.
    pub changes_count: u64,
    /// Stashes.
    pub stashes: u64,
    /// Full hashes of artifacts that its clone made itself; [`UNSENT_MAX`] at most.
    pub unsent: Vec<String>,
    /// How many there are.
    pub unsent_count: u64,
}

/// What this host provides, told once in `welcome`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provides {
    /// The kernel's release, as `uname -r` says.
    pub kernel: String,
    /// This boot's id.
    pub boot_id: String,
    /// The host's name.
    pub host_name: String,
    /// `ROOT`.
    pub root: String,
    /// `$$root$$`: where workspaces are made of runs with a sandbox.
    pub workspaces: String,
    /// `$$root$$` of runs without one (decisions C-96).
    pub workspaces_open: String,
    /// `$$releases$$`.
    pub releases: String,
    /// `$$release$$`: the directory of the release that acts.
    pub release: String,
    /// Projects that have a passwords file, by file name without `.json`.
    pub projects: Vec<String>,
    /// Whether user namespaces can be made.
    pub user_namespaces: bool,
    /// The highest Landlock ABI, 0 for none.
    pub landlock_abi: u32,
    /// Whether a usable cgroup hierarchy exists for ending a run whole.
    pub cgroup: bool,
    /// Whether a run's memory can be limited.
    pub memory: bool,
    /// How much must be free for a new run.
    pub floor: super::floor::Floor,
}

//! What a confined process sees and may do: plain data in the protocol's own names (protocol 2.8).
//!
//! Nothing here is checked. A value of these types is a claim; `supervisor`'s policy makes it something to act on.

use serde::{Deserialize, Serialize};

/// Every key of the run's `sandbox` layer, with its `$$values$$` already in place (protocol 2.8).
///
/// Paths are text as the run wrote them. Nothing else of the host is visible to the process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Confinement {
    /// The Linux account id the process runs as inside, 0 to 4294967294.
    pub uid: u32,
    /// The Linux group id the process runs as inside, 0 to 4294967294.
    pub gid: u32,
    /// The capabilities it keeps in its own user namespace, as `CAP_X`; empty keeps none.
    pub linux_capabilities: Vec<String>,
    /// Whether it shares the host's network.
    pub network: bool,
    /// Whether it runs in a Linux session of its own, kept from every terminal outside.
    pub isolate_terminal: bool,
    /// Whether it ends when the supervisor ends.
    pub ends_with_parent: bool,
    /// Where it sees its own proc file system.
    pub proc: String,
    /// Where it sees its own device directory.
    pub dev: String,
    /// Where it sees an empty directory for temporary files.
    pub tmp: String,
    /// Host paths seen read-only, each where it is on the host.
    pub read_only: Vec<String>,
    /// Host paths seen read-write; a path in both lists is read-write.
    pub read_write: Vec<String>,
    /// Host devices it may open, each where it is on the host; a missing one is passed over.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub devices: Vec<String>,
    /// Host paths seen read-write inside the workspace, by base name.
    pub homes: Vec<String>,
    /// Where the process sees its workspace; absent, the host path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workspace_at: Option<String>,
    /// Files made for this process alone.
    pub created_files: Vec<CreatedFile>,
}

/// One of the files made for a process alone (protocol 2.8).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct CreatedFile {
    /// The absolute path at which the process sees it.
    pub at: String,
    /// What the file holds.
    pub text: String,
}

/// The limits of a run in plain units (protocol 2.9); absent means unlimited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limits {
    /// Seconds from the launch, on the boot clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub wall_s: Option<u64>,
    /// Processor seconds of each process.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_s: Option<u64>,
    /// Processes and threads at any moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub processes: Option<u64>,
    /// Bytes of each file a process writes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file_size_bytes: Option<u64>,
    /// Bytes of memory of the whole run.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub memory_bytes: Option<u64>,
}

//! KEYS: one row for every key of version 2, at every layer (protocol 2.1 to 2.10).

use super::forms::Form;
use super::kinds::Kind;
use super::steps::StepKind;

/// The object a key stands in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Within {
    /// The message itself.
    Envelope,
    /// The content of a message of this kind.
    Content(Kind),
    /// A workspace step of this kind.
    Step(StepKind),
    /// The run's `sandbox`.
    Sandbox,
    /// One of `sandbox.created_files`.
    CreatedFile,
    /// The run's `limits`.
    Limits,
    /// The run's `process`.
    Process,
    /// `process.keep`.
    Keep,
    /// One of `process.unversioned_files`.
    UnversionedFile,
}

/// Whose view of the workspace a key's values are read in, if they are read (protocol 2.6; decisions C-11).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Reads {
    /// `$$name$$` in it is text like any other.
    Nothing,
    /// Paths as they are on the host.
    Host,
    /// Paths as the process sees them, under `workspace_at` when that is set.
    Process,
}

/// Whether this release does what a key asks. What it does not do it refuses (6), never drops.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acts {
    /// Whatever it holds.
    Yes,
    /// Only what this JSON text asks, which is what its absence means.
    Only(&'static str),
    /// Nothing it may hold.
    No,
}

/// One key.
#[derive(Debug, Clone, Copy)]
pub struct KeyRow {
    /// The object it stands in.
    pub within: Within,
    /// Its name.
    pub key: &'static str,
    /// What it may hold.
    pub form: Form,
    /// Whether it must be there.
    pub required: bool,
    /// What its absence means, as JSON where a JSON value means the same, else in words.
    pub default: &'static str,
    /// Whether values are read in it.
    pub reads: Reads,
    /// Whether this release acts on it.
    pub acts: Acts,
    /// The paragraph.
    pub spec: &'static str,
}

impl KeyRow {
    const fn required(within: Within, key: &'static str, form: Form, spec: &'static str) -> Self {
        Self { within, key, form, required: true, default: "", reads: Reads::Nothing, acts: Acts::Yes, spec }
    }
    const fn optional(
        within: Within,
        key: &'static str,
        form: Form,
        default: &'static str,
        spec: &'static str,
    ) -> Self {
        Self { within, key, form, required: false, default, reads: Reads::Nothing, acts: Acts::Yes, spec }
    }
    const fn reads(self, reads: Reads) -> Self {
        Self { reads, ..self }
    }
    const fn acts(self, acts: Acts) -> Self {
        Self { acts, ..self }
    }
}

use Reads::{Host, Process as Inside};

const RUN: Within = Within::Content(Kind::Run);
const NAMES: Form = Form::List(&Form::Name);

/// Every key, in the order of the protocol's own tables.
pub const KEYS: &[KeyRow] = &[
    // The envelope. `to` and `re` are asked for by kind: see KINDS.
    KeyRow::required(Within::Envelope, "ocx", Form::Exactly(super::VERSION), "2.1"),
    KeyRow::optional(Within::Envelope, "to", Form::Login, "as KINDS says", "2.1"),
    KeyRow::optional(Within::Envelope, "re", Form::Name, "as KINDS says", "2.1"),
    // run
    KeyRow::required(RUN, "clone", Form::CloneCode, "2.3"),
    KeyRow::required(RUN, "objective", Form::Text, "2.3"),
    KeyRow::optional(RUN, "of", Form::Name, "no check-in", "2.3"),
    KeyRow::optional(RUN, "workspace", Form::Steps, "no workspace", "2.3, 2.7"),
    KeyRow::optional(RUN, "sandbox", Form::Object(Within::Sandbox), "unconfined", "2.3, 2.8"),
    KeyRow::optional(RUN, "limits", Form::Object(Within::Limits), "{}", "2.3, 2.9"),
    KeyRow::required(RUN, "process", Form::Object(Within::Process), "2.3, 2.10"),
    // run.workspace: every step also has `step`, its kind.
    KeyRow::required(Within::Step(StepKind::Directory), "at", Form::Name, "2.7").reads(Host),
    KeyRow::optional(Within::Step(StepKind::Directory), "remove_on", Form::Word(&["saved"]), "kept", "2.7"),
    KeyRow::optional(Within::Step(StepKind::Directory), "remove", Form::Word(&["saved"]), "kept", "2.7"),
    KeyRow::required(Within::Step(StepKind::Clone), "into", Form::Name, "2.7").reads(Host),
    KeyRow::required(Within::Step(StepKind::Checkout), "of", Form::Name, "2.7").reads(Host),
    KeyRow::required(Within::Step(StepKind::Checkout), "into", Form::Name, "2.7").reads(Host),
    KeyRow::required(Within::Step(StepKind::Files), "of", Form::Name, "2.7").reads(Host),
    KeyRow::required(Within::Step(StepKind::Files), "into", Form::Name, "2.7").reads(Host),
    // run.sandbox
    KeyRow::required(Within::Sandbox, "uid", Form::Whole(super::forms::ID_MAX), "2.8"),
    KeyRow::required(Within::Sandbox, "gid", Form::Whole(super::forms::ID_MAX), "2.8"),
    KeyRow::required(Within::Sandbox, "linux_capabilities", NAMES, "2.8").reads(Inside),
    KeyRow::required(Within::Sandbox, "network", Form::Flag, "2.8"),
    KeyRow::required(Within::Sandbox, "isolate_terminal", Form::Flag, "2.8"),
    KeyRow::required(Within::Sandbox, "ends_with_parent", Form::Flag, "2.8"),
    KeyRow::required(Within::Sandbox, "proc", Form::Name, "2.8").reads(Inside),
    KeyRow::required(Within::Sandbox, "dev", Form::Name, "2.8").reads(Inside),
    KeyRow::required(Within::Sandbox, "tmp", Form::Name, "2.8").reads(Inside),
    KeyRow::required(Within::Sandbox, "read_only", NAMES, "2.8").reads(Host),
    KeyRow::required(Within::Sandbox, "read_write", NAMES, "2.8").reads(Host),
    KeyRow::optional(Within::Sandbox, "devices", Form::List(&Form::Device), "[]", "2.8").reads(Host),
    KeyRow::required(Within::Sandbox, "homes", NAMES, "2.8").reads(Host),
    KeyRow::optional(Within::Sandbox, "workspace_at", Form::PlaceOfWorkspace, "the host path", "2.8"),
    KeyRow::required(Within::Sandbox, "created_files", Form::Objects(Within::CreatedFile), "2.8"),
    KeyRow::required(Within::CreatedFile, "at", Form::Name, "2.8").reads(Inside),
    KeyRow::required(Within::CreatedFile, "text", Form::Text, "2.8").reads(Inside),
    // run.limits
    KeyRow::optional(Within::Limits, "wall", Form::Duration, "unlimited", "2.9"),
    KeyRow::optional(Within::Limits, "cpu", Form::Count, "unlimited", "2.9"),
    KeyRow::optional(Within::Limits, "processes", Form::Count, "unlimited", "2.9"),
    KeyRow::optional(Within::Limits, "file_size", Form::Size, "unlimited", "2.9"),
    KeyRow::optional(Within::Limits, "memory", Form::Size, "unlimited", "2.9"),
    // run.process
    KeyRow::required(Within::Process, "user", Form::Login, "2.10"),
    KeyRow::required(Within::Process, "command", Form::Command, "2.10").reads(Inside),
    KeyRow::optional(Within::Process, "env", Form::Environment, "{}", "2.10").reads(Inside),
    KeyRow::optional(Within::Process, "cwd", Form::Name, "$$workspace$$, or / with no workspace", "2.10").reads(Inside),
    KeyRow::optional(Within::Process, "manual", Form::Flag, "false", "2.10").acts(Acts::Only("false")),
    KeyRow::optional(Within::Process, "session", Form::Flag, "false", "2.10").acts(Acts::Only("false")),
    KeyRow::optional(Within::Process, "hears", Form::Hears, "[]", "2.10").acts(Acts::Only("[]")),
    KeyRow::optional(Within::Process, "checkins", NAMES, "[]", "2.10").acts(Acts::Only("[]")),
    KeyRow::optional(Within::Process, "deliveries", Form::Word(&["feed", "start"]), "\"feed\"", "2.10")
        .acts(Acts::Only("\"feed\"")),
    KeyRow::optional(Within::Process, "terminal", Form::Flag, "false", "2.10").acts(Acts::Only("false")),
    KeyRow::optional(Within::Process, "ends", Form::Flag, "false", "2.10").acts(Acts::Only("false")),
    KeyRow::optional(Within::Process, "keep", Form::Object(Within::Keep), "{}", "2.10"),
    KeyRow::optional(Within::Process, "verdict", Form::Flag, "false", "2.10"),
    KeyRow::optional(Within::Process, "unversioned_files", Form::Objects(Within::UnversionedFile), "[]", "2.10"),
    KeyRow::optional(Within::Keep, "stderr", Form::Size, "\"64K\"", "2.10"),
    KeyRow::optional(Within::Keep, "stdout", Form::Size, "\"64K\"", "2.10"),
    KeyRow::optional(Within::Keep, "stdout_when", Form::Word(&["failure", "always"]), "\"failure\"", "2.10"),
    KeyRow::required(Within::UnversionedFile, "at", Form::Name, "2.10").reads(Host),
    KeyRow::required(Within::UnversionedFile, "as", Form::Name, "2.10").reads(Inside),
    // Reports, as OCX writes them; readers ignore keys they do not know.
    KeyRow::required(Within::Content(Kind::Started), "values", Form::AnyObject, "2.3, 2.6"),
    KeyRow::required(Within::Content(Kind::Started), "limits", Form::AnyObject, "2.3, 2.9"),
    KeyRow::required(Within::Content(Kind::Ended), "outcome", Form::Text, "2.12"),
    KeyRow::optional(Within::Content(Kind::Ended), "exit", Form::Whole(255), "as OUTCOMES says", "2.12"),
    KeyRow::optional(Within::Content(Kind::Ended), "note", Form::Text, "as OUTCOMES says", "2.12"),
    KeyRow::optional(Within::Content(Kind::Ended), "workspace", Form::Text, "nothing was to be removed", "2.3"),
    KeyRow::optional(Within::Content(Kind::Ended), "outputs", Form::AnyList, "no unversioned files", "2.3, C-26"),
];

/// The rows of one place, in order.
pub fn keys_within(within: Within) -> impl Iterator<Item = &'static KeyRow> {
    KEYS.iter().filter(move |row| row.within == within)
}

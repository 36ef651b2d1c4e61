//! Requests, replies and events: one enum for each direction, so neither end can be sent its own kind.

use serde::{Deserialize, Serialize};

use super::plan::{Holds, Provides, Step};

/// Names one run in care; issued by the supervisor with `taken`, good until `release` or the end of the link.
pub type Handle = u64;

/// Names one event of a run until the node has `noted` it.
pub type EventNumber = u64;

/// One frame from the protocol process to the supervisor.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ToSupervisor {
    /// Chosen by the node; the reply carries it back.
    pub id: u64,
    /// What is asked.
    pub request: Request,
}

/// What the protocol process may ask. `requests::REQUESTS` says when, how large and with which descriptors.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Request {
    /// First frame on a link. Answered by `welcome`, then one `in_care` event for each run in care.
    Hello {
        /// [`super::LINK_VERSION`].
        version: u32,
    },
    /// Opens the run's care record and lock. Answered by `taken`, `busy` or `was`.
    Take {
        /// The run's full hash, 40 or 64 lower-case hex digits.
        run: String,
    },
    /// Policy, before anything is made (C-85). Carries the plan in a sealed memfd. Answered by `permitted` or `refused`.
    Check {
        /// From `taken`.
        handle: Handle,
    },
    /// One read-only descriptor of the project's passwords, without its `runs` map, or of one entry of that map alone
    /// (C-99). Answered by `descriptor` or `unset`.
    Credential {
        /// A name from [`Provides::projects`].
        project: String,
        /// The process's user whose entry is wanted.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        user: Option<String>,
    },
    /// Workspace steps, one after another, as the runs' account. Carries a descriptor for each step that says so.
    /// Answered by `prepared` or `step_failed`.
    Prepare {
        /// From `taken`.
        handle: Handle,
        /// Where the process sees its workspace, if not at its host path; so do the steps (decisions C-95).
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workspace_at: Option<String>,
        /// The full hash of the check-in the run's own `of` names; a step that takes one sets it anew.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkin: Option<String>,
        /// The steps, in order.
        steps: Vec<Step>,
    },
    /// Starts the process once. Carries the plan and the first line, each in a sealed memfd. Answered by `launched`,
    /// `refused` or `failed`.
    Launch {
        /// From `taken`.
        handle: Handle,
    },
    /// The node has made the event durable; it is not sent again. Not answered.
    Noted {
        /// From `taken`.
        handle: Handle,
        /// From the event.
        event: EventNumber,
    },
    /// Ends everything of the run, TERM first. Answered by `stopping`; the end itself comes as `exited`.
    Stop {
        /// From `taken`.
        handle: Handle,
        /// For logs and status, one line.
        why: String,
    },
    /// Opens a regular file beneath the run's workspace, with the workspace's account's rights and through no link.
    /// Answered by `descriptor` or `not_opened`.
    Open {
        /// From `taken`.
        handle: Handle,
        /// Its path beneath the workspace.
        path: String,
    },
    /// The same of a run that was launched and released: its workspace is kept, and nobody has it in care any more.
    /// Answered by `descriptor` or `not_opened`.
    OpenSettled {
        /// The run's full hash.
        run: String,
        /// Where its workspace is. It must be where workspaces are, and no run's in care.
        workspace: String,
        /// Its path beneath the workspace.
        path: String,
    },
    /// Writes `stderr.log` and `stdout.log` in the workspace from the memfds carried, STDERR's first. Answered by
    /// `written` or `kept_out`.
    WriteLogs {
        /// From `taken`.
        handle: Handle,
        /// Whether a memfd for `stderr.log` is carried.
        stderr: bool,
        /// Whether a memfd for `stdout.log` is carried.
        stdout: bool,
    },
    /// Looks at what the workspace holds that the server may lack, with a confined fossil. Answered by `inspected` or
    /// `not_inspected`.
    Inspect {
        /// From `taken`.
        handle: Handle,
        /// As `prepare` had it.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        workspace_at: Option<String>,
        /// The host path of the process's clone, if it has one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        clone: Option<String>,
        /// The host paths of its checkouts.
        checkouts: Vec<String>,
    },
    /// Empties and removes the workspace. Answered by `removed` or `left`.
    Remove {
        /// From `taken`.
        handle: Handle,
    },
    /// The run is settled: the care record becomes a line of `care/launched` if it was launched (C-101), else it goes;
    /// the lock goes. Answered by `released`.
    Release {
        /// From `taken`.
        handle: Handle,
    },
}

/// One frame from the supervisor to the protocol process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum ToNode {
    /// The answer to one request.
    Reply {
        /// The request's.
        id: u64,
        /// The answer.
        reply: Reply,
    },
    /// Something happened.
    Event(Event),
}

/// The answers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Reply {
    /// To `hello`.
    Welcome {
        /// What the host provides.
        provides: Box<Provides>,
        /// How many `in_care` events follow.
        in_care: u32,
    },
    /// To `take`: the run is in care.
    Taken {
        /// Names it from here on.
        handle: Handle,
    },
    /// To `take`: it is in care already.
    Busy,
    /// To `take`: it was in care and was launched so many times; it never is again (C-101).
    Was {
        /// At least 1.
        launches: u32,
    },
    /// To `check`.
    Permitted,
    /// To `check` and `launch`: policy says no.
    Refused {
        /// The refusal's row in the protocol, 5, 6 or 7.
        row: u8,
        /// The field at fault, such as `sandbox.read_only[2]`.
        field: String,
        /// Why, in words for the run's author.
        why: String,
    },
    /// To `credential`, `open` and `open_settled`: the one descriptor carried, read-only.
    Descriptor,
    /// To `credential`: there is none.
    Unset,
    /// To `open` and `open_settled`: there is no such file, or none that may be opened.
    NotOpened {
        /// Why.
        why: String,
    },
    /// To `prepare`: every step was done.
    Prepared {
        /// The check-in set last, as a full hash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkin: Option<String>,
    },
    /// To `prepare`.
    StepFailed {
        /// Which step, from 0.
        index: u32,
        /// Why.
        why: String,
    },
    /// To `launch`: the process runs the run's program.
    Launched {
        /// The process's id on the host, for logs only.
        pid: u32,
    },
    /// To `launch`: the program never ran; nothing of the launch is left (C-45).
    Failed {
        /// 127 not found, 126 not executable, 125 anything else.
        code: u8,
        /// Which stage failed.
        stage: String,
        /// One line for the kept STDERR, such as `ocx: PATH: No such file or directory`.
        why: String,
    },
    /// To `stop`.
    Stopping,
    /// To `write_logs`.
    Written,
    /// To `write_logs`: not written, which is no failure of the run.
    KeptOut {
        /// Why.
        why: String,
    },
    /// To `inspect`.
    Inspected {
        /// What it holds.
        holds: Box<Holds>,
    },
    /// To `inspect`.
    NotInspected {
        /// Why not.
        why: String,
    },
    /// To `remove`.
    Removed,
    /// To `remove`.
    Left {
        /// What stays and why.
        what: String,
    },
    /// To `release`.
    Released,
    /// To any request that names a run or project unknown, or in a state that cannot take it because an event crossed
    /// it on the way. The link goes on.
    Impossible {
        /// Why.
        why: String,
    },
}

/// What the supervisor tells unasked. Kept and sent again on a new link until `noted` (C-102).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum Event {
    /// After `welcome`: one run in care. Its unnoted events follow.
    InCare {
        /// Names it on this link.
        handle: Handle,
        /// The run's full hash.
        run: String,
        /// How far it has come.
        phase: Phase,
        /// The workspace, once prepared.
        workspace: Option<String>,
        /// The check-in set last, as a full hash.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        checkin: Option<String>,
    },
    /// The process has ended and nothing of it is left. Carries two memfds: the kept tails of STDERR and STDOUT.
    Exited {
        /// From `taken` or `in_care`.
        handle: Handle,
        /// To be `noted`.
        event: EventNumber,
        /// How the main process ended.
        end: End,
        /// Why it was ended, when it did not end by itself.
        ended_by: EndedBy,
        /// How many processes it left that had to be ended.
        leftovers: u32,
    },
    /// Found at the supervisor's start in the care of an earlier one, and ended (C-100): the run is lost.
    Orphaned {
        /// Names it on this link.
        handle: Handle,
        /// To be `noted`.
        event: EventNumber,
        /// The run's full hash.
        run: String,
        /// How far it had come.
        phase: Phase,
        /// What was found and ended, in words.
        what: String,
    },
}

/// How far a run in care has come. Each resumes at its next effect (C-102).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// In care, nothing made.
    Taken,
    /// Its workspace is being made or failed to be.
    Preparing,
    /// Its workspace stands.
    Prepared,
    /// Its process was launched, or may have been.
    Launched,
    /// Its process has ended.
    Exited,
    /// Its workspace is removed.
    Removed,
}

/// How the main process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum End {
    /// With this exit code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

/// What ended it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndedBy {
    /// Itself, or a signal of its own making.
    Itself,
    /// A `stop`.
    Stop,
    /// A limit: its key, such as `wall`.
    Limit(String),
}

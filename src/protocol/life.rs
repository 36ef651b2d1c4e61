//! LIFE: what a run in this node's hands does next, for every state and event (protocol 2.13).
//!
//! Data only. `engine::advance` walks it; the node carries the effects out, in the order they stand here.

use State as S;

use super::words::words;

words! {
    /// Where a run stands in the node.
    State {
        /// Read, not decided; considered again at each completed pull.
        Unseen = "unseen",
        /// Decided; its care is being asked for.
        Taking = "taking",
        /// In care; the supervisor's policy is asked.
        Checking = "checking",
        /// Its workspace is being made.
        Preparing = "preparing",
        /// It is over before its launch; what was made of its workspace is being removed.
        Clearing = "clearing",
        /// Durably taken; `started` is being posted.
        Starting = "starting",
        /// `started` is confirmed; the launch is asked.
        Launching = "launching",
        /// Its process runs.
        Running = "running",
        /// Its process has been asked to end.
        Stopping = "stopping",
        /// Its process is over; the log files are being written.
        Logging = "logging",
        /// The files it is to send are being hashed.
        Hashing = "hashing",
        /// `ended` is durable and being posted.
        Ending = "ending",
        /// `ended` is on the server; publications are being posted.
        Publishing = "publishing",
        /// Nothing is left but to give the care back.
        Releasing = "releasing",
        /// Nothing is left to do.
        Settled = "settled",
    }
}

words! {
    /// What happens to a run.
    Event {
        /// The decision is no longer to wait.
        Decided = "decided",
        /// In care and accepted.
        Accepted = "accepted",
        /// In care and refused by a row of the table.
        Refused = "refused",
        /// A stop that counts came before the launch.
        StoppedFirst = "stopped_first",
        /// In care, but the decision is to wait after all.
        Waits = "waits",
        /// Someone holds its care already.
        Busy = "busy",
        /// It was launched and released before; it never is again.
        Was = "was",
        /// Policy permits the plan.
        Permitted = "permitted",
        /// Policy refuses it.
        CheckRefused = "check_refused",
        /// The workspace stands.
        Prepared = "prepared",
        /// A workspace step failed.
        StepFailed = "step_failed",
        /// The workspace of a run never launched is gone, or stays.
        Cleared = "cleared",
        /// The server has `started`.
        StartedConfirmed = "started_confirmed",
        /// A stop that counts stands.
        StopStands = "stop_stands",
        /// The program runs.
        Launched = "launched",
        /// The program could not be started.
        LaunchFailed = "launch_failed",
        /// The process is over and nothing of it lives.
        Exited = "exited",
        /// The log files are written, or kept out.
        LogsWritten = "logs_written",
        /// Each file it is to send has its hash, or none.
        FilesHashed = "files_hashed",
        /// The server has `ended`.
        EndedConfirmed = "ended_confirmed",
        /// Every publication is on the server, or has failed for good.
        Published = "published",
        /// Someone who may asks that what is left of the plan be tried again.
        PublishAsked = "publish_asked",
        /// The care is given back.
        Released = "released",
        /// Met as taken or launched once, and in nobody's care: what was left of it is ended.
        Lost = "lost",
        /// In hand, and told to be an earlier supervisor's: what was left of it is ended.
        Orphaned = "orphaned",
    }
}

words! {
    /// What the node does.
    Do {
        /// Asks for the run's care.
        Take = "take",
        /// Asks the supervisor's policy.
        Check = "check",
        /// Has the workspace made.
        Prepare = "prepare",
        /// Has the workspace removed: of a run whose steps failed, and of one that asks it, once it is saved.
        RemoveWorkspace = "remove_workspace",
        /// Writes the durable `taken`.
        SaveTaken = "save_taken",
        /// Posts `started`.
        PostStarted = "post_started",
        /// Adds the hash of `started` to the durable `taken`.
        SaveStarted = "save_started",
        /// Asks for the one launch.
        Launch = "launch",
        /// Asks for the process's end.
        StopProcess = "stop_process",
        /// Has the kept logs written in the workspace.
        WriteLogs = "write_logs",
        /// Has the files it is to send hashed.
        HashFiles = "hash_files",
        /// Writes the durable plan of publications.
        SavePlan = "save_plan",
        /// Writes the durable `ending`, holding the exact text.
        SaveEnding = "save_ending",
        /// Tells the supervisor that its events are durable here.
        NoteEvents = "note_events",
        /// Posts `ended`.
        PostEnded = "post_ended",
        /// Writes the durable `done`.
        SaveDone = "save_done",
        /// Posts the publications left in the plan.
        Publish = "publish",
        /// Writes into the durable plan that what is left of it is tried again.
        SaveRetry = "save_retry",
        /// Gives the care back.
        Release = "release",
    }
}

/// One row: what `on` does in `from`.
#[derive(Debug, Clone, Copy)]
pub struct Row {
    /// The paragraph it comes from.
    pub spec: &'static str,
    /// The state it answers in.
    pub from: State,
    /// The event it answers.
    pub on: Event,
    /// The state after it.
    pub to: State,
    /// What is done, in order; each only after the one before is done or handed over.
    pub effects: &'static [Do],
}

const fn row(spec: &'static str, from: State, on: Event, to: State, effects: &'static [Do]) -> Row {
    Row { spec, from, on, to, effects }
}

const ANSWER: &[Do] = &[Do::SaveEnding, Do::PostEnded];
const LOST: &[Do] = &[Do::SaveEnding, Do::NoteEvents, Do::PostEnded];

/// The table.
pub const LIFE: &[Row] = &[
    row("2.13: unsettled runs are taken", State::Unseen, Event::Decided, State::Taking, &[Do::Take]),
    row("2.13: a counted ended settles the run", State::Unseen, Event::EndedConfirmed, State::Settled, &[]),
    row("2.13: launched and no longer in care", State::Unseen, Event::Lost, State::Ending, LOST),
    row("C-86: check before anything is made", State::Taking, Event::Accepted, State::Checking, &[Do::Check]),
    row("2.14: refused, and nothing is made", State::Taking, Event::Refused, State::Ending, ANSWER),
    row("2.12: a stop came first", State::Taking, Event::StoppedFirst, State::Ending, ANSWER),
    row("2.13: decided again under the lock", State::Taking, Event::Waits, State::Unseen, &[Do::Release]),
    row("2.13: the lock is held", State::Taking, Event::Busy, State::Unseen, &[]),
    row("C-101: launched and released before", State::Taking, Event::Was, State::Ending, ANSWER),
    row(
        "C-87: a stop of a run that may wait for room",
        State::Checking,
        Event::StopStands,
        State::Checking,
        &[Do::StopProcess],
    ),
    row("C-85: permitted", State::Checking, Event::Permitted, State::Preparing, &[Do::Prepare]),
    row("C-85: refusals 6 and 7", State::Checking, Event::CheckRefused, State::Ending, ANSWER),
    row("2.13: a stop before launch", State::Checking, Event::StoppedFirst, State::Ending, ANSWER),
    row(
        "2.13: taken before started",
        State::Preparing,
        Event::Prepared,
        State::Starting,
        &[Do::SaveTaken, Do::PostStarted],
    ),
    row("2.14 row 9", State::Preparing, Event::StepFailed, State::Clearing, &[Do::RemoveWorkspace]),
    row("2.13: a stop before launch", State::Preparing, Event::StoppedFirst, State::Clearing, &[Do::RemoveWorkspace]),
    row("2.3: removed, for a run never launched", State::Clearing, Event::Cleared, State::Ending, ANSWER),
    row(
        "2.13: launched only once started is confirmed",
        State::Starting,
        Event::StartedConfirmed,
        State::Launching,
        &[Do::SaveStarted, Do::Launch],
    ),
    row(
        "2.13: a stop while started is unknown",
        State::Starting,
        Event::StopStands,
        State::Clearing,
        &[Do::RemoveWorkspace],
    ),
    row("2.13: the program runs", State::Launching, Event::Launched, State::Running, &[]),
    row("C-45: the program could not start", State::Launching, Event::LaunchFailed, State::Logging, &[Do::WriteLogs]),
    row("2.13: over at once", State::Launching, Event::Exited, State::Logging, &[Do::WriteLogs]),
    row("2.12: a stop", State::Launching, Event::StopStands, State::Stopping, &[Do::StopProcess]),
    row(
        "2.13: a stop before the launch is asked",
        State::Launching,
        Event::StoppedFirst,
        State::Clearing,
        &[Do::RemoveWorkspace],
    ),
    row("2.13: the process is over", State::Running, Event::Exited, State::Logging, &[Do::WriteLogs]),
    row("2.12: a stop", State::Running, Event::StopStands, State::Stopping, &[Do::StopProcess]),
    row("2.13: the process is over", State::Stopping, Event::Exited, State::Logging, &[Do::WriteLogs]),
    row("C-45: the program could not start", State::Stopping, Event::LaunchFailed, State::Logging, &[Do::WriteLogs]),
    row("C-100: an earlier supervisor's", State::Starting, Event::Orphaned, State::Ending, LOST),
    row("C-100: an earlier supervisor's", State::Launching, Event::Orphaned, State::Ending, LOST),
    row("C-100: an earlier supervisor's", State::Running, Event::Orphaned, State::Ending, LOST),
    row("C-100: an earlier supervisor's", State::Stopping, Event::Orphaned, State::Ending, LOST),
    row(
        "C-04: log files in the workspace, then file hashes",
        State::Logging,
        Event::LogsWritten,
        State::Hashing,
        &[Do::HashFiles],
    ),
    row(
        "C-04: plan, ending, then ended",
        State::Hashing,
        Event::FilesHashed,
        State::Ending,
        &[Do::SavePlan, Do::SaveEnding, Do::NoteEvents, Do::PostEnded],
    ),
    row(
        "C-04: done once ended is confirmed, then publications",
        State::Ending,
        Event::EndedConfirmed,
        State::Publishing,
        &[Do::SaveDone, Do::Publish],
    ),
    row(
        "C-04: the lock is held until the plan is done; then the removal",
        State::Publishing,
        Event::Published,
        State::Releasing,
        &[Do::RemoveWorkspace, Do::Release],
    ),
    row("C-101: released", State::Releasing, Event::Released, State::Settled, &[]),
    row(
        "2.3: a publish retries the plan and launches nothing",
        State::Settled,
        Event::PublishAsked,
        State::Publishing,
        &[Do::SaveRetry, Do::Publish],
    ),
];

/// One group of pairs in which a run stays where it is.
#[derive(Debug, Clone, Copy)]
pub struct Stay {
    /// Why nothing more is to be done.
    pub why: &'static str,
    /// The states.
    pub states: &'static [State],
    /// The events.
    pub events: &'static [Event],
    /// What is done all the same, after whatever is still to be done.
    pub effects: &'static [Do],
}

const fn stay(why: &'static str, states: &'static [State], events: &'static [Event], effects: &'static [Do]) -> Stay {
    Stay { why, states, events, effects }
}

/// Events that leave a run where it is, each group with its reason.
pub const STAYS: &[Stay] = &[
    stay(
        "not launched: the next decision sees the stop",
        &[S::Unseen, S::Taking, S::Preparing],
        &[Event::StopStands],
        &[],
    ),
    stay(
        "already on its way out",
        &[S::Clearing, S::Stopping, S::Logging, S::Hashing, S::Ending, S::Publishing, S::Releasing, S::Settled],
        &[Event::StopStands],
        &[],
    ),
    stay(
        "the answer to the launch, come after the stop or the exit",
        &[S::Stopping, S::Logging, S::Hashing],
        &[Event::Launched],
        &[],
    ),
    stay(
        "its own ended, seen again in a later pull",
        &[S::Publishing, S::Releasing, S::Settled],
        &[Event::EndedConfirmed],
        &[],
    ),
    stay(
        "an ended that this process did not write: it is met again once the run is ending, so that P3 holds",
        &[
            S::Taking,
            S::Checking,
            S::Preparing,
            S::Clearing,
            S::Starting,
            S::Launching,
            S::Running,
            S::Stopping,
            S::Logging,
            S::Hashing,
        ],
        &[Event::EndedConfirmed],
        &[],
    ),
    stay(
        "2.3: it is still in this node's hands, and a reply says so",
        &[
            S::Unseen,
            S::Taking,
            S::Checking,
            S::Preparing,
            S::Clearing,
            S::Starting,
            S::Launching,
            S::Running,
            S::Stopping,
            S::Logging,
            S::Hashing,
            S::Ending,
            S::Publishing,
            S::Releasing,
        ],
        &[Event::PublishAsked],
        &[],
    ),
    stay(
        "released between decisions: nothing was in care but the lock",
        &[S::Unseen, S::Taking],
        &[Event::Released],
        &[],
    ),
    stay(
        "C-102: an exit that was made durable before, or is none of this life's; noted, it is not told for ever",
        &[
            S::Unseen,
            S::Taking,
            S::Checking,
            S::Preparing,
            S::Clearing,
            S::Starting,
            S::Logging,
            S::Hashing,
            S::Ending,
            S::Publishing,
            S::Releasing,
            S::Settled,
        ],
        &[Event::Exited],
        &[Do::NoteEvents],
    ),
    stay(
        "C-100: nothing was taken for good yet, or its end is known already",
        &[
            S::Unseen,
            S::Taking,
            S::Checking,
            S::Preparing,
            S::Clearing,
            S::Logging,
            S::Hashing,
            S::Ending,
            S::Publishing,
            S::Releasing,
            S::Settled,
        ],
        &[Event::Orphaned],
        &[Do::NoteEvents],
    ),
];

/// Every state after taking.
const AFTER_TAKING: &[State] = &[
    S::Checking,
    S::Preparing,
    S::Clearing,
    S::Starting,
    S::Launching,
    S::Running,
    S::Stopping,
    S::Logging,
    S::Hashing,
    S::Ending,
    S::Publishing,
    S::Releasing,
    S::Settled,
];

/// Pairs that cannot be, each group with its reason: one that comes all the same is a fault of the node, is logged, and
/// moves nothing.
pub const NEVER: &[(&str, &[State], &[Event])] = &[
    ("only what is unseen is decided, and met as lost", &[S::Taking], &[Event::Decided, Event::Lost]),
    ("only what is unseen is decided, and met as lost", AFTER_TAKING, &[Event::Decided, Event::Lost]),
    (
        "the answer to `take`, which was not asked",
        &[S::Unseen],
        &[Event::Accepted, Event::Refused, Event::Waits, Event::Busy, Event::Was],
    ),
    (
        "the answer to `take`, which was given already",
        AFTER_TAKING,
        &[Event::Accepted, Event::Refused, Event::Waits, Event::Busy, Event::Was],
    ),
    (
        "the answer to `check`, which is waited for while checking alone",
        &[
            S::Unseen,
            S::Taking,
            S::Preparing,
            S::Clearing,
            S::Starting,
            S::Launching,
            S::Running,
            S::Stopping,
            S::Logging,
            S::Hashing,
            S::Ending,
            S::Publishing,
            S::Releasing,
            S::Settled,
        ],
        &[Event::Permitted, Event::CheckRefused],
    ),
    (
        "the answer to `prepare`, which is waited for while preparing alone",
        &[
            S::Unseen,
            S::Taking,
            S::Checking,
            S::Clearing,
            S::Starting,
            S::Launching,
            S::Running,
            S::Stopping,
            S::Logging,
            S::Hashing,
            S::Ending,
            S::Publishing,
            S::Releasing,
            S::Settled,
        ],
        &[Event::Prepared, Event::StepFailed],
    ),
    (
        "a stop comes first only before the launch is asked, and where it is looked at",
        &[
            S::Unseen,
            S::Clearing,
            S::Starting,
            S::Running,
            S::Stopping,
            S::Logging,
            S::Hashing,
            S::Ending,
            S::Publishing,
            S::Releasing,
            S::Settled,
        ],
        &[Event::StoppedFirst],
    ),
    (
        "the post of `started` goes with the state",
        &[
            S::Unseen,
            S::Taking,
            S::Checking,
            S::Preparing,
            S::Clearing,
            S::Launching,
            S::Running,
            S::Stopping,
            S::Logging,
            S::Hashing,
            S::Ending,
            S::Publishing,
            S::Releasing,
            S::Settled,
        ],
        &[Event::StartedConfirmed],
    ),
    (
        "no launch was asked, or its answer came before",
        &[
            S::Unseen,
            S::Taking,
            S::Checking,
            S::Preparing,
            S::Clearing,
            S::Starting,
            S::Running,
            S::Ending,
            S::Publishing,
            S::Releasing,
            S::Settled,
        ],
        &[Event::Launched, Event::LaunchFailed],
    ),
    ("a launch that failed has no exit before it", &[S::Logging, S::Hashing], &[Event::LaunchFailed]),
    (
        "a workspace is cleared while clearing alone",
        &[
            S::Unseen,
            S::Taking,
            S::Checking,
            S::Preparing,
            S::Starting,
            S::Launching,
            S::Running,
            S::Stopping,
            S::Logging,
            S::Hashing,
            S::Ending,
            S::Publishing,
            S::Releasing,
            S::Settled,
        ],
        &[Event::Cleared],
    ),
    (
        "the files are hashed while hashing alone",
        &[
            S::Unseen,
            S::Taking,
            S::Checking,
            S::Preparing,
            S::Clearing,
            S::Starting,
            S::Launching,
            S::Running,
            S::Stopping,
            S::Logging,
            S::Ending,
            S::Publishing,
            S::Releasing,
            S::Settled,
        ],
        &[Event::FilesHashed],
    ),
    (
        "the log files are written while logging alone",
        &[
            S::Unseen,
            S::Taking,
            S::Checking,
            S::Preparing,
            S::Clearing,
            S::Starting,
            S::Launching,
            S::Running,
            S::Stopping,
            S::Hashing,
            S::Ending,
            S::Publishing,
            S::Releasing,
            S::Settled,
        ],
        &[Event::LogsWritten],
    ),
    (
        "publications are posted while publishing alone",
        &[
            S::Unseen,
            S::Taking,
            S::Checking,
            S::Preparing,
            S::Clearing,
            S::Starting,
            S::Launching,
            S::Running,
            S::Stopping,
            S::Logging,
            S::Hashing,
            S::Ending,
            S::Releasing,
            S::Settled,
        ],
        &[Event::Published],
    ),
    (
        "the care was not given back",
        &[
            S::Checking,
            S::Preparing,
            S::Clearing,
            S::Starting,
            S::Launching,
            S::Running,
            S::Stopping,
            S::Logging,
            S::Hashing,
            S::Ending,
            S::Publishing,
            S::Settled,
        ],
        &[Event::Released],
    ),
];

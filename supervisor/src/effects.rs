//! The supervisor's effects, as tables: what it does for a request, what it tells, what it writes, what it does to
//! processes. Its failpoints are made from them (`points`), and the crash suite walks them all.

use crate::effects;
use crate::wire::message::{Event, Reply, Request, ToNode};

effects! {
    /// Requests served.
    Served, Supervisor, "serve" {
        /// `hello`.
        Hello = "hello", Act;
        /// `take`.
        Take = "take", Act;
        /// `check`.
        Check = "check", Act;
        /// `credential`.
        Credential = "credential", Act;
        /// `prepare`.
        Prepare = "prepare", Act;
        /// `launch`.
        Launch = "launch", Act;
        /// `noted`.
        Noted = "noted", Act;
        /// `stop`.
        Stop = "stop", Act;
        /// `open`.
        Open = "open", Act;
        /// `open_settled`.
        OpenSettled = "open_settled", Act;
        /// `write_logs`.
        WriteLogs = "write_logs", Act;
        /// `inspect`.
        Inspect = "inspect", Act;
        /// `remove`.
        Remove = "remove", Act;
        /// `release`.
        Release = "release", Act;
    }
}

effects! {
    /// Frames sent to the protocol process.
    Told, Supervisor, "tell" {
        /// `welcome`.
        Welcome = "welcome", Act;
        /// `taken`.
        Taken = "taken", Act;
        /// `busy`.
        Busy = "busy", Act;
        /// `was`.
        Was = "was", Act;
        /// `permitted`.
        Permitted = "permitted", Act;
        /// `refused`.
        Refused = "refused", Act;
        /// A descriptor, or that there is none.
        Descriptor = "descriptor", Act;
        /// `not_opened`.
        NotOpened = "not_opened", Act;
        /// `prepared`.
        Prepared = "prepared", Act;
        /// `step_failed`.
        StepFailed = "step_failed", Act;
        /// `launched`.
        Launched = "launched", Act;
        /// `failed`.
        Failed = "failed", Act;
        /// `stopping`.
        Stopping = "stopping", Act;
        /// `written` or `kept_out`.
        Logs = "logs", Act;
        /// `inspected` or `not_inspected`.
        Inspected = "inspected", Act;
        /// `removed` or `left`.
        Removed = "removed", Act;
        /// `released`.
        Released = "released", Act;
        /// `impossible`.
        Impossible = "impossible", Act;
        /// The event `in_care`.
        InCare = "in_care", Act;
        /// The event `exited`.
        Exited = "exited", Act;
        /// The event `orphaned`.
        Orphaned = "orphaned", Act;
    }
}

effects! {
    /// Writes below `ROOT/care`.
    Wrote, Supervisor, "care" {
        /// The record of a run just taken.
        Taken = "taken", Write;
        /// The record that names the step's cgroup and the workspace.
        Step = "step", Write;
        /// The record of a workspace that stands.
        Prepared = "prepared", Write;
        /// The launch mark, with the cgroup.
        LaunchMark = "launch_mark", Write;
        /// The record that names the run's first process.
        Init = "init", Write;
        /// A phase that only makes a later message more exact.
        Phase = "phase", LateWrite;
        /// The run's line in `launched`.
        Line = "line", Append;
        /// The record of a settled run goes.
        Gone = "gone", Removal;
    }
}

effects! {
    /// What is done to processes, cgroups and workspaces.
    Did, Supervisor, "do" {
        /// Makes a cgroup.
        MakeCgroup = "make_cgroup", Act;
        /// Starts a step's cell and lets it go.
        StartStep = "start_step", Act;
        /// Starts a run's cell, which waits.
        StartCell = "start_cell", Act;
        /// Lets a run's program go.
        Go = "go", Act;
        /// Asks a program to end.
        Term = "term", Act;
        /// Kills everything of a cell.
        Kill = "kill", Act;
        /// Removes an empty cgroup.
        RemoveCgroup = "remove_cgroup", Act;
        /// Keeps the end of a process for the protocol process.
        KeepEnd = "keep_end", Act;
        /// Writes the logs in the workspace.
        PutLogs = "put_logs", Act;
        /// Ends what an earlier supervisor left of a run.
        EndOrphan = "end_orphan", Act;
    }
}

impl Served {
    /// The row of a request.
    #[must_use]
    pub const fn of(request: &Request) -> Self {
        match request {
            Request::Hello { .. } => Self::Hello,
            Request::Take { .. } => Self::Take,
            Request::Check { .. } => Self::Check,
            Request::Credential { .. } => Self::Credential,
            Request::Prepare { .. } => Self::Prepare,
            Request::Launch { .. } => Self::Launch,
            Request::Noted { .. } => Self::Noted,
            Request::Stop { .. } => Self::Stop,
            Request::Open { .. } => Self::Open,
            Request::OpenSettled { .. } => Self::OpenSettled,
            Request::WriteLogs { .. } => Self::WriteLogs,
            Request::Inspect { .. } => Self::Inspect,
            Request::Remove { .. } => Self::Remove,
            Request::Release { .. } => Self::Release,
        }
    }
}

impl Told {
    /// The row of a frame.
    #[must_use]
    pub const fn of(frame: &ToNode) -> Self {
        match frame {
            ToNode::Reply { reply, .. } => match reply {
                Reply::Welcome { .. } => Self::Welcome,
                Reply::Taken { .. } => Self::Taken,
                Reply::Busy => Self::Busy,
                Reply::Was { .. } => Self::Was,
                Reply::Permitted => Self::Permitted,
                Reply::Refused { .. } => Self::Refused,
                Reply::Descriptor | Reply::Unset => Self::Descriptor,
                Reply::NotOpened { .. } => Self::NotOpened,
                Reply::Prepared { .. } => Self::Prepared,
                Reply::StepFailed { .. } => Self::StepFailed,
                Reply::Launched { .. } => Self::Launched,
                Reply::Failed { .. } => Self::Failed,
                Reply::Stopping => Self::Stopping,
                Reply::Written | Reply::KeptOut { .. } => Self::Logs,
                Reply::Inspected { .. } | Reply::NotInspected { .. } => Self::Inspected,
                Reply::Removed | Reply::Left { .. } => Self::Removed,
                Reply::Released => Self::Released,
                Reply::Impossible { .. } => Self::Impossible,
            },
            ToNode::Event(event) => match event {
                Event::InCare { .. } => Self::InCare,
                Event::Exited { .. } => Self::Exited,
                Event::Orphaned { .. } => Self::Orphaned,
            },
        }
    }
}

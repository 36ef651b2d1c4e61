//! What the loop's descriptors and deadlines are for. The order of [`Name`] is the order of one wake: a stop, then a
//! limit, then an exit (decisions C-25).

use supervisor::wire::message::Handle;

/// A watched descriptor.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Name {
    /// Signals to the supervisor.
    Signals,
    /// The link to the protocol process, by its number.
    Link(u64),
    /// The one timer.
    Timer,
    /// What the protocol process's cell says.
    NodeStatus,
    /// The protocol process has ended.
    NodeEnd,
    /// Something of a run.
    Run(Handle, Part),
}

impl Name {
    /// Whether it is an output of a run: the one kind that may be ready without end.
    pub(crate) const fn is_output(self) -> bool {
        matches!(self, Self::Run(_, Part::Stderr | Part::Stdout))
    }
}

/// A descriptor of a run's process or step.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Part {
    /// Its standard input has room.
    Input,
    /// Its STDERR has something.
    Stderr,
    /// Its STDOUT has something.
    Stdout,
    /// Its cgroup's memory ran out.
    Memory,
    /// What its cell says.
    Status,
    /// Its cell has ended.
    End,
    /// Its cgroup may be empty.
    Populated,
}

/// What is due at a deadline.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Due {
    /// The protocol process is to be started.
    StartNode,
    /// The link of this number has taken nothing for too long.
    LinkStalled(u64),
    /// A run's `wall` has passed.
    Wall(Handle),
    /// A run's cell, or a step, has taken too long.
    TooLong(Handle),
    /// A run that was asked to end has not.
    Grace(Handle),
    /// What a program left has had its time to write.
    Drain(Handle),
    /// Look again whether a run's memory ran out.
    Memory(Handle),
    /// Look again whether anything of a run lives.
    LookAgain(Handle),
    /// Outputs that were left for a run's end are read again.
    Quiet,
    /// Outputs are read again.
    Paused,
    /// The supervisor ends, whatever still lives.
    GiveUp,
}

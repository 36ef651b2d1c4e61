//! When the outputs of all runs are read: after everything else of a turn, each in its turn, all together to a bound, not
//! more often than is worth a wake, and a little later while a run is being ended.

use std::collections::BTreeSet;
use std::time::Duration;

use crate::deadlines::{BootTime, Deadline};
use crate::names::{Due, Name, Part};
use crate::service::Service;
use crate::streams::{self, Landing, Progress, TURN_ALL_BYTES_MAX};

/// How long outputs are left for one run's end at most. Far below what a program that writes would notice.
const QUIET_MAX: Duration = Duration::from_millis(50);
/// Once all outputs were read to their end they are left so long. Who reads each page as it comes, with the better
/// priority, stops its writer for each; what is written meanwhile is read at once. Far below what fills a pipe.
const PAUSE: Duration = Duration::from_micros(100);

/// What is known of outputs from turn to turn.
#[derive(Debug, Default)]
pub(crate) struct Outputs {
    /// Where they are read to.
    pub(crate) landing: Landing,
    /// How much more may be read in this turn.
    left_bytes: usize,
    /// The one read last: in the next turn those after it come first.
    last: Option<Name>,
    /// Whether one has more than was read of it in this turn.
    behind: bool,
    /// Until when all but those of ending runs are left, for a run that is being ended.
    quiet: Option<Deadline>,
    /// Until when they are left since all were read.
    pause: Option<Deadline>,
    /// Those that were ready meanwhile.
    later: BTreeSet<Name>,
}

impl Service {
    /// Reads the outputs that are ready.
    pub(crate) fn read_outputs(&mut self, ready: &BTreeSet<Name>) {
        let outputs = || ready.iter().copied().filter(|name| name.is_output());
        let last = self.outputs.last;
        let after = outputs().filter(|name| last.is_some_and(|last| *name > last));
        let rest = outputs().filter(|name| last.is_none_or(|last| *name <= last));
        let waits = self.outputs.quiet.is_some() || self.outputs.pause.is_some();
        self.outputs.left_bytes = TURN_ALL_BYTES_MAX;
        self.outputs.behind = false;
        let mut read = false;
        for name in after.chain(rest) {
            let Name::Run(handle, part) = name else { continue };
            if waits && !self.runs.get(&handle).is_some_and(|it| it.state.is_ending()) {
                self.outputs.later.insert(name);
            } else if self.outputs.left_bytes == 0 {
                self.outputs.behind = true;
                self.sources.again(name);
            } else {
                (self.outputs.last, read) = (Some(name), true);
                self.output_ready(handle, part);
            }
        }
        if read && !self.outputs.behind && self.outputs.pause.is_none() {
            self.outputs.pause = Some(self.deadlines.set(BootTime::now().after(PAUSE), Due::Paused));
        }
    }

    /// Reads a bounded part of one output.
    fn output_ready(&mut self, handle: supervisor::wire::message::Handle, part: Part) {
        use std::os::fd::AsFd as _;
        let Some(work) = self.runs.get_mut(&handle).and_then(|it| it.work.as_mut()) else { return };
        let output = if part == Part::Stderr { &mut work.stderr } else { &mut work.stdout };
        let Some(fd) = &output.fd else { return };
        let Outputs { landing, left_bytes, behind, .. } = &mut self.outputs;
        match streams::read(fd.as_fd(), &mut output.kept, landing, left_bytes) {
            Progress::Waiting => {}
            Progress::More => {
                *behind = true;
                self.sources.again(Name::Run(handle, part));
            }
            Progress::Over => {
                output.fd = None;
                self.drained(handle);
            }
        }
    }

    /// Leaves the outputs of all other runs for a moment, once a run is asked to end: those that shout then wait on full
    /// pipes, and what obeys has the processors to do so.
    pub(crate) fn quieten(&mut self) {
        if self.outputs.quiet.is_none() {
            self.outputs.quiet = Some(self.deadlines.set(BootTime::now().after(QUIET_MAX), Due::Quiet));
        }
    }

    /// Nothing is ending any more, or it has had its moment.
    pub(crate) fn unquieten(&mut self) {
        self.deadlines.cancel(self.outputs.quiet.take());
        self.resume_outputs();
    }

    /// The pause is over.
    pub(crate) fn unpause(&mut self) {
        self.outputs.pause = None;
        self.resume_outputs();
    }

    fn resume_outputs(&mut self) {
        if self.outputs.quiet.is_none() && self.outputs.pause.is_none() {
            for name in std::mem::take(&mut self.outputs.later) {
                self.sources.again(name);
            }
        }
    }
}

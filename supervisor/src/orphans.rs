//! What an earlier supervisor left: found by its care records, ended, and told as orphaned (decisions C-100).

use std::path::Path;
use std::time::Duration;

use rustix::process::{Pid, PidfdFlags, Signal};
use supervisor::effects::Did;
use supervisor::points::{self, Moment, reach};
use supervisor::wire::message::{Handle, Phase};

use crate::care::{Found, Init, Record};
use crate::cgroup::RunCgroup;
use crate::child;
use crate::deadlines::BootTime;
use crate::in_care::{InCare, Remains, Told};
use crate::log;
use crate::names::Due;
use crate::run::RunState;
use crate::service::Service;
use crate::workspaces::Place;

/// Between two looks whether what was found has ended.
const LOOK: Duration = Duration::from_millis(100);
/// So many looks without an end are worth a line.
const LOOKS_TOLD: u32 = 50;

impl Service {
    /// Takes over what records name: ends what may live, and keeps each run as orphaned for the node.
    pub(crate) fn take_over(&mut self, found: Vec<Found>) {
        for Found { run, record } in found {
            let mut what = String::new();
            let record = record.unwrap_or_else(|why| {
                // Whether it was launched is unknown: what is in doubt is never run again.
                log::run(&run, format_args!("its care record is not believed: {why}; taken as launched"));
                what = format!("its care record is not believed ({why}); ");
                // What may live of it is where every run's processes are.
                let cgroups = self.fixed.host.cgroups.as_ref();
                let cgroup = cgroups.map(|it| it.path_of(&run.to_string()).display().to_string());
                Record { launches: 1, phase: Phase::Launched, cgroup, ..Record::taken(self.care.boot()) }
            });
            let this_boot = record.boot == self.care.boot();
            let mut it = InCare::new(run, RunState::Orphaned, record);
            it.place = it
                .record
                .workspace
                .as_ref()
                .and_then(|at| Place::check(&self.fixed.workspaces, at, std::iter::empty()).ok());
            if this_boot {
                let init = it.record.init.and_then(open_init);
                what.push_str(if init.is_some() {
                    "its process was found, and ended"
                } else {
                    "no process of it was found"
                });
                it.remains = Some(Remains { cgroup: it.record.cgroup.clone(), init, looks: 0, due: None });
            } else {
                what.push_str("the host was started again since");
            }
            let phase = it.record.phase;
            log::run(
                &run,
                format_args!("found in care of an earlier supervisor, {}: {what}", crate::care::phase_word(phase)),
            );
            it.keep(Told::Orphaned { phase, what }, None);
            self.last_handle += 1;
            let handle = self.last_handle;
            self.runs.insert(handle, it);
            if this_boot {
                self.look_at_remains(handle);
            }
        }
    }

    /// Kills what is left of an orphan, and looks again until nothing is.
    pub(crate) fn look_at_remains(&mut self, handle: Handle) {
        let Some(it) = self.runs.get_mut(&handle) else { return };
        let Some(remains) = &mut it.remains else { return };
        reach(Did::EndOrphan, Moment::Before);
        let cgroup = remains.cgroup.as_ref().zip(self.fixed.host.cgroups.as_ref());
        let spared = points::broken("orphans-ended");
        let empty = spared || cgroup.is_none_or(|(path, cgroups)| end_cgroup(&cgroups.found(Path::new(path))));
        if let Some(init) = remains.init.as_ref().filter(|_| !spared) {
            let _gone = rustix::process::pidfd_send_signal(init, Signal::KILL);
        }
        reach(Did::EndOrphan, Moment::After);
        let gone = spared || remains.init.as_ref().is_none_or(has_ended);
        self.deadlines.cancel(remains.due.take());
        if empty && gone {
            it.remains = None;
            // Only now: P3 says that nothing of it lives when the node is told.
            self.tell(handle, false);
            return;
        }
        remains.looks += 1;
        if remains.looks >= LOOKS_TOLD && remains.looks.is_power_of_two() {
            log::run(&it.run, format_args!("of an earlier supervisor, cannot be ended yet; looking again"));
        }
        remains.due = Some(self.deadlines.set(BootTime::now().after(LOOK), Due::LookAgain(handle)));
    }
}

/// The process a record names, if it still is that one: a pid alone may name a stranger by now.
fn open_init(init: Init) -> Option<std::os::fd::OwnedFd> {
    let pid = i32::try_from(init.pid).ok().and_then(Pid::from_raw)?;
    let fd = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
    // Asked after the descriptor is held: it is the process now open that started then, or another.
    (child::start_time(init.pid).ok()? == init.started).then_some(fd)
}

/// Whether a process that is not our child has ended.
fn has_ended(fd: &std::os::fd::OwnedFd) -> bool {
    use rustix::event::{PollFd, PollFlags, Timespec, poll};
    let mut asked = [PollFd::new(fd, PollFlags::IN)];
    poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n > 0)
}

/// Kills everything in a cgroup of an earlier supervisor, and removes it once it is empty. Whether it is.
fn end_cgroup(cgroup: &RunCgroup) -> bool {
    if cgroup.populated() {
        if let Err(error) = cgroup.kill() {
            log::say(format_args!("{}: killing it: {error}", cgroup.path().display()));
        }
        return false;
    }
    if let Err(error) = cgroup.remove() {
        log::say(format_args!("{}: {error}; it stays, empty", cgroup.path().display()));
    }
    true
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    #[test]
    fn a_pid_that_is_another_process_by_now_is_left_alone() {
        let pid = std::process::id();
        let started = child::start_time(pid).unwrap();
        assert!(open_init(Init { pid, started }).is_some());
        assert!(open_init(Init { pid, started: started + 1 }).is_none());
        assert!(open_init(Init { pid: 0, started }).is_none());
        assert!(!has_ended(&open_init(Init { pid, started }).unwrap()));
    }
}

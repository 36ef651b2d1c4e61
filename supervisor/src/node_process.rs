//! The protocol process: started from this release, started again when it ends, ended when it breaks the table. Runs go
//! on meanwhile.

use std::os::fd::OwnedFd;
use std::time::Duration;

use mio::Interest;
use rustix::net::{AddressFamily, SocketFlags, SocketType, socketpair};
use sandbox::spec::Limits;
use sandbox::status::Said;
use supervisor::wire::message::Handle;

use crate::backoff::Backoff;
use crate::cgroup::RunCgroup;
use crate::child::Child;
use crate::deadlines::BootTime;
use crate::launch::{self, Host, Launching};
use crate::link::Link;
use crate::log;
use crate::names::{Due, Name};
use crate::node_files;
use crate::requests::Meter;
use crate::run::RunState;
use crate::service::Service;

/// How long a node's start waits for the steps of the node before it, and for what an earlier supervisor left, to be
/// gone.
const STEPS_GONE_MAX: Duration = Duration::from_secs(5);
/// Between two looks whether they are.
const STEPS_GONE_STEP: Duration = Duration::from_millis(10);

/// The protocol process, or the wait for the next.
#[derive(Debug, Default)]
pub(crate) struct NodeProcess {
    child: Option<Child>,
    started: Option<BootTime>,
    backoff: Backoff,
    links: u64,
    waited: Duration,
    /// What it and the programs it drives are in; goes with it.
    cgroup: Option<RunCgroup>,
}

/// The name of the node's cgroup in its parent.
const CGROUP: &str = "node";

impl NodeProcess {
    /// Whether there is one.
    pub(crate) const fn is_alive(&self) -> bool {
        self.child.is_some()
    }

    /// Its cell.
    pub(crate) const fn child(&self) -> Option<&Child> {
        self.child.as_ref()
    }

    /// Kills it and what it drives: a fossil of a node that is gone must not work on a clone beside the next node's.
    fn kill(&mut self) {
        if let Some(child) = &mut self.child {
            child.kill();
        }
        if let Some(Err(error)) = self.cgroup.as_ref().map(RunCgroup::kill) {
            log::say(format_args!("node: killing its cgroup: {error}"));
        }
    }

    /// Ends what the node of an earlier supervisor left.
    pub(crate) fn take_over(&mut self, host: &Host) {
        // Made anew if it is not there: what is in it by then is an earlier one's.
        self.cgroup = host.node_cgroups().and_then(|cgroups| cgroups.create(CGROUP, &Limits::default()).ok());
        self.kill();
    }

    /// Whether something of an ended node still lives.
    pub(crate) fn lingers(&mut self) -> bool {
        let Some(cgroup) = &self.cgroup else { return false };
        if cgroup.populated() {
            return true;
        }
        if let Err(error) = cgroup.remove() {
            log::say(format_args!("node: its cgroup stays: {error}"));
        }
        self.cgroup = None;
        false
    }
}

impl Service {
    /// Starts the protocol process with a new link, or says why not and tries later.
    pub(crate) fn start_node(&mut self) {
        if self.ending || self.node.is_alive() {
            return;
        }
        // A step that an earlier node asked for has been killed. Until it is gone a new node would be told of a phase
        // that is about to change under it; and of an orphan's run that it is in care, which is true no longer.
        let stepping = self.runs.values().any(|it| {
            it.remains.is_some() || matches!(it.state, RunState::Preparing | RunState::Inspecting | RunState::Removing)
        });
        if (stepping || self.node.lingers()) && self.node.waited < STEPS_GONE_MAX {
            self.node.waited += STEPS_GONE_STEP;
            self.deadlines.set(BootTime::now().after(STEPS_GONE_STEP), Due::StartNode);
            return;
        }
        self.node.waited = Duration::ZERO;
        let now = BootTime::now();
        match self.make_node(now) {
            Ok(pid) => log::say(format_args!("node: started pid {pid}")),
            Err(why) => {
                let wait = self.node.backoff.after(Duration::ZERO);
                log::say(format_args!("node: cannot be started: {why}; trying again in {} ms", wait.as_millis()));
                self.link = None;
                self.node.kill();
                self.node.child = None;
                self.deadlines.set(now.after(wait), Due::StartNode);
            }
        }
    }

    fn make_node(&mut self, now: BootTime) -> Result<u32, String> {
        let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
        let pair = socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
        let (ours, theirs) = pair.map_err(|e| format!("its socket: {e}"))?;
        // The flag belongs to each end; a node that waits for a frame is the simplest kind.
        rustix::io::ioctl_fionbio(&theirs, false).map_err(|e| format!("its socket: {e}"))?;
        let cell = self.node_cell(theirs)?;
        self.node.links += 1;
        let number = self.node.links;
        let interest = Interest::READABLE | Interest::WRITABLE;
        let socket = self.sources.watch(ours, Name::Link(number), interest).map_err(|e| format!("its socket: {e}"))?;
        let child = Child::watch(cell, &self.sources, Name::NodeStatus, Name::NodeEnd);
        let child = child.map_err(|e| format!("watching it: {e}"))?;
        let pid = child.pid;
        if let Some(cgroups) = self.fixed.host.node_cgroups() {
            let cgroup = cgroups.create(CGROUP, &Limits::default()).map_err(|e| format!("its cgroup: {e}"))?;
            let procs = cgroup.path().join("cgroup.procs");
            self.node.cgroup = Some(cgroup);
            std::fs::write(procs, pid.to_string()).map_err(|e| format!("its cgroup: {e}"))?;
        }
        child.go(sandbox::init::GO).map_err(|e| format!("letting it go: {e}"))?;
        self.node.child = Some(child);
        self.node.started = Some(now);
        self.link = Some(Link::new(socket, number, Meter::new(now)));
        Ok(pid)
    }

    fn node_cell(&self, socket: OwnedFd) -> Result<Launching, String> {
        let root = self.fixed.root.display();
        let program = self.fixed.release.join("ocx").display().to_string();
        let argv = [program, "node".to_owned(), "--root".to_owned(), root.to_string()];
        let env = [
            ("PATH".to_owned(), "/usr/bin:/bin".to_owned()),
            ("HOME".to_owned(), format!("{root}/state")),
            // Fossil's and SQLite's too: of the usual places for such files it may open none.
            ("TMPDIR".to_owned(), format!("{root}/state")),
            ("USER".to_owned(), "ocx".to_owned()),
            ("LANG".to_owned(), "C.UTF-8".to_owned()),
            ("TZ".to_owned(), "UTC".to_owned()),
        ];
        let log = || rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stderr(), 3).map_err(|e| format!("its log: {e}"));
        let streams = [socket, log()?, log()?];
        let grants = node_files::open(&self.fixed.root, &self.fixed.release)?;
        launch::become_node(&argv, &env, grants, streams, &self.fixed.host).map_err(|e| e.to_string())
    }

    /// What the node's cell says: only that it could not become the node matters.
    pub(crate) fn node_said(&mut self) {
        let Some(child) = &mut self.node.child else { return };
        match child.said() {
            Ok(said) => {
                for said in said {
                    if let Said::Failed(failed) = said {
                        log::say(format_args!("node: {}", crate::process::failure(&failed)));
                    }
                }
            }
            Err(why) => self.end_node(&format!("its cell: {why}")),
        }
    }

    /// The node has ended: it is started again.
    pub(crate) fn node_ended(&mut self) {
        self.node_said();
        let Some(child) = &mut self.node.child else { return };
        if !child.reap() {
            return;
        }
        let how = child.ended.clone().unwrap_or_default();
        self.node.kill();
        self.node.child = None;
        self.drop_link();
        if self.ending {
            log::say(format_args!("node: ended ({how})"));
            return;
        }
        let now = BootTime::now();
        let lived = self.node.started.map_or(Duration::ZERO, |started| now.since(started));
        let wait = self.node.backoff.after(lived);
        let stay = self.runs.len();
        log::say(format_args!(
            "node: ended ({how}); starting again in {} ms; {stay} runs stay in care",
            wait.as_millis()
        ));
        self.deadlines.set(now.after(wait), Due::StartNode);
    }

    /// Ends the protocol process: it broke the table, or does not keep up. Never a run.
    pub(crate) fn end_node(&mut self, why: &str) {
        log::say(format_args!("node: {why}; ending it, {} runs stay in care", self.runs.len()));
        self.drop_link();
        self.node.kill();
    }

    /// Lets the protocol process go, at the supervisor's own end.
    pub(crate) fn stop_node(&mut self) {
        self.drop_link();
        self.node.kill();
    }

    /// Closes the link. Steps it asked for are ended, since nobody waits for their answer; a launch goes on.
    fn drop_link(&mut self) {
        let Some(mut link) = self.link.take() else { return };
        self.deadlines.cancel(link.stalled.take());
        drop(link);
        let stepping: Vec<Handle> = self
            .runs
            .iter()
            .filter(|(_, it)| matches!(it.state, RunState::Preparing | RunState::Inspecting | RunState::Removing))
            .map(|(handle, _)| *handle)
            .collect();
        for handle in stepping {
            self.stop_step(handle, "the node that asked for it ended");
        }
    }
}

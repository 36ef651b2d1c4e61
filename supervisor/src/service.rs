//! The supervisor's whole state, and which part of it each ready descriptor and each deadline is for.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::rc::Rc;
use std::time::Duration;

use supervisor::effects::Told;
use supervisor::points::{self, Moment, reach};
use supervisor::wire::floor::Floor;
use supervisor::wire::message::{Event, Handle, Reply, ToNode};

use crate::care::Care;
use crate::deadlines::{BootTime, Deadlines};
use crate::in_care::{Asked, InCare};
use crate::launch::Host;
use crate::link::{Link, STALLED_MAX};
use crate::log;
use crate::names::{Due, Name, Part};
use crate::node_process::NodeProcess;
use crate::outputs::Outputs;
use crate::rings::Rings;
use crate::run::{self, Happening};
use crate::signals;
use crate::strays;
use crate::turn::{Sources, Watched};
use crate::workspaces::Roots;

/// Most runs in care at once. Bounds descriptors, memory and what a new link is told.
pub(crate) const RUNS_MAX: usize = 256;
/// How much longer than the grace an orderly end may take.
const END_EXTRA: Duration = Duration::from_secs(5);

/// What does not change while the supervisor runs.
#[derive(Debug)]
pub(crate) struct Fixed {
    /// `ROOT`.
    pub(crate) root: PathBuf,
    /// `$$root$$`, of runs with and without a sandbox.
    pub(crate) workspaces: Roots,
    /// Where this program and `ocx` are.
    pub(crate) release: PathBuf,
    /// How long a program that was asked to end may take (`settings/grace`, decisions C-81).
    pub(crate) grace: Duration,
    /// How much must be free for a new run (`settings/floor`, decisions C-84).
    pub(crate) floor: Floor,
    /// What the host can do.
    pub(crate) host: Host,
}

/// The whole of it. One thread owns it.
#[derive(Debug)]
pub(crate) struct Service {
    pub(crate) fixed: Fixed,
    pub(crate) sources: Rc<Sources<Name>>,
    pub(crate) signals: Watched<Name>,
    pub(crate) deadlines: Deadlines<Due>,
    pub(crate) care: Care,
    pub(crate) runs: BTreeMap<Handle, InCare>,
    pub(crate) last_handle: Handle,
    pub(crate) node: NodeProcess,
    pub(crate) link: Option<Link>,
    /// The memory of kept output.
    pub(crate) rings: Rings,
    /// When outputs are read, and where to.
    pub(crate) outputs: Outputs,
    /// Whether ended children that are not ours may wait to be reaped.
    pub(crate) strays: bool,
    /// Whether it was asked to end.
    pub(crate) ending: bool,
    /// Whether it ends although something still lives.
    pub(crate) given_up: bool,
}

impl Service {
    /// One turn: everything that is ready in the order of its names, then outputs, each in its turn and all of them to a
    /// bound, so that no number of runs that shout keeps a stop, a limit or an end waiting.
    pub(crate) fn turn(&mut self, ready: &BTreeSet<Name>) {
        for name in ready.iter().filter(|name| !name.is_output()) {
            self.ready(*name);
        }
        self.read_outputs(ready);
        self.end_turn();
    }

    /// Does what one ready descriptor asks for.
    fn ready(&mut self, name: Name) {
        match name {
            Name::Signals => {
                self.strays = true;
                if let Some(signal) = signals::take(&self.signals) {
                    self.end(signal);
                }
            }
            Name::Link(number) => self.link_ready(number),
            Name::Timer => {
                // Bounded: what is set while one is dealt with is due later than `now`.
                let now = BootTime::now();
                while let Some(due) = self.deadlines.pop(now) {
                    self.due(due);
                }
            }
            Name::NodeStatus => self.node_said(),
            Name::NodeEnd => self.node_ended(),
            Name::Run(handle, part) => match part {
                Part::Input => self.input_ready(handle),
                // Read at the end of the turn.
                Part::Stderr | Part::Stdout => {}
                Part::Memory => self.memory_changed(handle),
                Part::Status => self.cell_said(handle),
                Part::End => self.cell_ended(handle),
                Part::Populated => self.look_for_the_end(handle),
            },
        }
    }

    /// Does what is due. A deadline of something that is over finds nothing to do.
    fn due(&mut self, due: Due) {
        match due {
            Due::StartNode => self.start_node(),
            Due::LinkStalled(number) => {
                if self.link.as_ref().is_some_and(|link| link.number == number) {
                    self.end_node(&format!("it has taken nothing for {} s", STALLED_MAX.as_secs()));
                }
            }
            Due::Wall(handle) => self.wall_passed(handle),
            Due::TooLong(handle) => self.took_too_long(handle),
            Due::Grace(handle) => self.grace_passed(handle),
            Due::Drain(handle) => self.drain_over(handle),
            Due::Memory(handle) => self.memory_ran_out(handle),
            Due::LookAgain(handle) => self.look_for_the_end(handle),
            Due::Quiet => self.unquieten(),
            Due::Paused => self.unpause(),
            Due::GiveUp => self.given_up = true,
        }
    }

    /// Lets something happen to a run. What the table does not have is our own mistake: it is said, and nothing more
    /// is done to the run by this road.
    pub(crate) fn happen(&mut self, handle: Handle, what: Happening) -> bool {
        let Some(it) = self.runs.get_mut(&handle) else { return false };
        let Some(state) = run::next(it.state, what, it.record.launches > 0) else {
            log::run(&it.run, format_args!("internal fault: {what:?} while {:?}; passed over", it.state));
            debug_assert!(false, "{what:?} while {:?}", it.state);
            return false;
        };
        it.state = state;
        true
    }

    /// Answers a request, if the link it came on is still there.
    pub(crate) fn reply(&mut self, asked: Option<Asked>, reply: Reply, descriptors: Vec<OwnedFd>) {
        let Some(asked) = asked else { return };
        if self.link.as_ref().is_some_and(|link| link.number == asked.link) {
            let descriptors = descriptors.into_iter().map(Rc::new).collect();
            self.send(ToNode::Reply { id: asked.id, reply }, descriptors);
        }
    }

    /// Tells the node of a run's events; those it has no need of on this link are left out. Nothing is told while
    /// something of the run still lives.
    pub(crate) fn tell(&mut self, handle: Handle, only_last: bool) {
        let Some(link) = self.link.as_ref().filter(|link| link.meter.link() == crate::requests::LinkState::Open) else {
            return;
        };
        let Some(it) = self.runs.get(&handle).filter(|it| it.remains.is_none()) else { return };
        let from = if only_last { it.events.len().saturating_sub(1) } else { 0 };
        let number = link.number;
        let frames: Vec<(Event, Vec<Rc<OwnedFd>>)> = it
            .events
            .iter()
            .skip(from)
            .filter(|kept| kept.known_on != Some(number))
            .map(|kept| kept.frame(handle, &it.run))
            .collect();
        for (event, tails) in frames {
            self.send(ToNode::Event(event), tails);
        }
        if points::broken("kept-until-noted")
            && let Some(it) = self.runs.get_mut(&handle)
        {
            it.events.clear();
        }
    }

    /// Sends a frame, now or when there is room.
    pub(crate) fn send(&mut self, value: ToNode, descriptors: Vec<Rc<OwnedFd>>) {
        let Some(link) = &mut self.link else { return };
        let told = Told::of(&value);
        reach(told, Moment::Before);
        match link.queue(value, descriptors) {
            Ok(()) => self.flush(),
            Err(why) => self.end_node(&why),
        }
        reach(told, Moment::After);
    }

    /// Sends what there is room for, and minds a node that takes nothing.
    pub(crate) fn flush(&mut self) {
        let Some(link) = &mut self.link else { return };
        match link.flush() {
            Ok(sent) => {
                if sent.some || !sent.waiting {
                    self.deadlines.cancel(link.stalled.take());
                }
                if sent.waiting && link.stalled.is_none() {
                    let at = BootTime::now().after(STALLED_MAX);
                    link.stalled = Some(self.deadlines.set(at, Due::LinkStalled(link.number)));
                }
            }
            Err(error) => self.end_node(&format!("sending to it: {error}")),
        }
    }

    /// Begins an orderly end: every run with a process ends by its own road, then the supervisor. Their records stay,
    /// so the next supervisor tells that they are lost (case 31).
    fn end(&mut self, signal: &str) {
        if self.ending {
            return;
        }
        self.ending = true;
        let busy = self.runs.values().filter(|it| it.work.is_some()).count();
        log::say(format_args!("{signal}: ending {busy} runs, then this supervisor"));
        self.stop_node();
        for handle in self.handles() {
            self.end_for_good(handle);
        }
        self.deadlines.set(BootTime::now().after(self.fixed.grace + END_EXTRA), Due::GiveUp);
    }

    /// Ends a turn: reaps what nobody else will.
    fn end_turn(&mut self) {
        if self.strays {
            let cells = |pid| {
                let of_runs = self.runs.values().filter_map(|it| it.work.as_ref()?.child.as_ref());
                of_runs.chain(self.node.child()).any(|child| child.pid == pid)
            };
            self.strays = strays::reap(cells);
        }
    }

    /// Whether the loop goes on.
    pub(crate) fn goes_on(&self) -> bool {
        let alive = self.node.is_alive() || self.runs.values().any(|it| it.work.is_some());
        !self.ending || (alive && !self.given_up)
    }

    /// The runs in care, by handle.
    pub(crate) fn handles(&self) -> Vec<Handle> {
        self.runs.keys().copied().collect()
    }
}

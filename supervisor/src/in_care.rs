//! One run in care: its record, its workspace, what of it is under way, and the events the node has not noted.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::rc::Rc;
use std::time::Duration;

use sandbox::spec::Limits;
use supervisor::effects::Did;
use supervisor::points::{Moment, reach};
use supervisor::wire::accounts::Account;
use supervisor::wire::message::{End, EndedBy, Event, EventNumber, Handle, Phase};

use crate::care::Record;
use crate::cgroup::RunCgroup;
use crate::checked_steps::CheckedStep;
use crate::child::Child;
use crate::deadlines::Deadline;
use crate::names::Name;
use crate::run::RunState;
use crate::run_hash::RunHash;
use crate::streams::{Input, Ring};
use crate::tails::Blank;
use crate::turn::Watched;
use crate::workspaces::Place;

/// A request that is answered later: on which link it came, and its id there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Asked {
    /// The link's number.
    pub(crate) link: u64,
    /// The request's id.
    pub(crate) id: u64,
}

/// What a cell was started for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// A workspace step, by its index.
    Step(u32),
    /// Looking at what the workspace holds.
    Inspection,
    /// Removing the workspace.
    Removal,
    /// The run's program.
    Program,
}

/// Why a program never ran, or a step did not finish.
#[derive(Debug, Clone)]
pub(crate) struct Undone {
    /// As an exit code: 125, 126, 127.
    pub(crate) code: u8,
    /// Which stage failed.
    pub(crate) stage: String,
    /// Why, one line.
    pub(crate) why: String,
}

/// One output of a cell.
#[derive(Debug)]
pub(crate) struct Output {
    /// Its reading end; none once it is over.
    pub(crate) fd: Option<Watched<Name>>,
    /// Its kept end.
    pub(crate) kept: Ring,
}

/// A cell under way, with everything that is undone when nothing of it lives.
#[derive(Debug)]
pub(crate) struct Work {
    /// Whether it runs without a sandbox.
    pub(crate) unconfined: bool,
    /// What it is for.
    pub(crate) task: Task,
    /// The cell; none when it could not be started.
    pub(crate) child: Option<Child>,
    /// Where all its processes are.
    pub(crate) cgroup: Option<RunCgroup>,
    /// Tells when that may be empty.
    pub(crate) populated: Option<Watched<Name>>,
    /// Tells when its memory has run out.
    pub(crate) memory: Option<Watched<Name>>,
    /// What is still to be written to its standard input.
    pub(crate) stdin: Option<(Watched<Name>, Input)>,
    /// STDERR.
    pub(crate) stderr: Output,
    /// STDOUT.
    pub(crate) stdout: Output,
    /// Where its kept output is to be told in.
    pub(crate) blank: Option<Blank>,
    /// The program's limits.
    pub(crate) limits: Limits,
    /// What asked it to end first.
    pub(crate) asked: Option<EndedBy>,
    /// How the main process ended, and the processor time it took.
    pub(crate) end: Option<(End, Duration)>,
    /// Why it never ran.
    pub(crate) undone: Option<Undone>,
    /// How many processes the program left.
    pub(crate) leftovers: u32,
    /// How often its memory was looked at since its cgroup told of it.
    pub(crate) memory_looks: u32,
    /// Whether everything of it was sent KILL.
    pub(crate) killed: bool,
    /// Whether KILL was sent before the main process had ended.
    pub(crate) killed_early: bool,
    /// How often it was looked at since without being gone.
    pub(crate) looks: u32,
    /// When it is next due: too long, grace, drain, or another look.
    pub(crate) due: Option<Deadline>,
    /// When its `wall` passes.
    pub(crate) wall: Option<Deadline>,
}

/// What was found of a run of an earlier supervisor and has not ended yet.
#[derive(Debug)]
pub(crate) struct Remains {
    /// Its cgroup's path.
    pub(crate) cgroup: Option<String>,
    /// Its first process.
    pub(crate) init: Option<OwnedFd>,
    /// How often it was looked at.
    pub(crate) looks: u32,
    /// When it is looked at again.
    pub(crate) due: Option<Deadline>,
}

/// What an event tells.
#[derive(Debug)]
pub(crate) enum Told {
    /// The process ended.
    Exited { end: End, ended_by: EndedBy, leftovers: u32, stderr: Rc<OwnedFd>, stdout: Rc<OwnedFd> },
    /// The run was found, and ended.
    Orphaned { phase: Phase, what: String },
}

/// An event kept until it is noted (decisions C-102).
#[derive(Debug)]
pub(crate) struct Kept {
    /// Its number.
    pub(crate) number: EventNumber,
    /// A link that was told the same in an answer, and needs no event.
    pub(crate) known_on: Option<u64>,
    /// What it tells.
    pub(crate) told: Told,
}

/// A run in care.
#[derive(Debug)]
pub(crate) struct InCare {
    /// Its hash.
    pub(crate) run: RunHash,
    /// How far it is.
    pub(crate) state: RunState,
    /// What its care record says, or will with the next write.
    pub(crate) record: Record,
    /// Where its workspace is, once a step names it.
    pub(crate) place: Option<Place>,
    /// Its workspace, once it stands.
    pub(crate) directory: Option<OwnedFd>,
    /// A check that waits for room for its kept output.
    pub(crate) waits: Option<Asked>,
    /// The request under way.
    pub(crate) asked: Option<Asked>,
    /// A release that waits for the removal under way.
    pub(crate) release: Option<Asked>,
    /// The steps still to be done.
    pub(crate) steps: VecDeque<CheckedStep>,
    /// The cell under way.
    pub(crate) work: Option<Work>,
    /// What is left of it from an earlier supervisor.
    pub(crate) remains: Option<Remains>,
    /// Events not noted.
    pub(crate) events: Vec<Kept>,
    /// The number of its last event.
    pub(crate) last_event: EventNumber,
}

impl Output {
    /// An output of which nothing is read.
    pub(crate) const fn none() -> Self {
        Self { fd: None, kept: Ring::new(0) }
    }
}

impl Work {
    /// Work that has not begun.
    pub(crate) const fn new(task: Task, limits: Limits) -> Self {
        Self {
            task,
            unconfined: false,
            child: None,
            cgroup: None,
            populated: None,
            memory: None,
            stdin: None,
            stderr: Output::none(),
            stdout: Output::none(),
            blank: None,
            limits,
            asked: None,
            end: None,
            undone: None,
            leftovers: 0,
            memory_looks: 0,
            killed: false,
            killed_early: false,
            looks: 0,
            due: None,
            wall: None,
        }
    }

    /// Notes why it is undone; the first reason stands.
    pub(crate) fn undo(&mut self, code: u8, stage: &str, why: String) {
        if self.undone.is_none() {
            self.undone = Some(Undone { code, stage: stage.to_owned(), why });
        }
    }

    /// Sends KILL to everything of it. With the init the kernel ends all that is in the sandbox; the cgroup holds also
    /// what is in no sandbox, and is killed whole, so that nothing can refill what was killed first.
    pub(crate) fn kill(&mut self) {
        reach(Did::Kill, Moment::Before);
        self.killed = true;
        self.killed_early |= self.end.is_none();
        if let Some(Err(error)) = self.cgroup.as_ref().map(RunCgroup::kill) {
            crate::log::say(format_args!("killing a cgroup: {error}; its first process is killed"));
        }
        if let Some(child) = &mut self.child {
            child.kill();
        }
        self.stdin = None;
        reach(Did::Kill, Moment::After);
    }
}

impl Work {
    /// Sends KILL to what is still in a cgroup that one KILL does not empty.
    pub(crate) fn kill_again(&self) {
        if let Some(cgroup) = self.cgroup.as_ref().filter(|cgroup| !cgroup.kills_at_once())
            && let Err(error) = cgroup.kill()
        {
            crate::log::say(format_args!("killing a cgroup again: {error}"));
        }
    }
}

impl InCare {
    /// A run just taken, or found.
    pub(crate) const fn new(run: RunHash, state: RunState, record: Record) -> Self {
        Self {
            run,
            state,
            record,
            place: None,
            directory: None,
            waits: None,
            asked: None,
            release: None,
            steps: VecDeque::new(),
            work: None,
            remains: None,
            events: Vec::new(),
            last_event: 0,
        }
    }

    /// The phase the node is told.
    pub(crate) const fn phase(&self) -> Phase {
        // What a restart found is as far as the record says.
        if matches!(self.state, RunState::Orphaned) {
            self.record.phase
        } else {
            self.state.phase(self.record.launches > 0)
        }
    }

    /// Adds an event.
    pub(crate) fn keep(&mut self, told: Told, known_on: Option<u64>) {
        self.last_event += 1;
        self.events.push(Kept { number: self.last_event, known_on, told });
    }

    /// Its workspace, by the descriptor held since it stands or, of an earlier supervisor's run, opened anew; and whose it
    /// is.
    ///
    /// # Errors
    /// When it has none, or what is at its place is not it.
    pub(crate) fn workspace(&self) -> Result<(OwnedFd, Account), String> {
        let place = self.place.as_ref().ok_or("the run has no workspace")?;
        let directory = match &self.directory {
            Some(held) => held.try_clone().map_err(|error| format!("its workspace: {error}"))?,
            None => place.open()?,
        };
        Ok((directory, place.root().owner))
    }

    /// The frame that opens this run's part of an adoption.
    pub(crate) fn in_care(&self, handle: Handle) -> Event {
        let workspace = self.place.as_ref().map(Place::text);
        let checkin = self.record.checkin.map(|it| it.to_string());
        Event::InCare { handle, run: self.run.to_string(), phase: self.phase(), workspace, checkin }
    }
}

impl Kept {
    /// The frame that tells it, and its descriptors.
    pub(crate) fn frame(&self, handle: Handle, run: &RunHash) -> (Event, Vec<Rc<OwnedFd>>) {
        let event = self.number;
        match &self.told {
            Told::Exited { end, ended_by, leftovers, stderr, stdout } => {
                let (end, ended_by, leftovers) = (*end, ended_by.clone(), *leftovers);
                let tails = vec![Rc::clone(stderr), Rc::clone(stdout)];
                (Event::Exited { handle, event, end, ended_by, leftovers }, tails)
            }
            Told::Orphaned { phase, what } => {
                let (run, phase, what) = (run.to_string(), *phase, what.clone());
                (Event::Orphaned { handle, event, run, phase, what }, Vec::new())
            }
        }
    }
}

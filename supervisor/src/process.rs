//! A run's process: its launch in the order that no crash can turn into a second one (decisions C-104), its streams, and
//! its end, which is told once nothing of it lives.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::time::Duration;

use mio::Interest;
use rustix::pipe::{PipeFlags, pipe_with};
use sandbox::status::{Ended, Failed, Said};
use supervisor::effects::{Did, Wrote};
use supervisor::points::{self, carry};
use supervisor::wire::message::{End, EndedBy, Handle, Phase, Reply};
use supervisor::wire::plan::{KEEP_BYTES_MAX, LaunchPlan};

use crate::care::{self, Init};
use crate::cgroup::RunCgroup;
use crate::child::Child;
use crate::deadlines::BootTime;
use crate::ending::{self, Facts};
use crate::in_care::{Asked, Output, Task, Told, Work};
use crate::launch::{self, StageError};
use crate::names::{Due, Name, Part};
use crate::policy::CheckedPlan;
use crate::run::{Happening, RunState};
use crate::service::Service;
use crate::streams::{self, Input, PIPE_BYTES, Progress, Ring, TURN_BYTES_MAX};
use crate::tails::Blank;
use crate::{log, status};

/// How long a cell may build: a host path on a dead server must not hold a run for ever.
const BUILD_MAX: Duration = Duration::from_secs(30);
/// How long what a program left may still write (decisions C-76).
const DRAIN_MAX: Duration = Duration::from_millis(500);
/// Between two looks whether what was killed is gone.
const LOOK: Duration = Duration::from_millis(100);
/// The first of them: under cgroup v1 nothing tells that a group is empty.
const LOOK_FIRST: Duration = Duration::from_millis(2);
/// How often, and how soon again, a cgroup that told of its memory is looked at.
const MEMORY_LOOKS_MAX: u32 = 20;
const MEMORY_LOOK: Duration = Duration::from_millis(20);
/// So many looks without an end are worth a line, and again each time their number doubles.
const LOOKS_TOLD: u32 = 50;
/// Bounded reads at the end of a stream: more than the largest pipe an account without capabilities can make.
const LAST_READS_MAX: usize = 8;

impl Service {
    /// Launches a run. The launch mark and the cgroup are durable before there is a process, its pid and start time
    /// before it is let go: whatever stops this function, the next supervisor knows what to end, and that it must not
    /// be launched again.
    pub(crate) fn launch(
        &mut self,
        asked: Asked,
        handle: Handle,
        plan: &LaunchPlan,
        checked: CheckedPlan,
        line: Vec<u8>,
        blank: Blank,
    ) {
        let mut work = Work::new(Task::Program, plan.limits);
        work.blank = Some(blank);
        work.unconfined = plan.sandbox.is_none();
        let opened = self.open_cgroup(handle, &mut work);
        let Some(it) = self.runs.get_mut(&handle) else { return };
        it.asked = Some(asked);
        it.record.phase = Phase::Launched;
        it.record.launches = u32::from(!points::broken("launch-mark"));
        it.record.init = None;
        let marked = self.care.write(&it.run, &it.record, Wrote::LaunchMark);
        self.happen(handle, Happening::LaunchMarked);
        let started = match (opened, marked) {
            (Err(why), _) => Err(at_stage("cgroup", why)),
            (Ok(()), Err(error)) => Err(at_stage("care record", error)),
            (Ok(()), Ok(())) => self.start(handle, &mut work, plan, checked, line),
        };
        work.due = Some(self.deadlines.set(BootTime::now().after(BUILD_MAX), Due::TooLong(handle)));
        let Some(it) = self.runs.get_mut(&handle) else { return };
        it.work = Some(work);
        if let Err(StageError { code, stage, why }) = started {
            self.undo(handle, code, &stage, why);
        }
    }

    fn start(
        &mut self,
        handle: Handle,
        work: &mut Work,
        plan: &LaunchPlan,
        checked: CheckedPlan,
        line: Vec<u8>,
    ) -> Result<(), StageError> {
        let pipe = |e: io::Error| at_stage("streams", format_args!("a pipe: {e}"));
        let [stdin, stdout, stderr] = [Part::Input, Part::Stdout, Part::Stderr].map(|part| Name::Run(handle, part));
        let (to_read, input) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| pipe(e.into()))?;
        let (output, to_write) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| pipe(e.into()))?;
        let (errors, to_complain) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| pipe(e.into()))?;
        for ours in [&input, &output, &errors] {
            rustix::io::ioctl_fionbio(ours, true).map_err(|e| pipe(e.into()))?;
        }
        for output in [&output, &errors] {
            // A smaller pipe is as right, only slower.
            let _kept = rustix::pipe::fcntl_setpipe_size(output, PIPE_BYTES);
        }
        let input = self.sources.watch(input, stdin, Interest::WRITABLE).map_err(pipe)?;
        work.stdin = Some((input, Input::new(line)));
        let keep = |bytes: u64| Ring::new(usize::try_from(bytes.min(KEEP_BYTES_MAX)).unwrap_or(0));
        let output = Some(self.sources.watch(output, stdout, Interest::READABLE).map_err(pipe)?);
        work.stdout = Output { fd: output, kept: keep(plan.process.keep_stdout_bytes) };
        let errors = Some(self.sources.watch(errors, stderr, Interest::READABLE).map_err(pipe)?);
        work.stderr = Output { fd: errors, kept: keep(plan.process.keep_stderr_bytes) };

        let streams = [to_read, to_write, to_complain];
        let cell = carry(Did::StartCell, || launch::start(checked, streams, work.cgroup.as_ref(), &self.fixed.host))?;
        let (status, end) = (Name::Run(handle, Part::Status), Name::Run(handle, Part::End));
        let promise = care::hex(&sandbox::flat::write(&cell.promise));
        let child = Child::watch(cell, &self.sources, status, end).map_err(|e| at_stage("watching it", e))?;
        let child = work.child.insert(child);
        let it = self.runs.get_mut(&handle).ok_or_else(|| at_stage("run", "it is gone"))?;
        let started = child.started().map_err(|e| at_stage("start time", e))?;
        it.record.init = Some(Init { pid: child.pid, started });
        it.record.promise = promise;
        self.care.write(&it.run, &it.record, Wrote::Init).map_err(|e| at_stage("care record", e))?;
        carry(Did::Go, || child.go(sandbox::init::GO_AND_STAY)).map_err(|e| at_stage("letting it go", e))
    }

    /// Makes the cgroup all processes of the work are born in, and names it in the record to be written next.
    pub(crate) fn open_cgroup(&mut self, handle: Handle, work: &mut Work) -> Result<(), String> {
        let it = self.runs.get_mut(&handle).ok_or("the run is gone")?;
        let Some(cgroups) = &self.fixed.host.cgroups else { return Ok(()) };
        let cgroup = carry(Did::MakeCgroup, || cgroups.create(&it.run.to_string(), &work.limits));
        let cgroup = cgroup.map_err(|e| format!("its cgroup: {e}"))?;
        let cgroup = work.cgroup.insert(cgroup);
        it.record.cgroup = Some(cgroup.path().display().to_string());
        let watch = |fd: io::Result<OwnedFd>, part, interest| {
            fd.and_then(|fd| self.sources.watch(fd, Name::Run(handle, part), interest))
                .map_err(|e| format!("its cgroup's events: {e}"))
        };
        let events = cgroup.events_fd().map_err(|e| format!("its cgroup's events: {e}"))?;
        work.populated = events.map(|fd| watch(Ok(fd), Part::Populated, Interest::PRIORITY)).transpose()?;
        if let Some(fd) = cgroup.oom_fd() {
            let interest = Interest::READABLE | Interest::PRIORITY;
            work.memory = Some(watch(fd.try_clone_to_owned(), Part::Memory, interest)?);
        }
        Ok(())
    }

    /// What the cell says, in order.
    pub(crate) fn cell_said(&mut self, handle: Handle) {
        let Some(work) = self.work(handle) else { return };
        let Some(child) = &mut work.child else { return };
        match child.said() {
            Ok(said) => {
                for said in said {
                    match said {
                        Said::Running => self.executed(handle),
                        Said::Failed(failed) => self.failed(handle, &failed),
                        Said::Ended { how, cpu_us } => self.program_ended(handle, how, Duration::from_micros(cpu_us)),
                    }
                }
            }
            Err(why) => self.fault(handle, &why),
        }
    }

    /// The cell itself has ended; what it said before is heard first.
    pub(crate) fn cell_ended(&mut self, handle: Handle) {
        self.cell_said(handle);
        let Some(work) = self.work(handle) else { return };
        let Some(child) = &mut work.child else { return };
        if !child.reap() {
            return;
        }
        let how = child.ended.clone().unwrap_or_default();
        if work.end.is_none() && work.undone.is_none() && !work.killed {
            self.fault(handle, &format!("its first process ended ({how}) without a word"));
        }
        self.look_for_the_end(handle);
    }

    /// A cell that is not one: everything of it ends. A program that ran was killed with it.
    fn fault(&mut self, handle: Handle, why: &str) {
        let Some(it) = self.runs.get_mut(&handle) else { return };
        log::run(&it.run, format_args!("{why}; ending all of it"));
        let state = it.state;
        let Some(work) = &mut it.work else { return };
        if work.task != Task::Program {
            self.stop_step(handle, why);
        } else if matches!(state, RunState::Running | RunState::Stopping) {
            work.end = Some((End::Signal(9), Duration::ZERO));
            self.kill_all(handle, Happening::KillAll);
        } else if state == RunState::Launching {
            self.undo(handle, 125, "init", why.to_owned());
        }
    }

    fn failed(&mut self, handle: Handle, failed: &Failed) {
        let why = failure(failed);
        let Some(work) = self.work(handle) else { return };
        if work.task == Task::Program {
            self.undo(handle, failed.code, failed.stage.word(), why);
        } else {
            self.stop_step(handle, &why);
        }
    }

    /// Undoes a launch: the program never ran.
    fn undo(&mut self, handle: Handle, code: u8, stage: &str, why: String) {
        let Some(work) = self.work(handle) else { return };
        work.undo(code, stage, why);
        self.kill_all(handle, Happening::LaunchUndone);
    }

    fn executed(&mut self, handle: Handle) {
        let Some(work) = self.work(handle) else { return };
        if work.task != Task::Program {
            return;
        }
        if !self.happen(handle, Happening::Executed) {
            return;
        }
        let Some(it) = self.runs.get_mut(&handle) else { return };
        let (Some(work), asked) = (&mut it.work, it.asked.take()) else { return };
        let Some(child) = &mut work.child else { return };
        child.find_program();
        let pid = child.pid;
        self.deadlines.cancel(work.due.take());
        if let Some(wall) = work.limits.wall_s {
            let at = BootTime::now().after(Duration::from_secs(wall));
            work.wall = Some(self.deadlines.set(at, Due::Wall(handle)));
        }
        let asked_to_end = work.asked.is_some();
        log::run(&it.run, format_args!("launched pid {pid}"));
        self.reply(asked, Reply::Launched { pid }, Vec::new());
        self.input_ready(handle);
        if asked_to_end {
            self.begin_to_end(handle);
        }
    }

    fn program_ended(&mut self, handle: Handle, how: Ended, cpu: Duration) {
        let Some(it) = self.runs.get_mut(&handle) else { return };
        let Some(work) = &mut it.work else { return };
        let end = match how {
            Ended::Code(code) => End::Code(code),
            Ended::Signal(signal) => End::Signal(signal),
        };
        if work.killed || work.end.is_some() {
            work.end = work.end.or(Some((end, cpu)));
            return;
        }
        work.end = Some((end, cpu));
        work.stdin = None;
        if work.task != Task::Program {
            work.kill();
            return self.look_for_the_end(handle);
        }
        log::run(&it.run, format_args!("process ended: {}", ending::words(end)));
        self.deadlines.cancel(work.due.take());
        self.deadlines.cancel(work.wall.take());
        work.due = Some(self.deadlines.set(BootTime::now().after(DRAIN_MAX), Due::Drain(handle)));
        self.happen(handle, Happening::ProgramEnded);
        self.drained(handle);
    }

    /// Writes what there is room for; the stream ends with the last of it.
    pub(crate) fn input_ready(&mut self, handle: Handle) {
        let Some(work) = self.work(handle) else { return };
        if let Some((fd, input)) = &mut work.stdin
            && input.write(fd.as_fd()) != Progress::Waiting
        {
            work.stdin = None;
        }
    }

    /// Ends the drain once both streams are at their end.
    pub(crate) fn drained(&mut self, handle: Handle) {
        let Some(it) = self.runs.get(&handle) else { return };
        let over = it.work.as_ref().is_some_and(|work| work.stdout.fd.is_none() && work.stderr.fd.is_none());
        if over && it.state == RunState::Draining {
            self.drain_over(handle);
        }
    }

    /// Ends what a program left.
    pub(crate) fn drain_over(&mut self, handle: Handle) {
        let Some(it) = self.runs.get_mut(&handle) else { return };
        if it.state != RunState::Draining {
            return;
        }
        let Some(work) = &mut it.work else { return };
        work.leftovers = work.cgroup.as_ref().map_or(0, |cgroup| leftovers(cgroup, work.child.as_ref()));
        if work.leftovers > 0 {
            log::run(&it.run, format_args!("ending {} processes the program left", work.leftovers));
        }
        self.kill_all(handle, Happening::DrainOver);
    }

    /// Asks a program to end; the first reason stands.
    pub(crate) fn ask_to_end(&mut self, handle: Handle, why: EndedBy) {
        let Some(it) = self.runs.get_mut(&handle) else { return };
        let (state, Some(work)) = (it.state, &mut it.work) else { return };
        // Of a launch under way it is met when the program runs, or never.
        if matches!(state, RunState::Running | RunState::Launching) {
            work.asked.get_or_insert(why);
        }
        if state == RunState::Running {
            self.begin_to_end(handle);
        }
    }

    fn begin_to_end(&mut self, handle: Handle) {
        if !self.happen(handle, Happening::EndAsked) {
            return;
        }
        self.quieten();
        let Some(it) = self.runs.get_mut(&handle) else { return };
        let Some(work) = &mut it.work else { return };
        let grace = self.fixed.grace;
        let why = match &work.asked {
            Some(EndedBy::Limit(key)) if key == "wall" => {
                format!("wall of {} s passed", work.limits.wall_s.unwrap_or_default())
            }
            Some(EndedBy::Limit(key)) => format!("limit {key} passed"),
            Some(EndedBy::Stop | EndedBy::Itself) | None => "stopped".to_owned(),
        };
        let session = work.cgroup.as_ref().filter(|_| work.unconfined).map(RunCgroup::processes).unwrap_or_default();
        if carry(Did::Term, || work.child.as_ref().is_some_and(|child| child.ask_to_end(&session))) {
            log::run(&it.run, format_args!("{why}: TERM, KILL in {} s", grace.as_secs()));
            self.deadlines.cancel(work.due.take());
            work.due = Some(self.deadlines.set(BootTime::now().after(grace), Due::Grace(handle)));
        } else {
            log::run(&it.run, format_args!("{why}: no program to ask, KILL"));
            self.kill_all(handle, Happening::KillAll);
        }
    }

    /// A run's `wall` has passed.
    pub(crate) fn wall_passed(&mut self, handle: Handle) {
        self.ask_to_end(handle, EndedBy::Limit("wall".to_owned()));
    }

    /// A run's cgroup told of its memory. With v1 it does so before anything is killed, so it is looked again.
    pub(crate) fn memory_changed(&mut self, handle: Handle) {
        if let Some(work) = self.work(handle) {
            work.memory_looks = 0;
        }
        self.memory_ran_out(handle);
    }

    /// A run's cgroup ran out of memory: a part of it was killed, and the rest goes with it (decisions C-33).
    pub(crate) fn memory_ran_out(&mut self, handle: Handle) {
        let Some(it) = self.runs.get_mut(&handle) else { return };
        let Some(work) = &mut it.work else { return };
        let kills = work.cgroup.as_ref().map_or(0, RunCgroup::oom_kills);
        if work.end.is_some() {
            return;
        }
        if kills == 0 {
            work.memory_looks += 1;
            if work.memory_looks < MEMORY_LOOKS_MAX {
                self.deadlines.set(BootTime::now().after(MEMORY_LOOK), Due::Memory(handle));
            }
            return;
        }
        work.asked.get_or_insert(EndedBy::Limit("memory".to_owned()));
        if matches!(it.state, RunState::Running | RunState::Stopping) {
            log::run(&it.run, format_args!("limit memory passed: KILL"));
            self.kill_all(handle, Happening::KillAll);
        }
    }

    /// A program that was asked to end has not.
    pub(crate) fn grace_passed(&mut self, handle: Handle) {
        if self.runs.get(&handle).is_some_and(|it| it.state == RunState::Stopping) {
            self.kill_all(handle, Happening::KillAll);
        }
    }

    /// A cell that builds, or a step, takes too long.
    pub(crate) fn took_too_long(&mut self, handle: Handle) {
        let Some(it) = self.runs.get(&handle) else { return };
        if it.state == RunState::Launching {
            self.undo(handle, 125, "setup", format!("not ready after {} s", BUILD_MAX.as_secs()));
        } else if matches!(it.state, RunState::Preparing | RunState::Inspecting | RunState::Removing) {
            self.stop_step(handle, "the step took more than ten minutes");
        }
    }

    /// Ends a run at the supervisor's own end.
    pub(crate) fn end_for_good(&mut self, handle: Handle) {
        match self.runs.get(&handle).map(|it| it.state) {
            Some(RunState::Preparing | RunState::Inspecting | RunState::Removing) => {
                self.stop_step(handle, "the supervisor ends")
            }
            Some(RunState::Launching) => self.undo(handle, 125, "setup", "the supervisor ends".to_owned()),
            Some(_) => self.ask_to_end(handle, EndedBy::Stop),
            None => {}
        }
    }

    fn kill_all(&mut self, handle: Handle, what: Happening) {
        if !self.happen(handle, what) {
            return;
        }
        let Some(work) = self.work(handle) else { return };
        work.kill();
        let (due, wall) = (work.due.take(), work.wall.take());
        self.deadlines.cancel(due);
        self.deadlines.cancel(wall);
        self.look_for_the_end(handle);
    }

    /// Whether anything of a killed run lives; if not, it is over. Nobody waits here: it is looked again, and while it
    /// lives no end is told (decisions C-82).
    pub(crate) fn look_for_the_end(&mut self, handle: Handle) {
        if self.runs.get(&handle).is_some_and(|it| it.remains.is_some()) {
            return self.look_at_remains(handle);
        }
        let Some(it) = self.runs.get_mut(&handle) else { return };
        let Some(work) = it.work.as_mut().filter(|work| work.killed) else { return };
        let reaped = work.child.as_mut().is_none_or(Child::reap);
        let empty = work.cgroup.as_ref().is_none_or(|cgroup| !cgroup.populated());
        if !empty && work.looks > 0 {
            work.kill_again();
        }
        self.deadlines.cancel(work.due.take());
        if reaped && empty {
            return self.gone(handle);
        }
        work.looks += 1;
        if work.looks >= LOOKS_TOLD && work.looks.is_power_of_two() {
            let pids = work.cgroup.as_ref().map(RunCgroup::processes).unwrap_or_default();
            log::run(&it.run, format_args!("cannot be ended yet: {}; looking again", describe(&pids)));
        }
        let wait = LOOK_FIRST.saturating_mul(work.looks).min(LOOK);
        work.due = Some(self.deadlines.set(BootTime::now().after(wait), Due::LookAgain(handle)));
    }

    /// Nothing of it lives: the pipes hold what was written and get no more.
    fn gone(&mut self, handle: Handle) {
        let Some(it) = self.runs.get_mut(&handle) else { return };
        let Some(mut work) = it.work.take() else { return };
        for output in [&mut work.stderr, &mut work.stdout] {
            let mut reads = 0;
            while let Some(fd) = output.fd.as_ref().filter(|_| reads < LAST_READS_MAX) {
                reads += 1;
                let mut left = TURN_BYTES_MAX;
                if streams::read(fd.as_fd(), &mut output.kept, &mut self.outputs.landing, &mut left) != Progress::More {
                    output.fd = None;
                }
            }
        }
        for due in [work.due.take(), work.wall.take()] {
            self.deadlines.cancel(due);
        }
        let out_of_memory = work.cgroup.as_ref().is_some_and(|cgroup| cgroup.oom_kills() > 0);
        work.populated = None;
        work.memory = None;
        if let Some(Err(error)) = work.cgroup.take().map(|cgroup| carry(Did::RemoveCgroup, || cgroup.remove())) {
            log::run(&it.run, format_args!("its cgroup stays: {error}"));
        }
        match work.task {
            Task::Step(_) | Task::Inspection | Task::Removal => self.step_gone(handle, work),
            Task::Program => self.program_gone(handle, work, out_of_memory),
        }
        if !self.runs.values().any(|it| it.state.is_ending()) {
            self.unquieten();
        }
    }

    fn program_gone(&mut self, handle: Handle, mut work: Work, out_of_memory: bool) {
        let Some(it) = self.runs.get_mut(&handle) else { return };
        let asked = it.asked.take();
        let (end, cpu) = work.end.unwrap_or((End::Signal(9), Duration::ZERO));
        let (told, known_on, reply) = match &work.undone {
            Some(undone) => {
                log::run(&it.run, format_args!("{}: {}", undone.stage, undone.why));
                let line = format!("ocx: {}\n", undone.why);
                let told = work.blank.take().map(|blank| {
                    let (tails, end) = (blank.seal(line.as_bytes(), &[]), End::Code(undone.code));
                    (tails, end, EndedBy::Itself, 0)
                });
                let why = line.trim_end().to_owned();
                let reply = Reply::Failed { code: undone.code, stage: undone.stage.clone(), why };
                (told, asked.map(|asked| asked.link), Some(reply))
            }
            None => {
                let facts = Facts {
                    asked: work.asked.as_ref(),
                    end,
                    cpu,
                    limits: &work.limits,
                    killed: work.killed_early,
                    out_of_memory,
                };
                let ended_by = ending::ended_by(facts);
                log::run(&it.run, format_args!("exited: {}, by {ended_by:?}, nothing of it left", ending::words(end)));
                let (stderr, stdout) = (work.stderr.kept.take(), work.stdout.kept.take());
                let told = work.blank.take().map(|blank| (blank.seal(&stderr, &stdout), end, ended_by, work.leftovers));
                (told, None, None)
            }
        };
        // Held since before the launch, so it is there.
        if let Some((tails, end, ended_by, leftovers)) = told {
            if let Some(lost) = tails.lost {
                log::run(&it.run, format_args!("{lost}"));
            }
            let (stderr, stdout) = (tails.stderr, tails.stdout);
            let told = Told::Exited { end, ended_by, leftovers, stderr, stdout };
            carry(Did::KeepEnd, || it.keep(told, known_on));
        }
        it.record.phase = Phase::Exited;
        it.record.promise = None;
        self.happen(handle, Happening::Gone);
        self.note_phase(handle);
        if let Some(reply) = reply {
            self.reply(asked, reply, Vec::new());
        }
        self.tell(handle, true);
    }

    /// Writes how far a run is, for whoever finds the record; nothing waits for it.
    pub(crate) fn note_phase(&mut self, handle: Handle) {
        let Some(it) = self.runs.get(&handle) else { return };
        if let Err(error) = self.care.write(&it.run, &it.record, Wrote::Phase) {
            log::run(&it.run, format_args!("its care record stays behind: {error}"));
        }
    }

    fn work(&mut self, handle: Handle) -> Option<&mut Work> {
        self.runs.get_mut(&handle)?.work.as_mut()
    }
}

/// A failure of the supervisor's own, at a stage of the launch.
fn at_stage(stage: &str, why: impl std::fmt::Display) -> StageError {
    StageError { code: 125, stage: stage.to_owned(), why: why.to_string() }
}

/// A cell's failure as the kept line has it (decisions C-45).
pub(crate) fn failure(failed: &Failed) -> String {
    let why = status::why(failed);
    let why = if failed.subject.is_empty() { format!("{}: {why}", failed.stage.word()) } else { why };
    log::one_line(&why, crate::answers::WHY_BYTES_MAX)
}

/// How many processes there are besides the init.
fn leftovers(cgroup: &RunCgroup, child: Option<&Child>) -> u32 {
    let init = child.map(|child| child.pid);
    let others = cgroup.processes().into_iter().filter(|pid| Some(*pid) != init).count();
    u32::try_from(others).unwrap_or(u32::MAX)
}

/// Processes that do not end, for a person: pid, state, and where each waits.
fn describe(pids: &[u32]) -> String {
    let one = |pid: &u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let state =
            stat.rsplit_once(')').and_then(|(_, rest)| rest.split_whitespace().next()).unwrap_or("?").to_owned();
        let place = std::fs::read_to_string(format!("/proc/{pid}/wchan")).unwrap_or_default();
        format!("pid {pid}, state {state}, in {}", if place.is_empty() { "?" } else { &place })
    };
    if pids.is_empty() {
        "its first process".to_owned()
    } else {
        pids.iter().take(4).map(one).collect::<Vec<_>>().join("; ")
    }
}

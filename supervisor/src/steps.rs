//! Workspace steps and removals: `ocx step KIND …`, one at a time, in a sandbox of their own as the runs' account
//! (decisions C-97), or of the open account where the run has no sandbox. The supervisor itself never touches what is in a workspace.

use std::collections::VecDeque;
use std::os::fd::OwnedFd;
use std::time::Duration;

use mio::Interest;
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use sandbox::spec::{Confinement, Limits};
use supervisor::effects::{Did, Wrote};
use supervisor::points::carry;
use supervisor::wire::frame;
use supervisor::wire::message::{End, Handle, Phase, Reply};
use supervisor::wire::plan::{CHANGES_TOLD, Holds, UNSENT_MAX};

use crate::answers::WHY_BYTES_MAX;
use crate::checked_steps::{CheckedStep, Sees};
use crate::child::Child;
use crate::deadlines::BootTime;
use crate::in_care::{Asked, Output, Task, Work};
use crate::names::{Due, Name, Part};
use crate::run::Happening;
use crate::run_hash::RunHash;
use crate::service::Service;
use crate::streams::Ring;
use crate::workspaces::Place;
use crate::{ending, launch, log};

/// How long one step may take.
const STEP_MAX: Duration = Duration::from_secs(600);
/// How much of the end of a step's STDERR is kept for its last line.
const STEP_STDERR_BYTES: usize = 4096;
/// How much of a step's answer is kept: a hash and its line's end, and one byte that tells a longer one.
const STEP_STDOUT_BYTES: usize = 66;
/// The same of a look at a workspace: some hundred hashes, a few names. It fits in a frame.
const HOLDS_BYTES_MAX: usize = 48 << 10;
/// What a step that uses the network reads to find and know a server, where a host has it.
const NETWORK_FILES: [&str; 5] =
    ["/etc/resolv.conf", "/etc/hosts", "/etc/nsswitch.conf", "/etc/ssl/certs", "/etc/ca-certificates"];
/// What a step may use.
pub(crate) const STEP_LIMITS: Limits =
    Limits { wall_s: None, cpu_s: None, processes: Some(64), file_size_bytes: None, memory_bytes: None };

impl Service {
    /// Begins a run's steps, in order.
    pub(crate) fn begin_steps(
        &mut self,
        asked: Asked,
        handle: Handle,
        checkin: Option<RunHash>,
        steps: VecDeque<CheckedStep>,
    ) {
        let Some(it) = self.runs.get_mut(&handle) else { return };
        it.asked = Some(asked);
        it.directory = None;
        it.place = steps.back().map(|step| step.place.clone()).or_else(|| it.place.take());
        it.record.checkin = checkin;
        it.steps = steps;
        if it.steps.is_empty() {
            self.steps_done(handle);
        } else if self.happen(handle, Happening::StepsBegan) {
            self.next_step(handle, 0);
        }
    }

    fn next_step(&mut self, handle: Handle, index: u32) {
        let Some(it) = self.runs.get_mut(&handle) else { return };
        match it.steps.pop_front() {
            Some(step) => self.start_step(handle, Work::new(Task::Step(index), STEP_LIMITS), step),
            None => self.steps_done(handle),
        }
    }

    /// Every step is done: the workspace is held by its descriptor from here on.
    fn steps_done(&mut self, handle: Handle) {
        let Some(it) = self.runs.get_mut(&handle) else { return };
        let opened = it.place.as_ref().map(Place::open).transpose();
        it.record.phase = Phase::Prepared;
        it.record.init = None;
        let done = opened.and_then(|directory| {
            it.directory = directory;
            let written = self.care.write(&it.run, &it.record, Wrote::Prepared);
            written.map_err(|error| format!("its care record cannot be written: {error}"))
        });
        let asked = it.asked.take();
        match done {
            Ok(()) => {
                self.happen(handle, Happening::StepsDone);
                let checkin = self.runs.get(&handle).and_then(|it| it.record.checkin).map(|it| it.to_string());
                self.reply(asked, Reply::Prepared { checkin }, Vec::new());
            }
            Err(why) => {
                self.happen(handle, Happening::StepFailed);
                self.reply(asked, Reply::StepFailed { index: 0, why }, Vec::new());
            }
        }
    }

    /// Starts one step in a cell. What goes wrong is the step's failure.
    pub(crate) fn start_step(&mut self, handle: Handle, mut work: Work, step: CheckedStep) {
        if let Err(why) = carry(Did::StartStep, || self.try_step(handle, &mut work, step)) {
            work.undo(125, "step", why);
            work.kill();
        }
        let began = work.undone.is_none();
        let Some(it) = self.runs.get_mut(&handle) else { return };
        if began {
            work.due = Some(self.deadlines.set(BootTime::now().after(STEP_MAX), Due::TooLong(handle)));
        }
        it.work = Some(work);
        if !began {
            self.look_for_the_end(handle);
        }
    }

    fn try_step(&mut self, handle: Handle, work: &mut Work, step: CheckedStep) -> Result<(), String> {
        self.open_cgroup(handle, work)?;
        let it = self.runs.get_mut(&handle).ok_or("the run is gone")?;
        if matches!(work.task, Task::Step(_)) {
            it.record.phase = Phase::Preparing;
        }
        it.record.checkin = step.checkin.or(it.record.checkin);
        it.record.workspace = it.place.as_ref().map(Place::text);
        self.care.write(&it.run, &it.record, Wrote::Step).map_err(|e| format!("its care record: {e}"))?;
        let confinement = self.step_confinement(&step);
        let CheckedStep { kind, place, workspace_at, network, input, words, .. } = step;
        let program = self.fixed.release.join("ocx").display().to_string();
        let mut argv = vec![program, "step".to_owned(), kind.to_owned()];
        argv.extend(words);
        let env = [("PATH", "/usr/bin:/bin"), ("HOME", "/tmp"), ("USER", "ocx-run"), ("LANG", "C.UTF-8")];
        let mut env: Vec<_> = env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
        if network && let Ok(proxy) = std::env::var("http_proxy") {
            env.push(("http_proxy".to_owned(), proxy));
        }
        let pipe = || {
            let (ours, theirs) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| format!("a pipe: {e}"))?;
            rustix::io::ioctl_fionbio(&ours, true).map_err(|e| format!("a pipe: {e}"))?;
            Ok::<_, String>((ours, theirs))
        };
        let ((stderr, to_stderr), (stdout, to_stdout)) = (pipe()?, pipe()?);
        let streams = [input.map_or_else(null, Ok)?, to_stdout, to_stderr];
        let sees = launch::StepSees {
            confinement: &confinement,
            account: place.root().owner,
            workspace: workspace_at.is_some().then(|| place.text()),
        };
        let cell =
            launch::start_step(&argv, &env, &sees, &STEP_LIMITS, streams, work.cgroup.as_ref(), &self.fixed.host)
                .map_err(|e| e.to_string())?;
        let (status, end) = (Name::Run(handle, Part::Status), Name::Run(handle, Part::End));
        let child = Child::watch(cell, &self.sources, status, end).map_err(|e| format!("watching it: {e}"))?;
        let watch = |fd, part, bytes| {
            let name = Name::Run(handle, part);
            let fd = self.sources.watch(fd, name, Interest::READABLE).map_err(|e| format!("watching it: {e}"))?;
            Ok::<_, String>(Output { fd: Some(fd), kept: Ring::new(bytes) })
        };
        work.stderr = watch(stderr, Part::Stderr, STEP_STDERR_BYTES)?;
        let answer = if work.task == Task::Inspection { HOLDS_BYTES_MAX } else { STEP_STDOUT_BYTES };
        work.stdout = watch(stdout, Part::Stdout, answer)?;
        let child = work.child.insert(child);
        child.go(sandbox::init::GO).map_err(|e| format!("letting it go: {e}"))
    }

    /// What a step sees: programs, and its workspace or the root that lies in.
    fn step_confinement(&self, step: &CheckedStep) -> Confinement {
        let owner = step.place.root().owner;
        let mut read_only: Vec<String> = ["/usr", "/bin", "/lib", "/lib64"].map(str::to_owned).into();
        if step.network {
            read_only.extend(NETWORK_FILES.map(str::to_owned));
        }
        // Not every host has all of them; a link to nowhere is as good as nothing.
        read_only.retain(|path| std::fs::metadata(path).is_ok());
        read_only.insert(0, self.fixed.release.display().to_string());
        let read_write = match step.sees {
            Sees::Root => vec![step.place.root().path.display().to_string()],
            Sees::Workspace if step.workspace_at.is_none() => vec![step.place.text()],
            Sees::Workspace => Vec::new(),
        };
        Confinement {
            uid: owner.uid,
            gid: owner.gid,
            linux_capabilities: Vec::new(),
            network: step.network,
            isolate_terminal: true,
            ends_with_parent: true,
            proc: "/proc".to_owned(),
            dev: "/dev".to_owned(),
            tmp: "/tmp".to_owned(),
            read_only,
            read_write,
            devices: Vec::new(),
            homes: Vec::new(),
            workspace_at: step.workspace_at.clone(),
            created_files: Vec::new(),
        }
    }

    /// Ends a step under way.
    pub(crate) fn stop_step(&mut self, handle: Handle, why: &str) {
        let Some(work) = self.runs.get_mut(&handle).and_then(|it| it.work.as_mut()) else { return };
        work.undo(125, "step", why.to_owned());
        work.kill();
        self.look_for_the_end(handle);
    }

    /// Nothing of a step lives: what it came to.
    pub(crate) fn step_gone(&mut self, handle: Handle, mut work: Work) {
        let done = match (&work.undone, work.end) {
            (None, Some((End::Code(0), _))) => Ok(()),
            (Some(undone), _) => Err(undone.why.clone()),
            (None, end) => {
                let text = String::from_utf8_lossy(&work.stderr.kept.take()).into_owned();
                let last = text.lines().rev().map(str::trim).find(|line| !line.is_empty());
                Err(match (last, end) {
                    (Some(last), _) => log::one_line(last, WHY_BYTES_MAX),
                    (None, Some((end, _))) => format!("the step ended: {}", ending::words(end)),
                    (None, None) => "the step ended without a word".to_owned(),
                })
            }
        };
        match work.task {
            Task::Removal => self.removed(handle, done),
            Task::Inspection => self.inspected(handle, done.and_then(|()| holds(&work.stdout.kept.take()))),
            Task::Step(index) => match done.and_then(|()| self.note_checkin(handle, &work.stdout.kept.take())) {
                Ok(()) => self.next_step(handle, index + 1),
                Err(why) => {
                    self.happen(handle, Happening::StepFailed);
                    let Some(it) = self.runs.get_mut(&handle) else { return };
                    it.steps.clear();
                    log::run(&it.run, format_args!("step {index}: {why}"));
                    let asked = it.asked.take();
                    self.reply(asked, Reply::StepFailed { index, why }, Vec::new());
                }
            },
            Task::Program => {}
        }
    }

    /// What a step answered: nothing, or the hash of the check-in it opened.
    fn note_checkin(&mut self, handle: Handle, answer: &[u8]) -> Result<(), String> {
        if answer.is_empty() {
            return Ok(());
        }
        let hash = std::str::from_utf8(answer).ok().and_then(|text| RunHash::parse(text.trim_end_matches('\n')));
        let hash = hash.ok_or("the step's answer is not the hash of a check-in")?;
        if let Some(it) = self.runs.get_mut(&handle) {
            it.record.checkin = Some(hash);
        }
        Ok(())
    }

    /// A look at a workspace is over.
    pub(crate) fn inspected(&mut self, handle: Handle, looked: Result<Holds, String>) {
        self.happen(handle, Happening::InspectionOver);
        let Some(it) = self.runs.get_mut(&handle) else { return };
        let asked = it.asked.take();
        let reply = match looked {
            Ok(holds) => Reply::Inspected { holds: Box::new(holds) },
            Err(why) => {
                log::run(&it.run, format_args!("looking at its workspace: {why}"));
                Reply::NotInspected { why }
            }
        };
        self.reply(asked, reply, Vec::new());
    }

    /// A removal is over.
    pub(crate) fn removed(&mut self, handle: Handle, done: Result<(), String>) {
        let what = if done.is_ok() { Happening::RemovalDone } else { Happening::RemovalLeft };
        self.happen(handle, what);
        let Some(it) = self.runs.get_mut(&handle) else { return };
        let asked = it.asked.take();
        let reply = match done {
            Ok(()) => {
                it.place = None;
                it.record.workspace = None;
                it.record.phase = Phase::Removed;
                log::run(&it.run, format_args!("workspace removed"));
                Reply::Removed
            }
            Err(what) => {
                it.record.phase = it.state.phase(it.record.launches > 0);
                log::run(&it.run, format_args!("workspace: {what}"));
                Reply::Left { what }
            }
        };
        let release = it.release.take();
        self.note_phase(handle);
        self.reply(asked, reply, Vec::new());
        if let Some(asked) = release {
            self.release(asked, handle);
        }
    }
}

fn null() -> Result<OwnedFd, String> {
    let flags = OFlags::RDWR | OFlags::CLOEXEC;
    rustix::fs::open("/dev/null", flags, Mode::empty()).map_err(|e| format!("/dev/null: {e}"))
}

/// What an inspection answered: of its form, and no longer than it may be.
fn holds(answer: &[u8]) -> Result<Holds, String> {
    let fault = "the step's answer is not of its form";
    let holds: Holds = frame::decode(answer).map_err(|_words| fault)?;
    let hashes = holds.unsent.len() <= UNSENT_MAX && holds.unsent.iter().all(|it| RunHash::parse(it).is_some());
    if hashes && holds.changes.len() <= CHANGES_TOLD { Ok(holds) } else { Err(fault.to_owned()) }
}

//! Workspace steps and removals: `ocx step KIND ROOT AT`, one at a time, in a sandbox of their own as the runs' account
//! (decisions C-97), or of the open account where the run has no sandbox. The supervisor itself never touches what is in a workspace.

use std::os::fd::OwnedFd;
use std::time::Duration;

use mio::Interest;
use rustix::fs::{Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use sandbox::spec::{Confinement, Limits};
use supervisor::effects::{Did, Wrote};
use supervisor::points::carry;
use supervisor::wire::message::{End, Handle, Phase, Reply};

use crate::answers::WHY_BYTES_MAX;
use crate::child::Child;
use crate::deadlines::BootTime;
use crate::in_care::{Asked, Output, Task, Work};
use crate::names::{Due, Name, Part};
use crate::run::Happening;
use crate::service::Service;
use crate::streams::Ring;
use crate::workspaces::{Place, Root};
use crate::{ending, launch, log};

/// How long one step may take.
const STEP_MAX: Duration = Duration::from_secs(600);
/// How much of the end of a step's STDERR is kept for its last line.
const STEP_STDERR_BYTES: usize = 4096;
/// What a step may use.
pub(crate) const STEP_LIMITS: Limits =
    Limits { wall_s: None, cpu_s: None, processes: Some(64), file_size_bytes: None, memory_bytes: None };

impl Service {
    /// Begins a run's steps, in order.
    pub(crate) fn begin_steps(&mut self, asked: Asked, handle: Handle, places: Vec<Place>) {
        let Some(it) = self.runs.get_mut(&handle) else { return };
        it.asked = Some(asked);
        it.directory = None;
        it.place = places.last().cloned().or_else(|| it.place.take());
        it.steps = places.into();
        if it.steps.is_empty() {
            self.steps_done(handle);
        } else if self.happen(handle, Happening::StepsBegan) {
            self.next_step(handle, 0);
        }
    }

    fn next_step(&mut self, handle: Handle, index: u32) {
        let Some(it) = self.runs.get_mut(&handle) else { return };
        match it.steps.pop_front() {
            Some(place) => self.start_step(handle, Work::new(Task::Step(index), STEP_LIMITS), &place),
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
                self.reply(asked, Reply::Prepared, Vec::new());
            }
            Err(why) => {
                self.happen(handle, Happening::StepFailed);
                self.reply(asked, Reply::StepFailed { index: 0, why }, Vec::new());
            }
        }
    }

    /// Starts one step in a cell. What goes wrong is the step's failure.
    pub(crate) fn start_step(&mut self, handle: Handle, mut work: Work, place: &Place) {
        if let Err(why) = carry(Did::StartStep, || self.try_step(handle, &mut work, place)) {
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

    fn try_step(&mut self, handle: Handle, work: &mut Work, place: &Place) -> Result<(), String> {
        self.open_cgroup(handle, work)?;
        let it = self.runs.get_mut(&handle).ok_or("the run is gone")?;
        if matches!(work.task, Task::Step(_)) {
            it.record.phase = Phase::Preparing;
        }
        it.record.workspace = it.place.as_ref().map(Place::text);
        self.care.write(&it.run, &it.record, Wrote::Step).map_err(|e| format!("its care record: {e}"))?;
        let kind = if work.task == Task::Removal { "remove" } else { "directory" };
        let root = place.root().path.display().to_string();
        let program = self.fixed.release.join("ocx").display().to_string();
        let argv = [program, "step".to_owned(), kind.to_owned(), root, place.text()];
        let env = [("PATH", "/usr/bin:/bin"), ("HOME", "/tmp"), ("USER", "ocx-run"), ("LANG", "C.UTF-8")];
        let env = env.map(|(name, value)| (name.to_owned(), value.to_owned()));
        let (stderr, to_stderr) = pipe_with(PipeFlags::CLOEXEC).map_err(|e| format!("a pipe: {e}"))?;
        rustix::io::ioctl_fionbio(&stderr, true).map_err(|e| format!("a pipe: {e}"))?;
        let streams = [null()?, null()?, to_stderr];
        let confinement = self.step_confinement(place.root());
        let cell = launch::start_step(
            &argv,
            &env,
            (&confinement, place.root().owner),
            &STEP_LIMITS,
            streams,
            work.cgroup.as_ref(),
            &self.fixed.host,
        )
        .map_err(|e| e.to_string())?;
        let (status, end) = (Name::Run(handle, Part::Status), Name::Run(handle, Part::End));
        let child = Child::watch(cell, &self.sources, status, end).map_err(|e| format!("watching it: {e}"))?;
        let name = Name::Run(handle, Part::Stderr);
        let fd = self.sources.watch(stderr, name, Interest::READABLE).map_err(|e| format!("watching it: {e}"))?;
        work.stderr = Output { fd: Some(fd), kept: Ring::new(STEP_STDERR_BYTES) };
        let child = work.child.insert(child);
        child.go(sandbox::init::GO).map_err(|e| format!("letting it go: {e}"))
    }

    /// What a step sees: programs, and the root its workspace lies in.
    fn step_confinement(&self, root: &Root) -> Confinement {
        let mut read_only = vec![self.fixed.release.display().to_string()];
        read_only.extend(["/usr", "/bin", "/lib", "/lib64"].map(str::to_owned).into_iter().filter(|path| {
            std::fs::symlink_metadata(path).is_ok() // not every host has /lib64
        }));
        Confinement {
            uid: root.owner.uid,
            gid: root.owner.gid,
            linux_capabilities: Vec::new(),
            network: false,
            isolate_terminal: true,
            ends_with_parent: true,
            proc: "/proc".to_owned(),
            dev: "/dev".to_owned(),
            tmp: "/tmp".to_owned(),
            read_only,
            read_write: vec![root.path.display().to_string()],
            devices: Vec::new(),
            homes: Vec::new(),
            workspace_at: None,
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
            Task::Step(index) => match done {
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

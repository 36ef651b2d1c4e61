//! Each request of the node, once REQUESTS has admitted it: what is done, and what is answered.

use std::os::fd::{AsFd as _, OwnedFd};

use supervisor::effects::{Did, Served, Wrote};
use supervisor::points::{self, carry};
use supervisor::wire::LINK_VERSION;
use supervisor::wire::frame::{self, Frame, FrameError};
use supervisor::wire::message::{EndedBy, EventNumber, Handle, Reply, Request, ToNode, ToSupervisor};
use supervisor::wire::plan::{KEEP_BYTES_MAX, LaunchPlan, PLAN_BYTES_MAX, Step};

use crate::care::Record;
use crate::checked_steps::{self, CheckedStep, STEPS_MAX};
use crate::deadlines::BootTime;
use crate::floor;
use crate::in_care::{Asked, InCare, Task, Work};
use crate::link::TURN_FRAMES_MAX;
use crate::names::Name;
use crate::policy;
use crate::requests::{Admission, Breach};
use crate::run::{Happening, RunState};
use crate::run_hash::RunHash;
use crate::service::{RUNS_MAX, Service};
use crate::steps::STEP_LIMITS;
use crate::tails::Blank;
use crate::workspaces::Place;
use crate::{credentials, kept_logs, log, opened, provides, requests};

/// Largest first line, in bytes (decisions C-113).
const FIRST_LINE_BYTES_MAX: u64 = 1 << 20;
/// Longest text from elsewhere in an answer or a log line, in bytes.
pub(crate) const WHY_BYTES_MAX: usize = 2000;

impl Service {
    /// Sends what waits and reads what came, a bounded number of frames.
    pub(crate) fn link_ready(&mut self, number: u64) {
        self.flush();
        for _ in 0..TURN_FRAMES_MAX {
            let Some(link) = self.link.as_ref().filter(|link| link.number == number) else { return };
            if !link.takes_answers() {
                // Read on when it has taken some: the link is then ready again.
                return;
            }
            match link.receive() {
                Ok(frame) => {
                    if let Err(Breach(why)) = self.frame(frame, number) {
                        return self.end_node(&why);
                    }
                }
                Err(FrameError::WouldBlock) => return,
                Err(FrameError::Closed) => return self.end_node("it closed the link"),
                Err(error) => return self.end_node(&error.to_string()),
            }
        }
        self.sources.again(Name::Link(number));
    }

    /// One frame: decoded whole, held against the table, and only then acted on.
    fn frame(&mut self, frame: Frame, link: u64) -> Result<(), Breach> {
        let message: ToSupervisor = frame::decode(&frame.bytes).map_err(|e| Breach(format!("a frame {e}")))?;
        let runs = &self.runs;
        let Some(meter) = self.link.as_mut().map(|link| &mut link.meter) else { return Ok(()) };
        let (bytes, descriptors) = (frame.bytes.len(), frame.descriptors.len());
        let state_of = |handle| runs.get(&handle).map(|it: &InCare| it.state);
        let admission = meter.admit(&message.request, bytes, descriptors, BootTime::now(), state_of)?;
        let asked = Asked { link, id: message.id };
        match admission {
            Admission::Act => {
                let served = Served::of(&message.request);
                carry(served, || self.act(asked, message.request, frame.descriptors))
            }
            // `noted` has no answer, and a run that is released has no events.
            _ if matches!(message.request, Request::Noted { .. }) => Ok(()),
            Admission::Unknown => {
                self.impossible(asked, "no run in care has this handle".to_owned());
                Ok(())
            }
            Admission::Crossed(_) if matches!(message.request, Request::Stop { handle, .. } if self.stop_waiting(handle)) =>
            {
                self.reply(Some(asked), Reply::Stopping, Vec::new());
                Ok(())
            }
            Admission::Crossed(state) => {
                self.impossible(asked, format!("the run is {state:?} already"));
                Ok(())
            }
        }
    }

    fn impossible(&mut self, asked: Asked, why: String) {
        self.reply(Some(asked), Reply::Impossible { why }, Vec::new());
    }

    fn act(&mut self, asked: Asked, request: Request, descriptors: Vec<OwnedFd>) -> Result<(), Breach> {
        let run = requests::handle(&request).and_then(|handle| self.runs.get(&handle));
        if run.is_some_and(|it| it.remains.is_some()) && !matches!(request, Request::Noted { .. }) {
            self.impossible(asked, "something of it, from an earlier supervisor, still lives".to_owned());
            return Ok(());
        }
        match request {
            Request::Hello { version } => self.hello(asked, version),
            Request::Take { run } => self.take(asked, &run),
            Request::Check { handle } => self.check(asked, handle, descriptors),
            Request::Credential { project, user } => {
                self.credential(asked, &project, user.as_deref());
                Ok(())
            }
            Request::Prepare { handle, workspace_at, checkin, steps } => {
                self.prepare(asked, handle, (workspace_at.as_deref(), checkin.as_deref()), &steps, descriptors)
            }
            Request::Launch { handle } => self.launch_request(asked, handle, descriptors),
            Request::Noted { handle, event } => self.noted(handle, event),
            Request::Stop { handle, why } => {
                self.stop(asked, handle, &why);
                Ok(())
            }
            Request::Open { handle, path } => {
                let opened = self.open(handle, &path);
                self.opened(asked, opened);
                Ok(())
            }
            Request::OpenSettled { run, workspace, path } => {
                let opened = self.open_settled(&run, &workspace, &path)?;
                self.opened(asked, opened);
                Ok(())
            }
            Request::WriteLogs { handle, stderr, .. } => self.write_logs(asked, handle, stderr, descriptors),
            Request::Inspect { handle, workspace_at, clone, checkouts } => {
                self.inspect(asked, handle, workspace_at.as_deref(), clone.as_ref(), &checkouts);
                Ok(())
            }
            Request::Remove { handle } => {
                self.remove(asked, handle);
                Ok(())
            }
            Request::Release { handle } => {
                self.release(asked, handle);
                Ok(())
            }
        }
    }

    fn hello(&mut self, asked: Asked, version: u32) -> Result<(), Breach> {
        if version != LINK_VERSION {
            return Err(Breach(format!("it speaks version {version}, this supervisor {LINK_VERSION}: two releases")));
        }
        let provides = Box::new(provides::provides(&self.fixed, self.care.boot()));
        let in_care = u32::try_from(self.runs.len()).unwrap_or(u32::MAX);
        if let Some(link) = &mut self.link {
            link.meter.open();
        }
        self.reply(Some(asked), Reply::Welcome { provides, in_care }, Vec::new());
        for handle in self.handles() {
            if let Some(event) = self.runs.get(&handle).map(|it| it.in_care(handle)) {
                self.send(ToNode::Event(event), Vec::new());
                self.tell(handle, false);
            }
        }
        Ok(())
    }

    fn take(&mut self, asked: Asked, run: &str) -> Result<(), Breach> {
        let run = RunHash::parse(run).ok_or_else(|| Breach("request Take: not a run's hash".to_owned()))?;
        let reply = if self.runs.values().any(|it| it.run == run) {
            Reply::Busy
        } else if let Some(launches) = self.care.launches(&run).filter(|_| !points::broken("was")) {
            Reply::Was { launches }
        } else if self.runs.len() >= RUNS_MAX {
            Reply::Impossible { why: format!("{RUNS_MAX} runs are in care; one must be released first") }
        } else if let Some(why) =
            floor::passed(self.fixed.floor, &self.fixed.root).or_else(|| self.fixed.host.cgroups.as_ref()?.full())
        {
            // Decisions C-84: nothing new is begun on a host that is full; what is under way goes on.
            log::run(&run, format_args!("not taken: {why}"));
            Reply::Impossible { why }
        } else if self.ending {
            Reply::Impossible { why: "the supervisor is ending".to_owned() }
        } else {
            let record = Record::taken(self.care.boot());
            match self.care.write(&run, &record, Wrote::Taken) {
                Ok(()) => {
                    self.last_handle += 1;
                    let handle = self.last_handle;
                    self.runs.insert(handle, InCare::new(run, RunState::Taken, record));
                    log::run(&run, format_args!("in care"));
                    Reply::Taken { handle }
                }
                Err(error) => Reply::Impossible { why: format!("its care record cannot be written: {error}") },
            }
        };
        self.reply(Some(asked), reply, Vec::new());
        Ok(())
    }

    /// Reads a plan: sealed, small enough, of our form, and for this run.
    fn plan(&self, handle: Handle, fd: Option<&OwnedFd>) -> Result<LaunchPlan, Breach> {
        let fault = |why: String| Breach(format!("a plan: {why}"));
        let fd = fd.ok_or_else(|| fault("no descriptor".to_owned()))?;
        let bytes = frame::read_sealed(fd, PLAN_BYTES_MAX).map_err(|e| fault(e.to_string()))?;
        let plan: LaunchPlan = frame::decode(&bytes).map_err(|e| fault(e.to_string()))?;
        let of_this_run = self.runs.get(&handle).is_some_and(|it| it.run.to_string() == plan.run);
        if of_this_run { Ok(plan) } else { Err(fault("it is of another run".to_owned())) }
    }

    fn check(&mut self, asked: Asked, handle: Handle, descriptors: Vec<OwnedFd>) -> Result<(), Breach> {
        let plan = self.plan(handle, descriptors.first())?;
        match policy::check(&plan, &self.fixed.host) {
            Ok(_checked) => self.ask_for_room(asked, handle, &plan),
            Err(refusal) => self.reply(Some(asked), refused(refusal), Vec::new()),
        }
        Ok(())
    }

    /// Permits a run once there is room for what is to be kept of its output (decisions C-87).
    fn ask_for_room(&mut self, asked: Asked, handle: Handle, plan: &LaunchPlan) {
        let (bytes, budget) = (kept_bytes(plan), self.rings.budget());
        if bytes > budget {
            let why = format!("{bytes} bytes, more than the {budget} this host keeps of all runs (settings/rings)");
            let reply = Reply::Refused { row: policy::NOT_PROVIDED, field: "process.keep".to_owned(), why };
            return self.reply(Some(asked), reply, Vec::new());
        }
        let Some(it) = self.runs.get_mut(&handle) else { return };
        if let Some(earlier) = it.waits.replace(asked) {
            self.impossible(earlier, "it was asked again".to_owned());
        }
        let now = self.rings.ask(handle, bytes);
        self.granted(now);
        let Some(it) = self.runs.get(&handle).filter(|it| it.waits.is_some()) else { return };
        let held = self.rings.all_held();
        log::run(
            &it.run,
            format_args!("waits for room: it keeps {bytes} bytes of output, other runs {held} of {budget}"),
        );
    }

    /// Answers the checks of runs that hold their room now.
    fn granted(&mut self, handles: Vec<Handle>) {
        for handle in handles {
            let waited = self.runs.get_mut(&handle).and_then(|it| it.waits.take());
            self.reply(waited, Reply::Permitted, Vec::new());
        }
    }

    /// Gives a run's room back.
    pub(crate) fn give_room_back(&mut self, handle: Handle) {
        let now = self.rings.give_back(handle);
        self.granted(now);
    }

    /// A stop of a run that waits for room: it waits no longer. It holds none, so it cannot be launched either. Whether it
    /// waited.
    fn stop_waiting(&mut self, handle: Handle) -> bool {
        let Some(waited) = self.runs.get_mut(&handle).and_then(|it| it.waits.take()) else { return false };
        self.reply(Some(waited), Reply::Permitted, Vec::new());
        self.give_room_back(handle);
        true
    }

    fn credential(&mut self, asked: Asked, project: &str, user: Option<&str>) {
        match credentials::open(&self.fixed.root, project, user) {
            Ok(Some(fd)) => self.reply(Some(asked), Reply::Descriptor, vec![fd]),
            Ok(None) => self.reply(Some(asked), Reply::Unset, Vec::new()),
            Err(error) => {
                let name = log::one_line(project, 100);
                log::say(format_args!("passwords/{name}.json: {error}; the project is not served"));
                self.impossible(asked, format!("passwords/{name}.json: {error}"));
            }
        }
    }

    fn prepare(
        &mut self,
        asked: Asked,
        handle: Handle,
        (workspace_at, checkin): (Option<&str>, Option<&str>),
        steps: &[Step],
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Breach> {
        if steps.len() > STEPS_MAX {
            return Err(Breach(format!("request Prepare: {} steps, more than {STEPS_MAX}", steps.len())));
        }
        let no_hash = || Breach("request Prepare: its check-in is no full hash".to_owned());
        let checkin = checkin.map(|text| RunHash::parse(text).ok_or_else(no_hash)).transpose()?;
        let others = self.runs.iter().filter(|(other, _)| **other != handle).filter_map(|(_, it)| it.place.as_ref());
        let others: Vec<_> = others.collect();
        match checked_steps::check(steps, workspace_at, descriptors, &self.fixed.workspaces, &others) {
            Ok(steps) => self.begin_steps(asked, handle, checkin, steps),
            Err((index, why)) => {
                self.happen(handle, Happening::StepFailed);
                self.reply(Some(asked), Reply::StepFailed { index, why }, Vec::new());
            }
        }
        Ok(())
    }

    fn launch_request(&mut self, asked: Asked, handle: Handle, descriptors: Vec<OwnedFd>) -> Result<(), Breach> {
        let plan = self.plan(handle, descriptors.first())?;
        let line = descriptors.get(1).ok_or_else(|| Breach("request Launch: no first line".to_owned()))?;
        let line = frame::read_sealed(line, FIRST_LINE_BYTES_MAX).map_err(|e| Breach(format!("a first line: {e}")))?;
        let Some(it) = self.runs.get(&handle) else { return Ok(()) };
        if plan.workspace != it.place.as_ref().map(Place::text) {
            return Err(Breach("request Launch: its plan names a workspace that was not prepared".to_owned()));
        }
        let refused = match policy::check(&plan, &self.fixed.host) {
            Ok(checked) => match self.room_to_launch(handle, &plan) {
                Ok(blank) => {
                    self.launch(asked, handle, &plan, checked, line, blank);
                    return Ok(());
                }
                Err(why) => Reply::Refused { row: policy::NOT_PROVIDED, field: "process.keep".to_owned(), why },
            },
            Err(refusal) => refused(refusal),
        };
        self.reply(Some(asked), refused, Vec::new());
        Ok(())
    }

    /// Everything an end needs to be told with, held before there is anything that could end.
    fn room_to_launch(&mut self, handle: Handle, plan: &LaunchPlan) -> Result<Blank, String> {
        let bytes = kept_bytes(plan);
        if self.rings.held(handle) < bytes {
            let now = self.rings.ask(handle, bytes);
            let held = now.contains(&handle);
            self.granted(now);
            if !held {
                self.give_room_back(handle);
                return Err(format!("no room was held for the {bytes} bytes it keeps; a check holds it"));
            }
        }
        Blank::new().map_err(|error| format!("no place for its kept output: {error}"))
    }

    fn noted(&mut self, handle: Handle, event: EventNumber) -> Result<(), Breach> {
        let Some(it) = self.runs.get_mut(&handle) else { return Ok(()) };
        if event == 0 || event > it.last_event {
            return Err(Breach(format!("request Noted: event {event}, which was never sent")));
        }
        it.events.retain(|kept| kept.number != event);
        let over = matches!(it.state, RunState::Exited | RunState::Removing | RunState::Removed);
        if over && it.events.is_empty() {
            self.give_room_back(handle);
        }
        Ok(())
    }

    fn stop(&mut self, asked: Asked, handle: Handle, why: &str) {
        self.reply(Some(asked), Reply::Stopping, Vec::new());
        let Some(it) = self.runs.get(&handle) else { return };
        log::run(&it.run, format_args!("stop: {}", log::one_line(why, WHY_BYTES_MAX)));
        if it.state == RunState::Preparing {
            self.stop_step(handle, "stopped");
        } else {
            self.ask_to_end(handle, EndedBy::Stop);
        }
    }

    fn write_logs(
        &mut self,
        asked: Asked,
        handle: Handle,
        stderr: bool,
        descriptors: Vec<OwnedFd>,
    ) -> Result<(), Breach> {
        let names = if stderr { [kept_logs::STDERR, kept_logs::STDOUT] } else { [kept_logs::STDOUT, ""] };
        let mut logs = Vec::new();
        for (fd, name) in descriptors.iter().zip(names) {
            let bytes = frame::read_sealed(fd, KEEP_BYTES_MAX).map_err(|e| Breach(format!("a log: {e}")))?;
            logs.push((name, bytes));
        }
        let reply = match carry(Did::PutLogs, || self.put_logs(handle, &logs)) {
            Ok(()) => Reply::Written,
            Err(why) => Reply::KeptOut { why },
        };
        self.reply(Some(asked), reply, Vec::new());
        Ok(())
    }

    fn put_logs(&self, handle: Handle, logs: &[(&str, Vec<u8>)]) -> Result<(), String> {
        let it = self.runs.get(&handle).ok_or("the run is gone")?;
        let (directory, account) = it.workspace()?;
        logs.iter().try_for_each(|(name, bytes)| kept_logs::write(directory.as_fd(), name, bytes, account))
    }

    fn open(&self, handle: Handle, path: &str) -> Result<OwnedFd, String> {
        let it = self.runs.get(&handle).ok_or("the run is gone")?;
        let (directory, account) = it.workspace()?;
        opened::open(directory.as_fd(), path, account)
    }

    /// A file of a run that was launched and released. Nothing says any more where its workspace was, so it may be any
    /// that is in nobody's care: what the file must be, its reader knows by its hash.
    fn open_settled(&self, run: &str, workspace: &str, path: &str) -> Result<Result<OwnedFd, String>, Breach> {
        let run = RunHash::parse(run).ok_or_else(|| Breach("request OpenSettled: not a run's hash".to_owned()))?;
        if self.care.launches(&run).is_none() {
            return Ok(Err("the run was not launched and released here".to_owned()));
        }
        let others = self.runs.values().filter_map(|it| it.place.as_ref());
        let place = Place::check(&self.fixed.workspaces, workspace, others);
        Ok(place.and_then(|place| opened::open(place.open()?.as_fd(), path, place.root().owner)))
    }

    fn opened(&mut self, asked: Asked, opened: Result<OwnedFd, String>) {
        match opened {
            Ok(file) => self.reply(Some(asked), Reply::Descriptor, vec![file]),
            Err(why) => {
                let why = log::one_line(&why, WHY_BYTES_MAX);
                self.reply(Some(asked), Reply::NotOpened { why }, Vec::new());
            }
        }
    }

    fn inspect(
        &mut self,
        asked: Asked,
        handle: Handle,
        workspace_at: Option<&str>,
        clone: Option<&String>,
        checkouts: &[String],
    ) {
        if !self.happen(handle, Happening::InspectionBegan) {
            return;
        }
        let Some(it) = self.runs.get_mut(&handle) else { return };
        it.asked = Some(asked);
        let place = it.place.as_ref().ok_or_else(|| "the run has no workspace".to_owned());
        match place.and_then(|place| checked_steps::inspection(place, workspace_at, clone, checkouts)) {
            Ok(step) => self.start_step(handle, Work::new(Task::Inspection, STEP_LIMITS), step),
            Err(why) => self.inspected(handle, Err(why)),
        }
    }

    fn remove(&mut self, asked: Asked, handle: Handle) {
        if !self.happen(handle, Happening::RemovalBegan) {
            return;
        }
        let Some(it) = self.runs.get_mut(&handle) else { return };
        it.directory = None;
        it.asked = Some(asked);
        match it.place.clone() {
            None => self.removed(handle, Ok(())),
            Some(place) => {
                self.start_step(handle, Work::new(Task::Removal, STEP_LIMITS), CheckedStep::removal(place));
            }
        }
    }

    /// Settles a run. What is not durable is not done: the run then stays in care, and is asked for again.
    pub(crate) fn release(&mut self, asked: Asked, handle: Handle) {
        let Some(it) = self.runs.get_mut(&handle) else { return };
        if it.state == RunState::Removing {
            it.release = Some(asked);
            return;
        }
        let (run, launches) = (it.run, it.record.launches);
        match self.care.settle(&run, launches) {
            Ok(()) => {
                let waited = self.runs.remove(&handle).and_then(|it| it.waits);
                self.reply(waited, Reply::Impossible { why: "it was released".to_owned() }, Vec::new());
                self.give_room_back(handle);
                log::run(&run, format_args!("released"));
                self.reply(Some(asked), Reply::Released, Vec::new());
            }
            Err(error) => {
                log::run(&run, format_args!("cannot be released: {error}; it stays in care"));
                self.impossible(asked, format!("it cannot be settled: {error}"));
            }
        }
    }
}

/// How much of a run's output is kept at most.
const fn kept_bytes(plan: &LaunchPlan) -> u64 {
    plan.process.keep_stderr_bytes.saturating_add(plan.process.keep_stdout_bytes)
}

/// A refusal as the node is told: a path of the plan in it may be as long as the plan, an answer is one frame.
fn refused(refusal: policy::Refusal) -> Reply {
    let why = log::one_line(&refusal.why, WHY_BYTES_MAX);
    Reply::Refused { row: refusal.row, field: refusal.field, why }
}

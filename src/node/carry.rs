//! The carrier of each effect of LIFE, and what the supervisor's answers to them mean.

use std::os::fd::AsFd as _;
use std::time::Instant;

use supervisor::wire::frame::seal;
use supervisor::wire::message::{EndedBy, Reply, Request};

use super::gather::{self, Gathered, NotGathered};
use super::lane::{EFFECT_WAIT, Input, Lane};
use super::link::Answer;
use super::over::{how_it_was, kept_log};
use super::poster::Post;
use super::posting::Posting;
use super::store::Record;
use super::tending::{Over, Tails};
use crate::engine::check::Refusal;
use crate::engine::publications::PENDING;
use crate::engine::report::{self, Ended, How};
use crate::engine::{plan, read};
use crate::protocol::life::{Do, Event, State};
use crate::protocol::names::RunId;

/// Room kept for a run's `ending` and plan, in bytes, besides its kept tails twice over.
const ENDING_BYTES: u64 = 64 << 10;
/// What `ended` says of a workspace that could not be removed, before what is in the way.
const STAYS: &str = "kept: what could not be removed: ";
/// Room kept for each file it names, in bytes.
const FILE_BYTES: u64 = 1 << 10;

impl Lane {
    /// Carries one effect out, or hands it over. An event that follows at once is returned.
    ///
    /// # Errors
    /// In words, when it could not be done; nothing of it has happened then, and it is tried again.
    pub(super) fn carry(&mut self, hash: &str, effect: Do) -> Result<Option<Event>, String> {
        match effect {
            Do::Take => self.ask(hash, effect, Request::Take { run: hash.to_owned() }, &[])?,
            Do::Check => {
                let handle = self.handle(hash)?;
                let plan = self.plan_memfd(hash)?;
                self.ask(hash, effect, Request::Check { handle }, &[plan])?;
            }
            Do::Prepare => {
                let accepted = self.accepted(hash)?;
                if !gather::is_needed(accepted) {
                    let gathered = self.gatherer.gather(accepted);
                    return self.prepare(hash, gathered);
                }
                let (gatherer, accepted) = (self.gatherer.clone(), accepted.clone());
                let (me, run) = (self.me.clone(), hash.to_owned());
                // A lane that is gone takes the node with it.
                std::thread::spawn(move || drop(me.send(Input::Gathered(run, gatherer.gather(&accepted)))));
            }
            Do::RemoveWorkspace => return self.remove_workspace(hash),
            Do::SaveTaken => {
                let accepted = self.accepted(hash)?;
                let keep = &accepted.plan().process;
                let kept = keep.keep_stderr_bytes.saturating_add(keep.keep_stdout_bytes);
                let files = u64::try_from(accepted.run().process.unversioned_files.len()).unwrap_or(u64::MAX);
                let bytes = ENDING_BYTES + kept.saturating_mul(2).saturating_add(files.saturating_mul(FILE_BYTES));
                self.store.reserve(hash, bytes).map_err(|error| format!("keeping room for its end: {error}"))?;
                self.save(hash, &Record::Taken { started: None })?;
            }
            Do::SaveStarted => {
                let started = self.runs.get(hash).and_then(|run| run.started.clone());
                self.save(hash, &Record::Taken { started })?;
            }
            Do::PostStarted => {
                let accepted = self.accepted(hash)?;
                let text =
                    report::started(accepted.id(), plan::values_started(accepted), &accepted.run().limits.written);
                self.post(hash, Post::Started, text);
            }
            Do::Launch => {
                let handle = self.handle(hash)?;
                let plan_fd = self.plan_memfd(hash)?;
                let first = seal("first line", plan::first_line(self.accepted(hash)?).as_bytes())
                    .map_err(|error| format!("the first line's memfd: {error}"))?;
                self.ask(hash, effect, Request::Launch { handle }, &[plan_fd, first])?;
            }
            Do::StopProcess => {
                let handle = self.handle(hash)?;
                let why = "a stop was posted".to_owned();
                self.ask(hash, effect, Request::Stop { handle, why }, &[])?;
            }
            Do::WriteLogs => return self.write_logs(hash),
            Do::HashFiles => return self.hash_files(hash),
            Do::SavePlan => self.save_plan(hash)?,
            Do::SaveEnding => self.save_ending(hash)?,
            Do::NoteEvents => self.note_events(hash),
            Do::PostEnded => {
                let Some(Record::Ending { ended, .. }) = self.store.record(hash) else {
                    return Err("the text of ended cannot be read back".to_owned());
                };
                self.post(hash, Post::Ended, ended);
            }
            Do::SaveDone => {
                if let Some(mut plan) = self.plan_of(hash) {
                    plan.ended = self.runs.get(hash).and_then(|run| run.ended_hash.clone());
                    self.store.save_plan(hash, &plan).map_err(|error| format!("the plan: {error}"))?;
                }
                self.save(hash, &Record::Done)?;
            }
            Do::Publish => return self.publish(hash),
            Do::SaveRetry => self.save_retry(hash)?,
            Do::Release => {
                let handle = self.runs.get(hash).and_then(|run| run.handle);
                let Some(handle) = handle else { return Ok(Some(Event::Released)) };
                self.ask(hash, effect, Request::Release { handle }, &[])?;
            }
        }
        Ok(None)
    }

    /// What the supervisor's answer to an effect means for the run.
    pub(super) fn answered(&mut self, hash: &str, asked: Do, answer: &Answer) -> Option<Event> {
        let run = self.runs.get_mut(hash)?;
        match &answer.reply {
            Reply::Taken { handle } => {
                run.handle = Some(*handle);
                self.decide_in_care(hash)
            }
            Reply::Busy => Some(Event::Busy),
            Reply::Was { launches } => {
                let note =
                    format!("this host launched it before ({launches}) and has given it up; it never runs again");
                run.ended = Some(Ended::new(How::Lost { note }));
                Some(Event::Was)
            }
            Reply::Permitted => Some(if run.stop { self.stopped_first(hash) } else { Event::Permitted }),
            Reply::Refused { row, field, why } => {
                let refusal = Refusal::of_policy(*row, field, why);
                if asked == Do::Check {
                    run.ended = Some(Ended::new(How::Refused { note: refusal.note }));
                    return Some(Event::CheckRefused);
                }
                // C-85: found only at the launch, it is a launch that failed.
                run.over = Some(failed(125, &format!("ocx: {}", refusal.note)));
                Some(Event::LaunchFailed)
            }
            Reply::Prepared { checkin } => {
                run.checkin.clone_from(checkin);
                if let (Some(checkin), Some(accepted)) = (checkin, &mut run.accepted)
                    && let Err(why) = accepted.set_checkin(checkin)
                {
                    run.ended = Some(Ended::new(How::Refused { note: Refusal::not_provided(&why).note }));
                    return Some(Event::StepFailed);
                }
                run.workspace = run.accepted.as_ref().and_then(|it| it.plan().workspace.clone());
                Some(if run.stop { self.stopped_first(hash) } else { Event::Prepared })
            }
            Reply::StepFailed { index, why } => {
                let steps = run.accepted.as_ref().map(|it| it.steps().to_vec()).unwrap_or_default();
                let index = usize::try_from(*index).unwrap_or(usize::MAX);
                let index = run.step_places.as_ref().and_then(|places| places.get(index).copied()).unwrap_or(index);
                let note = Refusal::of_step(&steps, index, why).note;
                run.ended = Some(Ended::new(How::Refused { note }));
                Some(Event::StepFailed)
            }
            Reply::Launched { pid } => {
                self.say(hash, &format!("launched, pid {pid}"));
                Some(Event::Launched)
            }
            Reply::Failed { code, stage, why } => {
                run.over = Some(failed(*code, why));
                self.say(hash, &format!("not launched: {stage}: {why}"));
                Some(Event::LaunchFailed)
            }
            Reply::Stopping => None,
            Reply::Removed => self.cleared(hash, "removed".to_owned()),
            Reply::Written => Some(Event::LogsWritten),
            Reply::KeptOut { why } => {
                self.say(hash, &format!("the kept logs were not written in the workspace: {why}"));
                Some(Event::LogsWritten)
            }
            Reply::Left { what } => {
                self.say(hash, &format!("the workspace stays: {what}"));
                self.cleared(hash, format!("{STAYS}{what}"))
            }
            Reply::Released => {
                run.handle = None;
                // The next care of it, if there is one, numbers its events anew.
                run.events.clear();
                Some(Event::Released)
            }
            Reply::Impossible { why } if asked == Do::Take => {
                // No room in care, or on the disk (decisions C-84): its turn comes later.
                self.waits(hash, why);
                Some(Event::Busy)
            }
            Reply::Impossible { why } => {
                self.say(hash, &format!("{asked}: the supervisor could not: {why}"));
                match asked {
                    // The log files are no part of its record.
                    Do::WriteLogs => Some(Event::LogsWritten),
                    // The process was over before the stop came.
                    Do::StopProcess => None,
                    Do::RemoveWorkspace => {
                        let why = why.clone();
                        self.cleared(hash, format!("{STAYS}{why}"))
                    }
                    Do::Take
                    | Do::Check
                    | Do::Prepare
                    | Do::SaveTaken
                    | Do::PostStarted
                    | Do::SaveStarted
                    | Do::Launch
                    | Do::HashFiles
                    | Do::SavePlan
                    | Do::SaveEnding
                    | Do::NoteEvents
                    | Do::PostEnded
                    | Do::SaveDone
                    | Do::Publish
                    | Do::SaveRetry
                    | Do::Release => {
                        self.try_again(hash, asked);
                        None
                    }
                }
            }
            // Asked by the porter and by what hashes, which wait for them.
            Reply::Welcome { .. }
            | Reply::Inspected { .. }
            | Reply::NotInspected { .. }
            | Reply::Descriptor
            | Reply::Unset
            | Reply::NotOpened { .. } => None,
        }
    }

    /// What a run's steps need is there, or is not to be had.
    pub(super) fn gathered(&mut self, hash: &str, gathered: Result<Gathered, NotGathered>) {
        let Some(run) = self.runs.get(hash).filter(|it| it.state == State::Preparing) else { return };
        let event = if run.stop { Ok(Some(self.stopped_first(hash))) } else { self.prepare(hash, gathered) };
        match event {
            Ok(Some(event)) => self.fire(hash, event),
            Ok(None) => {}
            Err(why) => {
                self.say(hash, &format!("{}: {why}; trying again", Do::Prepare));
                if let Some(run) = self.runs.get_mut(hash) {
                    let since = run.trouble.take().map_or_else(Instant::now, |(since, _)| since);
                    run.trouble = Some((since, why));
                }
                self.try_again(hash, Do::Prepare);
            }
        }
    }

    /// Asks for the steps, with what was gathered for them.
    fn prepare(&mut self, hash: &str, gathered: Result<Gathered, NotGathered>) -> Result<Option<Event>, String> {
        match gathered {
            Ok(Gathered { steps, places, descriptors, checkin }) => {
                let handle = self.handle(hash)?;
                let sandbox = self.accepted(hash)?.run().sandbox.as_ref();
                let workspace_at = sandbox.and_then(|sandbox| sandbox.workspace_at.clone());
                let request = Request::Prepare { handle, workspace_at, checkin, steps };
                self.ask(hash, Do::Prepare, request, &descriptors)?;
                if let Some(run) = self.runs.get_mut(hash) {
                    run.step_places = Some(places);
                }
                Ok(None)
            }
            Err(NotGathered::Refused(refusal)) => {
                if let Some(run) = self.runs.get_mut(hash) {
                    run.ended = Some(Ended::new(How::Refused { note: refusal.note }));
                }
                Ok(Some(Event::StepFailed))
            }
            Err(NotGathered::Later(why)) => Err(why),
        }
    }

    fn stopped_first(&mut self, hash: &str) -> Event {
        if let Some(run) = self.runs.get_mut(hash) {
            run.ended = Some(Ended::new(How::Stopped));
        }
        Event::StoppedFirst
    }

    /// Has the workspace removed of a run never launched, whose steps failed or that asks it; and of one that is published
    /// whole, was found saved, and asks it.
    fn remove_workspace(&mut self, hash: &str) -> Result<Option<Event>, String> {
        let plan = self.plan_of(hash);
        let Some(run) = self.runs.get_mut(hash) else { return Ok(None) };
        let clearing = run.state == State::Clearing;
        let asks = run.accepted.as_ref().is_some_and(|it| it.run().removes_once_saved());
        let wanted = if clearing {
            // A `started` still on its way is not waited for any more.
            run.posts.clear();
            let failed = run.ended.as_ref().is_some_and(|ended| matches!(ended.how, How::Refused { .. }));
            asks || failed
        } else {
            plan.is_some_and(|plan| plan.remove && !plan.is_unfinished())
        };
        // Over before anything was asked for, nothing was made; out of care, nothing can be asked.
        let made = !clearing || run.step_places.is_some() || run.workspace.is_some();
        let Some(handle) = run.handle.filter(|_| wanted && made) else {
            if clearing && asks {
                run.cleared = Some("removed".to_owned());
            }
            return Ok(clearing.then_some(Event::Cleared));
        };
        self.ask(hash, Do::RemoveWorkspace, Request::Remove { handle }, &[])?;
        Ok(None)
    }

    /// What became of the workspace of a run never launched. After a launch `ended` has been written.
    fn cleared(&mut self, hash: &str, what: String) -> Option<Event> {
        let run = self.runs.get_mut(hash)?;
        if run.state != State::Clearing {
            if let (Some(why), Some(id)) = (what.strip_prefix(STAYS), RunId::new(hash)) {
                self.known.add_to(&run.seen, report::workspace_stays(&id, why));
            }
            return None;
        }
        if run.accepted.as_ref().is_some_and(|it| it.run().removes_once_saved()) {
            run.cleared = Some(what);
        }
        Some(Event::Cleared)
    }

    fn write_logs(&mut self, hash: &str) -> Result<Option<Event>, String> {
        let Some(run) = self.runs.get_mut(hash) else { return Ok(None) };
        let over = run.over.get_or_insert_with(|| failed(125, "ocx: how the process ended was not told"));
        let (stderr, stdout) = (!over.tails.stderr.is_empty(), !over.tails.stdout.is_empty());
        let Some(handle) = run.handle.filter(|_| run.workspace.is_some() && (stderr || stdout)) else {
            return Ok(Some(Event::LogsWritten));
        };
        let mut memfds = Vec::new();
        for (wanted, name, bytes) in
            [(stderr, "stderr.log", &over.tails.stderr), (stdout, "stdout.log", &over.tails.stdout)]
        {
            if wanted {
                memfds.push(seal(name, bytes).map_err(|error| format!("{name}: {error}"))?);
            }
        }
        self.ask(hash, Do::WriteLogs, Request::WriteLogs { handle, stderr, stdout }, &memfds)?;
        Ok(None)
    }

    fn save_plan(&mut self, hash: &str) -> Result<(), String> {
        let Some(id) = RunId::new(hash) else { return Ok(()) };
        let Some(run) = self.runs.get(hash) else { return Ok(()) };
        let asked = read::run(&run.seen.message.content).ok();
        let Some(over) = &run.over else { return Ok(()) };
        let how = how_it_was(over, asked.as_ref());
        let logs = asked.as_ref().and_then(|asked| kept_log(&id, over, &asked.process.keep));
        let leftovers = over.leftovers;
        let plan = self.plan_for(hash, &id, asked.as_ref(), &how, logs);
        self.store.save_plan(hash, &plan).map_err(|error| format!("writing the plan: {error}"))?;
        if let Some(run) = self.runs.get_mut(hash) {
            let outputs = plan.files.into_iter().map(|file| (file.name, file.sha256)).collect();
            let workspace = run.saved.take().map(|saved| saved.map_or_else(|why| why, |()| PENDING.to_owned()));
            run.ended = Some(Ended { workspace, outputs, ..Ended::new(how) });
        }
        if leftovers > 0 {
            self.say(hash, &format!("{leftovers} processes it left had to be ended"));
        }
        Ok(())
    }

    fn save_ending(&mut self, hash: &str) -> Result<(), String> {
        let Some(id) = RunId::new(hash) else { return Ok(()) };
        let Some(run) = self.runs.get_mut(hash) else { return Ok(()) };
        run.posts.clear();
        // A stop that came while `started` was unknown: the one way here without an end decided (2.13).
        let cleared = run.cleared.take();
        let ended = run.ended.get_or_insert_with(|| Ended::new(How::Stopped));
        ended.workspace = cleared.or_else(|| ended.workspace.take());
        let record = Record::Ending { ended: report::ended(&id, ended), at: super::clock::utc_now() };
        let how = ended.how.clone();
        run.perhaps_posted = false;
        self.save(hash, &record)?;
        self.journal.ended(hash, &how);
        Ok(())
    }

    /// Tells the supervisor that what it told is durable here, and lets the tails go.
    pub(super) fn note_events(&mut self, hash: &str) {
        let Some(run) = self.runs.get_mut(hash) else { return };
        let Some(handle) = run.handle else { return };
        for event in &run.events {
            // An end of the link ends the node; the next one is told again.
            drop(self.link.tell(Request::Noted { handle, event: *event }));
        }
    }

    pub(super) fn post(&mut self, hash: &str, post: Post, text: String) {
        let Some(run) = self.runs.get_mut(hash) else { return };
        let now = Instant::now();
        let posting = if run.perhaps_posted && !supervisor::points::broken("looked-for") {
            Posting::perhaps_sent(text, now)
        } else {
            Posting::new(text, now)
        };
        run.perhaps_posted = false;
        run.posts.insert(post, posting);
    }

    fn ask(&self, hash: &str, effect: Do, request: Request, memfds: &[std::os::fd::OwnedFd]) -> Result<(), String> {
        let fds: Vec<_> = memfds.iter().map(|fd| fd.as_fd()).collect();
        let (me, run, registry) = (self.me.clone(), hash.to_owned(), self.registry.clone());
        self.link
            .ask(request, &fds, move |answer| {
                // On the reading thread, so that an event right behind the answer finds its run.
                if let Reply::Taken { handle } = answer.reply {
                    registry.taken(&run, handle, &me);
                } else if answer.reply == Reply::Released {
                    registry.released(&run);
                }
                // A lane that is gone takes the node with it.
                drop(me.send(Input::Answered(run, effect, answer)));
            })
            .map_err(|error| format!("the supervisor: {error}"))
    }

    fn save(&self, hash: &str, record: &Record) -> Result<(), String> {
        self.store.save_record(hash, record).map_err(|error| format!("writing the run's state: {error}"))
    }

    fn handle(&self, hash: &str) -> Result<u64, String> {
        self.runs.get(hash).and_then(|run| run.handle).ok_or_else(|| "the run is not in care".to_owned())
    }

    fn accepted(&self, hash: &str) -> Result<&crate::engine::check::Accepted, String> {
        let run = self.runs.get(hash).and_then(|run| run.accepted.as_deref());
        run.ok_or_else(|| "the run was not accepted".to_owned())
    }

    fn plan_memfd(&self, hash: &str) -> Result<std::os::fd::OwnedFd, String> {
        let plan = serde_json::to_vec(self.accepted(hash)?.plan()).map_err(|error| error.to_string())?;
        seal("plan", &plan).map_err(|error| format!("the plan's memfd: {error}"))
    }

    /// Asks once more, later, for an effect that was handed over and could not be done.
    fn try_again(&mut self, hash: &str, effect: Do) {
        if let Some(run) = self.runs.get_mut(hash) {
            run.todo.push_front(effect);
            run.again_at = Some(Instant::now() + EFFECT_WAIT);
        }
    }

    /// Goes on with what is left to do of a run that was just met.
    pub(super) fn go_on(&mut self, hash: &str) {
        if let Some(run) = self.runs.get_mut(hash) {
            run.again_at = Some(Instant::now());
        }
    }
}

/// A launch that failed, as a process that ended so (decisions C-45).
fn failed(code: u8, why: &str) -> Over {
    Over {
        end: supervisor::wire::message::End::Code(code),
        ended_by: EndedBy::Itself,
        leftovers: 0,
        tails: Tails { stderr: format!("{why}\n").into_bytes(), stdout: Vec::new() },
        ran: false,
    }
}

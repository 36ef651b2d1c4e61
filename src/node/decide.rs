//! Where a run newly met goes on, and the decisions of those that wait: facts gathered, `engine` asked.

use supervisor::wire::message::{EventNumber, Phase};

use super::lane::Lane;
use super::store::Record;
use crate::engine::advance::{Care, Kept, Resume, moves, resume};
use crate::engine::check::{self, CloneUser, Decision, Facts};
use crate::engine::report::{Ended, How};
use crate::protocol::life::{Do, Event, State};
use crate::protocol::names::RunId;

/// Most runs a lane tends at once; those past it wait for their turn. The supervisor's own bounds are for all lanes.
const IN_HAND_MAX: usize = 64;

/// Why a run of an earlier supervisor is lost.
const ORPHANED: &str = "its supervisor ended while it was in care";

impl Lane {
    /// Meets a run for the first time: what this host keeps of it says where it goes on.
    pub(super) fn meet(&mut self, hash: &str) {
        let found = self.registry.claim(hash, &self.me);
        let record = self.store.read(hash).unwrap_or_else(|why| {
            self.say(
                hash,
                &format!("its state is not believed: {why}; taken as launched, so it is not launched again"),
            );
            Some(Record::Taken { started: None })
        });
        let Some(run) = self.runs.get_mut(hash) else { return };
        let started_counts = self.known.counted(&run.seen, &self.user).started.is_some();
        let kept = match &record {
            None => Kept::Nothing,
            Some(Record::Taken { started }) => Kept::Taken { started: started.is_some() },
            Some(Record::Ending { .. }) => Kept::Ending,
            Some(Record::Done) => {
                let retrying = self.store.plan(hash).ok().flatten().is_some_and(|it| it.retried_for().is_some());
                Kept::Done { retrying }
            }
        };
        if let Some(Record::Taken { started }) = record {
            run.started = started;
        }
        let care = found.as_ref().map_or(Care::None, |it| it.care);
        let mut events = Vec::new();
        let mut what = None;
        if let Some(found) = found {
            run.handle = Some(found.handle);
            run.workspace = found.workspace;
            run.checkin = found.checkin;
            events = found.events;
            if let Some((event, ended)) = found.orphaned {
                run.events.push(event);
                what = Some(ended);
            }
        }
        if care == Care::None && kept == Kept::Nothing && !started_counts {
            run.perhaps_posted = false;
            return;
        }
        match resume(kept, care, started_counts) {
            Resume::Anew { release } => {
                run.perhaps_posted = false;
                if release {
                    run.todo = [Do::NoteEvents, Do::Release].into_iter().collect();
                    self.go_on(hash);
                }
            }
            Resume::Lost => self.lost(hash, what.as_deref(), care),
            Resume::At(state, effects) => {
                run.state = state;
                run.perhaps_posted = true;
                if state == State::Settled {
                    return;
                }
                self.journal.adopted(hash, state);
                super::log::say(&format!("run {}: adopted, {state}", super::log::short(hash)));
                if matches!(state, State::Starting | State::Launching) && !self.accept_again(hash) {
                    self.set_state(hash, State::Unseen);
                    self.lost(hash, Some("the run could not be decided again"), care);
                    return;
                }
                // For what follows its end; a run that would not be accepted any more goes on all the same (C-29).
                if state == State::Running && !self.accept_again(hash) {
                    self.say(hash, "it would not be accepted as it is now; it goes on");
                }
                if care == Care::Held(Phase::Exited) && events.is_empty() && state == State::Running {
                    self.say(hash, "its process is over; waiting for the supervisor to tell how");
                }
                if let Some(run) = self.runs.get_mut(hash) {
                    run.todo = effects.iter().copied().collect();
                }
                for told in events {
                    self.told(hash, told);
                }
                self.go_on(hash);
            }
        }
    }

    fn set_state(&mut self, hash: &str, state: State) {
        if let Some(run) = self.runs.get_mut(hash) {
            run.state = state;
        }
    }

    /// A run met as in care turns out to be an earlier supervisor's: only now nothing of it lives.
    pub(super) fn orphaned(&mut self, hash: &str, event: EventNumber, what: &str) {
        let Some(run) = self.runs.get_mut(hash) else { return };
        if !run.events.contains(&event) {
            run.events.push(event);
        }
        if moves(run.state, Event::Orphaned) {
            run.posts.clear();
            let note = format!("{ORPHANED}: {what}");
            run.ended = Some(Ended::new(How::Lost { note }));
        }
        self.fire(hash, Event::Orphaned);
    }

    fn lost(&mut self, hash: &str, what: Option<&str>, care: Care) {
        let why = match care {
            Care::Orphaned(_) => ORPHANED,
            Care::Held(_) => "it was taken, and what this host keeps of it does not agree",
            Care::None => "it was taken by this host and is not in its care any more",
        };
        let note = what.map_or_else(|| why.to_owned(), |what| format!("{why}: {what}"));
        if let Some(run) = self.runs.get_mut(hash) {
            run.perhaps_posted = false;
            run.ended = Some(Ended::new(How::Lost { note }));
        }
        self.fire(hash, Event::Lost);
    }

    /// Decides a run that waits; from a decision on it is taken.
    pub(super) fn decide(&mut self, hash: &str) {
        let Some(run) = self.runs.get(hash) else { return };
        if run.state != State::Unseen || !run.todo.is_empty() {
            return;
        }
        let in_hand = self.runs.values().filter(|it| !matches!(it.state, State::Unseen | State::Settled)).count();
        if in_hand >= IN_HAND_MAX {
            self.waits(hash, "this clone has as many runs in hand as it tends at once");
            return;
        }
        match self.decision(hash) {
            Some(Decision::Wait(why)) => self.waits(hash, why),
            Some(Decision::Refuse(_) | Decision::Stopped | Decision::Accept(_)) => self.fire(hash, Event::Decided),
            None => {}
        }
    }

    pub(super) fn waits(&mut self, hash: &str, why: &str) {
        if let Some(run) = self.runs.get_mut(hash)
            && run.why_waiting.as_deref() != Some(why)
        {
            run.why_waiting = Some(why.to_owned());
            self.say(hash, &format!("waits: {why}"));
        }
    }

    /// In care: decides again, and says which event that is.
    pub(super) fn decide_in_care(&mut self, hash: &str) -> Option<Event> {
        let decision = self.decision(hash)?;
        let run = self.runs.get_mut(hash)?;
        Some(match decision {
            Decision::Wait(_) => Event::Waits,
            Decision::Refuse(refusal) => {
                run.ended = Some(Ended::new(How::Refused { note: refusal.note }));
                Event::Refused
            }
            Decision::Stopped => {
                run.ended = Some(Ended::new(How::Stopped));
                Event::StoppedFirst
            }
            Decision::Accept(accepted) => {
                run.accepted = Some(accepted);
                Event::Accepted
            }
        })
    }

    /// Reads an adopted run again, for its plan; no when it would not be accepted now.
    fn accept_again(&mut self, hash: &str) -> bool {
        let stop = self.runs.get_mut(hash).map(|run| std::mem::replace(&mut run.stop, false));
        let decision = self.decision(hash);
        let Some(run) = self.runs.get_mut(hash) else { return false };
        run.stop = stop.unwrap_or(false);
        let Some(Decision::Accept(mut accepted)) = decision else { return false };
        if run.checkin.as_deref().is_some_and(|checkin| accepted.set_checkin(checkin).is_err()) {
            return false;
        }
        if run.workspace.is_none() {
            run.workspace = accepted.plan().workspace.clone();
        }
        run.accepted = Some(accepted);
        true
    }

    fn decision(&self, hash: &str) -> Option<Decision> {
        let run = self.runs.get(hash)?;
        let id = RunId::new(hash)?;
        let sender = self.known.sender(run.seen.receipt.from.as_deref());
        let clone_user = CloneUser { login: self.user.clone(), letters: self.known.letters().to_owned() };
        let in_care = |other: &&super::tending::Tending| other.seen.hash != *hash && other.handle.is_some();
        let other_r_run_in_care = self
            .runs
            .values()
            .filter(in_care)
            .any(|other| other.accepted.as_ref().is_some_and(|it| it.is_from_r_alone()));
        let workspaces_in_care: Vec<String> =
            self.runs.values().filter(in_care).filter_map(|other| other.workspace.clone()).collect();
        Some(check::decide(&Facts {
            run: &id,
            message: &run.seen.message,
            sender: sender.as_ref(),
            clone_user: &clone_user,
            host: &self.host,
            named_as_to: &self.known.named_as_to(),
            users: self.known.users(),
            stop_stands: run.stop,
            other_r_run_in_care,
            workspaces_in_care: &workspaces_in_care,
        }))
    }
}

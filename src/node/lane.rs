//! One clone's lane: tends the clone's runs, one input at a time. It never waits for the server nor the supervisor; what
//! happens comes as inputs, what is to be done goes to the link or the voice.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender};
use std::time::{Duration, Instant};

use serde_json::json;
use supervisor::points::{Moment, reach};
use supervisor::wire::message::Event as SupervisorEvent;
use supervisor::wire::plan::KEEP_BYTES_MAX;

use super::care::Registry;
use super::gather::{Gathered, Gatherer, NotGathered};
use super::journal::Journal;
use super::known::Known;
use super::link::{Answer, Link, Told};
use super::listener::{Round, Watched};
use super::log::{Log, say, short};
use super::porter::Errand;
use super::poster::{Act, Done, Job, Post};
use super::posting::Outcome;
use super::present::Shown;
use super::publication_plan::PlannedFile;
use super::store::Store;
use super::tending::{Over, Tails, Tending};
use crate::engine::advance::{advance, moves};
use crate::engine::check;
use crate::protocol::kinds::Kind;
use crate::protocol::life::{Do, Event, State};

/// Wait before an effect that failed is tried again.
pub(super) const EFFECT_WAIT: Duration = Duration::from_secs(2);
/// Longest sleep of a lane with nothing to do.
const IDLE_WAIT: Duration = Duration::from_secs(3600);

/// What comes to a lane.
#[derive(Debug)]
pub enum Input {
    /// A completed pull.
    Round(Round),
    /// A round failed, and why.
    Unheard(String),
    /// The supervisor's answer to an effect asked for a run.
    Answered(String, Do, Answer),
    /// An event of the supervisor about a run.
    Told(String, Told),
    /// What became of a post, a file or a verdict.
    Posted(Done),
    /// The files a run is to send, with their hashes; and of one that asks its workspace's removal, whether all is saved.
    Hashed(String, Vec<PlannedFile>, Option<Result<(), String>>),
    /// What a run's steps need, or why it is not to be had.
    Gathered(String, Result<Gathered, NotGathered>),
}

/// How the server was heard last, for people.
#[derive(Debug, Default)]
pub struct Ear {
    /// When the last whole pull was told.
    pub(super) pulled: Option<Instant>,
    /// Since when it fails, and why.
    pub(super) trouble: Option<(Instant, String)>,
}

/// What a lane works with.
#[derive(Debug)]
pub struct Lane {
    /// The project's name.
    pub name: String,
    /// The clone's server-code.
    pub server_code: String,
    /// The clone's user.
    pub user: String,
    /// What this host's owner allows and what OCX sets.
    pub host: check::Host,
    /// The setting that lets runs without a sandbox run; none where this host could not end them.
    pub unconfined_at: Option<std::path::PathBuf>,
    /// The way to the supervisor.
    pub link: Arc<Link>,
    /// What is in care.
    pub registry: Arc<Registry>,
    /// Durable state.
    pub store: Store,
    /// The node's log.
    pub log: Arc<Log>,
    /// The runs' own logs.
    pub journal: Journal,
    /// What people are shown of the lane.
    pub shown: Shown,
    /// How the server was heard last.
    pub ear: Ear,
    /// The lane's own input, for those who answer it.
    pub me: Sender<Input>,
    /// The voice.
    pub voice: Sender<Job>,
    /// The porter.
    pub porter: Sender<Errand>,
    /// What gathers what steps need.
    pub gatherer: Gatherer,
    /// Whose rights each round must ask.
    pub watched: Watched,
    /// What the clone's messages say.
    pub known: Known,
    /// Runs that a publish may name that was not heard yet.
    pub(super) published: BTreeSet<String>,
    /// The runs it tends.
    pub(super) runs: BTreeMap<String, Tending>,
    /// Whether it serves: not when the clone's user holds admin or setup (decisions C-34).
    pub(super) serves: bool,
}

impl Lane {
    /// Works until nobody is left to send it anything.
    pub fn work(mut self, inputs: &Receiver<Input>) {
        loop {
            let wait = self.next_deadline().map_or(IDLE_WAIT, |at| at.saturating_duration_since(Instant::now()));
            match inputs.recv_timeout(wait) {
                Ok(input) => self.take(input),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.tick(Instant::now());
            self.show();
        }
    }

    fn take(&mut self, input: Input) {
        match input {
            Input::Round(round) => {
                self.ear = Ear { pulled: Some(Instant::now()), trouble: None };
                self.round(round);
            }
            Input::Unheard(why) => {
                let since = self.ear.trouble.as_ref().map_or_else(Instant::now, |(since, _)| *since);
                self.ear.trouble = Some((since, why));
            }
            Input::Answered(run, asked, answer) => {
                reach(asked, Moment::Answered);
                if let Some(event) = self.answered(&run, asked, &answer) {
                    self.fire(&run, event);
                }
                if asked == Do::Release {
                    self.decide_waiting();
                }
            }
            Input::Told(run, told) => self.told(&run, told),
            Input::Posted(done) => self.posted(done),
            Input::Hashed(run, files, saved) => {
                reach(Do::HashFiles, Moment::Answered);
                if let Some(tending) = self.runs.get_mut(&run) {
                    tending.files = files;
                    tending.saved = saved;
                }
                self.fire(&run, Event::FilesHashed);
            }
            Input::Gathered(run, gathered) => self.gathered(&run, gathered),
        }
    }

    /// A completed pull: learn, meet new runs, decide those that wait, look for posts of unknown fate.
    fn round(&mut self, round: Round) {
        let (asked_at, first) = (round.asked_at, round.first);
        let governs = round.caller.letters.contains(['a', 's']);
        if governs == self.serves {
            self.serves = !governs;
            if governs {
                self.say_lane("the clone's user holds admin or setup on the server: this clone is not served");
                self.log.event(&self.name, "end", json!({ "why": "the clone's user holds admin or setup" }));
            }
        }
        let learned = self.known.learn(round, &self.user, &self.server_code);
        self.log.event(&self.name, "round", json!({ "passed": learned.passed }));
        for seen in learned.ours {
            let hash = seen.hash.clone();
            self.runs.insert(hash.clone(), Tending::new(seen, first));
            self.meet(&hash);
        }
        self.published.extend(learned.published);
        if !self.serves {
            return;
        }
        // C-63: the owner's ceiling for R is read anew; none, or one that cannot be read, allows nothing.
        let ceiling = std::path::Path::new(&self.host.release).join("r-senders.json");
        self.host.r_senders =
            std::fs::read_to_string(ceiling).ok().and_then(|text| crate::engine::ceiling::read(&text).ok());
        // V2-2.3-17: the owner may change his mind at any time; the supervisor looks again.
        self.host.unconfined = self.unconfined_at.as_ref().is_some_and(|at| at.symlink_metadata().is_ok());
        let now = Instant::now();
        let unsettled: Vec<String> =
            self.runs.iter().filter(|(_, run)| run.state != State::Settled).map(|(hash, _)| hash.clone()).collect();
        for hash in &unsettled {
            self.hear_reports(hash);
        }
        self.decide_waiting();
        for hash in std::mem::take(&mut self.published) {
            self.hear_publishes(&hash, first);
        }
        for misplaced in learned.misplaced {
            let run = misplaced.message.re.as_ref().and_then(|re| self.runs.get(re));
            let over = |it: &&Tending| it.state == State::Settled && misplaced.message.known_kind() == Some(Kind::Stop);
            if let Some(run) = run.filter(|it| !over(it)) {
                self.known.reply_to(misplaced, &run.seen.clone(), &self.user, first);
            }
        }
        self.known.look_for_replies(asked_at, now, &self.voice);
        for (hash, run) in &mut self.runs {
            for (post, posting) in &mut run.posts {
                if let Some(act) = posting.completed(asked_at, now) {
                    hand_over(&self.voice, hash, *post, run.seen.place.clone(), posting.text.clone(), act);
                }
            }
        }
        self.watch();
    }

    /// Decides the runs that wait, in the server's order (V2-2.1-20).
    fn decide_waiting(&mut self) {
        let mut waiting: Vec<(u64, u64, String)> = self
            .runs
            .iter()
            .filter(|(_, run)| run.state == State::Unseen)
            .map(|(hash, run)| (run.seen.receipt.receipt, run.seen.receipt.row, hash.clone()))
            .collect();
        waiting.sort();
        for (_, _, hash) in waiting {
            self.decide(&hash);
        }
    }

    /// Counted reports and stops of a run that came with this or an earlier pull.
    fn hear_reports(&mut self, hash: &str) {
        let Some(run) = self.runs.get(hash) else { return };
        let counted = self.known.counted(&run.seen, &self.user);
        if let Some(ended) = counted.ended
            && moves(run.state, Event::EndedConfirmed)
        {
            self.say(hash, &format!("the server has its ended, {}", short(&ended)));
            // Seen there, it is never sent again, whatever becomes of an attempt still under way.
            if let Some(run) = self.runs.get_mut(hash) {
                run.posts.remove(&Post::Ended);
                run.ended_hash = Some(ended);
            }
            self.fire(hash, Event::EndedConfirmed);
            return;
        }
        if let Some(started) = counted.started
            && let Some(run) = self.runs.get_mut(hash)
            && moves(run.state, Event::StartedConfirmed)
            && run.posts.remove(&Post::Started).is_some()
        {
            run.started = Some(started);
            self.fire(hash, Event::StartedConfirmed);
        }
        if counted.stop
            && let Some(run) = self.runs.get_mut(hash)
            && !run.stop
        {
            run.stop = true;
            // With the launch not asked for yet there is no process to stop, and none is made any more.
            let unlaunched = run.todo.contains(&Do::Launch);
            if run.state != State::Settled {
                self.say(hash, "a stop stands");
            }
            self.fire(hash, if unlaunched { Event::StoppedFirst } else { Event::StopStands });
        }
    }

    /// Runs whose rights the next round must ask again, and no others.
    fn watch(&self) {
        let mut logins = std::collections::BTreeSet::new();
        for run in self.runs.values().filter(|run| run.state == State::Unseen) {
            logins.extend(run.seen.receipt.from.clone());
            logins.extend(check::process_user_of(&run.seen.message).map(str::to_owned));
        }
        *self.watched.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = logins;
    }

    /// An event of the supervisor.
    pub(super) fn told(&mut self, hash: &str, told: Told) {
        if let SupervisorEvent::Orphaned { event, what, .. } = told.event {
            return self.orphaned(hash, event, &what);
        }
        let SupervisorEvent::Exited { event, end, ended_by, leftovers, .. } = told.event else { return };
        let Some(run) = self.runs.get_mut(hash) else { return };
        if run.events.contains(&event) {
            return;
        }
        run.events.push(event);
        let mut tails = told.descriptors.iter().map(|fd| {
            supervisor::wire::frame::read_sealed(fd, KEEP_BYTES_MAX)
                .unwrap_or_else(|error| format!("ocx: the kept end could not be read: {error}\n").into_bytes())
        });
        let tails = Tails { stderr: tails.next().unwrap_or_default(), stdout: tails.next().unwrap_or_default() };
        run.over = Some(Over { end, ended_by, leftovers, tails, ran: true });
        self.fire(hash, Event::Exited);
    }

    fn posted(&mut self, done: Done) {
        if done.post == Post::Reply {
            if let Some(run) = self.known.replied(&done) {
                self.publish_answered(&run, &done.run);
            }
            return;
        }
        let Some(run) = self.runs.get_mut(&done.run) else { return };
        let Some(posting) = run.posts.get_mut(&done.post) else { return };
        match posting.fate(done.fate, done.at) {
            Outcome::Confirmed(hash) => {
                run.posts.remove(&done.post);
                self.confirmed(&done.run, done.post, hash);
            }
            Outcome::Failed(why) if !matches!(done.post, Post::Started | Post::Ended) => {
                run.posts.remove(&done.post);
                self.publication(&done.run, done.post, Err(why));
            }
            Outcome::Failed(why) => {
                self.say(&done.run, &format!("{} refused by the server: {why}; trying again later", word(done.post)));
            }
            Outcome::Waiting(why) => self.say(&done.run, &format!("{}: {why}", word(done.post))),
        }
    }

    fn confirmed(&mut self, hash: &str, post: Post, report: Option<String>) {
        self.say(hash, &format!("{} is on the server", word(post)));
        match post {
            Post::Started => {
                if let Some(run) = self.runs.get_mut(hash) {
                    run.started = report;
                }
                self.fire(hash, Event::StartedConfirmed);
            }
            Post::Ended => {
                if let Some(run) = self.runs.get_mut(hash) {
                    run.ended_hash = report;
                }
                self.fire(hash, Event::EndedConfirmed);
            }
            Post::Logs | Post::File | Post::Files | Post::Verdict | Post::NoVerdict => {
                self.publication(hash, post, Ok(()));
            }
            Post::Reply => {}
        }
    }

    /// Moves a run by one event and carries out what LIFE says, with the events that follow at once.
    pub(super) fn fire(&mut self, hash: &str, event: Event) {
        let mut next = Some(event);
        while let Some(event) = next.take() {
            let Some(run) = self.runs.get_mut(hash) else { return };
            match advance(run.state, event) {
                Ok(step) => {
                    if step.to != run.state {
                        run.since = Instant::now();
                        self.journal.step(hash, event, step.to);
                    }
                    if step.to == run.state {
                        // What is still to be done stays to be done.
                        run.todo.extend(step.effects);
                    } else if !step.effects.is_empty() {
                        run.todo = step.effects.iter().copied().collect();
                        run.again_at = None;
                    }
                    run.state = step.to;
                }
                Err(out_of_turn) => {
                    self.say(hash, &format!("passed over: {out_of_turn}"));
                    return;
                }
            }
            next = self.carry_on(hash);
        }
    }

    /// Carries out what is left to do of a run, in order, until an effect fails or an event follows.
    fn carry_on(&mut self, hash: &str) -> Option<Event> {
        loop {
            let effect = *self.runs.get(hash)?.todo.front()?;
            reach(effect, Moment::Before);
            match self.carry(hash, effect) {
                Ok(event) => {
                    reach(effect, Moment::After);
                    let run = self.runs.get_mut(hash)?;
                    run.todo.pop_front();
                    run.trouble = None;
                    if event.is_some() {
                        return event;
                    }
                }
                Err(why) => {
                    let run = self.runs.get_mut(hash)?;
                    run.again_at = Some(Instant::now() + EFFECT_WAIT);
                    let since = run.trouble.take().map_or_else(Instant::now, |(since, _)| since);
                    run.trouble = Some((since, why.clone()));
                    self.say(
                        hash,
                        &format!("{effect}: {why}; waiting {} s before it is tried again", EFFECT_WAIT.as_secs()),
                    );
                    return None;
                }
            }
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let posts = self.runs.values().flat_map(|run| run.posts.values()).filter_map(super::posting::Posting::next);
        let again = self.runs.values().filter_map(|run| run.again_at);
        posts.chain(again).chain(self.known.next_reply()).chain(self.shown.due()).min()
    }

    /// What is due: effects that failed, and posts to be sent.
    fn tick(&mut self, now: Instant) {
        let again: Vec<String> = self
            .runs
            .iter()
            .filter(|(_, run)| run.again_at.is_some_and(|at| at <= now))
            .map(|(hash, _)| hash.clone())
            .collect();
        for hash in again {
            if let Some(run) = self.runs.get_mut(&hash) {
                run.again_at = None;
            }
            if let Some(event) = self.carry_on(&hash) {
                self.fire(&hash, event);
            }
        }
        let mut errands = Vec::new();
        for (hash, run) in &mut self.runs {
            for (post, posting) in &mut run.posts {
                match (posting.due(now), post) {
                    (None, _) => {}
                    (Some(_), Post::File | Post::Verdict) => errands.push(hash.clone()),
                    (Some(act), post) => {
                        hand_over(&self.voice, hash, *post, run.seen.place.clone(), posting.text.clone(), act);
                    }
                }
            }
        }
        for hash in errands {
            self.errand(&hash);
        }
        self.known.send_replies(now, &self.voice);
    }

    /// One line about a run, for the log.
    pub(super) fn say(&self, hash: &str, what: &str) {
        say(&format!("run {}: {what}", short(hash)));
        self.journal.say(hash, what);
    }

    pub(super) fn say_lane(&self, what: &str) {
        say(&format!("lane {}: {what}", self.name));
    }
}

/// Hands a post to the voice. A voice that is gone takes the node with it.
fn hand_over(voice: &Sender<Job>, run: &str, post: Post, place: crate::fossil::Place, text: String, act: Act) {
    drop(voice.send(Job { run: run.to_owned(), post, answers: run.to_owned(), place, text, act }));
}

pub(super) fn word(post: Post) -> &'static str {
    match post {
        Post::Started => "started",
        Post::Ended => "ended",
        Post::Logs => "the kept log",
        Post::File => "a file",
        Post::Files => "the reply about its files",
        Post::Verdict => "the verdict",
        Post::NoVerdict => "the reply about its verdict",
        Post::Reply => "a reply",
    }
}

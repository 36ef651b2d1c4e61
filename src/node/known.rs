//! What a clone's messages say, as received: every run ever named, the reports and stops of each, and what was misplaced.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::mpsc::Sender;
use std::time::Instant;

use super::listener::{Round, Seen};
use super::log::{say, short};
use super::poster::{Done, Job, Post, same_place};
use super::posting::{Outcome, Posting};
use super::publish::counts;
use crate::engine::check::{self, ReportFacts, User};
use crate::engine::expand::Values;
use crate::engine::report;
use crate::fossil::Place;
use crate::protocol::kinds::Kind;
use crate::protocol::names::RunId;
use crate::protocol::values::ValueName;

/// What is remembered of any run in the clone, ours or not.
#[derive(Debug)]
struct Named {
    to: Option<String>,
    sender: Option<String>,
    place: Place,
}

/// A reply to a stop or publish, on its way.
#[derive(Debug)]
struct Reply {
    posting: Posting,
    place: Place,
    /// The run whose plan is to remember that it was posted, if one is.
    of: Option<String>,
}

/// Everything learned.
#[derive(Debug, Default)]
pub struct Known {
    named: BTreeMap<String, Named>,
    /// Messages with `re`, by the run they name.
    answers: BTreeMap<String, Vec<Seen>>,
    /// What the receipt tool last said of each user asked about.
    users: BTreeMap<String, Option<User>>,
    replies: BTreeMap<String, Reply>,
    /// The clone's user's letters, as last told.
    letters: String,
}

/// What one round brought for the lane.
#[derive(Debug, Default)]
pub struct Learned {
    /// Runs addressed to this clone.
    pub ours: Vec<Seen>,
    /// Runs newly read and passed by (2.13).
    pub passed: Vec<String>,
    /// Stops and publishes that stand elsewhere than their run.
    pub misplaced: Vec<Seen>,
    /// Runs of ours that a publish may name.
    pub published: BTreeSet<String>,
}

/// What counts of a run's answers.
#[derive(Debug, Default)]
pub struct Counted {
    /// Hash of the counted `started`.
    pub started: Option<String>,
    /// Hash of the counted `ended`.
    pub ended: Option<String>,
    /// Whether a stop that counts stands.
    pub stop: bool,
}

impl Known {
    /// Takes in a round.
    pub fn learn(&mut self, round: Round, user: &str, server_code: &str) -> Learned {
        for (login, rights) in round.users {
            let rights = rights.map(|it| User { admin: it.admin, setup: it.setup, letters: it.letters, node: it.node });
            self.users.insert(login, rights);
        }
        self.letters = round.caller.letters;
        let mut learned = Learned::default();
        for seen in round.seen {
            match seen.message.known_kind() {
                Some(Kind::Run) => {
                    let named = Named {
                        to: seen.message.to.clone(),
                        sender: seen.receipt.from.clone(),
                        place: seen.place.clone(),
                    };
                    self.named.insert(seen.hash.clone(), named);
                    if check::address(&seen.message, user, server_code) {
                        // A publish may have become known before it.
                        learned.published.insert(seen.hash.clone());
                        learned.ours.push(seen);
                    } else {
                        learned.passed.push(seen.hash);
                    }
                }
                Some(Kind::Stop | Kind::Publish) => {
                    if let Some(run) = &seen.message.re {
                        // A stop received before its run's own place is known is judged when the run has come.
                        if self.named.get(run).is_some_and(|it| !same_place(&it.place, &seen.place)) {
                            learned.misplaced.push(seen.clone());
                        } else if seen.message.known_kind() == Some(Kind::Publish) {
                            learned.published.insert(run.clone());
                        }
                        self.answers.entry(run.clone()).or_default().push(seen);
                    }
                }
                Some(Kind::Started | Kind::Ended) => {
                    if let Some(run) = &seen.message.re {
                        self.answers.entry(run.clone()).or_default().push(seen);
                    }
                }
                Some(Kind::Question | Kind::Decision) | None => {}
            }
        }
        learned
    }

    /// A sender's rights as last told; nothing while they are unknown.
    #[must_use]
    pub fn sender(&self, login: Option<&str>) -> Option<check::Sender> {
        let Some(login) = login else { return Some(check::Sender::default()) };
        let held = self.users.get(login)?;
        let r = held.as_ref().is_some_and(|it| it.letters.contains('R'));
        let (admin, setup) = held.as_ref().map_or((false, false), |it| (it.admin, it.setup));
        Some(check::Sender { login: Some(login.to_owned()), admin, setup, r })
    }

    /// Which answers of a run count.
    #[must_use]
    pub fn counted(&self, run: &Seen, user: &str) -> Counted {
        let mut counted = Counted::default();
        let Some(id) = RunId::new(&run.hash) else { return counted };
        let run_sender = self.sender(run.receipt.from.as_deref()).unwrap_or_default();
        for seen in self.answers.get(&run.hash).into_iter().flatten() {
            let from = seen.receipt.from.as_deref();
            let in_the_runs_place = same_place(&seen.place, &run.place);
            let facts = ReportFacts {
                message: &seen.message,
                from,
                in_the_runs_place,
                run: &id,
                to: user,
                run_sender: &run_sender,
            };
            match check::report_counts(&facts) {
                Some(Kind::Started) => counted.started = counted.started.or_else(|| Some(seen.hash.clone())),
                Some(Kind::Ended) => counted.ended = counted.ended.or_else(|| Some(seen.hash.clone())),
                Some(Kind::Run | Kind::Stop | Kind::Publish | Kind::Question | Kind::Decision) | None => {}
            }
            let may_stop = self.sender(from).is_some_and(|it| check::stop_allowed(&it, run.receipt.from.as_deref()));
            if in_the_runs_place && may_stop && check::stop_of(&seen.message).as_ref() == Some(&id) {
                counted.stop = true;
            }
        }
        counted
    }

    /// The publishes of a run that count and stand where it is, in the server's order.
    #[must_use]
    pub fn publishes(&self, run: &Seen, user: &str) -> Vec<Seen> {
        let counts = |it: &&Seen| {
            let sender = self.sender(it.receipt.from.as_deref());
            same_place(&it.place, &run.place) && sender.is_some_and(|sender| counts(it, run, user, &sender))
        };
        self.answers.get(&run.hash).into_iter().flatten().filter(counts).cloned().collect()
    }

    /// The counted report of this kind, of a run.
    fn report(&self, run: &Seen, user: &str, kind: Kind) -> Option<&Seen> {
        let counted = self.counted(run, user);
        let hash = if kind == Kind::Started { counted.started } else { counted.ended };
        let hash = hash?;
        self.answers.get(&run.hash)?.iter().find(|it| it.hash == hash)
    }

    /// The values that the counted `started` of a run has.
    #[must_use]
    pub fn started_values(&self, run: &Seen, user: &str) -> Option<Values> {
        let started = report::read_started(&self.report(run, user, Kind::Started)?.message)?;
        Some(started.values.into_iter().filter_map(|(name, it)| Some((ValueName::from_word(&name)?, it))).collect())
    }

    /// The outcome in the counted `ended` of a run.
    #[must_use]
    pub fn outcome(&self, run: &Seen, user: &str) -> Option<String> {
        Some(report::read_ended(&self.report(run, user, Kind::Ended)?.message)?.outcome)
    }

    /// Logins that a run from a user who may send runs ever named as its `to` (decisions C-31).
    #[must_use]
    pub fn named_as_to(&self) -> BTreeSet<String> {
        self.named
            .values()
            .filter(|it| self.sender(it.sender.as_deref()).is_some_and(|sender| sender.may_send_runs()))
            .filter_map(|it| it.to.clone())
            .collect()
    }

    /// What the receipt tool said of the users asked about.
    #[must_use]
    pub fn users(&self) -> &BTreeMap<String, Option<User>> {
        &self.users
    }

    /// The clone's user's letters.
    #[must_use]
    pub fn letters(&self) -> &str {
        &self.letters
    }

    /// Readies the reply to a stop or publish that stands elsewhere than its run, to a sender who could send it (decisions
    /// C-20, C-37). `looked_for`: a process before this one may have replied.
    pub fn reply_to(&mut self, misplaced: Seen, run: &Seen, user: &str, looked_for: bool) {
        let Some(id) = RunId::new(&run.hash) else { return };
        let Some(sender) = self.sender(misplaced.receipt.from.as_deref()) else { return };
        let stops = check::stop_of(&misplaced.message).as_ref() == Some(&id)
            && check::stop_allowed(&sender, run.receipt.from.as_deref());
        let kind = if stops {
            Kind::Stop
        } else if counts(&misplaced, run, user, &sender) {
            Kind::Publish
        } else {
            return;
        };
        let place = match &run.place {
            Place::Thread { .. } => report::Place::Thread(&run.hash),
            Place::Ticket { id } => report::Place::Ticket(id),
        };
        let text = report::misplaced(kind, &id, place);
        self.reply(misplaced, text, None, looked_for);
    }

    /// Readies the reply that says why a publish did nothing.
    pub fn answer_publish(&mut self, publish: Seen, run: &str, text: String, looked_for: bool) {
        self.reply(publish, text, Some(run.to_owned()), looked_for);
    }

    /// Readies a reply to a run itself, of what came after all else that is said of it.
    pub fn add_to(&mut self, run: &Seen, text: String) {
        self.reply(run.clone(), text, None, false);
    }

    fn reply(&mut self, to: Seen, text: String, of: Option<String>, looked_for: bool) {
        let now = Instant::now();
        let posting = if looked_for { Posting::perhaps_sent(text, now) } else { Posting::new(text, now) };
        self.replies.insert(to.hash, Reply { posting, place: to.place, of });
    }

    /// When the next reply is due.
    #[must_use]
    pub fn next_reply(&self) -> Option<Instant> {
        self.replies.values().filter_map(|it| it.posting.next()).min()
    }

    /// Hands over the replies that are due.
    pub fn send_replies(&mut self, now: Instant, voice: &Sender<Job>) {
        for (stop, reply) in &mut self.replies {
            if let Some(act) = reply.posting.due(now) {
                hand_over(voice, stop, reply, act);
            }
        }
    }

    /// A pull was completed: looks for replies of unknown fate.
    pub fn look_for_replies(&mut self, asked_at: Instant, now: Instant, voice: &Sender<Job>) {
        for (stop, reply) in &mut self.replies {
            if let Some(act) = reply.posting.completed(asked_at, now) {
                hand_over(voice, stop, reply, act);
            }
        }
    }

    /// What became of a reply. The run whose publish has its answer now, if it is one.
    pub fn replied(&mut self, done: &Done) -> Option<String> {
        let reply = self.replies.get_mut(&done.run)?;
        match reply.posting.fate(done.fate.clone(), done.at) {
            Outcome::Confirmed(_) | Outcome::Failed(_) => self.replies.remove(&done.run)?.of,
            Outcome::Waiting(why) => {
                say(&format!("reply to {}: {why}", short(&done.run)));
                None
            }
        }
    }
}

fn hand_over(voice: &Sender<Job>, stop: &str, reply: &Reply, act: super::poster::Act) {
    let (run, answers) = (stop.to_owned(), stop.to_owned());
    // A voice that is gone takes the node with it.
    drop(voice.send(Job {
        run,
        post: Post::Reply,
        answers,
        place: reply.place.clone(),
        text: reply.posting.text.clone(),
        act,
    }));
}

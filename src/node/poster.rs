//! One clone's voice: posts texts where runs are, one after another, and looks for those whose fate is unknown.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::time::Instant;

use supervisor::points::{Moment, reach};

use super::lane::Input;
use crate::fossil::{Again, Ask, CloneFile, Place, Posted, Program, Session};

/// What a post is in its run's life.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Post {
    /// The `started` report.
    Started,
    /// The `ended` report.
    Ended,
    /// The kept-log reply.
    Logs,
    /// An unversioned file.
    File,
    /// The reply that names the unversioned files.
    Files,
    /// The verdict.
    Verdict,
    /// The reply that says why no verdict was written.
    NoVerdict,
    /// A reply to a stop or publish: that it is misplaced, or why nothing is done.
    Reply,
}

/// One job of the voice.
#[derive(Debug)]
pub struct Job {
    /// The run.
    pub run: String,
    /// Which of its posts.
    pub post: Post,
    /// The artifact it answers: the run itself.
    pub answers: String,
    /// Where that stands.
    pub place: Place,
    /// The exact text.
    pub text: String,
    /// Send it, or look whether it was stored.
    pub act: Act,
}

/// What a job does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Act {
    /// Posts the text.
    Send,
    /// Looks for it in the clone, as sent by us.
    Look,
}

/// What became of a job.
#[derive(Debug, Clone)]
pub enum Fate {
    /// The server has it; its full hash where it is known.
    Stored(Option<String>),
    /// Not stored; it can be sent again later.
    Later(String),
    /// Definitely refused, with why.
    Never(String),
    /// No answer: perhaps stored.
    Unknown(String),
    /// Looked for and not in the clone.
    Absent,
}

/// The answer to a job.
#[derive(Debug)]
pub struct Done {
    /// The job's run.
    pub run: String,
    /// The job's post.
    pub post: Post,
    /// What became of it.
    pub fate: Fate,
    /// When the attempt ended.
    pub at: Instant,
}

/// The voice of one lane.
#[derive(Debug)]
pub struct Poster {
    /// Signed in as the clone's user.
    pub session: Arc<Session>,
    /// The Fossil program, for a clone left with a journal.
    pub program: Program,
    /// The clone's file.
    pub file: PathBuf,
    /// The lane.
    pub to_lane: Sender<Input>,
}

impl Poster {
    /// Works until the lane is gone.
    pub fn work(self, jobs: &Receiver<Job>) {
        while let Ok(job) = jobs.recv() {
            let fate = match job.act {
                Act::Send => self.send(&job),
                Act::Look => self.look(&job),
            };
            let done = Done { run: job.run, post: job.post, fate, at: Instant::now() };
            if self.to_lane.send(Input::Posted(done)).is_err() {
                return;
            }
        }
    }

    fn send(&self, job: &Job) -> Fate {
        reach(job.post, Moment::Before);
        let posted = match &job.place {
            Place::Thread { .. } => self.session.reply(&job.answers, &job.text),
            Place::Ticket { id } => self.session.change_ticket(id, &job.text),
        };
        reach(job.post, Moment::Answered);
        match posted {
            Posted::Stored { hash_digits, .. } => Fate::Stored(hash_digits.filter(|it| it.len() >= 40)),
            Posted::NotStored { why, again: Again::AtOnce | Again::Later } => Fate::Later(why),
            Posted::NotStored { why, again: Again::Never } => Fate::Never(why),
            Posted::Unknown { why } => Fate::Unknown(why),
        }
    }

    /// Looks for the text where it was to be posted, as received from this clone's user (2.13, C-57, C-106).
    fn look(&self, job: &Job) -> Fate {
        let look = || -> Result<Option<String>, String> {
            let clone = CloneFile::open(&self.file, &self.program).map_err(|e| e.to_string())?;
            let last = clone.last_received().map_err(|e| e.to_string())?;
            let from = clone.message(&job.answers).map_err(|e| e.to_string())?.map_or(0, |it| it.rcvid);
            let arrivals = clone.arrivals(from.saturating_sub(1), last).map_err(|e| e.to_string())?;
            let candidates: Vec<String> = arrivals
                .read
                .into_iter()
                .filter(|it| same_place(&it.place, &job.place) && it.text.trim() == job.text.trim())
                .map(|it| it.hash)
                .collect();
            if candidates.is_empty() {
                return Ok(None);
            }
            let ask = Ask { artifacts: &candidates, users: &[], high: false };
            let answer = self.session.receipt(&ask).map_err(|e| e.to_string())?;
            Ok(candidates.into_iter().find(|hash| {
                let from = answer.artifacts.get(hash).and_then(|it| it.as_ref()).and_then(|it| it.from.as_deref());
                from == Some(self.session.user())
            }))
        };
        match look() {
            Ok(Some(hash)) => Fate::Stored(Some(hash)),
            Ok(None) => Fate::Absent,
            Err(why) => Fate::Unknown(format!("looking for it: {why}")),
        }
    }
}

/// Whether two artifacts stand in one thread or on one ticket.
#[must_use]
pub fn same_place(one: &Place, other: &Place) -> bool {
    match (one, other) {
        (Place::Thread { root: one, .. }, Place::Thread { root: other, .. }) => one == other,
        (Place::Ticket { id: one }, Place::Ticket { id: other }) => one == other,
        (Place::Thread { .. }, Place::Ticket { .. }) | (Place::Ticket { .. }, Place::Thread { .. }) => false,
    }
}

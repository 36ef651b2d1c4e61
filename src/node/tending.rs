//! What the node holds in memory of one run it tends.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Instant;

use supervisor::wire::message::{End, EndedBy, EventNumber, Handle};

use super::listener::Seen;
use super::porter::Load;
use super::poster::Post;
use super::posting::Posting;
use super::publication_plan::PlannedFile;
use crate::engine::check::Accepted;
use crate::engine::report::Ended;
use crate::protocol::life::{Do, State};

/// The kept tails of one process, as bytes.
#[derive(Debug, Default)]
pub(super) struct Tails {
    pub(super) stderr: Vec<u8>,
    pub(super) stdout: Vec<u8>,
}

/// How a process was over, as the supervisor told.
#[derive(Debug)]
pub(super) struct Over {
    pub(super) end: End,
    pub(super) ended_by: EndedBy,
    pub(super) leftovers: u32,
    pub(super) tails: Tails,
    /// Whether there was a process: not when the launch failed.
    pub(super) ran: bool,
}

impl Over {
    /// The signal that ended it, if one did.
    pub(super) fn signal(&self) -> Option<u8> {
        match self.end {
            End::Signal(signal) => Some(signal),
            End::Code(_) => None,
        }
    }
}

/// A run addressed to this clone.
#[derive(Debug)]
pub(super) struct Tending {
    /// The message, its place and its receipt.
    pub(super) seen: Seen,
    pub(super) state: State,
    /// Since when, for people.
    pub(super) since: Instant,
    /// Whether a process before this one may have posted what is to be posted next.
    pub(super) perhaps_posted: bool,
    pub(super) handle: Option<Handle>,
    /// What the decision accepted; set from `Accepted` on, and by a resumed run when it can be read again.
    pub(super) accepted: Option<Box<Accepted>>,
    /// The workspace on this host, once it stands.
    pub(super) workspace: Option<String>,
    /// What `ended` is to say of the workspace, and whether all in it is saved; of a run that asks its removal.
    pub(super) saved: Option<Result<(), String>>,
    /// What became of the workspace of a run never launched, for its `ended`.
    pub(super) cleared: Option<String>,
    /// The check-in its steps set, once they are done.
    pub(super) checkin: Option<String>,
    /// Which step of the run each step is that the supervisor was asked for; nothing while it was not.
    pub(super) step_places: Option<Vec<usize>>,
    /// Whether a stop that counts stands.
    pub(super) stop: bool,
    /// What `ended` is to say, once known.
    pub(super) ended: Option<Ended>,
    /// How the process was over, until the logs are written.
    pub(super) over: Option<Over>,
    /// The files it is to send, once they are hashed, until they are in its plan.
    pub(super) files: Vec<PlannedFile>,
    /// What the porter is to carry now.
    pub(super) load: Option<Load>,
    /// The publish that is to be taken up.
    pub(super) publish: Option<String>,
    /// Publishes that were met.
    pub(super) heard: BTreeSet<String>,
    /// Hash of the confirmed `started`.
    pub(super) started: Option<String>,
    /// Hash of the confirmed `ended`.
    pub(super) ended_hash: Option<String>,
    /// Events of the supervisor not yet noted.
    pub(super) events: Vec<EventNumber>,
    /// Posts on their way.
    pub(super) posts: BTreeMap<Post, Posting>,
    /// Effects still to be carried out, and when to try the first again.
    pub(super) todo: VecDeque<Do>,
    pub(super) again_at: Option<Instant>,
    /// Since when the first of them fails, and why, for people.
    pub(super) trouble: Option<(Instant, String)>,
    /// Why the last decision was to wait, or the supervisor not to take it.
    pub(super) why_waiting: Option<String>,
}

impl Tending {
    pub(super) fn new(seen: Seen, perhaps_posted: bool) -> Self {
        Self {
            seen,
            state: State::Unseen,
            since: Instant::now(),
            perhaps_posted,
            handle: None,
            accepted: None,
            workspace: None,
            checkin: None,
            saved: None,
            cleared: None,
            step_places: None,
            stop: false,
            ended: None,
            over: None,
            files: Vec::new(),
            load: None,
            publish: None,
            heard: BTreeSet::new(),
            started: None,
            ended_hash: None,
            events: Vec::new(),
            posts: BTreeMap::new(),
            todo: VecDeque::new(),
            again_at: None,
            trouble: None,
            why_waiting: None,
        }
    }
}

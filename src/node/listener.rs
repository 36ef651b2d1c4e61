//! One clone's ear: waits on chat, and at each wake pulls the clone whole and tells the lane what is new.
//!
//! Whatever it tells came in a pull that succeeded, and its sender is the server's word. It decides nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::sync::mpsc::Sender;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use serde_json::json;

use super::lane::Input;
use super::log::{Log, say};
use super::store::Store;
use crate::engine::check;
use crate::engine::message::{self, Message};
use crate::fossil::{Ask, Caller, CloneFile, FossilError, Place, Program, PullError, Receipt, Session, User};

/// Longest wait on chat for one answer. A server whose own bound, `chat-poll-timeout`, is longer is not waited for:
/// an approved post wakes nobody, so each clone is pulled at least this often.
const CHAT_WAIT: Duration = Duration::from_secs(75);
/// Longest a pull may take (decisions C-68).
const PULL_WAIT: Duration = Duration::from_secs(600);
/// How long a lane that ended over a failure of its server stays so before it starts again (decisions C-109).
pub(super) const LANE_WAIT: Duration = Duration::from_secs(30);
/// Shortest time between two rounds, so that a server whose chat answers at once is not asked without pause.
const ROUND_WAIT: Duration = Duration::from_millis(20);

/// A message that came in a completed pull and whose sender the server has told.
#[derive(Debug, Clone)]
pub struct Seen {
    /// The post's or change's full hash.
    pub hash: String,
    /// Where it stands.
    pub place: Place,
    /// The message.
    pub message: Message,
    /// The server's word on it.
    pub receipt: Receipt,
}

/// What one completed pull brought.
#[derive(Debug)]
pub struct Round {
    /// When the completion number was asked, before the pull.
    pub asked_at: Instant,
    /// New messages, in the server's order.
    pub seen: Vec<Seen>,
    /// What is known of the senders, the runs' users and whom the lane watches, as of this round.
    pub users: BTreeMap<String, Option<User>>,
    /// The clone's user, as the server sees it.
    pub caller: Caller,
    /// Whether this is the first round of this process: everything stored has been read.
    pub first: bool,
}

/// Logins whose rights the lane needs in every round: of undecided runs.
pub type Watched = Arc<Mutex<BTreeSet<String>>>;

/// One message not told yet: its sender is unknown, or it is newer than the completed number.
#[derive(Debug)]
struct Held {
    place: Place,
    message: Message,
}

/// The ear of one lane.
#[derive(Debug)]
pub struct Listener {
    /// The lane's name.
    pub lane: String,
    /// Signed in as the clone's user.
    pub session: Arc<Session>,
    /// The Fossil program.
    pub program: Program,
    /// The clone's file.
    pub file: PathBuf,
    /// For the completion number.
    pub store: Store,
    /// The node's log.
    pub log: Arc<Log>,
    /// The lane.
    pub to_lane: Sender<Input>,
    /// Whom the lane watches.
    pub watched: Watched,
}

/// What a listener remembers between rounds.
#[derive(Default)]
struct Memory {
    /// The clone's own receipt number up to which everything was read.
    read_to: u64,
    held: BTreeMap<String, Held>,
    rounds: u64,
}

impl Listener {
    /// Listens until the lane is gone.
    pub fn listen(self) {
        let mut memory = Memory::default();
        let mut heard = 0;
        let mut rings = false;
        let wait_on_chat = supervisor::points::wait("chat", CHAT_WAIT);
        let lane_wait = supervisor::points::wait("lane", LANE_WAIT);
        loop {
            let begun = Instant::now();
            // Before the first pull: what is posted after it must ring. A failure shows again when the chat is waited on.
            rings = rings || self.session.chat_begin().is_ok();
            let worked = match self.round(&mut memory) {
                Ok(round) => {
                    if self.to_lane.send(Input::Round(round)).is_err() {
                        return;
                    }
                    match self.session.chat_wait(heard, wait_on_chat) {
                        // Waited out: the same as an empty answer. A server that is gone fails the next round.
                        Err(FossilError::NoAnswer { .. }) if begun.elapsed() >= wait_on_chat => Ok(heard),
                        answer => answer.map_err(|error| ("chat_failure", error.to_string())),
                    }
                }
                Err(failed) => Err(failed),
            };
            match worked {
                Ok(highest) => {
                    heard = highest;
                    std::thread::sleep(ROUND_WAIT.saturating_sub(begun.elapsed()));
                }
                // Cases 13, 20, 37: of what it knows nothing is lost, runs go on, and other lanes hear nothing of it.
                Err((event, why)) => {
                    say(&format!("lane {}: {why}; it ends, and starts again in {} s", self.lane, lane_wait.as_secs()));
                    self.log.event(&self.lane, event, json!({ "why": why }));
                    self.log.event(&self.lane, "end", json!({ "why": why }));
                    if self.to_lane.send(Input::Unheard(why)).is_err() {
                        return;
                    }
                    std::thread::sleep(lane_wait);
                    self.log.event(&self.lane, "start", json!({}));
                }
            }
        }
    }

    /// One round: ask the highest receipt, pull whole, publish the number, read what is new, ask who sent it.
    fn round(&self, memory: &mut Memory) -> Result<Round, (&'static str, String)> {
        let receipt_failure = |error: FossilError| ("receipt_failure", error.to_string());
        let read_failure = |error: crate::fossil::StoreError| ("pull_failure", format!("reading the clone: {error}"));
        let asked_at = Instant::now();
        let asked = self.session.receipt(&Ask { artifacts: &[], users: &[], high: true }).map_err(receipt_failure)?;
        let high = asked.high.ok_or(("receipt_failure", "the receipt tool told no highest receipt".to_owned()))?;
        match crate::fossil::clone::pull(&self.program, &self.file, PULL_WAIT) {
            Err(PullError::Cut { .. }) if supervisor::points::broken("every-exchange-answered") => {}
            pulled => drop(pulled.map_err(|error| ("pull_failure", error.to_string()))?),
        }
        let clone = CloneFile::open(&self.file, &self.program).map_err(read_failure)?;
        let code = clone.server_code().map_err(read_failure)?;
        self.store
            .save_completed(&code, high)
            .map_err(|error| ("pull_failure", format!("writing the completion number: {error}")))?;
        let last = clone.last_received().map_err(read_failure)?;
        if last > memory.read_to {
            let arrivals = clone.arrivals(memory.read_to, last).map_err(read_failure)?;
            for unreadable in &arrivals.unreadable {
                self.log.event(&self.lane, "unreadable", json!({ "artifact": unreadable.hash, "why": unreadable.why }));
            }
            for arrival in arrivals.read {
                if let Some(message) = message::find(&arrival.text) {
                    memory.held.insert(arrival.hash, Held { place: arrival.place, message });
                }
            }
            memory.read_to = last;
        }
        self.log.event(&self.lane, "completed", json!({ "completed": high }));
        self.ask_senders(memory, asked_at, high).map_err(receipt_failure)
    }

    fn ask_senders(&self, memory: &mut Memory, asked_at: Instant, high: u64) -> Result<Round, FossilError> {
        let artifacts: Vec<String> = memory.held.keys().cloned().collect();
        let mut users: BTreeSet<String> =
            self.watched.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect();
        users.extend(memory.held.values().filter_map(|it| check::process_user_of(&it.message)).map(str::to_owned));
        let users: Vec<String> = users.into_iter().collect();
        let answer = self.session.receipt(&Ask { artifacts: &artifacts, users: &users, high: false })?;
        let mut seen = Vec::new();
        for (hash, receipt) in answer.artifacts {
            // C-68: what came during the pull counts at the next.
            let Some(receipt) = receipt.filter(|it| it.receipt <= high) else { continue };
            if let Some(Held { place, message }) = memory.held.remove(&hash) {
                seen.push(Seen { hash, place, message, receipt });
            }
        }
        // V2-2.1-20: the server's order.
        seen.sort_by_key(|it| (it.receipt.receipt, it.receipt.row));
        let first = memory.rounds == 0;
        memory.rounds += 1;
        Ok(Round { asked_at, seen, users: answer.users, caller: answer.caller, first })
    }
}

//! What a lane is doing now, for people: `ROOT/state/lanes/PROJECT.json`, written anew when it changes. `ocx status` reads
//! it; nothing is decided from it, so it is renamed into place but not waited for on the disk.

use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use supervisor::wire::plan::Provides;

use super::clock::utc_now;
use super::files::{self, Once};

/// Most runs named in one file, the oldest first.
const RUNS_MAX: usize = 256;
/// Shortest time between two writes of one lane.
const WRITE_EVERY: Duration = Duration::from_millis(200);

/// A lane.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LaneNow {
    /// The project's name.
    pub project: String,
    /// The server's URL.
    pub server: String,
    /// The clone's user.
    pub user: String,
    /// The clone's server-code, once there is a clone.
    pub clone: Option<String>,
    /// When the last whole pull was, RFC 3339.
    pub pulled: Option<String>,
    /// Since when the server is not heard, and why.
    pub trouble: Option<Trouble>,
    /// Why the clone is not served at all.
    pub not_served: Option<String>,
    /// Its runs that are not settled.
    pub runs: Vec<RunNow>,
    /// How many more there are.
    pub more: usize,
}

/// Something that fails and is tried again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Trouble {
    /// Since when, RFC 3339.
    pub since: String,
    /// Why, as last seen.
    pub why: String,
}

/// A run that is not settled.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunNow {
    /// Its hash.
    pub run: String,
    /// LIFE's word for where it stands.
    pub state: String,
    /// Since when, as far as this process knows, RFC 3339.
    pub since: String,
    /// What it waits for, beside what its state says.
    pub waits: Vec<Wait>,
}

/// What a run waits for.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Wait {
    /// For what, in words that follow "waits for".
    pub what: String,
    /// Since when, RFC 3339; absent for a decision that is looked at again at each pull.
    pub since: Option<String>,
    /// What is in the way, as last seen.
    pub why: Option<String>,
    /// When it is tried again, RFC 3339; absent when something else has to happen first.
    pub again: Option<String>,
}

/// The protocol process: `ROOT/state/node.json`, written at its start.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeNow {
    /// When it started, RFC 3339.
    pub started: String,
    /// Its process id.
    pub pid: u32,
    /// What the supervisor said of the host.
    pub provides: Provides,
}

/// The folder of these files.
#[derive(Debug, Clone)]
pub struct Board {
    state: PathBuf,
    faults: Once,
}

impl Board {
    /// Makes the folder, below `ROOT/state`. What a project of an earlier process said goes: it may be no more.
    ///
    /// # Errors
    /// As `mkdir(2)` and `getdents(2)` fail, with the folder's path.
    pub fn open(state: &Path) -> io::Result<Self> {
        let lanes = state.join("lanes");
        files::folder(&lanes)?;
        for entry in fs::read_dir(&lanes)? {
            // What cannot be removed says when it was written.
            drop(fs::remove_file(entry?.path()));
        }
        Ok(Self { state: state.to_owned(), faults: Once::default() })
    }

    /// Shows the protocol process.
    pub fn node(&self, provides: &Provides) {
        let now = NodeNow { started: utc_now(), pid: std::process::id(), provides: provides.clone() };
        self.write(&self.state.join("node.json"), &now);
    }

    /// Shows a lane.
    pub fn lane(&self, lane: &LaneNow) {
        self.write(&self.state.join("lanes").join(format!("{}.json", lane.project)), lane);
    }

    /// One that cannot be written is passed over: what people are shown stops no run.
    fn write(&self, path: &Path, what: &impl Serialize) {
        let new = path.with_extension("json.new");
        let Ok(text) = serde_json::to_vec(what) else { return };
        let written = files::make(&new).and_then(|mut file| file.write_all(&text));
        if let Err(error) = written.and_then(|()| files::rename(&new, path)) {
            self.faults.say(path, &error);
        }
    }
}

/// What was shown of a lane last, and when it may be shown again.
#[derive(Debug)]
pub struct Shown {
    board: Board,
    last: LaneNow,
    next: Instant,
    stale: bool,
}

impl Shown {
    /// A lane of which this has been shown.
    #[must_use]
    pub fn new(board: Board, last: LaneNow) -> Self {
        board.lane(&last);
        Self { board, last, next: Instant::now(), stale: false }
    }

    /// What does not change: project, server, user, clone.
    #[must_use]
    pub const fn last(&self) -> &LaneNow {
        &self.last
    }

    /// When a change not shown yet is due.
    #[must_use]
    pub fn due(&self) -> Option<Instant> {
        self.stale.then_some(self.next)
    }

    /// Something may have changed: shows it, at once or when [`Shown::due`] says; `make` is called only then.
    pub fn look(&mut self, now: Instant, make: impl FnOnce(&LaneNow) -> LaneNow) {
        if now < self.next {
            self.stale = true;
            return;
        }
        self.stale = false;
        let mut lane = make(&self.last);
        lane.more = lane.runs.len().saturating_sub(RUNS_MAX);
        lane.runs.truncate(RUNS_MAX);
        if lane != self.last {
            self.board.lane(&lane);
            self.last = lane;
            self.next = now + WRITE_EVERY;
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    fn shown(project: &str) -> LaneNow {
        LaneNow { project: project.into(), ..LaneNow::default() }
    }

    #[test]
    fn a_lane_that_changes_all_the_time_is_written_now_and_then_and_the_last_change_in_the_end() {
        let state = std::env::temp_dir().join(format!("ocx-present-{}", std::process::id()));
        let board = Board::open(&state).unwrap();
        let read = || -> LaneNow { serde_json::from_slice(&fs::read(state.join("lanes/p.json")).unwrap()).unwrap() };
        let mut lane = Shown::new(board, shown("p"));
        let begin = Instant::now();
        let made = std::cell::Cell::new(0);
        for n in 0..1000_u32 {
            let now = begin + Duration::from_micros(100) * n;
            lane.look(now, |last| {
                made.set(made.get() + 1);
                LaneNow { user: n.to_string(), ..last.clone() }
            });
        }
        assert_eq!((made.get(), read().user.as_str()), (1, "0"), "one write within 100 ms");
        let due = lane.due().unwrap();
        lane.look(due, |last| LaneNow { user: "999".into(), ..last.clone() });
        assert_eq!((read().user.as_str(), lane.due()), ("999", None));
        fs::remove_dir_all(state).unwrap();
    }
}

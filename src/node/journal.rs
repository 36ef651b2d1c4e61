//! A run's own log, `ROOT/state/runs/HASH.log` (decisions C-65): one JSON object a line, each with its time. It is what a
//! person reads of a run's life; nothing is decided from it.

use std::io::Write as _;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::files::{self, Once};
use crate::engine::report::How;
use crate::protocol::life::{Event, State};

/// Size past which words are no longer added to a run's log, in bytes: a server that is away for a month says the same
/// thing again and again. Steps of its life still are.
const SAID_BYTES_MAX: u64 = 256 << 10;
/// Size past which nothing is added.
pub const JOURNAL_BYTES_MAX: u64 = 1 << 20;
/// Longest text of one line, in bytes.
const TEXT_BYTES_MAX: usize = 2048;

/// One line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// When, RFC 3339, UTC.
    pub at: String,
    /// What it says.
    #[serde(flatten)]
    pub entry: Entry,
}

/// What a line says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Entry {
    /// A step of the run's life, by LIFE's words.
    Step {
        /// The event.
        on: String,
        /// The state after it.
        state: String,
    },
    /// What `ended` is to say, once that is durable.
    Ended {
        /// The outcome.
        outcome: String,
        /// Its exit code.
        exit: Option<u8>,
        /// Its note.
        note: Option<String>,
    },
    /// Words, a failure whole among them.
    Said(String),
}

/// The folder of the runs' logs.
#[derive(Debug, Clone)]
pub struct Journal {
    runs: PathBuf,
    faults: Once,
}

impl Journal {
    /// The logs below `ROOT/state`.
    #[must_use]
    pub fn new(state: &Path) -> Self {
        Self { runs: state.join("runs"), faults: Once::default() }
    }

    /// Adds a step of the run's life.
    pub fn step(&self, run: &str, on: Event, state: State) {
        let entry = Entry::Step { on: on.word().to_owned(), state: state.word().to_owned() };
        self.add(run, entry, JOURNAL_BYTES_MAX);
    }

    /// Adds that a run was met again and goes on in this state.
    pub fn adopted(&self, run: &str, state: State) {
        let entry = Entry::Step { on: "adopted".to_owned(), state: state.word().to_owned() };
        self.add(run, entry, JOURNAL_BYTES_MAX);
    }

    /// Adds how the run ended.
    pub fn ended(&self, run: &str, how: &How) {
        let (exit, note) = match how {
            How::Exited { exit } => (Some(*exit), None),
            How::Refused { note } | How::Budget { note } | How::Lost { note } => (None, Some(note.as_str())),
            How::Stopped => (None, None),
        };
        let note = note.map(|it| start(it, TEXT_BYTES_MAX).to_owned());
        self.add(run, Entry::Ended { outcome: how.outcome().word().to_owned(), exit, note }, JOURNAL_BYTES_MAX);
    }

    /// Adds words.
    pub fn say(&self, run: &str, what: &str) {
        self.add(run, Entry::Said(start(what, TEXT_BYTES_MAX).to_owned()), SAID_BYTES_MAX);
    }

    /// A line that cannot be written is passed over: logging never stops a run.
    fn add(&self, run: &str, entry: Entry, bytes_max: u64) {
        let line = Line { at: super::clock::utc_now_exact(), entry };
        let Ok(mut text) = serde_json::to_vec(&line) else { return };
        text.push(b'\n');
        let path = self.runs.join(format!("{run}.log"));
        let mut file = match files::append(&path) {
            Ok(file) => file,
            Err(error) => return self.faults.say(&path, &error),
        };
        if file.metadata().is_ok_and(|it| it.len() < bytes_max) {
            drop(file.write_all(&text));
        }
    }
}

/// The lines of a run's log that can be read; a torn one is passed over.
#[must_use]
pub fn read(bytes: &[u8]) -> Vec<Line> {
    bytes.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice(line).ok()).collect()
}

/// The start of a text, at most so many bytes, cut between characters.
fn start(text: &str, bytes_max: usize) -> &str {
    let end = (0..=bytes_max.min(text.len())).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
    text.get(..end).unwrap_or(text)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    fn journal(name: &str) -> (PathBuf, Journal) {
        let state = std::env::temp_dir().join(format!("ocx-journal-{}-{name}", std::process::id()));
        std::fs::create_dir_all(state.join("runs")).unwrap();
        (state.clone(), Journal::new(&state))
    }

    #[test]
    fn c_65_what_is_logged_reads_back_and_a_torn_line_costs_only_itself() {
        let (state, journal) = journal("back");
        journal.step("aa", Event::Decided, State::Taking);
        journal.say("aa", "two\nlines");
        let path = state.join("runs/aa.log");
        let mut text = std::fs::read(&path).unwrap();
        text.extend_from_slice(b"{\"at\":\"2026-");
        let entries: Vec<Entry> = read(&text).into_iter().map(|it| it.entry).collect();
        let step = Entry::Step { on: "decided".into(), state: "taking".into() };
        assert_eq!(entries, [step, Entry::Said("two\nlines".into())]);
        std::fs::remove_dir_all(state).unwrap();
    }

    #[test]
    fn words_without_end_leave_room_for_the_steps_of_the_life() {
        let (state, journal) = journal("bound");
        let long = "é".repeat(5000);
        for _ in 0..1000 {
            journal.say("aa", &long);
        }
        let path = state.join("runs/aa.log");
        let words = std::fs::metadata(&path).unwrap().len();
        assert!((SAID_BYTES_MAX..SAID_BYTES_MAX + 8192).contains(&words), "{words}");
        journal.step("aa", Event::Released, State::Settled);
        let last = read(&std::fs::read(&path).unwrap()).pop().unwrap();
        assert_eq!(last.entry, Entry::Step { on: "released".into(), state: "settled".into() });
        std::fs::remove_dir_all(state).unwrap();
    }
}

//! `ROOT/state/daemon.log`: one JSON object a line (decisions C-65), beside the words on standard error.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use serde_json::{Map, Value, json};

use super::files;

/// Size at which the log turns, in bytes (decisions C-112).
const LOG_BYTES_MAX: u64 = 16 << 20;
/// How many turned logs are kept (decisions C-112).
const LOGS_KEPT: u32 = 5;

/// The log. A line that cannot be written is passed over: logging never stops a run.
#[derive(Debug)]
pub struct Log {
    path: PathBuf,
    file: Mutex<Option<File>>,
}

impl Log {
    /// Opens `daemon.log` in a folder.
    #[must_use]
    pub fn open(state: &Path) -> Self {
        let path = state.join("daemon.log");
        let file = Mutex::new(Self::made(&path));
        Self { path, file }
    }

    /// Writes one event of one lane, with its facts.
    pub fn event(&self, lane: &str, event: &str, facts: Value) {
        let mut line = Map::new();
        line.insert("at".into(), json!(super::clock::utc_now()));
        line.insert("event".into(), json!(event));
        line.insert("lane".into(), json!(lane));
        if let Value::Object(facts) = facts {
            line.extend(facts);
        }
        let mut text = Value::Object(line).to_string();
        text.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if file.as_ref().and_then(|it| it.metadata().ok()).is_some_and(|it| it.len() > LOG_BYTES_MAX) {
            *file = self.turn();
        }
        if let Some(file) = file.as_mut() {
            // A full disk loses log lines and nothing else.
            drop(file.write_all(text.as_bytes()));
        }
    }

    fn turn(&self) -> Option<File> {
        let turned = |n: u32| self.path.with_extension(format!("log.{n}"));
        for n in (1..LOGS_KEPT).rev() {
            // The oldest is written over; a gap in the row is nothing to stop for.
            drop(fs::rename(turned(n), turned(n + 1)));
        }
        drop(fs::rename(&self.path, turned(1)));
        Self::made(&self.path)
    }

    fn made(path: &Path) -> Option<File> {
        match files::append(path) {
            Ok(file) => Some(file),
            Err(error) => {
                say(&format!("node: {error}; without it only these lines are logged"));
                None
            }
        }
    }
}

/// Says one line on standard error, which the supervisor's log keeps.
pub fn say(text: &str) {
    #[expect(clippy::print_stderr, reason = "standard error is the node's log")]
    {
        eprintln!("{text}");
    }
}

/// A run's name in a log line: its first ten digits.
#[must_use]
pub fn short(run: &str) -> &str {
    run.get(..10).unwrap_or(run)
}

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
    bytes_max: u64,
}

impl Log {
    /// Opens `daemon.log` in a folder.
    #[must_use]
    pub fn open(state: &Path) -> Self {
        Self::turning_at(state, LOG_BYTES_MAX)
    }

    fn turning_at(state: &Path, bytes_max: u64) -> Self {
        let path = state.join("daemon.log");
        let file = Mutex::new(Self::made(&path));
        Self { path, file, bytes_max }
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
        if file.as_ref().and_then(|it| it.metadata().ok()).is_some_and(|it| it.len() >= self.bytes_max) {
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

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    /// C-112: the log turns at its bound, five turned ones are kept, and each line stands in one of them.
    #[test]
    fn c_112_the_log_turns_and_five_are_kept() {
        let state = std::env::temp_dir().join(format!("ocx-log-{}", std::process::id()));
        fs::create_dir_all(&state).unwrap();
        let log = Log::turning_at(&state, 1000);
        for n in 0..200 {
            log.event("lane", "round", json!({ "n": n }));
        }
        let mut names: Vec<String> =
            fs::read_dir(&state).unwrap().map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        let turned = (1..=LOGS_KEPT).map(|n| format!("daemon.log.{n}"));
        assert_eq!(names, std::iter::once("daemon.log".to_owned()).chain(turned).collect::<Vec<_>>());
        let mut told = Vec::new();
        for name in ["daemon.log.5", "daemon.log.4", "daemon.log.3", "daemon.log.2", "daemon.log.1", "daemon.log"] {
            let text = fs::read_to_string(state.join(name)).unwrap();
            assert!(text.len() < 1200, "{name}: {}", text.len());
            let n = |line: &str| serde_json::from_str::<Value>(line).unwrap().get("n").and_then(Value::as_u64).unwrap();
            told.extend(text.lines().map(n));
        }
        let first = told.first().copied().unwrap();
        assert_eq!(told, (first..200).collect::<Vec<_>>(), "in order, none lost at a turn");
        assert!(first > 0, "and the oldest are gone");
        fs::remove_dir_all(state).unwrap();
    }
}

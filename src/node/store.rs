//! The durable state of runs (decisions C-65): `ROOT/state/runs/HASH.state` and `HASH.plan`, never half-written.

use std::fs::{self, File};
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use supervisor::points::{self, Effect, Moment, reach};

use super::effects::Saved;
use super::ledger::Ledger;
pub use super::publication_plan::Plan;
use super::{files, log};

/// Largest state or plan file believed, in bytes; a larger one is not ours.
const RECORD_BYTES_MAX: u64 = 16 << 20;

/// What `HASH.state` holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "state", rename_all = "snake_case")]
pub enum Record {
    /// In care and decided; from here on the run is launched at most once more and is never decided anew.
    Taken {
        /// The hash of `started`, once it is confirmed.
        started: Option<String>,
    },
    /// Over; `ended` holds the exact text to be posted.
    Ending {
        /// The text.
        ended: String,
        /// When it was written, RFC 3339, for people.
        at: String,
    },
    /// `ended` is on the server.
    Done,
}

/// The folder of state of one `ROOT`.
#[derive(Debug, Clone)]
pub struct Store {
    runs: PathBuf,
    completed: PathBuf,
    ledger: Arc<Ledger>,
}

impl Store {
    /// Opens `ROOT/state`, making its folders. What an earlier node was writing when it died goes: the file it would have
    /// replaced, if any, stands. So does the room kept for the end of a run that needs none.
    ///
    /// # Errors
    /// As `mkdir(2)` and `getdents(2)` fail, with the folder's path.
    pub fn open(state: &Path) -> io::Result<Self> {
        let (runs, completed) = (state.join("runs"), state.join("completed"));
        files::folder(&runs)?;
        files::folder(&completed)?;
        let store = Self { runs, completed, ledger: Arc::new(Ledger::open(state)?) };
        for entry in fs::read_dir(&store.runs)? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let over = match name.rsplit_once('.') {
                Some((_, "new")) => true,
                Some((run, "room")) => matches!(store.record(run), None | Some(Record::Done)),
                Some(_) | None => false,
            };
            // What cannot be removed is in the way of that run alone.
            if over && let Err(error) = files::remove(&entry.path()) {
                log::say(&format!("node: {error}"));
            }
        }
        Ok(store)
    }

    /// The state of a run. Unreadable counts as taken: then it is never launched (C-65). What is in the ledger is done,
    /// whatever is left of its files.
    #[must_use]
    pub fn record(&self, run: &str) -> Option<Record> {
        self.read(run).unwrap_or(Some(Record::Taken { started: None }))
    }

    /// The state of a run.
    ///
    /// # Errors
    /// Why it is not believed, with its path: the file cannot be read, or is none of ours.
    pub fn read(&self, run: &str) -> io::Result<Option<Record>> {
        if self.ledger.has(run) {
            return Ok(Some(Record::Done));
        }
        let path = self.runs.join(format!("{run}.state"));
        match files::read(&path, RECORD_BYTES_MAX) {
            Ok(text) => match serde_json::from_slice(&text) {
                Ok(record) => Ok(Some(record)),
                Err(error) => Err(io::Error::other(format!("{}: {error}", path.display()))),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the state of a run durably.
    ///
    /// # Errors
    /// As the writes fail; the old state then stands whole.
    pub fn save_record(&self, run: &str, record: &Record) -> io::Result<()> {
        let saved = match record {
            Record::Taken { started: None } => Saved::Taken,
            Record::Taken { started: Some(_) } => Saved::Started,
            Record::Ending { .. } => Saved::Ending,
            Record::Done => Saved::Done,
        };
        self.with_room(run, || {
            write_durably(&self.runs, &format!("{run}.state"), &serde_json::to_vec(record)?, saved)
        })?;
        if matches!(record, Record::Done) {
            self.give_up_room(run)?;
        }
        Ok(())
    }

    /// The plan of a run.
    ///
    /// # Errors
    /// When there is one and it cannot be read.
    pub fn plan(&self, run: &str) -> io::Result<Option<Plan>> {
        let path = self.runs.join(format!("{run}.plan"));
        match files::read(&path, RECORD_BYTES_MAX) {
            Ok(text) => match serde_json::from_slice(&text) {
                Ok(plan) => Ok(Some(plan)),
                Err(error) => Err(io::Error::other(format!("{}: {error}", path.display()))),
            },
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Writes the plan of a run durably.
    ///
    /// # Errors
    /// As the writes fail; the old plan then stands whole.
    pub fn save_plan(&self, run: &str, plan: &Plan) -> io::Result<()> {
        self.with_room(run, || {
            write_durably(&self.runs, &format!("{run}.plan"), &serde_json::to_vec(plan)?, Saved::Plan)
        })
    }

    /// Keeps room for what a run's end writes (decisions C-84), so that a disk that is full by then takes it still.
    ///
    /// # Errors
    /// As `fallocate(2)` fails; nothing is kept then. A file system that cannot keep room is not asked to.
    pub fn reserve(&self, run: &str, bytes: u64) -> io::Result<()> {
        let file = files::make(&self.room(run))?;
        match rustix::fs::fallocate(&file, rustix::fs::FallocateFlags::empty(), 0, bytes) {
            Ok(()) => file.sync_all(),
            Err(errno) => {
                self.give_up_room(run)?;
                if errno == rustix::io::Errno::OPNOTSUPP { Ok(()) } else { Err(errno.into()) }
            }
        }
    }

    /// The folder of the runs' files.
    pub(super) fn runs(&self) -> &Path {
        &self.runs
    }

    /// The runs settled long ago.
    #[must_use]
    pub fn ledger(&self) -> &Ledger {
        &self.ledger
    }

    fn room(&self, run: &str) -> PathBuf {
        self.runs.join(format!("{run}.room"))
    }

    fn give_up_room(&self, run: &str) -> io::Result<()> {
        files::remove(&self.room(run))
    }

    /// Writes; on a full disk, in the room kept for it.
    fn with_room(&self, run: &str, write: impl Fn() -> io::Result<()>) -> io::Result<()> {
        match write() {
            Err(error) if is_full(&error) && self.room(run).exists() => {
                self.give_up_room(run)?;
                write()
            }
            done => done,
        }
    }

    /// Publishes the completion number of a clone (C-68).
    ///
    /// # Errors
    /// As the writes fail.
    pub fn save_completed(&self, server_code: &str, completed: u64) -> io::Result<()> {
        let text = serde_json::json!({ "completed": completed }).to_string();
        write_durably(&self.completed, server_code, text.as_bytes(), Saved::Completed)
    }
}

/// Whether a write failed for lack of room.
fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Writes a file so that after any crash it is whole, the old one or the new one: write, fsync, rename, fsync the folder.
/// `effect` says which write of ours it is.
///
/// # Errors
/// As `open(2)`, `write(2)`, `fsync(2)` and `rename(2)` fail; a directory in its place is named, with what to do.
pub fn write_durably(folder: &Path, name: &str, bytes: &[u8], effect: impl Effect) -> io::Result<()> {
    reach(effect, Moment::Before);
    let new = folder.join(format!("{name}.new"));
    let mut file = files::make(&new)?;
    points::opened(&file);
    file.write_all(bytes)?;
    reach(effect, Moment::Written);
    if !points::broken("fsync") {
        file.sync_all()?;
        points::synced(&file);
    }
    reach(effect, Moment::Synced);
    files::rename(&new, &folder.join(name))?;
    reach(effect, Moment::Renamed);
    let folder = File::open(folder)?;
    folder.sync_all()?;
    points::names_synced(&folder);
    reach(effect, Moment::Lasting);
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    fn store(name: &str) -> (PathBuf, Store) {
        let folder = std::env::temp_dir().join(format!("ocx-store-{}-{name}", std::process::id()));
        let store = Store::open(&folder).unwrap();
        (folder, store)
    }

    #[test]
    fn what_is_written_is_read_back() {
        let (folder, store) = store("roundtrip");
        assert_eq!(store.record("aa"), None);
        for record in [
            Record::Taken { started: None },
            Record::Taken { started: Some("ab".into()) },
            Record::Ending { ended: "text\n```json\n{}\n```".into(), at: "2026-01-01T00:00:00Z".into() },
            Record::Done,
        ] {
            store.save_record("aa", &record).unwrap();
            assert_eq!(store.record("aa"), Some(record));
        }
        fs::remove_dir_all(folder).unwrap();
    }

    /// C-65 and P6: unreadable counts as taken, so it is never launched.
    #[test]
    fn a_torn_empty_or_foreign_state_counts_as_taken() {
        let (folder, store) = store("torn");
        for text in ["", "{", "{\"state\":\"tak", "[]", "\0\0\0", "{\"state\":\"later\"}"] {
            fs::write(folder.join("runs/aa.state"), text).unwrap();
            assert_eq!(store.record("aa"), Some(Record::Taken { started: None }), "{text:?}");
        }
        fs::remove_dir_all(folder).unwrap();
    }

    /// P6: nor is what is no file of ours read, followed or waited for.
    #[test]
    fn a_huge_state_a_pipe_a_link_and_a_folder_count_as_taken() {
        let (folder, store) = store("odd");
        let at = folder.join("runs/aa.state");
        let taken = Some(Record::Taken { started: None });
        File::create(&at).unwrap().set_len(RECORD_BYTES_MAX + 1).unwrap();
        assert_eq!(store.record("aa"), taken);
        fs::remove_file(&at).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, &at, rustix::fs::Mode::RUSR).unwrap();
        assert_eq!(store.record("aa"), taken);
        fs::remove_file(&at).unwrap();
        store.save_record("bb", &Record::Done).unwrap();
        std::os::unix::fs::symlink(folder.join("runs/bb.state"), &at).unwrap();
        assert_eq!(store.record("aa"), taken);
        // Written over, it is a file again, and what the link named is as it was.
        store.save_record("aa", &Record::Ending { ended: "e".into(), at: "a".into() }).unwrap();
        assert_eq!(store.record("bb"), Some(Record::Done));
        fs::remove_file(&at).unwrap();
        fs::create_dir(&at).unwrap();
        assert_eq!(store.record("aa"), taken);
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn what_a_node_was_writing_when_it_died_goes_at_the_next_start() {
        let (folder, store) = store("left");
        store.save_record("aa", &Record::Taken { started: None }).unwrap();
        store.save_record("bb", &Record::Done).unwrap();
        for name in ["aa.state.new", "bb.plan.new", "aa.room", "bb.room", "cc.room"] {
            fs::write(folder.join("runs").join(name), "x").unwrap();
        }
        Store::open(&folder).unwrap();
        let mut names: Vec<String> = fs::read_dir(folder.join("runs"))
            .unwrap()
            .map(|it| it.unwrap().file_name().into_string().unwrap())
            .collect();
        names.sort();
        assert_eq!(names, ["aa.room", "aa.state", "bb.state"], "room stays for a run whose end is still to come");
        fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_write_that_fails_leaves_the_old_state() {
        let (folder, store) = store("fails");
        store.save_record("aa", &Record::Done).unwrap();
        // The new file cannot be made: a folder stands in its place.
        fs::create_dir(folder.join("runs/aa.state.new")).unwrap();
        assert!(store.save_record("aa", &Record::Taken { started: None }).is_err());
        assert_eq!(store.record("aa"), Some(Record::Done));
        fs::remove_dir_all(folder).unwrap();
    }
}

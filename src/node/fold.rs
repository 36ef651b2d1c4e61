//! Retention of settled runs (decisions C-112): files of a run settled 90 days ago become a line of the ledger.

use std::fs::{self, File};
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use supervisor::points::{self, Moment, reach};

use super::care::Registry;
use super::clock::utc;
use super::effects::Saved;
use super::files;
use super::journal::{self, Entry, JOURNAL_BYTES_MAX};
use super::ledger::Line;
use super::log::{Log, say};
use super::store::{Record, Store};

/// How long the files of a settled run stay.
pub const FOLD_AFTER: Duration = Duration::from_secs(90 * 86_400);
/// How often it is looked.
const FOLD_EVERY: Duration = Duration::from_secs(86_400);
/// Most runs folded by one write of the ledger.
const FOLD_AT_ONCE: usize = 64;
/// What a settled run's files end with, the state last: it goes last.
const ENDINGS: [&str; 3] = ["log", "plan", "state"];

/// Folds now, and then every day, until the node ends.
pub fn work(store: &Store, registry: &Arc<Registry>, log: &Log) {
    loop {
        match store.fold(SystemTime::now(), |run| registry.has(run)) {
            Ok(0) => {}
            Ok(folded) => log.event("node", "folded", serde_json::json!({ "runs": folded })),
            Err(error) => {
                say(&format!("node: settled runs are not folded: {error}; their files stay, tried again in a day"))
            }
        }
        std::thread::sleep(FOLD_EVERY);
    }
}

impl Store {
    /// Folds what was settled [`FOLD_AFTER`] before `now` or earlier and is not `in_care`; how many runs. A run whose plan
    /// is not finished stays: its texts are what a `publish` sends (C-108).
    ///
    /// # Errors
    /// As the calls fail. Each run is then in the ledger, or its files stand, or both.
    pub fn fold(&self, now: SystemTime, in_care: impl Fn(&str) -> bool) -> io::Result<usize> {
        let mut folded = Vec::new();
        let mut lines = Vec::new();
        for entry in fs::read_dir(self.runs())? {
            let entry = entry?;
            let name = entry.file_name().to_string_lossy().into_owned();
            let Some((run, ending)) = name.rsplit_once('.') else { continue };
            if self.ledger().has(run) {
                // The one before this died between the two.
                folded.push(run.to_owned());
            } else if ending == "state" && !in_care(run) {
                let settled = entry.metadata()?.modified()?;
                if now.duration_since(settled).is_ok_and(|age| age >= FOLD_AFTER) {
                    lines.extend(self.line(run, settled));
                }
            }
        }
        let count = lines.len();
        for some in lines.chunks(FOLD_AT_ONCE) {
            self.ledger().add(some)?;
            folded.extend(some.iter().map(|line| line.run.clone()));
        }
        folded.sort();
        folded.dedup();
        if !folded.is_empty() {
            self.remove(&folded)?;
        }
        Ok(count)
    }

    /// What the ledger keeps of a settled run; nothing of one that is not.
    fn line(&self, run: &str, settled: SystemTime) -> Option<Line> {
        if self.record(run) != Some(Record::Done) {
            return None;
        }
        // One that cannot be read may still be mended by a person.
        let plan = self.plan(run).ok()?;
        if plan.as_ref().is_some_and(|plan| !plan.is_over()) {
            return None;
        }
        let log =
            files::read(&self.runs().join(format!("{run}.log")), JOURNAL_BYTES_MAX + (64 << 10)).unwrap_or_default();
        let ended =
            journal::read(&log).into_iter().rev().map(|it| it.entry).find(|it| matches!(it, Entry::Ended { .. }));
        let (report, failed) = plan.map_or((None, Vec::new()), |plan| (plan.ended.clone(), plan.failures()));
        Some(Line { run: run.to_owned(), settled: utc(settled), ended, report, failed })
    }

    /// Removes the files of runs that are in the ledger.
    fn remove(&self, runs: &[String]) -> io::Result<()> {
        reach(Saved::Removed, Moment::Before);
        for run in runs {
            for ending in ENDINGS {
                remove_if_there(&self.runs().join(format!("{run}.{ending}")))?;
            }
        }
        reach(Saved::Removed, Moment::Renamed);
        let folder = File::open(self.runs())?;
        folder.sync_all()?;
        points::names_synced(&folder);
        reach(Saved::Removed, Moment::Lasting);
        Ok(())
    }
}

fn remove_if_there(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => Ok(()),
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::path::PathBuf;

    use super::super::store::Plan;
    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);

    fn store(name: &str) -> (PathBuf, Store) {
        let folder = std::env::temp_dir().join(format!("ocx-fold-{}-{name}", std::process::id()));
        let store = Store::open(&folder).unwrap();
        (folder, store)
    }

    fn run(digit: &str) -> String {
        digit.repeat(64)
    }

    fn plan(logs: Option<&str>, done: &[&str]) -> Plan {
        Plan {
            ended: Some(run("e")),
            outcome: "exited".into(),
            logs: logs.map(str::to_owned),
            done: done.iter().map(|it| (*it).to_owned()).collect(),
            ..Plan::default()
        }
    }

    fn names(folder: &Path) -> Vec<String> {
        let entries = fs::read_dir(folder.join("runs")).unwrap();
        let mut names: Vec<String> = entries.map(|it| it.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn c_112_a_run_settled_ninety_days_ago_is_folded_and_still_settled() {
        let (folder, store) = store("old");
        for (digit, record, plan) in [
            ("a", Record::Done, Some(plan(Some("text"), &["logs"]))),
            ("b", Record::Done, None),
            // C-108: only a `publish` sends what is left of it.
            ("c", Record::Done, Some(plan(Some("text"), &[]))),
            ("d", Record::Ending { ended: "text".into(), at: "now".into() }, None),
            ("f", Record::Done, None),
        ] {
            store.save_record(&run(digit), &record).unwrap();
            if let Some(plan) = plan {
                store.save_plan(&run(digit), &plan).unwrap();
            }
        }
        fs::write(folder.join("runs").join(format!("{}.log", run("a"))), "{\"at\":\"t\",\"said\":\"x\"}\n").unwrap();
        let in_care = |it: &str| it == run("f");
        let (soon, later) = (SystemTime::now() + FOLD_AFTER - DAY, SystemTime::now() + FOLD_AFTER + DAY);
        // The control: a day too early nothing is folded.
        assert_eq!(store.fold(soon, in_care).unwrap(), 0);
        assert_eq!(names(&folder).len(), 8);
        assert_eq!(store.fold(later, in_care).unwrap(), 2);
        let left = [format!("{}.plan", run("c")), format!("{}.state", run("c")), format!("{}.state", run("d"))];
        assert_eq!(names(&folder), [left.as_slice(), &[format!("{}.state", run("f"))]].concat());
        for store in [store, Store::open(&folder).unwrap()] {
            assert_eq!(store.record(&run("a")), Some(Record::Done));
            assert_eq!(store.record(&run("b")), Some(Record::Done));
            assert_eq!(store.record(&run("9")), None);
        }
        fs::remove_dir_all(folder).unwrap();
    }

    /// A run in both places counts once, and as settled, whatever its own file has become.
    #[test]
    fn c_112_a_run_in_the_ledger_and_with_files_counts_once() {
        let (folder, store) = store("both");
        store.save_record(&run("a"), &Record::Done).unwrap();
        let later = SystemTime::now() + FOLD_AFTER + DAY;
        assert_eq!(store.fold(later, |_| false).unwrap(), 1);
        // Its files again, as after a death before they were removed, and torn at that.
        for ending in ENDINGS {
            fs::write(folder.join("runs").join(format!("{}.{ending}", run("a"))), "{").unwrap();
        }
        let store = Store::open(&folder).unwrap();
        assert_eq!(store.record(&run("a")), Some(Record::Done));
        assert_eq!(store.fold(SystemTime::now(), |_| false).unwrap(), 0);
        assert_eq!(names(&folder), Vec::<String>::new());
        assert_eq!(fs::read_to_string(folder.join(super::super::ledger::NAME)).unwrap().lines().count(), 1);
        fs::remove_dir_all(folder).unwrap();
    }
}

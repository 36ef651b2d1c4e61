//! Waiting for what a trial does, with bounds, and words when it does not come.

use std::fs;
use std::time::{Duration, Instant};

use super::ask::Asked;
use super::record::Entry;
use super::supervisor::Process;
use super::{Trial, Trouble, log};
use crate::fossil::CloneFile;

/// How often what is waited for is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(20);
/// Longest wait for the node's clone and first round; a small clone takes a second.
pub const READY_WAIT: Duration = Duration::from_secs(180);
/// Lines of the supervisor's log shown when what is waited for does not come.
const LOG_LINES_SHOWN: usize = 15;

impl Trial {
    /// Waits until the node has its clone and has read all of it once; gives the clone's server-code.
    ///
    /// # Errors
    /// After [`READY_WAIT`], or when the supervisor ends.
    pub fn wait_ready(&mut self) -> Result<String, Trouble> {
        self.wait("the node's clone and its first round", READY_WAIT, |trial| {
            let Some(code) = trial.clone_code() else { return Ok(None) };
            let completed = trial.layout.root().join("state/completed").join(&code);
            Ok(completed.exists().then_some(code))
        })
    }

    /// The clone's server-code, once the node has made it.
    fn clone_code(&self) -> Option<String> {
        let clone = self.layout.clone_file();
        // SQLite would say of an absent file no more than that it cannot open it.
        if !clone.exists() {
            return None;
        }
        CloneFile::new(&clone, &self.fossil).server_code().ok()
    }

    /// Waits until the server has an entry of this kind after the run.
    ///
    /// # Errors
    /// After `wait`, or when the supervisor ends; the log's last lines are in the words.
    pub fn wait_for(&mut self, asked: &Asked, kind: &str, wait: Duration) -> Result<Entry, Trouble> {
        // Read anew each time: a new receipt is no sign that its artifact can be read already, nor none that it cannot.
        let found = self.wait(&format!("`{kind}` of run {}", asked.short()), wait, |trial| {
            Ok(trial.thread(asked)?.into_iter().skip(1).find(|entry| entry.kind == kind))
        });
        found.map_err(|trouble| match (&trouble, self.thread(asked)) {
            (Trouble::Stopped(why), Ok(thread)) => {
                let kinds: Vec<&str> = thread.iter().map(|entry| entry.kind.as_str()).collect();
                Trouble::stopped(format!("{why}\nand the server has {}", kinds.join(", ")))
            }
            (Trouble::Stopped(_), Err(_)) | (Trouble::Interrupted, _) => trouble,
        })
    }

    /// Waits until the supervisor's log says that the run's process was launched, or the server that the run ended.
    ///
    /// # Errors
    /// As [`Trial::wait_for`].
    pub fn wait_running(&mut self, asked: &Asked, wait: Duration) -> Result<bool, Trouble> {
        let short = asked.short().to_owned();
        self.wait(&format!("the process of run {short}"), wait, |trial| {
            if log::launched(&trial.layout.log(), &short)?.is_some() {
                return Ok(Some(true));
            }
            Ok(trial.thread(asked)?.iter().any(|entry| entry.kind == "ended").then_some(false))
        })
    }

    /// Waits until the run's kept log is on the server, or the run is settled without one: it printed nothing.
    ///
    /// # Errors
    /// As [`Trial::wait_for`].
    pub fn wait_log(&mut self, asked: &Asked, wait: Duration) -> Result<Option<Entry>, Trouble> {
        self.wait(&format!("the kept log of run {}", asked.short()), wait, |trial| {
            // In this order: a run is settled only once everything of it is on the server.
            let settled = trial.settled(asked);
            let log = trial.thread(asked)?.into_iter().skip(1).find(|entry| entry.kind == "log");
            Ok(if log.is_some() || settled { Some(log) } else { None })
        })
    }

    /// Whether a run that was launched is no longer in care.
    fn settled(&self, asked: &Asked) -> bool {
        // Absent until the first run is settled.
        fs::read_to_string(self.layout.launched()).is_ok_and(|text| text.contains(&asked.run))
    }

    /// Looks until something is there.
    ///
    /// # Errors
    /// When a person interrupts, the supervisor or the server ends, or `longest` passes; `what` names what was awaited.
    pub fn wait<T>(
        &mut self,
        what: &str,
        longest: Duration,
        mut look: impl FnMut(&mut Self) -> Result<Option<T>, Trouble>,
    ) -> Result<T, Trouble> {
        let deadline = Instant::now() + longest;
        loop {
            self.interrupt.check()?;
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            let ended = self.supervisor.as_mut().and_then(Process::ended);
            if let Some(how) = ended {
                self.supervisor = None;
                return Err(self.with_log(&format!("ocx-supervisor ended ({how}) before {what} came")));
            }
            if Instant::now() >= deadline {
                return Err(self.with_log(&format!("{what} did not come within {} s", longest.as_secs())));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn with_log(&self, what: &str) -> Trouble {
        let path = self.layout.log();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let shown = lines.get(lines.len().saturating_sub(LOG_LINES_SHOWN)..).unwrap_or(&[]);
        Trouble::stopped(format!("{what}; the last lines of {}:\n{}", path.display(), shown.join("\n")))
    }
}

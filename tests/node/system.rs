//! A system for one test, and what is asked of it again and again.

use std::time::Duration;

use ocx::engine::message;
use ocx::trial::accounts::{NODE, PROCESS};
use ocx::trial::record::kept;
use ocx::trial::{Asked, Entry, Interrupt, Setup, Trial, Where, request};
use serde_json::{Map, Value};

/// Longest wait for anything that needs no more than a pull and a post.
pub(crate) const SOON: Duration = Duration::from_secs(300);
/// Longest wait for a post whose fate was unknown: 60 s, and the chat's own wait.
pub(crate) const UNKNOWN: Duration = Duration::from_secs(400);

pub(crate) struct System {
    pub(crate) trial: Trial,
    pub(crate) clone: String,
}

impl System {
    /// A system whose node is ready.
    pub(crate) fn new() -> Self {
        Self::with_settings(&[])
    }

    /// One whose owner has set these.
    pub(crate) fn with_settings(settings: &[(&str, &str)]) -> Self {
        let setup = Setup { programs: Some(crate::support::programs().to_owned()), ..Setup::default() };
        let mut trial = Trial::make(&setup, Interrupt::default()).unwrap_or_else(|why| panic!("{why}"));
        for (name, text) in settings {
            std::fs::write(trial.layout().root().join("settings").join(name), text).unwrap();
        }
        trial.start_supervisor().unwrap_or_else(|why| panic!("{why}"));
        let clone = trial.wait_ready().unwrap_or_else(|why| panic!("{why}"));
        Self { trial, clone }
    }

    /// The message of a run of `sh -c SCRIPT`.
    pub(crate) fn message(&self, script: &str) -> Value {
        request::message(NODE.login, &self.clone, PROCESS.login, &["sh", "-c", script].map(String::from))
    }

    pub(crate) fn post(&mut self, to: Where, message: &Value) -> Asked {
        self.trial.post_run(to, &request::post("For a test.", message)).unwrap_or_else(|why| panic!("{why}"))
    }

    /// Posts a run of `sh -c SCRIPT` in a thread of its own.
    pub(crate) fn run(&mut self, script: &str) -> Asked {
        let message = self.message(script);
        self.post(Where::Thread, &message)
    }

    pub(crate) fn wait_for(&mut self, asked: &Asked, kind: &str, wait: Duration) -> Entry {
        self.trial.wait_for(asked, kind, wait).unwrap_or_else(|why| panic!("{why}"))
    }

    pub(crate) fn wait_running(&mut self, asked: &Asked) {
        assert!(self.trial.wait_running(asked, SOON).unwrap_or_else(|why| panic!("{why}")), "it ended without running");
    }

    /// The content of the run's one `ended`.
    pub(crate) fn ended(&mut self, asked: &Asked, wait: Duration) -> Map<String, Value> {
        let entry = self.wait_for(asked, "ended", wait);
        assert_eq!(entry.from, NODE.login);
        message::find(&entry.text).unwrap().content
    }

    /// The run's end of one stream, as posted.
    pub(crate) fn log(&mut self, asked: &Asked, stream: &str) -> String {
        let entry = self.wait_for(asked, "log", SOON);
        kept(&entry.text, stream).unwrap_or_else(|| panic!("no {stream} in {}", entry.text))
    }

    /// The kinds after the run, in the server's order, once nothing more has come for a second.
    pub(crate) fn kinds(&self, asked: &Asked) -> Vec<String> {
        std::thread::sleep(Duration::from_secs(1));
        let entries = self.trial.thread(asked).unwrap_or_else(|why| panic!("{why}"));
        entries.into_iter().skip(1).map(|entry| entry.kind).collect()
    }

    /// The server's port, to have it again after a stop.
    pub(crate) fn port(&self) -> u16 {
        self.trial.url().trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap()
    }

    /// Nothing of the test is left behind.
    pub(crate) fn stop(self) {
        self.trial.stop().unwrap_or_else(|why| panic!("{why}"));
    }
}

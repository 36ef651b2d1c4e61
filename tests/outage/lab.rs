//! A system whose node speaks to its server through a proxy, with waits a test can sit out.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::process::Command;
use std::time::{Duration, Instant};

use ocx::engine::message;
use ocx::trial::accounts::{NODE, PROCESS};
use ocx::trial::{Asked, Entry, Interrupt, Setup, Trial, Where, request};
use serde_json::{Map, Value, json};

use crate::proxy::{Kind, Proxy};
use crate::support;

/// Longest wait for anything here: generous, for machines that are emulated.
pub(crate) const SOON: Duration = Duration::from_secs(240);
/// How long after an unanswered attempt a completion must have been asked, here; 60 s where it serves (decisions C-106).
pub(crate) const UNKNOWN_WAIT: Duration = Duration::from_secs(3);
/// How long an answer is waited for, here; 60 s where it serves.
const ANSWER_WAIT: Duration = Duration::from_secs(5);

pub(crate) struct Lab {
    pub(crate) trial: Trial,
    pub(crate) clone: String,
    pub(crate) proxy: Proxy,
}

impl Lab {
    pub(crate) fn new() -> Self {
        Self::without("", UNKNOWN_WAIT)
    }

    /// One whose programs lack a rule, and judge an unanswered attempt only so much later.
    pub(crate) fn without(rule: &str, unknown_wait: Duration) -> Self {
        let programs = support::programs_with_failpoints();
        let setup = Setup { programs: Some(programs.to_owned()), ..Setup::default() };
        let mut trial = Trial::make(&setup, Interrupt::default()).unwrap_or_else(|why| panic!("{why}"));
        let proxy = Proxy::before(port(&trial));
        let passwords = json!({"server": proxy.url(), "user": NODE.login, "password": trial.password(NODE)});
        fs::write(trial.layout().passwords(), passwords.to_string()).unwrap();
        let points = trial.layout().root().join("state/points");
        fs::DirBuilder::new().mode(0o700).create(&points).unwrap();
        let node = trial.layout().accounts().node;
        chown(&points, Some(node.uid), Some(node.gid)).unwrap();
        let waits = [("unknown", unknown_wait), ("answer", ANSWER_WAIT), ("chat", Duration::from_secs(1))];
        let waits = [waits.as_slice(), &[("lane", Duration::from_secs(1))]].concat();
        let text: String = waits.iter().map(|(name, wait)| format!("{name} {}\n", wait.as_millis())).collect();
        for (name, text) in [("waits", text.as_str()), ("broken", rule)] {
            fs::write(points.join(name), text).unwrap();
            fs::set_permissions(points.join(name), fs::Permissions::from_mode(0o644)).unwrap();
        }
        trial.start_supervisor().unwrap_or_else(|why| panic!("{why}"));
        let clone = trial.wait_ready().unwrap_or_else(|why| panic!("{why}"));
        Self { trial, clone, proxy }
    }

    /// Posts a run of `sh -c SCRIPT` in a thread of its own, past the proxy.
    pub(crate) fn run(&mut self, script: &str) -> Asked {
        let command = ["sh", "-c", script].map(String::from);
        let message = request::message(NODE.login, &self.clone, PROCESS.login, &command);
        let text = request::post("For a test.", &message);
        self.trial.post_run(Where::Thread, &text).unwrap_or_else(|why| panic!("{why}"))
    }

    pub(crate) fn wait_for(&mut self, asked: &Asked, kind: &str) -> Entry {
        self.trial.wait_for(asked, kind, SOON).unwrap_or_else(|why| panic!("{why}"))
    }

    pub(crate) fn wait_running(&mut self, asked: &Asked) {
        assert!(self.trial.wait_running(asked, SOON).unwrap_or_else(|why| panic!("{why}")), "it ended without running");
    }

    /// The content of the run's `ended`.
    pub(crate) fn ended(&mut self, asked: &Asked) -> Map<String, Value> {
        let entry = self.wait_for(asked, "ended");
        message::find(&entry.text).unwrap().content
    }

    /// The kinds after the run, in the server's order.
    pub(crate) fn kinds(&self, asked: &Asked) -> Vec<String> {
        let entries = self.trial.thread(asked).unwrap_or_else(|why| panic!("{why}"));
        entries.into_iter().skip(1).map(|entry| entry.kind).collect()
    }

    /// How often the server has an entry of this kind after the run.
    pub(crate) fn count(&self, asked: &Asked, kind: &str) -> usize {
        self.kinds(asked).iter().filter(|it| *it == kind).count()
    }

    /// Waits until the run is settled, and a little longer: for a second post that must not come.
    pub(crate) fn settled(&self, asked: &Asked) {
        self.told(asked, "settled", |it| it["state"] == json!("settled"));
        std::thread::sleep(2 * UNKNOWN_WAIT);
    }

    /// What `ocx status --json` answers.
    pub(crate) fn status(&self, run: Option<&str>) -> Value {
        let mut command = Command::new(support::programs_with_failpoints().join("ocx"));
        command.args(["status", "--json", "--root"]).arg(self.trial.layout().root()).args(run);
        serde_json::from_slice::<Value>(&command.output().unwrap().stdout).unwrap()["result"].take()
    }

    /// The run, as `ocx status` tells it once `wanted` holds of it.
    pub(crate) fn told(&self, asked: &Asked, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let deadline = Instant::now() + SOON;
        loop {
            let told = self.status(Some(&asked.run)).pointer_mut("/runs/0").map(Value::take).unwrap_or_default();
            if wanted(&told) {
                return told;
            }
            assert!(Instant::now() < deadline, "{what} is never told: {told}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until status says for what the run waits, and why.
    pub(crate) fn told_waiting(&self, asked: &Asked, what: &str, why: &str) {
        self.told(asked, &format!("the wait for {what:?} because of {why:?}"), |it| {
            let waits = it["waits"].as_array().into_iter().flatten();
            let has = |value: &Value, text: &str| value.as_str().is_some_and(|it| it.contains(text));
            waits.into_iter().any(|it| has(&it["what"], what) && has(&it["why"], why))
        });
    }

    /// When each attempt of this kind came, and whether the server was asked.
    /// Waits until something holds.
    pub(crate) fn until(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + SOON;
        while !holds(self) {
            assert!(Instant::now() < deadline, "never: {what}\n{}", self.log());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    pub(crate) fn attempts(&self, kind: Kind) -> usize {
        self.proxy.came(kind).len()
    }

    pub(crate) fn log(&self) -> String {
        let text = fs::read_to_string(self.trial.layout().log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(40)..].join("\n")
    }

    /// Nothing of the test is left behind.
    pub(crate) fn stop(self) {
        self.trial.stop().unwrap_or_else(|why| panic!("{why}"));
    }
}

/// The port of a trial's server.
pub(crate) fn port(trial: &Trial) -> u16 {
    trial.url().trim_end_matches('/').rsplit(':').next().unwrap().parse().unwrap()
}

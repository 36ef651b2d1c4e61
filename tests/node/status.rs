//! `ocx status`: what each run does, where it waits and for what, also while either process is down.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::system::{SOON, System, UNKNOWN};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("status: C-65, R-T-03 a run's life is told step by step, each with its time", life),
    ("status: C-107, C-81 what a run waits for is told, with the server, the node and the supervisor down", waits),
];

/// What `ocx status --json` answers, and its exit code.
fn status(system: &System, run: Option<&str>) -> (Value, Option<i32>) {
    let mut command = Command::new(crate::support::programs().join("ocx"));
    command.args(["status", "--json", "--root"]).arg(system.trial.layout().root()).args(run);
    let output = command.output().unwrap();
    (serde_json::from_slice(&output.stdout).unwrap(), output.status.code())
}

/// The run, as told once `wanted` holds of it.
fn told(system: &System, run: &str, what: &str, wanted: impl Fn(&Value, &Value) -> bool) -> Value {
    let deadline = Instant::now() + UNKNOWN;
    loop {
        let (answer, _) = status(system, Some(&run[..10]));
        let told = &answer["result"]["runs"][0];
        if wanted(told, &answer["result"]) {
            return told.clone();
        }
        assert!(Instant::now() < deadline, "{what} is never told: {answer}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

fn says(told: &Value, words: &[&str]) -> bool {
    let lines = told["says"].as_array().into_iter().flatten().filter_map(Value::as_str);
    lines.into_iter().any(|line| words.iter().all(|word| line.contains(word)))
}

fn life() {
    let mut system = System::new();
    let asked = system.run("echo out; exit 3");
    system.log(&asked, "stdout");
    let told = told(&system, &asked.run, "settled", |it, _| it["state"] == json!("settled"));
    assert_eq!(told["ended"]["ended"], json!({"outcome": "exited", "exit": 3, "note": null}), "{told}");
    let timeline = told["timeline"].as_array().unwrap();
    let states: Vec<&str> = timeline.iter().filter_map(|it| it["step"]["state"].as_str()).collect();
    let life =
        "taking checking preparing starting launching running logging hashing ending publishing releasing settled";
    assert_eq!(states.join(" "), life);
    let times: Vec<&str> = timeline.iter().filter_map(|it| it["at"].as_str()).collect();
    assert!(times.len() == timeline.len() && times.is_sorted(), "{times:?}");
    // A run this host does not know, and a host that is none.
    assert_eq!(status(&system, Some(&"0".repeat(40))).1, Some(1));
    assert_eq!(status(&system, None).1, Some(0));
    system.stop();
}

fn waits() {
    let mut system = System::new();
    let asked = system.run("trap '' TERM; echo out; sleep 3456.7 & wait; sleep 3456.8");
    system.wait_running(&asked);
    let told_running = told(&system, &asked.run, "the process", |it, _| {
        it["state"] == json!("running") && it["processes"].to_string().contains("sleep 3456.7")
    });
    assert_eq!(told_running["care"]["launches"], json!(1), "{told_running}");
    // C-81: the countdown.
    let stop = json!({"ocx": 2, "re": asked.run, "stop": {}});
    let admin = system.trial.session(ocx::trial::accounts::ADMIN).unwrap();
    admin.reply(&asked.run, &format!("```json\n{stop}\n```\n"));
    told(&system, &asked.run, "the countdown", |it, _| says(it, &["stop: TERM sent, KILL in", " s; "]));
    // C-107: over, and the server gone.
    let port = system.port();
    system.trial.stop_server().unwrap();
    let waiting = told(&system, &asked.run, "the wait for the server", |it, _| {
        it["state"] == json!("ending") && says(it, &["waits for the server to take ended since", "tried again"])
    });
    assert_eq!(waiting["waits"][0]["what"], json!("the server to take ended"), "{waiting}");
    let (answer, _) = status(&system, None);
    assert!(answer["result"]["lanes"][0]["trouble"]["why"].is_string(), "{answer}");
    // Both down: it says so, and still tells the run.
    system.trial.kill_supervisor().unwrap();
    told(&system, &asked.run, "the supervisor down", |it, all| {
        all["supervisor"]["up"] == json!(false)
            && all["node"]["up"] == json!(false)
            && says(it, &["supervisor is down"])
    });
    system.trial.start_server(Some(port)).unwrap();
    system.trial.start_supervisor().unwrap();
    assert_eq!(system.ended(&asked, SOON)["outcome"], json!("stopped"));
    // Control: with all of it back nothing waits.
    told(&system, &asked.run, "settled", |it, all| {
        it["state"] == json!("settled") && all["node"]["up"] == json!(true) && it["waits"] == json!([])
    });
    system.stop();
}

/// Needs a cgroup whose freezing keeps even KILL from being met.
pub(crate) const WITH_FREEZER: (&str, fn()) = (
    "status: C-82 a process that cannot be ended is told with its state and where it waits, and no ended is posted",
    stuck,
);

/// Where the freezer of cgroup v1 is, if this host has it.
pub(crate) fn freezer() -> Option<&'static Path> {
    let at = Path::new("/sys/fs/cgroup/freezer");
    at.join("cgroup.procs").exists().then_some(at)
}

/// A group of frozen processes, gone with its value: they go on then.
struct Frozen(PathBuf);

impl Frozen {
    fn of(pid: u64) -> Self {
        let group = freezer().unwrap().join(format!("ocx-test-{}", std::process::id()));
        std::fs::create_dir(&group).unwrap();
        let frozen = Self(group);
        std::fs::write(frozen.0.join("cgroup.procs"), pid.to_string()).unwrap();
        std::fs::write(frozen.0.join("freezer.state"), "FROZEN").unwrap();
        frozen
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        drop(std::fs::write(self.0.join("freezer.state"), "THAWED"));
        let deadline = Instant::now() + SOON;
        while std::fs::remove_dir(&self.0).is_err() && Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

fn stuck() {
    let mut system = System::new();
    let asked = system.run("exec sleep 3456.9");
    system.wait_running(&asked);
    let process = |it: &Value| {
        let all = it["processes"].as_array().into_iter().flatten();
        all.into_iter().find(|it| it["command"].as_str().is_some_and(|line| line.starts_with("sleep 3456.9"))).cloned()
    };
    let before = told(&system, &asked.run, "the process", |it, _| process(it).is_some());
    let pid = process(&before).unwrap()["pid"].as_u64().unwrap();
    assert!(!says(&before, &["cannot be ended"]), "the control: {before}");
    let frozen = Frozen::of(pid);
    let stop = json!({"ocx": 2, "re": asked.run, "stop": {}});
    let admin = system.trial.session(ocx::trial::accounts::ADMIN).unwrap();
    admin.reply(&asked.run, &format!("```json\n{stop}\n```\n"));
    let after = told(&system, &asked.run, "that it cannot be ended", |it, _| {
        says(it, &["cannot be ended", &format!("pid {pid}, state D, in "), "sleep 3456.9"])
    });
    let it = process(&after).unwrap();
    assert_eq!((&it["state"], &it["kill_pending"]), (&json!("D"), &json!(true)), "{after}");
    assert_eq!(system.kinds(&asked), ["started", "stop"], "P3: no ended while it lives");
    drop(frozen);
    assert_eq!(system.ended(&asked, SOON)["outcome"], json!("stopped"));
    system.stop();
}

//! Runs that end, and what they leave: the cases that say how, each against the whole system.

use ocx::trial::{Asked, Where};
use serde_json::{Value, json};

use crate::system::{SOON, System};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("V2-2.3-17 D-14-01 case 34 a run without a sandbox, where the owner lets it", unconfined),
    ("cases 28, 36, A1, A3, V1-10-11 what a program leaves is gone before its ended", left_behind),
    ("cases 10 and 11 two stops, and a stop that meets an exit, give one ended", stops),
    ("cases 30, 32, B12, V1-8.2-02 a program that reads nothing and takes its log's place", unread_and_displaced),
];

pub(crate) fn stop(run: &str) -> String {
    format!("```json\n{}\n```\n", json!({"ocx": 2, "re": run, "stop": {}}))
}

/// The processes whose command line holds `what`.
fn processes(what: &str) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).replace('\0', " ");
        if line.contains(what) {
            found.push(line);
        }
    }
    found
}

fn post(system: &mut System, message: &Value) -> Asked {
    system.post(Where::Thread, message)
}

fn without_sandbox(system: &System, script: &str) -> Value {
    let mut message = system.message(script);
    message["run"].as_object_mut().unwrap().remove("sandbox");
    message
}

fn unconfined() {
    let mut system = System::new();
    let mut echo = without_sandbox(&system, "echo hello; pwd");
    echo["run"].as_object_mut().unwrap().remove("workspace");
    let asked = post(&mut system, &echo);
    let note = "refusal 5: the run has no sandbox, and this host runs nothing unconfined";
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "refused", "note": note}).as_object().unwrap());
    // Nobody starts anything again: the owner's word is enough.
    std::fs::write(system.trial.layout().root().join("settings/unconfined"), "").unwrap();
    let asked = post(&mut system, &echo);
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "exited", "exit": 0}).as_object().unwrap());
    assert_eq!(system.log(&asked, "stdout"), "hello\n/\n");
    assert_eq!(system.kinds(&asked), ["started", "ended", "log"]);
    // Case 34, with a workspace of its own: the child, a job, a session of its own.
    let message = without_sandbox(&system, "set -m; sleep 5034.1 & setsid sleep 5034.2 & id -u; exit 3");
    let asked = post(&mut system, &message);
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "exited", "exit": 3}).as_object().unwrap());
    assert_eq!(processes("sleep 5034."), Vec::<String>::new());
    let open = system.trial.layout().accounts().open.uid;
    assert_eq!(system.log(&asked, "stdout"), format!("{open}\n"));
    let log = system.trial.layout().root().join("workspaces-open").join(&asked.run).join("stdout.log");
    assert_eq!(std::fs::read_to_string(log).unwrap(), format!("{open}\n"));
    // Past wall, and at a stop.
    let mut message = without_sandbox(&system, "setsid sleep 5034.3 & sleep 5034.4");
    message["run"]["limits"]["wall"] = json!("2s");
    let asked = post(&mut system, &message);
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "budget", "note": "past wall 2s"}).as_object().unwrap());
    assert_eq!(processes("sleep 5034."), Vec::<String>::new());
    let message = without_sandbox(&system, "(trap '' HUP TERM; exec sleep 5034.5) & sleep 5034.6");
    let asked = post(&mut system, &message);
    system.wait_running(&asked);
    system.trial.session(ocx::trial::accounts::ADMIN).unwrap().reply(&asked.run, &stop(&asked.run));
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "stopped"}).as_object().unwrap());
    assert_eq!(processes("sleep 5034."), Vec::<String>::new());
    system.stop();
}

fn left_behind() {
    let mut system = System::new();
    let asked = system.run("(sleep 30; echo late > late.txt) & exit 0");
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "exited", "exit": 0}).as_object().unwrap());
    assert_eq!(processes("sleep 30"), Vec::<String>::new());
    let workspace = system.trial.layout().root().join("workspaces").join(&asked.run);
    assert!(workspace.is_dir() && !workspace.join("late.txt").exists());
    let asked = system.run("sleep 3600.28 & setsid sleep 3600.29 & echo hi; exit 3");
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(3));
    assert_eq!(processes("sleep 3600.2"), Vec::<String>::new());
    assert_eq!(system.log(&asked, "stdout"), "hi\n");
    // Case 36: a sandbox that need not end with its node ends for everything else.
    let mut message = system.message("sleep 3600.36 & exit 4");
    message["run"]["sandbox"]["ends_with_parent"] = json!(false);
    let asked = post(&mut system, &message);
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(4));
    message["run"]["process"]["command"][2] = json!("exec sleep 3600.37");
    message["run"]["limits"]["wall"] = json!("2s");
    let asked = post(&mut system, &message);
    assert_eq!(system.ended(&asked, SOON)["outcome"], json!("budget"));
    message["run"]["limits"]["wall"] = json!("1h");
    let asked = post(&mut system, &message);
    system.wait_running(&asked);
    system.trial.session(ocx::trial::accounts::ADMIN).unwrap().reply(&asked.run, &stop(&asked.run));
    assert_eq!(system.ended(&asked, SOON)["outcome"], json!("stopped"));
    assert_eq!(processes("sleep 3600.3"), Vec::<String>::new());
    system.stop();
}

fn stops() {
    let mut system = System::new();
    let session = system.trial.session(ocx::trial::accounts::ADMIN).unwrap();
    let asked = system.run("trap 'sleep 1; exit 0' TERM; while :; do sleep 0.1; done");
    system.wait_running(&asked);
    for _ in 0..2 {
        session.reply(&asked.run, &stop(&asked.run));
    }
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "stopped"}).as_object().unwrap());
    let ended = |kinds: &[String]| kinds.iter().filter(|kind| *kind == "ended").count();
    assert_eq!(ended(&system.kinds(&asked)), 1);
    // Whichever is met first decides; never two.
    let asked = system.run("sleep 1; exit 5");
    system.wait_running(&asked);
    session.reply(&asked.run, &stop(&asked.run));
    let content = system.ended(&asked, SOON);
    let either = [json!({"outcome": "stopped"}), json!({"outcome": "exited", "exit": 5})];
    assert!(either.iter().any(|it| it.as_object() == Some(&content)), "{content:?}");
    assert_eq!(ended(&system.kinds(&asked)), 1);
    system.stop();
}

fn unread_and_displaced() {
    let mut system = System::new();
    // Longer than the pipe is: nobody ever reads it.
    let mut message = system.message("exit 3");
    message["run"]["objective"] = json!("long ".repeat(40_000));
    let asked = post(&mut system, &message);
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "exited", "exit": 3}).as_object().unwrap());
    // The control: who reads gets all of it.
    message["run"]["process"]["command"][2] = json!("wc -c");
    let asked = post(&mut system, &message);
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(0));
    let count: usize = system.log(&asked, "stdout").trim().parse().unwrap();
    assert!(count > 200_000, "{count}");
    let root = system.trial.layout().root().join("workspaces");
    let asked = system.run("mkdir stderr.log; echo oops >&2; exit 3");
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(3));
    assert_eq!(system.log(&asked, "stderr"), "oops\n");
    assert!(root.join(&asked.run).join("stderr.log").is_dir());
    let asked = system.run("mkfifo stderr.log; echo oops >&2; exit 3");
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(3));
    assert_eq!(system.log(&asked, "stderr"), "oops\n");
    assert_eq!(std::fs::read_to_string(root.join(&asked.run).join("stderr.log")).unwrap(), "oops\n");
    system.stop();
}

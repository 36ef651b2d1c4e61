//! Runs that run: what is posted, in which order, and what they saw.

use std::time::Duration;

use ocx::engine::message;
use ocx::trial::Where;
use serde_json::json;

use crate::system::{SOON, System};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("V2-2.3-04 a run in a thread is answered by started, ended and its log", in_a_thread),
    ("C-57 a run in a ticket is answered by changes of the ticket", in_a_ticket),
    ("V2-2.12-05 an exit that is not 0 keeps both streams", exits_3),
    ("V2-2.12-05 a signal is 128 and its number", by_a_signal),
    ("C-45 a program that is not there is exited 127 with the reason on the kept STDERR", not_found),
    ("V2-2.12-06 past wall it is budget", past_wall),
    ("V2-2.12-04 a stop ends it and the outcome is stopped", stopped),
    ("V2-2.12-02 a stop by someone who may not is ignored", stop_by_another),
    ("C-20 a stop in another place is answered with where to post it", misplaced_stop),
    ("V2-2.1-19 two runs in one thread are each answered by re", two_in_one_thread),
    ("V2-2.10-35 the log files stand in the workspace", log_files),
];

fn in_a_thread() {
    let mut system = System::new();
    let asked = system.run("id -u; pwd; echo problem >&2");
    let ended = system.ended(&asked, SOON);
    assert_eq!(ended, *json!({"outcome": "exited", "exit": 0}).as_object().unwrap());
    let out = system.log(&asked, "stdout");
    let workspace = system.trial.layout().root().join("workspaces").join(&asked.run);
    assert_eq!(out, format!("1000\n{}\n", workspace.display()));
    assert_eq!(system.log(&asked, "stderr"), "problem\n");
    assert_eq!(system.kinds(&asked), ["started", "ended", "log"]);
    let started = system.wait_for(&asked, "started", SOON);
    let started = message::find(&started.text).unwrap();
    assert_eq!(started.re.as_deref(), Some(asked.run.as_str()));
    assert_eq!(started.content["limits"], json!({"wall": "60s"}));
    assert_eq!(started.content["values"]["workspace"], json!(workspace));
    system.stop();
}

fn in_a_ticket() {
    let mut system = System::new();
    let message = system.message("echo from a ticket");
    let asked = system.post(Where::Ticket, &message);
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(0));
    assert_eq!(system.log(&asked, "stdout"), "from a ticket\n");
    assert_eq!(system.kinds(&asked), ["started", "ended", "log"]);
    system.stop();
}

fn exits_3() {
    let mut system = System::new();
    let mut message = system.message("echo out; echo err >&2; exit 3");
    // The default: STDOUT only on failure.
    message["run"]["process"].as_object_mut().unwrap().remove("keep");
    let asked = system.post(Where::Thread, &message);
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "exited", "exit": 3}).as_object().unwrap());
    assert_eq!(system.log(&asked, "stdout"), "out\n");
    assert_eq!(system.log(&asked, "stderr"), "err\n");
    // The control: exit 0 keeps STDERR alone.
    message["run"]["process"]["command"][2] = json!("echo out; echo err >&2");
    let asked = system.post(Where::Thread, &message);
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(0));
    let entry = system.wait_for(&asked, "log", SOON);
    assert!(entry.text.contains("err\n") && !entry.text.contains("out\n"), "{}", entry.text);
    system.stop();
}

fn by_a_signal() {
    let mut system = System::new();
    let asked = system.run("kill -9 $$");
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "exited", "exit": 137}).as_object().unwrap());
    system.stop();
}

fn not_found() {
    let mut system = System::new();
    let mut message = system.message("");
    message["run"]["process"]["command"] = json!(["no-such-program"]);
    let asked = system.post(Where::Thread, &message);
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "exited", "exit": 127}).as_object().unwrap());
    let err = system.log(&asked, "stderr");
    assert!(err.contains("no-such-program") && err.lines().count() == 1, "{err}");
    assert_eq!(system.kinds(&asked), ["started", "ended", "log"]);
    system.stop();
}

fn past_wall() {
    let mut system = System::new();
    let mut message = system.message("echo begun; sleep 600");
    message["run"]["limits"]["wall"] = json!("2s");
    let asked = system.post(Where::Thread, &message);
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "budget", "note": "past wall 2s"}).as_object().unwrap());
    assert_eq!(system.log(&asked, "stdout"), "begun\n");
    system.stop();
}

/// The text of a stop of a run.
fn stop(run: &str) -> String {
    format!("```json\n{}\n```\n", json!({"ocx": 2, "re": run, "stop": {}}))
}

fn stopped() {
    let mut system = System::new();
    let asked = system.run("trap 'echo bye; exit 0' TERM; sleep 600 & wait");
    system.wait_running(&asked);
    let session = system.trial.session(ocx::trial::accounts::ADMIN).unwrap();
    session.reply(&asked.run, &stop(&asked.run));
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "stopped"}).as_object().unwrap());
    // Bug case A6: it had its chance to clean up.
    assert_eq!(system.log(&asked, "stdout"), "bye\n");
    system.stop();
}

fn stop_by_another() {
    let mut system = System::new();
    let asked = system.run("sleep 6");
    system.wait_running(&asked);
    let session = system.trial.session(ocx::trial::accounts::PROCESS).unwrap();
    session.reply(&asked.run, &stop(&asked.run));
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "exited", "exit": 0}).as_object().unwrap());
    system.stop();
}

fn misplaced_stop() {
    let mut system = System::new();
    let asked = system.run("sleep 600");
    system.wait_running(&asked);
    let session = system.trial.session(ocx::trial::accounts::ADMIN).unwrap();
    let elsewhere = system.trial.post_run(Where::Thread, &stop(&asked.run)).unwrap();
    let reply = system.wait_for(&elsewhere, "text", SOON);
    assert!(reply.text.contains(&asked.run), "{}", reply.text);
    assert_eq!(system.kinds(&asked), ["started"]);
    session.reply(&asked.run, &stop(&asked.run));
    assert_eq!(system.ended(&asked, SOON)["outcome"], json!("stopped"));
    system.stop();
}

fn two_in_one_thread() {
    let mut system = System::new();
    let first = system.run("echo one");
    system.ended(&first, SOON);
    let second = ocx::trial::request::post("Again.", &system.message("echo two; exit 4"));
    let session = system.trial.session(ocx::trial::accounts::SETUP).unwrap();
    session.reply(&first.run, &second);
    let deadline = std::time::Instant::now() + SOON;
    loop {
        let entries = system.trial.thread(&first).unwrap();
        let run = entries.iter().skip(1).find(|it| it.kind == "run").unwrap().hash.clone();
        let answer = entries
            .iter()
            .filter(|it| it.kind == "ended")
            .filter_map(|it| message::find(&it.text))
            .find(|it| it.re.as_deref() == Some(run.as_str()));
        if let Some(answer) = answer {
            assert_eq!(answer.content["exit"], json!(4));
            break;
        }
        assert!(std::time::Instant::now() < deadline, "the second run was not answered");
        std::thread::sleep(Duration::from_millis(50));
    }
    system.stop();
}

fn log_files() {
    let mut system = System::new();
    let asked = system.run("echo out; echo err >&2; ln -s /etc/passwd stderr.log");
    system.ended(&asked, SOON);
    let workspace = system.trial.layout().root().join("workspaces").join(&asked.run);
    assert_eq!(std::fs::read_to_string(workspace.join("stdout.log")).unwrap(), "out\n");
    // Bug case B12: what the run put there is replaced, not followed.
    assert!(std::fs::symlink_metadata(workspace.join("stderr.log")).unwrap().is_file());
    assert_eq!(std::fs::read_to_string(workspace.join("stderr.log")).unwrap(), "err\n");
    system.stop();
}

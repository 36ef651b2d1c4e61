//! What follows `ended`: unversioned files, their reply, and what a publish does with what is left.

use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use ocx::engine::message;
use ocx::trial::accounts::{ADMIN, NODE, PROCESS, SETUP, User};
use ocx::trial::{Asked, Where};
use serde_json::{Value, json};
use sha2::Digest as _;

use crate::system::{SOON, System, UNKNOWN};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("V2-2.10-34, V2-2.10-21, C-26 ended names each file's hash; then log, files and their reply, in this order", sent),
    (
        "V2-2.10-24, V2-0-03, V2-2.3-25 without y no file is sent; granted, a publish sends it once and starts nothing",
        granted,
    ),
    ("V2-2.3-31 a file changed since, or a link in its place, is not sent, and the reply says why", changed),
    ("V2-2.3-32 nothing of a stopped run is sent, and a publish is told so", stopped),
    ("V2-2.3-33, V2-2.3-08, C-37 a publish of a run in hand, of no one's, and elsewhere", told),
    ("V2-2.3-29, C-108 the node killed as ended stands: what follows comes once", node_killed),
    ("C-108 the supervisor killed: what is left waits for a publish, and then comes once", supervisor_killed),
];

/// Gives the clone's user these letters.
pub(crate) fn letters(system: &System, letters: &str) {
    let deadline = Instant::now() + SOON;
    loop {
        let mut fossil = Command::new("fossil");
        fossil.args(["user", "capabilities", NODE.login, letters, "-R"]).arg(system.trial.layout().repository());
        let done = fossil.env("HOME", &system.trial.layout().dir).output().unwrap();
        if done.status.success() {
            return;
        }
        assert!(Instant::now() < deadline, "{}", String::from_utf8_lossy(&done.stderr));
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// A run of a script that names these files: each of the workspace, and by its own name.
fn naming(system: &System, script: &str, files: &[&str]) -> Value {
    let mut message = system.message(script);
    let files = files.iter().map(|it| json!({"at": format!("$$workspace$$/{it}"), "as": format!("$$run$$/{it}")}));
    message["run"]["process"]["unversioned_files"] = files.collect();
    message
}

fn publish(system: &System, by: User, asked: &Asked, content: &Value) {
    let text = format!("```json\n{content}\n```\n");
    system.trial.session(by).unwrap().reply(&asked.run, &text);
}

fn publish_of(asked: &Asked) -> Value {
    json!({"ocx": 2, "to": NODE.login, "re": asked.run, "publish": {}})
}

/// The node's plain replies where the run is, once there are so many.
fn replies(system: &System, asked: &Asked, count: usize) -> Vec<String> {
    let deadline = Instant::now() + SOON;
    loop {
        let thread = system.trial.thread(asked).unwrap();
        let texts: Vec<String> =
            thread.into_iter().filter(|it| it.kind == "text" && it.from == NODE.login).map(|it| it.text).collect();
        if texts.len() >= count {
            assert_eq!(texts.len(), count, "{texts:?}");
            return texts;
        }
        assert!(Instant::now() < deadline, "{count} replies: {texts:?}");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Name, hash and sender of every unversioned file of the server.
fn files(system: &System) -> Vec<(String, String, Option<String>)> {
    let list = system.trial.session(ADMIN).unwrap().unversioned().unwrap();
    list.into_iter().map(|it| (it.name, it.hash, it.from)).collect()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha256(text: &str) -> String {
    hex(&sha2::Sha256::digest(text.as_bytes()))
}

fn sha3(text: &str) -> String {
    hex(&sha3::Sha3_256::digest(text.as_bytes()))
}

fn workspace(system: &System, asked: &Asked) -> PathBuf {
    system.trial.layout().root().join("workspaces").join(&asked.run)
}

/// Where the node says so: the run is settled, its care given back.
pub(crate) fn wait_settled(system: &System, asked: &Asked) {
    let care = system.trial.layout().root().join("care").join(&asked.run);
    let deadline = Instant::now() + SOON;
    while care.exists() {
        assert!(Instant::now() < deadline, "the run is not settled");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn sent() {
    let mut system = System::new();
    letters(&system, "goC4wy");
    let script = "echo said; echo whole > out.txt; mkdir -p sub; echo below > sub/b; ln -s out.txt link; \
                  ln -s /etc way; mkfifo pipe; truncate -s 300M large";
    let mut message = naming(&system, script, &["out.txt", "sub/b", "link", "absent", "way/passwd", "pipe", "large"]);
    let files_of = message["run"]["process"]["unversioned_files"].as_array_mut().unwrap();
    files_of.push(json!({"at": "/etc/passwd", "as": "$$run$$/passwd"}));
    files_of.push(json!({"at": "$$workspace$$/../../settings/grace", "as": "$$run$$/grace"}));
    files_of.push(json!({"at": "$$workspace$$/out.txt", "as": "a ```json\n name"}));
    let asked = system.post(Where::Thread, &message);
    let run = asked.run.clone();
    let ended = system.ended(&asked, SOON);
    assert_eq!(ended["exit"], json!(0));
    let whole = [("out.txt", "whole\n"), ("sub/b", "below\n")];
    let mut outputs: Vec<Value> =
        whole.iter().map(|(name, text)| json!({"as": format!("{run}/{name}"), "sha256": sha256(text)})).collect();
    let null = ["link", "absent", "way/passwd", "pipe", "large", "passwd", "grace"];
    outputs.extend(null.map(|name| json!({"as": format!("{run}/{name}"), "sha256": null})));
    outputs.push(json!({"as": "a ```json\n name", "sha256": sha256("whole\n")}));
    assert_eq!(ended["outputs"], json!(outputs));
    let reply = replies(&system, &asked, 1).remove(0);
    for (name, text) in whole {
        assert!(reply.contains(&format!("- \"{run}/{name}\": sent, SHA-256 {}\n", sha256(text))), "{reply}");
    }
    for (name, why) in [
        ("link", "a link is in its path"),
        ("absent", "there is no such file"),
        ("way/passwd", "a link is in its path"),
        ("pipe", "it is a pipe"),
        ("large", "it is larger than 268435456 bytes"),
        ("passwd", "it is not within the workspace"),
        ("grace", "it is not within the workspace"),
    ] {
        assert!(reply.contains(&format!("- \"{run}/{name}\": not sent: {why}\n")), "{name}: {reply}");
    }
    assert!(reply.contains("- \"a ```json\\u000a name\": not sent: the name holds white space"), "{reply}");
    assert!(message::find(&reply).is_none(), "a message in {reply}");
    assert_eq!(system.kinds(&asked), ["started", "ended", "log", "text"]);
    let mut there = files(&system);
    there.sort();
    let mut expected: Vec<_> =
        whole.iter().map(|(name, text)| (format!("{run}/{name}"), sha3(text), Some(NODE.login.to_owned()))).collect();
    expected.sort();
    assert_eq!(there, expected);
    // The control of `null` for what names none.
    let plain = system.run("exit 0");
    assert!(!system.ended(&plain, SOON).contains_key("outputs"));
    system.stop();
}

fn granted() {
    let mut system = System::new();
    let mut message = naming(&system, "echo x >> ran; echo whole > out.txt", &["out.txt", "absent"]);
    message["run"]["process"]["keep"]["stdout_when"] = json!("failure");
    let asked = system.post(Where::Thread, &message);
    let run = asked.run.clone();
    let ended = system.ended(&asked, SOON);
    // V2-2.3-28: a publication that fails changes nothing in ended.
    assert_eq!((&ended["outcome"], &ended["exit"]), (&json!("exited"), &json!(0)));
    assert_eq!(ended["outputs"][0]["sha256"], json!(sha256("whole\n")));
    let reply = replies(&system, &asked, 1).remove(0);
    let lacks = format!("\"{run}/out.txt\": not sent: the clone's user lacks y, Write-Unver, on the server");
    assert!(reply.contains(&lacks), "{reply}");
    assert!(files(&system).is_empty());
    wait_settled(&system, &asked);
    letters(&system, "goC4wy");
    publish(&system, SETUP, &asked, &publish_of(&asked));
    let reply = replies(&system, &asked, 2).remove(1);
    assert!(reply.contains(&format!("\"{run}/out.txt\": sent, SHA-256 {}", sha256("whole\n"))), "{reply}");
    assert!(reply.contains(&format!("\"{run}/absent\": not sent: there is no such file")), "{reply}");
    let there = [(format!("{run}/out.txt"), sha3("whole\n"), Some(NODE.login.to_owned()))];
    assert_eq!(files(&system), there);
    // V2-2.3-10: with nothing left, a reply says so; an admin may ask as well.
    publish(&system, ADMIN, &asked, &publish_of(&asked));
    let reply = replies(&system, &asked, 3).remove(2);
    assert!(reply.contains("nothing of the run is unfinished"), "{reply}");
    // Nor does a new node do anything of it again.
    system.trial.kill_node().unwrap();
    let next = system.run("exit 0");
    system.ended(&next, SOON);
    assert_eq!(system.kinds(&asked), ["started", "ended", "text", "publish", "text", "publish", "text"]);
    assert_eq!(std::fs::read_to_string(workspace(&system, &asked).join("ran")).unwrap(), "x\n");
    system.stop();
}

fn changed() {
    let mut system = System::new();
    let names = ["out.txt", "linked", "gone", "same"];
    let script = "for f in out.txt linked gone same; do echo whole > $f; done";
    let message = naming(&system, script, &names);
    let asked = system.post(Where::Thread, &message);
    system.ended(&asked, SOON);
    replies(&system, &asked, 1);
    wait_settled(&system, &asked);
    letters(&system, "goC4wy");
    let at = workspace(&system, &asked);
    std::fs::write(at.join("out.txt"), "other\n").unwrap();
    // The link's target has the very bytes: it is a link that is not sent.
    let outside = system.trial.layout().dir.join("outside");
    std::fs::write(&outside, "whole\n").unwrap();
    std::fs::remove_file(at.join("linked")).unwrap();
    std::os::unix::fs::symlink(&outside, at.join("linked")).unwrap();
    std::fs::remove_file(at.join("gone")).unwrap();
    publish(&system, SETUP, &asked, &publish_of(&asked));
    let reply = replies(&system, &asked, 2).remove(1);
    let run = &asked.run;
    let other = sha256("other\n");
    for line in [
        format!("\"{run}/out.txt\": not sent: it has changed since the process ended: its SHA-256 is {other}\n"),
        format!("\"{run}/linked\": not sent: a link is in its path\n"),
        format!("\"{run}/gone\": not sent: there is no such file\n"),
        // The control: what is as it was is sent.
        format!("\"{run}/same\": sent, SHA-256 {}\n", sha256("whole\n")),
    ] {
        assert!(format!("{reply}\n").contains(&line), "{line} {reply}");
    }
    assert_eq!(files(&system).len(), 1);
    // Put back as it was, it is sent after all.
    std::fs::write(at.join("out.txt"), "whole\n").unwrap();
    publish(&system, SETUP, &asked, &publish_of(&asked));
    let reply = replies(&system, &asked, 3).remove(2);
    assert!(reply.contains(&format!("\"{run}/out.txt\": sent")), "{reply}");
    assert_eq!(files(&system).len(), 2);
    system.stop();
}

fn stopped() {
    let mut system = System::new();
    letters(&system, "goC4wy");
    let message = naming(&system, "echo whole > out.txt; sleep 600", &["out.txt"]);
    let asked = system.post(Where::Thread, &message);
    system.wait_running(&asked);
    publish(&system, ADMIN, &asked, &json!({"ocx": 2, "re": asked.run, "stop": {}}));
    let ended = system.ended(&asked, SOON);
    assert_eq!(ended, *json!({"outcome": "stopped"}).as_object().unwrap());
    wait_settled(&system, &asked);
    publish(&system, SETUP, &asked, &publish_of(&asked));
    let reply = replies(&system, &asked, 1).remove(0);
    assert!(reply.contains("files and verdicts of a run that ended stopped are refused"), "{reply}");
    assert!(files(&system).is_empty());
    // A run that was refused has no plan at all.
    let mut refused = system.message("true");
    refused["run"]["surprise"] = json!(1);
    let asked = system.post(Where::Thread, &refused);
    system.ended(&asked, SOON);
    wait_settled(&system, &asked);
    publish(&system, SETUP, &asked, &publish_of(&asked));
    let reply = replies(&system, &asked, 1).remove(0);
    assert!(reply.contains("files and verdicts of a run that ended refused are refused"), "{reply}");
    system.stop();
}

fn told() {
    let mut system = System::new();
    let script = "while [ ! -e go ]; do sleep 0.1; done; echo x >> ran; exit 4";
    let asked = system.run(script);
    system.wait_running(&asked);
    publish(&system, SETUP, &asked, &publish_of(&asked));
    let reply = replies(&system, &asked, 1).remove(0);
    assert!(reply.contains("still held"), "{reply}");
    // Not read, not addressed, not allowed: nothing comes of them.
    for (by, content) in [
        (SETUP, json!({"ocx": 2, "re": asked.run, "publish": {}})),
        (SETUP, json!({"ocx": 2, "to": "lab-2", "re": asked.run, "publish": {}})),
        (SETUP, json!({"ocx": 2, "to": NODE.login, "re": asked.run, "publish": {"more": 1}})),
        (PROCESS, publish_of(&asked)),
    ] {
        publish(&system, by, &asked, &content);
    }
    let text = format!("```json\n{}\n```\n", publish_of(&asked));
    let elsewhere = system.trial.post_run(Where::Thread, &text).unwrap();
    let reply = replies(&system, &elsewhere, 1).remove(0);
    assert!(reply.starts_with("Nothing was done: this publish of run ") && reply.contains(&asked.run), "{reply}");
    std::fs::write(workspace(&system, &asked).join("go"), "").unwrap();
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(4));
    wait_settled(&system, &asked);
    let kinds = system.kinds(&asked);
    let ours: Vec<&str> = kinds.iter().map(String::as_str).filter(|it| *it != "publish").collect();
    assert_eq!(ours, ["started", "text", "ended"]);
    assert_eq!(std::fs::read_to_string(workspace(&system, &asked).join("ran")).unwrap(), "x\n");
    system.stop();
}

fn node_killed() {
    let mut system = System::new();
    letters(&system, "goC4wy");
    let message = naming(&system, "echo said; head -c 4000000 /dev/zero > out.bin", &["out.bin"]);
    let asked = system.post(Where::Thread, &message);
    system.ended(&asked, SOON);
    system.trial.kill_node().unwrap();
    // What it may have posted is looked for first.
    system.wait_for(&asked, "text", UNKNOWN);
    let reply = replies(&system, &asked, 1).remove(0);
    assert!(reply.contains("out.bin\": sent"), "{reply}");
    assert_eq!(system.kinds(&asked), ["started", "ended", "log", "text"]);
    assert_eq!(files(&system).len(), 1);
    system.stop();
}

fn supervisor_killed() {
    let mut system = System::new();
    letters(&system, "goC4wy");
    let message = naming(&system, "head -c 4000000 /dev/zero > out.bin", &["out.bin"]);
    let asked = system.post(Where::Thread, &message);
    system.ended(&asked, SOON);
    system.trial.kill_supervisor().unwrap();
    system.trial.start_supervisor().unwrap();
    // Another run is answered, so that the first was met again.
    let next = system.run("exit 0");
    system.ended(&next, SOON);
    wait_settled(&system, &asked);
    publish(&system, SETUP, &asked, &publish_of(&asked));
    // Where its `ended` was still to be confirmed it is sent by itself; else the publish has it sent.
    let deadline = Instant::now() + SOON;
    let told =
        |system: &System| system.trial.thread(&asked).unwrap().iter().any(|it| it.text.contains("out.bin\": sent"));
    while !told(&system) {
        assert!(Instant::now() < deadline, "no reply says that it was sent: {:?}", system.kinds(&asked));
        std::thread::sleep(Duration::from_millis(100));
    }
    assert_eq!(files(&system).len(), 1);
    let kinds = system.kinds(&asked);
    assert_eq!(kinds.iter().filter(|it| *it == "started" || *it == "ended").count(), 2, "{kinds:?}");
    system.stop();
}

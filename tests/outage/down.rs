//! A server that is not there, holds its file locked, or fails what is read from it.

use std::fs;
use std::time::{Duration, Instant};

use ocx::trial::accounts::ADMIN;
use serde_json::{Value, json};

use crate::lab::{Lab, SOON, port};
use crate::proxy::{Fault, Kind, Page};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("C-107 connections refused: each post waits, says so, and is stored once", refused),
    ("C-107 the back-off grows, is told, and is cut short by the first pull", back_off),
    ("C-107 C-108 the real server stopped, and the node killed meanwhile: each post once", down_and_killed),
    ("C-106 case 35 a writer that holds the server's file locked: nothing is lost, nothing doubled", held),
    ("C-109 cases 20 and 37 what is read comes half or as another page: nothing is decided from it", half_read),
];

const OVERLOAD: Fault = Fault::Says(Page("503 Service Unavailable", "", "Server Overload"));

fn refused() {
    let mut lab = Lab::new();
    for kind in [Kind::Started, Kind::Ended, Kind::Log] {
        lab.proxy.spoil(kind, OVERLOAD);
    }
    let asked = lab.run("echo out; exit 3");
    let posts =
        [(Kind::Started, "started", "started"), (Kind::Ended, "ended", "ended"), (Kind::Log, "log", "the kept log")];
    for (kind, name, word) in posts {
        // Held until the whole server can be refused.
        lab.told_waiting(&asked, word, "503");
        lab.proxy.close();
        // One that was just being taken is reset, and so unknown; the next are refused.
        lab.told_waiting(&asked, word, "onnection re");
        let trouble = lab.status(None)["lanes"][0]["trouble"]["why"].take();
        assert!(trouble.is_null() || trouble.as_str().unwrap().contains("connect"), "{trouble}");
        lab.proxy.mend(kind);
        lab.proxy.open();
        lab.wait_for(&asked, name);
    }
    lab.settled(&asked);
    assert_eq!(lab.kinds(&asked), ["started", "ended", "log"]);
    lab.stop();
}

fn back_off() {
    let mut lab = Lab::new();
    let asked = lab.run("sleep 2; exit 3");
    lab.wait_running(&asked);
    let all = [Kind::Ended, Kind::High, Kind::Receipt, Kind::Chat, Kind::Pull];
    for kind in all {
        lab.proxy.spoil(kind, OVERLOAD);
    }
    let deadline = Instant::now() + SOON;
    while lab.attempts(Kind::Ended) < 5 {
        assert!(Instant::now() < deadline, "{:?}\n{}", lab.proxy.came(Kind::Ended), lab.log());
        std::thread::sleep(Duration::from_millis(50));
    }
    let told = lab.told(&asked, "when it is tried again", |it| it["waits"][0]["again"].is_string());
    let says = told["says"].to_string();
    assert!(says.contains("waits for the server to take ended since") && says.contains("tried again in"), "{says}");
    let came = lab.proxy.came(Kind::Ended);
    for (number, two) in came.windows(2).enumerate() {
        let (waited, least) = (two[1].at.duration_since(two[0].at), Duration::from_secs(1 << number));
        assert!(waited + Duration::from_millis(100) >= least, "attempt {number}: after {waited:?}, not {least:?}");
    }
    // The next wait is 16 s; the first pull ends it.
    let mended = Instant::now();
    for kind in all {
        lab.proxy.mend(kind);
    }
    assert_eq!(lab.ended(&asked)["exit"], json!(3));
    let took = mended.elapsed();
    assert!(lab.attempts(Kind::Ended) == came.len() + 1, "once more, and no more");
    lab.settled(&asked);
    assert_eq!(lab.kinds(&asked), ["started", "ended"], "after {took:?}");
    lab.stop();
}

fn down_and_killed() {
    let mut lab = Lab::new();
    let server = port(&lab.trial);
    // `started` is stored and not answered, and then the server stops and the node is killed.
    lab.proxy.deafen();
    lab.proxy.spoil(Kind::Started, Fault::Swallowed);
    let asked = lab.run("echo out; sleep 3; exit 3");
    lab.told_waiting(&asked, "whether the server has started", "no answer");
    lab.trial.stop_server().unwrap();
    lab.trial.kill_node().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    lab.proxy.mend(Kind::Started);
    lab.trial.start_server(Some(server)).unwrap();
    lab.wait_running(&asked);
    // The same of `ended`, with the server away long enough for the program to end, and the node gone before and after.
    lab.proxy.spoil(Kind::Ended, Fault::Swallowed);
    lab.told_waiting(&asked, "whether the server has ended", "no answer");
    lab.trial.kill_node().unwrap();
    lab.trial.stop_server().unwrap();
    std::thread::sleep(Duration::from_secs(2));
    let starting = Instant::now() + SOON;
    while lab.trial.node().is_empty() {
        assert!(Instant::now() < starting, "the supervisor starts the node again");
        std::thread::sleep(Duration::from_millis(20));
    }
    lab.trial.kill_node().unwrap();
    // Of the log nothing is stored.
    lab.proxy.spoil(Kind::Log, Fault::Silent);
    lab.proxy.mend(Kind::Ended);
    lab.trial.start_server(Some(server)).unwrap();
    lab.told_waiting(&asked, "whether the server has the kept log", "no answer");
    lab.trial.kill_node().unwrap();
    lab.proxy.mend(Kind::Log);
    lab.wait_for(&asked, "log");
    lab.settled(&asked);
    assert_eq!(lab.kinds(&asked), ["started", "ended", "log"]);
    assert_eq!(lab.ended(&asked)["exit"], json!(3));
    for kind in [Kind::Started, Kind::Ended] {
        let reached = lab.proxy.came(kind).into_iter().filter(|it| it.reached).count();
        assert_eq!(reached, 1, "{kind:?}: {:?}", lab.proxy.came(kind));
    }
    lab.stop();
}

fn held() {
    let mut lab = Lab::new();
    let asked = lab.run("echo out; sleep 1; exit 3");
    lab.wait_running(&asked);
    let file = rusqlite::Connection::open(lab.trial.layout().repository()).unwrap();
    file.execute_batch("BEGIN IMMEDIATE").unwrap();
    lab.told_waiting(&asked, "ended", "");
    // Longer than a post is tried at once, and than an answer is waited for here.
    std::thread::sleep(Duration::from_secs(8));
    assert_eq!(lab.count(&asked, "ended"), 0, "the control: nothing is stored while the file is held");
    let attempts = lab.attempts(Kind::Ended);
    assert!(attempts > 0, "the control: it was sent");
    file.execute_batch("ROLLBACK").unwrap();
    drop(file);
    lab.wait_for(&asked, "log");
    lab.settled(&asked);
    assert_eq!(lab.kinds(&asked), ["started", "ended", "log"]);
    lab.stop();
}

/// Events of the node's log.
pub(crate) fn events(lab: &Lab) -> Vec<Value> {
    let log = fs::read_to_string(lab.trial.layout().root().join("state/daemon.log")).unwrap();
    log.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

/// Waits until reading failed so, the lane ended, and it began again.
fn failed_and_began_again(lab: &Lab, before: usize, event: &str, what: &str) {
    let deadline = Instant::now() + SOON;
    let is = |it: &Value, word: &str| it["event"] == json!(word) && it["lane"] == json!("trial");
    loop {
        let came = events(lab).split_off(before);
        let failed = came.iter().position(|it| is(it, event));
        let ended = failed.and_then(|at| came[at..].iter().position(|it| is(it, "end")).map(|it| at + it));
        if ended.is_some_and(|at| came[at..].iter().any(|it| is(it, "start"))) {
            return;
        }
        assert!(Instant::now() < deadline, "{what}: {came:?}\n{}", lab.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn half_read() {
    let mut lab = Lab::new();
    let robot = Fault::Says(Page("200 OK", "", "<h1>I think you are a robot</h1>"));
    let mut runs = Vec::new();
    for (kind, event) in [
        (Kind::High, "receipt_failure"),
        (Kind::Receipt, "receipt_failure"),
        (Kind::Chat, "chat_failure"),
        (Kind::Pull, "pull_failure"),
    ] {
        for fault in [Fault::CutInBody, Fault::CutInHead, robot, OVERLOAD] {
            let before = events(&lab).len();
            lab.proxy.spoil(kind, fault);
            // A round that was under way as it was spoiled is over, once one has failed.
            lab.trial.session(ADMIN).unwrap().new_thread("Words", "Whatever.");
            failed_and_began_again(&lab, before, event, &format!("{kind:?} {fault:?}"));
            let before = events(&lab).len();
            let asked = lab.run("exit 0");
            failed_and_began_again(&lab, before, event, &format!("{kind:?} {fault:?}"));
            if kind != Kind::Chat {
                assert_eq!(lab.kinds(&asked), Vec::<String>::new(), "{kind:?} {fault:?}: decided from half of it");
            }
            lab.proxy.mend(kind);
            lab.wait_for(&asked, "ended");
            runs.push(asked);
        }
    }
    for asked in &runs {
        assert_eq!(lab.kinds(asked), ["started", "ended"]);
    }
    lab.stop();
}

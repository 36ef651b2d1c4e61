//! A host whose disk is full (decisions C-84): `ROOT` on a small file system of its own.

use std::fs;
use std::io::Write as _;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ocx::engine::message;

use crate::host::{Host, SOON};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("C-84 under the floor no run is taken; once there is room it is", under_the_floor),
    ("C-84 a run that ends on a full disk is answered all the same", full_at_the_end),
];

fn filler(host: &Host) -> PathBuf {
    host.trial.layout().root().join("state/filler")
}

fn under_the_floor() {
    let mut host = Host::on_small_disk();
    // A twentieth of 64 MiB is the floor.
    let free = host.free();
    fs::write(filler(&host), vec![1; free - (2 << 20)]).unwrap();
    let token = host.token();
    let message = host.message(&token, "echo done");
    let asked = host.post(&message);
    host.trial
        .wait("the floor's line in the log", SOON, |trial| {
            let log = fs::read_to_string(trial.layout().log()).unwrap();
            Ok(log.contains("below its floor").then_some(()))
        })
        .unwrap_or_else(|why| panic!("{why}"));
    std::thread::sleep(Duration::from_secs(2));
    assert_eq!(host.trial.thread(&asked).unwrap().len(), 1, "nothing is posted: it waits");
    assert!(!host.care(&asked.run).exists() && host.launches(&token) == 0);
    // Whoever looks is told: of the host, and of the run that waits.
    let deadline = Instant::now() + SOON;
    loop {
        let told = host.status();
        assert!(told["under_floor"].as_str().is_some_and(|it| it.contains("below its floor")), "{told}");
        let run = told["runs"].as_array().unwrap().iter().find(|it| it["run"] == asked.run.as_str());
        if run.is_some_and(|it| it["says"].to_string().contains("below its floor")) {
            break;
        }
        // The supervisor has said so; the node may have yet to be told.
        assert!(Instant::now() < deadline, "{told}");
        std::thread::sleep(Duration::from_millis(50));
    }
    fs::remove_file(filler(&host)).unwrap();
    let entry = host.trial.wait_for(&asked, "ended", SOON).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(message::find(&entry.text).unwrap().content["exit"], 0);
    // The control: with room again neither is told.
    assert_eq!(host.status()["under_floor"], serde_json::Value::Null);
    host.stop().unwrap();
}

fn full_at_the_end() {
    let mut host = Host::on_small_disk();
    let token = host.token();
    let script = host.until_let_go(&token);
    let message = host.message(&token, &script);
    let asked = host.post(&message);
    host.wait_running(&asked, &token);
    let mut file = fs::File::create(filler(&host)).unwrap();
    // To the last block.
    for size in [1 << 20, 4096, 1] {
        while file.write_all(&vec![1; size]).is_ok() {}
    }
    let wrote = fs::write(host.trial.layout().root().join("state/one-more"), "x");
    assert!(wrote.is_err(), "the control: nothing can be written any more");
    host.let_go(&token);
    let entry = host.trial.wait_for(&asked, "ended", SOON).unwrap_or_else(|why| panic!("{why}"));
    assert_eq!(message::find(&entry.text).unwrap().content["outcome"], "exited");
    fs::remove_file(filler(&host)).unwrap();
    host.trial.wait_for(&asked, "log", SOON).unwrap_or_else(|why| panic!("{why}"));
    let thread = host.trial.thread(&asked).unwrap();
    assert_eq!(thread.iter().filter(|entry| entry.kind == "ended").count(), 1);
    assert_eq!(host.launches(&token), 1);
    host.stop().unwrap();
}

//! Runs settled long ago (decisions C-112): their files become a line of the ledger, and nothing forgets them.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant, SystemTime};

use ocx::node::fold::FOLD_AFTER;
use serde_json::{Value, json};

use crate::system::{SOON, System};

pub(crate) const TESTS: &[(&str, fn())] =
    &[("C-112 a run settled ninety days ago is folded, is still told, and is not run or answered again", folded)];

fn status(system: &System, run: &str) -> Value {
    let mut command = Command::new(crate::support::programs().join("ocx"));
    command.args(["status", "--json", "--root"]).arg(system.trial.layout().root()).arg(run);
    serde_json::from_slice::<Value>(&command.output().unwrap().stdout).unwrap()["result"]["runs"][0].take()
}

fn wait(what: &str, look: impl Fn() -> bool) {
    let deadline = Instant::now() + SOON;
    while !look() {
        assert!(Instant::now() < deadline, "{what}: never");
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn folded() {
    let mut system = System::new();
    let old = system.run("echo old; exit 3");
    system.log(&old, "stdout");
    let young = system.run("exit 4");
    system.ended(&young, SOON);
    let runs = system.trial.layout().root().join("state/runs");
    let state = |run: &str| runs.join(format!("{run}.state"));
    wait("both settled", || [&old, &young].into_iter().all(|it| status(&system, &it.run)["state"] == json!("settled")));
    let day = Duration::from_secs(86_400);
    for (run, age) in [(&old.run, FOLD_AFTER + day), (&young.run, FOLD_AFTER - day)] {
        let file = fs::File::options().write(true).open(state(run)).unwrap();
        file.set_modified(SystemTime::now() - age).unwrap();
    }
    // The next node looks at its start.
    system.trial.kill_supervisor().unwrap();
    system.trial.start_supervisor().unwrap();
    wait("the files gone", || !state(&old.run).exists());
    let left =
        fs::read_dir(&runs).unwrap().flatten().filter(|it| it.file_name().to_str().unwrap().starts_with(&old.run));
    assert_eq!(left.count(), 0);
    assert!(state(&young.run).exists(), "the control: a day younger, and it stays");
    let told = status(&system, &old.run[..10]);
    assert_eq!((&told["state"], &told["folded"]), (&json!("settled"), &json!(true)), "{told}");
    assert_eq!(told["ended"]["ended"], json!({"outcome": "exited", "exit": 3, "note": null}), "{told}");
    assert_eq!(status(&system, &young.run)["folded"], json!(false));
    // A node after it, and a run after that: the old one is met again and left as it is.
    system.trial.kill_node().unwrap();
    let next = system.run("exit 0");
    assert_eq!(system.ended(&next, SOON)["exit"], json!(0));
    assert_eq!(system.kinds(&old), ["started", "ended", "log"]);
    let launched = fs::read_to_string(system.trial.layout().launched()).unwrap();
    assert!(launched.contains(&old.run), "care/launched is never cut");
    system.stop();
}

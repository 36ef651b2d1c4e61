//! What a hostile or careless hand does to the whole system: every run is still answered, once, and none holds up another.

use std::path::PathBuf;
use std::time::{Duration, Instant};

use ocx::trial::{Asked, Where, request};
use serde_json::json;

use crate::system::{SOON, System, UNKNOWN};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("breaking: P7 a message of anyone's that names an impossible user holds up no run", impossible_user),
    ("breaking: C-113 a run of texts as long as they may be is refused, and the node goes on", long_texts),
    ("breaking: P2 a node that lost its state posts no second ended of a run that has one", state_lost),
    ("breaking: V2-2.12-04 a stop that comes before the launch is asked for launches nothing", stop_before_launch),
];

fn impossible_user() {
    let mut system = System::new();
    let nobody = system.trial.session(ocx::trial::accounts::PROCESS).unwrap();
    for user in ["x".repeat(201), "x".repeat(2 << 20)] {
        let mut message = system.message("echo never");
        message["run"]["process"]["user"] = json!(user);
        nobody.new_thread("Odd", &request::post("Please.", &message));
        // Any kind of message is asked about.
        nobody.new_thread("Odd", &request::post("Look.", &json!({"ocx": 2, "note": {"process": {"user": user}}})));
    }
    let asked = system.run("echo fine");
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(0));
    system.stop();
}

fn long_texts() {
    let mut system = System::new();
    let mut message = system.message("echo never");
    message["run"]["sandbox"]["read_only"] = json!([format!("/{}", "x/".repeat(50_000))]);
    let asked = system.post(Where::Thread, &message);
    let ended = system.ended(&asked, SOON);
    assert_eq!(ended["outcome"], json!("refused"), "{ended:?}");
    let asked = system.run("echo fine");
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(0));
    system.stop();
}

fn state(system: &System, asked: &Asked) -> PathBuf {
    system.trial.layout().root().join("state/runs").join(format!("{}.state", asked.run))
}

fn state_lost() {
    let mut system = System::new();
    let asked = system.run("exit 3");
    system.ended(&asked, SOON);
    assert_eq!(system.kinds(&asked), ["started", "ended"]);
    system.trial.kill_supervisor().unwrap();
    std::fs::remove_file(state(&system, &asked)).unwrap();
    system.trial.start_supervisor().unwrap();
    // A run after it is answered, so it was met before.
    let next = system.run("exit 0");
    system.ended(&next, UNKNOWN);
    assert_eq!(system.kinds(&asked), ["started", "ended"]);
    system.stop();
}

fn stop_before_launch() {
    let mut system = System::new();
    let asked = system.run("echo launched; sleep 600");
    // What follows `taken` cannot be written: `started` is posted, and the launch is not asked for.
    let state = state(&system, &asked);
    let deadline = Instant::now() + SOON;
    while !state.exists() {
        assert!(Instant::now() < deadline, "taken is never written");
        std::thread::sleep(Duration::from_micros(200));
    }
    let in_the_way = state.with_extension("state.new");
    std::fs::create_dir(&in_the_way).unwrap();
    system.wait_for(&asked, "started", SOON);
    let session = system.trial.session(ocx::trial::accounts::ADMIN).unwrap();
    let stop = json!({"ocx": 2, "re": asked.run, "stop": {}});
    session.reply(&asked.run, &format!("```json\n{stop}\n```\n"));
    // Only once the node has met the stop may it go on.
    let said = format!("run {}: a stop stands", &asked.run[..10]);
    let deadline = Instant::now() + SOON;
    while !std::fs::read_to_string(system.trial.layout().log()).unwrap().contains(&said) {
        assert!(Instant::now() < deadline, "the stop is never met");
        std::thread::sleep(Duration::from_millis(50));
    }
    std::fs::remove_dir(&in_the_way).unwrap();
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "stopped"}).as_object().unwrap());
    assert_eq!(system.kinds(&asked), ["started", "stop", "ended"], "and no log: nothing ran");
    system.stop();
}

//! Two servers and a wrong password on one host: what fails of one clone is that clone's alone (decisions C-109).

use std::fs;
use std::path::PathBuf;
use std::time::{Duration, Instant, SystemTime};

use ocx::trial::accounts::{NODE, PROCESS, write_private};
use ocx::trial::{Asked, Interrupt, Setup, Trial, Where, request};
use serde_json::{Value, json};

use crate::system::{SOON, System, UNKNOWN};

pub(crate) const TESTS: &[(&str, fn())] = &[(
    "C-109 cases 20 and 37 a lane whose server is gone, or whose password is wrong, ends, starts again after 30 s, and holds \
     up no other",
    lanes,
)];

/// What C-109 says.
const LANE_WAIT: Duration = Duration::from_secs(30);

fn setup() -> Setup {
    Setup { programs: Some(crate::support::programs().to_owned()), ..Setup::default() }
}

/// The events of one lane in the node's log: when, what, and why.
fn events(log: &PathBuf, lane: &str) -> Vec<(SystemTime, String, String)> {
    let text = fs::read_to_string(log).unwrap_or_default();
    let lines = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let at = |it: &Value| humantime::parse_rfc3339(it["at"].as_str().unwrap()).unwrap();
    let word = |it: &Value, key: &str| it[key].as_str().unwrap_or_default().to_owned();
    lines.filter(|it| it["lane"] == json!(lane)).map(|it| (at(&it), word(&it, "event"), word(&it, "why"))).collect()
}

fn wait<T>(what: &str, longest: Duration, look: impl Fn() -> Option<T>) -> T {
    let deadline = Instant::now() + longest;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what} does not come");
        std::thread::sleep(Duration::from_millis(100));
    }
}

/// Waits for the lane's next end, and for its start after it: how long it stayed ended, and of what.
fn ended(log: &PathBuf, lane: &str, from: usize) -> (Duration, String) {
    wait(&format!("end and start of lane {lane}"), UNKNOWN, || {
        let came = events(log, lane).split_off(from);
        let end = came.iter().position(|(_, it, _)| it == "end")?;
        let start = came[end..].iter().find(|(_, it, _)| it == "start")?;
        let of = end.checked_sub(1).map_or_else(String::new, |at| came[at].1.clone());
        Some((start.0.duration_since(came[end].0).unwrap(), of))
    })
}

fn lanes() {
    let mut far = Trial::make(&setup(), Interrupt::default()).unwrap();
    let mut near = Trial::make(&setup(), Interrupt::default()).unwrap();
    let file = |name: &str| near.layout().root().join("passwords").join(name);
    let of = |url: &str, password: &str| json!({"server": url, "user": NODE.login, "password": password}).to_string();
    write_private(&file("far.json"), &of(far.url(), far.password(NODE))).unwrap();
    write_private(&file("wrong.json"), &of(near.url(), "not this one")).unwrap();
    let root = near.layout().root();
    let log = root.join("state/daemon.log");
    near.start_supervisor().unwrap();
    let clone = near.wait_ready().unwrap();
    let lane = root.join("state/lanes/far.json");
    let far_clone = wait("the clone of the other server", SOON, || {
        let now: Value = serde_json::from_slice(&fs::read(&lane).ok()?).ok()?;
        now["clone"].as_str().filter(|_| now["pulled"].is_string()).map(str::to_owned)
    });
    let mut near = System { trial: near, clone };
    let ask = |far: &mut Trial, script: &str| -> Asked {
        let command = ["sh", "-c", script].map(String::from);
        let message = request::message(NODE.login, &far_clone, PROCESS.login, &command);
        far.post_run(Where::Thread, &request::post("For a test.", &message)).unwrap()
    };

    // A sign-in that is refused; and nothing of it at the clone's own server.
    let (stayed, _) = ended(&log, "wrong", 0);
    assert!(stayed + Duration::from_secs(1) >= LANE_WAIT, "started again after {stayed:?}");

    // The server goes while a run of its own is under way.
    let under_way = ask(&mut far, "sleep 5; exit 4");
    wait("the launch", SOON, || {
        let log = fs::read_to_string(near.trial.layout().log()).unwrap();
        log.contains(&format!("run {}: launched", under_way.short())).then_some(())
    });
    let before = events(&log, "far").len();
    let port = far.url().rsplit(':').next().unwrap().parse().unwrap();
    far.stop_server().unwrap();
    let asked = near.run("echo near; exit 3");
    assert_eq!(near.ended(&asked, SOON)["exit"], json!(3));
    assert_eq!(near.log(&asked, "stdout"), "near\n");
    assert_eq!(near.kinds(&asked), ["started", "ended", "log"]);
    let (stayed, of) = ended(&log, "far", before);
    assert!(stayed + Duration::from_secs(1) >= LANE_WAIT, "started again after {stayed:?}");
    assert!(["chat_failure", "receipt_failure", "pull_failure"].contains(&of.as_str()), "{of}");
    // Still gone: it ends again, and the other works again.
    let asked = near.run("exit 5");
    assert_eq!(near.ended(&asked, SOON)["exit"], json!(5));

    far.start_server(Some(port)).unwrap();
    let content = |far: &mut Trial, asked: &Asked| {
        let entry = far.wait_for(asked, "ended", UNKNOWN).unwrap_or_else(|why| panic!("{why}"));
        ocx::engine::message::find(&entry.text).unwrap().content
    };
    assert_eq!(content(&mut far, &under_way)["exit"], json!(4));
    let asked = ask(&mut far, "exit 6");
    assert_eq!(content(&mut far, &asked)["exit"], json!(6));
    let untroubled = events(&log, "trial");
    assert!(untroubled.iter().all(|(_, it, _)| it != "end" && !it.ends_with("_failure")), "{untroubled:?}");
    near.stop();
    far.stop().unwrap();
}

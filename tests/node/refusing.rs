//! Runs that are refused, and messages that are none.

use ocx::trial::{Asked, Interrupt, Setup, Spot, Trial, Where, request};
use serde_json::{Value, json};

use crate::system::{SOON, System};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("V2-2.14 each refusal that a message alone shows is posted, and nothing is made", refusals),
    ("V2-2.14-03 a run of a user who holds nothing is refused 1", sender_without_rights),
    ("V2-2.4-02 a run for another clone or user is passed by in silence", other_address),
    ("V2-2.1-08, C-13 a malformed, a huge and a deep block are no messages, and the next run runs", malformed),
];

/// On a host without user namespaces the service runs and says so: it never starts a run with less than a sandbox.
fn without_namespaces() {
    let setting = "/proc/sys/user/max_user_namespaces";
    // A trial is made only where they are on; this host, a guest of our own, is turned off again before anything starts.
    std::fs::write(setting, "15000").unwrap();
    let setup = Setup { programs: Some(crate::support::programs().to_owned()), ..Setup::default() };
    let mut trial = Trial::make(&setup, Interrupt::default()).unwrap();
    std::fs::write(setting, "0").unwrap();
    trial.start_supervisor().unwrap();
    let clone = trial.wait_ready().unwrap();
    let mut system = System { trial, clone };
    let message = system.message("echo never");
    let note = refused(&mut system, &message);
    assert!(note.contains("sandbox") && note.contains("user.max_user_namespaces"), "{note}");
    system.stop();
    // The control: with them on, the same run runs.
    std::fs::write(setting, "15000").unwrap();
    let mut system = System::new();
    let message = system.message("echo never");
    let asked = system.post(Where::Thread, &message);
    assert_eq!(system.ended(&asked, SOON)["outcome"], json!("exited"));
    system.stop();
    std::fs::write(setting, "0").unwrap();
}

/// Needs a host that has no user namespaces.
pub(crate) const WITHOUT_NAMESPACES: (&str, fn()) =
    ("V2-2.14 a host without user namespaces refuses 6 and names them", without_namespaces);

/// Posts it and gives the note of its refusal.
fn refused(system: &mut System, message: &Value) -> String {
    let asked = system.post(Where::Thread, message);
    let ended = system.ended(&asked, SOON);
    assert_eq!(ended["outcome"], json!("refused"), "{ended:?}");
    assert!(!ended.contains_key("exit"));
    // P5: a refusal makes nothing.
    assert!(!system.trial.layout().root().join("workspaces").join(&asked.run).exists());
    ended["note"].as_str().unwrap().to_owned()
}

/// The row expected, what is changed in a good run, and what the note names.
type Change = (&'static str, fn(&mut Value), &'static str);

fn refusals() {
    let mut system = System::new();
    let base = system.message("echo never");
    // The control: the same run with nothing changed is not refused.
    let asked = system.post(Where::Thread, &base);
    assert_eq!(system.ended(&asked, SOON)["outcome"], json!("exited"));

    let changes: &[Change] = &[
        ("2", |run| run["surprise"] = json!(1), "surprise"),
        ("2", |run| run["sandbox"]["files"] = json!([]), "files"),
        ("2", |run| drop(run.as_object_mut().unwrap().remove("objective")), "objective"),
        ("3", |run| run["process"]["env"]["X"] = json!("$$tree$$"), "tree"),
        ("4", |run| run["process"]["user"] = json!("lab-1"), "lab-1"),
        ("4", |run| run["process"]["user"] = json!("admin"), "admin"),
        ("5", |run| drop(run.as_object_mut().unwrap().remove("sandbox")), "sandbox"),
        ("6", |run| run["process"]["session"] = json!(true), "session"),
        ("6", |run| run["process"]["terminal"] = json!(true), "terminal"),
        ("9", |run| run["of"] = json!("release-9"), "of"),
        ("7", |run| run["workspace"][0]["at"] = json!("/tmp/elsewhere"), "/tmp/elsewhere"),
        ("7", |run| run["sandbox"]["read_only"] = json!(["$$root$$/../state"]), "state"),
        (
            "8",
            |run| {
                run["of"] = json!("trunk");
                run["process"]["verdict"] = json!(true);
            },
            "verdict",
        ),
    ];
    for (row, change, named) in changes {
        let mut message = base.clone();
        change(&mut message["run"]);
        let note = refused(&mut system, &message);
        assert!(note.starts_with(&format!("refusal {row}:")) && note.contains(named), "{row} {named}: {note}");
    }
    system.stop();
}

fn sender_without_rights() {
    let mut system = System::new();
    let text = request::post("Please.", &system.message("echo never"));
    let session = system.trial.session(ocx::trial::accounts::PROCESS).unwrap();
    session.new_thread("By someone", &text);
    let (run, _) = system.trial.record().received().unwrap().pop().unwrap();
    let asked = Asked { spot: Spot::Thread(run.clone()), run, stored: std::time::Instant::now() };
    let ended = system.ended(&asked, SOON);
    assert!(ended["note"].as_str().unwrap().starts_with("refusal 1:"), "{ended:?}");
    assert_eq!(system.kinds(&asked), ["ended"]);
    system.stop();
}

fn other_address() {
    let mut system = System::new();
    let mut asked = Vec::new();
    let changes: &[fn(&mut Value)] = &[
        |message| message["run"]["clone"] = json!("0123456789012345678901234567890123456789"),
        |message| message["to"] = json!("lab-2"),
        |message| drop(message.as_object_mut().unwrap().remove("to")),
        |message| message["run"]["clone"] = json!("short"),
    ];
    for change in changes {
        let mut message = system.message("echo never");
        change(&mut message);
        asked.push(system.post(Where::Thread, &message));
    }
    // A run after them is answered, so they were read before it.
    let last = system.run("echo last");
    system.ended(&last, SOON);
    for asked in &asked {
        assert!(system.kinds(asked).is_empty(), "{asked:?} was answered");
    }
    system.stop();
}

fn malformed() {
    let mut system = System::new();
    let whole = system.message("echo never").to_string();
    let huge = whole.replace("echo never", &"x".repeat(2 << 20));
    let deep = format!("{{\"ocx\":2,\"run\":{}1{}}}", "[".repeat(10_000), "]".repeat(10_000));
    let twice = whole.replacen("\"run\":{", "\"run\":{\"clone\":1,", 1);
    for block in ["{", &whole[..whole.len() - 1], &huge, &deep, &twice, &whole.replace("\"ocx\":2", "\"ocx\":2.0")] {
        system.trial.post_run(Where::Thread, &format!("Odd.\n\n```json\n{block}\n```\n")).unwrap();
    }
    let asked = system.run("echo fine");
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(0));
    system.log(&asked, "stdout");
    let posts = system.trial.record().received().unwrap();
    let ours = posts.iter().filter(|(_, from)| from == ocx::trial::accounts::NODE.login).count();
    assert_eq!(ours, 3, "started, ended and log of the last run alone");
    system.stop();
}

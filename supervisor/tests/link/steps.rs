//! What a workspace step is started with, and what is believed of its answer (decisions C-95, C-97).
#![expect(
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test that finds what it did not expect ends there"
)]

use std::io::Write as _;
use std::path::Path;

use supervisor::wire::frame::seal;
use supervisor::wire::message::{Event, Handle, Reply, Request};
use supervisor::wire::plan::{Holds, Step};

use crate::world::{Node, World, hash};

pub(crate) fn tests() -> Vec<(&'static str, fn())> {
    vec![
        ("steps::c_97_a_step_sees_its_own_workspace_alone_and_no_network", alone),
        ("steps::c_97_clone_alone_has_the_network_and_its_password_in_no_word_and_no_variable", credential),
        ("steps::c_95_a_step_sees_the_workspace_where_the_process_will", seen_at),
        ("steps::v2_2_7_09_the_check_in_a_step_answers_is_kept_and_told_again", checkin),
        ("steps::what_a_step_answers_is_of_its_form_or_it_failed", not_believed),
        ("steps::v2_2_7_24_a_look_tells_what_it_found_and_not_what_is_no_answer", looked_at),
    ]
}

const CHECKIN: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Prepares a workspace with one more step; its answer.
fn prepare(
    world: &World,
    node: &mut Node,
    handle: Handle,
    workspace_at: Option<&str>,
    step: impl Fn(&str) -> Step,
    carried: &[std::os::fd::BorrowedFd<'_>],
) -> Reply {
    let at = world.workspace("own");
    let steps = vec![Step::Directory { at: at.clone() }, step(&at)];
    let workspace_at = workspace_at.map(str::to_owned);
    node.call(Request::Prepare { handle, workspace_at, checkin: None, steps }, carried)
}

/// What the test's step tool says of itself, which fails to say it.
fn told(reply: Reply) -> serde_json::Value {
    let Reply::StepFailed { index: 1, why } = reply else { panic!("{reply:?}") };
    serde_json::from_str(&why).unwrap_or_else(|error| panic!("{error}: {why}"))
}

fn network_of_this() -> String {
    std::fs::read_link("/proc/self/ns/net").unwrap().display().to_string()
}

fn files(at: &str, name: &str) -> Step {
    Step::Files { into: format!("{at}/{name}"), checkin: CHECKIN.to_owned() }
}

fn alone() {
    let (world, mut node) = World::served();
    // Another run's workspace, beside it.
    let (_other, there) = world.prepared(&mut node, &hash('b'));
    let handle = node.take(&hash('a'));
    let (from, to) = std::io::pipe().unwrap();
    let mut to = to;
    to.write_all(b"the files").unwrap();
    drop(to);
    let carried = [std::os::fd::AsFd::as_fd(&from)];
    let told = told(prepare(&world, &mut node, handle, None, |at| files(at, "tell"), &carried));
    assert_eq!(told["beside"], serde_json::json!(["own"]));
    assert_eq!(told["stdin"], "the files");
    assert_ne!(told["network"], network_of_this());
    assert_eq!(told["variables"], serde_json::json!(["HOME", "LANG", "PATH", "USER"]));
    assert_eq!(told["words"], serde_json::json!(["files", world.workspace("own"), world.workspace("own") + "/tell"]));
    // Control: the other one is there, for whoever sees their root, as the step that makes one does.
    assert!(Path::new(&there).exists());
    let handle = node.take(&hash('c'));
    let steps = vec![Step::Directory { at: world.workspace("tell") }];
    let reply = node.call(Request::Prepare { handle, workspace_at: None, checkin: None, steps }, &[]);
    let Reply::StepFailed { why, .. } = reply else { panic!("{reply:?}") };
    let other = Path::new(&there).file_name().unwrap().to_string_lossy().into_owned();
    assert!(why.contains(&other) && why.contains("own"), "{why}");
}

fn credential() {
    let (world, mut node) = World::served();
    let handle = node.take(&hash('a'));
    let sealed = seal("credential", b"the password").unwrap();
    let carried = [std::os::fd::AsFd::as_fd(&sealed)];
    let clone = |at: &str| Step::Clone { into: format!("{at}/tell") };
    let told = told(prepare(&world, &mut node, handle, None, clone, &carried));
    assert_eq!((&told["stdin"], &told["network"]), (&"the password".into(), &network_of_this().into()));
    let without = |it: &serde_json::Value| !it.to_string().contains("password");
    assert!(without(&told["words"]) && without(&told["variables"]), "{told}");
    assert!(!world.logged().iter().any(|line| line.contains("the password") && !line.contains("stdin")));
}

fn seen_at() {
    let (world, mut node) = World::served();
    let handle = node.take(&hash('a'));
    let null = std::fs::File::open("/dev/null").unwrap();
    let carried = [std::os::fd::AsFd::as_fd(&null)];
    let told = told(prepare(&world, &mut node, handle, Some("/seen/here"), |at| files(at, "tell"), &carried));
    assert_eq!(told["words"], serde_json::json!(["files", "/seen/here", "/seen/here/tell"]));
    assert_eq!((&told["beside"], &told["is_there"]), (&serde_json::json!(["here"]), &true.into()));
}

fn checkout(at: &str, name: &str) -> Step {
    Step::Checkout { clone: format!("{at}/clone"), of: "trunk".to_owned(), into: format!("{at}/{name}") }
}

fn checkin() {
    let (world, mut node) = World::served();
    let handle = node.take(&hash('a'));
    let reply = prepare(&world, &mut node, handle, None, |at| checkout(at, &format!("answer-{CHECKIN}")), &[]);
    assert_eq!(reply, Reply::Prepared { checkin: Some(CHECKIN.to_owned()) }, "{:#?}", world.logged());
    // The next node is told, whatever became of this one.
    drop(node);
    let mut node = world.greeted();
    let (event, _) = node.event();
    let Event::InCare { checkin, .. } = event else { panic!("{event:?}") };
    assert_eq!(checkin.as_deref(), Some(CHECKIN));
}

fn not_believed() {
    let (world, mut node) = World::served();
    for (run, answer) in [('a', "trunk"), ('b', &CHECKIN[1..]), ('c', &format!("{CHECKIN}0")), ('d', &"f".repeat(200))]
    {
        let handle = node.take(&hash(run));
        let reply = prepare(&world, &mut node, handle, None, |at| checkout(at, &format!("answer-{answer}")), &[]);
        let Reply::StepFailed { index: 1, why } = reply else { panic!("{reply:?}") };
        assert!(why.contains("not the hash of a check-in"), "{why}");
        node.call(Request::Release { handle }, &[]);
    }
}

fn looked_at() {
    let (world, mut node) = World::served();
    let holds = Holds { changes: vec!["EXTRA x".to_owned()], changes_count: 1, ..Holds::default() };
    let many = Holds { unsent: vec![CHECKIN.to_owned(); 501], ..Holds::default() };
    let no_hash = Holds { unsent: vec!["../x".to_owned()], ..Holds::default() };
    let json = |holds: &Holds| serde_json::to_string(holds).unwrap();
    let answers = [
        (json(&holds), Some(holds)),
        (json(&many), None),
        (json(&no_hash), None),
        ("{}".to_owned(), None),
        (String::new(), None),
        ("x".repeat(100_000), None),
    ];
    for (run, (answer, expected)) in ('a'..).zip(answers) {
        // A process may leave any answer there: it is its own workspace.
        let (handle, at) = world.run(&mut node, &hash(run), "true");
        std::fs::write(Path::new(&at).join("answer"), answer).unwrap();
        node.exited(handle);
        let checkouts = vec![format!("{at}/answer")];
        let reply = node.call(Request::Inspect { handle, workspace_at: None, clone: None, checkouts }, &[]);
        match (reply, expected) {
            (Reply::Inspected { holds }, Some(expected)) => assert_eq!(*holds, expected),
            (Reply::NotInspected { why }, None) => assert!(why.contains("not of its form"), "{why}"),
            (reply, expected) => panic!("{reply:?} instead of {expected:?}"),
        }
        let outside = vec![format!("{at}/../other")];
        let reply = node.call(Request::Inspect { handle, workspace_at: None, clone: None, checkouts: outside }, &[]);
        assert!(matches!(reply, Reply::NotInspected { .. }), "{reply:?}");
    }
}

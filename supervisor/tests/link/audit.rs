//! `ocx-supervisor audit`: the facts of a run under way beside what was promised, and each change made from outside told.

#![expect(clippy::indexing_slicing, reason = "a missing key is null, and fails the test")]

use std::process::{Command, Output};

use serde_json::Value;
use supervisor::wire::message::{Reply, Request};

use crate::Test;
use crate::world::{World, hash, process};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("audit::a_run_under_way_is_as_promised_by_hash_and_by_process", as_promised),
        ("audit::what_was_changed_from_outside_is_told", changed),
        ("audit::what_is_not_under_way_is_said_so", nothing),
        ("audit::a_run_without_a_sandbox_has_facts_too", unconfined),
    ]
}

fn audit(world: &World, words: &[&str]) -> Output {
    let program = world.dir.join("release/ocx-supervisor");
    Command::new(program).arg("audit").arg("--root").arg(&world.root).args(words).output().unwrap()
}

/// The facts that differ, by name.
fn differing(world: &World, run: &str) -> Vec<String> {
    let output = audit(world, &["--json", run]);
    let whole: Value = serde_json::from_slice(&output.stdout).unwrap();
    let facts = whole["facts"].as_array().unwrap();
    let differs = facts.iter().filter(|it| it["same"] == false);
    let names: Vec<String> = differs.map(|it| it["what"].as_str().unwrap().to_owned()).collect();
    assert_eq!(whole["same"], names.is_empty());
    assert_eq!(output.status.code(), Some(i32::from(!names.is_empty())));
    names
}

fn as_promised() {
    let (world, mut node) = World::served();
    let (handle, _) = world.run(&mut node, &hash('a'), "sleep 5102.1");
    let output = audit(&world, &["aaaa"]);
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(output.status.code(), Some(0), "{text} {}", String::from_utf8_lossy(&output.stderr));
    for fact in
        ["Uid", "CapBnd", "no_new_privs", "uid map", "mount /usr", "mnt namespace", "filter", "limit core", "cgroups"]
    {
        assert!(text.lines().any(|line| line.trim_start().starts_with(fact)), "{fact}: {text}");
    }
    assert!(text.contains("all as promised"), "{text}");
    // By any process of it, one that the program started and one that left its session too.
    let pid = process("sleep\x005102.1");
    assert_eq!(audit(&world, &[&pid.to_string()]).status.code(), Some(0));
    assert_eq!(differing(&world, &hash('a')), Vec::<String>::new());
    assert_eq!(node.call(Request::Stop { handle, why: String::new() }, &[]), Reply::Stopping);
    node.exited(handle);
}

fn changed() {
    let (world, mut node) = World::served();
    let (handle, _) = world.run(&mut node, &hash('b'), "sleep 5102.2 & exec sleep 5102.3");
    let pid = process("sleep\x005102.3").to_string();
    let outside = |words: &[&str]| {
        let (program, words) = words.split_first().unwrap();
        let output = Command::new(program).args(words).output().unwrap();
        assert!(output.status.success(), "{output:?}");
    };
    outside(&["nsenter", "-t", &pid, "-m", "mount", "-o", "remount,bind,rw", "/usr"]);
    assert_eq!(differing(&world, "bbbb"), ["mount /usr"]);
    outside(&["nsenter", "-t", &pid, "-m", "mount", "-t", "tmpfs", "more", "/tmp"]);
    assert_eq!(differing(&world, "bbbb"), ["mount /usr", "mount /tmp"]);
    let group = std::fs::read_to_string(format!("/proc/{pid}/cgroup")).unwrap();
    assert!(group.contains(&hash('b')), "{group}");
    assert_eq!(node.call(Request::Stop { handle, why: String::new() }, &[]), Reply::Stopping);
    node.exited(handle);
}

fn nothing() {
    let (world, mut node) = World::served();
    let (one, _) = world.prepared(&mut node, &hash('c'));
    let says = |words: &[&str], what: &str| {
        let output = audit(&world, words);
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(2), "{text}");
        assert!(text.contains(what) && output.stdout.is_empty(), "{words:?}: {text}");
    };
    says(&["cccc"], "no such run is under way");
    says(&["1"], "is of no run in the care of");
    says(&[], "RUN or PID is missing");
    says(&["--all"], "is no option");
    says(&["aaaa", "bbbb"], "more than one");
    assert_eq!(node.call(Request::Release { handle: one }, &[]), Reply::Released);
    // Two whose hashes begin alike: the first digits name neither.
    let like = |last: char| format!("ddddd{}", hash(last).get(..35).unwrap());
    let handles: Vec<_> = ['1', '2'].map(|it| world.run(&mut node, &like(it), "sleep 5102.4").0).into();
    says(&["dddd"], "give more digits");
    assert_eq!(audit(&world, &[&like('1')]).status.code(), Some(0));
    for handle in handles {
        assert_eq!(node.call(Request::Stop { handle, why: String::new() }, &[]), Reply::Stopping);
        node.exited(handle);
    }
    says(&[&like('1')], "under way");
}

fn unconfined() {
    let world = World::new();
    world.setting("unconfined", "");
    let mut world = world;
    world.start();
    let mut node = world.greeted();
    let handle = node.take(&hash('e'));
    let mut plan = world.plan(&hash('e'), None, "exec sleep 5102.5");
    plan.sandbox = None;
    assert!(matches!(node.launch(handle, &plan, b""), Reply::Launched { .. }), "{:#?}", world.logged());
    assert_eq!(differing(&world, "eeee"), Vec::<String>::new());
    // A limit raised from outside.
    let pid = process("sleep\x005102.5").to_string();
    let raised = Command::new("prlimit").args(["--pid", &pid, "--core=4096:4096"]).output().unwrap();
    if raised.status.success() {
        assert_eq!(differing(&world, "eeee"), ["limit core"]);
    }
    assert_eq!(node.call(Request::Stop { handle, why: String::new() }, &[]), Reply::Stopping);
    node.exited(handle);
}

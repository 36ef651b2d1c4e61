//! A hostile protocol process against a supervisor that has real runs in care. Nobody holds its hand: it is started, plays
//! an attack, is ended and started again, until it has played its list.

use std::collections::BTreeSet;
use std::path::Path;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use supervisor::wire::accounts::derive;
use supervisor::wire::message::{End, Event, Handle, Phase, Reply, Request};

use crate::Test;
use crate::hostile::{self, Attack, Progress};
use crate::run::RunState;
use crate::world::{Node, World, hash, processes, until};

pub(crate) fn tests() -> Vec<Test> {
    vec![("siege::a_hostile_protocol_process_is_ended_each_time_and_no_run_is_harmed", siege)]
}

/// So many sieges at once: they wait most of the time. Fewer where `OCX_TEST_AT_ONCE` says so, as in an emulated guest.
const AT_ONCE: usize = 8;

fn at_once() -> usize {
    std::env::var("OCX_TEST_AT_ONCE").map_or(AT_ONCE, |it| it.parse().unwrap())
}

/// How long one list may take to be played.
const LIST_PLAYED_MAX: Duration = Duration::from_secs(900);
/// How often a state that lasts a moment may be missed.
const TRIES_MAX: u32 = 4;
/// The supervisor's own memory may be so much more at the end. One frame is 64 KiB; thousands were sent.
const MEMORY_MORE_MAX_KIB: u64 = 2048;
/// The waits of the supervisor's back-off (`backoff.rs`).
const FIRST_WAIT_MS: u64 = 100;
const LONGEST_WAIT_MS: u64 = 30_000;
/// The runs that go on all the while.
const RUNS: [char; 3] = ['a', 'b', 'c'];

fn siege() {
    let lists = hostile::lists();
    let next = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let work = || {
            while let Some(list) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|it| *it < lists.len()) {
                besieged(list, lists.get(list).unwrap());
            }
        };
        let all: Vec<_> = (0..at_once()).map(|_| scope.spawn(work)).collect();
        let failed = all.into_iter().filter_map(|it| it.join().err()).count();
        assert_eq!(failed, 0, "sieges failed, as said above");
    });
}

/// The supervisor's own memory in KiB, and its descriptors.
fn measure(world: &World) -> (u64, usize) {
    let proc = Path::new("/proc").join(world.supervisor_pid().to_string());
    let text = std::fs::read_to_string(proc.join("smaps_rollup")).unwrap();
    let own = text.lines().find_map(|line| line.strip_prefix("Anonymous:")).unwrap();
    let kib = own.trim().trim_end_matches("kB").trim().parse().unwrap();
    (kib, std::fs::read_dir(proc.join("fd")).unwrap().count())
}

fn script() -> &'static str {
    "echo x >> ran; while ! [ -e go ]; do sleep 1; done; echo done; exit 7"
}

fn besieged(number: usize, list: &[Attack]) {
    let mut world = World::new();
    // One that was asked to end goes on for the whole siege, unless it is ended by name.
    world.setting("grace", "3600");
    world.start();
    let mut node = world.greeted();
    if list.iter().any(|it| matches!(it, Attack::State(_, RunState::Orphaned))) {
        world.run(&mut node, &hash('d'), "sleep 1000");
        drop(node);
        world.end_supervisor(rustix::process::Signal::KILL);
        world.start();
        node = world.greeted();
        assert!(matches!(node.event().0, Event::InCare { .. }));
        let Event::Orphaned { handle, event, .. } = node.event().0 else { panic!("no orphan") };
        node.send(Request::Noted { handle, event }, &[]);
    }
    let pid = world.supervisor_pid();
    let runs: Vec<(Handle, String)> = RUNS.iter().map(|run| world.run(&mut node, &hash(*run), script())).collect();
    // A first attack, so that what is made once is made before it is measured: a frame, a refusal, an end, a start.
    node.raw(b"[", &[]);
    node.wait_ended();
    let node = world.greeted();
    let (memory, descriptors) = measure(&world);
    let (lines, started) = (world.logged().len(), Instant::now());

    let play = |next, tries| {
        hostile::set_progress(&world.root, Progress { list: number, next, tries });
        let account = derive(&world.root).node;
        std::os::unix::fs::chown(world.root.join("state/siege"), Some(account.uid), Some(account.gid)).unwrap();
    };
    play(0, 0);
    drop(node);
    let mut tries = 0;
    let (mut node, said) = loop {
        while hostile::progress(&world.root).is_none_or(|it| it.next < list.len()) {
            assert!(started.elapsed() < LIST_PLAYED_MAX, "list {number} is not played: {:#?}", world.logged());
            std::thread::sleep(Duration::from_millis(50));
        }
        // The next is an ordinary one. It waits as long as any: what a list's last attack leads to may take its time.
        let node = world.node_within(LIST_PLAYED_MAX);
        let said: Vec<String> = world.logged().split_off(lines);
        let is_said = |attack: &Attack| said.iter().any(|line| line.contains(&hostile::said_of(*attack)));
        match list.iter().position(|attack| !is_said(attack)) {
            None => break (node, said),
            Some(missed) if tries < TRIES_MAX && list.get(missed).is_some_and(|it| hostile::may_miss(*it)) => {
                tries += 1;
                play(missed, tries);
                drop(node);
            }
            Some(missed) => {
                let expected = list.get(missed).map(|it| hostile::said_of(*it));
                panic!("list {number}: no {expected:?} in {said:#?}")
            }
        }
    };
    let Reply::Welcome { in_care, .. } = node.call(Request::Hello { version: 1 }, &[]) else { panic!("no welcome") };
    waits_double(&said, list.len());

    let kept = settle_all_but(&world, &runs, &mut node, in_care);
    assert_eq!(kept, runs.iter().map(|(handle, _)| *handle).collect::<BTreeSet<_>>(), "in care, by the same numbers");
    let (memory_now, descriptors_now) = measure(&world);
    assert_eq!(descriptors_now, descriptors, "list {number}: descriptors");
    assert!(memory_now <= memory + MEMORY_MORE_MAX_KIB, "list {number}: {memory} KiB became {memory_now}");
    assert_eq!(world.supervisor_pid(), pid);
    // Just started, it may have no command line to be known by yet.
    until("the good node drives something", || !world.driven().is_empty());
    let driven = world.driven();
    assert_eq!(driven.len(), 1, "what a hostile process left: {driven:?}");

    for (handle, at) in &runs {
        std::fs::write(Path::new(at).join("go"), "").unwrap();
        let end = node.exited_at_last(*handle);
        assert_eq!((end.end, end.stdout.as_str()), (End::Code(7), "done\n"));
        assert_eq!(std::fs::read_to_string(Path::new(at).join("ran")).unwrap(), "x\n", "launched once");
    }
}

/// Every wait before a start is twice the one before, up to the longest; only after a process that lived a minute it is
/// the first again.
fn waits_double(said: &[String], attacks: usize) {
    let wait = |line: &String| line.split_once("starting again in ")?.1.split_once(" ms")?.0.parse::<u64>().ok();
    let waits: Vec<u64> = said.iter().filter_map(wait).collect();
    assert!(waits.len() > attacks, "{attacks} attacks, and {waits:?}");
    for pair in waits.windows(2) {
        let [before, after] = pair else { continue };
        let lived_long = *after == FIRST_WAIT_MS && said.iter().any(|line| line.contains("has taken nothing for 60 s"));
        assert!(*after == (before * 2).min(LONGEST_WAIT_MS) || lived_long, "{waits:?}");
    }
}

/// Settles every run in care that is not of `runs`; the handles of those that are.
fn settle_all_but(world: &World, runs: &[(Handle, String)], node: &mut Node, in_care: u32) -> BTreeSet<Handle> {
    let (mut kept, mut others, mut met) = (BTreeSet::new(), Vec::new(), 0);
    while met < in_care {
        match node.event().0 {
            Event::InCare { handle, phase, .. } => {
                met += 1;
                if runs.iter().any(|(it, _)| *it == handle) {
                    assert_eq!(phase, Phase::Launched);
                    kept.insert(handle);
                } else {
                    others.push((handle, phase));
                }
            }
            Event::Exited { handle, event, .. } | Event::Orphaned { handle, event, .. } => {
                assert!(!kept.contains(&handle), "a run of ours ended");
                node.send(Request::Noted { handle, event }, &[]);
            }
        }
    }
    for (handle, phase) in others {
        if phase == Phase::Launched {
            // Answered `impossible` when it is an orphan, or its end has just come.
            let stopping = node.call(Request::Stop { handle, why: "the siege is over".into() }, &[]);
            for program in processes(&hostile::deaf_program(&world.root)) {
                let pid = rustix::process::Pid::from_raw(i32::try_from(program).unwrap()).unwrap();
                let _gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
            }
            if stopping == Reply::Stopping {
                node.exited_at_last(handle);
            }
        }
        assert_eq!(node.call(Request::Release { handle }, &[]), Reply::Released);
    }
    kept
}

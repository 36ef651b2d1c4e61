//! Each request in a state its row of REQUESTS does not permit ends the protocol process, and nothing else.

use std::os::fd::AsFd as _;
use std::path::Path;

use supervisor::wire::frame;
use supervisor::wire::message::{End, Event, Phase, Reply, Request};
use supervisor::wire::plan::Step;

use crate::Test;
use crate::world::{Node, World, hash, sealed_plan};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("states::nothing_but_hello_comes_first", first),
        ("states::hello_comes_once_and_of_this_version", hello),
        ("states::a_run_just_taken", taken),
        ("states::a_run_that_is_prepared", prepared),
        ("states::p1_a_run_that_runs_is_not_launched_prepared_or_let_go", running),
        ("states::p1_a_run_that_exited_is_not_launched_or_prepared", exited),
        ("states::unknown_handles_and_projects_are_answered", unknown),
        ("states::a_plan_of_texts_as_long_as_it_may_be_is_refused_in_one_frame", long_texts),
    ]
}

/// Sends a request with as many sealed descriptors and expects the node's end, then a new node that is told so many.
fn breaks(world: &World, mut node: Node, request: Request, descriptors: usize, in_care: u32) -> Node {
    let what = format!("{request:?}");
    let fd = frame::seal("x", b"{}").unwrap();
    node.send(request, &vec![fd.as_fd(); descriptors]);
    node.wait_ended();
    let mut node = world.node();
    let (reply, _) = node.call_with(Request::Hello { version: 1 }, &[]);
    let Reply::Welcome { in_care: found, .. } = reply else { panic!("{what}: {reply:?}") };
    assert_eq!(found, in_care, "{what}");
    for _ in 0..found {
        assert!(matches!(node.event().0, Event::InCare { .. }), "{what}");
    }
    node
}

fn first() {
    for (request, descriptors) in [
        (Request::Take { run: hash('a') }, 0),
        (Request::Check { handle: 1 }, 1),
        (Request::Credential { project: "p".into(), user: None }, 0),
        (Request::Noted { handle: 1, event: 1 }, 0),
        (Request::Release { handle: 1 }, 0),
    ] {
        let mut world = World::new();
        world.start();
        let node = world.node();
        breaks(&world, node, request, descriptors, 0);
    }
}

fn hello() {
    let (world, node) = World::served();
    let node = breaks(&world, node, Request::Hello { version: 1 }, 0, 0);
    drop(node);
    let mut node = world.node();
    node.send(Request::Hello { version: 2 }, &[]);
    node.wait_ended();
    world.wait_log("two releases", 1);
    world.greeted();
}

fn taken() {
    let (world, mut node) = World::served();
    let handle = node.take(&hash('a'));
    let node = breaks(&world, node, Request::WriteLogs { handle, stderr: true, stdout: false }, 1, 1);
    let node = breaks(&world, node, Request::Remove { handle }, 0, 1);
    let node = breaks(&world, node, Request::Open { handle, path: "file".into() }, 0, 1);
    let mut node = breaks(&world, node, Request::Noted { handle, event: 1 }, 0, 1);
    // Control: what its row permits.
    assert_eq!(node.call(Request::Release { handle }, &[]), Reply::Released);
}

fn prepared() {
    let (world, mut node) = World::served();
    let (handle, at) = world.prepared(&mut node, &hash('a'));
    let steps = vec![Step::Directory { at: at.clone() }];
    let node = breaks(&world, node, Request::Prepare { handle, workspace_at: None, checkin: None, steps }, 0, 1);
    let mut node = breaks(&world, node, Request::Launch { handle }, 2, 1); // its plan is none
    assert!(matches!(node.call(Request::Stop { handle, why: String::new() }, &[]), Reply::Impossible { .. }));
    let plan = world.plan(&hash('a'), Some(&at), "exit 0");
    assert!(matches!(node.launch(handle, &plan, b""), Reply::Launched { .. }));
    node.exited(handle);
}

fn running() {
    let (world, mut node) = World::served();
    let (handle, at) = world.run(&mut node, &hash('a'), "echo x >> ran; while ! [ -e go ]; do sleep 0.05; done");
    let plan = sealed_plan(&world.plan(&hash('a'), Some(&at), "echo twice >> ran"));
    let line = frame::seal("line", b"").unwrap();
    node.send(Request::Launch { handle }, &[plan.as_fd(), line.as_fd()]);
    node.wait_ended();
    let node = world.greeted();
    let node =
        breaks(&world, node, Request::Prepare { handle, workspace_at: None, checkin: None, steps: vec![] }, 0, 1);
    let node = breaks(&world, node, Request::Remove { handle }, 0, 1);
    let node = breaks(&world, node, Request::Release { handle }, 0, 1);
    let node = breaks(&world, node, Request::Check { handle }, 1, 1);
    let node = breaks(&world, node, Request::Open { handle, path: "ran".into() }, 0, 1);
    let mut node = breaks(&world, node, Request::WriteLogs { handle, stderr: true, stdout: false }, 1, 1);
    // The run went on through all of it, once.
    std::fs::write(Path::new(&at).join("go"), "").unwrap();
    assert_eq!(node.exited(handle).end, End::Code(0));
    assert_eq!(std::fs::read_to_string(Path::new(&at).join("ran")).unwrap(), "x\n");
}

fn exited() {
    let (world, mut node) = World::served();
    let (handle, at) = world.run(&mut node, &hash('a'), "echo x >> ran");
    let event = node.exited(handle).event;
    node.send(Request::Noted { handle, event }, &[]);
    let plan = sealed_plan(&world.plan(&hash('a'), Some(&at), "echo twice >> ran"));
    let line = frame::seal("line", b"").unwrap();
    node.send(Request::Launch { handle }, &[plan.as_fd(), line.as_fd()]);
    node.wait_ended();
    let mut node = world.greeted();
    assert!(matches!(node.event().0, Event::InCare { phase: Phase::Exited, .. }));
    let node =
        breaks(&world, node, Request::Prepare { handle, workspace_at: None, checkin: None, steps: vec![] }, 0, 1);
    let mut node = breaks(&world, node, Request::Check { handle }, 1, 1);
    assert_eq!(std::fs::read_to_string(Path::new(&at).join("ran")).unwrap(), "x\n");
    assert_eq!(node.call(Request::Remove { handle }, &[]), Reply::Removed);
    let mut node = breaks(&world, node, Request::Remove { handle }, 0, 1);
    assert_eq!(node.call(Request::Release { handle }, &[]), Reply::Released);
}

fn unknown() {
    let (_world, mut node) = World::served();
    let fd = frame::seal("x", b"{}").unwrap();
    for (request, fds) in [
        (Request::Check { handle: 99 }, vec![fd.as_fd()]),
        (Request::Launch { handle: 0 }, vec![fd.as_fd(); 2]),
        (Request::Stop { handle: u64::MAX, why: String::new() }, vec![]),
        (Request::Release { handle: 99 }, vec![]),
    ] {
        let reply = node.call(request, &fds);
        assert!(matches!(reply, Reply::Impossible { .. }), "{reply:?}");
    }
    node.send(Request::Noted { handle: 99, event: 1 }, &[]);
    assert_eq!(node.call(Request::Credential { project: "none".into(), user: None }, &[]), Reply::Unset);
}

/// An answer that does not fit a frame would end the protocol process, and again each time it decides the run anew.
fn long_texts() {
    let (world, mut node) = World::served();
    let handle = node.take(&hash('a'));
    let long = format!("/{}", "\u{1}x".repeat(200_000));
    let changes: [fn(&mut sandbox::spec::Confinement, String); 5] = [
        |it, long| it.read_only.push(long),
        |it, long| it.proc = long,
        |it, long| it.devices.push(long),
        |it, long| it.homes.push(long),
        |it, long| it.linux_capabilities.push(long),
    ];
    for change in changes {
        let mut plan = world.plan(&hash('a'), None, "true");
        change(plan.sandbox.as_mut().unwrap(), long.clone());
        let sealed = sealed_plan(&plan);
        let reply = node.call(Request::Check { handle }, &[sealed.as_fd()]);
        assert!(matches!(&reply, Reply::Refused { why, .. } if why.len() < 3000), "{reply:?}");
    }
    // Control: without it the plan is permitted.
    let plan = sealed_plan(&world.plan(&hash('a'), None, "true"));
    assert_eq!(node.call(Request::Check { handle }, &[plan.as_fd()]), Reply::Permitted);
}

//! Frames no honest protocol process sends: each ends it, and neither the supervisor nor a run.

use std::os::fd::{AsFd as _, BorrowedFd};

use supervisor::wire::frame::{self, FRAME_BYTES_MAX};
use supervisor::wire::message::{Reply, Request};
use supervisor::wire::plan::PLAN_BYTES_MAX;

use crate::Test;
use crate::world::{Node, World, hash, sealed_plan};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("frames::a_truncated_frame", truncated),
        ("frames::garbage_and_depth", garbage),
        ("frames::too_large_for_the_frame_or_its_kind", too_large),
        ("frames::descriptors_too_many", descriptors),
        ("frames::memfds_that_are_unsealed_too_large_or_not_a_plan_of_this_run", memfds),
        ("frames::a_hash_that_is_none", hashes),
        ("frames::a_closed_link", closed),
        ("frames::a_flood", flood),
    ]
}

/// Does something to a node of a world of its own, and expects its end, and another node that works.
fn ends(does: impl FnOnce(&World, &mut Node)) {
    let (world, mut node) = World::served();
    does(&world, &mut node);
    node.wait_ended();
    let mut node = world.greeted();
    node.take(&hash('f'));
    drop(node);
}

fn truncated() {
    let whole = format!(r#"{{"id":7,"request":{{"take":{{"run":"{}"}}}}}}"#, hash('a'));
    for cut in [1, 7, 20, 40, whole.len() - 1] {
        ends(|_, node| node.raw(whole.as_bytes().get(..cut).unwrap(), &[]));
    }
    // Control: whole, it is taken.
    let (_world, node) = World::served();
    node.raw(whole.as_bytes(), &[]);
    let answer = frame::receive(node.link.as_fd()).unwrap();
    assert!(String::from_utf8(answer.bytes).unwrap().contains("taken"));
}

fn garbage() {
    for bytes in [
        b"\xff\xfe\x00".to_vec(),
        b"[".repeat(60_000),
        br#"{"id":1,"request":{"reboot":{}}}"#.to_vec(),
        br#"{"id":1,"request":{"hello":{"version":1,"more":1}}}"#.to_vec(),
        br#"{"id":1,"request":{"noted":{"handle":1,"event":1}}} x"#.to_vec(),
        br#"{"id":-1,"request":{"noted":{"handle":1,"event":1}}}"#.to_vec(),
    ] {
        ends(|_, node| node.raw(&bytes, &[]));
    }
}

fn too_large() {
    ends(|_, node| node.raw(&vec![b' '; FRAME_BYTES_MAX + 1], &[]));
    ends(|_, node| {
        let frame = format!(r#"{{"id":1,"request":{{"take":{{"run":"{}"}}}}}}{}"#, hash('a'), " ".repeat(2000));
        node.raw(frame.as_bytes(), &[]);
    });
}

fn descriptors() {
    let fd = frame::seal("x", b"x").unwrap();
    let take = format!(r#"{{"id":1,"request":{{"take":{{"run":"{}"}}}}}}"#, hash('a'));
    for n in [1, 4, 5, 16] {
        ends(|_, node| node.raw(take.as_bytes(), &vec![fd.as_fd(); n]));
    }
    ends(|_, node| {
        let handle = node.take(&hash('a'));
        node.send(Request::Launch { handle }, &[fd.as_fd()]);
    });
}

fn memfds() {
    let check = |node: &mut Node, fd: BorrowedFd<'_>| {
        let handle = node.take(&hash('a'));
        node.send(Request::Check { handle }, &[fd]);
    };
    ends(|world, node| {
        let open = rustix::fs::memfd_create("open", rustix::fs::MemfdFlags::ALLOW_SEALING).unwrap();
        let plan = serde_json::to_vec(&world.plan(&hash('a'), None, "true")).unwrap();
        rustix::io::write(&open, &plan).unwrap();
        check(node, open.as_fd());
    });
    ends(|_, node| {
        check(
            node,
            rustix::fs::open("/dev/zero", rustix::fs::OFlags::RDONLY, rustix::fs::Mode::empty()).unwrap().as_fd(),
        )
    });
    let large = usize::try_from(PLAN_BYTES_MAX + 1).unwrap();
    ends(|_, node| check(node, frame::seal("large", &vec![b' '; large]).unwrap().as_fd()));
    ends(|_, node| check(node, frame::seal("deep", &b"[".repeat(1 << 20)).unwrap().as_fd()));
    ends(|world, node| check(node, sealed_plan(&world.plan(&hash('b'), None, "true")).as_fd()));
    // Control: sealed, whole and of this run, it is checked.
    let (world, mut node) = World::served();
    let handle = node.take(&hash('a'));
    let plan = sealed_plan(&world.plan(&hash('a'), None, "true"));
    assert_eq!(node.call(Request::Check { handle }, &[plan.as_fd()]), Reply::Permitted);
}

fn hashes() {
    for run in ["", "../../../etc/passwd", &"A".repeat(40), &"a".repeat(41)] {
        ends(|_, node| {
            node.send(Request::Take { run: run.to_owned() }, &[]);
        });
    }
}

fn closed() {
    let (world, node) = World::served();
    drop(node);
    world.wait_log("node: it closed the link", 1);
    world.greeted();
}

fn flood() {
    let (world, mut node) = World::served();
    let handle = node.take(&hash('a'));
    // More requests of one kind than any node needs, each answered.
    rustix::net::sockopt::set_socket_timeout(
        &node.link,
        rustix::net::sockopt::Timeout::Send,
        Some(std::time::Duration::from_secs(60)),
    )
    .unwrap();
    let request = supervisor::wire::message::ToSupervisor {
        id: 1,
        request: Request::Stop { handle: handle + 1, why: "x".repeat(4000) },
    };
    // Several at once, so that even a slow machine is faster than the rate allows.
    let (mut sent, at_once, most) = (0, 16, 50_000);
    let send = |_| frame::send(node.link.as_fd(), &request, &[]).is_ok();
    let receive = |_| frame::receive(node.link.as_fd()).is_ok();
    while sent < most && (0..at_once).all(send) && (0..at_once).all(receive) {
        sent += at_once;
    }
    assert!((1000 - at_once..most).contains(&sent), "{sent} were taken");
    node.wait_ended();
    let mut node = world.greeted();
    assert_eq!(node.call(Request::Take { run: hash('a') }, &[]), Reply::Busy);
}

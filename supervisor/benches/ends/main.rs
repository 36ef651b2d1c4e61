//! What a run's end and its output cost, against a real supervisor as root: `cargo bench -p supervisor --bench ends`.
//!
//! Numbers, and no verdict: what is promised is that draining is no slower than `tail -c 64K` on the same pipe, and that
//! a program that obeys a stop is gone within 50 ms in 99 of 100 cases while a hundred others shout.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    reason = "a bench that finds what it did not expect ends there; its output is its result"
)]
#![allow(dead_code, reason = "the world is the boundary tests'; a bench uses a part of it")]

#[path = "../../tests/link/node.rs"]
mod node;
#[path = "../../tests/link/world.rs"]
mod world;

use std::path::Path;
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use supervisor::wire::message::{Event, Handle, Reply, Request};
use world::{Node, World};

/// What is drained, by both.
const DRAINED_MIB: u64 = 1024;
/// Pairs of drains; the middle one's ratio is told.
const PAIRS: usize = 7;
/// Other runs that shout.
const SHOUTING: u32 = 100;
/// Programs stopped, with and without others that shout.
const STOPS: u32 = 300;

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [program, "node", "--root", root] if program.ends_with("/ocx") => {
            return node::main(Path::new(root), |_| String::new());
        }
        [program, "step", words @ ..] if program.ends_with("/ocx") => return node::step(words),
        [program, "idle", _] if program.ends_with("/ocx") => return node::idle(),
        _ => {}
    }
    if !rustix::process::geteuid().is_root() {
        say("it starts a real supervisor: run it as root; nothing was measured");
        return ExitCode::SUCCESS;
    }
    drains();
    stops();
    ExitCode::SUCCESS
}

fn say(what: &str) {
    eprintln!("{what}");
}

fn hash(n: u32) -> String {
    format!("{n:040x}")
}

/// Both read what the same `dd` writes to a pipe, one after the other, so that what else the machine does meets both.
fn drains() {
    let (world, mut node) = World::served();
    let script = format!("exec dd if=/dev/zero bs=1M count={DRAINED_MIB} status=none");
    let (mut ratios, mut costs) = (Vec::new(), (0.0, 0.0));
    for pair in 0..PAIRS {
        let begun = Instant::now();
        costs.0 += tail(&script);
        let tail = begun.elapsed();
        let before = processor_time(world.supervisor_pid());
        let begun = Instant::now();
        let handle = launch(&world, &mut node, u32::try_from(pair).unwrap(), &script);
        exited(&mut node, handle);
        let ours = begun.elapsed();
        costs.1 += processor_time(world.supervisor_pid()) - before;
        release(&mut node, handle);
        let ratio = tail.as_secs_f64() / ours.as_secs_f64();
        println!(
            "drain {DRAINED_MIB} MiB: tail {:.0} MiB/s, a run's (launch and end counted) {:.0} MiB/s, ratio {ratio:.2}",
            rate(tail),
            rate(ours)
        );
        ratios.push(ratio);
    }
    ratios.sort_by(f64::total_cmp);
    println!("drain: middle ratio of rates {:.2} (promised: 1.0 or more)", ratios.get(PAIRS / 2).unwrap());
    // What else the machine does changes the first number much and this one little.
    println!("drain: processor time of the readers, tail {:.2} s, supervisor {:.2} s", costs.0, costs.1);
}

/// Drains through `tail`; the processor time it took, in seconds.
fn tail(script: &str) -> f64 {
    let mut writer =
        Command::new("sh").args(["-c", script]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let from = writer.stdout.take().unwrap();
    let mut reader = Command::new("tail").args(["-c", "64K"]).stdin(from).stdout(Stdio::null()).spawn().unwrap();
    let pid = rustix::process::Pid::from_child(&reader);
    let options = rustix::process::WaitIdOptions::EXITED | rustix::process::WaitIdOptions::NOWAIT;
    rustix::process::waitid(rustix::process::WaitId::Pid(pid), options).unwrap();
    let used = processor_time(reader.id());
    assert!(reader.wait().unwrap().success() && writer.wait().unwrap().success());
    used
}

#[expect(clippy::as_conversions, clippy::cast_precision_loss, reason = "a thousand is exact")]
fn rate(took: Duration) -> f64 {
    DRAINED_MIB as f64 / took.as_secs_f64()
}

fn stops() {
    let (world, mut node) = World::served();
    let quiet = stopped(&world, &mut node, 1000);
    tell("nobody shouting", quiet);
    for n in 0..SHOUTING {
        launch(&world, &mut node, 5000 + n, "exec yes");
    }
    std::thread::sleep(Duration::from_secs(1));
    let begun = (Instant::now(), processor_time(world.supervisor_pid()));
    let loud = stopped(&world, &mut node, 2000);
    tell(&format!("{SHOUTING} runs shouting"), loud);
    let used = processor_time(world.supervisor_pid()) - begun.1;
    println!("the supervisor meanwhile: {:.2} of one processor", used / begun.0.elapsed().as_secs_f64());
}

/// How long each took from the stop to its answer, and to the end of all of the run.
fn stopped(world: &World, node: &mut Node, first: u32) -> (Vec<Duration>, Vec<Duration>) {
    let (mut answered, mut ended) = (Vec::new(), Vec::new());
    for n in 0..STOPS {
        let handle = launch(world, node, first + n, "exec sleep 1000");
        std::thread::sleep(Duration::from_millis(20));
        let begun = Instant::now();
        assert_eq!(node.call(Request::Stop { handle, why: String::new() }, &[]), Reply::Stopping);
        answered.push(begun.elapsed());
        exited(node, handle);
        ended.push(begun.elapsed());
        release(node, handle);
    }
    (answered, ended)
}

fn tell(what: &str, (mut answered, mut ended): (Vec<Duration>, Vec<Duration>)) {
    for (name, times) in [("answered", &mut answered), ("all of it gone and told", &mut ended)] {
        times.sort();
        let at = |percent: usize| times.get((times.len() - 1) * percent / 100).unwrap().as_secs_f64() * 1000.0;
        println!(
            "stop, {what}, {name}: p50 {:.1} ms, p90 {:.1} ms, p99 {:.1} ms, longest {:.1} ms of {}",
            at(50),
            at(90),
            at(99),
            at(100),
            times.len()
        );
    }
}

fn launch(world: &World, node: &mut Node, n: u32, script: &str) -> Handle {
    let run = hash(n);
    let handle = node.take(&run);
    let reply = node.launch(handle, &world.plan(&run, None, script), b"");
    assert!(matches!(reply, Reply::Launched { .. }), "{reply:?} {:#?}", world.logged());
    handle
}

/// Waits for the end of this run; a shouting one that ended would be a fault.
fn exited(node: &mut Node, of: Handle) {
    let (event, _tails) = node.event();
    let Event::Exited { handle, event, .. } = event else { panic!("{event:?}") };
    assert_eq!(handle, of);
    node.send(Request::Noted { handle, event }, &[]);
}

fn release(node: &mut Node, handle: Handle) {
    assert_eq!(node.call(Request::Release { handle }, &[]), Reply::Released);
}

/// Seconds of processor time a process has had.
fn processor_time(pid: u32) -> f64 {
    const TICKS_A_SECOND: f64 = 100.0;
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    let fields: Vec<&str> = stat.rsplit_once(") ").unwrap().1.split(' ').collect();
    let ticks = |n: usize| fields.get(n).unwrap().parse::<f64>().unwrap();
    (ticks(11) + ticks(12)) / TICKS_A_SECOND
}

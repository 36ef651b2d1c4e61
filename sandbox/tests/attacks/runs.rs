//! Two runs at once, and what a run's own words reach of what is around it.

use std::fs;
use std::os::linux::net::SocketAddrExt as _;
use std::os::unix::net::{SocketAddr, UnixDatagram, UnixListener, UnixStream};
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use libtest_mimic::Failed;
use serde_json::json;

use crate::inside::{Given, Got};
use crate::outside::Stage;
use crate::raw::{self, pointer, pointer_mut, text};
use crate::run::{Folder, Run, Started, lives, pid_of, same, unique, wait_until};
use crate::table::{Attack, Control, attack, whole};

pub(crate) const ATTACKS: &[Attack] = &[
    attack("runs::another_run", "runs-apart", another_run).staged(beside_a_victim),
    attack("runs::another_run_with_network", "runs-apart", another_run).staged(beside_a_victim_with_network),
    attack("runs::another_run_with_all_capabilities", "runs-apart", another_run)
        .staged(beside_a_victim_all_powerful)
        .unfiltered(),
    attack("runs::a_core_is_dumped", "no-core", core).staged(crashing),
    whole("runs::its_environment_reaches_no_helper", "environment", environment),
];

/// How long the victim waits for its end, in tenths of a second.
const VICTIM_TENTHS_MAX: u32 = 3000;

/// What a run does that is no attack: the victim of one.
pub(crate) fn part(name: &str) -> Option<fn(&Given)> {
    (name == "victim").then_some(victim as fn(&Given))
}

/// A run that lives beside the attacker's, and its folder.
struct Victim {
    run: Option<Started>,
    folder: Folder,
}

impl Drop for Victim {
    fn drop(&mut self) {
        drop(fs::write(self.folder.0.join("end"), ""));
        drop(self.run.take().map(Started::end));
    }
}

fn victimised(network: bool) -> Result<Stage, Failed> {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let folder = Folder::new()?;
    let (path, word) = (folder.text(), unique());
    let key = 0x0cb7_0000 + u64::from(count);
    let given = |stage: Stage| {
        let name = format!("ocx-victim-{}-{count}", std::process::id());
        stage.giving("folder", &path).giving("name", name).giving("key", key).giving("victim", &word)
    };
    let stage = || -> Result<Stage, Failed> { Ok(given(Stage::plain()?).key("/sandbox/network", network.into())) };
    let run = stage()?.writing(&path).run("victim").start()?;
    let victim = Victim { run: Some(run), folder };
    wait_until("the victim is ready", || victim.folder.0.join("ready").exists())?;
    let pid = pid_of(&format!("victim={word}")).ok_or("the victim runs no more")?;
    Ok(stage()?.giving("pid", pid).holding(victim))
}

fn beside_a_victim() -> Result<Stage, Failed> {
    victimised(false)
}

fn beside_a_victim_with_network() -> Result<Stage, Failed> {
    victimised(true)
}

fn beside_a_victim_all_powerful() -> Result<Stage, Failed> {
    Ok(victimised(false)?.all_powerful(&[]))
}

/// Leaves everything of itself about, and waits until it is told to end.
fn victim(given: &Given) {
    let name = given.text("name");
    let stream = SocketAddr::from_abstract_name(name).and_then(|it| UnixListener::bind_addr(&it));
    let datagram = SocketAddr::from_abstract_name(format!("{name}-d")).and_then(|it| UnixDatagram::bind_addr(&it));
    let made = 0o1666; // IPC_CREAT, for anybody
    let _shared = raw::raw(libc::SYS_shmget, [given.number("key"), 4096, made, 0, 0, 0]);
    let queue = std::ffi::CString::new(name).unwrap_or_default();
    let create = u64::from((libc::O_CREAT | libc::O_RDWR).unsigned_abs());
    let _queue = raw::raw(libc::SYS_mq_open, [text(&queue), create, 0o666, 0, 0, 0]);
    // Its account's keyring, where there are keys.
    let user = i64::from(-4_i32).cast_unsigned();
    let _key = raw::raw(libc::SYS_add_key, [text(c"user"), text(c"ocx-victim"), text(c"x"), 1, user, 0]);
    let folder = Path::new(given.text("folder"));
    drop(fs::write("/tmp/victims", "secret"));
    let ready = if given.has("kept") { "ready-beside" } else { "ready" };
    drop(fs::write(folder.join("writing"), std::process::id().to_string()));
    drop(fs::rename(folder.join("writing"), folder.join(ready)));
    for _ in 0..VICTIM_TENTHS_MAX {
        if folder.join("end").exists() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    drop((stream, datagram));
}

/// In a control: a victim in the same namespaces, ended with them.
pub(crate) fn victim_beside(given: &Given) -> Result<(), String> {
    match raw::fork().map_err(|error| format!("fork: error {error}"))? {
        0 => {
            victim(given);
            raw::exit(0)
        }
        _ => {
            let ready = Path::new(given.text("folder")).join("ready-beside");
            for _ in 0..VICTIM_TENTHS_MAX {
                if ready.exists() {
                    return Ok(());
                }
                std::thread::sleep(std::time::Duration::from_millis(100));
            }
            Err("the victim was never ready".to_owned())
        }
    }
}

fn another_run(given: &Given, got: &mut Got) {
    let beside = fs::read_to_string(Path::new(given.text("folder")).join("ready-beside"));
    let pid = beside.as_ref().ok().and_then(|it| it.parse().ok()).unwrap_or_else(|| given.number("pid"));
    got.tried("its folder", &beside);
    got.call("a signal", &raw::raw(libc::SYS_kill, [pid, 0, 0, 0, 0, 0]));
    got.call("a descriptor of it", &raw::raw(libc::SYS_pidfd_open, [pid, 0, 0, 0, 0, 0]));
    let mut limit = [0_u64; 2];
    got.call("its limits", &raw::raw(libc::SYS_prlimit64, [pid, 7, 0, pointer_mut(&mut limit), 0, 0]));
    for name in ["environ", "mem", "maps", "root", "cwd", "fd", "root/tmp/victims"] {
        got.tried(name, &fs::File::open(format!("/proc/{pid}/{name}")));
    }
    let name = given.text("name");
    let stream = SocketAddr::from_abstract_name(name).and_then(|it| UnixStream::connect_addr(&it));
    got.tried("its abstract socket", &stream);
    let to = SocketAddr::from_abstract_name(format!("{name}-d"));
    let sent = UnixDatagram::unbound().and_then(|it| it.send_to_addr(b"x", &to?).map(drop));
    got.tried("its abstract datagrams", &sent);
    got.call("its shared memory", &raw::raw(libc::SYS_shmget, [given.number("key"), 0, 0, 0, 0, 0]));
    let queue = std::ffi::CString::new(name).unwrap_or_default();
    got.call("its queue", &raw::raw(libc::SYS_mq_open, [text(&queue), 0, 0, 0, 0, 0]));
    let user = i64::from(-4_i32).cast_unsigned();
    let search = [10, user, text(c"user"), text(c"ocx-victim"), 0, 0];
    got.call("its key", &raw::raw(libc::SYS_keyctl, search));
    got.call("traced", &raw::raw(libc::SYS_ptrace, [0x4206, pid, 0, 0, 0, 0])); // PTRACE_SEIZE
}

fn crashing() -> Result<Stage, Failed> {
    let folder = Folder::new()?;
    let path = folder.text();
    let around = format!("ulimit -c unlimited; cd {path} && exec $ONCE");
    Ok(Stage::plain()?
        .writing(&path)
        .key("/process/cwd", json!(path))
        .around(&around)
        .giving("rw", &path)
        .holding(folder))
}

fn core(given: &Given, got: &mut Got) {
    let ended = raw::in_child(|| std::process::abort());
    got.holds(format!("the kernel says {ended:?}"), matches!(ended, Ok(raw::Ended::Signal(_, true))));
    let files = fs::read_dir(given.text("rw")).into_iter().flatten().count();
    // Where the host's pattern names another place, or a program, there is none here in any case.
    let pattern = fs::read_to_string("/proc/sys/kernel/core_pattern").unwrap_or_default();
    if !pattern.contains(['/', '|']) {
        got.holds(format!("{files} files where it started"), files > 0);
    }
}

/// Variables that change what a loader or a shell does, in a run's environment: its own program alone sees them.
fn environment() -> Result<(), Failed> {
    let (folder, word) = (Folder::new()?, unique());
    let path = folder.text();
    let script = format!("sleep {word} & while ! test -e {path}/end; do sleep 0.05; done; kill $!");
    let run = Run::sh(&script).writing(&[&path]).with(
        "/process/env",
        json!({"PATH": "/usr/bin:/bin", "LD_PRELOAD": "/ocx-attack.so", "OCX_ATTACK_SECRET": word}),
    );
    let run = run.start()?;
    wait_until("it runs", || lives(&word))?;
    let program = pid_of(&word).ok_or("it runs no more")?;
    let parent = |pid: u32| {
        let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        stat.rsplit(')').next().and_then(|it| it.split_whitespace().nth(1)?.parse::<u32>().ok())
    };
    let shell = parent(program).ok_or("no parent")?;
    let cell = parent(shell).ok_or("no init")?;
    let once = parent(cell).ok_or("no supervisor")?;
    let of = |pid: u32, file: &str| fs::read(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let holds = |pid: u32, file: &str| of(pid, file).windows(word.len()).any(|it| it == word.as_bytes());
    let seen = [cell, once].map(|pid| (holds(pid, "environ"), holds(pid, "cmdline")));
    let (cells, own) = (of(cell, "environ"), holds(shell, "environ"));
    fs::write(folder.0.join("end"), "")?;
    let came = run.end()?.exits(0)?;
    same("what its init and its supervisor hold of it", seen, [(false, false); 2])?;
    same("its init's whole environment", cells, Vec::new())?;
    // The control: its own program has it, and its own loader looked for what was to be loaded.
    same("its program's environment", own, true)?;
    same("its loader looked", came.err.contains("/ocx-attack.so"), true)
}

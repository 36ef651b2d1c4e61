//! The place of most controls: an ordinary account, root in namespaces of its own and nothing outside them.

use std::ffi::CString;
use std::fs;
use std::io::Write as _;
use std::process::ExitCode;

use crate::inside::{self, Given, status};
use crate::raw::{self, Ended, text};

/// Namespaces, by their names in `/proc/PID/ns`.
const NAMESPACES: &[(&str, libc::c_int)] = &[
    ("user", libc::CLONE_NEWUSER),
    ("mnt", libc::CLONE_NEWNS),
    ("pid", libc::CLONE_NEWPID),
    ("ipc", libc::CLONE_NEWIPC),
    ("uts", libc::CLONE_NEWUTS),
    ("net", libc::CLONE_NEWNET),
    ("cgroup", libc::CLONE_NEWCGROUP),
];

/// `control NAME [GIVEN=VALUE]...`
pub(crate) fn main(words: &[String]) -> ExitCode {
    let Some((name, given)) = words.split_first() else { return ExitCode::FAILURE };
    let given = Given::read(given);
    match enter(&given).and_then(|()| in_processes(name, &given)) {
        Ok(()) => ExitCode::SUCCESS,
        Err(why) => {
            eprintln!("attacks: control of {name}: {why}");
            ExitCode::FAILURE
        }
    }
}

/// Never with anything over the host: root's own identity, or a capability.
fn is_ordinary() -> Result<(), String> {
    let none = |set: &str| status(set).bytes().all(|it| it == b'0') && !status(set).is_empty();
    let ids = ["Uid", "Gid"].map(status);
    let rootless = ids.iter().all(|it| it.split_whitespace().count() == 4 && it.split_whitespace().all(|id| id != "0"));
    if rootless && ["CapPrm", "CapEff", "CapInh", "CapAmb"].into_iter().all(none) {
        Ok(())
    } else {
        Err("it holds something over the host, and is not tried".to_owned())
    }
}

fn enter(given: &Given) -> Result<(), String> {
    is_ordinary()?;
    let kept: Vec<&str> = given.text("kept").split(',').collect();
    let flags = NAMESPACES.iter().filter(|it| !kept.contains(&it.0)).fold(0, |all, it| all | it.1);
    let flags = u64::try_from(flags).map_err(|error| error.to_string())?;
    raw::raw(libc::SYS_unshare, [flags, 0, 0, 0, 0, 0]).map_err(|error| format!("unshare: error {error}"))?;
    println!("map {}", std::process::id());
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).map_err(|error| error.to_string())?;
    if line == "go\n" { Ok(()) } else { Err("nobody mapped its ids".to_owned()) }
}

/// An init of the same account, as process 1, and the attacker as its child.
fn in_processes(name: &str, given: &Given) -> Result<(), String> {
    std::io::stdout().flush().map_err(|error| error.to_string())?;
    let error = |error| format!("fork: error {error}");
    let ended = raw::in_child(|| {
        if let Err(why) = furnish(given) {
            eprintln!("attacks: furnishing: {why}");
            return 1;
        }
        let ended = raw::in_child(|| i32::from(inside::perform(name, given) != ExitCode::SUCCESS));
        i32::from(ended != Ok(Ended::Code(0)))
    });
    if ended.map_err(error)? == Ended::Code(0) { Ok(()) } else { Err("the attacker failed".to_owned()) }
}

/// Its own proc and tmp; where the attack is on mounts, mounts that are its own.
fn furnish(given: &Given) -> Result<(), String> {
    let kept = given.text("kept");
    let failed = |what: &'static str| move |error| format!("{what}: error {error}");
    if !kept.contains("pid") {
        mount("proc", "/proc", "proc", 0).map_err(failed("proc"))?;
    }
    mount_with("tmp", "/tmp", "tmpfs", 0, "size=4g,nr_inodes=4m").map_err(failed("tmp"))?;
    if given.has("made") {
        let made = given.text("made");
        fs::write("/tmp/under", "").and_then(|()| fs::write(made, "")).map_err(|error| error.to_string())?;
        mount("/tmp/under", made, "", libc::MS_BIND).map_err(failed("bind"))?;
        let read_only = given.text("ro");
        mount(read_only, read_only, "", libc::MS_BIND).map_err(failed("bind"))?;
        mount("", read_only, "", libc::MS_BIND | libc::MS_REMOUNT | libc::MS_RDONLY).map_err(failed("read-only"))?;
    }
    if given.has("victim") {
        crate::runs::victim_beside(given)?;
    }
    Ok(())
}

/// `mount(2)`.
pub(crate) fn mount(source: &str, target: &str, kind: &str, flags: libc::c_ulong) -> Result<i64, i32> {
    mount_with(source, target, kind, flags, "")
}

fn mount_with(source: &str, target: &str, kind: &str, flags: libc::c_ulong, data: &str) -> Result<i64, i32> {
    let zero = |it: &str| CString::new(it).map_err(|_nul| libc::EINVAL);
    let (source, target, kind, data) = (zero(source)?, zero(target)?, zero(kind)?, zero(data)?);
    raw::raw(libc::SYS_mount, [text(&source), text(&target), text(&kind), flags, text(&data), 0])
}

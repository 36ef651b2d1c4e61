//! How a run ends, and that nothing is left of it.

use std::fs;

use libtest_mimic::Failed;
use rustix::process::Signal;
use serde_json::json;

use crate::Test;
use crate::run::{Folder, Run, lives, pid_of, same, unique, wait_until};

pub(crate) const TESTS: &[Test] = &[
    ("ending::case_34_a_daemon_in_a_session_of_its_own_ends_with_the_process", daemon),
    ("ending::orphans_are_reaped", zombies),
    ("ending::v2_2_8_08_it_ends_when_the_supervisor_is_killed", killed),
    ("ending::v2_2_8_08_it_goes_on_when_it_was_asked_to", goes_on),
    ("ending::an_interruption_asks_first", interrupted),
    ("ending::the_host_keeps_no_mount_and_no_cgroup", nothing_left),
    ("ending::the_init_ignores_what_the_process_sends_it", init_is_safe),
];

fn daemon() -> Result<(), Failed> {
    let word = unique();
    let script = format!("setsid setsid sleep {word} </dev/null >/dev/null 2>&1 & sleep 5");
    let run = Run::sh(&script).start()?;
    // The control: while the process runs its daemon lives.
    wait_until("the daemon runs", || lives(&word))?;
    run.end()?.exits(0)?;
    same("the daemon lives", lives(&word), false)
}

fn zombies() -> Result<(), Failed> {
    let script =
        "for i in 1 2 3 4 5; do (sleep 0.1 &); done; sleep 0.5; cat /proc/[0-9]*/stat | cut -d' ' -f3 | grep -c Z";
    Run::sh(script).run()?.prints("0\n")?;
    Ok(())
}

fn killed() -> Result<(), Failed> {
    let word = unique();
    let run = Run::sh(&format!("sleep {word} & wait")).start()?;
    wait_until("the process runs", || lives(&word))?;
    let group = group_of(&word)?;
    run.signal(Signal::KILL)?;
    run.end()?;
    wait_until("the process is gone", || !lives(&word))?;
    remove_group(&group)
}

fn goes_on() -> Result<(), Failed> {
    let (folder, word) = (Folder::new()?, unique());
    let path = folder.text();
    let script = format!("sleep {word} & while ! test -e {path}/end; do sleep 0.05; done");
    let run = Run::sh(&script).writing(&[&path]).with("/sandbox/ends_with_parent", json!(false)).start()?;
    wait_until("the process runs", || lives(&word))?;
    let group = group_of(&word)?;
    run.signal(Signal::KILL)?;
    run.end_alone()?;
    std::thread::sleep(std::time::Duration::from_millis(300));
    let went_on = lives(&word);
    fs::write(folder.0.join("end"), "")?;
    wait_until("the process is gone", || !lives(&word))?;
    same("it went on", went_on, true)?;
    remove_group(&group)
}

fn interrupted() -> Result<(), Failed> {
    let word = unique();
    let script = format!("trap 'echo asked; exit 7' TERM; sleep {word} & wait");
    let run = Run::sh(&script).start()?;
    wait_until("the process runs", || lives(&word))?;
    run.signal(Signal::INT)?;
    run.end()?.exits(7)?.prints("asked\n")?;
    same("its child lives", lives(&word), false)
}

/// The name of the cgroup a process with this word is in: the run's.
fn group_of(word: &str) -> Result<String, Failed> {
    let pid = pid_of(word).ok_or("the process runs no more")?;
    let text = fs::read_to_string(format!("/proc/{pid}/cgroup"))?;
    let own = text.lines().find_map(|it| it.strip_prefix("0::")).ok_or("no cgroup v2")?;
    Ok(own.rsplit('/').next().unwrap_or_default().to_owned())
}

/// Removes the empty cgroup that a killed `once` leaves.
fn remove_group(name: &str) -> Result<(), Failed> {
    for parent in groups() {
        let own = parent.join(name);
        if own.exists() {
            // The last process of it may still be on its way out.
            wait_until("its cgroup is empty", || fs::remove_dir(&own).is_ok())?;
        }
        // Another run's may lie in it.
        drop(fs::remove_dir(&parent));
    }
    Ok(())
}

/// The parent groups of `once` in every hierarchy.
fn groups() -> Vec<std::path::PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let mounts = table.lines().filter(|it| it.contains(" - cgroup")).filter_map(|it| it.split(' ').nth(4));
    let mut found = Vec::new();
    for mount in mounts {
        let name = |it: &fs::DirEntry| it.file_name().to_string_lossy().starts_with("ocx-");
        found.extend(fs::read_dir(mount).into_iter().flatten().flatten().filter(name).map(|it| it.path()));
    }
    found
}

fn nothing_left() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let table = || fs::read_to_string("/proc/self/mountinfo");
    let before = table()?;
    let run = Run::sh("cat /proc/self/cgroup; hostname")
        .writing(&[&folder.text()])
        .with("/limits", json!({"processes": 50, "memory": "64M"}));
    let came = run.run()?.exits(0)?;
    same("the host's mounts", table()?, before)?;
    let name = came.out.lines().last().unwrap_or_default().to_owned();
    let left = groups()
        .iter()
        .flat_map(|it| fs::read_dir(it).into_iter().flatten().flatten())
        .any(|it| it.file_name().to_string_lossy().starts_with(&name));
    same("a cgroup of it is left", left, false)?;
    // Inside, no name of the host's groups shows.
    let inside = came.out.lines().filter(|it| it.contains(':')).all(|it| it.ends_with(":/"));
    same("its groups are roots", inside, true)
}

fn init_is_safe() -> Result<(), Failed> {
    let status = "grep -E '^(Uid|CapEff|CapBnd|NoNewPrivs|Seccomp):' /proc/1/status | tr -s '\t' ' '";
    let came = Run::sh(status).run()?.exits(0)?;
    let none = "0000000000000000";
    // Its account has no name inside.
    let expected = format!("Uid: 65534 65534 65534 65534\nCapEff: {none}\nCapBnd: {none}\nNoNewPrivs: 1\nSeccomp: 2\n");
    came.prints(&expected)?;
    let script = "kill -9 1; kill -TERM 1; cat /proc/1/environ /proc/1/maps; readlink /proc/1/exe; ls /proc/1/fd; echo still here";
    let came = Run::sh(script).with("/sandbox/uid", json!(0)).with("/sandbox/gid", json!(0)).run()?.exits(0)?;
    came.prints("still here\n")?.says("not permitted")?.says("Permission denied")?;
    Ok(())
}

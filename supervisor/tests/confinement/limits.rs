//! Each limit ends what it should, and is told apart.

use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use serde_json::json;

use crate::Test;
use crate::run::{Folder, Run, same, wait_until};

pub(crate) const TESTS: &[Test] = &[
    ("limits::v2_2_9_03_wall_ends_the_process_and_its_children", wall),
    ("limits::v2_2_9_03_a_process_that_ignores_term_is_killed", stubborn),
    ("limits::v2_2_9_04_cpu", cpu),
    ("limits::v2_2_9_04_a_caught_sigxcpu_is_ended_by_the_hard_limit", cpu_caught),
    ("limits::v2_2_9_04_cpu_is_each_process_own", cpu_each),
    ("limits::c_35_a_program_that_catches_sigxcpu_and_exits_has_exited", cpu_caught_and_exited),
    ("limits::v2_2_9_05_processes", processes),
    ("limits::v2_2_9_05_another_runs_processes_are_not_counted", processes_apart),
    ("limits::v2_2_9_06_file_size", file_size),
    ("limits::c_35_a_write_past_file_size_that_only_fails_is_the_programs_affair", file_size_ignored),
    ("limits::v2_2_9_07_memory", memory),
    ("limits::c_33_memory_is_told_though_a_child_was_killed_and_the_program_exited", memory_of_a_child),
    ("limits::c_87_tmp_and_shm_hold_a_gibibyte_and_no_more", tmp_size),
];

fn wall() -> Result<(), Failed> {
    let start = Instant::now();
    let run = Run::sh("sleep 100 & exec sleep 100").with("/limits/wall", json!("1s"));
    run.run()?.exits(143)?.says("ended by limits.wall (1 s)")?;
    let took = start.elapsed();
    // Long before the program would end by itself, on the slowest of machines.
    same("after a second", took >= Duration::from_secs(1) && took < Duration::from_secs(60), true)?;
    // The control: less than the wall.
    let came = Run::sh("exit 0").with("/limits/wall", json!("1m")).run()?.exits(0)?;
    same("nothing said", came.err.as_str(), "")
}

fn stubborn() -> Result<(), Failed> {
    // Long enough for a shell to have set its trap on a slow machine.
    let run = Run::sh("trap '' TERM; while :; do sleep 1; done").with("/limits/wall", json!("10s"));
    run.run()?.exits(137)?.says("limits.wall")?;
    Ok(())
}

fn cpu() -> Result<(), Failed> {
    Run::sh("while :; do :; done")
        .with("/limits/cpu", json!(1))
        .run()?
        .exits(152)?
        .says("ended by limits.cpu (1 s)")?;
    Ok(())
}

fn cpu_caught() -> Result<(), Failed> {
    let run = Run::sh("trap 'echo caught' XCPU; while :; do :; done").with("/limits/cpu", json!(1));
    let came = run.run()?.exits(137)?.says("limits.cpu")?;
    same("it caught the signal", came.out.contains("caught"), true)
}

fn processes() -> Result<(), Failed> {
    let script = "for i in 1 2 3 4 5 6 7 8; do sleep 3 & done; echo started; kill $(jobs -p) 2>/dev/null; wait";
    let came = Run::sh(script).with("/limits/processes", json!(5)).run()?;
    same("the shell could not fork", came.err.contains("fork"), true)?;
    same("it is no limit that ended it", came.err.contains("ended by"), false)?;
    Run::sh(script).run()?.exits(0)?.prints("started\n")?;
    Ok(())
}

fn file_size() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let path = folder.text();
    let write = Run::sh(&format!("exec head -c 2000 /dev/zero > {path}/x")).writing(&[&path]);
    write.clone().with("/limits/file_size", json!("1K")).run()?.exits(153)?.says("limits.file_size (1024 bytes)")?;
    same("so much was written", std::fs::metadata(folder.0.join("x"))?.len(), 1024)?;
    write.with("/limits/file_size", json!(2000)).run()?.exits(0)?;
    Ok(())
}

fn memory() -> Result<(), Failed> {
    let take = Run::sh("head -c 200000000 /dev/zero | tail; echo went on; sleep 20");
    let came = take.clone().with("/limits/memory", json!("32M")).run()?;
    if came.err.contains("no memory controller") {
        // Refused by name, which is what the protocol asks where there is none.
        came.exits(125)?.says("refused (6): limits.memory")?;
        return Ok(());
    }
    // A child was killed; the run ends with it.
    came.exits(137)?.says("limits.memory (33554432 bytes)")?;
    let little = Run::sh("head -c 1000 /dev/zero | tail -c 1 | wc -c").with("/limits/memory", json!("32M"));
    little.run()?.exits(0)?.prints("1\n")?;
    Ok(())
}

fn tmp_size() -> Result<(), Failed> {
    // Told by the file system itself: filling them would take the host's memory.
    Run::sh("stat -fc '%b %S' /tmp /dev/shm").run()?.exits(0)?.prints("262144 4096\n262144 4096\n")?;
    Ok(())
}

/// So much time of its own, and so much in each of three children.
fn cpu_each() -> Result<(), Failed> {
    let spin = |seconds| format!("perl -e 'while ((times)[0] < {seconds}) {{ }}'");
    let each = Run::sh(&[spin(1.2), spin(1.2), spin(1.2), "echo each".to_owned()].join("; "));
    each.with("/limits/cpu", json!(2)).run()?.exits(0)?.prints("each\n")?;
    // The control: as much in one.
    Run::sh(&format!("exec {}", spin(3.6))).with("/limits/cpu", json!(2)).run()?.exits(152)?.says("limits.cpu")?;
    Ok(())
}

fn cpu_caught_and_exited() -> Result<(), Failed> {
    let came = Run::sh("trap 'exit 7' XCPU; while :; do :; done").with("/limits/cpu", json!(1)).run()?.exits(7)?;
    same("a limit is told", came.err.contains("ended by"), false)
}

fn file_size_ignored() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let path = folder.text();
    let script = format!("trap '' XFSZ; head -c 2000 /dev/zero > {path}/x || exit 7");
    let came = Run::sh(&script).writing(&[&path]).with("/limits/file_size", json!("1K")).run()?.exits(7)?;
    same("a limit is told", came.err.contains("ended by"), false)?;
    same("so much was written", std::fs::metadata(folder.0.join("x"))?.len(), 1024)
}

/// Two runs of one account, each with as many processes as it may have, at once.
fn processes_apart() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let path = folder.text();
    let full = |name: &str, most: u32| {
        let script = format!(
            "for i in 1 2 3; do sleep 300 & done; sleep 0.1; touch {path}/{name}; \
             while ! test -e {path}/end; do sleep 0.1; done; kill $(jobs -p)"
        );
        Run::sh(&script).writing(&[&path]).with("/limits/processes", json!(most)).with("/limits/wall", json!("5m"))
    };
    let (one, two) = (full("one", 5).start()?, full("two", 5).start()?);
    let both = || folder.0.join("one").exists() && folder.0.join("two").exists();
    let came = wait_until("both have all they may", both);
    std::fs::write(folder.0.join("end"), "")?;
    let (one, two) = (one.end()?, two.end()?);
    came.map_err(|why| format!("{why:?}: {one:?}, {two:?}"))?;
    same("a fork failed", one.err.contains("fork") || two.err.contains("fork"), false)?;
    // The control: that is as many as five lets there be.
    let fewer = full("three", 4).run()?;
    same("the shell could not fork", fewer.err.contains("fork"), true)
}

fn memory_of_a_child() -> Result<(), Failed> {
    let take = Run::sh("head -c 200000000 /dev/zero | tail > /dev/null; exit 0").with("/limits/memory", json!("32M"));
    let came = take.run()?;
    if came.err.contains("no memory controller") {
        came.exits(125)?.says("refused (6): limits.memory")?;
        return Ok(());
    }
    came.says("limits.memory (33554432 bytes)")?;
    Ok(())
}

//! Each limit ends what it should, and is told apart.

use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use serde_json::json;

use crate::Test;
use crate::run::{Folder, Run, same};

pub(crate) const TESTS: &[Test] = &[
    ("limits::v2_2_9_03_wall_ends_the_process_and_its_children", wall),
    ("limits::v2_2_9_03_a_process_that_ignores_term_is_killed", stubborn),
    ("limits::v2_2_9_04_cpu", cpu),
    ("limits::v2_2_9_04_a_caught_sigxcpu_is_ended_by_the_hard_limit", cpu_caught),
    ("limits::v2_2_9_05_processes", processes),
    ("limits::v2_2_9_06_file_size", file_size),
    ("limits::v2_2_9_07_memory", memory),
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

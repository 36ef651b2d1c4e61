//! `ocx-supervisor explain`: what a file asks for, in words, without starting anything.
#![expect(clippy::indexing_slicing, reason = "a missing key is null, and fails the test")]

use libtest_mimic::Failed;
use serde_json::json;

use crate::Test;
use crate::run::{Folder, Run, same};

pub(crate) const TESTS: &[Test] = &[
    ("explain::it_says_what_is_seen_and_how_and_starts_nothing", says),
    ("explain::each_key_that_changes_is_said", each_key),
    ("explain::a_refused_file_is_refused_as_once_would", refused),
    ("explain::its_json_and_its_words_are_of_one_launch", as_json),
];

fn says() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let path = folder.text();
    let run = Run::sh(&format!("touch {path}/ran"))
        .writing(&[&path])
        .with("/limits/cpu", json!(3))
        .with("/sandbox/created_files", json!([{"at": "/etc/passwd", "text": "x"}]));
    let came = run.explained(&[])?.exits(0)?;
    for words in [
        "It runs as user 1000, group 1000, in no other group: on this host user 64321, group 64321.",
        "It has no capability, and nothing it runs can gain one.",
        "Network: lo alone, of its own.",
        "the host's, read-only (ro,nosuid,nodev)",
        &format!("  {path}  the host's, read-write (rw,nosuid,nodev)"),
        "a file made for it",
        "cpu        3 processor seconds of each process",
        "read-only root",
        "io_uring_setup",
        "Then sh is executed.",
    ] {
        same(&format!("{words:?} in {}", came.out), came.out.contains(words), true)?;
    }
    same("it ran", folder.0.join("ran").exists(), false)?;
    // The control: the same file, run, does what it says.
    run.run()?.exits(0)?;
    same("it ran", folder.0.join("ran").exists(), true)
}

fn refused() -> Result<(), Failed> {
    let run = Run::sh("true").reading(&["/nowhere"]);
    let (explained, ran) = (run.explained(&[])?.exits(125)?, run.run()?.exits(125)?);
    let line = |it: &str, command: &str| it.replace(command, "");
    same("why", line(&explained.err, "ocx-supervisor explain: "), line(&ran.err, "ocx-supervisor once: "))?;
    same("nothing is said of it", explained.out.as_str(), "")
}

fn as_json() -> Result<(), Failed> {
    let run =
        Run::sh("true").with("/sandbox/linux_capabilities", json!(["CAP_CHOWN"])).with("/sandbox/network", json!(true));
    let whole: serde_json::Value = serde_json::from_str(&run.explained(&["--json"])?.exits(0)?.out)?;
    same("uid", &whole["uid"], &json!(1000))?;
    same("host_uid", &whole["host_uid"], &json!(64321))?;
    same("capabilities", &whole["capabilities"], &json!(["CAP_CHOWN"]))?;
    same("network", &whole["network"], &json!(true))?;
    same("namespaces", &whole["namespaces"], &json!(["cgroup", "ipc", "mnt", "pid", "user", "uts"]))?;
    let text = run.explained(&[])?.exits(0)?.out;
    let lists = ["calls_refused", "calls_refused_with_some_arguments"].map(|it| whole[it].as_array().cloned());
    let calls: Vec<_> = lists.into_iter().flatten().flatten().collect();
    same("calls, all of the filter's", calls.len() > 60, true)?;
    for call in calls {
        let name = call.as_str().unwrap_or_default();
        same(name, text.split_whitespace().any(|it| it == name), true)?;
    }
    // Every step, of each of the three, in order.
    for (list, last) in [("build", "host name "), ("init", "filter of "), ("program", "filters measured")] {
        let steps: Vec<&str> =
            whole["steps"][list].as_array().into_iter().flatten().filter_map(|it| it.as_str()).collect();
        same(list, steps.last().is_some_and(|it| it.starts_with(last)), true)?;
        for (count, step) in (1..).zip(&steps) {
            // A run's name is its own each time.
            let line = format!("{count}. {}", if step.starts_with("host name") { "host name" } else { step });
            same(&line, text.lines().any(|it| it.trim_start().starts_with(&line)), true)?;
        }
    }
    for mount in whole["mounts"].as_array().into_iter().flatten() {
        let (at, flags) = (mount["at"].as_str().unwrap_or_default(), mount["flags"].as_str().unwrap_or_default());
        let is = |line: &str| line.trim_start().starts_with(at) && line.ends_with(&format!("({flags})"));
        same(at, text.lines().any(is), true)?;
    }
    Ok(())
}

/// One key changed, the words that are then said and are not otherwise, and where in the JSON it is.
fn each_key() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let path = folder.text();
    let plain = Run::sh("true").with("/sandbox/read_only", json!(["/usr"]));
    let (text, json) = (plain.explained(&[])?.exits(0)?.out, plain.explained(&["--json"])?.exits(0)?.out);
    let json: serde_json::Value = serde_json::from_str(&json)?;
    let keys = [
        ("/sandbox/uid", json!(77), "as user 77, group 1000", "/uid"),
        ("/sandbox/gid", json!(77), "as user 1000, group 77", "/gid"),
        ("/sandbox/linux_capabilities", json!(["CAP_KILL"]), "it has CAP_KILL; over the host none", "/capabilities/0"),
        ("/sandbox/network", json!(true), "Network: the host's, with every service that listens", "/network"),
        ("/sandbox/isolate_terminal", json!(false), "It leads no session of its own", "/session_of_its_own"),
        ("/sandbox/ends_with_parent", json!(false), "It goes on when its supervisor ends", "/ends_with_parent"),
        ("/sandbox/proc", json!("/p"), "\n  /p ", "/mounts/1/at"),
        ("/sandbox/dev", json!("/d"), "  /d/pts  terminals of its own (rw,nosuid,noexec)", "/mounts/3/at"),
        ("/sandbox/tmp", json!("/t"), "\n  /t ", "/mounts/4/at"),
        ("/sandbox/read_write", json!([path]), "the host's, read-write (rw,nosuid,nodev)", "/mounts/6/shows"),
        ("/sandbox/read_only", json!([path, "/usr"]), &format!("{path}  the host's, read-only (ro,"), "/mounts/5/at"),
        (
            "/sandbox/devices",
            json!(["/dev/full"]),
            "/dev/full  a device of the host's, opened and not executed (rw,nosuid,noexec)",
            "/mounts/6/at",
        ),
        (
            "/sandbox/created_files",
            json!([{"at": "/made", "text": ""}]),
            "a file made for it (rw,nosuid,nodev)",
            "/mounts/6/at",
        ),
        ("/limits/wall", json!("9m"), "wall       540 seconds from the launch", "/limits/wall"),
        ("/limits/cpu", json!(9), "cpu        9 processor seconds of each process", "/limits/cpu"),
        ("/limits/processes", json!(9), "processes  9 processes and threads", "/limits/processes"),
        ("/limits/file_size", json!("9K"), "file_size  9216 bytes of each file", "/limits/file_size"),
        ("/process/cwd", json!("/usr"), "It starts in /usr.", "/cwd"),
        ("/process/env", json!({"HOME": "not-to-be-said"}), "Its environment variables: HOME.", "/environment/0"),
        ("/process/command", json!(["/bin/ls"]), "Then /bin/ls is executed.", "/command/0"),
    ];
    for (key, value, words, at) in keys {
        let changed = plain.clone().with(key, value);
        let said = changed.explained(&[])?.exits(0)?.out;
        let as_json: serde_json::Value = serde_json::from_str(&changed.explained(&["--json"])?.exits(0)?.out)?;
        same(&format!("{key}: {words:?} is said of it, in\n{said}"), said.contains(words), true)?;
        same(&format!("{key}: {words:?} is said without it"), text.contains(words), false)?;
        same(&format!("{key}: {at} is as without it"), as_json.pointer(at) == json.pointer(at), false)?;
        same("a value is said", said.contains("not-to-be-said"), false)?;
    }
    Ok(())
}

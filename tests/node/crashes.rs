//! The server, the protocol process and the supervisor going away in the middle of a run.

use std::time::Duration;

use serde_json::json;

use crate::system::{SOON, System, UNKNOWN};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("C-107 the server gone in the middle: the run goes on and ended is posted once it is back", server_gone),
    ("C-38 the protocol process killed: the run is adopted, nothing lost, nothing doubled", node_killed),
    (
        "CASE-36, C-110 the supervisor killed: everything of the run is ended, and lost is posted once",
        supervisor_killed,
    ),
    ("the protocol process is filtered and shows nobody its memory", memory),
    ("C-108 the protocol process killed while ended is unknown: it is posted once", node_killed_while_ending),
];

fn server_gone() {
    let mut system = System::new();
    let asked = system.run("echo before; sleep 4; echo after");
    system.wait_running(&asked);
    let port = system.port();
    system.trial.stop_server().unwrap();
    // The process ends while nobody can be told.
    std::thread::sleep(Duration::from_secs(8));
    system.trial.start_server(Some(port)).unwrap();
    assert_eq!(system.ended(&asked, UNKNOWN), *json!({"outcome": "exited", "exit": 0}).as_object().unwrap());
    assert_eq!(system.log(&asked, "stdout"), "before\nafter\n");
    assert_eq!(system.kinds(&asked), ["started", "ended", "log"]);
    system.stop();
}

fn node_killed() {
    let mut system = System::new();
    let asked = system.run("echo before; sleep 5; echo after; exit 7");
    system.wait_running(&asked);
    system.trial.kill_node().unwrap();
    assert_eq!(system.ended(&asked, SOON), *json!({"outcome": "exited", "exit": 7}).as_object().unwrap());
    assert_eq!(system.log(&asked, "stdout"), "before\nafter\n");
    assert_eq!(system.kinds(&asked), ["started", "ended", "log"]);
    // And once more, with the run settled: nothing is posted again.
    system.trial.kill_node().unwrap();
    let next = system.run("exit 0");
    system.ended(&next, SOON);
    assert_eq!(system.kinds(&asked), ["started", "ended", "log"]);
    system.stop();
}

/// The kernel gives what an undumpable process has in /proc to root: nobody else may look.
fn memory() {
    use std::os::unix::fs::MetadataExt as _;
    use std::os::unix::process::CommandExt as _;
    let system = System::new();
    let root = system.trial.layout().root();
    let owner = |pid: u32| std::fs::metadata(format!("/proc/{pid}/mem")).unwrap().uid();
    let line = format!("node\0--root\0{}\0", root.display());
    let pids = std::fs::read_dir("/proc").unwrap().filter_map(|it| it.unwrap().file_name().to_str()?.parse().ok());
    let is_node = |pid: &u32| {
        let words = std::fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        String::from_utf8_lossy(&words).ends_with(&line)
    };
    let node: Vec<u32> = pids.filter(is_node).collect();
    let [node] = node.as_slice() else { panic!("{node:?}") };
    assert_eq!(owner(*node), 0);
    let status = std::fs::read_to_string(format!("/proc/{node}/status")).unwrap();
    assert!(status.lines().any(|line| line == "Seccomp:\t2"), "{status}");
    // Control: an ordinary process of its account.
    let account = std::fs::metadata(root.join("state")).unwrap().uid();
    let mut other = std::process::Command::new("sleep").arg("60").uid(account).gid(account).spawn().unwrap();
    let deadline = std::time::Instant::now() + SOON;
    while owner(other.id()) != account {
        assert!(std::time::Instant::now() < deadline, "the control: it is dumpable, and its account's");
        std::thread::sleep(Duration::from_millis(20));
    }
    other.kill().unwrap();
    other.wait().unwrap();
    system.stop();
}

fn supervisor_killed() {
    let mut system = System::new();
    // A name of its own, so that it can be looked for on the host.
    let asked = system.run("setsid sh -c 'sleep 54321.25' & sleep 54321.5");
    system.wait_running(&asked);
    let lives = || {
        std::fs::read_dir("/proc").unwrap().filter_map(Result::ok).any(|it| {
            let line = std::fs::read(it.path().join("cmdline")).unwrap_or_default();
            String::from_utf8_lossy(&line).contains("54321.")
        })
    };
    let deadline = std::time::Instant::now() + SOON;
    while !lives() {
        assert!(std::time::Instant::now() < deadline, "the control: the run's processes are seen while they live");
        std::thread::sleep(Duration::from_millis(20));
    }
    system.trial.kill_supervisor().unwrap();
    system.trial.start_supervisor().unwrap();
    let ended = system.ended(&asked, UNKNOWN);
    assert_eq!(ended["outcome"], json!("lost"), "{ended:?}");
    assert!(!lives(), "P3: no process of the run lives once ended is written");
    let next = system.run("exit 0");
    assert_eq!(system.ended(&next, SOON)["exit"], json!(0));
    assert_eq!(system.kinds(&asked), ["started", "ended"]);
    system.stop();
}

fn node_killed_while_ending() {
    let mut system = System::new();
    let asked = system.run("sleep 2; exit 5");
    system.wait_running(&asked);
    let port = system.port();
    system.trial.stop_server().unwrap();
    // Long enough for the exit and for `ending` to be durable.
    std::thread::sleep(Duration::from_secs(5));
    system.trial.kill_node().unwrap();
    system.trial.start_server(Some(port)).unwrap();
    assert_eq!(system.ended(&asked, UNKNOWN), *json!({"outcome": "exited", "exit": 5}).as_object().unwrap());
    assert_eq!(system.kinds(&asked), ["started", "ended"]);
    system.stop();
}

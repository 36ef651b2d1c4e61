//! Runs without a sandbox: what they are, and that nothing of them is left (cases 34 and 36; decisions C-89, C-92), also
//! on a host whose only cgroups are of version 1.

use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;
use std::process::Stdio;

use rustix::process::Signal;
use supervisor::wire::accounts::{cgroup_name, derive};
use supervisor::wire::frame;
use supervisor::wire::message::{End, EndedBy, Event, Handle, Phase, Reply, Request};
use supervisor::wire::plan::{LaunchPlan, Step};

use crate::Test;
use crate::world::{Exited, Node, World, hash, processes, sealed_plan, until};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("unconfined::v2_2_3_17_refused_5_without_the_setting_and_runs_with_it", setting),
        ("unconfined::c_92_it_is_the_open_account_with_nothing_and_sees_the_host", identity),
        ("unconfined::case_34_what_the_program_left_is_ended_whatever_it_did_to_stay", || left_behind(World::new())),
        ("unconfined::case_34_without_a_supervisor_the_same_child_stays", stays_without),
        ("unconfined::case_34_a_stop_asks_every_group_of_the_session_and_kills_the_rest", || stopped(World::new())),
        ("unconfined::c_35_limits_bind_it_and_are_told_apart", || limits(World::new())),
        ("unconfined::case_34_the_next_supervisor_ends_every_group_and_says_orphaned", || orphaned(World::new())),
        ("unconfined::c_92_its_workspace_is_another_accounts_place", place),
        ("unconfined::c_45_a_program_that_is_not_there_is_127_and_a_folder_that_is_not_125", failed),
    ]
}

/// The same where no cgroup v2 is mounted.
pub(crate) fn v1_tests() -> Vec<Test> {
    vec![
        ("unconfined::v1::case_34_what_the_program_left_is_ended_whatever_it_did_to_stay", || left_behind(v1())),
        ("unconfined::v1::case_34_a_stop_asks_every_group_of_the_session_and_kills_the_rest", || stopped(v1())),
        ("unconfined::v1::c_35_limits_bind_it_and_are_told_apart", || limits(v1())),
        ("unconfined::v1::case_34_the_next_supervisor_ends_every_group_and_says_orphaned", || orphaned(v1())),
        ("unconfined::v1::what_forks_without_end_is_ended", || forks(v1())),
        ("unconfined::v1::a_run_in_a_sandbox_ends_whole_and_leaves_no_group", confined_on_v1),
    ]
}

/// Whether this host has the v1 hierarchies these tests want.
pub(crate) fn has_v1() -> bool {
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap_or_default();
    let has = |what: &str| mounts.lines().any(|it| it.starts_with("cgroup ") && it.contains(what));
    has("freezer") && has("pids")
}

fn v1() -> World {
    let mut world = World::new();
    world.without_v2 = true;
    world
}

/// The test's own `sleep`s: the same test of a host with v1 alone may run beside it.
fn own(world: &World, text: &str) -> String {
    if world.without_v2 { text.replace("403", "413") } else { text.to_owned() }
}

/// The `sleep`s that live whose length begins so.
fn sleeping(world: &World, length: &str) -> Vec<u32> {
    processes(&own(world, &format!("sleep\x00{length}")))
}

/// A world whose owner lets runs without a sandbox run.
fn open(mut world: World) -> (World, Node) {
    world.setting("unconfined", "");
    world.setting("grace", "2");
    world.start();
    let node = world.greeted();
    (world, node)
}

fn plan(world: &World, run: &str, at: Option<&str>, script: &str) -> LaunchPlan {
    LaunchPlan { sandbox: None, ..world.plan(run, at, &own(world, script)) }
}

/// Takes, prepares and launches a script without a sandbox.
fn run(world: &World, node: &mut Node, run: &str, script: &str) -> (Handle, String) {
    let (handle, at) = prepared(world, node, run);
    let reply = node.launch(handle, &plan(world, run, Some(&at), script), b"first line\n");
    assert!(matches!(reply, Reply::Launched { .. }), "{reply:?} {:#?}", world.logged());
    (handle, at)
}

fn prepared(world: &World, node: &mut Node, run: &str) -> (Handle, String) {
    let handle = node.take(run);
    let at = world.root.join("workspaces-open").join(run.get(..10).unwrap()).display().to_string();
    let reply = node.call(
        Request::Prepare { handle, workspace_at: None, checkin: None, steps: vec![Step::Directory { at: at.clone() }] },
        &[],
    );
    assert_eq!(reply, Reply::Prepared { checkin: None }, "{:#?}", world.logged());
    (handle, at)
}

fn setting() {
    let (world, mut node) = World::served();
    let handle = node.take(&hash('a'));
    let mut asked = plan(&world, &hash('a'), None, "exit 3");
    let mut check = |plan: &LaunchPlan| {
        let plan = sealed_plan(plan);
        node.call(Request::Check { handle }, &[plan.as_fd()])
    };
    let Reply::Refused { row: 5, why, .. } = check(&asked) else { panic!("not refused") };
    assert!(why.contains("runs nothing unconfined"), "{why}");
    // No restart: the owner may change his mind at any time.
    world.setting("unconfined", "");
    assert_eq!(check(&asked), Reply::Permitted);
    // V2-2.9-10, C-87, C-33.
    asked.limits.processes = Some(5);
    assert!(matches!(check(&asked), Reply::Refused { row: 6, field, .. } if field == "limits.processes"));
    asked.limits.processes = None;
    asked.process.keep_stdout_bytes = (4 << 20) + 1;
    assert!(matches!(check(&asked), Reply::Refused { row: 6, field, .. } if field == "process.keep.stdout"));
    asked.process.keep_stdout_bytes = 4 << 20;
    assert_eq!(check(&asked), Reply::Permitted);
    std::fs::remove_file(world.root.join("settings/unconfined")).unwrap();
    let reply = node.launch(handle, &asked, b"");
    assert!(matches!(reply, Reply::Refused { row: 5, .. }), "a launch looks again: {reply:?}");
    world.setting("unconfined", "");
    assert!(matches!(node.launch(handle, &asked, b""), Reply::Launched { .. }));
    assert_eq!(node.exited(handle).end, End::Code(3));
}

fn identity() {
    let (world, mut node) = open(World::new());
    let script = "id -u; id -g; id -G; grep -E '^(Cap|NoNewPrivs|Seccomp:)' /proc/self/status; umask; \
                  echo made > made; cut -d' ' -f6 /proc/$$/stat; echo $$; ls -d /proc/1 /etc/shadow; cat; \
                  ls /proc/self/fd | wc -l; nice; grep SigIgn /proc/self/status; cat /etc/shadow";
    let (handle, at) = run(&world, &mut node, &hash('a'), script);
    let exited = node.exited(handle);
    let open = derive(&world.root).open;
    let lines: Vec<&str> = exited.stdout.lines().collect();
    let id = open.uid.to_string();
    assert_eq!(lines.get(..3).unwrap(), [id.as_str(); 3], "{exited:?}");
    for none in ["CapInh:\t0000000000000000", "CapPrm:\t0000000000000000", "CapEff:\t0000000000000000"] {
        assert!(lines.contains(&none), "{none}: {exited:?}");
    }
    for is in [
        "0",
        "CapBnd:\t0000000000000000",
        "NoNewPrivs:\t1",
        "0022",
        "/proc/1",
        "first line",
        "SigIgn:\t0000000000000000",
    ] {
        assert!(lines.contains(&is), "{is}: {exited:?}");
    }
    // Its own session: the two numbers are one.
    let at_umask = lines.iter().position(|it| *it == "0022").unwrap();
    assert_eq!(lines.get(at_umask + 1), lines.get(at_umask + 2), "{exited:?}");
    assert!(exited.stderr.contains("/etc/shadow"), "it reads what root alone reads: {exited:?}");
    assert_eq!(exited.end, End::Code(1));
    let made = std::fs::metadata(Path::new(&at).join("made")).unwrap();
    assert_eq!((made.uid(), made.gid()), (open.uid, open.gid));
    // Its logs are written as that account too.
    let log = frame::seal("o", b"out").unwrap();
    let write = Request::WriteLogs { handle, stderr: false, stdout: true };
    assert_eq!(node.call(write, &[log.as_fd()]), Reply::Written);
    assert_eq!(std::fs::metadata(Path::new(&at).join("stdout.log")).unwrap().uid(), open.uid);
    assert_eq!(node.call(Request::Remove { handle }, &[]), Reply::Removed, "{:#?}", world.logged());
    assert!(!Path::new(&at).exists());
}

/// What a program may do to leave something behind, each with `sleep` of its own length.
const STAYING: &[(&str, &str)] = &[
    ("a child", "sleep 4034.01 & exit 3"),
    ("a job in a group of its own", "set -m; sleep 4034.02 & exit 3"),
    ("a group made by timeout", "timeout 4000 sleep 4034.03 & exit 3"),
    ("its output elsewhere", "sleep 4034.04 >/dev/null 2>&1 </dev/null & exit 3"),
    ("deaf to the hang-up", "(trap '' HUP TERM INT; exec sleep 4034.05) & exit 3"),
    ("a session of its own", "setsid sleep 4034.06 & exit 3"),
    ("a daemon", "setsid sh -c 'exec >/dev/null 2>&1 </dev/null; cd /; sleep 4034.07 & exit 0'; exit 3"),
    ("stopped", "sleep 4034.08 & sleep 0.2; kill -STOP $!; exit 3"),
];

fn left_behind(world: World) {
    let (world, mut node) = open(world);
    for ((what, script), digit) in STAYING.iter().zip("0123456789".chars()) {
        let (handle, _) = run(&world, &mut node, &hash(digit), script);
        let exited = node.exited(handle);
        assert_eq!((exited.end, &exited.ended_by), (End::Code(3), &EndedBy::Itself), "{what}: {exited:?}");
        // P3: not a moment later.
        assert_eq!(sleeping(&world, "4034."), Vec::<u32>::new(), "{what}");
        assert_eq!(cgroups_of(&world, &hash(digit)), Vec::<String>::new(), "{what}");
    }
    // What had to be ended is counted; the first of them was one child.
    world.wait_log("ending 1 processes the program left", 1);
}

/// The control of [`left_behind`]: the same scripts, and nobody who ends what they leave.
fn stays_without() {
    for (what, script) in STAYING {
        // Each has its `sleep` changed, so that no other test's is met.
        let script = script.replace("4034.", "4035.");
        let mut command = std::process::Command::new("setsid");
        command.args(["-w", "bash", "-c", &script]).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let status = command.status().unwrap();
        assert_eq!(status.code(), Some(3), "{what}");
        until(what, || !processes("sleep\x004035.").is_empty());
        // Again and again: one that was about to be started is met by the next look.
        until("the control's own is gone", || {
            let found = processes("sleep\x004035.");
            for pid in &found {
                let pid = rustix::process::Pid::from_raw(i32::try_from(*pid).unwrap()).unwrap();
                // It may have gone by itself.
                let _gone = rustix::process::kill_process(pid, Signal::KILL);
            }
            found.is_empty()
        });
    }
}

/// The groups that bear a run's name, in every hierarchy.
fn cgroups_of(world: &World, run: &str) -> Vec<String> {
    let name = cgroup_name(&world.root);
    let mounts = std::fs::read_to_string("/proc/mounts").unwrap();
    let points = mounts.lines().filter(|it| it.starts_with("cgroup")).filter_map(|it| it.split(' ').nth(1));
    let mut found = Vec::new();
    for point in points {
        // Below our own group or at the top, as the supervisor chose.
        let mut find = std::process::Command::new("find");
        find.args([point, "-type", "d", "-path"]).arg(format!("*/{name}/{run}"));
        let listed = find.output().unwrap().stdout;
        found.extend(String::from_utf8_lossy(&listed).lines().map(str::to_owned));
    }
    found
}

fn stopped(world: World) {
    let (world, mut node) = open(world);
    // The job is in a group of its own in the session, the daemon in a session of its own: only the first is asked.
    let script = "set -m; (trap 'echo job > asked-job; exit 0' TERM; echo > job; while :; do sleep 0.02; done) & \
                  setsid sh -c 'trap \"echo daemon > asked-daemon\" TERM; echo > daemon; while :; do sleep 0.02; done' & \
                  trap 'sleep 0.3; exit 7' TERM; while :; do sleep 0.02; done";
    let (handle, at) = prepared(&world, &mut node, &hash('a'));
    let mut asked = plan(&world, &hash('a'), Some(&at), script);
    asked.process.command = ["/bin/bash", "-c", script].map(str::to_owned).to_vec();
    assert!(matches!(node.launch(handle, &asked, b""), Reply::Launched { .. }), "{:#?}", world.logged());
    let there = |name: &str| Path::new(&at).join(name).exists();
    until("job and daemon are ready", || there("job") && there("daemon"));
    assert_eq!(node.call(Request::Stop { handle, why: String::new() }, &[]), Reply::Stopping);
    let exited = node.exited(handle);
    assert_eq!((exited.end, &exited.ended_by), (End::Code(7), &EndedBy::Stop), "{exited:?}");
    assert!(there("asked-job") && !there("asked-daemon"));
    assert!(exited.leftovers >= 1, "the daemon: {exited:?}");
    assert_eq!(processes(&at), Vec::<u32>::new());
    assert_eq!(cgroups_of(&world, &hash('a')), Vec::<String>::new());
    // What is deaf to TERM is killed after the grace.
    let deaf = "trap '' TERM HUP INT; echo > up; while :; do sleep 0.02; done";
    let (handle, at) = run(&world, &mut node, &hash('b'), deaf);
    until("it is deaf", || Path::new(&at).join("up").exists());
    node.call(Request::Stop { handle, why: String::new() }, &[]);
    let exited = node.exited(handle);
    assert_eq!((exited.end, exited.ended_by), (End::Signal(9), EndedBy::Stop));
}

fn limits(world: World) {
    let (world, mut node) = open(world);
    let mut end = |digit, script: &str, change: &dyn Fn(&mut LaunchPlan)| -> Exited {
        let (handle, at) = prepared(&world, &mut node, &hash(digit));
        let mut plan = plan(&world, &hash(digit), Some(&at), script);
        change(&mut plan);
        let reply = node.launch(handle, &plan, b"");
        assert!(matches!(reply, Reply::Launched { .. }), "{reply:?} {:#?}", world.logged());
        node.exited(handle)
    };
    let limit = |key: &str| EndedBy::Limit(key.to_owned());
    let exited = end('0', "(trap '' TERM; sleep 4036.01) & sleep 4036.02", &|it| it.limits.wall_s = Some(1));
    assert_eq!((exited.end, exited.ended_by), (End::Signal(15), limit("wall")));
    assert_eq!(sleeping(&world, "4036."), Vec::<u32>::new());
    let exited = end('1', "while :; do :; done", &|it| it.limits.cpu_s = Some(1));
    assert_eq!((exited.end, exited.ended_by), (End::Signal(24), limit("cpu")));
    let big = "exec head -c 100000 /dev/zero > big";
    let exited = end('2', big, &|it| it.limits.file_size_bytes = Some(1000));
    assert_eq!((exited.end, exited.ended_by), (End::Signal(25), limit("file_size")));
    let exited = end('3', "a=x; while :; do a=$a$a; done", &|it| it.limits.memory_bytes = Some(64 << 20));
    assert_eq!((exited.end, exited.ended_by), (End::Signal(9), limit("memory")));
    // Controls: the same within its limits, and a signal of its own.
    let exited = end('4', big, &|it| it.limits.file_size_bytes = Some(1_000_000));
    assert_eq!((exited.end, exited.ended_by), (End::Code(0), EndedBy::Itself));
    let exited = end('5', "kill -KILL $$", &|it| it.limits.cpu_s = Some(1));
    assert_eq!((exited.end, exited.ended_by), (End::Signal(9), EndedBy::Itself));
}

fn orphaned(world: World) {
    let (mut world, mut node) = open(world);
    let script = "set -m; sleep 4037.01 & setsid sleep 4037.02 & (trap '' HUP TERM; exec sleep 4037.03) & \
                  echo > up; exec sleep 4037.04";
    let (_, at) = run(&world, &mut node, &hash('a'), script);
    until("all of it runs", || sleeping(&world, "4037.").len() == 4);
    world.end_supervisor(Signal::KILL);
    drop(node);
    // Case 34: a killed watcher ends none of it; the next one ends every group.
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert_eq!(sleeping(&world, "4037.").len(), 4);
    world.start();
    let mut node = world.greeted();
    let (Event::InCare { phase, workspace, .. }, _) = node.event() else { panic!("no run in care") };
    assert_eq!((phase, workspace), (Phase::Launched, Some(at)));
    let Event::Orphaned { handle, event, .. } = node.event().0 else { panic!("no orphan") };
    assert_eq!(sleeping(&world, "4037."), Vec::<u32>::new());
    assert_eq!(cgroups_of(&world, &hash('a')), Vec::<String>::new());
    node.send(Request::Noted { handle, event }, &[]);
    assert_eq!(node.call(Request::Remove { handle }, &[]), Reply::Removed, "{:#?}", world.logged());
    assert_eq!(node.call(Request::Release { handle }, &[]), Reply::Released);
    assert_eq!(node.call(Request::Take { run: hash('a') }, &[]), Reply::Was { launches: 1 });
}

/// Processes that fork faster than they could be killed one by one.
fn forks(world: World) {
    let (world, mut node) = open(world);
    let script =
        "f() { while :; do (sleep 4038.1 & exec sleep 0.01) & sleep 0.005; done; }; f & f & f & sleep 1; exit 5";
    let (handle, _) = run(&world, &mut node, &hash('a'), script);
    let exited = node.exited(handle);
    assert_eq!(exited.end, End::Code(5));
    assert!(exited.leftovers > 10, "{exited:?}");
    assert_eq!(sleeping(&world, "4038."), Vec::<u32>::new());
    assert_eq!(cgroups_of(&world, &hash('a')), Vec::<String>::new());
}

fn confined_on_v1() {
    let mut world = v1();
    world.start();
    let mut node = world.greeted();
    let script = own(&world, "setsid sleep 4039.1 & sleep 4039.2 & exit 4");
    let (handle, _) = world.run(&mut node, &hash('a'), &script);
    let exited = node.exited(handle);
    assert_eq!((exited.end, exited.leftovers), (End::Code(4), 2), "{exited:?}");
    assert_eq!(sleeping(&world, "4039."), Vec::<u32>::new());
    assert_eq!(cgroups_of(&world, &hash('a')), Vec::<String>::new());
    let line = world.logged().join("\n");
    assert!(!line.contains("cgroup"), "{line}");
}

fn place() {
    let (world, mut node) = open(World::new());
    // Prepared where confined runs are, it is not launched without a sandbox, nor the other way round.
    let (handle, at) = world.prepared(&mut node, &hash('a'));
    let reply = node.launch(handle, &plan(&world, &hash('a'), Some(&at), "exit 0"), b"");
    assert!(matches!(reply, Reply::Refused { row: 7, .. }), "{reply:?}");
    let (handle, at) = prepared(&world, &mut node, &hash('b'));
    let reply = node.launch(handle, &world.plan(&hash('b'), Some(&at), "exit 0"), b"");
    assert!(matches!(reply, Reply::Refused { row: 7, .. }), "{reply:?}");
    // What the one account owns the other cannot enter.
    let look = format!("ls {} {}", world.root.join("workspaces").display(), world.root.join("care").display());
    let (handle, _) = run(&world, &mut node, &hash('c'), &look);
    let exited = node.exited(handle);
    assert_eq!(exited.stderr.matches("Permission denied").count(), 2, "{exited:?}");
    // Control: its own it can.
    let look = format!("ls {}", world.root.join("workspaces-open").display());
    let (handle, _) = run(&world, &mut node, &hash('d'), &look);
    assert_eq!(node.exited(handle).end, End::Code(0));
}

fn failed() {
    let (world, mut node) = open(World::new());
    let mut launch = |digit, command: &str, cwd: Option<&str>| {
        let (handle, at) = prepared(&world, &mut node, &hash(digit));
        let mut plan = plan(&world, &hash(digit), Some(&at), "");
        plan.process.command = vec![command.to_owned()];
        if let Some(cwd) = cwd {
            plan.process.cwd = cwd.to_owned();
        }
        node.launch(handle, &plan, b"")
    };
    let Reply::Failed { code: 127, why, .. } = launch('a', "/usr/bin/none-such", None) else { panic!("it ran") };
    assert!(why.starts_with("ocx: /usr/bin/none-such: "), "{why}");
    assert!(matches!(launch('b', "/usr", None), Reply::Failed { code: 126, .. }));
    let Reply::Failed { code: 125, why, .. } = launch('c', "/bin/true", Some("/nowhere")) else { panic!("it ran") };
    assert!(why.contains("/nowhere"), "{why}");
}

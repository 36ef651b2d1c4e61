//! How processes end, beyond what `life` shows: output that nobody may be hurt by, room for it, what cannot be ended, and
//! the places of its logs.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use supervisor::wire::accounts::{cgroup_name, derive};
use supervisor::wire::frame;
use supervisor::wire::message::{End, EndedBy, Event, Reply, Request};
use supervisor::wire::plan::LaunchPlan;

use crate::Test;
use crate::world::{SOON, World, hash, process, sealed_plan, until};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("ending::b6_b14_one_who_shouts_or_writes_one_huge_line_keeps_nobody_waiting", shouting),
        ("ending::c_87_past_the_budget_a_run_waits_in_order_and_a_stop_ends_its_wait", budget),
        ("ending::c_87_more_than_the_whole_budget_and_a_launch_without_room_are_refused", no_room),
        ("ending::b12_case_32_nothing_in_a_logs_place_is_followed_waited_on_or_changed", displaced_logs),
        ("ending::c_35_c_111_the_cpu_limit_is_a_process_own_and_a_kill_of_ours_is_none", cpu),
        ("ending::a7_zombies_of_a_run_are_reaped_inside_and_none_is_left_outside", zombies),
        ("ending::case_30_a_program_that_never_reads_ends_as_it_ends", unread),
        ("ending::a10_what_a_run_past_its_wall_left_writes_nothing_later", late_writer),
        ("ending::a12_a_workspace_taken_away_under_a_run_is_no_fault_of_its_end", workspace_gone),
        ("ending::signals_are_told_as_such", signals),
        ("ending::v2_2_3_18_an_unlimited_run_leaves_the_host_and_others_process_numbers", process_numbers),
    ]
}

/// Those that need the freezer of cgroup v1 to make a process nothing can end.
pub(crate) fn freezer_tests() -> Vec<Test> {
    vec![("ending::c_82_what_cannot_be_ended_is_named_and_its_end_not_told_until_it_is", cannot_be_ended)]
}

fn shouting() {
    let (world, mut node) = World::served();
    for digit in "01234567".chars() {
        world.run(&mut node, &hash(digit), "exec yes");
    }
    // One line without an end, in the same pipes.
    world.run(&mut node, &hash('8'), "exec head -c 300000000000 /dev/zero");
    std::thread::sleep(Duration::from_millis(300));
    // Another run says what it says, and stops when it is asked, long before any of those ends.
    let (quiet, at) = world.run(&mut node, &hash('a'), "read line; echo $line; echo > up; exec sleep 71.5");
    until("it has read", || Path::new(&at).join("up").exists());
    assert_eq!(node.call(Request::Stop { handle: quiet, why: String::new() }, &[]), Reply::Stopping);
    let exited = node.exited(quiet);
    assert_eq!((exited.end, exited.ended_by), (End::Signal(15), EndedBy::Stop));
    assert_eq!(exited.stdout, "first line\n");
    // Those who shout go on: one that says much and then ends does end, while others are stopped beside it.
    let (busy, _) = world.run(&mut node, &hash('b'), "head -c 100000000 /dev/zero; exit 9");
    for digit in "cdef".chars() {
        let (handle, _) = world.run(&mut node, &hash(digit), "exec sleep 71.6");
        node.call(Request::Stop { handle, why: String::new() }, &[]);
    }
    let mut ends = BTreeMap::new();
    for _ in 0..5 {
        let Event::Exited { handle, end, .. } = node.event().0 else { panic!("no exit") };
        ends.insert(handle, end);
    }
    assert_eq!(ends.remove(&busy), Some(End::Code(9)));
    assert!(ends.len() == 4 && ends.values().all(|end| *end == End::Signal(15)), "{ends:?}");
    // What was shouted is not held: eight streams and a line of gigabytes, and a supervisor of some megabytes.
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.supervisor_pid())).unwrap();
    let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
    let most: u64 = line.split_whitespace().nth(1).unwrap().parse().unwrap();
    assert!(most < 32 << 10, "{most} KiB");
}

fn keeping(world: &World, run: &str, bytes: u64) -> LaunchPlan {
    let mut plan = world.plan(run, None, "exit 0");
    (plan.process.keep_stderr_bytes, plan.process.keep_stdout_bytes) = (0, bytes);
    plan
}

fn budget() {
    let mut world = World::new();
    world.setting("rings", "1M");
    world.start();
    let mut node = world.greeted();
    let handles: Vec<_> = "abcd".chars().map(|digit| node.take(&hash(digit))).collect();
    let [a, b, c, d] = handles.as_slice() else { panic!("four were taken") };
    let ask = |digit: char, kib: u64| sealed_plan(&keeping(&world, &hash(digit), kib << 10));
    assert_eq!(node.call(Request::Check { handle: *a }, &[ask('a', 700).as_fd()]), Reply::Permitted);
    // The second does not fit, and the third, which would, does not pass it.
    let waits_b = node.send(Request::Check { handle: *b }, &[ask('b', 600).as_fd()]);
    let waits_c = node.send(Request::Check { handle: *c }, &[ask('c', 100).as_fd()]);
    world.wait_log("waits for room: it keeps 102400 bytes of output, other runs 716800 of 1048576", 1);
    // A stop ends the wait, of the one asked for alone; the next in order then gets its room.
    let stop = node.send(Request::Stop { handle: *b, why: String::new() }, &[]);
    assert_eq!(node.reply(waits_b), Reply::Permitted);
    assert_eq!(node.reply(waits_c), Reply::Permitted);
    assert_eq!(node.reply(stop), Reply::Stopping);
    // It was permitted to go on, and holds no room: it cannot be launched by that.
    let refused = node.launch(*b, &keeping(&world, &hash('b'), 600 << 10), b"");
    assert!(matches!(refused, Reply::Refused { row: 6, ref field, .. } if field == "process.keep"), "{refused:?}");
    // An end that was noted gives its room back, long before the run is released.
    let waits_d = node.send(Request::Check { handle: *d }, &[ask('d', 400).as_fd()]);
    assert!(matches!(node.launch(*a, &keeping(&world, &hash('a'), 700 << 10), b""), Reply::Launched { .. }));
    let exited = node.exited(*a);
    node.send(Request::Noted { handle: *a, event: exited.event }, &[]);
    assert_eq!(node.reply(waits_d), Reply::Permitted);
    // A node that goes takes no room with it: the next asks again, and is answered.
    drop(node);
    let mut node = world.greeted();
    for _ in 0..4 {
        node.event();
    }
    assert_eq!(node.call(Request::Check { handle: *b }, &[ask('b', 500).as_fd()]), Reply::Permitted);
}

fn no_room() {
    let mut world = World::new();
    world.setting("rings", "64K");
    world.start();
    let mut node = world.greeted();
    let handle = node.take(&hash('a'));
    let plan = sealed_plan(&keeping(&world, &hash('a'), 65537));
    let reply = node.call(Request::Check { handle }, &[plan.as_fd()]);
    let Reply::Refused { row: 6, field, why } = reply else { panic!("{reply:?}") };
    assert!(field == "process.keep" && why.contains("settings/rings"), "{field}: {why}");
    let fits = keeping(&world, &hash('a'), 65536);
    assert_eq!(node.call(Request::Check { handle }, &[sealed_plan(&fits).as_fd()]), Reply::Permitted);
    // More than was held for it, and another holds the rest.
    let other = node.take(&hash('b'));
    let reply = node.launch(other, &keeping(&world, &hash('b'), 1), b"");
    assert!(matches!(reply, Reply::Refused { row: 6, .. }), "{reply:?}");
    // Control: nothing to keep needs no room.
    assert!(matches!(node.launch(other, &keeping(&world, &hash('b'), 0), b""), Reply::Launched { .. }));
    assert_eq!(node.exited(other).end, End::Code(0));
}

/// What a run may put where its log goes. `VICTIM` is a file of the runs' account outside the workspace.
const PLACES: &[(&str, &str)] = &[
    ("a link", "ln -s VICTIM stderr.log"),
    ("a link to nowhere", "ln -s /nowhere/at/all stderr.log"),
    ("a hard link", "ln VICTIM stderr.log"),
    ("a pipe", "mkfifo stderr.log"),
    ("a socket", "python3 -c 'import socket; socket.socket(socket.AF_UNIX).bind(\"stderr.log\")'"),
    ("a file nobody may write", "echo old > stderr.log; chmod 000 stderr.log"),
    ("a link to itself", "ln -s stderr.log stderr.log"),
];

fn displaced_logs() {
    let (world, mut node) = World::served();
    let account = derive(&world.root).run;
    let shared = world.dir.join("shared");
    std::fs::create_dir(&shared).unwrap();
    std::os::unix::fs::chown(&shared, Some(account.uid), Some(account.gid)).unwrap();
    let victim = shared.join("victim");
    let untouched = || {
        std::fs::write(&victim, "the victim's").unwrap();
        std::os::unix::fs::chown(&victim, Some(account.uid), Some(account.gid)).unwrap();
    };
    let python = Path::new("/usr/bin/python3").exists();
    for ((what, script), digit) in PLACES.iter().zip("0123456789".chars()) {
        if script.starts_with("python3") && !python {
            continue;
        }
        untouched();
        // In one mount with the victim, so that a hard link can be made at all.
        let script = script.replace("VICTIM", &victim.display().to_string());
        let (handle, at) = world.prepared(&mut node, &hash(digit));
        if what.contains("hard") {
            // As an earlier process of the account could have: the sandbox's mounts are in the way of `ln`.
            std::fs::hard_link(&victim, Path::new(&at).join("stderr.log")).unwrap();
        }
        let script = if what.contains("hard") { "true" } else { &script };
        let plan = world.plan(&hash(digit), Some(&at), script);
        assert!(matches!(node.launch(handle, &plan, b""), Reply::Launched { .. }), "{:#?}", world.logged());
        assert_eq!(node.exited(handle).end, End::Code(0), "{what}");
        let log = Path::new(&at).join("stderr.log");
        // Control: who opens it by its name, as that account, changes the victim, waits, or fails.
        if *what == "a link" {
            let naive = Command::new("setpriv")
                .args([format!("--reuid={}", account.uid), format!("--regid={}", account.gid)])
                .args(["--clear-groups", "sh", "-c", "echo changed > \"$1\"", "sh"])
                .arg(&log)
                .status()
                .unwrap();
            assert!(naive.success());
            assert_eq!(std::fs::read_to_string(&victim).unwrap(), "changed\n");
            untouched();
        }
        assert_eq!(write_log(&mut node, handle), Reply::Written, "{what}");
        let about = std::fs::symlink_metadata(&log).unwrap();
        assert!(about.is_file() && about.nlink() == 1 && about.uid() == account.uid, "{what}: {about:?}");
        assert_eq!(std::fs::read_to_string(&log).unwrap(), "oops", "{what}");
        assert_eq!(std::fs::read_to_string(&victim).unwrap(), "the victim's", "{what}");
    }
    // A directory, or a device that is none of the account's to remove, stays, and the log is kept out.
    let (handle, at) = world.run(&mut node, &hash('a'), "mkdir stderr.log; echo x > stderr.log/in");
    node.exited(handle);
    assert!(matches!(write_log(&mut node, handle), Reply::KeptOut { why } if why == "stderr.log is a directory"));
    assert!(Path::new(&at).join("stderr.log/in").exists());
    let (handle, at) = world.run(&mut node, &hash('b'), "true");
    node.exited(handle);
    let log = Path::new(&at).join("stderr.log");
    assert!(Command::new("mknod").arg(&log).args(["c", "1", "3"]).status().unwrap().success());
    assert_eq!(write_log(&mut node, handle), Reply::Written);
    assert!(!std::fs::symlink_metadata(&log).unwrap().file_type().is_char_device());
    // The workspace itself put aside and a link in its place: what was prepared is what is written in.
    let (handle, at) = world.run(&mut node, &hash('c'), "true");
    node.exited(handle);
    let aside = PathBuf::from(format!("{at}-aside"));
    std::fs::rename(&at, &aside).unwrap();
    std::os::unix::fs::symlink(&shared, &at).unwrap();
    assert_eq!(write_log(&mut node, handle), Reply::Written);
    assert!(!shared.join("stderr.log").exists() && aside.join("stderr.log").exists());
    std::fs::remove_file(&at).unwrap();
}

fn write_log(node: &mut crate::world::Node, handle: u64) -> Reply {
    let log = frame::seal("e", b"oops").unwrap();
    node.call(Request::WriteLogs { handle, stderr: true, stdout: false }, &[log.as_fd()])
}

fn cpu() {
    let (world, mut node) = World::served();
    let mut end = |digit, script: &str| {
        let mut plan = world.plan(&hash(digit), None, script);
        plan.limits.cpu_s = Some(1);
        let handle = node.take(&hash(digit));
        assert!(matches!(node.launch(handle, &plan, b""), Reply::Launched { .. }), "{:#?}", world.logged());
        let exited = node.exited(handle);
        (exited.end, exited.ended_by)
    };
    let spin = "while :; do :; done";
    let cpu = EndedBy::Limit("cpu".to_owned());
    // A child spends the time and is ended by it; that the program then gets KILL from elsewhere is not its limit.
    assert_eq!(end('a', &format!("sh -c '{spin}'; kill -KILL $$")), (End::Signal(9), EndedBy::Itself));
    // A caught signal and an exit is an exit; one that goes on is killed a second later, and that is the limit's.
    assert_eq!(end('b', &format!("trap 'exit 7' XCPU; {spin}")), (End::Code(7), EndedBy::Itself));
    assert_eq!(end('c', &format!("trap '' XCPU; {spin}")), (End::Signal(9), cpu));
    // C-111: KILL past the time that we sent is a stop's, whatever the clock says.
    let mut plan = world.plan(
        &hash('d'),
        None,
        &format!("trap '' TERM XCPU; i=0; while [ $i -lt 40000 ]; do i=$((i+1)); done; {spin}"),
    );
    plan.limits.cpu_s = Some(3600);
    let handle = node.take(&hash('d'));
    assert!(matches!(node.launch(handle, &plan, b""), Reply::Launched { .. }));
    node.call(Request::Stop { handle, why: String::new() }, &[]);
    assert_eq!(node.exited(handle).ended_by, EndedBy::Stop);
}

fn zombies() {
    let (world, mut node) = World::served();
    let script = "i=0; while [ $i -lt 300 ]; do (true &); i=$((i+1)); done; sleep 0.5; \
                  grep -l '^State:.Z' /proc/[0-9]*/status 2>/dev/null | wc -l";
    let (handle, _) = world.run(&mut node, &hash('a'), script);
    let exited = node.exited(handle);
    let left: u32 = exited.stdout.trim().parse().unwrap();
    assert!(left <= 3, "{exited:?}");
    // The same when a sandbox does not reap for it.
    for digit in "bcdef".chars() {
        let (handle, _) = world.run(&mut node, &hash(digit), "setsid sleep 72.5 & exec true");
        node.exited(handle);
    }
    until("no child of the supervisor waits to be reaped", || {
        let children = format!("/proc/{pid}/task/{pid}/children", pid = world.supervisor_pid());
        let children = std::fs::read_to_string(children).unwrap();
        children.split_whitespace().all(|pid| {
            let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            !stat.contains(") Z ")
        })
    });
}

fn unread() {
    let (world, mut node) = World::served();
    let long = vec![b'x'; 1 << 20];
    let mut launch = |digit, script: &str| {
        let plan = world.plan(&hash(digit), None, script);
        let handle = node.take(&hash(digit));
        assert!(matches!(node.launch(handle, &plan, &long), Reply::Launched { .. }));
        let exited = node.exited(handle);
        (exited.end, exited.stdout)
    };
    assert_eq!(launch('a', "exit 3").0, End::Code(3));
    assert_eq!(launch('b', "exec <&-; sleep 0.1; exit 4").0, End::Code(4));
    // Control: who reads late gets all of it, and then the end.
    assert_eq!(launch('c', "sleep 0.1; wc -c"), (End::Code(0), "1048576\n".to_owned()));
}

fn late_writer() {
    let (world, mut node) = World::served();
    let (handle, at) = world.prepared(&mut node, &hash('a'));
    let script = "(trap '' TERM HUP; sleep 3; echo bad > shared) & exec sleep 73.5";
    let mut plan = world.plan(&hash('a'), Some(&at), script);
    plan.limits.wall_s = Some(1);
    let begun = Instant::now();
    node.launch(handle, &plan, b"");
    let exited = node.exited(handle);
    assert_eq!(exited.ended_by, EndedBy::Limit("wall".to_owned()));
    assert!(exited.leftovers >= 1, "{exited:?}");
    std::thread::sleep(Duration::from_secs(4).saturating_sub(begun.elapsed()));
    assert!(!Path::new(&at).join("shared").exists());
}

fn workspace_gone() {
    let (world, mut node) = World::served();
    let (handle, at) = world.run(&mut node, &hash('a'), "echo x >&2; exec sleep 74.5");
    std::fs::remove_dir_all(&at).unwrap();
    assert_eq!(node.call(Request::Stop { handle, why: String::new() }, &[]), Reply::Stopping);
    let exited = node.exited(handle);
    assert_eq!((exited.end, exited.ended_by), (End::Signal(15), EndedBy::Stop));
    assert!(matches!(write_log(&mut node, handle), Reply::KeptOut { .. }));
    assert_eq!(node.call(Request::Remove { handle }, &[]), Reply::Removed, "{:#?}", world.logged());
}

/// Looked at, not tried: a run that takes what it may would starve the tests beside it.
fn process_numbers() {
    let (world, mut node) = World::served();
    let (handle, _) = world.run(&mut node, &hash('a'), "exec sleep 76.5");
    let name = cgroup_name(&world.root);
    let find = |what: String| {
        let found = Command::new("find").args(["/sys/fs/cgroup", "-path"]).arg(what).output().unwrap().stdout;
        let path = String::from_utf8(found).unwrap();
        std::fs::read_to_string(path.lines().next().unwrap()).unwrap().trim().parse::<u64>().unwrap()
    };
    let number = |at: &str| std::fs::read_to_string(at).unwrap().trim().parse::<u64>().unwrap();
    let host = number("/proc/sys/kernel/pid_max").min(number("/proc/sys/kernel/threads-max"));
    let all = find(format!("*/{name}/pids.max"));
    let one = find(format!("*/{name}/{}/pids.max", hash('a')));
    assert_eq!((all, one), (host - host / 4, (host - host / 4) / 2));
    node.call(Request::Stop { handle, why: String::new() }, &[]);
    node.exited(handle);
    // Control: what a run asks for is what it gets.
    let mut plan = world.plan(&hash('b'), None, "exec sleep 76.6");
    plan.limits.processes = Some(7);
    let handle = node.take(&hash('b'));
    assert!(matches!(node.launch(handle, &plan, b""), Reply::Launched { .. }));
    assert_eq!(find(format!("*/{name}/{}/pids.max", hash('b'))), 8);
    node.call(Request::Stop { handle, why: String::new() }, &[]);
    node.exited(handle);
}

fn signals() {
    let (world, mut node) = World::served();
    for (digit, signal) in [('a', 1), ('b', 6), ('c', 9), ('d', 11), ('e', 15), ('f', 64)] {
        let (handle, _) = world.run(&mut node, &hash(digit), &format!("kill -{signal} $$"));
        let exited = node.exited(handle);
        assert_eq!((exited.end, exited.ended_by), (End::Signal(signal), EndedBy::Itself));
    }
}

/// C-82. A process frozen by the v1 freezer is as uninterruptible as one that waits for a dead disk, and can be let go.
fn cannot_be_ended() {
    let mut world = World::new();
    world.setting("grace", "1");
    world.start();
    let mut node = world.greeted();
    let group = Path::new("/sys/fs/cgroup/freezer").join(format!("ocx-test-{}", std::process::id()));
    std::fs::create_dir(&group).unwrap();
    let (handle, _) = world.run(&mut node, &hash('a'), "exec sleep 75.5");
    let pid = process("sleep\x0075.5");
    std::fs::write(group.join("cgroup.procs"), pid.to_string()).unwrap();
    std::fs::write(group.join("freezer.state"), "FROZEN").unwrap();
    until("it is frozen", || std::fs::read_to_string(group.join("freezer.state")).unwrap().trim() == "FROZEN");
    node.call(Request::Stop { handle, why: String::new() }, &[]);
    // Named with its state and where it waits; other runs go on; its end is not told.
    world.wait_log("KILL in 1 s", 1);
    let line = world.wait_log("cannot be ended yet", 1);
    assert!(line.contains(&format!("pid {pid}, state D")), "{line}");
    let (other, _) = world.run(&mut node, &hash('b'), "exit 6");
    assert_eq!(node.exited(other).end, End::Code(6));
    // Nor is its workspace anybody's.
    let release = node.call(Request::Stop { handle, why: String::new() }, &[]);
    assert_eq!(release, Reply::Stopping);
    std::fs::write(group.join("freezer.state"), "THAWED").unwrap();
    let begun = Instant::now();
    let exited = node.exited(handle);
    assert_eq!(exited.ended_by, EndedBy::Stop);
    assert!(begun.elapsed() < SOON);
    until("the group is empty", || std::fs::remove_dir(&group).is_ok());
}

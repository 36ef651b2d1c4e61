//! A run's life over the boundary, each test with what makes it mean something.

use std::os::fd::AsFd as _;
use std::path::Path;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use supervisor::wire::frame;
use supervisor::wire::message::{End, EndedBy, Event, Phase, Reply, Request};
use supervisor::wire::plan::Step;

use crate::Test;
use crate::world::{Node, World, hash, lives, processes, sealed_plan, until};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("life::from_take_to_release_and_never_again", from_take_to_release),
        ("life::a_launch_that_fails_says_code_stage_and_why_and_is_not_launched_again", failed_launch),
        ("life::a_run_without_a_workspace_is_launched_from_taken", without_workspace),
        ("life::a_stop_asks_first_and_the_program_may_answer", stop_asks),
        ("life::c_81_what_ignores_term_is_killed_after_the_grace", grace),
        ("life::wall_passes_and_is_told", wall),
        ("life::c_35_cpu_and_file_size_are_told_from_an_exit", limits),
        ("life::c_76_what_the_program_left_may_still_write_and_is_then_ended", leftovers),
        ("life::a_grandchild_that_holds_a_pipe_delays_no_end", held_pipe),
        ("life::endless_output_costs_only_what_is_kept_and_delays_no_stop", endless),
        ("life::keep_of_nothing_keeps_nothing", keep_nothing),
        ("life::p3_case_34_a_daemon_of_the_run_is_gone_when_its_end_is_told", daemon),
        ("life::c_102_the_node_killed_in_the_middle_loses_nothing", adopted),
        ("life::c_102_a_failed_launch_is_told_again_as_an_exit_to_a_node_that_missed_it", failed_told_again),
        ("life::c_100_the_supervisor_killed_ends_the_run_and_the_next_says_orphaned", orphaned),
        ("life::c_100_the_groups_of_an_orphan_go_in_every_hierarchy", orphans_groups),
        ("life::p1_killed_at_any_moment_of_a_launch_a_run_is_launched_at_most_once", killed_at_any_moment),
        ("life::c_33_memory_passed_ends_the_whole_run", memory),
        ("life::what_a_node_drives_goes_with_it_and_is_reaped", driven),
        ("life::a_release_behind_a_removal_waits_for_it", release_waits),
        ("life::case_31_term_ends_runs_and_then_the_supervisor", term),
        ("life::a_step_that_fails_or_is_stopped_says_so_and_may_be_done_again", steps),
        ("life::kept_logs_replace_links_and_are_kept_out_by_directories", kept_logs),
        ("life::v2_2_10_21_a_file_is_opened_of_the_runs_own_workspace_and_through_no_link", opened),
        ("life::removing_leaves_nothing_and_says_what_stays", removal),
        ("life::c_99_a_credential_is_sealed_and_without_the_runs_map", credential),
    ]
}

fn text(event: (Event, Vec<std::os::fd::OwnedFd>)) -> Event {
    event.0
}

fn from_take_to_release() {
    let (world, mut node) = World::served();
    let run = hash('a');
    let handle = node.take(&run);
    assert_eq!(node.call(Request::Take { run: run.clone() }, &[]), Reply::Busy);
    let at = world.workspace("one");
    let plan = world.plan(&run, Some(&at), "read line; echo got $line; echo oops >&2; echo made > made.txt; exit 3");
    let sealed = sealed_plan(&plan);
    assert_eq!(node.call(Request::Check { handle }, &[sealed.as_fd()]), Reply::Permitted);
    assert!(!Path::new(&at).exists(), "P5: a check makes nothing");
    let steps = vec![Step::Directory { at: at.clone() }];
    assert_eq!(
        node.call(Request::Prepare { handle, workspace_at: None, checkin: None, steps }, &[]),
        Reply::Prepared { checkin: None }
    );
    assert!(Path::new(&at).is_dir());
    let Reply::Launched { pid } = node.launch(handle, &plan, b"hello\n") else { panic!("{:#?}", world.logged()) };
    let exited = node.exited(handle);
    assert!(!lives(pid));
    assert_eq!((exited.end, exited.ended_by, exited.leftovers), (End::Code(3), EndedBy::Itself, 0));
    assert_eq!((exited.stdout.as_str(), exited.stderr.as_str()), ("got hello\n", "oops\n"));
    node.send(Request::Noted { handle, event: exited.event }, &[]);
    let (err, out) = (frame::seal("e", b"oops").unwrap(), frame::seal("o", b"got").unwrap());
    let request = Request::WriteLogs { handle, stderr: true, stdout: true };
    assert_eq!(node.call(request, &[err.as_fd(), out.as_fd()]), Reply::Written);
    let read = |name: &str| std::fs::read_to_string(Path::new(&at).join(name)).unwrap();
    assert_eq!(
        (read("stderr.log"), read("stdout.log"), read("made.txt")),
        ("oops".into(), "got".into(), "made\n".into())
    );
    assert_eq!(node.call(Request::Remove { handle }, &[]), Reply::Removed);
    assert!(!Path::new(&at).exists());
    assert_eq!(node.call(Request::Release { handle }, &[]), Reply::Released);
    assert_eq!(std::fs::read_to_string(world.root.join("care/launched")).unwrap(), format!("{run} 1\n"));
    assert!(!world.root.join("care").join(&run).exists());
    assert_eq!(node.call(Request::Take { run: run.clone() }, &[]), Reply::Was { launches: 1 });
    // Control: a run that was never launched may be taken again.
    let other = node.take(&hash('b'));
    assert_eq!(node.call(Request::Release { handle: other }, &[]), Reply::Released);
    node.take(&hash('b'));
    for line in ["launched pid", "process ended: exit 3", "released"] {
        world.wait_log(&format!("run aaaaaaaaaa: {line}"), 1);
    }
}

fn failed_launch() {
    let (world, mut node) = World::served();
    for (digit, program, code) in [('a', "/usr/bin/none-such", 127), ('b', "/usr", 126)] {
        let run = hash(digit);
        let (handle, at) = world.prepared(&mut node, &run);
        let mut plan = world.plan(&run, Some(&at), "");
        plan.process.command = vec![program.to_owned()];
        let Reply::Failed { code: found, why, .. } = node.launch(handle, &plan, b"") else { panic!("it ran") };
        assert_eq!(found, code, "{why}");
        assert!(why.starts_with(&format!("ocx: {program}: ")), "{why}");
        // Its end is known on this link: it can be settled at once, and never runs again.
        assert_eq!(node.call(Request::Remove { handle }, &[]), Reply::Removed);
        assert_eq!(node.call(Request::Release { handle }, &[]), Reply::Released);
        assert_eq!(node.call(Request::Take { run }, &[]), Reply::Was { launches: 1 });
    }
    let run = hash('c');
    let (handle, at) = world.prepared(&mut node, &run);
    let mut plan = world.plan(&run, Some(&at), "");
    plan.process.cwd = "/nowhere".into();
    let Reply::Failed { code: 125, why, .. } = node.launch(handle, &plan, b"") else { panic!("it ran") };
    assert!(why.contains("/nowhere"), "{why}");
}

fn without_workspace() {
    let (world, mut node) = World::served();
    let handle = node.take(&hash('a'));
    let plan = world.plan(&hash('a'), None, "cat");
    assert!(matches!(node.launch(handle, &plan, b"x\n"), Reply::Launched { .. }), "{:#?}", world.logged());
    assert_eq!(node.exited(handle).stdout, "x\n");
    let log = frame::seal("o", b"x").unwrap();
    let reply = node.call(Request::WriteLogs { handle, stderr: false, stdout: true }, &[log.as_fd()]);
    assert!(matches!(reply, Reply::KeptOut { .. }), "{reply:?}");
    assert_eq!(node.call(Request::Remove { handle }, &[]), Reply::Removed);
}

fn stop_asks() {
    let (world, mut node) = World::served();
    let script = "trap 'echo bye; exit 7' TERM; echo up > up; while :; do sleep 0.05; done";
    let (handle, at) = world.run(&mut node, &hash('a'), script);
    until("the trap is set", || Path::new(&at).join("up").exists());
    assert_eq!(node.call(Request::Stop { handle, why: "tired".into() }, &[]), Reply::Stopping);
    let exited = node.exited(handle);
    assert_eq!((exited.end, exited.ended_by), (End::Code(7), EndedBy::Stop));
    assert_eq!(exited.stdout, "bye\n");
    // A stop that crossed the end is no fault.
    let late = node.call(Request::Stop { handle, why: String::new() }, &[]);
    assert!(matches!(late, Reply::Impossible { .. }), "{late:?}");
}

fn grace() {
    let mut world = World::new();
    std::fs::create_dir_all(world.root.join("settings")).unwrap();
    for path in [&world.root, &world.root.join("settings")] {
        let mode = if path.ends_with("settings") { 0o755 } else { 0o711 };
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap();
    }
    std::fs::write(world.root.join("settings/grace"), "1\n").unwrap();
    world.start();
    let mut node = world.greeted();
    let script = "trap '' TERM; echo up > up; while :; do sleep 0.05; done";
    let (handle, at) = world.run(&mut node, &hash('a'), script);
    until("the trap is set", || Path::new(&at).join("up").exists());
    let begun = Instant::now();
    node.call(Request::Stop { handle, why: String::new() }, &[]);
    let exited = node.exited(handle);
    assert_eq!((exited.end, exited.ended_by), (End::Signal(9), EndedBy::Stop));
    assert!(begun.elapsed() >= Duration::from_secs(1));
    world.wait_log("stopped: TERM, KILL in 1 s", 1);
}

fn wall() {
    let (world, mut node) = World::served();
    let (handle, at) = world.prepared(&mut node, &hash('a'));
    let mut plan = world.plan(&hash('a'), Some(&at), "exec sleep 60");
    plan.limits.wall_s = Some(1);
    assert!(matches!(node.launch(handle, &plan, b""), Reply::Launched { .. }));
    let exited = node.exited(handle);
    assert_eq!((exited.end, exited.ended_by), (End::Signal(15), EndedBy::Limit("wall".into())));
    world.wait_log("wall of 1 s passed: TERM, KILL in 10 s", 1);
    // Control: within its wall it ends by itself.
    let (handle, at) = world.prepared(&mut node, &hash('b'));
    let mut plan = world.plan(&hash('b'), Some(&at), "exit 0");
    plan.limits.wall_s = Some(60);
    node.launch(handle, &plan, b"");
    assert_eq!(node.exited(handle).ended_by, EndedBy::Itself);
}

fn limits() {
    let (world, mut node) = World::served();
    let mut end = |digit, script: &str, cpu, size| {
        let (handle, at) = world.prepared(&mut node, &hash(digit));
        let mut plan = world.plan(&hash(digit), Some(&at), script);
        (plan.limits.cpu_s, plan.limits.file_size_bytes) = (cpu, size);
        assert!(matches!(node.launch(handle, &plan, b""), Reply::Launched { .. }), "{:#?}", world.logged());
        let exited = node.exited(handle);
        (exited.end, exited.ended_by)
    };
    let spin = "while :; do :; done";
    assert_eq!(end('a', spin, Some(1), None), (End::Signal(24), EndedBy::Limit("cpu".into())));
    let write = "exec head -c 100000 /dev/zero > big";
    assert_eq!(end('b', write, None, Some(1000)), (End::Signal(25), EndedBy::Limit("file_size".into())));
    // Controls: the same signals without the limit, and the same program within it.
    assert_eq!(end('c', "kill -XCPU $$", None, None), (End::Signal(24), EndedBy::Itself));
    assert_eq!(end('d', write, None, Some(1_000_000)), (End::Code(0), EndedBy::Itself));
}

fn leftovers() {
    let (world, mut node) = World::served();
    let script = "(sleep 0.1; echo late; exec sleep 61.5) & echo early; exit 0";
    let (handle, _) = world.run(&mut node, &hash('a'), script);
    let exited = node.exited(handle);
    assert_eq!(exited.end, End::Code(0));
    assert_eq!(exited.stdout, "early\nlate\n");
    assert!(exited.leftovers >= 1, "{exited:?}");
    assert_eq!(processes("sleep\x0061.5"), Vec::<u32>::new());
}

fn held_pipe() {
    let (world, mut node) = World::served();
    let begun = Instant::now();
    let (handle, _) = world.run(&mut node, &hash('a'), "sleep 62.5 & exit 4");
    let exited = node.exited(handle);
    assert_eq!((exited.end, exited.ended_by), (End::Code(4), EndedBy::Itself));
    assert!(begun.elapsed() < Duration::from_secs(60), "{:?}", begun.elapsed());
    // Control: without one nothing is waited for.
    let begun = Instant::now();
    let (handle, _) = world.run(&mut node, &hash('b'), "exit 4");
    assert_eq!(node.exited(handle).leftovers, 0);
    assert!(begun.elapsed() < Duration::from_secs(60));
}

fn endless() {
    let (world, mut node) = World::served();
    let (handle, at) = world.prepared(&mut node, &hash('a'));
    let mut plan = world.plan(&hash('a'), Some(&at), "yes >&2 & exec head -c 300000000 /dev/zero");
    plan.process.keep_stdout_bytes = 1000;
    plan.process.keep_stderr_bytes = 10;
    node.launch(handle, &plan, b"");
    let exited = node.exited(handle);
    assert_eq!((exited.stdout.len(), exited.stderr.len()), (1000, 10));
    let memory = || {
        let status = std::fs::read_to_string(format!("/proc/{}/status", world.supervisor_pid())).unwrap();
        let line = status.lines().find(|line| line.starts_with("VmHWM:")).unwrap();
        line.split_whitespace().nth(1).unwrap().parse::<u64>().unwrap()
    };
    assert!(memory() < 64 << 10, "{} KiB", memory());
    // A stop is met while a program writes without end.
    let (handle, _) = world.run(&mut node, &hash('b'), "exec yes");
    std::thread::sleep(Duration::from_millis(200));
    let begun = Instant::now();
    node.call(Request::Stop { handle, why: String::new() }, &[]);
    assert_eq!(node.exited(handle).end, End::Signal(15));
    assert!(begun.elapsed() < Duration::from_secs(30), "{:?}", begun.elapsed());
}

fn keep_nothing() {
    let (world, mut node) = World::served();
    let (handle, at) = world.prepared(&mut node, &hash('a'));
    let mut plan = world.plan(&hash('a'), Some(&at), "echo x; echo y >&2");
    plan.process.keep_stdout_bytes = 0;
    node.launch(handle, &plan, b"");
    let exited = node.exited(handle);
    assert_eq!((exited.stdout.as_str(), exited.stderr.as_str()), ("", "y\n"));
}

fn daemon() {
    let (world, mut node) = World::served();
    let script = "setsid sh -c 'exec >/dev/null 2>&1 </dev/null; echo > up; exec sleep 63.5' & \
                  while ! [ -e up ]; do sleep 0.01; done";
    let (handle, _) = world.run(&mut node, &hash('a'), script);
    until("the daemon runs", || {
        !processes("sleep\x0063.5").is_empty() || world.logged().iter().any(|l| l.contains("exited"))
    });
    let exited = node.exited(handle);
    assert_eq!(exited.end, End::Code(0));
    assert_eq!(processes("sleep\x0063.5"), Vec::<u32>::new());
}

fn adopted() {
    let (world, mut node) = World::served();
    let (running, at) =
        world.run(&mut node, &hash('a'), "echo one > one; while ! [ -e go ]; do sleep 0.05; done; echo done");
    let taken = node.take(&hash('b'));
    let pid = Pid::from_raw(i32::try_from(node.pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    world.wait_log("node: ended (signal 9)", 1);
    let line = world.wait_log("starting again in", 1);
    assert!(line.contains("2 runs stay in care"), "{line}");
    let mut node = world.node();
    let (reply, _) = node.call_with(Request::Hello { version: 1 }, &[]);
    assert!(matches!(reply, Reply::Welcome { in_care: 2, .. }), "{reply:?}");
    let mut found = [text(node.event()), text(node.event())].map(|event| {
        let Event::InCare { handle, run, phase, workspace, .. } = event else { panic!("{event:?}") };
        (handle, run, phase, workspace)
    });
    found.sort_by_key(|it| it.0);
    let expected = [(running, hash('a'), Phase::Launched, Some(at.clone())), (taken, hash('b'), Phase::Taken, None)];
    assert_eq!(found, expected);
    std::fs::write(Path::new(&at).join("go"), "").unwrap();
    let exited = node.exited(running);
    assert_eq!((exited.end, exited.stdout.as_str()), (End::Code(0), "done\n"));
    // Not noted: the next node is told again, tails and all; noted: it is not.
    drop(node);
    let mut node = world.greeted();
    let told: Vec<Event> = (0..3).map(|_| text(node.event())).collect();
    assert!(told.iter().any(|it| matches!(it, Event::InCare { phase: Phase::Exited, .. })), "{told:?}");
    let event = told.iter().find_map(|it| if let Event::Exited { event, .. } = it { Some(*event) } else { None });
    node.send(Request::Noted { handle: running, event: event.unwrap() }, &[]);
    node.take(&hash('c'));
    drop(node);
    let mut node = world.node();
    let (reply, _) = node.call_with(Request::Hello { version: 1 }, &[]);
    assert!(matches!(reply, Reply::Welcome { in_care: 3, .. }), "{reply:?}");
    for _ in 0..3 {
        assert!(matches!(text(node.event()), Event::InCare { .. }));
    }
    assert_eq!(node.call(Request::Take { run: hash('c') }, &[]), Reply::Busy);
}

fn failed_told_again() {
    let (world, mut node) = World::served();
    let (handle, at) = world.prepared(&mut node, &hash('a'));
    let mut plan = world.plan(&hash('a'), Some(&at), "");
    plan.process.command = vec!["/usr/bin/none-such".into()];
    assert!(matches!(node.launch(handle, &plan, b""), Reply::Failed { .. }));
    drop(node);
    let mut node = world.greeted();
    assert!(matches!(text(node.event()), Event::InCare { phase: Phase::Exited, .. }));
    let exited = node.exited(handle);
    assert_eq!(exited.end, End::Code(127));
    assert!(exited.stderr.starts_with("ocx: /usr/bin/none-such: "), "{}", exited.stderr);
}

fn orphaned() {
    let (mut world, mut node) = World::served();
    let (_, at) = world.run(&mut node, &hash('a'), "echo x >> ran; exec sleep 64.5");
    node.take(&hash('b'));
    until("it runs", || !processes("sleep\x0064.5").is_empty());
    world.end_supervisor(Signal::KILL);
    drop(node);
    until("the run ended with the supervisor", || processes("sleep\x0064.5").is_empty());
    world.start();
    let mut node = world.greeted();
    let mut orphans = Vec::new();
    for _ in 0..2 {
        assert!(matches!(text(node.event()), Event::InCare { .. }));
        let Event::Orphaned { handle, event, run, phase, .. } = text(node.event()) else { panic!("no orphan") };
        assert_eq!(node.call(Request::Take { run: run.clone() }, &[]), Reply::Busy);
        orphans.push((run, phase));
        node.send(Request::Noted { handle, event }, &[]);
        assert_eq!(node.call(Request::Remove { handle }, &[]), Reply::Removed);
        assert_eq!(node.call(Request::Release { handle }, &[]), Reply::Released);
    }
    assert_eq!(orphans, [(hash('a'), Phase::Launched), (hash('b'), Phase::Taken)]);
    assert!(!Path::new(&at).exists());
    assert_eq!(node.call(Request::Take { run: hash('a') }, &[]), Reply::Was { launches: 1 });
    // Control: the one that was never launched may be decided anew.
    node.take(&hash('b'));
}

/// Groups of a run, in any hierarchy of the host.
fn groups(run: &str) -> Vec<std::path::PathBuf> {
    fn below(at: &Path, depth: u32, run: &str, found: &mut Vec<std::path::PathBuf>) {
        for entry in std::fs::read_dir(at).into_iter().flatten().filter_map(Result::ok) {
            let path = entry.path();
            if entry.file_name() == run {
                found.push(path);
            } else if depth > 0 && entry.file_type().is_ok_and(|it| it.is_dir()) {
                below(&path, depth - 1, run, found);
            }
        }
    }
    let mut found = Vec::new();
    below(Path::new("/sys/fs/cgroup"), 3, run, &mut found);
    found
}

fn orphans_groups() {
    let (mut world, mut node) = World::served();
    // A hash no other test has: groups are looked for by it.
    let run = "0abcdef123".repeat(4);
    let (handle, at) = world.prepared(&mut node, &run);
    let mut plan = world.plan(&run, Some(&at), "exec sleep 69.5");
    plan.limits.processes = Some(20);
    let reply = node.launch(handle, &plan, b"");
    assert!(matches!(reply, Reply::Launched { .. }), "{reply:?}");
    // Control: they are seen while they are there.
    assert!(!groups(&run).is_empty());
    world.end_supervisor(Signal::KILL);
    drop(node);
    world.start();
    let mut node = world.greeted();
    while !matches!(text(node.event()), Event::Orphaned { .. }) {}
    assert_eq!(groups(&run), Vec::<std::path::PathBuf>::new());
}

fn term() {
    let (mut world, mut node) = World::served();
    world.run(&mut node, &hash('a'), "exec sleep 65.5");
    until("it runs", || !processes("sleep\x0065.5").is_empty());
    assert_eq!(world.end_supervisor(Signal::TERM), Some(0), "{:#?}", world.logged());
    assert_eq!(processes("sleep\x0065.5"), Vec::<u32>::new());
    drop(node);
    world.start();
    let mut node = world.greeted();
    assert!(matches!(text(node.event()), Event::InCare { .. }));
    assert!(matches!(text(node.event()), Event::Orphaned { .. }));
}

fn steps() {
    let (world, mut node) = World::served();
    let handle = node.take(&hash('a'));
    let other = world.prepared(&mut node, &hash('b')).1;
    let outside = world.root.join("care/x").display().to_string();
    for at in [outside, format!("{other}/in"), other, world.workspace("a/../../care"), world.workspace("")] {
        let reply = node.call(
            Request::Prepare {
                handle,
                workspace_at: None,
                checkin: None,
                steps: vec![Step::Directory { at: at.clone() }],
            },
            &[],
        );
        assert!(matches!(reply, Reply::StepFailed { index: 0, .. }), "{at}: {reply:?}");
    }
    // What the step itself cannot do: its parent is missing.
    let at = world.workspace("none/deeper");
    let reply = node.call(
        Request::Prepare { handle, workspace_at: None, checkin: None, steps: vec![Step::Directory { at: at.clone() }] },
        &[],
    );
    let Reply::StepFailed { index: 0, why } = reply else { panic!("{reply:?}") };
    assert!(why.starts_with(&at) && !why.contains("not the last line"), "{why}");
    // Stopped.
    let at = world.workspace("sleepy");
    let id = node
        .send(Request::Prepare { handle, workspace_at: None, checkin: None, steps: vec![Step::Directory { at }] }, &[]);
    std::thread::sleep(Duration::from_millis(300));
    node.send(Request::Stop { handle, why: "enough".into() }, &[]);
    let replies: Vec<_> = (0..2).map(|_| frame::receive(node.link.as_fd()).unwrap().bytes).collect();
    let text = String::from_utf8(replies.concat()).unwrap();
    assert!(
        text.contains("stopping") && text.contains(&format!("\"id\":{id}")) && text.contains("step_failed"),
        "{text}"
    );
    let steps = vec![Step::Directory { at: world.workspace("good") }];
    assert_eq!(
        node.call(Request::Prepare { handle, workspace_at: None, checkin: None, steps }, &[]),
        Reply::Prepared { checkin: None }
    );
}

fn kept_logs() {
    let (world, mut node) = World::served();
    let secret = world.dir.join("secret");
    std::fs::write(&secret, "root's").unwrap();
    let script = format!("ln -s {} stderr.log; mkdir stdout.log", secret.display());
    let (handle, at) = world.run(&mut node, &hash('a'), &script);
    node.exited(handle);
    let log = frame::seal("log", b"text").unwrap();
    let reply = node.call(Request::WriteLogs { handle, stderr: true, stdout: false }, &[log.as_fd()]);
    assert_eq!(reply, Reply::Written);
    let written = Path::new(&at).join("stderr.log");
    assert!(std::fs::symlink_metadata(&written).unwrap().is_file());
    assert_eq!(std::fs::read_to_string(&written).unwrap(), "text");
    assert_eq!(std::fs::read_to_string(&secret).unwrap(), "root's");
    let reply = node.call(Request::WriteLogs { handle, stderr: false, stdout: true }, &[log.as_fd()]);
    assert_eq!(reply, Reply::KeptOut { why: "stdout.log is a directory".into() });
}

fn removal() {
    let (world, mut node) = World::served();
    let (handle, at) = world.prepared(&mut node, &hash('a'));
    // Something in it that the runs' account cannot remove.
    let hard = Path::new(&at).join("hard");
    std::fs::create_dir(&hard).unwrap();
    std::fs::write(hard.join("root's"), "").unwrap();
    let reply = node.call(Request::Remove { handle }, &[]);
    assert!(matches!(&reply, Reply::Left { what } if what.starts_with(&at)), "{reply:?}");
    std::fs::remove_dir_all(&hard).unwrap();
    assert_eq!(node.call(Request::Remove { handle }, &[]), Reply::Removed);
    assert!(!Path::new(&at).exists());
}

fn credential() {
    let (world, mut node) = World::served();
    let file = world.root.join("passwords/proj.json");
    std::fs::write(&file, r#"{"server":"http://127.0.0.1/","user":"u","password":"p","runs":{"b":"q"}}"#).unwrap();
    let (reply, fds) = node.call_with(Request::Credential { project: "proj".into(), user: None }, &[]);
    assert_eq!(reply, Reply::Descriptor);
    let text = String::from_utf8(frame::read_sealed(fds.first().unwrap(), 4096).unwrap()).unwrap();
    assert_eq!(text, r#"{"server":"http://127.0.0.1/","user":"u","password":"p"}"#);
    assert_eq!(node.call(Request::Credential { project: "../settings/x".into(), user: None }, &[]), Reply::Unset);
    std::fs::write(&file, r#"{"server":1}"#).unwrap();
    let reply = node.call(Request::Credential { project: "proj".into(), user: None }, &[]);
    assert!(matches!(reply, Reply::Impossible { .. }), "{reply:?}");
}

/// The launch is asked and the supervisor killed a little later each time, over the whole of a launch and beyond it.
fn killed_at_any_moment() {
    // How long a launch takes here, from asked to answered: the moments are spread over one and a half of it.
    let whole = {
        let (world, mut node) = World::served();
        let (handle, at) = world.prepared(&mut node, &hash('a'));
        let begun = Instant::now();
        let reply = node.launch(handle, &world.plan(&hash('a'), Some(&at), "exit 0"), b"");
        assert!(matches!(reply, Reply::Launched { .. }), "{reply:?}");
        begun.elapsed()
    };
    let mut launched = 0;
    for step in 0..24_u32 {
        let (mut world, mut node) = World::served();
        let run = hash('a');
        let (handle, at) = world.prepared(&mut node, &run);
        let plan = sealed_plan(&world.plan(&run, Some(&at), &format!("echo x >> ran; exec sleep 67.{step}")));
        let line = frame::seal("line", b"").unwrap();
        node.send(Request::Launch { handle }, &[plan.as_fd(), line.as_fd()]);
        std::thread::sleep(whole.mul_f64(f64::from(step) / 16.0));
        world.end_supervisor(Signal::KILL);
        let ran = || std::fs::read_to_string(Path::new(&at).join("ran")).unwrap_or_default();
        drop(node);
        world.start();
        let mut node = world.greeted();
        let Event::InCare { handle, .. } = text(node.event()) else { panic!("not in care") };
        let Event::Orphaned { phase, .. } = text(node.event()) else { panic!("no orphan") };
        // P3: by the time it is told, nothing of it lives.
        assert_eq!(processes(&format!("sleep\x0067.{step}")), Vec::<u32>::new());
        assert_eq!(node.call(Request::Release { handle }, &[]), Reply::Released);
        let reply = node.call(Request::Take { run: run.clone() }, &[]);
        // What may have run never runs again; what has no launch mark has not run.
        if phase == Phase::Launched {
            assert_eq!(reply, Reply::Was { launches: 1 }, "step {step}");
            launched += 1;
        } else {
            assert!(matches!(reply, Reply::Taken { .. }), "step {step}: {reply:?}");
            assert_eq!(ran(), "", "step {step}");
        }
        assert!(ran().is_empty() || ran() == "x\n", "step {step}");
    }
    // Control: the moments tried lie on both sides of the mark, or at least behind it.
    assert!(launched > 0);
}

fn memory() {
    let (world, mut node) = World::served();
    let (handle, at) = world.prepared(&mut node, &hash('a'));
    let script = "sleep 68.5 & head -c 400000000 /dev/zero | tail -c 300000000 | wc -c; exec sleep 68.5";
    let mut plan = world.plan(&hash('a'), Some(&at), script);
    plan.limits.memory_bytes = Some(64 << 20);
    let reply = node.launch(handle, &plan, b"");
    if let Reply::Refused { row: 6, field, .. } = reply {
        // A host without the controller refuses it by name (decisions C-33), and there is no more to see here.
        return assert_eq!(field, "limits.memory");
    }
    assert!(matches!(reply, Reply::Launched { .. }), "{reply:?}");
    let exited = node.exited(handle);
    assert_eq!(exited.ended_by, EndedBy::Limit("memory".into()), "{:#?}", world.logged());
    assert_eq!(processes("sleep\x0068.5"), Vec::<u32>::new());
    // Control: with room for it, the same ends by itself.
    let (handle, at) = world.prepared(&mut node, &hash('b'));
    let mut plan = world.plan(&hash('b'), Some(&at), "head -c 40000000 /dev/zero | tail -c 30000000 | wc -c");
    plan.limits.memory_bytes = Some(256 << 20);
    node.launch(handle, &plan, b"");
    let exited = node.exited(handle);
    assert_eq!((exited.ended_by, exited.stdout.as_str()), (EndedBy::Itself, "30000000\n"));
}

fn driven() {
    let (mut world, node) = World::served();
    until("it drives one", || world.driven().len() == 1);
    let first = world.driven();
    let pid = Pid::from_raw(i32::try_from(node.pid).unwrap()).unwrap();
    kill_process(pid, Signal::KILL).unwrap();
    let _second = world.greeted();
    until("the next drives one", || world.driven().len() == 1);
    assert_ne!(world.driven(), first);
    // Reaped too: not even a zombie of it.
    until("it is reaped", || !Path::new(&format!("/proc/{}", first.first().unwrap())).exists());
    world.end_supervisor(Signal::KILL);
    let left = world.driven();
    world.start();
    let _third = world.greeted();
    assert!(world.driven().iter().all(|pid| !left.contains(pid)), "{left:?}");
    assert_eq!(world.end_supervisor(Signal::TERM), Some(0));
    assert_eq!(world.driven(), Vec::<u32>::new());
}

fn release_waits() {
    let (world, mut node) = World::served();
    let (handle, at) = world.run(&mut node, &hash('a'), "mkdir -p a/b/c");
    node.exited(handle);
    let removal = node.send(Request::Remove { handle }, &[]);
    assert_eq!(node.send(Request::Release { handle }, &[]), removal + 1);
    let replies: Vec<_> = (0..2).map(|_| frame::receive(node.link.as_fd()).unwrap().bytes).collect();
    let text = String::from_utf8(replies.concat()).unwrap();
    assert!(text.find("removed").unwrap() < text.find("released").unwrap(), "{text}");
    assert!(!Path::new(&at).exists());
}

/// V2-2.10-21, C-90: what is opened for the node is a regular file of the run's own workspace, and nothing else.
fn opened() {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;
    let (world, mut node) = World::served();
    let run = hash('a');
    let script = "echo made > file; mkdir sub; echo below > sub/file; ln -s file link; ln -s /etc way; mkfifo pipe; \
                  echo secret > closed; chmod 0 closed; sleep 0.2";
    let (handle, at) = world.run(&mut node, &run, script);
    let exited = node.exited(handle);
    let read = |node: &mut Node, path: &str| -> Result<String, String> {
        match node.call_with(Request::Open { handle, path: path.to_owned() }, &[]) {
            (Reply::Descriptor, fds) => {
                let mut text = String::new();
                std::fs::File::from(fds.into_iter().next().unwrap()).read_to_string(&mut text).unwrap();
                Ok(text)
            }
            (Reply::NotOpened { why }, _) => Err(why),
            (other, _) => panic!("{other:?}"),
        }
    };
    assert_eq!(read(&mut node, "file").unwrap(), "made\n");
    assert_eq!(read(&mut node, "sub/file").unwrap(), "below\n");
    symlink(world.root.join("settings"), Path::new(&at).join("root")).unwrap();
    for path in [
        "link",
        "way/passwd",
        "root/x",
        "pipe",
        "sub",
        "closed",
        "none",
        "../..",
        "/etc/passwd",
        "a\0b",
        &"x/".repeat(2047),
    ] {
        read(&mut node, path).unwrap_err();
    }
    // Only of a run that was released, and only where workspaces are and nobody's in care.
    let settled = |node: &mut Node, run: &str, workspace: &str| {
        let (run, workspace) = (run.to_owned(), workspace.to_owned());
        node.call(Request::OpenSettled { run, workspace, path: "file".into() }, &[])
    };
    assert!(matches!(settled(&mut node, &run, &at), Reply::NotOpened { .. }), "it is in care");
    node.send(Request::Noted { handle, event: exited.event }, &[]);
    assert_eq!(node.call(Request::Release { handle }, &[]), Reply::Released);
    assert_eq!(settled(&mut node, &run, &at), Reply::Descriptor);
    assert!(matches!(settled(&mut node, &hash('b'), &at), Reply::NotOpened { .. }), "it was never launched");
    for workspace in ["/etc", &format!("{at}/../../settings"), &world.root.join("workspaces").display().to_string()] {
        assert!(matches!(settled(&mut node, &run, workspace), Reply::NotOpened { .. }), "{workspace}");
    }
    assert!(matches!(node.call(Request::Open { handle, path: "file".into() }, &[]), Reply::Impossible { .. }));
    // Another run's, while it is in care.
    let (other, taken) = world.prepared(&mut node, &hash('c'));
    assert!(matches!(settled(&mut node, &run, &taken), Reply::NotOpened { .. }));
    assert_eq!(node.call(Request::Release { handle: other }, &[]), Reply::Released);
}

//! What is no file in the place of a file of either process: nothing waits for it, nothing follows it, it is named with
//! what to do about it, and other runs go on.

use std::fs;
use std::io::Read as _;
use std::os::unix::fs::{FileTypeExt as _, chown, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use rustix::fs::{CWD, FileType, Mode, makedev, mkfifoat, mknodat};

use crate::host::{Host, SOON};
use crate::records::{count, ended, goes_on, waiting};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("P6, C-65 what is no file in the place of a run's state is named, and stops no run", states),
    ("P6 what is no file in the place of what the node writes is named, stops no run, and is not followed", writes),
    ("P6, C-101 what is no file in the place of a care record is named, and stops no run", records),
    ("C-101 what is no file in the place of care/launched or care/lock stops a supervisor's start with words", refused),
];

/// What may stand in a file's place: its word, and how it comes there. `beside` is a file that is not ours.
type Kind = (&'static str, fn(at: &Path, beside: &Path));

const KINDS: [Kind; 5] = [
    ("a directory", |at, _| fs::create_dir(at).unwrap()),
    ("a pipe", |at, _| mkfifoat(CWD, at, Mode::RUSR | Mode::WUSR).unwrap()),
    ("a socket", |at, _| mknodat(CWD, at, FileType::Socket, Mode::RUSR | Mode::WUSR, 0).unwrap()),
    ("a link", |at, beside| symlink(beside, at).unwrap()),
    // /dev/zero: read to its end it never ends.
    ("a device", |at, _| {
        mknodat(CWD, at, FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, makedev(1, 5)).unwrap();
    }),
];

const DIRECTORY: &str = "a directory";
const BESIDE: &str = "what no process of ours writes";

/// A file of the node's own account, so that only care keeps it from being written.
fn beside(host: &Host) -> PathBuf {
    let at = host.trial.layout().root().join("state/beside");
    fs::write(&at, BESIDE).unwrap();
    own(host, &at);
    at
}

fn own(host: &Host, at: &Path) {
    let account = host.trial.layout().accounts().node;
    std::os::unix::fs::lchown(at, Some(account.uid), Some(account.gid)).unwrap();
}

/// Puts it there in place of what is there.
fn put(host: &Host, (_, stand): Kind, at: &Path) {
    fs::remove_file(at).unwrap_or(());
    stand(at, &host.trial.layout().root().join("state/beside"));
    own(host, at);
}

/// Waits for the line that names the file and says what to do.
fn named(host: &mut Host, at: &Path, what: &str) {
    let name = at.file_name().unwrap().to_str().unwrap().to_owned();
    let says = [
        format!("{}: {what} is in its place; move it away", at.display()),
        format!("{what} is in the place of {name}; move it away"),
    ];
    host.trial
        .wait("the line that names what is in the way", SOON, |trial| {
            let log = fs::read_to_string(trial.layout().log()).unwrap();
            Ok(says.iter().any(|it| log.contains(it)).then_some(()))
        })
        .unwrap_or_else(|why| panic!("{what} in place of {name}: {why}"));
}

fn states() {
    let mut host = Host::new("");
    let beside = beside(&host);
    for kind in KINDS {
        for node_dies in [true, false] {
            let what = kind.0;
            let (asked, token) = waiting(&mut host);
            let state = host.state(&format!("{}.state", asked.run));
            if node_dies {
                host.stop_node_and(|| put(&host, kind, &state));
            } else {
                host.kill_supervisor();
                put(&host, kind, &state);
                host.start_supervisor();
            }
            host.let_go(&token);
            named(&mut host, &state, what);
            if what == DIRECTORY {
                goes_on(&mut host);
                assert_eq!(count(&host, &asked, "ended"), 0, "{what}: what is not durable is not posted");
                fs::remove_dir(&state).unwrap();
            }
            let outcome = if node_dies { "exited" } else { "lost" };
            assert_eq!(ended(&mut host, &asked)["outcome"], outcome, "{what}");
            assert_eq!((host.launches(&token), count(&host, &asked, "ended")), (1, 1), "{what}");
            assert!(host.alive(&token).is_empty(), "{what}");
        }
    }
    assert_eq!(fs::read_to_string(beside).unwrap(), BESIDE);
    goes_on(&mut host);
    host.stop().unwrap();
}

fn writes() {
    let mut host = Host::new("");
    let beside = beside(&host);
    let state = host.trial.layout().root().join("state");
    let lane = fs::read_dir(state.join("lanes")).unwrap().flatten().next().unwrap().path();
    for kind in KINDS {
        let what = kind.0;
        let (asked, token) = waiting(&mut host);
        let of_run: Vec<PathBuf> = ["state.new", "plan", "plan.new", "room", "log"]
            .iter()
            .map(|it| host.state(&format!("{}.{it}", asked.run)))
            .collect();
        // What is shown to people, and the node's own log.
        let shown = [lane.with_extension("json.new"), state.join("node.json.new"), state.join("daemon.log")];
        host.stop_node_and(|| of_run.iter().chain(&shown).for_each(|at| put(&host, kind, at)));
        host.let_go(&token);
        // It is read, or added to, and so not taken away without a word.
        for at in [&of_run[4], &shown[2]] {
            named(&mut host, at, what);
        }
        if what == DIRECTORY {
            // In the way of the run's end, one after the other; of nothing else.
            for at in [&of_run[2], &of_run[1], &of_run[0], &of_run[3]] {
                named(&mut host, at, what);
                goes_on(&mut host);
                fs::remove_dir(at).unwrap();
            }
        }
        assert_eq!(ended(&mut host, &asked)["outcome"], "exited", "{what}");
        host.trial.wait_for(&asked, "log", SOON).unwrap_or_else(|why| panic!("{what}: {why}"));
        assert_eq!((host.launches(&token), count(&host, &asked, "ended")), (1, 1), "{what}");
        for name in ["state", "plan"] {
            let about = fs::symlink_metadata(host.state(&format!("{}.{name}", asked.run))).unwrap();
            assert!(about.is_file(), "{what}: the {name} is no file");
        }
        for at in of_run.iter().chain(&shown) {
            let kind = fs::symlink_metadata(at).map(|it| it.file_type());
            match kind {
                Ok(it) if it.is_dir() => fs::remove_dir(at).unwrap(),
                Ok(it) if !it.is_file() || it.is_fifo() => fs::remove_file(at).unwrap(),
                Ok(_) | Err(_) => {}
            }
        }
    }
    assert_eq!(fs::read_to_string(beside).unwrap(), BESIDE, "a link was followed");
    goes_on(&mut host);
    host.stop().unwrap();
}

fn records() {
    let mut host = Host::new("");
    let beside = beside(&host);
    for kind in KINDS {
        let what = kind.0;
        let (asked, token) = waiting(&mut host);
        host.kill_supervisor();
        let (record, new) = (host.care(&asked.run), host.care(&format!("{}.new", asked.run)));
        put(&host, kind, &record);
        put(&host, kind, &new);
        for at in [&record, &new] {
            chown(at, Some(0), Some(0)).unwrap_or(());
        }
        host.start_supervisor();
        assert_eq!(ended(&mut host, &asked)["outcome"], "lost", "{what}");
        named(&mut host, &record, what);
        assert!(host.alive(&token).is_empty(), "{what}: P3: something of it lives");
        goes_on(&mut host);
        if what == DIRECTORY {
            named(&mut host, &new, what);
            fs::remove_dir(&new).unwrap();
            fs::remove_dir(&record).unwrap();
        }
        let line = format!("{} 1", asked.run);
        host.trial
            .wait("its release", SOON, |_| {
                let launched = fs::read_to_string(record.with_file_name("launched")).unwrap();
                Ok((launched.lines().any(|it| it == line) && !record.exists()).then_some(()))
            })
            .unwrap_or_else(|why| panic!("{what}: {why}"));
        assert!(fs::symlink_metadata(&new).is_err(), "{what}: {} stays", new.display());
        assert_eq!((host.launches(&token), count(&host, &asked, "ended")), (1, 1), "{what}");
        host.let_go(&token);
    }
    assert_eq!(fs::read_to_string(beside).unwrap(), BESIDE);
    host.stop().unwrap();
}

fn refused() {
    let mut host = Host::new("");
    let beside = beside(&host);
    let (asked, token) = waiting(&mut host);
    host.kill_supervisor();
    for name in ["launched", "lock"] {
        let at = host.care(name);
        let kept = at.with_extension("kept");
        fs::rename(&at, &kept).unwrap();
        for kind in KINDS {
            put(&host, kind, &at);
            let said = start(&host);
            assert!(
                said.contains(&format!("{}: {} is in the place of {name}; move it away", at.display(), kind.0)),
                "{said}"
            );
            if kind.0 == DIRECTORY { fs::remove_dir(&at).unwrap() } else { fs::remove_file(&at).unwrap() }
        }
        fs::rename(&kept, &at).unwrap();
    }
    // Nothing was done meanwhile, and with the files back it goes on.
    assert!(host.care(&asked.run).exists());
    host.start_supervisor();
    assert_eq!(ended(&mut host, &asked)["outcome"], "lost");
    assert_eq!(host.launches(&token), 1);
    assert_eq!(fs::read_to_string(beside).unwrap(), BESIDE);
    host.stop().unwrap();
}

/// What a supervisor says that does not start. One that neither starts nor ends is ended, and found.
fn start(host: &Host) -> String {
    let program = host.trial.layout().dir.join("opt/current/ocx-supervisor");
    let mut command = Command::new(program);
    command.args(["serve", "--root"]).arg(host.trial.layout().root()).stdout(Stdio::null()).stderr(Stdio::piped());
    let mut supervisor = command.spawn().unwrap();
    let deadline = Instant::now() + SOON;
    while supervisor.try_wait().unwrap().is_none() {
        if Instant::now() >= deadline {
            supervisor.kill().unwrap();
            supervisor.wait().unwrap();
            panic!("it neither started nor ended");
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    assert!(!supervisor.wait().unwrap().success());
    let mut said = String::new();
    supervisor.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    said
}

//! Whole trials: what is shown, what is kept, and that an end in the middle leaves nothing.

use std::io::{BufRead as _, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

use super::{Scratch, nothing_left, ocx, ocx_try, stderr, stdout};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_trial_shows_each_event_and_the_thread_and_leaves_nothing", shown),
    ("a_run_that_fails_exits_1_and_says_how_it_ended", failing),
    ("a_run_that_prints_nothing_is_not_waited_for", silent),
    ("a_kept_trial_takes_another_run_and_is_stopped", kept),
    ("ctrl_c_leaves_nothing_whenever_it_comes", interrupted),
];

fn shown() {
    let scratch = Scratch::new("shown");
    let dir = scratch.path().join("try");
    let output = ocx_try(&["--dir", dir.to_str().unwrap()]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    let text = stdout(&output);
    let order = [
        "server up at http://127.0.0.1:",
        "node ready",
        "run posted by setup",
        "started on the server",
        "process running",
        "ended on the server: exited 0",
        "kept log on the server",
        "── run from setup",
        "── started from lab-1",
        "── ended from lab-1",
        "── log from lab-1",
        "uid=1000(runner) gid=1000(runner)",
        "everything is ended",
    ];
    let mut rest = text.as_str();
    for word in order {
        rest = rest.split_once(word).unwrap_or_else(|| panic!("no {word:?}, in this place, in {text}")).1;
    }
    assert!(!text.contains('\x1b'), "colours are for terminals");
    nothing_left(&dir);
}

fn failing() {
    let output = ocx_try(&["--json", "--", "sh", "-c", "echo seen; echo bad >&2; exit 3"]);
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    let is = |pointer: &str| answer.pointer(pointer).cloned().unwrap_or_default();
    assert_eq!(is("/stopped"), "the run ended exited 3");
    assert_eq!(is("/result/outcome"), "exited");
    assert_eq!(is("/result/exit"), 3);
    assert_eq!(is("/result/stdout"), "seen\n");
    assert_eq!(is("/result/stderr"), "bad\n");
    assert_eq!(is("/result/thread"), serde_json::json!(["run", "started", "ended", "log"]));
}

fn silent() {
    let output = ocx_try(&["--json", "--", "true"]);
    assert_eq!(output.status.code(), Some(1));
    let answer: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(answer.pointer("/result/exit"), Some(&Value::from(0)));
    assert!(answer.pointer("/stopped").and_then(Value::as_str).unwrap().contains("printed nothing"));
}

fn kept() {
    let scratch = Scratch::new("kept");
    let dir = scratch.path().join("try");
    let text = dir.to_str().unwrap();
    let output = ocx_try(&["--keep", "--dir", text]);
    assert_eq!(output.status.code(), Some(0), "{}{}", stdout(&output), stderr(&output));
    for word in ["Look:     http://127.0.0.1:", "Attach:", "try --again", "try --stop"] {
        assert!(stdout(&output).contains(word), "{word}");
    }
    // The commands as they are printed; only the run's own is filled in.
    let command = |name: &str| {
        let line = stdout(&output).lines().find_map(|l| l.trim().strip_prefix(name).map(str::to_owned)).unwrap();
        line.trim().replace("COMMAND", "echo again")
    };
    let again = Command::new("sh").args(["-c", &command("Another:")]).output().unwrap();
    assert_eq!(again.status.code(), Some(0), "{}", stderr(&again));
    assert!(stdout(&again).contains("\nagain\n"));
    // A second trial in the same place would remove the first.
    assert_eq!(ocx_try(&["--dir", text]).status.code(), Some(1));
    assert!(dir.join("root").exists());
    let stop = Command::new("sh").args(["-c", &command("Stop:")]).output().unwrap();
    assert_eq!(stop.status.code(), Some(0), "{}", stderr(&stop));
    nothing_left(&dir);
}

fn interrupted() {
    for event in ["server up", "node ready", "run posted", "process running"] {
        let scratch = Scratch::new("interrupted");
        let dir = scratch.path().join("try");
        let mut trial = Begun::new(&dir, event);
        let pid = Pid::from_raw(i32::try_from(trial.child.id()).unwrap()).unwrap();
        kill_process(pid, Signal::INT).unwrap();
        let mut rest = String::new();
        std::io::Read::read_to_string(&mut trial.stdout, &mut rest).unwrap();
        let status = trial.child.wait().unwrap();
        assert_eq!(status.code(), Some(1), "at {event}: {status}: {rest}");
        nothing_left(&dir);
    }
}

/// A trial of a long run that has come as far as an event.
struct Begun {
    child: Child,
    stdout: BufReader<std::process::ChildStdout>,
}

impl Begun {
    fn new(dir: &PathBuf, event: &str) -> Self {
        let mut child = Command::new(ocx())
            .args(["try", "--dir"])
            .arg(dir)
            .args(["--", "sleep", "50"])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdout = BufReader::new(child.stdout.take().unwrap());
        let mut line = String::new();
        let mut said = String::new();
        while !line.contains(event) {
            line.clear();
            if stdout.read_line(&mut line).unwrap() == 0 {
                let mut why = String::new();
                std::io::Read::read_to_string(&mut child.stderr.take().unwrap(), &mut why).unwrap();
                panic!("it ended before {event}: {}\n{said}{why}", child.wait().unwrap());
            }
            said.push_str(&line);
        }
        Self { child, stdout }
    }
}

//! `ocx try` as a person meets it: what it prints, how it exits, what it leaves behind.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that finds what it did not expect ends there")]

mod luck;
mod whole;

#[path = "../support/mod.rs"]
mod support;

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Output};

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // A trial is a whole system; one at a time leaves a core to the other test programs.
    arguments.test_threads = arguments.test_threads.or(Some(1));
    let missing = support::missing();
    let trials = [luck::TESTS, whole::TESTS].concat().into_iter().map(|(name, test)| {
        let name = missing.map_or_else(|| name.to_owned(), |why| format!("{name} (skipped: {why})"));
        Trial::test(name, move || {
            test();
            Ok(())
        })
        .with_ignored_flag(missing.is_some())
    });
    libtest_mimic::run(&arguments, trials.collect()).exit_code()
}

/// The program under test.
fn ocx() -> PathBuf {
    support::programs().join("ocx")
}

/// `ocx try` with these words, to its end.
fn ocx_try(words: &[&str]) -> Output {
    Command::new(ocx()).arg("try").args(words).output().unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8_lossy(&output.stderr).into_owned()
}

fn stdout(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// It stopped, saying all of this, and printed no event: nothing was made.
fn stopped_before_anything(output: &Output, words: &[&str]) {
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    assert!(output.stdout.is_empty(), "{output:?}");
    for word in words {
        assert!(stderr(output).contains(word), "no {word:?} in {}", stderr(output));
    }
}

/// A directory of this test's own, removed at its end.
struct Scratch(PathBuf);

impl Scratch {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ocx-trial-{name}-{}", std::process::id()));
        std::fs::create_dir(&path).unwrap();
        Self(path)
    }

    fn path(&self) -> &Path {
        &self.0
    }

    fn text(&self) -> &str {
        self.0.to_str().unwrap()
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.0));
    }
}

/// Nothing of the trial in this directory lives: no process that names it, no directory, no cgroup of its `ROOT`.
fn nothing_left(dir: &Path) {
    assert!(!dir.join("root").exists(), "{} is left", dir.display());
    let name = supervisor::wire::accounts::cgroup_name(&dir.join("root"));
    let found = Command::new("find").args(["/sys/fs/cgroup", "-name", &name]).output().unwrap();
    assert_eq!(stdout(&found), "", "cgroups are left");
    let text = dir.to_str().unwrap();
    for entry in std::fs::read_dir("/proc").unwrap().flatten() {
        let command = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let command = String::from_utf8_lossy(&command).replace('\0', " ");
        let own = entry.file_name().to_str().is_some_and(|pid| pid == std::process::id().to_string());
        assert!(own || !command.contains(text), "a process is left: {command}");
    }
}

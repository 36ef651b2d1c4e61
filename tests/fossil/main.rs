//! OCX's Fossil side against a real `fossil server` on loopback, and against servers that misbehave.
//!
//! Each test has a folder, a repository and a server of its own, and ends only what it started. Copied under a server's
//! `--extroot`, this program is the extension itself, as `ocx` is.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::wildcard_enum_match_arm,
    reason = "a test that finds what it did not expect ends there"
)]

mod chat;
mod clones;
mod extension;
mod fake;
mod lab;
mod pages;
mod receipts;
mod store;
mod unsure;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};
use ocx::fossil::Program;

fn main() -> ExitCode {
    if ocx::server::cgi::is_wanted() {
        return ocx::server::cgi::main();
    }
    if let Some(file) = std::env::var_os(store::CRASH) {
        store::crash_while_writing(file.as_ref());
    }
    let version = version();
    let tests: Vec<(&str, fn())> =
        [pages::TESTS, unsure::TESTS, receipts::TESTS, chat::TESTS, clones::TESTS, store::TESTS, extension::TESTS]
            .concat();
    let mut trials: Vec<Trial> = tests
        .into_iter()
        .map(|(name, test)| trial(name, test, version.is_none().then(|| "no fossil on PATH".to_owned())))
        .collect();
    for (name, test) in pages::TESTS_FROM_2_23 {
        let skipped = match version {
            None => Some("no fossil on PATH".to_owned()),
            Some(version) if version < (2, 23) => {
                Some(format!("fossil {}.{} has no closed threads", version.0, version.1))
            }
            Some(_) => None,
        };
        trials.push(trial(name, *test, skipped));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

/// A test that ends well or panics; with a reason to skip it, that reason in its name, and counted as ignored.
fn trial(name: &str, test: fn(), skipped: Option<String>) -> Trial {
    let ignored = skipped.is_some();
    let name = skipped.map_or_else(|| name.to_owned(), |why| format!("{name} (skipped: {why})"));
    Trial::test(name, move || {
        test();
        Ok(())
    })
    .with_ignored_flag(ignored)
}

/// The version of the program on PATH.
fn version() -> Option<(u32, u32)> {
    let out = std::process::Command::new(Program::find()?).arg("version").output().ok()?;
    let said = String::from_utf8(out.stdout).ok()?;
    let number = said.split("version ").nth(1)?.split_whitespace().next()?;
    let mut parts = number.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

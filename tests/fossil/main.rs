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

mod approvals;
mod carried;
mod chat;
mod clones;
mod collect;
mod extension;
mod fake;
mod lab;
mod pages;
mod receipts;
mod store;
mod unsure;

#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    if ocx::server::cgi::is_wanted() {
        return ocx::server::cgi::main();
    }
    if let Some(file) = std::env::var_os(store::CRASH) {
        store::crash_while_writing(file.as_ref());
    }
    let version = support::fossil_version();
    let tests: Vec<(&str, fn())> = [
        pages::TESTS,
        unsure::TESTS,
        receipts::TESTS,
        chat::TESTS,
        clones::TESTS,
        store::TESTS,
        extension::TESTS,
        collect::TESTS,
        approvals::TESTS,
        carried::TESTS,
    ]
    .concat();
    let mut trials: Vec<Trial> = tests
        .into_iter()
        .map(|(name, test)| support::trial(name, test, version.is_none().then(|| "no fossil on PATH".to_owned())))
        .collect();
    for (name, test) in pages::TESTS_FROM_2_23 {
        let skipped = match version {
            None => Some("no fossil on PATH".to_owned()),
            Some(version) if version < (2, 23) => {
                Some(format!("fossil {}.{} has no closed threads", version.0, version.1))
            }
            Some(_) => None,
        };
        trials.push(support::trial(name, *test, skipped));
    }
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

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
    let found = Program::find().is_some();
    let tests: Vec<(&str, fn())> =
        [pages::TESTS, unsure::TESTS, receipts::TESTS, chat::TESTS, clones::TESTS, store::TESTS, extension::TESTS]
            .concat();
    let trials = tests
        .into_iter()
        .map(|(name, test)| {
            let name = if found { name.to_owned() } else { format!("{name} (skipped: no fossil on PATH)") };
            Trial::test(name, move || {
                test();
                Ok(())
            })
            .with_ignored_flag(!found)
        })
        .collect();
    libtest_mimic::run(&Arguments::from_args(), trials).exit_code()
}

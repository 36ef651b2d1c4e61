//! A server that is troubled: down, locked, slow, answering half, with another's page, or not at all. Each post of a run
//! is stored once, in the order of decisions C-04, whatever the trouble; what waits says so in `ocx status`.
//!
//! A proxy stands between the real node and the real server. The programs are built with the feature `failpoints`, which
//! lets a test make the node's waits shorter; nothing is stopped at a point here.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that finds what it did not expect ends there"
)]

mod closed;
mod controls;
mod down;
mod lab;
mod plans;
mod proxy;
mod spoiled;

#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

/// Systems at once: most of a test is waiting.
const SYSTEMS: usize = 6;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(support::at_once(SYSTEMS)));
    let missing = support::missing().map(String::from);
    let mut trials: Vec<Trial> = Vec::new();
    for (name, test) in [spoiled::TESTS, down::TESTS, closed::TESTS, plans::TESTS, controls::TESTS].concat() {
        trials.push(support::trial(name, test, missing.clone()));
    }
    let old = support::fossil_version().filter(|it| *it < closed::SINCE);
    let old = old.map(|(major, minor)| format!("fossil {major}.{minor} has no closed threads"));
    for (name, test) in closed::TESTS_FROM_2_23 {
        trials.push(support::trial(name, *test, missing.clone().or(old.clone())));
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

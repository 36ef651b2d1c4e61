//! The promises of `sandbox/SECURITY.md`, kept by real runs of `ocx-supervisor once` as root. What is denied inside is
//! shown to work without the protection, in the same test.
#![expect(clippy::print_stderr, reason = "why tests are skipped is said")]

mod attacks;
mod ending;
mod host;
mod limits;
mod process;
mod run;
mod seen;

use libtest_mimic::{Arguments, Failed, Trial};

/// One test: its name and what it does.
type Test = (&'static str, fn() -> Result<(), Failed>);

fn main() {
    let arguments = Arguments::from_args();
    let lacks = run::lacks();
    if let Some(why) = lacks {
        eprintln!("confinement: all tests skipped: {why}");
    }
    let all = [seen::TESTS, process::TESTS, limits::TESTS, ending::TESTS, host::TESTS, attacks::TESTS];
    let trials =
        all.into_iter().flatten().map(|(name, test)| Trial::test(*name, test).with_ignored_flag(lacks.is_some()));
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

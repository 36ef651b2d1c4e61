//! The promises of `sandbox/SECURITY.md`, kept by real runs of `ocx-supervisor once` as root. What is denied inside is
//! shown to work without the protection, in the same test.
#![expect(clippy::print_stderr, reason = "why tests are skipped is said")]
#![allow(
    dead_code,
    unused_imports,
    unfulfilled_lint_expectations,
    reason = "the launcher's modules are the program's too: it uses the rest of them, and runs their own tests"
)]

// What `once` has no form for (workspaces, steps, the protocol process) is asked of the launcher itself.
#[path = "../../src/capabilities.rs"]
mod capabilities;
#[path = "../../src/cgroup.rs"]
mod cgroup;
#[path = "../../src/host.rs"]
mod host;
#[path = "../../src/launch.rs"]
mod launch;
#[path = "../../src/own_files.rs"]
mod own_files;
#[path = "../../src/policy.rs"]
mod policy;
#[path = "../../src/sys.rs"]
mod sys;

#[path = "../../../tests/support/random.rs"]
mod random;

mod ending;
mod explain;
mod launches;
mod limits;
mod process;
mod properties;
mod refusals;
mod run;
mod seen;
mod verify;

use libtest_mimic::{Arguments, Failed, Trial};

/// One test: its name and what it does.
type Test = (&'static str, fn() -> Result<(), Failed>);

fn main() {
    if let Some(done) = verify::asked() {
        if let Err(why) = done {
            eprintln!("{why:?}");
            std::process::exit(1);
        }
        return;
    }
    let arguments = Arguments::from_args();
    let lacks = run::lacks();
    if let Some(why) = lacks {
        eprintln!("confinement: all tests skipped: {why}");
    }
    let all = [
        seen::TESTS,
        process::TESTS,
        limits::TESTS,
        ending::TESTS,
        refusals::TESTS,
        launches::TESTS,
        verify::TESTS,
        explain::TESTS,
        properties::TESTS,
    ];
    let trials =
        all.into_iter().flatten().map(|(name, test)| Trial::test(*name, test).with_ignored_flag(lacks.is_some()));
    libtest_mimic::run(&arguments, trials.collect()).exit();
}

//! The whole system: a real Fossil server, the real supervisor and node, real runs. Each test has a system of its own.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that finds what it did not expect ends there"
)]

mod bombs;
mod breaking;
mod clock;
mod crashes;
mod ending;
mod lanes;
mod refusing;
mod retention;
mod running;
mod status;
mod system;

#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    // Each system has a server, a supervisor and fsyncs of its own: two at once already use two cores.
    arguments.test_threads = arguments.test_threads.or(Some(2));
    let missing = support::missing();
    let tests: Vec<(&str, fn())> = [
        running::TESTS,
        ending::TESTS,
        refusing::TESTS,
        crashes::TESTS,
        breaking::TESTS,
        bombs::TESTS,
        status::TESTS,
        lanes::TESTS,
        retention::TESTS,
    ]
    .concat();
    let (name, test) = refusing::WITHOUT_NAMESPACES;
    // It changes a setting of the whole host.
    let off = std::fs::read_to_string("/proc/sys/user/max_user_namespaces").is_ok_and(|it| it.trim() == "0");
    let why = if off { "" } else { " (skipped: needs a host without, as `cargo vm test --variant no-userns` has)" };
    let other = Trial::test(format!("{name}{why}"), move || {
        test();
        Ok(())
    });
    let other = other.with_ignored_flag(!off || missing.is_some());
    let (name, test) = clock::SET;
    // It sets the clock of the whole host.
    let ours = std::env::var_os(clock::OURS).is_some();
    let why = if ours { "" } else { " (skipped: needs a guest, as `cargo vm test x86_64 node/C-119` has)" };
    let clock = Trial::test(format!("{name}{why}"), move || {
        test();
        Ok(())
    });
    let clock = clock.with_ignored_flag(!ours || missing.is_some());
    let (name, test) = status::WITH_FREEZER;
    let freezer = status::freezer().is_some();
    let why = if freezer { "" } else { " (skipped: needs the freezer of cgroup v1; of v2, KILL passes)" };
    let frozen = Trial::test(format!("{name}{why}"), move || {
        test();
        Ok(())
    });
    let frozen = frozen.with_ignored_flag(!freezer || missing.is_some());
    let trials = tests
        .into_iter()
        .map(|(name, test)| {
            let name = missing.map_or_else(|| name.to_owned(), |why| format!("{name} (skipped: {why})"));
            Trial::test(name, move || {
                test();
                Ok(())
            })
            .with_ignored_flag(missing.is_some())
        })
        .chain([other, clock, frozen])
        .collect();
    libtest_mimic::run(&arguments, trials).exit_code()
}

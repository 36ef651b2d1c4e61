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
mod publishing;
mod refusing;
mod retention;
mod running;
mod status;
mod steps;
mod system;

#[path = "../support/mod.rs"]
mod support;

use std::process::ExitCode;

use libtest_mimic::Arguments;

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
        steps::TESTS,
        lanes::TESTS,
        retention::TESTS,
        publishing::TESTS,
    ]
    .concat();
    let missing = missing.map(str::to_owned);
    let mut trials: Vec<_> =
        tests.into_iter().map(|(name, test)| support::trial(name, test, missing.clone())).collect();
    let mut unless = |(name, test): (&str, fn()), there: bool, why: &str| {
        trials.push(support::trial(name, test, missing.clone().or_else(|| (!there).then(|| why.to_owned()))));
    };
    // It changes a setting of the whole host.
    let off = std::fs::read_to_string("/proc/sys/user/max_user_namespaces").is_ok_and(|it| it.trim() == "0");
    unless(refusing::WITHOUT_NAMESPACES, off, "needs a host without, as `cargo vm test --variant no-userns` has");
    // It sets the clock of the whole host.
    let ours = std::env::var_os(clock::OURS).is_some();
    unless(clock::SET, ours, "needs a guest, as `cargo vm test x86_64 node/C-119` has");
    let freezer = status::freezer().is_some();
    unless(status::WITH_FREEZER, freezer, "needs the freezer of cgroup v1; of v2, KILL passes");
    libtest_mimic::run(&arguments, trials).exit_code()
}

//! Either process may die, and so may the host, at every effect of a run's life; then the properties of the design are
//! looked at on a real server and on the disk.
//!
//! The cases are made from the tables of effects, not from a list. Each effect's every moment is a failpoint, and each
//! failpoint is met by five deaths: the node, the supervisor, both, and the host with two kinds of disk. The short form
//! (no variable set) takes of each failpoint one death, the next in turn; `OCX_CRASH=long` takes all five.
//!
//! The programs are built with the feature `failpoints`, in the development profile: what is served has none.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test that finds what it did not expect ends there"
)]

mod case;
mod cases;
mod controls;
mod frozen;
mod full;
mod host;
mod odd_files;
mod records;
mod storm;

#[path = "../support/mod.rs"]
mod support;

use std::path::Path;
use std::process::ExitCode;
use std::sync::{Arc, Mutex};

use libtest_mimic::{Arguments, Trial};

use case::Death;
use host::Host;

/// Systems at once: most of a case is waiting for the server.
const SYSTEMS: usize = 6;

/// Hosts that wait for their next case.
type Pool = Arc<Mutex<Vec<Host>>>;

fn main() -> ExitCode {
    let mut arguments = Arguments::from_args();
    arguments.test_threads = arguments.test_threads.or(Some(support::at_once(SYSTEMS)));
    let long = is_long();
    let missing = support::missing();
    let pool = Pool::default();
    let mut trials = Vec::new();
    for (turn, (point, reached)) in cases::all().into_iter().enumerate() {
        let scenario = match reached {
            Ok(scenario) => scenario,
            Err(why) => {
                trials.push(Trial::test(format!("{point} (skipped: {why})"), || Ok(())).with_ignored_flag(true));
                continue;
            }
        };
        let deaths = if long { Death::ALL.to_vec() } else { vec![Death::ALL[turn % Death::ALL.len()]] };
        for death in deaths {
            let name = format!("{point}: {}", death.word());
            let name = missing.map_or_else(|| name.clone(), |why| format!("{name} (skipped: {why})"));
            let pool = pool.clone();
            let trial = Trial::test(name, move || {
                let waiting = pool.lock().unwrap().pop();
                let mut host = waiting.unwrap_or_else(|| Host::new(""));
                case::run(&mut host, point, scenario, death)?;
                // One that failed is taken away, and the next case has another.
                if host.is_old() {
                    host.stop()?;
                } else {
                    pool.lock().unwrap().push(host);
                }
                Ok(())
            });
            trials.push(trial.with_ignored_flag(missing.is_some()));
        }
    }
    let others: Vec<(&str, fn())> =
        [controls::TESTS, records::TESTS, odd_files::TESTS, full::TESTS, storm::TESTS].concat();
    let missing = missing.map(str::to_owned);
    for (name, test) in others {
        trials.push(support::trial(name, test, missing.clone()));
    }
    let (name, test) = records::USED_AGAIN;
    let fixed = !Path::new(records::LAST_PID).exists();
    let why = missing.or_else(|| fixed.then(|| "the kernel lets no number be chosen".to_owned()));
    trials.push(support::trial(name, test, why));
    let conclusion = libtest_mimic::run(&arguments, trials);
    let mut left = Vec::new();
    for host in pool.lock().unwrap().drain(..) {
        left.extend(host.stop().err());
    }
    assert!(left.is_empty(), "{}", left.join("\n"));
    conclusion.exit_code()
}

/// Whether every death is wanted at every failpoint, and a long storm.
fn is_long() -> bool {
    std::env::var_os("OCX_CRASH").is_some_and(|it| it == "long")
}

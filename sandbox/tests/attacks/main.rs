//! Attacks on the promises of `sandbox/SECURITY.md`: what a hostile program tries from inside real runs, one row each,
//! and for each its control, the same attack where the protection is not.
//!
//! The attacker is this program itself, executed again inside the sandbox. No control runs with any capability over the
//! host: most run as an ordinary account in namespaces of its own (`loose`), and both refuse to run otherwise.
#![expect(
    clippy::print_stderr,
    clippy::print_stdout,
    reason = "what is skipped or has no control is said; attacks tell what came of them"
)]
#![allow(
    dead_code,
    unused_imports,
    unfulfilled_lint_expectations,
    reason = "the launcher's modules are the program's too: it uses the rest of them, and runs their own tests"
)]

// What `once` has no form for (a filter that lets all through, a workspace) is asked of the launcher itself.
#[path = "../../../supervisor/src/capabilities.rs"]
mod capabilities;
#[path = "../../../supervisor/src/cgroup.rs"]
mod cgroup;
#[path = "../../../supervisor/src/host.rs"]
mod host;
#[path = "../../../supervisor/src/launch.rs"]
mod launch;
#[path = "../../../supervisor/src/own_files.rs"]
mod own_files;
#[path = "../../../supervisor/src/policy.rs"]
mod policy;
#[path = "../../../supervisor/tests/confinement/run.rs"]
mod run;
// Named `sys` by the launcher's modules; the attacks' own is `raw`.
#[path = "../../../supervisor/src/sys.rs"]
mod sys;

#[path = "sys/raw.rs"]
mod raw;

mod bombs;
mod honest;
mod identity;
mod inherited;
mod inside;
mod kernel;
mod loose;
mod network;
mod outside;
mod proc;
mod races;
mod runs;
mod table;
mod tree;

use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

use table::{ATTACKS, How};

fn main() -> ExitCode {
    let mut words = std::env::args().skip(1);
    let rest = |words: std::iter::Skip<std::env::Args>| words.collect::<Vec<_>>();
    match words.next().as_deref() {
        Some("attack") => inside::main(&rest(words)),
        Some("control") => loose::main(&rest(words)),
        Some("terminal") => outside::in_a_terminal(&rest(words)),
        _ => tests(),
    }
}

fn tests() -> ExitCode {
    let arguments = Arguments::from_args();
    let lacks = run::lacks();
    if let Some(why) = lacks {
        eprintln!("attacks: all tests skipped: {why}");
    }
    let _home = match lacks.is_none().then(outside::Home::new).transpose() {
        Ok(home) => home,
        Err(why) => {
            eprintln!("attacks: the attacker's own folder: {why:?}");
            return ExitCode::FAILURE;
        }
    };
    let mut trials = Vec::new();
    for attack in ATTACKS.iter().copied().flatten() {
        trials.push(Trial::test(attack.name, || table::tried(attack)).with_ignored_flag(lacks.is_some()));
        // Counted as skipped, so that nobody takes the attack for one that was shown to work.
        if let How::Inside { control: table::Control::None(why), .. } = &attack.how {
            eprintln!("attacks: {} has no control: {why}", attack.name);
            trials.push(Trial::test(format!("{} (its control)", attack.name), || Ok(())).with_ignored_flag(true));
        }
    }
    libtest_mimic::run(&arguments, trials).exit_code()
}

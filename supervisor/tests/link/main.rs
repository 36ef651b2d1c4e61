//! The boundary, from the other side: a real supervisor as root, and a protocol process that says whatever a test likes.
//!
//! This program is three: the tests; under the name `ocx` the protocol process, which hands its end of the link to the
//! test and waits; and the step tool, in the few lines a test needs.
#![expect(clippy::unwrap_used, clippy::panic, reason = "a panic is how a test fails")]

mod attempts;
mod audit;
mod ending;
mod frames;
mod held;
mod hostile;
mod lies;
mod life;
mod node;
mod siege;
mod start;
mod states;
mod steps;
mod sys;
mod unconfined;
mod world;

// The tables themselves: what a hostile process does is made from them.
#[allow(dead_code, unused_imports, reason = "the program's own modules: it uses the rest of them")]
#[path = "../../src/deadlines.rs"]
mod deadlines;
#[allow(dead_code, unused_imports, reason = "as above")]
#[path = "../../src/requests.rs"]
mod requests;
#[allow(dead_code, unused_imports, reason = "as above")]
#[path = "../../src/run.rs"]
mod run;

use std::path::Path;
use std::process::ExitCode;

use libtest_mimic::{Arguments, Trial};

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    let words: Vec<&str> = words.iter().map(String::as_str).collect();
    match words.as_slice() {
        [program, "node", "--root", root] if program.ends_with("/ocx") => {
            let root = Path::new(root);
            return hostile::main(root).unwrap_or_else(|| node::main(root, attempts::make_all));
        }
        [program, "step", words @ ..] if program.ends_with("/ocx") => return node::step(words),
        [program, "attempts", root] if program.ends_with("/ocx") => return attempts::main(Path::new(root)),
        [program, "without-landlock", words @ ..] if program.ends_with("/ocx") => {
            say(&format!("without Landlock: {}", attempts::without_landlock(words)));
            return ExitCode::FAILURE;
        }
        [program, "idle", _] if program.ends_with("/ocx") => return node::idle(),
        _ => {}
    }
    let arguments = Arguments::from_args();
    let root = rustix::process::geteuid().is_root();
    if !root {
        say("these tests start a real supervisor: run them as root (counted as ignored)");
    }
    let v1 = unconfined::has_v1();
    if root && !v1 {
        say(
            "no cgroup v1 hierarchies of freezer and pids here: tests of a host that has nothing else are counted as ignored",
        );
    }
    let mut trials = [
        start::tests(),
        life::tests(),
        states::tests(),
        steps::tests(),
        frames::tests(),
        held::tests(),
        lies::tests(),
        siege::tests(),
        ending::tests(),
        unconfined::tests(),
        audit::tests(),
    ]
    .concat_tests(root);
    trials.extend([unconfined::v1_tests(), ending::freezer_tests()].concat_tests(root && v1));
    libtest_mimic::run(&arguments, trials).exit_code()
}

/// A test, by name.
pub(crate) type Test = (&'static str, fn());

trait ConcatTests {
    fn concat_tests(self, root: bool) -> Vec<Trial>;
}

impl<const N: usize> ConcatTests for [Vec<Test>; N] {
    fn concat_tests(self, root: bool) -> Vec<Trial> {
        let trial = |(name, test): Test| {
            Trial::test(name, move || {
                test();
                Ok(())
            })
            .with_ignored_flag(!root)
        };
        self.into_iter().flatten().map(trial).collect()
    }
}

#[expect(clippy::print_stderr, reason = "a skip says why")]
fn say(what: &str) {
    eprintln!("{what}");
}

//! `cargo vm ci`: every check and test of the project, in order, and the counts alone on the last line.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::process::{ExitCode, Stdio};
use std::time::Instant;

use crate::guests::{self, Asked};
use crate::leftovers::Seen;
use crate::programs::{self, Programs};
use crate::recipe::Recipe;
use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{checks, packages};

/// What every part together may take, in seconds, on two processors with nothing built and nothing cached. The parts'
/// own budgets are said beside what they took; a part over its budget is told and fails nothing: machines are noisy.
const BUDGET: u64 = 3600;
/// What the parts beside the guests may take of it, in seconds.
const CHECKS: u64 = 120;
const BUILD: u64 = 260;
const TESTS: u64 = 1030;
const TRIAL: u64 = 20;
const IMAGE: u64 = 70;
/// The architectures of guests, each with what building for it may take.
const ARCHITECTURES: [(&str, u64); 2] = [("x86_64", 190), ("aarch64", 620)];

/// How much is run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    /// What CI runs: of each guest what the host's own tests cannot show.
    Short,
    /// Every program in the bare guest of each architecture, and in the others every one that they are for.
    Long,
    /// No guest at all.
    Here,
}

impl Form {
    fn read(args: &[OsString]) -> Result<Self, String> {
        match args.iter().map(|it| it.to_str()).collect::<Vec<_>>().as_slice() {
            [] => Ok(Self::Short),
            [Some("--long")] => Ok(Self::Long),
            [Some("--here")] => Ok(Self::Here),
            _ => Err(format!("ci takes --long or --here or nothing, and was given {args:?}")),
        }
    }
}

/// One guest of CI.
struct InGuest {
    arch: &'static str,
    whole: bool,
    variant: Option<&'static str>,
    /// The programs of the short form; none for those the variant names. The long form runs all.
    short: &'static [&'static str],
    budget: u64,
}

/// The guests, in order.
const GUESTS: &[InGuest] = &[
    InGuest {
        arch: "x86_64",
        whole: false,
        variant: None,
        short: &["sandbox-lib", "attacks", "confinement", "link/states::", "link/unconfined::", "try", "node/adopted"],
        budget: 560,
    },
    InGuest { arch: "x86_64", whole: true, variant: None, short: &["try", "confinement/limits::"], budget: 130 },
    InGuest { arch: "x86_64", whole: false, variant: Some("no-landlock"), short: &[], budget: 30 },
    InGuest { arch: "x86_64", whole: false, variant: Some("no-userns"), short: &[], budget: 55 },
    InGuest {
        arch: "x86_64",
        whole: false,
        variant: Some("newest"),
        short: &["sandbox-lib", "confinement", "try"],
        budget: 140,
    },
    InGuest {
        arch: "aarch64",
        whole: false,
        variant: None,
        short: &["sandbox-lib", "attacks", "confinement", "try"],
        budget: 305,
    },
];
/// What the long form has beside them.
const LONG_GUESTS: &[InGuest] = &[
    InGuest { arch: "aarch64", whole: true, variant: None, short: &[], budget: 3600 },
    InGuest { arch: "aarch64", whole: false, variant: Some("no-landlock"), short: &[], budget: 120 },
    InGuest { arch: "aarch64", whole: false, variant: Some("no-userns"), short: &[], budget: 120 },
    InGuest { arch: "aarch64", whole: false, variant: Some("newest"), short: &[], budget: 600 },
];

/// The parts done, with what each took and may take.
#[derive(Default)]
struct Parts(Vec<(String, u64, u64)>);

impl Parts {
    /// Does one part and says how long it took.
    fn part<T>(&mut self, name: &str, budget: u64, work: impl FnOnce() -> T) -> T {
        println!("\n== {name} (budget {budget} s)");
        let start = Instant::now();
        let done = work();
        self.0.push((String::from(name), start.elapsed().as_secs(), budget));
        done
    }

    fn say(&self) {
        for (name, took, budget) in &self.0 {
            println!("{name}: {took} s of {budget} s{}", if took > budget { ", OVER ITS BUDGET" } else { "" });
        }
        let total: u64 = self.0.iter().map(|(_, took, _)| took).sum();
        println!("all of it: {total} s of {BUDGET} s");
    }
}

/// Runs everything; a failure does not keep the rest from running, but for a build that fails.
pub(crate) fn run(args: &[OsString]) -> Result<ExitCode, String> {
    let form = Form::read(args)?;
    packages::require("cargo ci")?;
    let workspace = Workspace::find()?;
    let mut tally = Tally::default();
    let mut parts = Parts::default();
    let before = Seen::now();

    parts.part("format, lints, dependencies", CHECKS, || {
        checks::dependencies(&mut tally, &workspace);
        checks::cargo_tool(&mut tally, &workspace, "fmt", &["--all", "--check"]);
        checks::cargo_tool(
            &mut tally,
            &workspace,
            "clippy",
            &["--workspace", "--all-targets", "--locked", "--quiet", "--keep-going", "--", "--deny", "warnings"],
        );
    });
    let built = parts.part("build", BUILD, || workspace.build());
    let go_on = built.is_ok();
    tally.check("build", built.map(|()| String::from("release, every package")));
    if go_on {
        parts.part("tests", TESTS, || tests(&mut tally, &workspace))?;
        parts.part("trial", TRIAL, || {
            checks::trial(&mut tally, &workspace, &[]);
            checks::trial(&mut tally, &workspace, &["--ticket"]);
        });
        if form != Form::Here
            && let Err(why) = in_guests(&mut tally, &mut parts, &workspace, form)
        {
            tally.check("guests", Err(why));
        }
        let left = Seen::stays_since(&before);
        tally.check("nothing left behind", if left.is_empty() { Ok(String::new()) } else { Err(left.join("; ")) });
    } else {
        tally.skip("tests, trial and guests", "nothing is built");
    }

    println!();
    for line in left_out(form) {
        println!("left out: {line}");
    }
    for remark in &tally.remarks {
        println!("{remark}");
    }
    parts.say();
    println!("{}", tally.verdict());
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// Builds for each architecture once, then starts guest after guest.
fn in_guests(tally: &mut Tally, parts: &mut Parts, workspace: &Workspace, form: Form) -> Result<(), String> {
    packages::require_for_guests("cargo ci")?;
    let recipe = Recipe::read()?;
    let long = if form == Form::Long { LONG_GUESTS } else { &[] };
    for (arch, building) in ARCHITECTURES {
        let programs = parts.part(&format!("build for {arch} guests"), building, || {
            Programs::build(workspace, arch, form == Form::Long)
        })?;
        parts.part(&format!("image of {arch} guests"), IMAGE, || guests::prepare(&recipe, arch, None))?;
        for guest in GUESTS.iter().chain(long).filter(|it| it.arch == arch) {
            let asked = guest.asked(form);
            let title = format!("guest {arch} {}", asked.title());
            // Debian's own kernel is there by now. Another's version stays in the archive for weeks only.
            if let Err(why) = guests::prepare(&recipe, arch, guest.variant) {
                tally.skip(&title, &why);
                continue;
            }
            let came = parts.part(&title, guest.budget, || guests::one(&recipe, arch, &asked, &programs));
            let outcome = came.and_then(|came| {
                tally.add(&came.tally);
                if came.well { Ok(came.line) } else { Err(came.line) }
            });
            tally.check(&title, outcome);
        }
    }
    Ok(())
}

impl InGuest {
    fn asked(&self, form: Form) -> Asked {
        let short = if form == Form::Long { &[] } else { self.short };
        Asked {
            architectures: vec![String::from(self.arch)],
            variant: self.variant.map(String::from),
            whole: self.whole,
            names: Vec::new(),
            programs: short.iter().copied().map(String::from).collect(),
        }
    }
}

/// What this form does not run, a line each.
fn left_out(form: Form) -> Vec<String> {
    let mut left = Vec::new();
    match form {
        Form::Here => left.push(String::from("every guest (cargo ci, cargo vm test)")),
        Form::Short => {
            for guest in GUESTS.iter().filter(|it| !it.short.is_empty()) {
                let title = guest.asked(form).title();
                left.push(format!("{} {title}: all but {} (cargo ci --long)", guest.arch, guest.short.join(", ")));
            }
            let others = LONG_GUESTS.iter().map(|it| format!("{} {}", it.arch, it.asked(form).title()));
            left.extend(others.map(|it| format!("{it} (cargo ci --long)")));
        }
        // What each guest is for stands in the recipe, and no form runs more.
        Form::Long => {}
    }
    if form != Form::Here {
        left.extend(programs::left_out().map(|it| format!("in guests, {it}")));
    }
    left
}

/// Every test program of the workspace, its output passed on as it comes.
fn tests(tally: &mut Tally, workspace: &Workspace) -> Result<(), String> {
    let mut child = workspace
        .cargo(&["test", "--workspace", "--locked", "--no-fail-fast"])
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cargo test: {e}"))?;
    let failed_before = tally.failed;
    if let Some(stdout) = child.stdout.take() {
        for line in BufReader::new(stdout).split(b'\n') {
            let line = line.map_err(|e| format!("cargo test: {e}"))?;
            let line = String::from_utf8_lossy(&line);
            println!("{line}");
            tally.line(&line);
        }
    }
    let status = child.wait().map_err(|e| format!("cargo test: {e}"))?;
    // A test program that does not build or dies counts nothing by itself.
    if !status.success() && tally.failed == failed_before {
        tally.check("cargo test", Err(format!("{status}, with no failed test: a program did not build, or died")));
    }
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
mod tests {
    use super::*;

    #[test]
    fn every_guest_of_ci_is_one_there_can_be_and_every_variant_is_in_it() {
        let recipe = Recipe::read().unwrap();
        let all = || GUESTS.iter().chain(LONG_GUESTS);
        for guest in all() {
            recipe.arch(guest.arch).unwrap();
            if let Some(name) = guest.variant {
                recipe.variant(name).unwrap();
            }
        }
        for arch in recipe.arch.keys() {
            assert!(all().any(|it| it.arch == arch && it.whole) && all().any(|it| it.arch == arch && !it.whole));
            for name in recipe.variant.keys() {
                assert!(all().any(|it| it.arch == arch && it.variant == Some(name)), "{arch} {name}");
            }
        }
    }

    #[test]
    fn the_short_form_says_what_it_leaves_out_and_the_long_one_leaves_out_no_guest() {
        let said = left_out(Form::Short).join("\n");
        assert!(said.contains("aarch64 whole") && said.contains("x86_64 bare: all but sandbox-lib"), "{said}");
        assert!(left_out(Form::Long).iter().all(|it| it.starts_with("in guests, ")));
        assert_eq!(left_out(Form::Here).len(), 1);
        let form = |word: &str| Form::read(&[OsString::from(word)]);
        assert_eq!((form("--long"), form("--here")), (Ok(Form::Long), Ok(Form::Here)));
        assert!(form("--short").is_err());
    }

    #[test]
    fn budgets_of_the_short_form_add_up_to_less_than_the_whole() {
        let guests: u64 = ARCHITECTURES.iter().map(|(_, building)| building + IMAGE).sum();
        let rest = CHECKS + BUILD + TESTS + TRIAL + guests;
        assert!(rest + GUESTS.iter().map(|it| it.budget).sum::<u64>() <= BUDGET);
    }
}

//! `cargo vm ci`: every check and test of the project, in order, and the counts alone on the last line.

use std::ffi::OsString;
use std::io::{BufRead as _, BufReader};
use std::process::{ExitCode, Stdio};

use crate::leftovers::Seen;
use crate::tally::Tally;
use crate::workspace::Workspace;
use crate::{checks, packages};

/// Runs everything; a failure does not keep the rest from running, but for a build that fails.
pub(crate) fn run(args: &[OsString]) -> Result<ExitCode, String> {
    if let Some(word) = args.first() {
        return Err(format!("ci takes no arguments, and was given {word:?}"));
    }
    packages::require("cargo ci")?;
    let workspace = Workspace::find()?;
    let mut tally = Tally::default();
    let before = Seen::now();

    checks::dependencies(&mut tally, &workspace);
    checks::cargo_tool(&mut tally, &workspace, "fmt", &["--all", "--check"]);
    checks::cargo_tool(
        &mut tally,
        &workspace,
        "clippy",
        &["--workspace", "--all-targets", "--locked", "--quiet", "--keep-going", "--", "--deny", "warnings"],
    );
    let built = workspace.build();
    let go_on = built.is_ok();
    tally.check("build", built.map(|()| String::from("release, every package")));
    if go_on {
        tests(&mut tally, &workspace)?;
        checks::trial(&mut tally, &workspace, &[]);
        checks::trial(&mut tally, &workspace, &["--ticket"]);
        let left = Seen::stays_since(&before);
        tally.check("nothing left behind", if left.is_empty() { Ok(String::new()) } else { Err(left.join("; ")) });
    } else {
        tally.skip("tests and trial", "nothing is built");
    }

    println!();
    for remark in &tally.remarks {
        println!("{remark}");
    }
    println!("{}", tally.verdict());
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
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
    } else if tally.failed > failed_before {
        tally.remarks.push(String::from("failed: tests; their names stand above under `failures:`"));
    }
    Ok(())
}

//! The checks that are no test programs: format, lints, closure, licences, the trial.

use std::process::{ExitCode, Stdio};

use serde_json::Value;

use crate::closure::Graph;
use crate::tally::Tally;
use crate::workspace::Workspace;

/// Runs a cargo tool the toolchain may lack; Debian's has neither rustfmt nor clippy by itself.
pub(crate) fn cargo_tool(tally: &mut Tally, workspace: &Workspace, tool: &str, args: &[&str]) {
    let there = workspace.cargo(&[tool, "--version"]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    if !there.is_ok_and(|status| status.success()) {
        tally.skip(tool, &format!("this toolchain has no cargo {tool}"));
        return;
    }
    let done = workspace.cargo(&[&[tool], args].concat()).status();
    tally.check(
        tool,
        match done {
            Ok(status) if status.success() => Ok(String::new()),
            Ok(_) => Err(format!("cargo {tool} {}: its words stand above", args.join(" "))),
            Err(e) => Err(format!("cargo {tool}: {e}")),
        },
    );
}

/// Closure and licences.
pub(crate) fn dependencies(tally: &mut Tally, workspace: &Workspace) {
    match Graph::read(&workspace.metadata) {
        Ok(graph) => {
            tally.check("closure of ocx-supervisor", graph.check_supervisor());
            tally.check("licences", graph.check_licences());
        }
        Err(why) => tally.check("closure of ocx-supervisor", Err(why)),
    }
}

/// `cargo vm closure`.
pub(crate) fn closure_alone() -> Result<ExitCode, String> {
    let workspace = Workspace::find()?;
    println!("{}", Graph::read(&workspace.metadata)?.closure("supervisor")?.join("\n"));
    let mut tally = Tally::default();
    dependencies(&mut tally, &workspace);
    println!("{}", tally.verdict());
    Ok(if tally.failed == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}

/// The trial itself, as a person types it but with `--json`.
pub(crate) fn trial(tally: &mut Tally, workspace: &Workspace, extra: &[&str]) {
    let name = ["ocx try --json", &extra.join(" ")].join(" ");
    let output = std::process::Command::new(workspace.program("ocx"))
        .args(["try", "--json"])
        .args(extra)
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let outcome = match output {
        Err(e) => Err(format!("{}: {e}", workspace.program("ocx").display())),
        Ok(output) => judge_trial(output.status.code(), &output.stdout),
    };
    tally.check(name.trim(), outcome);
}

/// Whether the answer of `ocx try --json` says that one run went from post to ended, as it must.
fn judge_trial(exit: Option<i32>, stdout: &[u8]) -> Result<String, String> {
    let text = String::from_utf8_lossy(stdout);
    let answer: Value = serde_json::from_slice(stdout).map_err(|e| format!("not one JSON object ({e}): {text}"))?;
    let is = |pointer: &str, wanted: Value| match answer.pointer(pointer) {
        Some(found) if *found == wanted => Ok(()),
        found => Err(format!("{pointer} is {found:?}, not {wanted}: {text}")),
    };
    is("/tool", "try".into())?;
    is("/dry_run", false.into())?;
    is("/stopped", Value::Null)?;
    is("/result/outcome", "exited".into())?;
    is("/result/exit", 0.into())?;
    // C-04: the kept log follows ended.
    is("/result/thread", serde_json::json!(["run", "started", "ended", "log"]))?;
    if exit != Some(0) {
        return Err(format!("exit code {exit:?}, not 0"));
    }
    let stdout = answer.pointer("/result/stdout").and_then(Value::as_str).unwrap_or_default();
    if !stdout.contains("uid=") {
        return Err(format!("the kept log does not show what the command prints: {stdout:?}"));
    }
    let seconds = |key: &str| answer.pointer(&format!("/result/seconds/{key}")).and_then(Value::as_f64);
    match (seconds("started"), seconds("running"), seconds("ended")) {
        (Some(started), Some(running), Some(ended)) if started <= running && running <= ended => {
            Ok(format!("started {started:.2} s, running {running:.2} s, ended {ended:.2} s after the post"))
        }
        other => Err(format!("seconds are missing or out of order: {other:?}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(thread: &str, exit: u8) -> String {
        format!(
            r#"{{"tool":"try","dry_run":false,"log":[],"stopped":null,"result":{{"run":"ab","outcome":"exited",
            "exit":{exit},"thread":{thread},"stdout":"uid=1000","seconds":{{"started":1.0,"running":1.5,"ended":2.0}}}}}}"#
        )
    }

    #[test]
    fn only_a_whole_trial_passes() {
        let whole = r#"["run","started","ended","log"]"#;
        assert!(judge_trial(Some(0), answer(whole, 0).as_bytes()).is_ok());
        assert!(judge_trial(Some(1), answer(whole, 0).as_bytes()).is_err());
        assert!(judge_trial(Some(0), answer(whole, 1).as_bytes()).is_err());
        assert!(judge_trial(Some(0), answer(r#"["run","started","ended"]"#, 0).as_bytes()).is_err());
        assert!(judge_trial(Some(0), b"").is_err());
    }
}

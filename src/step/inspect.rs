//! The `inspect` step: what a workspace holds that the server may lack, as Fossil itself tells it (protocol 2.7; decisions
//! C-05). What it looks at an untrusted process left behind; it has no network.

use std::path::Path;
use std::process::{Command, Stdio};

use supervisor::wire::plan::{CHANGES_TOLD, Holds, UNSENT_MAX};

use crate::fossil::{CloneFile, Program};

/// Longest name of a changed file that is told, in characters.
const CHANGE_CHARS_MAX: usize = 200;

/// Looks at the clone and the checkouts; the answer is a [`Holds`] as JSON.
pub(super) fn look(clone: Option<&Path>, checkouts: &[String]) -> Result<String, String> {
    let fossil = Program::find().ok_or("the program fossil is not installed on this host")?;
    let program = Program::new(&fossil, Path::new("/tmp"), "ocx-run");
    let mut holds = Holds::default();
    for checkout in checkouts {
        let changes = said(&program, Path::new(checkout), &["changes", "--differ"])?;
        for change in changes.lines().filter(|line| !line.trim().is_empty()) {
            holds.changes_count += 1;
            if holds.changes.len() < CHANGES_TOLD {
                // `EXTRA      made.txt`, with one space.
                let (what, name) = change.split_once(' ').unwrap_or((change, ""));
                let change = format!("{what} {}", name.trim_start());
                holds.changes.push(change.chars().take(CHANGE_CHARS_MAX).collect());
            }
        }
        // One numbered line each, a comment's below it.
        let stashes = said(&program, Path::new(checkout), &["stash", "list"])?;
        let numbered = |line: &&str| line.trim_start().split_once(':').is_some_and(|(n, _)| n.parse::<u64>().is_ok());
        holds.stashes += u64::try_from(stashes.lines().filter(numbered).count()).unwrap_or(u64::MAX);
    }
    if let Some(clone) = clone {
        let made = CloneFile::new(clone, &program).made_here(UNSENT_MAX).map_err(|error| error.to_string())?;
        (holds.unsent, holds.unsent_count) = made;
    }
    serde_json::to_string(&holds).map_err(|error| error.to_string())
}

/// What one `fossil` command says in a checkout.
fn said(program: &Program, checkout: &Path, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new(&program.path);
    program.dress(&mut command);
    let ran = command.args(args).current_dir(checkout).stdin(Stdio::null()).output();
    let ran = ran.map_err(|error| format!("{}: {error}", checkout.display()))?;
    let words = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    if ran.status.success() {
        return Ok(words(&ran.stdout));
    }
    let why = words(&ran.stderr);
    let why = why.lines().map(str::trim).find(|line| !line.is_empty()).unwrap_or("it said nothing");
    Err(format!("fossil {} in {} ended with {}: {why}", args.join(" "), checkout.display(), ran.status))
}

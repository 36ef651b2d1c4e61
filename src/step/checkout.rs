//! The `checkout` step: a checkout opened from the process's clone, and the full hash of the check-in it is at
//! (protocol 2.7).

use std::ffi::OsStr;
use std::path::Path;
use std::time::Duration;

use super::tree;
use crate::fossil::{CloneFile, Program};

/// Longest wait for `fossil open`; the supervisor ends the whole step no later.
const OPEN_WAIT: Duration = Duration::from_secs(590);

/// Opens the check-in `of` names, of the clone at `clone`, at `into`; both strictly below `workspace`. Its hash.
pub(super) fn open(workspace: &Path, clone: &Path, into: &Path, of: &str) -> Result<String, String> {
    let fossil = Program::find().ok_or("the program fossil is not installed on this host")?;
    let program = Program::new(&fossil, Path::new("/tmp"), "ocx-run");
    let checkin = CloneFile::new(clone, &program).resolve(of).map_err(|error| error.to_string())?;
    let checkin = checkin.ok_or_else(|| format!("the clone has no one check-in named {of:?}"))?;
    // Made by us, beneath what is held: Fossil itself would follow a link.
    tree::make_directories(workspace, into).map_err(|error| error.to_string())?;
    let args = [
        OsStr::new("open"),
        clone.as_os_str(),
        OsStr::new(&checkin),
        OsStr::new("--workdir"),
        into.as_os_str(),
        OsStr::new("--nosync"),
    ];
    let ran = program.run(&args, OPEN_WAIT).map_err(|error| error.to_string())?;
    if !ran.status.success() {
        let words = ran.stderr.lines().chain(ran.stdout.lines()).map(str::trim).find(|line| !line.is_empty());
        return Err(format!("fossil open ended with {}: {}", ran.status, words.unwrap_or("it said nothing")));
    }
    Ok(format!("{checkin}\n"))
}

//! What the supervisor's log says of a run.

use std::fs;
use std::path::Path;

use super::Trouble;

/// The line that says a run's process was launched, once there is one. `short` is the run's first ten digits.
///
/// # Errors
/// When the log cannot be read.
pub fn launched(log: &Path, short: &str) -> Result<Option<String>, Trouble> {
    let bytes = fs::read(log).map_err(|e| Trouble::at(log.display(), e))?;
    let text = String::from_utf8_lossy(&bytes);
    let start = format!("run {short}: launched");
    Ok(text.lines().find(|line| line.contains(&start)).map(str::to_owned))
}

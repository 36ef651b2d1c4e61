//! What `--keep` writes down, so that a later `ocx try` finds the trial again.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use serde::{Deserialize, Serialize};

use super::Trouble;
use super::accounts::{Passwords, write_private};
use super::children::Named;
use super::layout::Layout;

/// A trial left running.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Kept {
    /// The server's URL.
    pub url: String,
    /// `fossil server`.
    pub server: Named,
    /// `ocx-supervisor`.
    pub supervisor: Named,
    /// Everyone's.
    pub passwords: Passwords,
}

impl Kept {
    /// Writes it, readable by root alone.
    pub(super) fn write(&self, dir: &Path) -> Result<(), Trouble> {
        let text = serde_json::to_string(self).map_err(|e| Trouble::at("the record of this trial", e))?;
        write_private(&Layout { dir: dir.to_owned() }.kept(), &text)
    }

    /// Reads it. Only root's own word is taken, for what it names is ended and removed.
    pub(super) fn read(dir: &Path) -> Result<Self, Trouble> {
        let path = Layout { dir: dir.to_owned() }.kept();
        let not = |why: &dyn std::fmt::Display| {
            Trouble::stopped(format!(
                "{} is no trial that --keep left running: {}: {why}",
                dir.display(),
                path.display()
            ))
        };
        let meta = fs::symlink_metadata(&path).map_err(|e| not(&e))?;
        if !meta.is_file() || meta.uid() != 0 || meta.mode() & 0o077 != 0 {
            return Err(not(&"not a file of root's alone"));
        }
        let text = fs::read_to_string(&path).map_err(|e| not(&e))?;
        serde_json::from_str(&text).map_err(|e| not(&e))
    }
}

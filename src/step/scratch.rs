//! A folder of one test, gone with its value.
#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

use std::fs;
use std::path::PathBuf;

/// The folder, and what is made in it.
pub(super) struct Folder(pub(super) PathBuf);

impl Folder {
    /// One that no other test of this process has, by its name.
    pub(super) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ocx-step-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

//! The workspace as cargo sees it: where it is, where it builds to, and building it.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

/// Where the sources are and where programs are built to.
pub(crate) struct Workspace {
    /// The directory of the top `Cargo.toml`.
    pub(crate) root: PathBuf,
    /// cargo's own word for it: `CARGO_TARGET_DIR` and settings are respected.
    pub(crate) target: PathBuf,
    /// All of `cargo metadata`.
    pub(crate) metadata: Value,
}

impl Workspace {
    /// Asks cargo.
    pub(crate) fn find() -> Result<Self, String> {
        let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml");
        let output = cargo()
            .args(["metadata", "--format-version", "1", "--locked", "--filter-platform", "x86_64-unknown-linux-gnu"])
            .arg("--manifest-path")
            .arg(manifest)
            .stderr(std::process::Stdio::inherit())
            .output()
            .map_err(|e| format!("cargo metadata: {e}"))?;
        if !output.status.success() {
            return Err(format!("cargo metadata: {}", output.status));
        }
        let metadata: Value = serde_json::from_slice(&output.stdout).map_err(|e| format!("cargo metadata: {e}"))?;
        let path = |key: &str| {
            metadata.get(key).and_then(Value::as_str).map(PathBuf::from).ok_or(format!("cargo metadata: no {key}"))
        };
        Ok(Self { root: path("workspace_root")?, target: path("target_directory")?, metadata })
    }

    /// cargo, started at the top.
    pub(crate) fn cargo(&self, args: &[&str]) -> Command {
        let mut command = cargo();
        command.args(args).current_dir(&self.root);
        command
    }

    /// Builds every package in release; cargo shows how far it is, on STDERR.
    pub(crate) fn build(&self) -> Result<(), String> {
        let status = self
            .cargo(&["build", "--release", "--workspace", "--locked"])
            .status()
            .map_err(|e| format!("cargo build: {e}"))?;
        if status.success() { Ok(()) } else { Err(String::from("the build failed; cargo's words stand above")) }
    }

    /// Where a release program is built to.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        self.target.join("release").join(name)
    }
}

/// The cargo that started us, without what it set for us alone: a nested cargo reads its own settings.
fn cargo() -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| OsString::from("cargo")));
    for (name, _) in std::env::vars_os() {
        if is_of_this_package(&name) {
            command.env_remove(name);
        }
    }
    command
}

/// What `cargo run` tells the program about its own package.
fn is_of_this_package(name: &OsStr) -> bool {
    name.to_str().is_some_and(|name| name.starts_with("CARGO_PKG_") || name.starts_with("CARGO_MANIFEST_"))
}

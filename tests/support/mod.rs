//! What integration tests share: the release programs, built once, and a trial made of them.
//!
//! A test includes this file with `#[path = "../support/mod.rs"] mod support;`.
#![allow(dead_code, reason = "each test program uses the part it needs")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

/// The directory of `ocx` and `ocx-supervisor`, built in release for the first test that asks.
///
/// # Panics
/// When they do not build: no test that needs them says anything then.
pub(crate) fn programs() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        // In a guest there is no cargo: they were built beside this test, and are where this says.
        if let Some(built) = std::env::var_os("OCX_TEST_PROGRAMS") {
            return built.into();
        }
        let release = target().join("release");
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        // Nothing is rebuilt when `cargo vm` has just built it; a lock of cargo's own makes programs wait their turn.
        let status = Command::new(cargo)
            .args(["build", "--release", "--workspace", "--locked", "--quiet", "--manifest-path"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .arg("--target-dir")
            .arg(target())
            .status()
            .expect("cargo starts");
        assert!(status.success(), "the release programs do not build");
        release
    })
}

/// The target directory this very test was built in: it stands in TARGET/debug/deps.
pub(crate) fn target() -> PathBuf {
    let me = std::env::current_exe().expect("a test knows its own path");
    me.ancestors().nth(3).expect("TARGET/PROFILE/deps/TEST").to_owned()
}

/// Why tests of the whole system cannot be made here, if so; they are then ignored and counted as skipped.
pub(crate) fn missing() -> Option<&'static str> {
    if !rustix::process::geteuid().is_root() {
        return Some("needs root");
    }
    let on_path = |program: &str| {
        std::env::var_os("PATH")
            .is_some_and(|path| std::env::split_paths(&path).any(|directory| directory.join(program).is_file()))
    };
    if on_path("fossil") { None } else { Some("needs fossil") }
}

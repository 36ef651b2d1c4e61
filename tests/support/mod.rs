//! What integration tests share: the release programs, built once, and a trial made of them.
//!
//! A test includes this file with `#[path = "../support/mod.rs"] mod support;`.
#![allow(dead_code, reason = "each test program uses the part it needs")]

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::Trial;

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

/// The programs with failpoints, built in the development profile and put in a directory of their own.
///
/// # Panics
/// When they do not build.
pub(crate) fn programs_with_failpoints() -> &'static Path {
    static PROGRAMS: OnceLock<PathBuf> = OnceLock::new();
    PROGRAMS.get_or_init(|| {
        if let Some(built) = std::env::var_os("OCX_TEST_FAILPOINT_PROGRAMS") {
            return built.into();
        }
        let target = target();
        let apart = target.join("failpoints");
        std::fs::create_dir_all(&apart).expect("a directory in the target directory");
        // cargo puts programs with and without failpoints in one place, where other tests look for those without.
        let stays = |program: &str| apart.join(format!("{program}.without"));
        for program in ["ocx", "ocx-supervisor"] {
            drop(std::fs::rename(target.join("debug").join(program), stays(program)));
        }
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let status = Command::new(cargo)
            .args(["build", "--package", "ocx", "--package", "supervisor", "--features", "failpoints"])
            .args(["--locked", "--quiet", "--manifest-path"])
            .arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("Cargo.toml"))
            .arg("--target-dir")
            .arg(&target)
            .status()
            .expect("cargo starts");
        for program in ["ocx", "ocx-supervisor"] {
            let built = target.join("debug").join(program);
            if status.success() {
                std::fs::copy(&built, apart.join(program)).expect("a program built is copied");
            }
            drop(std::fs::remove_file(&built));
            drop(std::fs::rename(stays(program), &built));
        }
        assert!(status.success(), "the programs with failpoints do not build");
        apart
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

/// How many systems may work at once where a machine has room for `wanted`: fewer where `OCX_TEST_AT_ONCE` says so, as
/// in an emulated guest, whose processors are slower than what waits are made for.
pub(crate) fn at_once(wanted: usize) -> usize {
    let most = std::env::var("OCX_TEST_AT_ONCE").ok().map(|it| it.parse().expect("OCX_TEST_AT_ONCE is a number"));
    most.map_or(wanted, |most: usize| most.clamp(1, wanted))
}

/// The version of the fossil on PATH.
pub(crate) fn fossil_version() -> Option<(u32, u32)> {
    let out = Command::new("fossil").arg("version").output().ok()?;
    let said = String::from_utf8(out.stdout).ok()?;
    let number = said.split("version ").nth(1)?.split_whitespace().next()?;
    let mut parts = number.split('.').map(str::parse);
    Some((parts.next()?.ok()?, parts.next()?.ok()?))
}

/// A test that ends well or panics; with a reason to skip it, that reason in its name, and counted as ignored.
pub(crate) fn trial(name: &str, test: fn(), skipped: Option<String>) -> Trial {
    let ignored = skipped.is_some();
    let name = skipped.map_or_else(|| name.to_owned(), |why| format!("{name} (skipped: {why})"));
    Trial::test(name, move || {
        test();
        Ok(())
    })
    .with_ignored_flag(ignored)
}

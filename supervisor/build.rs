//! Builds the cell as a static program and leaves it in OUT_DIR, to be embedded.
//!
//! A nested cargo with a target directory of its own: linking statically needs `+crt-static` for the cell alone, which
//! only `--target` keeps away from build scripts and proc macros.

use std::env;
use std::error::Error;
use std::path::{Path, PathBuf};
use std::process::Command;

/// What the outer cargo says to its compilers and what would reach the cell's too.
const NOT_INHERITED: [&str; 8] = [
    "CARGO_ENCODED_RUSTFLAGS",
    "RUSTC_WRAPPER",
    "RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_RUSTC_WRAPPER",
    "CARGO_BUILD_RUSTC_WORKSPACE_WRAPPER",
    "CARGO_BUILD_TARGET",
    "CARGO_TARGET_DIR",
    "CARGO_BUILD_TARGET_DIR",
];

fn main() -> Result<(), Box<dyn Error>> {
    let here = PathBuf::from(env::var("CARGO_MANIFEST_DIR")?);
    let out = PathBuf::from(env::var("OUT_DIR")?);
    let target = env::var("TARGET")?;
    let workspace = here.parent().ok_or("the supervisor lies in a workspace")?;
    for path in ["supervisor/cell/src", "supervisor/cell/Cargo.toml", "sandbox/src", "sandbox/Cargo.toml", "Cargo.lock"]
    {
        tell(&format!("cargo::rerun-if-changed={}", workspace.join(path).display()));
    }
    tell("cargo::rerun-if-changed=build.rs");
    let built = build_cell(workspace, &out.join("cell"), &target)?;
    std::fs::copy(built, out.join("ocx-cell"))?;
    Ok(())
}

fn build_cell(workspace: &Path, into: &Path, target: &str) -> Result<PathBuf, Box<dyn Error>> {
    let mut cargo = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .current_dir(workspace)
        // The outer cargo has fetched everything already.
        .args([
            "build",
            "--quiet",
            "--release",
            "--offline",
            "--package",
            "cell",
            "--bin",
            "ocx-cell",
            "--features",
            "bare",
        ])
        .args(["--target", target])
        .arg("--target-dir")
        .arg(into);
    for (name, _) in env::vars_os() {
        let Some(text) = name.to_str() else { continue };
        // A dev build's profile settings, clippy's arguments and the outer package's own variables are not the cell's.
        let outer = ["CARGO_PROFILE_", "CARGO_CFG_", "CARGO_FEATURE_", "CARGO_PKG_", "CLIPPY_", "DEP_"];
        let flags = text.starts_with("CARGO_TARGET_") && text.ends_with("_RUSTFLAGS");
        if outer.iter().any(|it| text.starts_with(it)) || NOT_INHERITED.contains(&text) || flags {
            cargo.env_remove(&name);
        }
    }
    cargo
        .env("RUSTFLAGS", "-C target-feature=+crt-static -C link-arg=-nostartfiles")
        .env("CARGO_PROFILE_RELEASE_PANIC", "abort")
        .env("CARGO_PROFILE_RELEASE_LTO", "true")
        .env("CARGO_PROFILE_RELEASE_CODEGEN_UNITS", "1")
        .env("CARGO_PROFILE_RELEASE_STRIP", "symbols")
        // What it does is system calls; what it is stays in memory beside each run.
        .env("CARGO_PROFILE_RELEASE_OPT_LEVEL", "s");
    let status = cargo.status()?;
    if !status.success() {
        return Err(format!("the cell could not be built ({status})").into());
    }
    Ok(into.join(target).join("release/ocx-cell"))
}

fn tell(line: &str) {
    println!("{line}");
}

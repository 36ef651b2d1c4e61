//! What a trial and the tests need on the host, and installing it on Debian.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;

/// One program needed, and the Debian packages that bring it.
struct Need {
    program: &'static str,
    packages: &'static [&'static str],
    why: &'static str,
}

/// Looked for by program, not by package: one built by hand serves as well.
const NEEDS: &[Need] = &[
    Need { program: "fossil", packages: &["fossil"], why: "the server, and the node's clones" },
    Need { program: "cc", packages: &["gcc", "libc6-dev"], why: "SQLite and the static cell are built from source" },
];

/// What guests need beside that; apt and dpkg are what a Debian is.
const GUEST_NEEDS: &[Need] =
    &[Need { program: "mke2fs", packages: &["e2fsprogs"], why: "a guest's disks are made with it" }];
/// What building for the other architecture needs.
const AARCH64_NEEDS: &[Need] = &[Need {
    program: "aarch64-linux-gnu-gcc",
    packages: &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
    why: "links programs for aarch64 and compiles SQLite for it",
}];

/// As [`require`], for guests of these architectures.
///
/// # Errors
/// As [`require`].
pub(crate) fn require_for_guests(command: &str, architectures: &[String]) -> Result<(), String> {
    let cross = architectures.iter().any(|it| it == "aarch64") && std::env::consts::ARCH != "aarch64";
    let needs = NEEDS.iter().chain(GUEST_NEEDS).chain(AARCH64_NEEDS.iter().filter(|_| cross));
    let why = "a guest's files are root's, and it runs whole systems of them";
    require_all(command, why, &needs.collect::<Vec<_>>())
}

/// Makes sure that the caller is root and that everything in [`NEEDS`] is there, installing what is not.
///
/// # Errors
/// For anyone but root, the one line to type; for root, what could not be installed.
pub(crate) fn require(command: &str) -> Result<(), String> {
    let why = "ocx-supervisor makes namespaces, mounts and cgroups, and gives each part an account of its own";
    require_all(command, why, &NEEDS.iter().collect::<Vec<_>>())
}

fn require_all(command: &str, why: &str, needs: &[&Need]) -> Result<(), String> {
    let missing: Vec<&Need> = needs.iter().copied().filter(|need| on_path(need.program).is_none()).collect();
    if !is_root() {
        return Err(format!(
            "{command} needs root: {why}.{} Type this line:\n\n    sudo env \"PATH=$PATH\" \"HOME=$HOME\" {command}\n",
            if missing.is_empty() {
                String::from(" It installs nothing on this machine.")
            } else {
                format!(" It would install {}.", names(&missing))
            }
        ));
    }
    if missing.is_empty() {
        eprintln!("{command}: nothing to install on this machine");
        return Ok(());
    }
    let list = names(&missing);
    if on_path("apt-get").is_none() {
        return Err(format!(
            "{} not found, and no apt-get to install {list} with. Install it your system's way, then try again",
            missing.iter().map(|need| need.program).collect::<Vec<_>>().join(", ")
        ));
    }
    eprintln!("{command}: this changes the host: apt-get installs {list}");
    for need in &missing {
        eprintln!("  {}: {}", need.packages.join(", "), need.why);
    }
    let packages: Vec<&str> = missing.iter().flat_map(|need| need.packages).copied().collect();
    // The lists of a fresh machine are often empty or old; one refresh is tried before giving up.
    if !apt(&[&["install"], packages.as_slice()].concat()) {
        eprintln!("{command}: refreshing the package lists (apt-get update), then trying again");
        if !apt(&["update"]) || !apt(&[&["install"], packages.as_slice()].concat()) {
            return Err(format!("apt-get could not install {list}; its words stand above"));
        }
    }
    for need in missing {
        if on_path(need.program).is_none() {
            return Err(format!("{} is installed, but {} is not on PATH", need.packages.join(", "), need.program));
        }
    }
    Ok(())
}

/// The packages of these needs, as a person lists them.
fn names(needs: &[&Need]) -> String {
    needs.iter().flat_map(|need| need.packages).copied().collect::<Vec<_>>().join(", ")
}

/// Runs apt-get without questions, its output on STDERR so that `--json` keeps STDOUT to itself.
fn apt(args: &[&str]) -> bool {
    Command::new("apt-get")
        .args(["--yes", "--quiet", "--no-install-recommends"])
        .args(args)
        .env("DEBIAN_FRONTEND", "noninteractive")
        .stdin(std::process::Stdio::null())
        .stdout(std::io::stderr())
        .status()
        .is_ok_and(|status| status.success())
}

/// Where a program stands on `PATH`, if it does.
fn on_path(program: &str) -> Option<PathBuf> {
    // Where root's programs are, which a PATH made for a person may leave out.
    let sbin = ["/usr/sbin", "/sbin"].map(PathBuf::from);
    std::env::split_paths(&std::env::var_os("PATH")?)
        .chain(sbin)
        .map(|directory| directory.join(program))
        .find(|file| file.metadata().is_ok_and(|m| m.is_file() && m.mode() & 0o111 != 0))
}

/// Whether this process may do as root does; read from the owner of its own entry, which needs no system call of ours.
fn is_root() -> bool {
    std::fs::metadata("/proc/self").is_ok_and(|m| m.uid() == 0)
}

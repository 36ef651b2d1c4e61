//! What a trial and the tests need on the host, and installing it on Debian.

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;

/// One thing needed, and the Debian packages that bring it.
struct Need {
    what: There,
    packages: &'static [&'static str],
    why: &'static str,
}

/// How a need is looked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum There {
    /// A program on PATH: one built by hand serves as well.
    Program(&'static str),
    /// The packages themselves, where another's files would not do.
    Packages,
}

/// What building and the trial need.
const NEEDS: &[Need] = &[
    Need { what: There::Program("fossil"), packages: &["fossil"], why: "the server, and the node's clones" },
    Need {
        what: There::Program("cc"),
        packages: &["gcc", "libc6-dev"],
        why: "SQLite and the static cell are built from source",
    },
];

/// What guests need beside that; apt and dpkg are what a Debian is.
const GUEST_NEEDS: &[Need] =
    &[Need { what: There::Program("mke2fs"), packages: &["e2fsprogs"], why: "a guest's disks are made with it" }];

/// Debian's name for the architecture that is built for on another's machine.
const FOREIGN: &str = "arm64";
/// What building for it needs. Debian's compiler comes with its library for each of Debian's architectures.
const FOREIGN_NEEDS: &[Need] = &[
    Need {
        what: There::Program("aarch64-linux-gnu-gcc"),
        packages: &["gcc-aarch64-linux-gnu", "libc6-dev-arm64-cross"],
        why: "links programs for aarch64 and compiles SQLite for it",
    },
    Need {
        what: There::Packages,
        packages: &["rustc-web", "libstd-rust-web-dev:arm64"],
        why: "compiles Rust for aarch64; your own toolchain stays as it is",
    },
];

/// As [`require`], for guests.
///
/// # Errors
/// As [`require`].
pub(crate) fn require_for_guests(command: &str) -> Result<(), String> {
    let why = "a guest's files are root's, and it runs whole systems of them";
    require_all(command, why, &NEEDS.iter().chain(GUEST_NEEDS).collect::<Vec<_>>())
}

/// As [`require`], to build for aarch64 on another machine.
///
/// # Errors
/// As [`require`], and a dpkg that takes no other architecture's packages.
pub(crate) fn require_to_cross_build(command: &str) -> Result<(), String> {
    let needs: Vec<&Need> = FOREIGN_NEEDS.iter().collect();
    if needs.iter().any(|it| !it.is_there()) && !knows_foreign() {
        eprintln!("{command}: this changes the host: dpkg --add-architecture {FOREIGN}, for the packages below");
        eprintln!("  undone with: apt-get remove '.*:{FOREIGN}'; dpkg --remove-architecture {FOREIGN}; apt-get update");
        let done = Command::new("dpkg").args(["--add-architecture", FOREIGN]).status();
        if !done.as_ref().is_ok_and(std::process::ExitStatus::success) {
            return Err(format!("dpkg --add-architecture {FOREIGN}: {done:?}"));
        }
        if !apt(&["update"]) {
            return Err(format!("apt-get update for {FOREIGN} failed; its words stand above"));
        }
    }
    require_all(command, "it installs a compiler for aarch64", &needs)
}

/// Whether dpkg takes packages of the foreign architecture.
fn knows_foreign() -> bool {
    let output = Command::new("dpkg").arg("--print-foreign-architectures").output();
    output.is_ok_and(|it| String::from_utf8_lossy(&it.stdout).lines().any(|line| line == FOREIGN))
}

impl Need {
    fn is_there(&self) -> bool {
        match self.what {
            There::Program(name) => on_path(name).is_some(),
            There::Packages => self.packages.iter().all(|it| installed(it)),
        }
    }

    /// What a person looks for.
    fn name(&self) -> String {
        match self.what {
            There::Program(name) => String::from(name),
            There::Packages => self.packages.join(", "),
        }
    }
}

/// Whether dpkg has a package installed.
fn installed(package: &str) -> bool {
    // A line for each architecture it is installed for.
    let status = Command::new("dpkg-query").args(["--show", "--showformat=${db:Status-Status}\n", package]).output();
    let is = |line: &str| line == "installed";
    status.is_ok_and(|it| it.status.success() && String::from_utf8_lossy(&it.stdout).lines().any(is))
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
    let missing: Vec<&Need> = needs.iter().copied().filter(|need| !need.is_there()).collect();
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
            missing.iter().map(|need| need.name()).collect::<Vec<_>>().join(", ")
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
        if !need.is_there() {
            return Err(format!("{} is installed, but {} is not there", need.packages.join(", "), need.name()));
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
        // Nothing a person installed gives way to what we need: apt-get then fails and says what is in the way.
        .args(["--yes", "--quiet", "--no-install-recommends", "--no-remove"])
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

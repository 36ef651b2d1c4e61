//! What a trial needs of the host, looked at before anything is made.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::Trouble;

/// Namespaces the sandbox makes; each has a count of its own in `/proc/sys/user` (namespaces(7)).
const NAMESPACES: &[&str] = &["user", "mnt", "pid", "ipc", "uts", "net", "cgroup"];
/// Least free space, in bytes: the programs copied, two repositories, a workspace and the logs are some 60 MiB.
pub const FREE_BYTES_MIN: u64 = 256 << 20;
/// The lowest Fossil the tests pass with.
pub const FOSSIL_MIN: (u32, u32) = (2, 21);

/// The programs a trial runs, beside each other in one directory.
pub const PROGRAMS: &[&str] = &["ocx", "ocx-supervisor"];

/// Refuses what could only fail later, each with what to do about it.
///
/// # Errors
/// The first thing that is not as a trial needs it; nothing was made.
pub fn check(programs: &Path, place: &Path) -> Result<(), Trouble> {
    if !rustix::process::geteuid().is_root() {
        return Err(Trouble::stopped(
            "a trial needs root, for ocx-supervisor makes namespaces, mounts and cgroups: type `sudo ocx try`, or from \
             the sources `sudo env \"PATH=$PATH\" \"HOME=$HOME\" cargo try`",
        ));
    }
    for program in PROGRAMS {
        let path = programs.join(program);
        if !path.is_file() {
            return Err(Trouble::stopped(format!(
                "{} is not there: ocx-supervisor stands beside ocx; `cargo try` builds both",
                path.display()
            )));
        }
    }
    fossil()?;
    namespaces()?;
    space(place)
}

fn fossil() -> Result<(), Trouble> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    if program_on(&path, "fossil").is_none() {
        return Err(Trouble::stopped("fossil is not on PATH: type `apt-get install fossil`"));
    }
    let output = std::process::Command::new("fossil").arg("version").env_remove("GATEWAY_INTERFACE").output();
    let text = output.map(|o| String::from_utf8_lossy(&o.stdout).into_owned()).unwrap_or_default();
    match version(&text) {
        Some(found) if found >= FOSSIL_MIN => Ok(()),
        Some((major, minor)) => Err(Trouble::stopped(format!(
            "fossil {major}.{minor} is older than {}.{}, the lowest this works with",
            FOSSIL_MIN.0, FOSSIL_MIN.1
        ))),
        None => Err(Trouble::stopped(format!("fossil does not say its version: {:?}", text.trim()))),
    }
}

/// `This is fossil version 2.21 [3c53b6364e] ...`
fn version(text: &str) -> Option<(u32, u32)> {
    let (major, rest) = text.split_once("version ")?.1.split_once('.')?;
    let minor: String = rest.chars().take_while(char::is_ascii_digit).collect();
    Some((major.parse().ok()?, minor.parse().ok()?))
}

/// Where a program stands on this `PATH`.
fn program_on(path: &OsStr, program: &str) -> Option<PathBuf> {
    std::env::split_paths(path).map(|directory| directory.join(program)).find(|file| file.is_file())
}

fn namespaces() -> Result<(), Trouble> {
    for kind in NAMESPACES {
        let setting = format!("/proc/sys/user/max_{kind}_namespaces");
        // A kernel without the file was built without the limit, or without the kind; the supervisor then says which.
        let Ok(text) = std::fs::read_to_string(&setting) else { continue };
        if text.trim() == "0" {
            return Err(Trouble::stopped(format!(
                "{kind} namespaces are off: {setting} is 0, and a run never runs with less than its sandbox asks. \
                 `sysctl -w user.max_{kind}_namespaces=15000` turns them on"
            )));
        }
    }
    Ok(())
}

fn space(place: &Path) -> Result<(), Trouble> {
    let existing = place.ancestors().find(|path| path.exists()).unwrap_or(Path::new("/"));
    let stat = rustix::fs::statvfs(existing)
        .map_err(|e| Trouble::stopped(format!("{}: how much room there is: {e}", existing.display())))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free < FREE_BYTES_MIN {
        return Err(Trouble::stopped(format!(
            "no space: {} has {} MiB free, and a trial needs {} MiB; `--dir` names another place",
            existing.display(),
            free >> 20,
            FREE_BYTES_MIN >> 20
        )));
    }
    if stat.f_flag.contains(rustix::fs::StatVfsMountFlags::NOEXEC) {
        return Err(Trouble::stopped(format!(
            "{} is mounted noexec, and a trial runs programs from there; `--dir` names another place",
            existing.display()
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read_and_compared_as_numbers() {
        assert_eq!(version("This is fossil version 2.21 [3c53b6364e] 2023-02-26"), Some((2, 21)));
        assert_eq!(version("This is fossil version 2.9 [x]"), Some((2, 9)));
        assert_eq!(version("This is fossil version 3.0 [x]"), Some((3, 0)));
        assert!((2, 9) < FOSSIL_MIN && (3, 0) > FOSSIL_MIN);
        assert_eq!(version("fossil: command not found"), None);
    }
}

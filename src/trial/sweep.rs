//! Taking away whatever is left of a trial: processes of its accounts, mounts below its directory, its cgroups.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ::supervisor::wire::accounts::{Accounts, cgroup_name, node_cgroup_name};

use super::children;

/// Rounds of ending what is left: each may uncover what the one before had started.
const ROUNDS_MAX: u32 = 10;
/// Wait before a busy cgroup is tried again.
const BUSY_WAIT: Duration = Duration::from_millis(50);
/// Cgroups are looked for this deep below a hierarchy's top.
const DEPTH_MAX: u32 = 6;

/// Ends every process of these accounts; says which would not go.
pub(super) fn processes(accounts: &Accounts) -> Vec<String> {
    let all = [accounts.node, accounts.run, accounts.open, accounts.cell, accounts.server];
    users(&all.map(|account| account.uid))
}

/// Ends every process of these users; says which would not go.
pub(super) fn users(uids: &[u32]) -> Vec<String> {
    for _ in 0..ROUNDS_MAX {
        let left = children::of_users(uids);
        if left.is_empty() {
            return Vec::new();
        }
        for process in left {
            // What does not go now is told below.
            let _gone = process.end(Duration::ZERO, || false);
        }
    }
    children::of_users(uids).iter().map(|process| format!("process {}", process.pid)).collect()
}

/// Removes what cgroups a supervisor of this `ROOT` left, empty by now; says which would not go.
pub(super) fn cgroups(root: &Path) -> Vec<String> {
    let names = [cgroup_name(root), node_cgroup_name(root)];
    let mut left = Vec::new();
    for hierarchy in hierarchies() {
        let mut found = Vec::new();
        for name in &names {
            below(&hierarchy, name, DEPTH_MAX, &mut found);
        }
        for group in found {
            // The innermost first; a group just emptied is busy for a moment.
            let removed = (0..ROUNDS_MAX).any(|round| {
                if round > 0 {
                    std::thread::sleep(BUSY_WAIT);
                }
                remove_groups(&group, DEPTH_MAX);
                !group.exists()
            });
            if !removed {
                left.push(format!("cgroup {}", group.display()));
            }
        }
    }
    left
}

/// Where hierarchies of cgroups are mounted.
fn hierarchies() -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let of_cgroups = table.lines().filter(|line| line.contains(" - cgroup"));
    of_cgroups.filter_map(|line| line.split(' ').nth(4)).map(|place| PathBuf::from(unescape(place))).collect()
}

/// Directories of this name, at most so deep.
fn below(directory: &Path, name: &str, depth: u32, found: &mut Vec<PathBuf>) {
    for path in directories(directory) {
        if path.file_name().is_some_and(|its| its == name) {
            found.push(path);
        } else if depth > 0 {
            below(&path, name, depth - 1, found);
        }
    }
}

fn remove_groups(group: &Path, depth: u32) {
    if depth > 0 {
        directories(group).iter().for_each(|path| remove_groups(path, depth - 1));
    }
    // What stays is seen, and told, by who asked. The files in it go with it.
    drop(fs::remove_dir(group));
}

fn directories(directory: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.filter(|entry| entry.file_type().is_ok_and(|kind| kind.is_dir())).map(|entry| entry.path()).collect()
}

/// Unmounts whatever is mounted at or below a directory, the innermost first; says what would not go.
pub(super) fn mounts(dir: &Path) -> Vec<String> {
    use rustix::mount::{UnmountFlags, unmount};
    let places = mounted(dir).into_iter().rev();
    places
        .filter_map(|place| {
            let why = unmount(&place, UnmountFlags::DETACH | UnmountFlags::NOFOLLOW).err()?;
            Some(format!("mount {}: {why}", place.display()))
        })
        .collect()
}

fn mounted(dir: &Path) -> Vec<PathBuf> {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let places = table.lines().filter_map(|line| line.split(' ').nth(4)).map(|place| PathBuf::from(unescape(place)));
    places.filter(|place| place.starts_with(dir)).collect()
}

/// Mount points write space, tab, line feed and backslash as octal (proc_pid_mountinfo(5)).
fn unescape(place: &str) -> String {
    [("\\040", " "), ("\\011", "\t"), ("\\012", "\n"), ("\\134", "\\")]
        .iter()
        .fold(place.to_owned(), |text, (from, to)| text.replace(from, to))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_below_a_directory_is_its_own() {
        assert!(mounted(Path::new("/proc")).iter().any(|place| place == Path::new("/proc")));
        assert!(mounted(Path::new("/nonexistent/ocx")).is_empty());
        assert_eq!(unescape("/a\\040b"), "/a b");
    }
}

//! What a trial or a test could leave behind on the host: processes, mounts, cgroups, directories.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::{Duration, Instant};

/// What is there now, one line each; two of these are compared.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Seen(BTreeSet<String>);

/// Where runs' cgroups could be; the service's hierarchy is under one of them.
const CGROUPS: &str = "/sys/fs/cgroup";
/// Directories this deep below [`CGROUPS`] are looked at.
const CGROUP_DEPTH_MAX: u32 = 6;
/// How long what has ended may take to be gone.
const GONE_WAIT: Duration = Duration::from_secs(10);

impl Seen {
    /// Looks.
    pub(crate) fn now() -> Self {
        let mut seen = BTreeSet::new();
        for name in names(Path::new("/proc")) {
            let Ok(number) = name.parse::<u32>() else { continue };
            let comm = fs::read_to_string(format!("/proc/{number}/comm")).unwrap_or_default();
            let command = fs::read_to_string(format!("/proc/{number}/cmdline")).unwrap_or_default().replace('\0', " ");
            let ours = comm.starts_with("ocx") || command.contains("/ocx-try-") || command.starts_with("ocx");
            // Our own children are in the table until we wait for them; by now we have.
            if ours {
                seen.insert(format!("process {number}: {}", command.trim()));
            }
        }
        for line in fs::read_to_string("/proc/self/mountinfo").unwrap_or_default().lines() {
            if let Some(place) = line.split(' ').nth(4) {
                seen.insert(format!("mount {place}"));
            }
        }
        directories(Path::new(CGROUPS), CGROUP_DEPTH_MAX, &mut seen);
        for name in names(Path::new("/tmp")).into_iter().filter(|name| name.starts_with("ocx-")) {
            seen.insert(format!("/tmp/{name}"));
        }
        Self(seen)
    }

    /// What came after `before` and does not go by itself within [`GONE_WAIT`]: an orphan that has ended stays in the
    /// table until the host's init has waited for it.
    pub(crate) fn stays_since(before: &Self) -> Vec<String> {
        let deadline = Instant::now() + GONE_WAIT;
        loop {
            let left = Self::now().since(before);
            if left.is_empty() || Instant::now() >= deadline {
                return left;
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// What is there now and was not in `before`.
    fn since(&self, before: &Self) -> Vec<String> {
        self.0.difference(&before.0).cloned().collect()
    }
}

fn names(directory: &Path) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

fn directories(directory: &Path, depth: u32, seen: &mut BTreeSet<String>) {
    for entry in fs::read_dir(directory).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            // Other cgroups come and go with whatever else the host does.
            if entry.file_name().to_string_lossy().starts_with("ocx") {
                seen.insert(format!("cgroup {}", entry.path().display()));
            }
            if depth > 0 {
                directories(&entry.path(), depth - 1, seen);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_is_told_and_what_went_is_not() {
        let before = Seen(BTreeSet::from([String::from("mount /a"), String::from("mount /b")]));
        let after = Seen(BTreeSet::from([String::from("mount /b"), String::from("mount /c")]));
        assert_eq!(after.since(&before), ["mount /c"]);
    }
}

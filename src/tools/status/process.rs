//! Processes, as `/proc` tells of them: proc_pid_stat(5), proc_pid_status(5), proc_pid_wchan(5).

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;

/// Longest command line shown, in bytes.
const COMMAND_BYTES_MAX: usize = 120;
/// Most processes told of one run.
const PROCESSES_MAX: usize = 64;
/// Most groups looked at below one run's.
const GROUPS_MAX: usize = 64;

/// A process.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Process {
    pub(super) pid: u32,
    pub(super) parent: u32,
    /// R, S, D, T, Z: as ps(1) writes it.
    pub(super) state: char,
    /// The kernel's function it sleeps in, where the kernel tells.
    pub(super) waits_in: Option<String>,
    /// Whether KILL has been sent and not been acted on.
    pub(super) kill_pending: bool,
    /// Its command line, or its name in brackets.
    pub(super) command: String,
    /// When it started, in clock ticks since boot.
    #[serde(skip)]
    pub(super) started: u64,
}

impl Process {
    /// The process with this id, if there is one.
    pub(super) fn of(pid: u32) -> Option<Self> {
        let dir = Path::new("/proc").join(pid.to_string());
        let (name, state, parent, started) = stat(&fs::read_to_string(dir.join("stat")).ok()?)?;
        let status = fs::read_to_string(dir.join("status")).unwrap_or_default();
        let waits_in = fs::read_to_string(dir.join("wchan")).ok().filter(|it| !matches!(it.as_str(), "" | "0"));
        let line = fs::read(dir.join("cmdline")).unwrap_or_default();
        let line = String::from_utf8_lossy(&line).trim_end_matches('\0').replace('\0', " ");
        let mut command = if line.is_empty() { format!("[{name}]") } else { line };
        if let Some((cut, _)) = command.char_indices().find(|(at, c)| at + c.len_utf8() > COMMAND_BYTES_MAX) {
            command.truncate(cut);
            command.push_str("...");
        }
        Some(Self { pid, parent, state, waits_in, kill_pending: kill_pending(&status), command, started })
    }

    /// When it started.
    pub(super) fn since(&self) -> Option<SystemTime> {
        let ticks = rustix::param::clock_ticks_per_second();
        let up = rustix::time::clock_gettime(rustix::time::ClockId::Boottime);
        let up = Duration::new(u64::try_from(up.tv_sec).ok()?, u32::try_from(up.tv_nsec).ok()?);
        let started = Duration::from_millis(self.started.checked_mul(1000)?.checked_div(ticks)?);
        SystemTime::now().checked_sub(up.checked_sub(started)?)
    }

    /// Whether nothing but the kernel can end it now.
    pub(super) const fn cannot_be_ended(&self) -> bool {
        self.kill_pending && self.state == 'D'
    }
}

/// Name, state, parent and start of a `stat` line. The name may hold spaces and parentheses.
fn stat(text: &str) -> Option<(String, char, u32, u64)> {
    let (head, tail) = text.rsplit_once(')')?;
    let (_, name) = head.split_once('(')?;
    let mut fields = tail.split_ascii_whitespace();
    let state = fields.next()?.chars().next()?;
    let parent = fields.next()?.parse().ok()?;
    // Field 22; the parent is field 4.
    let started = fields.nth(17)?.parse().ok()?;
    Some((name.to_owned(), state, parent, started))
}

/// Whether signal 9 is pending, for the thread or for the process.
fn kill_pending(status: &str) -> bool {
    let sets = status.lines().filter_map(|line| line.strip_prefix("SigPnd:").or(line.strip_prefix("ShdPnd:")));
    sets.filter_map(|set| u64::from_str_radix(set.trim(), 16).ok()).any(|set| set & (1 << 8) != 0)
}

/// Every process of the host.
pub(super) fn all() -> Vec<Process> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    entries.filter_map(|it| Process::of(it.file_name().to_str()?.parse().ok()?)).collect()
}

/// The processes of a cgroup and the groups below it, and how many there are.
pub(super) fn in_group(group: &Path) -> (Vec<Process>, usize) {
    let mut groups = vec![group.to_owned()];
    let mut pids = Vec::new();
    let mut next = 0;
    while let Some(group) = groups.get(next).cloned() {
        next += 1;
        let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
        pids.extend(text.lines().filter_map(|line| line.parse::<u32>().ok()));
        for entry in fs::read_dir(&group).into_iter().flatten().flatten() {
            if groups.len() < GROUPS_MAX && entry.file_type().is_ok_and(|it| it.is_dir()) {
                groups.push(entry.path());
            }
        }
    }
    let count = pids.len();
    (pids.into_iter().take(PROCESSES_MAX).filter_map(Process::of).collect(), count)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_spaces_is_read() {
        let rest = "1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 99 20";
        assert_eq!(stat(&format!("7 (a) (b c) D {rest}")).unwrap(), ("a) (b c".into(), 'D', 1, 99));
        assert_eq!(stat("7 (a"), None);
        assert_eq!(stat("7 (a) S"), None);
    }

    #[test]
    fn kill_is_seen_as_pending_for_the_process_or_the_thread() {
        for (text, pending) in [
            ("SigPnd:\t0000000000000000\nShdPnd:\t0000000000000100\n", true),
            ("SigPnd:\t0000000000000100\nShdPnd:\t0000000000000000\n", true),
            ("SigPnd:\t0000000000004000\nShdPnd:\t0000000000000200\nSigBlk:\t0000000000000100\n", false),
            ("", false),
        ] {
            assert_eq!(kill_pending(text), pending, "{text}");
        }
    }

    #[test]
    fn this_very_process_is_told() {
        let me = Process::of(std::process::id()).unwrap();
        assert!(!me.kill_pending && me.since().unwrap() <= SystemTime::now() && !me.command.is_empty());
        assert!(all().iter().any(|it| it.pid == me.pid));
        assert_eq!(Process::of(u32::MAX), None);
    }
}

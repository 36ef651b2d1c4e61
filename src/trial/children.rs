//! The processes a trial starts, and ending them: by pidfd, so that no number names a stranger.

use std::fs;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::process::{Pid, PidfdFlags, Signal};
use serde::{Deserialize, Serialize};

/// How long the supervisor has after TERM to end its runs and go, its own grace for them included.
pub const TERM_WAIT: Duration = Duration::from_secs(15);
/// How long a process has to go after KILL; the kernel needs none, a busy machine a little.
pub const KILL_WAIT: Duration = Duration::from_secs(5);

/// A wait looks up this often.
const SLICE: Timespec = Timespec { tv_sec: 0, tv_nsec: 50_000_000 };

/// One process, told apart from any later one of the same number by when it started.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Named {
    /// Its number.
    pub pid: i32,
    /// When it started, in clock ticks since boot (proc_pid_stat(5), field 22).
    pub start: u64,
}

impl Named {
    /// The process that has this number now.
    #[must_use]
    pub fn now(pid: u32) -> Option<Self> {
        let pid = i32::try_from(pid).ok()?;
        Some(Self { pid, start: stat(pid)?.start })
    }

    /// Holds the process itself, if it is still the one named.
    #[must_use]
    pub fn open(self) -> Option<OwnedFd> {
        let fd = rustix::process::pidfd_open(Pid::from_raw(self.pid)?, PidfdFlags::empty()).ok()?;
        // Asked after the descriptor is open: what it names now cannot become another.
        (stat(self.pid)?.start == self.start).then_some(fd)
    }

    /// Whether it runs the program of this file name.
    #[must_use]
    pub fn runs(self, program: &str) -> bool {
        let path = fs::read_link(format!("/proc/{}/exe", self.pid));
        path.is_ok_and(|path| path.file_name().is_some_and(|name| name == program))
    }

    /// TERM, a wait that ends when it `hurries`, KILL, a wait. True once it is gone (or is a zombie, which only its
    /// parent can take).
    #[must_use]
    pub fn end(self, grace: Duration, hurries: impl Fn() -> bool) -> bool {
        let Some(fd) = self.open() else { return true };
        if !grace.is_zero() {
            // ESRCH, the only failure root meets here: it went in the meantime.
            if rustix::process::pidfd_send_signal(&fd, Signal::TERM).is_err() || gone(&fd, grace, hurries) {
                return true;
            }
        }
        rustix::process::pidfd_send_signal(&fd, Signal::KILL).is_err() || gone(&fd, KILL_WAIT, || false)
    }
}

/// Waits until a process has ended, at most so long, and no longer once it hurries.
fn gone(fd: &OwnedFd, wait: Duration, hurries: impl Fn() -> bool) -> bool {
    let deadline = Instant::now() + wait;
    loop {
        match rustix::event::poll(&mut [PollFd::new(fd, PollFlags::IN)], Some(&SLICE)) {
            Ok(0) | Err(rustix::io::Errno::INTR) => {}
            Ok(_) => return true,
            Err(_) => return false,
        }
        if hurries() || Instant::now() >= deadline {
            return false;
        }
    }
}

/// Every process that runs as one of these users. Their numbers belong to one trial alone (decisions C-96), so these
/// are its own, whatever started them.
#[must_use]
pub fn of_users(uids: &[u32]) -> Vec<Named> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        let Some(uid) = user(pid).filter(|uid| uids.contains(uid)) else { continue };
        // A zombie is its parent's to take, and is no process that lives.
        if let Some(stat) = stat(pid).filter(|stat| stat.state != 'Z') {
            // Seen again after the start time was read: else a new process could wear an old one's user.
            if user(pid) == Some(uid) {
                found.push(Named { pid, start: stat.start });
            }
        }
    }
    found
}

/// The real user of a process.
fn user(pid: i32) -> Option<u32> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Uid:"))?;
    line.split_whitespace().next()?.parse().ok()
}

struct Stat {
    state: char,
    start: u64,
}

fn stat(pid: i32) -> Option<Stat> {
    let text = fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The name may hold spaces and parentheses; the last one closes it.
    let mut fields = text.rsplit_once(')')?.1.split_whitespace();
    let state = fields.next()?.chars().next()?;
    // The state is field 3; the start time is field 22.
    Some(Stat { state, start: fields.nth(18)?.parse().ok()? })
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test ends where a step of it fails")]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn a_hurry_ends_the_grace() {
        let mut child = Command::new("sh")
            .args(["-c", "trap '' TERM; echo; sleep 60"])
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        // Its first line says that it no longer heeds TERM.
        std::io::Read::read_exact(child.stdout.as_mut().unwrap(), &mut [0]).unwrap();
        let named = Named::now(child.id()).unwrap();
        let start = Instant::now();
        assert!(named.end(Duration::from_secs(60), || true));
        assert!(start.elapsed() < Duration::from_secs(30));
        child.wait().unwrap();
    }

    #[test]
    fn the_process_named_is_ended_and_one_with_another_start_is_not() {
        let mut child = Command::new("sleep").arg("60").spawn().unwrap();
        let named = Named::now(child.id()).unwrap();
        let stranger = Named { start: named.start + 1, ..named };
        assert!(stranger.end(Duration::ZERO, || false));
        assert!(child.try_wait().unwrap().is_none(), "a stranger of the same number was ended");
        assert!(named.end(Duration::from_secs(1), || false));
        assert!(!child.wait().unwrap().success());
    }
}

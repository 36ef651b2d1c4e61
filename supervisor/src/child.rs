//! A cell started by `launch`: what it says, how it is let go, signalled and reaped. Always by descriptor, never by pid.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::rc::Rc;

use mio::Interest;
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions};
use sandbox::status::{Listener, Said};

use crate::launch::Launching;
use crate::names::Name;
use crate::turn::{Sources, Watched};

/// Most bytes a cell says: three messages.
const SAID_BYTES_MAX: usize = 3 * sandbox::status::MESSAGE_BYTES_MAX;
/// Largest `/proc/PID/stat` or list of children that is read.
const PROC_BYTES_MAX: u64 = 16 << 10;

/// A cell and its pipes.
#[derive(Debug)]
pub(crate) struct Child {
    /// Its pid: the sandbox's init on the host. For records and log lines only.
    pub(crate) pid: u32,
    pidfd: Watched<Name>,
    status: Watched<Name>,
    lifeline: Option<OwnedFd>,
    listener: Listener,
    /// The program, once it runs: the first child of the init, and its pid.
    program: Option<(u32, OwnedFd)>,
    /// How the cell itself ended, once it was reaped.
    pub(crate) ended: Option<String>,
}

impl Child {
    /// Watches a cell that was just started.
    ///
    /// # Errors
    /// As `epoll_ctl(2)` fails; the cell then ends, since its lifeline closes before it was let go.
    pub(crate) fn watch(cell: Launching, sources: &Rc<Sources<Name>>, status: Name, end: Name) -> io::Result<Self> {
        let pidfd = sources.watch(cell.pidfd, end, Interest::READABLE)?;
        let status = sources.watch(cell.status, status, Interest::READABLE)?;
        let lifeline = Some(cell.lifeline);
        let listener = Listener::default();
        Ok(Self { pid: cell.pid, pidfd, status, lifeline, listener, program: None, ended: None })
    }

    /// Lets the cell's program go. `go` says what becomes of what it leaves: [`sandbox::init::GO`] or
    /// [`sandbox::init::GO_AND_STAY`].
    ///
    /// # Errors
    /// As `write(2)` fails: the cell is gone.
    pub(crate) fn go(&self, go: u8) -> io::Result<()> {
        let lifeline = self.lifeline.as_ref().ok_or(io::ErrorKind::BrokenPipe)?;
        rustix::io::write(lifeline, &[go])?;
        Ok(())
    }

    /// What the cell has said since last asked, whole messages only.
    ///
    /// # Errors
    /// When what it says is no message: it is then to be ended.
    pub(crate) fn said(&mut self) -> Result<Vec<Said>, String> {
        let mut heard = 0;
        let mut bytes = [0_u8; SAID_BYTES_MAX];
        loop {
            match rustix::io::read(&self.status, &mut bytes) {
                Ok(0) | Err(rustix::io::Errno::AGAIN) => break,
                Ok(n) => {
                    heard += n;
                    self.listener.hear(bytes.get(..n).unwrap_or_default());
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(errno) => return Err(errno.to_string()),
            }
            if heard > SAID_BYTES_MAX {
                return Err("it says more than a cell does".to_owned());
            }
        }
        let mut said = Vec::new();
        while let Some(next) = self.listener.next_said().map_err(|_garbled| "it says what no cell does".to_owned())? {
            said.push(next);
        }
        Ok(said)
    }

    /// When the cell started, in clock ticks since boot.
    ///
    /// # Errors
    /// When it is gone.
    pub(crate) fn started(&self) -> io::Result<u64> {
        start_time(self.pid)
    }

    /// Finds the program that the cell has let run, so that it can be asked to end. It is the init's first child:
    /// children are listed oldest first, and what the program leaves to the init comes after it.
    pub(crate) fn find_program(&mut self) {
        let path = format!("/proc/{pid}/task/{pid}/children", pid = self.pid);
        let Ok(text) = read_proc(&path) else { return };
        let first = text.split_whitespace().next().and_then(|pid| pid.parse().ok()).and_then(Pid::from_raw);
        self.program = first.and_then(|pid| {
            let held = rustix::process::pidfd_open(pid, PidfdFlags::empty()).ok()?;
            Some((pid.as_raw_pid().unsigned_abs(), held))
        });
    }

    /// Asks the program to end, and those of `others` that are in its session (decisions C-81). Whether there was a
    /// program to ask.
    pub(crate) fn ask_to_end(&self, others: &[u32]) -> bool {
        let Some((program, held)) = &self.program else { return false };
        let asked = rustix::process::pidfd_send_signal(held, Signal::TERM).is_ok();
        for pid in others.iter().filter(|pid| *pid != program) {
            let Some(raw) = i32::try_from(*pid).ok().and_then(Pid::from_raw) else { continue };
            let Ok(held) = rustix::process::pidfd_open(raw, PidfdFlags::empty()) else { continue };
            // Asked after it is held: no stranger is in a session of ours.
            if session(*pid).ok() == Some(*program) {
                let _gone = rustix::process::pidfd_send_signal(&held, Signal::TERM);
            }
        }
        asked
    }

    /// Ends the cell, and with it everything in its pid namespace.
    pub(crate) fn kill(&mut self) {
        // Fails only for a cell that is gone.
        let _gone = rustix::process::pidfd_send_signal(&self.pidfd, Signal::KILL);
        self.lifeline = None;
    }

    /// Reaps the cell if it has ended; whether it has.
    pub(crate) fn reap(&mut self) -> bool {
        if self.ended.is_some() {
            return true;
        }
        let options = WaitIdOptions::EXITED | WaitIdOptions::NOHANG;
        match rustix::process::waitid(WaitId::PidFd(self.pidfd.as_fd()), options) {
            Ok(None) | Err(rustix::io::Errno::INTR) => {}
            Ok(Some(status)) => {
                let how = match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => format!("exit {code}"),
                    (None, Some(signal)) => format!("signal {signal}"),
                    (None, None) => "in a way the kernel does not tell".to_owned(),
                };
                self.ended = Some(how);
            }
            Err(errno) => self.ended = Some(format!("unknown: {errno}")),
        }
        self.ended.is_some()
    }
}

/// When a process started, in clock ticks since boot (`proc_pid_stat(5)`, field 22).
///
/// # Errors
/// When there is no such process.
pub(crate) fn start_time(pid: u32) -> io::Result<u64> {
    stat_field(pid, 22)
}

/// A process's parent (`proc_pid_stat(5)`, field 4).
///
/// # Errors
/// When there is no such process.
pub(crate) fn parent(pid: u32) -> io::Result<u32> {
    stat_field(pid, 4)
}

/// The session a process is in (`proc_pid_stat(5)`, field 6).
fn session(pid: u32) -> io::Result<u32> {
    stat_field(pid, 6)
}

/// One number of `/proc/PID/stat`, counted as the manual does, from 4 on.
fn stat_field<T: std::str::FromStr>(pid: u32, number: usize) -> io::Result<T> {
    let text = read_proc(&format!("/proc/{pid}/stat"))?;
    // The name, in brackets, may hold anything; nothing after the last bracket is chosen by the process.
    let after_name = text.rsplit_once(')').map(|(_, rest)| rest);
    // The first after the name is field 3.
    let field = after_name.and_then(|rest| rest.split_whitespace().nth(number.saturating_sub(3)));
    field.and_then(|field| field.parse().ok()).ok_or_else(|| io::Error::other("its stat cannot be read"))
}

fn read_proc(path: &str) -> io::Result<String> {
    let mut text = String::new();
    io::Read::read_to_string(&mut io::Read::take(std::fs::File::open(path)?, PROC_BYTES_MAX), &mut text)?;
    Ok(text)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    #[test]
    fn a_start_time_is_the_same_twice_and_not_another_process_s() {
        let own = std::process::id();
        assert_eq!(start_time(own).unwrap(), start_time(own).unwrap());
        assert!(start_time(1).unwrap() < start_time(own).unwrap());
        start_time(u32::MAX).unwrap_err();
    }

    // Of a session of the test's own: the one it was started in may lie outside its pid namespace, and then has no number.
    #[test]
    fn a_session_is_told_by_its_leader() {
        let mut leads = std::process::Command::new("setsid").args(["sleep", "60"]).spawn().unwrap();
        let starts_within = std::time::Instant::now() + std::time::Duration::from_secs(10);
        while session(leads.id()).unwrap() != leads.id() && std::time::Instant::now() < starts_within {
            std::thread::sleep(std::time::Duration::from_millis(5));
        }
        let told = session(leads.id()).unwrap();
        leads.kill().unwrap();
        leads.wait().unwrap();
        assert_eq!(told, leads.id());
        assert_ne!(session(std::process::id()).unwrap(), leads.id());
    }
}

//! Process 1 of a sandbox: lets the program go, reaps, says how the program ended, ends with its supervisor.
//!
//! It holds nothing by now: another account's ids, no capability, five descriptors. When it exits the kernel ends
//! everything else in the sandbox.

use rustix::event::{PollFd, PollFlags, poll};
use rustix::fd::OwnedFd;
use rustix::io::Errno;

use crate::status::{Ended, Line, MESSAGE_BYTES_MAX};
use crate::sys;

/// The byte on the lifeline that lets the program go; when it ends, everything it left ends at once.
pub const GO: u8 = b'g';
/// As [`GO`], but what the program leaves goes on until the lifeline closes: it may still write (decisions C-76).
pub const GO_AND_STAY: u8 = b's';

/// Exit code of a sandbox whose supervisor is gone: as if killed.
const ABANDONED: u8 = 137;

/// What the init watches.
#[derive(Debug)]
pub struct Watch<'a> {
    /// The program's pid, as seen here.
    pub program: u32,
    /// Where it says how it goes.
    pub status: &'a OwnedFd,
    /// First byte: go. End of file: the supervisor is gone.
    pub lifeline: &'a OwnedFd,
    /// One byte written here lets the program go.
    pub go: &'a OwnedFd,
    /// What the program's process says when it cannot become the program; end of file when it has.
    pub failure: &'a OwnedFd,
    /// SIGCHLD.
    pub signals: &'a OwnedFd,
    /// Whether the end of the lifeline ends the sandbox after go too.
    pub ends_with_parent: bool,
}

/// The init's loop. Allocates nothing and never returns.
pub fn watch(watch: &Watch<'_>) -> ! {
    let mut going = false;
    let mut supervised = true;
    let mut running = false;
    let mut stays = false;
    let mut ended = None;
    loop {
        // What is not waited for is left out whole: a closed pipe reports its end even when nothing is asked of it.
        let hearing = going && !running;
        let mut waiting = [
            PollFd::new(watch.signals, PollFlags::IN),
            PollFd::new(if hearing { watch.failure } else { watch.signals }, PollFlags::IN),
            PollFd::new(if supervised { watch.lifeline } else { watch.signals }, PollFlags::IN),
        ];
        match poll(&mut waiting, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(_) => sys::exit_now(125),
        }
        let [signals, failure, lifeline] = waiting.map(|it| !it.revents().is_empty());
        if lifeline && supervised {
            let mut bytes = [0; 16];
            match rustix::io::read(watch.lifeline, &mut bytes) {
                Ok(0) if ended.is_some() => sys::exit_now(ended.unwrap_or(ABANDONED)),
                Ok(0) if !going || watch.ends_with_parent => sys::exit_now(ABANDONED),
                Ok(0) => supervised = false,
                Ok(_) if !going && matches!(bytes.first(), Some(&GO | &GO_AND_STAY)) => {
                    going = true;
                    stays = bytes.first() == Some(&GO_AND_STAY);
                    let _told = rustix::io::write(watch.go, &[GO]);
                }
                Ok(_) | Err(_) => {}
            }
        }
        if failure && hearing {
            running = hear_failure(watch);
        }
        if signals {
            drain(watch.signals);
            while let Some(gone) = sys::reap() {
                // Once it has ended its number may be another's.
                if gone.pid != watch.program || ended.is_some() {
                    continue;
                }
                if !going {
                    sys::exit_now(125)
                }
                if !running {
                    hear_failure(watch);
                }
                say(watch, &Line::ended(gone.how, gone.cpu_us));
                let code = match gone.how {
                    Ended::Code(code) => code,
                    Ended::Signal(signal) => 128_u8.saturating_add(signal),
                };
                if !stays || !supervised {
                    sys::exit_now(code);
                }
                ended = Some(code);
            }
        }
    }
}

/// Reads what the program's process says: passes a failure on and ends, or says that the program runs.
fn hear_failure(watch: &Watch<'_>) -> bool {
    let mut bytes = [0; MESSAGE_BYTES_MAX];
    match rustix::io::read(watch.failure, &mut bytes) {
        Ok(0) => {
            say(watch, &Line::running());
            true
        }
        Ok(count) => {
            let line = bytes.get(..count).unwrap_or_default();
            let _told = rustix::io::write(watch.status, line);
            sys::exit_now(line.get(3).copied().unwrap_or(125))
        }
        Err(_) => false,
    }
}

fn say(watch: &Watch<'_>, line: &Line) {
    // A supervisor that is gone hears nothing; the program goes on or ends all the same.
    let _told = rustix::io::write(watch.status, line.as_bytes());
}

fn drain(signals: &OwnedFd) {
    let mut bytes = [0; 512];
    while rustix::io::read(signals, &mut bytes).is_ok_and(|it| it > 0) {}
}

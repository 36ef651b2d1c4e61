//! Signals to the supervisor, through one descriptor; no handler does work.

use std::os::fd::{AsFd, OwnedFd};

use nix::sys::signal::{SigSet, Signal};
use nix::sys::signalfd::{SfdFlags, SignalFd};

/// Signals that ask for an orderly end.
const END: [Signal; 3] = [Signal::SIGTERM, Signal::SIGINT, Signal::SIGHUP];

/// Blocks the signals that ask for an end, and SIGCHLD, and gives the descriptor they come on.
///
/// # Errors
/// As `sigprocmask(2)` and `signalfd(2)` fail.
pub(crate) fn open() -> nix::Result<OwnedFd> {
    let set: SigSet = END.into_iter().chain([Signal::SIGCHLD]).collect();
    set.thread_block()?;
    // A signalfd and an OwnedFd own the same descriptor the same way.
    let signals = SignalFd::with_flags(&set, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
    signals.as_fd().try_clone_to_owned().map_err(|e| nix::Error::from_raw(e.raw_os_error().unwrap_or(0)))
}

/// The name of the first signal to end that came, if one did; takes all that came.
#[must_use]
pub(crate) fn take(fd: impl AsFd) -> Option<&'static str> {
    let mut first = None;
    // `signalfd(2)`: each read gives whole structures, and the signal's number is the first field.
    let mut bytes = [0_u8; 128];
    while let Ok(128) = rustix::io::read(fd.as_fd(), &mut bytes) {
        let [a, b, c, d, ..] = bytes;
        let number = i32::from_ne_bytes([a, b, c, d]);
        let end = Signal::try_from(number).ok().filter(|signal| END.contains(signal));
        first = first.or_else(|| end.map(Signal::as_str));
    }
    first
}

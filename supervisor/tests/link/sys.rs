//! System calls no crate has a safe form for, as an attacker makes them.
#![expect(unsafe_code, reason = "system calls without a safe wrapper; each block says what the callee requires")]

use std::ffi::{c_int, c_long};
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;

/// A system call whose arguments are numbers.
pub(crate) fn raw(call: c_long, [a, b, c, d]: [c_long; 4]) -> io::Result<()> {
    // SAFETY: none of the calls made here with these arguments reads or writes this process's memory: where one takes an
    // address it is given null, with a length of zero.
    let answer = unsafe { libc::syscall(call, a, b, c, d, 0_i64, 0_i64) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// A terminal's command with a number of its own.
pub(crate) fn ioctl(terminal: &File, command: libc::Ioctl, number: &mut c_int) -> io::Result<()> {
    // SAFETY: both commands used read or write one int at the address given, which lives past the call.
    let answer = unsafe { libc::ioctl(terminal.as_raw_fd(), command, &raw mut *number) };
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

//! The raw calls of attacks; this suite's one file with unsafe code.
#![expect(unsafe_code, reason = "an attack is a system call no library would make; each block says what it requires")]

use std::ffi::{CStr, c_int, c_long};
use std::ptr;

/// `ptrace(2)`: a filter of the tracee's answered TRACE.
const EVENT_SECCOMP: c_int = 7;
/// What a probe's child exits with when its call came back without an error.
const WORKED: i32 = 200;
/// The same when its own filter could not be loaded.
const NO_FILTER: i32 = 250;

/// Makes a system call. A pointer in `args` is null, senseless on purpose, or of a value that outlives the call
/// ([`text`], [`pointer`]) and is as large as the call takes it to be.
pub(crate) fn raw(call: c_long, args: [u64; 6]) -> Result<i64, i32> {
    let [a, b, c, d, e, f] = args;
    // SAFETY: syscall passes numbers on; what the kernel does with those that are pointers is the caller's to know, as
    // above: it never writes where nothing was given, and a senseless pointer is answered EFAULT.
    let answer = unsafe { libc::syscall(call, a, b, c, d, e, f) };
    if answer < 0 { Err(errno()) } else { Ok(answer) }
}

/// A text as a call's argument.
pub(crate) fn text(it: &CStr) -> u64 {
    pointer_to(it.as_ptr())
}

/// A value as a call's argument.
pub(crate) fn pointer<T: ?Sized>(it: &T) -> u64 {
    pointer_to(ptr::from_ref(it).cast::<u8>())
}

/// The same where the call writes.
pub(crate) fn pointer_mut<T: ?Sized>(it: &mut T) -> u64 {
    pointer_to(ptr::from_mut(it).cast::<u8>())
}

fn pointer_to<T>(it: *const T) -> u64 {
    it.expose_provenance() as u64
}

pub(crate) fn errno() -> i32 {
    std::io::Error::last_os_error().raw_os_error().unwrap_or(0)
}

/// How a child ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Ended {
    Code(i32),
    /// The signal, and whether a core was dumped.
    Signal(i32, bool),
}

/// Does something in a child, which exits with what it answers. Only for a process with one thread.
pub(crate) fn in_child(act: impl FnOnce() -> i32) -> Result<Ended, i32> {
    match fork()? {
        0 => exit(act()),
        child => wait_for(child),
    }
}

/// `fork(2)`: 0 in the child. Only for a process with one thread.
pub(crate) fn fork() -> Result<i32, i32> {
    // SAFETY: fork takes nothing. The caller has one thread, so the child may do what any process may.
    let pid = unsafe { libc::fork() };
    if pid < 0 { Err(errno()) } else { Ok(pid) }
}

/// Ends this process without a destructor.
pub(crate) fn exit(code: i32) -> ! {
    // SAFETY: _exit takes a number and does not return.
    unsafe { libc::_exit(code) }
}

pub(crate) fn wait_for(child: i32) -> Result<Ended, i32> {
    let mut status: c_int = 0;
    loop {
        // SAFETY: waitpid writes one int at the place given, alive past the call.
        let answer = unsafe { libc::waitpid(child, &raw mut status, 0) };
        if answer < 0 {
            match errno() {
                libc::EINTR => continue,
                error => return Err(error),
            }
        }
        if libc::WIFSIGNALED(status) {
            return Ok(Ended::Signal(libc::WTERMSIG(status), libc::WCOREDUMP(status)));
        }
        if libc::WIFEXITED(status) {
            return Ok(Ended::Code(libc::WEXITSTATUS(status)));
        }
    }
}

/// Makes a call that returns twice, as `clone(2)` and `clone3(2)` without CLONE_VM do; the child ends at once.
pub(crate) fn forks(call: c_long, args: [u64; 6]) -> Result<i64, i32> {
    match raw(call, args)? {
        0 => exit(0),
        child => {
            wait_for(i32::try_from(child).unwrap_or(-1))?;
            Ok(child)
        }
    }
}

/// How far a call gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reached {
    /// Past every filter: the kernel would have done it.
    Kernel,
    /// A filter answered.
    Denied(i32),
    /// A filter ended the process.
    Killed(i32),
}

/// Whether a filter keeps a call from the kernel. The call is never made: a child adds a filter of its own that answers
/// TRACE for it, which any filter's error outranks (`seccomp(2)`), and is killed where it is traced.
pub(crate) fn reaches(call: c_long, args: [u64; 6]) -> Result<Reached, String> {
    let number = u32::try_from(call).map_err(|error| error.to_string())?;
    let child = match fork().map_err(|error| format!("fork: error {error}"))? {
        0 => {
            trace_me();
            if !trace_call(number) {
                exit(NO_FILTER)
            }
            exit(match raw(call, args) {
                Ok(_) => WORKED,
                Err(error) => error.min(WORKED - 1),
            })
        }
        child => child,
    };
    let mut signal = 0;
    let mut first = true;
    loop {
        let mut status: c_int = 0;
        // SAFETY: waitpid writes one int at the place given, alive past the call.
        if unsafe { libc::waitpid(child, &raw mut status, 0) } < 0 {
            return Err(format!("waitpid: error {}", errno()));
        }
        if libc::WIFEXITED(status) {
            return match libc::WEXITSTATUS(status) {
                WORKED => Ok(Reached::Kernel),
                NO_FILTER => Err("the child's own filter could not be loaded".to_owned()),
                error => Ok(Reached::Denied(error)),
            };
        }
        if libc::WIFSIGNALED(status) {
            return Ok(Reached::Killed(libc::WTERMSIG(status)));
        }
        if status >> 8 == (libc::SIGTRAP | (EVENT_SECCOMP << 8)) {
            // SAFETY: kill takes numbers; the child is ours and not yet waited for.
            unsafe { libc::kill(child, libc::SIGKILL) };
            wait_for(child).map_err(|error| format!("waitpid: error {error}"))?;
            return Ok(Reached::Kernel);
        }
        if first {
            first = false;
            let options = libc::PTRACE_O_TRACESECCOMP | libc::PTRACE_O_EXITKILL;
            // SAFETY: PTRACE_SETOPTIONS takes numbers; the child is stopped and traced by us.
            unsafe { libc::ptrace(libc::PTRACE_SETOPTIONS, child, 0, options) };
        } else {
            signal = libc::WSTOPSIG(status);
        }
        // SAFETY: PTRACE_CONT takes numbers; the child is stopped and traced by us.
        unsafe { libc::ptrace(libc::PTRACE_CONT, child, 0, signal) };
    }
}

fn trace_me() {
    // SAFETY: PTRACE_TRACEME reads none of its other arguments.
    unsafe { libc::ptrace(libc::PTRACE_TRACEME, 0, 0, 0) };
    // SAFETY: raise takes a number; the tracer sees the stop and lets this go on.
    unsafe { libc::raise(libc::SIGSTOP) };
}

/// Answers TRACE for one call and lets all others be.
fn trace_call(number: u32) -> bool {
    const LOAD: u16 = 0x20;
    const IF_EQUAL: u16 = 0x15;
    const RETURN: u16 = 0x06;
    const TRACE: u32 = 0x7ff0_0000;
    const ALLOW: u32 = 0x7fff_0000;
    let step = |code, jt, jf, k| libc::sock_filter { code, jt, jf, k };
    let mut program =
        [step(LOAD, 0, 0, 0), step(IF_EQUAL, 0, 1, number), step(RETURN, 0, 0, TRACE), step(RETURN, 0, 0, ALLOW)];
    let given = libc::sock_fprog { len: 4, filter: program.as_mut_ptr() };
    let on = raw(libc::SYS_prctl, [38, 1, 0, 0, 0, 0]); // PR_SET_NO_NEW_PRIVS
    on.is_ok() && raw(libc::SYS_seccomp, [1, 0, pointer(&given), 0, 0, 0]).is_ok()
}

/// `getpid` by the 32-bit entry of x86-64, in a child, which exits with 0 when the call ran.
#[cfg(target_arch = "x86_64")]
pub(crate) fn int80() -> Result<Ended, i32> {
    in_child(|| {
        let mut answer: u64 = 20; // getpid, by its 32-bit number
        // SAFETY: the call reads no memory and changes no register but the ones named.
        unsafe {
            std::arch::asm!("int 0x80", inout("rax") answer, out("r8") _, out("r9") _, out("r10") _, out("r11") _);
        }
        i32::from(answer != u64::from(std::process::id()))
    })
}

/// Becomes the leader of a session whose terminal is a new one of the host's, and keeps its other end open.
pub(crate) fn take_terminal() -> Result<(), i32> {
    // SAFETY: posix_openpt takes flags.
    let master = unsafe { libc::posix_openpt(libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) };
    if master < 0 {
        return Err(errno());
    }
    raw(libc::SYS_setsid, [0; 6])?;
    let unlock: c_int = 0;
    // SAFETY: TIOCSPTLCK reads one int, alive past the call.
    if unsafe { libc::ioctl(master, libc::TIOCSPTLCK, &raw const unlock) } < 0 {
        return Err(errno());
    }
    // SAFETY: TIOCGPTPEER takes flags and gives a descriptor.
    let slave = unsafe { libc::ioctl(master, libc::TIOCGPTPEER, libc::O_RDWR | libc::O_NOCTTY | libc::O_CLOEXEC) };
    if slave < 0 {
        return Err(errno());
    }
    // SAFETY: TIOCSCTTY takes a number.
    if unsafe { libc::ioctl(slave, libc::TIOCSCTTY, 0) } < 0 { Err(errno()) } else { Ok(()) }
}

/// Ends this process by SIGALRM so many seconds from now; what was left of an earlier alarm.
pub(crate) fn alarm(seconds: u64) -> u32 {
    // SAFETY: alarm takes a number; the signal's default is to end the process.
    unsafe { libc::alarm(u32::try_from(seconds).unwrap_or(u32::MAX)) }
}

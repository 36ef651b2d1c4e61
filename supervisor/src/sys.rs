//! The few calls no crate wraps, and the one change of identity: this package's one file with unsafe code.
#![expect(unsafe_code, reason = "clone3 like vfork needs a few instructions; each block says what the callee requires")]

use std::arch::asm;
use std::ffi::{CString, c_char, c_long};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;

use rustix::fs::Gid;
use rustix::process::getgroups;
use rustix::thread::set_thread_groups;
use supervisor::wire::accounts::Account;

/// What `clone3(2)` is asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Clone3<'a> {
    /// CLONE_NEW… flags.
    pub(crate) namespaces: u64,
    /// The cgroup v2 directory the child is born in.
    pub(crate) cgroup: Option<BorrowedFd<'a>>,
}

/// Starts `program` as a child without copying this process: the parent waits until the child has executed it.
///
/// Every descriptor without the close-on-exec flag is inherited. Answers the child's pid and pidfd.
///
/// # Errors
/// As `clone3(2)` and `execveat(2)` have them.
pub(crate) fn spawn(program: BorrowedFd<'_>, argv: &[CString], clone: Clone3<'_>) -> io::Result<(u32, OwnedFd)> {
    let mut texts: Vec<*const c_char> = argv.iter().map(|it| it.as_ptr()).collect();
    texts.push(ptr::null());
    let env: [*const c_char; 1] = [ptr::null()];
    let mut pidfd: i32 = -1;
    // SAFETY: clone_args is plain numbers, for which zero is "not asked".
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    let shared = libc::CLONE_VM | libc::CLONE_VFORK | libc::CLONE_PIDFD;
    args.flags = u64::from(shared.cast_unsigned()) | CLEAR_SIGNAL_HANDLERS | clone.namespaces;
    args.pidfd = ptr::from_mut(&mut pidfd).expose_provenance() as u64;
    args.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    if let Some(cgroup) = clone.cgroup {
        args.flags |= INTO_CGROUP;
        args.cgroup = u64::try_from(cgroup.as_raw_fd()).unwrap_or(0);
    }
    let mut failed: c_long = 0;
    let call = Call {
        args: &raw const args,
        program: c_long::from(program.as_raw_fd()),
        argv: texts.as_ptr(),
        env: env.as_ptr(),
        failed: &raw mut failed,
    };
    // SAFETY: `call` points to values that live past it: clone_args of the size it says, two lists of texts that end in a
    // null pointer, a place for one number. Only this thread is suspended by CLONE_VFORK; the supervisor has no other.
    let answer = unsafe { clone_and_exec(call) };
    if answer < 0 {
        return Err(io::Error::from_raw_os_error(i32::try_from(-answer).unwrap_or(libc::EIO)));
    }
    // SAFETY: from_raw_fd requires an open descriptor nobody else owns: clone3 has just made it (CLONE_PIDFD).
    let pidfd = unsafe { OwnedFd::from_raw_fd(pidfd) };
    if failed < 0 {
        // The child is gone with the exit code of a failed exec; it is reaped here, since nobody else knows of it.
        let options = rustix::process::WaitIdOptions::EXITED;
        let _reaped = rustix::process::waitid(rustix::process::WaitId::PidFd(pidfd_as(&pidfd)), options);
        return Err(io::Error::from_raw_os_error(i32::try_from(-failed).unwrap_or(libc::EIO)));
    }
    Ok((u32::try_from(answer).unwrap_or(0), pidfd))
}

fn pidfd_as(pidfd: &OwnedFd) -> BorrowedFd<'_> {
    std::os::fd::AsFd::as_fd(pidfd)
}

/// CLONE_CLEAR_SIGHAND: the child has no handler of ours, so none runs in our memory.
const CLEAR_SIGNAL_HANDLERS: u64 = 0x1_0000_0000;
/// CLONE_INTO_CGROUP.
const INTO_CGROUP: u64 = 0x2_0000_0000;
/// Exit code of a child that could not execute its program.
const EXEC_FAILED: i32 = 125;

#[derive(Clone, Copy)]
struct Call {
    args: *const libc::clone_args,
    program: c_long,
    argv: *const *const c_char,
    env: *const *const c_char,
    failed: *mut c_long,
}

/// clone3, then in the child execveat of `program` with an empty path. The child runs on the parent's stack and memory,
/// so between the two calls it uses registers only: that is why this is not a function call into libc.
#[cfg(target_arch = "x86_64")]
unsafe fn clone_and_exec(call: Call) -> c_long {
    let answer: c_long;
    // SAFETY: both system calls get what they require (the caller's promise). The child touches no stack; what it writes
    // is `failed` alone, while the parent is suspended; it ends in exec or exit_group, which ends only itself, since
    // without CLONE_THREAD it is a group of its own. rcx and r11 are what a system call overwrites.
    unsafe {
        asm!(
            "syscall",
            "test rax, rax",
            "jnz 2f",
            "mov rdi, r12",
            "mov rsi, r13",
            "mov eax, {execveat}",
            "syscall",
            "mov [r14], rax",
            "mov edi, {code}",
            "mov eax, {exit_group}",
            "syscall",
            "ud2",
            "2:",
            execveat = const libc::SYS_execveat,
            exit_group = const libc::SYS_exit_group,
            code = const EXEC_FAILED,
            inlateout("rax") libc::SYS_clone3 => answer,
            in("rdi") call.args,
            in("rsi") size_of::<libc::clone_args>(),
            in("rdx") call.argv,
            in("r10") call.env,
            in("r8") c_long::from(libc::AT_EMPTY_PATH),
            in("r12") call.program,
            in("r13") c"".as_ptr(),
            in("r14") call.failed,
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    answer
}

/// As above.
#[cfg(target_arch = "aarch64")]
unsafe fn clone_and_exec(call: Call) -> c_long {
    let answer: c_long;
    // SAFETY: as above; a system call changes x0 alone here.
    unsafe {
        asm!(
            "svc 0",
            "cbnz x0, 2f",
            "mov x0, x9",
            "mov x1, x10",
            "mov x8, {execveat}",
            "svc 0",
            "str x0, [x11]",
            "mov x0, {code}",
            "mov x8, {exit_group}",
            "svc 0",
            "brk 1",
            "2:",
            execveat = const libc::SYS_execveat,
            exit_group = const libc::SYS_exit_group,
            code = const EXEC_FAILED,
            inlateout("x0") call.args => answer,
            in("x1") size_of::<libc::clone_args>(),
            in("x2") call.argv,
            in("x3") call.env,
            in("x4") c_long::from(libc::AT_EMPTY_PATH),
            inlateout("x8") libc::SYS_clone3 => _,
            in("x9") call.program,
            in("x10") c"".as_ptr(),
            in("x11") call.failed,
            options(nostack),
        );
    }
    answer
}

/// Runs `look` with an account's file-system ids, no groups and no capability over files (decisions C-90): root lends
/// nobody its eyes. The supervisor has one thread, so nothing else sees the change.
///
/// # Errors
/// When the ids cannot be set. If they cannot be set back, this process ends: it would go on as somebody else.
pub(crate) fn with_eyes_of<T>(account: Account, look: impl FnOnce() -> T) -> io::Result<T> {
    let groups = getgroups()?;
    let back = Back(&groups);
    set_thread_groups(&[])?;
    // Leaving user 0 takes the DAC and other file capabilities from the effective set (capabilities(7)), unless
    // SECBIT_NO_SETUID_FIXUP is set; what counts is that they are gone.
    if !sandbox::sys::set_file_ids(account.uid, account.gid) || sees_all()? {
        return Err(io::Error::other("the account's file-system ids cannot be taken"));
    }
    let seen = look();
    drop(back);
    Ok(seen)
}

/// Whether this thread overrides file permissions.
fn sees_all() -> io::Result<bool> {
    use rustix::thread::CapabilitySet as Set;
    let held = rustix::thread::capabilities(None)?.effective;
    Ok(held.intersects(Set::DAC_OVERRIDE | Set::DAC_READ_SEARCH))
}

struct Back<'a>(&'a [Gid]);

impl Drop for Back<'_> {
    fn drop(&mut self) {
        if !sandbox::sys::set_file_ids(0, 0) || set_thread_groups(self.0).is_err() {
            std::process::abort();
        }
    }
}

//! The calls no crate wraps, one function each, safe to call; this package's one file with unsafe code.
#![expect(unsafe_code, reason = "system calls without a safe wrapper; each block says what the callee requires")]

use alloc::ffi::CString;
use alloc::vec::Vec;
use core::arch::asm;
use core::ffi::{c_char, c_int, c_long};
use core::mem::zeroed;
use core::ptr;

use rustix::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use rustix::io::Errno;

/// A system call as the kernel has it. The C library's own functions are of no use here: the cell is without that library,
/// whose start alone takes longer than all the cell does.
///
/// # Safety
/// What the call requires of its arguments.
#[cfg(target_arch = "x86_64")]
unsafe fn system_call(number: c_long, [a, b, c, d, e]: [usize; 5]) -> Result<usize, Errno> {
    let answer: isize;
    // SAFETY: the caller's promise; rcx and r11 are what a system call overwrites, and it uses no stack of ours.
    unsafe {
        asm!("syscall", inlateout("rax") number => answer, in("rdi") a, in("rsi") b, in("rdx") c, in("r10") d,
            in("r8") e, in("r9") 0, lateout("rcx") _, lateout("r11") _, options(nostack));
    }
    answered(answer)
}

/// As above.
///
/// # Safety
/// What the call requires of its arguments.
#[cfg(target_arch = "aarch64")]
unsafe fn system_call(number: c_long, [a, b, c, d, e]: [usize; 5]) -> Result<usize, Errno> {
    let answer: isize;
    // SAFETY: the caller's promise; x0 alone is overwritten by a system call.
    unsafe {
        asm!("svc 0", in("x8") number, inlateout("x0") a => answer, in("x1") b, in("x2") c, in("x3") d, in("x4") e,
            in("x5") 0, options(nostack));
    }
    answered(answer)
}

fn answered(answer: isize) -> Result<usize, Errno> {
    // Errors are the last page of addresses (syscall(2)).
    match usize::try_from(answer) {
        Ok(answer) => Ok(answer),
        Err(_) => Err(Errno::from_raw_os_error(i32::try_from(answer.wrapping_neg()).unwrap_or(libc::EIO))),
    }
}

fn of<T>(it: *const T) -> usize {
    it.expose_provenance()
}

fn number(it: c_int) -> usize {
    // As the C library widens what it passes on: the kernel takes the low half.
    it.cast_unsigned() as usize
}

fn fd(it: BorrowedFd<'_>) -> usize {
    number(it.as_raw_fd())
}

fn descriptor(answer: usize) -> Result<OwnedFd, Errno> {
    let number = c_int::try_from(answer).ok().ok_or(Errno::BADF)?;
    // SAFETY: from_raw_fd requires an open descriptor nobody else owns: the kernel has just made this one for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The descriptor of this number, which the supervisor left open for the cell. Each number is to be taken once.
///
/// # Errors
/// EBADF when it is not open.
pub fn inherited(number: u32) -> Result<OwnedFd, Errno> {
    let number = c_int::try_from(number).ok().ok_or(Errno::BADF)?;
    flags_of(number)?;
    // SAFETY: from_raw_fd requires an open descriptor nobody else owns. It is open (above), and a program that has just
    // been executed and takes each number once has no other owner for it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// A standard stream: 0, 1 or 2. One that is closed is EBADF to whoever uses it.
#[must_use]
pub fn stream(number: c_int) -> BorrowedFd<'static> {
    // SAFETY: borrow_raw requires that it stays open, so that no other file takes its place: nothing here closes or opens
    // one of the three but by putting another file there on purpose (`onto`).
    unsafe { BorrowedFd::borrow_raw(number) }
}

fn flags_of(descriptor: c_int) -> Result<c_int, Errno> {
    // SAFETY: F_GETFD reads the descriptor table only, whatever the number.
    let flags = unsafe { system_call(libc::SYS_fcntl, [number(descriptor), number(libc::F_GETFD), 0, 0, 0]) }?;
    Ok(c_int::try_from(flags).unwrap_or(0))
}

/// `mount_setattr(2)` on the mount `tree` is the root of.
///
/// # Errors
/// As the call has them.
pub fn mount_setattr(tree: BorrowedFd<'_>, recursive: bool, set: u64, propagation: u64) -> Result<(), Errno> {
    let attr = libc::mount_attr { attr_set: set, attr_clr: 0, propagation, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: mount_setattr reads `attr` for the size given and keeps no pointer. `tree` is open for the length of the
    // borrow; the path is empty with AT_EMPTY_PATH, so nothing is resolved.
    unsafe {
        let arguments = [fd(tree), of(c"".as_ptr()), number(flags), of(&raw const attr), size_of::<libc::mount_attr>()];
        system_call(libc::SYS_mount_setattr, arguments)
    }
    .map(|_| ())
}

/// Makes a child, in a user namespace of its own when asked to, as `fork` does: none in the child, its pid in the parent.
///
/// Only for a process with one thread. The child may do anything a forked one may, and shares no memory.
///
/// # Errors
/// As `clone3(2)` has them; ENOSPC when `user.max_user_namespaces` is used up.
pub fn fork(user_namespace: bool) -> Result<Option<u32>, Errno> {
    // SAFETY: clone_args is plain numbers, for which zero is "not asked".
    let mut args: libc::clone_args = unsafe { zeroed() };
    args.flags = if user_namespace { u64::from(libc::CLONE_NEWUSER.cast_unsigned()) } else { 0 };
    args.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    // SAFETY: clone3 reads `args` for the size given. Without CLONE_VM the child runs on a copy of this stack, so both
    // returns are ordinary; with one thread no lock is held by a thread the child lacks.
    let pid = unsafe { system_call(libc::SYS_clone3, [of(&raw const args), size_of::<libc::clone_args>(), 0, 0, 0]) }?;
    Ok(u32::try_from(pid).ok().filter(|it| *it != 0))
}

/// Landlock: a ruleset of these file rights and scopes, closed by exec.
///
/// # Errors
/// As `landlock_create_ruleset(2)` has them; EINVAL for what this kernel does not know.
pub fn landlock_ruleset(files: u64, scoped: u64) -> Result<OwnedFd, Errno> {
    #[repr(C)]
    struct Ruleset {
        handled_access_fs: u64,
        handled_access_net: u64,
        scoped: u64,
    }
    let asked = Ruleset { handled_access_fs: files, handled_access_net: 0, scoped };
    // SAFETY: landlock_create_ruleset reads `asked` for the size given and keeps no pointer. A kernel that knows a shorter
    // struct asks that the rest be zero.
    let made = unsafe {
        system_call(libc::SYS_landlock_create_ruleset, [of(&raw const asked), size_of::<Ruleset>(), 0, 0, 0])
    };
    descriptor(made?)
}

/// Landlock: allows these rights for `what`, and for everything beneath it.
///
/// # Errors
/// As `landlock_add_rule(2)` has them; EINVAL for a folder's right on a file.
pub fn landlock_allow(ruleset: BorrowedFd<'_>, what: BorrowedFd<'_>, rights: u64) -> Result<(), Errno> {
    #[repr(C, packed)]
    struct Beneath {
        allowed_access: u64,
        parent_fd: c_int,
    }
    const PATH_BENEATH: c_int = 1;
    let rule = Beneath { allowed_access: rights, parent_fd: what.as_raw_fd() };
    // SAFETY: for this kind of rule landlock_add_rule reads one packed struct of a u64 and an int, which lives past the
    // call; both descriptors are open for the length of their borrows.
    unsafe { system_call(libc::SYS_landlock_add_rule, [fd(ruleset), number(PATH_BENEATH), of(&raw const rule), 0, 0]) }
        .map(|_| ())
}

/// Landlock: this thread and what it starts are held by the ruleset from here on.
///
/// # Errors
/// As `landlock_restrict_self(2)` has them.
pub fn landlock_restrict(ruleset: BorrowedFd<'_>) -> Result<(), Errno> {
    // SAFETY: landlock_restrict_self takes an open ruleset and flags; it reads no memory.
    unsafe { system_call(libc::SYS_landlock_restrict_self, [fd(ruleset), 0, 0, 0, 0]) }.map(|_| ())
}

/// The highest Landlock ABI of this kernel, 0 for none.
#[must_use]
pub fn landlock_abi() -> u32 {
    const VERSION: c_int = 1;
    // SAFETY: with no ruleset, size 0 and the version flag the call reads no memory (landlock_create_ruleset(2)).
    let abi = unsafe { system_call(libc::SYS_landlock_create_ruleset, [0, 0, number(VERSION), 0, 0]) };
    abi.ok().and_then(|it| u32::try_from(it).ok()).unwrap_or(0)
}

/// Most instructions of one filter.
pub const FILTER_INSTRUCTIONS_MAX: usize = 1024;

/// Loads a system call filter: BPF instructions of 8 bytes each.
///
/// # Errors
/// As `seccomp(2)` has them.
pub fn load_filter(program: &[u8]) -> Result<(), Errno> {
    // SECCOMP_SET_MODE_FILTER.
    const FILTER_MODE: usize = 1;
    const EMPTY: libc::sock_filter = libc::sock_filter { code: 0, jt: 0, jf: 0, k: 0 };
    let mut instructions = [EMPTY; FILTER_INSTRUCTIONS_MAX];
    let count = program.len() / 8;
    if count > FILTER_INSTRUCTIONS_MAX {
        return Err(Errno::INVAL);
    }
    for (to, from) in instructions.iter_mut().zip(program.chunks_exact(8)) {
        if let [c0, c1, jt, jf, k0, k1, k2, k3] = *from {
            let (code, k) = (u16::from_le_bytes([c0, c1]), u32::from_le_bytes([k0, k1, k2, k3]));
            *to = libc::sock_filter { code, jt, jf, k };
        }
    }
    let length = u16::try_from(count).ok().ok_or(Errno::INVAL)?;
    let given = libc::sock_fprog { len: length, filter: instructions.as_mut_ptr() };
    // SAFETY: seccomp reads `len` instructions at `filter`, which live past the call, and writes nothing there.
    unsafe { system_call(libc::SYS_seccomp, [FILTER_MODE, 0, of(&raw const given), 0, 0]) }.map(|_| ())
}

/// Joins a new session keyring (`keyctl(2)`). A kernel without keyrings has none to inherit.
///
/// # Errors
/// As the call has them.
pub fn keyring_of_its_own() -> Result<(), Errno> {
    const JOIN_SESSION_KEYRING: c_int = 1;
    // SAFETY: with a null name the call makes an anonymous keyring and reads no memory.
    match unsafe { system_call(libc::SYS_keyctl, [number(JOIN_SESSION_KEYRING), 0, 0, 0, 0]) } {
        Err(Errno::NOSYS) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// The serial number of the session keyring (`keyctl(2)`); none where the kernel has no keyrings.
#[must_use]
pub fn session_keyring() -> Option<i32> {
    const GET_KEYRING_ID: c_int = 0;
    const SESSION_KEYRING: c_int = -3;
    // SAFETY: the call takes numbers and reads no memory; the last says that none is to be made.
    let serial =
        unsafe { system_call(libc::SYS_keyctl, [number(GET_KEYRING_ID), number(SESSION_KEYRING), 0, 0, 0]) }.ok()?;
    i32::try_from(serial).ok()
}

/// Whether a descriptor of this number is open and stays so across exec.
#[must_use]
pub fn survives_exec(number: c_int) -> bool {
    flags_of(number).is_ok_and(|flags| flags & libc::FD_CLOEXEC == 0)
}

/// Bytes of the kernel's signal sets.
const SIGNAL_SET_BYTES: usize = 8;

/// A disposition without flags and mask: the kernel's own struct, whose first word is the handler, and whose 32 bytes
/// cover every architecture's.
fn disposition(signal: c_int, handler: usize) -> Result<(), Errno> {
    let given = [handler, 0, 0, 0];
    // SAFETY: rt_sigaction reads one kernel sigaction (at most 32 bytes) and writes none back. The handler is the default
    // or none, so nothing of ours is ever called.
    unsafe { system_call(libc::SYS_rt_sigaction, [number(signal), of(given.as_ptr()), 0, SIGNAL_SET_BYTES, 0]) }
        .map(|_| ())
}

/// A pipe whose reader is gone is an error of the write, and ends nobody.
///
/// # Errors
/// As `rt_sigaction(2)` has them.
pub fn outlive_broken_pipes() -> Result<(), Errno> {
    disposition(libc::SIGPIPE, libc::SIG_IGN)
}

/// Every signal's disposition becomes the default, and none is blocked.
///
/// # Errors
/// As `rt_sigprocmask(2)` has them.
pub fn reset_signals() -> Result<(), Errno> {
    const SIGNALS: c_int = 64;
    for signal in 1..=SIGNALS {
        // SIGKILL's and SIGSTOP's refusal is expected; what was not reset is found by what is measured.
        let _refused = disposition(signal, libc::SIG_DFL);
    }
    mask(libc::SIG_SETMASK, 0)
}

fn mask(how: c_int, set: u64) -> Result<(), Errno> {
    // SAFETY: rt_sigprocmask reads the 8 bytes of the set and writes none back.
    unsafe { system_call(libc::SYS_rt_sigprocmask, [number(how), of(&raw const set), 0, SIGNAL_SET_BYTES, 0]) }
        .map(|_| ())
}

/// Blocks these signals and gives a descriptor that is readable when one waits.
///
/// # Errors
/// As `signalfd(2)` has them.
pub fn signals_as_descriptor(signals: &[c_int]) -> Result<OwnedFd, Errno> {
    let set = signals.iter().fold(0_u64, |all, signal| all | 1 << (signal - 1));
    mask(libc::SIG_BLOCK, set)?;
    let flags = number(libc::SFD_CLOEXEC | libc::SFD_NONBLOCK);
    // SAFETY: signalfd4 reads the 8 bytes of the set; -1 asks for a new descriptor.
    let made =
        unsafe { system_call(libc::SYS_signalfd4, [number(-1), of(&raw const set), SIGNAL_SET_BYTES, flags, 0]) };
    descriptor(made?)
}

/// Brings the loopback interface of this network namespace up.
///
/// # Errors
/// As `socket(2)` and `netdevice(7)` have them.
pub fn loopback_up() -> Result<(), Errno> {
    // SIOCSIFFLAGS.
    const SET_FLAGS: usize = 0x8914;
    let kind = number(libc::SOCK_DGRAM | libc::SOCK_CLOEXEC);
    // SAFETY: socket takes numbers only.
    let socket = descriptor(unsafe { system_call(libc::SYS_socket, [number(libc::AF_INET), kind, 0, 0, 0]) }?)?;
    // SAFETY: ifreq is plain bytes and numbers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(0);
    // SAFETY: SIOCSIFFLAGS reads one ifreq with a name that ends in a zero byte, and writes nothing.
    unsafe { system_call(libc::SYS_ioctl, [number(socket.as_raw_fd()), SET_FLAGS, of(&raw const request), 0, 0]) }
        .map(|_| ())
}

/// Makes `stream` name what `from` names, open across exec. For 0, 1 and 2, which no `OwnedFd` of the cell holds.
///
/// # Errors
/// As `dup3(2)` has them; EINVAL when it is that number already, which nothing here owns.
pub fn onto(from: BorrowedFd<'_>, stream: c_int) -> Result<(), Errno> {
    // SAFETY: dup3 takes numbers only; what it closes is one of the standard streams, which nothing here owns.
    unsafe { system_call(libc::SYS_dup3, [fd(from), number(stream), 0, 0, 0]) }.map(|_| ())
}

/// The highest descriptor there can be.
const LAST: usize = u32::MAX as usize;

/// Marks every descriptor from 3 on as closed by exec.
///
/// # Errors
/// As `close_range(2)` has them.
pub fn only_streams_survive() -> Result<(), Errno> {
    const CLOSE_ON_EXEC: c_int = 4;
    // SAFETY: with CLOSE_RANGE_CLOEXEC nothing is closed now, so no owned descriptor loses what it names.
    unsafe { system_call(libc::SYS_close_range, [3, LAST, number(CLOSE_ON_EXEC), 0, 0]) }.map(|_| ())
}

/// Closes every descriptor but `keep`, whose owners go on; the owners of all others must be forgotten, not dropped.
///
/// # Errors
/// As `close_range(2)` has them.
pub fn close_all_but(keep: &[BorrowedFd<'_>]) -> Result<(), Errno> {
    let mut kept: [u32; 8] = [u32::MAX; 8];
    for (to, from) in kept.iter_mut().zip(keep) {
        *to = u32::try_from(from.as_raw_fd()).unwrap_or(u32::MAX);
    }
    kept.sort_unstable();
    let mut first = 0;
    for number in kept {
        if number > first {
            // SAFETY: close_range takes numbers only. What is closed is used no more: the init's loop, which follows and
            // never returns, touches only what is kept.
            unsafe {
                system_call(libc::SYS_close_range, [first as usize, number.saturating_sub(1) as usize, 0, 0, 0])
            }?;
        }
        if number == u32::MAX {
            break;
        }
        first = number + 1;
    }
    Ok(())
}

/// Gives back all memory that was ever allocated. Unsafe, since nothing that lies in it may be used afterwards.
pub type Forget = unsafe fn();

/// Carries it out.
pub fn forget(forget: Forget) {
    // SAFETY: the init's loop, which follows and never returns, touches only what lies on the stack.
    unsafe { forget() }
}

/// A child that has ended.
#[derive(Debug, Clone, Copy)]
pub struct Gone {
    /// Its pid.
    pub pid: u32,
    /// Its exit code, or the signal that ended it.
    pub how: crate::status::Ended,
    /// Processor time of it alone, microseconds: what RLIMIT_CPU counts. `wait4`'s own number holds its children's too,
    /// and would make a kill from elsewhere look like a limit of its own (decisions C-35).
    pub cpu_us: u64,
}

/// Takes one child that has ended, if there is one (`waitid(2)` with WNOHANG, then `wait4(2)`).
#[must_use]
pub fn reap() -> Option<Gone> {
    // P_ALL.
    const ANY: usize = 0;
    // SAFETY: siginfo_t is plain numbers, for which zero is valid.
    let mut about: libc::siginfo_t = unsafe { zeroed() };
    let look = number(libc::WEXITED | libc::WNOHANG | libc::WNOWAIT);
    // SAFETY: waitid writes one siginfo_t at the place given, which lives past the call; the child stays to be waited for,
    // and a null rusage is not written.
    unsafe { system_call(libc::SYS_waitid, [ANY, 0, of(&raw mut about), look, 0]) }.ok()?;
    // SAFETY: after waitid the fields are those of a SIGCHLD, or all zero when there was no child to tell of.
    let pid = unsafe { about.si_pid() };
    if pid <= 0 {
        return None;
    }
    let cpu_us = processor_time_us(pid);
    let mut status: c_int = 0;
    // SAFETY: wait4 writes one int at the place given, alive past the call; a null rusage is not written.
    let gone = unsafe { system_call(libc::SYS_wait4, [number(pid), of(&raw mut status), number(libc::WNOHANG), 0, 0]) };
    let pid = u32::try_from(gone.ok()?).ok().filter(|it| *it > 0)?;
    let how = if libc::WIFSIGNALED(status) {
        crate::status::Ended::Signal(u8::try_from(libc::WTERMSIG(status)).unwrap_or(u8::MAX))
    } else {
        crate::status::Ended::Code(u8::try_from(libc::WEXITSTATUS(status)).unwrap_or(u8::MAX))
    };
    Some(Gone { pid, how, cpu_us })
}

/// The processor time of a process, its children's not among it; of one that has ended too, until it is waited for.
fn processor_time_us(pid: c_int) -> u64 {
    // CPUCLOCK_SCHED of a process: how the kernel's clock ids name another's clock (clock_getcpuclockid(3)).
    const PROCESS_TIME: c_int = 2;
    let clock = (!pid << 3) | PROCESS_TIME;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: clock_gettime writes one timespec at the place given, which lives past the call.
    if unsafe { system_call(libc::SYS_clock_gettime, [number(clock), of(&raw mut time), 0, 0, 0]) }.is_err() {
        return 0;
    }
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec / 1000).unwrap_or(0)
}

/// Texts as `execve(2)` takes them: pointers, the last one null. Made before the second clone, since it allocates.
#[derive(Debug)]
pub struct Texts<'a> {
    pointers: Vec<*const c_char>,
    texts: core::marker::PhantomData<&'a [CString]>,
}

impl<'a> Texts<'a> {
    /// For these texts.
    #[must_use]
    pub fn new(texts: &'a [CString]) -> Self {
        let pointers = texts.iter().map(|it| it.as_ptr()).chain([ptr::null()]).collect();
        Self { pointers, texts: core::marker::PhantomData }
    }
}

/// `execve(2)`: comes back only with why not.
#[must_use]
pub fn execve(path: &CString, argv: &Texts<'_>, env: &Texts<'_>) -> Errno {
    // SAFETY: execve reads a text that ends in a zero byte and two lists of such texts that end in a null pointer: that is
    // what a CString and `Texts` are, and the borrow keeps both alive.
    let answer = unsafe {
        let arguments = [of(path.as_ptr()), of(argv.pointers.as_ptr()), of(env.pointers.as_ptr()), 0, 0];
        system_call(libc::SYS_execve, arguments)
    };
    answer.err().unwrap_or(Errno::IO)
}

/// Sets the ids file access is decided by, and says whether both took.
#[must_use]
pub fn set_file_ids(uid: u32, gid: u32) -> bool {
    let now = |call: c_long, id: u32| {
        let set = |id: u32| {
            // SAFETY: setfsuid and setfsgid take a number, change this thread only and answer the former id.
            unsafe { system_call(call, [id as usize, 0, 0, 0, 0]) }
        };
        // An id of -1 is never valid, so the second only asks.
        let _former = set(id);
        set(u32::MAX)
    };
    // The group first: it cannot be changed once the user is not root.
    let in_order = |uid_first: bool| {
        if uid_first {
            let user = now(libc::SYS_setfsuid, uid);
            (user, now(libc::SYS_setfsgid, gid))
        } else {
            let group = now(libc::SYS_setfsgid, gid);
            (now(libc::SYS_setfsuid, uid), group)
        }
    };
    let (user, group) = in_order(uid == 0);
    user == Ok(uid as usize) && group == Ok(gid as usize)
}

/// Ends this process now: no destructor, no buffer flushed.
pub fn exit_now(code: u8) -> ! {
    loop {
        // SAFETY: exit_group takes a number and does not return.
        let _never = unsafe { system_call(libc::SYS_exit_group, [usize::from(code), 0, 0, 0, 0]) };
    }
}

/// Unshares namespaces; `flags` are CLONE_NEW… ones.
///
/// # Errors
/// As `unshare(2)` has them.
pub fn unshare(flags: c_int) -> Result<(), Errno> {
    let namespaces = libc::CLONE_NEWCGROUP | libc::CLONE_NEWNET | libc::CLONE_NEWUTS;
    // SAFETY: unshare takes a number. Namespaces alone are unshared, so memory and descriptors stay as Rust knows them.
    unsafe { system_call(libc::SYS_unshare, [number(flags & namespaces), 0, 0, 0, 0]) }.map(|_| ())
}

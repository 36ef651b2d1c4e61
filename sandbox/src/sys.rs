//! The calls no crate wraps, one function each, safe to call; this package's one file with unsafe code.
#![expect(unsafe_code, reason = "system calls without a safe wrapper; each block says what the callee requires")]

use std::ffi::{CString, c_char, c_int, c_long, c_void};
use std::io;
use std::os::fd::{AsRawFd as _, BorrowedFd, FromRawFd as _, OwnedFd};
use std::ptr;

fn cvt(answer: c_long) -> io::Result<c_long> {
    if answer < 0 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

fn descriptor(answer: c_long) -> io::Result<OwnedFd> {
    let number = c_int::try_from(answer).ok().ok_or(io::ErrorKind::InvalidData)?;
    // SAFETY: from_raw_fd requires an open descriptor nobody else owns: the kernel has just made this one for us.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// The descriptor of this number, which the supervisor left open for the cell. Each number is to be taken once.
///
/// # Errors
/// EBADF when it is not open.
pub fn inherited(number: u32) -> io::Result<OwnedFd> {
    let number = c_int::try_from(number).ok().ok_or(io::Error::from_raw_os_error(libc::EBADF))?;
    // SAFETY: F_GETFD reads the descriptor table only, whatever the number.
    cvt(unsafe { libc::fcntl(number, libc::F_GETFD) }.into())?;
    // SAFETY: from_raw_fd requires an open descriptor nobody else owns. It is open (above), and a program that has just
    // been executed and takes each number once has no other owner for it.
    Ok(unsafe { OwnedFd::from_raw_fd(number) })
}

/// `mount_setattr(2)` on the mount `tree` is the root of.
///
/// # Errors
/// As the call has them.
pub fn mount_setattr(tree: BorrowedFd<'_>, recursive: bool, set: u64, propagation: u64) -> io::Result<()> {
    let attr = libc::mount_attr { attr_set: set, attr_clr: 0, propagation, userns_fd: 0 };
    let flags = libc::AT_EMPTY_PATH | if recursive { libc::AT_RECURSIVE } else { 0 };
    // SAFETY: mount_setattr reads `attr` for the size given and keeps no pointer. `tree` is open for the length of the
    // borrow; the path is empty with AT_EMPTY_PATH, so nothing is resolved.
    cvt(unsafe {
        libc::syscall(
            libc::SYS_mount_setattr,
            tree.as_raw_fd(),
            c"".as_ptr(),
            flags,
            &raw const attr,
            size_of::<libc::mount_attr>(),
        )
    })?;
    Ok(())
}

/// Makes a child, in a user namespace of its own when asked to, as `fork` does: none in the child, its pid in the parent.
///
/// Only for a process with one thread. The child may do anything a forked one may, and shares no memory.
///
/// # Errors
/// As `clone3(2)` has them; ENOSPC when `user.max_user_namespaces` is used up.
pub fn fork(user_namespace: bool) -> io::Result<Option<u32>> {
    // SAFETY: clone_args is plain numbers, for which zero is "not asked".
    let mut args: libc::clone_args = unsafe { std::mem::zeroed() };
    args.flags = if user_namespace { u64::from(libc::CLONE_NEWUSER.cast_unsigned()) } else { 0 };
    args.exit_signal = u64::from(libc::SIGCHLD.cast_unsigned());
    // SAFETY: clone3 reads `args` for the size given. Without CLONE_VM the child runs on a copy of this stack, so both
    // returns are ordinary; with one thread no lock is held by a thread the child lacks.
    let pid = cvt(unsafe { libc::syscall(libc::SYS_clone3, &raw const args, size_of::<libc::clone_args>()) })?;
    Ok(u32::try_from(pid).ok().filter(|it| *it != 0))
}

/// Landlock: a ruleset of these file rights and scopes, closed by exec.
///
/// # Errors
/// As `landlock_create_ruleset(2)` has them; EINVAL for what this kernel does not know.
pub fn landlock_ruleset(files: u64, scoped: u64) -> io::Result<OwnedFd> {
    #[repr(C)]
    struct Ruleset {
        handled_access_fs: u64,
        handled_access_net: u64,
        scoped: u64,
    }
    let asked = Ruleset { handled_access_fs: files, handled_access_net: 0, scoped };
    // SAFETY: landlock_create_ruleset reads `asked` for the size given and keeps no pointer. A kernel that knows a shorter
    // struct asks that the rest be zero.
    let made = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, &raw const asked, size_of::<Ruleset>(), 0) };
    descriptor(cvt(made)?)
}

/// Landlock: allows these rights for `what`, and for everything beneath it.
///
/// # Errors
/// As `landlock_add_rule(2)` has them; EINVAL for a folder's right on a file.
pub fn landlock_allow(ruleset: BorrowedFd<'_>, what: BorrowedFd<'_>, rights: u64) -> io::Result<()> {
    #[repr(C, packed)]
    struct Beneath {
        allowed_access: u64,
        parent_fd: c_int,
    }
    const PATH_BENEATH: c_int = 1;
    let rule = Beneath { allowed_access: rights, parent_fd: what.as_raw_fd() };
    // SAFETY: for this kind of rule landlock_add_rule reads one packed struct of a u64 and an int, which lives past the
    // call; both descriptors are open for the length of their borrows.
    cvt(unsafe { libc::syscall(libc::SYS_landlock_add_rule, ruleset.as_raw_fd(), PATH_BENEATH, &raw const rule, 0) })?;
    Ok(())
}

/// Landlock: this thread and what it starts are held by the ruleset from here on.
///
/// # Errors
/// As `landlock_restrict_self(2)` has them.
pub fn landlock_restrict(ruleset: BorrowedFd<'_>) -> io::Result<()> {
    // SAFETY: landlock_restrict_self takes an open ruleset and flags; it reads no memory.
    cvt(unsafe { libc::syscall(libc::SYS_landlock_restrict_self, ruleset.as_raw_fd(), 0) })?;
    Ok(())
}

/// The highest Landlock ABI of this kernel, 0 for none.
#[must_use]
pub fn landlock_abi() -> u32 {
    const VERSION: c_int = 1;
    // SAFETY: with no ruleset, size 0 and the version flag the call reads no memory (landlock_create_ruleset(2)).
    let abi = unsafe { libc::syscall(libc::SYS_landlock_create_ruleset, ptr::null::<c_void>(), 0, VERSION) };
    u32::try_from(abi).unwrap_or(0)
}

/// Most instructions of one filter.
pub const FILTER_INSTRUCTIONS_MAX: usize = 1024;

/// Loads a system call filter: BPF instructions of 8 bytes each.
///
/// # Errors
/// As `seccomp(2)` has them.
pub fn load_filter(program: &[u8]) -> io::Result<()> {
    const EMPTY: libc::sock_filter = libc::sock_filter { code: 0, jt: 0, jf: 0, k: 0 };
    let mut instructions = [EMPTY; FILTER_INSTRUCTIONS_MAX];
    let count = program.len() / 8;
    if count > FILTER_INSTRUCTIONS_MAX {
        return Err(io::ErrorKind::InvalidInput.into());
    }
    for (to, from) in instructions.iter_mut().zip(program.chunks_exact(8)) {
        if let [c0, c1, jt, jf, k0, k1, k2, k3] = *from {
            let (code, k) = (u16::from_le_bytes([c0, c1]), u32::from_le_bytes([k0, k1, k2, k3]));
            *to = libc::sock_filter { code, jt, jf, k };
        }
    }
    let length = u16::try_from(count).ok().ok_or(io::ErrorKind::InvalidInput)?;
    let given = libc::sock_fprog { len: length, filter: instructions.as_mut_ptr() };
    // SAFETY: seccomp reads `len` instructions at `filter`, which live past the call, and writes nothing there.
    let answer = unsafe { libc::syscall(libc::SYS_seccomp, libc::SECCOMP_SET_MODE_FILTER, 0, &raw const given) };
    cvt(answer)?;
    Ok(())
}

/// Joins a new session keyring (`keyctl(2)`). A kernel without keyrings has none to inherit.
///
/// # Errors
/// As the call has them.
pub fn keyring_of_its_own() -> io::Result<()> {
    const JOIN_SESSION_KEYRING: c_int = 1;
    // SAFETY: with a null name the call makes an anonymous keyring and reads no memory.
    match cvt(unsafe { libc::syscall(libc::SYS_keyctl, JOIN_SESSION_KEYRING, ptr::null::<c_char>()) }) {
        Err(error) if error.raw_os_error() == Some(libc::ENOSYS) => Ok(()),
        other => other.map(|_| ()),
    }
}

/// The serial number of the session keyring (`keyctl(2)`); none where the kernel has no keyrings.
#[must_use]
pub fn session_keyring() -> Option<i32> {
    const GET_KEYRING_ID: c_int = 0;
    const SESSION_KEYRING: c_int = -3;
    // SAFETY: the call takes numbers and reads no memory; the last says that none is to be made.
    let serial = cvt(unsafe { libc::syscall(libc::SYS_keyctl, GET_KEYRING_ID, SESSION_KEYRING, 0) }).ok()?;
    i32::try_from(serial).ok()
}

/// Whether a descriptor of this number is open and stays so across exec.
#[must_use]
pub fn survives_exec(number: c_int) -> bool {
    // SAFETY: F_GETFD reads the descriptor table only, whatever the number.
    let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
    flags >= 0 && flags & libc::FD_CLOEXEC == 0
}

/// Every signal's disposition becomes the default, and none is blocked.
///
/// # Errors
/// As `rt_sigprocmask(2)` has them.
pub fn reset_signals() -> io::Result<()> {
    const SIGNALS: c_int = 64;
    const KERNEL_SET_BYTES: usize = 8;
    // The kernel's own struct, all zero: SIG_DFL, no flags, empty mask; 32 bytes cover every architecture's.
    let default = [0_u64; 4];
    for signal in 1..=SIGNALS {
        // SAFETY: rt_sigaction reads one kernel sigaction (at most 32 bytes) from `default`, and writes none back. libc's
        // own call is of no use: it keeps signals 32 and 33 to itself. SIGKILL's and SIGSTOP's refusal is expected.
        unsafe {
            libc::syscall(libc::SYS_rt_sigaction, signal, default.as_ptr(), ptr::null_mut::<c_void>(), KERNEL_SET_BYTES)
        };
    }
    let none = 0_u64;
    // SAFETY: rt_sigprocmask reads the 8 bytes of the set and writes none back.
    cvt(unsafe {
        libc::syscall(
            libc::SYS_rt_sigprocmask,
            libc::SIG_SETMASK,
            &raw const none,
            ptr::null_mut::<c_void>(),
            KERNEL_SET_BYTES,
        )
    })?;
    Ok(())
}

/// Blocks these signals and gives a descriptor that is readable when one waits.
///
/// # Errors
/// As `signalfd(2)` has them.
pub fn signals_as_descriptor(signals: &[c_int]) -> io::Result<OwnedFd> {
    // SAFETY: sigset_t is plain bits; sigemptyset makes it defined whatever it was.
    let mut set: libc::sigset_t = unsafe { std::mem::zeroed() };
    for signal in signals {
        // SAFETY: sigaddset writes within the set given; an unknown number is refused without effect.
        unsafe { libc::sigaddset(&raw mut set, *signal) };
    }
    // SAFETY: sigprocmask reads the set and writes none back.
    cvt(unsafe { libc::sigprocmask(libc::SIG_BLOCK, &raw const set, ptr::null_mut()) }.into())?;
    // SAFETY: signalfd reads the set; -1 asks for a new descriptor.
    let made = unsafe { libc::signalfd(-1, &raw const set, libc::SFD_CLOEXEC | libc::SFD_NONBLOCK) };
    descriptor(cvt(made.into())?)
}

/// Brings the loopback interface of this network namespace up.
///
/// # Errors
/// As `socket(2)` and `netdevice(7)` have them.
pub fn loopback_up() -> io::Result<()> {
    // SAFETY: socket takes numbers only.
    let made = unsafe { libc::socket(libc::AF_INET, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
    let socket = descriptor(cvt(made.into())?)?;
    // SAFETY: ifreq is plain bytes and numbers, for which zero is valid.
    let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
    for (to, from) in request.ifr_name.iter_mut().zip(b"lo") {
        *to = c_char::from_ne_bytes([*from]);
    }
    request.ifr_ifru.ifru_flags = i16::try_from(libc::IFF_UP | libc::IFF_RUNNING).unwrap_or(0);
    // SAFETY: SIOCSIFFLAGS reads one ifreq with a name that ends in a zero byte, and writes nothing.
    cvt(unsafe { libc::ioctl(socket.as_raw_fd(), libc::SIOCSIFFLAGS, &raw const request) }.into())?;
    Ok(())
}

/// Makes `number` name what `from` names, open across exec. For 0, 1 and 2, which no `OwnedFd` of the cell holds.
///
/// # Errors
/// As `dup2(2)` has them.
pub fn onto(from: BorrowedFd<'_>, number: c_int) -> io::Result<()> {
    // SAFETY: dup2 takes numbers only; what it closes is one of the standard streams, which nothing here owns.
    cvt(unsafe { libc::dup2(from.as_raw_fd(), number) }.into())?;
    Ok(())
}

/// Marks every descriptor from 3 on as closed by exec.
///
/// # Errors
/// As `close_range(2)` has them.
pub fn only_streams_survive() -> io::Result<()> {
    const CLOSE_ON_EXEC: c_int = 4;
    // SAFETY: with CLOSE_RANGE_CLOEXEC nothing is closed now, so no owned descriptor loses what it names.
    cvt(unsafe { libc::syscall(libc::SYS_close_range, 3, u32::MAX, CLOSE_ON_EXEC) })?;
    Ok(())
}

/// Closes every descriptor but `keep`, whose owners go on; the owners of all others must be forgotten, not dropped.
///
/// # Errors
/// As `close_range(2)` has them.
pub fn close_all_but(keep: &[BorrowedFd<'_>]) -> io::Result<()> {
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
            cvt(unsafe { libc::syscall(libc::SYS_close_range, first, number.saturating_sub(1), 0) })?;
        }
        if number == u32::MAX {
            break;
        }
        first = number + 1;
    }
    Ok(())
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
    // SAFETY: siginfo_t is plain numbers, for which zero is valid.
    let mut about: libc::siginfo_t = unsafe { std::mem::zeroed() };
    let look = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: waitid writes one siginfo_t at the place given, which lives past the call; the child stays to be waited for.
    cvt(unsafe { libc::waitid(libc::P_ALL, 0, &raw mut about, look) }.into()).ok()?;
    // SAFETY: after waitid the fields are those of a SIGCHLD, or all zero when there was no child to tell of.
    let pid = unsafe { about.si_pid() };
    if pid <= 0 {
        return None;
    }
    let cpu_us = processor_time_us(pid);
    let mut status: c_int = 0;
    // SAFETY: wait4 writes one int at the place given, alive past the call; a null rusage is not written.
    let pid = unsafe { libc::wait4(pid, &raw mut status, libc::WNOHANG, ptr::null_mut()) };
    let pid = u32::try_from(pid).ok().filter(|it| *it > 0)?;
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
    // SAFETY: clock_gettime writes one timespec at the place given, which lives past the call. The system call itself,
    // since the kernel's shared page knows no such clock.
    if cvt(unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time) }).is_err() {
        return 0;
    }
    u64::try_from(time.tv_sec).unwrap_or(0) * 1_000_000 + u64::try_from(time.tv_nsec / 1000).unwrap_or(0)
}

/// Texts as `execve(2)` takes them: pointers, the last one null. Made before the second clone, since it allocates.
#[derive(Debug)]
pub struct Texts<'a> {
    pointers: Vec<*const c_char>,
    texts: std::marker::PhantomData<&'a [CString]>,
}

impl<'a> Texts<'a> {
    /// For these texts.
    #[must_use]
    pub fn new(texts: &'a [CString]) -> Self {
        let pointers = texts.iter().map(|it| it.as_ptr()).chain([ptr::null()]).collect();
        Self { pointers, texts: std::marker::PhantomData }
    }
}

/// `execve(2)`: comes back only with why not.
#[must_use]
pub fn execve(path: &CString, argv: &Texts<'_>, env: &Texts<'_>) -> io::Error {
    // SAFETY: execve reads a text that ends in a zero byte and two lists of such texts that end in a null pointer: that is
    // what a CString and `Texts` are, and the borrow keeps both alive.
    unsafe { libc::execve(path.as_ptr(), argv.pointers.as_ptr(), env.pointers.as_ptr()) };
    io::Error::last_os_error()
}

/// Sets the ids file access is decided by, and says whether both took.
#[must_use]
pub fn set_file_ids(uid: u32, gid: u32) -> bool {
    let now = |call: c_long, id: u32| {
        // SAFETY: setfsuid and setfsgid take a number, change this thread only and answer the former id.
        unsafe { libc::syscall(call, id) };
        // SAFETY: as above; an id of -1 is never valid, so this only asks.
        unsafe { libc::syscall(call, u32::MAX) }
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
    user == c_long::from(uid) && group == c_long::from(gid)
}

/// Ends this process now: no destructor, no buffer flushed.
pub fn exit_now(code: u8) -> ! {
    // SAFETY: _exit takes a number and does not return.
    unsafe { libc::_exit(c_int::from(code)) }
}

/// Unshares namespaces; `flags` are CLONE_NEW… ones.
///
/// # Errors
/// As `unshare(2)` has them.
pub fn unshare(flags: c_int) -> io::Result<()> {
    let namespaces = libc::CLONE_NEWCGROUP | libc::CLONE_NEWNET | libc::CLONE_NEWUTS;
    // SAFETY: unshare takes a number. Namespaces alone are unshared, so memory and descriptors stay as Rust knows them.
    cvt(unsafe { libc::unshare(flags & namespaces) }.into())?;
    Ok(())
}

//! The system call filter of a run: a deny list as data, and the BPF made from it.
//!
//! It closes the kernel's rarely used doors and what namespaces do not separate; programs of every kind must run, so
//! what is not named here is allowed. Calls a C library or runtime probes answer ENOSYS, so that it falls back; all
//! others EPERM. A call made through another architecture's entry ends the process: its numbers mean other calls.

use std::collections::BTreeMap;

/// What a denied call answers: an error number.
type Errno = u16;

const EPERM: Errno = 1;
const ENOSYS: Errno = 38;
const EPROTONOSUPPORT: Errno = 93;
const EAFNOSUPPORT: Errno = 97;

/// A test of one argument's low 32 bits. The kernel ignores the rest of what is an `int` to it, so the filter must too
/// (CVE-2019-7303, CVE-2019-10063).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Test {
    /// Any of these bits is set.
    AnyBit(u8, u32),
    /// It is one of these.
    In(u8, &'static [u32]),
    /// It is none of these.
    NotIn(u8, &'static [u32]),
}

/// One rule: the call is denied when every test holds.
#[derive(Debug, Clone, Copy)]
pub struct Rule {
    /// The call's number here.
    pub call: i64,
    /// The constant that is this number.
    constant: &'static str,
    /// What it answers when denied.
    pub answer: u16,
    /// When; empty means always.
    pub when: &'static [Test],
}

impl Rule {
    /// The call's name, as in `syscalls(2)`.
    #[must_use]
    pub fn name(&self) -> String {
        self.constant.rsplit("SYS_").next().unwrap_or_default().to_lowercase()
    }
}

/// A rule with its constant's name, which `explain` says.
macro_rules! deny {
    ($call:expr, $answer:expr) => {
        deny!($call, $answer, &[])
    };
    ($call:expr, $answer:expr, $when:expr) => {
        Rule { call: $call, constant: stringify!($call), answer: $answer, when: $when }
    };
}

const NEW_USER: u32 = 0x1000_0000; // CLONE_NEWUSER
const MAKES_FILE: u32 = 0o100 | 0o20_000_000; // O_CREAT, __O_TMPFILE: without one the mode argument is not read
const SET_UID: u32 = 0o4000;
const SET_ID: u32 = 0o6000;

// Numbers above 423 are the same on every architecture; libc does not name all of them.
const SYS_SET_MEMPOLICY_HOME_NODE: i64 = 450;
const SYS_FCHMODAT2: i64 = 452;
const SYS_LSM_SET_SELF_ATTR: i64 = 460;
const SYS_OPEN_TREE_ATTR: i64 = 467;

/// The newest call there was when this list was made (`file_setattr`, kernel 6.17): what later ones open, nobody has looked
/// at. They answer ENOSYS, as on an older kernel, which every program that knows them must expect.
pub const NEWEST: i64 = 469;

/// The rules of every run.
const ALWAYS: &[Rule] = &[
    // New user namespaces: the largest source of kernel exploits of late. clone3's flags lie behind a pointer no filter
    // can read, and C libraries fall back to clone.
    deny!(libc::SYS_clone, EPERM, &[Test::AnyBit(0, NEW_USER)]),
    deny!(libc::SYS_unshare, EPERM, &[Test::AnyBit(0, NEW_USER)]),
    deny!(libc::SYS_clone3, ENOSYS),
    deny!(libc::SYS_setns, EPERM),
    // Mounts, and handles that reach past them (the shocker attack).
    deny!(libc::SYS_mount, EPERM),
    deny!(libc::SYS_umount2, EPERM),
    deny!(libc::SYS_pivot_root, EPERM),
    deny!(libc::SYS_move_mount, EPERM),
    deny!(libc::SYS_open_tree, EPERM),
    deny!(SYS_OPEN_TREE_ATTR, EPERM),
    deny!(libc::SYS_fsopen, EPERM),
    deny!(libc::SYS_fsconfig, EPERM),
    deny!(libc::SYS_fsmount, EPERM),
    deny!(libc::SYS_fspick, EPERM),
    deny!(libc::SYS_mount_setattr, EPERM),
    deny!(libc::SYS_chroot, EPERM),
    deny!(libc::SYS_open_by_handle_at, EPERM),
    deny!(libc::SYS_name_to_handle_at, EPERM),
    // Keyrings go by uid, not by namespace.
    deny!(libc::SYS_add_key, ENOSYS),
    deny!(libc::SYS_request_key, ENOSYS),
    deny!(libc::SYS_keyctl, ENOSYS),
    // Passes every other rule here (IORING_OP_SOCKET); runtimes fall back.
    deny!(libc::SYS_io_uring_setup, ENOSYS),
    deny!(libc::SYS_io_uring_enter, ENOSYS),
    deny!(libc::SYS_io_uring_register, ENOSYS),
    // The kernel itself: nothing honest in a sandbox.
    deny!(libc::SYS_bpf, EPERM),
    deny!(libc::SYS_perf_event_open, EPERM),
    deny!(libc::SYS_userfaultfd, EPERM),
    deny!(libc::SYS_kexec_load, EPERM),
    deny!(libc::SYS_kexec_file_load, EPERM),
    deny!(libc::SYS_init_module, EPERM),
    deny!(libc::SYS_finit_module, EPERM),
    deny!(libc::SYS_delete_module, EPERM),
    deny!(libc::SYS_reboot, EPERM),
    deny!(libc::SYS_swapon, EPERM),
    deny!(libc::SYS_swapoff, EPERM),
    deny!(libc::SYS_acct, EPERM),
    deny!(libc::SYS_quotactl, EPERM),
    deny!(libc::SYS_quotactl_fd, EPERM),
    deny!(libc::SYS_nfsservctl, EPERM),
    deny!(libc::SYS_lookup_dcookie, EPERM),
    deny!(libc::SYS_syslog, EPERM),
    deny!(libc::SYS_vhangup, EPERM),
    deny!(libc::SYS_fanotify_init, EPERM),
    deny!(libc::SYS_fanotify_mark, EPERM),
    deny!(SYS_LSM_SET_SELF_ATTR, EPERM),
    // Clock and name of the host.
    deny!(libc::SYS_settimeofday, EPERM),
    deny!(libc::SYS_clock_settime, EPERM),
    // Whether they set or ask lies behind a pointer.
    deny!(libc::SYS_clock_adjtime, EPERM),
    deny!(libc::SYS_adjtimex, EPERM),
    deny!(libc::SYS_sethostname, EPERM),
    deny!(libc::SYS_setdomainname, EPERM),
    // Other processes' memory and descriptors. ptrace stays: gdb and strace of one's own children; it cannot skip the
    // filter (since 4.8).
    deny!(libc::SYS_process_vm_readv, EPERM),
    deny!(libc::SYS_process_vm_writev, EPERM),
    deny!(libc::SYS_pidfd_getfd, EPERM),
    deny!(libc::SYS_kcmp, EPERM),
    deny!(libc::SYS_move_pages, EPERM),
    deny!(libc::SYS_migrate_pages, EPERM),
    deny!(libc::SYS_mbind, EPERM),
    deny!(SYS_SET_MEMPOLICY_HOME_NODE, EPERM),
    // UNIX, INET, INET6, NETLINK. vsock reaches the hypervisor whatever the network namespace; the rest is old protocol
    // modules, raw packets and kernel interfaces.
    deny!(libc::SYS_socket, EAFNOSUPPORT, &[Test::NotIn(0, &[1, 2, 10, 16])]),
    deny!(libc::SYS_socketpair, EAFNOSUPPORT, &[Test::NotIn(0, &[1, 2, 10, 16])]),
    // Netlink other than ROUTE: nf_tables and xfrm; getifaddrs needs ROUTE alone.
    deny!(libc::SYS_socket, EPROTONOSUPPORT, &[Test::In(0, &[16]), Test::NotIn(2, &[0])]),
    // Keys pushed or pasted into a terminal, its output taken, its line discipline changed: TIOCSTI, TIOCLINUX, TIOCCONS,
    // TIOCSETD.
    deny!(libc::SYS_ioctl, EPERM, &[Test::In(1, &[0x5412, 0x541C, 0x541D, 0x5423])]),
    // READ_IMPLIES_EXEC and friends.
    deny!(libc::SYS_personality, EPERM, &[Test::NotIn(0, &[0, 8, 0x20000, 0x20008, 0xffff_ffff])]),
    // Memory that cannot be reclaimed.
    deny!(libc::SYS_memfd_secret, ENOSYS),
    // Set-id files, which would act as the run's account wherever the host shows them (decisions C-120). A set-gid bit on
    // a folder is harmless and common, so chmod is asked about the user's bit only.
    deny!(libc::SYS_fchmod, EPERM, &[Test::AnyBit(1, SET_UID)]),
    deny!(libc::SYS_fchmodat, EPERM, &[Test::AnyBit(2, SET_UID)]),
    deny!(SYS_FCHMODAT2, EPERM, &[Test::AnyBit(2, SET_UID)]),
    deny!(libc::SYS_mknodat, EPERM, &[Test::AnyBit(2, SET_ID)]),
    deny!(libc::SYS_openat, EPERM, &[Test::AnyBit(2, MAKES_FILE), Test::AnyBit(3, SET_ID)]),
    deny!(libc::SYS_openat2, ENOSYS), // its mode lies behind a pointer
];

/// Calls this architecture alone has.
#[cfg(target_arch = "x86_64")]
const HERE: &[Rule] = &[
    deny!(libc::SYS_iopl, EPERM),
    deny!(libc::SYS_ioperm, EPERM),
    deny!(libc::SYS_modify_ldt, EPERM),
    deny!(libc::SYS_uselib, EPERM),
    deny!(libc::SYS__sysctl, EPERM),
    deny!(libc::SYS_ustat, EPERM),
    deny!(libc::SYS_sysfs, EPERM),
    // create_module, get_kernel_syms, query_module: modules of kernels before 2.6.
    deny!(174, EPERM),
    deny!(177, EPERM),
    deny!(178, EPERM),
    // The older names of the calls above.
    deny!(libc::SYS_chmod, EPERM, &[Test::AnyBit(1, SET_UID)]),
    deny!(libc::SYS_mknod, EPERM, &[Test::AnyBit(1, SET_ID)]),
    deny!(libc::SYS_creat, EPERM, &[Test::AnyBit(1, SET_ID)]),
    deny!(libc::SYS_open, EPERM, &[Test::AnyBit(1, MAKES_FILE), Test::AnyBit(2, SET_ID)]),
];
#[cfg(target_arch = "aarch64")]
const HERE: &[Rule] = &[];

#[cfg(target_arch = "x86_64")]
const NATIVE: u32 = 0xc000_003e;
#[cfg(target_arch = "aarch64")]
const NATIVE: u32 = 0xc000_00b7;
const NEW_NAMESPACES: u32 = 0x7e02_0000; // CLONE_NEWNS, NEWCGROUP, NEWUTS, NEWIPC, NEWUSER, NEWPID, NEWNET
const SYS_PROCESS_MADVISE: i64 = 440;

/// What is closed to the protocol process besides: it makes connections, files and children, and nothing else.
const NODE_TOO: &[Rule] = &[
    // It debugs nobody.
    deny!(libc::SYS_ptrace, EPERM),
    deny!(SYS_PROCESS_MADVISE, EPERM),
    // No namespace of any kind.
    deny!(libc::SYS_unshare, EPERM),
    deny!(libc::SYS_clone, EPERM, &[Test::AnyBit(0, NEW_NAMESPACES)]),
    // It serves nobody: whoever speaks for it does so by the link.
    deny!(libc::SYS_listen, EPERM),
];

/// The rules of the protocol process on this architecture.
pub fn node_rules() -> impl Iterator<Item = &'static Rule> {
    rules().chain(NODE_TOO)
}

/// The rules of every run on this architecture.
pub fn rules() -> impl Iterator<Item = &'static Rule> {
    ALWAYS.iter().chain(HERE)
}

const LOAD: u16 = 0x20; // BPF_LD | BPF_W | BPF_ABS
const JUMP: u16 = 0x05; // BPF_JMP | BPF_JA
const IF_EQUAL: u16 = 0x15; // BPF_JMP | BPF_JEQ | BPF_K
const IF_AT_LEAST: u16 = 0x35; // BPF_JMP | BPF_JGE | BPF_K
const IF_BITS: u16 = 0x45; // BPF_JMP | BPF_JSET | BPF_K
const RETURN: u16 = 0x06; // BPF_RET | BPF_K
const ALLOW: u32 = 0x7fff_0000; // SECCOMP_RET_ALLOW
const KILL: u32 = 0x8000_0000; // SECCOMP_RET_KILL_PROCESS
const ERROR: u32 = 0x0005_0000; // SECCOMP_RET_ERRNO
const NUMBER_AT: u32 = 0; // offsets in struct seccomp_data
const ARCHITECTURE_AT: u32 = 4;
const ARGUMENTS_AT: u32 = 16; // 8 bytes each; the low half comes first on both architectures

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Instruction {
    code: u16,
    yes: u8,
    no: u8,
    k: u32,
}

const fn step(code: u16, yes: u8, no: u8, k: u32) -> Instruction {
    Instruction { code, yes, no, k }
}

/// What a sandbox in the sandbox is made with: a user namespace, and mounts in it.
const NESTED: &[i64] = &[
    libc::SYS_clone,
    libc::SYS_unshare,
    libc::SYS_setns,
    libc::SYS_mount,
    libc::SYS_umount2,
    libc::SYS_pivot_root,
    libc::SYS_move_mount,
    libc::SYS_open_tree,
    libc::SYS_fsopen,
    libc::SYS_fsconfig,
    libc::SYS_fsmount,
    libc::SYS_fspick,
    libc::SYS_mount_setattr,
    libc::SYS_chroot,
];

/// The filter of every run, as instructions of 8 bytes. Made once at start; a run only loads it.
#[must_use]
pub fn filter() -> Vec<u8> {
    filter_of(rules())
}

/// The filter of the protocol process and of what it drives, in the same form.
#[must_use]
pub fn node_filter() -> Vec<u8> {
    filter_of(node_rules())
}

/// The filter of every run where the host's owner lets runs make sandboxes of their own.
#[must_use]
pub fn nested_filter() -> Vec<u8> {
    filter_of(rules().filter(|it| !NESTED.contains(&it.call)))
}

fn filter_of(rules: impl Iterator<Item = &'static Rule>) -> Vec<u8> {
    let mut by_call: BTreeMap<u32, Vec<&Rule>> = BTreeMap::new();
    for rule in rules {
        if let Ok(call) = u32::try_from(rule.call) {
            by_call.entry(call).or_default().push(rule);
        }
    }
    let calls: Vec<(u32, Vec<&Rule>)> = by_call.into_iter().collect();
    let mut program = vec![
        step(LOAD, 0, 0, ARCHITECTURE_AT),
        step(IF_EQUAL, 1, 0, NATIVE),
        step(RETURN, 0, 0, KILL),
        step(LOAD, 0, 0, NUMBER_AT),
    ];
    // On x86-64 these are x32's too, the same architecture value with other calls from 0x40000000 on.
    let unknown = u32::try_from(NEWEST).unwrap_or(0).saturating_add(1);
    program.extend([step(IF_AT_LEAST, 0, 1, unknown), step(RETURN, 0, 0, ERROR | u32::from(ENOSYS))]);
    program.extend(tree(&calls));
    bytes(&program)
}

/// What an init still does once it has given everything up; anything else ends it, and the sandbox with it.
const INIT: &[i64] = &[
    libc::SYS_ppoll,
    libc::SYS_read,
    libc::SYS_write,
    libc::SYS_waitid,
    libc::SYS_wait4,
    libc::SYS_clock_gettime,
    libc::SYS_close_range,
    libc::SYS_restart_syscall,
    libc::SYS_rt_sigreturn,
    libc::SYS_exit_group,
    // Gives memory back.
    libc::SYS_madvise,
    #[cfg(target_arch = "x86_64")]
    libc::SYS_poll,
];

/// The filter of every init: only [`INIT`], in a form of 8 bytes an instruction.
#[must_use]
pub fn init_filter() -> Vec<u8> {
    let kill = step(RETURN, 0, 0, KILL);
    let mut program =
        vec![step(LOAD, 0, 0, ARCHITECTURE_AT), step(IF_EQUAL, 1, 0, NATIVE), kill, step(LOAD, 0, 0, NUMBER_AT)];
    for call in INIT.iter().filter_map(|it| u32::try_from(*it).ok()) {
        program.extend([step(IF_EQUAL, 0, 1, call), step(RETURN, 0, 0, ALLOW)]);
    }
    program.push(kill);
    bytes(&program)
}

fn bytes(program: &[Instruction]) -> Vec<u8> {
    program
        .iter()
        .flat_map(|it| {
            let ([c0, c1], [k0, k1, k2, k3]) = (it.code.to_le_bytes(), it.k.to_le_bytes());
            [c0, c1, it.yes, it.no, k0, k1, k2, k3]
        })
        .collect()
}

/// A binary search of the call's number: the kernel runs the filter for every number when it is loaded, and for every
/// call after, so a chain would cost a run twice as much.
fn tree(calls: &[(u32, Vec<&Rule>)]) -> Vec<Instruction> {
    match calls {
        [] => vec![step(RETURN, 0, 0, ALLOW)],
        [(call, rules)] => {
            let mut program = vec![step(IF_EQUAL, 1, 0, *call), step(RETURN, 0, 0, ALLOW)];
            program.extend(rules.iter().flat_map(|it| denial(it)));
            program.push(step(RETURN, 0, 0, ALLOW));
            program
        }
        _ => {
            let (low, high) = calls.split_at(calls.len() / 2);
            let first_high = high.first().map_or(0, |it| it.0);
            let (low, high) = (tree(low), tree(high));
            // Conditional jumps reach 255 instructions only; this one reaches any.
            let over = u32::try_from(low.len()).unwrap_or(u32::MAX);
            let mut program = vec![step(IF_AT_LEAST, 0, 1, first_high), step(JUMP, 0, 0, over)];
            program.extend(low);
            program.extend(high);
            program
        }
    }
}

/// One rule: falls through to what follows when a test does not hold.
fn denial(rule: &Rule) -> Vec<Instruction> {
    let mut program = vec![step(RETURN, 0, 0, ERROR | u32::from(rule.answer))];
    for test in rule.when.iter().rev() {
        let past = u8::try_from(program.len()).unwrap_or(u8::MAX);
        let (argument, mut tests) = match *test {
            Test::AnyBit(argument, bits) => (argument, vec![step(IF_BITS, 0, past, bits)]),
            Test::In(argument, values) => (argument, chain(values, past, false)),
            Test::NotIn(argument, values) => (argument, chain(values, past, true)),
        };
        tests.insert(0, step(LOAD, 0, 0, ARGUMENTS_AT + 8 * u32::from(argument)));
        tests.extend(program);
        program = tests;
    }
    program
}

/// Compares with each value; `past` is how many instructions follow the chain.
fn chain(values: &[u32], past: u8, inverted: bool) -> Vec<Instruction> {
    let count = values.len();
    let each = values.iter().enumerate().map(|(at, value)| {
        let left = u8::try_from(count - 1 - at).unwrap_or(u8::MAX);
        let (found, last) = if inverted { (left.saturating_add(past), 0) } else { (left, past) };
        step(IF_EQUAL, found, if left == 0 { last } else { 0 }, *value)
    });
    each.collect()
}

#[cfg(test)]
#[path = "seccomp_tests.rs"]
mod tests;

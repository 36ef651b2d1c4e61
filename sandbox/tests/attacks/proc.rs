//! Other processes, above all its init, and the kernel's own files.

use std::fs;
use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command};

use libtest_mimic::Failed;

use crate::inside::{Given, Got, status};
use crate::outside::Stage;
use crate::raw::{self, pointer, pointer_mut, text};
use crate::run::ACCOUNT;
use crate::table::{Attack, Control, attack};

pub(crate) const ATTACKS: &[Attack] = &[
    attack("proc::files_of_its_init", "own-processes", init_files),
    attack("proc::files_of_its_init_with_all_capabilities", "own-processes", init_files).staged(powerful).unfiltered(),
    attack("proc::calls_on_its_init", "own-processes", init_calls),
    attack("proc::calls_on_its_init_with_all_capabilities", "own-processes", init_calls).staged(powerful).unfiltered(),
    attack("proc::processes_of_the_host_are_seen", "own-processes", others_seen).control(Control::LooseKeeping("pid")),
    attack("proc::processes_of_the_host_are_reached", "own-processes", others_reached)
        .staged(neighbour)
        .control(Control::LooseKeeping("pid")),
    attack("proc::processes_of_the_host_are_reached_with_its_network", "own-processes", others_reached)
        .staged(neighbour_and_network)
        .control(Control::LooseKeeping("pid")),
    attack("proc::settings_of_the_kernel_are_written", "kernel-settings", settings)
        .but("an ordinary account owns those of its network alone"),
    attack("proc::settings_of_the_kernel_are_written_with_all_capabilities", "kernel-settings", settings)
        .staged(powerful_without_network)
        .unfiltered()
        .but("an ordinary account owns those of its network alone"),
    attack("proc::memory_and_addresses_of_the_kernel_are_read", "kernel-settings", secrets)
        .control(Control::None("the kernel shows these to nobody without capabilities over the host")),
    attack("proc::memory_and_addresses_of_the_kernel_are_read_with_all_capabilities", "kernel-settings", secrets)
        .staged(powerful)
        .unfiltered()
        .control(Control::None("the kernel shows these to nobody without capabilities over the host")),
    attack("proc::a_key_is_made", "runs-apart", keys).staged(with_a_name),
    attack("proc::names_of_the_hosts_groups_are_seen", "named-only", groups).control(Control::None(
        "an ordinary account may lie in the host's root group; what names it ends::… shows from outside",
    )),
];

fn powerful() -> Result<Stage, Failed> {
    Ok(Stage::plain()?.all_powerful(&[]))
}

/// Without those that make its network its own: then it owns that network's settings (SECURITY.md, not promised).
fn powerful_without_network() -> Result<Stage, Failed> {
    let over = ["CAP_NET_BIND_SERVICE", "CAP_NET_BROADCAST", "CAP_NET_ADMIN", "CAP_NET_RAW", "CAP_SYS_ADMIN"];
    // The limits of its own user namespace are its own to set, below those of the host's.
    Ok(Stage::plain()?.all_powerful(&over).giving("but", "/proc/sys/user"))
}

/// A process of the same account on the host.
struct Neighbour(Child);

impl Drop for Neighbour {
    fn drop(&mut self) {
        drop(self.0.kill());
        drop(self.0.wait());
    }
}

fn neighbour() -> Result<Stage, Failed> {
    let account = ACCOUNT.to_string();
    let words = ["--reuid", &account, "--regid", &account, "--clear-groups", "sleep", &crate::run::unique()];
    let child = Command::new("setpriv").args(words).spawn()?;
    let (pid, stat) = (child.id(), format!("/proc/{}/status", child.id()));
    let uid = || fs::read_to_string(&stat).unwrap_or_default().contains(&format!("Uid:\t{ACCOUNT}"));
    crate::run::wait_until("it is the account's", uid)?;
    Ok(Stage::plain()?.giving("pid", pid).holding(Neighbour(child)))
}

fn neighbour_and_network() -> Result<Stage, Failed> {
    Ok(neighbour()?.key("/sandbox/network", true.into()))
}

fn init_files(_: &Given, got: &mut Got) {
    for name in ["environ", "mem", "maps", "smaps", "auxv", "syscall", "io", "root", "exe", "cwd", "fd", "fdinfo/1"] {
        let path = format!("/proc/1/{name}");
        // The control's init has its streams as 0 to 2, ours none; what counts is whether it may be looked at.
        got.tried(name, &fs::File::open(path));
    }
    for name in ["ns/mnt", "ns/user", "ns/pid", "ns/net", "exe", "root", "cwd", "fd/0"] {
        got.tried(&format!("where {name} leads"), &fs::read_link(format!("/proc/1/{name}")));
    }
    for name in ["comm", "coredump_filter", "clear_refs", "oom_score_adj", "mem"] {
        got.tried(&format!("{name}, to write"), &fs::File::options().write(true).open(format!("/proc/1/{name}")));
    }
}

fn init_calls(_: &Given, got: &mut Got) {
    let one = 1_u64;
    got.call("signal 0", &raw::raw(libc::SYS_kill, [one, 0, 0, 0, 0, 0]));
    got.call("a thread's signal", &raw::raw(libc::SYS_tgkill, [one, one, 0, 0, 0, 0]));
    let mut held = [0_u64; 2];
    let (local, code) = ([pointer_mut(&mut held), 8], [pointer_of_code(), 8]);
    got.call("its memory read", &raw::raw(libc::SYS_process_vm_readv, [one, pointer(&local), 1, pointer(&code), 1, 0]));
    match raw::raw(libc::SYS_pidfd_open, [one, 0, 0, 0, 0, 0]) {
        Ok(pidfd) => {
            let pidfd = pidfd.cast_unsigned();
            got.call("its descriptor taken", &raw::raw(libc::SYS_pidfd_getfd, [pidfd, 0, 0, 0, 0, 0]));
            let uts = u64::from(libc::CLONE_NEWUTS.unsigned_abs());
            got.call("its namespace joined", &raw::raw(libc::SYS_setns, [pidfd, uts, 0, 0, 0, 0]));
            got.call("a signal by descriptor", &raw::raw(libc::SYS_pidfd_send_signal, [pidfd, 0, 0, 0, 0, 0]));
        }
        Err(error) => got.call("a descriptor of it", &Err::<(), _>(error)),
    }
    let mut limit = [0_u64; 2];
    got.call("its limits read", &raw::raw(libc::SYS_prlimit64, [one, 7, 0, pointer_mut(&mut limit), 0, 0]));
    got.call("its limits set", &raw::raw(libc::SYS_prlimit64, [one, 4, pointer(&[u64::MAX; 2]), 0, 0, 0]));
    got.call("compared", &raw::raw(libc::SYS_kcmp, [one, u64::from(std::process::id()), 0, 0, 0, 0]));
    let all = [u64::MAX; 16];
    got.call("its processors", &raw::raw(libc::SYS_sched_setaffinity, [one, 128, pointer(&all), 0, 0, 0]));
    got.call("its priority", &raw::raw(libc::SYS_setpriority, [0, one, 19, 0, 0, 0]));
    // Last: it stays traced until this process ends.
    got.call("traced", &raw::raw(libc::SYS_ptrace, [0x4206, one, 0, 0, 0, 0])); // PTRACE_SEIZE
}

/// Something every process of this program has at the same place: in a control its init is a fork of this one.
fn pointer_of_code() -> u64 {
    static CODE: [u64; 1] = [1];
    pointer(&CODE)
}

fn others_seen(_: &Given, got: &mut Got) {
    let names = fs::read_dir("/proc").into_iter().flatten().flatten().map(|it| it.file_name());
    let pids = names.filter(|it| it.to_string_lossy().parse::<u32>().is_ok()).count();
    got.holds(format!("{pids} processes, its init among them"), pids > 2);
}

fn others_reached(given: &Given, got: &mut Got) {
    let pid = given.number("pid");
    got.call("a signal", &raw::raw(libc::SYS_kill, [pid, 0, 0, 0, 0, 0]));
    got.call("a thread's signal", &raw::raw(libc::SYS_tgkill, [pid, pid, 0, 0, 0, 0]));
    got.call("everybody's signal", &raw::raw(libc::SYS_kill, [u64::MAX, 0, 0, 0, 0, 0]));
    got.call("a descriptor of it", &raw::raw(libc::SYS_pidfd_open, [pid, 0, 0, 0, 0, 0]));
    got.call("its limits", &raw::raw(libc::SYS_prlimit64, [pid, 7, 0, pointer_mut(&mut [0_u64; 2]), 0, 0]));
    got.call("its priority", &raw::raw(libc::SYS_getpriority, [0, pid, 0, 0, 0, 0]));
    got.call("its session", &raw::raw(libc::SYS_getsid, [pid, 0, 0, 0, 0, 0]));
    got.tried("its folder in proc", &fs::read_dir(format!("/proc/{pid}")));
}

/// Every file of proc that is no process's: opened to write, and given back what it holds where it can be read.
fn settings(given: &Given, got: &mut Got) {
    let mut next: Vec<PathBuf> = vec!["/proc".into()];
    let mut refused = 0;
    while let Some(folder) = next.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let (path, Ok(kind)) = (entry.path(), entry.file_type()) else { continue };
            let name = entry.file_name().to_string_lossy().into_owned();
            let process = folder == Path::new("/proc") && name.parse::<u32>().is_ok();
            let spared = given.has("but") && path.starts_with(given.text("but"));
            if kind.is_dir() && !process && !spared {
                next.push(path);
            } else if kind.is_file() && set(&path) {
                got.through(path.display().to_string());
            } else {
                refused += 1;
            }
        }
    }
    if refused > 0 {
        got.refused(format!("{refused} files"));
    }
}

fn set(path: &Path) -> bool {
    let Ok(mut file) = fs::File::options().write(true).open(path) else { return false };
    let mut held = Vec::new();
    match fs::File::open(path).and_then(|it| it.take(4096).read_to_end(&mut held)) {
        Ok(count) if count > 0 => file.write_all(&held).is_ok(),
        // It can be opened and not read: opening is all that may be tried.
        _ => true,
    }
}

fn secrets(_: &Given, got: &mut Got) {
    for path in [
        "/proc/kcore",
        "/proc/kmsg",
        "/proc/kpagecount",
        "/proc/kpageflags",
        "/proc/kpagecgroup",
        "/proc/slabinfo",
        "/proc/vmallocinfo",
        "/proc/pagetypeinfo",
        "/proc/timer_list",
        "/proc/sysrq-trigger",
        "/dev/mem",
        "/dev/kmsg",
        "/sys/kernel/debug",
        "/sys/kernel/tracing",
    ] {
        got.tried(path, &fs::File::open(path));
    }
    for (path, digits) in [("/proc/kallsyms", 16), ("/proc/modules", 16), ("/proc/iomem", 8)] {
        let mut begin = Vec::new();
        let read = fs::File::open(path).and_then(|it| it.take(1 << 16).read_to_end(&mut begin));
        if let Err(error) = read {
            got.refused(format!("{path}: {error}"));
            continue;
        }
        let text = String::from_utf8_lossy(&begin).into_owned();
        // Addresses that are hidden are all zero.
        let words = text.split_whitespace().flat_map(|it| it.trim_start_matches("0x").split('-'));
        let address = words
            .filter(|it| it.len() >= digits)
            .any(|it| it.bytes().all(|b| b.is_ascii_hexdigit()) && it.bytes().any(|b| b != b'0'));
        got.holds(format!("addresses in {path}"), address);
    }
}

/// Each launch has a name of its own: the account's other keys show by theirs.
fn with_a_name() -> Result<Stage, Failed> {
    Ok(Stage::plain()?.giving("key", crate::run::unique()))
}

fn keys(given: &Given, got: &mut Got) {
    let name = std::ffi::CString::new(given.text("key")).unwrap_or_default();
    let session = i64::from(-3_i32).cast_unsigned();
    let args = [text(c"user"), text(&name), text(c"x"), 1, session, 0];
    got.call("a key made", &raw::raw(libc::SYS_add_key, args));
    let listed = fs::read_to_string("/proc/keys").unwrap_or_default();
    got.holds("it is listed", listed.contains(given.text("key")));
}

fn groups(_: &Given, got: &mut Got) {
    for line in fs::read_to_string("/proc/self/cgroup").unwrap_or_default().lines() {
        got.holds(line, !line.ends_with(":/"));
    }
}

//! A guest's PID 1: loads the disk's module, makes the real root its own, runs the plan, says one verdict, powers off.
//!
//! In a whole guest it hands over to systemd once the root is its own, and does the rest as a service of it.
//!
//! Static, for it starts in an initramfs without libraries. The root is moved to, not stayed beside: `pivot_root` refuses
//! a process whose root is the initramfs.
#![forbid(unsafe_code)]
#![expect(clippy::print_stdout, reason = "the console is where an init speaks")]

mod whole;
#[path = "../../src/words.rs"]
mod words;

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, PipeReader};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use rustix::mount::{MountFlags, mount, mount_move};
use rustix::process::{Pid, Signal, WaitOptions};
use rustix::system::{RebootCommand, finit_module, reboot};

use words::{Job, JobEnd, Plan, Said};

/// The root image and the disk of programs, in the order QEMU is given them.
const ROOT_DISK: &str = "/dev/vda";
const PROGRAMS_DISK: &str = "/dev/vdb";
/// Longest wait for a disk to appear once its driver is loaded.
const DISK_WAIT: Duration = Duration::from_secs(20);
/// How often what is waited for is looked at.
const LOOK: Duration = Duration::from_millis(20);
/// How long after a job its last processes may take to go by themselves before they count as left.
const LEFT_GRACE: Duration = Duration::from_secs(1);
/// How often everything left is killed before the init gives up; what forks meanwhile is met by the next round.
const KILL_ROUNDS: u32 = 50;
/// A line of a test program longer than this is cut in two.
const LINE_BYTES_MAX: u64 = 8 << 10;
/// `MODULE_INIT_COMPRESSED_FILE` of finit_module(2).
const COMPRESSED: i32 = 4;
/// Where programs are found in the guest.
const PATH: &str = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin";

fn main() {
    let whole = std::env::args().nth(1).as_deref() == Some(whole::WORD);
    let came = if whole { whole::service() } else { bare() };
    if let Err(why) = came {
        say(&Said::Trouble { why });
    }
    rustix::fs::sync();
    let off = if whole {
        whole::power_off()
    } else {
        reboot(RebootCommand::PowerOff).map_err(|error| format!("power off: {error}"))
    };
    // Of PID 1 only an error comes back from it; the host's own bound then ends the guest.
    if let Err(why) = off {
        say(&Said::Trouble { why });
    }
    loop {
        std::thread::sleep(Duration::from_secs(1));
    }
}

fn say(said: &Said) {
    // The kernel writes to the same console: a line of ours begins at a line's beginning whatever came before.
    println!("\n{said}");
}

/// From the initramfs on, as PID 1.
fn bare() -> Result<(), String> {
    let text = fs::read_to_string(words::PLAN).map_err(|e| format!("{}: {e}", words::PLAN))?;
    let plan = Plan::read(&text)?;
    let own = if plan.whole { fs::read(words::INIT).map_err(|e| format!("{}: {e}", words::INIT))? } else { Vec::new() };
    modules()?;
    enter_root()?;
    if plan.whole {
        return Err(whole::hand_over(&own, &text));
    }
    file_systems(&plan.programs_at)?;
    carry_out(&plan, &of_all);
    Ok(())
}

/// Every job of a plan, from the first words to the verdict. `own` says which processes a job can have left.
fn carry_out(plan: &Plan, own: &dyn Fn() -> Vec<i32>) {
    let release = rustix::system::uname().release().to_string_lossy().into_owned();
    say(&Said::Up { kernel: release });
    if plan.shell {
        shell(plan);
        end_all(own);
    }
    let (mut good, mut bad) = (0, 0);
    for job in &plan.jobs {
        say(&Said::Start { name: job.name.clone() });
        let start = Instant::now();
        let end = run(job, plan);
        let left = end_all(own);
        let well = end == JobEnd::Exit(job.exit) && left == 0;
        *(if well { &mut good } else { &mut bad }) += 1;
        let tenths = u64::try_from(start.elapsed().as_millis() / 100).unwrap_or(u64::MAX);
        say(&Said::End { name: job.name.clone(), end, tenths, left });
    }
    say(&Said::Verdict { good, bad });
}

/// Loads every module of the initramfs, in the order of their names.
fn modules() -> Result<(), String> {
    let entries = fs::read_dir(words::MODULES).map_err(|e| format!("{}: {e}", words::MODULES))?;
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.sort();
    for path in files {
        let file = File::open(&path).map_err(|e| format!("{}: {e}", path.display()))?;
        let packed = path.extension().is_some_and(|it| it != "ko");
        finit_module(&file, c"", if packed { COMPRESSED } else { 0 })
            .map_err(|e| format!("{}: {e}", path.display()))?;
    }
    Ok(())
}

fn mounted(what: &str, at: &str, kind: &str, flags: MountFlags, data: &str) -> Result<(), String> {
    fs::create_dir_all(at).map_err(|e| format!("{at}: {e}"))?;
    let data = std::ffi::CString::new(data).map_err(|e| e.to_string())?;
    mount(what, at, kind, flags, data.as_c_str()).map_err(|e| format!("mount {what} at {at}: {e}"))
}

/// Mounts the root image and makes it `/`.
fn enter_root() -> Result<(), String> {
    let none = MountFlags::empty();
    mounted("devtmpfs", "/dev", "devtmpfs", none, "mode=0755")?;
    let start = Instant::now();
    while !Path::new(ROOT_DISK).exists() || !Path::new(PROGRAMS_DISK).exists() {
        if start.elapsed() > DISK_WAIT {
            return Err(format!("{ROOT_DISK}, {PROGRAMS_DISK}: not there within {} s", DISK_WAIT.as_secs()));
        }
        std::thread::sleep(LOOK);
    }
    mounted(ROOT_DISK, "/root", "ext4", none, "")?;
    mount_move("/dev", "/root/dev").map_err(|e| format!("moving /dev: {e}"))?;
    rustix::process::chdir("/root").map_err(|e| format!("/root: {e}"))?;
    mount_move(".", "/").map_err(|e| format!("moving the root: {e}"))?;
    rustix::process::chroot(".").map_err(|e| format!("chroot: {e}"))?;
    rustix::process::chdir("/").map_err(|e| format!("/: {e}"))
}

/// Mounts the disk of programs where they were built.
fn programs(at: &str) -> Result<(), String> {
    mounted(PROGRAMS_DISK, at, "ext4", MountFlags::RDONLY, "")
}

/// What a service manager would have mounted and set up by the time a node starts.
fn file_systems(programs_at: &str) -> Result<(), String> {
    let safe = MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
    mounted("proc", "/proc", "proc", safe, "")?;
    mounted("sysfs", "/sys", "sysfs", safe, "")?;
    mounted("securityfs", "/sys/kernel/security", "securityfs", safe, "")?;
    mounted("cgroup2", "/sys/fs/cgroup", "cgroup2", safe, "nsdelegate")?;
    mounted("devpts", "/dev/pts", "devpts", MountFlags::NOSUID | MountFlags::NOEXEC, "mode=0620,ptmxmode=0666,gid=5")?;
    mounted("tmpfs", "/dev/shm", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, "mode=1777")?;
    mounted("tmpfs", "/run", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, "mode=0755")?;
    // As a service manager leaves them: each controller there is can be given to groups below.
    let all =
        fs::read_to_string("/sys/fs/cgroup/cgroup.controllers").map_err(|e| format!("cgroup.controllers: {e}"))?;
    for controller in all.split_whitespace() {
        let file = "/sys/fs/cgroup/cgroup.subtree_control";
        fs::write(file, format!("+{controller}")).map_err(|e| format!("{file}: +{controller}: {e}"))?;
    }
    for (link, to) in [("fd", "/proc/self/fd"), ("stdin", "fd/0"), ("stdout", "fd/1"), ("stderr", "fd/2")] {
        std::os::unix::fs::symlink(to, Path::new("/dev").join(link)).map_err(|e| format!("/dev/{link}: {e}"))?;
    }
    rustix::system::sethostname(b"guest").map_err(|e| format!("host name: {e}"))?;
    let up = Command::new("/usr/sbin/ip").args(["link", "set", "lo", "up"]).status();
    if !up.as_ref().is_ok_and(std::process::ExitStatus::success) {
        return Err(format!("ip link set lo up: {up:?}"));
    }
    programs(programs_at)
}

fn command(plan: &Plan, program: &str, args: &[String]) -> Command {
    let mut command = Command::new(program);
    command.args(args).current_dir("/root").env_clear();
    command.envs([("PATH", PATH), ("HOME", "/root"), ("USER", "root"), ("LANG", "C.UTF-8"), ("TERM", "dumb")]);
    command.envs(plan.env.iter().map(|(name, value)| (name, value)));
    command
}

/// A shell on the console, until it exits.
fn shell(plan: &Plan) {
    // Its own session with the console as its terminal, so that Ctrl-C reaches what it runs.
    let mut shell = command(plan, "/usr/bin/setsid", &["--ctty", "bash", "--login"].map(String::from));
    match shell.env("TERM", "vt220").spawn() {
        Ok(child) => drop(wait_for(child.id(), None)),
        Err(error) => say(&Said::Trouble { why: format!("setsid: {error}") }),
    }
}

/// Runs one job to its end, its output on the console line by line.
fn run(job: &Job, plan: &Plan) -> JobEnd {
    let Some((program, args)) = job.words.split_first() else {
        return JobEnd::NotStarted(String::from("no program"));
    };
    let not_started = |e: std::io::Error| JobEnd::NotStarted(format!("{program}: {e}"));
    let (reader, writer) = match std::io::pipe() {
        Ok(ends) => ends,
        Err(error) => return not_started(error),
    };
    let other = match writer.try_clone() {
        Ok(other) => other,
        Err(error) => return not_started(error),
    };
    // The command holds the pipe's writing ends and is gone after this: the last process to hold one ends the copying.
    let spawned =
        command(plan, program, args).stdin(Stdio::null()).stdout(writer).stderr(other).process_group(0).spawn();
    let child = match spawned {
        Ok(child) => child,
        Err(error) => return not_started(error),
    };
    std::thread::spawn(move || copy(reader));
    wait_for(child.id(), Some(Duration::from_secs(job.seconds)))
}

fn copy(reader: PipeReader) {
    use std::io::Read as _;
    let mut reader = BufReader::new(reader);
    let mut line = Vec::new();
    loop {
        line.clear();
        match reader.by_ref().take(LINE_BYTES_MAX).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => return,
            Ok(_) => println!("{}", String::from_utf8_lossy(&line).trim_end_matches(['\n', '\r'])),
        }
    }
}

/// Waits for one process, and for every orphan on the way, as PID 1 must.
fn wait_for(pid: u32, bound: Option<Duration>) -> JobEnd {
    let start = Instant::now();
    loop {
        match rustix::process::wait(WaitOptions::NOHANG) {
            Ok(Some((found, status))) if u32::try_from(found.as_raw_pid()).is_ok_and(|it| it == pid) => {
                return match (status.exit_status(), status.terminating_signal()) {
                    (Some(code), _) => JobEnd::Exit(code),
                    (None, Some(signal)) => JobEnd::Signal(signal),
                    (None, None) => continue,
                };
            }
            Ok(Some(_)) => continue,
            Ok(None) | Err(_) => {}
        }
        if bound.is_some_and(|bound| start.elapsed() > bound) {
            return JobEnd::Bound;
        }
        std::thread::sleep(LOOK);
    }
}

/// Ends what `own` names, and says how many there were.
fn end_all(own: &dyn Fn() -> Vec<i32>) -> u64 {
    let mut seen = std::collections::BTreeSet::new();
    let start = Instant::now();
    while start.elapsed() < LEFT_GRACE {
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        if own().is_empty() {
            return 0;
        }
        std::thread::sleep(LOOK);
    }
    for _ in 0..KILL_ROUNDS {
        while let Ok(Some(_)) = rustix::process::wait(WaitOptions::NOHANG) {}
        let living: Vec<i32> = own();
        if living.is_empty() {
            break;
        }
        for pid in living {
            seen.insert(pid);
            if let Some(pid) = Pid::from_raw(pid) {
                // It may have gone by itself.
                let _gone = rustix::process::kill_process(pid, Signal::KILL);
            }
        }
        std::thread::sleep(LOOK);
    }
    u64::try_from(seen.len()).unwrap_or(u64::MAX)
}

/// Every process but PID 1 and the kernel's threads, which have PID 2 for a parent.
fn of_all() -> Vec<i32> {
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let numbers = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    numbers
        .filter(|&pid| {
            let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            let mut rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest).split(' ').skip(1);
            pid > 2 && rest.next().is_some_and(|parent| parent != "2")
        })
        .collect()
}

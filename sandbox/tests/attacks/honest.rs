//! What honest programs need: a sandbox in which these fail is taken off again.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::process::Command;

use libtest_mimic::Failed;
use sandbox::seccomp::{Test, rules};

use crate::inside::{Given, Got};
use crate::outside::Stage;
use crate::raw::{self, Ended, Reached, pointer, pointer_mut, text};
use crate::table::{Attack, honest};

pub(crate) const ATTACKS: &[Attack] = &[
    honest("honest::processes_and_threads", processes, Stage::plain),
    honest("honest::memory_and_random_numbers", memory, Stage::plain),
    honest("honest::files", files, Stage::plain),
    honest("honest::sockets_and_loopback", sockets, Stage::plain),
    honest("honest::a_terminal_of_its_own", terminal, Stage::plain),
    honest("honest::what_the_filter_lets_through", let_through, Stage::plain),
];

fn processes(_: &Given, got: &mut Got) {
    got.holds("it is not process 1", std::process::id() != 1);
    got.tried("a program", &Command::new("true").status());
    got.holds("a child", raw::in_child(|| 7) == Ok(Ended::Code(7)));
    // As process 1 it would ignore it.
    let aborted = raw::in_child(|| std::process::abort());
    got.holds("abort ends it", matches!(aborted, Ok(Ended::Signal(libc::SIGABRT, _))));
    got.holds("a debugger on its own child", raw::reaches(libc::SYS_getppid, [0; 6]) == Ok(Reached::Kernel));
    let session = raw::in_child(|| i32::from(raw::raw(libc::SYS_setsid, [0; 6]).is_err()));
    got.holds("a session", session == Ok(Ended::Code(0)));
    got.call("a lower priority", &raw::raw(libc::SYS_setpriority, [0, 0, 5, 0, 0, 0]));
    let mut all = [0_u64; 16];
    got.call("its processors", &raw::raw(libc::SYS_sched_getaffinity, [0, 128, pointer_mut(&mut all), 0, 0, 0]));
    got.holds("a thread", std::thread::spawn(|| 7).join().is_ok_and(|it| it == 7));
}

fn memory(_: &Given, got: &mut Got) {
    let mut random = [0_u8; 16];
    got.call("getrandom", &raw::raw(libc::SYS_getrandom, [pointer_mut(&mut random), 16, 0, 0, 0, 0]));
    got.call("a memfd", &raw::raw(libc::SYS_memfd_create, [text(c"x"), 1, 0, 0, 0, 0]));
    let executable = u64::from((libc::PROT_READ | libc::PROT_WRITE | libc::PROT_EXEC).unsigned_abs());
    let private = u64::from((libc::MAP_PRIVATE | libc::MAP_ANONYMOUS).unsigned_abs());
    got.call("memory to execute", &raw::raw(libc::SYS_mmap, [0, 4096, executable, private, u64::MAX, 0]));
    got.call("an eventfd", &raw::raw(libc::SYS_eventfd2, [0, 0, 0, 0, 0, 0]));
    got.call("an epoll", &raw::raw(libc::SYS_epoll_create1, [0; 6]));
    got.call("a timer", &raw::raw(libc::SYS_timerfd_create, [1, 0, 0, 0, 0, 0]));
    got.call("an inotify", &raw::raw(libc::SYS_inotify_init1, [0; 6]));
    got.call("shared memory", &raw::raw(libc::SYS_shmget, [0, 4096, 0o1600, 0, 0, 0]));
    for path in ["/proc/meminfo", "/proc/cpuinfo", "/proc/stat", "/proc/self/maps"] {
        got.tried(path, &fs::read(path));
    }
}

fn files(_: &Given, got: &mut Got) {
    got.tried("a folder in tmp", &fs::create_dir("/tmp/a"));
    got.tried("a file", &fs::write("/tmp/a/b", "x"));
    got.tried("a link", &fs::hard_link("/tmp/a/b", "/tmp/a/c"));
    got.tried("a mode", &fs::set_permissions("/tmp/a/b", fs::Permissions::from_mode(0o755)));
    got.tried("a group's folder", &fs::set_permissions("/tmp/a", fs::Permissions::from_mode(0o2755)));
    got.tried("shared memory by name", &fs::write("/dev/shm/x", "x"));
    got.tried("nothing written to", &fs::write("/dev/null", "x"));
    got.tried("a program's own file", &fs::File::open("/proc/self/exe"));
}

fn sockets(_: &Given, got: &mut Got) {
    got.tried("a pair", &UnixStream::pair());
    let listener = UnixListener::bind("/tmp/socket");
    got.tried("a socket with a name", &listener.and_then(|_listening| UnixStream::connect("/tmp/socket")));
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0));
    let spoken = listener.and_then(|it| {
        TcpStream::connect(it.local_addr()?)?.write_all(b"x")?;
        it.accept()?.0.read_exact(&mut [0])
    });
    got.tried("loopback", &spoken);
    got.call("a route socket", &raw::raw(libc::SYS_socket, [16, 3, 0, 0, 0, 0]));
}

fn terminal(_: &Given, got: &mut Got) {
    let master = fs::File::options().read(true).write(true).open("/dev/ptmx");
    let fd = master.as_ref().map_or(u64::MAX, |it| u64::from(std::os::fd::AsRawFd::as_raw_fd(it).unsigned_abs()));
    got.tried("opened", &master);
    let mut number = u32::MAX;
    let asked = raw::raw(libc::SYS_ioctl, [fd, 0x8004_5430, pointer_mut(&mut number), 0, 0, 0]); // TIOCGPTN
    got.call("its number", &asked);
    got.holds("the first of its own", number == 0);
    let unlocked = raw::raw(libc::SYS_ioctl, [fd, 0x4004_5431, pointer(&0_u32), 0, 0, 0]); // TIOCSPTLCK
    got.call("unlocked", &unlocked);
    // Not as its controlling terminal: the end of the first would be the end of this.
    let other = fs::File::options().read(true).write(true).custom_flags(libc::O_NOCTTY).open("/dev/pts/0");
    got.tried("its other end", &other);
}

/// The arguments that rules except: they reach the kernel.
fn let_through(_: &Given, got: &mut Got) {
    for rule in rules() {
        for test in rule.when {
            let (place, values): (u8, Vec<u32>) = match *test {
                Test::NotIn(place, values) => (place, values.to_vec()),
                Test::AnyBit(place, _) => (place, vec![0]),
                Test::In(place, _) => (place, vec![0x5413, 2]),
            };
            for value in values {
                let mut args = [0_u64; 6];
                if let Some(at) = args.get_mut(usize::from(place)) {
                    *at = u64::from(value);
                }
                let reached = raw::reaches(rule.call, args);
                // Another rule of the same call may look at another argument.
                let elsewhere = rule.when.len() > 1;
                got.holds(
                    format!("call {} {args:x?}: {reached:?}", rule.call),
                    reached == Ok(Reached::Kernel) || elsewhere,
                );
            }
        }
    }
}

//! What a protocol process that was taken over would try, as a table. The same attempts are made by the node of a test and
//! by a plain process of its account: what the one is denied the other can do.

use std::ffi::c_long;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read as _};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::path::Path;
use std::process::{Command, ExitCode, Stdio};

use crate::sys::{ioctl, raw};

/// What is to come of an attempt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Kept {
    /// Landlock denies it.
    Files,
    /// Landlock's scopes deny it, where the kernel has them.
    Scopes,
    /// The filter denies it with this error number.
    Filter(i32),
    /// It works: the node needs it.
    Open,
}

/// One attempt: its name, what is to come of it, and how it is made in the folder of a world.
pub(crate) type Attempt = (&'static str, Kept, fn(&Path) -> io::Result<()>);

/// The name of the test's abstract socket, from the world's folder.
pub(crate) fn abstract_name(dir: &Path) -> SocketAddr {
    use std::os::linux::net::SocketAddrExt as _;
    SocketAddr::from_abstract_name(dir.as_os_str().as_encoded_bytes()).unwrap()
}

/// All of them. The one that changes the process itself comes last.
pub(crate) const ATTEMPTS: &[Attempt] = &[
    ("read a file of another ROOT", Kept::Files, |dir| read(&dir.join("other/settings"))),
    ("read a file of the host", Kept::Files, |_| read(Path::new("/proc/sys/kernel/hostname"))),
    ("read settings", Kept::Files, |dir| read(&dir.join("root/settings/grace"))),
    ("read proc", Kept::Files, |_| read(Path::new("/proc/self/status"))),
    ("list the root", Kept::Files, |_| fs::read_dir("/").map(drop)),
    ("list /etc", Kept::Files, |_| fs::read_dir("/etc").map(drop)),
    ("write where anybody may", Kept::Files, |dir| write_and_remove(&dir.join("anybody/x"))),
    ("write in /tmp", Kept::Files, |dir| {
        write_and_remove(&Path::new("/tmp").join(dir.file_name().unwrap_or_default()))
    }),
    ("open a device", Kept::Files, |_| read(Path::new("/dev/full"))),
    ("run a program of elsewhere", Kept::Files, |dir| run(&dir.join("true"))),
    ("run what it wrote", Kept::Files, |dir| {
        let written = dir.join("root/state/program");
        fs::write(&written, fs::read("/bin/true")?)?;
        fs::set_permissions(&written, fs::Permissions::from_mode(0o700))?;
        let ran = run(&written);
        fs::remove_file(&written)?;
        ran
    }),
    ("make a link", Kept::Files, |dir| {
        let at = dir.join("root/state/link");
        std::os::unix::fs::symlink("/etc/passwd", &at)?;
        fs::remove_file(at)
    }),
    ("make a pipe", Kept::Files, |dir| {
        let at = dir.join("root/state/pipe");
        rustix::fs::mknodat(rustix::fs::CWD, &at, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0)?;
        fs::remove_file(at)
    }),
    ("make a socket", Kept::Files, |dir| {
        let at = dir.join("root/state/socket");
        let socket = rustix::net::socket(rustix::net::AddressFamily::UNIX, rustix::net::SocketType::STREAM, None)?;
        rustix::net::bind(&socket, &rustix::net::SocketAddrUnix::new(&at)?)?;
        fs::remove_file(at)
    }),
    ("move a file out of its folder", Kept::Files, |dir| {
        let (from, to) = (dir.join("root/state/moved"), dir.join("root/clones/moved"));
        fs::write(&from, "x")?;
        let moved = fs::rename(&from, &to);
        fs::remove_file(if moved.is_ok() { to } else { from })?;
        moved
    }),
    ("reach an abstract socket", Kept::Scopes, |dir| UnixStream::connect_addr(&abstract_name(dir)).map(drop)),
    ("signal another process of its account", Kept::Scopes, |dir| {
        let pid = fs::read_to_string(dir.join("root/state/outsider"))?.trim().parse().map_err(io::Error::other)?;
        let pid = rustix::process::Pid::from_raw(pid).ok_or(io::ErrorKind::InvalidData)?;
        Ok(rustix::process::test_kill_process(pid)?)
    }),
    ("trace its own child", Kept::Filter(libc::EPERM), |_| {
        let mut child = Command::new("/bin/sleep").arg("60").stdin(Stdio::null()).spawn()?;
        let traced = raw(libc::SYS_ptrace, [PTRACE_SEIZE, i64::from(child.id()), 0, 0]);
        child.kill()?;
        child.wait()?;
        traced
    }),
    ("read memory by number", Kept::Filter(libc::EPERM), |_| {
        raw(libc::SYS_process_vm_readv, [i64::from(std::process::id()), 0, 0, 0])
    }),
    ("take a descriptor by number", Kept::Filter(libc::EPERM), |_| {
        use rustix::process::{PidfdFlags, PidfdGetfdFlags, getpid, pidfd_getfd, pidfd_open};
        let own = pidfd_open(getpid(), PidfdFlags::empty())?;
        Ok(pidfd_getfd(own, 0, PidfdGetfdFlags::empty()).map(drop)?)
    }),
    ("look at keys", Kept::Filter(libc::ENOSYS), |_| raw(libc::SYS_keyctl, [0, SESSION_KEYRING, 1, 0])),
    ("change its personality", Kept::Filter(libc::EPERM), |_| raw(libc::SYS_personality, [ADDR_NO_RANDOMIZE, 0, 0, 0])),
    ("hear the kernel's devices", Kept::Filter(libc::EPROTONOSUPPORT), |_| {
        raw(libc::SYS_socket, [16, 3, KOBJECT_UEVENT, 0])
    }),
    ("serve on a port", Kept::Filter(libc::EPERM), |_| TcpListener::bind("127.0.0.1:0").map(drop)),
    ("keep files in its folders", Kept::Open, |dir| {
        for folder in ["root/state", "root/clones"] {
            let folder = dir.join(folder).join("kept");
            fs::create_dir(&folder)?;
            let (new, name) = (folder.join("x.new"), folder.join("x"));
            fs::write(&new, "x")?;
            File::open(&new)?.sync_all()?;
            fs::rename(&new, &name)?;
            fs::hard_link(&name, &new)?;
            OpenOptions::new().write(true).truncate(true).open(&name)?;
            File::open(&folder)?.sync_all()?;
            let names = fs::read_dir(&folder)?.count();
            fs::remove_dir_all(&folder)?;
            if names != 2 {
                return Err(io::Error::other("not both names"));
            }
        }
        Ok(())
    }),
    ("read what a resolver reads", Kept::Open, |_| read(Path::new("/etc/passwd"))),
    ("read random bytes", Kept::Open, |_| File::open("/dev/urandom")?.read_exact(&mut [0; 8])),
    ("run a program of the host", Kept::Open, |_| run(Path::new("/bin/true"))),
    ("connect to a server", Kept::Open, |dir| {
        TcpStream::connect(fs::read_to_string(dir.join("root/state/server"))?).map(drop)
    }),
    ("use a terminal of its own", Kept::Open, |_| {
        let master = OpenOptions::new().read(true).write(true).open("/dev/ptmx")?;
        let (mut locked, mut number) = (0, 0);
        ioctl(&master, libc::TIOCSPTLCK, &mut locked)?;
        ioctl(&master, libc::TIOCGPTN, &mut number)?;
        // It leads a session: the terminal must not become its own, whose end would hang it up.
        let no_control = rustix::fs::OFlags::RDWR | rustix::fs::OFlags::NOCTTY;
        Ok(rustix::fs::open(format!("/dev/pts/{number}"), no_control, rustix::fs::Mode::empty()).map(drop)?)
    }),
    ("take a user namespace", Kept::Filter(libc::EPERM), |_| {
        raw(libc::SYS_unshare, [i64::from(libc::CLONE_NEWUSER), 0, 0, 0])
    }),
];

const PTRACE_SEIZE: c_long = 0x4206;
const SESSION_KEYRING: c_long = -3;
const ADDR_NO_RANDOMIZE: c_long = 0x4_0000;
const KOBJECT_UEVENT: c_long = 15;

/// Makes every attempt: a line each, its name and `ok` or the error's number or words.
pub(crate) fn make_all(dir: &Path) -> String {
    let said = |(name, _, attempt): &Attempt| match attempt(dir) {
        Ok(()) => format!("{name}\tok\n"),
        Err(error) => {
            format!("{name}\t{}\n", error.raw_os_error().map_or_else(|| error.to_string(), |it| it.to_string()))
        }
    };
    ATTEMPTS.iter().map(said).collect()
}

/// The same attempts by whoever started this, said on standard output.
#[expect(clippy::print_stdout, reason = "it answers there")]
pub(crate) fn main(root: &Path) -> ExitCode {
    print!("{}", make_all(root.parent().unwrap_or(root)));
    ExitCode::SUCCESS
}

fn read(path: &Path) -> io::Result<()> {
    File::open(path)?.read(&mut [0; 16]).map(drop)
}

fn write_and_remove(path: &Path) -> io::Result<()> {
    fs::write(path, "x")?;
    fs::remove_file(path)
}

fn run(program: &Path) -> io::Result<()> {
    let done = Command::new(program).stdin(Stdio::null()).status()?.success();
    if done { Ok(()) } else { Err(io::Error::other("it failed")) }
}

/// Runs the rest of the words where `landlock_create_ruleset(2)` says that this kernel has none. Comes back with why not.
pub(crate) fn without_landlock(words: &[&str]) -> io::Error {
    use std::os::unix::process::CommandExt as _;
    const LANDLOCK_CREATE_RULESET: u32 = 444;
    let answers = 0x0005_0000 | libc::EOPNOTSUPP.cast_unsigned();
    let program = [(0x20, 0, 0), (0x15, 1, LANDLOCK_CREATE_RULESET), (0x06, 0, answers), (0x06, 0, 0x7fff_0000)];
    let bytes: Vec<u8> = program
        .into_iter()
        .flat_map(|(code, no, k): (u8, u8, u32)| {
            let [k0, k1, k2, k3] = k.to_le_bytes();
            [code, 0, 0, no, k0, k1, k2, k3]
        })
        .collect();
    if let Err(error) = sandbox::sys::load_filter(&bytes) {
        return error.into();
    }
    match words {
        [program, arguments @ ..] => Command::new(program).args(arguments).exec(),
        [] => io::ErrorKind::InvalidInput.into(),
    }
}

/// What the attempts find in the folder of a world.
#[derive(Debug)]
pub(crate) struct Prepared {
    _abstract_socket: UnixListener,
    _server: TcpListener,
    outsider: std::process::Child,
}

impl Prepared {
    /// Makes it. `account` is the node's.
    pub(crate) fn new(dir: &Path, account: u32) -> Self {
        use std::os::unix::process::CommandExt as _;
        let server = TcpListener::bind("127.0.0.1:0").unwrap();
        let outsider = Command::new("/bin/sleep").arg("600").uid(account).gid(account).spawn().unwrap();
        let state = dir.join("root/state");
        fs::write(state.join("server"), server.local_addr().unwrap().to_string()).unwrap();
        fs::write(state.join("outsider"), outsider.id().to_string()).unwrap();
        fs::create_dir(dir.join("anybody")).unwrap();
        fs::set_permissions(dir.join("anybody"), fs::Permissions::from_mode(0o777)).unwrap();
        fs::create_dir(dir.join("other")).unwrap();
        fs::write(dir.join("other/settings"), "for anybody").unwrap();
        fs::write(dir.join("root/settings/grace"), "5").unwrap();
        fs::copy("/bin/true", dir.join("true")).unwrap();
        for path in [state.join("server"), state.join("outsider")] {
            fs::set_permissions(path, fs::Permissions::from_mode(0o644)).unwrap();
        }
        Self { _abstract_socket: UnixListener::bind_addr(&abstract_name(dir)).unwrap(), _server: server, outsider }
    }
}

impl Drop for Prepared {
    fn drop(&mut self) {
        self.outsider.kill().unwrap();
        self.outsider.wait().unwrap();
    }
}

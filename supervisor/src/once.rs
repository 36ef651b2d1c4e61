//! `ocx-supervisor once FILE`: confines and runs one process, streams untouched, and exits as it does.

use std::fs::File;
use std::io::{self, Read as _};
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::{Errno, fcntl_dupfd_cloexec};
use rustix::process::{Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, pidfd_open, pidfd_send_signal, waitid};
use rustix::time::{Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, timerfd_create, timerfd_settime};
use sandbox::status::{Ended, Listener, Said};
use supervisor::wire::accounts::{Account, Accounts, SERVICE_ROOT, derive};
use supervisor::wire::plan::{LaunchPlan, Process};

use crate::cgroup::RunCgroup;
use crate::host::Host;
use crate::launch::{self, Launching, StageError};
use crate::once_file::{self, Asked};
use crate::policy::{self, CheckedPlan};
use crate::status;

/// Exit code of what is not the program's own failure.
pub(crate) const OWN_FAILURE: u8 = 125;
/// Largest FILE read.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// How long a program that was asked to end may take.
const GRACE: Duration = Duration::from_secs(5);
/// How long what was killed may take to be gone.
const GONE_MAX: Duration = Duration::from_secs(10);
/// Between two looks whether it is, where nothing tells.
const GONE_LOOK: Duration = Duration::from_millis(10);

const HELP: &str = "\
Usage: ocx-supervisor once [--account NAME|UID:GID] FILE

Confines and runs one process as root, and exits as it does: with its exit code,
or 128+N when signal N ended it. Its standard streams are this command's own.
Failures of its own: 125; the program cannot be executed: 126; it is not found:
127. Each with one line on stderr: the stage, and why. A limit that ended the
process is named there too.

FILE holds JSON, with paths as they are (no $$values$$):

  {\"sandbox\": {\"uid\": 1000, \"gid\": 1000, \"linux_capabilities\": [],
               \"network\": false, \"isolate_terminal\": true,
               \"ends_with_parent\": true,
               \"proc\": \"/proc\", \"dev\": \"/dev\", \"tmp\": \"/tmp\",
               \"read_only\": [\"/usr\", \"/bin\", \"/lib\", \"/lib64\"],
               \"read_write\": [], \"homes\": [], \"created_files\": []},
   \"limits\": {\"wall\": \"2m\", \"cpu\": 3, \"processes\": 5,
              \"file_size\": \"4G\", \"memory\": \"1G\"},
   \"process\": {\"command\": [\"id\"], \"env\": {\"PATH\": \"/usr/bin:/bin\"},
               \"cwd\": \"/\"}}

Every key of sandbox is required; limits, env and cwd may be left out.

  --account NAME|UID:GID  the host account it runs as, never root (default ocx-run)

The process sees nothing of the host but what read_only, read_write and devices
name, as that account sees it. Interrupting this command ends the process: TERM,
and KILL 5 seconds later or at a second interruption.
";

/// Why nothing was run, or not to the end.
pub(crate) struct Trouble {
    code: u8,
    pub(crate) line: String,
}

impl Trouble {
    pub(crate) fn own(stage: &str, why: impl std::fmt::Display) -> Self {
        Self { code: OWN_FAILURE, line: format!("{stage}: {why}") }
    }
}

impl From<StageError> for Trouble {
    fn from(error: StageError) -> Self {
        Self { code: error.code, line: format!("{}: {error}", error.stage()) }
    }
}

/// Runs the command with its arguments after `once`.
#[expect(clippy::print_stdout, clippy::print_stderr, reason = "its help, and its one line")]
pub(crate) fn main(arguments: &[String]) -> ExitCode {
    if arguments.iter().any(|it| it == "--help" || it == "-h") {
        print!("{HELP}");
        return ExitCode::SUCCESS;
    }
    match run(arguments) {
        Ok((code, None)) => ExitCode::from(code),
        Ok((code, Some(limit))) => {
            eprintln!("ocx-supervisor once: ended by {limit}");
            ExitCode::from(code)
        }
        Err(trouble) => {
            eprintln!("ocx-supervisor once: {}", trouble.line);
            ExitCode::from(trouble.code)
        }
    }
}

/// A file's plan, checked on this host, and the host.
pub(crate) struct Ready {
    /// What the file asks.
    pub(crate) plan: LaunchPlan,
    /// What policy made of it.
    pub(crate) checked: CheckedPlan,
    /// This host.
    pub(crate) host: Host,
}

/// Reads a file and checks it, to be run as an account.
///
/// # Errors
/// The stage, and why.
pub(crate) fn ready(file: &str, account: &str) -> Result<Ready, Trouble> {
    if !rustix::process::geteuid().is_root() {
        return Err(Trouble::own("start", "it has to be root, to become another account and to make namespaces"));
    }
    let asked = read(file)?;
    let root = Path::new(SERVICE_ROOT);
    let accounts = accounts(account)?;
    let host = Host::look(root, accounts, Path::new("/opt/ocx"), Path::new("/opt/ocx/current"))
        .map_err(|error| Trouble::own("start", error))?;
    let plan = plan(asked).map_err(|error| Trouble::own("start", error))?;
    let checked = policy::check(&plan, &host)
        .map_err(|it| Trouble::own(&format!("refused ({})", it.row), format!("{}: {}", it.field, it.why)))?;
    Ok(Ready { plan, checked, host })
}

fn run(arguments: &[String]) -> Result<(u8, Option<String>), Trouble> {
    let (file, account) = usage(arguments)?;
    let Ready { plan, checked, host } = ready(file, account)?;
    let signals = sandbox::sys::signals_as_descriptor(&[libc::SIGINT, libc::SIGTERM, libc::SIGHUP, libc::SIGQUIT])
        .map_err(|error| Trouble::own("start", error))?;
    let stream = |it: std::os::fd::BorrowedFd<'_>| {
        fcntl_dupfd_cloexec(it, 3).map_err(|error| Trouble::own("streams", policy::plain(error)))
    };
    let (stdin, stdout, stderr) = (io::stdin(), io::stdout(), io::stderr());
    let streams = [stream(stdin.as_fd())?, stream(stdout.as_fd())?, stream(stderr.as_fd())?];
    let cgroup = match &host.cgroups {
        Some(cgroups) => {
            let made = cgroups.create(&plan.run, &plan.limits).map_err(|error| Trouble::own("cgroup", error))?;
            Some(Group(made))
        }
        None => None,
    };
    let cgroup = cgroup.as_ref();
    let launching = launch::start(checked, streams, cgroup.map(|it| &it.0), &host)?;
    Watching::new(launching, &signals, &plan, cgroup.map(|it| &it.0))?.watch()
}

/// FILE and the account, from the command line.
pub(crate) fn usage(arguments: &[String]) -> Result<(&str, &str), Trouble> {
    let (mut file, mut account) = (None, "ocx-run");
    let mut rest = arguments.iter();
    let wrong = |why: &str| Trouble::own("usage", format!("{why}; ocx-supervisor once --help says more"));
    while let Some(word) = rest.next() {
        match word.as_str() {
            "--account" => account = rest.next().ok_or_else(|| wrong("--account needs NAME or UID:GID"))?,
            other => match other.strip_prefix("--account=") {
                Some(given) => account = given,
                None if other.starts_with('-') => return Err(wrong(&format!("{other} is no option"))),
                None if file.is_some() => return Err(wrong("more than one FILE")),
                None => file = Some(other),
            },
        }
    }
    Ok((file.ok_or_else(|| wrong("FILE is missing"))?, account))
}

fn read(path: &str) -> Result<Asked, Trouble> {
    let trouble = |why: String| Trouble::own("file", format!("{path}: {why}"));
    let mut bytes = Vec::with_capacity(4 << 10);
    let file = File::open(path).map_err(|error| trouble(plain(&error)))?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| trouble(plain(&error)))?;
    if u64::try_from(bytes.len()).is_ok_and(|it| it > FILE_BYTES_MAX) {
        return Err(trouble(format!("more than {FILE_BYTES_MAX} bytes")));
    }
    once_file::read(&bytes).map_err(trouble)
}

fn plain(error: &io::Error) -> String {
    Errno::from_io_error(error).map_or_else(|| error.to_string(), policy::plain)
}

/// The accounts of a launch: the one asked for, and one for the init.
fn accounts(asked: &str) -> Result<Accounts, Trouble> {
    let trouble = |why: String| Trouble::own("account", why);
    let named = |name: &str| match nix::unistd::User::from_name(name) {
        Ok(Some(user)) => Ok(Account { uid: user.uid.as_raw(), gid: user.gid.as_raw() }),
        Ok(None) => {
            Err(trouble(format!("this host has no account {name}; give --account UID:GID, such as 64321:64321")))
        }
        Err(error) => Err(trouble(format!("{name}: {error}"))),
    };
    let run = match asked.split_once(':') {
        Some((uid, gid)) => match (uid.parse(), gid.parse()) {
            (Ok(uid), Ok(gid)) => Account { uid, gid },
            _ => return Err(trouble(format!("{asked}: not UID:GID"))),
        },
        None => named(asked)?,
    };
    if run.uid == 0 || run.gid == 0 || run.uid == u32::MAX || run.gid == u32::MAX {
        return Err(trouble(format!("{asked}: a process never runs as root")));
    }
    // An init of another account cannot be signalled by the process, whatever went wrong.
    let derived = derive(Path::new("ocx-supervisor once"));
    let cell = cell_account().filter(|it| it.uid != run.uid).unwrap_or(derived.cell);
    Ok(Accounts { run, cell, ..derived })
}

/// The init's account, where the host's own file has it. Its name services, which may be asked over a network, are not
/// asked: any account that is nobody's does.
fn cell_account() -> Option<Account> {
    let mut text = Vec::with_capacity(16 << 10);
    File::open("/etc/passwd").ok()?.take(FILE_BYTES_MAX).read_to_end(&mut text).ok()?;
    let line = text.split(|it| *it == b'\n').find_map(|it| it.strip_prefix(b"ocx-cell:"))?;
    let mut ids = std::str::from_utf8(line).ok()?.split(':').skip(1).map(str::parse);
    let account = Account { uid: ids.next()?.ok()?, gid: ids.next()?.ok()? };
    (account.uid != 0 && account.gid != 0).then_some(account)
}

fn plan(asked: Asked) -> io::Result<LaunchPlan> {
    let mut random = [0; 20];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(LaunchPlan {
        run: random.iter().map(|it| format!("{it:02x}")).collect(),
        workspace: None,
        sandbox: Some(asked.sandbox),
        limits: asked.limits,
        process: Process {
            command: asked.command,
            env: asked.env,
            cwd: asked.cwd,
            keep_stderr_bytes: 0,
            keep_stdout_bytes: 0,
        },
    })
}

/// A cgroup that is ended and removed whatever happens.
struct Group(RunCgroup);

impl Drop for Group {
    #[expect(clippy::print_stderr, reason = "what is left on the host is worth a line")]
    fn drop(&mut self) {
        if let Err(error) = end_group(&self.0) {
            eprintln!("ocx-supervisor once: cgroup: {error}; it is left");
        }
    }
}

/// Kills what lives in a group, waits until nothing does, and removes it.
fn end_group(group: &RunCgroup) -> io::Result<()> {
    if group.populated() {
        let until = std::time::Instant::now() + GONE_MAX;
        let events = group.events_fd()?;
        group.kill()?;
        while group.populated() {
            if std::time::Instant::now() > until {
                return Err(io::Error::other(format!("something lives {} s after KILL", GONE_MAX.as_secs())));
            }
            match &events {
                Some(events) => {
                    poll(&mut [PollFd::new(events, PollFlags::PRI)], Some(&time(GONE_MAX)))?;
                }
                None => {
                    std::thread::sleep(GONE_LOOK);
                    group.kill()?;
                }
            }
        }
    }
    group.remove()
}

fn time(duration: Duration) -> Timespec {
    let seconds = i64::try_from(duration.as_secs()).unwrap_or(i64::MAX);
    Timespec { tv_sec: seconds, tv_nsec: duration.subsec_nanos().into() }
}

/// Why the process is being ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ending {
    Wall,
    Memory,
    Interrupted,
}

/// A launch under way.
struct Watching<'a> {
    cell: Launching,
    signals: &'a OwnedFd,
    plan: &'a LaunchPlan,
    cgroup: Option<&'a RunCgroup>,
    /// The wall's deadline, then the grace's.
    timer: OwnedFd,
    listener: Listener,
    /// The cell has closed its status pipe.
    silent: bool,
    ended: Option<(Ended, u64)>,
    ending: Option<Ending>,
}

impl<'a> Watching<'a> {
    fn new(
        cell: Launching,
        signals: &'a OwnedFd,
        plan: &'a LaunchPlan,
        cgroup: Option<&'a RunCgroup>,
    ) -> Result<Self, Trouble> {
        let trouble = |error: Errno| Trouble::own("start", policy::plain(error));
        // The boot clock cannot be set and goes on while the machine sleeps.
        let timer = timerfd_create(TimerfdClockId::Boottime, TimerfdFlags::CLOEXEC | TimerfdFlags::NONBLOCK)
            .map_err(trouble)?;
        let watching = Self {
            cell,
            signals,
            plan,
            cgroup,
            timer,
            listener: Listener::default(),
            silent: false,
            ended: None,
            ending: None,
        };
        if let Some(seconds) = plan.limits.wall_s {
            watching.arm(Duration::from_secs(seconds)).map_err(trouble)?;
        }
        match rustix::io::write(&watching.cell.lifeline, &[sandbox::init::GO]) {
            // A cell that has failed already reads no more; what it said tells why.
            Ok(_) | Err(Errno::PIPE) => Ok(watching),
            Err(error) => Err(trouble(error)),
        }
    }

    fn arm(&self, after: Duration) -> Result<(), Errno> {
        let once = Itimerspec { it_interval: time(Duration::ZERO), it_value: time(after) };
        timerfd_settime(&self.timer, TimerfdTimerFlags::empty(), &once).map(|_| ())
    }

    fn watch(mut self) -> Result<(u8, Option<String>), Trouble> {
        loop {
            let oom = self.cgroup.and_then(RunCgroup::oom_fd);
            let mut waiting = vec![
                PollFd::new(&self.cell.pidfd, PollFlags::IN),
                // At its end it would be ready for ever: then the cell's own end alone is waited for.
                PollFd::new(if self.silent { &self.cell.pidfd } else { &self.cell.status }, PollFlags::IN),
                PollFd::new(self.signals, PollFlags::IN),
                PollFd::new(&self.timer, PollFlags::IN),
            ];
            waiting.extend(oom.as_ref().map(|it| PollFd::new(it, PollFlags::IN | PollFlags::PRI)));
            match poll(&mut waiting, None) {
                Ok(_) | Err(Errno::INTR) => {}
                Err(error) => return Err(Trouble::own("watch", policy::plain(error))),
            }
            let ready: Vec<bool> = waiting.iter().map(|it| !it.revents().is_empty()).collect();
            let is_ready = |index: usize| ready.get(index).copied().unwrap_or(false);
            drop(waiting);
            if is_ready(0) {
                return self.gone();
            }
            if is_ready(1) {
                self.listen()?;
            }
            if is_ready(2) && drained(self.signals) {
                self.end(Ending::Interrupted);
            }
            if is_ready(3) && drained(&self.timer) {
                self.end(Ending::Wall);
            }
            if is_ready(4) && self.cgroup.is_some_and(|it| it.oom_kills() > 0) {
                self.end(Ending::Memory);
            }
        }
    }

    /// TERM first, KILL when it was asked before; a run out of memory is not asked.
    fn end(&mut self, why: Ending) {
        let again = self.ending.is_some();
        self.ending.get_or_insert(why);
        let asked = !again
            && why != Ending::Memory
            && program(self.cell.pid).is_some_and(|it| pidfd_send_signal(it, Signal::TERM).is_ok())
            && self.arm(GRACE).is_ok();
        if !asked {
            // The init takes everything in the sandbox with it. It may be gone already.
            let _gone = pidfd_send_signal(&self.cell.pidfd, Signal::KILL);
        }
    }

    /// Hears what the cell says; its own failure ends this command.
    fn listen(&mut self) -> Result<(), Trouble> {
        let mut bytes = [0; sandbox::status::MESSAGE_BYTES_MAX];
        loop {
            match rustix::io::read(&self.cell.status, &mut bytes) {
                Ok(0) => {
                    self.silent = true;
                    break;
                }
                Ok(count) => self.listener.hear(bytes.get(..count).unwrap_or_default()),
                Err(Errno::INTR) => {}
                Err(_) => break,
            }
        }
        let garbled = |_| Trouble::own("init", "it said what no cell says");
        while let Some(said) = self.listener.next_said().map_err(garbled)? {
            match said {
                Said::Running => {}
                Said::Ended { how, cpu_us } => self.ended = Some((how, cpu_us)),
                Said::Failed(failed) => {
                    let line = format!("{}: {}", failed.stage.word(), status::why(&failed));
                    return Err(Trouble { code: failed.code, line });
                }
            }
        }
        Ok(())
    }

    /// Everything in the sandbox is gone: how the process ended.
    fn gone(mut self) -> Result<(u8, Option<String>), Trouble> {
        self.listen()?;
        let reaped = waitid(WaitId::PidFd(self.cell.pidfd.as_fd()), WaitIdOptions::EXITED);
        let out_of_memory = self.cgroup.is_some_and(|it| it.oom_kills() > 0);
        let Some((how, cpu_us)) = self.ended else {
            let killed = reaped.ok().flatten().and_then(|it| it.terminating_signal());
            if self.ending.is_none() && !out_of_memory {
                let how = killed.map_or("ended".to_owned(), |signal| format!("was ended by signal {signal}"));
                return Err(Trouble::own("init", format!("the sandbox {how} without a word")));
            }
            return Ok((status::exit_code(Ended::Signal(9)), self.limit(None, out_of_memory)));
        };
        let passed = status::limit_passed(how, cpu_us, &self.plan.limits, out_of_memory);
        Ok((status::exit_code(how), self.limit(passed, out_of_memory)))
    }

    /// The limit that ended it, in words.
    fn limit(&self, passed: Option<&'static str>, out_of_memory: bool) -> Option<String> {
        let limits = &self.plan.limits;
        match (self.ending, passed) {
            (Some(Ending::Wall), _) => Some(format!("limits.wall ({} s)", limits.wall_s.unwrap_or(0))),
            (Some(Ending::Interrupted), _) => None,
            (Some(Ending::Memory), _) => Some(format!("limits.memory ({} bytes)", limits.memory_bytes.unwrap_or(0))),
            (None, _) if out_of_memory => Some(format!("limits.memory ({} bytes)", limits.memory_bytes.unwrap_or(0))),
            (None, Some("cpu")) => Some(format!("limits.cpu ({} s)", limits.cpu_s.unwrap_or(0))),
            (None, Some(key)) => Some(format!("limits.{key} ({} bytes)", limits.file_size_bytes.unwrap_or(0))),
            (None, None) => None,
        }
    }
}

/// Whether there was something to read; takes what there is.
fn drained(fd: &OwnedFd) -> bool {
    let mut bytes = [0; 1024];
    rustix::io::read(fd, &mut bytes).is_ok_and(|it| it > 0)
}

/// The program: the first child of its init. What the program leaves to the init comes after it.
fn program(init: u32) -> Option<OwnedFd> {
    let children = std::fs::read_to_string(format!("/proc/{init}/task/{init}/children")).ok()?;
    let pid = children.split_whitespace().next()?.parse().ok().and_then(Pid::from_raw)?;
    pidfd_open(pid, PidfdFlags::empty()).ok()
}

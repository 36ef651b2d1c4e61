//! A world of one test: a `ROOT`, a release of its own, a supervisor, and the link's other end in the test's hands.

use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead as _, BufReader};
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use sandbox::spec::{Confinement, Limits};
use supervisor::wire::frame::{self, FrameError};
use supervisor::wire::message::{End, EndedBy, Event, EventNumber, Handle, Reply, Request, ToNode, ToSupervisor};
use supervisor::wire::plan::{LaunchPlan, Process, Step};

/// How long anything expected may take before the test fails.
pub(crate) const SOON: Duration = Duration::from_secs(300);

static NEXT: AtomicU32 = AtomicU32::new(0);

pub(crate) struct World {
    pub(crate) dir: PathBuf,
    pub(crate) root: PathBuf,
    /// Whether the supervisor is to find no cgroup v2 mounted.
    pub(crate) without_v2: bool,
    /// Whether the supervisor is to find a kernel without Landlock.
    pub(crate) without_landlock: bool,
    listener: UnixListener,
    supervisor: Option<Child>,
    log: Arc<(Mutex<Vec<String>>, Condvar)>,
}

/// The link's other end, and the protocol process that had it.
pub(crate) struct Node {
    pub(crate) link: OwnedFd,
    pub(crate) pid: u32,
    test: UnixStream,
    next: u64,
    events: VecDeque<(Event, Vec<OwnedFd>)>,
}

/// An `exited` event with its tails read.
#[derive(Debug)]
pub(crate) struct Exited {
    pub(crate) event: EventNumber,
    pub(crate) end: End,
    pub(crate) ended_by: EndedBy,
    pub(crate) leftovers: u32,
    pub(crate) stderr: String,
    pub(crate) stdout: String,
}

impl World {
    /// A `ROOT` nothing serves yet.
    pub(crate) fn new() -> Self {
        let n = NEXT.fetch_add(1, Ordering::Relaxed);
        // Not below /tmp: runs see a /tmp of their own, and what they are shown lies elsewhere.
        let dir = PathBuf::from(format!("/var/tmp/ocx-link-{}-{n}", std::process::id()));
        let release = dir.join("release");
        std::fs::create_dir_all(&release).unwrap();
        for (from, name) in [
            (PathBuf::from(env!("CARGO_BIN_EXE_ocx-supervisor")), "ocx-supervisor"),
            (std::env::current_exe().unwrap(), "ocx"),
        ] {
            std::fs::copy(from, release.join(name)).unwrap();
        }
        for path in [&dir, &release] {
            std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o755)).unwrap();
        }
        let socket = dir.join("node.sock");
        let listener = UnixListener::bind(&socket).unwrap();
        std::fs::set_permissions(&socket, std::fs::Permissions::from_mode(0o777)).unwrap();
        let root = dir.join("root");
        Self { dir, root, without_v2: false, without_landlock: false, listener, supervisor: None, log: Arc::default() }
    }

    /// A world served, with a node that has said hello.
    pub(crate) fn served() -> (Self, Node) {
        let mut world = Self::new();
        world.start();
        let node = world.greeted();
        (world, node)
    }

    pub(crate) fn command(&self) -> Command {
        let program = self.dir.join("release/ocx-supervisor");
        let mut command = if self.without_v2 {
            // In a mount namespace of its own, so that the host keeps what it has.
            let script =
                "while read -r _ at kind _; do [ $kind = cgroup2 ] && umount -l $at; done < /proc/mounts; exec \"$@\"";
            let mut command = Command::new("unshare");
            command.args(["--mount", "--propagation", "private", "sh", "-c", script, "sh"]).arg(program);
            command
        } else if self.without_landlock {
            let mut command = Command::new(self.dir.join("release/ocx"));
            command.arg("without-landlock").arg(program);
            command
        } else {
            Command::new(program)
        };
        command.args(["serve", "--root"]).arg(&self.root).stdin(Stdio::null());
        command
    }

    /// Makes one of the owner's settings, also before the first start.
    pub(crate) fn setting(&self, name: &str, text: &str) {
        let settings = self.root.join("settings");
        if !settings.exists() {
            std::fs::create_dir_all(&settings).unwrap();
            for (path, mode) in [(&self.root, 0o711), (&settings, 0o755)] {
                std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
            }
        }
        std::fs::write(settings.join(name), text).unwrap();
    }

    pub(crate) fn start(&mut self) {
        // Another test's fork may hold the copy of the program open for writing until its own exec.
        let end = Instant::now() + SOON;
        let mut child = loop {
            match self.command().stderr(Stdio::piped()).spawn() {
                Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy && Instant::now() < end => {
                    std::thread::sleep(Duration::from_millis(5));
                }
                other => break other.unwrap(),
            }
        };
        let lines = BufReader::new(child.stderr.take().unwrap());
        let log = Arc::clone(&self.log);
        std::thread::spawn(move || {
            for line in lines.lines().map_while(Result::ok) {
                log.0.lock().unwrap().push(line);
                log.1.notify_all();
            }
        });
        self.supervisor = Some(child);
    }

    /// Everything logged so far.
    pub(crate) fn logged(&self) -> Vec<String> {
        self.log.0.lock().unwrap_or_else(std::sync::PoisonError::into_inner).clone()
    }

    /// Waits for the `n`th line that holds `what`.
    pub(crate) fn wait_log(&self, what: &str, n: usize) -> String {
        let (lines, more) = &*self.log;
        let until = Instant::now() + SOON;
        let mut guard = lines.lock().unwrap();
        loop {
            if let Some(line) = guard.iter().filter(|line| line.contains(what)).nth(n - 1) {
                return line.clone();
            }
            let left = until.saturating_duration_since(Instant::now());
            assert!(!left.is_zero(), "no line {n} with {what:?} in {:#?}", *guard);
            guard = more.wait_timeout(guard, left).unwrap().0;
        }
    }

    pub(crate) fn supervisor_pid(&self) -> u32 {
        self.supervisor.as_ref().unwrap().id()
    }

    /// Ends the supervisor by a signal and gives its exit code.
    pub(crate) fn end_supervisor(&mut self, signal: rustix::process::Signal) -> Option<i32> {
        let mut child = self.supervisor.take().unwrap();
        let pid = rustix::process::Pid::from_child(&child);
        rustix::process::kill_process(pid, signal).unwrap();
        child.wait().unwrap().code()
    }

    /// The next protocol process the supervisor starts.
    pub(crate) fn node(&self) -> Node {
        self.node_within(SOON)
    }

    /// The next protocol process that is an ordinary one.
    pub(crate) fn node_within(&self, wait: Duration) -> Node {
        self.listener.set_nonblocking(true).unwrap();
        let until = Instant::now() + wait;
        let test = loop {
            match self.listener.accept() {
                Ok((test, _)) => break test,
                Err(_) => assert!(Instant::now() < until, "no node came: {:#?}", self.logged()),
            }
            std::thread::sleep(Duration::from_millis(5));
        };
        test.set_nonblocking(false).unwrap();
        let pid = rustix::net::sockopt::socket_peercred(&test).unwrap().pid.as_raw_nonzero().get().unsigned_abs();
        let mut frame = frame::receive(test.as_fd()).unwrap();
        let link = frame.descriptors.pop().unwrap();
        rustix::net::sockopt::set_socket_timeout(&link, rustix::net::sockopt::Timeout::Recv, Some(SOON)).unwrap();
        Node { link, pid, test, next: 1, events: VecDeque::new() }
    }

    /// The next protocol process, which has said hello.
    pub(crate) fn greeted(&self) -> Node {
        let mut node = self.node();
        let Reply::Welcome { .. } = node.call(Request::Hello { version: 1 }, &[]) else { panic!("no welcome") };
        node
    }

    /// The programs that nodes of this world drive.
    pub(crate) fn driven(&self) -> Vec<u32> {
        processes(&format!("idle\0{}", self.root.display()))
    }

    pub(crate) fn workspace(&self, name: &str) -> String {
        self.root.join("workspaces").join(name).display().to_string()
    }

    /// A run's plan: a shell script, in its workspace.
    pub(crate) fn plan(&self, run: &str, workspace: Option<&str>, script: &str) -> LaunchPlan {
        plan_at(run, workspace, script)
    }

    /// Takes, prepares and launches a script; gives the handle and its workspace.
    pub(crate) fn run(&self, node: &mut Node, run: &str, script: &str) -> (Handle, String) {
        let (handle, at) = self.prepared(node, run);
        let plan = self.plan(run, Some(&at), script);
        let reply = node.launch(handle, &plan, b"first line\n");
        assert!(matches!(reply, Reply::Launched { .. }), "{reply:?} {:#?}", self.logged());
        (handle, at)
    }

    /// Takes and prepares a run.
    pub(crate) fn prepared(&self, node: &mut Node, run: &str) -> (Handle, String) {
        let handle = node.take(run);
        let at = self.workspace(run.get(..10).unwrap());
        let steps = vec![Step::Directory { at: at.clone() }];
        let reply = node.call(Request::Prepare { handle, workspace_at: None, checkin: None, steps }, &[]);
        assert_eq!(reply, Reply::Prepared { checkin: None }, "{:#?}", self.logged());
        (handle, at)
    }
}

impl Drop for World {
    fn drop(&mut self) {
        if self.supervisor.is_some() {
            self.end_supervisor(rustix::process::Signal::TERM);
        }
        if std::thread::panicking() {
            crate::say(&format!("{:#?}", self.logged()));
        }
        std::fs::remove_dir_all(&self.dir).unwrap();
    }
}

impl Node {
    /// Sends one frame of any bytes.
    pub(crate) fn raw(&self, bytes: &[u8], fds: &[BorrowedFd<'_>]) {
        use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !fds.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(fds)));
        }
        rustix::net::sendmsg(&self.link, &[std::io::IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
    }

    pub(crate) fn send(&mut self, request: Request, fds: &[BorrowedFd<'_>]) -> u64 {
        let id = self.next;
        self.next += 1;
        frame::send(self.link.as_fd(), &ToSupervisor { id, request }, fds).unwrap();
        id
    }

    fn receive(&self) -> Result<(ToNode, Vec<OwnedFd>), FrameError> {
        let frame = frame::receive(self.link.as_fd())?;
        Ok((frame::decode(&frame.bytes).unwrap(), frame.descriptors))
    }

    /// Waits for the answer to a request sent before; events on the way are kept.
    pub(crate) fn reply(&mut self, to: u64) -> Reply {
        loop {
            match self.receive().unwrap() {
                (ToNode::Reply { id, reply }, _) => {
                    assert_eq!(id, to, "{reply:?}");
                    return reply;
                }
                (ToNode::Event(event), fds) => self.events.push_back((event, fds)),
            }
        }
    }

    pub(crate) fn call(&mut self, request: Request, fds: &[BorrowedFd<'_>]) -> Reply {
        self.call_with(request, fds).0
    }

    /// Asks and waits for the answer; events on the way are kept.
    pub(crate) fn call_with(&mut self, request: Request, fds: &[BorrowedFd<'_>]) -> (Reply, Vec<OwnedFd>) {
        let what = format!("{request:?}");
        let id = self.send(request, fds);
        loop {
            match self.receive().unwrap_or_else(|error| panic!("{what}: {error}")) {
                (ToNode::Reply { id: of, reply }, fds) => {
                    assert_eq!(of, id);
                    return (reply, fds);
                }
                (ToNode::Event(event), fds) => self.events.push_back((event, fds)),
            }
        }
    }

    pub(crate) fn event(&mut self) -> (Event, Vec<OwnedFd>) {
        if let Some(event) = self.events.pop_front() {
            return event;
        }
        match self.receive().unwrap() {
            (ToNode::Event(event), fds) => (event, fds),
            (ToNode::Reply { .. }, _) => panic!("an answer to nothing"),
        }
    }

    /// The next event, which is of an exit.
    pub(crate) fn exited(&mut self, of: Handle) -> Exited {
        let (event, fds) = self.event();
        assert!(matches!(&event, Event::Exited { handle, .. } if *handle == of), "{event:?}");
        Self::end_told(event, &fds)
    }

    /// Waits for the end of one run; what is told of others meanwhile is dropped.
    pub(crate) fn exited_at_last(&mut self, of: Handle) -> Exited {
        loop {
            let (event, fds) = self.event();
            if matches!(&event, Event::Exited { handle, .. } if *handle == of) {
                return Self::end_told(event, &fds);
            }
        }
    }

    fn end_told(event: Event, fds: &[OwnedFd]) -> Exited {
        let Event::Exited { event, end, ended_by, leftovers, .. } = event else { panic!("{event:?}") };
        let text = |n: usize| {
            let bytes = frame::read_sealed(fds.get(n).unwrap(), 64 << 20).unwrap();
            String::from_utf8_lossy(&bytes).into_owned()
        };
        Exited { event, end, ended_by, leftovers, stderr: text(0), stdout: text(1) }
    }

    pub(crate) fn take(&mut self, run: &str) -> Handle {
        let reply = self.call(Request::Take { run: run.to_owned() }, &[]);
        let Reply::Taken { handle } = reply else { panic!("{reply:?}") };
        handle
    }

    pub(crate) fn launch(&mut self, handle: Handle, plan: &LaunchPlan, line: &[u8]) -> Reply {
        let plan = sealed_plan(plan);
        let line = frame::seal("line", line).unwrap();
        self.call(Request::Launch { handle }, &[plan.as_fd(), line.as_fd()])
    }

    /// Has the process make every attempt; what came of them.
    pub(crate) fn attempts(&mut self) -> String {
        std::io::Write::write_all(&mut self.test, &[crate::node::MAKE_ATTEMPTS]).unwrap();
        let answer = frame::receive(self.test.as_fd()).unwrap();
        frame::decode(&answer.bytes).unwrap()
    }

    /// Waits until the supervisor has closed the link and killed this process.
    pub(crate) fn wait_ended(self) {
        loop {
            match frame::receive(self.link.as_fd()) {
                Ok(_) => {}
                Err(FrameError::Closed) => break,
                Err(error) => panic!("the link is not closed: {error}"),
            }
        }
        self.test.set_read_timeout(Some(SOON)).unwrap();
        let end = std::io::Read::read(&mut &self.test, &mut [0]);
        assert!(matches!(end, Ok(0)) || end.is_err_and(|e| e.kind() == std::io::ErrorKind::ConnectionReset));
    }
}

/// A run's plan: a shell script, in its workspace.
pub(crate) fn plan_at(run: &str, workspace: Option<&str>, script: &str) -> LaunchPlan {
    let system = ["/usr", "/bin", "/lib", "/lib64"].map(str::to_owned);
    let read_only = system.into_iter().filter(|path| Path::new(path).exists()).collect();
    let env = [("PATH", "/usr/bin:/bin"), ("LANG", "C.UTF-8")];
    LaunchPlan {
        run: run.to_owned(),
        workspace: workspace.map(str::to_owned),
        sandbox: Some(Confinement {
            uid: 1000,
            gid: 1000,
            linux_capabilities: Vec::new(),
            network: false,
            isolate_terminal: true,
            ends_with_parent: true,
            proc: "/proc".into(),
            dev: "/dev".into(),
            tmp: "/tmp".into(),
            read_only,
            read_write: workspace.map(str::to_owned).into_iter().collect(),
            devices: Vec::new(),
            homes: Vec::new(),
            workspace_at: None,
            created_files: Vec::new(),
        }),
        limits: Limits::default(),
        process: Process {
            command: ["/bin/sh", "-c", script].map(str::to_owned).to_vec(),
            env: env.into_iter().map(|(k, v)| (k.to_owned(), v.to_owned())).collect::<BTreeMap<_, _>>(),
            cwd: workspace.unwrap_or("/").to_owned(),
            keep_stderr_bytes: 65536,
            keep_stdout_bytes: 65536,
        },
    }
}

pub(crate) fn sealed_plan(plan: &LaunchPlan) -> OwnedFd {
    frame::seal("plan", &serde_json::to_vec(plan).unwrap()).unwrap()
}

/// A run's hash made of one digit.
pub(crate) fn hash(digit: char) -> String {
    std::iter::repeat_n(digit, 40).collect()
}

/// Whether a process lives (and is no zombie).
pub(crate) fn lives(pid: u32) -> bool {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    stat.rsplit_once(") ").is_some_and(|(_, rest)| !rest.starts_with(['Z', 'X']))
}

/// The processes whose command line holds `what`.
pub(crate) fn processes(what: &str) -> Vec<u32> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir("/proc").unwrap() {
        let entry = entry.unwrap();
        let Some(pid) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
        let line = std::fs::read(entry.path().join("cmdline")).unwrap_or_default();
        if String::from_utf8_lossy(&line).contains(what) && lives(pid) {
            found.push(pid);
        }
    }
    found
}

/// The process whose command line holds `what`, as soon as there is one: a run is launched before its shell has started
/// the next program.
pub(crate) fn process(what: &str) -> u32 {
    until(what, || !processes(what).is_empty());
    processes(what).first().copied().unwrap()
}

/// Waits until something holds.
pub(crate) fn until(what: &str, holds: impl Fn() -> bool) {
    let end = Instant::now() + SOON;
    while !holds() {
        assert!(Instant::now() < end, "never: {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

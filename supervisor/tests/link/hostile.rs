//! A protocol process that is not one of ours: each time it is started it plays the next attack of a list, and it goes on
//! until the supervisor ends it. What breaks REQUESTS is made from REQUESTS itself.
//!
//! `ROOT/state/siege` names the list and the next attack. Once all are played the process is an ordinary one.

use std::fs;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};
use supervisor::effects::Served;
use supervisor::wire::frame::{self, FRAME_BYTES_MAX};
use supervisor::wire::message::{Event, Handle, Reply, Request, ToNode, ToSupervisor};
use supervisor::wire::plan::{KEEP_BYTES_MAX, Step};

use crate::requests::{self, Descriptors, LinkState, REQUESTS, Row};
use crate::run::RunState;
use crate::world::{hash, plan_at};

/// One attack.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Attack {
    /// A request of a run in a state in which its row has it neither acted on nor crossed.
    State(Served, RunState),
    /// A request on a link on which its row has it not.
    Link(Served, LinkState),
    /// A request one byte longer than its row allows.
    Long(Served),
    /// A request with so many descriptors.
    Descriptors(Served, usize),
    /// A request whose descriptors are all of this kind.
    Memfd(Served, Memfd),
    /// A launch with a plan as it should be, and a first line of this kind.
    Line(Memfd),
    /// The first so many bytes of a request.
    Truncated(usize),
    /// Bytes that are no request.
    Bytes(&'static [u8]),
    /// A frame longer than any may be.
    Huge,
    /// One request, as fast as it can be sent; answers are taken.
    Flood(Served),
    /// Requests that are answered, and no answer is taken.
    Deaf,
    /// It ends at once.
    Exit,
    /// It closes the link and lives on.
    Close,
    /// It leaves children that hold the link, and ends.
    Heirs,
}

/// A descriptor that is not what was asked for.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Memfd {
    /// A memfd its writer can still change.
    Unsealed,
    /// Sealed, and larger than any plan or log may be.
    Large,
    /// A device that never ends.
    Endless,
    /// A pipe nobody writes to.
    Pipe,
    /// A sealed plan of another run.
    OfAnother,
}

/// The run of the siege that is used again and again.
const RUN: char = 'd';

fn row(kind: Served) -> &'static Row {
    REQUESTS.iter().find(|row| row.kind == kind).unwrap()
}

/// A request of each kind.
fn request(kind: Served, handle: Handle) -> Request {
    match kind {
        Served::Hello => Request::Hello { version: supervisor::wire::LINK_VERSION },
        Served::Take => Request::Take { run: hash('e') },
        Served::Check => Request::Check { handle },
        Served::Credential => Request::Credential { project: "none".into(), user: None },
        Served::Prepare => Request::Prepare { handle, workspace_at: None, checkin: None, steps: vec![] },
        Served::Launch => Request::Launch { handle },
        Served::Noted => Request::Noted { handle, event: u64::MAX },
        Served::Stop => Request::Stop { handle, why: String::new() },
        Served::Open => Request::Open { handle, path: "file".into() },
        Served::OpenSettled => Request::OpenSettled { run: hash('e'), workspace: "/none".into(), path: "file".into() },
        Served::WriteLogs => Request::WriteLogs { handle, stderr: true, stdout: false },
        Served::Inspect => Request::Inspect { handle, workspace_at: None, clone: None, checkouts: vec![] },
        Served::Remove => Request::Remove { handle },
        Served::Release => Request::Release { handle },
    }
}

fn carried(kind: Served) -> usize {
    match row(kind).descriptors {
        Descriptors::Exactly(n) => n,
        Descriptors::OneForEachLog => 1,
        Descriptors::OneForEachStep => 0,
    }
}

fn kinds() -> impl Iterator<Item = Served> {
    REQUESTS.iter().map(|row| row.kind)
}

/// Whether the state can be had at will. The time the kernel takes to end what was killed cannot: what is said of a run
/// then is held against the same table, which is tested whole beside it.
fn reachable(state: RunState) -> bool {
    state != RunState::Ending
}

/// Most attacks of one list: the wait before each start doubles.
const LIST_MAX: usize = 5;

/// Every list of attacks. Those of one state stay together: what they need is made once.
pub(crate) fn lists() -> Vec<Vec<Attack>> {
    let mut lists: Vec<Vec<Attack>> = Vec::new();
    for state in RunState::ALL.into_iter().filter(|state| reachable(*state)) {
        let of_a_run = |row: &&Row| requests::handle(&request(row.kind, 0)).is_some();
        let wrong =
            REQUESTS.iter().filter(of_a_run).filter(|row| !row.runs.contains(&state) && !row.crossed.contains(&state));
        let attacks: Vec<Attack> = wrong.map(|row| Attack::State(row.kind, state)).collect();
        lists.extend(attacks.chunks(LIST_MAX).map(<[Attack]>::to_vec));
    }
    let mut others: Vec<Attack> = Vec::new();
    for row in REQUESTS {
        let wrong = if row.link == LinkState::New { LinkState::Open } else { LinkState::New };
        others.push(Attack::Link(row.kind, wrong));
    }
    for kind in kinds().filter(|kind| *kind != Served::Hello) {
        let right = carried(kind);
        others.extend([Attack::Long(kind), Attack::Descriptors(kind, right + 1)]);
        if right > 0 {
            others.push(Attack::Descriptors(kind, right - 1));
            others.extend(
                [Memfd::Unsealed, Memfd::Large, Memfd::Endless, Memfd::Pipe].map(|memfd| Attack::Memfd(kind, memfd)),
            );
        }
    }
    others.extend([Memfd::Unsealed, Memfd::Large, Memfd::Endless, Memfd::Pipe].map(Attack::Line));
    others.extend([Served::Check, Served::Launch].map(|kind| Attack::Memfd(kind, Memfd::OfAnother)));
    others.extend([Attack::Descriptors(Served::Take, 16), Attack::Huge]);
    others.extend([1, 7, 20, 40, 70].map(Attack::Truncated));
    others.extend([
        Attack::Bytes(b"\xff\xfe\x00"),
        Attack::Bytes(br#"{"id":1,"request":{"reboot":{}}}"#),
        Attack::Bytes(br#"{"id":1,"request":{"hello":{"version":1,"more":1}}}"#),
        Attack::Bytes(br#"{"id":-1,"request":{"hello":{"version":1}}}"#),
        Attack::Bytes(br#"{"id":1,"request":{"hello":{"version":1}}} x"#),
        Attack::Bytes(br#"{"id":1,"request":{"take":{"run":"../../etc/passwd"}}}"#),
        Attack::Bytes(&[b'['; 60_000]),
        Attack::Exit,
        Attack::Close,
        Attack::Heirs,
    ]);
    others.extend(kinds().map(Attack::Flood));
    others.push(Attack::Deaf);
    lists.extend(others.chunks(LIST_MAX).map(<[Attack]>::to_vec));
    lists
}

/// Whether an attack has to meet a state that lasts a moment, and may miss it.
pub(crate) fn may_miss(attack: Attack) -> bool {
    matches!(attack, Attack::State(_, RunState::Launching | RunState::Draining))
}

/// What the supervisor says of an attack when it ends the process for it.
pub(crate) fn said_of(attack: Attack) -> String {
    match attack {
        Attack::State(kind, state) => format!("node: request {kind:?}: of a run that is {state:?}; ending it"),
        Attack::Link(kind, state) => format!("node: request {kind:?}: on a link that is {state:?}; ending it"),
        Attack::Long(kind) => {
            // One more than a frame may hold is seen before its kind is.
            let most = row(kind).bytes_max;
            if most == FRAME_BYTES_MAX {
                "node: larger than".to_owned()
            } else {
                format!("node: request {kind:?}: {} bytes, more than {most}; ending it", most + 1)
            }
        }
        Attack::Descriptors(_, more) if more > frame::FRAME_DESCRIPTORS_MAX => "node: larger than".to_owned(),
        Attack::Descriptors(kind, sent) => {
            format!("node: request {kind:?}: {sent} descriptors instead of {}; ending it", carried(kind))
        }
        Attack::Memfd(_, Memfd::OfAnother) => "node: a plan: it is of another run; ending it".to_owned(),
        Attack::Memfd(Served::WriteLogs, _) => "node: a log: ".to_owned(),
        Attack::Memfd(..) => "node: a plan: ".to_owned(),
        Attack::Line(_) => "node: a first line: ".to_owned(),
        Attack::Truncated(_) | Attack::Bytes(_) => "ending it".to_owned(),
        Attack::Huge => "node: larger than".to_owned(),
        Attack::Flood(Served::Hello) => "node: request Hello: on a link that is Open; ending it".to_owned(),
        Attack::Flood(kind) => {
            let row = row(kind);
            format!(
                "node: request {kind:?}: more than {} at once and {} a second; ending it",
                row.burst, row.per_second
            )
        }
        Attack::Deaf => "node: it has taken nothing for 60 s; ending it".to_owned(),
        Attack::Exit | Attack::Close => "node: it closed the link; ending it".to_owned(),
        Attack::Heirs => "node: ended (exit 0); starting again".to_owned(),
    }
}

fn counter(root: &Path) -> PathBuf {
    root.join("state/siege")
}

/// How far a list has been played.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Progress {
    /// The list.
    pub(crate) list: usize,
    /// The next attack.
    pub(crate) next: usize,
    /// How often it was played from here before: a state that lasts a moment may have been missed.
    pub(crate) tries: u32,
}

/// What is played and how far, if anything is.
pub(crate) fn progress(root: &Path) -> Option<Progress> {
    let text = fs::read_to_string(counter(root)).ok()?;
    let mut words = text.split_whitespace().map(|it| it.parse().ok());
    let mut word = || words.next().flatten();
    Some(Progress { list: word()?, next: word()?, tries: u32::try_from(word()?).ok()? })
}

/// Says what is to be played.
pub(crate) fn set_progress(root: &Path, Progress { list, next, tries }: Progress) {
    let new = counter(root).with_extension("new");
    fs::write(&new, format!("{list} {next} {tries}")).unwrap();
    fs::rename(new, counter(root)).unwrap();
}

/// The process: plays the next attack, if there is one. None when it is to be an ordinary one.
pub(crate) fn main(root: &Path) -> Option<ExitCode> {
    let now = progress(root)?;
    let attack = *lists().get(now.list)?.get(now.next)?;
    set_progress(root, Progress { next: now.next + 1, ..now });
    let mut enemy = Enemy::new(root, now.tries);
    enemy.play(attack);
    if !matches!(attack, Attack::Exit | Attack::Heirs) {
        // It goes when it is ended, and not before.
        std::thread::sleep(Duration::from_secs(3600));
    }
    Some(ExitCode::SUCCESS)
}

/// A run's program that is asked to end in vain.
pub(crate) fn deaf_program(root: &Path) -> String {
    format!("trap '' TERM; : {}; while :; do sleep 1; done", root.display())
}

struct Enemy {
    root: PathBuf,
    link: OwnedFd,
    tries: u32,
    next: u64,
    in_care: Vec<(Handle, String)>,
    /// What is held open until this process ends.
    held: Vec<OwnedFd>,
}

impl Enemy {
    fn new(root: &Path, tries: u32) -> Self {
        let link = rustix::io::fcntl_dupfd_cloexec(rustix::stdio::stdin(), 3).unwrap();
        Self { root: root.to_owned(), link, tries, next: 1, in_care: Vec::new(), held: Vec::new() }
    }

    fn send(&mut self, request: Request, descriptors: &[BorrowedFd<'_>]) {
        let id = self.next;
        self.next += 1;
        frame::send(self.link.as_fd(), &ToSupervisor { id, request }, descriptors).unwrap();
    }

    /// One frame of any bytes, with any number of descriptors.
    fn raw(&self, bytes: &[u8], descriptors: &[BorrowedFd<'_>]) {
        let mut space = [std::mem::MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(16))];
        let mut ancillary = SendAncillaryBuffer::new(&mut space);
        if !descriptors.is_empty() {
            assert!(ancillary.push(SendAncillaryMessage::ScmRights(descriptors)));
        }
        rustix::net::sendmsg(&self.link, &[std::io::IoSlice::new(bytes)], &mut ancillary, SendFlags::NOSIGNAL).unwrap();
    }

    fn told(&self) -> ToNode {
        frame::decode(&frame::receive(self.link.as_fd()).unwrap().bytes).unwrap()
    }

    /// Asks and waits for the answer; events on the way are dropped.
    fn call(&mut self, request: Request, descriptors: &[BorrowedFd<'_>]) -> Reply {
        self.send(request, descriptors);
        loop {
            if let ToNode::Reply { reply, .. } = self.told() {
                return reply;
            }
        }
    }

    fn hello(&mut self) {
        let Reply::Welcome { in_care, .. } = self.call(request(Served::Hello, 0), &[]) else { return };
        let mut left = in_care;
        while left > 0 {
            if let ToNode::Event(Event::InCare { handle, run, .. }) = self.told() {
                self.in_care.push((handle, run));
                left -= 1;
            }
        }
    }

    /// The handle of a run, which is taken if it is not in care.
    fn run(&mut self, run: &str) -> (Handle, bool) {
        if let Some((handle, _)) = self.in_care.iter().find(|(_, it)| it == run) {
            return (*handle, false);
        }
        let Reply::Taken { handle } = self.call(Request::Take { run: run.to_owned() }, &[]) else {
            panic!("not taken")
        };
        (handle, true)
    }

    fn prepare(&mut self, handle: Handle, name: &str) {
        let at = self.root.join("workspaces").join(name).display().to_string();
        self.send(
            Request::Prepare { handle, workspace_at: None, checkin: None, steps: vec![Step::Directory { at }] },
            &[],
        );
    }

    /// Launches a run whose workspace is named as it is.
    fn launch(&mut self, handle: Handle, run: &str, script: &str) {
        let at = self.root.join("workspaces").join(run).display().to_string();
        let plan = serde_json::to_vec(&plan_at(run, Some(&at), script)).unwrap();
        let (plan, line) = (frame::seal("plan", &plan).unwrap(), frame::seal("line", b"").unwrap());
        self.send(Request::Launch { handle }, &[plan.as_fd(), line.as_fd()]);
    }

    /// The next answer.
    fn answer(&mut self) -> Reply {
        loop {
            if let ToNode::Reply { reply, .. } = self.told() {
                return reply;
            }
        }
    }

    /// Waits for the end of the run's process.
    fn exited(&mut self) {
        while !matches!(self.told(), ToNode::Event(Event::Exited { .. })) {}
    }

    /// The hash of a run of this process alone.
    fn passing(&self) -> String {
        format!("{:039x}d", std::process::id())
    }

    /// A run in this state. What lasts is made once, and found in care later; what does not is made of a new run.
    fn reach(&mut self, state: RunState, lasting: &str) -> Handle {
        let passing = self.passing();
        match state {
            RunState::Taken => self.run(lasting).0,
            RunState::Preparing => {
                let (handle, _) = self.run(lasting);
                self.prepare(handle, &format!("sleepy-{lasting}"));
                handle
            }
            RunState::Unprepared => {
                let (handle, new) = self.run(lasting);
                if new {
                    self.prepare(handle, &format!("fails-{lasting}"));
                    self.answer();
                }
                handle
            }
            RunState::Prepared => {
                let (handle, new) = self.run(lasting);
                if new {
                    self.prepare(handle, lasting);
                    self.answer();
                }
                handle
            }
            RunState::Launching => {
                let (handle, _) = self.run(&passing);
                self.prepare(handle, &passing);
                self.answer();
                self.launch(handle, &passing, "sleep 1000");
                handle
            }
            RunState::Running | RunState::Stopping => {
                let (handle, new) = self.run(lasting);
                if new {
                    self.prepare(handle, lasting);
                    self.answer();
                    let script = deaf_program(&self.root);
                    self.launch(handle, lasting, &script);
                    self.answer();
                    // Until its shell ignores TERM.
                    std::thread::sleep(Duration::from_secs(1));
                }
                if state == RunState::Stopping {
                    self.call(request(Served::Stop, handle), &[]);
                }
                handle
            }
            RunState::Draining => {
                let (handle, _) = self.run(&passing);
                self.prepare(handle, &passing);
                self.answer();
                // What it leaves holds its output open.
                self.launch(handle, &passing, "sleep 1000 &");
                self.answer();
                // Its program has ended by then; what it left is given 500 ms. On a slow host it ends later.
                std::thread::sleep(Duration::from_millis(250) + Duration::from_millis(400) * self.tries);
                handle
            }
            RunState::Ending => panic!("not to be had at will"),
            RunState::Exited => {
                let (handle, new) = self.run(lasting);
                if new {
                    self.prepare(handle, lasting);
                    self.answer();
                    self.launch(handle, lasting, "true");
                    self.exited();
                }
                handle
            }
            RunState::Inspecting => {
                let handle = self.reach(RunState::Exited, lasting);
                self.send(request(Served::Inspect, handle), &[]);
                handle
            }
            RunState::Removing => {
                let (handle, new) = self.run(lasting);
                if new {
                    self.prepare(handle, &format!("stays-{lasting}"));
                    self.answer();
                }
                self.send(request(Served::Remove, handle), &[]);
                handle
            }
            RunState::Removed => {
                let (handle, new) = self.run(lasting);
                if new {
                    self.prepare(handle, lasting);
                    self.answer();
                    self.call(request(Served::Remove, handle), &[]);
                }
                handle
            }
            // An earlier supervisor's: it was found in care.
            RunState::Orphaned => {
                let (handle, new) = self.run(lasting);
                assert!(!new, "no orphan");
                handle
            }
        }
    }

    /// A run in a state in which this kind is acted on.
    fn permitted(&mut self, kind: Served) -> Handle {
        let state = row(kind).runs.first().copied().unwrap_or(RunState::Taken);
        let run = self.passing();
        self.reach(state, &run)
    }

    fn play(&mut self, attack: Attack) {
        let whole = frame::seal("x", b"{}").unwrap();
        if !matches!(attack, Attack::Link(_, LinkState::New) | Attack::Exit | Attack::Close) {
            self.hello();
        }
        match attack {
            Attack::State(kind, state) => {
                let handle = self.reach(state, &hash(RUN));
                self.send(request(kind, handle), &vec![whole.as_fd(); carried(kind)]);
            }
            Attack::Link(kind, _) => self.send(request(kind, 1), &vec![whole.as_fd(); carried(kind)]),
            Attack::Long(kind) => {
                let handle = self.permitted(kind);
                let message = ToSupervisor { id: self.next, request: request(kind, handle) };
                let mut bytes = serde_json::to_vec(&message).unwrap();
                bytes.resize(row(kind).bytes_max + 1, b' ');
                self.raw(&bytes, &vec![whole.as_fd(); carried(kind)]);
            }
            Attack::Descriptors(kind, count) => {
                let handle = self.permitted(kind);
                let bytes = serde_json::to_vec(&ToSupervisor { id: self.next, request: request(kind, handle) });
                self.raw(&bytes.unwrap(), &vec![whole.as_fd(); count]);
            }
            Attack::Memfd(kind, memfd) => {
                let handle = self.permitted(kind);
                let fd = self.made(memfd);
                self.send(request(kind, handle), &vec![fd.as_fd(); carried(kind)]);
            }
            Attack::Truncated(length) => {
                let take = ToSupervisor { id: 7, request: request(Served::Take, 0) };
                self.raw(serde_json::to_vec(&take).unwrap().get(..length).unwrap(), &[]);
            }
            Attack::Bytes(bytes) => self.raw(bytes, &[]),
            Attack::Huge => self.raw(&vec![b' '; FRAME_BYTES_MAX + 1], &[]),
            Attack::Line(memfd) => {
                let handle = self.permitted(Served::Launch);
                let plan = serde_json::to_vec(&plan_at(&self.passing(), None, "true")).unwrap();
                let (plan, line) = (frame::seal("plan", &plan).unwrap(), self.made(memfd));
                self.send(request(Served::Launch, handle), &[plan.as_fd(), line.as_fd()]);
            }
            Attack::Flood(kind) => self.flood(kind),
            Attack::Deaf => self.deaf(),
            Attack::Exit => {}
            Attack::Close => {
                // The last copy is standard input's.
                let null = fs::File::open("/dev/null").unwrap();
                rustix::stdio::dup2_stdin(&null).unwrap();
                self.link = null.into();
            }
            Attack::Heirs => {
                for _ in 0..3 {
                    let program = std::env::current_exe().unwrap();
                    let held = self.link.try_clone().unwrap();
                    let heir = Command::new(program).arg("idle").arg(&self.root).stdin(Stdio::from(held)).spawn();
                    drop(heir.unwrap());
                }
            }
        }
    }

    /// One kind as fast as it goes, its answers taken. How many were sent, and in how many microseconds, stands in
    /// `state/flood-KIND`. A run is named that nobody has; a check is a real one, and is carried out.
    fn flood(&mut self, kind: Served) {
        let (mut handle, mut fd) = (u64::MAX, frame::seal("x", b"{}").unwrap());
        if kind == Served::Check {
            handle = self.permitted(kind);
            fd = frame::seal("plan", &serde_json::to_vec(&plan_at(&self.passing(), None, "true")).unwrap()).unwrap();
        }
        let carried = vec![fd.as_fd(); carried(kind)];
        let link = self.link.try_clone().unwrap();
        std::thread::spawn(move || while frame::receive(link.as_fd()).is_ok() {});
        let record = fs::File::create(self.root.join(format!("state/flood-{kind:?}"))).unwrap();
        let (began, mut sent) = (Instant::now(), 0_u64);
        let send = |request| frame::send(self.link.as_fd(), &ToSupervisor { id: 1, request }, &carried).is_ok();
        while send(request(kind, handle)) {
            sent += 1;
            if sent.is_multiple_of(64) {
                record.write_all_at(format!("{sent} {}\n", began.elapsed().as_micros()).as_bytes(), 0).unwrap();
            }
        }
    }

    /// Asks for as long as it is heard, and takes no answer.
    fn deaf(&self) {
        // Half of what its row allows at once: the supervisor may read what came in a while all together.
        let at_once = row(Served::Credential).burst / 2;
        let ask =
            |_| frame::send(self.link.as_fd(), &ToSupervisor { id: 1, request: request(Served::Credential, 0) }, &[]);
        if (1..at_once).map(ask).any(|it| it.is_err()) {
            return;
        }
        // No flood: what is tested is that answers wait.
        while ask(0).is_ok() {
            std::thread::sleep(Duration::from_millis(60));
        }
    }

    fn made(&mut self, memfd: Memfd) -> OwnedFd {
        let sealed = |bytes: &[u8]| frame::seal("x", bytes).unwrap();
        match memfd {
            Memfd::Unsealed => {
                let open = frame::blank("open").unwrap();
                frame::fill(&open, b"{}").unwrap();
                open
            }
            // Larger than a log may be, which is larger than a plan.
            Memfd::Large => sealed(&vec![b' '; usize::try_from(KEEP_BYTES_MAX).unwrap() + 1]),
            Memfd::Endless => fs::File::open("/dev/urandom").unwrap().into(),
            Memfd::Pipe => {
                let (read, write) = rustix::pipe::pipe().unwrap();
                // Who reads it waits.
                self.held.push(write);
                read
            }
            Memfd::OfAnother => sealed(&serde_json::to_vec(&plan_at(&hash('9'), None, "true")).unwrap()),
        }
    }
}

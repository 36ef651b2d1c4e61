//! One clone's porter: carries unversioned files and verdicts to the server, one after another, and asks the server what it
//! has. It may wait, as no lane may: for the supervisor, the disk, and a slow server.

use std::fs::File;
use std::io::{self, Read as _, Seek as _};
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, Sender};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use sha1::Digest as _;
use supervisor::points::{Moment, reach};
use supervisor::wire::message::{Handle, Reply, Request};

use super::clock::seconds_now;
use super::lane::Input;
use super::link::Link;
use super::poster::{Done, Fate, Post};
use super::publication_plan::PlannedFile;
use crate::engine::publications::{FILE_BYTES_MAX, NamedFile, beneath};
use crate::fossil::blob::hex;
use crate::fossil::xfer::{self, NotSent, Outgoing};
use crate::fossil::{Again, Ask, CloneFile, FossilError, Program, Session, tag};

/// How long the supervisor may take to open a file.
const OPEN_WAIT: Duration = Duration::from_secs(60);
/// Shortest time between two files asked for, of all clones: the supervisor takes 100 a second (its table REQUESTS).
const OPEN_APART: Duration = Duration::from_millis(12);
/// When the next file may be asked for.
static NEXT_OPEN: Mutex<Option<Instant>> = Mutex::new(None);

/// Where a run's files are to be had.
#[derive(Debug, Clone)]
pub struct Source {
    /// The run.
    pub run: String,
    /// Its care, while it is in care.
    pub handle: Option<Handle>,
    /// Its workspace.
    pub workspace: Option<String>,
}

/// What is to be carried.
#[derive(Debug, Clone)]
pub enum Load {
    /// An unversioned file, as long as it has this hash.
    File {
        /// Where it is to be had.
        source: Source,
        /// Which.
        file: PlannedFile,
    },
    /// A verdict's control artifact.
    Verdict {
        /// Its text.
        artifact: String,
    },
}

/// One errand.
#[derive(Debug)]
pub struct Errand {
    /// The run.
    pub run: String,
    /// What is carried.
    pub load: Load,
}

/// The porter of one lane.
#[derive(Debug)]
pub struct Porter {
    /// Signed in as the clone's user.
    pub session: Arc<Session>,
    /// The way to the supervisor, which opens files.
    pub link: Arc<Link>,
    /// The Fossil program, for a clone left with a journal.
    pub program: Program,
    /// The clone's file, for the project's code.
    pub file: PathBuf,
    /// The lane.
    pub to_lane: Sender<Input>,
}

impl Porter {
    /// Works until the lane is gone.
    pub fn work(self, errands: &Receiver<Errand>) {
        while let Ok(Errand { run, load }) = errands.recv() {
            let (post, fate) = match &load {
                Load::File { source, file } => (Post::File, self.carry(Post::File, || self.file(source, file))),
                Load::Verdict { artifact } => (Post::Verdict, self.carry(Post::Verdict, || self.verdict(artifact))),
            };
            let done = Done { run, post, fate, at: Instant::now() };
            if self.to_lane.send(Input::Posted(done)).is_err() {
                return;
            }
        }
    }

    /// What was sent twice is there once: an attempt whose fate is unknown is made again.
    fn carry(&self, post: Post, send: impl FnOnce() -> Result<Option<String>, NotSent>) -> Fate {
        reach(post, Moment::Before);
        let sent = send();
        reach(post, Moment::Answered);
        match sent {
            Ok(hash) => Fate::Stored(hash),
            Err(NotSent { why, again: Again::Never }) => Fate::Never(why),
            Err(NotSent { why, again: Again::AtOnce | Again::Later }) => Fate::Later(why),
        }
    }

    /// Sends a file that is as it was recorded, and asks the server for it.
    fn file(&self, source: &Source, file: &PlannedFile) -> Result<Option<String>, NotSent> {
        if let Some(why) = xfer::name_fault(&file.name) {
            return Err(never(why));
        }
        self.may('y', "y, Write-Unver,")?;
        let content = match open(&self.link, source, &file.at) {
            Ok(content) => content,
            Err(NotOpened::No(why)) => return Err(never(&why)),
            Err(NotOpened::NotNow(why)) => return Err(later(&why)),
        };
        let seen = Hashed::of(&content).map_err(|error| later(&format!("reading it: {error}")))?;
        let seen = seen.ok_or_else(|| never(&too_large()))?;
        if file.sha256.as_deref() != Some(seen.sha256.as_str()) {
            return Err(never(&format!("it has changed since the process ended: its SHA-256 is {}", seen.sha256)));
        }
        let there = self.on_server(&file.name)?;
        let ours = |it: &xfer::Unversioned| it.hash == seen.sha3;
        if there.as_ref().is_some_and(|it| ours(it) && it.from.as_deref() == Some(self.session.user())) {
            return Ok(None);
        }
        let now = seconds_now();
        // The server keeps the later of two; a clock of another host may be ahead.
        let at = there.map_or(now, |it| now.max(it.at.saturating_add(1)));
        let outgoing = Outgoing { name: &file.name, sha3: &seen.sha3, bytes: seen.bytes, at };
        self.session.send_unversioned(&self.project()?, &outgoing, &content)?;
        match self.on_server(&file.name)? {
            Some(it) if ours(&it) => Ok(None),
            Some(_) => Err(never("the server has a later file of that name")),
            None => Err(never("the server answered, and does not list it")),
        }
    }

    /// Pushes the control artifact, and asks the server for it.
    fn verdict(&self, artifact: &str) -> Result<Option<String>, NotSent> {
        let hash = tag::hash(artifact);
        if self.has(&hash)? {
            return Ok(Some(hash));
        }
        self.may('i', "i, Check-In,")?;
        self.session.push_artifact(&self.project()?, artifact)?;
        if self.has(&hash)? { Ok(Some(hash)) } else { Err(later("the server answered, and does not have it")) }
    }

    fn has(&self, hash: &String) -> Result<bool, NotSent> {
        let ask = Ask { artifacts: std::slice::from_ref(hash), users: &[], high: false };
        let answer = self.session.receipt(&ask).map_err(|error| unheard(&error))?;
        let from = answer.artifacts.get(hash).and_then(Option::as_ref).and_then(|it| it.from.as_deref());
        Ok(from == Some(self.session.user()))
    }

    /// Whether the clone's user holds a letter now.
    fn may(&self, letter: char, words: &str) -> Result<(), NotSent> {
        let answer = self.session.receipt(&Ask::default()).map_err(|error| unheard(&error))?;
        if answer.caller.letters.contains(letter) {
            return Ok(());
        }
        Err(never(&format!("the clone's user lacks {words} on the server")))
    }

    fn on_server(&self, name: &str) -> Result<Option<xfer::Unversioned>, NotSent> {
        let list = self.session.unversioned().map_err(|error| unheard(&error))?;
        Ok(list.into_iter().find(|it| it.name == name))
    }

    fn project(&self) -> Result<String, NotSent> {
        CloneFile::new(&self.file, &self.program).project_code().map_err(|error| later(&error.to_string()))
    }
}

/// The files a run names, with their hashes as its process left them.
pub fn hash_all(link: &Link, source: &Source, named: Vec<NamedFile>) -> Vec<PlannedFile> {
    let hash = |at: &str| {
        let content = open(link, source, at).map_err(NotOpened::why)?;
        let hashed = Hashed::of(&content).map_err(|error| format!("reading it: {error}"))?;
        hashed.map(|it| it.sha256).ok_or_else(too_large)
    };
    let planned = |NamedFile { at, name }: NamedFile| {
        let (sha256, why) = match hash(&at) {
            Ok(sha256) => (Some(sha256), None),
            Err(why) => (None, Some(why)),
        };
        PlannedFile { at, name, sha256, done: false, why }
    };
    named.into_iter().map(planned).collect()
}

/// Why a file is not open.
enum NotOpened {
    /// It is none that is sent.
    No(String),
    /// The supervisor could not be asked.
    NotNow(String),
}

impl NotOpened {
    fn why(self) -> String {
        match self {
            Self::No(why) | Self::NotNow(why) => why,
        }
    }
}

/// A regular file within the workspace, opened by the supervisor.
fn open(link: &Link, source: &Source, at: &str) -> Result<File, NotOpened> {
    let path = beneath(at, source.workspace.as_deref()).map_err(|why| NotOpened::No(why.to_owned()))?;
    let request = match (source.handle, &source.workspace) {
        (Some(handle), _) => Request::Open { handle, path },
        (None, workspace) => {
            Request::OpenSettled { run: source.run.clone(), workspace: workspace.clone().unwrap_or_default(), path }
        }
    };
    wait_for_turn();
    let answer =
        link.ask_and_wait(request, OPEN_WAIT).map_err(|why| NotOpened::NotNow(format!("opening it: {why}")))?;
    match (answer.reply, answer.descriptors.into_iter().next()) {
        (Reply::Descriptor, Some(fd)) => Ok(OwnedFd::into(fd)),
        (Reply::NotOpened { why }, _) => Err(NotOpened::No(why)),
        (Reply::Impossible { why }, _) => Err(NotOpened::NotNow(format!("opening it: {why}"))),
        (other, _) => Err(NotOpened::NotNow(format!("opening it was answered by {other:?}"))),
    }
}

/// Waits until a file may be asked for: a run may name thousands.
fn wait_for_turn() {
    let mut next = NEXT_OPEN.lock().unwrap_or_else(PoisonError::into_inner);
    let now = Instant::now();
    let turn = next.map_or(now, |it| it.max(now));
    *next = Some(turn + OPEN_APART);
    drop(next);
    std::thread::sleep(turn.saturating_duration_since(now));
}

/// What a file's bytes come to.
struct Hashed {
    /// Its SHA-256, which posts name.
    sha256: String,
    /// Its SHA3-256, which Fossil names it by.
    sha3: String,
    bytes: u64,
}

impl Hashed {
    /// Nothing for a file larger than is sent.
    fn of(mut file: &File) -> io::Result<Option<Self>> {
        file.rewind()?;
        if file.metadata()?.len() > FILE_BYTES_MAX {
            return Ok(None);
        }
        let mut both = (sha2::Sha256::new(), sha3::Sha3_256::new());
        let bytes = xfer::feed(
            |part| {
                both.0.update(part);
                both.1.update(part);
            },
            file.take(FILE_BYTES_MAX + 1),
        )?;
        let hashed = Self { sha256: hex(&both.0.finalize()), sha3: hex(&both.1.finalize()), bytes };
        Ok((bytes <= FILE_BYTES_MAX).then_some(hashed))
    }
}

fn too_large() -> String {
    format!("it is larger than {FILE_BYTES_MAX} bytes")
}

fn never(why: &str) -> NotSent {
    NotSent { why: why.to_owned(), again: Again::Never }
}

fn later(why: &str) -> NotSent {
    NotSent { why: why.to_owned(), again: Again::Later }
}

fn unheard(error: &FossilError) -> NotSent {
    later(&error.to_string())
}

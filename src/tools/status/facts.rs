//! The facts `ocx status` tells, gathered from the files below `ROOT` and from `/proc`.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::path::Path;
use std::time::{Duration, SystemTime};

use serde::Serialize;
use serde_json::Value;
use supervisor::wire::floor::{Floor, PLACES};
use supervisor::wire::plan::Provides;

use super::process::{self, Process};
use super::root::Root;
use super::runs::{self, RunFacts};
use crate::node::present::{LaneNow, NodeNow};

/// Largest file of the node's believed, in bytes: a lane of 256 runs.
const FILE_BYTES_MAX: u64 = 4 << 20;
/// How much of the end of the node's log is looked at.
const LOG_BYTES_MAX: u64 = 256 << 10;
/// The grace without `settings/grace` (decisions C-81), and the longest that may be set.
const GRACE: (Duration, u64) = (Duration::from_secs(10), 3600);
/// Most lanes told.
const LANES_MAX: usize = 1024;

/// Everything told.
#[derive(Debug, Serialize)]
pub(super) struct Facts {
    pub(super) root: String,
    pub(super) host: String,
    pub(super) kernel: String,
    pub(super) version: &'static str,
    /// Who asks: the account's number.
    pub(super) uid: u32,
    pub(super) supervisor: Health,
    pub(super) node: Health,
    /// How often the node was started in the last hour.
    pub(super) node_starts: usize,
    /// What this host enforces, as the supervisor told the node at its start.
    pub(super) enforces: Option<Provides>,
    /// Whether the owner lets runs without a sandbox run.
    pub(super) unconfined: bool,
    /// Whether the owner lets runs with a network meet the host's abstract sockets (decisions C-88).
    pub(super) shared_abstract_sockets: bool,
    pub(super) grace_seconds: u64,
    /// Why no new run is taken now, if so (decisions C-84).
    pub(super) under_floor: Option<String>,
    pub(super) lanes: Vec<LaneNow>,
    pub(super) runs: Vec<RunFacts>,
    /// What could not be read, and why.
    pub(super) unread: Vec<String>,
}

/// A process of the service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Health {
    /// Up, down, or not to be known by who asks.
    pub(super) up: Option<bool>,
    pub(super) pid: Option<u32>,
    /// Since when it is up, RFC 3339.
    pub(super) since: Option<String>,
}

impl Health {
    const UNKNOWN: Self = Self { up: None, pid: None, since: None };
    const DOWN: Self = Self { up: Some(false), pid: None, since: None };

    fn of(process: &Process) -> Self {
        Self { up: Some(true), pid: Some(process.pid), since: process.since().map(crate::node::clock::utc) }
    }
}

/// What `ROOT` has from its installation or first start on.
const PARTS: [&str; 4] = ["care", "passwords", "settings", "state"];

/// Reads everything. `run`: all about the runs whose hash begins so, with their timeline; else those in hand and the last.
///
/// # Errors
/// When `ROOT` is not there.
pub(super) fn gather(root: &Path, run: Option<&str>) -> Result<Facts, String> {
    let root = Root::open(root)?;
    if !PARTS.iter().any(|name| root.exists(name)) {
        let at = root.path().display();
        let kept = if root.exists("root") { format!("; of a kept trial it is {at}/root") } else { String::new() };
        return Err(format!("{at}: it is no service's directory, which has one of {}{kept}", PARTS.join(", ")));
    }
    let mut unread = Unread::default();
    let processes = process::all();
    let supervisor = supervisor(&root, &processes, &mut unread);
    let node = match (supervisor.up, supervisor.pid) {
        (Some(true), Some(pid)) => {
            let ours = |it: &&Process| it.parent == pid && it.command.contains(" node --root ");
            processes.iter().find(ours).map_or(Health::DOWN, Health::of)
        }
        // Its link is the supervisor's: it ends with it.
        (Some(false), _) => Health::DOWN,
        (Some(true) | None, _) => Health::UNKNOWN,
    };
    let now: Option<NodeNow> = unread.json(&root, "state/node.json");
    let grace = grace(&root, &mut unread);
    let lanes = lanes(&root, &mut unread);
    let settings = |name: &str| root.exists(&format!("settings/{name}"));
    let host = rustix::system::uname();
    let runs = runs::read(&root, &lanes, run, &mut unread);
    Ok(Facts {
        root: root.path().display().to_string(),
        host: host.nodename().to_string_lossy().into_owned(),
        kernel: host.release().to_string_lossy().into_owned(),
        version: env!("CARGO_PKG_VERSION"),
        uid: rustix::process::geteuid().as_raw(),
        supervisor,
        node,
        node_starts: node_starts(&root, SystemTime::now()),
        under_floor: now.as_ref().and_then(|it| under_floor(root.path(), it.provides.floor)),
        enforces: now.map(|it| it.provides),
        unconfined: settings("unconfined"),
        shared_abstract_sockets: settings("shared_abstract_sockets"),
        grace_seconds: grace.as_secs(),
        lanes,
        runs,
        unread: unread.into_lines(),
    })
}

/// What could not be read: each file once, and one line for everything that only root may read.
#[derive(Debug, Default)]
pub(super) struct Unread {
    lines: BTreeSet<String>,
    forbidden: bool,
}

impl Unread {
    /// The value, or a note of why there is none; what is not there is none without a note.
    pub(super) fn note<T>(&mut self, what: &str, read: io::Result<T>) -> Option<T> {
        match read {
            Ok(value) => return Some(value),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) if error.kind() == io::ErrorKind::PermissionDenied => self.forbidden = true,
            Err(error) => drop(self.lines.insert(format!("{what}: {error}"))),
        }
        None
    }

    /// A file of JSON.
    pub(super) fn json<T: serde::de::DeserializeOwned>(&mut self, root: &Root, name: &str) -> Option<T> {
        let read = root.read(name, FILE_BYTES_MAX);
        let bytes = self.note(name, read)?;
        self.note(name, serde_json::from_slice(&bytes).map_err(io::Error::other))
    }

    fn into_lines(self) -> Vec<String> {
        let forbidden = self.forbidden.then(|| "clones and runs are told to root only".to_owned());
        forbidden.into_iter().chain(self.lines).collect()
    }
}

/// The lock on `care/lock` says whether there is one (decisions C-100); who may not read it looks for its program.
fn supervisor(root: &Root, processes: &[Process], unread: &mut Unread) -> Health {
    let of = |pid: u32| processes.iter().find(|it| it.pid == pid).map(Health::of);
    match root.is_locked("care/lock") {
        Ok(true) => {
            let text = root.read("care/lock", 32).unwrap_or_default();
            let pid = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
            pid.and_then(of).unwrap_or(Health { up: Some(true), pid, since: None })
        }
        Ok(false) => Health::DOWN,
        Err(error) if error.kind() == io::ErrorKind::NotFound => Health::DOWN,
        Err(error) => {
            let _nothing: Option<()> = unread.note("care/lock", Err(error));
            let path = root.path().display().to_string();
            let serves = |it: &&Process| {
                let words: Vec<&str> = it.command.split(' ').collect();
                let [program, "serve", rest @ ..] = words.as_slice() else { return false };
                let ours = match rest {
                    [] => path == supervisor::wire::accounts::SERVICE_ROOT,
                    ["--root", root] => *root == path,
                    _ => false,
                };
                program.ends_with("ocx-supervisor") && ours
            };
            // Not seen is not the same as not there, where /proc hides other people's processes.
            processes.iter().find(serves).map_or(Health::UNKNOWN, Health::of)
        }
    }
}

/// By the supervisor's own rule; its answer at the next run is what counts.
fn under_floor(root: &Path, floor: Floor) -> Option<String> {
    PLACES.iter().find_map(|place| {
        let path = root.join(place);
        let about = rustix::fs::statvfs(&path).ok()?;
        let free = about.f_bavail.saturating_mul(about.f_frsize);
        floor.why(&path.display().to_string(), free, about.f_blocks.saturating_mul(about.f_frsize))
    })
}

fn grace(root: &Root, unread: &mut Unread) -> Duration {
    let Some(text) = unread.note("settings/grace", root.read("settings/grace", 64)) else { return GRACE.0 };
    let seconds = std::str::from_utf8(&text).ok().and_then(|text| text.trim().parse().ok());
    seconds.filter(|it| *it <= GRACE.1).map_or(GRACE.0, Duration::from_secs)
}

fn lanes(root: &Root, unread: &mut Unread) -> Vec<LaneNow> {
    let names = unread.note("state/lanes", root.names("state/lanes")).unwrap_or_default();
    let names = names.into_iter().filter(|it| it.ends_with(".json")).take(LANES_MAX);
    names.filter_map(|name| unread.json(root, &format!("state/lanes/{name}"))).collect()
}

/// Starts of the node in the last hour, by the end of its log.
fn node_starts(root: &Root, now: SystemTime) -> usize {
    let log = root.read_end("state/daemon.log", LOG_BYTES_MAX).unwrap_or_default();
    let lines =
        log.split(|b| *b == b'\n').filter_map(|line| serde_json::from_slice::<BTreeMap<String, Value>>(line).ok());
    let is =
        |line: &BTreeMap<String, Value>, key: &str, word: &str| line.get(key).and_then(Value::as_str) == Some(word);
    // A lane's start is none of the node's.
    let started = lines.filter(|line| is(line, "event", "start") && is(line, "lane", "node"));
    let at = started.filter_map(|line| humantime::parse_rfc3339_weak(line.get("at")?.as_str()?).ok());
    at.filter(|at| now.duration_since(*at).is_ok_and(|ago| ago < Duration::from_secs(3600))).count()
}

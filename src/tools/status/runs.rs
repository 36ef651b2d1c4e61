//! The runs, by their durable files: the supervisor's care records, the node's states, plans and logs, and what its lanes
//! show.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::SystemTime;

use serde::Serialize;

use super::facts::Unread;
use super::process::{self, Process};
use super::root::Root;
use crate::node::clock::utc;
use crate::node::journal::{self, Entry, JOURNAL_BYTES_MAX, Line};
use crate::node::ledger;
use crate::node::present::{LaneNow, Wait};
use crate::node::store::{Plan, Record};
use crate::protocol::life::State;

/// Most runs of the ledger told, when a short beginning names many.
const FOLDED_TOLD: usize = 256;
/// Largest state or plan believed, in bytes; the node believes no larger one.
const RECORD_BYTES_MAX: u64 = 16 << 20;
/// Largest care record believed, in bytes, as the supervisor has it.
const CARE_BYTES_MAX: u64 = 16 << 10;
/// So many settled runs are told when no run is named, the last ones.
const SETTLED_TOLD: usize = 10;
/// So many older ones are told besides, whose publications wait for a `publish`.
const UNFINISHED_TOLD: usize = 256;

/// A run.
#[derive(Debug, Clone, Default, Serialize)]
pub(super) struct RunFacts {
    pub(super) run: String,
    /// The clone it came by, while its lane tends it.
    pub(super) project: Option<String>,
    /// LIFE's word; none when only the supervisor knows it.
    pub(super) state: Option<String>,
    /// Since when, RFC 3339.
    pub(super) since: Option<String>,
    /// How it ended: outcome, with its exit or note.
    pub(super) ended: Option<Entry>,
    pub(super) waits: Vec<Wait>,
    pub(super) care: Option<CareFacts>,
    pub(super) processes: Vec<Process>,
    pub(super) process_count: usize,
    /// Whether it was settled so long ago that its files are gone, and only its line of the ledger is left (C-112).
    pub(super) folded: bool,
    /// Publications that are not on the server, each with what becomes of it.
    pub(super) unpublished: Vec<String>,
    /// Every step of its life and what was said of it; empty unless the run was named.
    pub(super) timeline: Vec<Line>,
}

/// What a care record says (decisions C-100).
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub(super) struct CareFacts {
    pub(super) boot: String,
    pub(super) phase: String,
    pub(super) launches: u32,
    pub(super) cgroup: Option<String>,
    pub(super) workspace: Option<String>,
    /// The first process of what runs: its pid, and its start in clock ticks since boot.
    pub(super) init: Option<(u32, u64)>,
}

impl RunFacts {
    /// Whether nothing is left to do.
    pub(super) fn is_settled(&self) -> bool {
        self.care.is_none() && self.state.as_deref() == Some(State::Settled.word())
    }
}

/// Reads them: those whose hash begins with `named`; else all in hand, then the last settled.
pub(super) fn read(root: &Root, lanes: &[LaneNow], named: Option<&str>, unread: &mut Unread) -> Vec<RunFacts> {
    let mut found: BTreeMap<String, RunFacts> = BTreeMap::new();
    let wanted = |run: &str| is_hash(run) && named.is_none_or(|named| run.starts_with(named));
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    for name in unread.note("care", root.names("care")).unwrap_or_default().into_iter().filter(|it| wanted(it)) {
        let path = format!("care/{name}");
        if let Some(bytes) = unread.note(&path, root.read(&path, CARE_BYTES_MAX)) {
            let facts = found.entry(name.clone()).or_insert_with(|| new(&name));
            let care = care(&String::from_utf8_lossy(&bytes));
            // What a record of another boot names is nothing that lives.
            if care.boot == boot.trim() {
                (facts.processes, facts.process_count) =
                    care.cgroup.as_ref().map_or((Vec::new(), 0), |group| process::in_group(Path::new(group)));
                if facts.processes.is_empty()
                    && let Some((pid, started)) = care.init
                {
                    facts.processes.extend(Process::of(pid).filter(|it| it.started == started));
                    facts.process_count = facts.processes.len();
                }
            }
            facts.care = Some(care);
        }
    }
    let mut settled: Vec<(SystemTime, RunFacts)> = Vec::new();
    for name in unread.note("state/runs", root.names("state/runs")).unwrap_or_default() {
        let Some(run) = name.strip_suffix(".state").filter(|it| wanted(it)) else { continue };
        let path = format!("state/runs/{name}");
        let written = root.modified(&path).unwrap_or(SystemTime::UNIX_EPOCH);
        let Some(bytes) = unread.note(&path, root.read(&path, RECORD_BYTES_MAX)) else { continue };
        // C-65: one that cannot be read counts as taken.
        let record = serde_json::from_slice(&bytes).unwrap_or(Record::Taken { started: None });
        let facts = found.entry(run.to_owned()).or_insert_with(|| new(run));
        facts.since = Some(utc(written));
        facts.state = Some(word(&record, facts.care.is_some()).to_owned());
        if facts.is_settled()
            && let Some(facts) = found.remove(run)
        {
            settled.push((written, facts));
        }
    }
    // A run that was named, and is known by its log alone: it waits.
    if let Some(named) = named {
        for name in unread.note("state/runs", root.names("state/runs")).unwrap_or_default() {
            let run = name.strip_suffix(".log").filter(|it| is_hash(it) && it.starts_with(named));
            let known = |run: &str| settled.iter().any(|(_, it)| it.run == run);
            if let Some(run) = run.filter(|it| !known(it)) {
                found.entry(run.to_owned()).or_insert_with(|| new(run));
            }
        }
    }
    for lane in lanes {
        // One that is settled by now was not when its lane was shown.
        let over = |run: &str| settled.iter().any(|(_, it)| it.run == run);
        for now in lane.runs.iter().filter(|it| wanted(&it.run) && !over(&it.run)) {
            let facts = found.entry(now.run.clone()).or_insert_with(|| new(&now.run));
            facts.project = Some(lane.project.clone());
            facts.state = Some(now.state.clone());
            facts.since = Some(now.since.clone());
            facts.waits = now.waits.clone();
        }
    }
    settled.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
    if named.is_none() {
        let older = settled.split_off(settled.len().min(SETTLED_TOLD));
        // C-108: nothing but a `publish` ends their wait, so they are not passed over.
        let unfinished =
            older.into_iter().filter(|(_, it)| plan(root, &it.run, unread).is_some_and(|it| !it.is_over()));
        settled.extend(unfinished.take(UNFINISHED_TOLD));
    }
    if let Some(named) = named {
        let known = |run: &str| found.contains_key(run) || settled.iter().any(|(_, it)| it.run == run);
        let folded = folded(root, named, unread).into_iter().filter(|it| !known(&it.run)).collect::<Vec<_>>();
        settled.extend(folded.into_iter().map(|it| (SystemTime::UNIX_EPOCH, it)));
    }
    let mut runs: Vec<RunFacts> = found.into_values().collect();
    runs.sort_by(|a, b| a.since.cmp(&b.since));
    runs.extend(settled.into_iter().map(|(_, facts)| facts));
    for facts in runs.iter_mut().filter(|it| !it.folded) {
        more(root, facts, named.is_some(), unread);
    }
    runs
}

/// The runs of the ledger whose hash begins so.
fn folded(root: &Root, named: &str, unread: &mut Unread) -> Vec<RunFacts> {
    let mut found = Vec::new();
    let path = format!("state/{}", ledger::NAME);
    let read = root.lines(&path, ledger::LINE_BYTES_MAX, |bytes| {
        let line = ledger::line(bytes).filter(|it| is_hash(&it.run) && it.run.starts_with(named));
        let Some(line) = line.filter(|_| found.len() < FOLDED_TOLD) else { return };
        found.push(RunFacts {
            state: Some(State::Settled.word().to_owned()),
            since: Some(line.settled),
            ended: line.ended,
            unpublished: line.failed.iter().map(|(what, why)| failed(what, why)).collect(),
            folded: true,
            ..new(&line.run)
        });
    });
    let _nothing: Option<()> = unread.note(&path, read);
    found
}

/// Its plan, if there is one that can be read.
fn plan(root: &Root, run: &str, unread: &mut Unread) -> Option<Plan> {
    let path = format!("state/runs/{run}.plan");
    let bytes = unread.note(&path, root.read(&path, RECORD_BYTES_MAX))?;
    serde_json::from_slice(&bytes).ok()
}

fn failed(what: &str, why: &str) -> String {
    format!("{what}: not published, and not tried again by itself: {why}")
}

/// What its plan and its log say.
fn more(root: &Root, facts: &mut RunFacts, timeline: bool, unread: &mut Unread) {
    if let Some(plan) = plan(root, &facts.run, unread) {
        for (what, why) in plan.failures() {
            facts.unpublished.push(failed(&what, &why));
        }
        if let Some(next) = plan.next().filter(|_| facts.is_settled()) {
            facts.unpublished.push(format!(
                "{}: not published: the supervisor ended, or the host, before the server took it; only a `publish` of \
                 this run publishes it and what follows it",
                next.word()
            ));
        }
    }
    let path = format!("state/runs/{}.log", facts.run);
    // The node cuts its logs; one that is longer is read as far.
    let bytes = unread.note(&path, root.read(&path, JOURNAL_BYTES_MAX + (64 << 10))).unwrap_or_default();
    let lines = journal::read(&bytes);
    facts.ended = lines.iter().rev().map(|it| &it.entry).find(|it| matches!(it, Entry::Ended { .. })).cloned();
    let last = lines.iter().rev().find_map(|it| match &it.entry {
        Entry::Step { state, .. } => Some((state, &it.at)),
        Entry::Ended { .. } | Entry::Said(_) => None,
    });
    // Its log is written at each step, with the exact time; what its lane shows may be a moment older. Not so with a log
    // that has reached its bound, or was lost.
    let shown = facts.since.as_deref().filter(|_| facts.state.is_some()).and_then(seconds);
    if let Some((state, at)) = last
        && !facts.is_settled()
        && shown.is_none_or(|shown| seconds(at).is_some_and(|logged| logged >= shown))
    {
        if facts.state.as_ref() != Some(state) {
            facts.waits.clear();
        }
        facts.since = Some(at.clone());
        facts.state = Some(state.clone());
    }
    if timeline {
        facts.timeline = lines;
    }
}

/// A time to the second, as lanes show it.
fn seconds(at: &str) -> Option<u64> {
    let at = humantime::parse_rfc3339_weak(at).ok()?;
    at.duration_since(SystemTime::UNIX_EPOCH).ok().map(|it| it.as_secs())
}

fn new(run: &str) -> RunFacts {
    RunFacts { run: run.to_owned(), ..RunFacts::default() }
}

/// The state a node that starts now would find, by the durable record alone.
fn word(record: &Record, in_care: bool) -> &'static str {
    match record {
        Record::Taken { started: None } => State::Starting.word(),
        Record::Taken { started: Some(_) } => "started",
        Record::Ending { .. } => State::Ending.word(),
        Record::Done if in_care => State::Publishing.word(),
        Record::Done => State::Settled.word(),
    }
}

fn is_hash(name: &str) -> bool {
    matches!(name.len(), 40 | 64) && name.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

/// The lines of a care record that are understood; the rest is the supervisor's to complain of.
fn care(text: &str) -> CareFacts {
    let mut care = CareFacts::default();
    for (key, value) in text.lines().filter_map(|line| line.split_once(' ')) {
        match key {
            "boot" => care.boot = value.to_owned(),
            "phase" => care.phase = value.to_owned(),
            "launches" => care.launches = value.parse().unwrap_or_default(),
            "cgroup" => care.cgroup = Some(value.to_owned()),
            "workspace" => care.workspace = Some(value.to_owned()),
            "init" => {
                care.init = value.split_once(' ').and_then(|(pid, at)| Some((pid.parse().ok()?, at.parse().ok()?)))
            }
            _ => {}
        }
    }
    care
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_care_record_is_read_and_a_torn_one_as_far_as_it_goes() {
        let text = "ocx-care 1\nboot 0a\nphase launched\nlaunches 1\ncgroup /sys/a b\ninit 7 99\nend\n";
        let whole = care(text);
        assert_eq!((whole.phase.as_str(), whole.launches, whole.init), ("launched", 1, Some((7, 99))));
        assert_eq!(whole.cgroup.as_deref(), Some("/sys/a b"));
        for cut in 0..text.len() {
            care(text.get(..cut).unwrap_or_default());
        }
    }

    #[test]
    fn only_whole_hashes_are_runs() {
        assert!(is_hash(&"a1".repeat(20)) && is_hash(&"a1".repeat(32)));
        for name in ["lock", "launched", "../x", &"A1".repeat(20), &"a".repeat(41)] {
            assert!(!is_hash(name), "{name}");
        }
    }
}

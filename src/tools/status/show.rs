//! `ocx status` as text: short lines, aligned, with nothing that a person need not know.

use super::facts::{Facts, Health};
use super::runs::RunFacts;
use super::says::{self, Around};
use crate::node::journal::Entry;
use crate::node::present::LaneNow;
use crate::tools::teller::Style;

/// Width of the words lines begin with.
const HEAD: usize = 11;

type Lines = Vec<(String, Style)>;

/// Everything told, line by line.
pub(super) fn lines(facts: &Facts, around: Around, named: bool) -> Lines {
    let mut out = Lines::new();
    if !named {
        host(facts, around, &mut out);
        for lane in &facts.lanes {
            clone(lane, around, &mut out);
        }
    }
    for run in &facts.runs {
        if !out.is_empty() {
            out.push((String::new(), Style::Plain));
        }
        if named {
            whole(run, around, &mut out);
        } else {
            short(run, around, &mut out);
        }
    }
    if !named && facts.runs.is_empty() && facts.unread.is_empty() {
        out.push((String::new(), Style::Plain));
        out.push(("no runs".to_owned(), Style::Plain));
    }
    for what in &facts.unread {
        line(&mut out, "not read", what);
    }
    if facts.node.up == Some(false) && facts.runs.iter().any(|run| !run.waits.is_empty()) {
        line(&mut out, "note", "the node is down: what runs wait for is as it was when it ended");
    }
    out
}

fn line(out: &mut Lines, head: &str, what: &str) {
    out.push((format!("{head:HEAD$} {what}"), Style::Plain));
}

fn host(facts: &Facts, around: Around, out: &mut Lines) {
    out.push((format!("{} on {}, kernel {}, as uid {}", facts.root, facts.host, facts.kernel, facts.uid), Style::Bold));
    let down = "down: nothing is launched, stopped or answered until it is started; its log says why it ended";
    line(out, "supervisor", &health(&facts.supervisor, down, around));
    let starts = if facts.node_starts > 1 {
        format!("; started {} times in the last hour", facts.node_starts)
    } else {
        String::new()
    };
    let down = match facts.supervisor.up {
        Some(false) => "down, with its supervisor",
        Some(true) | None => {
            "down: runs go on, and the supervisor starts it again; the supervisor's log says why it ended"
        }
    };
    line(out, "node", &format!("{}{starts}", health(&facts.node, down, around)));
    if let Some(provides) = &facts.enforces {
        let has = |it: bool, what: &str| if it { what.to_owned() } else { format!("no {what}") };
        let landlock = match provides.landlock_abi {
            0 => "no Landlock".to_owned(),
            abi => format!("Landlock ABI {abi}"),
        };
        let parts = [
            has(provides.user_namespaces, "user namespaces"),
            landlock,
            has(provides.cgroup, "cgroups"),
            has(provides.memory, "memory limits"),
            format!("runs without a sandbox {}", if facts.unconfined { "allowed" } else { "refused" }),
        ];
        line(out, "enforces", &parts.join(", "));
        line(out, "release", &format!("{} ({})", provides.release, facts.version));
    }
    if let Some(why) = &facts.under_floor {
        line(out, "full", &format!("no new run is taken: {why}"));
    }
    if facts.shared_abstract_sockets {
        line(out, "note", "settings/shared_abstract_sockets: runs with a network may meet the host's abstract sockets");
    }
}

fn health(health: &Health, down: &str, around: Around) -> String {
    match health.up {
        Some(true) => {
            let pid = health.pid.map(|pid| format!(", pid {pid}")).unwrap_or_default();
            let since = health.since.as_ref().map(|at| format!(", since {}", says::since(at, around.now)));
            format!("up{pid}{}", since.unwrap_or_default())
        }
        Some(false) => down.to_owned(),
        None => "not seen; root can tell".to_owned(),
    }
}

fn clone(lane: &LaneNow, around: Around, out: &mut Lines) {
    out.push((String::new(), Style::Plain));
    let code = lane.clone.as_deref().unwrap_or("not made yet");
    out.push((format!("clone {} of {}, {code}, as {}", lane.project, lane.server, lane.user), Style::Bold));
    let pulled = lane.pulled.as_ref().map_or_else(|| "never by this node".to_owned(), |at| says::since(at, around.now));
    line(out, "last pull", &pulled);
    if let Some(trouble) = &lane.trouble {
        let since = says::since(&trouble.since, around.now);
        line(out, "waits", &format!("for the server since {since}: {}", trouble.why));
    }
    if let Some(why) = &lane.not_served {
        line(out, "not served", why);
    }
    if lane.more > 0 {
        line(out, "runs", &format!("{} more than are told here", lane.more));
    }
}

/// A run in a line, and what there is to say of it.
fn short(run: &RunFacts, around: Around, out: &mut Lines) {
    let since = run.since.as_ref().map(|at| format!(" since {}", says::since(at, around.now))).unwrap_or_default();
    let ended = run.ended.as_ref().map(|it| format!(", {}", says::ended(it))).unwrap_or_default();
    let digits = run.run.get(..10).unwrap_or(&run.run);
    let style = if run.is_settled() { Style::Dim } else { Style::Bold };
    out.push((format!("run {digits}  {}{since}{ended}", state(run)), style));
    for said in says::of(run, around) {
        out.push((format!("  {said}"), Style::Plain));
    }
}

fn state(run: &RunFacts) -> &str {
    run.state.as_deref().or(run.care.as_ref().map(|care| care.phase.as_str())).unwrap_or("not decided")
}

/// All about one run.
fn whole(run: &RunFacts, around: Around, out: &mut Lines) {
    out.push((format!("run {}", run.run), Style::Bold));
    let since = run.since.as_ref().map(|at| format!(" since {}", says::since(at, around.now))).unwrap_or_default();
    line(out, "state", &format!("{}{since}", state(run)));
    if let Some(project) = &run.project {
        line(out, "clone", project);
    }
    if let Some(ended) = &run.ended {
        line(out, "end", &says::ended(ended));
    }
    for said in says::of(run, around) {
        line(out, "", &said);
    }
    match &run.care {
        Some(care) => {
            let launches = if care.launches == 0 { "never launched" } else { "launched once" };
            line(out, "in care", &format!("{}, {launches}", care.phase));
            for (head, path) in [("workspace", &care.workspace), ("cgroup", &care.cgroup)] {
                if let Some(path) = path {
                    line(out, head, path);
                }
            }
        }
        None => line(out, "in care", "no"),
    }
    for process in &run.processes {
        let place = process.waits_in.as_ref().map(|it| format!(" in {it}")).unwrap_or_default();
        line(out, "process", &format!("{:>7} {}{place}  {}", process.pid, process.state, process.command));
    }
    if run.process_count > run.processes.len() {
        line(out, "processes", &format!("{} in all", run.process_count));
    }
    if run.folded {
        line(out, "note", "settled so long ago that its own files are gone: this is what state/ledger keeps of it");
        return;
    }
    out.push(("timeline".to_owned(), Style::Plain));
    for entry in &run.timeline {
        let what = match &entry.entry {
            Entry::Step { on, state } => format!("{:12} ({})", state, on.replace('_', " ")),
            ended @ Entry::Ended { .. } => format!("end durable: {}", says::ended(ended)),
            Entry::Said(what) => format!("  {what}"),
        };
        // One entry, one line, whatever text of others stands in it.
        let style = if matches!(entry.entry, Entry::Said(_)) { Style::Dim } else { Style::Plain };
        out.push((format!("  {}  {}", entry.at, what.replace(['\n', '\t'], " ")), style));
    }
    if run.timeline.is_empty() {
        out.push(("  nothing of it is logged".to_owned(), Style::Plain));
    }
}

//! What a run waits for, and how it stands, in words. Pure; the time is passed in.

use std::time::{Duration, SystemTime};

use super::runs::RunFacts;
use crate::node::journal::Entry;
use crate::node::present::Wait;
use crate::protocol::life::State;

/// What the words depend on beside the run.
#[derive(Debug, Clone, Copy)]
pub(super) struct Around {
    pub(super) now: SystemTime,
    pub(super) grace: Duration,
    /// Whether the supervisor is known to be down.
    pub(super) supervisor_down: bool,
}

/// A duration, in the largest unit that says enough.
pub(super) fn span(time: Duration) -> String {
    let seconds = time.as_secs();
    match seconds {
        0..=119 => format!("{seconds} s"),
        120..=7199 => format!("{} min", seconds / 60),
        7200..=172_799 => format!("{} h", seconds / 3600),
        _ => format!("{} d", seconds / 86400),
    }
}

/// How long ago a time in RFC 3339 was, with the time.
pub(super) fn since(at: &str, now: SystemTime) -> String {
    ago(at, now).map_or_else(|| at.to_owned(), |ago| format!("{at} ({} ago)", span(ago)))
}

fn ago(at: &str, now: SystemTime) -> Option<Duration> {
    now.duration_since(humantime::parse_rfc3339_weak(at).ok()?).ok()
}

fn until(at: &str, now: SystemTime) -> Option<Duration> {
    humantime::parse_rfc3339_weak(at).ok()?.duration_since(now).ok()
}

/// How a run ended.
pub(super) fn ended(entry: &Entry) -> String {
    let Entry::Ended { outcome, exit, note } = entry else { return String::new() };
    let exit = exit.map(|exit| format!(" {exit}")).unwrap_or_default();
    let note = note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
    format!("{outcome}{exit}{note}")
}

/// What there is to say of a run that is not settled: one line each.
pub(super) fn of(run: &RunFacts, around: Around) -> Vec<String> {
    let mut lines = Vec::new();
    let state = run.state.as_deref().and_then(State::from_word);
    let stuck: Vec<_> = run.processes.iter().filter(|it| it.cannot_be_ended()).collect();
    for process in &stuck {
        let place = process.waits_in.as_ref().map(|place| format!(", in {place}")).unwrap_or_default();
        lines.push(format!(
            "cannot be ended: pid {}, state D{place}: {}; KILL is sent, and `ended` follows once the kernel lets it go",
            process.pid, process.command
        ));
    }
    if state == Some(State::Stopping) {
        lines.extend(stopping(run, around, stuck.is_empty()));
    } else if stuck.is_empty()
        && let Some(process) = run.processes.iter().find(|it| it.kill_pending)
    {
        lines.push(format!("being ended: KILL is sent to pid {}, state {}", process.pid, process.state));
    }
    if let Some(state) = state
        && run.waits.is_empty()
        && let Some(words) = by_state(state, run.process_count)
    {
        lines.push(words);
    }
    if around.supervisor_down && !matches!(state, Some(State::Settled) | None) {
        lines
            .push("the supervisor is down: its next start ends what is left of it, and it is answered then".to_owned());
    }
    lines.extend(run.waits.iter().map(|it| wait(it, around.now)));
    lines.extend(run.unpublished.iter().cloned());
    lines
}

/// Decisions C-81: the countdown.
fn stopping(run: &RunFacts, around: Around, none_stuck: bool) -> Option<String> {
    let since = run.since.as_deref().and_then(|at| ago(at, around.now))?;
    match around.grace.checked_sub(since).filter(|left| !left.is_zero()) {
        Some(left) => {
            // The next whole second: at 6.2 s it is not over in 6.
            let left = left.as_secs() + u64::from(left.subsec_nanos() > 0);
            Some(format!("stop: TERM sent, KILL in {left} s; {}", processes(run.process_count)))
        }
        None if none_stuck => Some(format!(
            "stop: KILL sent {} ago; {}",
            span(since.saturating_sub(around.grace)),
            processes(run.process_count)
        )),
        None => None,
    }
}

fn processes(count: usize) -> String {
    match count {
        0 => "no process left".to_owned(),
        1 => "1 process".to_owned(),
        count => format!("{count} processes"),
    }
}

/// What each state waits for by itself.
fn by_state(state: State, count: usize) -> Option<String> {
    Some(match state {
        State::Unseen => "waits for the next pull, which decides it".to_owned(),
        State::Taking => "waits for the supervisor to take it in care".to_owned(),
        State::Checking => "waits for the supervisor's policy, and for room for its kept output".to_owned(),
        State::Preparing => "waits for its workspace to be made".to_owned(),
        State::Starting => "waits for the server to take started; nothing is launched before".to_owned(),
        State::Launching => "waits for its sandbox to be built".to_owned(),
        State::Running => format!("its program runs: {}", processes(count)),
        State::Logging => "waits for its log files to be written".to_owned(),
        State::Ending => "waits for the server to take ended".to_owned(),
        State::Clearing => "waits for what was made of its workspace to be removed".to_owned(),
        State::Hashing => "waits for its files to be hashed, and its workspace to be looked at".to_owned(),
        State::Publishing => "waits for the server to take its publications".to_owned(),
        State::Releasing => "waits for the supervisor to let go of it".to_owned(),
        State::Stopping | State::Settled => return None,
    })
}

fn wait(wait: &Wait, now: SystemTime) -> String {
    let mut line = format!("waits for {}", wait.what);
    if let Some(at) = &wait.since {
        line.push_str(&format!(" since {}", since(at, now)));
    }
    if let Some(why) = &wait.why {
        line.push_str(&format!(": {why}"));
    }
    match wait.again.as_ref().map(|at| until(at, now)) {
        Some(Some(left)) => line.push_str(&format!("; tried again in {}", span(left))),
        Some(None) => line.push_str("; tried again now"),
        None => {}
    }
    line
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::super::process::Process;
    use super::super::runs::RunFacts;
    use super::*;

    fn run(state: &str, since: &str) -> RunFacts {
        RunFacts { run: "a".repeat(40), state: Some(state.into()), since: Some(since.into()), ..RunFacts::default() }
    }

    fn around(now: &str) -> Around {
        let now = humantime::parse_rfc3339_weak(now).unwrap();
        Around { now, grace: Duration::from_secs(10), supervisor_down: false }
    }

    fn process(state: char, kill_pending: bool) -> Process {
        Process {
            pid: 7,
            parent: 1,
            state,
            waits_in: Some("nfs_wait".into()),
            kill_pending,
            command: "cat /far/away".into(),
            started: 9,
        }
    }

    #[test]
    fn c_81_a_stop_counts_down_to_its_kill_and_then_from_it() {
        let mut stopping = run("stopping", "2026-01-01T00:00:00.500Z");
        stopping.process_count = 2;
        let at = |time: &str| of(&stopping, around(time)).join("|");
        assert_eq!(at("2026-01-01T00:00:03.500Z"), "stop: TERM sent, KILL in 7 s; 2 processes");
        assert_eq!(at("2026-01-01T00:00:10.400Z"), "stop: TERM sent, KILL in 1 s; 2 processes");
        assert_eq!(at("2026-01-01T00:00:13.500Z"), "stop: KILL sent 3 s ago; 2 processes");
    }

    #[test]
    fn c_82_a_process_that_cannot_be_ended_is_named_with_its_state_and_where_it_waits() {
        let mut stuck = run("stopping", "2026-01-01T00:00:00Z");
        stuck.processes = vec![process('D', true)];
        stuck.process_count = 1;
        let said = of(&stuck, around("2026-01-01T00:01:00Z"));
        let line = "cannot be ended: pid 7, state D, in nfs_wait: cat /far/away; KILL is sent, and `ended` follows once the \
                    kernel lets it go";
        assert_eq!(said, [line]);
        // Controls: one that only sleeps deeply, and one that KILL is about to meet, can be ended.
        for (state, pending) in [('D', false), ('R', true)] {
            stuck.processes = vec![process(state, pending)];
            let said = of(&stuck, around("2026-01-01T00:01:00Z")).join("|");
            assert!(!said.contains("cannot be ended"), "{said}");
        }
    }

    #[test]
    fn c_107_a_wait_says_for_what_since_when_why_and_until_when() {
        let mut ending = run("ending", "2026-01-01T00:00:00Z");
        ending.waits = vec![Wait {
            what: "the server to take ended".into(),
            since: Some("2026-01-01T00:00:00Z".into()),
            why: Some("connection refused".into()),
            again: Some("2026-01-01T00:06:04Z".into()),
        }];
        let said = of(&ending, around("2026-01-01T00:05:00Z"));
        let line = "waits for the server to take ended since 2026-01-01T00:00:00Z (5 min ago): connection refused; tried \
                    again in 64 s";
        assert_eq!(said, [line]);
        // Control: without trouble the state itself says it.
        assert_eq!(
            of(&run("ending", "2026-01-01T00:00:00Z"), around("2026-01-01T00:05:00Z")),
            ["waits for the server to take ended"]
        );
    }

    #[test]
    fn every_state_but_settled_says_something_and_a_supervisor_that_is_down_is_named() {
        for &state in State::ALL {
            let run = run(state.word(), "2026-01-01T00:00:00Z");
            let mut around = around("2026-01-01T00:00:01Z");
            assert_eq!(of(&run, around).is_empty(), state == State::Settled, "{state}");
            around.supervisor_down = true;
            let named = of(&run, around).iter().any(|it| it.contains("supervisor is down"));
            assert_eq!(named, state != State::Settled, "{state}");
        }
    }
}

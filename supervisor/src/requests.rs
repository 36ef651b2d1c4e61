//! REQUESTS: for each kind, when it is permitted, what it carries, how large and how often; and the engine that holds
//! each frame against it before anything is done. Pure: states and a moment in, a verdict out.

use std::time::Duration;

use supervisor::effects::Served;
use supervisor::wire::frame::FRAME_BYTES_MAX;
use supervisor::wire::message::{Handle, Request};

use crate::deadlines::BootTime;
use crate::run::RunState;
use crate::run::RunState as S;

/// How far the link has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum LinkState {
    /// Nothing was said yet.
    New,
    /// `hello` was answered.
    Open,
}

/// How many descriptors a frame carries.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Descriptors {
    /// Always so many.
    Exactly(usize),
    /// As many as `write_logs` says logs.
    OneForEachLog,
    /// As many as `prepare` has steps that carry one.
    OneForEachStep,
}

/// One row of REQUESTS.
#[derive(Debug)]
pub(crate) struct Row {
    /// The kind.
    pub(crate) kind: Served,
    /// The state of the link in which it is permitted.
    pub(crate) link: LinkState,
    /// The states of the run it names in which it is acted on. Empty for kinds that name none.
    pub(crate) runs: &'static [RunState],
    /// The states in which it is answered `impossible`, since an event may have crossed it on its way.
    pub(crate) crossed: &'static [RunState],
    /// Whether a link carries it once only.
    pub(crate) once: bool,
    /// The descriptors it carries.
    pub(crate) descriptors: Descriptors,
    /// Largest frame, in bytes.
    pub(crate) bytes_max: usize,
    /// How many may come at once.
    pub(crate) burst: u32,
    /// How many more may come each second.
    pub(crate) per_second: u32,
}

/// Largest frame of a kind that carries names and numbers only. A path within it may be `PATH_MAX` long and escaped.
const SMALL: usize = 1 << 10;
const MEDIUM: usize = 8 << 10;
/// A path of `PATH_MAX` has at most six bytes as JSON for each of its own.
const ONE_PATH: usize = 26 << 10;
const TWO_PATHS: usize = 52 << 10;

/// The states of a run in which nothing of it is under way but a removal, after which a release is carried out.
const AT_REST: &[RunState] = &[S::Taken, S::Unprepared, S::Prepared, S::Exited, S::Removing, S::Removed, S::Orphaned];

/// The table.
pub(crate) const REQUESTS: &[Row] = &[
    Row {
        kind: Served::Hello,
        link: LinkState::New,
        runs: &[],
        crossed: &[],
        once: true,
        descriptors: Descriptors::Exactly(0),
        bytes_max: SMALL,
        burst: 1,
        per_second: 0,
    },
    Row {
        kind: Served::Take,
        link: LinkState::Open,
        runs: &[],
        crossed: &[],
        once: false,
        descriptors: Descriptors::Exactly(0),
        bytes_max: SMALL,
        burst: 1000,
        per_second: 100,
    },
    Row {
        kind: Served::Check,
        link: LinkState::Open,
        runs: &[S::Taken, S::Unprepared, S::Prepared],
        crossed: &[],
        once: false,
        descriptors: Descriptors::Exactly(1),
        bytes_max: SMALL,
        burst: 1000,
        per_second: 100,
    },
    Row {
        kind: Served::Credential,
        link: LinkState::Open,
        runs: &[],
        crossed: &[],
        once: false,
        descriptors: Descriptors::Exactly(0),
        bytes_max: SMALL,
        burst: 200,
        per_second: 20,
    },
    Row {
        kind: Served::Prepare,
        link: LinkState::Open,
        runs: &[S::Taken, S::Unprepared],
        crossed: &[],
        once: false,
        descriptors: Descriptors::OneForEachStep,
        bytes_max: FRAME_BYTES_MAX,
        burst: 300,
        per_second: 50,
    },
    Row {
        kind: Served::Launch,
        link: LinkState::Open,
        runs: &[S::Taken, S::Prepared],
        crossed: &[],
        once: false,
        descriptors: Descriptors::Exactly(2),
        bytes_max: SMALL,
        burst: 300,
        per_second: 50,
    },
    Row {
        kind: Served::Noted,
        link: LinkState::Open,
        runs: &RunState::ALL,
        crossed: &[],
        once: false,
        descriptors: Descriptors::Exactly(0),
        bytes_max: SMALL,
        burst: 2000,
        per_second: 200,
    },
    Row {
        kind: Served::Stop,
        link: LinkState::Open,
        runs: &[S::Preparing, S::Launching, S::Running, S::Stopping, S::Draining, S::Ending],
        // A step or a launch that ended without a process may cross it as well as an exit.
        crossed: &[S::Taken, S::Unprepared, S::Prepared, S::Exited, S::Orphaned],
        once: false,
        descriptors: Descriptors::Exactly(0),
        bytes_max: MEDIUM,
        burst: 1000,
        per_second: 100,
    },
    Row {
        kind: Served::Open,
        link: LinkState::Open,
        // Orphaned: its `ended` was on its way when its supervisor ended.
        runs: &[S::Exited, S::Orphaned],
        crossed: &[],
        once: false,
        descriptors: Descriptors::Exactly(0),
        bytes_max: ONE_PATH,
        burst: 1000,
        per_second: 100,
    },
    Row {
        kind: Served::OpenSettled,
        link: LinkState::Open,
        runs: &[],
        crossed: &[],
        once: false,
        descriptors: Descriptors::Exactly(0),
        bytes_max: TWO_PATHS,
        burst: 1000,
        per_second: 100,
    },
    Row {
        kind: Served::WriteLogs,
        link: LinkState::Open,
        // Prepared: policy may refuse at the launch what it permitted at the check (decisions C-85).
        runs: &[S::Prepared, S::Exited, S::Orphaned],
        crossed: &[],
        once: false,
        descriptors: Descriptors::OneForEachLog,
        bytes_max: SMALL,
        burst: 300,
        per_second: 50,
    },
    Row {
        kind: Served::Inspect,
        link: LinkState::Open,
        runs: &[S::Exited],
        crossed: &[],
        once: false,
        descriptors: Descriptors::Exactly(0),
        bytes_max: FRAME_BYTES_MAX,
        burst: 300,
        per_second: 50,
    },
    Row {
        kind: Served::Remove,
        link: LinkState::Open,
        runs: &[S::Unprepared, S::Prepared, S::Exited, S::Orphaned],
        crossed: &[],
        once: false,
        descriptors: Descriptors::Exactly(0),
        bytes_max: SMALL,
        burst: 300,
        per_second: 50,
    },
    Row {
        kind: Served::Release,
        link: LinkState::Open,
        runs: AT_REST,
        crossed: &[],
        once: false,
        descriptors: Descriptors::Exactly(0),
        bytes_max: SMALL,
        burst: 1000,
        per_second: 100,
    },
];

/// The handle a request names, if it names a run.
#[must_use]
pub(crate) const fn handle(request: &Request) -> Option<Handle> {
    match request {
        Request::Hello { .. } | Request::Take { .. } | Request::Credential { .. } | Request::OpenSettled { .. } => None,
        Request::Check { handle }
        | Request::Prepare { handle, .. }
        | Request::Launch { handle }
        | Request::Noted { handle, .. }
        | Request::Stop { handle, .. }
        | Request::Open { handle, .. }
        | Request::WriteLogs { handle, .. }
        | Request::Inspect { handle, .. }
        | Request::Remove { handle }
        | Request::Release { handle } => Some(*handle),
    }
}

/// What REQUESTS says of one frame that does not break it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Admission {
    /// Act on it.
    Act,
    /// It names a run that is not, or is no longer, in care.
    Unknown,
    /// An event crossed it.
    Crossed(RunState),
}

/// A frame that breaks the table: the protocol process is not one of ours, or wrong; it ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Breach(pub(crate) String);

/// What one link has sent so far, held against REQUESTS.
#[derive(Debug)]
pub(crate) struct Meter {
    link: LinkState,
    /// By row: how many came, what may still come, and when that was last reckoned.
    used: Vec<Used>,
}

#[derive(Debug, Clone, Copy)]
struct Used {
    count: u64,
    tokens: f64,
    at: BootTime,
}

impl Meter {
    /// The meter of a link made at `now`.
    #[must_use]
    pub(crate) fn new(now: BootTime) -> Self {
        let used = REQUESTS.iter().map(|row| Used { count: 0, tokens: f64::from(row.burst), at: now }).collect();
        Self { link: LinkState::New, used }
    }

    /// How far the link has come.
    #[must_use]
    pub(crate) const fn link(&self) -> LinkState {
        self.link
    }

    /// `hello` was answered.
    pub(crate) const fn open(&mut self) {
        self.link = LinkState::Open;
    }

    /// Holds one frame against the table. `state_of` answers for the run a request names.
    ///
    /// # Errors
    /// [`Breach`] when it breaks the table, saying how.
    pub(crate) fn admit(
        &mut self,
        request: &Request,
        bytes: usize,
        descriptors: usize,
        now: BootTime,
        state_of: impl FnOnce(Handle) -> Option<RunState>,
    ) -> Result<Admission, Breach> {
        let kind = Served::of(request);
        let breach = |why: String| Breach(format!("request {kind:?}: {why}"));
        let Some((row, used)) = REQUESTS.iter().zip(&mut self.used).find(|(row, _)| row.kind == kind) else {
            return Err(breach("not in the table".to_owned()));
        };
        if row.link != self.link {
            return Err(breach(format!("on a link that is {:?}", self.link)));
        }
        used.count += 1;
        if row.once && used.count > 1 {
            return Err(breach("a second time".to_owned()));
        }
        if bytes > row.bytes_max {
            return Err(breach(format!("{bytes} bytes, more than {}", row.bytes_max)));
        }
        let expected = match (row.descriptors, request) {
            (Descriptors::Exactly(n), _) => n,
            (Descriptors::OneForEachLog, Request::WriteLogs { stderr, stdout, .. }) => {
                usize::from(*stderr) + usize::from(*stdout)
            }
            (Descriptors::OneForEachStep, Request::Prepare { steps, .. }) => {
                steps.iter().filter(|step| step.carries_descriptor()).count()
            }
            (Descriptors::OneForEachLog | Descriptors::OneForEachStep, _) => 0,
        };
        if descriptors != expected {
            return Err(breach(format!("{descriptors} descriptors instead of {expected}")));
        }
        let refill = now.since(used.at).min(Duration::from_secs(3600)).as_secs_f64() * f64::from(row.per_second);
        used.tokens = (used.tokens + refill).min(f64::from(row.burst));
        used.at = now;
        if used.tokens < 1.0 {
            return Err(breach(format!("more than {} at once and {} a second", row.burst, row.per_second)));
        }
        used.tokens -= 1.0;
        let Some(handle) = handle(request) else { return Ok(Admission::Act) };
        match state_of(handle) {
            None => Ok(Admission::Unknown),
            Some(state) if row.runs.contains(&state) => Ok(Admission::Act),
            Some(state) if row.crossed.contains(&state) => Ok(Admission::Crossed(state)),
            Some(state) => Err(breach(format!("of a run that is {state:?}"))),
        }
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    fn samples() -> Vec<Request> {
        vec![
            Request::Hello { version: 1 },
            Request::Take { run: "a".repeat(40) },
            Request::Check { handle: 1 },
            Request::Credential { project: "p".into(), user: None },
            Request::Prepare { handle: 1, workspace_at: None, checkin: None, steps: vec![] },
            Request::Launch { handle: 1 },
            Request::Noted { handle: 1, event: 1 },
            Request::Stop { handle: 1, why: String::new() },
            Request::Open { handle: 1, path: "a".into() },
            Request::OpenSettled { run: "a".repeat(40), workspace: "/w/a".into(), path: "a".into() },
            Request::WriteLogs { handle: 1, stderr: true, stdout: false },
            Request::Inspect { handle: 1, workspace_at: None, clone: None, checkouts: vec![] },
            Request::Remove { handle: 1 },
            Request::Release { handle: 1 },
        ]
    }

    fn carried(request: &Request) -> usize {
        let row = REQUESTS.iter().find(|row| row.kind == Served::of(request)).unwrap();
        match row.descriptors {
            Descriptors::Exactly(n) => n,
            Descriptors::OneForEachLog => 1,
            Descriptors::OneForEachStep => 0,
        }
    }

    fn now(seconds: u64) -> BootTime {
        BootTime::from_boot(Duration::from_secs(seconds))
    }

    fn open() -> Meter {
        let mut meter = Meter::new(now(0));
        meter.open();
        meter
    }

    #[test]
    fn every_kind_has_one_row_within_the_frame_and_no_state_is_in_both_columns() {
        for request in samples() {
            assert_eq!(REQUESTS.iter().filter(|row| row.kind == Served::of(&request)).count(), 1, "{request:?}");
        }
        assert_eq!(REQUESTS.len(), samples().len());
        for row in REQUESTS {
            assert!(row.bytes_max <= FRAME_BYTES_MAX && row.burst > 0, "{:?}", row.kind);
            assert!(!row.runs.iter().any(|state| row.crossed.contains(state)), "{:?}", row.kind);
            assert_eq!(row.once, row.per_second == 0, "{:?}", row.kind);
        }
    }

    #[test]
    fn each_kind_in_each_state_of_its_run_is_acted_on_crossed_or_a_breach_as_its_row_says() {
        for request in samples() {
            let row = REQUESTS.iter().find(|row| row.kind == Served::of(&request)).unwrap();
            if handle(&request).is_none() {
                continue;
            }
            for state in RunState::ALL {
                let verdict = open().admit(&request, 10, carried(&request), now(0), |_| Some(state));
                let expected = if row.runs.contains(&state) {
                    Some(Admission::Act)
                } else if row.crossed.contains(&state) {
                    Some(Admission::Crossed(state))
                } else {
                    None
                };
                assert_eq!(verdict.clone().ok(), expected, "{request:?} in {state:?}: {verdict:?}");
            }
            let unknown = open().admit(&request, 10, carried(&request), now(0), |_| None);
            assert_eq!(unknown, Ok(Admission::Unknown), "{request:?}");
        }
    }

    #[test]
    fn nothing_but_hello_comes_first_and_hello_comes_once() {
        for request in samples().split_off(1) {
            let verdict = Meter::new(now(0)).admit(&request, 10, carried(&request), now(0), |_| Some(S::Taken));
            assert!(verdict.is_err(), "{request:?}");
        }
        let hello = Request::Hello { version: 1 };
        let mut meter = Meter::new(now(0));
        assert_eq!(meter.admit(&hello, 10, 0, now(0), |_| None), Ok(Admission::Act));
        assert!(meter.admit(&hello, 10, 0, now(9), |_| None).is_err());
        meter.open();
        assert!(meter.admit(&hello, 10, 0, now(99), |_| None).is_err());
    }

    #[test]
    fn a_descriptor_too_many_or_too_few_and_a_byte_too_many_break_the_table() {
        for request in samples().split_off(1) {
            let row = REQUESTS.iter().find(|row| row.kind == Served::of(&request)).unwrap();
            let state = row.runs.first().copied().unwrap_or(S::Taken);
            let admit = |bytes, descriptors| open().admit(&request, bytes, descriptors, now(0), |_| Some(state));
            assert_eq!(admit(row.bytes_max, carried(&request)), Ok(Admission::Act), "{request:?}");
            assert!(admit(row.bytes_max + 1, carried(&request)).is_err(), "{request:?}");
            assert!(admit(10, carried(&request) + 1).is_err(), "{request:?}");
            assert!(carried(&request) == 0 || admit(10, carried(&request) - 1).is_err(), "{request:?}");
        }
    }

    #[test]
    fn past_its_burst_a_kind_breaks_the_table_until_time_has_passed() {
        let stop = Request::Stop { handle: 1, why: String::new() };
        let mut meter = open();
        let mut admit = |at| meter.admit(&stop, 10, 0, now(at), |_| Some(S::Running));
        assert!((0..1000).all(|_| admit(0).is_ok()));
        assert!(admit(0).is_err());
        assert!((0..100).all(|_| admit(1).is_ok()));
        assert!(admit(1).is_err());
    }
}

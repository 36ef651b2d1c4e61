//! Decides a run: walks REFUSALS in their order, the first that holds ends it (protocol 2.13, 2.14).

use std::collections::{BTreeMap, BTreeSet};

use supervisor::wire::frame::FRAME_BYTES_MAX;
use supervisor::wire::plan::{KEEP_BYTES_MAX, LaunchPlan, PLAN_BYTES_MAX, Step};

use super::ceiling::Ceiling;
use super::expand::{self, Expander, Unexpanded, Values};
use super::message::Message;
use super::quote::shown;
use super::read::{self, Fault};
use super::run::{Run, StepAsked};
use super::{ceiling, plan, walk};
use crate::protocol::forms;
use crate::protocol::keys::Reads;
use crate::protocol::kinds::Kind;
use crate::protocol::names::{CloneCode, RunId};
use crate::protocol::refusals;
use crate::protocol::steps::{StepKind, step};
use crate::protocol::values::ValueName;

mod form;
mod paths;
mod reports;
mod sender;
mod unset;

pub use reports::{ReportFacts, publish_allowed, publish_of, report_counts, stop_allowed, stop_of};

/// Who the server says sent something, and what they hold on it now (decisions C-29, C-60).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sender {
    /// The login; nothing for a user the server no longer has, who holds nothing.
    pub login: Option<String>,
    /// Whether they hold admin.
    pub admin: bool,
    /// Whether they hold setup.
    pub setup: bool,
    /// Whether they hold R.
    pub r: bool,
}

impl Sender {
    /// Whether they hold admin or setup.
    #[must_use]
    pub fn governs(&self) -> bool {
        self.login.is_some() && (self.admin || self.setup)
    }

    /// Whether R is all they may send runs by.
    #[must_use]
    pub fn holds_r_alone(&self) -> bool {
        self.login.is_some() && self.r && !self.governs()
    }

    /// Whether they may send a run at all.
    #[must_use]
    pub fn may_send_runs(&self) -> bool {
        self.governs() || self.holds_r_alone()
    }
}

/// What the receipt tool says of a user (decisions C-60).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// Whether they hold admin.
    pub admin: bool,
    /// Whether they hold setup.
    pub setup: bool,
    /// Every letter they hold, after Fossil's inheritance.
    pub letters: String,
    /// Whether they hold all of a node's letters.
    pub node: bool,
}

/// The acting clone's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneUser {
    /// The login.
    pub login: String,
    /// Every letter they hold.
    pub letters: String,
}

/// What this host's owner allows, and what OCX itself sets (protocol 2.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Whether `settings/unconfined` exists.
    pub unconfined: bool,
    /// The owner's ceiling for R; none refuses such runs.
    pub r_senders: Option<Ceiling>,
    /// `$$root$$`.
    pub root: String,
    /// `$$releases$$`.
    pub releases: String,
    /// `$$release$$`.
    pub release: String,
    /// `$$server_url$$`, without a password.
    pub server_url: String,
    /// `$$repository_name$$`: the URL's last part.
    pub repository_name: String,
}

/// Everything a decision rests on.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The run.
    pub run: &'a RunId,
    /// Its message, of kind run and addressed to this clone: see [`address`].
    pub message: &'a Message,
    /// Its sender; nothing while the server has not said.
    pub sender: Option<&'a Sender>,
    /// The acting clone's user.
    pub clone_user: &'a CloneUser,
    /// The host.
    pub host: &'a Host,
    /// The logins that runs from users holding admin, setup or R ever named as `to` (decisions C-31).
    pub named_as_to: &'a BTreeSet<String>,
    /// The users the receipt tool was asked about; `None` within is one it does not know, who holds nothing.
    pub users: &'a BTreeMap<String, Option<User>>,
    /// Whether a stop that counts stands against the run.
    pub stop_stands: bool,
    /// Whether another run from R alone is in care.
    pub other_r_run_in_care: bool,
    /// The host paths of other runs' workspaces in care.
    pub workspaces_in_care: &'a [String],
}

/// A refusal that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// Its row, 1 to 9.
    pub row: u8,
    /// What `ended` notes, the row included.
    pub note: String,
}

impl Refusal {
    /// A refusal by this row; `what` is what the row's note names, other people's text quoted in it.
    #[must_use]
    pub fn new(row: u8, what: &str) -> Self {
        Self { row, note: format!("refusal {row}: {what}") }
    }

    /// What the supervisor's policy refuses (rows 6 and 7).
    #[must_use]
    pub fn of_policy(row: u8, field: &str, why: &str) -> Self {
        Self::new(row, &format!("{field}: {why}"))
    }

    /// A workspace step that failed (row 9). `index` counts from 0.
    #[must_use]
    pub fn of_step(steps: &[Step], index: usize, why: &str) -> Self {
        let kind = steps.get(index).map_or("step", |step| match step {
            Step::Directory { .. } => StepKind::Directory.word(),
        });
        Self::new(refusals::STEP_FAILED, &format!("workspace[{index}] ({kind}): {why}"))
    }
}

/// What becomes of a run.
#[derive(Debug, Clone, PartialEq)]
pub enum Decision {
    /// Nothing yet; it is considered again at the next completed pull.
    Wait(&'static str),
    /// It is refused.
    Refuse(Refusal),
    /// A stop came first.
    Stopped,
    /// It is taken.
    Accept(Box<Accepted>),
}

/// A run that no refusal this side can check holds for. Only [`decide`] makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    id: RunId,
    run: Run,
    values: Values,
    steps: Vec<Step>,
    plan: LaunchPlan,
    from_r_alone: bool,
}

impl Accepted {
    /// The run's hash.
    #[must_use]
    pub fn id(&self) -> &RunId {
        &self.id
    }
    /// The run as asked.
    #[must_use]
    pub fn run(&self) -> &Run {
        &self.run
    }
    /// Every value set, host paths as the host has them.
    #[must_use]
    pub fn values(&self) -> &Values {
        &self.values
    }
    /// Its workspace steps.
    #[must_use]
    pub fn steps(&self) -> &[Step] {
        &self.steps
    }
    /// What is to be launched.
    #[must_use]
    pub fn plan(&self) -> &LaunchPlan {
        &self.plan
    }
    /// Whether its sender holds R and neither admin nor setup: such runs are taken one at a time.
    #[must_use]
    pub fn is_from_r_alone(&self) -> bool {
        self.from_r_alone
    }
}

/// Whether a message is a run addressed to this clone. A run that is not is passed by (protocol 2.4; decisions C-09).
#[must_use]
pub fn address(message: &Message, clone_user: &str, server_code: &str) -> bool {
    message.known_kind() == Some(Kind::Run)
        && !clone_user.is_empty()
        && message.to.as_deref() == Some(clone_user)
        && CloneCode::new(server_code).is_some()
        && message.content.get("clone").and_then(|code| code.as_str()) == Some(server_code)
}

/// The run's `process.user` as written, to ask the receipt tool about before deciding.
#[must_use]
pub fn process_user_of(message: &Message) -> Option<&str> {
    message.content.get("process")?.get("user")?.as_str()
}

/// Decides a run addressed to this clone.
#[must_use]
pub fn decide(facts: &Facts<'_>) -> Decision {
    let refuse = |row, what: &str| Decision::Refuse(Refusal::new(row, what));
    let Some(sender) = facts.sender else { return Decision::Wait("the server has not said who sent the run") };
    let content = &facts.message.content;
    let asked = read::run(content);
    let known = asked.as_ref().map(|run| look_ahead(facts, run)).unwrap_or_default();

    if let Some(what) = sender::refusal(facts, sender, asked.as_ref().ok(), &known.values) {
        return refuse(refusals::SENDER, &what);
    }
    let run = match asked.and_then(|run| form::refusal(&run, &known.values).map_or(Ok(run), Err)) {
        Ok(run) => run,
        Err(fault) => return refuse(refusals::FORM, &fault.to_string()),
    };
    if facts.stop_stands {
        return Decision::Stopped;
    }
    if let Some(what) = unset::refusal(&run, content) {
        return refuse(refusals::UNSET, &what);
    }
    match process_user(facts, &run) {
        Ok(None) => {}
        Ok(Some(what)) => return refuse(refusals::PROCESS_USER, &what),
        Err(why) => return Decision::Wait(why),
    }
    if run.sandbox.is_none() && !facts.host.unconfined {
        return refuse(refusals::UNCONFINED, "the run has no sandbox, and this host runs nothing unconfined");
    }
    if let Some(what) = not_provided(&run, content) {
        return refuse(refusals::NOT_PROVIDED, &what);
    }
    let (steps, launch) = match lay_out(facts.run, &run, &known) {
        Ok(laid_out) => laid_out,
        Err(what) => return refuse(refusals::NOT_PROVIDED, &what),
    };
    if let Some(what) = paths::refusal(&run, &known, facts.workspaces_in_care) {
        return refuse(refusals::PATH, &what);
    }
    if let Some(what) = verdict(&run, &facts.clone_user.letters) {
        return refuse(refusals::VERDICT, &what);
    }
    if sender.holds_r_alone() && facts.other_r_run_in_care {
        return Decision::Wait("another run from a user holding R alone is in care");
    }
    Decision::Accept(Box::new(Accepted {
        id: facts.run.clone(),
        run,
        values: known.values,
        steps,
        plan: launch,
        from_r_alone: sender.holds_r_alone(),
    }))
}

/// What is known of a run before anything is made.
#[derive(Debug, Default)]
struct Known {
    /// OCX's own values, and the places steps will set; of several steps that set one, the last.
    values: Values,
    /// The place each step names, read with what stands before it; nothing for a step that names none.
    places: Vec<Option<String>>,
}

fn look_ahead(facts: &Facts<'_>, run: &Run) -> Known {
    let host = facts.host;
    let mut values: Values = [
        (ValueName::Root, host.root.as_str()),
        (ValueName::RepositoryName, &host.repository_name),
        (ValueName::ServerUrl, &host.server_url),
        (ValueName::Run, facts.run.as_str()),
        (ValueName::CloneUser, &facts.clone_user.login),
        (ValueName::ProcessUser, run.process.user.as_str()),
        (ValueName::Releases, &host.releases),
        (ValueName::Release, &host.release),
    ]
    .into_iter()
    .map(|(name, value)| (name, value.to_owned()))
    .collect();
    let mut places = Vec::new();
    let mut left_bytes = EXPANDED_BYTES_MAX;
    for asked in run.workspace.iter().flatten() {
        let (kind, place) = match asked {
            StepAsked::Directory { at, .. } => (StepKind::Directory, at),
            StepAsked::Clone { into } => (StepKind::Clone, into),
            StepAsked::Checkout { into, .. } => (StepKind::Checkout, into),
            StepAsked::Files { into, .. } => (StepKind::Files, into),
            StepAsked::Password | StepAsked::Unknown { .. } => {
                places.push(None);
                continue;
            }
        };
        let mut expander = Expander::new(&values, None, left_bytes);
        let place = expander.expand_known(place, Reads::Host);
        left_bytes = expander.left_bytes();
        places.push(Some(place.clone()));
        let place = forms::normalised(&place).unwrap_or(place);
        // A step's places are those of its paths; the check-in's hash is learned when the step is carried out.
        for name in step(kind).sets.iter().filter(|name| **name != ValueName::Checkin) {
            values.insert(*name, place.clone());
        }
    }
    Known { values, places }
}

/// Longest all strings of a run may become with values in place, in bytes; a plan could not cross with more.
const EXPANDED_BYTES_MAX: usize = 2 << 20;

/// Most bytes of the workspace steps as JSON: they cross in one frame, whose envelope takes the rest.
const STEPS_BYTES_MAX: usize = FRAME_BYTES_MAX - (16 << 10);

/// Longest first line, in bytes; the supervisor reads no longer one, nor does any program expect it.
const FIRST_LINE_BYTES_MAX: usize = 1 << 20;

/// Most keys that one note names.
const NAMED_MAX: usize = 20;

/// Refusal 4. Waits while the receipt tool has not been asked.
fn process_user(facts: &Facts<'_>, run: &Run) -> Result<Option<String>, &'static str> {
    /// What every clone's user holds (protocol 2.14; decisions C-31).
    const NODE_LETTERS: &str = "goC4w";
    let user = run.process.user.as_str();
    let named = |why: &str| Ok(Some(format!("process.user {} {why}", shown(user))));
    if facts.message.to.as_deref() == Some(user) || facts.clone_user.login == user {
        return named("is the run's to");
    }
    if facts.named_as_to.contains(user) {
        return named("is a clone's user: a run named it as its to");
    }
    let Some(held) = facts.users.get(user) else { return Err("the server has not said what process.user holds") };
    let Some(held) = held else { return Ok(None) };
    if held.admin || held.setup {
        return named("holds admin or setup on the server");
    }
    if held.node || NODE_LETTERS.chars().all(|letter| held.letters.contains(letter)) {
        return named("holds all the letters of a clone's user, goC4w");
    }
    Ok(None)
}

/// Refusal 6, as far as no host bears on it.
fn not_provided(run: &Run, content: &serde_json::Map<String, serde_json::Value>) -> Option<String> {
    let mut asked = walk::not_acted_on(content);
    if run.sandbox.is_none() {
        asked.push("a run without sandbox".to_owned());
        if run.limits.units.processes.is_some() {
            asked.push("limits.processes without sandbox".to_owned());
        }
    }
    if let Some(first) = asked.get(..asked.len().min(NAMED_MAX)).filter(|first| !first.is_empty()) {
        let more = asked.len() - first.len();
        let more = if more == 0 { String::new() } else { format!(", and {more} more") };
        return Some(format!("this release does not provide {}{more}", first.join(", ")));
    }
    let keep = &run.process.keep;
    for (key, bytes) in [("stderr", keep.stderr_bytes), ("stdout", keep.stdout_bytes)] {
        if bytes > KEEP_BYTES_MAX {
            return Some(format!("process.keep.{key} is above {KEEP_BYTES_MAX} bytes"));
        }
    }
    None
}

/// Refusal 8.
fn verdict(run: &Run, clone_user_letters: &str) -> Option<String> {
    (run.process.verdict && !clone_user_letters.contains('i'))
        .then(|| "process.verdict: the clone's user lacks i, Check-In, on the server".to_owned())
}

/// What the supervisor will be asked, or why it cannot be carried to it: refusal 6.
fn lay_out(id: &RunId, run: &Run, known: &Known) -> Result<(Vec<Step>, LaunchPlan), String> {
    let too_large = || format!("the run with its values in place is larger than {PLAN_BYTES_MAX} bytes");
    let launch = plan::lay_out(id, run, &known.values, EXPANDED_BYTES_MAX).map_err(|why| match why {
        Unexpanded::TooLong => too_large(),
        // What only a step sets that is not carried out was refused before, with the step.
        Unexpanded::Unset(name) => format!("the value {}", shown(&name)),
    })?;
    let size = serde_json::to_vec(&launch).map_or(u64::MAX, |json| u64::try_from(json.len()).unwrap_or(u64::MAX));
    if size > PLAN_BYTES_MAX {
        return Err(too_large());
    }
    if plan::first_line_of(id, &run.objective).len() > FIRST_LINE_BYTES_MAX {
        return Err(format!("objective: the first line of STDIN is larger than {FIRST_LINE_BYTES_MAX} bytes"));
    }
    let steps = plan::lay_out_steps(run, &known.places);
    if serde_json::to_vec(&steps).map_or(usize::MAX, |json| json.len()) > STEPS_BYTES_MAX {
        return Err(format!("workspace: its steps are larger than {STEPS_BYTES_MAX} bytes"));
    }
    Ok((steps, launch))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Refusal 6 comes before it while verdicts are not acted on, so [`decide`] cannot show this row yet.
    #[test]
    fn v2_2_14_21_a_verdict_needs_check_in() {
        let content = serde_json::json!({"clone": "c".repeat(40), "objective": "", "of": "trunk",
            "process": {"user": "builder", "command": ["true"], "verdict": true}});
        let run = content.as_object().and_then(|content| read::run(content).ok());
        let refusal = |letters| run.as_ref().map(|run| verdict(run, letters));
        assert_eq!(refusal("goC4wi"), Some(None));
        assert!(refusal("goC4w").flatten().is_some_and(|what| what.contains("process.verdict")));
    }

    #[test]
    fn a_long_list_of_what_is_not_provided_is_cut() {
        let steps = vec![serde_json::json!({"step": "files", "of": "trunk", "into": "/x"}); NAMED_MAX + 5];
        let content = serde_json::json!({"clone": "c".repeat(40), "objective": "", "workspace": steps,
            "process": {"user": "builder", "command": ["true"]}});
        let what = content.as_object().and_then(|content| not_provided(&read::run(content).ok()?, content));
        let what = what.unwrap_or_default();
        assert!(what.contains("workspace[19] (step files), and 6 more"), "{what}");
    }
}

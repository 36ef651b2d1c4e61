//! Decides a run: walks REFUSALS in their order, the first that holds ends it (protocol 2.13, 2.14).

use supervisor::wire::frame::{FRAME_BYTES_MAX, FRAME_DESCRIPTORS_MAX};
use supervisor::wire::plan::{KEEP_BYTES_MAX, LaunchPlan, PLAN_BYTES_MAX};

use super::ceiling::Ceiling;
use super::expand::{self, Expander, Unexpanded, Values};
use super::message::Message;
use super::plan::StepLaid;
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

mod ahead;
mod decision;
mod facts;
mod form;
mod paths;
mod reports;
mod sender;
mod unset;

use ahead::{Known, look_ahead};

pub use decision::{Accepted, Decision, Refusal};
pub use facts::{CloneUser, Facts, Host, Sender, User};
pub use reports::{ReportFacts, publish_allowed, publish_of, report_counts, stop_allowed, stop_of};

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
    if let Some(what) = checkin_too_soon(&run) {
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
    if run.sandbox.is_none() && run.limits.units.processes.is_some() {
        asked.push("limits.processes without sandbox".to_owned());
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

/// Refusal 6: a use of `$$checkin$$` in a step that this release does not carry out. A path holds it nowhere, and after a
/// `checkout`, which learns it, the node that reads a name does not know it.
fn checkin_too_soon(run: &Run) -> Option<String> {
    let mut after_checkout = false;
    for (index, step) in run.workspace.iter().flatten().enumerate() {
        let (of, path) = match step {
            StepAsked::Directory { at, .. } => (None, Some(at)),
            StepAsked::Clone { into } => (None, Some(into)),
            StepAsked::Checkout { of, into } | StepAsked::Files { of, into } => (Some(of), Some(into)),
            StepAsked::Password | StepAsked::Unknown { .. } => (None, None),
        };
        let names = |text: Option<&String>| text.is_some_and(|text| expand::uses(text, ValueName::Checkin));
        if names(path) {
            return Some(format!("this release does not put $$checkin$$ in the path of workspace[{index}]"));
        }
        if after_checkout && names(of) {
            let what = "this release does not put $$checkin$$ in a name after a checkout step";
            return Some(format!("workspace[{index}].of: {what}; name the check-in itself"));
        }
        after_checkout |= matches!(step, StepAsked::Checkout { .. });
    }
    None
}

/// What the supervisor will be asked, or why it cannot be carried to it: refusal 6.
fn lay_out(id: &RunId, run: &Run, known: &Known) -> Result<(Vec<StepLaid>, LaunchPlan), String> {
    /// Stands for the check-in until it is known. Policy sees the plan before any step, and again with the hash.
    const NOT_YET: &str = "0000000000000000000000000000000000000000000000000000000000000000";
    let mut values = known.values.clone();
    values.insert(ValueName::Checkin, NOT_YET.to_owned());
    let launch = lay_out_launch(id, run, &values)?;
    if plan::first_line_of(id, &run.objective).len() > FIRST_LINE_BYTES_MAX {
        return Err(format!("objective: the first line of STDIN is larger than {FIRST_LINE_BYTES_MAX} bytes"));
    }
    let steps = plan::lay_out_steps(run, &known.places);
    let bytes: usize = steps.iter().map(StepLaid::bytes).sum();
    if bytes > STEPS_BYTES_MAX {
        return Err(format!("workspace: its steps are larger than {STEPS_BYTES_MAX} bytes"));
    }
    let carry = steps.iter().filter(|step| matches!(step, StepLaid::Clone { .. } | StepLaid::Files { .. })).count();
    if carry > FRAME_DESCRIPTORS_MAX {
        let most = FRAME_DESCRIPTORS_MAX;
        return Err(format!("workspace: it has {carry} clone and files steps, and this release carries out {most}"));
    }
    Ok((steps, launch))
}

/// The launch with these values in place, or why it cannot be carried to the supervisor.
fn lay_out_launch(id: &RunId, run: &Run, values: &Values) -> Result<LaunchPlan, String> {
    let too_large = || format!("the run with its values in place is larger than {PLAN_BYTES_MAX} bytes");
    let launch = plan::lay_out(id, run, values, EXPANDED_BYTES_MAX).map_err(|why| match why {
        Unexpanded::TooLong => too_large(),
        // What nothing sets was refused before (3).
        Unexpanded::Unset(name) => format!("the value {}", shown(&name)),
    })?;
    let size = serde_json::to_vec(&launch).map_or(u64::MAX, |json| u64::try_from(json.len()).unwrap_or(u64::MAX));
    if size > PLAN_BYTES_MAX { Err(too_large()) } else { Ok(launch) }
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
}

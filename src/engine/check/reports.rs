//! Who may stop or publish a run, and which reports of it count (protocol 2.3, 2.4, 2.12; decisions C-20, C-37).

use super::{Kind, Message, RunId, Sender};
use crate::engine::report;

/// The run a readable stop names: empty content and the full hash in `re`. A `to` beside it is not read.
#[must_use]
pub fn stop_of(message: &Message) -> Option<RunId> {
    empty(message, Kind::Stop).and_then(|()| RunId::new(message.re.as_deref()?))
}

/// The login and run a readable publish names.
#[must_use]
pub fn publish_of(message: &Message) -> Option<(&str, RunId)> {
    empty(message, Kind::Publish)?;
    Some((message.to.as_deref()?, RunId::new(message.re.as_deref()?)?))
}

fn empty(message: &Message, kind: Kind) -> Option<()> {
    (message.known_kind() == Some(kind) && message.content.is_empty()).then_some(())
}

/// Whether this sender may stop the run that `run_sender` sent: admin or setup, or the user holding R that sent it.
#[must_use]
pub fn stop_allowed(sender: &Sender, run_sender: Option<&str>) -> bool {
    sender.governs() || (sender.r && sender.login.is_some() && sender.login.as_deref() == run_sender)
}

/// Whether this sender may publish the run that `run_sender` sent: that user, or one holding admin or setup.
#[must_use]
pub fn publish_allowed(sender: &Sender, run_sender: Option<&str>) -> bool {
    sender.governs() || (sender.login.is_some() && sender.login.as_deref() == run_sender)
}

/// What decides whether a report of a run counts.
#[derive(Debug, Clone, Copy)]
pub struct ReportFacts<'a> {
    /// The report.
    pub message: &'a Message,
    /// Who the server says sent it.
    pub from: Option<&'a str>,
    /// Whether it stands in the run's own thread or ticket.
    pub in_the_runs_place: bool,
    /// The run.
    pub run: &'a RunId,
    /// The run's `to`.
    pub to: &'a str,
    /// The run's sender, and what they hold.
    pub run_sender: &'a Sender,
}

/// The kind of report this is for the run, when it counts: by `re`, in the run's place, from the run's `to`. A `started`
/// counts only of a run sent by a different user holding admin, setup or R; an `ended` needs no such sender.
#[must_use]
pub fn report_counts(facts: &ReportFacts<'_>) -> Option<Kind> {
    let kind = facts.message.known_kind()?;
    let answers = facts.message.re.as_deref() == Some(facts.run.as_str())
        && facts.in_the_runs_place
        && !facts.to.is_empty()
        && facts.from == Some(facts.to);
    let counts = answers
        && match kind {
            Kind::Started => facts.run_sender.may_send_runs() && facts.run_sender.login.as_deref() != Some(facts.to),
            Kind::Ended => report::read_ended(facts.message).is_some(),
            Kind::Run | Kind::Stop | Kind::Publish | Kind::Question | Kind::Decision => false,
        };
    counts.then_some(kind)
}

//! KINDS: the messages, what their envelope needs, who may send them, where, and what answers them (protocol 2.3).

use super::words::words;

words! {
    /// A kind of message this tree reads or writes (protocol 2.3; question and decision: decisions C-69).
    Kind {
        Run = "run",
        Stop = "stop",
        Publish = "publish",
        Started = "started",
        Ended = "ended",
        Question = "question",
        Decision = "decision",
    }
}

/// Who may send a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Sender {
    /// A user holding admin or setup; or one holding R, with the isolation refusal 1 asks.
    RunSender,
    /// A user holding admin or setup; or the user holding R that sent the run.
    Stopper,
    /// The run's sender, or a user holding admin or setup.
    Publisher,
    /// OCX on the run's clone, as the run's `to`.
    CloneUser,
    /// Anyone who may write there.
    Anyone,
}

/// Where a message counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place {
    /// Any thread or ticket.
    Anywhere,
    /// The thread or ticket of the message it answers.
    WhereAnswered,
}

/// One kind.
#[derive(Debug, Clone, Copy)]
pub struct KindRow {
    /// The kind.
    pub kind: Kind,
    /// Whether its envelope needs `to`.
    pub to: bool,
    /// Whether its envelope needs `re`.
    pub re: bool,
    /// Who may send it.
    pub sender: Sender,
    /// Where it counts.
    pub place: Place,
    /// Whether a content key it does not know makes it unreadable; a run is refused instead (refusal 2).
    pub strict: bool,
    /// What answers it, for people.
    pub answered_by: &'static str,
    /// The paragraph.
    pub spec: &'static str,
}

/// Every kind.
pub const KINDS: &[KindRow] = &[
    KindRow {
        kind: Kind::Run,
        to: true,
        re: false,
        sender: Sender::RunSender,
        place: Place::Anywhere,
        strict: true,
        answered_by: "started, ended, then publications; or ended alone",
        spec: "2.3",
    },
    KindRow {
        kind: Kind::Stop,
        to: false,
        re: true,
        sender: Sender::Stopper,
        place: Place::WhereAnswered,
        strict: true,
        answered_by: "the run's ended",
        spec: "2.3, 2.12",
    },
    KindRow {
        kind: Kind::Publish,
        to: true,
        re: true,
        sender: Sender::Publisher,
        place: Place::WhereAnswered,
        strict: true,
        answered_by: "unfinished publications, or a reply saying why not",
        spec: "2.3; decisions C-37",
    },
    KindRow {
        kind: Kind::Started,
        to: false,
        re: true,
        sender: Sender::CloneUser,
        place: Place::WhereAnswered,
        strict: false,
        answered_by: "nothing",
        spec: "2.3",
    },
    KindRow {
        kind: Kind::Ended,
        to: false,
        re: true,
        sender: Sender::CloneUser,
        place: Place::WhereAnswered,
        strict: false,
        answered_by: "nothing",
        spec: "2.3",
    },
    KindRow {
        kind: Kind::Question,
        to: true,
        re: false,
        sender: Sender::Anyone,
        place: Place::Anywhere,
        strict: false,
        answered_by: "decision",
        spec: "decisions C-69",
    },
    KindRow {
        kind: Kind::Decision,
        to: false,
        re: true,
        sender: Sender::Anyone,
        place: Place::WhereAnswered,
        strict: false,
        answered_by: "nothing",
        spec: "decisions C-69",
    },
];

//! OUTCOMES of `ended`, their exit and note rules, and the order of publications (protocol 2.12; decisions C-04).

use super::words::words;

words! {
    /// How a run ended (protocol 2.12).
    Outcome {
        Refused = "refused",
        Stopped = "stopped",
        Exited = "exited",
        Budget = "budget",
        Lost = "lost",
    }
}

/// One outcome.
#[derive(Debug, Clone, Copy)]
pub struct OutcomeRow {
    /// The outcome.
    pub outcome: Outcome,
    /// Whether `exit` is present; it is required then and absent otherwise.
    pub exit: bool,
    /// What `note` says; required then and absent otherwise.
    pub note: Option<&'static str>,
    /// Whether files may be sent and a verdict written for it (protocol 2.3, 2.10).
    pub publishes: bool,
    /// When, for people.
    pub when: &'static str,
}

/// Every outcome.
pub const OUTCOMES: &[OutcomeRow] = &[
    OutcomeRow {
        outcome: Outcome::Refused,
        exit: false,
        note: Some("which refusal"),
        publishes: false,
        when: "a refusal holds",
    },
    OutcomeRow {
        outcome: Outcome::Stopped,
        exit: false,
        note: None,
        publishes: false,
        when: "a stop ended it, or came first",
    },
    OutcomeRow {
        outcome: Outcome::Exited,
        exit: true,
        note: None,
        publishes: true,
        when: "its process ended with no stop or limit",
    },
    OutcomeRow {
        outcome: Outcome::Budget,
        exit: false,
        note: Some("which limit"),
        publishes: true,
        when: "past a limit",
    },
    OutcomeRow {
        outcome: Outcome::Lost,
        exit: false,
        note: Some("why"),
        publishes: false,
        when: "its counted started was found but not the run in care, or its watcher failed (decisions C-25)",
    },
];

words! {
    /// What follows `ended`, in this order, each confirmed before the next (decisions C-04).
    Publication { Logs = "logs", Files = "files", Verdict = "verdict", Removal = "removal" }
}

//! FILTERS: what an artifact passes, in order, to be given to a session (protocol 2.11; decisions C-06).

use super::words::words;

words! {
    /// A filter; the first that holds an artifact back is named in the reply that says so (decisions C-23).
    Filter {
        Known = "known",
        After = "after",
        NoMessage = "no message",
        NotItsOwn = "not its own",
        Where = "where",
        Heard = "heard",
    }
}

/// One filter.
#[derive(Debug, Clone, Copy)]
pub struct FilterRow {
    /// The filter.
    pub filter: Filter,
    /// When an artifact passes, for people.
    pub passes_when: &'static str,
}

/// Every filter, in order.
pub const FILTERS: &[FilterRow] = &[
    FilterRow { filter: Filter::Known, passes_when: "the server has said who sent it" },
    FilterRow { filter: Filter::After, passes_when: "the server received it after the run" },
    FilterRow {
        filter: Filter::NoMessage,
        passes_when: "it holds no OCX message, or a question or decision; or, with ends, a counted ended",
    },
    FilterRow { filter: Filter::NotItsOwn, passes_when: "its sender is not the process's user" },
    FilterRow {
        filter: Filter::Where,
        passes_when: "a post in the run's thread, a change to its ticket, or a check-in on a branch in checkins",
    },
    FilterRow {
        filter: Filter::Heard,
        passes_when: "a check-in or counted ended; or its sender is in hears, or hears is [\"*\"]",
    },
];

words! {
    /// What arrives and becomes a delivery's line.
    Arrival { Post = "post", Change = "change", Checkin = "checkin" }
}

/// The keys of a delivery's line, in order.
#[must_use]
pub const fn line_keys(arrival: Arrival) -> &'static [&'static str] {
    match arrival {
        Arrival::Post => &["post", "from", "conversation", "text"],
        Arrival::Change => &["change", "ticket", "from", "text"],
        Arrival::Checkin => &["checkin", "branch", "from", "comment"],
    }
}

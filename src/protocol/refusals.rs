//! REFUSALS: checked in this order, the first that holds ends the run (protocol 2.14).

/// One refusal.
#[derive(Debug, Clone, Copy)]
pub struct RefusalRow {
    /// Its number in the protocol's table, which is its place in the order.
    pub row: u8,
    /// When it holds, for people.
    pub holds_when: &'static str,
    /// What its note names.
    pub note_names: &'static str,
    /// Whether it is checked before a waiting stop is looked at (protocol 2.13).
    pub before_stop: bool,
}

/// Sender, or isolation of a run from R alone.
pub const SENDER: u8 = 1;
/// A key missing, malformed or unknown.
pub const FORM: u8 = 2;
/// A step or value that nothing provides.
pub const UNSET: u8 = 3;
/// `process.user` unfit.
pub const PROCESS_USER: u8 = 4;
/// No sandbox on a host that runs nothing unconfined.
pub const UNCONFINED: u8 = 5;
/// Something this host or release does not provide.
pub const NOT_PROVIDED: u8 = 6;
/// A path.
pub const PATH: u8 = 7;
/// A verdict the clone's user may not write.
pub const VERDICT: u8 = 8;
/// A workspace step failed.
pub const STEP_FAILED: u8 = 9;

const fn row(row: u8, before_stop: bool, holds_when: &'static str, note_names: &'static str) -> RefusalRow {
    RefusalRow { row, holds_when, note_names, before_stop }
}

/// Every refusal, in order.
pub const REFUSALS: &[RefusalRow] = &[
    row(
        SENDER,
        true,
        "its sender holds none of admin, setup and R, or is its to; or R alone sent it without the isolation asked",
        "which",
    ),
    row(FORM, true, "a required key is missing, a key has the wrong type or form, or is not version 2's", "the key"),
    row(UNSET, false, "a step kind unknown, a step whose needs are not met, or a value not set by then", "which"),
    row(PROCESS_USER, false, "process.user is a clone's user, or holds admin, setup or all node letters", "which"),
    row(UNCONFINED, false, "no sandbox, and the host runs nothing unconfined", "that"),
    row(NOT_PROVIDED, false, "a key or limit this host or release cannot provide", "which"),
    row(PATH, false, "a path outside where 2.7 and 2.8 allow", "the path"),
    row(VERDICT, false, "the clone's user lacks i for a requested verdict", "that"),
    row(STEP_FAILED, false, "a workspace step fails, collect refusing included", "the step, and why"),
];

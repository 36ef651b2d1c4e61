//! STEPS: the kinds of workspace step, what each needs before it and what it sets (protocol 2.7).
//!
//! Their keys are rows of KEYS.

use super::values::ValueName;
use super::words::words;

words! {
    /// A kind of workspace step (protocol 2.7).
    StepKind {
        Directory = "directory",
        Password = "password",
        Clone = "clone",
        Checkout = "checkout",
        Files = "files",
    }
}

/// One kind of step.
#[derive(Debug, Clone, Copy)]
pub struct StepRow {
    /// The kind.
    pub kind: StepKind,
    /// The steps that must stand before it.
    pub needs: &'static [StepKind],
    /// The values it sets.
    pub sets: &'static [ValueName],
    /// What it does, for people.
    pub does: &'static str,
}

const DIRECTORY: StepRow = StepRow {
    kind: StepKind::Directory,
    needs: &[],
    sets: &[ValueName::Workspace],
    does: "makes the directory, removing what was there",
};
const PASSWORD: StepRow = StepRow {
    kind: StepKind::Password,
    needs: &[],
    sets: &[],
    does: "collects the process's user's approved password and holds it privately for clone",
};
const CLONE: StepRow = StepRow {
    kind: StepKind::Clone,
    needs: &[StepKind::Password],
    sets: &[ValueName::ProcessClone],
    does: "makes the process's clone, signed in as the process's user",
};
const CHECKOUT: StepRow = StepRow {
    kind: StepKind::Checkout,
    needs: &[StepKind::Clone],
    sets: &[ValueName::Tree, ValueName::Checkin],
    does: "opens a checkout from the process's clone",
};
const FILES: StepRow = StepRow {
    kind: StepKind::Files,
    needs: &[],
    sets: &[ValueName::Tree, ValueName::Checkin],
    does: "writes the check-in's files and nothing else",
};

/// Every kind of step.
pub const STEPS: &[StepRow] = &[DIRECTORY, PASSWORD, CLONE, CHECKOUT, FILES];

/// The row of a kind of step.
#[must_use]
pub const fn step(kind: StepKind) -> &'static StepRow {
    match kind {
        StepKind::Directory => &DIRECTORY,
        StepKind::Password => &PASSWORD,
        StepKind::Clone => &CLONE,
        StepKind::Checkout => &CHECKOUT,
        StepKind::Files => &FILES,
    }
}

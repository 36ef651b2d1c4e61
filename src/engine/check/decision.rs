//! What becomes of a run.

use supervisor::wire::plan::{LaunchPlan, Step};

use super::{Run, RunId, StepKind, Values, refusals};

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

    /// What the supervisor's policy refuses (rows 5, 6 and 7).
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

/// A run that no refusal this side can check holds for. Only `check::decide` makes one.
#[derive(Debug, Clone, PartialEq)]
pub struct Accepted {
    pub(super) id: RunId,
    pub(super) run: Run,
    pub(super) values: Values,
    pub(super) steps: Vec<Step>,
    pub(super) plan: LaunchPlan,
    pub(super) from_r_alone: bool,
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

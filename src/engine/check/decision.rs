//! What becomes of a run.

use supervisor::wire::plan::LaunchPlan;

use super::{
    EXPANDED_BYTES_MAX, Expander, Reads, Run, RunId, StepLaid, ValueName, Values, lay_out_launch, refusals, shown,
};

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

    /// What cannot be carried out, found once the steps were done (row 6).
    #[must_use]
    pub fn not_provided(why: &str) -> Self {
        Self::new(refusals::NOT_PROVIDED, why)
    }

    /// A workspace step that failed (row 9). `index` counts from 0.
    #[must_use]
    pub fn of_step(steps: &[StepLaid], index: usize, why: &str) -> Self {
        let kind = steps.get(index).map_or("step", |step| step.kind().word());
        Self::new(refusals::STEP_FAILED, &format!("workspace[{index}] ({kind}): {why}"))
    }

    /// The run's own `of`, which names no one check-in: it is resolved before the first step, and like one (row 9).
    #[must_use]
    pub fn of_of(of: &str, why: &str) -> Self {
        Self::new(refusals::STEP_FAILED, &format!("of {}: {why}", shown(of)))
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
    pub(super) steps: Vec<StepLaid>,
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
    pub fn steps(&self) -> &[StepLaid] {
        &self.steps
    }
    /// The check-in's name that a step's `of` is, with the values in place that are set before it.
    ///
    /// # Errors
    /// In words, when a value in it is not set.
    pub fn name_of(&self, of: &str, checkin: Option<&str>) -> Result<String, String> {
        let mut values = self.values.clone();
        values.extend(checkin.map(|hash| (ValueName::Checkin, hash.to_owned())));
        let name = Expander::new(&values, None, EXPANDED_BYTES_MAX).expand(of, Reads::Host);
        name.map_err(|why| format!("{}: {why:?}", shown(of)))
    }

    /// Sets `$$checkin$$`, which the steps found out, in the plan and among the values.
    ///
    /// # Errors
    /// In words, when the plan is too large with it.
    pub fn set_checkin(&mut self, checkin: &str) -> Result<(), String> {
        self.values.insert(ValueName::Checkin, checkin.to_owned());
        self.plan = lay_out_launch(&self.id, &self.run, &self.values)?;
        Ok(())
    }

    /// What is to be launched. Until [`Self::set_checkin`], `$$checkin$$` in it is a hash of zeros.
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

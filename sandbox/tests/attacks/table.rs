//! The table of attacks: what is attacked, how, and what shows that the attack is one.

use libtest_mimic::Failed;

use crate::inside::{Given, Got};
use crate::outside::{self, Said, Stage};
use crate::{bombs, honest, identity, inherited, kernel, network, proc, races, runs, tree};

/// Every attack.
pub(crate) const ATTACKS: &[&[Attack]] = &[
    identity::ATTACKS,
    inherited::ATTACKS,
    tree::ATTACKS,
    proc::ATTACKS,
    kernel::ATTACKS,
    network::ATTACKS,
    honest::ATTACKS,
    bombs::ATTACKS,
    races::ATTACKS,
    runs::ATTACKS,
];

/// What is tried inside.
pub(crate) type Inside = fn(&Given, &mut Got);

/// One row.
pub(crate) struct Attack {
    pub(crate) name: &'static str,
    /// The row of SECURITY.md that says it fails.
    pub(crate) promise: &'static str,
    pub(crate) how: How,
}

pub(crate) enum How {
    /// All that it tries inside is refused, and in its control works.
    Inside {
        attack: Inside,
        stage: fn() -> Result<Stage, Failed>,
        layer: Layer,
        control: Control,
        /// Why not everything it tries works in the control; empty when all has to.
        but: &'static str,
    },
    /// No attack: all that it does has to work inside.
    Honest { use_: Inside, stage: fn() -> Result<Stage, Failed> },
    /// More than one run; the test makes its own controls.
    Whole(fn() -> Result<(), Failed>),
}

/// How much of the confinement is on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Layer {
    /// All of it.
    Whole,
    /// The system call filter lets everything through: what else holds.
    NoFilter,
}

/// The same attack without the protection.
pub(crate) enum Control {
    /// An ordinary account in namespaces of its own, where it is root.
    Loose,
    /// The same, but these of the host's namespaces are kept, by `/proc/PID/ns` names.
    LooseKeeping(&'static str),
    /// A sandbox that was asked for what the attack tries.
    Asked(fn(Stage) -> Stage),
    /// There can be none here, and why.
    None(&'static str),
}

/// A row with the usual stage and control.
pub(crate) const fn attack(name: &'static str, promise: &'static str, attack: Inside) -> Attack {
    let how = How::Inside { attack, stage: Stage::plain, layer: Layer::Whole, control: Control::Loose, but: "" };
    Attack { name, promise, how }
}

/// A row of what has to work.
pub(crate) const fn honest(name: &'static str, use_: Inside, stage: fn() -> Result<Stage, Failed>) -> Attack {
    Attack { name, promise: "honest", how: How::Honest { use_, stage } }
}

/// A row of several runs.
pub(crate) const fn whole(name: &'static str, promise: &'static str, test: fn() -> Result<(), Failed>) -> Attack {
    Attack { name, promise, how: How::Whole(test) }
}

impl Attack {
    pub(crate) const fn staged(mut self, with: fn() -> Result<Stage, Failed>) -> Self {
        if let How::Inside { stage, .. } = &mut self.how {
            *stage = with;
        }
        self
    }
    pub(crate) const fn unfiltered(mut self) -> Self {
        if let How::Inside { layer, .. } = &mut self.how {
            *layer = Layer::NoFilter;
        }
        self
    }
    pub(crate) const fn control(mut self, with: Control) -> Self {
        if let How::Inside { control, .. } = &mut self.how {
            *control = with;
        }
        self
    }
    pub(crate) const fn but(mut self, why: &'static str) -> Self {
        if let How::Inside { but, .. } = &mut self.how {
            *but = why;
        }
        self
    }
}

/// Tries one row: first its control, since an attack that would not work anywhere shows nothing.
pub(crate) fn tried(row: &Attack) -> Result<(), Failed> {
    match &row.how {
        How::Whole(test) => test(),
        How::Honest { stage, .. } => {
            let said = outside::sandbox(&stage()?, row.name)?;
            fails_nothing("honest uses", &said, "")
        }
        How::Inside { stage, layer, control, but, .. } => {
            let made = match control {
                Control::Loose => Some(outside::loose(&stage()?, row.name, "")?),
                Control::LooseKeeping(kept) => Some(outside::loose(&stage()?, row.name, kept)?),
                Control::Asked(ask) => Some(outside::sandbox(&ask(stage()?), row.name)?),
                Control::None(_) => None,
            };
            match made {
                Some(Said { no_control: Some(why), .. }) => {
                    eprintln!("attacks: {} has no control on this kernel: {why}", row.name);
                }
                Some(said) => fails_nothing("the control", &said, but)?,
                None => {}
            }
            let stage = stage()?;
            let said = match layer {
                Layer::Whole => outside::sandbox(&stage, row.name)?,
                Layer::NoFilter => outside::unfiltered(&stage, row.name)?,
            };
            works_nothing(&said)
        }
    }
}

/// Fails unless it came to its end, and everything worked; with a reason, something.
pub(crate) fn fails_nothing(whose: &str, said: &Said, but: &str) -> Result<(), Failed> {
    let enough = said.ended && !said.through.is_empty() && (said.refused.is_empty() || !but.is_empty());
    if enough { Ok(()) } else { Err(format!("{whose} should have worked: {said:#?}").into()) }
}

/// Fails unless it came to its end, tried something, and nothing worked.
pub(crate) fn works_nothing(said: &Said) -> Result<(), Failed> {
    let held = said.ended && said.through.is_empty() && !said.refused.is_empty();
    if held { Ok(()) } else { Err(format!("the attack should have been refused: {said:#?}").into()) }
}

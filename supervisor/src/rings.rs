//! The memory of all runs' kept output, as one budget (decisions C-87): what fits is held at once, what does not waits
//! in the order it came. Pure.

use std::collections::{BTreeMap, VecDeque};

use supervisor::wire::message::Handle;

/// What runs hold of the budget, and which wait.
#[derive(Debug)]
pub(crate) struct Rings {
    budget: u64,
    held: BTreeMap<Handle, u64>,
    /// Bounded by the runs in care: each waits once.
    waiting: VecDeque<(Handle, u64)>,
}

impl Rings {
    /// A budget of bytes nobody holds anything of.
    pub(crate) const fn new(budget: u64) -> Self {
        Self { budget, held: BTreeMap::new(), waiting: VecDeque::new() }
    }

    /// All there is.
    pub(crate) const fn budget(&self) -> u64 {
        self.budget
    }

    /// What a run holds.
    pub(crate) fn held(&self, run: Handle) -> u64 {
        self.held.get(&run).copied().unwrap_or(0)
    }

    /// What all runs hold.
    pub(crate) fn all_held(&self) -> u64 {
        self.held.values().sum()
    }

    /// Asks for room in place of what the run held or waited for. The runs that hold what they asked for since now, in
    /// order; a run that is not among them waits.
    pub(crate) fn ask(&mut self, run: Handle, bytes: u64) -> Vec<Handle> {
        self.forget(run);
        self.waiting.push_back((run, bytes));
        self.grant()
    }

    /// Gives a run's room back, or its place among those that wait. The runs that hold what they asked for since now.
    pub(crate) fn give_back(&mut self, run: Handle) -> Vec<Handle> {
        self.forget(run);
        self.grant()
    }

    fn forget(&mut self, run: Handle) {
        self.held.remove(&run);
        self.waiting.retain(|(other, _)| *other != run);
    }

    /// In order and nobody past another, so that one who asks for much is not kept waiting by those who ask for little.
    fn grant(&mut self) -> Vec<Handle> {
        let mut granted = Vec::new();
        while let Some((run, bytes)) = self.waiting.front().copied() {
            if bytes > self.budget.saturating_sub(self.all_held()) {
                break;
            }
            self.waiting.pop_front();
            self.held.insert(run, bytes);
            granted.push(run);
        }
        granted
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_87_past_the_budget_a_run_waits_and_nobody_passes_it() {
        let mut rings = Rings::new(10);
        assert_eq!(rings.ask(1, 4), [1]);
        assert_eq!(rings.ask(2, 4), [2]);
        assert!(rings.ask(3, 3).is_empty() && rings.ask(4, 1).is_empty());
        assert_eq!((rings.held(3), rings.all_held()), (0, 8));
        assert_eq!(rings.give_back(1), [3, 4]);
        assert_eq!(rings.all_held(), 8);
    }

    #[test]
    fn asked_again_a_run_holds_what_it_asked_last_and_one_that_gives_up_lets_others_by() {
        let mut rings = Rings::new(10);
        assert_eq!(rings.ask(1, 10), [1]);
        assert!(rings.ask(2, 9).is_empty() && rings.ask(3, 2).is_empty());
        // What it held is given back first, and those before it in the line are met first.
        assert_eq!(rings.ask(1, 8), [2]);
        assert_eq!((rings.held(1), rings.held(2)), (0, 9));
        assert_eq!(rings.give_back(3), Vec::<Handle>::new());
        assert_eq!(rings.give_back(2), [1]);
        assert_eq!(rings.all_held(), 8);
    }
}

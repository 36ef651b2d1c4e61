//! What is due when, as data, on the clock nobody can set (decisions C-77).

use std::collections::BTreeMap;
use std::time::Duration;

use rustix::time::{ClockId, clock_gettime};

/// A moment on `CLOCK_BOOTTIME`: suspension counts, setting the clock does not.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct BootTime(Duration);

impl BootTime {
    /// The moment it is.
    #[must_use]
    pub(crate) fn now() -> Self {
        let now = clock_gettime(ClockId::Boottime);
        Self(Duration::new(u64::try_from(now.tv_sec).unwrap_or(0), u32::try_from(now.tv_nsec).unwrap_or(0)))
    }

    /// A moment so long after boot.
    #[cfg(test)]
    #[must_use]
    pub(crate) const fn from_boot(since: Duration) -> Self {
        Self(since)
    }

    /// How long after boot.
    #[must_use]
    pub(crate) const fn since_boot(self) -> Duration {
        self.0
    }

    /// The moment so much later; the last there is when that cannot be told.
    #[must_use]
    pub(crate) fn after(self, wait: Duration) -> Self {
        Self(self.0.saturating_add(wait))
    }

    /// How long from `earlier` to this, nothing if it was later.
    #[must_use]
    pub(crate) fn since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

/// Names one deadline, to take it back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Deadline {
    at: BootTime,
    number: u64,
}

/// Everything that is due, in order. Holds few for each run, and runs are bounded.
#[derive(Debug)]
pub(crate) struct Deadlines<What> {
    due: BTreeMap<Deadline, What>,
    next: u64,
}

impl<What> Default for Deadlines<What> {
    fn default() -> Self {
        Self { due: BTreeMap::new(), next: 0 }
    }
}

impl<What> Deadlines<What> {
    /// Makes `what` due at `at`.
    pub(crate) fn set(&mut self, at: BootTime, what: What) -> Deadline {
        let deadline = Deadline { at, number: self.next };
        self.next += 1;
        self.due.insert(deadline, what);
        deadline
    }

    /// Takes a deadline back; nothing when it has passed.
    pub(crate) fn cancel(&mut self, deadline: Option<Deadline>) {
        if let Some(deadline) = deadline {
            self.due.remove(&deadline);
        }
    }

    /// When the next is due.
    #[must_use]
    pub(crate) fn next(&self) -> Option<BootTime> {
        self.due.keys().next().map(|deadline| deadline.at)
    }

    /// Takes the next that is due by `now`.
    pub(crate) fn pop(&mut self, now: BootTime) -> Option<What> {
        let first = self.due.first_entry().filter(|first| first.key().at <= now)?;
        Some(first.remove())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> BootTime {
        BootTime::from_boot(Duration::from_secs(seconds))
    }

    #[test]
    fn what_is_due_comes_in_order_of_time_then_of_setting_and_not_before() {
        let mut deadlines = Deadlines::default();
        deadlines.set(at(9), "later");
        deadlines.set(at(5), "first");
        deadlines.set(at(5), "second");
        assert_eq!(deadlines.next(), Some(at(5)));
        assert_eq!(deadlines.pop(at(4)), None);
        assert_eq!(deadlines.pop(at(5)), Some("first"));
        assert_eq!(deadlines.pop(at(5)), Some("second"));
        assert_eq!(deadlines.pop(at(5)), None);
        assert_eq!(deadlines.pop(at(10)), Some("later"));
        assert_eq!(deadlines.next(), None);
    }

    #[test]
    fn a_deadline_taken_back_never_comes_and_one_that_came_can_be_taken_back() {
        let mut deadlines = Deadlines::default();
        let gone = deadlines.set(at(1), "gone");
        let came = deadlines.set(at(1), "came");
        deadlines.cancel(Some(gone));
        assert_eq!(deadlines.pop(at(2)), Some("came"));
        deadlines.cancel(Some(came));
        deadlines.cancel(None);
        assert_eq!(deadlines.pop(at(2)), None);
    }

    #[test]
    fn a_wait_too_long_to_tell_is_the_last_moment_not_an_early_one() {
        assert!(at(1).after(Duration::MAX) > at(1_000_000));
        assert_eq!(at(1).since(at(2)), Duration::ZERO);
    }
}

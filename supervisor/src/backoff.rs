//! How long to wait before the protocol process is started again. Pure.

use std::time::Duration;

/// First wait.
pub(crate) const FIRST: Duration = Duration::from_millis(100);
/// Longest wait.
pub(crate) const LONGEST: Duration = Duration::from_secs(30);
/// A process that lived this long was good: the next wait is the first again.
pub(crate) const GOOD: Duration = Duration::from_secs(60);

/// The waits so far.
#[derive(Debug, Default)]
pub(crate) struct Backoff {
    last: Option<Duration>,
}

impl Backoff {
    /// The wait after a process that lived so long.
    pub(crate) fn after(&mut self, lived: Duration) -> Duration {
        let wait = match self.last {
            Some(last) if lived < GOOD => last.saturating_mul(2).min(LONGEST),
            _ => FIRST,
        };
        self.last = Some(wait);
        wait
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_double_up_to_the_longest_and_begin_anew_after_a_good_minute() {
        let mut backoff = Backoff::default();
        let short = Duration::from_secs(1);
        let waits: Vec<u128> = (0..11).map(|_| backoff.after(short).as_millis()).collect();
        assert_eq!(waits, [100, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(backoff.after(GOOD), FIRST);
        assert_eq!(backoff.after(short), FIRST * 2);
    }
}

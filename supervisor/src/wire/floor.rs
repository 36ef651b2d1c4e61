//! The floor of free space below which no new run is taken (decisions C-84). The supervisor keeps to it; the node is told, so
//! that status can say when it is passed.

use serde::{Deserialize, Serialize};

/// The floor where `settings/floor` names none: a gibibyte or a twentieth of the file system, whichever is less.
const BYTES: u64 = 1 << 30;
const PERCENT: u64 = 5;
/// What of `ROOT` is looked at: each may be a file system of its own.
pub const PLACES: [&str; 3] = ["care", "state", "workspaces"];

/// How much must be free.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Floor {
    /// 1 GiB or 5 hundredths of the file system, whichever is less.
    Usual,
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of the file system.
    Percent(u64),
}

impl Floor {
    /// Whether so many bytes free of so many are below it: the floor, in bytes.
    #[must_use]
    pub fn below(self, free: u64, size: u64) -> Option<u64> {
        let percent = |n: u64| (size / 100).saturating_mul(n);
        let floor = match self {
            Self::Usual => percent(PERCENT).min(BYTES),
            Self::Bytes(bytes) => bytes,
            Self::Percent(n) => percent(n),
        };
        (free < floor).then_some(floor)
    }

    /// Why no run is taken with so much free where `place` is, if so.
    #[must_use]
    pub fn why(self, place: &str, free: u64, size: u64) -> Option<String> {
        let floor = self.below(free, size)?;
        Some(format!(
            "{place} has {} MiB free, below its floor of {} MiB; it is taken once there is room (settings/floor)",
            free >> 20,
            floor >> 20
        ))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c84_the_usual_floor_is_the_less_of_a_gibibyte_and_a_twentieth() {
        let gib = 1_u64 << 30;
        assert_eq!(Floor::Usual.below(gib - 1, 1000 * gib), Some(gib));
        assert_eq!(Floor::Usual.below(gib, 1000 * gib), None);
        assert_eq!(Floor::Usual.below(400, 10_000), Some(500));
        assert_eq!(Floor::Usual.below(500, 10_000), None);
        assert_eq!(Floor::Bytes(0).below(0, 10_000), None);
        assert_eq!(Floor::Percent(u64::MAX).below(u64::MAX, u64::MAX), None, "whatever a peer says of it");
    }
}

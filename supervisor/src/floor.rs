//! The floor of free space below which no new run is taken (decisions C-84).

use std::path::Path;

use crate::settings::{setting, size};

/// The floor where `settings/floor` names none: a gibibyte or a twentieth of the file system, whichever is less.
const BYTES: u64 = 1 << 30;
const PERCENT: u64 = 5;
/// What of `ROOT` is looked at: each may be a file system of its own.
const PLACES: [&str; 3] = ["care", "state", "workspaces"];

/// How much must be free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Floor {
    /// [`BYTES`] or [`PERCENT`], whichever is less.
    Usual,
    /// So many bytes.
    Bytes(u64),
    /// So many hundredths of the file system.
    Percent(u64),
}

impl Floor {
    /// Reads `settings/floor`: bytes, with K, M or G, or a percentage.
    ///
    /// # Errors
    /// What is wrong with it, in words.
    pub(crate) fn read(root: &Path) -> Result<Self, String> {
        let what = "neither a number of bytes, such as 512M, nor of hundredths, such as 5%";
        Ok(setting(root, "floor", what, Self::parse)?.unwrap_or(Self::Usual))
    }

    fn parse(text: &str) -> Option<Self> {
        match text.strip_suffix('%') {
            Some(number) => number.parse().ok().filter(|it| *it < 100 && !number.starts_with('+')).map(Self::Percent),
            None => size(text).map(Self::Bytes),
        }
    }

    /// Whether so much free of so much is below it: the floor, in bytes.
    fn below(self, free: u64, size: u64) -> Option<u64> {
        let percent = |n: u64| size / 100 * n;
        let floor = match self {
            Self::Usual => percent(PERCENT).min(BYTES),
            Self::Bytes(bytes) => bytes,
            Self::Percent(n) => percent(n),
        };
        (free < floor).then_some(floor)
    }

    /// Why no run is to be taken now, if so.
    pub(crate) fn passed(self, root: &Path) -> Option<String> {
        PLACES.iter().find_map(|place| {
            let path = root.join(place);
            // One that cannot be asked shows at the first write.
            let about = rustix::fs::statvfs(&path).ok()?;
            let free = about.f_bavail.saturating_mul(about.f_frsize);
            let floor = self.below(free, about.f_blocks.saturating_mul(about.f_frsize))?;
            Some(format!(
                "{} has {} MiB free, below its floor of {} MiB; it is taken once there is room (settings/floor)",
                path.display(),
                free >> 20,
                floor >> 20
            ))
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c84_the_floor_is_read_in_bytes_or_hundredths() {
        assert_eq!(Floor::parse("0"), Some(Floor::Bytes(0)));
        assert_eq!(Floor::parse("512M"), Some(Floor::Bytes(512 << 20)));
        assert_eq!(Floor::parse("2G"), Some(Floor::Bytes(2 << 30)));
        assert_eq!(Floor::parse("5%"), Some(Floor::Percent(5)));
        for wrong in ["", "%", "G", "-1", "100%", "1.5G", "99999999999G", "5 %", "1T", "+5", "+5%"] {
            assert_eq!(Floor::parse(wrong), None, "{wrong:?}");
        }
    }

    #[test]
    fn c84_the_usual_floor_is_the_less_of_a_gibibyte_and_a_twentieth() {
        let gib = 1_u64 << 30;
        assert_eq!(Floor::Usual.below(gib - 1, 1000 * gib), Some(gib));
        assert_eq!(Floor::Usual.below(gib, 1000 * gib), None);
        assert_eq!(Floor::Usual.below(400, 10_000), Some(500));
        assert_eq!(Floor::Usual.below(500, 10_000), None);
        assert_eq!(Floor::Bytes(0).below(0, 10_000), None);
    }
}

//! Times in posts and logs: UTC, RFC 3339; nothing is ordered by them (decisions C-119).

use std::time::{Instant, SystemTime};

/// Now, to the second.
#[must_use]
pub fn utc_now() -> String {
    utc(SystemTime::now())
}

/// Now, to the millisecond.
#[must_use]
pub fn utc_now_exact() -> String {
    humantime::format_rfc3339_millis(SystemTime::now()).to_string()
}

/// Now, in seconds since 1970, as an unversioned file's time.
#[must_use]
pub fn seconds_now() -> u64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).map_or(0, |it| it.as_secs())
}

/// A time, to the second.
#[must_use]
pub fn utc(at: SystemTime) -> String {
    // What began before a clock that was set back to its beginning cannot be told as a time.
    humantime::format_rfc3339_seconds(at.max(SystemTime::UNIX_EPOCH)).to_string()
}

/// When a moment of this process was or will be, to the second.
#[must_use]
pub fn utc_of(at: Instant) -> String {
    let (now, wall) = (Instant::now(), SystemTime::now());
    let then = match at.checked_duration_since(now) {
        Some(ahead) => wall.checked_add(ahead),
        None => wall.checked_sub(now.saturating_duration_since(at)),
    };
    utc(then.unwrap_or(wall))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn c_119_a_time_before_1970_is_told_as_1970_and_ends_nothing() {
        assert_eq!(utc(SystemTime::UNIX_EPOCH - Duration::from_secs(600)), "1970-01-01T00:00:00Z");
        assert_eq!(utc(SystemTime::UNIX_EPOCH + Duration::from_secs(1)), "1970-01-01T00:00:01Z");
    }
}

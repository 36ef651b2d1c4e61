//! Times in posts and logs: UTC, RFC 3339; nothing is ordered by them (decisions C-119).

use std::time::SystemTime;

/// Now, to the second.
#[must_use]
pub fn utc_now() -> String {
    humantime::format_rfc3339_seconds(SystemTime::now()).to_string()
}

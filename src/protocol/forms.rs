//! FORMS: what a key may hold, and the reading of the texts that are more than text (protocol 2.7 to 2.10).
//!
//! A form says what a JSON value must be; `engine::read` looks at the value and asks here about the text in it.

use super::keys::Within;
use super::words::words;

words! {
    /// How deliveries reach a session (protocol 2.10).
    Deliveries { Feed = "feed", Start = "start" }
}

words! {
    /// When STDOUT is kept (protocol 2.10).
    StdoutWhen { Failure = "failure", Always = "always" }
}

/// What a key may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// `true` or `false`.
    Flag,
    /// Any text; it may be empty.
    Text,
    /// Text that a C program can be given: no NUL. It may be empty.
    Argument,
    /// Not empty, no NUL: a name or a path.
    Name,
    /// A user's login.
    Login,
    /// All 40 lower-case hex digits.
    CloneCode,
    /// This whole number.
    Exactly(u64),
    /// A whole number from 0 to this.
    Whole(u64),
    /// A whole number from 1.
    Count,
    /// A whole number above 0, then s, m, h or d.
    Duration,
    /// Whole bytes as a number, or digits with K, M or G.
    Size,
    /// One of these words.
    Word(&'static [&'static str]),
    /// An absolute normalised path other than `/` that names no value.
    PlaceOfWorkspace,
    /// A host device's path: no `.` or `..` part, no `/` repeated or at its end.
    Device,
    /// A list of this.
    List(&'static Form),
    /// A list of this with at least one in it, the first not empty: a program and its arguments.
    Command,
    /// Logins, or `["*"]` alone.
    Hears,
    /// An object of texts whose keys are names of environment variables.
    Environment,
    /// An object with the keys of this place.
    Object(Within),
    /// A list of objects with the keys of this place.
    Objects(Within),
    /// A list of workspace steps, each with the keys of its kind.
    Steps,
    /// Any object; its keys are data.
    AnyObject,
    /// Any list.
    AnyList,
}

/// The largest size (protocol 2.9).
pub const SIZE_BYTES_MAX: u64 = i64::MAX as u64;
/// The largest Linux account or group id a process may have inside (decisions C-47).
pub const ID_MAX: u64 = 4_294_967_294;

/// Seconds of a duration such as `90m`.
///
/// # Errors
/// In words, when it is not a whole number above 0 and s, m, h or d, or is more seconds than 63 bits hold.
pub fn duration(text: &str) -> Result<u64, &'static str> {
    const WRONG: &str = "is not a whole number and s, m, h or d, such as \"10m\"";
    let unit = text.chars().next_back().ok_or(WRONG)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3_600,
        'd' => 86_400,
        _ => return Err(WRONG),
    };
    let number = digits(text.strip_suffix(unit).unwrap_or_default()).ok_or(WRONG)?;
    let total = number.and_then(|number| number.checked_mul(seconds)).filter(|&total| total <= SIZE_BYTES_MAX);
    match total {
        None => Err("is longer than can be counted"),
        Some(0) => Err("is no time at all"),
        Some(total) => Ok(total),
    }
}

/// Bytes of a size written as text, such as `64K`.
///
/// # Errors
/// In words, when it is not digits and K, M or G, or is above [`SIZE_BYTES_MAX`].
pub fn size(text: &str) -> Result<u64, &'static str> {
    const WRONG: &str = "is not a whole number of bytes, nor text of digits and K, M or G";
    let unit = text.chars().next_back().ok_or(WRONG)?;
    let bytes = match unit {
        'K' => 1 << 10,
        'M' => 1 << 20,
        'G' => 1 << 30,
        _ => return Err(WRONG),
    };
    let number = digits(text.strip_suffix(unit).unwrap_or_default()).ok_or(WRONG)?;
    number.and_then(|number| number.checked_mul(bytes)).filter(|&total| total <= SIZE_BYTES_MAX).ok_or(SIZE_TOO_LARGE)
}

/// Why a size too large is refused.
pub const SIZE_TOO_LARGE: &str = "is above 9223372036854775807 bytes";

/// A number written in digits alone: nothing when there is another character or none, `Some(None)` past 64 bits.
fn digits(text: &str) -> Option<Option<u64>> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then(|| text.parse().ok())
}

/// Whether a path is `/` and parts, none of them empty, `.` or `..`, and holds no NUL.
#[must_use]
pub fn is_normal_path(text: &str) -> bool {
    text.strip_prefix('/').is_some_and(|rest| {
        !text.contains('\0') && rest.split('/').all(|part| !part.is_empty() && part != "." && part != "..")
    })
}

/// Whether a path has a `..` part.
#[must_use]
pub fn climbs(path: &str) -> bool {
    path.split('/').any(|part| part == "..")
}

/// An absolute path with `.`, `..` and repeated `/` taken out as text, or nothing when it is not absolute.
#[must_use]
pub fn normalised(path: &str) -> Option<String> {
    let rest = path.strip_prefix('/')?;
    let mut parts: Vec<&str> = Vec::new();
    for part in rest.split('/') {
        match part {
            "" | "." => {}
            ".." => {
                parts.pop();
            }
            part => parts.push(part),
        }
    }
    Some(format!("/{}", parts.join("/")))
}

/// Whether `path` is strictly below `folder`, both normalised.
#[must_use]
pub fn is_below(path: &str, folder: &str) -> bool {
    let folder = folder.strip_suffix('/').unwrap_or(folder);
    path.strip_prefix(folder).is_some_and(|rest| rest.len() > 1 && rest.starts_with('/'))
}

/// A path's last part, or nothing when it has none (`/`, or one ending in `.` or `..`).
#[must_use]
pub fn base_name(path: &str) -> Option<&str> {
    path.rsplit('/').find(|part| !part.is_empty()).filter(|part| *part != "." && *part != "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v2_2_9_01_a_duration_is_a_whole_number_and_a_unit() {
        assert_eq!(duration("90s"), Ok(90));
        assert_eq!(duration("2m"), Ok(120));
        assert_eq!(duration("8h"), Ok(28_800));
        assert_eq!(duration("1d"), Ok(86_400));
        for wrong in ["90", "1.5h", "1w", " 1h", "1H", "", "h", "-1h", "+1h", "1h ", "1é", "999999999999999999999d"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn c_14_a_duration_of_no_time_is_refused() {
        assert!(duration("0s").is_err());
        assert!(duration("000d").is_err());
    }

    #[test]
    fn v2_2_9_08_a_size_in_text_carries_k_m_or_g() {
        assert_eq!(size("64K"), Ok(65_536));
        assert_eq!(size("0K"), Ok(0));
        assert_eq!(size("2G"), Ok(2 << 30));
        for wrong in ["64k", "64KB", "1.5M", "-1", "65536", "", "K", "１K"] {
            assert!(size(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn v2_2_9_09_a_size_never_wraps() {
        assert_eq!(size("8589934591G"), Ok(8_589_934_591 << 30));
        for wrong in ["9007199254740992K", "8589934592G", "18446744073709551616G"] {
            assert_eq!(size(wrong), Err(SIZE_TOO_LARGE), "{wrong}");
        }
    }

    #[test]
    fn a_normal_path_has_no_odd_part() {
        assert!(is_normal_path("/workspace/a"));
        for wrong in ["/", "w", "/a/", "/a//b", "/a/../b", "/.", "", "/a\0"] {
            assert!(!is_normal_path(wrong), "{wrong}");
        }
    }

    #[test]
    fn below_is_strict_and_by_whole_parts() {
        assert!(is_below("/root/x", "/root"));
        assert!(is_below("/x", "/"));
        for (path, folder) in [("/root", "/root"), ("/rootx", "/root"), ("/root/", "/root"), ("/a", "/root/a")] {
            assert!(!is_below(path, folder), "{path} {folder}");
        }
    }

    #[test]
    fn v2_2_7_18_dots_are_resolved() {
        assert_eq!(normalised("/root/../root/./x//y").as_deref(), Some("/root/x/y"));
        assert_eq!(normalised("/../..").as_deref(), Some("/"));
        assert_eq!(normalised("x"), None);
    }

    #[test]
    fn c_46_a_base_name_is_the_last_part_if_any() {
        assert_eq!(base_name("/root/.claude"), Some(".claude"));
        assert_eq!(base_name("/root/.claude//"), Some(".claude"));
        for none in ["/", "", "/a/..", "/a/."] {
            assert_eq!(base_name(none), None, "{none}");
        }
    }
}

//! `ROOT/settings`: the numbers an owner may set, read at start. One that cannot be read is refused, with its file.

use std::path::Path;
use std::time::Duration;

/// How long a program that was asked to end may take, unless `settings/grace` says otherwise (decisions C-81).
const GRACE: Duration = Duration::from_secs(10);
/// Longest grace that may be set.
const GRACE_S_MAX: u64 = 3600;
/// How much of all runs' output is kept, unless `settings/rings` says otherwise (decisions C-87): 32 runs that ask for
/// all they may, 2048 that ask for nothing.
const RINGS_BYTES: u64 = 256 << 20;
/// Most that may be set: as much as all runs in care could ask for, and more.
const RINGS_BYTES_MAX: u64 = 1 << 40;
/// Fewest processes that all runs together may be given: what one run and its step need.
const PROCESSES_MIN: u64 = 256;
/// Largest setting's file, in bytes.
const SETTING_BYTES_MAX: u64 = 4096;
/// How much of a wrong setting is told, in characters.
const TEXT_TOLD: usize = 40;

/// `settings/grace`, in seconds.
///
/// # Errors
/// When it is there and no such number.
pub(crate) fn grace(root: &Path) -> Result<Duration, String> {
    let what = format!("no number of seconds up to {GRACE_S_MAX}");
    let asked = setting(root, "grace", &what, |text| text.parse().ok().filter(|it| *it <= GRACE_S_MAX))?;
    Ok(asked.map_or(GRACE, Duration::from_secs))
}

/// `settings/rings`: bytes, or a number with K, M or G (2.9).
///
/// # Errors
/// When it is there and no such size.
pub(crate) fn rings(root: &Path) -> Result<u64, String> {
    let what = "no size such as 256M".to_owned();
    let asked = setting(root, "rings", &what, |text| size(text).filter(|it| *it <= RINGS_BYTES_MAX))?;
    Ok(asked.unwrap_or(RINGS_BYTES))
}

/// `settings/processes`: how many processes all runs together may have; without it as many as the host bears.
///
/// # Errors
/// When it is there and no such number.
pub(crate) fn processes(root: &Path) -> Result<Option<u64>, String> {
    let what = format!("no number of processes, {PROCESSES_MIN} or more");
    setting(root, "processes", &what, |text| {
        text.parse().ok().filter(|it| *it >= PROCESSES_MIN && !text.starts_with('+'))
    })
}

/// Reads one: none where it is not set. `what` says what it should have been.
///
/// # Errors
/// The file, its text and `what`.
pub(crate) fn setting<T>(
    root: &Path,
    name: &str,
    what: &str,
    read: impl Fn(&str) -> Option<T>,
) -> Result<Option<T>, String> {
    let path = root.join("settings").join(name);
    let text = match std::fs::metadata(&path) {
        // A pipe would be waited on, and what is endless read without end. A link is the owner's to make.
        Ok(about) if !about.is_file() => Err(std::io::Error::other("not a file; move it away")),
        Ok(about) if about.len() > SETTING_BYTES_MAX => {
            Err(std::io::Error::other(format!("larger than {SETTING_BYTES_MAX} bytes")))
        }
        Ok(_) => std::fs::read_to_string(&path),
        Err(error) => Err(error),
    };
    let text = match text {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let text = text.trim();
    let told: String = text.chars().take(TEXT_TOLD).collect();
    read(text).map(Some).ok_or_else(|| format!("{}: {told:?} is {what}", path.display()))
}

/// Bytes, or a number with K, M or G (2.9).
pub(crate) fn size(text: &str) -> Option<u64> {
    let (digits, unit) = match text.strip_suffix(['K', 'M', 'G']) {
        Some(digits) if text.ends_with('K') => (digits, 1 << 10),
        Some(digits) if text.ends_with('M') => (digits, 1 << 20),
        Some(digits) => (digits, 1 << 30),
        None => (text, 1),
    };
    digits.parse::<u64>().ok().filter(|_| !digits.starts_with('+'))?.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn c_81_c_87_a_setting_is_what_its_file_says_its_default_without_and_refused_by_name_when_wrong() {
        let scratch = Scratch::new();
        let root = scratch.path();
        assert_eq!((grace(root).unwrap(), rings(root).unwrap()), (GRACE, RINGS_BYTES));
        std::fs::create_dir(root.join("settings")).unwrap();
        let set = |name: &str, text: &str| std::fs::write(root.join("settings").join(name), text).unwrap();
        for (text, bytes) in [("0", 0), ("65536\n", 65536), ("64K", 65536), ("3M", 3 << 20), ("2G", 2 << 30)] {
            set("rings", text);
            assert_eq!(rings(root).unwrap(), bytes, "{text}");
        }
        for text in ["", "M", "-1", "+1", "1.5M", "64k", "64KB", "99999999999G", "1 M"] {
            set("rings", text);
            let why = rings(root).unwrap_err();
            assert!(why.contains("settings/rings"), "{why}");
        }
        set("grace", "3");
        assert_eq!(grace(root).unwrap(), Duration::from_secs(3));
        assert_eq!(processes(root).unwrap(), None);
        for (text, most) in [("256", Some(256)), ("24576\n", Some(24576)), ("255", None), ("+300", None), ("1K", None)]
        {
            set("processes", text);
            assert_eq!(processes(root).ok().flatten(), most, "{text}");
        }
        set("grace", "3601");
        grace(root).unwrap_err();
        set("grace", &"0".repeat(5000));
        grace(root).unwrap_err();
        std::fs::remove_file(root.join("settings/grace")).unwrap();
        rustix::fs::mkfifoat(rustix::fs::CWD, root.join("settings/grace"), rustix::fs::Mode::RUSR).unwrap();
        let why = grace(root).unwrap_err();
        assert!(why.ends_with("settings/grace: not a file; move it away"), "{why}");
    }
}

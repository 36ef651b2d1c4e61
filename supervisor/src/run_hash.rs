//! A run's hash, checked: what may become a file name under `ROOT/care`.

use std::fmt;

/// A run's full hash. Holding one proves it is 40 or 64 lower-case hex digits and nothing else, so it names one file
/// in a directory and never a way out of it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct RunHash {
    /// The value, padded with zeros; `long` tells SHA3-256's 32 bytes from SHA1's 20.
    bytes: [u8; 32],
    long: bool,
}

/// How many digits name a run in a log line (protocol 2.1).
const SHORT: usize = 10;

impl RunHash {
    /// Checks a claimed hash.
    #[must_use]
    pub(crate) fn parse(text: &str) -> Option<Self> {
        if text.len() != 40 && text.len() != 64 {
            return None;
        }
        let mut bytes = [0_u8; 32];
        for (byte, pair) in bytes.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let [high, low] = pair else { return None };
            *byte = nibble(*high)? << 4 | nibble(*low)?;
        }
        Some(Self { bytes, long: text.len() == 64 })
    }

    /// Its first ten digits.
    #[must_use]
    pub(crate) fn short(&self) -> String {
        self.to_string().chars().take(SHORT).collect()
    }
}

fn nibble(digit: u8) -> Option<u8> {
    match digit {
        b'0'..=b'9' => Some(digit - b'0'),
        b'a'..=b'f' => Some(digit - b'a' + 10),
        _ => None,
    }
}

impl fmt::Display for RunHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let length = if self.long { 32 } else { 20 };
        self.bytes.iter().take(length).try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for RunHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;

    #[test]
    fn a_hash_is_forty_or_sixty_four_lower_case_digits_and_reads_back_as_written() {
        for text in ["0123456789abcdef0123456789abcdef01234567", &"a9".repeat(32)] {
            assert_eq!(RunHash::parse(text).unwrap().to_string(), text);
        }
        let short = RunHash::parse(&"a9".repeat(20)).unwrap();
        assert_eq!(short.short(), "a9a9a9a9a9");
        // The same digits followed by zeros are another run.
        assert_ne!(short, RunHash::parse(&format!("{}{}", "a9".repeat(20), "0".repeat(24))).unwrap());
    }

    #[test]
    fn what_could_leave_a_directory_is_no_hash() {
        for text in
            ["", "lock", "../../etc/passwd", &"A9".repeat(20), &"a9".repeat(21), &"é".repeat(20), &"/".repeat(40)]
        {
            assert_eq!(RunHash::parse(text), None, "{text}");
        }
    }
}

//! Checked strings: hashes, server-codes, logins. One that exists is well formed.

use std::fmt;

/// Makes a checked string type: private text, one constructor, `as_str`, `Display`.
macro_rules! checked {
    ($(#[$about:meta])* $name:ident, $check:path) => {
        $(#[$about])*
        #[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(String);

        impl $name {
            /// The text as such a name, or nothing when its form is wrong.
            #[must_use]
            pub fn new(text: &str) -> Option<Self> {
                $check(text).then(|| Self(text.to_owned()))
            }

            /// The text.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

checked! {
    /// A run: the full hash of the artifact that asks it, 40 or 64 lower-case hex digits (protocol 2.1).
    RunId, is_hash
}
checked! {
    /// A check-in's full hash, 40 or 64 lower-case hex digits (protocol 2.6).
    CheckinHash, is_hash
}
checked! {
    /// A repository's server-code, all 40 lower-case hex digits (protocol 2.3).
    CloneCode, is_code
}
checked! {
    /// A user's login: not empty, no control character, at most [`LOGIN_BYTES_MAX`] bytes (decisions C-14).
    Login, is_login
}

/// Longest login, in bytes. Fossil sets no bound; this one keeps a login from being a payload.
pub const LOGIN_BYTES_MAX: usize = 256;

/// How many digits of a run's hash name it in prose and as its host name (decisions C-23, C-47).
const SHORT_DIGITS: usize = 10;

impl RunId {
    /// The first ten digits, for prose.
    #[must_use]
    pub fn short(&self) -> &str {
        self.0.get(..SHORT_DIGITS).unwrap_or(&self.0)
    }
}

fn is_hash(text: &str) -> bool {
    (text.len() == 40 || text.len() == 64) && is_lower_hex(text)
}

fn is_code(text: &str) -> bool {
    text.len() == 40 && is_lower_hex(text)
}

fn is_lower_hex(text: &str) -> bool {
    text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_login(text: &str) -> bool {
    !text.is_empty() && text.len() <= LOGIN_BYTES_MAX && !text.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_run_is_40_or_64_lower_case_hex_digits() {
        assert!(RunId::new(&"a".repeat(40)).is_some());
        assert!(RunId::new(&"0".repeat(64)).is_some());
        for wrong in ["", "0123456789", &"A".repeat(40), &"a".repeat(41), &"g".repeat(40)] {
            assert_eq!(RunId::new(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn v2_2_3_13_a_clone_code_is_all_40_digits() {
        assert!(CloneCode::new(&"b".repeat(40)).is_some());
        for wrong in [&"b".repeat(39), &"b".repeat(64), &"B".repeat(40)] {
            assert_eq!(CloneCode::new(wrong), None);
        }
    }

    #[test]
    fn c_14_a_login_is_not_empty() {
        assert!(Login::new("lab-1").is_some());
        assert_eq!(Login::new(""), None);
        assert_eq!(Login::new("a\nb"), None);
    }

    #[test]
    fn a_run_is_named_by_ten_digits_in_prose() {
        let run = RunId::new(&"0123456789abcdef0123".repeat(2)).map(|run| run.short().to_owned());
        assert_eq!(run.as_deref(), Some("0123456789"));
    }
}

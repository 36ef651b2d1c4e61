//! Why a trial did not go on.

use std::fmt;

/// Why a trial stopped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Trouble {
    /// What failed, and what to do about it.
    Stopped(String),
    /// A person asked for it: Ctrl-C, or TERM.
    Interrupted,
}

impl Trouble {
    /// In words.
    pub fn stopped(why: impl Into<String>) -> Self {
        Self::Stopped(why.into())
    }

    /// What was tried, then the cause.
    pub fn at(what: impl fmt::Display, cause: impl fmt::Display) -> Self {
        Self::Stopped(format!("{what}: {cause}"))
    }
}

impl fmt::Display for Trouble {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stopped(why) => f.write_str(why),
            Self::Interrupted => f.write_str("interrupted"),
        }
    }
}

impl std::error::Error for Trouble {}

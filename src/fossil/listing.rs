//! Telling the server which clone this host acts for, and reading what others told (C-61).
//!
//! A convenience for people who fill in `clone`: nothing is decided from it but whether one server-code is claimed by
//! two hosts.

use std::time::Duration;

use serde_json::{Value, json};

use super::http::FossilError;
use super::login::Session;
use super::tool;

/// Longest wait for the listing, in all (C-61).
pub const LISTING_WAIT: Duration = Duration::from_secs(10);

/// One line of the list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// The clone's user.
    pub login: String,
    /// The clone's server-code.
    pub clone: String,
    /// The host that acts for it.
    pub host: String,
    /// That host's release.
    pub release: String,
    /// When it last said so, RFC 3339 in UTC, by the server's clock.
    pub seen: String,
}

impl Session {
    /// Lists this host's clone and gives the whole list.
    ///
    /// # Errors
    /// As any request, within `LISTING_WAIT`; the caller logs it and goes on.
    pub fn list_clone(&self, server_code: &str, host: &str, release: &str) -> Result<Vec<Listed>, FossilError> {
        self.listing(&json!({ "clone": server_code, "host": host, "release": release }))
    }

    /// The list as it is, telling nothing.
    ///
    /// # Errors
    /// As any request.
    pub fn listed_clones(&self) -> Result<Vec<Listed>, FossilError> {
        self.listing(&json!({}))
    }

    fn listing(&self, question: &Value) -> Result<Vec<Listed>, FossilError> {
        let result = tool::ask(self, "clones", question, LISTING_WAIT)?;
        read(&result).ok_or_else(|| FossilError::Answered {
            what: "POST /ext/ocx/clones".to_owned(),
            status: 200,
            why: "the list is not as the tool writes it".to_owned(),
        })
    }
}

pub(super) fn read(result: &Value) -> Option<Vec<Listed>> {
    let text = |item: &Value, key: &str| item.get(key).and_then(Value::as_str).map(str::to_owned);
    let line = |item: &Value| {
        Some(Listed {
            login: text(item, "login")?,
            clone: text(item, "clone")?,
            host: text(item, "host")?,
            release: text(item, "release")?,
            seen: text(item, "seen")?,
        })
    };
    result.as_array()?.iter().map(line).collect()
}

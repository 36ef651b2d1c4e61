//! The host owner's ceiling for runs from users holding R alone (decisions C-63).

use serde::Deserialize;

/// What such a run may ask of this host. Nothing allows what is not named here.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ceiling {
    /// Whether any such run is taken.
    pub allow: bool,
    /// Whether it may share the host's network.
    pub network: bool,
    /// The Linux capabilities it may keep.
    pub capabilities: Vec<String>,
    /// What it may read: these paths and what lies below.
    pub read: Vec<String>,
    /// What it may write: these paths and what lies below.
    pub write: Vec<String>,
    /// The homes it may name, compared as written.
    pub homes: Vec<String>,
    /// A limit named here must be in the run, and not above this.
    pub limits: LimitsCeiling,
}

/// The greatest limits, in the protocol's own forms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct LimitsCeiling {
    /// In seconds; written as `"8h"`.
    #[serde(deserialize_with = "duration")]
    pub wall: Option<u64>,
    /// In seconds.
    pub cpu: Option<u64>,
    /// Processes at any moment.
    pub processes: Option<u64>,
    /// In bytes; written as `"4G"` or a number.
    #[serde(deserialize_with = "size")]
    pub file_size: Option<u64>,
    /// In bytes; written as `"4G"` or a number.
    #[serde(deserialize_with = "size")]
    pub memory: Option<u64>,
}

/// Reads `r-senders.json`.
///
/// # Errors
/// Why it is malformed; then nothing is allowed.
pub fn read(text: &str) -> Result<Ceiling, String> {
    serde_json::from_str(text).map_err(|error| format!("r-senders.json is malformed: {error}"))
}

fn duration<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let text = String::deserialize(deserializer)?;
    crate::protocol::forms::duration(&text).map(Some).map_err(serde::de::Error::custom)
}

fn size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    let value = serde_json::Value::deserialize(deserializer)?;
    super::held::size(&value).map(Some).map_err(serde::de::Error::custom)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_63_the_installed_file_is_read() {
        let read = read(
            r#"{"allow": true, "network": true, "capabilities": [], "read": ["/usr"], "write": [], "homes": [],
                "limits": {"wall": "8h", "cpu": 3600, "processes": 512, "file_size": "4G"}}"#,
        );
        let limits = read.map(|ceiling| ceiling.limits);
        let (wall, file_size) = (Some(28_800), Some(4 << 30));
        assert_eq!(limits, Ok(LimitsCeiling { wall, cpu: Some(3600), processes: Some(512), file_size, memory: None }));
    }

    #[test]
    fn c_63_a_malformed_file_allows_nothing() {
        for wrong in ["", "{}", "[]", r#"{"allow": true, "reads": []}"#] {
            assert!(read(wrong).is_err(), "{wrong}");
        }
    }
}

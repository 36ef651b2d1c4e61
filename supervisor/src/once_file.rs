//! The FILE of `once`: version 2's names and forms, values already in place.

use std::collections::BTreeMap;

use sandbox::spec::{Confinement, Limits};
use serde::Deserialize;

/// What FILE asks.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) sandbox: Confinement,
    pub(crate) limits: Limits,
    pub(crate) command: Vec<String>,
    pub(crate) env: BTreeMap<String, String>,
    pub(crate) cwd: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    sandbox: Confinement,
    #[serde(default)]
    limits: Texts,
    process: Process,
}

/// `limits` as version 2 writes them (2.9).
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct Texts {
    wall: Option<String>,
    cpu: Option<u64>,
    processes: Option<u64>,
    file_size: Option<Size>,
    memory: Option<Size>,
}

#[derive(Deserialize)]
#[serde(untagged, expecting = "a size is a whole number of bytes, or text such as \"4G\"")]
enum Size {
    Bytes(u64),
    Text(String),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Process {
    command: Vec<String>,
    #[serde(default)]
    env: BTreeMap<String, String>,
    #[serde(default = "root")]
    cwd: String,
}

fn root() -> String {
    "/".to_owned()
}

/// Reads FILE.
///
/// # Errors
/// The field at fault and why.
pub(crate) fn read(bytes: &[u8]) -> Result<Asked, String> {
    let whole: Whole = serde_json::from_slice(bytes).map_err(|error| error.to_string())?;
    let named = |key: &str, why: &str| format!("limits.{key}: {why}");
    let wall = whole.limits.wall.as_deref().map(seconds).transpose().map_err(|why| named("wall", why))?;
    let bytes_of = |key: &str, size: Option<Size>| size.map(bytes_in).transpose().map_err(|why| named(key, why));
    let limits = Limits {
        wall_s: wall,
        cpu_s: whole.limits.cpu,
        processes: whole.limits.processes,
        file_size_bytes: bytes_of("file_size", whole.limits.file_size)?,
        memory_bytes: bytes_of("memory", whole.limits.memory)?,
    };
    if wall == Some(0) || limits.cpu_s == Some(0) {
        return Err(named(if wall == Some(0) { "wall" } else { "cpu" }, "0 leaves no time to run"));
    }
    let Process { command, env, cwd } = whole.process;
    Ok(Asked { sandbox: whole.sandbox, limits, command, env, cwd })
}

/// A whole number and a unit.
fn number(text: &str, units: &[(char, u64)]) -> Option<u64> {
    let unit = text.chars().last()?;
    let (_, scale) = units.iter().find(|(it, _)| *it == unit)?;
    let digits = text.strip_suffix(unit)?;
    let plain = !digits.is_empty() && digits.bytes().all(|it| it.is_ascii_digit());
    digits.parse::<u64>().ok().filter(|_| plain)?.checked_mul(*scale)
}

fn seconds(text: &str) -> Result<u64, &'static str> {
    number(text, &[('s', 1), ('m', 60), ('h', 3600), ('d', 86400)])
        .filter(|it| i64::try_from(*it).is_ok())
        .ok_or("not a whole number and s, m, h or d")
}

fn bytes_in(size: Size) -> Result<u64, &'static str> {
    let bytes = match size {
        Size::Bytes(bytes) => bytes,
        Size::Text(text) => number(&text, &[('K', 1 << 10), ('M', 1 << 20), ('G', 1 << 30)])
            .ok_or("not a whole number of bytes, nor one and K, M or G in text, or too large")?,
    };
    if i64::try_from(bytes).is_ok() { Ok(bytes) } else { Err("above 9223372036854775807 bytes") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn v2_2_9_01_and_08_times_and_sizes() {
        assert_eq!(seconds("90s"), Ok(90));
        assert_eq!(seconds("2m"), Ok(120));
        assert_eq!(seconds("1d"), Ok(86400));
        for wrong in ["90", "1.5h", "1w", " 1h", "1H", "", "s", "+1s"] {
            assert!(seconds(wrong).is_err(), "{wrong}");
        }
        assert_eq!(bytes_in(Size::Text("64K".into())), Ok(65536));
        assert_eq!(bytes_in(Size::Bytes(65536)), Ok(65536));
        for wrong in ["64k", "64KB", "1.5M", "-1", "9007199254740992K", "8589934592G"] {
            assert!(bytes_in(Size::Text(wrong.into())).is_err(), "{wrong}");
        }
        assert!(bytes_in(Size::Bytes(9_223_372_036_854_775_808)).is_err());
    }

    #[test]
    fn an_unknown_key_is_named() {
        let why = read(br#"{"sandbox": {"uid": 1, "colour": 2}, "process": {"command": ["x"]}}"#);
        assert!(why.is_err_and(|it| it.contains("colour")));
        let why = read(br#"{"sandbox": {"uid": 1}, "process": {"command": ["x"]}}"#);
        assert!(why.is_err_and(|it| it.contains("gid")));
    }
}

//! The control artifact that puts a raw tag on another artifact.

use md5::Md5;
use sha1::Digest as _;

use super::blob::hex;

/// A raw tag's control artifact: the same words give the same bytes, and so the same hash.
///
/// `at` is its date as Fossil writes one, `2026-01-02T03:04:05.678`; no order is told by it but which of several values
/// Fossil shows.
#[must_use]
pub fn raw_tag(at: &str, tag: &str, target: &str, value: &str, user: &str) -> String {
    let cards = format!("D {at}\nT +{} {target} {}\nU {}\n", escaped(tag), escaped(value), escaped(user));
    format!("{cards}Z {}\n", hex(&Md5::digest(cards.as_bytes())))
}

/// The artifact's name.
#[must_use]
pub fn hash(artifact: &str) -> String {
    hex(&sha3::Sha3_256::digest(artifact.as_bytes()))
}

/// A word of a card.
pub(super) fn escaped(text: &str) -> String {
    let mut out = String::new();
    for c in text.chars() {
        match c {
            ' ' => out.push_str("\\s"),
            '\n' => out.push_str("\\n"),
            '\t' => out.push_str("\\t"),
            '\r' => out.push_str("\\r"),
            '\u{b}' => out.push_str("\\v"),
            '\u{c}' => out.push_str("\\f"),
            '\0' => out.push_str("\\0"),
            '\\' => out.push_str("\\\\"),
            c => out.push(c),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_is_written_as_fossil_writes_it() {
        let tag = raw_tag("2026-01-02T03:04:05.678", "ci", &"a".repeat(64), "fail: a\\b (against c)", "lab 1");
        let lines: Vec<&str> = tag.lines().collect();
        let target = "a".repeat(64);
        let card = format!("T +ci {target} fail:\\sa\\\\b\\s(against\\sc)");
        assert_eq!(lines.get(..3), Some(["D 2026-01-02T03:04:05.678", card.as_str(), "U lab\\s1"].as_slice()));
        assert!(lines.get(3).is_some_and(|z| z.len() == 34 && z.starts_with("Z ")), "{tag}");
    }
}

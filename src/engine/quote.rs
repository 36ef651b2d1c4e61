//! Text of other people inside OCX's own lines: JSON strings with every control character escaped (decisions C-59, C-78).

use std::fmt::Write as _;

/// Most characters of someone's text shown in a note.
const SHOWN_CHARS_MAX: usize = 200;

/// The text as a JSON string. 0x00 to 0x1f, 0x7f and U+0080 to U+009F are written `\u00XX`, so that the line can be
/// typed into a terminal and no part of it ends a line.
#[must_use]
pub fn json(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c if c.is_control() => {
                // Writing to a String cannot fail.
                let _always_ok = write!(out, "\\u{:04x}", u32::from(c));
            }
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// The text as a JSON string for a note or a reply: cut after 200 characters, which is said.
#[must_use]
pub fn shown(text: &str) -> String {
    match text.char_indices().nth(SHOWN_CHARS_MAX) {
        None => json(text),
        Some((cut, _)) => format!("{} (cut)", json(text.get(..cut).unwrap_or_default())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_78_every_control_character_is_escaped() {
        assert_eq!(json("a\"\\\n\u{7f}\u{9b}é"), r#""a\"\\\u000a\u007f\u009bé""#);
        let all: String = (0..0x300).filter_map(char::from_u32).collect();
        assert!(!json(&all).chars().any(char::is_control));
        assert_eq!(serde_json::from_str::<String>(&json(&all)).ok(), Some(all));
    }

    #[test]
    fn a_long_text_is_cut_in_a_note() {
        assert_eq!(shown("ab"), "\"ab\"");
        assert_eq!(shown(&"é".repeat(201)), format!("\"{}\" (cut)", "é".repeat(200)));
    }
}

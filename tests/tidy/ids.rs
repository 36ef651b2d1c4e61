//! Requirement and decision ids, as code and tests cite them: each looks like one, so that a search finds it.

use super::{Source, no_faults};

/// How an id of each family goes on after its first part. `9` is a digit, `a` an optional lower-case letter at the end.
const FAMILIES: &[(&str, &[&str])] = &[
    // A section alone cites all of its rows.
    ("V2-", &["9.9-99", "9.99-99", "9-99", "9.9", "9.99"]),
    ("V1-", &["9.9-99", "99.9-99", "9-99", "99-99"]),
    ("CASE-", &["99", "99a"]),
    ("CARD-", &["99"]),
    ("C-", &["99", "999"]),
];

fn fits(shape: &str, rest: &str) -> bool {
    shape.len() == rest.len()
        && shape.chars().zip(rest.chars()).all(|(s, c)| match s {
            '9' => c.is_ascii_digit(),
            'a' => c.is_ascii_lowercase(),
            other => other == c,
        })
}

/// Words of a line made of what ids are made of.
fn tokens(line: &str) -> impl Iterator<Item = &str> {
    line.split(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '.')))
        .map(|word| word.trim_end_matches(['.', '-']))
}

fn bad_ids(source: &Source) -> Vec<String> {
    if !source.path.ends_with(".rs") && !source.path.ends_with(".md") {
        return Vec::new();
    }
    let mut faults = Vec::new();
    for (n, line) in source.text.lines().enumerate() {
        for word in tokens(line) {
            let family = FAMILIES.iter().find_map(|(start, shapes)| Some((shapes, word.strip_prefix(start)?)));
            // A range such as C-60..C-68 and a hyphenated word such as C-like are no ids and end in another shape.
            if let Some((shapes, rest)) = family
                && rest.starts_with(|c: char| c.is_ascii_digit())
                && !rest.contains("..")
                && !shapes.iter().any(|shape| fits(shape, rest))
            {
                faults.push(format!("{}:{}: {word} does not look like an id", source.path, n + 1));
            }
        }
    }
    faults
}

#[test]
fn ids_cited_look_like_ids() {
    no_faults(bad_ids);
}

#[test]
fn control_a_mistyped_id_is_found() {
    let faults = |text: &str| bad_ids(&Source { path: "a.rs".into(), text: text.into() }).len();
    for good in
        ["V2-2.1-08", "V2-2.14-05.", "V2-2.14", "C-86, C-104", "CASE-29c", "C-60..C-68", "V1-8.2-04", "UTC-8bit"]
    {
        assert_eq!(faults(good), 0, "{good}");
    }
    for bad in [concat!("V2-", "2.1-8"), concat!("C-", "1043"), concat!("C-", "7"), concat!("CASE-", "291")] {
        assert_eq!(faults(bad), 1, "{bad}");
    }
}

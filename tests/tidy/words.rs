//! Words that must not be in the project, and where unsafe code stands.

use super::{Source, code, has_word, no_faults};

/// Put together here, so that this file does not hold what it looks for.
const NEVER: &[(&str, &str)] = &[
    (concat!("to", "do!("), "unfinished"),
    (concat!("unimpl", "emented!("), "unfinished"),
    (concat!("db", "g!("), "left over from debugging"),
    (concat!("FIX", "ME"), "unfinished"),
    (concat!("/wo", "rk/"), "a path of one machine"),
    (concat!("../sha", "red"), "a path outside the project"),
    (concat!("/ro", "ot/.cargo"), "a path of one machine"),
];

fn forbidden(source: &Source) -> Vec<String> {
    let lines = source.text.lines().enumerate();
    lines
        .flat_map(|(n, line)| {
            let found = NEVER.iter().filter(move |(word, _)| line.contains(word));
            found.map(move |(word, why)| format!("{}:{}: {word}: {why}", source.path, n + 1))
        })
        .collect()
}

/// `unsafe` is a word of `sys` modules alone.
fn unsafe_outside_sys(source: &Source) -> Vec<String> {
    let of_sys = source.path.ends_with("/sys.rs") || source.path.contains("/sys/");
    if !source.path.ends_with(".rs") || of_sys {
        return Vec::new();
    }
    code(&source.text)
        // A text that speaks of it is no block of it.
        .filter(|(_, line)| has_word(line, concat!("uns", "afe")) && !line.contains('"'))
        .map(|(n, line)| format!("{}:{n}: unsafe outside a sys module: {}", source.path, line.trim()))
        .collect()
}

#[test]
fn no_file_holds_a_word_that_must_not_be() {
    no_faults(forbidden);
}

#[test]
fn unsafe_stands_in_sys_modules_alone() {
    no_faults(unsafe_outside_sys);
}

#[test]
fn what_ocx_and_the_boundary_are_made_of_forbids_it_altogether() {
    let sources = super::sources();
    for path in ["src/lib.rs", "src/main.rs", "supervisor/src/lib.rs", "vm/src/main.rs"] {
        let source = sources.iter().find(|s| s.path == path);
        assert!(source.is_some_and(|s| s.text.contains("#![forbid(unsafe_code)]")), "{path}");
    }
}

#[test]
fn control_each_rule_finds_what_breaks_it() {
    let source = |path: &str, text: &str| Source { path: path.into(), text: text.into() };
    for (word, _) in NEVER {
        assert_eq!(forbidden(&source("a.rs", &format!("x\n{word}"))).len(), 1, "{word}");
    }
    let text = concat!("uns", "afe { x() }");
    assert_eq!(unsafe_outside_sys(&source("sandbox/src/apply.rs", text)).len(), 1);
    assert_eq!(unsafe_outside_sys(&source("sandbox/src/sys.rs", text)).len(), 0);
    assert_eq!(unsafe_outside_sys(&source("sandbox/src/apply.rs", &format!("// {text}"))).len(), 0);
}

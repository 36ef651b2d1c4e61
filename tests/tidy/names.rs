//! Who names whom: what each part of the project leaves alone, so that it can be read by itself.

use super::{Source, code, has_word, no_faults};

/// Code below a path, and what it never names.
struct Rule {
    under: &'static str,
    /// Below `under`, these are another rule's.
    but: &'static [&'static str],
    never: &'static [&'static str],
    why: &'static str,
}

const RULES: &[Rule] = &[
    Rule {
        under: "src/protocol/",
        but: &[],
        never: &[
            "crate::engine",
            "crate::fossil",
            "crate::node",
            "crate::server",
            "crate::step",
            "crate::tools",
            "crate::trial",
            "supervisor",
            "sandbox",
            "std::fs",
            "std::net",
            "std::process",
            "SystemTime",
            "Instant",
        ],
        why: "the tables are data: no I/O, no other module of ours",
    },
    Rule {
        under: "src/engine/",
        but: &[],
        never: &[
            "crate::fossil",
            "crate::node",
            "crate::server",
            "crate::step",
            "crate::tools",
            "crate::trial",
            "std::fs",
            "std::net",
            "std::process",
            "std::thread",
            "SystemTime",
            "Instant",
            "ureq",
            "rusqlite",
            "rustix",
        ],
        why: "an engine is given facts and returns decisions: it reads no clock, file or socket",
    },
    Rule {
        under: "src/fossil/",
        but: &[],
        never: &["crate::engine", "crate::node", "crate::server", "crate::tools", "crate::trial", "supervisor"],
        why: "what speaks to Fossil decides nothing",
    },
    Rule {
        under: "src/node/",
        but: &[],
        never: &["crate::trial", "crate::server", "ureq", "rusqlite"],
        why: "only fossil speaks to Fossil",
    },
    Rule {
        under: "supervisor/src/wire/",
        but: &[],
        never: &["mio", "nix", "libc", "ureq", "rusqlite"],
        why: "the boundary is plain data",
    },
    Rule {
        under: "supervisor/src/",
        but: &["supervisor/src/wire/"],
        never: &["ureq", "rusqlite", "rustls", "tokio", "ocx"],
        why: "root speaks no HTTP, reads no SQLite",
    },
    Rule {
        under: "sandbox/src/",
        but: &[],
        never: &["mio", "serde_json", "supervisor", "ureq", "rusqlite"],
        why: "confinement knows neither who asks nor how",
    },
    Rule {
        under: "supervisor/cell/src/",
        but: &[],
        never: &["mio", "serde_json", "ureq", "rusqlite"],
        why: "the cell walks a flat recipe",
    },
    Rule {
        under: "src/",
        // Times in posts, logs and lists, and how long ago a person is told something was. How old a settled run's files are: a
        // clock that jumps folds them early or late, and loses nothing.
        but: &["src/node/clock.rs", "src/node/fold.rs", "src/server/stamp.rs", "src/tools/status/"],
        never: WALL_CLOCK,
        why: "nothing waits, ends or is ordered by a clock that can be set (decisions C-119)",
    },
    Rule {
        under: "supervisor/",
        but: &[],
        never: WALL_CLOCK,
        why: "deadlines are on the clock since boot, which nobody sets (decisions C-77, C-119)",
    },
    Rule { under: "sandbox/src/", but: &[], never: WALL_CLOCK, why: "confinement has no clock (decisions C-119)" },
];

/// Names of the clock that can be set.
const WALL_CLOCK: &[&str] = &["SystemTime", "UNIX_EPOCH", "Realtime", "CLOCK_REALTIME"];

/// Paths as `use` and expressions name them: `name::`, `use name`, `crate::name`.
fn named(line: &str, name: &str) -> bool {
    if name.contains("::") || name.chars().next().is_some_and(char::is_uppercase) {
        return has_word(line, name);
    }
    // A crate's name is often a plain word too; as a crate it stands before `::` or after `use`.
    has_word(line, name)
        && (line.match_indices(&format!("{name}::")).any(|(at, _)| {
            let before = line.get(..at).unwrap_or("");
            // `self::mio::` and `crate::nix::` are modules of ours.
            !before.ends_with("::") && !before.ends_with(|c: char| c.is_alphanumeric() || c == '_')
        }) || line.trim_start().trim_start_matches("pub ").starts_with(&format!("use {name};")))
}

fn wrong_names(source: &Source) -> Vec<String> {
    if !source.path.ends_with(".rs") {
        return Vec::new();
    }
    let rules = RULES.iter().filter(|rule| {
        source.path.starts_with(rule.under) && !rule.but.iter().any(|path| source.path.starts_with(path))
    });
    let mut faults = Vec::new();
    for rule in rules {
        // Unit tests stand at the end of a file and may make files and processes.
        let text = source.text.split("#[cfg(test)]").next().unwrap_or("");
        for (n, line) in code(text) {
            for name in rule.never.iter().filter(|name| named(line, name)) {
                faults.push(format!("{}:{n}: names {name}: {}", source.path, rule.why));
            }
        }
    }
    faults
}

/// `ocx` knows of the sandbox what a plan is made of, and nothing that does it.
fn sandbox_beyond_spec(source: &Source) -> Vec<String> {
    if !source.path.starts_with("src/") {
        return Vec::new();
    }
    code(&source.text)
        .filter(|(_, line)| named(line, "sandbox") && !line.contains("sandbox::spec"))
        .map(|(n, line)| format!("{}:{n}: the sandbox beyond its spec: {}", source.path, line.trim()))
        .collect()
}

#[test]
fn each_part_names_only_what_it_may() {
    no_faults(wrong_names);
}

#[test]
fn ocx_names_of_the_sandbox_its_spec_alone() {
    no_faults(sandbox_beyond_spec);
}

#[test]
fn control_names_are_found_where_they_may_not_be() {
    let faults = |path: &str, text: &str| wrong_names(&Source { path: path.into(), text: text.into() }).len();
    assert_eq!(faults("src/engine/check.rs", "use std::fs;"), 1);
    assert_eq!(faults("src/engine/check.rs", "let x = crate::node::store::read();"), 1);
    assert_eq!(faults("src/engine/check.rs", "let t: Instant = now;"), 1);
    assert_eq!(faults("src/engine/check.rs", "use crate::protocol::keys;"), 0);
    assert_eq!(faults("src/engine/check.rs", "#[cfg(test)]\nuse std::fs;"), 0);
    assert_eq!(faults("supervisor/src/turn.rs", "let agent = ureq::agent();"), 1);
    assert_eq!(faults("supervisor/src/turn.rs", "use mio::Poll;"), 0);
    assert_eq!(faults("supervisor/src/turn.rs", "let now = clock_gettime(ClockId::Realtime);"), 1);
    assert_eq!(faults("supervisor/src/turn.rs", "let now = clock_gettime(ClockId::Boottime);"), 0);
    assert_eq!(faults("src/node/lane.rs", "let at = std::time::SystemTime::now();"), 1);
    assert_eq!(faults("src/node/clock.rs", "let at = std::time::SystemTime::now();"), 0);
    assert_eq!(faults("supervisor/src/wire/frame.rs", "use mio::Poll;"), 1);
    assert_eq!(faults("sandbox/src/recipe.rs", "use crate::sandbox; // ureq::x"), 0);
    let beyond = |text: &str| sandbox_beyond_spec(&Source { path: "src/node/plan.rs".into(), text: text.into() }).len();
    assert_eq!(beyond("use sandbox::apply;"), 1);
    assert_eq!(beyond("use sandbox::spec::Limits;"), 0);
}

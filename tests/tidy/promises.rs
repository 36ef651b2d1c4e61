//! `sandbox/SECURITY.md` and the tests, held together: every promise names a test there is, every attack a promise.

use std::collections::BTreeSet;

use super::{Source, sources};

const SECURITY: &str = "sandbox/SECURITY.md";
/// Where tests have the names that promises cite, as texts.
const NAMED_IN: &[&str] = &["supervisor/tests/", "sandbox/tests/"];
/// Where the rows of attacks are.
const ATTACKS_IN: &str = "sandbox/tests/attacks/";

/// A row of the table of promises.
#[derive(Debug, PartialEq, Eq)]
struct Promise {
    id: String,
    /// Names of tests, with `*` for any end.
    tests: Vec<String>,
}

/// A row of the table of attacks.
#[derive(Debug, PartialEq, Eq)]
struct Attack {
    name: String,
    promise: String,
}

/// What stands between backticks.
fn quoted(cell: &str) -> Vec<String> {
    cell.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}

fn promises(text: &str) -> Vec<Promise> {
    let table = text.split("\n## ").find(|it| it.starts_with("Promises")).unwrap_or_default();
    let rows = table.lines().filter(|it| it.starts_with("| `"));
    let row = |line: &str| {
        let cells: Vec<&str> = line.trim_matches('|').split(" | ").collect();
        let id = quoted(cells.first()?).pop()?;
        Some(Promise { id, tests: quoted(cells.get(4)?) })
    };
    rows.filter_map(row).collect()
}

/// Texts of a Rust source in which names of tests look like `file::what_is_tested`.
fn texts(source: &str) -> impl Iterator<Item = &str> {
    source.split('"').skip(1).step_by(2)
}

fn is_name(text: &str) -> bool {
    text.contains("::")
        && text.bytes().all(|it| it.is_ascii_lowercase() || it.is_ascii_digit() || matches!(it, b'_' | b':'))
}

/// The rows of a table of attacks: each names itself and, but for what has to work, a promise.
fn attacks(source: &str) -> Vec<Attack> {
    let Some((_, table)) = source.split_once("ATTACKS: &[Attack] = &[") else { return Vec::new() };
    let table = table.split("\n];").next().unwrap_or_default();
    let mut all = Vec::new();
    for (kind, row) in
        ["attack(", "whole(", "honest("].iter().flat_map(|it| table.split(it).skip(1).map(move |row| (*it, row)))
    {
        let mut words = texts(row);
        let (Some(name), second) = (words.next().filter(|it| is_name(it)), words.next()) else { continue };
        let promise = if kind == "honest(" { "honest" } else { second.unwrap_or_default() };
        all.push(Attack { name: name.to_owned(), promise: promise.to_owned() });
    }
    all
}

/// Whether a test a promise names is one of these.
fn named(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |start| name.starts_with(start))
}

/// Promises, every name of a test that stands anywhere in the page, tests there are, files there are, attacks.
fn faults(
    promises: &[Promise],
    cited: &[String],
    names: &BTreeSet<String>,
    files: &BTreeSet<String>,
    attacks: &[Attack],
) -> Vec<String> {
    let mut faults = Vec::new();
    let mut ids = BTreeSet::new();
    for promise in promises {
        if !ids.insert(&promise.id) {
            faults.push(format!("{} stands twice", promise.id));
        }
        if promise.tests.is_empty() {
            faults.push(format!("{} names no test", promise.id));
        }
        for test in &promise.tests {
            let there = names.iter().any(|it| named(test, it)) || files.contains(test);
            if !there {
                faults.push(format!("{} names {test}, and there is no such test", promise.id));
            }
        }
    }
    for test in cited.iter().filter(|it| is_name(it.trim_end_matches('*'))) {
        if !names.iter().any(|it| named(test, it)) {
            faults.push(format!("{test} is cited, and there is no such test"));
        }
    }
    for attack in attacks {
        match promises.iter().find(|it| it.id == attack.promise) {
            None => faults.push(format!("{} attacks {}, which nothing promises", attack.name, attack.promise)),
            Some(promise) if !promise.tests.iter().any(|it| named(it, &attack.name)) => {
                faults.push(format!("{} attacks {}, which does not name it", attack.name, attack.promise));
            }
            Some(_) => {}
        }
    }
    faults
}

#[test]
fn every_promise_names_a_test_and_every_attack_a_promise() {
    let sources = sources();
    let page = sources.iter().find(|it| it.path == SECURITY).map_or("", |it| it.text.as_str());
    let security = promises(page);
    let tests = |it: &&Source| NAMED_IN.iter().any(|start| it.path.starts_with(start));
    let names: BTreeSet<String> = sources
        .iter()
        .filter(tests)
        .flat_map(|it| texts(&it.text))
        .filter(|it| is_name(it))
        .map(str::to_owned)
        .collect();
    // A file of tests may be cited whole: of the sandbox by its name.
    let files = sources.iter().map(|it| it.path.strip_prefix("sandbox/src/").unwrap_or(&it.path).to_owned()).collect();
    let rows: Vec<Attack> =
        sources.iter().filter(|it| it.path.starts_with(ATTACKS_IN)).flat_map(|it| attacks(&it.text)).collect();
    assert!(
        security.len() > 20 && rows.len() > 60,
        "{} promises and {} attacks were found",
        security.len(),
        rows.len()
    );
    let faults = faults(&security, &quoted(page), &names, &files, &rows);
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

#[test]
fn control_a_promise_or_an_attack_alone_is_found() {
    let security = "# x\n## Promises\n| Id | Promise | Kept by | Where | Test |\n|---|---|---|---|---|\n\
                    | `kept` | It | so | there | `a::one`, `b::*` |\n| `bare` | It | so | there | none |\n## More\n| `not` |";
    let table = "x \"no::row\" const ATTACKS: &[Attack] = &[\n attack(\"b::two\", \"kept\", f).but(\"x\"),\n\
                 whole(\n\"c::three\",\n\"kept\", f),\n attack(\"b::four\", \"lost\", f),\n honest(\"b::five\", f),\n];\n\"d::six\"";
    let (security, rows) = (promises(security), attacks(table));
    assert_eq!(security.iter().map(|it| it.tests.len()).collect::<Vec<_>>(), [2, 0]);
    assert_eq!(rows.len(), 4);
    let names = ["b::two", "c::three"].map(str::to_owned).into();
    let found = faults(&security, &["e::seven*".to_owned()], &names, &BTreeSet::new(), &rows);
    let expected = [
        "kept names a::one, and there is no such test",
        "e::seven* is cited, and there is no such test",
        "bare names no test",
        "b::four attacks lost, which nothing promises",
        "c::three attacks kept, which does not name it",
        "b::five attacks honest, which nothing promises",
    ];
    for fault in expected {
        assert!(found.iter().any(|it| it == fault), "{fault}: {found:#?}");
    }
    assert_eq!(found.len(), expected.len(), "{found:#?}");
}

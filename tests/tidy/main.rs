//! The habits of this code that a compiler does not check: where unsafe stands, who names whom, words that must not be.
//!
//! Each rule is a pure function over one file's text, with a control below that breaks it.
#![expect(clippy::panic, reason = "a test program")]

mod ids;
mod names;
mod promises;
mod words;

use std::fs;
use std::path::{Path, PathBuf};

/// One text file of the project.
struct Source {
    /// Its path from the top, with `/`.
    path: String,
    text: String,
}

/// Every text file, but for build output and what git keeps.
fn sources() -> Vec<Source> {
    let top = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut found = Vec::new();
    let mut next: Vec<PathBuf> = vec![top.to_owned()];
    while let Some(directory) = next.pop() {
        for entry in fs::read_dir(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display())).flatten() {
            let path = entry.path();
            let name = entry.file_name();
            let kind = entry.file_type().unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            if kind.is_dir() {
                if name != "target" && name != ".git" {
                    next.push(path);
                }
            } else if kind.is_file()
                // What is not text is fixtures, and says nothing.
                && let Ok(text) = fs::read_to_string(&path)
            {
                let path = path.strip_prefix(top).unwrap_or(&path).to_string_lossy().into_owned();
                found.push(Source { path, text });
            }
        }
    }
    assert!(found.iter().any(|s| s.path == "src/main.rs") && found.len() > 20, "the project was not found");
    found
}

/// Fails with every fault of every file, so that one look shows all.
fn no_faults(rule: impl Fn(&Source) -> Vec<String>) {
    let faults: Vec<String> = sources().iter().flat_map(rule).collect();
    assert!(faults.is_empty(), "\n{}", faults.join("\n"));
}

/// The lines of a Rust file that are code, numbered from 1; comments to the end of a line are cut off.
fn code(text: &str) -> impl Iterator<Item = (usize, &str)> {
    text.lines()
        .enumerate()
        .map(|(n, line)| (n + 1, line.split("//").next().unwrap_or("")))
        .filter(|(_, l)| !l.trim().is_empty())
}

/// Whether `word` stands in `line` as a whole word.
fn has_word(line: &str, word: &str) -> bool {
    let part = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line.get(..at).and_then(|s| s.chars().next_back());
        let after = line.get(at + word.len()..).and_then(|s| s.chars().next());
        !before.is_some_and(part) && !after.is_some_and(part)
    })
}

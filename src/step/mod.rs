//! `ocx step KIND`: one workspace step, run by the cell as the runs' account in a sandbox of its own (decisions C-97).
//!
//! It sees the workspaces' root and programs, nothing of the node. Exit 0 is done; otherwise the last line of standard
//! error says why.

pub mod tree;

use std::path::Path;
use std::process::ExitCode;

/// Runs one step; `args` are the words after `step`.
#[must_use]
pub fn main(args: &[String]) -> ExitCode {
    let done = match args {
        [kind, root, at] if kind == "directory" => tree::make(Path::new(root), Path::new(at)),
        [kind, root, at] if kind == "remove" => tree::remove(Path::new(root), Path::new(at)),
        _ => Err(std::io::Error::other("usage: ocx step directory ROOT AT, or ocx step remove ROOT AT")),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            #[expect(clippy::print_stderr, reason = "the last line of standard error is a step's answer")]
            {
                eprintln!("{error}");
            }
            ExitCode::FAILURE
        }
    }
}

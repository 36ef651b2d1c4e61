//! `ocx step KIND`: one workspace step, run by the cell as the runs' account in a sandbox of its own (decisions C-97).
//!
//! It sees its workspace (`directory` and `remove`: the root that lies in) and programs, nothing of the node. Exit 0 is
//! done, and standard output then holds what it found out, if anything; otherwise the last line of standard error says why.

pub mod bundle;
mod checkout;
mod clone;
mod files;
mod inspect;
#[cfg(test)]
mod scratch;
pub mod tree;

pub use clone::Credential;

use std::io::{self, BufReader, Write as _};
use std::path::Path;
use std::process::ExitCode;

/// How each is called.
const USAGE: &str = "usage: ocx step directory ROOT AT | remove ROOT AT | clone WORKSPACE INTO | \
                     checkout WORKSPACE CLONE INTO OF | files WORKSPACE INTO | inspect WORKSPACE CLONE CHECKOUT… (- for no clone)";

/// Runs one step; `args` are the words after `step`.
#[must_use]
pub fn main(args: &[String]) -> ExitCode {
    match run(args) {
        Ok(answer) => match io::stdout().write_all(answer.as_bytes()) {
            Ok(()) => ExitCode::SUCCESS,
            Err(_gone) => ExitCode::FAILURE,
        },
        Err(why) => {
            #[expect(clippy::print_stderr, reason = "the last line of standard error is a step's answer")]
            {
                eprintln!("{why}");
            }
            ExitCode::FAILURE
        }
    }
}

/// Carries one step out; what it found out, or why it was not done.
fn run(args: &[String]) -> Result<String, String> {
    let nothing = |done: io::Result<()>| done.map(|()| String::new()).map_err(|error| error.to_string());
    match args {
        [kind, root, at] if kind == "directory" => nothing(tree::make(Path::new(root), Path::new(at))),
        [kind, root, at] if kind == "remove" => nothing(tree::remove(Path::new(root), Path::new(at))),
        [kind, workspace, into] if kind == "clone" => {
            clone::make(Path::new(workspace), Path::new(into), io::stdin().lock()).map(|()| String::new())
        }
        [kind, workspace, clone, into, of] if kind == "checkout" => {
            checkout::open(Path::new(workspace), Path::new(clone), Path::new(into), of)
        }
        [kind, workspace, into] if kind == "files" => {
            let mut from = BufReader::new(io::stdin().lock());
            nothing(files::unpack(Path::new(workspace), Path::new(into), &mut from))
        }
        [kind, _workspace, clone, checkouts @ ..] if kind == "inspect" => {
            inspect::look(Some(Path::new(clone)).filter(|_| clone != "-"), checkouts)
        }
        _ => Err(USAGE.to_owned()),
    }
}

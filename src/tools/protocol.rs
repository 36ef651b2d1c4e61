//! `ocx protocol`: the protocol's document.

use std::io::Write as _;
use std::process::ExitCode;

use super::answer::Answer;
use super::command_line::Said;
use crate::protocol::document;

/// Carries out `ocx protocol`.
#[must_use]
pub fn main(said: &Said<'_>) -> ExitCode {
    let printed = if said.flag("json") {
        let mut answer = Answer::new("protocol");
        answer.result = document::json();
        answer.print()
    } else {
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(document::markdown().as_bytes()).and_then(|()| stdout.flush())
    };
    if printed.is_ok() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

//! The tools: one table of them, the command line made from it, the answer they share, one file a tool.

pub mod answer;
pub mod approve;
pub mod check;
pub mod command_line;
pub mod protocol;
pub mod secret;
pub mod status;
pub mod table;
pub mod teller;
pub mod r#try;

use std::process::ExitCode;

use command_line::Said;

/// Carries out what the command line says.
#[must_use]
pub fn main(args: Vec<std::ffi::OsString>) -> ExitCode {
    let program = std::ffi::OsString::from("ocx");
    let matches = match command_line::command().try_get_matches_from(std::iter::once(program).chain(args)) {
        Ok(matches) => matches,
        Err(error) => {
            // Help and version come this way too, and are no error.
            drop(error.print());
            return ExitCode::from(if error.use_stderr() { answer::USAGE } else { answer::DONE });
        }
    };
    match matches.subcommand() {
        Some(("try", said)) => r#try::main(&Said(said)),
        Some(("status", said)) => status::main(&Said(said)),
        Some(("check", said)) => check::main(&Said(said)),
        Some(("protocol", said)) => protocol::main(&Said(said)),
        Some(("approve", said)) => approve::main(&Said(said)),
        Some(("revoke", said)) => approve::revoke(&Said(said)),
        Some(("secret", said)) => secret::main(&Said(said)),
        // Rows that are no tool of a person's never come here: main.rs starts them by their first word.
        Some((name, _)) => {
            #[expect(clippy::print_stderr, reason = "wrong usage is told where the rest of it is")]
            {
                eprintln!("ocx {name}: not to be called like this; see ocx {name} --help");
            }
            ExitCode::from(answer::USAGE)
        }
        None => ExitCode::from(answer::USAGE),
    }
}

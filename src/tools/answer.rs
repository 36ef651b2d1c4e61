//! The one shape every tool answers in (decisions C-43).

use std::io::Write as _;
use std::process::ExitCode;

use serde::Serialize;
use serde_json::Value;

use super::teller::harmless;

/// Exit code of a tool that did what was asked.
pub const DONE: u8 = 0;
/// Exit code of a tool that stopped, saying why in `stopped`.
pub const STOPPED: u8 = 1;
/// Exit code of a tool asked in a way it does not understand.
pub const USAGE: u8 = 2;

/// What a tool answers, on the command line with `--json`, over HTTP and to a program.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The tool's name.
    pub tool: &'static str,
    /// Whether nothing was to be changed.
    pub dry_run: bool,
    /// What happened, one line each, in order.
    pub log: Vec<String>,
    /// What was asked for; null when it stopped before there was any.
    pub result: Value,
    /// Why it stopped; null when it is done.
    pub stopped: Option<String>,
}

impl Answer {
    /// An answer of a tool that has done nothing yet.
    #[must_use]
    pub const fn new(tool: &'static str) -> Self {
        Self { tool, dry_run: false, log: Vec::new(), result: Value::Null, stopped: None }
    }

    /// 0 done, 1 stopped.
    #[must_use]
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(if self.stopped.is_none() { DONE } else { STOPPED })
    }

    /// Ends a tool that has told a person all but why it stopped: with `json` the answer is printed, else that reason.
    #[must_use]
    pub fn end(&self, json: bool) -> ExitCode {
        if json {
            return if self.print().is_ok() { self.exit_code() } else { ExitCode::FAILURE };
        }
        if let Some(why) = &self.stopped {
            #[expect(clippy::print_stderr, reason = "the reason for a failure is the program's output")]
            {
                eprintln!("ocx {}: {}", self.tool, harmless(why));
            }
        }
        self.exit_code()
    }

    /// Writes the answer as one line of JSON on STDOUT, whole, before the program ends.
    ///
    /// # Errors
    /// As writing to STDOUT fails.
    pub fn print(&self) -> std::io::Result<()> {
        let mut line = serde_json::to_vec(self)?;
        line.push(b'\n');
        let mut stdout = std::io::stdout().lock();
        stdout.write_all(&line)?;
        stdout.flush()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c_43_an_answer_has_the_five_keys_in_their_order() {
        let text = serde_json::to_string(&Answer::new("try")).unwrap_or_default();
        assert_eq!(text, r#"{"tool":"try","dry_run":false,"log":[],"result":null,"stopped":null}"#);
    }
}

//! `ocx secret`: a text that runs on the server's host may name in their environment.

use std::io::{IsTerminal as _, Read as _};
use std::process::ExitCode;

use serde_json::{Value, json};

use super::answer::Answer;
use super::approve::say;
use super::command_line::Said;
use crate::server::on_host::OnHost;
use crate::server::secrets::{self, SECRET_BYTES_MAX, SecretText};

/// Carries out `ocx secret`.
#[must_use]
pub fn main(said: &Said<'_>) -> ExitCode {
    let mut answer = Answer::new("secret");
    answer.dry_run = said.flag("dry-run");
    match done(said, answer.dry_run) {
        Ok((line, result)) => {
            answer.log.push(line);
            answer.result = result;
        }
        Err(why) => answer.stopped = Some(why),
    }
    say(&answer, said.flag("json"));
    answer.end(said.flag("json"))
}

fn done(said: &Said<'_>, dry: bool) -> Result<(String, Value), String> {
    let lacking = || "an argument is lacking".to_owned();
    let repository = said.path("repo").ok_or_else(lacking)?;
    let name = said.secret("name").ok_or_else(lacking)?;
    if said.flag("remove") {
        let file = secrets::remove(&OnHost::at(&repository)?, &name, dry)?;
        let line = format!("secret {} is removed: {}", name.as_str(), file.display());
        return Ok((line, json!({"name": name.as_str(), "removed": true})));
    }
    let text = read()?;
    let (file, was) = secrets::keep(&OnHost::at(&repository)?, &name, &text, dry)?;
    let what = if was { "has another text" } else { "is kept" };
    let line = format!("secret {} {what}: {}", name.as_str(), file.display());
    Ok((line, json!({"name": name.as_str(), "removed": false, "was_there": was})))
}

fn read() -> Result<SecretText, String> {
    let stdin = std::io::stdin();
    if stdin.is_terminal() {
        return Err("the text is read from STDIN, and a terminal would show it: ocx secret REPO NAME < FILE".to_owned());
    }
    let mut bytes = Vec::new();
    stdin.lock().take(SECRET_BYTES_MAX + 1).read_to_end(&mut bytes).map_err(|error| format!("STDIN: {error}"))?;
    SecretText::new(bytes)
}

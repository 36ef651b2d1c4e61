//! `ocx approve` and `ocx revoke`: which clone's host may collect the password of a process's user.

use std::process::ExitCode;

use super::answer::Answer;
use super::command_line::Said;
use super::teller::{Style, Teller, harmless};
use crate::server::approving::{self, Done, Pairing};
use crate::server::on_host::OnHost;

type Deed = fn(&OnHost, &Pairing, bool) -> Result<Done, String>;

/// Carries out `ocx approve`.
#[must_use]
pub fn main(said: &Said<'_>) -> ExitCode {
    carry_out("approve", approving::approve, said)
}

/// Carries out `ocx revoke`.
#[must_use]
pub fn revoke(said: &Said<'_>) -> ExitCode {
    carry_out("revoke", approving::revoke, said)
}

fn carry_out(tool: &'static str, deed: Deed, said: &Said<'_>) -> ExitCode {
    let mut answer = Answer::new(tool);
    answer.dry_run = said.flag("dry-run");
    match done(deed, said) {
        Ok(done) => {
            answer.result = done.result;
            answer.log = done.log;
        }
        Err(why) => answer.stopped = Some(why),
    }
    say(&answer, said.flag("json"));
    answer.end(said.flag("json"))
}

fn done(deed: Deed, said: &Said<'_>) -> Result<Done, String> {
    let lacking = || "an argument is lacking".to_owned();
    let repository = said.path("repo").ok_or_else(lacking)?;
    let pairing = Pairing {
        user: said.login("user").ok_or_else(lacking)?,
        login: said.login("login").ok_or_else(lacking)?,
        clone: said.clone_code("clone").ok_or_else(lacking)?,
    };
    deed(&OnHost::at(&repository)?, &pairing, said.flag("dry-run"))
}

/// The log, to a person.
pub(super) fn say(answer: &Answer, json: bool) {
    let teller = Teller::new(json);
    if answer.dry_run && answer.stopped.is_none() {
        teller.say("nothing is done (--dry-run); it would be:", Style::Dim);
    }
    for line in &answer.log {
        teller.say(&harmless(line), Style::Plain);
    }
}

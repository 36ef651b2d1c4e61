//! `ocx status`: how the service is, what each run does, where it waits and for what. It reads and asks nobody, so that it
//! answers also while the supervisor or the node is down.

mod facts;
mod process;
mod root;
mod runs;
mod says;
mod show;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, SystemTime};

use serde_json::{Value, json};
use supervisor::wire::accounts::SERVICE_ROOT;

use self::facts::Facts;
use self::says::Around;
use super::answer::Answer;
use super::command_line::Said;
use super::teller::{Teller, harmless};

/// Carries out `ocx status`.
#[must_use]
pub fn main(said: &Said<'_>) -> ExitCode {
    let root = said.path("root").unwrap_or_else(|| PathBuf::from(SERVICE_ROOT));
    let named = said.run("run");
    let mut answer = Answer::new("status");
    match facts::gather(&root, named) {
        Ok(facts) => {
            let around = Around {
                now: SystemTime::now(),
                grace: Duration::from_secs(facts.grace_seconds),
                supervisor_down: facts.supervisor.up == Some(false),
            };
            answer.stopped = named.filter(|_| facts.runs.is_empty()).map(|named| no_such_run(named, &facts));
            answer.result = result(&facts, around);
            if !said.flag("json") {
                let teller = Teller::new(false);
                for (line, style) in show::lines(&facts, around, named.is_some()) {
                    teller.say(&harmless(&line), style);
                }
            }
        }
        Err(why) => answer.stopped = Some(why),
    }
    answer.end(said.flag("json"))
}

fn no_such_run(named: &str, facts: &Facts) -> String {
    let read = if facts.unread.is_empty() {
        "a run of another clone, or one not pulled yet, is not known to this host".to_owned()
    } else {
        format!("not everything could be read: {}", facts.unread.join("; "))
    };
    format!("{}: no run whose hash begins with {named}; {read}", facts.root)
}

/// The facts, and beside each run what is said of it.
fn result(facts: &Facts, around: Around) -> Value {
    let mut result = json!(facts);
    let runs = result.get_mut("runs").and_then(Value::as_array_mut);
    for (value, run) in runs.into_iter().flatten().zip(&facts.runs) {
        if let Some(value) = value.as_object_mut() {
            value.insert("says".to_owned(), json!(says::of(run, around)));
        }
    }
    // A lane's runs stand under `runs`.
    for lane in result.get_mut("lanes").and_then(Value::as_array_mut).into_iter().flatten() {
        if let Some(lane) = lane.as_object_mut() {
            lane.remove("runs");
        }
    }
    result
}

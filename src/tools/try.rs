//! `ocx try`: a whole system here, one real run, what the server has of it, and everything taken away again.

use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use super::answer::Answer;
use super::command_line::Said;
use super::teller::{Style, Teller, harmless};
use crate::engine::message;
use crate::trial::accounts::{SETUP, USERS};
use crate::trial::record::kept;
use crate::trial::request;
use crate::trial::{Asked, Entry, Interrupt, Setup, Spot, Trial, Trouble, Where};

/// Longest wait for `started`: a wake, a pull, a workspace and two posts.
const STARTED_WAIT: Duration = Duration::from_secs(60);
/// Longest wait for the process: the launch follows the confirmed `started`.
const RUNNING_WAIT: Duration = Duration::from_secs(30);
/// Longest wait for `ended`: the run's own wall, the supervisor's grace, and posts retried.
const ENDED_WAIT: Duration = Duration::from_secs(120);
/// Longest wait for the kept-log reply, which follows `ended`.
const LOG_WAIT: Duration = Duration::from_secs(60);

/// Carries out `ocx try`.
#[must_use]
pub fn main(said: &Said<'_>) -> ExitCode {
    let json = said.flag("json");
    let mut teller = Teller::new(json);
    let mut answer = Answer::new("try");
    let done = Interrupt::watch().and_then(|interrupt| {
        if let Some(dir) = said.path("stop") {
            return stop(&dir, interrupt, &mut teller);
        }
        go(said, interrupt, &mut teller, &mut answer.result)
    });
    if let Err(trouble) = done {
        answer.stopped = Some(trouble.to_string());
    }
    if let Some(why) = &answer.stopped
        && !json
    {
        #[expect(clippy::print_stderr, reason = "the reason for a failure is the program's output")]
        {
            eprintln!("ocx try: {}", harmless(why));
        }
    }
    let code = answer.exit_code();
    answer.log = teller.into_log();
    if json && answer.print().is_err() {
        return ExitCode::FAILURE;
    }
    code
}

/// Ends a kept trial.
fn stop(dir: &Path, interrupt: Interrupt, teller: &mut Teller) -> Result<(), Trouble> {
    let trial = Trial::open(dir, interrupt)?;
    trial.stop()?;
    teller.event(&format!("everything of {} is ended and removed", dir.display()));
    Ok(())
}

/// The run's seconds, from the moment the server had it.
#[derive(Default)]
struct Seconds {
    started: Option<f64>,
    running: Option<f64>,
    ended: Option<f64>,
}

fn go(said: &Said<'_>, interrupt: Interrupt, teller: &mut Teller, result: &mut Value) -> Result<(), Trouble> {
    let (mut trial, clone) = match said.path("again") {
        Some(dir) => {
            let mut trial = Trial::open(&dir, interrupt)?;
            let clone = trial.wait_ready()?;
            teller.event(&format!("back at the server on {}", trial.url()));
            (trial, clone)
        }
        None => begin(said, interrupt, teller)?,
    };
    let to = if said.flag("ticket") { Where::Ticket } else { Where::Thread };
    let command = match said.command("command") {
        none if none.is_empty() => request::look(),
        command => command,
    };
    let asked = trial.ask(to, &clone, &command)?;
    teller.event(&format!("run posted by {}: {}", SETUP.login, asked.run));

    let mut seconds = Seconds::default();
    let followed = follow(&mut trial, &asked, &mut seconds, teller);
    // Whatever happened, what the server has is what counts, and is shown.
    let thread = trial.thread(&asked)?;
    show(&trial, &asked, &thread, teller);
    *result = sum_up(&asked, &thread, &seconds);
    // Kept also after a failure: that is when a person wants to look.
    let keep = said.flag("keep") && !matches!(followed, Err(Trouble::Interrupted));
    if keep {
        trial.keep()?;
    }
    if keep || said.path("again").is_some() {
        invite(&trial, &asked, teller);
    } else {
        let dir = trial.layout().dir.clone();
        trial.stop()?;
        teller.event(&format!("everything is ended; {} is removed", dir.display()));
    }
    followed?;
    judge(result)
}

/// Everything up to a node that is ready.
fn begin(said: &Said<'_>, interrupt: Interrupt, teller: &mut Teller) -> Result<(Trial, String), Trouble> {
    let setup = Setup { dir: said.path("dir"), port: said.port("port"), programs: None };
    let mut trial = Trial::make(&setup, interrupt)?;
    let dir = trial.layout().dir.display().to_string();
    teller.event(&format!("server up at {}, everything below {dir}", trial.url()));
    trial.start_supervisor()?;
    let clone = trial.wait_ready()?;
    let short = clone.get(..10).unwrap_or(&clone);
    teller.event(&format!("node ready: ocx-supervisor runs ocx node, which made its clone {short}"));
    Ok((trial, clone))
}

/// One line an event, until the kept log is on the server or the run ended without one.
fn follow(trial: &mut Trial, asked: &Asked, seconds: &mut Seconds, teller: &mut Teller) -> Result<(), Trouble> {
    let since = |stored: Instant| Some(stored.elapsed().as_secs_f64());
    let first = trial.wait("`started` or `ended`", STARTED_WAIT, |trial| {
        Ok(trial.thread(asked)?.into_iter().skip(1).find(|e| e.kind == "started" || e.kind == "ended"))
    })?;
    if first.kind == "started" {
        seconds.started = since(asked.stored);
        teller.event(&format!("started on the server, from {}: {}", first.from, short(&first.hash)));
        if trial.wait_running(asked, RUNNING_WAIT)? {
            seconds.running = since(asked.stored);
            teller.event("process running, confined");
        }
    }
    let ended = trial.wait_for(asked, "ended", ENDED_WAIT)?;
    seconds.ended = since(asked.stored);
    let content = content(&ended);
    let outcome = content.get("outcome").and_then(Value::as_str).unwrap_or("?");
    let exit = content.get("exit").map(|exit| format!(" {exit}")).unwrap_or_default();
    let note = content.get("note").and_then(Value::as_str).map(|note| format!(": {note}")).unwrap_or_default();
    teller.event(&harmless(&format!("ended on the server: {outcome}{exit}{note}")));
    if outcome == "exited" {
        teller.event(&match trial.wait_log(asked, LOG_WAIT)? {
            Some(log) => format!("kept log on the server: {}", short(&log.hash)),
            None => String::from("no kept log: the process printed nothing"),
        });
    }
    Ok(())
}

fn short(hash: &str) -> &str {
    hash.get(..10).unwrap_or(hash)
}

/// The content of an entry's message.
fn content(entry: &Entry) -> serde_json::Map<String, Value> {
    message::find(&entry.text).map(|message| message.content).unwrap_or_default()
}

/// The thread, as the server has it.
fn show(trial: &Trial, asked: &Asked, thread: &[Entry], teller: &Teller) {
    teller.say(&format!("\nWhat the server has, in its order ({}):", page(trial, asked)), Style::Plain);
    for entry in thread {
        let head = format!("\n── {} from {}, {}, {}", entry.kind, entry.from, entry.at, short(&entry.hash));
        teller.say(&harmless(&head), Style::Bold);
        teller.say(&harmless(entry.text.trim_end()), Style::Plain);
    }
    teller.say("", Style::Plain);
}

/// Where a browser shows it.
fn page(trial: &Trial, asked: &Asked) -> String {
    match &asked.spot {
        Spot::Thread(root) => format!("{}/forumpost/{}", trial.url(), short(root)),
        Spot::Ticket(id) => format!("{}/tktview/{id}", trial.url()),
    }
}

/// How to go on with a kept trial.
fn invite(trial: &Trial, asked: &Asked, teller: &Teller) {
    let dir = trial.layout().dir.display();
    let ocx = format!("{dir}/opt/current/ocx");
    let mut text = format!(
        "Everything is left running.\n\n  Look:     {}\n            sign in at {}/login as\n",
        page(trial, asked),
        trial.url()
    );
    for user in USERS {
        text.push_str(&format!("              {:8} {}   {}\n", user.login, trial.password(*user), user.is));
    }
    text.push_str(&format!(
        "  Attach:   not yet: joining a run comes with terminals, which this version does not give to runs\n  \
           Log:      tail -f {}\n  \
           Status:   {ocx} status --root {dir}/root\n  \
           Another:  {ocx} try --again {dir} -- COMMAND\n  \
           Stop:     {ocx} try --stop {dir}",
        trial.layout().log().display()
    ));
    teller.say(&text, Style::Plain);
}

/// `result` of the answer.
fn sum_up(asked: &Asked, thread: &[Entry], seconds: &Seconds) -> Value {
    let ended = thread.iter().find(|entry| entry.kind == "ended").map(content).unwrap_or_default();
    let kinds: Vec<&str> = thread.iter().map(|entry| entry.kind.as_str()).collect();
    let log = thread.iter().find(|entry| entry.kind == "log");
    json!({
        "run": asked.run,
        "outcome": ended.get("outcome"),
        "exit": ended.get("exit"),
        "note": ended.get("note"),
        "thread": kinds,
        "stdout": log.and_then(|log| kept(&log.text, "stdout")),
        "stderr": log.and_then(|log| kept(&log.text, "stderr")),
        "seconds": {"started": seconds.started, "running": seconds.running, "ended": seconds.ended},
    })
}

/// Done only if the run ended `exited` 0 with its log on the server.
fn judge(result: &Value) -> Result<(), Trouble> {
    let has = |key: &str| result.get(key).filter(|value| !value.is_null());
    match (has("outcome").and_then(Value::as_str), has("exit").and_then(Value::as_i64)) {
        (Some("exited"), Some(0)) if has("stdout").is_some() => Ok(()),
        (Some("exited"), Some(0)) => {
            Err(Trouble::stopped("the run ended exited 0, but printed nothing, so the server has no log of it"))
        }
        (Some(outcome), Some(exit)) => Err(Trouble::stopped(format!("the run ended {outcome} {exit}"))),
        (Some(outcome), None) => {
            let note = has("note").and_then(Value::as_str).unwrap_or("no note");
            Err(Trouble::stopped(format!("the run ended {outcome}: {note}")))
        }
        (None, _) => Err(Trouble::stopped("the run has no ended on the server")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_exited_0_with_its_log_is_done() {
        assert!(judge(&json!({"outcome": "exited", "exit": 0, "stdout": "uid=1000\n"})).is_ok());
        for stopped in [
            json!({"outcome": "exited", "exit": 0, "stdout": null}),
            json!({"outcome": "exited", "exit": 1, "stdout": "x"}),
            json!({"outcome": "refused", "exit": null, "note": "(7): sandbox.read_only[0]", "stdout": null}),
            json!({"outcome": null, "exit": null, "stdout": null}),
        ] {
            assert!(judge(&stopped).is_err(), "{stopped}");
        }
    }
}

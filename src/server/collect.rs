//! The tool `collect` (C-62): a process's user's password, for one run, to the host whose clone is approved for it.
//!
//! An admin's letters open nothing here. Only the approved clone's user is told, and only while a run from an admin
//! or setup user that names this clone and this user is open. Nothing is told of a run to who is not approved.

use std::io;

use rusqlite::Connection;
use serde_json::{Map, Value, json};

use super::approvals::{self, Approval};
use super::cgi::{Asked, BAD, FORBIDDEN, Stop, UNAVAILABLE, only_keys};
use super::kept::Folder;
use super::letters::busy;
use super::receipt::receipt;
use super::{repository, stamp};
use crate::engine::check::{self, ReportFacts, Sender};
use crate::engine::message::{self, Message};
use crate::fossil::{Arrival, CloneFile, Place, Program};
use crate::protocol::kinds::Kind;
use crate::protocol::names::{CloneCode, Login, RunId};

/// Where each password handed out is logged; a second file has what was refused, so that no one can push lines out of
/// the first by asking for what he may not have.
const LOG: &str = "collect.log";
const REFUSED_LOG: &str = "collect-refused.log";
const LOG_LOCK: &str = "collect.lock";
/// Size at which a log is turned, in bytes; one older file is kept.
pub(super) const LOG_BYTES_MAX: u64 = 1 << 20;
/// Most posts or changes by the clone's user in one thread or ticket that are read to find the run's end.
pub(super) const REPORTS_MAX: usize = 10_000;

/// The question, its form checked.
struct Question {
    run: RunId,
    user: Login,
    clone: CloneCode,
}

pub(super) fn answer(asked: &Asked<'_>) -> Result<Value, Stop> {
    let question = question(asked.question)?;
    let folder = Folder::beside(asked.repository).map_err(|error| unavailable(&error))?;
    let decided = decide(asked, &question, &folder);
    // A password that could not be logged is not handed out; a refusal is one whether it could be logged or not.
    let logged = log(asked, &question, &folder, decided.as_ref().err());
    let password = decided?;
    logged.map_err(|error| unavailable(&error))?;
    Ok(json!({ "user": question.user.as_str(), "password": password }))
}

fn question(asked: &Map<String, Value>) -> Result<Question, Stop> {
    only_keys(asked, &["run", "user", "clone"])?;
    let text = |key: &str| asked.get(key).and_then(Value::as_str).unwrap_or_default();
    let bad = |why: &str| Stop::new(BAD, why);
    Ok(Question {
        run: RunId::new(text("run")).ok_or_else(|| bad("run is not a run's full hash"))?,
        user: Login::new(text("user")).ok_or_else(|| bad("user is not a login"))?,
        clone: CloneCode::new(text("clone"))
            .ok_or_else(|| bad("clone is not a server-code of 40 lower-case hex digits"))?,
    })
}

/// The password, or the first thing that stands against handing it out.
fn decide(asked: &Asked<'_>, question: &Question, folder: &Folder) -> Result<String, Stop> {
    if !asked.peer.is_private() {
        let why = "a password is handed out over https or on the server's own host alone, and this came over plain http \
                   from elsewhere; a web server in front that speaks https tells Fossil so (its --https, or HTTPS=on)";
        return Err(Stop::new(FORBIDDEN, why));
    }
    let Question { run, user, clone } = question;
    let caller = asked.caller.login.as_str();
    let approvals = approvals::read(folder).map_err(|error| unavailable(&error))?;
    let approval = approvals.of(user.as_str(), caller, clone.as_str()).ok_or_else(|| {
        let why =
            format!("{user} is not approved for {caller}'s clone {clone}: on the server's host, ocx approve does it");
        Stop::new(FORBIDDEN, why)
    })?;
    of_run(asked, question).map_err(|stop| Stop::new(stop.status, format!("run {}: {}", run.short(), stop.why)))?;
    of_user(asked, user, approval)?;
    Ok(approval.password.clone())
}

/// Whether the run is an open one that asks for this.
fn of_run(asked: &Asked<'_>, question: &Question) -> Result<(), Stop> {
    let no = |why: String| Err(Stop::new(FORBIDDEN, why));
    let Question { run, user, clone } = question;
    let caller = asked.caller.login.as_str();
    let Some((_, _, from)) = receipt(asked.db, run.as_str()).map_err(|error| busy(&error))? else {
        return no("this server has not received it, or it is held for a moderator".to_owned());
    };
    let letters = from.as_deref().and_then(|login| asked.users.of(login));
    let sender = Sender {
        admin: letters.as_ref().is_some_and(|it| it.holds('a')),
        setup: letters.as_ref().is_some_and(|it| it.holds('s')),
        r: letters.as_ref().is_some_and(|it| it.holds('R')),
        login: from.filter(|_| letters.is_some()),
    };
    if !sender.governs() {
        return no("it came from a user who holds neither admin nor setup now".to_owned());
    }
    if sender.login.as_deref() == Some(caller) {
        return no("it came from the very user it is sent to".to_owned());
    }
    let files = files(asked);
    let Some(arrival) = files.message(run.as_str()).map_err(|error| unavailable(&error))? else {
        return no("it is no post or ticket change that can be read".to_owned());
    };
    let Some(message) = message::find(&arrival.text).filter(|it| it.known_kind() == Some(Kind::Run)) else {
        return no("it is no run".to_owned());
    };
    if message.to.as_deref() != Some(caller) {
        return no(format!("its to is not {caller}"));
    }
    if message.content.get("clone").and_then(Value::as_str) != Some(clone.as_str()) {
        return no(format!("its clone is not {clone}"));
    }
    if check::process_user_of(&message) != Some(user.as_str()) {
        return no(format!("its process.user is not {user}"));
    }
    if has_ended(asked, &files, &arrival, run, &sender)? {
        return no("it has ended".to_owned());
    }
    Ok(())
}

/// Whether the user is one whose password a host may have, and the one approved is still it.
fn of_user(asked: &Asked<'_>, user: &Login, approval: &Approval) -> Result<(), Stop> {
    let no = |why: String| Err(Stop::new(FORBIDDEN, why));
    let Some(letters) = asked.users.of(user.as_str()) else {
        return no(format!("{user} is no user of this server any more"));
    };
    if letters.admin() || letters.node() {
        return no(format!("{user} holds admin, setup or a clone's letters now, and no process runs as such a user"));
    }
    // Another password was set since; or the folder is another repository's too, and so the approval.
    match repository::is_password(asked.db, user.as_str(), &approval.password).map_err(|error| busy(&error))? {
        Some(true) => Ok(()),
        Some(false) | None => no(format!(
            "{user}'s password on this server is not the approved one any more: on the server's host, ocx revoke takes \
             each approval back, and ocx approve then sets another password"
        )),
    }
}

/// Whether an `ended` that counts stands where the run is.
fn has_ended(asked: &Asked<'_>, files: &CloneFile, run: &Arrival, id: &RunId, sender: &Sender) -> Result<bool, Stop> {
    let caller = asked.caller.login.as_str();
    let sent = sent_there(asked.db, &run.place, caller).map_err(|error| busy(&error))?;
    if sent.len() > REPORTS_MAX {
        let why =
            format!("{caller} has sent more than {REPORTS_MAX} posts where it stands; ask the run in a new thread");
        return Err(Stop::new(FORBIDDEN, why));
    }
    for hash in sent {
        let Some(arrival) = files.message(&hash).map_err(|error| unavailable(&error))? else { continue };
        let Some(message) = message::find(&arrival.text) else { continue };
        if counts_as_ended(&message, &arrival, run, id, caller, sender) {
            return Ok(true);
        }
    }
    Ok(false)
}

/// By the node's own code.
fn counts_as_ended(
    message: &Message,
    arrival: &Arrival,
    run: &Arrival,
    id: &RunId,
    to: &str,
    run_sender: &Sender,
) -> bool {
    let facts = ReportFacts {
        message,
        from: Some(to),
        in_the_runs_place: is_one_place(&arrival.place, &run.place),
        run: id,
        to,
        run_sender,
    };
    check::report_counts(&facts) == Some(Kind::Ended)
}

fn is_one_place(one: &Place, other: &Place) -> bool {
    match (one, other) {
        (Place::Thread { root: one, .. }, Place::Thread { root: other, .. }) => one == other,
        (Place::Ticket { id: one }, Place::Ticket { id: other }) => one == other,
        (Place::Thread { .. }, Place::Ticket { .. }) | (Place::Ticket { .. }, Place::Thread { .. }) => false,
    }
}

/// Hashes of what `login` sent to a thread or ticket, newest first, one more than [`REPORTS_MAX`] at most.
fn sent_there(db: &Connection, place: &Place, login: &str) -> Result<Vec<String>, rusqlite::Error> {
    let (within, name) = match place {
        Place::Thread { root, .. } => {
            ("b.rid IN (SELECT fpid FROM forumpost WHERE froot = (SELECT rid FROM blob WHERE uuid = ?1))", root.clone())
        }
        Place::Ticket { id } => (
            "b.rid IN (SELECT x.rid FROM tagxref x JOIN tag t USING (tagid) WHERE t.tagname = ?1)",
            format!("tkt-{id}"),
        ),
    };
    let mut statement = db.prepare(&format!(
        "SELECT b.uuid FROM blob b JOIN rcvfrom r USING (rcvid) JOIN user u ON u.uid = r.uid
          WHERE {within} AND u.login = ?2 AND b.size >= 0 AND NOT EXISTS (SELECT 1 FROM private p WHERE p.rid = b.rid)
          ORDER BY b.rcvid DESC, b.rid DESC LIMIT ?3"
    ))?;
    let most = i64::try_from(REPORTS_MAX).unwrap_or(i64::MAX).saturating_add(1);
    statement.query_map(rusqlite::params![name, login, most], |row| row.get(0))?.collect()
}

/// The repository as a reader of artifacts has it. The program mends what a killed writer left, here as in a clone.
fn files(asked: &Asked<'_>) -> CloneFile {
    let path = Program::find().unwrap_or_else(|| "/usr/bin/fossil".into());
    let home = asked.repository.with_file_name("ocx");
    CloneFile::new(asked.repository, &Program::new(&path, &home, &asked.caller.login))
}

/// One line of JSON, never with a password: who asked for whose, for which run, from where, and what came of it.
fn log(asked: &Asked<'_>, question: &Question, folder: &Folder, stopped: Option<&Stop>) -> io::Result<()> {
    let line = json!({
        "at": stamp::now(),
        "login": asked.caller.login,
        "run": question.run.as_str(),
        "user": question.user.as_str(),
        "clone": question.clone.as_str(),
        "from": asked.peer.address.map(|it| it.to_string()),
        "stopped": stopped.map(|stop| stop.why.as_str()),
    });
    let name = if stopped.is_none() { LOG } else { REFUSED_LOG };
    let lock = folder.lock(LOG_LOCK)?;
    let appended = folder.append(name, &format!("{line}\n"), LOG_BYTES_MAX);
    drop(lock);
    appended
}

fn unavailable(error: &dyn std::fmt::Display) -> Stop {
    Stop::new(UNAVAILABLE, format!("the password could not be looked up: {error}"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    #[test]
    fn a_question_has_its_three_keys_in_their_form() {
        let good = json!({"run": "a".repeat(64), "user": "builder", "clone": "0".repeat(40)});
        let ask = |value: &Value| question(value.as_object().unwrap()).map(drop).map_err(|stop| stop.why);
        assert_eq!(ask(&good), Ok(()));
        for (key, value) in [
            ("run", json!("abc")),
            ("run", json!(1)),
            ("run", json!("A".repeat(64))),
            ("user", json!("")),
            ("user", json!("a\nb")),
            ("clone", json!("0".repeat(64))),
            ("clone", Value::Null),
            ("more", json!(1)),
        ] {
            let mut bad = good.clone();
            bad.as_object_mut().unwrap().insert(key.to_owned(), value);
            assert!(ask(&bad).unwrap_err().contains(key));
        }
        assert!(ask(&json!({})).is_err());
    }

    #[test]
    fn places_are_one_by_root_or_ticket() {
        let thread =
            |root: &str, answers: Option<&str>| Place::Thread { root: root.into(), answers: answers.map(Into::into) };
        assert!(is_one_place(&thread("a", None), &thread("a", Some("b"))));
        assert!(!is_one_place(&thread("a", None), &thread("b", None)));
        assert!(!is_one_place(&thread("a", None), &Place::Ticket { id: "a".into() }));
        assert!(is_one_place(&Place::Ticket { id: "a".into() }, &Place::Ticket { id: "a".into() }));
    }
}

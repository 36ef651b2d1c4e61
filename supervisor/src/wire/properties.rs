//! What holds of every frame and plan, as its sender made it and as noise or a hostile peer changed it (CARD-06).
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fmt::Debug;

use sandbox::spec::{Confinement, CreatedFile, Limits};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::Value;

use super::floor::Floor;
use super::frame::decode;
use super::message::{End, EndedBy, Event, Phase, Reply, Request, ToNode, ToSupervisor};
use super::plan::{Holds, LaunchPlan, Process, Provides, Step};
use crate::random::{Random, hold, is};

fn text(random: &mut Random) -> String {
    let parts = ["a", "/", "..", "//", "\0", "\"", "\\", "\n", "\u{7f}", "é", "\u{1f4a9}", "{", "]", ",", "null", " "];
    (0..random.below(6)).map(|_| *random.one_of(&parts)).collect()
}

fn number(random: &mut Random) -> u64 {
    let odd = [0, 1, u64::MAX, u64::from(u32::MAX), 1 << 53];
    if random.once_in(2) { random.number() } else { *random.one_of(&odd) }
}

fn small(random: &mut Random) -> u32 {
    u32::try_from(random.number() >> 32).unwrap()
}

fn phase(random: &mut Random) -> Phase {
    use Phase::{Exited, Launched, Prepared, Preparing, Removed, Taken};
    *random.one_of(&[Taken, Preparing, Prepared, Launched, Exited, Removed])
}

fn step(random: &mut Random) -> Step {
    match random.below(4) {
        0 => Step::Directory { at: text(random) },
        1 => Step::Clone { into: text(random) },
        2 => Step::Checkout { clone: text(random), of: text(random), into: text(random) },
        _ => Step::Files { into: text(random), checkin: text(random) },
    }
}

fn request(random: &mut Random) -> ToSupervisor {
    let handle = number(random);
    let request = match random.below(14) {
        0 => Request::Hello { version: small(random) },
        1 => Request::Take { run: text(random) },
        2 => Request::Check { handle },
        3 => Request::Credential { project: text(random), user: random.maybe(text) },
        4 => Request::Prepare {
            handle,
            workspace_at: random.maybe(text),
            checkin: random.maybe(text),
            steps: random.some(3, step),
        },
        5 => Request::Launch { handle },
        6 => Request::Noted { handle, event: number(random) },
        7 => Request::Stop { handle, why: text(random) },
        8 => Request::WriteLogs { handle, stderr: random.once_in(2), stdout: random.once_in(2) },
        9 => Request::Remove { handle },
        12 => Request::Inspect {
            handle,
            workspace_at: random.maybe(text),
            clone: random.maybe(text),
            checkouts: random.some(3, text),
        },
        10 => Request::Open { handle, path: text(random) },
        11 => Request::OpenSettled { run: text(random), workspace: text(random), path: text(random) },
        _ => Request::Release { handle },
    };
    ToSupervisor { id: number(random), request }
}

fn provides(random: &mut Random) -> Provides {
    Provides {
        kernel: text(random),
        boot_id: text(random),
        host_name: text(random),
        root: text(random),
        workspaces: text(random),
        workspaces_open: text(random),
        releases: text(random),
        release: text(random),
        projects: random.some(3, text),
        user_namespaces: random.once_in(2),
        landlock_abi: small(random),
        cgroup: random.once_in(2),
        memory: random.once_in(2),
        floor: *random.one_of(&[Floor::Usual, Floor::Bytes(7), Floor::Percent(u64::MAX)]),
    }
}

fn holds(random: &mut Random) -> Holds {
    Holds {
        changes: random.some(3, text),
        changes_count: number(random),
        stashes: number(random),
        unsent: random.some(3, text),
        unsent_count: number(random),
    }
}

fn reply(random: &mut Random) -> Reply {
    match random.below(22) {
        0 => Reply::Welcome { provides: Box::new(provides(random)), in_care: small(random) },
        1 => Reply::Taken { handle: number(random) },
        2 => Reply::Busy,
        3 => Reply::Was { launches: small(random) },
        4 => Reply::Permitted,
        5 => Reply::Refused { row: 7, field: text(random), why: text(random) },
        6 => Reply::Descriptor,
        7 => Reply::Unset,
        8 => Reply::Prepared { checkin: random.maybe(text) },
        9 => Reply::StepFailed { index: small(random), why: text(random) },
        10 => Reply::Launched { pid: small(random) },
        11 => Reply::Failed { code: 127, stage: text(random), why: text(random) },
        12 => Reply::Stopping,
        13 => Reply::Written,
        14 => Reply::KeptOut { why: text(random) },
        15 => Reply::Removed,
        16 => Reply::Left { what: text(random) },
        17 => Reply::Released,
        18 => Reply::NotOpened { why: text(random) },
        19 => Reply::NotInspected { why: text(random) },
        20 => Reply::Inspected { holds: Box::new(holds(random)) },
        _ => Reply::Impossible { why: text(random) },
    }
}

fn answer(random: &mut Random) -> ToNode {
    let (handle, event) = (number(random), number(random));
    ToNode::Event(match random.below(4) {
        0 => return ToNode::Reply { id: handle, reply: reply(random) },
        1 => Event::InCare {
            handle,
            run: text(random),
            phase: phase(random),
            workspace: random.maybe(text),
            checkin: random.maybe(text),
        },
        2 => Event::Exited {
            handle,
            event,
            end: if random.once_in(2) { End::Code(3) } else { End::Signal(9) },
            ended_by: random.one_of(&[EndedBy::Itself, EndedBy::Stop, EndedBy::Limit("wall".into())]).clone(),
            leftovers: small(random),
        },
        _ => Event::Orphaned { handle, event, run: text(random), phase: phase(random), what: text(random) },
    })
}

fn confinement(random: &mut Random) -> Confinement {
    Confinement {
        uid: small(random),
        gid: small(random),
        linux_capabilities: random.some(2, text),
        network: random.once_in(2),
        isolate_terminal: random.once_in(2),
        ends_with_parent: random.once_in(2),
        proc: text(random),
        dev: text(random),
        tmp: text(random),
        read_only: random.some(3, text),
        read_write: random.some(3, text),
        devices: random.some(2, text),
        homes: random.some(2, text),
        workspace_at: random.maybe(text),
        created_files: random.some(2, |random| CreatedFile { at: text(random), text: text(random) }),
    }
}

fn plan(random: &mut Random) -> LaunchPlan {
    LaunchPlan {
        run: text(random),
        workspace: random.maybe(text),
        sandbox: random.maybe(confinement),
        limits: Limits {
            wall_s: random.maybe(number),
            cpu_s: random.maybe(number),
            processes: random.maybe(number),
            file_size_bytes: random.maybe(number),
            memory_bytes: random.maybe(number),
        },
        process: Process {
            command: random.some(3, text),
            env: random.some(3, |random| (text(random), text(random))).into_iter().collect(),
            cwd: text(random),
            keep_stderr_bytes: number(random),
            keep_stdout_bytes: number(random),
        },
    }
}

/// A value without what is absent: a key that is `null` and one that is not there say the same.
fn without_nulls(mut value: Value) -> Value {
    match &mut value {
        Value::Object(object) => {
            object.retain(|_, it| !it.is_null());
            object.values_mut().for_each(|it| *it = without_nulls(it.take()));
        }
        Value::Array(all) => all.iter_mut().for_each(|it| *it = without_nulls(it.take())),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
    }
    value
}

/// JSON with, in the object of this number, one thing more: a key nobody knows, or its first key again.
fn with_more(value: &Value, at: &mut usize, again: bool) -> String {
    match value {
        Value::Object(object) => {
            let here = *at == 0;
            *at = at.wrapping_sub(1);
            let mut parts: Vec<String> = object
                .iter()
                .map(|(key, it)| format!("{}:{}", Value::from(key.as_str()), with_more(it, at, again)))
                .collect();
            if here {
                let first = parts.first().cloned().filter(|_| again);
                parts.push(first.unwrap_or_else(|| "\"unknown\":{}".to_owned()));
            }
            format!("{{{}}}", parts.join(","))
        }
        Value::Array(all) => {
            let parts: Vec<String> = all.iter().map(|it| with_more(it, at, again)).collect();
            format!("[{}]", parts.join(","))
        }
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => value.to_string(),
    }
}

/// What crosses, crosses whole; nothing is read but what was sent, and nothing of what was sent is passed over.
fn crosses<T: Serialize + DeserializeOwned + PartialEq + Debug>(random: &mut Random, sent: &T) -> Result<(), String> {
    let mut bytes = serde_json::to_vec(sent).unwrap();
    is("another value on the other side", decode::<T>(&bytes).is_ok_and(|it| it == *sent))?;

    let whole = serde_json::to_value(sent).unwrap();
    let spoilt = with_more(&whole, &mut random.below(4), random.once_in(2));
    if spoilt.len() > bytes.len() {
        is(&format!("taken, with a key unknown or repeated: {spoilt}"), decode::<T>(spoilt.as_bytes()).is_err())?;
    }

    for _ in 0..=random.below(3) {
        random.spoil(&mut bytes);
    }
    let Ok(read) = decode::<T>(&bytes) else { return Ok(()) };
    let text = String::from_utf8_lossy(&bytes);
    let said: Value = serde_json::from_slice(&bytes).map_err(|it| format!("{text}: read, and no JSON: {it}"))?;
    let again = serde_json::to_value(&read).unwrap();
    // An empty list of devices is as none.
    let plain = |it: Value| without_nulls(it).to_string().replace("\"devices\":[],", "");
    is(&format!("{text}: read as {again}"), plain(said) == plain(again))
}

#[test]
fn card_06_requests_cross_whole_or_are_refused() {
    hold(|random| {
        let sent = request(random);
        crosses(random, &sent)
    });
}

#[test]
fn replies_and_events_cross_whole_or_are_refused() {
    hold(|random| {
        let sent = answer(random);
        crosses(random, &sent)
    });
}

#[test]
fn card_06_plans_cross_whole_or_are_refused() {
    hold(|random| {
        let sent = plan(random);
        crosses(random, &sent)
    });
}

#[test]
fn card_06_no_bytes_are_more_than_refused() {
    hold(|random| {
        let mut bytes = random.some(300, |random| u8::try_from(random.below(256)).unwrap());
        if random.once_in(3) {
            // Past any depth a reader may go to.
            let open =
                *random.one_of(&[&b"["[..], b"{\"a\":", b"\"", b"{\"id\":1,\"request\":{\"prepare\":{\"steps\":["]);
            bytes = open.repeat(random.below(2000));
        }
        is("noise is a request", decode::<ToSupervisor>(&bytes).is_err())?;
        is("noise is an answer", decode::<ToNode>(&bytes).is_err())?;
        is("noise is a plan", decode::<LaunchPlan>(&bytes).is_err())
    });
}

//! The text of what OCX writes: `started`, `ended`, kept logs, and replies (protocol 2.3, 2.10, 2.12), and the reading
//! back of the first two.
//!
//! Text of other people stands in it as JSON strings or in a fence no message can stand in (decisions C-59).

use std::fmt::Write as _;

use serde_json::{Map, Value};

use super::expand::Values;
use super::message::Message;
use super::quote;
use crate::protocol::kinds::Kind;
use crate::protocol::names::RunId;
use crate::protocol::outcomes::{OUTCOMES, Outcome};
use crate::protocol::values::VALUES;

/// A message of ours about a run: three backticks, `json`, one line of JSON.
fn report(run: &RunId, kind: Kind, content: &str) -> String {
    let re = quote::json(run.as_str());
    format!("```json\n{{\"ocx\":{},\"re\":{re},\"{kind}\":{content}}}\n```\n", crate::protocol::VERSION)
}

/// The text of `started`: every value set, and the limits as the run wrote them.
#[must_use]
pub fn started(run: &RunId, values: &Values, limits: &Map<String, Value>) -> String {
    let values: Vec<String> = VALUES
        .iter()
        .filter_map(|row| Some(format!("\"{}\":{}", row.name, quote::json(values.get(&row.name)?))))
        .collect();
    let limits = Value::Object(limits.clone());
    report(run, Kind::Started, &format!("{{\"values\":{{{}}},\"limits\":{limits}}}", values.join(",")))
}

/// What `ended` says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// How the run ended, with what OUTCOMES asks beside it.
    pub how: How,
    /// `removed`, or `kept: ` and why, where 2.3 asks for it.
    pub workspace: Option<String>,
    /// Each unversioned file's name and SHA-256 in hex, or nothing for a missing or forbidden one; empty when the run
    /// names none (decisions C-26).
    pub outputs: Vec<(String, Option<String>)>,
}

/// An outcome with its `exit` or `note`: no other pairing can be written (protocol 2.12).
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum How {
    /// A refusal holds.
    Refused {
        /// Which, as [`super::check::Refusal`] has it.
        note: String,
    },
    /// A stop ended it, or came first.
    Stopped,
    /// Its process ended by itself or by a signal.
    Exited {
        /// Its code, or 128 plus the signal's number.
        exit: u8,
    },
    /// Past a limit.
    Budget {
        /// Which.
        note: String,
    },
    /// It is not in care, or its watching failed.
    Lost {
        /// Why.
        note: String,
    },
}

impl How {
    /// The outcome's word.
    #[must_use]
    pub fn outcome(&self) -> Outcome {
        match self {
            Self::Refused { .. } => Outcome::Refused,
            Self::Stopped => Outcome::Stopped,
            Self::Exited { .. } => Outcome::Exited,
            Self::Budget { .. } => Outcome::Budget,
            Self::Lost { .. } => Outcome::Lost,
        }
    }
}

impl Ended {
    /// An end that says nothing of a workspace or of files.
    #[must_use]
    pub fn new(how: How) -> Self {
        Self { how, workspace: None, outputs: Vec::new() }
    }
}

/// The text of `ended`.
#[must_use]
pub fn ended(run: &RunId, ended: &Ended) -> String {
    let mut content = format!("{{\"outcome\":\"{}\"", ended.how.outcome());
    let mut key = |name: &str, json: &str| {
        // Writing to a String cannot fail.
        let _always_ok = write!(content, ",\"{name}\":{json}");
    };
    match &ended.how {
        How::Exited { exit } => key("exit", &exit.to_string()),
        How::Refused { note } | How::Budget { note } | How::Lost { note } => key("note", &quote::json(note)),
        How::Stopped => {}
    }
    if let Some(workspace) = &ended.workspace {
        key("workspace", &quote::json(workspace));
    }
    if !ended.outputs.is_empty() {
        let outputs: Vec<String> = ended
            .outputs
            .iter()
            .map(|(name, hash)| {
                let hash = hash.as_deref().map_or_else(|| "null".to_owned(), quote::json);
                format!("{{\"as\":{},\"sha256\":{hash}}}", quote::json(name))
            })
            .collect();
        key("outputs", &format!("[{}]", outputs.join(",")));
    }
    content.push('}');
    report(run, Kind::Ended, &content)
}

/// The kept end of a stream.
#[derive(Debug, Clone, Copy)]
pub struct Tail<'a> {
    /// What was kept, redacted.
    pub bytes: &'a [u8],
    /// How much is kept at most; a tail this long is said to be the last part only.
    pub keep_bytes: u64,
}

/// The kept-log reply (decisions C-23, C-59, C-80): how the process ended, such as `exit 3`, then each stream's end. A
/// stream not kept, or that printed nothing, is not shown; nothing is to be written when neither is.
#[must_use]
pub fn kept_log(run: &RunId, how: &str, stderr: Option<Tail<'_>>, stdout: Option<Tail<'_>>) -> Option<String> {
    let mut text = format!("Run {run}: {how}\n");
    let mut any = false;
    for (name, tail) in [("stderr", stderr), ("stdout", stdout)] {
        if let Some(tail) = tail.filter(|tail| !tail.bytes.is_empty()) {
            any = true;
            push_stream(&mut text, name, tail);
        }
    }
    any.then_some(text)
}

fn push_stream(text: &mut String, name: &str, tail: Tail<'_>) {
    let is_cut = u64::try_from(tail.bytes.len()).unwrap_or(u64::MAX) >= tail.keep_bytes;
    let bytes = if is_cut { from_a_character(tail.bytes) } else { tail.bytes };
    let shown = String::from_utf8_lossy(bytes).replace('\0', "\u{2400}");
    let fence = "`".repeat((longest_run(&shown, '`') + 1).max(3));
    let about = if is_cut { format!("\nThe last {} bytes of {name}:\n", tail.keep_bytes) } else { String::new() };
    let end = if shown.ends_with('\n') { "" } else { "\n" };
    let _always_ok = write!(text, "{about}\n{fence}{name}\n{shown}{end}{fence}\n");
}

/// What became of one unversioned file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileTold<'a> {
    /// The server's name for it.
    pub name: &'a str,
    /// Its SHA-256 in hex, once the server has it; else why it was not sent.
    pub sent: Result<&'a str, &'a str>,
}

/// The reply that names each unversioned file (protocol 2.10). `publish` is the message that asked for it again.
#[must_use]
pub fn files(run: &RunId, files: &[FileTold<'_>], publish: Option<&str>) -> String {
    let mut text = format!("Run {run}: unversioned files{}\n\n", asked_by(publish));
    for FileTold { name, sent } in files {
        let _always_ok = match sent {
            Ok(sha256) => writeln!(text, "- {}: sent, SHA-256 {sha256}", quote::json(name)),
            Err(why) => writeln!(text, "- {}: not sent: {}", quote::json(name), one_line(why)),
        };
    }
    text
}

/// The reply about a verdict that was not written.
#[must_use]
pub fn no_verdict(run: &RunId, why: &str, publish: Option<&str>) -> String {
    format!("Run {run}: no verdict was written{}: {}\n", asked_by(publish), one_line(why))
}

/// The reply about a workspace that was to be removed after its run, and stays (decisions C-05).
#[must_use]
pub fn workspace_stays(run: &RunId, why: &str) -> String {
    format!("Run {run}: its workspace could not be removed, and stays: {}\n", one_line(why))
}

fn asked_by(publish: Option<&str>) -> String {
    publish.map_or_else(String::new, |publish| format!(", as publish {} asks", quote::shown(publish)))
}

/// Someone's words within a line of ours: no fence begins in it.
fn one_line(text: &str) -> String {
    text.split(|c: char| c.is_whitespace() || c.is_control() || c == '`').collect::<Vec<_>>().join(" ")
}

/// Why a publish did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NotPublished<'a> {
    /// The run is in this node's hands: it waits, runs, or is being published.
    Held,
    /// Nothing of its plan is unfinished; with its outcome, where that is known.
    Nothing(&'a str),
}

/// The reply to a publish that does nothing (protocol 2.3).
#[must_use]
pub fn not_published(run: &RunId, publish: &str, why: NotPublished<'_>) -> String {
    let publish = quote::shown(publish);
    let why = match why {
        NotPublished::Held => "the run is still held by its node; what it publishes follows by itself".to_owned(),
        NotPublished::Nothing(outcome) => {
            let row = OUTCOMES.iter().find(|row| row.outcome.word() == outcome);
            match row.filter(|row| !row.publishes) {
                Some(row) => format!("files and verdicts of a run that ended {} are refused", row.outcome),
                None => "nothing of the run is unfinished on its node".to_owned(),
            }
        }
    };
    format!("Nothing was done for publish {publish} of run {run}: {why}.\n")
}

/// The bytes without the rest of a character whose beginning was cut off.
fn from_a_character(bytes: &[u8]) -> &[u8] {
    /// The longest character of UTF-8 has three bytes after its first.
    const CONTINUATION_BYTES_MAX: usize = 3;
    let torn = bytes.iter().take(CONTINUATION_BYTES_MAX).take_while(|byte| **byte & 0xc0 == 0x80).count();
    bytes.get(torn..).unwrap_or_default()
}

fn longest_run(text: &str, mark: char) -> usize {
    let mut longest = 0;
    let mut run = 0;
    for c in text.chars() {
        run = if c == mark { run + 1 } else { 0 };
        longest = longest.max(run);
    }
    longest
}

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Place<'a> {
    /// The thread whose first post this is.
    Thread(&'a str),
    /// The ticket of this id.
    Ticket(&'a str),
}

/// The reply to a stop or publish that its sender may send, but that stands elsewhere than its run (decisions C-20).
#[must_use]
pub fn misplaced(kind: Kind, run: &RunId, place: Place<'_>) -> String {
    let place = match place {
        Place::Thread(post) => format!("as a reply in the thread of forum post {}", quote::shown(post)),
        Place::Ticket(id) => format!("as a change to ticket {}", quote::shown(id)),
    };
    format!("Nothing was done: this {kind} of run {run} is not where its run is. Post it {place}.\n")
}

/// The stop's case of [`misplaced`].
#[must_use]
pub fn misplaced_stop(run: &RunId, place: Place<'_>) -> String {
    misplaced(Kind::Stop, run, place)
}

/// A `started` read back. Whether it counts is `check::report_counts`' to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StartedRead {
    /// The run it answers.
    pub run: RunId,
    /// Its values that are text; others and unknown keys are ignored.
    pub values: std::collections::BTreeMap<String, String>,
}

/// Reads a `started`.
#[must_use]
pub fn read_started(message: &Message) -> Option<StartedRead> {
    let run = answered(message, Kind::Started)?;
    let values = message.content.get("values").and_then(Value::as_object);
    let text = |(key, value): (&String, &Value)| Some((key.clone(), value.as_str()?.to_owned()));
    Some(StartedRead { run, values: values.into_iter().flatten().filter_map(text).collect() })
}

/// An `ended` read back. Whether it counts is `check::report_counts`' to say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EndedRead {
    /// The run it answers.
    pub run: RunId,
    /// The outcome as written; one that is not in OUTCOMES still ends the run.
    pub outcome: String,
    /// The exit, where there is one.
    pub exit: Option<u64>,
    /// The note, where there is one.
    pub note: Option<String>,
    /// What is said of the workspace, if anything.
    pub workspace: Option<String>,
}

/// Reads an `ended`.
#[must_use]
pub fn read_ended(message: &Message) -> Option<EndedRead> {
    let run = answered(message, Kind::Ended)?;
    let text = |key: &str| message.content.get(key).and_then(Value::as_str).map(str::to_owned);
    Some(EndedRead {
        run,
        outcome: text("outcome")?,
        exit: message.content.get("exit").and_then(Value::as_u64),
        note: text("note"),
        workspace: text("workspace"),
    })
}

fn answered(message: &Message, kind: Kind) -> Option<RunId> {
    if message.known_kind() != Some(kind) {
        return None;
    }
    RunId::new(message.re.as_deref()?)
}

//! `ocx check`: what a node would decide of a message that was not sent yet, by the node's own engine.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use serde_json::{Value, json};
use supervisor::wire::accounts::SERVICE_ROOT;

use super::answer::Answer;
use super::command_line::Said;
use super::teller::{Style, Teller, harmless};
use crate::engine::check::{self, CloneUser, Decision, Facts, Host, Sender, User};
use crate::engine::message::{self, Message};
use crate::engine::plan::StepLaid;
use crate::engine::{ceiling, plan};
use crate::protocol::kinds::Kind;
use crate::protocol::names::{CloneCode, Login, RunId};
use crate::protocol::steps::StepKind;

/// Largest text read, in bytes: Fossil itself takes no larger post (decisions C-13 bounds a block at less).
const TEXT_BYTES_MAX: u64 = 16 << 20;
/// The run's hash where there is none yet.
const NO_HASH: &str = "0000000000000000000000000000000000000000";

/// Carries out `ocx check`.
#[must_use]
pub fn main(said: &Said<'_>) -> ExitCode {
    let mut answer = Answer::new("check");
    answer.dry_run = true;
    let file = said.path("file").unwrap_or_default();
    match Asked::of(said).and_then(|asked| Ok((asked, read(&file)?))) {
        Ok((asked, text)) => {
            let told = tell(&asked, &text);
            answer.stopped = told.wrong.clone();
            answer.result = told.json();
            if !said.flag("json") {
                say(&told);
            }
        }
        Err(why) => answer.stopped = Some(why),
    }
    answer.end(said.flag("json"))
}

fn say(told: &Told) {
    let teller = Teller::new(false);
    for line in &told.granted {
        teller.say(&format!("taken for granted: {}", harmless(line)), Style::Dim);
    }
    if told.wrong.is_none() {
        teller.say(&harmless(&told.what), Style::Bold);
    }
}

/// A text within bounds.
fn read(file: &Path) -> Result<String, String> {
    let named = |error: std::io::Error| format!("{}: {error}", file.display());
    let mut bytes = Vec::new();
    let within = TEXT_BYTES_MAX + 1;
    if file == Path::new("-") {
        std::io::stdin().lock().take(within).read_to_end(&mut bytes).map_err(named)?;
    } else {
        std::fs::File::open(file).and_then(|it| it.take(within).read_to_end(&mut bytes)).map_err(named)?;
    }
    if bytes.len() as u64 > TEXT_BYTES_MAX {
        return Err(format!("{}: larger than {TEXT_BYTES_MAX} bytes, which is no post", file.display()));
    }
    String::from_utf8(bytes).map_err(|error| format!("{}: it is no UTF-8 text: {error}", file.display()))
}

/// What the command line says of sender and host.
struct Asked {
    sender: Sender,
    host: Host,
}

impl Asked {
    fn of(said: &Said<'_>) -> Result<Self, String> {
        let root = said.path("root").unwrap_or_else(|| PathBuf::from(SERVICE_ROOT));
        let of_r = said
            .path("ceiling")
            .map(|path| ceiling::read(&read(&path)?).map_err(|why| format!("{}: {why}", path.display())))
            .transpose()?;
        let below = |name: &str| root.join(name).display().to_string();
        let r = said.flag("r");
        Ok(Self {
            sender: Sender { login: Some("the-sender".to_owned()), admin: false, setup: !r, r },
            host: Host {
                unconfined: said.flag("unconfined"),
                r_senders: of_r,
                root: below("workspaces"),
                root_open: below("workspaces-open"),
                releases: "/opt/ocx".to_owned(),
                release: "/opt/ocx/current".to_owned(),
                server_url: "https://server.example/project".to_owned(),
                repository_name: "project".to_owned(),
            },
        })
    }
}

/// What is told of a text.
#[derive(Debug, PartialEq, Eq)]
struct Told {
    /// Its kind, when it is a message.
    kind: Option<String>,
    /// The refusal's row, when one holds.
    refusal: Option<u8>,
    /// Why no node would take it.
    wrong: Option<String>,
    /// What a node would do.
    what: String,
    /// What was taken to be well without asking.
    granted: Vec<String>,
    /// The launch as the supervisor would be asked it, of a run that would be taken.
    launch: Value,
}

impl Told {
    fn wrong(kind: Option<&str>, why: impl Into<String>) -> Self {
        Self {
            kind: kind.map(str::to_owned),
            refusal: None,
            wrong: Some(why.into()),
            what: String::new(),
            granted: Vec::new(),
            launch: Value::Null,
        }
    }

    fn well(kind: &str, what: &str) -> Self {
        Self { wrong: None, what: what.to_owned(), ..Self::wrong(Some(kind), "") }
    }

    fn json(&self) -> Value {
        json!({"kind": self.kind, "taken": self.wrong.is_none(), "refusal": self.refusal, "granted": self.granted,
            "launch": self.launch})
    }
}

/// The text of a post; or the JSON alone, put in a fence as a post has it.
fn tell(asked: &Asked, text: &str) -> Told {
    let bare = text.trim_start().starts_with('{');
    let fenced = format!("```json\n{}\n```\n", text.trim());
    let text = if bare { fenced.as_str() } else { text };
    let Some(message) = message::find(text) else {
        let unread = message::unread(text);
        let why: Vec<String> =
            unread.iter().enumerate().map(|(index, why)| format!("block {}: {why}", index + 1)).collect();
        return Told::wrong(
            None,
            if why.is_empty() {
                "it holds no message: no fenced block (``` or ~~~, alone or with the word json) at its top level"
                    .to_owned()
            } else {
                format!("it holds no message: {}", why.join("; "))
            },
        );
    };
    let mut told = tell_of(asked, &message);
    match message::unread_after_first(text) {
        0 => {}
        more => {
            told.granted.push(format!("{more} more in the same text, which no node reads: one text is one message"))
        }
    }
    told
}

fn tell_of(asked: &Asked, message: &Message) -> Told {
    match message.known_kind() {
        Some(Kind::Run) => run(asked, message),
        Some(Kind::Stop) => match check::stop_of(message) {
            Some(_) => Told::well("stop", "a stop: it ends the run if it stands in the run's place and its sender may"),
            None => {
                Told::wrong(Some("stop"), "no node reads it: a stop has re, the run's full hash, and the content {}")
            }
        },
        Some(Kind::Publish) => match check::publish_of(message) {
            Some(_) => Told::well("publish", "a publish: what is unfinished of the run is published"),
            None => Told::wrong(
                Some("publish"),
                "no node reads it: a publish has to, re, the run's full hash, and the content {}",
            ),
        },
        Some(kind) => Told::well(kind.word(), "a message for people and readers: no node acts on it"),
        None => {
            Told::wrong(Some(&message.kind), format!("no node acts on it: version 2 has no kind {:?}", message.kind))
        }
    }
}

/// A run, decided as by the node it is addressed to.
fn run(asked: &Asked, message: &Message) -> Told {
    let kind = Some("run");
    let Some(to) = message.to.as_deref().and_then(Login::new) else {
        return Told::wrong(kind, "every node passes it by in silence: to is missing, or is no login");
    };
    let clone = message.content.get("clone").and_then(Value::as_str).and_then(CloneCode::new);
    if clone.is_none() {
        return Told::wrong(
            kind,
            "every node passes it by in silence: run.clone is not a server-code of 40 lower-case hex digits (ocx status on the node's host tells it)",
        );
    }
    let Some(id) = RunId::new(NO_HASH) else { return Told::wrong(kind, "no run could be named") };
    let plain = User { admin: false, setup: false, letters: String::new(), node: false };
    let process_user = check::process_user_of(message).map(|user| (user.to_owned(), Some(plain)));
    let decision = check::decide(&Facts {
        run: &id,
        message,
        sender: Some(&asked.sender),
        // What a clone's user holds who may write verdicts too.
        clone_user: &CloneUser { login: to.as_str().to_owned(), letters: "goC4wi".to_owned() },
        host: &asked.host,
        named_as_to: &BTreeSet::new(),
        users: &process_user.into_iter().collect::<BTreeMap<_, _>>(),
        stop_stands: false,
        other_r_run_in_care: false,
        workspaces_in_care: &[],
    });
    let mut granted = vec![
        if asked.sender.r { "its sender holds R" } else { "its sender holds admin or setup" }.to_owned(),
        format!("a node serves this clone as {to}"),
        "process.user is a plain user of the server, and no clone's".to_owned(),
        format!("the node's workspaces are in {}, its releases in {}", asked.host.root, asked.host.releases),
    ];
    let told = match decision {
        Decision::Accept(accepted) => {
            granted.push(
                "the host has the paths it names, allows them, and can give what it asks (refusals 6, 7)".to_owned(),
            );
            let kinds: Vec<StepKind> = accepted.steps().iter().map(StepLaid::kind).collect();
            if kinds.contains(&StepKind::Password) {
                let user = &accepted.run().process.user;
                granted.push(format!("the clone may collect the password of {user} (ocx approve), or its host has it"));
            }
            if accepted.run().of.is_some() || kinds.iter().any(|it| *it != StepKind::Directory) {
                granted.push("the server has the check-ins it names, and no step fails (refusal 9)".to_owned());
            }
            let process = &accepted.plan().process;
            let by_path = process.command.first().is_some_and(|it| !it.contains('/'));
            if by_path && !process.env.contains_key("PATH") {
                granted.push("its command is found without a PATH: env sets none, and nothing else does".to_owned());
            }
            let launch = serde_json::to_value(plan::launch(&accepted)).unwrap_or_default();
            Told { launch, ..Told::well("run", "a node would take it") }
        }
        Decision::Refuse(refusal) => {
            Told { refusal: Some(refusal.row), ..Told::wrong(kind, format!("it would be refused: {}", refusal.note)) }
        }
        Decision::Wait(why) => Told::wrong(kind, format!("it would wait: {why}")),
        Decision::Stopped => Told::wrong(kind, "it would be stopped"),
    };
    Told { granted, ..told }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test ends where a step of it fails")]
mod tests {
    use super::*;
    use crate::tools::command_line::command;
    use crate::trial::request;

    fn asked(words: &[&str]) -> Asked {
        let line = ["ocx", "check", "-"].iter().chain(words).copied();
        let matches = command().try_get_matches_from(line).unwrap();
        Asked::of(&Said(matches.subcommand_matches("check").unwrap())).unwrap()
    }

    fn message() -> Value {
        request::message("lab-1", &"c".repeat(40), "builder", &["true".to_owned()])
    }

    fn refusal(message: &Value) -> Option<u8> {
        tell(&asked(&[]), &message.to_string()).refusal
    }

    #[test]
    fn a_post_and_its_json_alone_are_taken_alike() {
        let post = request::post("Words.", &message());
        for text in [post, message().to_string(), format!("{:#}", message())] {
            let told = tell(&asked(&[]), &text);
            assert_eq!((told.wrong.as_deref(), told.kind.as_deref()), (None, Some("run")));
            assert_eq!(told.launch["process"]["command"], json!(["true"]));
        }
    }

    #[test]
    fn what_no_check_can_know_is_named() {
        let granted = |message: &Value| tell(&asked(&[]), &message.to_string()).granted.join("; ");
        let mut run = message();
        assert!(!granted(&run).contains("refusal 9"));
        run["run"]["of"] = json!("trunk");
        assert!(granted(&run).contains("refusal 9") && !granted(&run).contains("password"));
        run["run"]["workspace"].as_array_mut().unwrap().push(json!({"step": "password"}));
        assert!(granted(&run).contains("the password of builder"));
        let twice = format!("{}{}", request::post("One.", &run), request::post("Two.", &run));
        let told = tell(&asked(&[]), &twice);
        assert!(told.wrong.is_none() && told.granted.join(" ").contains("1 more in the same text"));
    }

    /// The node's own order and notes: the same engine decides.
    #[test]
    fn each_refusal_that_needs_no_host_is_told() {
        let with = |change: &dyn Fn(&mut Value)| {
            let mut message = message();
            change(&mut message);
            message
        };
        assert_eq!(refusal(&with(&|it| it["run"]["objective"] = json!(5))), Some(2));
        assert_eq!(refusal(&with(&|it| it["run"]["colour"] = json!("red"))), Some(2));
        assert_eq!(refusal(&with(&|it| it["run"]["workspace"][0]["step"] = json!("build"))), Some(3));
        assert_eq!(refusal(&with(&|it| it["run"]["process"]["cwd"] = json!("$$nothing$$"))), Some(3));
        assert_eq!(refusal(&with(&|it| it["run"]["process"]["user"] = json!("lab-1"))), Some(4));
        let open = with(&|it| drop(it["run"].as_object_mut().unwrap().remove("sandbox")));
        assert_eq!(refusal(&open), Some(5));
        assert_eq!(tell(&asked(&["--unconfined"]), &open.to_string()).refusal, None);
        assert_eq!(refusal(&with(&|it| it["run"]["process"]["terminal"] = json!(true))), Some(6));
        assert_eq!(refusal(&with(&|it| it["run"]["workspace"][0]["at"] = json!("/elsewhere"))), Some(7));
        // R alone: without the owner's ceiling nothing is allowed.
        assert_eq!(tell(&asked(&["--r"]), &message().to_string()).refusal, Some(1));
        assert_eq!(refusal(&message()), None);
    }

    #[test]
    fn what_a_node_passes_by_in_silence_is_said() {
        let why = |text: &str| tell(&asked(&[]), text).wrong.unwrap_or_default();
        assert!(why("Just words.").contains("no fenced block"));
        assert!(why("```json\n{\"ocx\": 1}\n```\n").contains("integer 2"));
        let mut elsewhere = message();
        elsewhere["run"]["clone"] = json!("cccc");
        assert!(why(&elsewhere.to_string()).contains("in silence"));
        elsewhere["to"] = json!(null);
        assert!(why(&elsewhere.to_string()).contains("to is missing"));
        assert!(why(r#"{"ocx": 2, "stop": {}}"#).contains("full hash"));
        let hash = "a".repeat(64);
        assert_eq!(why(&format!(r#"{{"ocx": 2, "re": "{hash}", "stop": {{}}}}"#)), "");
        assert!(why(r#"{"ocx": 2, "dance": {}}"#).contains("no kind"));
    }
}

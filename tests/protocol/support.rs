//! Runs to begin from, and the facts of a host that takes them.

use std::collections::{BTreeMap, BTreeSet};

use ocx::engine::ceiling::{self, Ceiling};
use ocx::engine::check::{self, Accepted, CloneUser, Decision, Facts, Host, Refusal, Sender, User};
use ocx::engine::message::{self, Message};
use ocx::protocol::names::RunId;
use serde_json::{Value, json};

pub(crate) const CODE: &str = "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1";
pub(crate) const RUN: &str = "0123456789abcdef0123456789abcdef01234567";

pub(crate) fn run_id() -> RunId {
    RunId::new(RUN).unwrap()
}

/// A post's text holding this message.
pub(crate) fn post(message: &Value) -> String {
    format!("Please.\n\n```json\n{message}\n```\n")
}

/// A message holding this content.
pub(crate) fn asking(content: &Value) -> Message {
    message::find(&post(&json!({"ocx": 2, "to": "lab-1", "run": content}))).unwrap()
}

/// A run with every required key, a workspace and a sandbox, that nothing refuses.
pub(crate) fn plain() -> Value {
    json!({
        "clone": CODE,
        "objective": "Say hello.",
        "workspace": [{"step": "directory", "at": "$$root$$/builder/$$run$$"}],
        "sandbox": {
            "uid": 1000, "gid": 1000, "linux_capabilities": [], "network": false, "isolate_terminal": true,
            "ends_with_parent": true, "proc": "/proc", "dev": "/dev", "tmp": "/tmp",
            "read_only": ["/usr", "/bin", "/lib", "/lib64", "$$release$$"], "read_write": ["$$workspace$$"],
            "homes": [], "created_files": []
        },
        "limits": {"wall": "8h", "cpu": 3600, "processes": 512, "file_size": "4G"},
        "process": {"user": "builder", "command": ["echo", "hello"], "env": {"PATH": "/usr/bin:/bin"}}
    })
}

/// Sets what a JSON pointer names, making the last key if need be.
pub(crate) fn with(mut run: Value, pointer: &str, value: Value) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    match run.pointer_mut(parent).unwrap() {
        Value::Object(object) => {
            object.insert(key.to_owned(), value);
        }
        Value::Array(items) => items[key.parse::<usize>().unwrap()] = value,
        other => panic!("{pointer}: {other}"),
    }
    run
}

/// Takes out the key that a JSON pointer names, which must be there.
pub(crate) fn without(mut run: Value, pointer: &str) -> Value {
    let (parent, key) = pointer.rsplit_once('/').unwrap();
    run.pointer_mut(parent).unwrap().as_object_mut().unwrap().remove(key).unwrap();
    run
}

/// A world in which `plain` is accepted; each test changes what it is about.
pub(crate) struct World {
    pub(crate) sender: Option<Sender>,
    pub(crate) clone_user: CloneUser,
    pub(crate) host: Host,
    pub(crate) named_as_to: BTreeSet<String>,
    pub(crate) users: BTreeMap<String, Option<User>>,
    pub(crate) stop_stands: bool,
    pub(crate) other_r_run_in_care: bool,
    pub(crate) workspaces_in_care: Vec<String>,
}

pub(crate) fn setup_user(login: &str) -> Sender {
    Sender { login: Some(login.to_owned()), setup: true, ..Sender::default() }
}

pub(crate) fn r_user(login: &str) -> Sender {
    Sender { login: Some(login.to_owned()), r: true, ..Sender::default() }
}

/// The ceiling an install writes.
pub(crate) fn installed_ceiling() -> Ceiling {
    ceiling::read(
        r#"{"allow": true, "network": true, "capabilities": [],
            "read": ["/usr", "/bin", "/lib", "/lib64", "/etc/ssl/certs", "/etc/resolv.conf"], "write": [], "homes": [],
            "limits": {"wall": "8h", "cpu": 3600, "processes": 512, "file_size": "4G"}}"#,
    )
    .unwrap()
}

impl World {
    pub(crate) fn new() -> Self {
        Self {
            sender: Some(setup_user("stone")),
            clone_user: CloneUser { login: "lab-1".to_owned(), letters: "goC4w".to_owned() },
            host: Host {
                unconfined: false,
                r_senders: Some(installed_ceiling()),
                root: "/var/lib/ocx/workspaces".to_owned(),
                root_open: "/var/lib/ocx/workspaces-open".to_owned(),
                releases: "/opt/ocx".to_owned(),
                release: "/opt/ocx/releases/1".to_owned(),
                server_url: "https://host/proj".to_owned(),
                repository_name: "proj".to_owned(),
            },
            named_as_to: ["lab-1".to_owned(), "lab-2".to_owned()].into(),
            users: [("builder".to_owned(), Some(User::default()))].into(),
            stop_stands: false,
            other_r_run_in_care: false,
            workspaces_in_care: Vec::new(),
        }
    }

    pub(crate) fn from(sender: Sender) -> Self {
        Self { sender: Some(sender), ..Self::new() }
    }

    pub(crate) fn decide(&self, content: &Value) -> Decision {
        check::decide(&Facts {
            run: &run_id(),
            message: &asking(content),
            sender: self.sender.as_ref(),
            clone_user: &self.clone_user,
            host: &self.host,
            named_as_to: &self.named_as_to,
            users: &self.users,
            stop_stands: self.stop_stands,
            other_r_run_in_care: self.other_r_run_in_care,
            workspaces_in_care: &self.workspaces_in_care,
        })
    }

    pub(crate) fn refusal(&self, content: &Value) -> Refusal {
        match self.decide(content) {
            Decision::Refuse(refusal) => refusal,
            Decision::Wait(_) | Decision::Stopped | Decision::Accept(_) => panic!("not refused: {content}"),
        }
    }

    /// Asserts that the run is refused by this row, its note naming this.
    #[track_caller]
    pub(crate) fn refuses(&self, content: &Value, row: u8, naming: &str) {
        let refusal = self.refusal(content);
        assert_eq!(refusal.row, row, "{}", refusal.note);
        assert!(refusal.note.contains(naming), "{naming} is not in: {}", refusal.note);
        assert!(refusal.note.starts_with(&format!("refusal {row}: ")), "{}", refusal.note);
    }

    #[track_caller]
    pub(crate) fn accepts(&self, content: &Value) -> Accepted {
        match self.decide(content) {
            Decision::Accept(accepted) => *accepted,
            other @ (Decision::Wait(_) | Decision::Stopped | Decision::Refuse(_)) => panic!("{other:?}"),
        }
    }
}

/// A sequence that is the same for the same seed (xorshift64*).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let mixed = self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33;
        usize::try_from(mixed).unwrap() % bound
    }
}

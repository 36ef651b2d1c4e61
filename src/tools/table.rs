//! TOOLS: one row a tool; its command line, help and (where it has them) its other doors are made from the row.

/// What one key of a tool's input holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// There or not.
    Flag,
    /// A directory of this host.
    Directory,
    /// A file of this host.
    Path,
    /// A TCP port.
    Port,
    /// A run: its hash, or its first ten digits or more (R-T-03).
    Run,
    /// A file of this host, or `-` for STDIN.
    File,
    /// A Fossil server's repository on this host.
    Repository,
    /// A user of a Fossil server, and how help names it.
    Login(&'static str),
    /// A clone's server-code.
    Clone,
    /// A secret's name.
    Secret,
    /// Everything after `--`: a program and its arguments.
    Command,
}

/// One key of a tool's input.
#[derive(Debug, Clone, Copy)]
pub struct Key {
    /// Its name, the same as option `--NAME` and in JSON.
    pub name: &'static str,
    /// What it holds.
    pub form: Form,
    /// What it does, for help.
    pub does: &'static str,
}

/// Who may call a tool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Who {
    /// Root on this host.
    Root,
    /// Anyone on this host; who is not root is told less.
    Anyone,
    /// The account that owns a server's repository, on the server's host; root becomes it.
    ServerHost,
    /// The supervisor, which starts it with descriptors nobody else has.
    Supervisor,
    /// Fossil, as an extension; who may ask is decided by the caller's letters on the server.
    Server,
}

/// One tool.
#[derive(Debug, Clone, Copy)]
pub struct Tool {
    /// Its name: the first word after `ocx`.
    pub name: &'static str,
    /// What it does, in one line.
    pub does: &'static str,
    /// What a person should know before calling it; several lines.
    pub teaches: &'static str,
    /// Its input.
    pub keys: &'static [Key],
    /// Who may call it.
    pub who: Who,
    /// Whether a program may call it through MCP.
    pub mcp: bool,
    /// Whether `ocx --help` names it.
    pub shown: bool,
}

const JSON: Key = Key { name: "json", form: Form::Flag, does: "Print one JSON object, and nothing else on STDOUT" };
const DRY_RUN: Key = Key { name: "dry-run", form: Form::Flag, does: "Say what would be done, and do nothing" };
const REPOSITORY: Key = Key { name: "repo", form: Form::Repository, does: "The server's repository, NAME.fossil" };

/// Every tool of this program.
pub const TOOLS: &[Tool] = &[
    Tool {
        name: "try",
        does: "Make a whole system here, run one real run on it, show what the server has, and take it all away",
        teaches: "\
Under one temporary directory this makes a Fossil server on the loopback interface and a node with a clone of it under \
a root supervisor, posts a run in the server's forum as a person would, and follows it: started, its kept log, ended. \
Nothing is installed and nothing is left, unless --keep is given.

The run's command is what stands after --, or one that prints what it sees: ids, host name, processes, mounts.

Exit codes: 0 the run ended `exited` 0 and its log is on the server; 1 anything else, with the reason; 2 wrong usage.

Examples:
  ocx try
  ocx try --ticket -- sh -c 'id; ls -la /'
  ocx try --keep",
        keys: &[
            Key { name: "ticket", form: Form::Flag, does: "Ask for the run in a ticket change, not in the forum" },
            Key {
                name: "json",
                form: Form::Flag,
                does: "Print one JSON object at the end, and nothing else on STDOUT",
            },
            Key {
                name: "keep",
                form: Form::Flag,
                does: "Leave everything running, and say how to look at it and stop it",
            },
            Key {
                name: "dir",
                form: Form::Directory,
                does: "Use this directory, absent or empty, not one of its own in /tmp",
            },
            Key { name: "port", form: Form::Port, does: "Serve on this loopback port, not on a free one" },
            Key { name: "again", form: Form::Directory, does: "Ask for another run in the directory of a kept trial" },
            Key { name: "stop", form: Form::Directory, does: "Stop a kept trial and remove its directory" },
            Key { name: "command", form: Form::Command, does: "The program the run starts, and its arguments" },
        ],
        who: Who::Root,
        mcp: false,
        shown: true,
    },
    Tool {
        name: "status",
        does: "Say how this host's service is, what each run does, where it waits and for what",
        teaches: "\
Without RUN: the supervisor and the node, what they enforce, each clone with its last pull, and every run that is not \
settled, then the last ones that are. With RUN: all about one run, with the time of every step of its life.

It only reads files below ROOT and /proc, and asks nobody, so it answers also while the supervisor or the node is down, \
and says so. What a run does is read from the supervisor's records (ROOT/care) and the node's (ROOT/state), which only \
root may read; anyone else is told about the host alone.

A time such as `4 min` is how long ago. A run waits for nothing but what its lines say: `waits for the server ..., since \
..., because ...`. A process that KILL does not end is named with its state and the kernel's function it sleeps in; the \
run is answered once it is gone (nothing but the kernel can end it).

Exit codes: 0 told, however the service is; 1 ROOT cannot be read, or holds no such run; 2 wrong usage.

Examples:
  ocx status
  ocx status 3f2a91c07b
  ocx status --json | jq .result.runs",
        keys: &[
            Key { name: "root", form: Form::Directory, does: "The service's directory [default: /var/lib/ocx]" },
            JSON,
            Key { name: "run", form: Form::Run, does: "One run: its hash, or the first ten digits or more" },
        ],
        who: Who::Anyone,
        mcp: false,
        shown: true,
    },
    Tool {
        name: "check",
        does: "Say whether a node would take a message, before it is sent; else which refusal it would answer",
        teaches: "\
FILE is the text of a post or ticket change as it would be sent, or the message's JSON alone; - reads STDIN. It is \
decided by the node's own code, in the node's order, and nothing is sent or asked.

What only a server knows is taken to be well: that the sender may send runs (with --r: by R alone), that process.user is \
a plain user, that the clone's user may write a verdict. What only the node's host knows is not asked: whether its paths \
are there and allowed, and what its kernel gives (refusals 6 and 7; there, `ocx-supervisor explain` says so). The answer \
names what was taken for granted.

Exit codes: 0 a node would take it; 1 it would not, with the reason, or FILE cannot be read; 2 wrong usage.

Examples:
  ocx check post.md
  ocx check --json - < run.json | jq .result.refusal",
        keys: &[
            Key { name: "r", form: Form::Flag, does: "Its sender holds R alone; without --ceiling nothing is allowed it" },
            Key { name: "ceiling", form: Form::Path, does: "The host owner's r-senders.json" },
            Key { name: "unconfined", form: Form::Flag, does: "The host runs what has no sandbox" },
            Key { name: "root", form: Form::Directory, does: "The service's directory there [default: /var/lib/ocx]" },
            JSON,
            Key { name: "file", form: Form::File, does: "The text to be sent, or - for STDIN" },
        ],
        who: Who::Anyone,
        mcp: false,
        shown: true,
    },
    Tool {
        name: "protocol",
        does: "Print the protocol: every kind, key, value, step, refusal and outcome, as this program has them",
        teaches: "\
Markdown, made from the tables the programs work by. What this release does not act on yet says so, and is refused (6) \
when a run asks it.

Exit codes: 0 printed; 1 STDOUT could not be written; 2 wrong usage.

Examples:
  ocx protocol | less
  ocx protocol --json | jq '.result.tables[] | select(.title == \"Refusals\")'",
        keys: &[JSON],
        who: Who::Anyone,
        mcp: false,
        shown: true,
    },
    Tool {
        name: "approve",
        does: "Let a clone's host collect the password of a process's user, which is set at the first approval",
        teaches: "\
A process with a password step works as a user of the server. The host that runs it holds no password of that user: it \
collects it from the server for one run, signed in as its clone's user, and is told it only for a clone approved here, \
only for a run that an admin or setup user sent to that clone and that has not ended.

USER must be there already, with the letters its work needs (g and o for the clone, i to check in), and hold neither \
admin or setup nor a clone's letters. The first approval sets a random password: nobody else can sign in as USER then, \
so it should be a user that is no person. Later approvals and runs change no password.

Run it on the server's host, as the account that owns REPO, or as root, which becomes that account. What is approved is \
kept in the folder ocx beside REPO (approvals.json); each password handed out is a line of collect.log there. Keep one \
repository in a folder: two would share it, and a user approved for one is refused by the other. The server must be \
reached over https, or from its own host; behind a web server that speaks https, start fossil with --https.

Exit codes: 0 approved, or it was already; 1 nothing was changed, with the reason; 2 wrong usage.

Examples:
  ocx approve /srv/fossil/project.fossil builder lab-1 3f2a91c07b3f2a91c07b3f2a91c07b3f2a91c07b
  ocx approve --dry-run --json project.fossil builder lab-1 CODE",
        keys: &[
            REPOSITORY,
            Key { name: "user", form: Form::Login("USER"), does: "The process's user" },
            Key { name: "login", form: Form::Login("LOGIN"), does: "The clone's user, as its host signs in" },
            Key { name: "clone", form: Form::Clone, does: "The clone's server-code, 40 digits" },
            DRY_RUN,
            JSON,
        ],
        who: Who::ServerHost,
        mcp: false,
        shown: true,
    },
    Tool {
        name: "revoke",
        does: "Take an approval back: that clone's host is not told the user's password any more",
        teaches: "\
The password itself stays as it is, for the other clones approved, and for who collected it: to shut a host out that \
may have kept it, revoke all of USER's approvals and approve those that go on, which sets another password.

Run it on the server's host, as the account that owns REPO, or as root, which becomes that account.

Exit codes: 0 revoked; 1 nothing was changed, with the reason; 2 wrong usage.

Examples:
  ocx revoke /srv/fossil/project.fossil builder lab-1 3f2a91c07b3f2a91c07b3f2a91c07b3f2a91c07b",
        keys: &[
            REPOSITORY,
            Key { name: "user", form: Form::Login("USER"), does: "The process's user" },
            Key { name: "login", form: Form::Login("LOGIN"), does: "The clone's user, as its host signs in" },
            Key { name: "clone", form: Form::Clone, does: "The clone's server-code, 40 digits" },
            DRY_RUN,
            JSON,
        ],
        who: Who::ServerHost,
        mcp: false,
        shown: true,
    },
    Tool {
        name: "secret",
        does: "Keep a text that runs may name in their environment as $$secret:NAME$$, or take it away",
        teaches: "\
The text is read from STDIN, so that it stands on no command line; one newline at its end is left out. It is kept in \
the folder ocx/secrets beside REPO, for the account that owns REPO alone. A run on this host names it in a string of \
process.env; it is in no message, and hidden in the kept logs. Another host has none of it.

Run it on the server's host, as the account that owns REPO, or as root, which becomes that account.

Exit codes: 0 kept or removed; 1 nothing was changed, with the reason; 2 wrong usage.

Examples:
  ocx secret project.fossil TOKEN < token.txt
  printf %s \"$token\" | ocx secret project.fossil TOKEN
  ocx secret --remove project.fossil TOKEN",
        keys: &[
            REPOSITORY,
            Key { name: "name", form: Form::Secret, does: "Its name: letters, digits and _" },
            Key { name: "remove", form: Form::Flag, does: "Take it away; nothing is read" },
            DRY_RUN,
            JSON,
        ],
        who: Who::ServerHost,
        mcp: false,
        shown: true,
    },
    Tool {
        name: "receipt",
        does: "Answer the server's receipts: who sent an artifact, and what rights they hold (an extension of Fossil)",
        teaches: "Fossil starts it as /ext/ocx/receipt. It reads JSON on STDIN and answers JSON; it changes nothing.",
        keys: &[],
        who: Who::Server,
        mcp: false,
        shown: false,
    },
    Tool {
        name: "node",
        does: "The protocol process of this host (started by ocx-supervisor)",
        teaches: "",
        keys: &[],
        who: Who::Supervisor,
        mcp: false,
        shown: false,
    },
    Tool {
        name: "step",
        does: "One workspace step, in a sandbox of its own (started by ocx-supervisor)",
        teaches: "",
        keys: &[],
        who: Who::Supervisor,
        mcp: false,
        shown: false,
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_words_and_stand_once() {
        for (index, tool) in TOOLS.iter().enumerate() {
            assert!(TOOLS.iter().skip(index + 1).all(|other| other.name != tool.name), "{} twice", tool.name);
            for (index, key) in tool.keys.iter().enumerate() {
                assert!(tool.keys.iter().skip(index + 1).all(|other| other.name != key.name), "{} twice", key.name);
            }
            let words = std::iter::once(tool.name).chain(tool.keys.iter().map(|key| key.name));
            for word in words {
                assert!(word.chars().all(|c| c.is_ascii_lowercase() || c == '-'), "{word}");
            }
        }
    }

    #[test]
    fn what_a_program_may_call_needs_no_root() {
        assert!(TOOLS.iter().all(|tool| !tool.mcp || tool.who == Who::Server));
    }

    #[test]
    fn every_tool_shown_teaches() {
        assert!(TOOLS.iter().filter(|tool| tool.shown).all(|tool| !tool.teaches.is_empty()));
    }
}

//! The run a trial asks for: every key of the sandbox layer said, and a command that prints what it sees.

use std::path::Path;

use serde_json::{Value, json};

/// System directories a program needs; those this host has are named, as links where they are links.
const SYSTEM: &[&str] = &["/usr", "/bin", "/lib", "/lib32", "/lib64"];

/// How long the run may take; its default command takes some milliseconds.
const WALL: &str = "60s";

/// Prints ids, capabilities, host name, processes and mounts, with nothing but a shell and coreutils.
const LOOK: &str = r#"id
echo "host name: $(uname -n)"
echo "workspace: $(pwd)"
echo "processes:"
for p in /proc/[0-9]*; do
  [ -r "$p/cmdline" ] && echo "  ${p#/proc/} $(tr '\0\n' '  ' <"$p/cmdline" | cut -c1-60)"
done
echo "mounts:"
while read -r _ _ _ _ at how _; do echo "  $at ${how%%,*}"; done </proc/self/mountinfo
echo "status:"
while read -r key value; do
  case $key in CapEff:|CapBnd:|NoNewPrivs:|Seccomp:) echo "  $key $value" ;; esac
done </proc/self/status
"#;

/// The command of a trial whose user names none.
#[must_use]
pub fn look() -> Vec<String> {
    ["sh", "-c", LOOK].map(String::from).to_vec()
}

/// The message, as JSON.
///
/// `to` and `clone` address it; `user` is the process's user.
#[must_use]
pub fn message(to: &str, clone: &str, user: &str, command: &[String]) -> Value {
    let read_only: Vec<&str> = SYSTEM.iter().filter(|path| Path::new(path).exists()).copied().collect();
    json!({
        "ocx": 2,
        "to": to,
        "run": {
            "clone": clone,
            "objective": "Show one run from post to ended; it passes when it exits 0",
            "workspace": [{"step": "directory", "at": "$$root$$/$$run$$"}],
            "sandbox": {
                "uid": 1000,
                "gid": 1000,
                "linux_capabilities": [],
                "network": false,
                "isolate_terminal": true,
                "ends_with_parent": true,
                "proc": "/proc",
                "dev": "/dev",
                "tmp": "/tmp",
                "read_only": read_only,
                "read_write": ["$$workspace$$"],
                "homes": [],
                "created_files": [
                    {"at": "/etc/passwd", "text": "runner:x:1000:1000::/tmp:/bin/sh\n"},
                    {"at": "/etc/group", "text": "runner:x:1000:\n"}
                ]
            },
            "limits": {"wall": WALL},
            "process": {
                "user": user,
                "command": command,
                "env": {"PATH": "/usr/bin:/bin", "HOME": "/tmp", "LANG": "C.UTF-8"},
                "keep": {"stdout_when": "always"}
            }
        }
    })
}

/// The post's text: words for people, then the message in a fence no line inside can close.
#[must_use]
pub fn post(words: &str, message: &Value) -> String {
    // Pretty JSON never begins a line with a backtick.
    format!("{words}\n\n```json\n{message:#}\n```\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_block_of_a_post_is_the_message() {
        let message = message("lab-1", "0123", "builder", &[String::from("echo"), String::from("```\n```")]);
        let text = post("A run.", &message);
        let fences = text.lines().filter(|line| line.starts_with("```")).count();
        assert_eq!(fences, 2);
        let block = text.split("```json\n").nth(1).and_then(|rest| rest.split("\n```\n").next());
        assert_eq!(block.and_then(|b| serde_json::from_str::<Value>(b).ok()), Some(message));
    }
}

//! Whole messages as people write them, with exactly what OCX plans and answers (protocol 2.18; decisions C-74).

use ocx::engine::check::{self, Decision, Host};
use ocx::engine::plan::StepLaid;
use ocx::engine::report::{self, Ended, How};
use ocx::engine::{message, plan};
use serde_json::{Value, json};

use super::support::{CODE, RUN, World, run_id};

/// The first example of the draft, in version 2's words and confined.
const ECHO: &str = r#"Let's see whether this works:

```json
{"ocx": 2, "to": "lab-1", "run": {
  "clone": "c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1c1",
  "objective": "Say hello.",
  "workspace": [{"step": "directory", "at": "$$root$$/$$process_user$$/projects/$$repository_name$$/$$run$$"}],
  "sandbox": {"uid": 1000, "gid": 1000, "linux_capabilities": [], "network": false, "isolate_terminal": true,
    "ends_with_parent": true, "proc": "/proc", "dev": "/dev", "tmp": "/tmp",
    "read_only": ["/usr", "/bin", "/lib", "/lib64", "$$release$$"],
    "read_write": ["$$workspace$$"], "homes": [], "workspace_at": "/workspace",
    "created_files": [{"at": "/etc/passwd", "text": "$$process_user$$:x:1000:1000::$$workspace$$:/bin/sh\n"}]},
  "limits": {"wall": "90m", "file_size": "1M"},
  "process": {"user": "builder", "command": ["echo", "hello from $$clone_user$$"],
    "env": {"PATH": "/usr/bin:/bin", "HOME": "$$workspace$$", "SHELL_ITSELF": "${HOME} $$"},
    "keep": {"stdout_when": "always"}}}}
```

Thank you.
"#;

const WORKSPACE: &str = "/var/lib/ocx/workspaces/builder/projects/proj/0123456789abcdef0123456789abcdef01234567";

#[test]
fn d_14_01_an_echo_is_planned_started_and_ended_exactly_so() {
    let message = message::find(ECHO).unwrap();
    assert!(check::address(&message, "lab-1", CODE));
    assert_eq!(check::process_user_of(&message), Some("builder"));
    let accepted = World::new().accepts(&Value::Object(message.content));

    assert_eq!(accepted.steps(), [StepLaid::Directory { at: WORKSPACE.to_owned() }]);
    assert_eq!(
        serde_json::to_value(plan::launch(&accepted)).unwrap(),
        json!({
            "run": RUN,
            "workspace": WORKSPACE,
            "sandbox": {
                "uid": 1000, "gid": 1000, "linux_capabilities": [], "network": false, "isolate_terminal": true,
                "ends_with_parent": true, "proc": "/proc", "dev": "/dev", "tmp": "/tmp",
                "read_only": ["/usr", "/bin", "/lib", "/lib64", "/opt/ocx/releases/1"],
                "read_write": [WORKSPACE], "homes": [], "workspace_at": "/workspace",
                "created_files": [{"at": "/etc/passwd", "text": "builder:x:1000:1000::/workspace:/bin/sh\n"}]
            },
            "limits": {"wall_s": 5400, "file_size_bytes": 1_048_576},
            "process": {
                "command": ["echo", "hello from lab-1"],
                "env": {"PATH": "/usr/bin:/bin", "HOME": "/workspace", "SHELL_ITSELF": "${HOME} $$"},
                "cwd": "/workspace", "keep_stderr_bytes": 65536, "keep_stdout_bytes": 65536
            }
        })
    );
    assert_eq!(plan::first_line(&accepted), format!("{{\"run\":\"{RUN}\",\"objective\":\"Say hello.\"}}\n"));
    assert_eq!(plan::keep_stdout_when(&accepted).word(), "always");
    assert_eq!(
        report::started(accepted.id(), plan::values_started(&accepted), &accepted.run().limits.written),
        format!(
            "```json\n{{\"ocx\":2,\"re\":\"{RUN}\",\"started\":{{\"values\":{{\"root\":\"/var/lib/ocx/workspaces\",\
             \"repository_name\":\"proj\",\"server_url\":\"https://host/proj\",\"run\":\"{RUN}\",\"clone_user\":\"lab-1\",\
             \"process_user\":\"builder\",\"releases\":\"/opt/ocx\",\"release\":\"/opt/ocx/releases/1\",\
             \"workspace\":\"{WORKSPACE}\"}},\"limits\":{{\"file_size\":\"1M\",\"wall\":\"90m\"}}}}}}\n```\n"
        )
    );
    assert_eq!(
        report::ended(accepted.id(), &Ended::new(How::Exited { exit: 0 })),
        format!("```json\n{{\"ocx\":2,\"re\":\"{RUN}\",\"ended\":{{\"outcome\":\"exited\",\"exit\":0}}}}\n```\n")
    );
}

#[test]
fn v2_2_6_07_without_a_workspace_a_process_starts_at_the_root_and_with_one_there() {
    let message = message::find(ECHO).unwrap();
    let mut content = Value::Object(message.content);
    content["sandbox"].as_object_mut().unwrap().remove("workspace_at");
    assert_eq!(World::new().accepts(&content).plan().process.cwd, WORKSPACE);
    content.as_object_mut().unwrap().remove("workspace");
    content["sandbox"]["read_write"] = json!([]);
    content["sandbox"]["created_files"] = json!([]);
    content["process"]["env"] = json!({});
    let accepted = World::new().accepts(&content);
    assert_eq!(accepted.plan().process.cwd, "/");
    assert_eq!(accepted.plan().workspace, None);
    assert!(accepted.steps().is_empty());
    let started = report::started(accepted.id(), accepted.values(), &accepted.run().limits.written);
    assert!(!started.contains("\"workspace\""), "{started}");
}

#[test]
fn v2_2_3_18_a_run_without_limits_is_unlimited_and_started_says_none() {
    let mut content = Value::Object(message::find(ECHO).unwrap().content);
    content.as_object_mut().unwrap().remove("limits");
    let accepted = World::new().accepts(&content);
    assert_eq!(accepted.plan().limits, sandbox::spec::Limits::default());
    let started = report::started(accepted.id(), accepted.values(), &accepted.run().limits.written);
    assert!(started.ends_with("\"limits\":{}}}\n```\n"), "{started}");
}

#[test]
fn d_14_01_the_unconfined_echo_is_refused_where_nothing_runs_unconfined_and_else_starts_in_the_root() {
    let content = json!({"clone": CODE, "objective": "Say hello.",
        "process": {"user": "builder", "command": ["echo", "hello"], "env": {"PATH": "/usr/bin:/bin"},
            "keep": {"stdout_when": "always"}}});
    let refusal = World::new().refusal(&content);
    assert_eq!(
        report::ended(&run_id(), &Ended::new(How::Refused { note: refusal.note })),
        format!(
            "```json\n{{\"ocx\":2,\"re\":\"{RUN}\",\"ended\":{{\"outcome\":\"refused\",\"note\":\"refusal 5: the run has \
             no sandbox, and this host runs nothing unconfined\"}}}}\n```\n"
        )
    );
    let host = Host { unconfined: true, ..World::new().host };
    let accepted = World { host, ..World::new() }.accepts(&content);
    let plan = accepted.plan();
    assert_eq!((&plan.sandbox, &plan.workspace, plan.process.cwd.as_str()), (&None, &None, "/"));
}

#[test]
fn d_14_02_claude_in_a_sandbox_is_well_formed_and_refused_naming_all_this_release_lacks() {
    let content = json!({"clone": CODE, "objective": "Answer what is said here.",
        "workspace": [
            {"step": "directory", "at": "$$root$$/$$process_user$$/projects/$$repository_name$$/$$run$$"},
            {"step": "password"},
            {"step": "clone", "into": "$$workspace$$/clone"},
            {"step": "checkout", "of": "trunk", "into": "$$workspace$$/tree"}],
        "sandbox": {"uid": 1000, "gid": 1000, "linux_capabilities": [], "network": true, "isolate_terminal": true,
            "ends_with_parent": true,
            "read_only": ["/usr", "/bin", "/lib", "/lib64", "/etc/resolv.conf", "/etc/ssl/certs", "$$release$$"],
            "read_write": ["$$workspace$$"], "homes": ["/root/.claude", "/root/.claude.json"],
            "created_files":
                [{"at": "/etc/passwd", "text": "$$process_user$$:x:1000:1000::$$workspace$$:/bin/sh\n"}],
            "proc": "/proc", "dev": "/dev", "tmp": "/tmp"},
        "limits": {"wall": "8h"},
        "process": {"user": "claude-1", "command": ["claude", "--remote-control"], "cwd": "$$tree$$",
            "session": true, "hears": ["*"], "terminal": true,
            "env": {"HOME": "$$workspace$$", "USER": "$$process_user$$",
                "PATH": "$$release$$:/usr/local/bin:/usr/bin:/bin", "IS_SANDBOX": "1"}}});
    let world = World { users: [("claude-1".to_owned(), None)].into(), ..World::new() };
    assert_eq!(
        world.refusal(&content).note,
        "refusal 6: this release does not provide process.session, process.hears, process.terminal"
    );
    // V1 5: the second workspace, files without a repository.
    let mut files = content;
    files["workspace"] = json!([
        {"step": "directory", "at": "$$root$$/$$run$$"},
        {"step": "files", "of": "trunk", "into": "$$workspace$$/tree"}]);
    assert!(world.refusal(&files).note.contains("process.session"));
    let process = files["process"].as_object_mut().unwrap();
    for lacking in ["session", "hears", "terminal"] {
        process.remove(lacking);
    }
    let tree = format!("/var/lib/ocx/workspaces/{RUN}/tree");
    assert_eq!(world.accepts(&files).plan().process.cwd, tree);
}

#[test]
fn v2_2_4_a_run_for_another_address_is_passed_by() {
    let asked = |to: Value, clone: Value| {
        let text = super::support::post(&json!({"ocx": 2, "to": to, "run": {"clone": clone}}));
        check::address(&message::find(&text).unwrap(), "lab-1", CODE)
    };
    assert!(asked(json!("lab-1"), json!(CODE)));
    for (to, clone) in [
        (json!("lab-2"), json!(CODE)),
        (json!(""), json!(CODE)),
        (json!(7), json!(CODE)),
        (json!("lab-1"), json!(&CODE[..39])),
        (json!("lab-1"), json!(CODE.to_uppercase())),
        (json!("lab-1"), json!("d".repeat(40))),
        (json!("lab-1"), json!("$$x$$")),
        (json!("lab-1"), Value::Null),
    ] {
        assert!(!asked(to.clone(), clone.clone()), "{to} {clone}");
    }
    let stop = super::support::post(&json!({"ocx": 2, "to": "lab-1", "stop": {"clone": CODE}}));
    assert!(!check::address(&message::find(&stop).unwrap(), "lab-1", CODE));
}

#[test]
fn c_74_a_stop_a_publish_and_a_question_are_messages_of_their_kinds() {
    let kind = |value: &Value| message::find(&super::support::post(value)).unwrap().known_kind();
    assert_eq!(kind(&json!({"ocx": 2, "re": RUN, "stop": {}})).unwrap().word(), "stop");
    assert_eq!(kind(&json!({"ocx": 2, "to": "lab-1", "re": RUN, "publish": {}})).unwrap().word(), "publish");
    let question = json!({"ocx": 2, "to": "pat", "question": {"question": "Which?", "options": ["a", "b"]}});
    assert_eq!(kind(&question).unwrap().word(), "question");
    assert_eq!(kind(&json!({"ocx": 2, "re": RUN, "decision": {"note": "a"}})).unwrap().word(), "decision");
}

#[test]
fn v2_2_1_11_a_to_inside_the_content_is_content() {
    let text =
        format!("```json\n{{\"ocx\":2,\"to\":\"lab-1\",\"run\":{{\"to\":\"lab-2\",\"clone\":\"{CODE}\"}}}}\n```\n");
    let message = message::find(&text).unwrap();
    assert!(check::address(&message, "lab-1", CODE) && !check::address(&message, "lab-2", CODE));
    match World::new().decide(&Value::Object(message.content)) {
        Decision::Refuse(refusal) => assert_eq!(refusal.note, "refusal 2: to is no key of version 2"),
        other @ (Decision::Wait(_) | Decision::Stopped | Decision::Accept(_)) => panic!("{other:?}"),
    }
}

/// What README shows a person to post is a run that a node takes.
#[test]
fn the_post_in_readme_is_accepted() {
    let indented = |line: &'static str| line.strip_prefix("    ").unwrap_or(line);
    let post: Vec<&str> = include_str!("../../README.md").lines().map(indented).collect();
    let post = post.join("\n").replace(&"0123456789".repeat(4), CODE);
    let message = message::find(&post).unwrap();
    assert!(check::address(&message, "lab-1", CODE));
    World::new().accepts(&Value::Object(message.content));
}

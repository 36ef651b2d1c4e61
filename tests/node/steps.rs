//! Workspace steps on a real server: a check-in's files, a clone made with a collected password, a checkout (protocol 2.7).

use std::path::PathBuf;
use std::process::Command;

use ocx::engine::message;
use ocx::trial::accounts::{NODE, PROCESS, SETUP};
use ocx::trial::{Asked, Where};
use serde_json::{Value, json};

use crate::support;
use crate::system::{SOON, System};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("V2-2.7-10, C-16, C-98 files writes the check-in's files and nothing else", files),
    ("V2-2.7-09, CASE-05 a name that resolves to nothing refuses 9 and leaves nothing", unresolved),
    (
        "V2-2.7-08, C-95, C-97 a clone and a checkout are the process's user's own, where the process sees them",
        checkout,
    ),
    ("V2-2.10-17, V2-2.10-18, V2-2.10-37, C-70 a verdict is a ci tag of the clone's user on the check-in", verdicts),
    ("V2-2.7-24, V2-2.7-25, CASE-28, CASE-29 a workspace goes once all in it is on the server, else says why", saved),
    ("C-05 a workspace that cannot be removed stays, and a reply says so", in_the_way),
    ("V2-2.3-22, V2-2.7-26 a run never launched: its workspace is removed, where that is asked", never_launched),
    ("V2-2.5-05, V2-2.7-14, V2-2.7-15 a password comes from an approval, else from the host's own file", passwords),
];

/// A check-out of the server's repository that the setup user writes in.
struct Writer {
    place: PathBuf,
    url: String,
}

impl Writer {
    fn new(system: &System) -> Self {
        let place = system.trial.layout().server().join("writer");
        std::fs::create_dir_all(place.join("tree")).unwrap();
        let password = system.trial.password(SETUP);
        let url = system.trial.url().replacen("://", &format!("://{}:{password}@", SETUP.login), 1);
        let writer = Self { place, url };
        writer.fossil(&["clone", &writer.url, "../w.fossil", "--save-http-password"]);
        writer.fossil(&["open", "../w.fossil", "--force", "--nosync"]);
        writer.fossil(&["settings", "allow-symlinks", "on"]);
        writer
    }

    fn fossil(&self, args: &[&str]) -> String {
        let ran = Command::new("fossil")
            .args(args)
            .current_dir(self.place.join("tree"))
            .env("HOME", &self.place)
            .env("USER", SETUP.login)
            .output()
            .unwrap();
        let said = String::from_utf8_lossy(&ran.stdout).into_owned();
        assert!(ran.status.success(), "fossil {args:?}: {said} {}", String::from_utf8_lossy(&ran.stderr));
        said
    }

    /// Commits what stands in the tree; the check-in's hash.
    fn commit(&self, words: &str) -> String {
        self.fossil(&["addremove"]);
        let said = self.fossil(&["commit", "-m", words, "--no-warnings"]);
        let hash = said.lines().find_map(|line| line.strip_prefix("New_Version: ")).unwrap();
        assert!(said.contains("Sync with") || said.contains("Autosync"), "{said}");
        hash.trim().to_owned()
    }
}

/// A run of `sh -c SCRIPT` with these steps after its directory's.
fn with_steps(system: &System, steps: Value, script: &str) -> Value {
    let mut message = system.message(script);
    let run = &mut message["run"];
    run["workspace"].as_array_mut().unwrap().extend(steps.as_array().unwrap().iter().cloned());
    run["process"]["env"]["CHECKIN"] = json!("$$checkin$$");
    run["process"]["env"]["TREE"] = json!("$$tree$$");
    message
}

fn values(system: &mut System, asked: &Asked) -> Value {
    let started = system.wait_for(asked, "started", SOON);
    message::find(&started.text).unwrap().content["values"].clone()
}

fn files() {
    let mut system = System::new();
    let writer = Writer::new(&system);
    let tree = writer.place.join("tree");
    std::fs::create_dir_all(tree.join("a b/c")).unwrap();
    std::fs::write(tree.join("a b/c/run.sh"), "#!/bin/sh\necho it runs\n").unwrap();
    std::fs::write(tree.join("plain"), "text\n").unwrap();
    std::fs::write(tree.join("empty"), "").unwrap();
    std::os::unix::fs::symlink("/etc/passwd", tree.join("link")).unwrap();
    let mode = std::os::unix::fs::PermissionsExt::from_mode(0o755);
    std::fs::set_permissions(tree.join("a b/c/run.sh"), mode).unwrap();
    let first = writer.commit("one");
    std::fs::write(tree.join("later"), "later\n").unwrap();
    writer.commit("two");
    let script = r#"cd "$TREE" && find . | sort && cat link && echo && "./a b/c/run.sh" && ! [ -x plain ] && echo "$CHECKIN"
        fossil status 2>&1 || echo no repository"#;
    let steps = json!([{"step": "files", "of": first, "into": "$$workspace$$/tree"}]);
    let asked = system.post(Where::Thread, &with_steps(&system, steps, script));
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(0));
    let workspace = system.trial.layout().root().join("workspaces").join(&asked.run);
    let values = values(&mut system, &asked);
    assert_eq!((&values["checkin"], &values["tree"]), (&json!(first), &json!(workspace.join("tree"))));
    let out = system.log(&asked, "stdout");
    let tree = ".\n./a b\n./a b/c\n./a b/c/run.sh\n./empty\n./link\n./plain\n";
    let expected = format!("{tree}/etc/passwd\nit runs\n{first}\n");
    assert!(out.starts_with(&expected) && out.contains("no repository"), "{out}");
    assert!(std::fs::symlink_metadata(workspace.join("tree/link")).unwrap().is_file());
    // By a branch's name, into two places, the run's own `of` beside them: the last step's is the run's.
    let steps = json!([
        {"step": "files", "of": "$$checkin$$", "into": "$$workspace$$/one"},
        {"step": "files", "of": "trunk", "into": "$$workspace$$/two/deep"}
    ]);
    let mut message = with_steps(&system, steps, "ls ../../one; cat later; echo $CHECKIN");
    message["run"]["of"] = json!(first.get(..12).unwrap());
    message["run"]["process"]["cwd"] = json!("$$tree$$");
    let asked = system.post(Where::Thread, &message);
    assert_eq!(system.ended(&asked, SOON)["exit"], json!(0));
    let out = system.log(&asked, "stdout");
    assert!(out.starts_with("a b\nempty\nlink\nplain\nlater\n") && !out.contains(&first), "{out}");
    system.stop();
}

fn unresolved() {
    let mut system = System::new();
    let writer = Writer::new(&system);
    std::fs::write(writer.place.join("tree/x"), "x").unwrap();
    writer.commit("one");
    for of in ["release-9", "-R"] {
        let steps = json!([{"step": "files", "of": of, "into": "$$workspace$$/tree"}]);
        let asked = system.post(Where::Thread, &with_steps(&system, steps, "true"));
        let ended = system.ended(&asked, SOON);
        let note = ended["note"].as_str().unwrap();
        assert!(note.starts_with("refusal 9: workspace[1] (files)") && note.contains(of), "{note}");
        assert_eq!(system.kinds(&asked), ["ended"]);
        assert!(!system.trial.layout().root().join("workspaces").join(&asked.run).exists());
    }
    let mut message = system.message("true");
    message["run"]["of"] = json!("release-9");
    let asked = system.post(Where::Thread, &message);
    let note = system.ended(&asked, SOON)["note"].to_string();
    assert!(note.contains("refusal 9: of") && note.contains("release-9"), "{note}");
    // Control: the same with the branch there.
    writer.fossil(&["branch", "new", "release-9", "trunk"]);
    writer.fossil(&["push"]);
    let asked = system.post(Where::Thread, &message);
    assert_eq!(system.ended(&asked, SOON)["outcome"], json!("exited"));
    system.stop();
}

/// Approves the process's user for the trial's clone; the password, as the server's host keeps it.
fn approve(system: &System) -> String {
    let repository = system.trial.layout().repository();
    let ran = Command::new(support::programs().join("ocx"))
        .arg("approve")
        .arg(&repository)
        .args([PROCESS.login, NODE.login, &system.clone])
        .output()
        .unwrap();
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    let kept = std::fs::read(repository.parent().unwrap().join("ocx/approvals.json")).unwrap();
    let kept: Value = serde_json::from_slice(&kept).unwrap();
    kept["users"][PROCESS.login]["password"].as_str().unwrap().to_owned()
}

const CLONED: &str = "$$workspace$$/clone.fossil";

fn clone_steps() -> Value {
    json!([
        {"step": "password"},
        {"step": "clone", "into": CLONED},
        {"step": "checkout", "of": "trunk", "into": "$$workspace$$/tree"}
    ])
}

fn checkout() {
    let mut system = System::new();
    let writer = Writer::new(&system);
    std::fs::write(writer.place.join("tree/x"), "x\n").unwrap();
    let first = writer.commit("one");
    let password = approve(&system);
    // What the process writes with its clone is its user's own, and no one asks for a password.
    let script = r#"cd "$TREE" && cat x && fossil changes && echo made > made && fossil add made >/dev/null &&
        fossil commit -m two --no-warnings && fossil sync && tr '\0' '\n' </proc/self/environ && pwd && echo "$CHECKIN""#;
    for workspace_at in [None, Some("/seen")] {
        let mut message = with_steps(&system, clone_steps(), script);
        message["run"]["sandbox"]["network"] = json!(true);
        if let Some(at) = workspace_at {
            message["run"]["sandbox"]["workspace_at"] = json!(at);
            message["run"]["workspace"][3]["of"] = json!(first);
            message["run"]["process"]["command"][2] =
                json!(script.replace("fossil commit -m two", "fossil commit --branch other -m two"));
        }
        let asked = system.post(Where::Thread, &message);
        let ended = system.ended(&asked, SOON);
        assert_eq!(ended["exit"], json!(0), "{ended:?} {:?}", system.log(&asked, "stderr"));
        let out = system.log(&asked, "stdout");
        let workspace = system.trial.layout().root().join("workspaces").join(&asked.run);
        let seen = workspace_at.map_or_else(|| workspace.clone(), PathBuf::from);
        assert!(out.contains(&format!("\n{}\n{first}\n", seen.join("tree").display())), "{out}");
        assert!(out.contains("New_Version") && !out.contains(&password), "{out}");
        let values = values(&mut system, &asked);
        assert_eq!(values["process_clone"], json!(workspace.join("clone.fossil")));
        assert_eq!((&values["checkin"], &values["tree"]), (&json!(first), &json!(workspace.join("tree"))));
        assert!(!values.to_string().contains(&password));
    }
    // The server has what they wrote, from their user.
    writer.fossil(&["pull"]);
    let told = writer.fossil(&["timeline", "-t", "ci", "-n", "9"]);
    assert_eq!(told.matches("two (user: builder").count(), 2, "{told}");
    // V2-2.6-21, CARD-22: the password is nowhere but in the clones.
    let root = system.trial.layout().root();
    for place in [root.join("state"), root.join("care"), system.trial.layout().log()] {
        let found = Command::new("grep").args(["-rlF", &password]).arg(&place).output().unwrap();
        assert!(found.stdout.is_empty(), "{}", String::from_utf8_lossy(&found.stdout));
    }
    system.stop();
}

fn passwords() {
    let mut system = System::new();
    let writer = Writer::new(&system);
    std::fs::write(writer.place.join("tree/x"), "x\n").unwrap();
    writer.commit("one");
    let message = with_steps(&system, clone_steps(), "cat $TREE/x");
    let asked = system.post(Where::Thread, &message);
    let note = system.ended(&asked, SOON)["note"].to_string();
    assert!(note.contains("refusal 9: workspace[1] (password)") && note.contains("approve"), "{note}");
    // This host's own file: the second choice, when nothing is approved.
    let file = system.trial.layout().passwords();
    let kept: Value = serde_json::from_slice(&std::fs::read(&file).unwrap()).unwrap();
    let with = |password: &str| {
        let mut kept = kept.clone();
        kept["runs"] = json!({ PROCESS.login: password });
        std::fs::write(&file, kept.to_string()).unwrap();
    };
    with(system.trial.password(PROCESS));
    let asked = system.post(Where::Thread, &message);
    assert_eq!(system.ended(&asked, SOON)["outcome"], json!("exited"));
    with("a wrong one");
    let asked = system.post(Where::Thread, &message);
    let note = system.ended(&asked, SOON)["note"].to_string();
    assert!(note.contains("refusal 9: workspace[2] (clone)") && note.contains("login"), "{note}");
    // V2-2.7-15: what is approved comes first.
    approve(&system);
    let asked = system.post(Where::Thread, &message);
    assert_eq!(system.ended(&asked, SOON)["outcome"], json!("exited"));
    system.stop();
}

fn verdicts() {
    let mut system = System::new();
    crate::publishing::letters(&system, &format!("{}i", NODE.letters));
    let writer = Writer::new(&system);
    std::fs::write(writer.place.join("tree/x"), "x\n").unwrap();
    let first = writer.commit("one");
    let steps = || json!([{"step": "files", "of": "trunk", "into": "$$workspace$$/tree"}]);
    let post = |system: &mut System, script: &str| {
        let mut message = with_steps(system, steps(), script);
        message["run"]["process"]["verdict"] = json!(true);
        system.post(Where::Thread, &message)
    };
    let mut expected = Vec::new();
    for (script, value) in [
        ("exit 0", "pass: exit 0"),
        ("exit 3", "fail: exit 3"),
        ("kill -9 $$", "fail: signal 9"),
        ("ulimit -t 1; while :; do :; done", "fail: signal"),
    ] {
        let asked = post(&mut system, script);
        assert_eq!(system.ended(&asked, SOON)["outcome"], json!("exited"), "{script}");
        expected.push((asked.run.clone(), value));
        let settled = system.trial.layout().root().join("care").join(&asked.run);
        crate::publishing::wait_settled(&system, &asked);
        assert!(!settled.exists());
    }
    // Control: one that is stopped gets none, nor one that asks none.
    let asked = post(&mut system, "sleep 3600.41");
    system.wait_running(&asked);
    system.trial.session(SETUP).unwrap().reply(&asked.run, &crate::ending::stop(&asked.run));
    assert_eq!(system.ended(&asked, SOON)["outcome"], json!("stopped"));
    crate::publishing::wait_settled(&system, &asked);
    let quiet = system.post(Where::Thread, &with_steps(&system, steps(), "exit 0"));
    system.ended(&quiet, SOON);
    crate::publishing::wait_settled(&system, &quiet);
    writer.fossil(&["pull"]);
    // Every tag change that ever came, not only the one Fossil shows (R-V2-03).
    let said = writer.fossil(&["sql", "SELECT uuid FROM blob JOIN event ON objid=rid WHERE type='g' ORDER BY rid"]);
    let mut found = Vec::new();
    for hash in said.lines().map(|line| line.trim_matches(['\'', '"', ' '])) {
        let artifact = writer.fossil(&["artifact", hash]);
        if let Some(tag) = artifact.lines().find(|line| line.starts_with("T +ci ")) {
            assert!(artifact.lines().any(|line| line == format!("U {}", NODE.login)), "{artifact}");
            assert!(tag.starts_with(&format!("T +ci {first} ")), "{tag}");
            found.push(tag.replace("\\s", " "));
        }
    }
    assert_eq!(found.len(), expected.len(), "{found:?}");
    for (run, value) in expected {
        let of_run = found.iter().filter(|tag| tag.contains(&format!("(against {run})"))).collect::<Vec<_>>();
        assert_eq!(of_run.len(), 1, "{found:?}");
        assert!(of_run[0].contains(&format!(" {value}")), "{value}: {of_run:?}");
    }
    system.stop();
}

/// A run whose directory step asks for its removal, with a clone and a checkout.
fn removing(system: &System, script: &str) -> Value {
    let mut message = with_steps(system, clone_steps(), &format!("cd \"$TREE\" && {script}"));
    message["run"]["workspace"][0]["remove_on"] = json!("saved");
    message["run"]["sandbox"]["network"] = json!(true);
    message
}

fn saved() {
    let mut system = System::new();
    let writer = Writer::new(&system);
    std::fs::write(writer.place.join("tree/a.c"), "x\n").unwrap();
    writer.commit("one");
    approve(&system);
    let commit = "echo new > new.c && fossil add new.c >/dev/null && fossil commit -m two --no-warnings --branch";
    let kept: [(&str, String); 7] = [
        ("echo x > made.txt", "kept: EXTRA made.txt".into()),
        ("echo y >> a.c", "kept: EDITED a.c".into()),
        ("echo y >> a.c && fossil stash save -m later >/dev/null", "kept: 1 stash".into()),
        (&format!("fossil settings autosync off && {commit} b1"), "kept: 2 artifacts not sent".into()),
        (
            "for n in 1 2 3 4 5 6; do echo > $n; done",
            "kept: EXTRA 1, EXTRA 2, EXTRA 3, EXTRA 4, EXTRA 5, 6 in all".into(),
        ),
        // Case 28: what it left behind is ended before anything is looked at.
        ("setsid sh -c 'sleep 30; echo > late.txt' >/dev/null 2>&1 & exit 0", PENDING.into()),
        (&format!("{commit} b2 && fossil sync"), PENDING.into()),
    ];
    for (script, expected) in kept {
        let asked = system.post(Where::Thread, &removing(&system, script));
        let ended = system.ended(&asked, SOON);
        let stderr = || system.trial.thread(&asked).unwrap().into_iter().map(|it| it.text).collect::<String>();
        assert_eq!(ended["exit"], json!(0), "{script}: {ended:?} {}", stderr());
        assert_eq!(ended["workspace"], json!(expected), "{script}");
        crate::publishing::wait_settled(&system, &asked);
        let workspace = system.trial.layout().root().join("workspaces").join(&asked.run);
        assert_eq!(workspace.exists(), expected != PENDING, "{script}");
    }
    // V2-2.3-34: with a file that is not sent yet it stays, though all else is saved.
    let mut message = removing(&system, "echo out > ../out.txt");
    message["run"]["process"]["unversioned_files"] = json!([{"at": "$$workspace$$/out.txt", "as": "$$run$$/out.txt"}]);
    let asked = system.post(Where::Thread, &message);
    assert_eq!(system.ended(&asked, SOON)["workspace"], json!(PENDING));
    crate::publishing::wait_settled(&system, &asked);
    let workspace = system.trial.layout().root().join("workspaces").join(&asked.run);
    assert!(workspace.join("out.txt").exists(), "its file was not sent: the clone's user lacks y");
    // Control: with the letter it is sent, and the workspace goes.
    crate::publishing::letters(&system, &format!("{}y", NODE.letters));
    let asked = system.post(Where::Thread, &message);
    assert_eq!(system.ended(&asked, SOON)["workspace"], json!(PENDING));
    crate::publishing::wait_settled(&system, &asked);
    assert!(!system.trial.layout().root().join("workspaces").join(&asked.run).exists());
    system.stop();
}

const PENDING: &str = "kept: publications pending";

fn in_the_way() {
    let mut system = System::new();
    for asked_for in [true, false] {
        let mut message = system.message("touch there; while ! [ -e go/on ]; do sleep 0.05; done");
        message["run"]["workspace"][0]["remove_on"] = json!("saved");
        let asked = system.post(Where::Thread, &message);
        system.wait_running(&asked);
        let workspace = system.trial.layout().root().join("workspaces").join(&asked.run);
        // Not the runs' account's: nothing in it can be removed by a step.
        std::fs::create_dir(workspace.join("go")).unwrap();
        std::fs::write(workspace.join("go/on"), "").unwrap();
        if !asked_for {
            // Control: of that account it can.
            let about = std::fs::metadata(&workspace).unwrap();
            let (uid, gid) = (std::os::unix::fs::MetadataExt::uid(&about), std::os::unix::fs::MetadataExt::gid(&about));
            std::os::unix::fs::chown(workspace.join("go/on"), Some(uid), Some(gid)).unwrap();
            std::os::unix::fs::chown(workspace.join("go"), Some(uid), Some(gid)).unwrap();
        }
        assert_eq!(system.ended(&asked, SOON)["workspace"], json!(PENDING));
        crate::publishing::wait_settled(&system, &asked);
        assert_eq!(workspace.exists(), asked_for);
        if asked_for {
            let reply = system.wait_for(&asked, "text", SOON).text;
            assert!(reply.contains("could not be removed, and stays") && reply.contains("go"), "{reply}");
        } else {
            assert_eq!(system.kinds(&asked), ["started", "ended"]);
        }
    }
    system.stop();
}

fn never_launched() {
    let mut system = System::new();
    let at = |asked: &Asked, system: &System| system.trial.layout().root().join("workspaces").join(&asked.run);
    // No password is approved: the second step fails.
    let steps = json!([{"step": "directory", "at": "$$root$$/$$run$$", "remove_on": "saved"}, {"step": "password"}]);
    for (asks, said) in [(true, json!("removed")), (false, Value::Null)] {
        let mut message = system.message("true");
        message["run"]["workspace"] = steps.clone();
        if !asks {
            message["run"]["workspace"][0].as_object_mut().unwrap().remove("remove_on");
        }
        let asked = system.post(Where::Thread, &message);
        let ended = system.ended(&asked, SOON);
        assert_eq!((&ended["outcome"], ended.get("workspace").unwrap_or(&Value::Null)), (&json!("refused"), &said));
        assert!(!at(&asked, &system).exists());
    }
    // A step that fails once the directory stands.
    let writer = Writer::new(&system);
    std::fs::write(writer.place.join("tree/x"), "x\n").unwrap();
    writer.commit("one");
    approve(&system);
    let mut message = removing(&system, "true");
    message["run"]["workspace"][3]["of"] = json!("no-such-branch");
    let asked = system.post(Where::Thread, &message);
    let ended = system.ended(&asked, SOON);
    assert!(ended["note"].as_str().unwrap().contains("workspace[3] (checkout)"), "{ended:?}");
    assert_eq!(ended["workspace"], json!("removed"));
    assert!(!at(&asked, &system).exists());
    // Without the wish, a workspace stays after its run.
    let mut message = removing(&system, "true");
    message["run"]["workspace"][0].as_object_mut().unwrap().remove("remove_on");
    let asked = system.post(Where::Thread, &message);
    assert!(!system.ended(&asked, SOON).contains_key("workspace"));
    crate::publishing::wait_settled(&system, &asked);
    assert!(at(&asked, &system).exists());
    system.stop();
}

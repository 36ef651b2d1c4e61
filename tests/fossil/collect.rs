//! A process's user's password, collected for one run by the host whose clone is approved for it, and by no other.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;

use ocx::fossil::collect::{CollectError, Password, collect};
use ocx::fossil::{FossilError, Session};
use ocx::protocol::names::{CloneCode, Login};
use ocx::server::approving::{self, Pairing};
use ocx::server::on_host::OnHost;
use serde_json::{Value, json};

use crate::lab::{Lab, hash, ticket};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("v2_2_7_14_the_approved_clones_user_collects_and_no_other", the_approved_one),
    ("v2_2_7_14_only_for_a_run_of_an_admins_that_asks_for_this", only_such_a_run),
    ("v2_2_7_14_no_password_for_a_run_that_has_ended", not_once_ended),
    ("c_62_no_password_over_plain_http_from_elsewhere", not_over_plain_http),
    ("c_62_what_changed_on_the_server_since_is_seen", what_changed_since),
    ("a_store_that_is_not_sound_answers_nothing_and_stays", an_unsound_store),
    ("what_is_not_the_tools_answer_gives_no_password", other_answers),
];

pub(crate) const CODE: &str = "0123456789012345678901234567890123456789";
const OTHER: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";

pub(crate) fn pairing(user: &str, login: &str, clone: &str) -> Pairing {
    Pairing {
        user: Login::new(user).unwrap(),
        login: Login::new(login).unwrap(),
        clone: CloneCode::new(clone).unwrap(),
    }
}

pub(crate) fn approve(lab: &Lab, user: &str, login: &str, clone: &str) {
    let host = OnHost::at(&lab.repository).unwrap();
    approving::approve(&host, &pairing(user, login, clone), false).unwrap();
}

/// The text of a run, as a person posts it.
fn run_text(to: &str, clone: &str, user: &str) -> String {
    let message = json!({"ocx": 2, "to": to, "run": {"clone": clone, "objective": "x",
        "process": {"user": user, "command": ["true"]}}});
    format!("Please.\n\n```json\n{message}\n```\n")
}

fn report_text(run: &str, kind: &str, content: &Value) -> String {
    format!("```json\n{}\n```\n", json!({"ocx": 2, "re": run, kind: content}))
}

fn ended_text(run: &str) -> String {
    report_text(run, "ended", &json!({"outcome": "exited", "exit": 0}))
}

/// A run in the forum, from `sender`.
fn run(lab: &Lab, sender: &str, to: &str, clone: &str, user: &str) -> String {
    hash(lab.session(sender).new_thread("A run", &run_text(to, clone, user)))
}

/// Why the server gave no password.
fn refusal(answer: Result<Password, CollectError>) -> String {
    match answer {
        Err(CollectError::Fossil(FossilError::Stopped { tool, why })) => {
            assert_eq!(tool, "collect");
            why
        }
        other => panic!("{other:?}"),
    }
}

fn log(lab: &Lab, name: &str) -> Vec<Value> {
    let file = lab.repository.with_file_name("ocx").join(name);
    let text = fs::read_to_string(&file).unwrap_or_default();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

pub(crate) fn stored(lab: &Lab, user: &str) -> String {
    lab.ask(&format!("SELECT pw FROM user WHERE login = '{user}'"))
}

fn the_approved_one() {
    let lab = Lab::new();
    let run = run(&lab, "admin", "lab-1", CODE, "builder");
    let lab_1 = lab.session("lab-1");
    // V2-2.5-05: before anyone has approved.
    assert!(refusal(collect(&lab_1, &run, "builder", CODE)).contains("not approved"));
    // The control: until it is approved, builder signs in as before.
    lab.session("builder").sign_in().unwrap();
    approve(&lab, "builder", "lab-1", CODE);
    let password = collect(&lab_1, &run, "builder", CODE).unwrap();
    let builder = Session::new(lab.url(), "builder", password.text()).unwrap();
    builder.sign_in().unwrap();
    assert_eq!(lab.session("builder").sign_in(), Err(FossilError::LoginRefused { user: "builder".into() }));
    // The log says who asked for whom, and never what was told.
    let answered = log(&lab, "collect.log");
    assert_eq!(answered.len(), 1);
    let told = |key: &str| answered[0][key].as_str().unwrap_or_default();
    assert_eq!((told("login"), told("user"), told("clone")), ("lab-1", "builder", CODE));
    assert_eq!((told("run"), told("from"), &answered[0]["stopped"]), (run.as_str(), "127.0.0.1", &Value::Null));
    // The user itself, a person with R, another clone's user, a user who may push, the admin: an admin's letters open nothing.
    for other in [builder, lab.session("bob"), lab.session("lab-2"), lab.session("pusher"), lab.session("admin")] {
        let why = refusal(collect(&other, &run, "builder", CODE));
        assert!(why.contains("not approved"), "{}: {why}", other.user());
    }
    // The same user with a clone that is not approved; another user.
    assert!(refusal(collect(&lab_1, &run, "builder", OTHER)).contains("not approved"));
    assert!(refusal(collect(&lab_1, &run, "pusher", CODE)).contains("not approved"));
    assert_eq!(log(&lab, "collect.log").len(), 1);
    let refused = log(&lab, "collect-refused.log");
    assert_eq!(refused.len(), 8);
    assert!(refused.iter().all(|line| line["stopped"].as_str().unwrap().contains("not approved")));
    let folder = lab.repository.with_file_name("ocx");
    for file in fs::read_dir(&folder).unwrap().map(|it| it.unwrap().path()) {
        assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o077, 0, "{}", file.display());
        let holds = fs::read_to_string(&file).unwrap().contains(password.text());
        assert_eq!(holds, file.ends_with("approvals.json"), "{}", file.display());
    }
}

fn only_such_a_run() {
    let lab = Lab::new();
    for (user, login, clone) in
        [("builder", "lab-1", CODE), ("builder", "lab-1", OTHER), ("pusher", "lab-1", CODE), ("builder", "lab-2", CODE)]
    {
        approve(&lab, user, login, clone);
    }
    let lab_1 = lab.session("lab-1");
    let asked = run(&lab, "admin", "lab-1", CODE, "builder");
    let refused = |run: &str, user: &str, clone: &str| refusal(collect(&lab_1, run, user, clone));
    // R alone sends runs, but none with a password.
    let of_r = run(&lab, "bob", "lab-1", CODE, "builder");
    assert!(refused(&of_r, "builder", CODE).contains("neither admin nor setup"));
    // From the one it is sent to, though it holds admin now.
    let own = run(&lab, "lab-1", "lab-1", CODE, "builder");
    assert!(refused(&own, "builder", CODE).contains("neither admin nor setup"));
    lab.change("UPDATE user SET cap = cap || 'a' WHERE login = 'lab-1'");
    assert!(refused(&own, "builder", CODE).contains("the very user it is sent to"));
    collect(&lab_1, &asked, "builder", CODE).unwrap();
    // What the run says is what counts, to the letter.
    let to_other = run(&lab, "admin", "lab-2", CODE, "builder");
    assert!(refused(&to_other, "builder", CODE).contains("its to is not lab-1"));
    assert!(refused(&asked, "builder", OTHER).contains("its clone is not"));
    assert!(refused(&asked, "pusher", CODE).contains("its process.user is not pusher"));
    let plain = hash(lab.session("admin").new_thread("t", "no run"));
    assert!(refused(&plain, "builder", CODE).contains("it is no run"));
    assert!(refused(&"0".repeat(64), "builder", CODE).contains("not received it"));
    let check_in: String = lab.ask("SELECT uuid FROM blob JOIN event ON objid = rid WHERE type = 'ci'");
    assert!(refused(&check_in, "builder", CODE).contains("no post or ticket change"));
    // lab-2 is approved for the same clone, and asks for the run of lab-1.
    assert!(refusal(collect(&lab.session("lab-2"), &asked, "builder", CODE)).contains("its to is not lab-2"));
    // What it came from is asked of the server now.
    lab.change("UPDATE user SET cap = 'goR4' WHERE login = 'admin'");
    assert!(refused(&asked, "builder", CODE).contains("neither admin nor setup"));
    lab.change("UPDATE user SET cap = 'a' WHERE login = 'admin'");
    collect(&lab_1, &asked, "builder", CODE).unwrap();
    lab.change("UPDATE user SET login = 'gone' WHERE login = 'admin'");
    lab.change("UPDATE user SET uid = 999 WHERE login = 'gone'");
    assert!(refused(&asked, "builder", CODE).contains("neither admin nor setup"));
}

fn not_once_ended() {
    let lab = Lab::new();
    approve(&lab, "builder", "lab-1", CODE);
    let (admin, lab_1) = (lab.session("admin"), lab.session("lab-1"));
    let thread = run(&lab, "admin", "lab-1", CODE, "builder");
    let other = run(&lab, "admin", "lab-1", CODE, "builder");
    let id = ticket(admin.new_ticket("t", &run_text("lab-1", CODE, "builder")));
    let change: String = lab.ask(&format!(
        "SELECT uuid FROM blob JOIN ticketchng ON tkt_rid = rid
        JOIN ticket USING (tkt_id) WHERE tkt_uuid = '{id}'"
    ));
    let ask = |run: &str| collect(&lab_1, run, "builder", CODE);
    // None of these ends it: another's, another run's, one elsewhere, a started, an edit of words about it.
    hash(lab.session("bob").reply(&thread, &ended_text(&thread)));
    hash(lab_1.reply(&thread, &ended_text(&other)));
    hash(lab_1.reply(&other, &ended_text(&thread)));
    ticket(lab_1.change_ticket(&id, &ended_text(&thread)));
    hash(lab_1.reply(&other, &ended_text(&change)));
    hash(lab_1.reply(&thread, &report_text(&thread, "started", &json!({"values": {}}))));
    hash(lab_1.reply(&thread, &report_text(&thread, "ended", &json!({"exit": 0}))));
    for run in [&thread, &other, &change] {
        ask(run).unwrap();
    }
    let started = lab_1.reply(&thread, "words");
    hash(lab_1.reply(&hash(started), &ended_text(&thread)));
    assert!(refusal(ask(&thread)).contains("it has ended"));
    ask(&other).unwrap();
    ask(&change).unwrap();
    ticket(lab_1.change_ticket(&id, &ended_text(&change)));
    assert!(refusal(ask(&change)).contains("it has ended"));
    ask(&other).unwrap();
}

/// A question by hand, with headers as a proxy or an odd client adds them.
fn by_hand(lab: &Lab, run: &str, headers: &[(&str, &str)]) -> (u16, Value) {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let mut request = agent
        .post(format!("{}/ext/ocx/collect", lab.url()))
        .header("Content-Type", "application/json")
        .header("Cookie", lab.cookie("lab-1"));
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    let question = json!({"run": run, "user": "builder", "clone": CODE}).to_string();
    let mut response = request.send(question.as_bytes()).unwrap();
    let answer = response.body_mut().read_to_string().unwrap();
    (response.status().as_u16(), serde_json::from_str(&answer).unwrap())
}

fn not_over_plain_http() {
    let lab = Lab::new();
    approve(&lab, "builder", "lab-1", CODE);
    let run = run(&lab, "admin", "lab-1", CODE, "builder");
    // Fossil believes a proxy on its own host that says for whom it asks.
    let (status, answer) = by_hand(&lab, &run, &[("X-Forwarded-For", "10.0.0.9")]);
    assert_eq!((status, &answer["result"]), (403, &Value::Null));
    assert!(answer["stopped"].as_str().unwrap().contains("plain http"), "{answer}");
    assert_eq!(log(&lab, "collect-refused.log")[0]["from"], "10.0.0.9");
    // The controls: from this host itself, and through the same proxy once it says that it speaks https.
    for headers in [&[][..], &[("X-Forwarded-For", "10.0.0.9"), ("HTTPS", "on")]] {
        let (status, answer) = by_hand(&lab, &run, headers);
        assert_eq!((status, &answer["stopped"]), (200, &Value::Null), "{headers:?}");
        assert!(answer["result"]["password"].is_string() && answer["result"]["user"] == "builder");
        assert_eq!(
            (&answer["tool"], &answer["dry_run"], &answer["log"]),
            (&json!("collect"), &json!(false), &json!([]))
        );
    }
}

fn what_changed_since() {
    let lab = Lab::new();
    approve(&lab, "builder", "lab-1", CODE);
    let run = run(&lab, "admin", "lab-1", CODE, "builder");
    let lab_1 = lab.session("lab-1");
    let ask = || collect(&lab_1, &run, "builder", CODE);
    let before = stored(&lab, "builder");
    for _ in 0..10 {
        ask().unwrap();
    }
    // V2-2.5-06: ten collects reset nothing.
    assert_eq!(stored(&lab, "builder"), before);
    lab.change("UPDATE user SET cap = cap || 'a' WHERE login = 'builder'");
    assert!(refusal(ask()).contains("holds admin"));
    lab.change("UPDATE user SET cap = 'goi' WHERE login = 'builder'");
    ask().unwrap();
    lab.fossil(&["user", "password", "builder", "another", "-R", lab.repository.to_str().unwrap()]);
    let why = refusal(ask());
    assert!(why.contains("not the approved one any more") && why.contains("ocx revoke"), "{why}");
    let host = OnHost::at(&lab.repository).unwrap();
    // Another clone is not approved for a password that does not hold either; afresh, it is.
    assert!(approving::approve(&host, &pairing("builder", "lab-1", OTHER), false).unwrap_err().contains("revoke"));
    approving::revoke(&host, &pairing("builder", "lab-1", CODE), false).unwrap();
    assert!(refusal(ask()).contains("not approved"));
    approve(&lab, "builder", "lab-1", CODE);
    let password = ask().unwrap();
    Session::new(lab.url(), "builder", password.text()).unwrap().sign_in().unwrap();
    lab.change("UPDATE user SET login = 'mason' WHERE login = 'builder'");
    assert!(refusal(ask()).contains("no user of this server"));
}

fn an_unsound_store() {
    let lab = Lab::new();
    approve(&lab, "builder", "lab-1", CODE);
    let run = run(&lab, "admin", "lab-1", CODE, "builder");
    let lab_1 = lab.session("lab-1");
    let password = collect(&lab_1, &run, "builder", CODE).unwrap();
    let store = lab.repository.with_file_name("ocx").join("approvals.json");
    let good = fs::read_to_string(&store).unwrap();
    let host = OnHost::at(&lab.repository).unwrap();
    let before = stored(&lab, "builder");
    let spoilt = |why_of: &str| {
        let why = refusal(collect(&lab_1, &run, "builder", CODE));
        assert!(why.contains("approvals.json") && why.contains(why_of) && !why.contains(password.text()), "{why}");
        let text = fs::read_to_string(&store).unwrap();
        for user in ["builder", "pusher"] {
            let why = approving::approve(&host, &pairing(user, "lab-1", OTHER), false).unwrap_err();
            assert!(why.contains("approvals.json") && !why.contains(password.text()), "{why}");
            assert!(approving::revoke(&host, &pairing(user, "lab-1", CODE), false).is_err());
        }
        assert_eq!(fs::read_to_string(&store).unwrap(), text, "it is not written over");
        assert_eq!(stored(&lab, "builder"), before);
    };
    fs::write(&store, good.get(..good.len() / 2).unwrap()).unwrap();
    spoilt("line");
    fs::write(&store, good.replace("\"by\"", "\"for\"")).unwrap();
    spoilt("line");
    fs::write(&store, &good).unwrap();
    fs::set_permissions(&store, fs::Permissions::from_mode(0o644)).unwrap();
    spoilt("0600");
    fs::set_permissions(&store, fs::Permissions::from_mode(0o600)).unwrap();
    assert_eq!(collect(&lab_1, &run, "builder", CODE), Ok(password));
}

fn other_answers() {
    let ask = |body: &str| {
        let fake = crate::fake::Fake::start(crate::fake::page("200 OK", "Content-Type: application/json\r\n", body));
        let session = Session::new(&fake.url(), "bob", "pw").unwrap();
        collect(&session, &"a".repeat(64), "builder", CODE)
    };
    let answer = |user: &str| {
        json!({"tool": "collect", "dry_run": false, "log": [], "stopped": null,
            "result": {"user": user, "password": "hunter2"}})
        .to_string()
    };
    assert_eq!(ask(&answer("builder")).unwrap().text(), "hunter2");
    for bad in [answer("bob"), answer("builder").replace("hunter2", ""), answer("builder").replace("collect", "clones")]
    {
        match ask(&bad) {
            Err(CollectError::Fossil(FossilError::Answered { why, .. })) => assert!(!why.contains("hunter2"), "{why}"),
            other => panic!("{other:?}"),
        }
    }
}

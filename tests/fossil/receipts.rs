//! Who sent what, by the server's receipts.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};

use ocx::fossil::{Ask, FossilError, Receipt, Session};
use ocx::server::repository;
use sha1::Digest as _;

use crate::lab::{Lab, hash};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("v2_2_2_01_a_forged_user_card_names_no_sender", a_forged_user_card_names_no_sender),
    ("a_held_post_has_no_receipt_until_it_is_approved", a_held_post),
    ("letters_are_told_after_inheritance", letters),
    ("many_names_are_asked_in_batches", many_names),
    ("p7_a_login_longer_than_any_is_no_user_and_spoils_no_question", long_login),
    ("a_deleted_senders_artifact_is_from_nobody", a_deleted_sender),
    ("who_may_not_ask_is_told_so", who_may_not_ask),
    ("the_highest_receipt_grows_with_each_post", high),
];

/// One artifact's receipt, as lab-1 is told.
fn receipt(session: &Session, hash: &str) -> Option<Receipt> {
    session.receipt(&Ask { artifacts: &[hash.to_owned()], ..Ask::default() }).unwrap().artifacts[hash].clone()
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn sha1(text: &str) -> String {
    hex(&sha1::Sha1::digest(text.as_bytes()))
}

fn md5(text: &str) -> String {
    let mut child = Command::new("md5sum").stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    String::from_utf8(child.wait_with_output().unwrap().stdout).unwrap()[..32].to_owned()
}

/// Pushes `artifact` by the sync protocol, as anyone with `i` can; gives its hash and the server's answer.
fn push(lab: &Lab, login: &str, cards: &str) -> (String, String) {
    let artifact = format!("{cards}Z {}\n", md5(cards));
    let hash = hex(&sha3::Sha3_256::digest(artifact.as_bytes()));
    let project: String = lab.ask("SELECT value FROM config WHERE name = 'project-code'");
    let message = format!("push x {project}\nfile {hash} {}\n{artifact}# {hash}\n", artifact.len());
    let secret = sha1(&format!("{project}/{login}/{}", Lab::password(login)));
    let nonce = sha1(&message);
    let body = format!("login {login} {nonce} {}\n{message}", sha1(&format!("{nonce}{secret}")));
    let address = lab.url().strip_prefix("http://").unwrap();
    let mut stream = TcpStream::connect(address).unwrap();
    write!(
        stream,
        "POST /xfer HTTP/1.0\r\nHost: {address}\r\nContent-Type: application/x-fossil-uncompressed\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
    .unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    (hash, String::from_utf8_lossy(&answer).into_owned())
}

fn a_forged_user_card_names_no_sender() {
    let lab = Lab::new();
    let asker = lab.session("lab-1");
    let text = "a run, it says, of the admin's";
    let cards = format!("D 2026-01-01T00:00:00.000\nH forged\nN text/x-markdown\nU admin\nW {}\n{text}\n", text.len());
    let (forged, answer) = push(&lab, "pusher", &cards);
    assert!(answer.contains("errors 0") && !answer.contains("\nerror "), "{answer}");
    // The control: Fossil itself shows the admin as its author.
    let shown: String = lab.ask(&format!("SELECT user FROM event JOIN blob ON objid = rid WHERE uuid = '{forged}'"));
    assert_eq!(shown, "admin");
    assert_eq!(receipt(&asker, &forged).unwrap().from.as_deref(), Some("pusher"));
    let real = hash(lab.session("admin").new_thread("t", text));
    assert_eq!(receipt(&asker, &real).unwrap().from.as_deref(), Some("admin"));
    // A user without `i` pushes nothing.
    let (refused, _) = push(&lab, "bob", &cards.replace("forged", "another"));
    assert_eq!(receipt(&asker, &refused), None);
    // Forged in a ticket change too.
    let id = "0123456789012345678901234567890123456789";
    let (forged, _) =
        push(&lab, "pusher", &format!("D 2026-01-01T00:00:00.000\nJ icomment forged\nJ title x\nK {id}\nU admin\n"));
    assert_eq!(receipt(&asker, &forged).unwrap().from.as_deref(), Some("pusher"));
    assert_eq!(lab.ask::<String>("SELECT tkt_user FROM ticketchng"), "admin");
}

fn a_held_post() {
    let lab = Lab::new();
    let asker = lab.session("lab-1");
    let held = hash(lab.session("held").new_thread("t", "for a moderator"));
    assert_eq!(lab.ask::<u32>("SELECT count(*) FROM modreq"), 1, "it is held");
    assert_eq!(receipt(&asker, &held), None);
    lab.form("admin", "/forume2", &[("fpid", &held), ("approve", "1")]);
    assert_eq!(lab.ask::<u32>("SELECT count(*) FROM modreq"), 0, "it is approved");
    assert_eq!(receipt(&asker, &held).unwrap().from.as_deref(), Some("held"));
}

fn letters() {
    let lab = Lab::new();
    lab.change(
        "UPDATE user SET cap = 'j' WHERE login = 'nobody'; UPDATE user SET cap = 'hz' WHERE login = 'anonymous';",
    );
    repository::set_user(&lab.repository, &repository::ServerUser { login: "dev", password: "x", letters: "vR" })
        .unwrap();
    let users: Vec<String> = ["admin", "lab-1", "bob", "dev", "who"].map(str::to_owned).to_vec();
    let receipts = lab.session("lab-1").receipt(&Ask { users: &users, ..Ask::default() }).unwrap();
    let user = |login: &str| receipts.users[login].clone().unwrap();
    assert!(user("admin").admin && user("admin").setup && !user("admin").r);
    assert!(user("lab-1").node && !user("lab-1").admin);
    assert!(user("bob").r && !user("bob").node && !user("bob").setup);
    assert_eq!(user("dev").letters, "ehijovzR");
    assert_eq!(receipts.users["who"], None);
    assert_eq!(receipts.caller.login, "lab-1");
    assert_eq!(receipts.caller.letters, user("lab-1").letters);
    // Fossil's own words for those of its letters that it tells.
    let stored = lab.fossil(&[
        "sql",
        "-R",
        lab.repository.to_str().unwrap(),
        "SELECT fullcap(cap) FROM user WHERE login = 'dev'",
    ]);
    let stored = String::from_utf8(stored).unwrap();
    for letter in stored.trim().trim_matches('\'').chars() {
        assert!(user("dev").letters.contains(letter), "{letter} of {stored}");
    }
}

fn many_names() {
    let lab = Lab::new();
    let bob = lab.session("bob");
    let post = hash(bob.new_thread("t", "x"));
    let mut artifacts: Vec<String> = (0..1200).map(|n| format!("{n:064x}")).collect();
    artifacts.push(post.clone());
    let users: Vec<String> = (0..700).map(|n| format!("user{n}")).collect();
    let receipts = lab.session("lab-1").receipt(&Ask { artifacts: &artifacts, users: &users, high: true }).unwrap();
    assert_eq!(receipts.artifacts.len(), 1201);
    assert_eq!(receipts.users.len(), 701, "the 700 asked, and the one sender");
    assert_eq!(receipts.artifacts[&post].as_ref().unwrap().from.as_deref(), Some("bob"));
    assert!(receipts.high >= Some(receipts.artifacts[&post].as_ref().unwrap().receipt));
}

fn long_login() {
    let lab = Lab::new();
    let users = ["bob".to_owned(), "x".repeat(200), "x".repeat(201), "\u{1}".repeat(1 << 20)];
    let receipts = lab.session("lab-1").receipt(&Ask { users: &users, ..Ask::default() }).unwrap();
    assert!(receipts.users["bob"].is_some());
    assert!(users[1..].iter().all(|login| receipts.users[login].is_none()));
}

fn a_deleted_sender() {
    let lab = Lab::new();
    let post = hash(lab.session("bob").new_thread("t", "x"));
    let asker = lab.session("lab-1");
    assert_eq!(receipt(&asker, &post).unwrap().from.as_deref(), Some("bob"));
    lab.change("DELETE FROM user WHERE login = 'bob'");
    assert_eq!(receipt(&asker, &post).unwrap().from, None);
}

fn who_may_not_ask() {
    let lab = Lab::new();
    for login in ["held", "looker"] {
        let error = lab.session(login).receipt(&Ask::default()).unwrap_err();
        assert!(matches!(error, FossilError::Stopped { .. }), "{login}: {error}");
    }
    for login in ["admin", "lab-1", "pusher"] {
        assert_eq!(lab.session(login).receipt(&Ask::default()).unwrap().caller.login, login);
    }
    // A letter taken holds from the next question on.
    let session = lab.session("lab-1");
    session.receipt(&Ask::default()).unwrap();
    repository::set_letters(&lab.repository, "lab-1", "o").unwrap();
    assert!(matches!(session.receipt(&Ask::default()), Err(FossilError::Stopped { .. })));
    repository::set_letters(&lab.repository, "lab-1", "oC").unwrap();
    // And an ended session is renewed.
    repository::end_session(&lab.repository, "lab-1").unwrap();
    session.receipt(&Ask::default()).unwrap();
}

fn high() {
    let lab = Lab::new();
    let asker = lab.session("lab-1");
    let high = || asker.receipt(&Ask { high: true, ..Ask::default() }).unwrap().high.unwrap();
    let before = high();
    let post = hash(lab.session("bob").new_thread("t", "x"));
    assert!(high() > before);
    assert_eq!(receipt(&asker, &post).unwrap().receipt, high());
    assert_eq!(asker.receipt(&Ask::default()).unwrap().high, None);
}

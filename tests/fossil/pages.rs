//! Signing in and posting to a real server.

use std::time::{Duration, Instant};

use ocx::fossil::{Again, FossilError, Posted, Session};
use ocx::server::repository;

use crate::lab::{Lab, WAIT, ask, hash, ticket};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("login_right_and_wrong", login_right_and_wrong),
    ("a_session_ended_by_an_admin_is_renewed_once", a_session_ended_by_an_admin_is_renewed_once),
    ("posts_and_replies_are_stored_byte_for_byte", posts_and_replies_are_stored_byte_for_byte),
    ("tickets_and_remarks_are_stored_byte_for_byte", tickets_and_remarks_are_stored_byte_for_byte),
    ("ten_digits_are_what_a_server_of_default_settings_tells", ten_digits),
    ("definite_refusals_are_never_tried_again", definite_refusals),
    ("a_locked_database_is_met_by_trying_again", a_locked_database_is_met_by_trying_again),
    ("a_lock_that_stays_is_reported_as_later", a_lock_that_stays_is_reported_as_later),
    ("eight_writers_lose_nothing_and_double_nothing", eight_writers),
    ("a_large_text_is_stored_whole", a_large_text_is_stored_whole),
];

/// What Fossil has from 2.23 on.
pub(crate) const TESTS_FROM_2_23: &[(&str, fn())] = &[("a_closed_thread_is_a_definite_refusal", a_closed_thread)];

const TEXT: &str =
    "```ocx\n{\"ocx\": 2, \"to\": \"lab-1\"}\n```\n\ttab, é, 漢字, \\n \\s <b>&amp;</b> %41 + \"'\n\nend";

fn login_right_and_wrong() {
    let lab = Lab::new();
    for login in ["admin", "lab-1", "bob", "looker"] {
        lab.session(login).sign_in().unwrap();
    }
    for (login, password) in [("bob", "no"), ("who", "bob pw"), ("bob", "")] {
        let error = Session::new(lab.url(), login, password).unwrap().sign_in().unwrap_err();
        match password {
            "" => assert!(matches!(error, FossilError::Answered { status: 200, .. }), "{error}"),
            _ => assert_eq!(error, FossilError::LoginRefused { user: login.to_owned() }),
        }
    }
    repository::set_letters(&lab.repository, "bob", "").unwrap();
    assert!(matches!(lab.session("bob").sign_in(), Err(FossilError::LoginRefused { .. })));
}

fn a_session_ended_by_an_admin_is_renewed_once() {
    let lab = Lab::new();
    let session = lab.session("bob");
    let root = hash(session.new_thread("one", "first"));
    for end in [true, false, true] {
        if end {
            repository::end_session(&lab.repository, "bob").unwrap();
        }
        hash(session.reply(&root, "again"));
        if end {
            repository::end_session(&lab.repository, "bob").unwrap();
        }
        ticket(session.new_ticket("t", "again"));
    }
    assert_eq!(lab.ask::<u32>("SELECT count(*) FROM event WHERE type = 'f'"), 4);
    assert_eq!(lab.ask::<u32>("SELECT count(*) FROM event WHERE type = 't'"), 3);
    // Ended for good: the password is another now.
    repository::set_user(&lab.repository, &repository::ServerUser { login: "bob", password: "new", letters: "34" })
        .unwrap();
    hash(session.reply(&root, "a session survives a new password"));
    repository::end_session(&lab.repository, "bob").unwrap();
    match session.reply(&root, "not this one") {
        Posted::NotStored { why, again: Again::Later } => assert!(why.contains("login as bob: refused"), "{why}"),
        other => panic!("{other:?}"),
    }
}

fn posts_and_replies_are_stored_byte_for_byte() {
    let lab = Lab::new();
    let session = lab.session("bob");
    let root = hash(session.new_thread("A title, é", TEXT));
    let reply = hash(session.reply(&root, TEXT));
    assert_eq!((root.len(), reply.len()), (64, 64), "hash-digits 64 tells whole hashes");
    for hash in [&root, &reply] {
        let artifact = lab.fossil(&["artifact", hash, "-R", lab.repository.to_str().unwrap()]);
        let artifact = String::from_utf8(artifact).unwrap();
        assert!(artifact.contains(&format!("W {}\n{TEXT}\nZ ", TEXT.len())), "{artifact}");
        assert!(artifact.contains("\nN text/x-markdown\n"), "{artifact}");
        assert!(artifact.contains("\nU bob\n"), "{artifact}");
    }
    // A prefix is enough to answer.
    hash(session.reply(&root[..10], "by a prefix"));
    assert_eq!(lab.ask::<u32>("SELECT count(*) FROM forumpost"), 3);
}

fn tickets_and_remarks_are_stored_byte_for_byte() {
    let lab = Lab::new();
    let session = lab.session("bob");
    let id = ticket(session.new_ticket("A title", TEXT));
    assert_eq!(ticket(session.change_ticket(&id, TEXT)), id);
    assert_eq!(ticket(session.change_ticket(&id[..12], "by a prefix")), id);
    // Who may append but not file sees no page with the token in 2.21.
    ticket(lab.session("appender").change_ticket(&id, "by one who appends"));
    let remarks: String =
        lab.ask("SELECT group_concat(icomment, '|') FROM (SELECT icomment FROM ticketchng ORDER BY tkt_rid)");
    assert_eq!(remarks, format!("{TEXT}|{TEXT}|by a prefix|by one who appends"));
    assert_eq!(lab.ask::<u32>("SELECT count(*) FROM ticketchng WHERE mimetype = 'text/x-markdown'"), 4);
    assert_eq!(lab.ask::<String>("SELECT title FROM ticket"), "A title");
}

fn ten_digits() {
    let lab = Lab::new();
    repository::set(&lab.repository, &[("hash-digits", "10")]).unwrap();
    let digits = hash(lab.session("bob").new_thread("t", "x"));
    assert_eq!(digits.len(), 10);
    assert_eq!(lab.ask::<u32>(&format!("SELECT count(*) FROM blob WHERE uuid GLOB '{digits}*'")), 1);
}

fn definite_refusals() {
    let lab = Lab::new();
    let before: u32 = lab.ask("SELECT count(*) FROM blob");
    let never = |posted: Posted| match posted {
        Posted::NotStored { again: Again::Never, why } => why,
        other => panic!("{other:?}"),
    };
    let bob = lab.session("bob");
    never(bob.reply(&"0".repeat(64), "to no post"));
    never(lab.session("looker").new_thread("t", "without the letter 3"));
    never(lab.session("looker").reply(&"0".repeat(64), "without the letter 3"));
    never(lab.session("looker").new_ticket("t", "without the letter n"));
    never(lab.session("looker").change_ticket(&"0".repeat(40), "without the letter w"));
    assert_eq!(lab.ask::<u32>("SELECT count(*) FROM blob"), before, "nothing was stored");
    // The control: with the right, the same is stored.
    hash(bob.new_thread("t", "with the letter 3"));
    // A blank text is answered by the form, which says nothing: not stored, and not a definite refusal.
    assert!(matches!(bob.new_thread("t", "  \n"), Posted::NotStored { again: Again::Later, .. }));
    assert_eq!(lab.ask::<u32>("SELECT count(*) FROM blob"), before + 1);
}

/// Holds the write lock of the server's file without committing, as a slow push does.
fn hold_lock(lab: &Lab) -> rusqlite::Connection {
    let db = rusqlite::Connection::open(&lab.repository).unwrap();
    db.busy_timeout(WAIT).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    db
}

fn a_locked_database_is_met_by_trying_again() {
    let lab = Lab::new();
    let session = lab.session("bob");
    let root = hash(session.new_thread("t", "x"));
    let id = ticket(session.new_ticket("t", "x"));
    let db = hold_lock(&lab);
    std::thread::scope(|scope| {
        let post = scope.spawn(|| hash(session.reply(&root, "under a lock")));
        let change = scope.spawn(|| ticket(session.change_ticket(&id, "under a lock")));
        std::thread::sleep(Duration::from_millis(1500));
        assert!(!post.is_finished() && !change.is_finished(), "they are still trying");
        db.execute_batch("COMMIT").unwrap();
        post.join().unwrap();
        change.join().unwrap();
    });
    assert_eq!(lab.ask::<u32>("SELECT count(*) FROM forumpost"), 2);
    assert_eq!(lab.ask::<u32>("SELECT count(*) FROM ticketchng"), 2);
}

fn a_lock_that_stays_is_reported_as_later() {
    let lab = Lab::new();
    let session = lab.session("bob");
    let root = hash(session.new_thread("t", "x"));
    let db = hold_lock(&lab);
    let began = Instant::now();
    match session.reply(&root, "under a lock") {
        Posted::NotStored { why, again: Again::Later } => assert!(why.contains("database is locked"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(began.elapsed() > Duration::from_secs(2), "it was tried again");
    drop(db);
    assert_eq!(ask::<u32>(&lab.repository, "SELECT count(*) FROM forumpost"), 1);
}

fn eight_writers() {
    const WRITERS: usize = 8;
    const POSTS: usize = 12;
    let lab = Lab::new();
    let root = hash(lab.session("bob").new_thread("t", "root"));
    std::thread::scope(|scope| {
        for writer in 0..WRITERS {
            let (lab, root) = (&lab, &root);
            scope.spawn(move || {
                let session = lab.session(if writer % 2 == 0 { "bob" } else { "lab-1" });
                for post in 0..POSTS {
                    let text = format!("writer {writer} post {post}");
                    // On a machine under load a lock may outlast the tries inside: then it is told, and nothing lost.
                    while let Posted::NotStored { again, why } = session.reply(root, &text) {
                        assert_eq!(again, Again::Later, "{why}");
                    }
                }
            });
        }
    });
    let posts = u32::try_from(WRITERS * POSTS + 1).unwrap();
    assert_eq!(lab.ask::<u32>("SELECT count(*) FROM forumpost"), posts);
    assert_eq!(lab.ask::<u32>("SELECT count(DISTINCT uuid) FROM blob JOIN forumpost ON fpid = rid"), posts);
}

fn a_large_text_is_stored_whole() {
    let lab = Lab::new();
    let text = format!("{}end", "line é\n".repeat(300_000));
    let hash = hash(lab.session("bob").new_thread("t", &text));
    let artifact = lab.fossil(&["artifact", &hash, "-R", lab.repository.to_str().unwrap()]);
    assert!(String::from_utf8(artifact).unwrap().contains(&format!("W {}\n{text}\nZ ", text.len())));
}

fn a_closed_thread() {
    let lab = Lab::new();
    let bob = lab.session("bob");
    let root = hash(bob.new_thread("t", "x"));
    hash(bob.reply(&root, "while it is open"));
    lab.form("admin", "/forumpost_close", &[("fpid", &root), ("reason", "enough")]);
    match bob.reply(&root, "too late") {
        Posted::NotStored { why, again: Again::Never } => assert!(why.contains("closed"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert_eq!(lab.ask::<u32>("SELECT count(*) FROM forumpost"), 2);
    // Another thread of the same user is open.
    hash(bob.new_thread("t", "y"));
}

//! Stored, not stored, unknown: servers that answer wrongly, half, or not at all.

use std::sync::atomic::Ordering;
use std::time::Duration;

use ocx::fossil::{Again, Ask, FossilError, Posted, Session};

use crate::fake::{Fake, Then, page};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_server_that_does_not_answer_leaves_the_outcome_unknown", silent),
    ("an_answer_cut_short_leaves_the_outcome_unknown", cut_short),
    ("answers_that_say_not_stored_are_told_by_when_to_try_again", not_stored),
    ("only_the_servers_own_redirect_is_stored", redirects),
    ("a_server_that_is_down_was_sent_nothing", down),
    ("a_login_that_is_not_answered_stores_nothing", login_unanswered),
    ("no_page_passes_for_a_receipt_or_a_bell", no_page_passes),
];

const HASH: &str = "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa";
const ID: &str = "0123456789012345678901234567890123456789";

fn session(fake: &Fake) -> Session {
    Session::new(&fake.url(), "bob", "pw").unwrap().answer_within(Duration::from_secs(1))
}

fn silent() {
    let fake = Fake::start(Then::Nothing);
    let session = session(&fake);
    assert!(matches!(session.reply(HASH, "x"), Posted::Unknown { .. }));
    assert!(matches!(session.change_ticket(ID, "x"), Posted::Unknown { .. }));
    assert_eq!(fake.asked.load(Ordering::Relaxed), 2, "an unknown outcome is never sent again");
    let error = session.chat_wait(0, Duration::from_secs(1)).unwrap_err();
    assert!(matches!(error, FossilError::NoAnswer { .. }), "{error}");
}

fn cut_short() {
    for half in
        ["", "HTTP/1.0 200 OK\r\nContent-Le", "HTTP/1.0 200 OK\r\nContent-Length: 500\r\n\r\nxx", "garbage\r\n\r\n"]
    {
        let fake = Fake::start(Then::Say(half.as_bytes().to_vec()));
        let posted = session(&fake).reply(HASH, "x");
        assert!(matches!(posted, Posted::Unknown { .. }), "{half:?}: {posted:?}");
        assert_eq!(fake.asked.load(Ordering::Relaxed), 1);
    }
    for half in ["", "HTTP/1.0 302 Moved\r\nLocation: /forumpost/", "HTTP/1.0 200 OK\r\nContent-Length: 500\r\n\r\nxx"]
    {
        let fake = Fake::start(Then::Stall(half.as_bytes().to_vec()));
        let posted = session(&fake).reply(HASH, "x");
        assert!(matches!(posted, Posted::Unknown { .. }), "{half:?} and a stall: {posted:?}");
    }
    // The control: a redirect whose body is cut is a whole answer.
    let fake = Fake::start(Then::Say(
        format!("HTTP/1.0 302 Moved\r\nLocation: /forumpost/{HASH}\r\nContent-Length: 500\r\n\r\nxx").into_bytes(),
    ));
    assert_eq!(session(&fake).reply(HASH, "x"), Posted::Stored { hash_digits: Some(HASH.into()), ticket: None });
}

fn not_stored() {
    let robot = "<html><title>Browser Verification</title>I think you are a robot</html>";
    let closed =
        "<div class='error'>This (sub)thread is CLOSED and can only be\nedited or replied to by an admin user.</div>";
    for (again, status, body) in [
        (Again::Later, "500 Internal Server Error", "<h1>oops</h1>"),
        (Again::Later, "503 Service Unavailable", "Server Overload"),
        (Again::Later, "200 OK", robot),
        (Again::Later, "200 OK", "<h1>maintenance</h1>"),
        (Again::Later, "400 Bad Request", "Database error: database or disk is full"),
        (Again::Later, "404 Not Found", "no backend"),
        (Again::Never, "200 OK", closed),
        (Again::Never, "400 Bad Request", "invalid fpid"),
        (Again::Never, "500 Internal Server Error", "Missing or invalid fpid query parameter"),
    ] {
        let fake = Fake::start(page(status, "Content-Type: text/html\r\n", body));
        match session(&fake).reply(HASH, "x") {
            Posted::NotStored { again: told, why } if told == again => assert!(!why.is_empty()),
            other => panic!("{status} {body}: {other:?}"),
        }
        assert_eq!(fake.asked.load(Ordering::Relaxed), 1, "{status} {body}");
    }
    // A server in front that gave up on the one behind, which may have stored it.
    for status in ["502 Bad Gateway", "504 Gateway Timeout"] {
        let fake = Fake::start(page(status, "Content-Type: text/html\r\n", "x"));
        assert!(matches!(session(&fake).reply(HASH, "x"), Posted::Unknown { .. }), "{status}");
    }
}

fn redirects() {
    for elsewhere in [
        "https://example.org/".to_owned(),
        format!("http://127.0.0.1:1/forumpost/{HASH}"),
        format!("//example.org/forumpost/{HASH}"),
        format!("/tktview/{ID}"),
        "/forumpost/xyz".to_owned(),
        "/forum".to_owned(),
        String::new(),
    ] {
        let fake = Fake::start(page("302 Moved", &format!("Location: {elsewhere}\r\n"), ""));
        let posted = session(&fake).reply(HASH, "x");
        assert!(matches!(posted, Posted::NotStored { again: Again::Later, .. }), "{elsewhere}: {posted:?}");
    }
    // To the login page, twice: the letter is what lacks; and it was sent again only once.
    let fake = Fake::start(page("302 Moved", "Location: /login?g=forume2\r\n", ""));
    assert!(matches!(session(&fake).reply(HASH, "x"), Posted::NotStored { again: Again::Never, .. }));
    assert_eq!(fake.asked.load(Ordering::Relaxed), 2);
    let fake = Fake::start(page("302 Moved", &format!("Location: /forumpost/{HASH}\r\n"), ""));
    assert_eq!(session(&fake).reply(HASH, "x"), Posted::Stored { hash_digits: Some(HASH.into()), ticket: None });
}

fn down() {
    // A port that was free a moment ago.
    let port = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let session = Session::new(&format!("http://127.0.0.1:{port}"), "bob", "pw").unwrap();
    match session.reply(HASH, "x") {
        Posted::NotStored { again: Again::Later, why } => assert!(why.contains("nothing was sent"), "{why}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(session.receipt(&Ask::default()), Err(FossilError::NoConnection { .. })));
    assert!(matches!(session.chat_wait(0, Duration::from_secs(1)), Err(FossilError::NoConnection { .. })));
}

fn login_unanswered() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let session = Session::new(&url, "bob", "pw").unwrap().answer_within(Duration::from_secs(1));
    match session.reply(HASH, "x") {
        Posted::NotStored { again: Again::Later, why } => assert!(why.contains("POST /login"), "{why}"),
        other => panic!("{other:?}"),
    }
}

fn no_page_passes() {
    let good = r#"{"tool":"receipt","dry_run":false,"log":[],"stopped":null,"result":{"artifacts":{},"users":{},"caller":{"login":"bob","letters":"oC"}}}"#;
    let json = "Content-Type: application/json\r\n";
    let html = "Content-Type: text/html\r\n";
    let fake = Fake::start(page("200 OK", json, good));
    assert_eq!(session(&fake).receipt(&Ask::default()).unwrap().caller.login, "bob");
    let other = good.replace("\"bob\"", "\"eve\"");
    for (status, kind, body) in [
        ("200 OK", html, "Not Found"),
        ("200 OK", html, "<html>I think you are a robot</html>"),
        ("200 OK", html, good),
        ("200 OK", json, "{}"),
        ("200 OK", json, &good[..good.len() / 2]),
        ("200 OK", json, other.as_str()),
        ("404 Not Found", html, "<h1>Page not found</h1>"),
        ("503 Service Unavailable", html, "overload"),
    ] {
        let fake = Fake::start(page(status, kind, body));
        let session = session(&fake);
        let error = session.receipt(&Ask::default()).unwrap_err();
        assert!(matches!(error, FossilError::Answered { .. }), "{body}: {error}");
        assert!(session.chat_wait(0, Duration::from_secs(1)).is_err(), "{body}");
    }
}

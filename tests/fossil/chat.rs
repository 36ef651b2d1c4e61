//! The bell.

use std::time::{Duration, Instant};

use ocx::fossil::FossilError;
use ocx::server::repository;

use crate::lab::{Lab, WAIT, hash};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_post_wakes_a_waiter", a_post_wakes_a_waiter),
    ("what_is_posted_before_anyone_waits_rings_once_the_chat_has_begun", begun),
    ("no_title_silences_the_bell", no_title_silences_the_bell),
    ("an_empty_answer_is_an_answer", an_empty_answer_is_an_answer),
    ("a_user_without_chat_is_told_so", a_user_without_chat_is_told_so),
];

fn a_post_wakes_a_waiter() {
    let lab = Lab::new();
    repository::set(&lab.repository, &[("chat-poll-timeout", "30")]).unwrap();
    let listener = lab.session("lab-1");
    let bob = lab.session("bob");
    // The first call makes the table, without which nothing would ring.
    std::thread::scope(|scope| {
        let first = scope.spawn(|| listener.chat_wait(0, WAIT));
        std::thread::sleep(Duration::from_millis(500));
        hash(bob.new_thread("t", "x"));
        assert!(first.join().unwrap().unwrap() > 0);
    });
    let at = listener.chat_wait(0, WAIT).unwrap();
    let began = Instant::now();
    std::thread::scope(|scope| {
        let waiter = scope.spawn(|| listener.chat_wait(at, WAIT));
        std::thread::sleep(Duration::from_millis(300));
        bob.new_ticket("t", "x");
        assert!(waiter.join().unwrap().unwrap() > at);
    });
    assert!(began.elapsed() < Duration::from_secs(20), "woken, not timed out");
    // What came while nobody waited is told at once; and an ended session is renewed.
    bob.new_ticket("t", "y");
    repository::end_session(&lab.repository, "lab-1").unwrap();
    assert!(listener.chat_wait(at + 1, WAIT).unwrap() > at + 1);
}

fn begun() {
    for (begins, poll) in [(true, "120"), (false, "3")] {
        let lab = Lab::new();
        repository::set(&lab.repository, &[("chat-poll-timeout", poll)]).unwrap();
        let listener = lab.session("lab-1");
        if begins {
            let began = Instant::now();
            listener.chat_begin().unwrap();
            assert!(began.elapsed() < WAIT, "it waits for no message");
        }
        hash(lab.session("bob").new_thread("t", "x"));
        // The control: a chat that nobody has asked rings for nobody.
        assert_eq!(listener.chat_wait(0, WAIT).unwrap() > 0, begins);
    }
}

fn no_title_silences_the_bell() {
    let lab = Lab::new();
    repository::set(&lab.repository, &[("chat-poll-timeout", "1")]).unwrap();
    let listener = lab.session("lab-1");
    let bob = lab.session("bob");
    listener.chat_wait(0, WAIT).unwrap();
    let control: String = (1u8..32).map(char::from).collect();
    for title in [
        control.as_str(),
        "\u{7f}\u{80}\u{85}\u{2028}\u{feff}",
        "\"}]}, \\ \\u d \\ud800 \\x",
        "</script><!--",
        "\u{10ffff}",
    ] {
        let at = listener.chat_wait(0, WAIT).unwrap();
        hash(bob.new_thread(title, "x"));
        let rung = listener.chat_wait(at, WAIT).unwrap();
        assert!(rung > at && rung < 1000, "{title:?}: {rung}");
    }
}

fn an_empty_answer_is_an_answer() {
    let lab = Lab::new();
    repository::set(&lab.repository, &[("chat-poll-timeout", "1")]).unwrap();
    let listener = lab.session("lab-1");
    let at = listener.chat_wait(0, WAIT).unwrap();
    assert_eq!(listener.chat_wait(at, WAIT), Ok(at));
}

fn a_user_without_chat_is_told_so() {
    let lab = Lab::new();
    assert!(matches!(lab.session("deaf").chat_begin(), Err(FossilError::Answered { .. })));
    match lab.session("deaf").chat_wait(0, WAIT) {
        Err(FossilError::Answered { why, .. }) => assert!(why.contains("refused"), "{why}"),
        other => panic!("{other:?}"),
    }
}

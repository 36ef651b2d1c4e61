//! What holds of every answer of a server and every artifact of a clone, as it was made and as noise or a hostile peer
//! changed it: nothing panics, and what is believed is what was asked.
#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]

use serde_json::{Value, json};

use super::http::Answer;
use super::{cards, chat, checkin, collect, delta, listing, receipt, tool};
use crate::random::{Random, hold, is};

/// An answer of this text, spoiled a few times, or not.
fn spoiled(random: &mut Random, text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..random.below(4) {
        random.spoil(&mut bytes);
    }
    // As the client makes text of what it is sent.
    String::from_utf8_lossy(&bytes).into_owned()
}

fn answer(random: &mut Random, text: &str) -> Answer {
    Answer {
        status: *random.one_of(&[200, 200, 200, 302, 401, 500]),
        location: None,
        content_type: (*random.one_of(&["application/json", "text/json", "text/html", ""])).to_owned(),
        cookies: Vec::new(),
        text: spoiled(random, text),
    }
}

#[test]
fn c_60_receipts_that_are_believed_answer_what_was_asked() {
    let good = json!({
        "high": 9,
        "artifacts": {"aa": {"receipt": 4, "row": 5, "from": "bob"}, "bb": null},
        "users": {"bob": {"admin": false, "setup": false, "R": true, "letters": "Rgo", "node": false}, "eve": null},
        "caller": {"login": "lab-1", "letters": "goC4w"},
    });
    let (artifacts, users) = (["aa".to_owned(), "bb".to_owned()], ["eve".to_owned()]);
    hold(|random| {
        let Ok(told) = serde_json::from_str::<Value>(&spoiled(random, &good.to_string())) else { return Ok(()) };
        let Ok(read) = receipt::check(&told, "lab-1", &artifacts, &users, true) else { return Ok(()) };
        is("asked as another", read.caller.login == "lab-1")?;
        is("an artifact is lacking", artifacts.iter().all(|hash| read.artifacts.contains_key(hash)))?;
        is("a user is lacking", users.iter().all(|login| read.users.contains_key(login)))?;
        let senders = read.artifacts.values().flatten().filter_map(|it| it.from.as_ref());
        is("a sender is lacking", senders.into_iter().all(|login| read.users.contains_key(login)))
    });
}

#[test]
fn c_62_a_password_that_is_believed_is_of_the_user_asked_and_can_be_typed() {
    let good = json!({"user": "builder", "password": "0123456789abcdef"}).to_string();
    hold(|random| {
        let Ok(told) = serde_json::from_str::<Value>(&spoiled(random, &good)) else { return Ok(()) };
        let Ok(password) = collect::check(&told, "builder") else { return Ok(()) };
        is("of another user", told.get("user").and_then(Value::as_str) == Some("builder"))?;
        is("no password", !password.text().is_empty() && !password.text().chars().any(char::is_control))
    });
}

#[test]
fn a_result_that_is_believed_is_the_tools_own() {
    let good = r#"{"tool":"receipt","dry_run":false,"log":[],"stopped":null,"result":{"a":1}}"#;
    hold(|random| {
        let answer = answer(random, good);
        let believed = tool::result("receipt", &answer);
        is(
            "of another status or kind",
            believed.is_err() || answer.status == 200 && answer.content_type == "application/json",
        )
    });
}

#[test]
fn the_bell_never_goes_back() {
    let good = r#"{"msgs":[{"msgid":8,"mtime":"x","xmsg":"","uclr":""},{"msgid":12,"xmsg":"\u00e9"}]}"#;
    hold(|random| {
        let answer = answer(random, good);
        match chat::read(&answer, 7) {
            Ok(chat::Bell::Highest(highest)) => is("it went back", highest >= 7),
            Ok(chat::Bell::Error(_)) | Err(_) => Ok(()),
        }
    });
}

#[test]
fn a_listing_is_read_whole_or_not_at_all() {
    let good = r#"[{"login":"lab-1","clone":"ab","host":"h","release":"r","seen":"t"},{"login":"lab-2","clone":"cd","host":"h","release":"r","seen":"t"}]"#;
    hold(|random| {
        let Ok(told) = serde_json::from_str::<Value>(&spoiled(random, good)) else { return Ok(()) };
        let read = listing::read(&told);
        is("a line was lost", read.is_none_or(|lines| Some(lines.len()) == told.as_array().map(Vec::len)))
    });
}

#[test]
fn c_98_files_of_a_check_in_have_names_and_hashes_or_it_is_not_read() {
    let (a, b) = ("a".repeat(64), "b".repeat(40));
    let good = format!(
        "B {a}\nC one\\stwo\nD 2026-12-01T13:03:01.726\nF a/b.txt {a}\nF sp\\sace {b} x\nF gone\nP {a}\nU bob\nZ 0\n"
    );
    hold(|random| {
        let mut bytes = good.clone().into_bytes();
        for _ in 0..random.below(6) {
            random.spoil(&mut bytes);
        }
        let Ok(Some(manifest)) = checkin::read(&bytes) else { return Ok(()) };
        let sound = manifest.files().all(|file| matches!(file.hash.len(), 40 | 64) && !file.name.is_empty());
        is("a file without a name or a hash", sound)
    });
}

/// Most bytes a delta of the next may make.
const MOST: usize = 4096;

#[test]
fn posts_and_deltas_of_anyones_making_are_errors_and_never_a_panic() {
    let post = "D 2026-12-01T13:03:01.726\nH A\\stitle\nN text/x-markdown\nU bob\nW 5\nhello\nZ 0\n";
    let source: Vec<u8> = (0..200_u8).collect();
    hold(|random| {
        let (mut post, mut change) = (post.as_bytes().to_vec(), b"1m\n1G@0,8:changedA1G@1G,0;".to_vec());
        for _ in 0..random.below(6) {
            random.spoil(&mut post);
            random.spoil(&mut change);
        }
        if let Ok(told) = cards::read(&post) {
            is("more text than there is", told.text.len() <= 3 * post.len())?;
        }
        is("more than the bound", !delta::apply(&source, &change, MOST).is_ok_and(|it| it.len() > MOST))
    });
    // Control: what is whole is read.
    assert!(cards::read(post.as_bytes()).is_ok());
    assert!(checkin::read(b"C x\nZ 0\n").unwrap().is_some());
}

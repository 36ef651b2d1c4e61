//! Reading a clone: every artifact by its hash, deltas included, and files that are damaged.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use ocx::fossil::{Arrival, CloneFile, Place};
use rusqlite::{Connection, OpenFlags};

use crate::lab::{Lab, ask, change, hash, ticket};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("every_artifact_matches_its_hash_deltas_included", every_artifact),
    ("arrivals_tell_place_text_and_edits", arrivals),
    ("ticket_remarks_keep_every_character", remarks),
    ("damaged_artifacts_are_errors_and_never_a_panic", damaged),
    ("an_unreadable_post_is_named_and_hides_no_other", unreadable),
    ("what_a_killed_writer_left_is_mended", hot_journal),
    ("reads_go_on_during_a_pull", during_a_pull),
];

/// Environment variable naming the file that this program is to leave in the middle of a write.
pub(crate) const CRASH: &str = "OCX_TEST_CRASH_WHILE_WRITING";

const LINES: &str = "line of a text that is long enough to be told as a difference\n";

fn message<'a>(arrivals: &'a [Arrival], hash: &str) -> &'a Arrival {
    arrivals.iter().find(|arrival| arrival.hash == hash).unwrap()
}

/// The post's hash, from its redirect.
fn edited(lab: &Lab, post: &str, fields: &[(&str, &str)]) -> String {
    let mut all = vec![("fpid", post), ("edit", "1"), ("mimetype", "text/x-markdown"), ("submit", "Submit")];
    all.extend_from_slice(fields);
    let answer = lab.form("bob", "/forume2", &all);
    answer
        .location
        .unwrap_or_else(|| panic!("{}: {}", answer.status, answer.text))
        .rsplit('/')
        .next()
        .unwrap()
        .to_owned()
}

/// A repository with a chain of edits, replies and tickets, pulled into a clone.
fn grown(lab: &Lab) -> CloneFile {
    let bob = lab.session("bob");
    let root = hash(bob.new_thread("edited often", &LINES.repeat(50)));
    let mut version = hash(bob.reply(&root, &LINES.repeat(60)));
    for n in 0..12 {
        version = edited(lab, &version, &[("content", &format!("{n} {}{n}", LINES.repeat(60 + n)))]);
    }
    let id = ticket(bob.new_ticket("t", &LINES.repeat(30)));
    for n in 0..6 {
        ticket(bob.change_ticket(&id, &format!("{}{n}", LINES.repeat(30))));
    }
    let file = lab.clone_as("lab-1", "c.fossil");
    CloneFile::open(&file, &lab.program).unwrap()
}

fn every_artifact() {
    let lab = Lab::new();
    let clone = grown(&lab);
    let server = CloneFile::open(&lab.repository, &lab.program).unwrap();
    let mut deltas = 0;
    for file in [&clone, &server] {
        deltas += ask::<u32>(file.path(), "SELECT count(*) FROM delta");
        let hashes = file.hashes().unwrap();
        assert!(hashes.len() > 20);
        for hash in hashes {
            // Checked against its hash inside; and against what Fossil itself reads.
            let ours = file.artifact(&hash).unwrap().unwrap();
            let fossils = lab.fossil(&["artifact", &hash, "-R", file.path().to_str().unwrap()]);
            assert_eq!(ours, fossils, "{hash}");
            assert_eq!(file.find_prefix(&hash[..20]).unwrap().as_deref(), Some(hash.as_str()));
        }
    }
    assert!(deltas > 5, "only {deltas} deltas: the test would show little");
    assert_eq!(clone.artifact(&"0".repeat(64)).unwrap(), None);
    for none in ["", "0", "abc", "%", "zzzz", "0000000000"] {
        assert_eq!(clone.find_prefix(none).unwrap(), None, "{none}");
    }
}

fn arrivals() {
    let lab = Lab::new();
    let bob = lab.session("bob");
    let text = "```ocx\n{\"ocx\": 2}\n```\n\\n é 漢字\nZ 0123\nW 5";
    let root = hash(bob.new_thread("A title", text));
    let reply = hash(lab.session("lab-1").reply(&root, "an answer"));
    let nested = hash(bob.reply(&reply, "to the answer"));
    let new_root = edited(&lab, &root, &[("title", "Another title"), ("content", "edited text")]);
    let new_reply = edited(&lab, &reply, &[("content", "edited answer")]);
    let late = hash(bob.reply(&new_root, "to the edited one"));
    let clone = CloneFile::open(&lab.clone_as("lab-1", "c.fossil"), &lab.program).unwrap();
    let arrivals = clone.arrivals(0, clone.last_received().unwrap()).unwrap();
    assert!(arrivals.unreadable.is_empty(), "{arrivals:?}");
    let arrivals = arrivals.read;
    assert_eq!(arrivals.len(), 6);
    let place = |answers: Option<&str>| Place::Thread { root: root.clone(), answers: answers.map(str::to_owned) };
    for (hash, place, edits, author, text) in [
        (&root, place(None), None, "bob", text),
        (&reply, place(Some(&root)), None, "lab-1", "an answer"),
        (&nested, place(Some(&reply)), None, "bob", "to the answer"),
        (&new_root, place(None), Some(&root), "bob", "edited text"),
        (&new_reply, place(Some(&root)), Some(&reply), "bob", "edited answer"),
        (&late, place(Some(&new_root)), None, "bob", "to the edited one"),
    ] {
        let arrival = message(&arrivals, hash);
        assert_eq!(arrival.place, place, "{arrival:?}");
        assert_eq!(arrival.edits.as_ref(), edits, "{arrival:?}");
        assert_eq!((arrival.author.as_str(), arrival.text.as_str()), (author, text));
        assert_eq!(clone.message(hash).unwrap().as_ref(), Some(arrival));
    }
    assert_eq!(message(&arrivals, &new_root).title.as_deref(), Some("Another title"));
}

fn remarks() {
    let lab = Lab::new();
    let bob = lab.session("bob");
    let text = " led\\by a space\\n\ttab\nline\u{b}\u{c}é 漢字 \\s \\\\ +J icomment\nend";
    let id = ticket(bob.new_ticket("t", text));
    ticket(bob.change_ticket(&id, "second"));
    lab.form("bob", "/tktedit", &[("name", &id), ("status", "Closed"), ("submit", "1")]);
    let clone = CloneFile::open(&lab.clone_as("lab-1", "c.fossil"), &lab.program).unwrap();
    let mut arrivals = clone.arrivals(0, u64::MAX).unwrap().read;
    arrivals.sort_by_key(|arrival| arrival.text.len());
    assert_eq!(arrivals[2].title.as_deref(), Some("t"));
    let texts: Vec<&str> = arrivals.iter().map(|arrival| arrival.text.as_str()).collect();
    assert_eq!(texts, ["", "second", text]);
    assert!(arrivals.iter().all(|arrival| arrival.place == Place::Ticket { id: id.clone() }));
}

/// A number sequence that is the same each time.
struct Random(u64);

impl Random {
    fn next(&mut self, below: usize) -> usize {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(self.0 >> 33).unwrap() % below
    }
}

fn damaged() {
    let lab = Lab::new();
    let clone = grown(&lab);
    let good: Vec<(String, Vec<u8>)> = clone
        .hashes()
        .unwrap()
        .into_iter()
        .map(|hash| (hash.clone(), clone.artifact(&hash).unwrap().unwrap()))
        .collect();
    let copy = lab.dir.join("copy.fossil");
    let mut random = Random(7);
    let mut errors = 0;
    for round in 0..40 {
        std::fs::copy(clone.path(), &copy).unwrap();
        let db = Connection::open(&copy).unwrap();
        let rows: i64 = db.query_row("SELECT max(rid) FROM blob", [], |row| row.get(0)).unwrap();
        let rid = i64::try_from(random.next(usize::try_from(rows).unwrap())).unwrap() + 1;
        let mut content: Vec<u8> = db
            .query_row("SELECT coalesce(content, x'') FROM blob WHERE rid = ?1", [rid], |row| row.get(0))
            .unwrap_or_default();
        match round % 4 {
            0 if !content.is_empty() => content.truncate(random.next(content.len())),
            1 => content = (0..random.next(300)).map(|n| u8::try_from(n % 256).unwrap()).collect(),
            _ => {
                for _ in 0..3 {
                    let at = random.next(content.len().max(1));
                    let byte = u8::try_from(random.next(256)).unwrap();
                    if let Some(old) = content.get_mut(at) {
                        *old = byte;
                    }
                }
            }
        }
        db.execute("UPDATE blob SET content = ?2 WHERE rid = ?1", rusqlite::params![rid, content]).unwrap();
        drop(db);
        let damaged = CloneFile::new(&copy, &lab.program);
        for (hash, bytes) in &good {
            match damaged.artifact(hash) {
                Ok(Some(read)) => assert_eq!(&read, bytes, "another text under the same hash"),
                Ok(None) => panic!("{hash} is gone"),
                Err(_) => errors += 1,
            }
        }
        damaged.arrivals(0, u64::MAX).unwrap();
    }
    assert!(errors > 10, "only {errors} errors: the damage was not met");
    // Deltas that lead round in a circle, or to nothing.
    std::fs::copy(clone.path(), &copy).unwrap();
    let damaged = CloneFile::new(&copy, &lab.program);
    for sql in [
        "REPLACE INTO delta (rid, srcid) SELECT a.rid, a.rid FROM blob a",
        "REPLACE INTO delta (rid, srcid) SELECT rid, (rid % (SELECT max(rid) FROM blob)) + 1 FROM blob",
        "REPLACE INTO delta (rid, srcid) SELECT rid, 99999 FROM blob",
    ] {
        change(&copy, sql);
        for (hash, _) in &good {
            assert!(damaged.artifact(hash).is_err(), "{sql}");
        }
        assert!(!damaged.arrivals(0, u64::MAX).unwrap().unreadable.is_empty());
    }
    std::fs::write(&copy, "this is no database").unwrap();
    assert!(CloneFile::open(&copy, &lab.program).is_err());
}

fn unreadable() {
    let lab = Lab::new();
    let bob = lab.session("bob");
    let posts: BTreeSet<String> = (0..5).map(|n| hash(bob.new_thread("t", &format!("text {n}")))).collect();
    let clone = CloneFile::open(&lab.clone_as("lab-1", "c.fossil"), &lab.program).unwrap();
    let victim = posts.first().unwrap();
    change(
        clone.path(),
        &format!(
            "UPDATE blob SET content = x'00000005789c' WHERE uuid = '{victim}'; DELETE FROM delta WHERE rid = (SELECT rid FROM blob WHERE uuid = '{victim}')"
        ),
    );
    let arrivals = clone.arrivals(0, u64::MAX).unwrap();
    assert_eq!(arrivals.unreadable.iter().map(|item| &item.hash).collect::<Vec<_>>(), [victim]);
    assert_eq!(arrivals.read.len(), 4);
}

/// Run in a process of its own: spills pages of an open transaction into the file, and dies.
pub(crate) fn crash_while_writing(file: &Path) -> ! {
    let db = Connection::open(file).unwrap();
    db.execute_batch("PRAGMA cache_size = 1; BEGIN IMMEDIATE; UPDATE config SET value = 'broken' WHERE name = 'server-code'; CREATE TABLE junk (x);").unwrap();
    for _ in 0..200 {
        db.execute("INSERT INTO junk VALUES (randomblob(4000))", []).unwrap();
    }
    std::process::abort();
}

fn hot_journal() {
    let lab = Lab::new();
    let clone = CloneFile::open(&lab.clone_as("lab-1", "c.fossil"), &lab.program).unwrap();
    let code = clone.server_code().unwrap();
    let status = Command::new(std::env::current_exe().unwrap()).env(CRASH, clone.path()).status().unwrap();
    assert!(!status.success());
    let journal = clone.path().with_file_name("c.fossil-journal");
    assert!(journal.exists(), "the writer left its journal");
    // The control: a read-only reader alone cannot go on.
    let db = Connection::open_with_flags(clone.path(), OpenFlags::SQLITE_OPEN_READ_ONLY).unwrap();
    let alone: Result<String, _> =
        db.query_row("SELECT value FROM config WHERE name = 'server-code'", [], |row| row.get(0));
    assert!(alone.is_err(), "{alone:?}");
    drop(db);
    assert_eq!(clone.server_code().unwrap(), code);
    assert!(!journal.exists());
    assert_eq!(ask::<u32>(clone.path(), "SELECT count(*) FROM sqlite_master WHERE name = 'junk'"), 0);
}

fn during_a_pull() {
    let lab = Lab::new();
    let file = lab.clone_as("lab-1", "c.fossil");
    let clone = CloneFile::open(&file, &lab.program).unwrap();
    let bob = lab.session("bob");
    std::thread::scope(|scope| {
        let reader = scope.spawn(|| {
            let mut reads = 0;
            while clone.arrivals(0, u64::MAX).unwrap().read.len() < 40 {
                reads += 1;
            }
            reads
        });
        for n in 0..40 {
            hash(bob.new_thread("t", &format!("{n}")));
            if n % 4 == 3 {
                lab.pull(&file);
            }
        }
        assert!(reader.join().unwrap() > 0);
    });
}

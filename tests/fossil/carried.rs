//! Unversioned files and raw tags that reach the server by its sync protocol.

use std::fs::File;
use std::io::Write as _;
use std::path::Path;

use ocx::fossil::xfer::{Outgoing, Unversioned};
use ocx::fossil::{Again, Ask, tag};
use sha3::Digest as _;

use crate::lab::Lab;

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("carried::v2_2_10_21_an_unversioned_file_is_there_whole_and_from_its_sender", file),
    ("carried::v2_2_10_24_without_y_the_server_has_no_file", without_y),
    ("carried::c_70_a_raw_tag_is_there_once_and_from_its_sender", raw_tag),
    ("carried::without_i_and_with_a_wrong_password_nothing_is_pushed", refused),
];

fn project(lab: &Lab) -> String {
    lab.ask("SELECT value FROM config WHERE name = 'project-code'")
}

fn sha3(bytes: &[u8]) -> String {
    sha3::Sha3_256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn written(at: &Path, bytes: &[u8]) -> File {
    let mut file = File::options().read(true).write(true).create(true).truncate(true).open(at).unwrap();
    file.write_all(bytes).unwrap();
    file
}

fn file() {
    let lab = Lab::new();
    lab.change("UPDATE user SET cap = cap || 'y' WHERE login = 'lab-1'");
    let session = lab.session("lab-1");
    // Past any buffer, with bytes of every kind.
    let bytes: Vec<u8> = (0..3_000_001_u32).map(|n| n.wrapping_mul(2_654_435_761).to_le_bytes()[3]).collect();
    let content = written(&lab.dir.join("content"), &bytes);
    let hash = sha3(&bytes);
    let outgoing = |name, at| Outgoing { name, sha3: &hash, bytes: bytes.len() as u64, at };
    for (name, at) in [("out/a.bin", 1_700_000_000), ("é\"<b>.bin", 1_700_000_001), ("out/a.bin", 1_700_000_000)] {
        session.send_unversioned(&project(&lab), &outgoing(name, at), &content).unwrap();
    }
    let from = Some("lab-1".to_owned());
    let listed = |name: &str, at| Unversioned { name: name.into(), hash: hash.clone(), at, from: from.clone() };
    let mut list = session.unversioned().unwrap();
    list.sort_by_key(|it| it.at);
    assert_eq!(list, [listed("out/a.bin", 1_700_000_000), listed("é\"<b>.bin", 1_700_000_001)]);
    assert_eq!(lab.ask::<i64>("SELECT sz FROM unversioned WHERE name = 'out/a.bin'"), 3_000_001);
    // An empty one, and an earlier one of a name that is taken: the server keeps what it has.
    let empty = written(&lab.dir.join("empty"), b"");
    let none = sha3(b"");
    for (name, at) in [("empty", 5), ("out/a.bin", 5)] {
        session.send_unversioned(&project(&lab), &Outgoing { name, sha3: &none, bytes: 0, at }, &empty).unwrap();
    }
    let list = session.unversioned().unwrap();
    assert!(list.iter().any(|it| it.name == "empty" && it.hash == none));
    assert!(list.iter().any(|it| it.name == "out/a.bin" && it.hash == hash));
    // What is not what it is said to be is not kept.
    let lie = Outgoing { name: "lie", sha3: &none, bytes: bytes.len() as u64, at: 5 };
    drop(session.send_unversioned(&project(&lab), &lie, &content));
    assert!(!session.unversioned().unwrap().iter().any(|it| it.name == "lie"));
    let spaced = session.send_unversioned(&project(&lab), &Outgoing { name: "/up", ..outgoing("", 5) }, &content);
    assert_eq!(spaced.unwrap_err().again, Again::Never);
}

fn without_y() {
    let lab = Lab::new();
    let session = lab.session("lab-1");
    let content = written(&lab.dir.join("content"), b"whole");
    let hash = sha3(b"whole");
    let send = |at| {
        drop(session.send_unversioned(&project(&lab), &Outgoing { name: "a", sha3: &hash, bytes: 5, at }, &content));
        session.unversioned().unwrap().len()
    };
    assert_eq!(send(1), 0);
    // The control: with it the same request leaves the file.
    lab.change("UPDATE user SET cap = cap || 'y' WHERE login = 'lab-1'");
    assert_eq!(send(1), 1);
}

fn raw_tag() {
    let lab = Lab::new();
    lab.change("UPDATE user SET cap = cap || 'i' WHERE login = 'lab-1'");
    let session = lab.session("lab-1");
    let checkin: String = lab.ask("SELECT uuid FROM blob WHERE rid = 1");
    let value = "fail: exit 3 (against back\\slash)";
    let artifact = tag::raw_tag("2026-01-02T03:04:05.678", "ci", &checkin, value, "lab-1");
    for _ in 0..2 {
        session.push_artifact(&project(&lab), &artifact).unwrap();
    }
    let hash = tag::hash(&artifact);
    assert_eq!(lab.ask::<i64>("SELECT count(*) FROM event WHERE type = 'g'"), 1);
    let found: String = lab.ask(
        "SELECT b.uuid || ' ' || x.value || ' ' || u.login FROM tagxref x JOIN tag USING (tagid) JOIN blob b ON b.rid = \
         x.srcid JOIN rcvfrom r USING (rcvid) JOIN user u USING (uid) WHERE tagname = 'ci' AND tagtype = 1",
    );
    assert_eq!(found, format!("{hash} {value} lab-1"));
    let ask = Ask { artifacts: std::slice::from_ref(&hash), users: &[], high: false };
    let receipt = session.receipt(&ask).unwrap().artifacts.remove(&hash).flatten().unwrap();
    assert_eq!(receipt.from.as_deref(), Some("lab-1"));
}

fn refused() {
    let lab = Lab::new();
    let checkin: String = lab.ask("SELECT uuid FROM blob WHERE rid = 1");
    let artifact = tag::raw_tag("2026-01-02T03:04:05.678", "ci", &checkin, "pass", "lab-1");
    let refused = lab.session("lab-1").push_artifact(&project(&lab), &artifact).unwrap_err();
    assert_eq!(refused.again, Again::Never, "{refused:?}");
    let wrong = ocx::fossil::Session::new(lab.url(), "pusher", "no").unwrap();
    let refused = wrong.push_artifact(&project(&lab), &artifact).unwrap_err();
    assert!(refused.again == Again::Later && refused.why.contains("login failed"), "{refused:?}");
    lab.session("pusher").push_artifact(&"0".repeat(40), &artifact).unwrap_err();
    assert_eq!(lab.ask::<i64>("SELECT count(*) FROM event WHERE type = 'g'"), 0);
    // The control: with i and the password it is there.
    lab.session("pusher").push_artifact(&project(&lab), &artifact).unwrap();
    assert_eq!(lab.ask::<i64>("SELECT count(*) FROM event WHERE type = 'g'"), 1);
}

//! Making clones and pulling, and every way it goes wrong with Fossil's exit status 0.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use ocx::fossil::program::ProgramError;
use ocx::fossil::{CloneError, CloneFile, Program, PullError, clone};
use ocx::server::repository;

use crate::fake::{Fake, Then, page};
use crate::lab::{Lab, WAIT, ask, change, hash, ticket};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("a_clone_is_made_with_its_password_on_no_command_line", made),
    ("a_clone_has_a_server_code_of_its_own", own_server_code),
    ("a_clone_that_cannot_be_made_leaves_no_file", not_made),
    ("a_pull_brings_all_that_is_new", pull_brings),
    ("a_pull_refused_by_the_server_does_not_count", refused),
    ("a_pull_from_a_server_that_is_down_does_not_count", down),
    ("a_pull_answered_by_garbage_does_not_count", garbage),
    ("a_pull_that_is_never_answered_is_ended", never_answered),
    ("a_pull_into_a_clone_another_writes_does_not_count", locked),
    ("an_approved_post_with_a_reply_comes_in_one_call", approved),
];

/// A program that writes down its arguments and environment, and then is fossil.
fn watched(lab: &Lab) -> (Program, std::path::PathBuf) {
    let log = lab.dir.join("argv");
    let script = lab.dir.join("fossil-watched");
    let text = format!(
        "#!/bin/sh\n(echo \"$$\"; printf '%s\\n' \"$@\"; env) >>'{}'\nexec '{}' \"$@\"\n",
        log.display(),
        lab.program.path.display()
    );
    fs::write(&script, text).unwrap();
    fs::set_permissions(&script, fs::Permissions::from_mode(0o755)).unwrap();
    (Program::new(&script, &lab.program.home, "tester"), log)
}

fn made() {
    let lab = Lab::new();
    let (program, log) = watched(&lab);
    let file = lab.dir.join("c.fossil");
    let password = Lab::password("lab-1");
    clone::make(&program, lab.url(), "lab-1", password, &file).unwrap();
    clone::pull(&program, &file, WAIT).unwrap();
    let log = fs::read_to_string(log).unwrap();
    assert!(log.contains("clone\nhttp://lab-1@127.0.0.1:"), "{log}");
    assert!(!log.contains(password) && !log.contains("%w") && !log.contains("p%3A"), "{log}");
    let variables: Vec<&str> = log.lines().filter_map(|line| line.split_once('=')).map(|(name, _)| name).collect();
    for name in variables {
        assert!(
            matches!(name, "PATH" | "HOME" | "TMPDIR" | "USER" | "LANG" | "PWD" | "_" | "OLDPWD" | "SHLVL"),
            "{name} reached fossil"
        );
    }
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(ask::<u32>(&file, "SELECT count(*) FROM config WHERE name = 'last-sync-pw' AND length(value) > 0"), 1);
    assert_eq!(
        ask::<String>(&file, "SELECT value FROM config WHERE name = 'last-sync-url'"),
        format!("{}/", lab.url().replace("//", "//lab-1@"))
    );
    // Each password a person may choose.
    for (n, odd) in ["a b", "%41", "\\", "🦀", "y", "#?&=/:@"].iter().enumerate() {
        repository::set_user(&lab.repository, &repository::ServerUser { login: "odd", password: odd, letters: "go" })
            .unwrap();
        let file = lab.dir.join(format!("odd{n}.fossil"));
        clone::make(&program, lab.url(), "odd", odd, &file).unwrap();
        clone::pull(&program, &file, WAIT).unwrap();
    }
}

fn own_server_code() {
    let lab = Lab::new();
    let one = CloneFile::open(&lab.clone_as("lab-1", "one.fossil"), &lab.program).unwrap();
    let two = CloneFile::open(&lab.clone_as("lab-1", "two.fossil"), &lab.program).unwrap();
    let server = CloneFile::open(&lab.repository, &lab.program).unwrap();
    let codes = [&one, &two, &server].map(|clone| clone.server_code().unwrap());
    assert!(codes[0] != codes[1] && codes[1] != codes[2] && codes[0] != codes[2], "{codes:?}");
    assert_eq!(one.project_code().unwrap(), server.project_code().unwrap());
    assert!(CloneFile::open(&lab.dir.join("none.fossil"), &lab.program).is_err());
    assert!(!lab.dir.join("none.fossil").exists());
}

fn not_made() {
    let mut lab = Lab::new();
    let file = lab.dir.join("c.fossil");
    let make = |lab: &Lab, login: &str, password: &str| clone::make(&lab.program, lab.url(), login, password, &file);
    assert_eq!(make(&lab, "lab-1", "no"), Err(CloneError::LoginRefused));
    assert_eq!(make(&lab, "who", "no"), Err(CloneError::LoginRefused));
    assert_eq!(make(&lab, "deaf", Lab::password("deaf")), Err(CloneError::NotAllowed));
    assert!(matches!(make(&lab, "lab-1", ""), Err(CloneError::Failed(_))));
    assert!(matches!(make(&lab, "lab-1", "a\u{3}b"), Err(CloneError::Failed(_))));
    let missing = Program::new(Path::new("/nonexistent/fossil"), &lab.program.home, "tester");
    assert!(clone::make(&missing, lab.url(), "lab-1", Lab::password("lab-1"), &file).is_err());
    let port = lab.stop();
    match make(&lab, "lab-1", Lab::password("lab-1")) {
        Err(CloneError::Failed(why)) => assert!(!why.contains(Lab::password("lab-1")), "{why}"),
        other => panic!("{other:?}"),
    }
    lab.start(port);
    let left: Vec<_> = fs::read_dir(&lab.dir).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!left.iter().any(|name| name.to_string_lossy().contains("c.fossil")), "{left:?}");
    fs::write(&file, "mine").unwrap();
    assert_eq!(make(&lab, "lab-1", Lab::password("lab-1")), Err(CloneError::Exists(file.clone())));
    assert_eq!(fs::read_to_string(&file).unwrap(), "mine");
    // What a crash half-way left is no hindrance.
    fs::remove_file(&file).unwrap();
    fs::write(lab.dir.join(".part-c.fossil"), "half").unwrap();
    make(&lab, "lab-1", Lab::password("lab-1")).unwrap();
    assert!(!lab.dir.join(".part-c.fossil").exists());
}

fn pull_brings() {
    let lab = Lab::new();
    let file = lab.clone_as("lab-1", "c.fossil");
    let clone = CloneFile::open(&file, &lab.program).unwrap();
    let before = clone.last_received().unwrap();
    lab.pull(&file);
    assert_eq!(clone.last_received().unwrap(), before, "an empty pull makes no receipt");
    let bob = lab.session("bob");
    let post = hash(bob.new_thread("t", "x"));
    ticket(bob.new_ticket("t", "y"));
    assert_eq!(lab.pull(&file), clone::Pulled { pulls: 1, missing: 0 });
    let high = clone.last_received().unwrap();
    assert!(high > before);
    let arrivals = clone.arrivals(before, high).unwrap();
    assert_eq!(arrivals.read.len(), 2);
    assert!(arrivals.read.iter().any(|arrival| arrival.hash == post));
    assert_eq!(clone.arrivals(high, u64::MAX).unwrap().read.len(), 0);
}

/// The reason for reading its output: fossil's exit status is 0.
fn exit_status_is_0(lab: &Lab, file: &Path) {
    let status = Command::new(&lab.program.path)
        .args(["pull", "-R"])
        .arg(file)
        .env_clear()
        .env("HOME", &lab.program.home)
        .env("USER", "tester")
        .output()
        .unwrap()
        .status;
    assert!(status.success(), "fossil tells this failure by its status now: {status}");
}

fn refused() {
    let lab = Lab::new();
    let file = lab.clone_as("bob", "c.fossil");
    let pull = || clone::pull(&lab.program, &file, WAIT).unwrap_err();
    let user = |password, letters| {
        repository::set_user(&lab.repository, &repository::ServerUser { login: "bob", password, letters }).unwrap();
    };
    user("another", "goC34w");
    assert_eq!(pull(), PullError::LoginRefused);
    exit_status_is_0(&lab, &file);
    user(Lab::password("bob"), "gC34w");
    assert_eq!(pull(), PullError::NotAllowed);
    exit_status_is_0(&lab, &file);
    user(Lab::password("bob"), "goC34w");
    lab.pull(&file);
    // The clone has forgotten its password.
    change(&file, "DELETE FROM config WHERE name = 'last-sync-pw'");
    assert_eq!(pull(), PullError::LoginRefused);
}

fn down() {
    let mut lab = Lab::new();
    let file = lab.clone_as("lab-1", "c.fossil");
    let port = lab.stop();
    let error = clone::pull(&lab.program, &file, WAIT).unwrap_err();
    assert!(matches!(error, PullError::NoConnection(_)), "{error}");
    exit_status_is_0(&lab, &file);
    lab.start(port);
    lab.pull(&file);
}

fn garbage() {
    let mut lab = Lab::new();
    let file = lab.clone_as("lab-1", "c.fossil");
    let code = CloneFile::open(&file, &lab.program).unwrap().server_code().unwrap();
    lab.stop();
    for then in [
        page("502 Bad Gateway", "Content-Type: text/html\r\n", "bad"),
        page("200 OK", "Content-Type: text/html\r\n", "hello"),
        page("200 OK", "Content-Type: application/x-fossil-uncompressed\r\n", "error login\\sfailed\n"),
        page("200 OK", "Content-Type: application/x-fossil-uncompressed\r\n", "file xx 5\nabc"),
        page("200 OK", "Content-Type: application/x-fossil\r\n", "\0\0\0\x05garbage"),
        page("302 Moved", "Location: http://127.0.0.1:1/\r\n", ""),
        Then::Say(b"HTTP/1.0 200 OK\r\nContent-Type: application/x-fossil\r\nContent-Length: 500\r\n\r\nxx".to_vec()),
        Then::Say(Vec::new()),
        // Fossil itself says "Pull done" of these two.
        Then::Say(b"HTTP/1.0 200 OK\r\nConnect".to_vec()),
        page("200 OK", "Content-Type: application/x-fossil-uncompressed\r\n", ""),
    ] {
        let fake = Fake::start(then.clone());
        change(
            &file,
            &format!("UPDATE config SET value = 'http://lab-1@127.0.0.1:{}/' WHERE name = 'last-sync-url'", fake.port),
        );
        let result = clone::pull(&lab.program, &file, Duration::from_secs(20));
        let said = match then {
            Then::Say(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
            Then::Stall(_) | Then::Nothing => String::new(),
        };
        assert!(result.is_err(), "{said}");
    }
    // The clone is as sound as before.
    assert_eq!(CloneFile::open(&file, &lab.program).unwrap().server_code().unwrap(), code);
}

fn never_answered() {
    let lab = Lab::new();
    let file = lab.clone_as("lab-1", "c.fossil");
    let (program, log) = watched(&lab);
    let fake = Fake::start(Then::Nothing);
    change(
        &file,
        &format!("UPDATE config SET value = 'http://lab-1@127.0.0.1:{}/' WHERE name = 'last-sync-url'", fake.port),
    );
    let (wait, began) = (Duration::from_secs(2), Instant::now());
    assert_eq!(clone::pull(&program, &file, wait), Err(PullError::Program(ProgramError::TimedOut(wait))));
    assert!(began.elapsed() < Duration::from_secs(60));
    let pid = fs::read_to_string(log).unwrap().lines().next().unwrap().to_owned();
    assert!(!Path::new("/proc").join(pid).exists(), "it was ended and reaped");
    change(
        &file,
        &format!("UPDATE config SET value = '{}/' WHERE name = 'last-sync-url'", lab.url().replace("//", "//lab-1@")),
    );
    lab.pull(&file);
}

fn locked() {
    let lab = Lab::new();
    let file = lab.clone_as("lab-1", "c.fossil");
    hash(lab.session("bob").new_thread("t", "x"));
    let db = rusqlite::Connection::open(&file).unwrap();
    db.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = clone::pull(&lab.program, &file, WAIT).unwrap_err();
    assert!(matches!(error, PullError::Failed(_)) && error.to_string().contains("locked"), "{error}");
    drop(db);
    lab.pull(&file);
}

fn approved() {
    let lab = Lab::new();
    let file = lab.clone_as("lab-1", "c.fossil");
    let clone = CloneFile::open(&file, &lab.program).unwrap();
    let held = hash(lab.session("held").new_thread("t", "held for a moderator"));
    let reply = hash(lab.session("bob").reply(&held, "an answer to it"));
    lab.pull(&file);
    assert!(clone.message(&reply).unwrap().is_some() && clone.message(&held).unwrap().is_none());
    lab.form("admin", "/forume2", &[("fpid", &held), ("approve", "1")]);
    let before = clone.last_received().unwrap();
    assert_eq!(lab.pull(&file), clone::Pulled { pulls: 2, missing: 0 });
    let arrivals = clone.arrivals(before, clone.last_received().unwrap()).unwrap().read;
    assert_eq!(arrivals.iter().map(|arrival| arrival.hash.as_str()).collect::<Vec<_>>(), [held.as_str()]);
}

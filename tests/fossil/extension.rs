//! The extension as Fossil runs it, and servers for a trial.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::time::Duration;

use ocx::fossil::{Ask, FossilError};
use ocx::server::serving::Account;
use ocx::server::{Serving, ServingError, install, repository};
use serde_json::Value;

use crate::lab::{Lab, WAIT};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("questions_of_the_wrong_form_are_refused_in_json", refusals),
    ("an_extension_that_cannot_start_gives_no_receipt", cannot_start),
    ("clones_are_listed_and_kept", clones_are_listed),
    ("eight_hosts_list_at_once_and_none_is_lost", eight_hosts),
    ("a_taken_port_is_told", a_taken_port),
    ("a_stopped_server_leaves_no_process", a_stopped_server_leaves_no_process),
    ("the_ocx_program_is_the_extension", the_ocx_program_is_the_extension),
    ("a_server_runs_as_the_account_it_is_given", as_an_account),
];

const CODE: &str = "0123456789012345678901234567890123456789";

/// A request to the extension by hand; gives status and body.
fn ask(lab: &Lab, method: &str, path: &str, kind: &str, body: &[u8], cookie: Option<&str>) -> (u16, Value) {
    let agent = ureq::Agent::config_builder().http_status_as_error(false).build().new_agent();
    let url = format!("{}{path}", lab.url());
    let mut response = match method {
        "POST" => {
            let mut request = agent.post(&url).header("Content-Type", kind);
            if let Some(cookie) = cookie {
                request = request.header("Cookie", cookie);
            }
            request.send(body)
        }
        _ => {
            let mut request = agent.get(&url);
            if let Some(cookie) = cookie {
                request = request.header("Cookie", cookie);
            }
            request.call()
        }
    }
    .unwrap();
    let text = response.body_mut().read_to_string().unwrap();
    (response.status().as_u16(), serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}")))
}

fn refusals() {
    let lab = Lab::new();
    let cookie = lab.cookie("lab-1");
    let cookie = Some(cookie.as_str());
    let looker = lab.cookie("looker");
    let json = "application/json";
    let big = vec![b' '; (1 << 20) + 1];
    let many = serde_json::to_vec(&serde_json::json!({ "users": vec!["x"; 501] })).unwrap();
    let before: i64 = lab.ask("SELECT max(rcvid) FROM rcvfrom");
    for (status, method, path, kind, body, cookie) in [
        (401, "POST", "/ext/ocx/receipt", json, b"{}".as_slice(), None),
        (405, "GET", "/ext/ocx/receipt", json, b"", cookie),
        (415, "POST", "/ext/ocx/receipt", "text/plain", b"{}", cookie),
        (415, "POST", "/ext/ocx/receipt", "application/x-www-form-urlencoded", b"{}", cookie),
        (413, "POST", "/ext/ocx/receipt", json, &big, cookie),
        (400, "POST", "/ext/ocx/receipt", json, b"", cookie),
        (400, "POST", "/ext/ocx/receipt", json, b"{\"a\":", cookie),
        (400, "POST", "/ext/ocx/receipt", json, b"{\"hihg\":true}", cookie),
        (400, "POST", "/ext/ocx/receipt", json, b"{\"high\":1}", cookie),
        (400, "POST", "/ext/ocx/receipt", json, b"{\"users\":[1]}", cookie),
        (400, "POST", "/ext/ocx/receipt", json, b"{\"artifacts\":\"x\"}", cookie),
        (400, "POST", "/ext/ocx/receipt", json, &many, cookie),
        (403, "POST", "/ext/ocx/receipt", json, b"{}", Some(looker.as_str())),
        (403, "POST", "/ext/ocx/clones", json, b"{}", Some(looker.as_str())),
        (400, "POST", "/ext/ocx/clones", json, b"{\"clone\":\"abc\",\"host\":\"h\",\"release\":\"r\"}", cookie),
        (400, "POST", "/ext/ocx/collect", json, b"{}", cookie),
        (404, "POST", "/ext/ocx/approve", json, b"{}", cookie),
        (404, "POST", "/ext/ocx", json, b"{}", cookie),
    ] {
        let (got, answer) = ask(&lab, method, path, kind, body, cookie);
        assert_eq!(got, status, "{method} {path} {kind}: {answer}");
        assert!(answer["stopped"].is_string() && answer["result"].is_null(), "{answer}");
        assert!(answer["log"].is_array() && answer["dry_run"] == false, "{answer}");
    }
    // The control: the same question in the right form, a charset named.
    let (status, answer) =
        ask(&lab, "POST", "/ext/ocx/receipt", "application/json; charset=utf-8", b"{\"high\":true}", cookie);
    assert_eq!(status, 200);
    assert_eq!(answer["result"]["high"], before);
    assert_eq!(answer["stopped"], Value::Null);
    assert_eq!(lab.ask::<i64>("SELECT max(rcvid) FROM rcvfrom"), before, "questions change nothing");
}

fn cannot_start() {
    let lab = Lab::new();
    let session = lab.session("lab-1");
    let answered = || match session.receipt(&Ask::default()) {
        Err(FossilError::Answered { why, .. } | FossilError::NoAnswer { why, .. }) => why,
        other => panic!("{other:?}"),
    };
    session.receipt(&Ask::default()).unwrap();
    let place = lab.extroot.join("ocx");
    fs::write(lab.extroot.join("new"), "#!/no/such/interpreter\n").unwrap();
    fs::set_permissions(lab.extroot.join("new"), fs::Permissions::from_mode(0o755)).unwrap();
    fs::rename(lab.extroot.join("new"), &place).unwrap();
    assert!(answered().contains("could not start"), "{}", answered());
    fs::remove_file(&place).unwrap();
    assert!(answered().contains("--extroot"), "{}", answered());
    install(&lab.extroot, &std::env::current_exe().unwrap()).unwrap();
    session.receipt(&Ask::default()).unwrap();
    assert_eq!(fs::metadata(&place).unwrap().permissions().mode() & 0o777, 0o755);
    assert!(!lab.extroot.join(".ocx.part").exists());
    // Another program is no extension, and what stands is left.
    assert!(install(&lab.extroot, std::path::Path::new("/bin/true")).is_err());
    assert!(!lab.extroot.join(".ocx.part").exists());
    session.receipt(&Ask::default()).unwrap();
}

fn clones_are_listed() {
    let lab = Lab::new();
    let session = lab.session("lab-1");
    assert_eq!(session.listed_clones().unwrap(), []);
    session.list_clone(CODE, "here", "0.1.0").unwrap();
    let other = CODE.replace('0', "a");
    let list = session.list_clone(&other, "there", "0.1.0").unwrap();
    assert_eq!(list.iter().map(|line| line.host.as_str()).collect::<Vec<_>>(), ["here", "there"]);
    // The same clone again: its line is new, not another.
    let list = session.list_clone(CODE, "here", "0.2.0").unwrap();
    assert_eq!(list.len(), 2);
    let line = list.iter().find(|line| line.clone == CODE).unwrap();
    assert_eq!((line.login.as_str(), line.release.as_str()), ("lab-1", "0.2.0"));
    assert!(line.seen.ends_with('Z') && line.seen.starts_with("20"), "{}", line.seen);
    assert_eq!(session.listed_clones().unwrap(), list);
    let file = lab.repository.with_file_name("ocx").join("clones.json");
    assert_eq!(fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(matches!(lab.session("pusher").listed_clones(), Err(FossilError::Stopped { .. })));
    // A list that cannot be read is not written over.
    fs::write(&file, "{").unwrap();
    assert!(session.list_clone(CODE, "here", "0.3.0").is_err());
    assert_eq!(fs::read_to_string(&file).unwrap(), "{");
}

fn eight_hosts() {
    let lab = Lab::new();
    let session = lab.session("lab-1");
    session.sign_in().unwrap();
    std::thread::scope(|scope| {
        for host in 0..8 {
            let session = &session;
            scope.spawn(move || session.list_clone(&format!("{host:040}"), &format!("host {host}"), "r").unwrap());
        }
    });
    assert_eq!(session.listed_clones().unwrap().len(), 8);
}

fn a_taken_port() {
    let lab = Lab::new();
    let log = lab.dir.join("second.log");
    let port = lab.url().rsplit(':').next().unwrap().parse().unwrap();
    match Serving::start(&lab.program, &lab.repository, port, &lab.extroot, None, &log) {
        Err(ServingError::PortTaken(taken)) => assert_eq!(taken, port),
        other => panic!("{other:?}"),
    }
    // The first one goes on.
    lab.session("bob").sign_in().unwrap();
    let other = Serving::start(&lab.program, &lab.repository, 0, &lab.extroot, None, &log).unwrap();
    assert_ne!(other.port(), port);
    other.stop();
}

fn as_an_account() {
    let lab = Lab::new();
    let status = fs::read_to_string("/proc/self/status").unwrap();
    if !status.lines().any(|line| line.starts_with("Uid:\t0\t")) {
        // Only root can become another; the rest of these tests ran as an ordinary account already.
        return;
    }
    const NOBODY: Account = Account { uid: 65534, gid: 65534 };
    let folder = lab.repository.parent().unwrap();
    for path in [folder, &lab.repository, &lab.program.home] {
        std::os::unix::fs::chown(path, Some(NOBODY.uid), Some(NOBODY.gid)).unwrap();
    }
    let log = lab.dir.join("account.log");
    let serving = Serving::start(&lab.program, &lab.repository, 0, &lab.extroot, Some(NOBODY), &log).unwrap();
    let status = fs::read_to_string(format!("/proc/{}/status", serving.pid())).unwrap();
    assert!(status.contains("Uid:\t65534\t65534\t65534\t65534"), "{status}");
    assert!(status.lines().any(|line| line.starts_with("Groups:") && line.trim() == "Groups:"), "{status}");
    let session = ocx::fossil::Session::new(&serving.url(), "lab-1", Lab::password("lab-1")).unwrap();
    session.receipt(&Ask { high: true, ..Ask::default() }).unwrap();
    session.list_clone(CODE, "here", "r").unwrap();
    crate::lab::hash(session.new_thread("t", "x"));
    repository::set(&lab.repository, &[("chat-poll-timeout", "1")]).unwrap();
    session.chat_wait(0, WAIT).unwrap();
    std::thread::sleep(Duration::from_millis(10));
    serving.stop();
}

/// Processes serving `port`, in whatever session, by /proc.
fn serving_at(port: u16) -> usize {
    let port = format!("--port\0{port}\0");
    let line = |entry: std::io::Result<fs::DirEntry>| fs::read_to_string(entry.ok()?.path().join("cmdline")).ok();
    fs::read_dir("/proc").unwrap().filter_map(line).filter(|line| line.contains(&port)).count()
}

/// Processes of a group, by /proc.
fn in_group(group: u32) -> usize {
    let stat = |entry: std::io::Result<fs::DirEntry>| fs::read_to_string(entry.ok()?.path().join("stat")).ok();
    let group = group.to_string();
    fs::read_dir("/proc")
        .unwrap()
        .filter_map(stat)
        // After the name in parentheses: state, parent, group.
        .filter(|stat| stat.rsplit(')').next().unwrap().split_whitespace().nth(2) == Some(group.as_str()))
        .count()
}

fn a_stopped_server_leaves_no_process() {
    let lab = Lab::new();
    let log = lab.dir.join("second.log");
    let serving = Serving::start(&lab.program, &lab.repository, 0, &lab.extroot, None, &log).unwrap();
    let session = ocx::fossil::Session::new(&serving.url(), "lab-1", Lab::password("lab-1")).unwrap();
    session.sign_in().unwrap();
    let (group, port) = (serving.pid(), serving.port());
    // Pages after which Fossil would start its backoffice.
    crate::lab::hash(session.new_thread("t", "x"));
    session.get("/timeline", WAIT).unwrap();
    assert!(serving_at(port) >= 1);
    std::thread::scope(|scope| {
        let poll = scope.spawn(|| session.chat_wait(0, WAIT));
        let deadline = std::time::Instant::now() + WAIT;
        while in_group(group) < 2 && std::time::Instant::now() < deadline {
            std::thread::sleep(Duration::from_millis(10));
        }
        assert!(in_group(group) >= 2, "the server and its child that waits");
        serving.stop();
        assert!(matches!(poll.join().unwrap(), Err(FossilError::NoAnswer { .. })));
    });
    let deadline = std::time::Instant::now() + WAIT;
    while in_group(group) > 0 || serving_at(port) > 0 {
        assert!(std::time::Instant::now() < deadline, "a child lives on");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn the_ocx_program_is_the_extension() {
    let lab = Lab::new();
    install(&lab.extroot, std::path::Path::new(env!("CARGO_BIN_EXE_ocx"))).unwrap();
    let post = crate::lab::hash(lab.session("bob").new_thread("t", "x"));
    let receipts = lab
        .session("lab-1")
        .receipt(&Ask { artifacts: std::slice::from_ref(&post), high: true, ..Ask::default() })
        .unwrap();
    assert_eq!(receipts.artifacts[&post].as_ref().unwrap().from.as_deref(), Some("bob"));
}

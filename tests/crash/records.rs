//! Records that are stale, torn, empty or huge; numbers of processes used again; a second of either process.

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use ocx::engine::message;
use ocx::trial::Asked;
use serde_json::Value;

use crate::host::{Host, SOON};

pub(crate) const TESTS: &[(&str, fn())] = &[
    ("P6, C-65 a state that cannot be believed is taken: nothing runs again, and it is answered", bad_states),
    ("P6, C-101 a care record that cannot be believed is launched: its processes are ended, and it is lost", bad_care),
    ("P6 records half-written when both died are passed over", half_written),
    ("C-100 a process that has a dead run's number is left alone", number_again),
    ("C-100 of four supervisors started at once on one ROOT one serves", four_supervisors),
    ("C-100 a second supervisor on one ROOT is refused, and the first goes on", second_supervisor),
    ("C-100 a node that no supervisor started ends at once and touches nothing", second_node),
];

/// What a file may have become: its word, and how it came to it.
type Bad = (&'static str, fn(&Path));

const BAD: [Bad; 4] = [
    ("empty", |at| fs::write(at, "").unwrap()),
    ("torn", |at| {
        let whole = fs::read(at).unwrap();
        fs::write(at, &whole[..whole.len() / 2]).unwrap();
    }),
    ("zeros", |at| fs::write(at, [0; 4096]).unwrap()),
    ("huge", |at| fs::File::options().write(true).open(at).unwrap().set_len(64 << 20).unwrap()),
];

/// A run that waits to be let go, and its token.
pub(crate) fn waiting(host: &mut Host) -> (Asked, String) {
    let token = host.token();
    let script = host.until_let_go(&token);
    let message = host.message(&token, &script);
    let asked = host.post(&message);
    host.wait_running(&asked, &token);
    (asked, token)
}

pub(crate) fn ended(host: &mut Host, asked: &Asked) -> Value {
    let entry = host.trial.wait_for(asked, "ended", SOON).unwrap_or_else(|why| panic!("{why}"));
    Value::Object(message::find(&entry.text).unwrap().content)
}

pub(crate) fn count(host: &Host, asked: &Asked, kind: &str) -> usize {
    host.trial.thread(asked).unwrap().iter().filter(|entry| entry.kind == kind).count()
}

/// The next run runs: nothing holds it up.
pub(crate) fn goes_on(host: &mut Host) {
    let token = host.token();
    let message = host.message(&token, "exit 0");
    let asked = host.post(&message);
    assert_eq!(ended(host, &asked)["exit"], 0);
}

fn bad_states() {
    let mut host = Host::new("");
    for (what, spoil) in BAD {
        // The node dies: the run is in care, and ends as it would.
        let (asked, token) = waiting(&mut host);
        let state = host.state(&format!("{}.state", asked.run));
        // Before the next node looks, which its back-off leaves time for: the old one is stopped first.
        host.stop_node_and(|| spoil(&state));
        host.let_go(&token);
        assert_eq!(ended(&mut host, &asked)["outcome"], "exited", "{what}");
        assert_eq!(host.launches(&token), 1, "{what}");

        // The supervisor dies: it was taken, so it is lost.
        let (asked, token) = waiting(&mut host);
        host.kill_supervisor();
        let state = host.state(&format!("{}.state", asked.run));
        spoil(&state);
        host.start_supervisor();
        assert_eq!(ended(&mut host, &asked)["outcome"], "lost", "{what}");
        assert_eq!((host.launches(&token), count(&host, &asked, "ended")), (1, 1), "{what}");
        assert!(host.alive(&token).is_empty(), "{what}");
    }
    goes_on(&mut host);
    host.stop().unwrap();
}

fn bad_care() {
    let mut host = Host::new("");
    for (what, spoil) in BAD {
        let (asked, token) = waiting(&mut host);
        host.kill_supervisor();
        spoil(&host.care(&asked.run));
        host.start_supervisor();
        assert_eq!(ended(&mut host, &asked)["outcome"], "lost", "{what}");
        assert!(host.alive(&token).is_empty(), "{what}: P3: something of it lives");
        assert_eq!(host.launches(&token), 1, "{what}");
        host.let_go(&token);
    }
    goes_on(&mut host);
    let launched = fs::read_to_string(host.care("launched")).unwrap();
    assert_eq!(launched.lines().count(), BAD.len() + 1, "each is in care/launched: {launched}");
    host.stop().unwrap();
}

fn half_written() {
    let mut host = Host::new("");
    let (asked, token) = waiting(&mut host);
    host.kill_supervisor();
    for name in [host.care(&format!("{}.new", asked.run)), host.state(&format!("{}.state.new", asked.run))] {
        fs::write(name, "half of som").unwrap();
    }
    // A line of launched that was being written.
    let launched = host.care("launched");
    let mut text = fs::read(&launched).unwrap();
    text.extend_from_slice(&asked.run.as_bytes()[..20]);
    fs::write(&launched, text).unwrap();
    host.start_supervisor();
    assert_eq!(ended(&mut host, &asked)["outcome"], "lost");
    goes_on(&mut host);
    assert!(!host.care(&format!("{}.new", asked.run)).exists());
    assert!(!host.state(&format!("{}.state.new", asked.run)).exists());
    let launched = fs::read_to_string(launched).unwrap();
    assert!(launched.lines().any(|line| line == format!("{} 1", asked.run)), "{launched}");
    host.let_go(&token);
    host.stop().unwrap();
}

fn number_again() {
    let mut host = Host::new("");
    for (same, lives) in [(false, true), (true, false)] {
        let (asked, token) = waiting(&mut host);
        host.kill_supervisor();
        let mut stranger = Command::new("sleep").arg("600").spawn().unwrap();
        let care = host.care(&asked.run);
        let record = fs::read_to_string(&care).unwrap();
        let line = record.lines().find(|line| line.starts_with("init ")).unwrap().to_owned();
        let mut started: u64 = line.rsplit(' ').next().unwrap().parse().unwrap();
        if same {
            // The control: named by both numbers, it is taken for the run's own, and ended.
            started = ocx::trial::children::Named::now(stranger.id()).unwrap().start;
        }
        fs::write(&care, record.replace(&line, &format!("init {} {started}", stranger.id()))).unwrap();
        host.start_supervisor();
        assert_eq!(ended(&mut host, &asked)["outcome"], "lost");
        assert_eq!(stranger.try_wait().unwrap().is_none(), lives, "same start time: {same}");
        stranger.kill().unwrap();
        stranger.wait().unwrap();
        assert!(host.alive(&token).is_empty());
    }
    host.stop().unwrap();
}

/// Processes of a test, which go with it however it ends.
struct Ours(Vec<Child>);

impl Drop for Ours {
    fn drop(&mut self) {
        for one in &mut self.0 {
            one.kill().unwrap_or(());
            drop(one.wait());
        }
    }
}

/// The pid namespace's next number can be chosen where the kernel was built to restore processes.
pub(crate) const LAST_PID: &str = "/proc/sys/kernel/ns_last_pid";
pub(crate) const USED_AGAIN: (&str, fn()) =
    ("C-100 a process that came to a dead run's number is left alone, and the run is lost", used_again);

/// Not a record made up, as above: the very number, given again by the kernel, and the record as it was written.
fn used_again() {
    let mut host = Host::new("");
    let (asked, token) = waiting_to_end_with_its_supervisor(&mut host);
    let record = fs::read_to_string(host.care(&asked.run)).unwrap();
    let init = record.lines().find_map(|line| line.strip_prefix("init ")).unwrap();
    let pid: u32 = init.split(' ').next().unwrap().parse().unwrap();
    host.kill_supervisor();
    let deadline = Instant::now() + SOON;
    let mut stranger = loop {
        assert!(Instant::now() < deadline, "number {pid} did not come again");
        // Others take numbers too: it is tried until it comes.
        fs::write(LAST_PID, (pid - 1).to_string()).unwrap();
        let mut one = Command::new("sleep").arg("600").spawn().unwrap();
        if one.id() == pid {
            break Ours(vec![one]);
        }
        one.kill().unwrap();
        one.wait().unwrap();
    };
    host.start_supervisor();
    assert_eq!(ended(&mut host, &asked)["outcome"], "lost");
    assert!(stranger.0[0].try_wait().unwrap().is_none(), "a stranger was ended for a run");
    assert!(host.alive(&token).is_empty());
    host.stop().unwrap();
}

fn waiting_to_end_with_its_supervisor(host: &mut Host) -> (Asked, String) {
    let token = host.token();
    let script = host.until_let_go(&token);
    let mut message = host.message(&token, &script);
    message["run"]["sandbox"]["ends_with_parent"] = serde_json::json!(true);
    let asked = host.post(&message);
    host.wait_running(&asked, &token);
    (asked, token)
}

fn four_supervisors() {
    let mut host = Host::new("");
    let (asked, token) = waiting(&mut host);
    host.kill_supervisor();
    let program = host.trial.layout().dir.join("opt/current/ocx-supervisor");
    let start = |_| {
        let mut one = Command::new(&program);
        one.args(["serve", "--root"]).arg(host.trial.layout().root()).stdout(Stdio::null()).stderr(Stdio::piped());
        one.spawn().unwrap()
    };
    let mut all = Ours((0..4).map(start).collect());
    let deadline = Instant::now() + SOON;
    let mut refused = Vec::new();
    while refused.len() < 3 {
        assert!(Instant::now() < deadline, "only {} of four ended", refused.len());
        if let Some(at) = all.0.iter_mut().position(|one| one.try_wait().unwrap().is_some()) {
            refused.push(all.0.remove(at).wait_with_output().unwrap());
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    for one in refused {
        let said = String::from_utf8_lossy(&one.stderr).into_owned();
        assert!(!one.status.success() && said.contains("held by another supervisor"), "{said}");
    }
    // The one that is left took the run over.
    assert_eq!(ended(&mut host, &asked)["outcome"], "lost");
    assert_eq!((host.launches(&token), count(&host, &asked, "ended")), (1, 1));
    assert!(all.0[0].try_wait().unwrap().is_none());
    drop(all);
    host.start_supervisor();
    goes_on(&mut host);
    host.stop().unwrap();
}

fn second_supervisor() {
    let mut host = Host::new("");
    let (asked, token) = waiting(&mut host);
    let program = host.trial.layout().dir.join("opt/current/ocx-supervisor");
    let second = Command::new(program).args(["serve", "--root"]).arg(host.trial.layout().root()).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("held by another supervisor"), "{said}");
    host.let_go(&token);
    assert_eq!(ended(&mut host, &asked)["outcome"], "exited");
    host.stop().unwrap();
}

fn second_node() {
    let mut host = Host::new("");
    let (asked, token) = waiting(&mut host);
    let account = host.trial.layout().accounts().node;
    let mut second = Command::new(host.trial.layout().dir.join("opt/current/ocx"));
    use std::os::unix::process::CommandExt as _;
    second.args(["node", "--root"]).arg(host.trial.layout().root()).uid(account.uid).gid(account.gid);
    let state = fs::read(host.state(&format!("{}.state", asked.run))).unwrap();
    let second = second.env_clear().stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8_lossy(&second.stderr).into_owned();
    assert!(!second.status.success() && said.contains("started by ocx-supervisor alone"), "{said}");
    assert_eq!(fs::read(host.state(&format!("{}.state", asked.run))).unwrap(), state);
    std::thread::sleep(Duration::from_millis(200));
    host.let_go(&token);
    assert_eq!(ended(&mut host, &asked)["outcome"], "exited");
    assert_eq!(count(&host, &asked, "ended"), 1);
    host.stop().unwrap();
}

//! One case: a run, a failpoint, a death, a restart, and what must then hold (P1 to P7).

use std::time::{Duration, Instant};

use ocx::engine::message;
use ocx::trial::accounts::{ADMIN, NODE};
use ocx::trial::{Asked, Entry};
use serde_json::{Value, json};
use supervisor::points::{Moment, Point, Program};

use crate::cases::Scenario;
use crate::frozen::Disk;
use crate::host::{Host, SOON};

/// The SHA-256 of the file that a run makes.
const WHOLE: &str = "3661291e28107bb940142d346bdb3a86da68415ae7fe451374d403c6037b9fa5";

/// What dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Death {
    /// The protocol process.
    Node,
    /// The supervisor, and with it all it started.
    Supervisor,
    /// Both at once.
    Both,
    /// The host, and its disk had this.
    Host(Disk),
}

impl Death {
    pub(crate) const ALL: [Self; 5] =
        [Self::Node, Self::Supervisor, Self::Both, Self::Host(Disk::Oldest), Self::Host(Disk::Torn)];

    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Node => "the node killed",
            Self::Supervisor => "the supervisor killed",
            Self::Both => "both killed",
            Self::Host(Disk::Oldest) => "the host stopped, its disk without what was not synced",
            Self::Host(Disk::Torn) => "the host stopped, its disk with names and without bytes",
        }
    }
}

struct Case<'a> {
    host: &'a mut Host,
    token: String,
    scenario: Scenario,
    death: Death,
    /// The `ended` that was durable as the death came: no other can be posted any more.
    firm: Option<String>,
    /// Whether it may have been stopped before there was anything to stop.
    stopped_at_any_time: bool,
    /// How many plain replies it has once nothing is left to do of it, at least.
    replies: usize,
}

/// Runs one case; what is wrong, in words.
pub(crate) fn run(host: &mut Host, point: Point, scenario: Scenario, death: Death) -> Result<(), String> {
    let token = host.token();
    let mut case = Case { host, token, scenario, death, firm: None, stopped_at_any_time: false, replies: 0 };
    let asked = case.ask(&point.to_string());
    case.host.wait_fired()?;
    case.firm = case.durable_ended(&asked, point);
    case.die(point.program);
    // What an orphan's death is owed to is the supervisor, not its own end.
    if scenario != Scenario::Orphaned {
        case.host.let_go(&case.token);
    }
    if matches!(scenario, Scenario::Stopped | Scenario::Misplaced) {
        case.host.stop_run(&asked);
    }
    let ended = case.settled(&asked, SOON)?;
    let faults = case.faults(&asked, &ended);
    if faults.is_empty() { Ok(()) } else { Err(format!("{}\n{}", faults.join("\n"), case.host.log())) }
}

/// A run that was asked and met with deaths at any time.
pub(crate) struct Stormed {
    pub(crate) asked: Asked,
    pub(crate) token: String,
    pub(crate) scenario: Scenario,
}

/// Waits, for each at most so long, until nothing is left to do of these runs, and then looks at them; what is wrong with
/// any, in words.
pub(crate) fn after_a_storm(host: &mut Host, runs: &[&Stormed], wait: Duration) -> Result<(), String> {
    let mut ends = Vec::new();
    for run in runs {
        ends.push(run.case(host).settled(&run.asked, wait).map_err(|why| format!("{:?}: {why}", run.scenario))?);
    }
    // Only now: what one run still writes would be met while another is looked at.
    let mut faults = Vec::new();
    for (run, ended) in runs.iter().zip(ends) {
        let found = run.case(host).faults(&run.asked, &ended);
        faults.extend(found.into_iter().map(|it| format!("{}, {:?}: {it}", run.asked.run, run.scenario)));
    }
    if faults.is_empty() { Ok(()) } else { Err(format!("{}\n{}", faults.join("\n"), host.log())) }
}

impl Stormed {
    fn case<'a>(&self, host: &'a mut Host) -> Case<'a> {
        let (token, scenario) = (self.token.clone(), self.scenario);
        Case { host, token, scenario, death: Death::Both, firm: None, stopped_at_any_time: true, replies: 0 }
    }
}

impl Case<'_> {
    /// Asks for the run, with the point armed before what leads to it.
    fn ask(&mut self, point: &str) -> Asked {
        let token = self.token.clone();
        let waits = self.host.until_let_go(&token);
        match self.scenario {
            Scenario::Plain => {
                self.host.arm(point);
                let message = self.host.message(&token, "echo done");
                self.host.post(&message)
            }
            Scenario::Files => {
                self.host.arm(point);
                let message = self.files();
                self.host.post(&message)
            }
            Scenario::Judged => {
                self.host.arm(point);
                let mut message = self.host.message(&token, "echo done");
                message["run"]["of"] = json!("trunk");
                message["run"]["process"]["verdict"] = json!(true);
                self.host.post(&message)
            }
            Scenario::Saved => {
                self.host.arm(point);
                let mut message = self.host.message(&token, "echo done");
                message["run"]["sandbox"]["ends_with_parent"] = json!(true);
                message["run"]["workspace"] = json!([
                    {"step": "directory", "at": "$$root$$/$$run$$", "remove_on": "saved"},
                    {"step": "password"},
                    {"step": "clone", "into": "$$workspace$$/clone.fossil"},
                    {"step": "checkout", "of": "trunk", "into": "$$workspace$$/tree"}
                ]);
                self.host.post(&message)
            }
            Scenario::Published => {
                self.host.may_send_files(false);
                let message = self.files();
                let asked = self.host.post(&message);
                self.settled(&asked, SOON).unwrap_or_else(|why| panic!("{why}"));
                self.host.may_send_files(true);
                self.host.arm(point);
                self.host.publish(&asked);
                // That it could not be sent, and what became of it then.
                self.replies = 2;
                asked
            }
            Scenario::Refused => {
                self.host.arm(point);
                let mut message = self.host.message(&token, "echo done");
                message["run"]["sandbox"]["read_only"] = json!(["/sys/fs/cgroup"]);
                self.host.post(&message)
            }
            Scenario::StepFails => {
                self.host.arm(point);
                let mut message = self.host.message(&token, "echo done");
                let under = "$$root$$/in-the-way/below";
                message["run"]["workspace"] = json!([{"step": "directory", "at": under}]);
                std::fs::write(self.host.trial.layout().root().join("workspaces/in-the-way"), "").unwrap();
                self.host.post(&message)
            }
            Scenario::NotFound => {
                self.host.arm(point);
                let mut message = self.host.message(&token, "echo done");
                message["run"]["process"]["command"] = json!(["/usr/bin/no-such-program"]);
                self.host.post(&message)
            }
            Scenario::Stopped => {
                let asked = self.waiting(&waits);
                self.host.arm(point);
                self.host.stop_run(&asked);
                asked
            }
            Scenario::Adopted => {
                let asked = self.waiting(&waits);
                self.host.arm(point);
                self.host.kill_node();
                asked
            }
            Scenario::Orphaned => {
                let asked = self.waiting(&waits);
                self.host.kill_supervisor();
                self.host.arm(point);
                self.host.start_supervisor();
                asked
            }
            Scenario::Misplaced => {
                let asked = self.waiting(&waits);
                self.host.arm(point);
                let stop = json!({"ocx": 2, "re": asked.run, "stop": {}});
                self.host.session(ADMIN).new_thread("Elsewhere", &format!("```json\n{stop}\n```\n"));
                asked
            }
            Scenario::Folded => {
                let message = self.host.message(&token, "echo done");
                let asked = self.host.post(&message);
                self.settled(&asked, SOON).unwrap_or_else(|why| panic!("{why}"));
                let state = self.host.state(&format!("{}.state", asked.run));
                let old = std::time::SystemTime::now() - ocx::node::fold::FOLD_AFTER - Duration::from_secs(86_400);
                std::fs::File::options().write(true).open(state).unwrap().set_modified(old).unwrap();
                self.host.arm(point);
                // By the next one.
                self.host.kill_node();
                asked
            }
            Scenario::Forgotten => {
                self.host.kill_supervisor();
                let message = self.host.message(&token, "echo done");
                let asked = self.host.post(&message);
                let launched = self.host.care("launched");
                let mut text = std::fs::read_to_string(&launched).unwrap();
                text.push_str(&format!("{} 1\n", asked.run));
                std::fs::write(&launched, &text).unwrap();
                self.host.disk_has(&launched);
                self.host.arm(point);
                self.host.start_supervisor();
                asked
            }
        }
    }

    /// A run that names a file it makes and one it does not.
    fn files(&self) -> Value {
        let mut message = self.host.message(&self.token, "echo done; echo whole > made");
        let file = |name: &str| json!({"at": format!("$$workspace$$/{name}"), "as": format!("$$run$$/{name}")});
        message["run"]["process"]["unversioned_files"] = json!([file("made"), file("none")]);
        message
    }

    fn waiting(&mut self, script: &str) -> Asked {
        let message = self.host.message(&self.token, script);
        let asked = self.host.post(&message);
        self.host.wait_running(&asked, &self.token);
        asked
    }

    /// The text of `ended` in the run's state file, if nothing can take it away any more.
    fn durable_ended(&self, asked: &Asked, point: Point) -> Option<String> {
        // Renamed is not lasting; and a node that goes on while the supervisor stands still may be just there.
        let lasting = point.program == Program::Node && point.moment != Moment::Renamed;
        if matches!(self.death, Death::Host(_)) && !lasting {
            return None;
        }
        let text = std::fs::read(self.host.state(&format!("{}.state", asked.run))).ok()?;
        let record: Value = serde_json::from_slice(&text).ok()?;
        record["ended"].as_str().map(str::to_owned)
    }

    fn die(&mut self, reached: Program) {
        match self.death {
            Death::Node => {
                self.host.kill_node();
                self.host.go_on();
            }
            Death::Supervisor => {
                self.host.kill_supervisor();
                if reached == Program::Node {
                    self.host.go_on();
                }
                self.host.start_supervisor();
            }
            Death::Both => {
                self.host.kill_supervisor();
                self.host.kill_node();
                self.host.start_supervisor();
            }
            Death::Host(disk) => self.host.freeze(disk),
        }
    }

    /// Waits until the run has its `ended` and nothing is left to do of it; P3 is looked at as the `ended` is seen.
    fn settled(&mut self, asked: &Asked, wait: Duration) -> Result<Value, String> {
        let deadline = Instant::now() + wait;
        let wrong = |host: &Host, what: &str| format!("{what}\n{}", host.log());
        let mut ended = None;
        let mut looked = None;
        let mut replies = 0;
        loop {
            // All of the repository is read for it: only when there is something new.
            let now = self.host.server_changed();
            let thread = if (ended.is_none() || replies < self.replies) && looked != Some(now) {
                looked = Some(now);
                self.host.trial.thread(asked).map_err(|why| why.to_string())?
            } else {
                Vec::new()
            };
            replies = replies.max(thread.iter().filter(|it| it.kind == "text" && it.from == NODE.login).count());
            if ended.is_none()
                && let Some(entry) = thread.iter().find(|entry| entry.kind == "ended")
            {
                let alive = self.host.alive(&self.token);
                if !alive.is_empty() {
                    return Err(wrong(self.host, &format!("P3: ended is written while {alive:?} of it live")));
                }
                ended = Some(content(entry));
            }
            let in_care = self.host.care(&asked.run).exists();
            let record = std::fs::read_to_string(self.host.state(&format!("{}.state", asked.run))).unwrap_or_default();
            if let Some(ended) = &ended
                && !in_care
                && replies >= self.replies
                && (record.contains("done") || record.is_empty())
            {
                return Ok(ended.clone());
            }
            if Instant::now() >= deadline {
                let what = match ended {
                    None => "P2, P7: it was never answered".to_owned(),
                    Some(ended) => format!("it was answered by {ended}, and never settled: {record:?}, care {in_care}"),
                };
                return Err(wrong(self.host, &what));
            }
            std::thread::sleep(Duration::from_millis(30));
        }
    }

    fn faults(&self, asked: &Asked, ended: &Value) -> Vec<String> {
        let mut faults = Vec::new();
        let mut must = |holds: bool, what: String| {
            if !holds {
                faults.push(what);
            }
        };
        // Long enough for a second post to come that must not.
        std::thread::sleep(Duration::from_millis(200));
        let thread = self.host.trial.thread(asked).unwrap();
        let posts: Vec<&str> =
            thread.iter().skip(1).filter(|it| it.from == NODE.login).map(|it| it.kind.as_str()).collect();
        let launches = self.host.launches(&self.token);
        if let Some(firm) = &self.firm {
            let posted = thread.iter().find(|it| it.kind == "ended").map(|it| it.text.trim());
            must(posted == Some(firm.trim()), format!("2.13: {firm:?} was durable, and {posted:?} is posted"));
        }
        let outcome = ended["outcome"].as_str().unwrap_or("none").to_owned();
        let kept = std::fs::read_to_string(self.host.care("launched")).unwrap_or_default();
        let lines = kept.lines().filter(|line| line.starts_with(&asked.run)).count();

        must(launches <= 1, format!("P1: it was launched {launches} times"));
        let count = |kind: &str| posts.iter().filter(|it| **it == kind).count();
        must(count("ended") == 1, format!("P2: {posts:?}"));
        must(count("started") <= 1 && count("log") <= 1, format!("twice: {posts:?}"));
        must(count("text") <= self.replies.max(1), format!("twice: {posts:?}"));
        let order = ["started", "ended", "log", "text"];
        let places: Vec<_> = posts.iter().map(|it| order.iter().position(|kind| kind == it)).collect();
        must(places.iter().all(Option::is_some) && places.is_sorted(), format!("C-04: in this order: {posts:?}"));
        must(launches == 0 || count("started") == 1, format!("C-86: launched without started: {posts:?}"));
        must(launches == 0 || lines == 1, format!("C-101: launched, and {lines} lines in care/launched"));
        let alive = self.host.alive(&self.token);
        must(alive.is_empty(), format!("C-110: {alive:?} of it live"));

        // What it comes to without any death.
        let (expected, log, ran) = match self.scenario {
            Scenario::Plain | Scenario::Adopted | Scenario::Folded | Scenario::Judged => {
                (json!({"outcome": "exited", "exit": 0}), true, Some(1))
            }
            Scenario::Files | Scenario::Published => {
                let outputs = json!([{"as": format!("{}/made", asked.run), "sha256": WHOLE},
                    {"as": format!("{}/none", asked.run), "sha256": null}]);
                (json!({"outcome": "exited", "exit": 0, "outputs": outputs}), true, Some(1))
            }
            Scenario::Saved => {
                let workspace = "kept: publications pending";
                (json!({"outcome": "exited", "exit": 0, "workspace": workspace}), true, Some(1))
            }
            Scenario::NotFound => (json!({"outcome": "exited", "exit": 127}), true, Some(0)),
            // The waiting run is let go as it is stopped: either may be first.
            Scenario::Stopped | Scenario::Misplaced => (json!({"outcome": "stopped"}), false, Some(1)),
            Scenario::Refused => (json!({"outcome": "refused"}), false, Some(0)),
            Scenario::StepFails => (json!({"outcome": "refused"}), false, Some(0)),
            Scenario::Orphaned => (json!({"outcome": "lost"}), false, Some(1)),
            Scenario::Forgotten => (json!({"outcome": "lost"}), false, Some(0)),
        };
        let either = matches!(self.scenario, Scenario::Stopped | Scenario::Misplaced) && outcome == "exited";
        let mut said = ended.clone();
        if let Some(said) = said.as_object_mut() {
            said.remove("note");
        }
        let normal = said == expected || either;
        if self.death == Death::Node {
            must(normal, format!("C-38: the node's death changed the end: {ended} instead of {expected}"));
            must(!log || count("log") == 1, format!("C-108: the node's death lost the log: {posts:?}"));
        } else {
            must(normal || outcome == "lost", format!("{ended} instead of {expected} or lost"));
        }
        if matches!(self.scenario, Scenario::Files | Scenario::Published) {
            let made = format!("{}/made", asked.run);
            let there: Vec<_> =
                self.host.files().into_iter().filter(|(name, _)| name.starts_with(&asked.run)).collect();
            let sent = there == [(made, Some(NODE.login.to_owned()))];
            must(sent || there.is_empty(), format!("V2-2.10-21: {there:?}"));
            let told = thread.iter().any(|it| it.text.contains("/made\": sent, SHA-256"));
            must(!told || sent, format!("a reply says that it was sent: {there:?}"));
            if self.death == Death::Node {
                must(sent && told, format!("C-108: the node's death lost the file: {there:?}, {posts:?}"));
            }
        }
        if self.scenario == Scenario::Judged {
            let verdicts = self.host.verdicts(asked);
            must(verdicts <= 1, format!("V2-2.10-17: {verdicts} verdicts"));
            if self.death == Death::Node {
                must(verdicts == 1, "C-108: the node's death lost the verdict".to_owned());
            }
        }
        if self.scenario == Scenario::Saved && self.death == Death::Node {
            let workspace = self.host.trial.layout().root().join("workspaces").join(&asked.run);
            must(!workspace.exists(), "C-108: the node's death kept the workspace".to_owned());
        }
        must(outcome != "exited" || count("started") == 1, format!("exited without started: {posts:?}"));
        if normal && !either && !(self.stopped_at_any_time && outcome == "stopped") {
            must(ran.is_none_or(|ran| ran == launches), format!("{outcome}, and it ran {launches} times"));
        }
        if outcome == "refused" {
            let workspace = self.host.trial.layout().root().join("workspaces").join(&asked.run);
            must(!workspace.exists(), "P5: a refusal left a workspace".to_owned());
        }
        if self.scenario == Scenario::Folded {
            // C-112: in one place at least; and remembered once. A dead host's files are young again.
            let host_died = matches!(self.death, Death::Host(_));
            let deadline = Instant::now() + SOON;
            let (lines, state) = loop {
                let ledger = self.host.trial.layout().root().join("state/ledger");
                let ledger = std::fs::read_to_string(ledger).unwrap_or_default();
                let lines = ledger.lines().filter(|line| line.contains(&asked.run)).count();
                let state = self.host.state(&format!("{}.state", asked.run)).exists();
                if host_died || (lines > 0 && !state) || Instant::now() >= deadline {
                    break (lines, state);
                }
                std::thread::sleep(Duration::from_millis(30));
            };
            must(
                lines <= 1 && (lines == 1 || state),
                format!("C-112: {lines} lines in the ledger, its state: {state}"),
            );
            must(host_died || (lines == 1 && !state), format!("C-112: not folded: {lines} lines, its state: {state}"));
        }
        // P6: nothing half-written stays where it could be read.
        for file in std::fs::read_dir(self.host.trial.layout().root().join("state/runs")).unwrap().flatten() {
            let name = file.file_name().into_string().unwrap();
            // A run's own log is a line at a time, for people: nothing is read back from it to decide by.
            if name.ends_with(".log") {
                continue;
            }
            let text = std::fs::read(file.path()).unwrap();
            let whole = serde_json::from_slice::<Value>(&text).is_ok();
            must(whole && !name.ends_with(".new"), format!("P6: {name} stays: {}", String::from_utf8_lossy(&text)));
        }
        faults
    }
}

fn content(entry: &Entry) -> Value {
    message::find(&entry.text).map_or(Value::Null, |it| Value::Object(it.content))
}

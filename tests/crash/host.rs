//! A system whose programs have failpoints, used for one case after another.

use std::fs;
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use ocx::trial::accounts::{ADMIN, NODE, PROCESS, User};
use ocx::trial::children::Named;
use ocx::trial::{Asked, Interrupt, Setup, Trial, Where, request};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::{Value, json};

use crate::frozen::{self, Disk};

/// Longest wait for anything that needs no more than a pull and a post.
pub(crate) const SOON: Duration = Duration::from_secs(60);
/// Between two looks.
const LOOK: Duration = Duration::from_millis(10);

/// Runs of one host before it gives way to a new one.
const RUNS_MAX: u32 = 25;

/// Waits of the programs, shorter here than where they serve: an unknown post is judged after so many milliseconds
/// instead of 60 s, the chat is waited on so long instead of 75 s, and a lane that ended stays so for so long instead of
/// 30 s. The true ones are in `posting.rs` and `listener.rs`, tested there and in `tests/node`.
const WAITS: &str = "unknown 1500\nchat 1000\nlane 1000\n";

/// Puts a directory, with all that is in it, on a file system of its own.
fn put_on_disk(directory: &std::path::Path, options: &str) {
    use std::ffi::CString;
    let aside = directory.with_extension("aside");
    fs::rename(directory, &aside).unwrap();
    fs::create_dir(directory).unwrap();
    let options = CString::new(options).unwrap();
    rustix::mount::mount("tmpfs", directory, "tmpfs", rustix::mount::MountFlags::empty(), options.as_c_str()).unwrap();
    let copied =
        std::process::Command::new("cp").arg("-a").arg(format!("{}/.", aside.display())).arg(directory).status();
    assert!(copied.unwrap().success());
    fs::remove_dir_all(aside).unwrap();
}

/// Gives the clone's user these letters.
fn letters(trial: &Trial, letters: &str) {
    let deadline = Instant::now() + SOON;
    loop {
        let mut fossil = std::process::Command::new("fossil");
        fossil.args(["user", "capabilities", NODE.login, letters, "-R"]).arg(trial.layout().repository());
        let done = fossil.env("HOME", &trial.layout().dir).output().unwrap();
        if done.status.success() {
            return;
        }
        // Another writer holds the file.
        assert!(Instant::now() < deadline, "{}", String::from_utf8_lossy(&done.stderr));
        std::thread::sleep(LOOK);
    }
}

pub(crate) struct Host {
    pub(crate) trial: Trial,
    pub(crate) clone: String,
    /// How often its clock's boot was a new one.
    boots: u32,
    /// How many runs were asked here.
    asked: u32,
}

impl Host {
    pub(crate) fn new(broken: &str) -> Self {
        Self::made(broken, None)
    }

    /// One whose `ROOT` is a file system of 64 MiB.
    pub(crate) fn on_small_disk() -> Self {
        Self::made("", Some("size=64m,mode=0711"))
    }

    fn made(broken: &str, disk: Option<&str>) -> Self {
        let setup = Setup { programs: Some(crate::support::programs_with_failpoints().to_owned()), ..Setup::default() };
        let mut trial = Trial::make(&setup, Interrupt::default()).unwrap_or_else(|why| panic!("{why}"));
        if let Some(disk) = disk {
            put_on_disk(&trial.layout().root(), disk);
        }
        let accounts = trial.layout().accounts();
        let make = |path: PathBuf, owner: supervisor::wire::accounts::Account| {
            fs::DirBuilder::new().mode(0o700).create(&path).unwrap();
            chown(&path, Some(owner.uid), Some(owner.gid)).unwrap();
        };
        let points = trial.layout().root().join("state/points");
        make(points.clone(), accounts.node);
        frozen::make(&points);
        for (name, text) in [("waits", WAITS), ("broken", broken)] {
            let path = points.join(name);
            fs::write(&path, text).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
        }
        make(trial.layout().dir.join("outside"), accounts.run);
        letters(&trial, "goC4wiy");
        let passwords = trial.layout().passwords();
        let mut kept: Value = serde_json::from_slice(&fs::read(&passwords).unwrap()).unwrap();
        kept["runs"] = json!({ PROCESS.login: trial.password(PROCESS) });
        fs::write(&passwords, kept.to_string()).unwrap();
        trial.start_supervisor().unwrap_or_else(|why| panic!("{why}"));
        let clone = trial.wait_ready().unwrap_or_else(|why| panic!("{why}"));
        let mut host = Self { trial, clone, boots: 0, asked: 0 };
        // The clone as a disk may have it that lost every write since.
        host.kill_supervisor();
        fs::copy(host.trial.layout().clone_file(), host.first_clone()).unwrap();
        host.start_supervisor();
        host
    }

    fn first_clone(&self) -> PathBuf {
        self.trial.layout().dir.join("clone.first")
    }

    pub(crate) fn points(&self) -> PathBuf {
        self.trial.layout().root().join("state/points")
    }

    /// Where runs leave word that they ran.
    pub(crate) fn outside(&self) -> PathBuf {
        self.trial.layout().dir.join("outside")
    }

    pub(crate) fn care(&self, name: &str) -> PathBuf {
        self.trial.layout().root().join("care").join(name)
    }

    pub(crate) fn state(&self, name: &str) -> PathBuf {
        self.trial.layout().root().join("state/runs").join(name)
    }

    /// A name for the next run, found in its process's words and in `outside`.
    pub(crate) fn token(&mut self) -> String {
        self.asked += 1;
        format!("54321.{}{:03}", std::process::id(), self.asked)
    }

    /// A run's message: it says outside that it runs, leaves a process behind, and then does this.
    pub(crate) fn message(&self, token: &str, then: &str) -> Value {
        let outside = self.outside();
        let script = format!(
            "echo x >> {outside}/{token}; setsid sleep {token} </dev/null >/dev/null 2>&1 & {then}",
            outside = outside.display()
        );
        let command = ["sh", "-c", &script].map(String::from);
        let mut message = request::message(NODE.login, &self.clone, PROCESS.login, &command);
        message["run"]["sandbox"]["read_write"] = json!(["$$workspace$$", outside]);
        // A run that outlives its supervisor is the next one's to end.
        message["run"]["sandbox"]["ends_with_parent"] = json!(self.asked.is_multiple_of(2));
        message
    }

    /// What a script does until it is let go.
    pub(crate) fn until_let_go(&self, token: &str) -> String {
        format!("while [ ! -e {}/{token}.go ]; do sleep 0.05; done; echo done", self.outside().display())
    }

    pub(crate) fn let_go(&self, token: &str) {
        fs::write(self.outside().join(format!("{token}.go")), "").unwrap();
    }

    pub(crate) fn post(&mut self, message: &Value) -> Asked {
        let text = request::post("For a test.", message);
        self.trial.post_run(Where::Thread, &text).unwrap_or_else(|why| panic!("{why}"))
    }

    pub(crate) fn session(&self, user: User) -> ocx::fossil::Session {
        self.trial.session(user).unwrap()
    }

    /// What a test wrote is on the disk, as far as a host that stops is concerned.
    pub(crate) fn disk_has(&self, file: &std::path::Path) {
        frozen::remember(&self.points(), file.parent().unwrap());
    }

    pub(crate) fn stop_run(&self, asked: &Asked) {
        let stop = json!({"ocx": 2, "re": asked.run, "stop": {}});
        self.session(ADMIN).reply(&asked.run, &format!("```json\n{stop}\n```\n"));
    }

    /// Lets the clone's user write unversioned files, or no more.
    pub(crate) fn may_send_files(&self, may: bool) {
        letters(&self.trial, if may { "goC4wiy" } else { "goC4wi" });
    }

    /// Asks for what is left of a run's plan.
    pub(crate) fn publish(&self, asked: &Asked) {
        let publish = json!({"ocx": 2, "to": NODE.login, "re": asked.run, "publish": {}});
        self.session(ADMIN).reply(&asked.run, &format!("```json\n{publish}\n```\n"));
    }

    /// Names and senders of the server's unversioned files.
    pub(crate) fn files(&self) -> Vec<(String, Option<String>)> {
        let list = self.session(ADMIN).unversioned().unwrap();
        list.into_iter().map(|it| (it.name, it.from)).collect()
    }

    /// How many verdicts on this run came to the server.
    pub(crate) fn verdicts(&self, asked: &Asked) -> u64 {
        let look = format!(
            "SELECT count(*) FROM event JOIN blob ON rid = objid WHERE type = 'g' AND content(uuid) LIKE '%{}%'",
            asked.run
        );
        let deadline = Instant::now() + SOON;
        loop {
            let mut fossil = std::process::Command::new("fossil");
            fossil.args(["sql", "--readonly", "-R"]).arg(self.trial.layout().repository()).arg(&look);
            let said = fossil.env("HOME", &self.trial.layout().dir).output().unwrap();
            if let Ok(count) = String::from_utf8_lossy(&said.stdout).trim().parse() {
                return count;
            }
            assert!(Instant::now() < deadline, "{}", String::from_utf8_lossy(&said.stderr));
            std::thread::sleep(LOOK);
        }
    }

    /// Waits until it is launched and has left word that it runs.
    pub(crate) fn wait_running(&mut self, asked: &Asked, token: &str) {
        assert!(self.trial.wait_running(asked, SOON).unwrap_or_else(|why| panic!("{why}")), "it ended without running");
        let deadline = Instant::now() + SOON;
        while self.launches(token) == 0 {
            assert!(Instant::now() < deadline, "it is launched, and does not run\n{}", self.log());
            std::thread::sleep(LOOK);
        }
    }

    /// What `ocx status --json` answers.
    pub(crate) fn status(&self) -> Value {
        let mut command = std::process::Command::new(crate::support::programs_with_failpoints().join("ocx"));
        let output = command.args(["status", "--json", "--root"]).arg(self.trial.layout().root()).output().unwrap();
        serde_json::from_slice::<Value>(&output.stdout).unwrap()["result"].take()
    }

    pub(crate) fn arm(&self, point: &str) {
        let fired = self.points().join("fired");
        fs::remove_file(fired).unwrap_or(());
        // Whole from the first moment on.
        let new = self.points().join("armed.new");
        fs::write(&new, point).unwrap();
        fs::set_permissions(&new, fs::Permissions::from_mode(0o644)).unwrap();
        fs::rename(new, self.points().join("armed")).unwrap();
    }

    /// Waits until the point armed was reached, which is what a case is about: without it there is none.
    pub(crate) fn wait_fired(&self) -> Result<(), String> {
        let deadline = Instant::now() + SOON;
        while !self.points().join("fired").exists() {
            if Instant::now() >= deadline {
                fs::remove_file(self.points().join("armed")).unwrap_or(());
                return Err(format!("the failpoint was not reached\n{}", self.log()));
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    pub(crate) fn kill_supervisor(&mut self) {
        self.trial.kill_supervisor().unwrap_or_else(|why| panic!("{why}"));
    }

    pub(crate) fn start_supervisor(&mut self) {
        self.trial.start_supervisor().unwrap_or_else(|why| panic!("{why}"));
    }

    pub(crate) fn kill_node(&self) {
        for process in self.trial.node() {
            assert!(process.end(Duration::ZERO, || false), "the node stays after KILL");
        }
    }

    /// Continues what the point stopped, if it is still there.
    pub(crate) fn go_on(&self) {
        for process in self.trial.node().into_iter().chain(self.trial.supervisor()) {
            if let Some(pid) = process.open().and_then(|_held| Pid::from_raw(process.pid)) {
                kill_process(pid, Signal::CONT).unwrap_or(());
            }
        }
    }

    /// The host stops in the middle, and is started again with what its disk had.
    pub(crate) fn freeze(&mut self, disk: Disk) {
        self.trial.kill_host().unwrap_or_else(|why| panic!("{why}"));
        frozen::restore(&self.points(), disk);
        if disk == Disk::Oldest {
            let clone = self.trial.layout().clone_file();
            for side in ["-journal", "-wal", "-shm"] {
                let mut name = clone.clone().into_os_string();
                name.push(side);
                fs::remove_file(name).unwrap_or(());
            }
            // Over the file itself, which keeps its owner and mode.
            fs::write(&clone, fs::read(self.first_clone()).unwrap()).unwrap();
            for workspace in fs::read_dir(self.trial.layout().root().join("workspaces")).unwrap().flatten() {
                if workspace.file_type().unwrap().is_dir() {
                    fs::remove_dir_all(workspace.path()).unwrap();
                }
            }
        }
        self.boots += 1;
        let boot = self.points().join("boot");
        fs::write(&boot, format!("0c0c0c0c-boot-{}", self.boots)).unwrap();
        fs::set_permissions(&boot, fs::Permissions::from_mode(0o644)).unwrap();
        self.start_supervisor();
    }

    /// Processes of this host with this token among their words.
    pub(crate) fn alive(&self, token: &str) -> Vec<i32> {
        let accounts = self.trial.layout().accounts();
        let ours = ocx::trial::children::of_users(&[accounts.run.uid, accounts.open.uid, accounts.cell.uid]);
        let has = |it: &Named| {
            let line = fs::read(format!("/proc/{}/cmdline", it.pid)).unwrap_or_default();
            String::from_utf8_lossy(&line).contains(token)
        };
        ours.into_iter().filter(has).map(|it| it.pid).collect()
    }

    /// Bytes free on `ROOT`'s file system.
    pub(crate) fn free(&self) -> usize {
        let about = rustix::fs::statvfs(self.trial.layout().root()).unwrap();
        usize::try_from(about.f_bavail * about.f_frsize).unwrap()
    }

    /// Kills the node and does this before there is another.
    pub(crate) fn stop_node_and(&self, then: impl FnOnce()) {
        let supervisor = self.trial.supervisor().unwrap();
        let pid = Pid::from_raw(supervisor.pid).unwrap();
        kill_process(pid, Signal::STOP).unwrap();
        self.kill_node();
        then();
        kill_process(pid, Signal::CONT).unwrap();
    }

    /// When something was last written in the server's repository.
    pub(crate) fn server_changed(&self) -> (i64, i64, u64) {
        use std::os::unix::fs::MetadataExt as _;
        let about = fs::metadata(self.trial.layout().repository()).unwrap();
        (about.mtime(), about.mtime_nsec(), about.size())
    }

    /// Whether it has had so many runs that its history makes every start slow.
    pub(crate) const fn is_old(&self) -> bool {
        self.asked >= RUNS_MAX
    }

    /// How often the run of this token ran.
    pub(crate) fn launches(&self, token: &str) -> usize {
        fs::read_to_string(self.outside().join(token)).unwrap_or_default().lines().count()
    }

    /// The end of the supervisor's and the node's log.
    pub(crate) fn log(&self) -> String {
        let text = fs::read_to_string(self.trial.layout().log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        lines.get(lines.len().saturating_sub(40)..).unwrap_or(&[]).join("\n")
    }

    /// Nothing of the tests is left behind.
    pub(crate) fn stop(self) -> Result<(), String> {
        self.trial.stop().map_err(|why| why.to_string())
    }
}

//! What confining one process costs, as root, against bubblewrap and against the floor (`floor.c`: the same system calls and
//! nothing else): `cargo bench -p supervisor --bench launch`.
//!
//! Numbers, and no verdict: every entry is launched once a round, in turn, so that a round's ratio is of one moment of the
//! machine; medians of those are told. What is promised stands beside each.
#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::indexing_slicing,
    reason = "a bench that finds what it did not expect ends there; its output is its result"
)]
#![allow(
    dead_code,
    unused_imports,
    unfulfilled_lint_expectations,
    reason = "the launcher's modules are the program's too: a bench uses a part of them"
)]

#[path = "../../src/capabilities.rs"]
mod capabilities;
#[path = "../../src/cgroup.rs"]
mod cgroup;
#[path = "../../src/host.rs"]
mod host;
#[path = "../../src/launch.rs"]
mod launch;
#[path = "../../src/own_files.rs"]
mod own_files;
#[path = "../../src/policy.rs"]
mod policy;
#[path = "../../src/sys.rs"]
mod sys;

use std::collections::BTreeMap;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::fs::chown;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::{Duration, Instant};

use cgroup::RunCgroup;
use host::Host;
use launch::Launching;
use rustix::process::{WaitId, WaitIdOptions, waitid};
use sandbox::spec::{Confinement, CreatedFile, Limits};
use supervisor::wire::accounts::{Account, Accounts, derive};
use supervisor::wire::plan::{LaunchPlan, Process};

/// An account that owns nothing.
const ACCOUNT: u32 = 64321;
/// Rounds of all entries; fewer with `--short`.
const ROUNDS: usize = 300;
/// How long launches are counted, for each number of workers.
const COUNTED: Duration = Duration::from_secs(4);
/// Memory this process holds while it launches beside many runs.
const BALLAST_MIB: usize = 200;
/// Runs it holds meanwhile.
const HELD: usize = 300;
/// The word that makes this program a worker that only counts.
const WORKER: &str = "--worker";

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().collect();
    if !rustix::process::geteuid().is_root() {
        eprintln!("confinement is made by root: run it as root; nothing was measured");
        return ExitCode::SUCCESS;
    }
    let bench = Bench::new();
    match words.iter().position(|it| it == WORKER).and_then(|at| words.get(at + 1)) {
        Some(which) => bench.count(which),
        None => bench.all(if words.iter().any(|it| it == "--short") { 20 } else { ROUNDS }),
    }
    ExitCode::SUCCESS
}

/// What all entries are launched with.
struct Bench {
    folder: PathBuf,
    host: Host,
    plan: LaunchPlan,
}

impl Drop for Bench {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.folder));
    }
}

/// One of what is compared.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Entry {
    Spawn,
    Bwrap,
    Floor,
    /// As the supervisor launches a run, policy and cgroup with it, but for its records on disk.
    Resident,
    /// Without its cgroup: what the floor does.
    Bare,
    Once,
}

const ENTRIES: [(Entry, &str); 6] = [
    (Entry::Spawn, "nothing but a spawn"),
    (Entry::Bwrap, "bwrap"),
    (Entry::Floor, "floor"),
    (Entry::Resident, "resident"),
    (Entry::Bare, "resident without a cgroup"),
    (Entry::Once, "once"),
];

impl Bench {
    fn new() -> Self {
        let folder = PathBuf::from(format!("/var/tmp/ocx-bench-{}", std::process::id()));
        let workspace = folder.join("w");
        std::fs::create_dir_all(&workspace).unwrap();
        chown(&workspace, Some(ACCOUNT), Some(ACCOUNT)).unwrap();
        let accounts = Accounts { run: Account { uid: ACCOUNT, gid: ACCOUNT }, ..derive(&folder) };
        let none = Path::new("/opt/ocx");
        let host = Host::look(&folder.join("root"), accounts, none, &none.join("current")).unwrap();
        std::fs::write(folder.join("filter"), &host.filter).unwrap();
        let bench = Self { plan: plan(&workspace), host, folder };
        bench.build_floor();
        let plan = &bench.plan;
        let file = serde_json::json!({"sandbox": plan.sandbox, "process":
            {"command": plan.process.command, "env": plan.process.env, "cwd": plan.process.cwd}});
        std::fs::write(bench.folder.join("once.json"), file.to_string()).unwrap();
        bench
    }

    /// The compiler is asked of the host: only a bench needs it.
    fn build_floor(&self) {
        let source = concat!(env!("CARGO_MANIFEST_DIR"), "/benches/launch/floor.c");
        let built =
            Command::new("cc").args(["-O2", "-static-pie", "-o"]).arg(self.folder.join("floor")).arg(source).status();
        assert!(built.is_ok_and(|it| it.success()), "the floor does not build: cc and a static C library are needed");
    }

    fn command(&self, entry: Entry) -> Command {
        let workspace = self.folder.join("w");
        let mut command;
        match entry {
            Entry::Floor => {
                command = Command::new(self.folder.join("floor"));
                command.arg(&workspace).arg(ACCOUNT.to_string()).arg(self.folder.join("filter")).arg("/bin/true");
            }
            Entry::Bwrap => {
                command = Command::new("bwrap");
                command.args([
                    "--unshare-all",
                    "--share-net",
                    "--die-with-parent",
                    "--new-session",
                    "--cap-drop",
                    "ALL",
                ]);
                command.args(["--uid", "1000", "--gid", "1000", "--hostname", "3f2a91c07b", "--clearenv"]);
                command.args([
                    "--setenv",
                    "PATH",
                    "/usr/bin:/bin",
                    "--proc",
                    "/proc",
                    "--dev",
                    "/dev",
                    "--tmpfs",
                    "/tmp",
                ]);
                for path in ["/usr", "/bin", "/lib", "/lib64", "/etc"] {
                    command.args(["--ro-bind", path, path]);
                }
                command.arg("--bind").args([&workspace, &workspace]).arg("--ro-bind").arg(self.folder.join("filter"));
                command.arg("/etc/passwd").arg("--chdir").arg(&workspace).arg("/bin/true");
            }
            Entry::Once => {
                command = Command::new(env!("CARGO_BIN_EXE_ocx-supervisor"));
                command.args(["once", "--account", &format!("{ACCOUNT}:{ACCOUNT}")]).arg(self.folder.join("once.json"));
            }
            Entry::Spawn | Entry::Resident | Entry::Bare => command = Command::new("/bin/true"),
        }
        command.stdin(Stdio::null()).stdout(Stdio::null());
        command
    }

    fn started(&self, plan: &LaunchPlan, cgroup: Option<&RunCgroup>) -> Launching {
        let checked = policy::check(plan, &self.host).unwrap();
        let null = || std::fs::File::options().read(true).write(true).open("/dev/null").map(OwnedFd::from).unwrap();
        let cell = launch::start(checked, [null(), null(), null()], cgroup, &self.host).unwrap();
        rustix::io::write(&cell.lifeline, &[sandbox::init::GO]).unwrap();
        cell
    }

    fn launch(&self, entry: Entry) -> Duration {
        let begin = Instant::now();
        match entry {
            Entry::Resident | Entry::Bare => {
                let cgroups = self.host.cgroups.as_ref().filter(|_| entry == Entry::Resident);
                let cgroup = cgroups.map(|it| it.create(&self.plan.run, &Limits::default()).unwrap());
                let cell = self.started(&self.plan, cgroup.as_ref());
                let ended = waitid(WaitId::PidFd(cell.pidfd.as_fd()), WaitIdOptions::EXITED).unwrap().unwrap();
                assert_eq!(ended.exit_status(), Some(0), "{:?}", said(cell));
                if let Some(cgroup) = cgroup {
                    cgroup.remove().unwrap();
                }
            }
            Entry::Spawn | Entry::Bwrap | Entry::Floor | Entry::Once => {
                assert!(self.command(entry).status().unwrap().success());
            }
        }
        begin.elapsed()
    }

    fn all(&self, rounds: usize) {
        println!("launches of /bin/true, medians of {rounds} rounds of all in turn");
        let times = self.rounds(rounds, &ENTRIES.map(|it| it.0));
        for ((entry, name), own) in ENTRIES.iter().zip(&times) {
            let to = |other: usize| ratio(own, &times[other]);
            print!("  {name:28} {:7.3} ms  {:5.2} x bwrap  {:5.2} x floor", middle(own), to(1), to(2));
            println!(
                "{}",
                match entry {
                    Entry::Resident => "   (promised: at most 0.50 x bwrap)",
                    Entry::Bare => "   (promised: at most 1.20 x floor)",
                    Entry::Once => "   (promised: at most 0.60 x bwrap)",
                    Entry::Spawn | Entry::Bwrap | Entry::Floor => "",
                }
            );
        }
        self.beside_many(rounds);
        self.left();
        self.throughput();
    }

    fn rounds(&self, rounds: usize, entries: &[Entry]) -> Vec<Vec<f64>> {
        let mut times = vec![Vec::new(); entries.len()];
        for round in 0..rounds + 3 {
            for (entry, times) in entries.iter().zip(&mut times) {
                let took = self.launch(*entry).as_secs_f64() * 1000.0;
                // The first find nothing warm.
                if round >= 3 {
                    times.push(took);
                }
            }
        }
        times
    }

    /// Whether a launch costs the same from a process that holds much, beside many runs.
    fn beside_many(&self, rounds: usize) {
        let alone = self.rounds(rounds, &[Entry::Resident, Entry::Floor]);
        let ballast = vec![1_u8; BALLAST_MIB << 20];
        let mut plan = self.plan.clone();
        plan.process.command = ["/bin/sleep", "1000"].map(str::to_owned).to_vec();
        let held: Vec<Launching> = (0..HELD).map(|_| self.started(&plan, None)).collect();
        let beside = self.rounds(rounds, &[Entry::Resident, Entry::Floor]);
        println!("with {} MiB of its own and {} runs beside it", ballast.len() >> 20, held.len());
        let change = middle(&beside[0]) / middle(&alone[0]);
        let floor = middle(&beside[1]) / middle(&alone[1]);
        println!(
            "  resident {:7.3} ms, {change:5.2} x alone (the floor's own: {floor:5.2})   (promised: 0.90 to 1.10)",
            middle(&beside[0])
        );
        drop(held);
    }

    /// What is left for a run beside its program.
    fn left(&self) {
        let mut plan = self.plan.clone();
        plan.process.command = ["/bin/sleep", "1000"].map(str::to_owned).to_vec();
        let cell = self.started(&plan, None);
        let children = || children(cell.pid);
        let begin = Instant::now();
        while children().is_empty() || comm(children()[0]) != "sleep" {
            assert!(begin.elapsed() < Duration::from_secs(60), "its program never ran: {:?}", said(cell));
            std::thread::sleep(Duration::from_millis(5));
        }
        let pss = std::fs::read_to_string(format!("/proc/{}/smaps_rollup", cell.pid)).unwrap();
        let pss = pss.lines().find_map(|it| it.strip_prefix("Pss:")).unwrap().trim();
        println!("left for a run beside its program: 1 process, PSS {pss}   (promised: at most 100 kB)");
        drop(cell);
    }

    /// Launches a second, with one worker and with two.
    fn throughput(&self) {
        for workers in [1, 2] {
            let each = |which: &str| -> f64 {
                let own = std::env::current_exe().unwrap();
                let spawn = || Command::new(&own).args([WORKER, which]).stdout(Stdio::piped()).spawn().unwrap();
                let all: Vec<_> = (0..workers).map(|_| spawn()).collect();
                let count = |it: std::process::Child| {
                    let output = it.wait_with_output().unwrap();
                    String::from_utf8_lossy(&output.stdout).trim().parse::<f64>().unwrap()
                };
                all.into_iter().map(count).sum()
            };
            let (bwrap, own) = (each("bwrap"), each("resident"));
            println!(
                "launches a second, {workers} worker(s): bwrap {bwrap:.0}, resident {own:.0}, {:.2} x   (promised: at least 1.60)",
                own / bwrap
            );
        }
    }

    /// A worker: prints how many launches a second it made.
    fn count(&self, which: &str) {
        let entry = ENTRIES.iter().find(|it| it.1 == which).unwrap().0;
        let (begin, mut count) = (Instant::now(), 0_u32);
        while begin.elapsed() < COUNTED {
            self.launch(entry);
            count += 1;
        }
        println!("{}", f64::from(count) / begin.elapsed().as_secs_f64());
    }
}

fn plan(workspace: &Path) -> LaunchPlan {
    let workspace = workspace.display().to_string();
    let system = ["/usr", "/bin", "/lib", "/lib64", "/etc"].into_iter().filter(|it| Path::new(it).exists());
    LaunchPlan {
        // A worker has a cgroup of its own.
        run: format!("{:040x}", std::process::id()),
        workspace: None,
        sandbox: Some(Confinement {
            uid: 1000,
            gid: 1000,
            linux_capabilities: Vec::new(),
            network: true,
            isolate_terminal: true,
            ends_with_parent: true,
            proc: "/proc".into(),
            dev: "/dev".into(),
            tmp: "/tmp".into(),
            read_only: system.map(str::to_owned).collect(),
            read_write: vec![workspace.clone()],
            devices: Vec::new(),
            homes: Vec::new(),
            workspace_at: None,
            created_files: vec![CreatedFile {
                at: "/etc/passwd".into(),
                text: "builder:x:1000:1000::/:/bin/sh\n".into(),
            }],
        }),
        limits: Limits::default(),
        process: Process {
            command: vec!["/bin/true".into()],
            env: BTreeMap::from([("PATH".to_owned(), "/usr/bin:/bin".to_owned())]),
            cwd: workspace,
            keep_stderr_bytes: 0,
            keep_stdout_bytes: 0,
        },
    }
}

/// What a cell said, for a launch that went wrong.
fn said(cell: Launching) -> String {
    let mut all = Vec::new();
    drop(std::io::Read::read_to_end(&mut std::fs::File::from(cell.status), &mut all));
    String::from_utf8_lossy(&all).into_owned()
}

fn middle(times: &[f64]) -> f64 {
    let mut sorted = times.to_vec();
    sorted.sort_by(f64::total_cmp);
    sorted[sorted.len() / 2]
}

/// The middle of the ratios of each round.
fn ratio(own: &[f64], other: &[f64]) -> f64 {
    middle(&own.iter().zip(other).map(|(own, other)| own / other).collect::<Vec<_>>())
}

fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    text.split_whitespace().filter_map(|it| it.parse().ok()).collect()
}

fn comm(pid: u32) -> String {
    std::fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default().trim().to_owned()
}

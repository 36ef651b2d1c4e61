//! Care records: what must survive this process for each run in its care, in `ROOT/care/HASH` (decisions C-100, C-104).
//!
//! Text, `key value` a line, so that a person can read it when nothing runs.

use std::fmt::Write as _;
use std::io;
use std::os::fd::{AsFd as _, OwnedFd};

use supervisor::effects::Wrote;
use supervisor::points;
use supervisor::wire::message::Phase;

use crate::durable;
use crate::launched::{self, Launched};
use crate::run_hash::RunHash;

/// Largest record, in bytes: two paths, a few numbers, and a promise at its largest.
const RECORD_BYTES_MAX: u64 = 48 << 10;
/// Largest promise a record keeps, in bytes: some hundred mounts. A larger one cannot be audited.
const PROMISE_BYTES_MAX: usize = 16 << 10;
/// Most names in `ROOT/care`: more than runs can ever be in care, twice over.
const NAMES_MAX: usize = 4096;
/// First line of a record; another version is not read as this one.
const FIRST_LINE: &str = "ocx-care 1";

/// A process, by the two numbers that name it for as long as a boot lasts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Init {
    /// Its process id.
    pub(crate) pid: u32,
    /// When it started, in clock ticks since boot (`/proc/PID/stat`, field 22).
    pub(crate) started: u64,
}

/// What a record says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Record {
    /// The boot in which it was written.
    pub(crate) boot: String,
    /// How far the run had come.
    pub(crate) phase: Phase,
    /// How many launch marks were written: 0 or 1.
    pub(crate) launches: u32,
    /// The run's cgroup, once it has one: an absolute path.
    pub(crate) cgroup: Option<String>,
    /// The run's workspace, once a step names it.
    pub(crate) workspace: Option<String>,
    /// The check-in that its steps set last.
    pub(crate) checkin: Option<RunHash>,
    /// The first process of the sandbox, or of the step, that runs.
    pub(crate) init: Option<Init>,
    /// What the process is to be, as [`hex`] of its flat form, while it runs: for `audit`, and for nothing else.
    pub(crate) promise: Option<String>,
}

/// A promise as a record keeps it; none when it is too large for one.
#[must_use]
pub(crate) fn hex(promise: &[u8]) -> Option<String> {
    let digits = || promise.iter().map(|it| format!("{it:02x}")).collect();
    (promise.len() <= PROMISE_BYTES_MAX).then(digits)
}

/// What [`hex`] made.
#[must_use]
pub(crate) fn from_hex(hex: &str) -> Option<Vec<u8>> {
    let sound = hex.len().is_multiple_of(2) && hex.len() <= 2 * PROMISE_BYTES_MAX;
    let pair = |it: &[u8]| u8::from_str_radix(std::str::from_utf8(it).ok()?, 16).ok();
    if sound { hex.as_bytes().chunks_exact(2).map(pair).collect() } else { None }
}

/// One record found at start.
#[derive(Debug)]
pub(crate) struct Found {
    /// The run.
    pub(crate) run: RunHash,
    /// Its record, or why it cannot be read.
    pub(crate) record: Result<Record, String>,
}

/// `ROOT/care`, held by one supervisor.
#[derive(Debug)]
pub(crate) struct Care {
    path: std::path::PathBuf,
    directory: OwnedFd,
    launched: Launched,
    /// Held locked for as long as this process lives.
    _lock: OwnedFd,
    boot: String,
}

const PHASES: [(Phase, &str); 6] = [
    (Phase::Taken, "taken"),
    (Phase::Preparing, "preparing"),
    (Phase::Prepared, "prepared"),
    (Phase::Launched, "launched"),
    (Phase::Exited, "exited"),
    (Phase::Removed, "removed"),
];

/// A phase's word.
#[must_use]
pub(crate) fn phase_word(phase: Phase) -> &'static str {
    PHASES.iter().find(|(p, _)| *p == phase).map_or("launched", |(_, word)| word)
}

impl Record {
    /// The record of a run just taken.
    #[must_use]
    pub(crate) fn taken(boot: &str) -> Self {
        Self {
            boot: boot.to_owned(),
            phase: Phase::Taken,
            launches: 0,
            cgroup: None,
            workspace: None,
            checkin: None,
            init: None,
            promise: None,
        }
    }

    fn to_text(&self) -> String {
        let mut text =
            format!("{FIRST_LINE}\nboot {}\nphase {}\nlaunches {}\n", self.boot, phase_word(self.phase), self.launches);
        let mut line = |key: &str, value: &dyn std::fmt::Display| {
            // A String takes whatever is written to it.
            writeln!(text, "{key} {value}").unwrap_or(());
        };
        if let Some(cgroup) = &self.cgroup {
            line("cgroup", cgroup);
        }
        if let Some(workspace) = &self.workspace {
            line("workspace", workspace);
        }
        if let Some(checkin) = &self.checkin {
            line("checkin", checkin);
        }
        if let Some(init) = self.init {
            line("init", &format_args!("{} {}", init.pid, init.started));
        }
        if let Some(promise) = &self.promise {
            line("promise", promise);
        }
        text.push_str("end\n");
        text
    }

    /// Reads the record of a run beneath `ROOT/care`, whoever has it in care.
    ///
    /// # Errors
    /// That there is none, or that it cannot be believed.
    pub(crate) fn read(care: &OwnedFd, run: &RunHash) -> Result<Self, String> {
        let bytes = durable::read(care.as_fd(), &run.to_string(), RECORD_BYTES_MAX).map_err(|e| e.to_string())?;
        Self::parse(&bytes)
    }

    /// Reads a record; every line is one of ours, once, or the record is not believed.
    fn parse(bytes: &[u8]) -> Result<Self, String> {
        let text = std::str::from_utf8(bytes).map_err(|e| format!("not text: {e}"))?;
        let lines: Vec<&str> = text.strip_suffix('\n').ok_or("its last line has no end")?.split('\n').collect();
        let [FIRST_LINE, lines @ .., "end"] = lines.as_slice() else {
            return Err(format!("does not begin with {FIRST_LINE:?} and end with \"end\""));
        };
        let (mut boot, mut phase, mut launches) = (None, None, None);
        let (mut cgroup, mut workspace, mut checkin, mut init, mut promise) = (None, None, None, None, None);
        for line in lines {
            let (key, value) = line.split_once(' ').ok_or_else(|| format!("line {line:?} has no value"))?;
            let fault = || format!("line {line:?} is not understood");
            let again = match key {
                "boot" => boot.replace(value.to_owned()).is_some(),
                "phase" => {
                    let named = PHASES.iter().find(|(_, word)| *word == value).ok_or_else(fault)?;
                    phase.replace(named.0).is_some()
                }
                "launches" => launches.replace(value.parse().map_err(|_not_a_number| fault())?).is_some(),
                "cgroup" => cgroup.replace(absolute(value).ok_or_else(fault)?).is_some(),
                "workspace" => workspace.replace(absolute(value).ok_or_else(fault)?).is_some(),
                "checkin" => checkin.replace(RunHash::parse(value).ok_or_else(fault)?).is_some(),
                "init" => {
                    let (pid, started) = value.split_once(' ').ok_or_else(fault)?;
                    let pid = pid.parse().map_err(|_not_a_number| fault())?;
                    let started = started.parse().map_err(|_not_a_number| fault())?;
                    init.replace(Init { pid, started }).is_some()
                }
                "promise" => promise.replace(from_hex(value).map(|_| value.to_owned()).ok_or_else(fault)?).is_some(),
                _ => return Err(fault()),
            };
            if again {
                return Err(format!("{key} stands twice"));
            }
        }
        Ok(Self {
            boot: boot.ok_or("no boot")?,
            phase: phase.ok_or("no phase")?,
            launches: launches.ok_or("no launches")?,
            cgroup,
            workspace,
            checkin,
            init,
            promise,
        })
    }
}

fn absolute(path: &str) -> Option<String> {
    let sound = path.starts_with('/') && !path.contains('\0') && !path.split('/').any(|part| part == "..");
    sound.then(|| path.to_owned())
}

impl Care {
    /// Locks `ROOT/care` and reads all of it.
    ///
    /// # Errors
    /// When another supervisor holds the lock, or a file cannot be read or believed, in words.
    pub(crate) fn open(root: &std::path::Path, boot: &str) -> Result<(Self, Vec<Found>), String> {
        let path = root.join("care");
        let at = |what: &str, e: &dyn std::fmt::Display| format!("{}/{what}: {e}", path.display());
        let directory = durable::directory(&path).map_err(|e| at("", &e))?;
        let lock = lock(&directory).map_err(|e| at("lock", &e))?;
        let launched = Launched::open(directory.as_fd()).map_err(|e| at(launched::NAME, &e))?;
        let mut found = Vec::new();
        for name in durable::names(&directory, NAMES_MAX).map_err(|e| at("", &e))? {
            if let Some(run) = RunHash::parse(&name) {
                let record = durable::read(directory.as_fd(), &name, RECORD_BYTES_MAX)
                    .map_err(|e| format!("{}: {e}", path.display()));
                found.push(Found { run, record: record.and_then(|bytes| Record::parse(&bytes)) });
            } else if name.strip_suffix(".new").is_some_and(|run| RunHash::parse(run).is_some()) {
                // A record that was being written: the one it would have replaced, if any, stands.
                // What cannot be removed is in the way of that run alone.
                if let Err(error) = durable::remove(directory.as_fd(), &name, Wrote::Gone) {
                    crate::log::say(format_args!("{}", at(&name, &error)));
                }
            } else if name != launched::NAME && name != LOCK {
                crate::log::say(format_args!("{}: not one of ours, left alone", path.join(&name).display()));
            }
        }
        found.sort_by_key(|found| found.run);
        Ok((Self { path, directory, launched, _lock: lock, boot: boot.to_owned() }, found))
    }

    /// This boot's id.
    #[must_use]
    pub(crate) fn boot(&self) -> &str {
        &self.boot
    }

    /// How often a settled run was launched, if it was.
    #[must_use]
    pub(crate) fn launches(&self, run: &RunHash) -> Option<u32> {
        self.launched.launches(run)
    }

    /// Writes a run's record; `effect` says which time in its life, and whether the call waits for the disk.
    ///
    /// # Errors
    /// As [`durable::replace`], with the directory's path.
    pub(crate) fn write(&self, run: &RunHash, record: &Record, effect: Wrote) -> io::Result<()> {
        let written = durable::replace(self.directory.as_fd(), &run.to_string(), record.to_text().as_bytes(), effect);
        written.map_err(|error| self.at(&error))
    }

    fn at(&self, error: &io::Error) -> io::Error {
        io::Error::new(error.kind(), format!("{}: {error}", self.path.display()))
    }

    /// Settles a run: a line in `launched` if it was launched, then its record goes.
    ///
    /// # Errors
    /// As the calls fail, with the directory's path. The record goes only after the line is durable, so the run is then still in care.
    pub(crate) fn settle(&mut self, run: &RunHash, launches: u32) -> io::Result<()> {
        if launches > 0 && self.launched.launches(run).is_none() && !points::broken("line-of-launched") {
            self.launched.add(*run, launches).map_err(|error| self.at(&error))?;
        }
        durable::remove(self.directory.as_fd(), &run.to_string(), Wrote::Gone).map_err(|error| self.at(&error))
    }
}

/// The lock's name in `ROOT/care`.
const LOCK: &str = "lock";
/// Tries of taking it, and the wait between two: a supervisor killed while it started a cell leaves the lock with the
/// cell until that executes its program, a moment later.
const LOCK_TRIES: u32 = 20;
const LOCK_AGAIN: std::time::Duration = std::time::Duration::from_millis(50);

fn lock(care: &OwnedFd) -> io::Result<OwnedFd> {
    use rustix::fs::{FlockOperation, Mode, OFlags};
    durable::is_file(care.as_fd(), LOCK)?;
    let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let lock = rustix::fs::openat(care, LOCK, flags, Mode::RUSR | Mode::WUSR)?;
    let mut tries = 1;
    let locked = loop {
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Err(rustix::io::Errno::AGAIN) if tries < LOCK_TRIES => {
                tries += 1;
                std::thread::sleep(LOCK_AGAIN);
            }
            other => break other,
        }
    };
    match locked {
        Ok(()) => {}
        Err(rustix::io::Errno::AGAIN) => {
            let holder = durable::read(care.as_fd(), LOCK, 32).unwrap_or_default();
            let holder = String::from_utf8_lossy(&holder).trim().to_owned();
            return Err(io::Error::other(format!("held by another supervisor (pid {holder}); end that one first")));
        }
        Err(errno) => return Err(errno.into()),
    }
    rustix::fs::ftruncate(&lock, 0)?;
    let pid = format!("{}\n", std::process::id());
    rustix::io::pwrite(&lock, pid.as_bytes(), 0)?;
    Ok(lock)
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::testing::Scratch;

    fn full() -> Record {
        Record {
            boot: "0a-1b".into(),
            phase: Phase::Launched,
            launches: 1,
            cgroup: Some("/sys/fs/cgroup/ocx/a b".into()),
            checkin: RunHash::parse(&"c".repeat(40)),
            workspace: Some("/var/lib/ocx/workspaces/it's é".into()),
            init: Some(Init { pid: 4711, started: 99 }),
            promise: Some("00ff17".into()),
        }
    }

    fn root() -> Scratch {
        let root = Scratch::new();
        std::fs::create_dir(root.path().join("care")).unwrap();
        root
    }

    #[test]
    fn a_record_reads_back_as_written_in_every_phase() {
        for (phase, _) in PHASES {
            let record = Record { phase, ..full() };
            assert_eq!(Record::parse(record.to_text().as_bytes()).unwrap(), record);
        }
        let least = Record::taken("b");
        assert_eq!(Record::parse(least.to_text().as_bytes()).unwrap(), least);
    }

    #[test]
    fn p6_no_truncation_of_a_record_is_believed() {
        let text = full().to_text();
        for cut in 0..text.len() {
            assert!(Record::parse(text.as_bytes().get(..cut).unwrap()).is_err(), "cut at {cut}");
        }
        assert!(Record::parse(text.as_bytes()).is_ok());
    }

    #[test]
    fn garbage_repeated_and_unknown_lines_and_paths_that_climb_are_not_believed() {
        let text = full().to_text();
        for (from, to) in [
            ("boot 0a-1b\n", "boot 0a-1b\nboot 0a-1b\n"),
            ("boot 0a-1b\n", ""),
            ("launches 1", "launches -1"),
            ("phase launched", "phase flying"),
            ("cgroup /sys", "cgroup sys"),
            ("/cgroup/ocx", "/cgroup/../ocx"),
            ("init 4711", "init 99999999999"),
            ("promise 00ff17", "promise 00ff1"),
            ("promise 00ff17", "promise 00fg17"),
            ("end\n", "more 1\nend\n"),
            ("ocx-care 1", "ocx-care 2"),
        ] {
            assert!(text.contains(from), "{from}");
            assert!(Record::parse(text.replacen(from, to, 1).as_bytes()).is_err(), "{from:?} -> {to:?}");
        }
        assert!(Record::parse(&[0xff; 64]).is_err());
        assert!(Record::parse(b"").is_err());
    }

    #[test]
    fn the_lock_keeps_a_second_supervisor_out_and_goes_with_the_first() {
        let root = root();
        let first = Care::open(root.path(), "b").unwrap();
        let why = Care::open(root.path(), "b").unwrap_err();
        assert!(why.contains(&format!("pid {}", std::process::id())), "{why}");
        drop(first);
        Care::open(root.path(), "b").unwrap();
    }

    #[test]
    fn at_start_every_record_is_found_torn_ones_named_and_half_written_ones_dropped() {
        let root = root();
        let care = root.path().join("care");
        let run = |digit: &str| RunHash::parse(&digit.repeat(40)).unwrap();
        {
            let (care, _) = Care::open(root.path(), "b").unwrap();
            care.write(&run("a"), &full(), Wrote::Init).unwrap();
        }
        std::fs::write(care.join("b".repeat(40)), "ocx-care 1\nboot").unwrap();
        std::fs::write(care.join("c".repeat(40)), vec![b'x'; 1 << 20]).unwrap();
        std::fs::write(care.join("d".repeat(40) + ".new"), "half").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", care.join("e".repeat(40))).unwrap();
        rustix::fs::mknodat(
            rustix::fs::CWD,
            care.join("f".repeat(40)),
            rustix::fs::FileType::Fifo,
            rustix::fs::Mode::RUSR,
            0,
        )
        .unwrap();
        let (_care, found) = Care::open(root.path(), "b").unwrap();
        let read: Vec<_> = found.iter().map(|f| (f.run, f.record.is_ok())).collect();
        assert_eq!(
            read,
            [("a", true), ("b", false), ("c", false), ("e", false), ("f", false)].map(|(d, ok)| (run(d), ok))
        );
        assert!(!care.join("d".repeat(40) + ".new").exists());
    }

    #[test]
    fn c_101_settling_a_launched_run_leaves_a_line_and_an_unlaunched_one_nothing() {
        let root = root();
        let run = |digit: &str| RunHash::parse(&digit.repeat(40)).unwrap();
        let (mut care, _) = Care::open(root.path(), "b").unwrap();
        for (digit, launches) in [("a", 0), ("b", 1)] {
            care.write(&run(digit), &full(), Wrote::Init).unwrap();
            care.settle(&run(digit), launches).unwrap();
            // A release that was cut short is asked again.
            care.settle(&run(digit), launches).unwrap();
            assert_eq!(care.launches(&run(digit)), (launches > 0).then_some(launches));
        }
        let text = std::fs::read_to_string(root.path().join("care/launched")).unwrap();
        assert_eq!(text, format!("{} 1\n", run("b")));
        drop(care);
        assert!(Care::open(root.path(), "b").unwrap().1.is_empty());
    }
}

//! A cgroup for every run: what ends it whole, says when nothing of it is left, and limits its memory and processes.
//!
//! cgroup v2 kills and tells; memory and pids come from v2 where it has the controller, else from v1. Where no v2 is
//! mounted a v1 hierarchy does all of it: frozen or kept from forking its processes are killed one by one, and it is
//! looked at until it is empty. All groups of one `ROOT` lie in one parent named from it (decisions C-96), which goes
//! with its last group.

use std::ffi::CString;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use rustix::event::{EventfdFlags, eventfd};
use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use sandbox::promise::Groups;
use sandbox::spec::Limits;

/// Largest kernel file read here.
const FILE_BYTES_MAX: u64 = 1 << 20;

/// What an ordinary one is within.
const FILE_BYTES_USUAL: usize = 4 << 10;

/// The v1 hierarchies that can hold and end runs where there is no v2, best first.
const V1_ENDING: [&str; 3] = ["freezer", "pids", "memory"];
/// Most processes of a v1 group killed in one go; it is killed again at each look.
const KILL_MAX: usize = 1024;

/// How often a group is tried to be made while its parent goes away.
const MAKE_TRIES: u32 = 8;

/// Where a controller is.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Controller {
    /// In the unified hierarchy.
    V2,
    /// In a hierarchy of its own: the parent's directory there.
    V1(PathBuf),
}

/// Which kind of hierarchy ends runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Ends {
    /// The unified one: `cgroup.kill`, `populated`.
    V2,
    /// One of version 1; whether it is the freezer's.
    V1 { freezer: bool },
}

/// The host's hierarchies, and the parent of one `ROOT`'s groups in each.
#[derive(Debug, Clone)]
pub(crate) struct Cgroups {
    parent: PathBuf,
    ends: Ends,
    memory: Option<Controller>,
    pids: Option<Controller>,
    /// How many processes all in the parent together may have: three quarters of what the host can number, so that no
    /// run, however unlimited (2.3), takes the last pid from the host and from what has to end it.
    pids_max: u64,
}

fn read(path: &Path) -> io::Result<String> {
    // The kernel may write all of it again for each read: few large ones.
    let mut text = String::with_capacity(FILE_BYTES_USUAL);
    io::Read::read_to_string(&mut io::Read::take(File::open(path)?, FILE_BYTES_MAX), &mut text)?;
    Ok(text)
}

fn write(path: &Path, text: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().write(true).open(path).map_err(|error| named(path, &error))?;
    file.write_all(text.as_bytes()).map_err(|error| named(path, &error))
}

fn named(path: &Path, error: &io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

/// This process's own group in the hierarchy a line of /proc/self/cgroup names.
fn own_group(cgroup: &str, is: impl Fn(&str) -> bool) -> Option<&str> {
    cgroup.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        is(controllers).then_some(path)
    })
}

/// The mount point of a hierarchy, from /proc/self/mountinfo: its whole tree, by type and super options.
fn mounted(mountinfo: &str, kind: &str, controller: Option<&str>) -> Option<PathBuf> {
    mountinfo.lines().find_map(|line| {
        let (front, back) = line.split_once(" - ")?;
        let point = front.split(' ').nth(4)?;
        let mut back = back.split(' ');
        let (found, options) = (back.next()?, back.nth(1)?);
        let has = controller.is_none_or(|it| options.split(',').any(|option| option == it));
        (found == kind && has).then(|| PathBuf::from(point))
    })
}

/// Our own group in a v1 hierarchy.
fn v1_base(mountinfo: &str, cgroup: &str, which: &str) -> Option<PathBuf> {
    let mount = mounted(mountinfo, "cgroup", Some(which))?;
    let own = own_group(cgroup, |it| it.split(',').any(|one| one == which)).unwrap_or("/");
    let below = mount.join(own.trim_start_matches('/'));
    // In a cgroup namespace our own path may lie outside what is mounted.
    Some(if below.is_dir() { below } else { mount })
}

/// Three quarters of the processes the host can number.
fn pids_max() -> u64 {
    let number = |path: &str| read(Path::new(path)).ok().and_then(|it| it.trim().parse::<u64>().ok());
    let most = [number("/proc/sys/kernel/pid_max"), number("/proc/sys/kernel/threads-max")];
    let most = most.into_iter().flatten().min().unwrap_or(PIDS_UNKNOWN);
    most - most / 4
}

/// How many processes must be free for a run to be begun: its steps and its sandbox need some before it has any.
const PIDS_TO_BEGIN: u64 = 64;

/// The smallest `pid_max` a kernel starts with, where it does not say.
const PIDS_UNKNOWN: u64 = 32_768;

impl Cgroups {
    /// The hierarchies, with the parent `name` in each; `None` where none can be used.
    pub(crate) fn find(name: &str) -> Option<Self> {
        let mountinfo = read(Path::new("/proc/self/mountinfo")).ok()?;
        let cgroup = read(Path::new("/proc/self/cgroup")).ok()?;
        let Some(unified) = mounted(&mountinfo, "cgroup2", None) else {
            let v1 = |which: &str| v1_base(&mountinfo, &cgroup, which).map(|it| it.join(name));
            let (which, parent) = V1_ENDING.iter().find_map(|which| Some((*which, v1(which)?)))?;
            let controller = |which| v1(which).map(Controller::V1);
            return Some(Self {
                parent,
                ends: Ends::V1 { freezer: which == "freezer" },
                memory: controller("memory"),
                pids: controller("pids"),
                pids_max: pids_max(),
            });
        };
        let own = own_group(&cgroup, str::is_empty).unwrap_or("/");
        let places = places(&unified, own, delegated);
        let base = places.iter().find(|it| controls(it, "memory")).or_else(|| places.iter().find(|it| it.is_dir()))?;
        let controller = |which: &str| {
            if controls(base, which) {
                return Some(Controller::V2);
            }
            v1_base(&mountinfo, &cgroup, which).map(|it| Controller::V1(it.join(name)))
        };
        let (memory, pids) = (controller("memory"), controller("pids"));
        Some(Self { parent: base.join(name), ends: Ends::V2, memory, pids, pids_max: pids_max() })
    }

    /// All runs together have at most so many processes, as the owner has it.
    pub(crate) fn bound(&mut self, processes: u64) {
        self.pids_max = self.pids_max.min(processes);
    }

    /// Why no run is to be begun now, if the runs there are have all the processes there may be, or nearly so.
    pub(crate) fn full(&self) -> Option<String> {
        let parent = match self.pids.as_ref()? {
            Controller::V2 => &self.parent,
            Controller::V1(parent) => parent,
        };
        // With no run there is no group yet, and nothing is full.
        let now: u64 = read(&parent.join("pids.current")).ok()?.trim().parse().ok()?;
        (now.saturating_add(PIDS_TO_BEGIN) > self.pids_max).then(|| {
            format!(
                "the runs under way have {now} of the {} processes all may have together; it is taken once there is room \
                 (settings/processes)",
                self.pids_max
            )
        })
    }

    /// Whether a run's memory can be limited.
    pub(crate) const fn memory(&self) -> bool {
        self.memory.is_some()
    }

    /// Where a run's group is, if it has one.
    pub(crate) fn path_of(&self, run: &str) -> PathBuf {
        self.parent.join(run)
    }

    /// The groups of a run of an earlier supervisor, from the path its care record keeps; they may be gone.
    pub(crate) fn found(&self, path: &Path) -> RunCgroup {
        let run = path.file_name();
        let v1 = |controller: &Option<Controller>| match (controller, run) {
            (Some(Controller::V1(parent)), Some(run)) => Some(parent.join(run)),
            (Some(Controller::V1(_) | Controller::V2) | None, _) => None,
        };
        let v1 = [&self.memory, &self.pids].into_iter().filter_map(v1).collect();
        RunCgroup { path: path.to_owned(), ends: self.ends, v1, directory: None, oom: None }
    }

    /// Makes a run's group, with the limits a cgroup can give.
    ///
    /// # Errors
    /// As the file system of cgroups has them, naming the file. Nothing is left then.
    pub(crate) fn create(&self, run: &str, limits: &Limits) -> io::Result<RunCgroup> {
        let path = self.parent.join(run);
        make(&path)?;
        let mut group = RunCgroup { path, ends: self.ends, v1: Vec::new(), directory: None, oom: None };
        if self.ends == Ends::V2 {
            let directory = OpenOptions::new().read(true).custom_flags(libc::O_DIRECTORY).open(&group.path)?;
            group.directory = Some(directory.into());
        }
        match self.limit(&mut group, run, limits) {
            Ok(()) => Ok(group),
            Err(error) => {
                group.remove()?;
                Err(error)
            }
        }
    }

    fn limit(&self, group: &mut RunCgroup, run: &str, limits: &Limits) -> io::Result<()> {
        if let Some(bytes) = limits.memory_bytes {
            match self.memory.as_ref().ok_or_else(|| io::Error::other("no memory controller"))? {
                Controller::V2 => {
                    delegate(&self.parent, "memory")?;
                    write(&group.path.join("memory.max"), &bytes.to_string())?;
                    // Without swap accounting there is no swap to limit either way.
                    drop(write(&group.path.join("memory.swap.max"), "0"));
                    write(&group.path.join("memory.oom.group"), "1")?;
                    group.oom = Some(Oom::V2(File::open(group.path.join("memory.events"))?.into()));
                }
                Controller::V1(parent) => {
                    let own = group.v1(parent, run)?;
                    write(&own.join("memory.limit_in_bytes"), &bytes.to_string())?;
                    let with_swap = own.join("memory.memsw.limit_in_bytes");
                    if with_swap.exists() {
                        write(&with_swap, &bytes.to_string())?;
                    }
                    group.oom = Some(oom_v1(&own)?);
                }
            }
        }
        let Some(pids) = &self.pids else { return Ok(()) };
        let (own, parent) = match pids {
            Controller::V2 => {
                delegate(&self.parent, "pids")?;
                (group.path.clone(), &self.parent)
            }
            Controller::V1(parent) => (group.v1(parent, run)?, parent),
        };
        write(&parent.join("pids.max"), &self.pids_max.to_string())?;
        // The init of the sandbox is one more than the process and what it starts.
        // Without a limit one run still leaves half to the others, and to what the node drives.
        let most = limits.processes.map_or(self.pids_max / 2, |count| count.saturating_add(1));
        write(&own.join("pids.max"), &most.to_string())
    }
}

/// Makes a group and its parent. Another supervisor's or `once`'s last group may take the parent away in between.
fn make(path: &Path) -> io::Result<()> {
    for _ in 1..MAKE_TRIES {
        match fs::create_dir_all(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            other => return other.map_err(|error| named(path, &error)),
        }
    }
    fs::create_dir_all(path).map_err(|error| named(path, &error))
}

/// Where runs' groups can be, best first: our own group; the nearest above it that the service manager gave away, for
/// us to order as we like (a group with processes can pass on no controller, so we may sit in one below it); the top,
/// where the host has no such order.
fn places(unified: &Path, own: &str, delegated: impl Fn(&Path) -> bool) -> Vec<PathBuf> {
    let own = unified.join(own.trim_start_matches('/'));
    let above = own.ancestors().skip(1).take_while(|it| *it != unified && it.starts_with(unified));
    let given = above.map(Path::to_owned).find(|it| delegated(it));
    std::iter::once(own.clone()).chain(given).chain([unified.to_owned()]).collect()
}

/// Whether systemd marked a group as given away, and to root: `Delegate=` of systemd.resource-control(5). One that is a
/// user's, as of `user@1000.service`, that user may end whole.
fn delegated(group: &Path) -> bool {
    let roots = fs::metadata(group).is_ok_and(|it| it.uid() == 0);
    roots
        && ["trusted.delegate", "user.delegate"].iter().any(|mark| {
            let mut value = [0; 1];
            rustix::fs::getxattr(group, *mark, &mut value).is_ok_and(|length| value.get(..length) == Some(b"1"))
        })
}

/// Whether children of `parent` can be given this controller; asks for it where it is not on yet.
fn controls(parent: &Path, controller: &str) -> bool {
    let has = |file: &str| read(&parent.join(file)).is_ok_and(|it| it.split_whitespace().any(|one| one == controller));
    has("cgroup.controllers") && (has("cgroup.subtree_control") || delegate(parent, controller).is_ok())
}

fn delegate(parent: &Path, controller: &str) -> io::Result<()> {
    write(&parent.join("cgroup.subtree_control"), &format!("+{controller}"))
}

/// How memory running out is told.
#[derive(Debug)]
enum Oom {
    /// `memory.events`: ready with priority when it changes.
    V2(OwnedFd),
    /// An eventfd and the file that counts.
    V1(OwnedFd, PathBuf),
}

fn oom_v1(own: &Path) -> io::Result<Oom> {
    let event = eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?;
    let control = own.join("memory.oom_control");
    let file = File::open(&control)?;
    let line = format!("{} {}", event.as_raw_fd(), file.as_raw_fd());
    write(&own.join("cgroup.event_control"), &line)?;
    Ok(Oom::V1(event, control))
}

/// One run's groups.
#[derive(Debug)]
pub(crate) struct RunCgroup {
    path: PathBuf,
    ends: Ends,
    v1: Vec<PathBuf>,
    directory: Option<OwnedFd>,
    oom: Option<Oom>,
}

impl RunCgroup {
    /// Its directory in the hierarchy that ends it: what a care record keeps.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    fn v1(&mut self, parent: &Path, run: &str) -> io::Result<PathBuf> {
        let own = parent.join(run);
        make(&own)?;
        if own != self.path && !self.v1.contains(&own) {
            self.v1.push(own.clone());
        }
        Ok(own)
    }

    /// Its directory, for a child to be born in; none where the kernel has no such birth.
    pub(crate) fn directory(&self) -> Option<BorrowedFd<'_>> {
        self.directory.as_ref().map(AsFd::as_fd)
    }

    /// The `tasks` files of its v1 groups, opened with our rights for the child, which has one thread, to join by.
    /// `cgroup.procs`, which moves all threads of a process, waits until no fork of the whole host is under way:
    /// milliseconds, for a child that has nothing to wait for.
    ///
    /// # Errors
    /// As `open(2)` has them.
    pub(crate) fn joins(&self) -> io::Result<Vec<OwnedFd>> {
        let open = |it: &PathBuf| OpenOptions::new().write(true).open(it.join("tasks")).map(OwnedFd::from);
        let main = (self.ends != Ends::V2).then_some(&self.path);
        main.into_iter().chain(&self.v1).map(open).collect()
    }

    /// What a process that is in all of its groups can see of their names.
    ///
    /// # Errors
    /// When a name holds a zero byte.
    pub(crate) fn promised(&self) -> io::Result<Groups> {
        let mut names: Vec<&std::ffi::OsStr> = self.path.iter().rev().take(2).collect();
        names.push(std::ffi::OsStr::new(""));
        names.reverse();
        let end = names.join(std::ffi::OsStr::new("/")).into_encoded_bytes();
        let count = u32::try_from(self.v1.len() + 1).map_err(io::Error::other)?;
        Ok(Groups { end: CString::new(end).map_err(io::Error::other)?, count })
    }

    /// Sends SIGKILL to everything in it; nothing can refill it meanwhile. Under v1 a bounded number at a time, so it is
    /// called again until it is empty: see [`Self::kills_at_once`].
    ///
    /// # Errors
    /// As the kernel has them; none when the group is gone.
    pub(crate) fn kill(&self) -> io::Result<()> {
        let there = |answer: io::Result<()>| match answer {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
            other => other,
        };
        let Ends::V1 { freezer } = self.ends else { return there(write(&self.path.join("cgroup.kill"), "1")) };
        // What cannot fork, or runs no more, does not refill what is killed one by one.
        for group in self.v1.iter().chain([&self.path]) {
            if group.join("pids.max").exists() {
                there(write(&group.join("pids.max"), "0"))?;
            }
        }
        if freezer {
            there(write(&self.path.join("freezer.state"), "FROZEN"))?;
        }
        for pid in self.processes().into_iter().take(KILL_MAX) {
            self.kill_one(pid);
        }
        // Frozen, nothing dies.
        if freezer { there(write(&self.path.join("freezer.state"), "THAWED")) } else { Ok(()) }
    }

    /// Kills one process that was of the group a moment ago, if it still is: its number may be a stranger's by now.
    fn kill_one(&self, pid: u32) {
        let held = i32::try_from(pid).ok().and_then(Pid::from_raw);
        let Some(Ok(held)) = held.map(|pid| pidfd_open(pid, PidfdFlags::empty())) else { return };
        let (Some(parent), Some(run)) = (self.path.parent().and_then(Path::file_name), self.path.file_name()) else {
            return;
        };
        let own = format!("/{}/{}", parent.display(), run.display());
        let groups = read(Path::new(&format!("/proc/{pid}/cgroup"))).unwrap_or_default();
        if groups.lines().any(|line| line.ends_with(&own)) {
            // Fails only for a process that is gone.
            let _gone = pidfd_send_signal(&held, Signal::KILL);
        }
    }

    /// Whether one [`Self::kill`] is enough.
    pub(crate) fn kills_at_once(&self) -> bool {
        self.ends == Ends::V2
    }

    /// The processes in it, as far as one bounded read shows them; none when it is gone.
    pub(crate) fn processes(&self) -> Vec<u32> {
        let text = read(&self.path.join("cgroup.procs")).unwrap_or_default();
        text.lines().filter_map(|line| line.parse().ok()).collect()
    }

    /// Whether a process of it lives. A group that cannot be read counts as populated, one that is gone does not.
    pub(crate) fn populated(&self) -> bool {
        let (file, empty) = match self.ends {
            Ends::V2 => ("cgroup.events", "populated 0"),
            Ends::V1 { .. } => ("cgroup.procs", ""),
        };
        match read(&self.path.join(file)) {
            Ok(text) if empty.is_empty() => !text.is_empty(),
            Ok(text) => !text.lines().any(|it| it == empty),
            Err(error) => error.kind() != io::ErrorKind::NotFound,
        }
    }

    /// A descriptor that is ready with priority (EPOLLPRI) when [`Self::populated`] may have changed; none under v1,
    /// which tells nobody: look again.
    ///
    /// # Errors
    /// As `open(2)` has them.
    pub(crate) fn events_fd(&self) -> io::Result<Option<OwnedFd>> {
        match self.ends {
            Ends::V2 => File::open(self.path.join("cgroup.events")).map(|it| Some(OwnedFd::from(it))),
            Ends::V1 { .. } => Ok(None),
        }
    }

    /// A descriptor that is ready, readable (v1) or with priority (v2), when the group has run out of memory; none without
    /// a memory limit. Under v1 one process is killed only: end the run then.
    pub(crate) fn oom_fd(&self) -> Option<BorrowedFd<'_>> {
        match self.oom.as_ref()? {
            Oom::V2(fd) | Oom::V1(fd, _) => Some(fd.as_fd()),
        }
    }

    /// How many of its processes were killed because its memory ran out.
    pub(crate) fn oom_kills(&self) -> u64 {
        let path = match &self.oom {
            Some(Oom::V2(_)) => self.path.join("memory.events"),
            Some(Oom::V1(_, path)) => path.clone(),
            None => return 0,
        };
        let text = read(&path).unwrap_or_default();
        let count = text.lines().find_map(|it| it.strip_prefix("oom_kill ")).and_then(|it| it.trim().parse().ok());
        count.unwrap_or(0)
    }

    /// Removes it, and its parent with the last one. Only what nothing lives in can be removed.
    ///
    /// # Errors
    /// EBUSY while something lives in it; else as `rmdir(2)` has them.
    pub(crate) fn remove(&self) -> io::Result<()> {
        for path in self.v1.iter().chain([&self.path]) {
            match fs::remove_dir(path) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(named(path, &error)),
                Ok(()) | Err(_) => {}
            }
            if let Some(parent) = path.parent() {
                // Another run's group lies in it still: the last one takes it away.
                let _left = fs::remove_dir(parent);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MOUNTS: &str = "30 24 0:26 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n\
        31 24 0:27 / /sys/fs/cgroup/cpu,cpuacct rw - cgroup cgroup rw,cpu,cpuacct\n\
        32 24 0:28 / /sys/fs/cgroup/unified rw,relatime shared:9 - cgroup2 cgroup2 rw";

    #[test]
    fn groups_are_looked_for_at_home_then_where_they_were_given_away_then_at_the_top() {
        let own = "/system.slice/ocx.service/supervisor";
        let find = |given: &str| places(Path::new("/c"), own, |it| it == Path::new(given));
        let paths = |all: &[&str]| all.iter().map(PathBuf::from).collect::<Vec<_>>();
        let home = "/c/system.slice/ocx.service/supervisor";
        assert_eq!(find("/c/system.slice/ocx.service"), paths(&[home, "/c/system.slice/ocx.service", "/c"]));
        // Our own mark, the top's and one outside the hierarchy name no other place.
        for given in [home, "/c", "/", ""] {
            assert_eq!(find(given), paths(&[home, "/c"]));
        }
        assert_eq!(places(Path::new("/c"), "/", |_| true), paths(&["/c/", "/c"]));
    }

    #[test]
    fn a_hierarchy_is_found_by_type_and_controller() {
        assert_eq!(mounted(MOUNTS, "cgroup2", None), Some("/sys/fs/cgroup/unified".into()));
        assert_eq!(mounted(MOUNTS, "cgroup", Some("cpuacct")), Some("/sys/fs/cgroup/cpu,cpuacct".into()));
        assert_eq!(mounted(MOUNTS, "cgroup", Some("pids")), None);
        let own = "4:memory:/a/b\n1:cpu,cpuacct:/\n0::/c";
        assert_eq!(own_group(own, str::is_empty), Some("/c"));
        assert_eq!(own_group(own, |it| it == "memory"), Some("/a/b"));
    }
}

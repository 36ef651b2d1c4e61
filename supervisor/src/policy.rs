//! What the node asks → what may be done: a plan that was checked, with its host paths open, or why not (refusals 5, 6, 7).
//!
//! The only place where a plan becomes something to act on. Nothing the node checked is believed.

use std::io;
use std::os::fd::{AsFd as _, OwnedFd};
use std::path::{Path, PathBuf};

use rustix::fs::{AtFlags, CWD, FileType, Mode, OFlags, ResolveFlags, openat2, readlinkat, statat};
use rustix::io::Errno;
use sandbox::op::Kind;
use sandbox::recipe::within;
use sandbox::spec::Confinement;
use supervisor::wire::accounts::Account;
use supervisor::wire::plan::{KEEP_BYTES_MAX, LaunchPlan};

use crate::capabilities;
use crate::host::{Host, LANDLOCK_SCOPES};
use crate::own_files::path_of;
use crate::sys;

/// Row of the protocol's refusals: no sandbox where nothing runs without one.
const UNCONFINED: u8 = 5;
/// Row of the protocol's refusals: what this host does not provide.
pub(crate) const NOT_PROVIDED: u8 = 6;
/// Row of the protocol's refusals: a path outside where a run may reach.
const OUTSIDE: u8 = 7;
/// Most paths in one list of a plan.
const PATHS_MAX: usize = 256;

/// Why a plan is refused.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    /// The row, 5, 6 or 7.
    pub(crate) row: u8,
    /// The field at fault.
    pub(crate) field: String,
    /// Why, for the run's author.
    pub(crate) why: String,
}

impl Refusal {
    fn new(row: u8, field: impl Into<String>, why: impl Into<String>) -> Self {
        Self { row, field: field.into(), why: why.into() }
    }
}

/// A host path that was opened and may be shown.
#[derive(Debug)]
pub(crate) struct Opened {
    /// As asked, normalised.
    pub(crate) path: String,
    /// What it names.
    pub(crate) fd: OwnedFd,
    /// Folder or file.
    pub(crate) kind: Kind,
    /// When the path itself is a link in a plain folder: its text, and where it leads.
    pub(crate) link: Option<(String, String)>,
}

/// A plan that may be launched. Only [`check`] and [`step`] make one.
#[derive(Debug)]
pub(crate) struct CheckedPlan {
    pub(super) plan: LaunchPlan,
    /// None: it runs without a sandbox.
    pub(super) confinement: Option<Confinement>,
    /// The host account it runs as.
    pub(super) account: Account,
    pub(super) capabilities: u64,
    pub(super) read_only: Vec<Opened>,
    pub(super) read_write: Vec<Opened>,
    pub(super) devices: Vec<Opened>,
    pub(super) homes: Vec<Opened>,
    pub(super) workspace: Option<Opened>,
    /// The first host path that does not exist: the launch fails for it, the run is not refused (decisions C-45).
    pub(super) missing: Option<String>,
}

/// Checks a plan of the node's.
///
/// # Errors
/// The refusal, by row, field and reason.
pub(crate) fn check(plan: &LaunchPlan, host: &Host) -> Result<CheckedPlan, Refusal> {
    match &plan.sandbox {
        Some(confinement) => checked(plan, confinement, host, Asker::Node),
        None => unconfined(plan, host),
    }
}

/// Makes a checked plan of a workspace step, whose confinement the supervisor itself describes: OCX's own files may be
/// in it, all else holds.
///
/// # Errors
/// As [`check`] has them.
pub(crate) fn step(
    plan: &LaunchPlan,
    confinement: &Confinement,
    account: Account,
    host: &Host,
) -> Result<CheckedPlan, Refusal> {
    checked(plan, confinement, host, Asker::Step(account))
}

/// Who describes a confinement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asker {
    /// The node: nothing of it is believed.
    Node,
    /// The supervisor, for a step of this account.
    Step(Account),
}

/// A plan without a sandbox: the account's own rights are all that holds it, so none of its paths is looked at here.
fn unconfined(plan: &LaunchPlan, host: &Host) -> Result<CheckedPlan, Refusal> {
    host.unconfined().map_err(|why| Refusal::new(UNCONFINED, "sandbox", why))?;
    if plan.limits.processes.is_some() {
        let why = "it is counted by the sandbox's own user namespace, and the run has no sandbox";
        return Err(Refusal::new(NOT_PROVIDED, "limits.processes", why));
    }
    runnable(plan, host)?;
    let workspace = plan.workspace.as_deref().map(|it| workspace(it, &host.workspaces_open)).transpose()?;
    let plan = LaunchPlan { workspace, ..plan.clone() };
    Ok(CheckedPlan {
        plan,
        confinement: None,
        account: host.accounts.open,
        capabilities: 0,
        read_only: Vec::new(),
        read_write: Vec::new(),
        devices: Vec::new(),
        homes: Vec::new(),
        workspace: None,
        missing: None,
    })
}

fn checked(plan: &LaunchPlan, confinement: &Confinement, host: &Host, asker: Asker) -> Result<CheckedPlan, Refusal> {
    let (guarded, account) = match asker {
        Asker::Node => (true, host.accounts.run),
        Asker::Step(account) => (false, account),
    };
    provided(confinement, host)?;
    if plan.limits.processes == Some(0) {
        return Err(Refusal::new(NOT_PROVIDED, "limits.processes", "the process itself is one"));
    }
    runnable(plan, host)?;
    let capabilities = capabilities::bits(&confinement.linux_capabilities)
        .map_err(|(index, why)| Refusal::new(NOT_PROVIDED, format!("sandbox.linux_capabilities[{index}]"), why))?;
    let confinement = inside(confinement)?;
    let workspace = plan.workspace.as_deref().map(|it| workspace(it, &host.workspaces)).transpose()?;
    let opening = Opening { host, guarded, workspace: workspace.clone() };
    let unseen = |error: io::Error| Refusal::new(OUTSIDE, "sandbox", error.to_string());
    host.own.refresh().map_err(unseen)?;
    let mut checked = sys::with_eyes_of(account, || opening.all(&confinement)).map_err(unseen)??;
    checked.plan.clone_from(plan);
    checked.plan.workspace = workspace;
    checked.capabilities = capabilities;
    checked.confinement = Some(confinement);
    checked.account = account;
    Ok(checked)
}

/// What this host can give a sandbox at all.
fn provided(confinement: &Confinement, host: &Host) -> Result<(), Refusal> {
    let lacks = |field: &str, why: &str| Err(Refusal::new(NOT_PROVIDED, field, why));
    if !host.user_namespaces {
        return lacks("sandbox", "this host makes no user namespaces (user.max_user_namespaces is 0)");
    }
    if confinement.network && host.landlock_abi < LANDLOCK_SCOPES && !host.shared_abstract_sockets {
        let why = "this kernel's Landlock cannot keep the host's abstract sockets from a run that shares its network";
        return lacks("sandbox.network", why);
    }
    if !confinement.ends_with_parent && host.cgroups.is_none() {
        return lacks("sandbox.ends_with_parent", "false needs a cgroup hierarchy, and this host has none in use");
    }
    for (field, id) in [("sandbox.uid", confinement.uid), ("sandbox.gid", confinement.gid)] {
        if id == u32::MAX {
            return lacks(field, "4294967295 is no account");
        }
    }
    Ok(())
}

/// What any process needs, sandbox or not.
fn runnable(plan: &LaunchPlan, host: &Host) -> Result<(), Refusal> {
    let lacks = |field: &str, why: &str| Err(Refusal::new(NOT_PROVIDED, field, why));
    if plan.limits.memory_bytes.is_some() && !host.cgroups.as_ref().is_some_and(crate::cgroup::Cgroups::memory) {
        return lacks("limits.memory", "this host has no memory controller for it");
    }
    for (field, bytes) in [("stderr", plan.process.keep_stderr_bytes), ("stdout", plan.process.keep_stdout_bytes)] {
        if bytes > KEEP_BYTES_MAX {
            return lacks(&format!("process.keep.{field}"), &format!("more than {KEEP_BYTES_MAX} bytes"));
        }
    }
    if plan.process.command.is_empty() {
        return lacks("process.command", "it is empty");
    }
    for (name, value) in &plan.process.env {
        if name.is_empty() || name.contains(['=', '\0']) || value.contains('\0') {
            return lacks("process.env", "a variable's name is empty or holds =, or it holds a zero character");
        }
    }
    let texts = plan.process.command.iter().chain([&plan.process.cwd]);
    if texts.into_iter().any(|it| it.contains('\0')) {
        return lacks("process.command", "a text holds a zero character");
    }
    Ok(())
}

/// A path in one form: absolute, no `.` and no `..`, no repeated `/` and none at the end.
fn normal(path: &str) -> Result<String, &'static str> {
    if !path.starts_with('/') {
        return Err("it is not absolute");
    }
    if path.contains('\0') {
        return Err("it holds a zero character");
    }
    let parts: Vec<&str> = path.split('/').filter(|it| !it.is_empty() && *it != ".").collect();
    if parts.contains(&"..") {
        return Err("it has a .. part");
    }
    if path.len() >= libc_path_max() {
        return Err("it is longer than a path may be");
    }
    Ok(format!("/{}", parts.join("/")))
}

const fn libc_path_max() -> usize {
    4096 // PATH_MAX, with its final zero byte
}

/// The paths the process sees, each in one form; none of them is the root itself.
fn inside(confinement: &Confinement) -> Result<Confinement, Refusal> {
    let seen = |field: String, path: &str| match normal(path) {
        Ok(path) if path == "/" => Err(Refusal::new(OUTSIDE, field, format!("{path}: the root itself"))),
        Ok(path) => Ok(path),
        Err(why) => Err(Refusal::new(OUTSIDE, field, format!("{path}: {why}"))),
    };
    let mut inside = confinement.clone();
    inside.proc = seen("sandbox.proc".into(), &confinement.proc)?;
    inside.dev = seen("sandbox.dev".into(), &confinement.dev)?;
    inside.tmp = seen("sandbox.tmp".into(), &confinement.tmp)?;
    if let Some(at) = &confinement.workspace_at {
        inside.workspace_at = Some(seen("sandbox.workspace_at".into(), at)?);
    }
    for (index, file) in inside.created_files.iter_mut().enumerate() {
        file.at = seen(format!("sandbox.created_files[{index}].at"), &file.at)?;
    }
    Ok(inside)
}

/// The workspace a plan names: strictly below where workspaces of its kind are.
fn workspace(path: &str, root: &Path) -> Result<String, Refusal> {
    let outside = |why: &str| Refusal::new(OUTSIDE, "workspace", format!("{path}: {why}"));
    let path = normal(path).map_err(outside)?;
    let root = root.to_str().ok_or_else(|| outside("the workspaces' root is no text"))?;
    if path == root || !within(&path, root) {
        return Err(outside("it is not below where workspaces are"));
    }
    Ok(path)
}

/// Opens the host paths of one plan, with the run account's eyes.
struct Opening<'a> {
    host: &'a Host,
    guarded: bool,
    workspace: Option<String>,
}

/// Which list a path is in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum List {
    ReadOnly,
    ReadWrite,
    Homes,
}

impl Opening<'_> {
    fn all(&self, confinement: &Confinement) -> Result<CheckedPlan, Refusal> {
        let mut missing = None;
        let both = Self::normals(&confinement.read_write);
        let read_only: Vec<String> = confinement.read_only.clone();
        let read_only = self.list("sandbox.read_only", &read_only, List::ReadOnly, &both, &mut missing)?;
        let read_write =
            self.list("sandbox.read_write", &confinement.read_write, List::ReadWrite, &[], &mut missing)?;
        let devices = self.devices(&confinement.devices)?;
        let homes = self.list("sandbox.homes", &confinement.homes, List::Homes, &[], &mut missing)?;
        for (index, home) in homes.iter().enumerate() {
            let name = |it: &Opened| it.path.rsplit('/').next().unwrap_or_default().to_owned();
            let again = homes.iter().take(index).any(|it| name(it) == name(home));
            if self.workspace.is_none() || again {
                let why = if again { "another has the same base name" } else { "the run has no workspace" };
                return Err(Refusal::new(OUTSIDE, format!("sandbox.homes[{index}]"), format!("{}: {why}", home.path)));
            }
        }
        let workspace = match (&confinement.workspace_at, &self.workspace) {
            (Some(_), Some(path)) => match self.open(path) {
                Ok(opened) => Some(opened),
                Err(Unopened::Missing) => {
                    missing.get_or_insert_with(|| path.clone());
                    None
                }
                Err(Unopened::Refused(why)) => {
                    return Err(Refusal::new(OUTSIDE, "workspace", format!("{path}: {why}")));
                }
            },
            (Some(at), None) => {
                let why = format!("{at}: the run has no workspace");
                return Err(Refusal::new(OUTSIDE, "sandbox.workspace_at", why));
            }
            (None, _) => None,
        };
        // The plan's own parts are put in place by the caller.
        let plan = empty_plan();
        Ok(CheckedPlan {
            plan,
            confinement: None,
            account: self.host.accounts.run,
            capabilities: 0,
            read_only,
            read_write,
            devices,
            homes,
            workspace,
            missing,
        })
    }

    fn normals(paths: &[String]) -> Vec<String> {
        paths.iter().filter_map(|it| normal(it).ok()).collect()
    }

    fn list(
        &self,
        field: &str,
        paths: &[String],
        list: List,
        passed_over: &[String],
        missing: &mut Option<String>,
    ) -> Result<Vec<Opened>, Refusal> {
        if paths.len() > PATHS_MAX {
            return Err(Refusal::new(NOT_PROVIDED, field, format!("more than {PATHS_MAX} paths")));
        }
        let mut opened = Vec::new();
        for (index, path) in paths.iter().enumerate() {
            let refused = |why: &str| Refusal::new(OUTSIDE, format!("{field}[{index}]"), format!("{path}: {why}"));
            let plain = normal(path).map_err(refused)?;
            if passed_over.contains(&plain) {
                continue; // in both lists: it is read-write
            }
            match self.open(&plain) {
                Ok(it) => {
                    self.guard(&it, list).map_err(|why| refused(&why))?;
                    opened.push(it);
                }
                Err(Unopened::Missing) => {
                    missing.get_or_insert(plain);
                }
                Err(Unopened::Refused(why)) => return Err(refused(&why)),
            }
        }
        Ok(opened)
    }

    /// Whether what was opened is one of OCX's own files, and not one that this list may name.
    fn guard(&self, opened: &Opened, list: List) -> Result<(), String> {
        if !self.guarded {
            return Ok(());
        }
        let mut except: Vec<PathBuf> = self.workspace.iter().map(PathBuf::from).collect();
        match list {
            List::ReadOnly => except.push(self.host.release.clone()),
            List::ReadWrite => except.push(self.host.releases.join("staged")),
            List::Homes => {}
        }
        match self.host.own.forbids(opened.fd.as_fd(), list != List::ReadOnly, &except) {
            Ok(None) => Ok(()),
            Ok(Some(why)) => Err(why),
            Err(error) => Err(error.to_string()),
        }
    }

    /// Opens one path, as the account sees it. A path in the workspace goes through no link: an earlier run may have put
    /// one there; any other goes through ordinary ones.
    fn open(&self, path: &str) -> Result<Opened, Unopened> {
        let own = self.workspace.as_deref().is_some_and(|it| within(path, it));
        let flags = OFlags::PATH | OFlags::CLOEXEC;
        let plain = ResolveFlags::NO_MAGICLINKS | ResolveFlags::NO_SYMLINKS;
        let first = match openat2(CWD, path, flags | OFlags::NOFOLLOW, Mode::empty(), plain) {
            Err(Errno::LOOP) if !own => None,
            other => Some(other.map_err(|error| unopened(error, own))?),
        };
        let kind_of = |fd: &OwnedFd| {
            let about = statat(fd, c"", AtFlags::EMPTY_PATH).map_err(|error| unopened(error, own))?;
            Ok(FileType::from_raw_mode(about.st_mode))
        };
        let kind = |it: FileType| if it == FileType::Directory { Kind::Folder } else { Kind::File };
        let mut text = None;
        if let Some(fd) = first {
            let found = kind_of(&fd)?;
            if found != FileType::Symlink {
                return Ok(Opened { path: path.to_owned(), fd, kind: kind(found), link: None });
            }
            if own {
                return Err(unopened(Errno::LOOP, own));
            }
            let words = readlinkat(&fd, c"", Vec::new()).map_err(|error| unopened(error, own))?;
            text = words.into_string().ok();
        }
        let fd = openat2(CWD, path, flags, Mode::empty(), ResolveFlags::NO_MAGICLINKS)
            .map_err(|error| unopened(error, own))?;
        let found = kind_of(&fd)?;
        let leads_to = path_of(fd.as_fd()).ok().and_then(|it| it.into_os_string().into_string().ok());
        Ok(Opened { path: path.to_owned(), fd, kind: kind(found), link: text.zip(leads_to) })
    }

    fn devices(&self, paths: &[String]) -> Result<Vec<Opened>, Refusal> {
        let mut opened = Vec::new();
        for (index, path) in paths.iter().enumerate() {
            let refused =
                |why: &str| Refusal::new(OUTSIDE, format!("sandbox.devices[{index}]"), format!("{path}: {why}"));
            if normal(path).as_deref() != Ok(path) || path == "/dev" || !within(path, "/dev") || index >= PATHS_MAX {
                return Err(refused("it is no plain path within /dev"));
            }
            let it = match self.open(path) {
                Ok(it) => it,
                Err(Unopened::Missing) => continue, // passed over (2.8)
                Err(Unopened::Refused(why)) => return Err(refused(&why)),
            };
            let about = statat(&it.fd, c"", AtFlags::EMPTY_PATH).map_err(|error| refused(&error.to_string()))?;
            if !matches!(FileType::from_raw_mode(about.st_mode), FileType::CharacterDevice | FileType::BlockDevice) {
                return Err(refused("it is no device"));
            }
            let leads_to = path_of(it.fd.as_fd()).map_err(|error| refused(&error.to_string()))?;
            let kind = self.host.own.kind(it.fd.as_fd()).map_err(|error| refused(&error.to_string()))?;
            if !leads_to.starts_with(Path::new("/dev")) || kind == "devpts" {
                return Err(refused("it leads to a terminal of the host, or out of /dev"));
            }
            opened.push(it);
        }
        Ok(opened)
    }
}

enum Unopened {
    Missing,
    Refused(String),
}

fn unopened(error: Errno, own: bool) -> Unopened {
    match error {
        Errno::NOENT | Errno::NOTDIR => Unopened::Missing,
        Errno::ACCESS => Unopened::Refused("the run's account cannot reach it".to_owned()),
        Errno::LOOP if own => Unopened::Refused("it goes through a symbolic link in the workspace".to_owned()),
        Errno::LOOP => Unopened::Refused("it goes through too many links, or through one of proc's".to_owned()),
        error => Unopened::Refused(plain(error)),
    }
}

/// An error in the system's words alone.
pub(crate) fn plain(error: Errno) -> String {
    let text = io::Error::from(error).to_string();
    text.rsplit_once(" (os error").map_or(text.clone(), |(words, _)| words.to_owned())
}

fn empty_plan() -> LaunchPlan {
    LaunchPlan {
        run: String::new(),
        workspace: None,
        sandbox: None,
        limits: sandbox::spec::Limits::default(),
        process: supervisor::wire::plan::Process {
            command: Vec::new(),
            env: std::collections::BTreeMap::new(),
            cwd: String::new(),
            keep_stderr_bytes: 0,
            keep_stdout_bytes: 0,
        },
    }
}

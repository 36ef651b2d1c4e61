//! A checked plan → a process: opens what the cell needs, writes its recipe, and starts it.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fmt;
use std::io;
use std::os::fd::{AsFd as _, AsRawFd as _, BorrowedFd, OwnedFd};
use std::sync::OnceLock;

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::io::{Errno, FdFlags, fcntl_setfd};
use rustix::mount::{OpenTreeFlags, open_tree};
use rustix::pipe::{PipeFlags, pipe_with};
use sandbox::flat;
use sandbox::op::{Grant, Recipe, Source};
use sandbox::promise::Promise;
use sandbox::recipe::{self, Becoming, Facts, Launch, Program, Shown, new_network};
use sandbox::spec::{Confinement, Limits};
use supervisor::wire::accounts::Account;
use supervisor::wire::plan::{LaunchPlan, Process};

use crate::cgroup::RunCgroup;
pub(crate) use crate::host::{Host, LANDLOCK_SCOPES};
use crate::policy::{self, CheckedPlan, Opened, plain};
use crate::sys::{self, Clone3};

/// How many digits of a run's hash are the host name inside (decisions C-47).
const HOST_NAME_DIGITS: usize = 10;

/// The cell's program, built by `build.rs`.
static CELL: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/ocx-cell"));

/// Why nothing was started, or nothing that ran the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct StageError {
    /// 127 not found, 126 not executable, 125 anything else.
    pub(crate) code: u8,
    /// Where.
    pub(crate) stage: String,
    /// What, in one line.
    pub(crate) why: String,
}

impl StageError {
    /// Where it failed.
    pub(crate) fn stage(&self) -> &str {
        &self.stage
    }
}

/// What went wrong, without the stage.
impl fmt::Display for StageError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.why)
    }
}

fn stage(stage: &str) -> impl Fn(io::Error) -> StageError + '_ {
    move |error| StageError { code: 125, stage: stage.to_owned(), why: words(&error) }
}

fn words(error: &io::Error) -> String {
    Errno::from_io_error(error).map_or_else(|| error.to_string(), plain)
}

/// A cell that was started. It lets its program go when one [`sandbox::init::GO`] byte is written to the lifeline, and
/// ends when that closes before.
#[derive(Debug)]
pub(crate) struct Launching {
    /// The cell's pid on the host; the program is its first child.
    pub(crate) pid: u32,
    /// The cell: readable when it and everything in its sandbox is gone.
    pub(crate) pidfd: OwnedFd,
    /// What it says (`sandbox::status`); does not block.
    pub(crate) status: OwnedFd,
    /// The writing end whose closing ends it, before go always.
    pub(crate) lifeline: OwnedFd,
    /// What the process is to be.
    pub(crate) promise: Promise,
}

/// The descriptors a cell inherits, by the source a recipe names them with.
#[derive(Default)]
struct Given(Vec<OwnedFd>);

impl Given {
    fn add(&mut self, fd: OwnedFd) -> Source {
        self.0.push(fd);
        Source::try_from(self.0.len() - 1).unwrap_or(Source::MAX)
    }

    fn numbers(&self) -> Vec<u32> {
        self.0.iter().map(|it| u32::try_from(it.as_raw_fd()).unwrap_or(u32::MAX)).collect()
    }

    /// Takes a host path as a detached mount: what is mounted there later, or put in its place, changes nothing.
    fn tree(&mut self, opened: &Opened) -> Result<Shown, StageError> {
        let flags = OpenTreeFlags::OPEN_TREE_CLONE
            | OpenTreeFlags::OPEN_TREE_CLOEXEC
            | OpenTreeFlags::AT_RECURSIVE
            | OpenTreeFlags::AT_EMPTY_PATH;
        let tree = open_tree(&opened.fd, c"", flags).map_err(|error| StageError {
            code: 125,
            stage: "host paths".to_owned(),
            why: format!("{}: {}", opened.path, plain(error)),
        })?;
        let (path, kind, link) = (opened.path.clone(), opened.kind, opened.link.clone());
        Ok(Shown { path, source: self.add(tree), kind, link })
    }

    fn trees(&mut self, opened: &[Opened]) -> Result<Vec<Shown>, StageError> {
        opened.iter().map(|it| self.tree(it)).collect()
    }
}

/// Starts a checked plan's process, in the cgroup given: in a sandbox, or without one as the open account.
///
/// # Errors
/// The stage that failed; nothing is left of the launch.
pub(crate) fn start(
    checked: CheckedPlan,
    streams: [OwnedFd; 3],
    cgroup: Option<&RunCgroup>,
    host: &Host,
) -> Result<Launching, StageError> {
    prepare(checked, streams, cgroup, host)?.start()
}

/// A launch of which everything is known and opened, and nothing started.
pub(crate) struct Prepared<'a> {
    /// What is done, in order, and what has to come of it.
    pub(crate) recipe: Recipe,
    title: String,
    given: Given,
    clone: Clone3<'a>,
    status: OwnedFd,
    lifeline: OwnedFd,
}

impl Prepared<'_> {
    /// Starts the cell with it.
    ///
    /// # Errors
    /// The stage that failed; nothing is left of the launch.
    pub(crate) fn start(self) -> Result<Launching, StageError> {
        let (pid, pidfd) = spawn(&self.title, &self.recipe, self.given, self.clone)?;
        Ok(Launching { pid, pidfd, status: self.status, lifeline: self.lifeline, promise: self.recipe.promise })
    }
}

/// Opens what a checked plan's process needs and writes its recipe.
///
/// # Errors
/// The stage that failed; nothing is left of the launch.
pub(crate) fn prepare<'a>(
    checked: CheckedPlan,
    streams: [OwnedFd; 3],
    cgroup: Option<&'a RunCgroup>,
    host: &Host,
) -> Result<Prepared<'a>, StageError> {
    if let Some(path) = &checked.missing {
        let why = format!("{path}: {}", plain(Errno::NOENT));
        return Err(StageError { code: 125, stage: "host paths".to_owned(), why });
    }
    let pipes = Pipes::new()?;
    let mut given = Given::default();
    let (status, lifeline) = (given.add(pipes.status_in), given.add(pipes.lifeline_out));
    let streams = streams.map(|it| given.add(it));
    let joins = cgroup.map_or(Ok(Vec::new()), RunCgroup::joins).map_err(stage("cgroup"))?;
    let groups = joins.into_iter().map(|it| given.add(it)).collect();
    let name: String = checked.plan.run.chars().take(HOST_NAME_DIGITS).collect();
    let title = format!("ocx-cell: run {name}");
    let ids = |it: Account| [it.uid, it.gid];
    let process = &checked.plan.process;
    let run = Program { command: &process.command, env: &process.env, cwd: &process.cwd };
    let born_in = cgroup.and_then(RunCgroup::directory);
    let mut launch = Launch {
        // Known once everything is given.
        fds: Vec::new(),
        status,
        lifeline,
        streams,
        groups,
        in_groups: cgroup.map(|it| it.promised()).transpose().map_err(stage("cgroup"))?,
        account: ids(checked.account),
        cell: ids(host.accounts.cell),
        init_filter: &host.init_filter,
    };
    let limits = &checked.plan.limits;
    let (recipe, namespaces) = match &checked.confinement {
        None => {
            launch.fds = given.numbers();
            (recipe::unconfined(limits, &run, &launch).map_err(zero)?, 0)
        }
        Some(confinement) => {
            let mut facts = Facts {
                launch,
                host_name: name,
                capabilities: checked.capabilities,
                workspace: checked.plan.workspace.clone(),
                workspace_shown: checked.workspace.as_ref().map(|it| given.tree(it)).transpose()?,
                read_only: given.trees(&checked.read_only)?,
                read_write: given.trees(&checked.read_write)?,
                devices: given.trees(&checked.devices)?,
                homes: given.trees(&checked.homes)?,
                filter: &host.filter,
                scopes: host.landlock_abi >= LANDLOCK_SCOPES,
                namespaces: &host.namespaces,
            };
            facts.launch.fds = given.numbers();
            let mut namespaces = libc::CLONE_NEWNS | libc::CLONE_NEWPID | libc::CLONE_NEWIPC | libc::CLONE_NEWUTS;
            if new_network(confinement, checked.capabilities) {
                namespaces |= libc::CLONE_NEWNET;
            }
            (recipe::confined(confinement, limits, &run, &facts).map_err(zero)?, namespaces)
        }
    };
    let clone = Clone3 { namespaces: u64::from(namespaces.cast_unsigned()), cgroup: born_in };
    Ok(Prepared { recipe, title, given, clone, status: pipes.status_out, lifeline: pipes.lifeline_in })
}

/// What a step is started in.
#[derive(Debug)]
pub(crate) struct StepSees<'a> {
    /// The sandbox.
    pub(crate) confinement: &'a Confinement,
    /// The account.
    pub(crate) account: Account,
    /// The host path of the workspace, when the sandbox shows it elsewhere.
    pub(crate) workspace: Option<String>,
}

/// Starts a workspace step as an account in a sandbox the supervisor describes. Its host paths may be OCX's own.
///
/// # Errors
/// The stage that failed; nothing is left of the launch.
pub(crate) fn start_step(
    argv: &[String],
    env: &[(String, String)],
    sees: &StepSees<'_>,
    limits: &Limits,
    streams: [OwnedFd; 3],
    cgroup: Option<&RunCgroup>,
    host: &Host,
) -> Result<Launching, StageError> {
    let plan = LaunchPlan {
        run: "step".to_owned(),
        workspace: sees.workspace.clone(),
        sandbox: None,
        limits: *limits,
        process: Process {
            command: argv.to_vec(),
            env: env.iter().cloned().collect(),
            cwd: "/".to_owned(),
            keep_stderr_bytes: 0,
            keep_stdout_bytes: 0,
        },
    };
    let refused = |it: policy::Refusal| StageError { code: 125, stage: it.field, why: it.why };
    start(policy::step(&plan, sees.confinement, sees.account, host).map_err(refused)?, streams, cgroup, host)
}

/// Starts a program as the protocol process's account with nothing: no groups, no capability, no new privileges, the three
/// descriptors given and no other, ended with this process. It opens what `grants` allow, where the kernel has Landlock.
///
/// # Errors
/// The stage that failed; nothing is left of the launch.
pub(crate) fn become_node(
    argv: &[String],
    env: &[(String, String)],
    grants: Vec<(OwnedFd, Grant)>,
    streams: [OwnedFd; 3],
    host: &Host,
) -> Result<Launching, StageError> {
    prepare_node(argv, env, grants, streams, host)?.start()
}

/// What [`become_node`] starts.
///
/// # Errors
/// The stage that failed.
pub(crate) fn prepare_node(
    argv: &[String],
    env: &[(String, String)],
    grants: Vec<(OwnedFd, Grant)>,
    streams: [OwnedFd; 3],
    host: &Host,
) -> Result<Prepared<'static>, StageError> {
    let pipes = Pipes::new()?;
    let mut given = Given::default();
    let (status, lifeline) = (given.add(pipes.status_in), given.add(pipes.lifeline_out));
    let streams = streams.map(|it| given.add(it));
    let env: BTreeMap<String, String> = env.iter().cloned().collect();
    let run = Program { command: argv, env: &env, cwd: "/" };
    let grants: Vec<(Source, Grant)> = grants.into_iter().map(|(fd, grant)| (given.add(fd), grant)).collect();
    let filter = sandbox::seccomp::node_filter();
    let becoming = Becoming {
        fds: given.numbers(),
        status,
        lifeline,
        streams,
        account: [host.accounts.node.uid, host.accounts.node.gid],
        parent: std::process::id(),
        landlock_abi: host.landlock_abi,
        grants: &grants,
        filter: &filter,
    };
    let recipe = recipe::becoming(&run, &becoming).map_err(zero)?;
    let clone = Clone3 { namespaces: 0, cgroup: None };
    let title = "ocx-cell: node".to_owned();
    Ok(Prepared { recipe, title, given, clone, status: pipes.status_out, lifeline: pipes.lifeline_in })
}

fn zero(recipe::ZeroByte(field): recipe::ZeroByte) -> StageError {
    StageError { code: 125, stage: "recipe".to_owned(), why: format!("{field}: it holds a zero character") }
}

/// The two pipes between the supervisor and a cell.
struct Pipes {
    status_out: OwnedFd,
    status_in: OwnedFd,
    lifeline_out: OwnedFd,
    lifeline_in: OwnedFd,
}

impl Pipes {
    fn new() -> Result<Self, StageError> {
        let pipe = || pipe_with(PipeFlags::CLOEXEC).map_err(|error| stage("pipes")(error.into()));
        let ((status_out, status_in), (lifeline_out, lifeline_in)) = (pipe()?, pipe()?);
        rustix::io::ioctl_fionbio(&status_out, true).map_err(|error| stage("pipes")(error.into()))?;
        Ok(Self { status_out, status_in, lifeline_out, lifeline_in })
    }
}

/// Starts the cell with its recipe and what it inherits. All of `given` is closed here on return.
fn spawn(title: &str, recipe: &Recipe, given: Given, clone: Clone3<'_>) -> Result<(u32, OwnedFd), StageError> {
    let failed = stage("cell");
    let cell = cell_program().map_err(&failed)?;
    let bytes = flat::write(recipe);
    if bytes.len() > flat::RECIPE_BYTES_MAX {
        return Err(failed(io::Error::other("its recipe is too long")));
    }
    let recipe = sealed(c"ocx recipe", &bytes, MemfdFlags::NOEXEC_SEAL).map_err(&failed)?;
    let title = CString::new(title).map_err(|error| failed(io::Error::other(error)))?;
    let number = CString::new(recipe.as_raw_fd().to_string()).map_err(|error| failed(io::Error::other(error)))?;
    for fd in given.0.iter().chain([&recipe]) {
        // Inherited by the cell alone: this process has one thread and starts nothing else meanwhile.
        fcntl_setfd(fd, FdFlags::empty()).map_err(|error| failed(error.into()))?;
    }
    sys::spawn(cell, &[title, number], clone).map_err(failed)
}

/// The cell's program in a sealed memfd, made once.
fn cell_program() -> io::Result<BorrowedFd<'static>> {
    static PROGRAM: OnceLock<OwnedFd> = OnceLock::new();
    if let Some(program) = PROGRAM.get() {
        return Ok(program.as_fd());
    }
    let made = sealed(c"ocx-cell", CELL, MemfdFlags::EXEC)?;
    Ok(PROGRAM.get_or_init(|| made).as_fd())
}

/// A memfd that can no longer be changed. `kind` says whether it may be executed; kernels before 6.3 do not ask.
fn sealed(name: &std::ffi::CStr, bytes: &[u8], kind: MemfdFlags) -> io::Result<OwnedFd> {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let fd = match memfd_create(name, flags | kind) {
        Err(Errno::INVAL) => memfd_create(name, flags)?,
        other => other?,
    };
    let mut rest = bytes;
    while !rest.is_empty() {
        let count = rustix::io::write(&fd, rest)?;
        rest = rest.get(count..).unwrap_or_default();
    }
    rustix::fs::seek(&fd, rustix::fs::SeekFrom::Start(0))?;
    fcntl_add_seals(&fd, SealFlags::WRITE | SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL)?;
    Ok(fd)
}

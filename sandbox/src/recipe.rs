//! A confinement and the facts about it → a recipe: what is done, in which order. Pure; its words are snapshot-tested.

use std::collections::BTreeMap;
use std::ffi::CString;

use crate::op::{Access, Exec, Grant, Inner, Kind, Maps, Measured, Op, Recipe, Resource, Source};
use crate::places::{Put, What, places};
use crate::promise::{Denies, Groups, Limit, Link, Mount, Namespace, NamespaceKind, Promise, Watcher};
use crate::spec::{Confinement, Limits};

/// Capabilities over a network or a host name: CAP_NET_BIND_SERVICE, _BROADCAST, _ADMIN, _RAW, CAP_SYS_ADMIN.
const OVER_NETWORK: u64 = 1 << 10 | 1 << 11 | 1 << 12 | 1 << 13 | 1 << 21;

/// What is run.
#[derive(Debug, Clone, Copy)]
pub struct Program<'a> {
    /// The program, then its arguments.
    pub command: &'a [String],
    /// The whole environment.
    pub env: &'a BTreeMap<String, String>,
    /// Where it starts, as it sees it.
    pub cwd: &'a str,
}

/// A host path that was opened, checked and taken as a detached mount.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shown {
    /// The path as asked, normalised: absolute, no `.`, `..` or repeated `/`.
    pub path: String,
    /// Its detached mount.
    pub source: Source,
    /// What it is.
    pub kind: Kind,
    /// When the path itself is a symbolic link in a plain folder: the link's text and the path it leads to.
    pub link: Option<(String, String)>,
}

/// What every launch of a run has.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// The numbers of the descriptors the cell inherits, by source.
    pub fds: Vec<u32>,
    /// Status pipe, writing end.
    pub status: Source,
    /// Lifeline, reading end.
    pub lifeline: Source,
    /// Standard input, output, error.
    pub streams: [Source; 3],
    /// cgroup v1 `tasks` files to join.
    pub groups: Vec<Source>,
    /// What its cgroups are, all of them.
    pub in_groups: Option<Groups>,
    /// The host account of the process: user, group.
    pub account: [u32; 2],
    /// The host account of what watches it, the init of a sandbox or a keeper without one: user, group.
    pub cell: [u32; 2],
    /// The system call filter of what watches it.
    pub init_filter: &'a [u8],
}

/// Everything decided or opened by the supervisor for a sandbox.
#[derive(Debug, Clone)]
pub struct Facts<'a> {
    /// What every launch has.
    pub launch: Launch<'a>,
    /// The host name inside.
    pub host_name: String,
    /// The capabilities kept, as bits.
    pub capabilities: u64,
    /// The workspace's host path, where the run has one.
    pub workspace: Option<String>,
    /// The workspace itself, where `workspace_at` says to show it.
    pub workspace_shown: Option<Shown>,
    /// `read_only` without what is in `read_write` too.
    pub read_only: Vec<Shown>,
    /// `read_write`.
    pub read_write: Vec<Shown>,
    /// `devices` that exist.
    pub devices: Vec<Shown>,
    /// `homes`.
    pub homes: Vec<Shown>,
    /// The system call filter of the process.
    pub filter: &'a [u8],
    /// Whether the kernel has Landlock's scopes: without them a shared network shows the host's abstract sockets.
    pub scopes: bool,
    /// The supervisor's own namespaces, which the process is not to be in.
    pub namespaces: &'a [Namespace],
}

/// A text that cannot cross to the kernel, by field: it holds a zero byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ZeroByte(pub String);

/// Whether a path is `of` or lies beneath it.
#[must_use]
pub fn within(path: &str, of: &str) -> bool {
    of == "/" || path.strip_prefix(of).is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

/// Whether the launch itself makes a new network: not when it is shared, nor when the process owns its network.
#[must_use]
pub fn new_network(confinement: &Confinement, capabilities: u64) -> bool {
    !confinement.network && capabilities & OVER_NETWORK == 0
}

fn text(field: &str, it: &str) -> Result<CString, ZeroByte> {
    CString::new(it).ok().ok_or_else(|| ZeroByte(field.to_owned()))
}

/// Joins the v1 groups, before anything it makes could be outside them.
fn joins(launch: &Launch<'_>) -> Vec<Op> {
    let joins = launch.groups.iter().map(|it| Op::JoinGroup { procs: *it });
    joins.chain([Op::Measure { what: Measured::Groups }]).collect()
}

/// What watches the process gives everything up but the few calls it needs.
fn watching(launch: &Launch<'_>, ends_with_parent: bool) -> Vec<Op> {
    let [uid, gid] = launch.cell;
    let mut ops = vec![
        Op::Bounding { keep: 0 },
        Op::Ids { uid, gid },
        Op::Capabilities { keep: 0 },
        Op::NoNewPrivileges {},
        Op::Undumpable {},
    ];
    if ends_with_parent {
        // A change of ids clears it, so it comes last; the lifeline is the means that counts.
        ops.push(Op::EndWithParent { parent: 0 });
    }
    ops.extend([Op::Measure { what: Measured::Watcher }, Op::Filter { program: launch.init_filter.to_vec() }]);
    ops
}

/// Where and with what a program starts, whoever it is.
fn starting(cwd: CString, mask: u32, [stdin, stdout, stderr]: [Source; 3]) -> [Op; 5] {
    [
        Op::Directory { at: cwd },
        Op::Mask { bits: mask },
        Op::Signals {},
        Op::Streams { stdin, stdout, stderr },
        Op::OnlyStreams {},
    ]
}

/// The last steps: everything is measured, the filter is on, and so is seen to be.
fn verified(filter: Option<&[u8]>) -> Vec<Op> {
    let filter = filter.map(|it| Op::Filter { program: it.to_vec() });
    let (all, filters) = (Op::Measure { what: Measured::All }, Op::Measure { what: Measured::Filters });
    std::iter::once(all).chain(filter).chain([filters]).collect()
}

fn build(confinement: &Confinement, facts: &Facts<'_>) -> Result<Vec<Op>, ZeroByte> {
    let mut ops = joins(&facts.launch);
    ops.extend([
        // First of all: mount points are made with the account's rights, and in its user namespace it is too late.
        Op::NoGroups {},
        Op::CgroupNamespace {},
        Op::Session {},
        Op::Keyring {},
        // While it may: a lower one is not raised without CAP_SYS_NICE.
        Op::Priority {},
        // Device nodes and mount points get the modes they are made with.
        Op::Mask { bits: 0 },
        Op::PrivateMounts {},
        Op::Root {},
    ]);
    for Put { what, at, point } in places(confinement, facts) {
        let at = text("path", &at)?;
        ops.push(match what {
            What::Proc => Op::Proc { at, point },
            What::Dev => Op::Dev { at, point },
            What::Tmp => Op::Tmp { at, point },
            What::Host(shown, access) => Op::Bind { source: shown.source, at, access, kind: shown.kind, point },
            What::Link(words) => Op::Link { at, target: text("path", words)? },
            What::Created(file) => Op::CreatedFile { at, text: file.text.clone().into_bytes(), point },
        });
    }
    ops.extend([Op::Pivot {}, Op::RootReadOnly {}]);
    if facts.capabilities & OVER_NETWORK == 0 {
        ops.push(Op::HostName { name: text("run", &facts.host_name)? });
        if !confinement.network {
            ops.push(Op::Loopback {});
        }
    }
    Ok(ops)
}

fn program(confinement: &Confinement, limits: &Limits, cwd: &str, facts: &Facts<'_>) -> Result<Vec<Op>, ZeroByte> {
    let mut ops = Vec::new();
    if facts.capabilities & OVER_NETWORK != 0 {
        ops.push(Op::OwnNamespaces { network: !confinement.network });
        ops.push(Op::HostName { name: text("run", &facts.host_name)? });
        if !confinement.network {
            ops.push(Op::Loopback {});
        }
    }
    let keep = facts.capabilities;
    ops.push(Op::Ids { uid: confinement.uid, gid: confinement.gid });
    ops.extend(limit_ops(limits));
    // A new user namespace starts with the whole bounding set again, so it is dropped here and not before.
    ops.extend([Op::Bounding { keep }, Op::Capabilities { keep }, Op::NoNewPrivileges {}]);
    if confinement.isolate_terminal {
        ops.push(Op::Session {});
    }
    ops.extend(starting(text("process.cwd", cwd)?, 0o022, facts.launch.streams));
    if confinement.network && facts.scopes {
        // Abstract sockets belong to the network, so a shared one shows the host's (decisions C-88).
        ops.push(Op::Scopes {});
    }
    ops.extend(verified(Some(facts.filter)));
    Ok(ops)
}

/// One byte: too little for a file, and the one value at which a core pattern's program is not started.
const NO_CORE: Limit = Limit { resource: Resource::Core, soft: 1, hard: 1 };

fn limits_of(limits: &Limits) -> Vec<Limit> {
    let asked = [
        // With soft equal to hard the kernel sends SIGKILL, never SIGXCPU.
        (Resource::Cpu, limits.cpu_s, 1),
        (Resource::FileSize, limits.file_size_bytes, 0),
        (Resource::Processes, limits.processes, 0),
    ];
    let given = asked.into_iter().filter_map(|(resource, soft, more)| soft.map(|soft| (resource, soft, more)));
    let given = given.map(|(resource, soft, more)| Limit { resource, soft, hard: soft.saturating_add(more) });
    std::iter::once(NO_CORE).chain(given).collect()
}

fn limit_ops(limits: &Limits) -> impl Iterator<Item = Op> {
    limits_of(limits).into_iter().map(|Limit { resource, soft, hard }| Op::Limit { resource, soft, hard })
}

/// What every process promises that has nothing of its own.
fn plain(ids: [u32; 2], directory: CString, mask: u32, streams: [Source; 3]) -> Promise {
    Promise {
        ids,
        capabilities: 0,
        maps: None,
        namespaces: Vec::new(),
        groups: None,
        mounts: Vec::new(),
        links: Vec::new(),
        host_name: None,
        limits: Vec::new(),
        mask,
        leads_session: false,
        scoped: false,
        held: 0,
        filtered: false,
        ends_with_parent: false,
        directory,
        streams,
        watcher: None,
    }
}

/// What a sandbox promises, from the description alone. Where two are at one place the later one is seen.
fn promise(confinement: &Confinement, limits: &Limits, cwd: &str, facts: &Facts<'_>) -> Result<Promise, ZeroByte> {
    let [uid, gid] = facts.launch.account;
    let ids = [confinement.uid, confinement.gid];
    let (mounts, links) = mounts(confinement, facts)?;
    let shared = confinement.network.then_some(NamespaceKind::Net);
    Ok(Promise {
        capabilities: facts.capabilities,
        maps: Some(Maps { uid: [confinement.uid, uid], gid: [confinement.gid, gid] }),
        namespaces: facts.namespaces.iter().filter(|it| Some(it.kind) != shared).copied().collect(),
        groups: facts.launch.in_groups.clone(),
        mounts,
        links,
        host_name: Some(text("run", &facts.host_name)?),
        limits: limits_of(limits),
        leads_session: confinement.isolate_terminal,
        scoped: confinement.network && facts.scopes,
        held: 0,
        filtered: true,
        watcher: Some(Watcher { ids: facts.launch.cell, ends_with_parent: confinement.ends_with_parent, reaps: false }),
        ..plain(ids, text("process.cwd", cwd)?, 0o022, facts.launch.streams)
    })
}

fn mounts(confinement: &Confinement, facts: &Facts<'_>) -> Result<(Vec<Mount>, Vec<Link>), ZeroByte> {
    const NO_PRIVILEGES: Denies = Denies::SET_ID.and(Denies::DEVICES);
    let (mut mounts, mut links) = (Vec::new(), Vec::new());
    let mut mount = |at: &str, denies, whole| {
        mounts.push(Mount { at: text("path", at)?, denies, whole });
        Ok(())
    };
    mount("/", NO_PRIVILEGES.and(Denies::WRITING), false)?;
    for Put { what, at, .. } in places(confinement, facts) {
        match what {
            What::Proc => mount(&at, NO_PRIVILEGES.and(Denies::EXECUTING), false)?,
            What::Dev => {
                // Device nodes are what it is for; it is ours whole, and nothing is executed from it.
                mount(&at, Denies::SET_ID.and(Denies::EXECUTING), false)?;
                mount(&format!("{at}/pts"), Denies::SET_ID.and(Denies::EXECUTING), false)?;
            }
            What::Tmp | What::Created(_) => mount(&at, NO_PRIVILEGES, false)?,
            What::Host(_, Access::Read) => mount(&at, NO_PRIVILEGES.and(Denies::WRITING), true)?,
            What::Host(_, Access::Write) => mount(&at, NO_PRIVILEGES, true)?,
            What::Host(_, Access::Device) => mount(&at, Denies::SET_ID.and(Denies::EXECUTING), true)?,
            What::Link(words) => links.push(Link { at: text("path", &at)?, target: text("path", words)? }),
        }
    }
    Ok((mounts, links))
}

/// The program as `execve` takes it. One without `/` is looked for on the environment's own PATH, and nowhere without.
///
/// # Errors
/// When a text holds a zero byte.
pub fn exec(program: &Program<'_>) -> Result<Exec, ZeroByte> {
    let name = program.command.first().map_or("", String::as_str);
    let candidates = if name.contains('/') {
        vec![text("process.command[0]", name)?]
    } else {
        let path = program.env.get("PATH").map_or("", String::as_str);
        let folders = path.split(':').filter(|_| !path.is_empty() && !name.is_empty());
        // An empty part means where the process starts, as everywhere else.
        let place = |it: &str| format!("{}/{name}", if it.is_empty() { "." } else { it });
        folders.map(|it| text("process.env.PATH", &place(it))).collect::<Result<_, _>>()?
    };
    let argument = |(index, it): (usize, &String)| text(&format!("process.command[{index}]"), it);
    let variable = |(key, value): (&String, &String)| text(&format!("process.env.{key}"), &format!("{key}={value}"));
    Ok(Exec {
        candidates,
        argv: program.command.iter().enumerate().map(argument).collect::<Result<_, _>>()?,
        env: program.env.iter().map(variable).collect::<Result<_, _>>()?,
    })
}

/// The recipe of a confined launch.
///
/// # Errors
/// When a text holds a zero byte.
pub fn confined(
    confinement: &Confinement,
    limits: &Limits,
    run: &Program<'_>,
    facts: &Facts<'_>,
) -> Result<Recipe, ZeroByte> {
    let launch = &facts.launch;
    let [uid, gid] = launch.account;
    Ok(Recipe {
        fds: launch.fds.clone(),
        status: launch.status,
        account: launch.account,
        build: build(confinement, facts)?,
        inner: Some(Inner {
            maps: Some(Maps { uid: [confinement.uid, uid], gid: [confinement.gid, gid] }),
            lifeline: launch.lifeline,
            ends_with_parent: confinement.ends_with_parent,
            init: watching(launch, confinement.ends_with_parent),
        }),
        program: program(confinement, limits, run.cwd, facts)?,
        promise: promise(confinement, limits, run.cwd, facts)?,
        exec: exec(run)?,
    })
}

/// The recipe of a launch without a sandbox: the host as the account sees it, in a session of its own, with no group, no
/// capability and no way to gain one. Its keeper, of another account, reaps what it leaves and says how it ended; the
/// cgroup is what holds it, so it need not end with the supervisor to be found and ended by the next (case 34).
///
/// # Errors
/// When a text holds a zero byte.
pub fn unconfined(limits: &Limits, run: &Program<'_>, launch: &Launch<'_>) -> Result<Recipe, ZeroByte> {
    let [uid, gid] = launch.account;
    let mut build = joins(launch);
    build.extend([Op::NoGroups {}, Op::Session {}, Op::Keyring {}, Op::Priority {}, Op::Subreaper {}]);
    let mut program: Vec<Op> = limit_ops(limits).collect();
    program.extend([
        Op::Bounding { keep: 0 },
        Op::Ids { uid, gid },
        Op::Capabilities { keep: 0 },
        Op::NoNewPrivileges {},
        Op::Session {},
    ]);
    program.extend(starting(text("process.cwd", run.cwd)?, 0o022, launch.streams));
    program.extend(verified(None));
    Ok(Recipe {
        fds: launch.fds.clone(),
        status: launch.status,
        account: launch.account,
        build,
        inner: Some(Inner {
            maps: None,
            lifeline: launch.lifeline,
            ends_with_parent: false,
            init: watching(launch, false),
        }),
        program,
        promise: Promise {
            groups: launch.in_groups.clone(),
            limits: limits_of(limits),
            leads_session: true,
            watcher: Some(Watcher { ids: launch.cell, ends_with_parent: false, reaps: true }),
            ..plain(launch.account, text("process.cwd", run.cwd)?, 0o022, launch.streams)
        },
        exec: exec(run)?,
    })
}

/// What becomes the program without namespaces: for the protocol process.
#[derive(Debug, Clone)]
pub struct Becoming<'a> {
    /// The numbers of the descriptors the cell inherits, by source.
    pub fds: Vec<u32>,
    /// Status pipe, writing end.
    pub status: Source,
    /// Lifeline, reading end: the program is executed only after one byte on it.
    pub lifeline: Source,
    /// Standard input, output, error.
    pub streams: [Source; 3],
    /// The account it becomes: user, group.
    pub account: [u32; 2],
    /// The supervisor's pid: the program ends with it.
    pub parent: u32,
    /// The kernel's Landlock ABI; 0 where it has none, and then nothing is held by it.
    pub landlock_abi: u32,
    /// The files and folders it may open, and what it may do with them.
    pub grants: &'a [(Source, Grant)],
    /// Its system call filter.
    pub filter: &'a [u8],
}

/// The recipe of a process that gives everything up and becomes the program.
///
/// # Errors
/// When a text holds a zero byte.
pub fn becoming(run: &Program<'_>, facts: &Becoming<'_>) -> Result<Recipe, ZeroByte> {
    let [uid, gid] = facts.account;
    let mut program = vec![
        Op::AwaitGo { lifeline: facts.lifeline },
        Op::Session {},
        Op::Keyring {},
        Op::Priority {},
        Op::NoGroups {},
        Op::Bounding { keep: 0 },
        Op::Ids { uid, gid },
        Op::Capabilities { keep: 0 },
        Op::NoNewPrivileges {},
        Op::EndWithParent { parent: facts.parent },
        Op::Limit { resource: NO_CORE.resource, soft: NO_CORE.soft, hard: NO_CORE.hard },
    ];
    program.extend(starting(text("cwd", run.cwd)?, 0o077, facts.streams));
    program.extend(verified(Some(facts.filter)));
    // Last: what the rest is measured by could not be opened after it.
    let abi = facts.landlock_abi;
    if abi > 0 {
        program.push(Op::Ruleset { abi });
        program.extend(facts.grants.iter().map(|(source, grant)| Op::Allow { source: *source, grant: *grant }));
        program.extend([Op::Restrict {}, Op::Measure { what: Measured::Files }]);
    }
    Ok(Recipe {
        fds: facts.fds.clone(),
        status: facts.status,
        account: facts.account,
        build: Vec::new(),
        inner: None,
        program,
        promise: Promise {
            limits: vec![NO_CORE],
            leads_session: true,
            ends_with_parent: true,
            held: facts.landlock_abi,
            filtered: true,
            ..plain(facts.account, text("cwd", run.cwd)?, 0o077, facts.streams)
        },
        exec: exec(run)?,
    })
}

#[cfg(test)]
#[path = "recipe_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "recipe_properties.rs"]
mod properties;

//! A confinement and the facts about it → a recipe: what is done, in which order. Pure; its words are snapshot-tested.

use std::collections::BTreeMap;
use std::ffi::CString;

use crate::op::{Access, Exec, Inner, Kind, Maps, Op, Point, Recipe, Resource, Source};
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
    /// cgroup v1 `cgroup.procs` files to join.
    pub groups: Vec<Source>,
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

/// Who owns what is seen at a place already put.
#[derive(Clone, Copy)]
enum Ground {
    Own,
    ReadOnly,
    ReadWrite,
}

/// The places put so far, in order.
#[derive(Default)]
struct Placed {
    grounds: Vec<(String, Ground)>,
    links: Vec<(String, String)>,
}

impl Placed {
    /// The place without links of ours on the way.
    fn real(&self, at: &str) -> String {
        for (link, target) in &self.links {
            if let Some(rest) = at.strip_prefix(link.as_str()).filter(|it| it.starts_with('/')) {
                return format!("{target}{rest}");
            }
        }
        at.to_owned()
    }

    /// The last thing put at or above `at`: what a mount point there would lie in.
    fn ground(&self, at: &str) -> Ground {
        self.grounds.iter().rev().find(|(place, _)| within(at, place)).map_or(Ground::Own, |(_, it)| *it)
    }

    fn put(&mut self, at: &str, ground: Ground) -> (String, Point) {
        let at = self.real(at);
        let point = match self.ground(&at) {
            Ground::Own => Point::Own,
            Ground::ReadOnly => Point::There,
            Ground::ReadWrite => Point::Account,
        };
        self.grounds.push((at.clone(), ground));
        (at, point)
    }
}

fn text(field: &str, it: &str) -> Result<CString, ZeroByte> {
    CString::new(it).ok().ok_or_else(|| ZeroByte(field.to_owned()))
}

/// One host path to be put, in the order of the protocol's table (decisions C-17).
struct Entry<'a> {
    shown: &'a Shown,
    at: String,
    access: Access,
}

/// Where the process sees a host path: beneath `workspace_at` when it lies in the workspace.
fn seen_at(confinement: &Confinement, facts: &Facts<'_>, path: &str) -> String {
    match (&confinement.workspace_at, &facts.workspace) {
        (Some(at), Some(workspace)) if within(path, workspace) => {
            format!("{at}{}", path.strip_prefix(workspace.as_str()).unwrap_or_default())
        }
        _ => path.to_owned(),
    }
}

fn entries<'a>(confinement: &Confinement, facts: &'a Facts<'_>) -> Vec<Entry<'a>> {
    let lists =
        [(&facts.read_only, Access::Read), (&facts.read_write, Access::Write), (&facts.devices, Access::Device)];
    let mut all: Vec<Entry<'_>> = lists
        .into_iter()
        .flat_map(|(list, access)| list.iter().map(move |shown| (shown, access)))
        .map(|(shown, access)| Entry { shown, at: seen_at(confinement, facts, &shown.path), access })
        .collect();
    let home = confinement.workspace_at.clone().or_else(|| facts.workspace.clone()).unwrap_or_default();
    all.extend(facts.homes.iter().map(|shown| {
        let name = shown.path.rsplit('/').next().unwrap_or_default();
        Entry { shown, at: format!("{home}/{name}"), access: Access::Write }
    }));
    if let (Some(at), Some(shown)) = (&confinement.workspace_at, &facts.workspace_shown) {
        // The workspace comes before anything seen beneath it, homes included, else in the table's order: after homes.
        let first = all.iter().position(|it| within(&it.at, at)).unwrap_or(all.len());
        // Named itself, it is put by its list, with that list's access.
        if all.get(first).is_none_or(|it| it.at != *at) {
            all.insert(first, Entry { shown, at: at.clone(), access: Access::Write });
        }
    }
    all
}

/// Whether the entry is best shown as the link it is on the host: what it leads to is shown with the same access, and
/// nothing is to be put beneath it.
fn stays_link(confinement: &Confinement, entries: &[Entry<'_>], entry: &Entry<'_>) -> bool {
    let Some((_, leads_to)) = &entry.shown.link else { return false };
    let own = [&confinement.proc, &confinement.dev, &confinement.tmp];
    let made = confinement.created_files.iter().map(|it| &it.at);
    entry.at == entry.shown.path
        && entries.iter().any(|it| it.access == entry.access && it.shown.link.is_none() && within(leads_to, &it.at))
        && !own.into_iter().chain(made).any(|it| within(it, &entry.at))
        && !entries.iter().any(|it| it.at != entry.at && within(&it.at, &entry.at))
}

/// Joins the v1 groups, before anything it makes could be outside them.
fn joins(launch: &Launch<'_>) -> Vec<Op> {
    launch.groups.iter().map(|it| Op::JoinGroup { procs: *it }).collect()
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
    ops.push(Op::Filter { program: launch.init_filter.to_vec() });
    ops
}

/// Where and with what a program starts, whoever it is.
fn starting(cwd: CString, mask: u32, [stdin, stdout, stderr]: [Source; 3]) -> [Op; 6] {
    [
        Op::Directory { at: cwd },
        Op::Mask { bits: mask },
        Op::Priority {},
        Op::Signals {},
        Op::Streams { stdin, stdout, stderr },
        Op::OnlyStreams {},
    ]
}

fn build(confinement: &Confinement, facts: &Facts<'_>) -> Result<Vec<Op>, ZeroByte> {
    let mut ops = joins(&facts.launch);
    ops.extend([
        // First of all: mount points are made with the account's rights, and in its user namespace it is too late.
        Op::NoGroups {},
        Op::CgroupNamespace {},
        Op::Session {},
        Op::Keyring {},
        // Device nodes and mount points get the modes they are made with.
        Op::Mask { bits: 0 },
        Op::PrivateMounts {},
        Op::Root {},
    ]);
    let mut placed = Placed::default();
    let (at, point) = placed.put(&confinement.proc, Ground::Own);
    ops.push(Op::Proc { at: text("sandbox.proc", &at)?, point });
    let (at, point) = placed.put(&confinement.dev, Ground::Own);
    ops.push(Op::Dev { at: text("sandbox.dev", &at)?, point });
    let (at, point) = placed.put(&confinement.tmp, Ground::Own);
    ops.push(Op::Tmp { at: text("sandbox.tmp", &at)?, point });
    let all = entries(confinement, facts);
    for entry in &all {
        if let (true, Some((words, leads_to))) = (stays_link(confinement, &all, entry), &entry.shown.link) {
            match placed.ground(&placed.real(&entry.at)) {
                Ground::Own => {
                    ops.push(Op::Link { at: text("path", &entry.at)?, target: text("path", words)? });
                    placed.links.push((entry.at.clone(), leads_to.clone()));
                }
                // Inside a host path it is there already.
                Ground::ReadOnly | Ground::ReadWrite => {}
            }
            continue;
        }
        let ground = if entry.access == Access::Write { Ground::ReadWrite } else { Ground::ReadOnly };
        let (at, point) = placed.put(&entry.at, ground);
        let at = text("path", &at)?;
        ops.push(Op::Bind { source: entry.shown.source, at, access: entry.access, kind: entry.shown.kind, point });
    }
    for (index, file) in confinement.created_files.iter().enumerate() {
        let (at, point) = placed.put(&file.at, Ground::Own);
        let at = text(&format!("sandbox.created_files[{index}].at"), &at)?;
        ops.push(Op::CreatedFile { at, text: file.text.clone().into_bytes(), point });
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
    if confinement.network {
        // Abstract sockets belong to the network, so a shared one shows the host's (decisions C-88).
        ops.push(Op::Scopes {});
    }
    ops.push(Op::Filter { program: facts.filter.to_vec() });
    ops.push(Op::Measure { uid: confinement.uid, gid: confinement.gid, keep, filtered: true });
    Ok(ops)
}

fn limit_ops(limits: &Limits) -> Vec<Op> {
    // One byte: too little for a file, and the one value at which a core pattern's program is not started.
    let mut ops = vec![Op::Limit { resource: Resource::Core, soft: 1, hard: 1 }];
    if let Some(seconds) = limits.cpu_s {
        // With soft equal to hard the kernel sends SIGKILL, never SIGXCPU.
        ops.push(Op::Limit { resource: Resource::Cpu, soft: seconds, hard: seconds.saturating_add(1) });
    }
    if let Some(bytes) = limits.file_size_bytes {
        ops.push(Op::Limit { resource: Resource::FileSize, soft: bytes, hard: bytes });
    }
    if let Some(count) = limits.processes {
        ops.push(Op::Limit { resource: Resource::Processes, soft: count, hard: count });
    }
    ops
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
    build.extend([Op::NoGroups {}, Op::Session {}, Op::Keyring {}, Op::Subreaper {}]);
    let mut program = limit_ops(limits);
    program.extend([
        Op::Bounding { keep: 0 },
        Op::Ids { uid, gid },
        Op::Capabilities { keep: 0 },
        Op::NoNewPrivileges {},
        Op::Session {},
    ]);
    program.extend(starting(text("process.cwd", run.cwd)?, 0o022, launch.streams));
    program.push(Op::Measure { uid, gid, keep: 0, filtered: false });
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
        exec: exec(run)?,
    })
}

/// What becomes the program without namespaces: for the protocol process.
#[derive(Debug, Clone)]
pub struct Becoming {
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
}

/// The recipe of a process that gives everything up and becomes the program.
///
/// # Errors
/// When a text holds a zero byte.
pub fn becoming(run: &Program<'_>, facts: &Becoming) -> Result<Recipe, ZeroByte> {
    let [uid, gid] = facts.account;
    let mut program = vec![
        Op::AwaitGo { lifeline: facts.lifeline },
        Op::Session {},
        Op::Keyring {},
        Op::NoGroups {},
        Op::Bounding { keep: 0 },
        Op::Ids { uid, gid },
        Op::Capabilities { keep: 0 },
        Op::NoNewPrivileges {},
        Op::EndWithParent { parent: facts.parent },
        Op::Limit { resource: Resource::Core, soft: 1, hard: 1 },
    ];
    program.extend(starting(text("cwd", run.cwd)?, 0o077, facts.streams));
    program.push(Op::Measure { uid, gid, keep: 0, filtered: false });
    Ok(Recipe {
        fds: facts.fds.clone(),
        status: facts.status,
        account: facts.account,
        build: Vec::new(),
        inner: None,
        program,
        exec: exec(run)?,
    })
}

#[cfg(test)]
#[path = "recipe_tests.rs"]
mod tests;

//! What holds of the recipe of every confinement, whatever it asks.
#![expect(
    clippy::indexing_slicing,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a panic is how a test fails"
)]
use std::collections::BTreeSet;

use super::*;
use crate::apply::attributes;
use crate::flat;
use crate::op::Point;
use crate::random::{Random, hold, is};
use crate::spec::CreatedFile;

/// The protocol's table (2.8), in its order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Key {
    Proc,
    Dev,
    Tmp,
    ReadOnly,
    ReadWrite,
    Devices,
    Homes,
    Workspace,
    CreatedFiles,
}

/// A confinement, and what policy made of its paths.
struct Asked {
    confinement: Confinement,
    limits: Limits,
    facts: Facts<'static>,
    /// Which list each host path is of, and where in it.
    lists: BTreeMap<Source, (Key, usize)>,
}

const WORKSPACE: &str = "/w/1";
const FILTER: &[u8] = &[7; 24];
const INIT_FILTER: &[u8] = &[9; 16];
const NAMESPACES: &[Namespace] = &[
    Namespace { kind: NamespaceKind::Cgroup, not: 1 },
    Namespace { kind: NamespaceKind::Ipc, not: 2 },
    Namespace { kind: NamespaceKind::Mnt, not: 3 },
    Namespace { kind: NamespaceKind::Net, not: 4 },
    Namespace { kind: NamespaceKind::Pid, not: 5 },
    Namespace { kind: NamespaceKind::User, not: 6 },
    Namespace { kind: NamespaceKind::Uts, not: 7 },
];

/// Few names, so that places meet, hold and hide each other.
fn path(random: &mut Random) -> String {
    if random.once_in(4) {
        return (*random.one_of(&["/b", "/b/x", "/a", "/a/b", "/at", "/w/1", "/w/1/a"])).to_owned();
    }
    let names = ["a", "b", "w", "1", "at", "dev", "tmp"];
    let start = *random.one_of(&["", "", WORKSPACE, "/at", "/a"]);
    let rest: String = (0..random.below(3)).map(|_| format!("/{}", random.one_of(&names))).collect();
    if start.is_empty() && rest.is_empty() { "/b".to_owned() } else { format!("{start}{rest}") }
}

fn asked(random: &mut Random) -> Asked {
    let (mut sources, mut lists) = (5.., BTreeMap::new());
    let mut list = |random: &mut Random, key, most| {
        let mut index = 0;
        random.some(most, |random| {
            let source = sources.next().unwrap_or(u32::MAX);
            lists.insert(source, (key, index));
            index += 1;
            let kind = if random.once_in(4) || key == Key::Devices { Kind::File } else { Kind::Folder };
            let path = if key == Key::Devices { format!("/dev/{}", random.below(3)) } else { path(random) };
            // What is a link is one in every list. In the workspace there is none: policy goes through none there.
            let link = path.strip_suffix("/b").filter(|_| !within(&path, WORKSPACE));
            let link = link.map(|folder| ("a".to_owned(), format!("{folder}/a")));
            Shown { path, source, kind, link }
        })
    };
    let read_write = list(random, Key::ReadWrite, 3);
    let mut read_only = list(random, Key::ReadOnly, 4);
    // What policy does with a path in both lists.
    read_only.retain(|it| read_write.iter().all(|other| other.path != it.path));
    let devices = list(random, Key::Devices, 2);
    let homes = list(random, Key::Homes, 2);
    let workspace_at = random.maybe(|random| if random.once_in(3) { path(random) } else { "/at".to_owned() });
    let workspace_shown = workspace_at.as_ref().map(|_| {
        lists.insert(4, (Key::Workspace, 0));
        Shown { path: WORKSPACE.to_owned(), source: 4, kind: Kind::Folder, link: None }
    });
    let own = |random: &mut Random, usual: &str| if random.once_in(3) { path(random) } else { usual.to_owned() };
    let file = |random: &mut Random| CreatedFile { at: path(random), text: "x".repeat(random.below(4)) };
    let number = |random: &mut Random| random.maybe(Random::number);
    let confinement = Confinement {
        uid: u32::try_from(random.below(3000)).unwrap_or(0),
        gid: u32::try_from(random.below(3000)).unwrap_or(0),
        linux_capabilities: Vec::new(),
        network: random.once_in(2),
        isolate_terminal: random.once_in(2),
        ends_with_parent: random.once_in(2),
        proc: own(random, "/proc"),
        dev: own(random, "/dev"),
        tmp: own(random, "/tmp"),
        // The recipe is made from what was opened of them.
        read_only: Vec::new(),
        read_write: Vec::new(),
        devices: Vec::new(),
        homes: Vec::new(),
        workspace_at,
        created_files: random.some(2, file),
    };
    let limits = Limits {
        wall_s: number(random),
        cpu_s: number(random),
        processes: number(random),
        file_size_bytes: number(random),
        memory_bytes: number(random),
    };
    let facts = Facts {
        launch: Launch {
            fds: (10..60).collect(),
            status: 0,
            lifeline: 1,
            streams: [2, 3, 3],
            groups: Vec::new(),
            in_groups: None,
            account: [900, 901],
            cell: [902, 903],
            init_filter: INIT_FILTER,
        },
        host_name: "3f2a91c07b".into(),
        capabilities: if random.once_in(2) { 0 } else { random.number() & ((1 << 41) - 1) },
        workspace: Some(WORKSPACE.to_owned()),
        workspace_shown,
        read_only,
        read_write,
        devices,
        homes,
        filter: FILTER,
        scopes: random.once_in(2),
        namespaces: NAMESPACES,
    };
    Asked { confinement, limits, facts, lists }
}

fn recipe_of(asked: &Asked) -> Recipe {
    let (command, env) = (["/bin/true".to_owned()], BTreeMap::new());
    let run = Program { command: &command, env: &env, cwd: "/" };
    confined(&asked.confinement, &asked.limits, &run, &asked.facts).unwrap_or_else(|it| panic!("{it:?}"))
}

/// What a step puts into the sandbox, and where.
fn put(op: &Op) -> Option<&str> {
    match op {
        Op::Proc { at, .. } | Op::Dev { at, .. } | Op::Tmp { at, .. } => at.to_str().ok(),
        Op::Bind { at, .. } | Op::Link { at, .. } | Op::CreatedFile { at, .. } => at.to_str().ok(),
        _ => None,
    }
}

/// Everything put, in order: where, and which key of the table it is of.
fn order<'a>(asked: &Asked, recipe: &'a Recipe) -> Vec<(&'a str, Key, usize)> {
    let mut files = 0..;
    let key = |op: &Op| match op {
        Op::Proc { .. } => (Key::Proc, 0),
        Op::Dev { .. } => (Key::Dev, 0),
        Op::Tmp { .. } => (Key::Tmp, 0),
        Op::CreatedFile { .. } => (Key::CreatedFiles, files.next().unwrap_or(0)),
        Op::Bind { source, .. } => asked.lists[source],
        other => panic!("{other}"),
    };
    let (mut key, mut all) = (key, Vec::new());
    for op in recipe.build.iter().filter(|it| !matches!(it, Op::Link { .. })) {
        if let Some(at) = put(op) {
            let (list, index) = key(op);
            all.push((at, list, index));
        }
    }
    all
}

fn words(recipe: &Recipe) -> String {
    recipe.build.iter().filter(|it| put(it).is_some()).map(|it| format!("\n  {it}")).collect()
}

#[test]
fn c_17_everything_is_put_in_the_tables_order_and_the_workspace_before_what_is_seen_beneath_it() {
    hold(|random| {
        let asked = asked(random);
        let recipe = recipe_of(&asked);
        let told = |what: &str| format!("{what}; workspace_at {:?}:{}", asked.confinement.workspace_at, words(&recipe));
        let all = order(&asked, &recipe);
        let is_workspace = |(at, key, index): (&str, Key, usize)| {
            let named = |list: &[Shown]| list.get(index).is_some_and(|it| it.path == WORKSPACE);
            Some(at) == asked.confinement.workspace_at.as_deref()
                && match key {
                    Key::Workspace => true,
                    Key::ReadOnly => asked.facts.read_only.iter().any(|it| it.path == WORKSPACE),
                    Key::ReadWrite => named(&asked.facts.read_write),
                    _ => false,
                }
        };
        let Some(place) = asked.confinement.workspace_at.as_deref() else {
            let keys: Vec<_> = all.iter().map(|(_, key, index)| (*key, *index)).collect();
            return is(&told("not in the table's order"), keys.is_sorted());
        };
        let shown = all.iter().position(|it| is_workspace(*it)).ok_or_else(|| told("the workspace is not shown"))?;
        let beneath = |at: &str| at != place && within(at, place);
        is(&told("beneath the workspace, and put before it"), !all[..shown].iter().any(|it| beneath(it.0)))?;
        // Those that are not beneath it, and those that are, each keep the table's order.
        for side in [true, false] {
            let of = all.iter().filter(|it| beneath(it.0) == side && !is_workspace(**it));
            let keys: Vec<_> = of.map(|(_, key, index)| (*key, *index)).collect();
            is(&told("not in the table's order"), keys.is_sorted())?;
        }
        // What is seen at that place is the workspace: nothing put later is at it or above it, but a file made there.
        let hides = |(at, key, _): &(&str, Key, usize)| within(place, at) && *key != Key::CreatedFiles;
        let later = all[shown + 1..].iter().filter(|it| !is_workspace(**it)).any(hides);
        is(&told("the workspace is hidden"), !later)
    });
}

#[test]
fn c_17_everything_asked_for_is_put_once_and_with_the_access_of_its_list() {
    hold(|random| {
        let asked = asked(random);
        let recipe = recipe_of(&asked);
        let told = |what: &str| format!("{what}:{}", words(&recipe));
        let mut bound = BTreeSet::new();
        for op in &recipe.build {
            let Op::Bind { source, access, .. } = op else { continue };
            is(&told("put twice"), bound.insert(*source))?;
            let right = match asked.lists[source].0 {
                Key::ReadOnly => Access::Read,
                Key::Devices => Access::Device,
                _ => Access::Write,
            };
            is(&told("another access than its list's"), *access == right)?;
        }
        let count = |is: fn(&Op) -> bool| recipe.build.iter().filter(|it| is(it)).count();
        for own in [(|it| matches!(it, Op::Proc { .. })) as fn(&Op) -> bool, |it| matches!(it, Op::Dev { .. })] {
            is(&told("proc and dev once"), count(own) == 1)?;
        }
        let files = count(|it| matches!(it, Op::CreatedFile { .. }));
        is(&told("each created file"), files == asked.confinement.created_files.len())?;
        // What is not mounted is a link that leads to what is, or is named elsewhere.
        let facts = &asked.facts;
        for shown in facts.read_only.iter().chain(&facts.read_write).chain(&facts.devices).chain(&facts.homes) {
            is(&told("a path is not shown"), bound.contains(&shown.source) || shown.link.is_some())?;
        }
        Ok(())
    });
}

/// Where in a list the one step of a kind is.
fn only(ops: &[Op], what: &str, is: impl Fn(&Op) -> bool) -> Result<usize, String> {
    let mut all = ops.iter().enumerate().filter(|it| is(it.1)).map(|it| it.0);
    match (all.next(), all.next()) {
        (Some(at), None) => Ok(at),
        (None, _) => Err(format!("no {what}")),
        (Some(_), Some(_)) => Err(format!("{what} twice")),
    }
}

/// V2-2.8-04, V2-2.8-07, CARD-10: what is given up, in an order in which nothing of it can be taken back.
#[test]
fn the_user_namespace_is_made_last_and_the_filter_is_the_last_step_before_the_program() {
    hold(|random| {
        let asked = asked(random);
        let recipe = recipe_of(&asked);
        let (build, program) = (&recipe.build, &recipe.program);
        let inner = recipe.inner.as_ref().ok_or("no process of its own")?;
        // The user namespace comes with that process: all that is mounted is mounted before it.
        let maps = Maps { uid: [asked.confinement.uid, 900], gid: [asked.confinement.gid, 901] };
        is("one user and one group, those of the account", inner.maps == Some(maps))?;
        for op in inner.init.iter().chain(program) {
            let mounts = put(op).is_some() || matches!(op, Op::Root {} | Op::Pivot {} | Op::PrivateMounts {});
            is(&format!("{op}, in the user namespace"), !mounts)?;
        }
        let at = |is: fn(&Op) -> bool| only(build, "step", is);
        let private = at(|it| matches!(it, Op::PrivateMounts {}))?;
        let root = at(|it| matches!(it, Op::Root {}))?;
        let pivot = at(|it| matches!(it, Op::Pivot {}))?;
        let closed = at(|it| matches!(it, Op::RootReadOnly {}))?;
        let groups = at(|it| matches!(it, Op::NoGroups {}))?;
        for (index, op) in build.iter().enumerate() {
            let inside = root < index && index < pivot;
            is(&format!("{op}, not between root and pivot"), put(op).is_none() || inside)?;
        }
        is("private, root, pivot, closed", groups < root && private < root && root < pivot && pivot < closed)?;

        let keep = asked.facts.capabilities;
        let at = |what, is: &dyn Fn(&Op) -> bool| only(program, what, is);
        let ids = at("ids", &|it| matches!(it, Op::Ids { .. }))?;
        let bounding = at("bounding set", &|it| *it == Op::Bounding { keep })?;
        let capabilities = at("capabilities", &|it| *it == Op::Capabilities { keep })?;
        let no_new = at("no new privileges", &|it| matches!(it, Op::NoNewPrivileges {}))?;
        let streams = at("streams", &|it| matches!(it, Op::OnlyStreams {}))?;
        let measured = at("measure", &|it| *it == Op::Measure { what: Measured::All })?;
        let filter = at("filter", &|it| *it == Op::Filter { program: FILTER.to_vec() })?;
        is("ids, then capabilities, then no way back", ids < bounding && bounding < capabilities)?;
        is("no new privileges before the filter", capabilities < no_new && no_new < measured)?;
        is("measured with everything done", streams < measured && measured + 1 == filter)?;
        let last = Op::Measure { what: Measured::Filters };
        is("the filter last, and seen to be on", filter + 2 == program.len() && program[filter + 1] == last)?;

        let own = keep & OVER_NETWORK != 0;
        let net = Op::OwnNamespaces { network: !asked.confinement.network };
        is("its own network before its ids", program.contains(&net) == own && (!own || program[0] == net))?;
        let up = build.iter().chain(program).filter(|it| **it == Op::Loopback {}).count();
        is("lo where the network is its own", up == usize::from(!asked.confinement.network))?;
        let session = program.contains(&Op::Session {});
        is("a session where it is asked for", session == asked.confinement.isolate_terminal)?;
        let scopes = program.contains(&Op::Scopes {});
        is("scopes where the network is shared", scopes == (asked.confinement.network && asked.facts.scopes))?;

        let init = &inner.init;
        let start = [Op::Bounding { keep: 0 }, Op::Ids { uid: 902, gid: 903 }, Op::Capabilities { keep: 0 }];
        is("the init gives everything up", init[..3] == start && init[3] == Op::NoNewPrivileges {})?;
        let end = Op::Filter { program: INIT_FILTER.to_vec() };
        is("the init's filter last", init.last() == Some(&end))?;
        is("and measured before", init[init.len() - 2] == Op::Measure { what: Measured::Watcher })
    });
}

/// V2-2.9-04..06, C-35: each limit asked for is set, and none else but the core's.
#[test]
fn limits_are_those_asked_for() {
    hold(|random| {
        let asked = asked(random);
        let recipe = recipe_of(&asked);
        let limits = &asked.limits;
        let mut expected = vec![(Resource::Core, 1, 1)];
        expected.extend(limits.cpu_s.map(|it| (Resource::Cpu, it, it.saturating_add(1))));
        expected.extend(limits.file_size_bytes.map(|it| (Resource::FileSize, it, it)));
        expected.extend(limits.processes.map(|it| (Resource::Processes, it, it)));
        let limit = |op: &Op| match op {
            Op::Limit { resource, soft, hard } => Some((*resource, *soft, *hard)),
            _ => None,
        };
        is("steps", recipe.program.iter().filter_map(limit).collect::<Vec<_>>() == expected)?;
        let promised: Vec<_> = recipe.promise.limits.iter().map(|it| (it.resource, it.soft, it.hard)).collect();
        is("promise", promised == expected)
    });
}

/// What a mount is to deny, by the step that makes it.
fn denies(op: &Op) -> Option<Vec<(Denies, bool)>> {
    let both = Denies::SET_ID.and(Denies::DEVICES);
    Some(match op {
        // Read-only once everything is in it.
        Op::Root {} => vec![(both.and(Denies::WRITING), false)],
        Op::Proc { .. } => vec![(both.and(Denies::EXECUTING), false)],
        Op::Dev { .. } => vec![(Denies::SET_ID.and(Denies::EXECUTING), false); 2],
        Op::Tmp { .. } | Op::CreatedFile { .. } => vec![(both, false)],
        Op::Bind { access, .. } => {
            // As the kernel is asked, in mount_setattr(2)'s numbers: read-only 1, nosuid 2, nodev 4, noexec 8.
            vec![(Denies(u8::try_from(attributes(*access)).unwrap_or(0)), true)]
        }
        _ => return None,
    })
}

/// V2-2.8-15: every mount a step makes is promised, every mount promised is made by a step, with the same flags and in the
/// same order; none runs set-id programs, and none opens devices but dev and those named.
#[test]
fn what_is_promised_is_what_the_steps_make() {
    hold(|random| {
        let asked = asked(random);
        let recipe = recipe_of(&asked);
        let told = |what: &str| format!("{what}:{}\n{:?}", words(&recipe), recipe.promise.mounts);
        let mut made = Vec::new();
        for op in &recipe.build {
            for (count, (denies, whole)) in denies(op).into_iter().flatten().enumerate() {
                let at = put(op).unwrap_or("/");
                made.push((if count == 0 { at.to_owned() } else { format!("{at}/pts") }, denies, whole));
                is(&told("a set-id program would run"), denies.covers(Denies::SET_ID))?;
                let opens = matches!(op, Op::Dev { .. } | Op::Bind { access: Access::Device, .. });
                is(&told("a device would open"), denies.covers(Denies::DEVICES) || opens)?;
            }
        }
        let promise = &recipe.promise;
        let mount = |it: &Mount| (it.at.to_string_lossy().into_owned(), it.denies, it.whole);
        is(&told("other mounts"), promise.mounts.iter().map(mount).collect::<Vec<_>>() == made)?;
        let link = |op: &Op| match op {
            Op::Link { at, target } => Some(Link { at: at.clone(), target: target.clone() }),
            _ => None,
        };
        is(&told("other links"), recipe.build.iter().filter_map(link).collect::<Vec<_>>() == promise.links)?;
        is("ids", promise.ids == [asked.confinement.uid, asked.confinement.gid])?;
        is("maps", promise.maps == recipe.inner.as_ref().and_then(|it| it.maps))?;
        is("capabilities", promise.capabilities == asked.facts.capabilities)?;
        is("session", promise.leads_session == recipe.program.contains(&Op::Session {}))?;
        is("scopes", promise.scoped == recipe.program.contains(&Op::Scopes {}))?;
        is("a filter", promise.filtered)?;
        let kinds: Vec<_> = promise.namespaces.iter().map(|it| it.kind).collect();
        let all = NamespaceKind::ALL.into_iter();
        let own: Vec<_> = all.filter(|it| *it != NamespaceKind::Net || !asked.confinement.network).collect();
        is("namespaces", kinds == own)
    });
}

/// A mount point is made with the trust of what it lies in: as root only in what is the sandbox's own, as the account in
/// what it may write, and not at all in what is read-only. No place is reached through a link of the sandbox's.
#[test]
fn mount_points_are_made_with_the_rights_of_what_they_lie_in() {
    hold(|random| {
        let asked = asked(random);
        let recipe = recipe_of(&asked);
        let told = |what: &str| format!("{what}:{}", words(&recipe));
        let mut before: Vec<&Op> = Vec::new();
        for op in recipe.build.iter().filter(|it| put(it).is_some()) {
            let at = put(op).unwrap_or_default();
            let above = |it: &&&Op| put(it).is_some_and(|place| within(at, place));
            let right = match before.iter().rev().filter(|it| !matches!(it, Op::Link { .. })).find(above) {
                Some(Op::Bind { access: Access::Write, .. }) => Point::Account,
                Some(Op::Bind { .. }) => Point::There,
                _ => Point::Own,
            };
            match op {
                Op::Proc { point, .. } | Op::Dev { point, .. } | Op::Tmp { point, .. } => {
                    is(&told("who makes its place"), *point == right)?;
                }
                Op::Bind { point, .. } | Op::CreatedFile { point, .. } => {
                    is(&told("who makes its place"), *point == right)?;
                }
                _ => {}
            }
            let through = |it: &&Op| matches!(it, Op::Link { .. }) && put(it).is_some_and(|link| within(at, link));
            is(&told("through a link, or on one"), !before.iter().any(through))?;
            before.push(op);
        }
        Ok(())
    });
}

#[test]
fn the_same_confinement_makes_the_same_recipe_which_crosses_whole() {
    hold(|random| {
        let asked = asked(random);
        let recipe = recipe_of(&asked);
        is("another recipe the second time", recipe_of(&asked) == recipe)?;
        let bytes = flat::write(&recipe);
        is("another recipe on the other side", flat::read(&bytes) == Ok(recipe))?;
        let cut = random.below(bytes.len());
        is("a part is read as a whole", flat::read::<Recipe>(&bytes[..cut]).is_err())?;
        is("more is read as it", flat::read::<Recipe>(&[bytes, vec![0]].concat()).is_err())
    });
}

/// The cell is root when it reads a recipe: whatever the bytes, it reads none or exactly the one they are.
#[test]
fn whatever_bytes_are_read_as_a_recipe_are_that_recipes_own() {
    hold(|random| {
        let mut bytes = if random.once_in(4) {
            random.some(200, |random| u8::try_from(random.below(256)).unwrap_or(0))
        } else {
            flat::write(&recipe_of(&asked(random)))
        };
        for _ in 0..random.below(4) {
            random.spoil(&mut bytes);
        }
        match flat::read::<Recipe>(&bytes) {
            Ok(recipe) => is("two forms of one recipe", flat::write(&recipe) == bytes),
            Err(_) => Ok(()),
        }
    });
}

//! The protocol process itself is held: what it may open, and which calls it may make.

use std::collections::BTreeMap;
use std::os::unix::process::CommandExt as _;
use std::process::{Command, Stdio};

use supervisor::wire::accounts::derive;

use crate::Test;
use crate::attempts::{ATTEMPTS, Kept, Prepared};
use crate::world::{World, until};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("held::the_node_opens_its_own_files_and_makes_few_calls", held),
        ("held::without_landlock_the_node_is_started_and_it_is_said_once", without_landlock),
    ]
}

/// First ABI with scopes.
const SCOPES_SINCE: u32 = 6;

/// What came of each attempt, by name.
fn read(lines: &str) -> BTreeMap<String, String> {
    lines.lines().filter_map(|it| it.split_once('\t')).map(|(name, how)| (name.to_owned(), how.to_owned())).collect()
}

/// The attempts of a plain process of the node's account.
fn outside(world: &World) -> BTreeMap<String, String> {
    let account = derive(&world.root).node;
    let mut control = Command::new(world.dir.join("release/ocx"));
    control.arg("attempts").arg(&world.root).uid(account.uid).gid(account.gid).current_dir("/");
    read(&String::from_utf8(control.stdin(Stdio::null()).output().unwrap().stdout).unwrap())
}

fn held() {
    let abi = sandbox::sys::landlock_abi();
    let (world, mut node) = World::served();
    let _prepared = Prepared::new(&world.dir, derive(&world.root).node.uid);
    let (inside, outside) = (read(&node.attempts()), outside(&world));
    let mut wrong = Vec::new();
    for (name, kept, _) in ATTEMPTS {
        let (inside, outside) = (inside.get(*name).unwrap(), outside.get(*name).unwrap());
        let expected: &[i32] = match kept {
            Kept::Files if abi >= 2 => &[libc::EACCES, libc::EXDEV],
            Kept::Scopes if abi >= SCOPES_SINCE => &[libc::EPERM],
            Kept::Filter(errno) => std::slice::from_ref(errno),
            Kept::Files | Kept::Scopes | Kept::Open => &[],
        };
        let as_expected = match inside.as_str() {
            "ok" => expected.is_empty(),
            other => expected.iter().any(|it| it.to_string() == other),
        };
        // The control: its account alone keeps nobody from any of it.
        if !as_expected || outside != "ok" {
            wrong.push(format!("{name}: inside {inside}, expected {expected:?}; outside {outside}"));
        }
    }
    assert!(wrong.is_empty(), "{wrong:#?}");
    if abi < SCOPES_SINCE {
        crate::say(&format!("held: this kernel's Landlock is of ABI {abi}: part of it is not tested"));
    }
}

fn without_landlock() {
    let mut world = World::new();
    world.without_landlock = true;
    world.start();
    let node = world.greeted();
    let pid = node.pid;
    drop(node);
    until("the node is another", || !crate::world::lives(pid));
    let mut node = world.greeted();
    let _prepared = Prepared::new(&world.dir, derive(&world.root).node.uid);
    let inside = read(&node.attempts());
    for (name, kept, _) in ATTEMPTS {
        let expected = match kept {
            Kept::Files | Kept::Scopes | Kept::Open => "ok".to_owned(),
            Kept::Filter(errno) => errno.to_string(),
        };
        assert_eq!(inside.get(*name), Some(&expected), "{name}");
    }
    let said = world.logged().iter().filter(|line| line.contains("no Landlock")).count();
    assert_eq!(said, 1, "{:#?}", world.logged());
}

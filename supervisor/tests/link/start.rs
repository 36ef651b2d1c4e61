//! Start-up: what is refused, with its fix; and what the protocol process is when it has been started.

use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::os::unix::process::CommandExt as _;
use std::process::Stdio;

use rustix::process::Signal;
use supervisor::wire::accounts::derive;
use supervisor::wire::message::{Reply, Request};

use crate::Test;
use crate::world::{World, hash};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("start::a_new_root_is_made_whole", made),
        ("start::not_root_is_told_and_nothing_is_made", not_root),
        ("start::wrong_owners_and_modes_are_refused_with_the_fix", wrong),
        ("start::a_second_supervisor_is_refused", second),
        ("start::a_damaged_memory_of_launches_is_refused", damaged),
        ("start::the_node_has_its_account_and_nothing_else", node_is_nobody),
        ("start::the_supervisor_is_not_dumpable_and_leaves_no_core", hardened),
        ("start::welcome_says_what_the_host_is", welcome),
        ("start::a_record_nobody_can_read_is_taken_as_launched", unreadable_record),
    ]
}

/// Starts a supervisor that is to refuse; gives what it says.
fn refused(world: &World) -> String {
    let output = world.command().stderr(Stdio::piped()).stdout(Stdio::piped()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{said}");
    said
}

fn made() {
    let (world, _node) = World::served();
    let accounts = derive(&world.root);
    for (name, uid, mode) in [
        ("", 0, 0o711),
        ("settings", 0, 0o755),
        ("passwords", 0, 0o700),
        ("clones", accounts.node.uid, 0o700),
        ("state", accounts.node.uid, 0o700),
        ("care", 0, 0o700),
        ("workspaces", accounts.run.uid, 0o700),
        ("workspaces-open", accounts.open.uid, 0o700),
    ] {
        let about = std::fs::metadata(world.root.join(name)).unwrap();
        assert_eq!((about.uid(), about.gid(), about.mode() & 0o7777), (uid, uid, mode), "{name}");
    }
}

fn not_root() {
    let world = World::new();
    let mut command = world.command();
    let output = command.uid(0x7100_0001).gid(0x7100_0001).output().unwrap();
    assert_eq!(output.status.code(), Some(1));
    assert!(String::from_utf8(output.stderr).unwrap().contains("serve needs root"));
    assert!(!world.root.exists());
}

fn wrong() {
    let (mut world, node) = World::served();
    drop(node);
    world.end_supervisor(Signal::TERM);
    let care = world.root.join("care");
    std::fs::set_permissions(&care, std::fs::Permissions::from_mode(0o755)).unwrap();
    let said = refused(&world);
    assert!(said.contains(&format!("chown 0:0 {0} && chmod 0700 {0}", care.display())), "{said}");
    std::fs::set_permissions(&care, std::fs::Permissions::from_mode(0o700)).unwrap();
    let password = world.root.join("passwords/p.json");
    std::fs::write(&password, "{}").unwrap();
    std::fs::set_permissions(&password, std::fs::Permissions::from_mode(0o644)).unwrap();
    let said = refused(&world);
    assert!(said.contains("p.json") && said.contains("chmod 0600"), "{said}");
    std::fs::remove_file(&password).unwrap();
    std::os::unix::fs::chown(world.root.join("state"), Some(0), Some(0)).unwrap();
    assert!(refused(&world).contains("state"));
    // Control: the fix it names is one.
    let node = derive(&world.root).node;
    std::os::unix::fs::chown(world.root.join("state"), Some(node.uid), Some(node.gid)).unwrap();
    world.start();
    world.greeted();
}

fn second() {
    let (mut world, _node) = World::served();
    let said = refused(&world);
    assert!(
        said.contains("held by another supervisor") && said.contains(&world.supervisor_pid().to_string()),
        "{said}"
    );
    world.end_supervisor(Signal::KILL);
    world.start();
    world.greeted();
}

fn damaged() {
    let (mut world, node) = World::served();
    drop(node);
    world.end_supervisor(Signal::TERM);
    std::fs::write(world.root.join("care/launched"), format!("{} 1\nrubbish\n", hash('a'))).unwrap();
    let said = refused(&world);
    assert!(said.contains("line 2 is damaged"), "{said}");
    std::fs::write(world.root.join("care/launched"), format!("{} 1\ntorn", hash('a'))).unwrap();
    world.start();
    let mut node = world.greeted();
    assert_eq!(node.call(Request::Take { run: hash('a') }, &[]), Reply::Was { launches: 1 });
}

fn node_is_nobody() {
    let (world, node) = World::served();
    let proc = std::path::PathBuf::from(format!("/proc/{}", node.pid));
    let status = std::fs::read_to_string(proc.join("status")).unwrap();
    let field = |name: &str| {
        let line = status.lines().find_map(|line| line.strip_prefix(name)).unwrap();
        line.split_whitespace().map(str::to_owned).collect::<Vec<_>>()
    };
    let id = derive(&world.root).node.uid.to_string();
    assert_eq!(field("Uid:"), vec![id.clone(); 4]);
    assert_eq!(field("Gid:"), vec![id; 4]);
    assert_eq!(field("Groups:"), Vec::<String>::new());
    for set in ["CapInh:", "CapPrm:", "CapEff:", "CapBnd:", "CapAmb:"] {
        assert_eq!(field(set), ["0000000000000000"], "{set}");
    }
    assert_eq!(field("NoNewPrivs:"), ["1"]);
    assert_eq!(field("Seccomp:"), ["2"]);
    let env = String::from_utf8(std::fs::read(proc.join("environ")).unwrap()).unwrap();
    let mut env: Vec<&str> = env.split_terminator('\0').collect();
    env.sort_unstable();
    let home = format!("HOME={}/state", world.root.display());
    let temporary = format!("TMPDIR={}/state", world.root.display());
    assert_eq!(env, [home.as_str(), "LANG=C.UTF-8", "PATH=/usr/bin:/bin", &temporary, "TZ=UTC", "USER=ocx"]);
    // Its three, and the one this test's node opened.
    let open = std::fs::read_dir(proc.join("fd")).unwrap().count();
    assert_eq!(open, 4);
}

fn hardened() {
    let (world, _node) = World::served();
    let limits = std::fs::read_to_string(format!("/proc/{}/limits", world.supervisor_pid())).unwrap();
    let core = limits.lines().find(|line| line.starts_with("Max core file size")).unwrap();
    assert_eq!(core.split_whitespace().skip(4).take(2).collect::<Vec<_>>(), ["0", "0"]);
    let status = std::fs::read_to_string(format!("/proc/{}/status", world.supervisor_pid())).unwrap();
    assert!(status.lines().any(|line| line == "Groups:\t " || line == "Groups:\t" || line == "Groups: "), "{status}");
}

fn welcome() {
    let mut world = World::new();
    world.start();
    let mut node = world.node();
    std::fs::write(world.root.join("passwords/proj.json"), "{}").unwrap();
    let Reply::Welcome { provides, in_care } = node.call(Request::Hello { version: 1 }, &[]) else { panic!() };
    assert_eq!((in_care, provides.projects), (0, vec!["proj".to_owned()]));
    assert_eq!(provides.root, world.root.display().to_string());
    assert_eq!(provides.release, world.dir.join("release").display().to_string());
    assert!(provides.user_namespaces);
    assert_eq!(provides.workspaces_open, world.root.join("workspaces-open").display().to_string());
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    assert_eq!(provides.boot_id, boot.trim());
}

fn unreadable_record() {
    use supervisor::wire::message::{Event, Phase};
    let (mut world, node) = World::served();
    drop(node);
    world.end_supervisor(Signal::TERM);
    std::fs::write(world.root.join("care").join(hash('a')), "ocx-care 1\nboot").unwrap();
    world.start();
    let mut node = world.greeted();
    assert!(matches!(node.event().0, Event::InCare { phase: Phase::Launched, .. }));
    let Event::Orphaned { handle, what, .. } = node.event().0 else { panic!("no orphan") };
    assert!(what.contains("not believed"), "{what}");
    assert_eq!(node.call(Request::Release { handle }, &[]), Reply::Released);
    assert_eq!(node.call(Request::Take { run: hash('a') }, &[]), Reply::Was { launches: 1 });
}

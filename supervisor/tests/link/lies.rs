//! Requests in their place, of the right form, that are not true or not the asker's to make: each is refused, nothing is
//! made, and what others own stays as it is.

use std::collections::BTreeMap;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use sandbox::spec::Confinement;
use supervisor::wire::frame;
use supervisor::wire::message::{End, Handle, Reply, Request};
use supervisor::wire::plan::{LaunchPlan, Step};

use crate::Test;
use crate::world::{Node, World, hash, sealed_plan};

pub(crate) fn tests() -> Vec<Test> {
    vec![
        ("lies::c_101_a_run_that_was_launched_is_taken_anew", taken_anew),
        ("lies::c_85_a_plan_changed_since_it_was_checked", changed_plan),
        ("lies::a_plan_of_another_run_or_workspace", another_plan),
        ("lies::c_93_paths_that_are_the_supervisor_s_own_or_another_run_s", own_paths),
        ("lies::steps_anywhere_but_in_a_workspace_of_the_run_s_own", steps_elsewhere),
        ("lies::c_99_a_credential_that_is_another_file", credentials),
    ]
}

/// Everything below a folder: what it is, whose, and when it last changed.
fn all_below(folder: &Path, into: &mut BTreeMap<String, (u64, u32, u32, i64, i64)>) {
    for entry in std::fs::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let about = std::fs::symlink_metadata(entry.path()).unwrap();
        let facts = (about.ino(), about.mode(), about.uid(), about.ctime(), about.ctime_nsec());
        into.insert(entry.path().display().to_string(), facts);
        if about.is_dir() {
            all_below(&entry.path(), into);
        }
    }
}

fn everything(world: &World) -> BTreeMap<String, (u64, u32, u32, i64, i64)> {
    let mut all = BTreeMap::new();
    all_below(&world.dir, &mut all);
    all
}

fn check(node: &mut Node, handle: Handle, plan: &LaunchPlan) -> Reply {
    node.call(Request::Check { handle }, &[sealed_plan(plan).as_fd()])
}

fn taken_anew() {
    let (world, mut node) = World::served();
    let (handle, at) = world.run(&mut node, &hash('a'), "echo x >> ran");
    assert_eq!(node.call(Request::Take { run: hash('a') }, &[]), Reply::Busy);
    let event = node.exited(handle).event;
    node.send(Request::Noted { handle, event }, &[]);
    assert_eq!(node.call(Request::Take { run: hash('a') }, &[]), Reply::Busy);
    assert_eq!(node.call(Request::Release { handle }, &[]), Reply::Released);
    assert_eq!(node.call(Request::Take { run: hash('a') }, &[]), Reply::Was { launches: 1 });
    // By the number it had: no run has it any more, nor will another.
    let plan = world.plan(&hash('a'), Some(&at), "echo again >> ran");
    assert!(matches!(node.launch(handle, &plan, b""), Reply::Impossible { .. }));
    assert!(node.take(&hash('b')) > handle);
    assert_eq!(std::fs::read_to_string(Path::new(&at).join("ran")).unwrap(), "x\n");
}

fn changed_plan() {
    let (world, mut node) = World::served();
    let (handle, at) = world.prepared(&mut node, &hash('a'));
    let plan = world.plan(&hash('a'), Some(&at), "echo x >> ran");
    assert_eq!(check(&mut node, handle, &plan), Reply::Permitted);
    let changes: [fn(&mut LaunchPlan, &World); 5] = [
        |plan, world| plan.sandbox.as_mut().unwrap().read_only.push(world.root.join("state").display().to_string()),
        |plan, world| plan.sandbox.as_mut().unwrap().read_write.push(world.dir.join("release").display().to_string()),
        |plan, _| plan.sandbox.as_mut().unwrap().uid = u32::MAX,
        |plan, _| plan.sandbox.as_mut().unwrap().linux_capabilities.push("CAP_EVERYTHING".into()),
        // Without a sandbox, where the owner has not allowed it.
        |plan, _| plan.sandbox = None,
    ];
    for (index, change) in changes.into_iter().enumerate() {
        let mut changed = plan.clone();
        change(&mut changed, &world);
        let reply = node.launch(handle, &changed, b"");
        assert!(matches!(reply, Reply::Refused { .. }), "{index}: {reply:?}");
        assert!(!Path::new(&at).join("ran").exists());
    }
    // Control: as it was checked, it is launched, and that is its first launch.
    assert!(matches!(node.launch(handle, &plan, b""), Reply::Launched { .. }));
    assert_eq!(node.exited(handle).end, End::Code(0));
    assert_eq!(std::fs::read_to_string(Path::new(&at).join("ran")).unwrap(), "x\n");
}

fn another_plan() {
    let (world, mut node) = World::served();
    let (victim, theirs) = world.run(&mut node, &hash('b'), "echo x >> ran; while ! [ -e go ]; do sleep 0.1; done");
    let (handle, at) = world.prepared(&mut node, &hash('a'));
    let lies = [
        world.plan(&hash('b'), Some(&at), "echo lie >> ran"),
        world.plan(&hash('a'), Some(&theirs), "echo lie >> ran"),
        world.plan(&hash('a'), None, "echo lie >> ran"),
    ];
    for lie in lies {
        let (plan, line) = (sealed_plan(&lie), frame::seal("line", b"").unwrap());
        node.send(Request::Launch { handle }, &[plan.as_fd(), line.as_fd()]);
        node.wait_ended();
        node = world.greeted();
    }
    assert!(!Path::new(&at).join("ran").exists());
    std::fs::write(Path::new(&theirs).join("go"), "").unwrap();
    assert_eq!(node.exited_at_last(victim).end, End::Code(0));
    assert_eq!(std::fs::read_to_string(Path::new(&theirs).join("ran")).unwrap(), "x\n");
    // Control: its own.
    assert!(matches!(node.launch(handle, &world.plan(&hash('a'), Some(&at), "true"), b""), Reply::Launched { .. }));
}

fn own_paths() {
    let (world, mut node) = World::served();
    let (_, theirs) = world.prepared(&mut node, &hash('b'));
    let (handle, at) = world.prepared(&mut node, &hash('a'));
    // What its account can reach by its rights alone: here the account is let into all of it.
    let root = &world.root;
    let below = |name: &str| root.join(name).display().to_string();
    let release = world.dir.join("release").display().to_string();
    let never = [
        root.display().to_string(),
        below("settings"),
        below("state"),
        below("clones"),
        below("care"),
        below("passwords"),
        below("workspaces"),
        below("workspaces-open"),
        below("state/../care"),
        theirs,
        world.dir.display().to_string(),
        "/run/ocx".to_owned(),
        "/".to_owned(),
        "/proc".to_owned(),
        "/sys/fs/cgroup".to_owned(),
    ];
    let made = std::fs::create_dir("/run/ocx").is_ok();
    for path in [root.clone(), root.join("state"), root.join("clones"), root.join("care"), root.join("passwords")] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    }
    let before = everything(&world);
    let lists: [fn(&mut Confinement, String); 3] =
        [|it, path| it.read_only.push(path), |it, path| it.read_write.push(path), |it, path| it.homes.push(path)];
    let plan = world.plan(&hash('a'), Some(&at), "true");
    let mut tried = 0;
    for (number, list) in lists.into_iter().enumerate() {
        for path in never.iter().chain((number > 0).then_some(&release)) {
            let mut lie = plan.clone();
            list(lie.sandbox.as_mut().unwrap(), path.clone());
            for reply in [check(&mut node, handle, &lie), node.launch(handle, &lie, b"")] {
                assert!(matches!(reply, Reply::Refused { row: 7, .. }), "{path} in list {number}: {reply:?}");
                tried += 1;
            }
        }
    }
    assert_eq!(tried, 2 * (3 * never.len() + 2));
    assert_eq!(everything(&world), before, "P5: nothing was made");
    if made {
        std::fs::remove_dir("/run/ocx").unwrap();
    }
    // Controls: the release to be read, and a folder of the host.
    let mut honest = plan;
    honest.sandbox.as_mut().unwrap().read_only.extend([release, "/etc".to_owned()]);
    assert_eq!(check(&mut node, handle, &honest), Reply::Permitted);
    for path in [root.join("state"), root.join("clones"), root.join("care"), root.join("passwords")] {
        std::fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o700)).unwrap();
    }
}

fn steps_elsewhere() {
    let (world, mut node) = World::served();
    let (_, theirs) = world.prepared(&mut node, &hash('b'));
    std::fs::write(Path::new(&theirs).join("kept"), "x").unwrap();
    let handle = node.take(&hash('a'));
    let root = world.root.display().to_string();
    std::os::unix::fs::symlink(world.root.join("state"), world.root.join("workspaces/link")).unwrap();
    let elsewhere = [
        theirs.clone(),
        format!("{theirs}/below"),
        format!("{root}/workspaces"),
        format!("{root}/workspaces/."),
        format!("{root}/workspaces/../state/x"),
        format!("{root}/workspaces/link/x"),
        format!("{root}/workspaces-open"),
        format!("{root}/state/x"),
        format!("{root}/care/{}", hash('b')),
        format!("{root}x"),
        format!("{}/release", world.dir.display()),
        "/etc/ocx-lie".to_owned(),
        "workspaces/x".to_owned(),
        String::new(),
    ];
    // The record of the run itself is written, and what the steps' own folder shows of time.
    let before = everything(&world);
    let changed = |world: &World| {
        let now = everything(world);
        let is_record = |path: &String| path.contains("/care");
        let names = |all: &BTreeMap<String, _>| all.keys().filter(|it| !is_record(it)).cloned().collect::<Vec<_>>();
        assert_eq!(names(&now), names(&before));
        for (path, facts) in before.iter().filter(|(path, _)| !is_record(path)) {
            assert_eq!(now.get(path), Some(facts), "{path}");
        }
    };
    for at in elsewhere {
        let reply = node.call(
            Request::Prepare {
                handle,
                workspace_at: None,
                checkin: None,
                steps: vec![Step::Directory { at: at.clone() }],
            },
            &[],
        );
        assert!(matches!(reply, Reply::StepFailed { index: 0, .. }), "{at}: {reply:?}");
        changed(&world);
        assert!(!Path::new("/etc/ocx-lie").exists());
    }
    // Control: one of its own.
    let at = world.workspace("own");
    assert_eq!(
        node.call(
            Request::Prepare {
                handle,
                workspace_at: None,
                checkin: None,
                steps: vec![Step::Directory { at: at.clone() }]
            },
            &[]
        ),
        Reply::Prepared { checkin: None }
    );
    assert!(Path::new(&at).is_dir());
    // A removal is of the run's own workspace, whichever it is.
    assert_eq!(node.call(Request::Remove { handle }, &[]), Reply::Removed);
    assert_eq!(std::fs::read_to_string(Path::new(&theirs).join("kept")).unwrap(), "x");
}

fn credentials() {
    let (world, mut node) = World::served();
    let passwords = world.root.join("passwords");
    let text = r#"{"server":"http://127.0.0.1/","user":"u","password":"p"}"#;
    std::fs::write(passwords.join("good.json"), text).unwrap();
    std::fs::write(world.root.join("settings/other.json"), text).unwrap();
    std::os::unix::fs::symlink(world.root.join("settings/other.json"), passwords.join("link.json")).unwrap();
    for project in
        ["../settings/other", "../passwords/good", "./good", "good.json/../good", "/etc/passwd", "link", "", ".."]
    {
        let (reply, descriptors) = node.call_with(Request::Credential { project: project.to_owned(), user: None }, &[]);
        assert!(matches!(reply, Reply::Unset | Reply::Impossible { .. }), "{project}: {reply:?}");
        assert!(descriptors.is_empty());
    }
    // Control: by its name.
    let (reply, descriptors) = node.call_with(Request::Credential { project: "good".into(), user: None }, &[]);
    assert_eq!((reply, descriptors.len()), (Reply::Descriptor, 1));
    std::fs::remove_file(passwords.join("link.json")).unwrap();
}

//! The tree the process sees: what is hidden, what is read-only, and undoing either.

use std::fs;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;

use libtest_mimic::Failed;
use serde_json::json;

use crate::inside::{Given, Got};
use crate::loose::mount;
use crate::outside::{self, Rooted, Stage};
use crate::raw::{self, Ended, pointer, text};
use crate::run::{ACCOUNT, Folder, Run, same};
use crate::table::{self, Attack, Control, attack, whole};

pub(crate) const ATTACKS: &[Attack] = &[
    attack("tree::a_file_nobody_named", "named-only", hidden).staged(fixture),
    attack("tree::a_file_nobody_named_with_all_capabilities", "named-only", hidden).staged(powerful).unfiltered(),
    attack("tree::out_of_a_chroot", "named-only", out_of_a_chroot).staged(powerful).unfiltered(),
    attack("tree::a_read_only_path_is_written", "read-only", written).staged(fixture).control(Control::Asked(writable)),
    attack("tree::a_read_only_path_is_written_with_all_capabilities", "read-only", written)
        .staged(powerful)
        .unfiltered()
        .control(Control::Asked(writable)),
    attack("tree::the_root_is_written", "read-only", root_written)
        .staged(fixture)
        .control(Control::Asked(writable))
        .but("of these places the last alone can be asked for"),
    attack("tree::mounts_are_undone", "mounts-stay", undone).staged(mounted),
    attack("tree::mounts_are_undone_with_all_capabilities", "mounts-stay", undone).staged(mounted_powerful),
    attack("tree::mounts_are_undone_with_all_capabilities_and_no_filter", "mounts-stay", undone)
        .staged(mounted_powerful)
        .unfiltered(),
    attack("tree::mounts_are_undone_in_a_nested_namespace", "mounts-stay", nested).staged(mounted).unfiltered(),
    attack("tree::mounts_are_undone_in_a_nested_namespace_with_all_capabilities", "mounts-stay", nested)
        .staged(mounted_powerful)
        .unfiltered(),
    whole("tree::mounts_are_undone_where_nesting_is_let", "mounts-stay", where_nesting_is_let),
    attack("tree::a_device_is_made", "no-devices", device).control(Control::None(NO_NODES)),
    attack("tree::a_device_is_made_with_all_capabilities", "no-devices", device)
        .staged(powerful)
        .unfiltered()
        .control(Control::None(NO_NODES)),
    attack("tree::a_device_beside_the_usual", "no-devices", device_list).control(Control::Asked(with_a_device)),
    attack("tree::a_mount_without_nosuid_or_nodev", "no-devices", flags)
        .staged(fixture)
        .but("the host has some of its own with both"),
    attack("tree::a_mount_that_follows_the_host", "named-only", propagation)
        .staged(shared)
        .but("what it mounted itself follows nothing"),
];

const NO_NODES: &str = "the kernel lets nobody without capabilities over the host make a device";

/// A folder shown read-only, with files, and one that nobody named.
fn fixture() -> Result<Stage, Failed> {
    let folder = Folder::new()?;
    let (ro, _) = (folder.folder("ro", ACCOUNT)?, folder.folder("hidden", ACCOUNT)?);
    for name in ["one", "two", "three", "four"] {
        let path = folder.file(&format!("ro/{name}"), "x")?;
        std::os::unix::fs::chown(path, Some(ACCOUNT), Some(ACCOUNT))?;
    }
    let hidden = folder.file("hidden/secret", "x")?;
    Ok(Stage::plain()?.reading(&ro).giving("ro", &ro).giving("hidden", hidden).holding(folder))
}

fn powerful() -> Result<Stage, Failed> {
    Ok(fixture()?.all_powerful(&[]))
}

/// With a created file, and in a control mounts that are its own.
fn mounted() -> Result<Stage, Failed> {
    let made = json!([{"at": "/tmp/made", "text": "x"}]);
    Ok(fixture()?.key("/sandbox/created_files", made).giving("made", "/tmp/made"))
}

fn mounted_powerful() -> Result<Stage, Failed> {
    Ok(mounted()?.all_powerful(&[]))
}

fn writable(stage: Stage) -> Stage {
    let ro = stage.has("ro");
    stage.writing(&ro)
}

/// The shell stays: mounts whose peers are gone follow nobody.
fn shared() -> Result<Stage, Failed> {
    Ok(fixture()?.around("exec unshare -m --propagation shared sh -c '$ONCE; exit $?'"))
}

fn with_a_device(stage: Stage) -> Stage {
    // Which one does not matter: it is looked for by its name alone.
    stage.key("/sandbox/devices", json!(["/dev/kmsg"]))
}

fn hidden(given: &Given, got: &mut Got) {
    let path = given.text("hidden");
    let up = "/..".repeat(40);
    let relative = format!("{}{path}", "../".repeat(40));
    for (what, at) in [
        ("by its name", path.to_owned()),
        ("past the root", format!("{up}{path}")),
        ("from where it is", relative),
        ("by its own root", format!("/proc/self/root{path}")),
        ("beyond its own root", format!("/proc/self/root{up}{path}")),
        ("by its folder", format!("/proc/self/cwd{up}{path}")),
        ("by its init's root", format!("/proc/1/root{path}")),
        ("by its init's folder", format!("/proc/1/cwd{up}{path}")),
        ("by its init's task", format!("/proc/1/task/1/root{path}")),
        ("the host's users", "/etc/passwd".to_owned()),
        ("the host's settings", "/sys/kernel".to_owned()),
        ("the host's services", "/run".to_owned()),
        ("the host's logs", "/var/log".to_owned()),
    ] {
        got.tried(what, &fs::File::open(at));
    }
}

fn out_of_a_chroot(given: &Given, got: &mut Got) {
    let went = fs::create_dir("/tmp/jail").and_then(|()| std::os::unix::fs::chroot("/tmp/jail"));
    if let Err(error) = went {
        // Then nothing was shown of what this is about.
        got.through(format!("no chroot: {error}"));
        return;
    }
    for _ in 0..40 {
        // Stops at the root the namespace has, whatever it is.
        let _at_the_top = std::env::set_current_dir("..");
    }
    let out = std::os::unix::fs::chroot(".");
    got.tried("out, and to a file nobody named", &out.and_then(|()| fs::File::open(given.text("hidden"))));
}

fn written(given: &Given, got: &mut Got) {
    let ro = given.text("ro");
    let at = |name: &str| format!("{ro}/{name}");
    let open = |options: &mut fs::OpenOptions, name: &str| options.open(at(name)).map(drop);
    got.tried("made", &open(fs::OpenOptions::new().write(true).create_new(true), "new"));
    got.tried("opened to write", &open(fs::OpenOptions::new().write(true), "one"));
    got.tried("opened to append", &open(fs::OpenOptions::new().append(true), "one"));
    got.tried("emptied", &open(fs::OpenOptions::new().write(true).truncate(true), "one"));
    let path = std::ffi::CString::new(at("two")).unwrap_or_default();
    got.call("truncated", &raw::raw(libc::SYS_truncate, [text(&path), 0, 0, 0, 0, 0]));
    got.tried("renamed", &fs::rename(at("three"), at("five")));
    got.tried("linked", &fs::hard_link(at("two"), at("six")));
    got.tried("a link made", &symlink("two", at("seven")));
    got.tried("a folder made", &fs::create_dir(at("eight")));
    got.tried("removed", &fs::remove_file(at("four")));
    got.tried("its mode", &fs::set_permissions(at("one"), fs::Permissions::from_mode(0o600)));
    got.tried("a socket made", &UnixListener::bind(at("nine")));
    let whole = std::ffi::CString::new(at("one")).unwrap_or_default();
    let now = i64::from(libc::AT_FDCWD).cast_unsigned();
    got.call("its times", &raw::raw(libc::SYS_utimensat, [now, text(&whole), 0, 0, 0, 0]));
    let pipe = std::ffi::CString::new(at("ten")).unwrap_or_default();
    let kind = u64::from(libc::S_IFIFO | 0o600);
    got.call("a pipe made", &raw::raw(libc::SYS_mknodat, [now, text(&pipe), kind, 0, 0, 0]));
}

fn root_written(given: &Given, got: &mut Got) {
    for place in ["/", "/proc", "/dev", "/dev/pts", "/usr", "/usr/bin", "/lib", given.text("ro")] {
        let path = Path::new(place).join("ocx-attack");
        let made = fs::File::options().write(true).create_new(true).open(&path);
        if made.is_ok() {
            drop(fs::remove_file(&path));
        }
        got.tried(place, &made);
    }
}

/// Read-only becomes writable, a created file is lifted, a tree is taken away or covered.
fn undo(given: &Given, got: &mut Got) {
    const RDONLY: u64 = 1;
    let ro = given.text("ro");
    got.call("remounted", &mount("", ro, "", libc::MS_BIND | libc::MS_REMOUNT));
    let path = std::ffi::CString::new(ro).unwrap_or_default();
    let attr = [0_u64, RDONLY, 0, 0];
    let here = i64::from(libc::AT_FDCWD).cast_unsigned();
    got.call("made writable", &raw::raw(libc::SYS_mount_setattr, [here, text(&path), 0, pointer(&attr), 32, 0]));
    got.call("a created file lifted", &detach(given.text("made")));
}

fn detach(path: &str) -> Result<i64, i32> {
    let path = std::ffi::CString::new(path).unwrap_or_default();
    raw::raw(libc::SYS_umount2, [text(&path), u64::from(libc::MNT_DETACH.unsigned_abs()), 0, 0, 0, 0])
}

fn undone(given: &Given, got: &mut Got) {
    undo(given, got);
    got.call("tmp taken away", &detach("/tmp"));
    got.call("proc taken away", &detach("/proc"));
    got.call("a tree covered", &mount("over", given.text("ro"), "tmpfs", 0));
    got.call("a tree moved", &mount(given.text("ro"), "/tmp", "", libc::MS_MOVE));
    got.call("mounts shared", &mount("", given.text("ro"), "", libc::MS_SHARED));
}

/// In a child, in namespaces of its own; a control's mounts are its own already.
fn nested(given: &Given, got: &mut Got) {
    if own_mounts() {
        undo(given, got);
        return;
    }
    let flags = u64::from((libc::CLONE_NEWUSER | libc::CLONE_NEWNS).unsigned_abs());
    if let Err(error) = raw::raw(libc::SYS_unshare, [flags, 0, 0, 0, 0, 0]) {
        // Then nothing was shown of what this is about.
        got.through(format!("no namespace of its own: error {error}"));
        return;
    }
    undo(given, got);
}

/// With `settings/nested_user_namespaces` a run makes a sandbox of its own, and undoes nothing of the one it is in.
fn where_nesting_is_let() -> Result<(), Failed> {
    let script = "unshare -U -r -m -p -f --mount-proc sh -c 'mount -t tmpfs over /tmp && echo made' 2>&1";
    let root = Rooted::with_settings(&["nested_user_namespaces"])?;
    let made = root.prints(&root.plan(&Run::sh(script))?)?;
    same("with the setting", made, Ok("made\n".to_owned()))?;
    let name = "tree::mounts_are_undone_in_a_nested_namespace";
    table::works_nothing(&outside::launched(&root, &mounted()?, name)?)?;
    // The control: without the setting there is no namespace to make one in.
    let strict = Rooted::new()?;
    let refused = strict.prints(&strict.plan(&Run::sh(script))?)?;
    same("without", refused.is_ok_and(|it| it.contains("Operation not permitted")), true)
}

/// Whether this is a control, whose init has the same account: then its files can be read.
fn own_mounts() -> bool {
    fs::File::open("/proc/1/environ").is_ok()
}

fn device(_: &Given, got: &mut Got) {
    let here = i64::from(libc::AT_FDCWD).cast_unsigned();
    for (what, kind, major, minor) in [
        ("null", libc::S_IFCHR, 1, 3),
        ("memory", libc::S_IFCHR, 1, 1),
        ("kernel log", libc::S_IFCHR, 1, 11),
        ("a disk", libc::S_IFBLK, 8, 0),
        ("a virtual disk", libc::S_IFBLK, 254, 0),
    ] {
        let path = std::ffi::CString::new(format!("/tmp/{}", what.replace(' ', "-"))).unwrap_or_default();
        let number = libc::makedev(major, minor);
        let args = [here, text(&path), u64::from(kind | 0o600), number, 0, 0];
        got.call(what, &raw::raw(libc::SYS_mknodat, args));
    }
}

fn device_list(_: &Given, got: &mut Got) {
    const USUAL: &str = " fd full null ptmx pts random shm stderr stdin stdout tty urandom zero ";
    let names = fs::read_dir("/dev").into_iter().flatten().flatten().map(|it| it.file_name());
    let names: Vec<String> = names.map(|it| it.to_string_lossy().into_owned()).collect();
    let more: Vec<&String> = names.iter().filter(|it| !USUAL.contains(&format!(" {it} "))).collect();
    got.holds(format!("beside the usual: {more:?}"), !more.is_empty());
}

fn flags(_: &Given, got: &mut Got) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for line in table.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let (Some(point), Some(options)) = (words.get(4), words.get(5)) else { continue };
        let has = |flag: &str| options.split(',').any(|it| it == flag);
        let dev = point.starts_with("/dev");
        got.holds(format!("{point} {options}"), !has("nosuid") || !(dev || has("nodev")));
    }
}

fn propagation(_: &Given, got: &mut Got) {
    let table = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    for line in table.lines() {
        let before = line.split(" - ").next().unwrap_or_default();
        let point = line.split(' ').nth(4).unwrap_or_default();
        got.holds(point, before.contains(" shared:") || before.contains(" master:"));
    }
}

//! What is refused, and what is said about it.

use std::os::unix::fs::symlink;

use libtest_mimic::Failed;
use serde_json::json;

use crate::Test;
use crate::run::{ACCOUNT, Folder, Run, same};

pub(crate) const TESTS: &[Test] = &[
    ("refusals::v2_2_8_22_own_files_are_refused_by_themselves_parents_children_and_links", own_files),
    ("refusals::c_93_the_kernels_own_file_systems_are_refused", kernels),
    ("refusals::c_93_another_mount_of_own_files_is_refused", own_files_elsewhere),
    ("refusals::the_program_itself_is_not_writable", program),
    ("refusals::user_namespaces_off_is_said", no_user_namespaces),
    ("refusals::not_root_is_said", not_root),
    ("refusals::v2_2_8_01_each_missing_key_is_named", missing_keys),
    ("refusals::an_unknown_key_is_named", unknown_key),
    ("refusals::a_missing_account_is_named_with_what_to_do", account),
    ("refusals::help_teaches", help),
];

/// A service's ROOT in a mount namespace of the test's own.
const ROOT: &str =
    "mount -t tmpfs -o mode=755 t /var/lib && mkdir -p -m 755 /var/lib/ocx/settings/x /var/lib/other && ";

fn own_files() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let link = folder.0.join("link");
    symlink("/var/lib/ocx/settings", &link)?;
    let outer = ["unshare", "-m"];
    let script = format!("{ROOT} exec $ONCE");
    let link = link.display().to_string();
    for path in ["/var/lib/ocx", "/var/lib/ocx/settings", "/var/lib/ocx/settings/x", "/var/lib", "/var", &link] {
        let refused = Run::sh("true").reading(&[path]).around(&outer, &script)?.exits(125)?;
        refused.says("refused (7): sandbox.read_only")?.says(path)?.says("OCX's own")?;
        Run::sh("true")
            .writing(&[path])
            .around(&outer, &script)?
            .exits(125)?
            .says("refused (7): sandbox.read_write[0]")?;
    }
    Run::sh("true").reading(&["/var/lib/other"]).around(&outer, &script)?.exits(0)?;
    Ok(())
}

fn own_files_elsewhere() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let (whole, holds) = (folder.folder("whole", ACCOUNT)?, folder.folder("holds", ACCOUNT)?);
    let inner = folder.folder("holds/inner", ACCOUNT)?;
    let script = format!(
        "{ROOT} mount --bind /var/lib/ocx/settings {whole} && mount --bind /var/lib/ocx/settings/x {inner} && exec $ONCE"
    );
    for path in [&whole, &inner, &holds] {
        let came = Run::sh("true").reading(&[path]).around(&["unshare", "-m"], &script)?;
        came.exits(125)?.says("refused (7)")?.says("OCX's own")?;
    }
    // The control: the same folders without those mounts.
    Run::sh("true").reading(&[&holds]).around(&["unshare", "-m"], &format!("{ROOT} exec $ONCE"))?.exits(0)?;
    Ok(())
}

fn kernels() -> Result<(), Failed> {
    for path in ["/proc", "/proc/sys", "/sys", "/sys/fs/cgroup", "/dev", "/dev/pts", "/"] {
        Run::sh("true").reading(&[path]).run()?.exits(125)?.says("refused (7): sandbox.read_only")?;
    }
    // V2-2.8-06: nor the host's message queues, wherever they are mounted.
    let folder = Folder::new()?;
    let run = Run::sh("true").reading(&[&folder.text()]);
    let queues = format!("mount -t mqueue -o nosuid q {} && exec $ONCE", folder.text());
    run.around(&["unshare", "-m"], &queues)?.exits(125)?.says("refused (7): sandbox.read_only")?;
    run.run()?.exits(0)?;
    Ok(())
}

fn program() -> Result<(), Failed> {
    let own = std::path::Path::new(env!("CARGO_BIN_EXE_ocx-supervisor"));
    let folder = own.parent().ok_or("a folder")?.display().to_string();
    Run::sh("true").writing(&[&folder]).run()?.exits(125)?.says("refused (7): sandbox.read_write[0]")?;
    Ok(())
}

fn no_user_namespaces() -> Result<(), Failed> {
    // The setting is each user namespace's own, so the host's stays.
    let outer = ["unshare", "-U", "-r"];
    let off = "echo 0 > /proc/sys/user/max_user_namespaces && exec $ONCE";
    Run::sh("true").around(&outer, off)?.exits(125)?.says("refused (6): sandbox")?.says("user.max_user_namespaces")?;
    Ok(())
}

fn not_root() -> Result<(), Failed> {
    let folder = Folder::new()?;
    // The program lies where only root may look: run a copy.
    let copy = folder.0.join("ocx-supervisor");
    std::fs::copy(env!("CARGO_BIN_EXE_ocx-supervisor"), &copy)?;
    let script = format!("exec {} once /dev/null", copy.display());
    let outer = ["setpriv", "--reuid=64321", "--regid=64321", "--clear-groups"];
    Run::sh("true").around(&outer, &script)?.exits(125)?.says("root")?;
    Ok(())
}

fn missing_keys() -> Result<(), Failed> {
    let keys = [
        "uid",
        "gid",
        "linux_capabilities",
        "network",
        "isolate_terminal",
        "ends_with_parent",
        "proc",
        "dev",
        "tmp",
        "read_only",
        "read_write",
        "homes",
        "created_files",
    ];
    for key in keys {
        let whole = serde_json::to_value(sandbox::spec::Confinement {
            uid: 1,
            gid: 1,
            linux_capabilities: Vec::new(),
            network: false,
            isolate_terminal: true,
            ends_with_parent: true,
            proc: "/proc".into(),
            dev: "/dev".into(),
            tmp: "/tmp".into(),
            read_only: Vec::new(),
            read_write: Vec::new(),
            devices: Vec::new(),
            homes: Vec::new(),
            workspace_at: None,
            created_files: Vec::new(),
        })?;
        let mut less = whole.clone();
        less.as_object_mut().ok_or("an object")?.remove(key);
        Run::sh("true").with("/sandbox", less).run()?.exits(125)?.says(&format!("missing field `{key}`"))?;
    }
    Ok(())
}

fn unknown_key() -> Result<(), Failed> {
    for pointer in ["/colour", "/sandbox/colour", "/limits/colour", "/process/colour"] {
        Run::sh("true").with(pointer, json!(1)).run()?.exits(125)?.says("unknown field `colour`")?;
    }
    for (key, value) in [("wall", json!("90")), ("file_size", json!("64k")), ("memory", json!(-1)), ("cpu", json!("3"))]
    {
        Run::sh("true").with(&format!("/limits/{key}"), value).run()?.exits(125)?.says("file: ")?;
    }
    Ok(())
}

fn account() -> Result<(), Failed> {
    let run = Run::sh("true");
    for (given, words) in [
        ("ocx-no-such", "UID:GID"),
        ("root", "never runs as root"),
        ("0:1", "never runs as root"),
        ("a:b", "not UID:GID"),
    ] {
        let script = format!("exec $(echo $ONCE | sed 's/--account [^ ]*/--account {given}/')");
        run.around(&[], &script)?.exits(125)?.says("account: ")?.says(words)?;
    }
    Ok(())
}

fn help() -> Result<(), Failed> {
    let output = std::process::Command::new(env!("CARGO_BIN_EXE_ocx-supervisor")).args(["once", "--help"]).output()?;
    let text = String::from_utf8(output.stdout)?;
    for word in ["--account", "read_only", "created_files", "126", "ends_with_parent"] {
        same(word, text.contains(word), true)?;
    }
    same("exit", output.status.code(), Some(0))
}

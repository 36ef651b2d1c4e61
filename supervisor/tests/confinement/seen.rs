//! What the process sees of the host, and what it can write.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, symlink};

use libtest_mimic::Failed;
use serde_json::json;

use crate::Test;
use crate::run::{ACCOUNT, Folder, Run, same};

pub(crate) const TESTS: &[Test] = &[
    ("seen::v2_2_8_21_nothing_but_what_is_asked_is_mounted", mounts),
    ("seen::v2_2_8_21_etc_is_there_only_when_asked_for", etc),
    ("seen::v2_2_8_12_and_v2_2_8_13_read_only_is_not_writable_and_read_write_is", access),
    ("seen::v2_2_8_12_a_host_mount_beneath_a_read_only_path_is_read_only_too", nested_mount),
    ("seen::a_mount_the_host_makes_later_does_not_show", later_mount),
    ("seen::v2_2_8_15_a_device_file_in_a_read_write_path_does_not_open", nodev),
    ("seen::v2_2_8_14_a_device_opens_when_named_and_a_missing_one_is_passed_over", devices),
    ("seen::v2_2_8_10_dev_holds_the_usual_nodes_and_no_others", dev),
    ("seen::v2_2_8_11_tmp_is_empty_writable_and_of_its_own", tmp),
    ("seen::v2_2_8_09_proc_is_where_it_is_asked_for", proc_elsewhere),
    ("seen::v2_2_8_20_created_files_hold_their_text_and_leave_the_host_alone", created_files),
    ("seen::a_link_where_a_created_file_goes_is_not_followed", created_through_link),
    ("seen::c_45_a_host_path_that_is_not_there_fails_the_launch_by_name", missing),
    ("seen::c_90_what_the_account_cannot_reach_is_refused", unreachable),
    ("seen::a_path_through_a_link_shows_what_it_leads_to", through_link),
];

fn mounts() -> Result<(), Failed> {
    let came = Run::sh("cut -d' ' -f5 /proc/self/mountinfo | sort; echo; ls -A /").run()?.exits(0)?;
    let (points, names) = came.out.split_once("\n\n").ok_or("two parts")?;
    let merged = fs::symlink_metadata("/bin").is_ok_and(|it| it.is_symlink());
    if merged {
        same("mounts", points, "/\n/dev\n/dev/pts\n/proc\n/tmp\n/usr")?;
    }
    let expected: Vec<&str> = ["bin", "dev", "lib", "lib64", "proc", "sbin", "tmp", "usr"]
        .into_iter()
        .filter(|it| fs::symlink_metadata(format!("/{it}")).is_ok())
        .collect();
    same("names in the root", names.lines().collect::<Vec<_>>(), expected)
}

fn etc() -> Result<(), Failed> {
    Run::sh("test -e /etc && echo seen || echo not").run()?.exits(0)?.prints("not\n")?;
    Run::sh("test -e /etc/passwd && echo seen || echo not").reading(&["/etc"]).run()?.exits(0)?.prints("seen\n")?;
    Ok(())
}

fn access() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let path = folder.text();
    let write = Run::sh(&format!("echo made > {path}/x"));
    write.clone().reading(&[&path]).run()?.exits(2)?.says("Read-only file system")?;
    same("on the host", folder.0.join("x").exists(), false)?;
    // The control: the same path read-write. Named in both lists it is read-write.
    // However it is written there.
    write.clone().reading(&[&path]).writing(&[&path]).run()?.exits(0)?;
    write.reading(&[&format!("{path}/./")]).writing(&[&path.replacen('/', "//", 2)]).run()?.exits(0)?;
    same("on the host", fs::read_to_string(folder.0.join("x"))?, "made\n".to_owned())?;
    same("whose it is", fs::metadata(folder.0.join("x"))?.uid(), ACCOUNT)
}

fn nested_mount() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let (path, inner) = (folder.text(), folder.folder("inner", ACCOUNT)?);
    let script = format!("mount -t tmpfs -o mode=1777 t {inner} && exec $ONCE");
    let write = Run::sh(&format!("echo made > {inner}/x"));
    let outer = ["unshare", "-m"];
    write.clone().reading(&[&path]).around(&outer, &script)?.exits(2)?.says("Read-only file system")?;
    write.writing(&[&path]).around(&outer, &script)?.exits(0)?;
    Ok(())
}

fn later_mount() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let (path, inner) = (folder.text(), folder.folder("inner", ACCOUNT)?);
    // Mounts in the test's own mount namespace, shared as systemd makes them, while the run goes on.
    let script = format!(
        "mount --bind {path} {path} && mount --make-shared {path} || exit 98; \
         ( while ! test -e {path}/go; do sleep 0.05; done; mount -t tmpfs t {inner} && touch {inner}/later {path}/done ) & \
         $ONCE; code=$?; touch {path}/go; wait; test -e {inner}/later || exit 99; exit $code"
    );
    // A minute at most, so that a mount that fails is a failure with words.
    let look = format!(
        "touch {path}/go; for i in $(seq 600); do test -e {path}/done && break; sleep 0.1; done; \
         test -e {path}/done && ls -A {inner}"
    );
    Run::sh(&look).writing(&[&path]).around(&["unshare", "-m"], &script)?.exits(0)?.prints("")?;
    Ok(())
}

fn nodev() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let path = folder.text();
    let made =
        std::process::Command::new("mknod").args(["-m", "666", &format!("{path}/zero"), "c", "1", "5"]).status()?;
    same("a device was made", made.success(), true)?;
    Run::sh(&format!("head -c1 {path}/zero")).writing(&[&path]).run()?.exits(1)?.says("Permission denied")?;
    // The control: the same device, named as one.
    Run::sh("head -c1 /dev/zero | wc -c").run()?.exits(0)?.prints("1\n")?;
    Ok(())
}

fn devices() -> Result<(), Failed> {
    let read = Run::sh("head -c1 /dev/zero | wc -c").with("/sandbox/dev", json!("/d"));
    read.clone().run()?.prints("0\n")?;
    read.clone().with("/sandbox/devices", json!(["/dev/zero"])).run()?.exits(0)?.prints("1\n")?;
    read.clone().with("/sandbox/devices", json!(["/dev/no-such-device"])).run()?.prints("0\n")?;
    for wrong in ["/dev", "/dev/", "/dev//zero", "/dev/../etc/passwd", "/etc/passwd", "/dev/shm", "/dev/pts/ptmx"] {
        read.clone().with("/sandbox/devices", json!([wrong])).run()?.exits(125)?.says("sandbox.devices[0]")?;
    }
    Ok(())
}

fn dev() -> Result<(), Failed> {
    let came = Run::sh("ls -A /dev; echo x > /dev/null; ls /dev/pts; mknod /tmp/m c 1 3").run()?.exits(1)?;
    same(
        "dev",
        came.out.split_whitespace().collect::<Vec<_>>().join(" "),
        "fd full null ptmx pts random shm stderr stdin stdout tty urandom zero ptmx".to_owned(),
    )?;
    came.says("Operation not permitted")?;
    Ok(())
}

fn tmp() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let name = folder.0.file_name().ok_or("a name")?.to_string_lossy().into_owned();
    let script = format!("ls -A /tmp; echo x > /tmp/{name} && ls /tmp");
    Run::sh(&script).run()?.exits(0)?.prints(&format!("{name}\n"))?;
    same("on the host", std::path::Path::new("/tmp").join(&name).exists(), false)?;
    Run::sh(&script).run()?.exits(0)?.prints(&format!("{name}\n"))?; // the first run's is gone
    Ok(())
}

fn proc_elsewhere() -> Result<(), Failed> {
    let script = "tr -d '\\0' < /p/1/comm; ls -d /p/[0-9]* | wc -l; test -e /proc; readlink /dev/stdin";
    let came = Run::sh(script).with("/sandbox/proc", json!("/p")).run()?;
    // Its init, the shell, and the two of the pipe.
    if !came.out.starts_with("ocx-cell\n") || !came.out.ends_with("/p/self/fd/0\n") {
        return Err(format!("{came:?}").into());
    }
    let count: u32 = came.out.lines().nth(1).unwrap_or_default().trim().parse()?;
    same("only its own processes", count <= 4, true)
}

fn created_files() -> Result<(), Failed> {
    let passwd = fs::read_to_string("/etc/passwd")?;
    let run = Run::sh("cat /etc/passwd; stat -c '%a %u %g' /etc/passwd; stat -c %a /new; cat /new/deep/file")
        .reading(&["/etc"])
        .with(
            "/sandbox/created_files",
            json!([{"at": "/etc/passwd", "text": "builder:x:1000\n"}, {"at": "/new/deep/file", "text": "made"}]),
        );
    run.run()?.exits(0)?.prints("builder:x:1000\n644 1000 1000\n755\nmade")?;
    same("the host's own", fs::read_to_string("/etc/passwd")?, passwd)
}

fn created_through_link() -> Result<(), Failed> {
    let (folder, outside) = (Folder::new()?, Folder::new()?);
    let (path, target) = (folder.text(), outside.file("target", "host's")?);
    symlink(&target, folder.0.join("link"))?;
    symlink(outside.text(), folder.0.join("folder"))?;
    let with = |at: String| {
        Run::sh("true").writing(&[&path]).with("/sandbox/created_files", json!([{"at": at, "text": "made"}]))
    };
    with(format!("{path}/link")).run()?.exits(125)?.says("symbolic link")?;
    with(format!("{path}/folder/new")).run()?.exits(125)?.says("symbolic link")?;
    same("the link's target", fs::read_to_string(target)?, "host's".to_owned())?;
    same("beside it", outside.0.join("new").exists(), false)?;
    // The control: a plain place, made with the account's rights.
    with(format!("{path}/plain")).run()?.exits(0)?;
    same("whose the mount point is", fs::metadata(folder.0.join("plain"))?.uid(), ACCOUNT)
}

fn missing() -> Result<(), Failed> {
    let run = Run::sh("true").reading(&["/var/tmp/ocx-no-such"]);
    run.run()?.exits(125)?.says("/var/tmp/ocx-no-such: No such file or directory")?;
    Ok(())
}

fn unreachable() -> Result<(), Failed> {
    use std::os::unix::fs::PermissionsExt as _;
    let folder = Folder::new()?;
    let closed = folder.folder("closed", 0)?;
    let inner = folder.folder("closed/inner", ACCOUNT)?;
    let look = Run::sh(&format!("ls -A {inner}")).reading(&[&inner]);
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o700))?;
    look.run()?.exits(125)?.says("refused (7)")?.says("cannot reach")?;
    fs::set_permissions(&closed, fs::Permissions::from_mode(0o711))?;
    look.run()?.exits(0)?;
    Ok(())
}

fn through_link() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let real = folder.folder("real", ACCOUNT)?;
    folder.file("real/x", "seen")?;
    let link = folder.0.join("link").display().to_string();
    symlink(&real, &link)?;
    // Alone it is shown as what it leads to; beside its target it stays the link it is.
    Run::sh(&format!("cat {link}/x; test -L {link} || echo -folder"))
        .reading(&[&link])
        .run()?
        .prints("seen-folder\n")?;
    Run::sh(&format!("cat {link}/x; readlink {link}"))
        .reading(&[&real, &link])
        .run()?
        .prints(&format!("seen{real}\n"))?;
    Ok(())
}

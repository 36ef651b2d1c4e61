//! What a hostile program tries, from inside only. Each has a control: the same call where nothing forbids it.

use libtest_mimic::Failed;
use serde_json::json;

use crate::Test;
use crate::run::{Folder, Run, same};

pub(crate) const TESTS: &[Test] = &[
    ("attacks::a_user_namespace_of_its_own", user_namespace),
    ("attacks::mounts_are_undone_by_no_capability", mounts),
    ("attacks::the_host_name_is_not_its_to_set", host_name),
    ("attacks::a_set_user_id_file_is_not_made", set_user_id),
    ("attacks::another_runs_files_are_not_seen", other_runs),
    ("attacks::abstract_sockets_of_the_host_are_closed", abstract_sockets),
    ("attacks::signals_reach_nothing_outside", signals),
];

fn all_capabilities(run: Run) -> Run {
    let all =
        ["CAP_SYS_ADMIN", "CAP_DAC_OVERRIDE", "CAP_CHOWN", "CAP_SETUID", "CAP_SETGID", "CAP_MKNOD", "CAP_SYS_PTRACE"];
    run.with("/sandbox/linux_capabilities", json!(all)).with("/sandbox/uid", json!(0)).with("/sandbox/gid", json!(0))
}

fn user_namespace() -> Result<(), Failed> {
    Run::sh("unshare -U true").run()?.exits(1)?.says("Operation not permitted")?;
    all_capabilities(Run::sh("unshare -m true; unshare -n true")).run()?;
    // The control: the same program outside may.
    same("outside", std::process::Command::new("unshare").args(["-U", "true"]).status()?.success(), true)
}

fn mounts() -> Result<(), Failed> {
    let script = "mount -o remount,rw /usr; mount -t tmpfs t /tmp; umount /usr; touch /usr/x; touch /x; mknod /tmp/n b 254 0; \
                  chroot /tmp true; echo still here";
    let came = all_capabilities(Run::sh(script)).run()?.exits(0)?.prints("still here\n")?;
    same("nothing of it worked", came.err.lines().filter(|it| !it.is_empty()).count() >= 7, true)
}

fn host_name() -> Result<(), Failed> {
    all_capabilities(Run::sh("hostname other")).run()?.exits(1)?;
    Ok(())
}

fn set_user_id() -> Result<(), Failed> {
    let folder = Folder::new()?;
    let path = folder.text();
    let make = |mode: &str| Run::sh(&format!("touch {path}/x && chmod {mode} {path}/x")).writing(&[&path]).run();
    make("4755")?.exits(1)?.says("Operation not permitted")?;
    make("0755")?.exits(0)?;
    Ok(())
}

fn other_runs() -> Result<(), Failed> {
    let (one, other) = (Folder::new()?, Folder::new()?);
    other.file("secret", "x")?;
    Run::sh(&format!("cat {}/secret", other.text())).writing(&[&one.text()]).run()?.exits(1)?.says("No such file")?;
    Run::sh(&format!("cat {}/secret", other.text())).writing(&[&other.text()]).run()?.exits(0)?.prints("x")?;
    Ok(())
}

fn abstract_sockets() -> Result<(), Failed> {
    use std::os::linux::net::SocketAddrExt as _;
    use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
    let name = format!("ocx-test-{}", std::process::id());
    let address = SocketAddr::from_abstract_name(&name)?;
    let _listener = UnixListener::bind_addr(&address)?;
    UnixStream::connect_addr(&address)?; // the control: outside it is open
    let connect = format!(
        "perl -MSocket -e 'socket(S, AF_UNIX, SOCK_STREAM, 0); connect(S, pack(\"S a*\", AF_UNIX, \"\\0{name}\")) or print \"$!\\n\"'"
    );
    let run = Run::sh(&connect);
    run.clone().with("/sandbox/network", json!(true)).run()?.exits(0)?.prints("Operation not permitted\n")?;
    run.run()?.exits(0)?.prints("Connection refused\n")?; // in a network of its own there is no such name
    Ok(())
}

fn signals() -> Result<(), Failed> {
    let pid = std::process::id();
    Run::sh(&format!("kill -0 {pid}")).with("/sandbox/network", json!(true)).run()?.exits(1)?;
    same("outside", std::process::Command::new("kill").args(["-0", &pid.to_string()]).status()?.success(), true)
}

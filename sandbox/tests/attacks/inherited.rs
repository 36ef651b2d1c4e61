//! What comes with a process from whoever launched it: descriptors, signals, groups, keys, a terminal.

use std::fs;

use libtest_mimic::Failed;

use crate::inside::{Given, Got, status};
use crate::outside::{GROUP, Stage, attacker};
use crate::raw::{self, text};
use crate::table::{Attack, Control, attack};

pub(crate) const ATTACKS: &[Attack] = &[
    attack("inherited::a_descriptor", "nothing-inherited", descriptors).staged(laden),
    attack("inherited::an_ignored_signal", "nothing-inherited", signals).staged(laden),
    attack("inherited::a_mask", "nothing-inherited", mask).staged(laden),
    attack("inherited::a_priority", "nothing-inherited", priority).staged(laden),
    attack("inherited::a_group", "nothing-inherited", groups).staged(laden),
    attack("inherited::a_core_limit", "no-core", core_limit).staged(laden),
    attack("inherited::a_variable", "environment", variables).staged(laden),
    attack("inherited::a_folder_to_start_in", "named-only", folder).staged(in_a_folder),
    attack("inherited::a_session", "no-terminal", session),
    attack("inherited::a_session_though_none_is_asked_for", "no-terminal", session).staged(one_session),
    attack("inherited::a_terminal", "no-terminal", terminal).staged(in_a_terminal),
    attack("inherited::a_terminal_though_no_session_is_asked_for", "no-terminal", terminal)
        .staged(in_a_terminal_one_session),
    attack("inherited::a_session_keyring", "nothing-inherited", keyring).staged(with_a_key).unfiltered(),
];

/// Launched with everything a careless caller could leave.
fn laden() -> Result<Stage, Failed> {
    let script = format!(
        "umask 027; trap '' HUP USR1; ulimit -c unlimited; exec 7< /dev/null; export OCX_ATTACK_LEAK=1; \
         exec nice -n 5 setpriv --groups {GROUP} $ONCE"
    );
    Ok(Stage::plain()?.around(&script))
}

/// Started in a folder that is not shown.
fn in_a_folder() -> Result<Stage, Failed> {
    let folder = crate::run::Folder::new()?;
    folder.file("left", "")?;
    Ok(Stage::plain()?.around(&format!("cd {} && exec $ONCE", folder.text())).holding(folder))
}

fn one_session() -> Result<Stage, Failed> {
    Ok(Stage::plain()?.key("/sandbox/isolate_terminal", false.into()))
}

fn in_a_terminal() -> Result<Stage, Failed> {
    Ok(Stage::plain()?.around(&format!("exec {} terminal $ONCE", attacker())))
}

fn in_a_terminal_one_session() -> Result<Stage, Failed> {
    Ok(in_a_terminal()?.key("/sandbox/isolate_terminal", false.into()))
}

fn with_a_key() -> Result<Stage, Failed> {
    let failed = |error| format!("a key: error {error}");
    raw::raw(libc::SYS_keyctl, [1, 0, 0, 0, 0, 0]).map_err(failed)?; // a session keyring of this thread's own
    let session = i64::from(-3_i32).cast_unsigned();
    let args = [text(c"user"), text(c"ocx-attack"), text(c"secret"), 6, session, 0];
    raw::raw(libc::SYS_add_key, args).map_err(failed)?;
    Stage::plain()
}

fn descriptors(_: &Given, got: &mut Got) {
    let open: Vec<i32> = (3..1024)
        .filter(|it| raw::raw(libc::SYS_fcntl, [*it, 1, 0, 0, 0, 0]).is_ok())
        .map(|it| i32::try_from(it).unwrap_or(-1))
        .collect();
    let named = |it: &i32| fs::read_link(format!("/proc/self/fd/{it}")).map(|to| format!("{it} is {}", to.display()));
    let open: Vec<String> = open.iter().filter_map(|it| named(it).ok()).collect();
    got.holds(format!("past 2: {open:?}"), !open.is_empty());
}

fn signals(_: &Given, got: &mut Got) {
    // Rust's own start ignores SIGPIPE, bit 12.
    let bits = u64::from_str_radix(&status("SigIgn"), 16).unwrap_or(u64::MAX) & !(1 << 12);
    got.holds(format!("ignored {bits:x}"), bits != 0);
}

fn mask(_: &Given, got: &mut Got) {
    let before = raw::raw(libc::SYS_umask, [0o022, 0, 0, 0, 0, 0]).unwrap_or(-1);
    got.holds(format!("umask {before:03o}"), before != 0o022);
}

fn priority(_: &Given, got: &mut Got) {
    // The call itself answers 20 for nice 0.
    let nice = raw::raw(libc::SYS_getpriority, [0, 0, 0, 0, 0, 0]).unwrap_or(-1);
    got.holds(format!("20 - nice: {nice}"), nice != 20);
}

fn groups(_: &Given, got: &mut Got) {
    got.holds(format!("groups: {}", status("Groups")), !status("Groups").is_empty());
}

fn core_limit(_: &Given, got: &mut Got) {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Core);
    got.holds(format!("{limit:?}"), limit.current.is_none_or(|it| it > 1));
    let raised = rustix::process::setrlimit(
        rustix::process::Resource::Core,
        rustix::process::Rlimit { current: Some(1 << 20), maximum: Some(1 << 20) },
    );
    got.tried("raised", &raised);
}

fn variables(_: &Given, got: &mut Got) {
    let names: Vec<String> = std::env::vars_os().map(|it| it.0.to_string_lossy().into_owned()).collect();
    got.holds(format!("{names:?}"), names != ["PATH"]);
    let text = fs::read("/proc/self/environ").unwrap_or_default();
    got.holds("its environ holds it", text.windows(15).any(|it| it == b"OCX_ATTACK_LEAK"));
}

fn folder(_: &Given, got: &mut Got) {
    got.tried("what lies where it was started", &fs::metadata("left"));
    got.holds("it starts elsewhere than asked", std::env::current_dir().ok() != Some("/".into()));
}

fn session(_: &Given, got: &mut Got) {
    let leader = raw::raw(libc::SYS_getsid, [0; 6]);
    got.holds(format!("its session's leader: {leader:?} (0 is outside)"), leader == Ok(0));
}

fn terminal(_: &Given, got: &mut Got) {
    got.tried("/dev/tty", &fs::File::options().read(true).write(true).open("/dev/tty"));
    let stat = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let number = stat.rsplit(')').next().and_then(|it| it.split_whitespace().nth(4)).unwrap_or_default();
    got.holds(format!("its terminal is number {number}"), number != "0");
}

fn keyring(_: &Given, got: &mut Got) {
    let session = i64::from(-3_i32).cast_unsigned();
    let search = [10, session, text(c"user"), text(c"ocx-attack"), 0, 0];
    got.call("the caller's key", &raw::raw(libc::SYS_keyctl, search));
}

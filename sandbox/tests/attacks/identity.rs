//! Who the process is, and becoming somebody else.

use libtest_mimic::Failed;

use crate::inside::{Given, Got, status};
use crate::outside::Stage;
use crate::raw::{self, Ended, pointer};
use crate::table::{Attack, Control, attack, whole};

pub(crate) const ATTACKS: &[Attack] = &[
    attack("identity::a_capability_is_held", "asked-capabilities", held)
        .but("the inheritable and ambient sets are empty of themselves"),
    attack("identity::a_capability_is_held_as_uid_0", "asked-capabilities", held)
        .staged(as_root)
        .but("the inheritable and ambient sets are empty of themselves"),
    attack("identity::a_capability_is_gained", "asked-capabilities", gained),
    attack("identity::a_capability_is_gained_as_uid_0_without_the_filter", "asked-capabilities", gained)
        .staged(as_root)
        .unfiltered(),
    attack("identity::another_user_is_become", "never-root", another_user),
    attack("identity::another_user_is_become_with_all_capabilities", "never-root", another_user)
        .staged(all_powerful)
        .unfiltered(),
    attack("identity::another_group_is_become", "never-root", another_group),
    attack("identity::another_group_is_become_with_all_capabilities", "never-root", another_group)
        .staged(all_powerful)
        .unfiltered(),
    attack("identity::a_file_is_given_away", "never-root", given_away).staged(all_powerful_writing),
    attack("identity::powers_over_the_host_with_all_capabilities", "asked-capabilities", powers)
        .staged(all_powerful)
        .unfiltered()
        .control(Control::None("they are what no control may hold")),
    attack("identity::new_privileges_are_gained", "asked-capabilities", new_privileges),
    attack("identity::no_filter_is_on", "doors-shut", no_filter),
    attack("identity::a_user_namespace_is_made", "doors-shut", user_namespace),
    whole("identity::root_inside_is_the_account_on_the_host", "never-root", seen_from_outside),
];

fn as_root() -> Result<Stage, Failed> {
    Ok(Stage::plain()?.key("/sandbox/uid", 0.into()).key("/sandbox/gid", 0.into()))
}

fn all_powerful() -> Result<Stage, Failed> {
    Ok(Stage::plain()?.all_powerful(&[]))
}

fn all_powerful_writing() -> Result<Stage, Failed> {
    let folder = crate::run::Folder::new()?;
    let path = folder.text();
    Ok(Stage::plain()?.all_powerful(&[]).writing(&path).giving("rw", &path).holding(folder))
}

fn held(_: &Given, got: &mut Got) {
    for set in ["CapPrm", "CapEff", "CapBnd", "CapInh", "CapAmb"] {
        let bits = status(set);
        got.holds(format!("{set} {bits}"), bits.bytes().any(|it| it != b'0'));
    }
}

fn gained(_: &Given, got: &mut Got) {
    const VERSION_3: u64 = 0x2008_0522;
    const ALL: u32 = u32::MAX;
    const LAST: u32 = (1 << (40 - 32)) | ((1 << (40 - 32)) - 1);
    let header = [VERSION_3, 0];
    // Effective, permitted, inheritable of the low half, then of the high one.
    let sets = [ALL, ALL, ALL, LAST, LAST, LAST];
    got.call("capset", &raw::raw(libc::SYS_capset, [pointer(&header), pointer(&sets), 0, 0, 0, 0]));
    let prctl = |args: [u64; 3]| raw::raw(libc::SYS_prctl, [args[0], args[1], args[2], 0, 0, 0]);
    got.call("an ambient one", &prctl([47, 2, 0])); // PR_CAP_AMBIENT, RAISE, CAP_CHOWN
    got.call("securebits", &prctl([28, 0, 0]));
    got.holds("the bounding set", prctl([23, 0, 0]) == Ok(1));
}

fn another_user(_: &Given, got: &mut Got) {
    for id in [0, 1, 2, 3, 1001, 65534, u64::from(crate::run::ACCOUNT)] {
        // One of its own is no other; only root inside has 0.
        if status("Uid").split_whitespace().next() == Some(&id.to_string()) {
            continue;
        }
        // The control's namespace has but the first four.
        if id > 3 && own_map_has(4) {
            continue;
        }
        for (name, call, args) in [
            ("setuid", libc::SYS_setuid, [id, 0, 0, 0, 0, 0]),
            ("setresuid", libc::SYS_setresuid, [id, id, id, 0, 0, 0]),
            ("setreuid", libc::SYS_setreuid, [id, id, 0, 0, 0, 0]),
        ] {
            child(got, &format!("{name} {id}"), || raw::raw(call, args));
        }
    }
}

fn another_group(_: &Given, got: &mut Got) {
    let group = [1_u32];
    child(got, "setgroups", || raw::raw(libc::SYS_setgroups, [1, pointer(&group), 0, 0, 0, 0]));
    child(got, "setgroups to none", || raw::raw(libc::SYS_setgroups, [0; 6]));
    for id in [1, 2] {
        child(got, &format!("setresgid {id}"), || raw::raw(libc::SYS_setresgid, [id, id, id, 0, 0, 0]));
    }
}

/// Whether as many ids are mapped here: a control's namespace.
fn own_map_has(ids: usize) -> bool {
    let map = std::fs::read_to_string("/proc/self/uid_map").unwrap_or_default();
    map.lines().filter_map(|it| it.split_whitespace().nth(2)?.parse::<usize>().ok()).sum::<usize>() >= ids
}

fn child(got: &mut Got, what: &str, act: impl FnOnce() -> Result<i64, i32>) {
    let ended = raw::in_child(|| act().map_or_else(|error| error, |_| 0));
    match ended {
        Ok(Ended::Code(0)) => got.through(what),
        Ok(Ended::Code(error)) => got.call(what, &Err::<(), _>(error)),
        other => got.refused(format!("{what}: {other:?}")),
    }
}

fn given_away(given: &Given, got: &mut Got) {
    let path = format!("{}/file", given.text("rw"));
    if let Err(error) = std::fs::write(&path, "") {
        // Without it nothing is shown: an end that is missing fails the test.
        got.through(format!("no file of its own: {error}"));
    }
    got.tried("chown", &std::os::unix::fs::chown(&path, Some(1), None));
    got.tried("chgrp", &std::os::unix::fs::chown(&path, None, Some(1)));
}

/// What capabilities of the host's own user namespace are for. Nothing here would change the host, were it let through.
fn powers(_: &Given, got: &mut Got) {
    let mut now = [0_u64; 2];
    got.call_if_failed("the time", &raw::raw(libc::SYS_clock_gettime, [0, raw::pointer_mut(&mut now), 0, 0, 0, 0]));
    let realtime = [10_u32];
    let limit = [u64::MAX; 2];
    let raised = i64::from(-5_i32).cast_unsigned();
    for (what, call, args) in [
        ("a module", libc::SYS_init_module, [0; 6]),
        ("another kernel", libc::SYS_kexec_load, [0; 6]),
        ("swap", libc::SYS_swapon, [raw::text(c"/nowhere"), 0, 0, 0, 0, 0]),
        ("accounting", libc::SYS_acct, [raw::text(c"/nowhere"), 0, 0, 0, 0, 0]),
        ("the clock", libc::SYS_clock_settime, [0, pointer(&now), 0, 0, 0, 0]),
        ("the kernel's log", libc::SYS_syslog, [9, 0, 0, 0, 0, 0]),
        ("a realtime priority", libc::SYS_sched_setscheduler, [0, 1, pointer(&realtime), 0, 0, 0]),
        ("a higher priority", libc::SYS_setpriority, [0, 0, raised, 0, 0, 0]),
        ("a higher limit", libc::SYS_prlimit64, [0, 7, pointer(&limit), 0, 0, 0]),
        #[cfg(target_arch = "x86_64")]
        ("ports", libc::SYS_iopl, [3, 0, 0, 0, 0, 0]),
    ] {
        let came = raw::raw(call, args);
        // A kernel may lack it; any other error comes after the question whether it may.
        let denied = matches!(came, Err(libc::EPERM | libc::EACCES | libc::ENOSYS));
        got.holds(format!("{what}: {came:?}"), !denied);
    }
    got.tried("never killed for memory", &std::fs::write("/proc/self/oom_score_adj", "-1000"));
}

fn new_privileges(_: &Given, got: &mut Got) {
    got.holds("no_new_privs is off", raw::raw(libc::SYS_prctl, [39, 0, 0, 0, 0, 0]) == Ok(0));
    got.holds(format!("NoNewPrivs {}", status("NoNewPrivs")), status("NoNewPrivs") != "1");
}

fn no_filter(_: &Given, got: &mut Got) {
    got.holds(format!("Seccomp {}", status("Seccomp")), status("Seccomp") != "2");
}

fn user_namespace(_: &Given, got: &mut Got) {
    let user = u64::from(libc::CLONE_NEWUSER.unsigned_abs());
    let signal = u64::from(libc::SIGCHLD.unsigned_abs());
    child(got, "unshare", || raw::raw(libc::SYS_unshare, [user, 0, 0, 0, 0, 0]));
    child(got, "unshare, among others", || raw::raw(libc::SYS_unshare, [user | 0x2000_0000, 0, 0, 0, 0, 0]));
    got.call("clone", &raw::forks(libc::SYS_clone, [user | signal, 0, 0, 0, 0, 0]));
    let args = [user, 0, 0, 0, signal, 0, 0, 0, 0, 0, 0];
    got.call("clone3", &raw::forks(libc::SYS_clone3, [pointer(&args), 88, 0, 0, 0, 0]));
}

/// Root inside makes a file, and waits: the host sees whose file and whose process it is.
fn seen_from_outside() -> Result<(), Failed> {
    use std::os::unix::fs::MetadataExt as _;
    let folder = crate::run::Folder::new()?;
    let (path, word) = (folder.text(), crate::run::unique());
    let script = format!("touch {path}/made; sleep {word} & while ! test -e {path}/end; do sleep 0.05; done");
    let run = crate::run::Run::sh(&script).writing(&[&path]).with("/sandbox/uid", 0.into());
    let run = run.with("/sandbox/gid", 0.into()).start()?;
    crate::run::wait_until("it runs", || crate::run::lives(&word))?;
    let pid = crate::run::pid_of(&word).ok_or("it runs no more")?;
    let text = std::fs::read_to_string(format!("/proc/{pid}/status"))?;
    std::fs::write(folder.0.join("end"), "")?;
    run.end()?.exits(0)?;
    let account = crate::run::ACCOUNT.to_string();
    let ids = text.lines().filter(|it| it.starts_with("Uid:") || it.starts_with("Gid:"));
    let all: Vec<&str> = ids.flat_map(|it| it.split_whitespace().skip(1)).collect();
    crate::run::same("its ids on the host", all, vec![account.as_str(); 8])?;
    let made = std::fs::metadata(folder.0.join("made"))?;
    crate::run::same("whose file it is", (made.uid(), made.gid()), (crate::run::ACCOUNT, crate::run::ACCOUNT))
}

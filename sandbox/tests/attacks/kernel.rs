//! The kernel's doors: every call the filter denies, from its own table, and what it must not be talked into.

use libtest_mimic::Failed;
use sandbox::seccomp::{Rule, Test, rules};

use crate::inside::{Given, Got};
use crate::outside::Stage;
use crate::raw::{self, Ended, Reached, pointer, text};
use crate::table::{Attack, Control, attack};

pub(crate) const ATTACKS: &[Attack] = &[
    attack("kernel::every_denied_call", "doors-shut", denied),
    attack("kernel::every_denied_call_with_all_capabilities", "doors-shut", denied).staged(powerful),
    attack("kernel::every_denied_call_with_network", "doors-shut", denied).staged(with_network),
    attack("kernel::every_socket_family", "doors-shut", families),
    attack("kernel::every_netlink_protocol", "doors-shut", netlink),
    attack("kernel::every_personality", "doors-shut", personality),
    attack("kernel::calls_newer_than_the_filter", "doors-shut", newer),
    #[cfg(target_arch = "x86_64")]
    attack("kernel::the_32_bit_entry", "doors-shut", int80),
    #[cfg(target_arch = "x86_64")]
    attack("kernel::the_x32_numbers", "doors-shut", x32),
    attack("kernel::a_set_id_file_by_every_call", "no-set-id", set_id),
    attack("kernel::a_file_with_capabilities", "no-set-id", file_capabilities).staged(writing),
];

fn powerful() -> Result<Stage, Failed> {
    Ok(Stage::plain()?.all_powerful(&[]))
}

fn with_network() -> Result<Stage, Failed> {
    Ok(Stage::plain()?.key("/sandbox/network", true.into()))
}

fn writing() -> Result<Stage, Failed> {
    let folder = crate::run::Folder::new()?;
    let path = folder.text();
    Ok(Stage::plain()?.writing(&path).giving("rw", &path).holding(folder))
}

/// Whether a call gets past the filter; it is never made.
fn probe(got: &mut Got, what: &str, call: i64, args: [u64; 6]) {
    match raw::reaches(call, args) {
        Ok(Reached::Kernel) => got.through(what),
        Ok(other) => got.refused(format!("{what}: {other:?}")),
        // Not knowing is no refusal.
        Err(why) => got.through(format!("{what}: {why}")),
    }
}

/// Arguments that every test of a rule holds for, one list a case: each bit, each value; values none is one of.
fn cases(rule: &Rule) -> Vec<[u64; 6]> {
    let mut all = vec![[0_u64; 6]];
    for test in rule.when {
        let (place, values): (u8, Vec<u32>) = match *test {
            Test::AnyBit(place, bits) => (place, (0..32).map(|it| 1 << it).filter(|it| bits & it != 0).collect()),
            Test::In(place, values) => (place, values.to_vec()),
            Test::NotIn(place, values) => {
                let some =
                    [0, 1, 3, 5, 9, 12, 15, 17, 21, 38, 40, 44, 45, 46, 255, 0x40_0000, 0x7fff_ffff, u32::MAX - 1];
                (place, some.into_iter().filter(|it| !values.contains(it)).collect())
            }
        };
        let put = |args: &[u64; 6], value: u32| {
            let mut args = *args;
            if let Some(at) = args.get_mut(usize::from(place)) {
                *at = u64::from(value);
            }
            args
        };
        all = all.iter().flat_map(|args| values.iter().map(move |value| put(args, *value))).collect();
    }
    all
}

fn denied(_: &Given, got: &mut Got) {
    const HIGH: u64 = 0xdead_beef_0000_0000;
    for rule in rules() {
        for args in cases(rule) {
            probe(got, &format!("call {} {args:x?}", rule.call), rule.call, args);
            if !rule.when.is_empty() {
                // The kernel ignores the high half of what is an int to it.
                let high = args.map(|it| it | HIGH);
                probe(got, &format!("call {} {high:x?}", rule.call), rule.call, high);
            }
        }
    }
}

fn families(_: &Given, got: &mut Got) {
    const HONEST: [u64; 4] = [1, 2, 10, 16];
    for family in
        (0..=64).chain([255, 256, 0x7fff_ffff, 0x8000_0001, 0x1_0000_0000 | 40]).filter(|it| !HONEST.contains(it))
    {
        for kind in [1, 3, 0x8_0801] {
            probe(got, &format!("socket {family:#x} {kind:#x}"), libc::SYS_socket, [family, kind, 0, 0, 0, 0]);
        }
        probe(got, &format!("socketpair {family:#x}"), libc::SYS_socketpair, [family, 1, 0, 0, 0, 0]);
    }
    // Really made too: packets need no module that a control would load on the host.
    let made = raw::raw(libc::SYS_socket, [17, 3, 0, 0, 0, 0]);
    got.call("a packet socket", &made);
}

fn netlink(_: &Given, got: &mut Got) {
    for protocol in 1..32 {
        probe(got, &format!("netlink {protocol}"), libc::SYS_socket, [16, 3, protocol, 0, 0, 0]);
        probe(
            got,
            &format!("netlink {protocol}, high bits"),
            libc::SYS_socket,
            [16 | 1 << 32, 2, protocol | 1 << 40, 0, 0, 0],
        );
    }
}

fn personality(_: &Given, got: &mut Got) {
    for bit in (0..32).filter(|it| ![3, 17].contains(it)) {
        probe(got, &format!("personality bit {bit}"), libc::SYS_personality, [1 << bit, 0, 0, 0, 0, 0]);
    }
    let child = raw::in_child(|| {
        let set = raw::raw(libc::SYS_personality, [0x40_0000, 0, 0, 0, 0, 0]);
        i32::from(set.is_err() || raw::raw(libc::SYS_personality, [0xffff_ffff, 0, 0, 0, 0, 0]) != Ok(0x40_0000))
    });
    got.holds("what is read may be executed", child == Ok(Ended::Code(0)));
}

/// Numbers no kernel of today has: what they will do, nobody has looked at.
fn newer(_: &Given, got: &mut Got) {
    for call in (sandbox::seccomp::NEWEST + 1..520).chain([600, 1000, 4096, 0xffff]) {
        probe(got, &format!("call {call}"), call, [0; 6]);
    }
}

#[cfg(target_arch = "x86_64")]
fn int80(_: &Given, got: &mut Got) {
    let ended = raw::int80();
    if matches!(ended, Ok(Ended::Signal(libc::SIGSEGV, _))) {
        got.no_control("it has no 32-bit entry");
    }
    got.holds(format!("getpid by int 0x80: {ended:?}"), ended == Ok(Ended::Code(0)));
}

#[cfg(target_arch = "x86_64")]
fn x32(_: &Given, got: &mut Got) {
    const X32: i64 = 0x4000_0000;
    for call in [libc::SYS_getpid, libc::SYS_mount, libc::SYS_keyctl, 512, 520] {
        probe(got, &format!("x32 call {call}"), X32 | call, [0; 6]);
    }
}

fn set_id(_: &Given, got: &mut Got) {
    let here = i64::from(libc::AT_FDCWD).cast_unsigned();
    let create = u64::from((libc::O_CREAT | libc::O_WRONLY).unsigned_abs());
    let plain = std::fs::File::options().write(true).create(true).truncate(true).open("/tmp/plain");
    let fd = plain.as_ref().map_or(u64::MAX, |it| u64::from(std::os::fd::AsRawFd::as_raw_fd(it).unsigned_abs()));
    let temporary = u64::from((libc::O_TMPFILE | libc::O_WRONLY).unsigned_abs());
    let regular = u64::from(libc::S_IFREG);
    let how = [create, 0o4755, 0];
    let (file, folder) = (text(c"/tmp/plain"), text(c"/tmp"));
    for (what, call, args) in [
        ("fchmod", libc::SYS_fchmod, [fd, 0o4755, 0, 0, 0, 0]),
        ("fchmod of both", libc::SYS_fchmod, [fd, 0o6755, 0, 0, 0, 0]),
        ("fchmodat", libc::SYS_fchmodat, [here, file, 0o4755, 0, 0, 0]),
        ("fchmodat2", 452, [here, file, 0o4755, 0, 0, 0]),
        ("openat", libc::SYS_openat, [here, text(c"/tmp/a"), create, 0o4755, 0, 0]),
        ("openat of a group's", libc::SYS_openat, [here, text(c"/tmp/b"), create, 0o2755, 0, 0]),
        ("openat without a name", libc::SYS_openat, [here, folder, temporary, 0o4755, 0, 0]),
        ("openat2", libc::SYS_openat2, [here, text(c"/tmp/c"), pointer(&how), 24, 0, 0]),
        ("mknodat", libc::SYS_mknodat, [here, text(c"/tmp/d"), regular | 0o4755, 0, 0, 0]),
        #[cfg(target_arch = "x86_64")]
        ("chmod", libc::SYS_chmod, [file, 0o4755, 0, 0, 0, 0]),
        #[cfg(target_arch = "x86_64")]
        ("open", libc::SYS_open, [text(c"/tmp/e"), create, 0o4755, 0, 0, 0]),
        #[cfg(target_arch = "x86_64")]
        ("creat", libc::SYS_creat, [text(c"/tmp/f"), 0o4755, 0, 0, 0, 0]),
        #[cfg(target_arch = "x86_64")]
        ("mknod", libc::SYS_mknod, [text(c"/tmp/g"), regular | 0o4755, 0, 0, 0, 0]),
    ] {
        got.call(what, &raw::raw(call, args));
    }
}

fn file_capabilities(given: &Given, got: &mut Got) {
    let path = std::ffi::CString::new(format!("{}/tool", given.text("rw"))).unwrap_or_default();
    if std::fs::write(format!("{}/tool", given.text("rw")), "").is_err() {
        got.through("no file of its own to give them to");
    }
    // VFS_CAP_REVISION_2 and effective, CAP_CHOWN permitted (capabilities(7)).
    let held = [0x0200_0001_u32, 1, 0, 0, 0];
    let args = [text(&path), text(c"security.capability"), pointer(&held), 20, 0, 0];
    got.call("setxattr", &raw::raw(libc::SYS_setxattr, args));
}

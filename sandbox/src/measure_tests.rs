#![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
use super::*;
use std::os::fd::AsFd as _;

const READ: Denies = Denies::WRITING.and(Denies::SET_ID).and(Denies::DEVICES);
const WRITE: Denies = Denies::SET_ID.and(Denies::DEVICES);

fn mount(at: &str, denies: Denies, whole: bool) -> Mount {
    Mount { at: std::ffi::CString::new(at).unwrap(), denies, whole }
}

fn promised() -> Vec<Mount> {
    vec![mount("/", READ, false), mount("/usr", READ, true), mount("/w", WRITE, true), mount("/w/a b", READ, true)]
}

/// As promised, with mounts of the host beneath `/usr`, one of which the later `/w/a b` hides.
const GOOD: &str = "\
10 9 0:1 / / ro,nosuid,nodev,relatime - tmpfs none rw
11 10 0:2 /usr /usr ro,nosuid,nodev,relatime - ext4 /dev/vda rw
12 11 0:3 / /usr/local ro,nosuid,nodev,noexec - tmpfs none rw
13 10 0:2 /w /w rw,nosuid,nodev - ext4 /dev/vda rw
14 13 0:4 / /w/a\\040b rw,nosuid,nodev - tmpfs none rw
15 14 0:2 /x /w/a\\040b ro,nosuid,nodev - ext4 /dev/vda rw
";

fn says(text: &str) -> Result<(), Difference> {
    mounts(&mut Strict, text.as_bytes(), &promised())
}

#[test]
fn mounts_as_promised_with_the_hosts_beneath_them_pass() {
    assert_eq!(says(GOOD), Ok(()));
}

/// V2-2.8-02: an own folder hidden by a host path, which the kernel lists first, since its mount is older.
#[test]
fn of_two_mounts_at_one_place_the_later_is_the_one_on_top_whatever_the_kernels_order() {
    let all = [mount("/", READ, false), mount("/tmp", WRITE, false), mount("/tmp", READ, true)];
    let says = |lines: &str| mounts(&mut Strict, format!("{ROOT}{lines}").as_bytes(), &all);
    const ROOT: &str = "10 9 0:1 / / ro,nosuid,nodev - tmpfs none rw\n";
    assert_eq!(
        says("11 12 0:2 /x /tmp ro,nosuid,nodev - ext4 a rw\n12 10 0:3 / /tmp rw,nosuid,nodev - tmpfs b rw\n"),
        Ok(())
    );
    // The one beneath is no less held for being hidden, nor the one on top for what is beneath.
    for wrong in [
        "11 12 0:2 /x /tmp rw,nosuid,nodev - ext4 a rw\n12 10 0:3 / /tmp rw,nosuid,nodev - tmpfs b rw\n",
        "11 12 0:2 /x /tmp ro,nosuid,nodev - ext4 a rw\n12 10 0:3 / /tmp rw,nodev - tmpfs b rw\n",
        "12 10 0:3 / /tmp rw,nosuid,nodev - tmpfs b rw\n",
        "11 10 0:2 /x /tmp ro,nosuid,nodev - ext4 a rw\n",
    ] {
        assert!(says(wrong).is_err(), "{wrong}");
    }
}

#[test]
fn every_difference_of_a_mount_is_named() {
    for (from, to, words) in [
        // Writable.
        ("/usr ro,nosuid,nodev", "/usr rw,nosuid,nodev", "mount /usr is rw,nosuid,nodev, promised ro,nosuid,nodev"),
        ("/ / ro,", "/ / rw,", "mount / is rw,nosuid,nodev, promised ro,nosuid,nodev"),
        // Set-id programs, devices.
        ("/w /w rw,nosuid,", "/w /w rw,", "mount /w is rw,nodev, promised rw,nosuid,nodev"),
        ("/w /w rw,nosuid,nodev", "/w /w rw,nosuid", "mount /w is rw,nosuid, promised rw,nosuid,nodev"),
        // Beneath a mount that may hold the host's.
        (
            "/usr/local ro,",
            "/usr/local rw,",
            "mount /usr/local is rw,nosuid,nodev,noexec, promised ro,nosuid,nodev as part of /usr",
        ),
        // The later of two at one place is not there.
        (
            "15 14 0:2 /x /w/a\\040b ro,nosuid,nodev - ext4 /dev/vda rw\n",
            "",
            "mount /w/a b is rw,nosuid,nodev, promised ro",
        ),
        // Not there at all.
        ("13 10 0:2 /w /w ", "13 10 0:2 /w /v ", "mount /w is not there, promised rw,nosuid,nodev"),
        // More than promised, in the sandbox's own root.
        (
            "12 11 0:3 / /usr/local",
            "12 10 0:3 / /opt",
            "mount /opt is ro,nosuid,nodev,noexec, promised ro,nosuid,nodev as part of /",
        ),
        // With nothing of ours above it.
        ("12 11 0:3 / /usr/local", "12 77 0:3 / /opt", "mount /opt is ro,nosuid,nodev,noexec, promised none there"),
        // Mounts made later would be seen on the other side.
        (
            "relatime - tmpfs",
            "relatime shared:7 - tmpfs",
            "mount / is shared with other mount namespaces, promised private",
        ),
        (
            "relatime - ext4",
            "relatime master:7 - ext4",
            "mount /usr is shared with other mount namespaces, promised private",
        ),
        // Not understood.
        ("13 10 0:2", "x 10 0:2", "lines of mountinfo that can be read is 5, promised 6"),
    ] {
        assert!(GOOD.contains(from), "{from}");
        let Difference(said) = says(&GOOD.replacen(from, to, 1)).unwrap_err();
        assert!(said.starts_with(words), "{from} -> {to}: {said}");
    }
}

#[test]
fn a_circle_of_mounts_ends() {
    let Difference(said) = says(&GOOD.replace("12 11 0:3 / /usr/local", "12 12 0:3 / /opt")).unwrap_err();
    assert!(said.starts_with("mount /opt"), "{said}");
}

#[test]
fn what_status_says_is_read_by_key_and_not_by_likeness() {
    let text =
        b"Name:\tUid: 0\nUid:\t1\t2\t3\t4\nGroups:\t \nCapEff:\t00000000000000ff\nNSpid:\t900\t2\nUmask:\t0022\n";
    let status = Status(text);
    assert_eq!(status.ids("Uid"), Ok([1, 2, 3, 4]));
    assert_eq!(status.bits("CapEff").map(|it| it.0), Ok(255));
    assert_eq!(status.innermost("NSpid"), Ok(2));
    assert_eq!(words(status.value("Groups").unwrap()).count(), 0);
    assert_eq!(status.number("Seccomp").unwrap_err().0, "status has no Seccomp");
    assert_eq!(Status(b"Uid:\t1\t2\n").ids("Uid").unwrap_err().0, "Uid of status cannot be read");
}

/// The test's own process is another account, gains privileges, has no filter, or is not its session's leader: each
/// promise it does not keep is told.
#[test]
fn a_process_that_became_nothing_of_what_was_promised_is_told() {
    let own = std::fs::File::open("/proc/self").unwrap();
    let text = read(own.as_fd(), c"status").unwrap();
    let status = Status(&text);
    let (uid, gid) = (process::getuid().as_raw(), process::getgid().as_raw());
    let told = |ids, capabilities| identity(&mut Strict, "", &status, ids, capabilities).unwrap_err().0;
    assert!(told([uid.wrapping_add(1), gid], 0).starts_with("Uid is"));
    assert!(told([uid, gid.wrapping_add(1)], 0).starts_with("Gid is"));
    told([uid, gid], u64::MAX);
    filter(&mut Strict, "", &status, status.number("Seccomp").unwrap() != FILTER).unwrap_err();
}

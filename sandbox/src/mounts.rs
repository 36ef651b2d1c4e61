//! The file systems of a sandbox's own: made detached, filled through their descriptor, then placed.

use alloc::vec::Vec;
use core::ffi::CStr;

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{FileType, Mode, makedev, mkdirat, mknodat, symlinkat};
use rustix::io::Errno;
use rustix::mount::{
    FsMountFlags, FsOpenFlags, MountAttrFlags, MoveMountFlags, fsconfig_create, fsconfig_set_flag, fsconfig_set_string,
    fsmount, fsopen, move_mount,
};

/// The device nodes of a sandbox's `dev`: name, major, minor.
const NODES: [(&CStr, u32, u32); 6] =
    [(c"null", 1, 3), (c"zero", 1, 5), (c"full", 1, 7), (c"random", 1, 8), (c"urandom", 1, 9), (c"tty", 5, 0)];

/// The links of a sandbox's `dev`: name, text.
fn links(proc: &[u8]) -> [(&'static CStr, Vec<u8>); 5] {
    let own = |rest: &[u8]| [proc, b"/self/fd", rest].concat();
    [
        (c"fd", own(b"")),
        (c"stdin", own(b"/0")),
        (c"stdout", own(b"/1")),
        (c"stderr", own(b"/2")),
        (c"ptmx", b"pts/ptmx".to_vec()),
    ]
}

/// Most that a sandbox's tmp holds, and its dev with what lies in shm: without a size it is half of the host's memory
/// for each run (decisions C-87).
const TMP_BYTES_MAX: &CStr = c"1g";
/// Most files in either: without a number it is half of the host's pages for each run, of memory no limit but the run's
/// own counts.
const TMP_FILES_MAX: &CStr = c"1m";

/// A new detached file system.
fn new(kind: &CStr, options: &[(&CStr, &CStr)], attributes: MountAttrFlags) -> Result<OwnedFd, Errno> {
    let context = fsopen(kind, FsOpenFlags::FSOPEN_CLOEXEC)?;
    for (key, value) in options {
        if value.is_empty() {
            fsconfig_set_flag(context.as_fd(), *key)?;
        } else {
            fsconfig_set_string(context.as_fd(), *key, *value)?;
        }
    }
    fsconfig_create(context.as_fd())?;
    fsmount(context.as_fd(), FsMountFlags::FSMOUNT_CLOEXEC, attributes)
}

/// The root: small, since only mount points and links lie in it.
pub(crate) fn root() -> Result<OwnedFd, Errno> {
    new(
        c"tmpfs",
        &[(c"mode", c"0755"), (c"size", c"4m"), (c"nr_inodes", c"65536")],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV,
    )
}

/// proc of the pid namespace of the caller.
pub(crate) fn proc() -> Result<OwnedFd, Errno> {
    new(
        c"proc",
        &[],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV | MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )
}

/// An empty folder for anyone.
pub(crate) fn tmp() -> Result<OwnedFd, Errno> {
    let options = [(c"mode", c"1777"), (c"size", TMP_BYTES_MAX), (c"nr_inodes", TMP_FILES_MAX)];
    new(c"tmpfs", &options, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
}

/// Where created files lie until each is mounted at its place.
pub(crate) fn created() -> Result<OwnedFd, Errno> {
    new(c"tmpfs", &[(c"mode", c"0755")], MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NODEV)
}

/// The device directory, without its pts, which needs it in place. `proc` is where the sandbox sees its proc.
pub(crate) fn dev(proc: &[u8]) -> Result<OwnedFd, Errno> {
    let options = [(c"mode", c"0755"), (c"size", TMP_BYTES_MAX), (c"nr_inodes", TMP_FILES_MAX)];
    let dev = new(c"tmpfs", &options, MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC)?;
    for (name, major, minor) in NODES {
        mknodat(&dev, name, FileType::CharacterDevice, Mode::from_raw_mode(0o666), makedev(major, minor))?;
    }
    for (name, text) in links(proc) {
        symlinkat(text.as_slice(), &dev, name)?;
    }
    mkdirat(&dev, c"pts", Mode::from_raw_mode(0o755))?;
    mkdirat(&dev, c"shm", Mode::from_raw_mode(0o1777))?;
    Ok(dev)
}

/// Terminals of its own. Every devpts mounted so is an instance apart (since 4.7).
pub(crate) fn pts() -> Result<OwnedFd, Errno> {
    new(
        c"devpts",
        &[(c"mode", c"0620"), (c"ptmxmode", c"0666")],
        MountAttrFlags::MOUNT_ATTR_NOSUID | MountAttrFlags::MOUNT_ATTR_NOEXEC,
    )
}

/// Mounts `tree` on what `on` names.
pub(crate) fn place(tree: BorrowedFd<'_>, on: BorrowedFd<'_>) -> Result<(), Errno> {
    move_mount(tree, c"", on, c"", MoveMountFlags::MOVE_MOUNT_F_EMPTY_PATH | MoveMountFlags::MOVE_MOUNT_T_EMPTY_PATH)
}

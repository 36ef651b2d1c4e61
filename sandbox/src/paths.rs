//! Places inside the sandbox being built: found and made through descriptors, following nothing.
//!
//! A mount point inside a host path is where an earlier run of the account may have left a link; so every component is
//! opened beneath the new root without symbolic links, and what is made there is made with the account's rights.

use alloc::ffi::CString;
use core::ffi::CStr;

use rustix::fd::{AsFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Mode, OFlags, ResolveFlags, mkdirat, openat2, statat};
use rustix::io::Errno;

use crate::op::{Kind, Point};
use crate::sys;

/// Most components of one path.
const COMPONENTS_MAX: usize = 256;

const HERE: OFlags = OFlags::PATH.union(OFlags::CLOEXEC).union(OFlags::NOFOLLOW);
const FOLLOWING_NOTHING: ResolveFlags =
    ResolveFlags::BENEATH.union(ResolveFlags::NO_SYMLINKS).union(ResolveFlags::NO_MAGICLINKS);

fn relative(at: &CStr) -> &[u8] {
    let bytes = at.to_bytes();
    bytes.strip_prefix(b"/").unwrap_or(bytes)
}

fn find(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    openat2(root, path, HERE, Mode::empty(), FOLLOWING_NOTHING)
}

/// Makes every missing folder on the way to `path` below `root`, mode 0755, and gives the last one.
fn folders(root: BorrowedFd<'_>, path: &[u8]) -> Result<OwnedFd, Errno> {
    if path.is_empty() {
        return find(root, b".");
    }
    match find(root, path) {
        Err(Errno::NOENT) => {}
        other => return other,
    }
    let mut here = find(root, b".")?;
    for (count, part) in path.split(|it| *it == b'/').enumerate() {
        if count >= COMPONENTS_MAX {
            return Err(Errno::NAMETOOLONG);
        }
        match mkdirat(&here, part, Mode::from_raw_mode(0o755)) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(error),
        }
        here = find(here.as_fd(), part)?;
    }
    Ok(here)
}

/// Splits a path into its folder and its last name.
fn split(path: &[u8]) -> (&[u8], &[u8]) {
    match path.iter().rposition(|it| *it == b'/') {
        Some(at) => (path.get(..at).unwrap_or_default(), path.get(at + 1..).unwrap_or_default()),
        None => (b"", path),
    }
}

fn make(root: BorrowedFd<'_>, path: &[u8], kind: Kind) -> Result<OwnedFd, Errno> {
    match kind {
        Kind::Folder => folders(root, path),
        Kind::File => {
            match find(root, path) {
                Err(Errno::NOENT) => {}
                other => return other,
            }
            let (folder, name) = split(path);
            let folder = folders(root, folder)?;
            let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let made = openat2(&folder, name, flags, Mode::from_raw_mode(0o644), FOLLOWING_NOTHING)?;
            drop(made);
            find(folder.as_fd(), name)
        }
    }
}

/// What to mount on at `at`: found or made as `point` says, checked to be a plain folder or file as `kind` says.
///
/// # Errors
/// ELOOP for a symbolic link anywhere on the way; ENOTDIR or EISDIR when it is not of the kind; else as the calls have.
pub(crate) fn mount_point(
    root: BorrowedFd<'_>,
    at: &CStr,
    kind: Kind,
    point: Point,
    account: [u32; 2],
) -> Result<OwnedFd, Errno> {
    let path = relative(at);
    let place = match point {
        Point::Own => make(root, path, kind)?,
        Point::There => find(root, path)?,
        Point::Account => {
            let [uid, gid] = account;
            if !sys::set_file_ids(uid, gid) {
                return Err(Errno::PERM);
            }
            let made = make(root, path, kind);
            if !sys::set_file_ids(0, 0) {
                return Err(Errno::PERM);
            }
            made?
        }
    };
    let found = FileType::from_raw_mode(statat(&place, c"", AtFlags::EMPTY_PATH)?.st_mode);
    match (kind, found) {
        (Kind::Folder, FileType::Directory) => Ok(place),
        (Kind::Folder, FileType::Symlink) | (Kind::File, FileType::Symlink) => Err(Errno::LOOP),
        (Kind::Folder, _) => Err(Errno::NOTDIR),
        (Kind::File, FileType::Directory) => Err(Errno::ISDIR),
        (Kind::File, _) => Ok(place),
    }
}

/// Makes a symbolic link at `at`, in the sandbox's own root.
///
/// # Errors
/// As `symlinkat(2)` has them.
pub(crate) fn link(root: BorrowedFd<'_>, at: &CStr, target: &CString) -> Result<(), Errno> {
    let (folder, name) = split(relative(at));
    let folder = folders(root, folder)?;
    rustix::fs::symlinkat(target, &folder, name)
}

//! Making and removing a workspace's directory, which an earlier run may have filled with anything.
//!
//! Every name is looked up beneath a held directory and no link is followed. Depth costs no stack and no descriptors:
//! what is nested is first moved up to the top.

use std::ffi::{CStr, OsStr};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

use rustix::fs::{AtFlags, Dir, FileType, Mode, OFlags};
use rustix::io::Errno;

const DIRECTORY: OFlags = OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);

/// Makes `at`, below `root`, afresh and readable by this account alone, removing what was there (protocol 2.7).
///
/// # Errors
/// When `at` is not strictly below `root`, goes through a link, or cannot be emptied or made.
pub fn make(root: &Path, at: &Path) -> io::Result<()> {
    remove(root, at)?;
    let (parent, name) = parent_of(root, at, true)?;
    rustix::fs::mkdirat(&parent, &name, Mode::RWXU).map_err(|e| named("making", at, e))?;
    Ok(())
}

/// Removes `at`, below `root`, whatever it is; nothing there is no error.
///
/// # Errors
/// When `at` is not strictly below `root`, goes through a link, or something in it cannot be removed.
pub fn remove(root: &Path, at: &Path) -> io::Result<()> {
    let (parent, name) = match parent_of(root, at, false) {
        Ok(found) => found,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error),
    };
    match rustix::fs::unlinkat(&parent, &name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => return Ok(()),
        Err(Errno::ISDIR | Errno::PERM) => {}
        Err(errno) => return Err(named("removing", at, errno)),
    }
    let top = open_directory(parent.as_fd(), Path::new(&name)).map_err(|e| named("opening", at, e))?;
    empty(top.as_fd()).map_err(|(name, e)| named("removing", &at.join(name), e))?;
    rustix::fs::unlinkat(&parent, &name, AtFlags::REMOVEDIR).map_err(|e| named("removing", at, e))
}

/// Makes `at`, below `root`, and what leads to it where they are not, and holds it. What is in it stays.
///
/// # Errors
/// When `at` is not strictly below `root`, goes through a link, or cannot be made.
pub fn make_directories(root: &Path, at: &Path) -> io::Result<OwnedFd> {
    let (parent, name) = parent_of(root, at, true)?;
    make_below(&parent, &name)
}

/// Makes a path of plain names below a held directory where it is not, and holds it.
///
/// # Errors
/// When it goes through a link or cannot be made.
pub fn make_below(held: &OwnedFd, below: &Path) -> io::Result<OwnedFd> {
    let mut held = held.try_clone()?;
    for name in below.components() {
        held = step_into(&held, Path::new(name.as_os_str()), true).map_err(|e| named("making", below, e))?;
    }
    Ok(held)
}

/// The directory of one plain name in a held one, made if wanted. It may be no link: beneath what is held; openat2 is not
/// for a cell (decisions C-120).
fn step_into(held: &OwnedFd, name: &Path, make: bool) -> Result<OwnedFd, Errno> {
    if make {
        match rustix::fs::mkdirat(held, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(errno) => return Err(errno),
        }
    }
    rustix::fs::openat(held, name, DIRECTORY, Mode::empty())
}

/// The held directory that holds `at`, and `at`'s name in it.
fn parent_of(root: &Path, at: &Path, make: bool) -> io::Result<(OwnedFd, PathBuf)> {
    let below = at.strip_prefix(root).map_err(|_not| outside(root, at))?;
    let mut names = Vec::new();
    for part in below.components() {
        match part {
            Component::Normal(name) => names.push(Path::new(name)),
            Component::Prefix(_) | Component::RootDir | Component::CurDir | Component::ParentDir => {
                return Err(outside(root, at));
            }
        }
    }
    let Some((last, parents)) = names.split_last() else { return Err(outside(root, at)) };
    let mut held = rustix::fs::open(root, DIRECTORY, Mode::empty()).map_err(|e| named("opening", root, e))?;
    for name in parents {
        held = step_into(&held, name, make).map_err(|e| named("opening the parents of", at, e))?;
    }
    Ok((held, last.to_path_buf()))
}

/// Removes everything in a held directory.
///
/// What a directory in it holds is moved up beside it before it is removed, so one descriptor besides `top` is open at
/// any time however deep the tree is.
fn empty(top: BorrowedFd<'_>) -> Result<(), (PathBuf, Errno)> {
    let mut moved: u64 = 0;
    loop {
        let names = list(top).map_err(|e| (PathBuf::new(), e))?;
        if names.is_empty() {
            return Ok(());
        }
        for (name, is_directory) in names {
            let here = |e| (PathBuf::from(OsStr::from_bytes(name.to_bytes())), e);
            if is_directory {
                empty_one(top, &name, &mut moved).map_err(here)?;
            } else {
                rustix::fs::unlinkat(top, name.as_c_str(), AtFlags::empty()).map_err(here)?;
            }
        }
    }
}

/// Removes a directory of `top`, once the directories in it are moved up beside it.
fn empty_one(top: BorrowedFd<'_>, name: &CStr, moved: &mut u64) -> Result<(), Errno> {
    let inner = open_directory(top, name)?;
    for (child, child_is_directory) in list(inner.as_fd())? {
        if !child_is_directory {
            rustix::fs::unlinkat(&inner, child.as_c_str(), AtFlags::empty())?;
            continue;
        }
        // Moving a directory changes its `..`, for which it must be writable.
        drop(open_directory(inner.as_fd(), child.as_c_str())?);
        loop {
            let up = format!(".ocx-moved-{moved}");
            *moved += 1;
            let flags = rustix::fs::RenameFlags::NOREPLACE;
            match rustix::fs::renameat_with(&inner, child.as_c_str(), top, up.as_str(), flags) {
                Ok(()) => break,
                Err(Errno::EXIST) => {}
                Err(errno) => return Err(errno),
            }
        }
    }
    drop(inner);
    rustix::fs::unlinkat(top, name, AtFlags::REMOVEDIR)
}

/// Opens a directory of this account's, giving it back the permissions its owner needs.
fn open_directory<P: rustix::path::Arg + Copy>(parent: BorrowedFd<'_>, name: P) -> Result<OwnedFd, Errno> {
    let held = rustix::fs::openat(parent, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty())?;
    if FileType::from_raw_mode(rustix::fs::fstat(&held)?.st_mode) != FileType::Directory {
        return Err(Errno::NOTDIR);
    }
    // Through the held descriptor, so that it is this directory and nothing put in its place.
    let opened = rustix::fs::openat(&held, c".", DIRECTORY, Mode::empty());
    match opened {
        Ok(opened) => {
            rustix::fs::fchmod(&opened, Mode::RWXU)?;
            Ok(opened)
        }
        Err(Errno::ACCESS) => {
            rustix::fs::chmodat(parent, name, Mode::RWXU, AtFlags::empty())?;
            rustix::fs::openat(parent, name, DIRECTORY, Mode::empty())
        }
        Err(errno) => Err(errno),
    }
}

/// What a held directory holds, and whether each is a directory.
fn list(directory: BorrowedFd<'_>) -> Result<Vec<(std::ffi::CString, bool)>, Errno> {
    let mut names = Vec::new();
    for entry in Dir::read_from(directory)? {
        let entry = entry?;
        let name: &CStr = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        let mut kind = entry.file_type();
        if kind == FileType::Unknown {
            kind = FileType::from_raw_mode(rustix::fs::statat(directory, name, AtFlags::SYMLINK_NOFOLLOW)?.st_mode);
        }
        names.push((name.to_owned(), kind == FileType::Directory));
    }
    Ok(names)
}

fn outside(root: &Path, at: &Path) -> io::Error {
    io::Error::other(format!("{} is not below {}", at.display(), root.display()))
}

fn named(doing: &str, what: &Path, errno: Errno) -> io::Error {
    let kind = io::Error::from(errno).kind();
    io::Error::new(kind, format!("{doing} {}: {}", what.display(), io::Error::from(errno)))
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::super::scratch::Folder;
    use super::*;

    #[test]
    fn a_directory_is_made_afresh_for_this_account_alone() {
        let folder = Folder::new("afresh");
        let at = folder.0.join("a/b");
        make(&folder.0, &at).unwrap();
        fs::write(at.join("left"), "x").unwrap();
        make(&folder.0, &at).unwrap();
        assert_eq!(fs::read_dir(&at).unwrap().count(), 0);
        assert_eq!(fs::metadata(&at).unwrap().permissions().mode() & 0o777, 0o700);
    }

    #[test]
    fn links_are_removed_and_never_followed() {
        let folder = Folder::new("tree-links");
        let (root, victim) = (folder.0.join("root"), folder.0.join("victim"));
        fs::create_dir_all(root.join("at/deep/er")).unwrap();
        fs::create_dir(&victim).unwrap();
        fs::write(victim.join("kept"), "x").unwrap();
        for place in ["at/link", "at/deep/link", "at/deep/er/link"] {
            symlink(&victim, root.join(place)).unwrap();
        }
        make(&root, &root.join("at")).unwrap();
        assert!(victim.join("kept").exists());
        // The place itself a link: the link goes, not what it names.
        fs::remove_dir(root.join("at")).unwrap();
        symlink(&victim, root.join("at")).unwrap();
        make(&root, &root.join("at")).unwrap();
        assert!(victim.join("kept").exists() && fs::symlink_metadata(root.join("at")).unwrap().is_dir());
        // A parent a link: refused.
        symlink(&victim, root.join("parent")).unwrap();
        assert!(make(&root, &root.join("parent/at")).is_err());
        assert!(!victim.join("at").exists());
    }

    #[test]
    fn what_is_not_below_the_root_is_refused() {
        let folder = Folder::new("outside");
        for at in ["", "..", "../x", "a/../../x"] {
            assert!(make(&folder.0, &folder.0.join(at)).is_err(), "{at}");
        }
        assert!(make(&folder.0, Path::new("/elsewhere")).is_err());
    }

    #[test]
    fn a_deep_and_unreadable_tree_goes() {
        let folder = Folder::new("deep");
        let at = folder.0.join("at");
        make(&folder.0, &at).unwrap();
        let mut held = rustix::fs::open(&at, DIRECTORY, Mode::empty()).unwrap();
        for _ in 0..2_000 {
            rustix::fs::mkdirat(&held, "d", Mode::RWXU).unwrap();
            held = rustix::fs::openat(&held, "d", DIRECTORY, Mode::empty()).unwrap();
        }
        drop(held);
        fs::create_dir(at.join("shut")).unwrap();
        fs::write(at.join("shut/file"), "x").unwrap();
        fs::set_permissions(at.join("shut"), fs::Permissions::from_mode(0o0)).unwrap();
        remove(&folder.0, &at).unwrap();
        assert!(!at.exists());
    }
}

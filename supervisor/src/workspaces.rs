//! Where a run's workspace may be, and the descriptor that is it from then on.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use supervisor::wire::accounts::Account;

/// Longest workspace path, in bytes (`PATH_MAX` without its end).
const PATH_BYTES_MAX: usize = 4095;

/// A place a workspace may be made at.
///
/// Holding one proves that it is absolute, without `.`, `..` or doubled slashes, strictly below the workspaces' root,
/// and that no other run in care had a workspace that is it, holds it or lies in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    path: PathBuf,
    below: PathBuf,
}

impl Place {
    /// Checks a claimed place against the root and the places of the other runs in care.
    ///
    /// # Errors
    /// Why it may not be there, in words for the run's author.
    pub(crate) fn check<'a>(root: &Path, at: &str, others: impl Iterator<Item = &'a Place>) -> Result<Self, String> {
        if at.len() > PATH_BYTES_MAX || at.chars().any(char::is_control) {
            return Err("the path is too long or has control characters".to_owned());
        }
        let path = Path::new(at);
        let below = path.strip_prefix(root).ok().filter(|below| below.components().next().is_some());
        let below = below.ok_or_else(|| format!("{at}: not below {}", root.display()))?;
        // Components pass over `.` and doubled slashes: the path must be what its parts make.
        let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || root.join(below).as_os_str() != at {
            return Err(format!("{at}: not a plain absolute path"));
        }
        let place = Self { path: path.to_owned(), below: below.to_owned() };
        for other in others {
            if place.path.starts_with(&other.path) || other.path.starts_with(&place.path) {
                return Err(format!("{at}: another run's workspace is {}", other.path.display()));
            }
        }
        Ok(place)
    }

    /// Its host path as text.
    #[must_use]
    pub(crate) fn text(&self) -> String {
        self.path.to_string_lossy().into_owned()
    }

    /// Opens it, with no link anywhere below the root, as a directory of the runs' account.
    ///
    /// # Errors
    /// When it is not there, not so owned, or reached by a link.
    pub(crate) fn open(&self, root: &Path, owner: Account) -> Result<OwnedFd, String> {
        let fault = |what: &str, e: rustix::io::Errno| format!("{what} {}: {e}", self.path.display());
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, flags, Mode::empty()).map_err(|e| fault("opening the root of", e))?;
        let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        let beneath = beneath | ResolveFlags::NO_XDEV;
        let fd = openat2(root.as_fd(), &self.below, flags, Mode::empty(), beneath).map_err(|e| fault("opening", e))?;
        let about = rustix::fs::fstat(&fd).map_err(|e| fault("looking at", e))?;
        if about.st_uid != owner.uid {
            return Err(format!("{}: belongs to account {}, not {}", self.path.display(), about.st_uid, owner.uid));
        }
        Ok(fd)
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::testing::Scratch;

    fn check(at: &str, others: &[&str]) -> Result<Place, String> {
        let root = Path::new("/r/workspaces");
        let others: Vec<Place> = others.iter().map(|at| Place::check(root, at, std::iter::empty()).unwrap()).collect();
        Place::check(root, at, others.iter())
    }

    #[test]
    fn a_place_is_plain_and_strictly_below_the_root() {
        for at in ["/r/workspaces/a", "/r/workspaces/a/b", "/r/workspaces/..a"] {
            assert_eq!(check(at, &[]).unwrap().text(), at);
        }
        for at in [
            "",
            "a",
            "/",
            "/r/workspaces",
            "/r/workspaces/",
            "/r/workspaces/.",
            "/r/workspaces/../care",
            "/r/workspaces/a/../../care",
            "/r/workspaces/a/",
            "/r/workspaces//a",
            "/r/workspaces/./a",
            "/r/workspaces-open/a",
            "/r/workspaces/a\n",
            "/r/workspaces/\0",
        ] {
            assert!(check(at, &[]).is_err(), "{at:?}");
        }
    }

    #[test]
    fn a_place_is_not_holds_not_and_lies_not_in_another_runs() {
        for other in ["/r/workspaces/a/b", "/r/workspaces/a/b/c", "/r/workspaces/a"] {
            let why = check("/r/workspaces/a/b", &[other]).unwrap_err();
            assert!(why.contains("another run's"), "{why}");
        }
        for other in ["/r/workspaces/a/bc", "/r/workspaces/a/c", "/r/workspaces/b"] {
            assert!(check("/r/workspaces/a/b", &[other]).is_ok(), "{other}");
        }
    }

    #[test]
    fn a_link_in_the_way_or_another_accounts_directory_is_not_opened() {
        let root = Scratch::new();
        let us = Account { uid: rustix::process::getuid().as_raw(), gid: 0 };
        std::fs::create_dir_all(root.path().join("a/b")).unwrap();
        std::os::unix::fs::symlink("a", root.path().join("link")).unwrap();
        let open = |below: &str, owner| {
            let at = root.path().join(below);
            Place::check(root.path(), at.to_str().unwrap(), std::iter::empty()).unwrap().open(root.path(), owner)
        };
        open("a/b", us).unwrap();
        open("link/b", us).unwrap_err();
        open("link", us).unwrap_err();
        open("none", us).unwrap_err();
        open("a/b", Account { uid: us.uid + 1, gid: 0 }).unwrap_err();
    }
}

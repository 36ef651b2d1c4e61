//! Where a run's workspace may be, and the descriptor that is it from then on.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path, PathBuf};

use rustix::fs::{Mode, OFlags, ResolveFlags, openat2};
use supervisor::wire::accounts::{Account, Accounts};

/// Longest workspace path, in bytes (`PATH_MAX` without its end).
const PATH_BYTES_MAX: usize = 4095;

/// A directory that workspaces lie in, and whose they are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Root {
    /// Where it is.
    pub(crate) path: PathBuf,
    /// The account of the steps, workspaces and processes there.
    pub(crate) owner: Account,
}

/// Both of them: what one account owns any process of that account can change, so runs without a sandbox have their
/// workspaces elsewhere (decisions C-92).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Roots {
    /// Of runs in a sandbox.
    pub(crate) confined: Root,
    /// Of runs without one.
    pub(crate) open: Root,
}

impl Roots {
    /// Those of a `ROOT`.
    pub(crate) fn of(root: &Path, accounts: &Accounts) -> Self {
        Self {
            confined: Root { path: root.join("workspaces"), owner: accounts.run },
            open: Root { path: root.join("workspaces-open"), owner: accounts.open },
        }
    }

    /// The one a claimed place lies in, as text; when in none, the one most runs have.
    fn for_place(&self, at: &str) -> &Root {
        if Path::new(at).starts_with(&self.open.path) { &self.open } else { &self.confined }
    }
}

/// A place a workspace may be made at.
///
/// Holding one proves that it is absolute, without `.`, `..` or doubled slashes, strictly below a workspaces' root, and
/// that no other run in care had a workspace that is it, holds it or lies in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    path: PathBuf,
    below: PathBuf,
    root: Root,
}

impl Place {
    /// Checks a claimed place against the roots and the places of the other runs in care.
    ///
    /// # Errors
    /// Why it may not be there, in words for the run's author.
    pub(crate) fn check<'a>(roots: &Roots, at: &str, others: impl Iterator<Item = &'a Place>) -> Result<Self, String> {
        if at.len() > PATH_BYTES_MAX || at.chars().any(char::is_control) {
            return Err("the path is too long or has control characters".to_owned());
        }
        let path = Path::new(at);
        let Root { path: root, owner } = roots.for_place(at);
        let below = path.strip_prefix(root).ok().filter(|below| below.components().next().is_some());
        let below = below.ok_or_else(|| format!("{at}: not below {}", root.display()))?;
        // Components pass over `.` and doubled slashes: the path must be what its parts make.
        let plain = below.components().all(|part| matches!(part, Component::Normal(_)));
        if !plain || root.join(below).as_os_str() != at {
            return Err(format!("{at}: not a plain absolute path"));
        }
        let root = Root { path: root.clone(), owner: *owner };
        let place = Self { path: path.to_owned(), below: below.to_owned(), root };
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

    /// The root it lies in, and whose it is.
    pub(crate) const fn root(&self) -> &Root {
        &self.root
    }

    /// Opens it, with no link anywhere below the root, as a directory of the root's owner.
    ///
    /// # Errors
    /// When it is not there, not so owned, or reached by a link.
    pub(crate) fn open(&self) -> Result<OwnedFd, String> {
        let Root { path: root, owner } = &self.root;
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
    use supervisor::wire::accounts::derive;

    use super::*;
    use crate::testing::Scratch;

    fn check(at: &str, others: &[&str]) -> Result<Place, String> {
        let roots = Roots::of(Path::new("/r"), &derive(Path::new("/r")));
        let others: Vec<Place> =
            others.iter().map(|at| Place::check(&roots, at, std::iter::empty()).unwrap()).collect();
        Place::check(&roots, at, others.iter())
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
            "/r/workspaces-open",
            "/r/workspaces-open/../workspaces/a",
            "/r/workspaces-other/a",
            "/r/workspaces/a\n",
            "/r/workspaces/\0",
        ] {
            assert!(check(at, &[]).is_err(), "{at:?}");
        }
    }

    #[test]
    fn c_92_a_run_without_a_sandbox_has_its_workspace_with_the_account_it_runs_as() {
        let accounts = derive(Path::new("/r"));
        let owner = |at: &str| check(at, &[]).unwrap().root().owner;
        assert_eq!((owner("/r/workspaces/a"), owner("/r/workspaces-open/a")), (accounts.run, accounts.open));
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
            let of = Root { path: root.path().to_owned(), owner };
            let roots = Roots { confined: of.clone(), open: Root { path: "/none".into(), owner } };
            let at = root.path().join(below);
            Place::check(&roots, at.to_str().unwrap(), std::iter::empty()).unwrap().open()
        };
        open("a/b", us).unwrap();
        open("link/b", us).unwrap_err();
        open("link", us).unwrap_err();
        open("none", us).unwrap_err();
        open("a/b", Account { uid: us.uid + 1, gid: 0 }).unwrap_err();
    }
}

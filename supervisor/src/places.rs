//! `ROOT` and what is in it: who owns each directory and who may enter (design, section 6; decisions C-96). Missing ones
//! are made; a wrong one is refused with the command that sets it right, since something else may rely on it.

use std::fmt;
use std::os::fd::AsFd as _;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Mode, Uid};
use supervisor::wire::accounts::{Account, Accounts, SERVICE_ROOT, derive};

use crate::durable;

/// Why the supervisor does not start, with what to do about it.
#[derive(Debug)]
pub(crate) struct Unfit(pub(crate) String);

impl fmt::Display for Unfit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Root's account.
const ROOT: Account = Account { uid: 0, gid: 0 };
/// Most files looked at in one directory of settings or passwords.
const FILES_MAX: usize = 1024;

/// The directories of a `ROOT`: name, owner, mode.
fn directories(accounts: &Accounts) -> [(&'static str, Account, u32); 8] {
    [
        ("", ROOT, 0o711),
        ("settings", ROOT, 0o755),
        ("passwords", ROOT, 0o700),
        ("clones", accounts.node, 0o700),
        ("state", accounts.node, 0o700),
        ("care", ROOT, 0o700),
        ("workspaces", accounts.run, 0o700),
        ("workspaces-open", accounts.open, 0o700),
    ]
}

/// The path as it is used everywhere: absolute, and with no link in it, since it is compared as text.
///
/// # Errors
/// When its parent is not there, or a link is in it.
pub(crate) fn root(given: &Path) -> Result<PathBuf, Unfit> {
    let absolute = std::path::absolute(given).map_err(|e| Unfit(format!("{}: {e}", given.display())))?;
    let (Some(parent), Some(name)) = (absolute.parent(), absolute.file_name()) else {
        return Err(Unfit(format!("{}: no directory of its own", given.display())));
    };
    let real =
        parent.canonicalize().map_err(|e| Unfit(format!("{}: {e}; make it first", parent.display())))?.join(name);
    if real != absolute {
        return Err(Unfit(format!("{}: goes through a link; say --root {}", given.display(), real.display())));
    }
    if real.to_str().is_none_or(|text| text.chars().any(char::is_control)) {
        return Err(Unfit(format!("{}: its name is not plain text; choose another", real.display())));
    }
    Ok(real)
}

/// The four accounts of a `ROOT`: by name for the service, derived for any other.
///
/// # Errors
/// When an account is missing, is root, or shares its user or group with another.
pub(crate) fn accounts(root: &Path) -> Result<Accounts, Unfit> {
    if root != Path::new(SERVICE_ROOT) {
        return Ok(derive(root));
    }
    let named = |name: &str| match nix::unistd::User::from_name(name) {
        Ok(Some(user)) => Ok(Account { uid: user.uid.as_raw(), gid: user.gid.as_raw() }),
        Ok(None) => Err(Unfit(format!(
            "the host has no account {name}: useradd --system --user-group --no-create-home --shell /usr/sbin/nologin {name}"
        ))),
        Err(errno) => Err(Unfit(format!("looking up account {name}: {errno}"))),
    };
    let node = named("ocx")?;
    let accounts =
        Accounts { node, run: named("ocx-run")?, open: named("ocx-open")?, cell: named("ocx-cell")?, server: node };
    apart(&accounts)?;
    Ok(accounts)
}

fn apart(accounts: &Accounts) -> Result<(), Unfit> {
    let all =
        [("ocx", accounts.node), ("ocx-run", accounts.run), ("ocx-open", accounts.open), ("ocx-cell", accounts.cell)];
    for (i, (name, account)) in all.iter().enumerate() {
        if account.uid == 0 || account.gid == 0 {
            return Err(Unfit(format!("account {name} is root's user or group; give it its own")));
        }
        for (other, same) in all.iter().skip(i + 1) {
            if account.uid == same.uid || account.gid == same.gid {
                return Err(Unfit(format!("accounts {name} and {other} share a user or group; give each its own")));
            }
        }
    }
    Ok(())
}

/// Makes what is missing in `ROOT` and checks the rest.
///
/// # Errors
/// At the first that is wrong or cannot be made, with the fix.
pub(crate) fn check(root: &Path, accounts: &Accounts) -> Result<(), Unfit> {
    for (name, owner, mode) in directories(accounts) {
        let path = if name.is_empty() { root.to_owned() } else { root.join(name) };
        make(&path, owner, mode).map_err(|e| Unfit(format!("{}: making it: {e}", path.display())))?;
        let about = std::fs::symlink_metadata(&path).map_err(|e| Unfit(format!("{}: {e}", path.display())))?;
        if !about.is_dir() {
            return Err(Unfit(format!("{}: not a directory; move it away", path.display())));
        }
        let (uid, gid, found) = (about.uid(), about.gid(), about.mode() & 0o7777);
        if (uid, gid, found) != (owner.uid, owner.gid, mode) {
            return Err(Unfit(format!(
                "{path}: owner {uid}:{gid}, mode {found:04o}; chown {}:{} {path} && chmod {mode:04o} {path}",
                owner.uid,
                owner.gid,
                path = path.display(),
            )));
        }
    }
    files(&root.join("settings"), 0o022, "go-w")?;
    files(&root.join("passwords"), 0o177, "0600")
}

/// Makes a directory of root's parent its owner's, unless something is there.
fn make(path: &Path, owner: Account, mode: u32) -> std::io::Result<()> {
    match rustix::fs::mkdir(path, Mode::RWXU) {
        Ok(()) => {}
        Err(rustix::io::Errno::EXIST) => return Ok(()),
        Err(errno) => return Err(errno.into()),
    }
    let directory = durable::directory(path)?;
    rustix::fs::fchown(&directory, Some(Uid::from_raw(owner.uid)), Some(Gid::from_raw(owner.gid)))?;
    rustix::fs::fchmod(&directory, Mode::from_raw_mode(mode))?;
    Ok(())
}

/// Checks that the files of a directory are root's and have none of the `forbidden` permissions.
fn files(directory: &Path, forbidden: u32, fix: &str) -> Result<(), Unfit> {
    let at = |e: std::io::Error| Unfit(format!("{}: {e}", directory.display()));
    let fd = durable::directory(directory).map_err(at)?;
    for name in durable::names(fd.as_fd(), FILES_MAX).map_err(at)? {
        let path = directory.join(&name);
        let about = std::fs::symlink_metadata(&path).map_err(|e| Unfit(format!("{}: {e}", path.display())))?;
        if about.uid() != 0 || (about.is_file() && about.mode() & forbidden != 0) {
            return Err(Unfit(format!(
                "{path}: owner {}, mode {:04o}; chown root {path} && chmod {fix} {path}",
                about.uid(),
                about.mode() & 0o7777,
                path = path.display(),
            )));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use super::*;
    use crate::testing::Scratch;

    #[test]
    fn c_96_a_root_is_absolute_and_without_links() {
        let scratch = Scratch::new();
        let here = scratch.path().join("ocx");
        assert_eq!(root(&here).unwrap(), here);
        std::os::unix::fs::symlink(scratch.path(), scratch.path().join("link")).unwrap();
        let why = root(&scratch.path().join("link/ocx")).unwrap_err().to_string();
        assert!(why.ends_with(&format!("say --root {}", here.display())), "{why}");
        root(Path::new("/")).unwrap_err();
        root(&scratch.path().join("none/ocx")).unwrap_err();
    }

    #[test]
    fn c_92_accounts_that_are_root_or_share_an_id_are_refused() {
        let good = derive(Path::new("/tmp/x"));
        apart(&good).unwrap();
        apart(&Accounts { run: ROOT, ..good }).unwrap_err();
        apart(&Accounts { run: good.node, ..good }).unwrap_err();
        apart(&Accounts { cell: Account { gid: good.open.gid, ..good.cell }, ..good }).unwrap_err();
    }
}

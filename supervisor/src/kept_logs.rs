//! `stderr.log` and `stdout.log` in a run's workspace, which the run may have left in any state.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::BorrowedFd;

use rustix::fs::{AtFlags, Mode, OFlags, openat, unlinkat};
use rustix::io::Errno;
use supervisor::wire::accounts::Account;

use crate::as_account::as_account;

/// The file for STDERR.
pub(crate) const STDERR: &str = "stderr.log";
/// The file for STDOUT.
pub(crate) const STDOUT: &str = "stdout.log";

/// Writes a log as the runs' account, in place of any file of that name.
///
/// What is there is removed, not opened: a link is never followed, a pipe never waited on. A directory stays, and keeps
/// the log out.
///
/// # Errors
/// Why it was kept out, in words.
pub(crate) fn write(workspace: BorrowedFd<'_>, name: &str, bytes: &[u8], account: Account) -> Result<(), String> {
    as_account(account, || {
        match unlinkat(workspace, name, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(Errno::ISDIR) => return Err(format!("{name} is a directory")),
            Err(errno) => return Err(format!("{name}: removing what is there: {errno}")),
        }
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mode = Mode::RUSR | Mode::WUSR | Mode::RGRP | Mode::ROTH;
        let file = openat(workspace, name, flags, mode).map_err(|errno| format!("{name}: {errno}"))?;
        File::from(file).write_all(bytes).map_err(|error| {
            // Half a log is worse than none.
            let _left = unlinkat(workspace, name, AtFlags::empty());
            format!("{name}: {error}")
        })
    })
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, symlink};

    use super::*;
    use crate::testing::Scratch;

    /// An account that owns nothing, or, where the tests do not run as root, their own.
    fn account() -> Account {
        let own = rustix::process::getuid().as_raw();
        if own == 0 { Account { uid: 0x7100_0009, gid: 0x7100_0009 } } else { Account { uid: own, gid: own } }
    }

    fn workspace() -> Scratch {
        let workspace = Scratch::new();
        if rustix::process::getuid().is_root() {
            std::os::unix::fs::chown(workspace.path(), Some(account().uid), Some(account().gid)).unwrap();
        }
        workspace
    }

    #[test]
    fn a_log_takes_the_place_of_links_and_pipes_and_belongs_to_the_runs_account() {
        let workspace = workspace();
        let at = workspace.path().join(STDERR);
        let secret = Scratch::new();
        let target = secret.path().join("secret");
        std::fs::write(&target, "root's").unwrap();
        for make in [0, 1, 2] {
            match make {
                0 => symlink(&target, &at).unwrap(),
                1 => std::fs::hard_link(&target, &at).unwrap(),
                _ => rustix::fs::mknodat(rustix::fs::CWD, &at, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap(),
            }
            write(workspace.fd().as_fd(), STDERR, b"log", account()).unwrap();
            assert_eq!(std::fs::read_to_string(&at).unwrap(), "log");
            let about = std::fs::symlink_metadata(&at).unwrap();
            assert!(about.is_file() && about.uid() == account().uid);
            std::fs::remove_file(&at).unwrap();
        }
        assert_eq!(std::fs::read_to_string(&target).unwrap(), "root's");
    }

    #[test]
    fn a_directory_and_a_place_the_account_may_not_write_keep_the_log_out() {
        let workspace = workspace();
        std::fs::create_dir(workspace.path().join(STDOUT)).unwrap();
        let why = write(workspace.fd().as_fd(), STDOUT, b"log", account()).unwrap_err();
        assert_eq!(why, "stdout.log is a directory");
        std::fs::set_permissions(workspace.path(), std::fs::Permissions::from_mode(0o500)).unwrap();
        write(workspace.fd().as_fd(), STDERR, b"log", account()).unwrap_err();
        // Control: with the permission it is written.
        std::fs::set_permissions(workspace.path(), std::fs::Permissions::from_mode(0o700)).unwrap();
        write(workspace.fd().as_fd(), STDERR, b"log", account()).unwrap();
    }
}

//! Files of a workspace, opened for the protocol process to read: a run may have left anything there.

use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{FileType, Mode, OFlags, ResolveFlags, fstat, openat2};
use rustix::io::Errno;
use supervisor::wire::accounts::Account;

use crate::as_account::as_account;

/// Opens a regular file beneath a workspace, as its account.
///
/// No part of the path may be a link, lead out of the workspace or onto another mount; a pipe is not waited on and a
/// device not touched. The descriptor is the file from then on, whatever becomes of its name.
///
/// # Errors
/// Why not, in words.
pub(crate) fn open(workspace: BorrowedFd<'_>, path: &str, account: Account) -> Result<OwnedFd, String> {
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let beneath = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
    let beneath = beneath | ResolveFlags::NO_XDEV;
    let file = as_account(account, || {
        openat2(workspace, path, flags, Mode::empty(), beneath).map_err(|errno| match errno {
            Errno::LOOP => "a link is in its path".to_owned(),
            Errno::XDEV => "it leads out of the workspace".to_owned(),
            Errno::NOENT => "there is no such file".to_owned(),
            errno => errno.to_string(),
        })
    })?;
    let about = fstat(&file).map_err(|errno| format!("looking at it: {errno}"))?;
    let kind = FileType::from_raw_mode(about.st_mode);
    match [(FileType::Directory, "a directory"), (FileType::Fifo, "a pipe")].into_iter().find(|(it, _)| *it == kind) {
        Some((_, word)) => Err(format!("it is {word}")),
        None if kind == FileType::RegularFile => Ok(file),
        None => Err("it is no regular file".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use std::io::Read as _;
    use std::os::fd::AsFd as _;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;
    use crate::testing::Scratch;

    fn own() -> Account {
        Account { uid: rustix::process::getuid().as_raw(), gid: rustix::process::getgid().as_raw() }
    }

    #[test]
    fn v2_2_10_21_only_a_regular_file_reached_by_no_link_is_opened() {
        let (workspace, elsewhere) = (Scratch::new(), Scratch::new());
        let at = |name: &str| workspace.path().join(name);
        std::fs::create_dir_all(at("a/b")).unwrap();
        std::fs::write(at("a/b/file"), "whole").unwrap();
        std::fs::write(elsewhere.path().join("secret"), "root's").unwrap();
        symlink(elsewhere.path().join("secret"), at("link")).unwrap();
        symlink("a/b/file", at("link-within")).unwrap();
        symlink("a/b", at("way")).unwrap();
        symlink("/proc/self/fd", at("magic")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0).unwrap();
        let open = |path: &str| super::open(workspace.fd().as_fd(), path, own());
        for path in ["a/b/file", "a/../a/b/file", "./a//b/file"] {
            let mut text = String::new();
            std::fs::File::from(open(path).unwrap()).read_to_string(&mut text).unwrap();
            assert_eq!(text, "whole");
        }
        let out = format!("../{}/secret", elsewhere.path().file_name().unwrap().to_str().unwrap());
        let absolute = at("a/b/file");
        for (path, why) in [
            ("link", "a link is in its path"),
            ("link-within", "a link is in its path"),
            ("way/file", "a link is in its path"),
            ("magic/0", "a link is in its path"),
            (out.as_str(), "it leads out of the workspace"),
            (absolute.to_str().unwrap(), "it leads out of the workspace"),
            ("none", "there is no such file"),
            ("", "there is no such file"),
            ("a", "it is a directory"),
            ("pipe", "it is a pipe"),
        ] {
            assert_eq!(open(path).unwrap_err(), why, "{path}");
        }
        open("a\0b").unwrap_err();
        open(&"a/".repeat(4096)).unwrap_err();
        // Control: by an ordinary open the links lead there.
        assert_eq!(std::fs::read_to_string(at("link")).unwrap(), "root's");
        // It cannot be written by the descriptor.
        use std::io::Write as _;
        std::fs::File::from(open("a/b/file").unwrap()).write(b"x").unwrap_err();
    }

    #[test]
    fn c_90_what_the_account_may_not_read_is_not_opened() {
        if !rustix::process::getuid().is_root() {
            return;
        }
        let workspace = Scratch::new();
        std::fs::write(workspace.path().join("file"), "root's").unwrap();
        let other = Account { uid: 0x7100_0009, gid: 0x7100_0009 };
        let mode = |mode| {
            std::fs::set_permissions(workspace.path().join("file"), std::fs::Permissions::from_mode(mode)).unwrap();
        };
        mode(0o600);
        open(workspace.fd().as_fd(), "file", other).unwrap_err();
        // Control: with the permission it is opened.
        mode(0o644);
        open(workspace.fd().as_fd(), "file", other).unwrap();
    }
}

//! The four host accounts (decisions C-92) and how a trial derives its own (C-96).

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

/// The `ROOT` of an installed service; its accounts are looked up by name.
pub const SERVICE_ROOT: &str = "/var/lib/ocx";

/// One host account.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// Its user id.
    pub uid: u32,
    /// Its group id.
    pub gid: u32,
}

/// The accounts of one `ROOT`. None is root, none shares a group with another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Accounts {
    /// `ocx`: the protocol process.
    pub node: Account,
    /// `ocx-run`: workspace steps and confined processes.
    pub run: Account,
    /// `ocx-open`: unconfined processes.
    pub open: Account,
    /// `ocx-cell`: inits of sandboxes.
    pub cell: Account,
    /// Serves the trial's Fossil server; no part of a service.
    pub server: Account,
}

/// First id of the range trials take; nothing else is given ids there by Debian or systemd.
const FIRST: u32 = 0x7100_0000;
/// How many groups of eight ids the range holds.
const GROUPS: u64 = 0x00E0_0000 / 8;

/// The accounts of a `ROOT` that is not [`SERVICE_ROOT`]: numbers with no name, the same for the same path.
#[must_use]
pub fn derive(root: &Path) -> Accounts {
    let group = u32::try_from(spread(root) % GROUPS).unwrap_or(0);
    let account = |n: u32| Account { uid: FIRST + group * 8 + n, gid: FIRST + group * 8 + n };
    Accounts { node: account(0), run: account(1), open: account(2), cell: account(3), server: account(4) }
}

/// The name of the cgroup that holds a `ROOT`'s runs, in each hierarchy (decisions C-96): a trial's never meets a
/// service's.
#[must_use]
pub fn cgroup_name(root: &Path) -> String {
    format!("ocx-{:016x}", spread(root))
}

/// The name of the cgroup that holds a `ROOT`'s protocol process and what that drives: beside its runs' and not in it, so
/// that what runs take from each other (process numbers above all) they do not take from what answers for them.
#[must_use]
pub fn node_cgroup_name(root: &Path) -> String {
    format!("{}-node", cgroup_name(root))
}

/// FNV-1a: any even spread does, and this one is ten lines shorter than a dependency.
fn spread(root: &Path) -> u64 {
    let mut hash: u64 = 0xcbf2_9ce4_8422_2325;
    for byte in root.as_os_str().as_bytes() {
        hash = (hash ^ u64::from(*byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    hash
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_root_always_has_the_same_accounts_and_another_root_has_others() {
        let one = derive(Path::new("/tmp/a/root"));
        assert_eq!(one, derive(Path::new("/tmp/a/root")));
        assert_ne!(one.node, derive(Path::new("/tmp/b/root")).node);
        assert!(one.node.uid >= FIRST && one.server.uid < 0x7200_0000);
    }
}

//! Landlock's file rights as data: what each [`Grant`] lets a process do with what it names, on each kernel.
//!
//! A ruleset handles every right this kernel knows, so that whatever is not granted is denied. What no kernel's Landlock
//! asks about (`stat`, `chmod`, `chown`, connecting to a UNIX socket by its path) stays with the account's own rights.

use crate::op::Grant;

const EXECUTE: u64 = 1;
const WRITE_FILE: u64 = 1 << 1;
const READ_FILE: u64 = 1 << 2;
const READ_DIR: u64 = 1 << 3;
const REMOVE_DIR: u64 = 1 << 4;
const REMOVE_FILE: u64 = 1 << 5;
const MAKE_DIR: u64 = 1 << 7;
const MAKE_REG: u64 = 1 << 8;
const REFER: u64 = 1 << 13;
const TRUNCATE: u64 = 1 << 14;
const IOCTL_DEV: u64 = 1 << 15;

/// The rights that mean something for what is no folder; a rule for a file may hold no other.
const OF_FILES: u64 = EXECUTE | WRITE_FILE | READ_FILE | TRUNCATE | IOCTL_DEV;

/// First ABI with scopes for abstract sockets and signals.
const SCOPES_SINCE: u32 = 6;
/// Abstract UNIX sockets and signals.
pub(crate) const SCOPES: u64 = 0b11;

/// Every file right that a kernel of this ABI knows (landlock(7)).
#[must_use]
pub fn handled(abi: u32) -> u64 {
    let first = (1 << 13) - 1; // ABI 1: execute, write_file … make_sym
    [(1, first), (2, REFER), (3, TRUNCATE), (5, IOCTL_DEV)]
        .into_iter()
        .filter(|(since, _)| abi >= *since)
        .fold(0, |all, (_, rights)| all | rights)
}

/// Every scope that a kernel of this ABI knows.
#[must_use]
pub fn scoped(abi: u32) -> u64 {
    if abi >= SCOPES_SINCE { SCOPES } else { 0 }
}

/// What a grant comes to on a kernel of this ABI, for a folder or for anything else.
#[must_use]
pub fn rights(grant: Grant, abi: u32, folder: bool) -> u64 {
    let all = match grant {
        Grant::Reads => READ_FILE,
        Grant::Lists => READ_FILE | READ_DIR,
        Grant::Runs => READ_FILE | READ_DIR | EXECUTE,
        // Plain files and folders only, none of them a program, and none moved from one folder to another.
        Grant::Keeps => READ_FILE | READ_DIR | WRITE_FILE | TRUNCATE | REMOVE_DIR | REMOVE_FILE | MAKE_DIR | MAKE_REG,
        Grant::Device => READ_FILE | WRITE_FILE | IOCTL_DEV,
    };
    all & handled(abi) & if folder { u64::MAX } else { OF_FILES }
}

#[cfg(test)]
mod tests {
    use super::*;

    const GRANTS: [Grant; 5] = [Grant::Reads, Grant::Lists, Grant::Runs, Grant::Keeps, Grant::Device];

    #[test]
    fn a_grant_never_holds_what_its_kernel_does_not_handle_nor_a_folder_s_right_for_a_file() {
        for abi in 0..=9 {
            for grant in GRANTS {
                assert_eq!(rights(grant, abi, true) & !handled(abi), 0, "{grant:?} {abi}");
                assert_eq!(rights(grant, abi, false) & !(handled(abi) & OF_FILES), 0, "{grant:?} {abi}");
            }
        }
        assert_eq!([0, 1, 2, 3, 4, 5, 9].map(handled), [0, 0x1fff, 0x3fff, 0x7fff, 0x7fff, 0xffff, 0xffff]);
        assert_eq!([5, 6, 9].map(scoped), [0, 3, 3]);
    }

    #[test]
    fn what_may_be_written_is_never_run() {
        for grant in GRANTS {
            let all = rights(grant, 9, true);
            assert!(all & EXECUTE == 0 || all & (WRITE_FILE | MAKE_REG) == 0, "{grant:?}");
            assert_eq!(all & REFER, 0, "{grant:?}");
        }
    }
}

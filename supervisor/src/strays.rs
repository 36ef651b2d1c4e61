//! Processes that became ours because their parent ended: the supervisor is a subreaper (supervision 4.1). They are
//! reaped, and nothing is concluded from them.

use nix::sys::wait::{Id, WaitPidFlag, WaitStatus, waitid};

/// Most that are reaped in one turn.
const TURN_MAX: usize = 64;

/// Reaps ended children that are not among `known`, which are reaped by their descriptors. Whether some may be left:
/// one of the known stands before them, or there were too many for a turn.
pub(crate) fn reap(known: impl Fn(u32) -> bool) -> bool {
    let look = WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG | WaitPidFlag::WNOWAIT;
    for _ in 0..TURN_MAX {
        let Ok(WaitStatus::Exited(pid, _) | WaitStatus::Signaled(pid, _, _)) = waitid(Id::All, look) else {
            return false;
        };
        if known(pid.as_raw().unsigned_abs()) {
            return true;
        }
        if waitid(Id::Pid(pid), WaitPidFlag::WEXITED | WaitPidFlag::WNOHANG).is_err() {
            return false;
        }
    }
    true
}

//! Root does not lend its eyes: what lies in a workspace is looked up, made and opened as the account whose it is
//! (decisions C-90).

use supervisor::wire::accounts::Account;

/// Does something with an account's rights over files and none of root's (`setfsuid(2)`: leaving 0 drops the
/// capabilities over files, coming back restores them). The supervisor has no supplementary groups.
///
/// # Errors
/// As `f`, or when the ids did not change.
pub(crate) fn as_account<T>(account: Account, f: impl FnOnce() -> Result<T, String>) -> Result<T, String> {
    use nix::unistd::{Gid, Uid, setfsgid, setfsuid};
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    let (own_uid, own_gid) = (Uid::effective(), Gid::effective());
    setfsgid(gid);
    setfsuid(uid);
    // Neither call reports failure; asking again tells what is.
    let result =
        if setfsgid(gid) == gid && setfsuid(uid) == uid { f() } else { Err(format!("cannot act as account {uid}")) };
    setfsuid(own_uid);
    setfsgid(own_gid);
    result
}

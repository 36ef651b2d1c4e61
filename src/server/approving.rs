//! Approving a process's user for a clone, and taking that back (C-62, V2-2.5-06), on the server's own host.
//!
//! The user's password is set once, with the first approval, and no run or later approval changes it.

use std::io;

use rusqlite::TransactionBehavior;
use serde_json::{Value, json};

use super::approvals::{self, Approval, Approvals, CLONES_MAX, Pair};
use super::clones;
use super::kept::Folder;
use super::letters::Users;
use super::on_host::OnHost;
use super::repository;
use super::stamp;
use crate::protocol::names::{CloneCode, Login};

/// Users that Fossil itself makes, whose letters others inherit or who need no password.
const SPECIAL: [&str; 4] = ["nobody", "anonymous", "developer", "reader"];
/// Random bytes of a password; it is their hex.
const PASSWORD_BYTES: usize = 32;
/// Letters a process's user needs for the clone of its workspace.
const CLONING: [char; 2] = ['g', 'o'];

/// What is approved or taken back: `user`'s password, for the host that acts as `login` for `clone`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Pairing {
    /// The process's user.
    pub user: Login,
    /// The clone's user.
    pub login: Login,
    /// The clone's server-code.
    pub clone: CloneCode,
}

/// What was done, or would be.
#[derive(Debug, Clone, PartialEq)]
pub struct Done {
    /// For a person, in order.
    pub log: Vec<String>,
    /// For a program. Never holds a password.
    pub result: Value,
}

/// Approves `pairing`, and sets the user's password when it is approved for no clone yet. With `dry` says what would
/// be done.
///
/// # Errors
/// Why nothing was changed, for a person.
pub fn approve(host: &OnHost, pairing: &Pairing, dry: bool) -> Result<Done, String> {
    let Pairing { user, login, clone } = pairing;
    let folder = Folder::beside(host.repository()).map_err(kept)?;
    let lock = approvals::lock(&folder).map_err(kept)?;
    let mut approvals = approvals::read(&folder).map_err(kept)?;
    let mut db = repository::open(host.repository()).map_err(|error| error.to_string())?;
    let read = |error: rusqlite::Error| format!("{}: {error}", host.repository().display());
    // From here on nobody else sets this password.
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate).map_err(read)?;
    let users = Users::read(&transaction).map_err(|stop| stop.why)?;
    let mut log = check(&users, pairing)?;
    if !clones::is_listed(&folder, login.as_str(), clone.as_str()) {
        log.push(format!("no host has listed clone {clone} as {login} yet: is the code the right one?"));
    }
    let fresh = !approvals.users.contains_key(user.as_str());
    let approval = approvals.users.entry(user.as_str().to_owned()).or_insert(Approval {
        password: password()?,
        clones: Vec::new(),
        by: host.by().to_owned(),
        at: stamp::now(),
    });
    if fresh {
        // Straight in the table: `fossil user password` takes it as an argument, which every process can read, or from
        // a terminal. Its sessions end: who signed in before is no process.
        let secret = repository::project_code(&transaction)
            .map(|project| repository::stored_password(&project, user.as_str(), &approval.password))
            .map_err(read)?;
        let sql = "UPDATE user SET pw = ?2, cookie = NULL, cexpire = 0, mtime = strftime('%s', 'now') WHERE login = ?1";
        transaction.execute(sql, [user.as_str(), &secret]).map_err(read)?;
        log.push(format!("{user} has a new password, which no person knows; the one it had signs in no more"));
    } else if repository::is_password(&transaction, user.as_str(), &approval.password).map_err(read)? != Some(true) {
        return Err(format!(
            "{user} was given another password since it was approved, or {} holds approvals of another repository in \
             the same folder: revoke {user}'s approvals, then approve them again",
            folder.file("").display()
        ));
    }
    let pair = Pair { login: login.as_str().to_owned(), clone: clone.as_str().to_owned() };
    let already = approval.clones.contains(&pair);
    if already {
        log.push(format!("{user} is approved for {login}'s clone {clone} already: nothing changes"));
    } else {
        if approval.clones.len() >= CLONES_MAX {
            return Err(format!("{user} is approved for {CLONES_MAX} clones, and for no more"));
        }
        approval.clones.push(pair);
        log.push(format!("{user} is approved for {login}'s clone {clone}"));
    }
    let result = json!({ "user": user.as_str(), "login": login.as_str(), "clone": clone.as_str(),
        "password_set": fresh, "clones": approval.clones });
    if !dry && !already {
        // All that can fail is done before the password holds. A crash after the commit leaves a user with no
        // approval, whom the next call gives another password.
        let draft = approvals::draft(&folder, &approvals).map_err(kept)?;
        transaction.commit().map_err(read)?;
        draft.publish().map_err(kept)?;
    }
    drop(lock);
    Ok(Done { log, result })
}

/// Takes `pairing` back. The password stays as it is.
///
/// # Errors
/// Why nothing was changed, for a person: such a pair is not approved, for one.
pub fn revoke(host: &OnHost, pairing: &Pairing, dry: bool) -> Result<Done, String> {
    let Pairing { user, login, clone } = pairing;
    let folder = Folder::beside(host.repository()).map_err(kept)?;
    let lock = approvals::lock(&folder).map_err(kept)?;
    let mut approvals = approvals::read(&folder).map_err(kept)?;
    let left = without(&mut approvals, pairing)
        .ok_or_else(|| format!("{user} is not approved for {login}'s clone {clone}: nothing to revoke"))?;
    let mut log = vec![format!("{user} is not approved for {login}'s clone {clone} any more")];
    if left.is_empty() {
        log.push(format!("{user} is approved for no clone; the next approval gives it another password"));
    }
    log.push(format!(
        "a host that has collected {user}'s password can still sign in with it until it is changed: fossil user password"
    ));
    if !dry {
        approvals::draft(&folder, &approvals).and_then(|draft| draft.publish()).map_err(kept)?;
    }
    drop(lock);
    let result = json!({ "user": user.as_str(), "login": login.as_str(), "clone": clone.as_str(), "clones": left });
    Ok(Done { log, result })
}

/// Removes the pair, and the user with its last; gives the pairs left, or nothing when it was not there.
fn without(approvals: &mut Approvals, pairing: &Pairing) -> Option<Vec<Pair>> {
    let approval = approvals.users.get_mut(pairing.user.as_str())?;
    let before = approval.clones.len();
    approval.clones.retain(|it| it.login != pairing.login.as_str() || it.clone != pairing.clone.as_str());
    let left = approval.clones.clone();
    if left.is_empty() {
        approvals.users.remove(pairing.user.as_str());
    }
    (left.len() < before).then_some(left)
}

/// Whether these users may be paired; gives what a person should know all the same.
fn check(users: &Users, pairing: &Pairing) -> Result<Vec<String>, String> {
    let (user, login) = (pairing.user.as_str(), pairing.login.as_str());
    let none = |name: &str| format!("the server has no user {name}: make it first, with Fossil's Users page");
    if SPECIAL.contains(&user) {
        return Err(format!("{user} is a user of Fossil's own: no process runs as it"));
    }
    let held = users.of(user).ok_or_else(|| none(user))?;
    if held.admin() || held.node() {
        return Err(format!(
            "{user} holds admin, setup or a clone's letters (g, o, C, 4, w): a process runs as a user without them, \
             whose password a host may hold"
        ));
    }
    let node = users.of(login).ok_or_else(|| none(login))?;
    let mut log = Vec::new();
    if !node.node() {
        log.push(format!("{login} lacks letters a clone's user needs (g, o, C, 4, w): no run is carried out by it"));
    }
    if !CLONING.iter().all(|letter| held.holds(*letter)) {
        log.push(format!("{user} lacks g or o: the clone of a run's workspace will fail"));
    }
    Ok(log)
}

fn password() -> Result<String, String> {
    let mut bytes = [0; PASSWORD_BYTES];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    match filled {
        Ok(PASSWORD_BYTES) => Ok(bytes.iter().map(|byte| format!("{byte:02x}")).collect()),
        Ok(_) | Err(_) => Err("no random bytes for a password".to_owned()),
    }
}

fn kept(error: io::Error) -> String {
    format!("approvals: {error}")
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    const CODE: &str = "0123456789012345678901234567890123456789";

    fn pairing(user: &str, login: &str, clone: &str) -> Pairing {
        Pairing {
            user: Login::new(user).unwrap(),
            login: Login::new(login).unwrap(),
            clone: CloneCode::new(clone).unwrap(),
        }
    }

    #[test]
    fn passwords_are_32_random_bytes() {
        let one = password().unwrap();
        assert!(one.len() == 64 && one.bytes().all(|byte| byte.is_ascii_hexdigit()));
        assert_ne!(one, password().unwrap());
    }

    #[test]
    fn the_last_pair_takes_the_user_along() {
        let pair = |login: &str| Pair { login: login.into(), clone: CODE.into() };
        let clones = vec![pair("lab-1"), pair("lab-2")];
        let approval = Approval { password: "x".into(), clones, by: "root".into(), at: String::new() };
        let mut approvals = Approvals { users: [("builder".to_owned(), approval)].into() };
        assert_eq!(without(&mut approvals, &pairing("builder", "lab-3", CODE)), None);
        assert_eq!(without(&mut approvals, &pairing("other", "lab-1", CODE)), None);
        assert_eq!(without(&mut approvals, &pairing("builder", "lab-1", CODE)), Some(vec![pair("lab-2")]));
        assert_eq!(without(&mut approvals, &pairing("builder", "lab-2", CODE)), Some(vec![]));
        assert!(approvals.users.is_empty());
    }
}

//! A server as a tool on its own host finds it: the repository's file, and the account that serves it.
//!
//! What the extension reads must be that account's. Root becomes it for good before it touches anything: the folder is
//! that account's own, which could put a link where root would write.

use std::fs;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{Gid, Uid};
use rustix::process::{getegid, geteuid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};

use super::repository;

/// A repository, by a process of the account that owns its file.
#[derive(Debug)]
pub struct OnHost {
    repository: PathBuf,
    by: String,
}

impl OnHost {
    /// The server whose repository is `file`. When this is root and the file another account's, the calling thread
    /// becomes that account, and cannot come back: the program must have no other thread, and do nothing else after.
    ///
    /// # Errors
    /// In words for a person: the file is no repository, or this account is neither its owner nor root.
    pub fn at(file: &Path) -> Result<Self, String> {
        let named = |error: std::io::Error| format!("{}: {error}", file.display());
        let repository = fs::canonicalize(file).map_err(named)?;
        let about = fs::metadata(&repository).map_err(named)?;
        if !about.is_file() {
            return Err(format!("{} is no file; name the server's repository, NAME.fossil", file.display()));
        }
        let by = account_name(geteuid());
        let (owner, group) = (Uid::from_raw(about.uid()), Gid::from_raw(about.gid()));
        if geteuid() != owner {
            if !geteuid().is_root() {
                let why = "so what is kept for it must be that account's: run this as that account, or as root";
                return Err(format!("{} is served by {}, {why}", file.display(), account_name(owner)));
            }
            become_account(owner, group).map_err(|why| format!("could not become {}: {why}", account_name(owner)))?;
        }
        let is_repository = repository::open(&repository).ok().and_then(|db| repository::project_code(&db).ok());
        if is_repository.is_none() {
            return Err(format!(
                "{} is no Fossil repository, or {} may not write it",
                file.display(),
                account_name(owner)
            ));
        }
        Ok(Self { repository, by })
    }

    /// The repository's file.
    #[must_use]
    pub fn repository(&self) -> &Path {
        &self.repository
    }

    /// The host account that called.
    #[must_use]
    pub fn by(&self) -> &str {
        &self.by
    }
}

/// For good: real, effective and saved ids, without other groups. Ids are a thread's own for the kernel, and this is
/// the only thread.
fn become_account(uid: Uid, gid: Gid) -> Result<(), String> {
    let threads = fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads != 1 {
        return Err(format!("{threads} threads, where there must be one"));
    }
    set_thread_groups(&[])
        .and_then(|()| set_thread_res_gid(gid, gid, gid))
        .and_then(|()| set_thread_res_uid(uid, uid, uid))
        .map_err(|error| error.to_string())?;
    if geteuid() != uid || getegid() != gid || set_thread_res_uid(Uid::ROOT, Uid::ROOT, Uid::ROOT).is_ok() {
        return Err("the ids did not hold".to_owned());
    }
    Ok(())
}

/// An account by its name in `/etc/passwd`, else by its number.
fn account_name(uid: Uid) -> String {
    let accounts = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = accounts.lines().find_map(|line| {
        let mut fields = line.split(':');
        let name = fields.next()?;
        (fields.nth(1)? == uid.as_raw().to_string()).then(|| name.to_owned())
    });
    name.unwrap_or_else(|| format!("uid {}", uid.as_raw()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn accounts_are_told_by_name() {
        assert_eq!(account_name(Uid::ROOT), "root");
        assert_eq!(account_name(Uid::from_raw(4_000_000_001)), "uid 4000000001");
    }

    #[test]
    fn what_is_no_repository_is_told() {
        let told = |path: &str| OnHost::at(Path::new(path)).map(drop).err().unwrap_or_default();
        assert!(told("/no/such.fossil").contains("/no/such.fossil"));
        assert!(told("/").contains("no file"));
        let file = std::env::temp_dir().join(format!("ocx-test-on-host-{}", std::process::id()));
        drop(fs::write(&file, "not a database"));
        assert!(told(&file.display().to_string()).contains("no Fossil repository"));
        drop(fs::remove_file(&file));
    }
}

//! The files of a host that stopped in the middle, as its disk had them.
//!
//! Programs built with failpoints keep, beside each file, its bytes as of its last fsync and each folder's names as of
//! its last fsync (`supervisor::points`). What they do not keep is not covered: the clone (SQLite's own durability), the
//! logs, the workspaces.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

/// What a disk may have made of writes that nobody waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Disk {
    /// None of them: each folder has the names, and each file the bytes, of its last fsync.
    Oldest,
    /// The names, and none of the bytes: what was renamed without an fsync is there, and empty.
    Torn,
}

/// Puts the files below `ROOT` back to what the disk had.
pub(crate) fn restore(points: &Path, disk: Disk) {
    let shadow = points.join("shadow");
    let mut again = BTreeMap::new();
    for listing in fs::read_dir(shadow.join("folders")).into_iter().flatten().flatten() {
        let name = listing.file_name().into_string().unwrap();
        if name.ends_with(".new") {
            continue;
        }
        let folder = PathBuf::from(name.replace('%', "/"));
        let text = fs::read_to_string(listing.path()).unwrap();
        let names = match disk {
            Disk::Oldest => names(&text),
            Disk::Torn => now(&folder),
        };
        let bytes = |inode: &u64| fs::read(shadow.join("files").join(inode.to_string())).unwrap_or_default();
        let files: BTreeMap<String, Vec<u8>> = names.iter().map(|(name, inode)| (name.clone(), bytes(inode))).collect();
        again.insert(folder, files);
    }
    fs::remove_dir_all(&shadow).unwrap();
    make(points);
    for (folder, files) in again {
        for (name, _) in now(&folder) {
            fs::remove_file(folder.join(name)).unwrap();
        }
        let owner = fs::metadata(&folder).unwrap();
        for (name, bytes) in files {
            let path = folder.join(name);
            fs::write(&path, bytes).unwrap();
            chown(&path, Some(owner.uid()), Some(owner.gid())).unwrap();
        }
        // What was put back is what the disk has.
        remember(points, &folder);
    }
}

/// Makes the folder both programs write their records in, each as its own account.
pub(crate) fn make(points: &Path) {
    for made in ["shadow", "shadow/files", "shadow/folders"] {
        let path = points.join(made);
        fs::create_dir(&path).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
    }
}

/// What is in a folder now is on the disk.
pub(crate) fn remember(points: &Path, folder: &Path) {
    let shadow = points.join("shadow");
    let mut text = String::new();
    for (name, inode) in now(folder) {
        let to = shadow.join("files").join(inode.to_string());
        fs::remove_file(&to).unwrap_or(());
        fs::copy(folder.join(&name), &to).unwrap();
        text.push_str(&format!("{name} {inode}\n"));
    }
    let listing = shadow.join("folders").join(folder.to_string_lossy().replace('/', "%"));
    fs::write(&listing, text).unwrap();
}

fn names(listing: &str) -> Vec<(String, u64)> {
    let one = |line: &str| line.rsplit_once(' ').map(|(name, inode)| (name.to_owned(), inode.parse().unwrap()));
    listing.lines().filter_map(one).collect()
}

/// The files in a folder, with their inodes.
fn now(folder: &Path) -> Vec<(String, u64)> {
    let mut found = Vec::new();
    for entry in fs::read_dir(folder).into_iter().flatten().flatten() {
        if entry.file_type().unwrap().is_file() {
            found.push((entry.file_name().into_string().unwrap(), entry.metadata().unwrap().ino()));
        }
    }
    found
}

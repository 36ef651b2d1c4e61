//! Failpoints of a test build: what is in `ROOT/state/points`, and what is recorded there.
//!
//! | Name | Holds |
//! |---|---|
//! | `armed` | the point to stop at; claimed by renaming it to `fired` |
//! | `broken` | rules taken away, a word a line |
//! | `waits` | `NAME MILLISECONDS` a line |
//! | `boot` | the boot's id |
//! | `shadow/files/INODE` | what the disk has of a file: its bytes as of its last fsync |
//! | `shadow/folders/…` | what the disk has of a folder: `NAME INODE` a line, as of its last fsync |

use std::fs;
use std::os::fd::{AsFd, AsRawFd as _};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;
use std::time::Duration;

use super::{Effect, Moment, Point};

static FOLDER: OnceLock<PathBuf> = OnceLock::new();

/// Where `ROOT` is.
pub fn begin(root: &Path) {
    drop(FOLDER.set(root.join("state/points")));
}

fn folder() -> Option<&'static PathBuf> {
    FOLDER.get()
}

fn read(name: &str) -> Option<String> {
    fs::read_to_string(folder()?.join(name)).ok()
}

/// A moment of an effect is reached: stops here if it is the one named.
pub fn reach<E: Effect>(effect: E, moment: Moment) {
    let point = Point::of(effect, moment).to_string();
    if read("armed").is_none_or(|armed| armed.trim() != point) {
        return;
    }
    let Some(folder) = folder() else { return };
    // Of several that reach it, one claims it.
    if fs::rename(folder.join("armed"), folder.join("fired")).is_ok() {
        // To this very thread: it goes no further until it is continued.
        let _always_allowed = nix::sys::signal::raise(nix::sys::signal::Signal::SIGSTOP);
    }
}

/// Whether a test has taken this rule away.
#[must_use]
pub fn broken(rule: &str) -> bool {
    read("broken").is_some_and(|rules| rules.lines().any(|line| line == rule))
}

/// A wait, which a test may have made shorter.
#[must_use]
pub fn wait(name: &str, wait: Duration) -> Duration {
    let shorter = read("waits").and_then(|waits| {
        waits.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok()).map(Duration::from_millis)
    });
    shorter.unwrap_or(wait)
}

/// The id of this boot.
#[must_use]
pub fn boot(id: String) -> String {
    read("boot").unwrap_or(id)
}

fn path_of(fd: impl AsFd) -> Option<PathBuf> {
    fs::read_link(format!("/proc/self/fd/{}", fd.as_fd().as_raw_fd())).ok()
}

/// A file is made, or emptied to be written anew: what is kept is of one that had its number before.
pub fn opened(file: impl AsFd) {
    if let (Some(folder), Ok(about)) = (folder(), rustix::fs::fstat(&file)) {
        drop(fs::remove_file(folder.join("shadow/files").join(about.st_ino.to_string())));
    }
}

/// A file's bytes are on the disk: they are kept as they are now.
pub fn synced(file: impl AsFd) {
    let Some(shadow) = folder().map(|it| it.join("shadow/files")) else { return };
    let Ok(about) = rustix::fs::fstat(&file) else { return };
    let Some(path) = path_of(&file) else { return };
    if fs::create_dir_all(&shadow).is_ok() {
        let kept = shadow.join(about.st_ino.to_string());
        // Of a file that had this number before, perhaps another account's.
        drop(fs::remove_file(&kept));
        drop(fs::copy(path, kept));
    }
}

/// A folder's names are on the disk: they are kept as they are now.
pub fn names_synced(names: impl AsFd) {
    let Some(shadow) = folder().map(|it| it.join("shadow/folders")) else { return };
    let Some(path) = path_of(&names) else { return };
    let mut listing = String::new();
    for entry in fs::read_dir(&path).into_iter().flatten().flatten() {
        use std::os::unix::fs::DirEntryExt as _;
        if entry.file_type().is_ok_and(|kind| kind.is_file()) {
            listing.push_str(&format!("{} {}\n", entry.file_name().to_string_lossy(), entry.ino()));
        }
    }
    if fs::create_dir_all(&shadow).is_ok() {
        let name = path.to_string_lossy().replace('/', "%");
        // Whole or not at all: the other process may be stopped in the middle.
        let new = shadow.join(format!("{name}.new"));
        if fs::write(&new, listing).is_ok() {
            drop(fs::rename(new, shadow.join(name)));
        }
    }
}

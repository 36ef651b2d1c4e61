//! Files below `ROOT/state`, where anything may stand in a file's place: nothing here follows a link or waits on a pipe,
//! and what is in the way is named, with what to do about it.

use std::collections::BTreeSet;
use std::fs::{self, File, FileType};
use std::io::{self, Read as _};
use std::os::unix::fs::FileTypeExt as _;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use rustix::fs::{Mode, OFlags};

/// Most files of which [`Once`] remembers that it was said.
const SAID_MAX: usize = 1024;
/// Mode of what is made: the folder above is nobody else's.
const MODE: Mode = Mode::from_raw_mode(0o600);

fn named(path: &Path, error: impl Into<io::Error>) -> io::Error {
    let error = error.into();
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

fn in_the_way(path: &Path, kind: FileType) -> io::Error {
    let what = match kind {
        it if it.is_dir() => "a directory",
        it if it.is_fifo() => "a pipe",
        it if it.is_socket() => "a socket",
        it if it.is_symlink() => "a link",
        it if it.is_char_device() || it.is_block_device() => "a device",
        _ => "something else",
    };
    io::Error::other(format!("{}: {what} is in its place; move it away", path.display()))
}

/// Looks before it is opened: opening alone waits for a pipe's other end, and has a device do something.
fn is_file(path: &Path) -> io::Result<()> {
    match fs::symlink_metadata(path) {
        Ok(about) if about.is_file() => Ok(()),
        Ok(about) => Err(in_the_way(path, about.file_type())),
        Err(error) => Err(error),
    }
}

fn open(path: &Path, flags: OFlags) -> io::Result<File> {
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY;
    let file = File::from(rustix::fs::open(path, flags, MODE)?);
    match file.metadata()?.file_type() {
        kind if kind.is_file() => Ok(file),
        kind => Err(in_the_way(path, kind)),
    }
}

/// Reads a regular file, which is at most so large.
///
/// # Errors
/// As the calls fail, with its path. One that is not there is `NotFound`.
pub fn read(path: &Path, bytes_max: u64) -> io::Result<Vec<u8>> {
    is_file(path)?;
    let mut bytes = Vec::new();
    open(path, OFlags::RDONLY)
        .and_then(|file| file.take(bytes_max + 1).read_to_end(&mut bytes))
        .map_err(|error| named(path, error))?;
    if u64::try_from(bytes.len()).unwrap_or(u64::MAX) > bytes_max {
        return Err(named(path, io::Error::other(format!("larger than {bytes_max} bytes"))));
    }
    Ok(bytes)
}

/// Makes a new file in place of what is there.
///
/// # Errors
/// As the calls fail, with its path; a directory stays.
pub fn make(path: &Path) -> io::Result<File> {
    remove(path)?;
    open(path, OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL).map_err(|error| named(path, error))
}

/// Opens a file to add to its end, making it if there is none.
///
/// # Errors
/// As the calls fail, with its path.
pub fn append(path: &Path) -> io::Result<File> {
    match is_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => {
            open(path, OFlags::WRONLY | OFlags::APPEND | OFlags::CREATE).map_err(|error| named(path, error))
        }
    }
}

/// Opens a file to read and to write, making it if there is none.
///
/// # Errors
/// As the calls fail, with its path.
pub fn update(path: &Path) -> io::Result<File> {
    match is_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        Ok(()) | Err(_) => open(path, OFlags::RDWR | OFlags::CREATE).map_err(|error| named(path, error)),
    }
}

/// Removes what is there, of whatever kind but a directory; it being gone already is as good.
///
/// # Errors
/// As `unlink(2)` fails, with its path.
pub fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Ok(()) => Ok(()),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(is_file(path).err().unwrap_or_else(|| named(path, error))),
    }
}

/// Renames a file over another.
///
/// # Errors
/// As `rename(2)` fails, with the new name's path.
pub fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to).map_err(|error| match is_file(to) {
        Err(why) if error.kind() == io::ErrorKind::IsADirectory => why,
        Ok(()) | Err(_) => named(to, error),
    })
}

/// Makes a folder, unless there is one.
///
/// # Errors
/// As `mkdir(2)` fails, with its path.
pub fn folder(path: &Path) -> io::Result<()> {
    fs::create_dir_all(path).map_err(|error| match fs::symlink_metadata(path) {
        Ok(about) if about.is_file() => named(path, io::Error::other("a file is in its place; move it away")),
        Ok(about) if !about.is_dir() => in_the_way(path, about.file_type()),
        Ok(_) | Err(_) => named(path, error),
    })
}

/// Faults of files that nothing waits for: each one's is said once, in the node's log.
#[derive(Debug, Clone, Default)]
pub struct Once(Arc<Mutex<BTreeSet<PathBuf>>>);

impl Once {
    /// Says that this file could not be written.
    pub fn say(&self, path: &Path, error: &io::Error) {
        let mut said = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if said.len() < SAID_MAX && said.insert(path.to_owned()) {
            super::log::say(&format!("node: {error}; until then nothing is written there, and nothing waits for it"));
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    /// What may stand in a file's place: how it comes there, and its word.
    type Other = (&'static str, fn(&Path));

    const OTHERS: [Other; 4] = [
        ("a directory", |at| fs::create_dir(at).unwrap()),
        ("a pipe", |at| rustix::fs::mkfifoat(rustix::fs::CWD, at, MODE).unwrap()),
        ("a socket", |at| drop(std::os::unix::net::UnixListener::bind(at).unwrap())),
        ("a link", |at| std::os::unix::fs::symlink("/etc/passwd", at).unwrap()),
    ];

    /// Not even a look at it waits; devices, which only root makes, are met in the crash suite.
    #[test]
    fn p6_what_is_no_file_is_named_with_what_to_do_and_only_a_directory_stays() {
        let folder = std::env::temp_dir().join(format!("ocx-files-{}", std::process::id()));
        fs::create_dir(&folder).unwrap();
        let at = folder.join("it");
        for (word, stand) in OTHERS {
            stand(&at);
            let says = format!("{}: {word} is in its place; move it away", at.display());
            for why in [read(&at, 9).unwrap_err(), append(&at).unwrap_err(), update(&at).unwrap_err()] {
                assert_eq!(why.to_string(), says);
            }
            let new = folder.join("new");
            fs::write(&new, "new").unwrap();
            if word == "a directory" {
                for why in [make(&at).unwrap_err(), remove(&at).unwrap_err(), rename(&new, &at).unwrap_err()] {
                    assert_eq!(why.to_string(), says);
                }
                fs::remove_dir(&at).unwrap();
                continue;
            }
            let made = make(&at).unwrap();
            assert_eq!((read(&at, 9).unwrap(), made.metadata().unwrap().len()), (Vec::new(), 0), "{word}");
            remove(&at).unwrap();
            stand(&at);
            rename(&new, &at).unwrap();
            assert_eq!(read(&at, 9).unwrap(), b"new", "{word}");
            remove(&at).unwrap();
        }
        assert_eq!(read(&at, 9).unwrap_err().kind(), io::ErrorKind::NotFound);
        remove(&at).unwrap();
        fs::write(&at, "0123456789").unwrap();
        assert!(read(&at, 9).unwrap_err().to_string().ends_with("larger than 9 bytes"));
        super::folder(&folder).unwrap();
        assert!(super::folder(&at).unwrap_err().to_string().ends_with("a file is in its place; move it away"));
        fs::remove_dir_all(&folder).unwrap();
    }
}

//! Files that are whole or not there, whenever the machine stops (write, fsync, rename, fsync of the directory).

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, Mode, OFlags, openat, renameat, unlinkat};
use supervisor::points::{self, Effect, Made, Moment, reach};

/// Writes the file `name` of `directory` whole, mode 0600. `effect` says which write of ours it is.
///
/// # Errors
/// As the calls fail; the old file is then still there, or the new one, and never a part of one.
pub(crate) fn replace(directory: BorrowedFd<'_>, name: &str, bytes: &[u8], effect: impl Effect) -> io::Result<()> {
    // A late write only makes a later message more exact: nothing waits for the disk.
    let now = effect.made() != Made::LateWrite;
    reach(effect, Moment::Before);
    let new = format!("{name}.new");
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut file = File::from(openat(directory, &new, flags, Mode::RUSR | Mode::WUSR)?);
    points::opened(&file);
    file.write_all(bytes)?;
    reach(effect, Moment::Written);
    if now {
        file.sync_all()?;
        points::synced(&file);
        reach(effect, Moment::Synced);
    }
    renameat(directory, &new, directory, name)?;
    reach(effect, Moment::Renamed);
    if now {
        rustix::fs::fsync(directory)?;
        points::names_synced(directory);
        reach(effect, Moment::Lasting);
    }
    Ok(())
}

/// Removes the file `name` of `directory`; it being gone already is as good.
///
/// # Errors
/// As `unlinkat(2)` and `fsync(2)` fail.
pub(crate) fn remove(directory: BorrowedFd<'_>, name: &str, effect: impl Effect) -> io::Result<()> {
    reach(effect, Moment::Before);
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(rustix::io::Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    reach(effect, Moment::Renamed);
    rustix::fs::fsync(directory)?;
    points::names_synced(directory);
    reach(effect, Moment::Lasting);
    Ok(())
}

/// Reads the regular file `name` of `directory`, which is at most so large. Follows no link and waits on no pipe.
///
/// # Errors
/// As the calls fail, or when it is no regular file, or larger.
pub(crate) fn read(directory: BorrowedFd<'_>, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(openat(directory, name, flags, Mode::empty())?);
    let about = file.metadata()?;
    if !about.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    let mut bytes = Vec::new();
    let read = file.take(bytes_max + 1).read_to_end(&mut bytes)?;
    if u64::try_from(read).unwrap_or(u64::MAX) > bytes_max {
        return Err(io::Error::other(format!("larger than {bytes_max} bytes")));
    }
    Ok(bytes)
}

/// Opens a directory, following no link at its end.
///
/// # Errors
/// As `open(2)` fails.
pub(crate) fn directory(path: &std::path::Path) -> io::Result<std::os::fd::OwnedFd> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    Ok(rustix::fs::open(path, flags, Mode::empty())?)
}

/// The names in a directory, at most so many.
///
/// # Errors
/// As `getdents(2)` fails, or when there are more.
pub(crate) fn names(directory: impl AsFd, most: usize) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in rustix::fs::Dir::read_from(directory)? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        if name != "." && name != ".." {
            names.push(name);
        }
        if names.len() > most {
            return Err(io::Error::other(format!("more than {most} names in it")));
        }
    }
    Ok(names)
}

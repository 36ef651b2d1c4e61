//! Files that are whole or not there, whenever the machine stops (write, fsync, rename, fsync of the directory).

use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, renameat, statat, unlinkat};
use rustix::io::Errno;
use supervisor::points::{self, Effect, Made, Moment, reach};

/// Writes the file `name` of `directory` whole, mode 0600. `effect` says which write of ours it is.
///
/// # Errors
/// As the calls fail, a directory in the file's place said as [`in_the_way`] says it; the old file is then still there,
/// or the new one, and never a part of one.
pub(crate) fn replace(directory: BorrowedFd<'_>, name: &str, bytes: &[u8], effect: impl Effect) -> io::Result<()> {
    // A late write only makes a later message more exact: nothing waits for the disk.
    let now = effect.made() != Made::LateWrite;
    reach(effect, Moment::Before);
    let new = format!("{name}.new");
    // What has the new file's name is removed and not opened: a pipe would be waited on, a link followed.
    unlink(directory, &new)?;
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut file = File::from(openat(directory, &new, flags, Mode::RUSR | Mode::WUSR)?);
    points::opened(&file);
    file.write_all(bytes)?;
    reach(effect, Moment::Written);
    if now {
        file.sync_all()?;
        points::synced(&file);
        reach(effect, Moment::Synced);
    }
    match renameat(directory, &new, directory, name) {
        Err(Errno::ISDIR) => return Err(in_the_way(name, FileType::Directory)),
        done => done?,
    }
    reach(effect, Moment::Renamed);
    if now {
        rustix::fs::fsync(directory)?;
        points::names_synced(directory);
        reach(effect, Moment::Lasting);
    }
    Ok(())
}

/// Removes what is named `name` in `directory`, of whatever kind but a directory; it being gone already is as good.
fn unlink(directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match unlinkat(directory, name, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => Ok(()),
        Err(Errno::ISDIR) => Err(in_the_way(name, FileType::Directory)),
        Err(errno) => Err(errno.into()),
    }
}

/// Removes the file `name` of `directory`; it being gone already is as good.
///
/// # Errors
/// As `unlinkat(2)` and `fsync(2)` fail, a directory in its place said as [`in_the_way`] says it.
pub(crate) fn remove(directory: BorrowedFd<'_>, name: &str, effect: impl Effect) -> io::Result<()> {
    reach(effect, Moment::Before);
    unlink(directory, name)?;
    reach(effect, Moment::Renamed);
    rustix::fs::fsync(directory)?;
    points::names_synced(directory);
    reach(effect, Moment::Lasting);
    Ok(())
}

/// That something that is no file of ours stands where one is to be, and what to do.
fn in_the_way(name: &str, kind: FileType) -> io::Error {
    let what = match kind {
        FileType::Directory => "a directory",
        FileType::Fifo => "a pipe",
        FileType::Socket => "a socket",
        FileType::Symlink => "a link",
        FileType::CharacterDevice | FileType::BlockDevice => "a device",
        FileType::RegularFile | FileType::Unknown => "something else",
    };
    io::Error::other(format!("{what} is in the place of {name}; move it away"))
}

/// Looks whether `name` in `directory` is a regular file or not there, before it is opened: opening alone waits for a
/// pipe's other end, follows a link, and has a device do something.
///
/// # Errors
/// As [`in_the_way`] says it when it is anything else.
pub(crate) fn is_file(directory: BorrowedFd<'_>, name: &str) -> io::Result<()> {
    match statat(directory, name, AtFlags::SYMLINK_NOFOLLOW).map(|it| FileType::from_raw_mode(it.st_mode)) {
        Ok(FileType::RegularFile) | Err(Errno::NOENT) => Ok(()),
        Ok(kind) => Err(in_the_way(name, kind)),
        Err(errno) => Err(errno.into()),
    }
}

/// Reads the regular file `name` of `directory`, which is at most so large. Follows no link and waits on no pipe.
///
/// # Errors
/// As the calls fail, or when it is no regular file, or larger.
pub(crate) fn read(directory: BorrowedFd<'_>, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
    is_file(directory, name)?;
    let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOFOLLOW | OFlags::NONBLOCK;
    let file = File::from(openat(directory, name, flags, Mode::empty())?);
    if !file.metadata()?.is_file() {
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

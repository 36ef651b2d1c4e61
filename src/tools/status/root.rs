//! Reading below `ROOT`: what the node's account owns may be anything, so no link is followed, nothing blocks, and every
//! size is bounded.

use std::fs::File;
use std::io::{self, BufRead as _, Read as _, Seek as _, SeekFrom};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use rustix::fs::{Dir, FileType, FlockOperation, Mode, OFlags, ResolveFlags};

/// Most names read of one folder. A host with more runs than that is told of in part.
const NAMES_MAX: usize = 1 << 16;

/// `ROOT`, opened.
#[derive(Debug)]
pub(super) struct Root {
    path: PathBuf,
    fd: OwnedFd,
}

impl Root {
    /// Opens it.
    ///
    /// # Errors
    /// As `openat(2)` fails, in words.
    pub(super) fn open(path: &Path) -> Result<Self, String> {
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let fd = rustix::fs::open(path, flags, Mode::empty()).map_err(|error| match error {
            rustix::io::Errno::NOENT => format!(
                "{}: there is none: the service was never installed here, or stands elsewhere (--root DIR)",
                path.display()
            ),
            other => format!("{}: {other}", path.display()),
        })?;
        Ok(Self { path: path.to_owned(), fd })
    }

    /// Its path.
    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    fn open_below(&self, name: &str, flags: OFlags) -> io::Result<OwnedFd> {
        // openat2(2) takes no other flags beside O_PATH, which opens nothing that could be waited on.
        let unless_path = OFlags::NONBLOCK | OFlags::NOCTTY;
        let flags = flags | OFlags::CLOEXEC | if flags.contains(OFlags::PATH) { OFlags::empty() } else { unless_path };
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS | ResolveFlags::NO_MAGICLINKS;
        Ok(rustix::fs::openat2(&self.fd, name, flags, Mode::empty(), resolve)?)
    }

    fn file(&self, name: &str) -> io::Result<File> {
        let file = File::from(self.open_below(name, OFlags::RDONLY)?);
        if file.metadata()?.is_file() { Ok(file) } else { Err(io::Error::other("not a regular file")) }
    }

    /// A regular file, whole.
    ///
    /// # Errors
    /// As the calls fail; when it is another kind of file, or larger than so many bytes.
    pub(super) fn read(&self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut bytes = Vec::new();
        self.file(name)?.take(bytes_max + 1).read_to_end(&mut bytes)?;
        if u64::try_from(bytes.len()).is_ok_and(|it| it <= bytes_max) {
            Ok(bytes)
        } else {
            Err(io::Error::other(format!("larger than {bytes_max} bytes")))
        }
    }

    /// The last so many bytes of a regular file.
    ///
    /// # Errors
    /// As [`Root::read`], but for the size.
    pub(super) fn read_end(&self, name: &str, bytes_max: u64) -> io::Result<Vec<u8>> {
        let mut file = self.file(name)?;
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(bytes_max)))?;
        let mut bytes = Vec::new();
        file.take(bytes_max).read_to_end(&mut bytes)?;
        Ok(bytes)
    }

    /// Each line of a regular file, so long at most; what is longer comes in pieces.
    ///
    /// # Errors
    /// As [`Root::read`], but for the size.
    pub(super) fn lines(&self, name: &str, bytes_max: usize, mut each: impl FnMut(&[u8])) -> io::Result<()> {
        let mut reader = io::BufReader::new(self.file(name)?);
        let limit = u64::try_from(bytes_max).unwrap_or(u64::MAX);
        let mut line = Vec::new();
        while (&mut reader).take(limit).read_until(b'\n', &mut line)? > 0 {
            each(&line);
            line.clear();
        }
        Ok(())
    }

    /// When a file was last written, in seconds since 1970.
    pub(super) fn modified(&self, name: &str) -> Option<std::time::SystemTime> {
        self.file(name).ok()?.metadata().ok()?.modified().ok()
    }

    /// Whether something stands there, of whatever kind.
    pub(super) fn exists(&self, name: &str) -> bool {
        self.open_below(name, OFlags::PATH).is_ok()
    }

    /// The names in a folder, in order; none when it is not there.
    ///
    /// # Errors
    /// As the calls fail.
    pub(super) fn names(&self, name: &str) -> io::Result<Vec<String>> {
        let folder = match self.open_below(name, OFlags::RDONLY | OFlags::DIRECTORY) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut names = Vec::new();
        for entry in Dir::new(folder)? {
            let entry = entry?;
            if names.len() >= NAMES_MAX {
                break;
            }
            if let Ok(name) = entry.file_name().to_str()
                && entry.file_type() != FileType::Directory
            {
                names.push(name.to_owned());
            }
        }
        names.sort();
        Ok(names)
    }

    /// Whether someone holds the lock on a file. It is tried for less than a moment; who takes it tries more than once.
    ///
    /// # Errors
    /// As the calls fail.
    pub(super) fn is_locked(&self, name: &str) -> io::Result<bool> {
        let file = self.file(name)?;
        match rustix::fs::flock(&file, FlockOperation::NonBlockingLockShared) {
            Ok(()) => Ok(false),
            Err(rustix::io::Errno::AGAIN) => Ok(true),
            Err(error) => Err(error.into()),
        }
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    /// The node's account may put anything there: nothing outside is read, nothing blocks.
    #[test]
    fn what_stands_there_of_whatever_kind_exists() {
        let path = std::env::temp_dir().join(format!("ocx-status-exists-{}", std::process::id()));
        std::fs::create_dir_all(path.join("folder")).unwrap();
        std::fs::write(path.join("file"), "").unwrap();
        std::os::unix::fs::symlink("file", path.join("link")).unwrap();
        let root = Root::open(&path).unwrap();
        assert!(root.exists("folder") && root.exists("file"));
        assert!(!root.exists("none") && !root.exists("link") && !root.exists("../x"));
        std::fs::remove_dir_all(path).unwrap();
    }

    #[test]
    fn links_pipes_and_huge_files_are_refused_and_a_plain_file_is_read() {
        let path = std::env::temp_dir().join(format!("ocx-status-root-{}", std::process::id()));
        std::fs::create_dir_all(path.join("state/runs")).unwrap();
        let root = Root::open(&path).unwrap();
        std::fs::write(path.join("state/plain"), "text").unwrap();
        std::os::unix::fs::symlink("/etc/passwd", path.join("state/link")).unwrap();
        std::os::unix::fs::symlink("/etc", path.join("state/lanes")).unwrap();
        let fifo = path.join("state/fifo");
        rustix::fs::mknodat(rustix::fs::CWD, fifo, FileType::Fifo, Mode::RUSR, 0).unwrap();
        std::fs::write(path.join("state/huge"), vec![b'x'; 65]).unwrap();
        assert_eq!(root.read("state/plain", 64).unwrap(), b"text");
        for name in ["state/link", "state/lanes/passwd", "state/fifo", "state/huge", "state/runs", "../etc/passwd"] {
            assert!(root.read(name, 64).is_err(), "{name}");
        }
        assert_eq!(root.read_end("state/huge", 3).unwrap(), b"xxx");
        assert!(root.names("state/lanes").is_err());
        assert_eq!(root.names("state/none").unwrap(), Vec::<String>::new());
        std::fs::remove_dir_all(path).unwrap();
    }
}

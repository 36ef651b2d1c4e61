//! Files of OCX's own beside a server's repository, in the folder `ocx`: written whole, by rename, under a lock.
//!
//! What the folder holds is another account's where root looks, so no link is followed in it.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{FlockOperation, OFlags, flock};

/// Longest wait for another's write.
pub(super) const LOCK_WAIT: Duration = Duration::from_secs(5);
const LOCK_AGAIN: Duration = Duration::from_millis(20);

/// The folder `ocx` of a server, or one in it.
#[derive(Debug)]
pub(super) struct Folder(PathBuf);

/// A lock held; the file stays, as removing it would let two callers hold two locks.
#[derive(Debug)]
pub(super) struct Lock(#[expect(dead_code, reason = "closing it gives the lock back")] File);

/// A file written and synced under another name. Published, it is the file; dropped, it is gone.
#[derive(Debug)]
pub(super) struct Draft<'a> {
    folder: &'a Folder,
    part: PathBuf,
    file: PathBuf,
}

impl Folder {
    /// The folder beside `repository`, made when it is not there. A link to a repository is one name of it more: what
    /// is kept stands beside the file itself.
    pub(super) fn beside(repository: &Path) -> io::Result<Self> {
        let file = fs::canonicalize(repository).map_err(|error| named(repository, error))?;
        Self::made(file.parent().unwrap_or(Path::new("/")).join("ocx"))
    }

    /// A folder in this one.
    pub(super) fn within(&self, name: &str) -> io::Result<Self> {
        Self::made(self.0.join(name))
    }

    fn made(path: PathBuf) -> io::Result<Self> {
        match DirBuilder::new().mode(0o700).create(&path) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(named(&path, error)),
            _ if fs::symlink_metadata(&path).is_ok_and(|it| it.is_dir()) => Ok(Self(path)),
            _ => Err(io::Error::other(format!("{} is no folder", path.display()))),
        }
    }

    /// A file of it, for words.
    pub(super) fn file(&self, name: &str) -> PathBuf {
        self.0.join(name)
    }

    /// Waits for the lock `name`, [`LOCK_WAIT`] at most.
    pub(super) fn lock(&self, name: &str) -> io::Result<Lock> {
        let path = self.0.join(name);
        let mut options = OpenOptions::new();
        let lock = self::options(options.write(true).create(true).truncate(false))
            .open(&path)
            .map_err(|it| named(&path, it))?;
        let deadline = Instant::now() + LOCK_WAIT;
        loop {
            match flock(&lock, FlockOperation::NonBlockingLockExclusive) {
                Ok(()) => return Ok(Lock(lock)),
                Err(rustix::io::Errno::WOULDBLOCK) if Instant::now() < deadline => std::thread::sleep(LOCK_AGAIN),
                Err(error) => return Err(named(&path, error.into())),
            }
        }
    }

    /// The bytes of `name`, `most` at most; `None` when there is no such file.
    pub(super) fn read(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        let path = self.0.join(name);
        match self.open(name)? {
            Some(file) => bounded(&file, most).map(Some).map_err(|error| named(&path, error)),
            None => Ok(None),
        }
    }

    /// As [`Self::read`], of a file that holds what others must not know: refused when they could have read it.
    pub(super) fn read_private(&self, name: &str, most: u64) -> io::Result<Option<Vec<u8>>> {
        let path = self.0.join(name);
        let Some(file) = self.open(name)? else { return Ok(None) };
        let about = file.metadata().map_err(|error| named(&path, error))?;
        if about.mode() & 0o077 != 0 || about.uid() != rustix::process::geteuid().as_raw() {
            let why = "others may read or write it: what it holds is no secret any more; it must be the serving account's \
                       own, mode 0600";
            return Err(io::Error::new(io::ErrorKind::PermissionDenied, format!("{}: {why}", path.display())));
        }
        bounded(&file, most).map(Some).map_err(|error| named(&path, error))
    }

    fn open(&self, name: &str) -> io::Result<Option<File>> {
        let path = self.0.join(name);
        let file = match options(OpenOptions::new().read(true)).open(&path) {
            Ok(file) => file,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(named(&path, error)),
        };
        match file.metadata() {
            Ok(about) if about.is_file() => Ok(Some(file)),
            Ok(_) => Err(io::Error::other(format!("{} is no regular file", path.display()))),
            Err(error) => Err(named(&path, error)),
        }
    }

    /// Writes what `name` is to hold, mode 0600, and syncs it; `name` itself is as it was.
    pub(super) fn draft(&self, name: &str, bytes: &[u8]) -> io::Result<Draft<'_>> {
        let draft = Draft { folder: self, part: self.0.join(format!("{name}.part")), file: self.0.join(name) };
        // What a crash left: opened anew, so that neither its mode nor a link in its place matters.
        match fs::remove_file(&draft.part) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(named(&draft.part, error)),
            _ => {}
        }
        let write = || {
            let mut out = options(OpenOptions::new().write(true).create_new(true)).open(&draft.part)?;
            out.write_all(bytes)?;
            out.sync_all()
        };
        write().map_err(|error| named(&draft.part, error))?;
        Ok(draft)
    }

    /// Writes `name` whole: what is read after a crash is the old file or the new one.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) -> io::Result<()> {
        self.draft(name, bytes)?.publish()
    }

    /// Removes `name`; whether it was there.
    pub(super) fn remove(&self, name: &str) -> io::Result<bool> {
        let path = self.0.join(name);
        match fs::remove_file(&path) {
            Ok(()) => self.sync().map(|()| true),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(false),
            Err(error) => Err(named(&path, error)),
        }
    }

    /// Appends `line` to `name`; one that would pass `most` bytes is first turned to `NAME.1`, whose like is gone then.
    /// The caller holds a lock.
    pub(super) fn append(&self, name: &str, line: &str, most: u64) -> io::Result<()> {
        let path = self.0.join(name);
        let append = || {
            let mut out = options(OpenOptions::new().append(true).create(true)).open(&path)?;
            let length = out.metadata()?.len();
            if length > 0 && length.saturating_add(line.len() as u64) > most {
                fs::rename(&path, self.0.join(format!("{name}.1")))?;
                out = options(OpenOptions::new().append(true).create_new(true)).open(&path)?;
            }
            out.write_all(line.as_bytes())?;
            out.sync_data()
        };
        append().map_err(|error| named(&path, error))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.0).and_then(|folder| folder.sync_all()).map_err(|error| named(&self.0, error))
    }
}

impl Draft<'_> {
    /// Puts it in the file's place, durably.
    pub(super) fn publish(self) -> io::Result<()> {
        fs::rename(&self.part, &self.file).map_err(|error| named(&self.file, error))?;
        self.folder.sync()
    }
}

impl Drop for Draft<'_> {
    fn drop(&mut self) {
        // Published, it is not there any more.
        fs::remove_file(&self.part).ok();
    }
}

/// No link is followed, nothing waited for (a fifo), and what is made is for its owner alone.
fn options(options: &mut OpenOptions) -> &mut OpenOptions {
    let flags = OFlags::NOFOLLOW | OFlags::NONBLOCK;
    options.mode(0o600).custom_flags(flags.bits().cast_signed())
}

fn bounded(file: &File, most: u64) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    file.take(most.saturating_add(1)).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > most {
        return Err(io::Error::other(format!("larger than {most} bytes")));
    }
    Ok(bytes)
}

fn named(path: &Path, error: io::Error) -> io::Error {
    io::Error::new(error.kind(), format!("{}: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::*;

    /// A folder beside a file that stands for a repository, in a directory of the test's own.
    fn folder(test: &str) -> (Folder, PathBuf) {
        let dir = std::env::temp_dir().join(format!("ocx-test-kept-{test}-{}", std::process::id()));
        fs::create_dir(&dir).unwrap();
        fs::write(dir.join("x.fossil"), "").unwrap();
        (Folder::beside(&dir.join("x.fossil")).unwrap(), dir)
    }

    #[test]
    fn what_is_written_is_whole_and_its_owners_alone() {
        let (folder, dir) = folder("whole");
        assert_eq!(folder.read_private("a", 9).unwrap(), None);
        folder.write("a", b"one").unwrap();
        let draft = folder.draft("a", b"two").unwrap();
        assert_eq!(folder.read_private("a", 9).unwrap().unwrap(), b"one", "a draft is not the file");
        drop(draft);
        assert!(!folder.file("a.part").exists());
        folder.draft("a", b"two").unwrap().publish().unwrap();
        assert_eq!(folder.read_private("a", 9).unwrap().unwrap(), b"two");
        assert!(folder.read("a", 2).is_err(), "larger than is read");
        let mode = |path: &Path| fs::metadata(path).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode(&folder.file("a")), mode(&folder.0)), (0o600, 0o700));
        assert!(folder.remove("a").unwrap() && !folder.remove("a").unwrap());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_file_that_others_may_read_is_no_private_one() {
        let (folder, dir) = folder("private");
        folder.write("a", b"one").unwrap();
        fs::set_permissions(folder.file("a"), fs::Permissions::from_mode(0o640)).unwrap();
        assert!(folder.read_private("a", 9).unwrap_err().to_string().contains("0600"));
        assert_eq!(folder.read("a", 9).unwrap().unwrap(), b"one", "the control: it is there and can be read");
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn no_link_is_followed() {
        let (folder, dir) = folder("link");
        let victim = dir.join("victim");
        fs::write(&victim, "untouched").unwrap();
        for name in ["a", "a.part", "lock", "log"] {
            symlink(&victim, folder.file(name)).unwrap();
        }
        assert!(folder.read("a", 9).is_err() && folder.lock("lock").is_err() && folder.append("log", "x", 9).is_err());
        folder.write("a", b"new").unwrap();
        assert_eq!(fs::read_to_string(&victim).unwrap(), "untouched");
        assert_eq!(folder.read("a", 9).unwrap().unwrap(), b"new");
        symlink(&folder.0, folder.file("secrets")).unwrap();
        assert!(folder.within("secrets").is_err());
        fs::remove_dir_all(dir).unwrap();
    }

    #[test]
    fn a_log_is_turned_at_its_bound_and_one_is_kept() {
        let (folder, dir) = folder("log");
        for line in ["one\n", "two\n", "three\n", "four\n", "five\n"] {
            folder.append("log", line, 10).unwrap();
        }
        let read = |name: &str| String::from_utf8(folder.read(name, 99).unwrap().unwrap()).unwrap();
        assert_eq!((read("log").as_str(), read("log.1").as_str()), ("four\nfive\n", "three\n"));
        fs::remove_dir_all(dir).unwrap();
    }
}

//! OCX's own files, and whether a host path is, holds or lies within one of them (refusal 7; decisions C-93).
//!
//! What was opened is compared by where it lies in its file system, read from the kernel's own mount table: a second
//! mount of the same files under another name does not hide them.

use std::cell::RefCell;
use std::ffi::CString;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, AsRawFd as _, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, CWD, Mode, OFlags, StatxFlags, openat, readlinkat, statx};

/// Largest mount table read: a few thousand mounts.
const TABLE_BYTES_MAX: u64 = 8 << 20;

/// What an ordinary host's mount table is within.
const TABLE_BYTES_USUAL: usize = 16 << 10;

/// File systems that are the kernel's own controls, or the host's terminals or queues: never shown, whatever the access.
const KERNELS: [&str; 17] = [
    "proc",
    "sysfs",
    "cgroup",
    "cgroup2",
    "debugfs",
    "tracefs",
    "securityfs",
    "devpts",
    "bpf",
    "configfs",
    "pstore",
    "efivarfs",
    "binfmt_misc",
    "selinuxfs",
    "nsfs",
    "fusectl",
    // The host's message queues, which no run sees (2.8).
    "mqueue",
];

/// Where something lies: a file system, and the path in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Place {
    device: String,
    path: PathBuf,
}

impl Place {
    fn within(&self, other: &Self) -> bool {
        self.device == other.device && self.path.starts_with(&other.path)
    }
}

/// When an own file is refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Guard {
    /// In any list.
    Always,
    /// In lists that are read-write: programs and units are anyone's to read, and lie among the host's.
    Writing,
}

#[derive(Debug)]
struct Own {
    path: PathBuf,
    guard: Guard,
}

/// One line of the mount table.
#[derive(Debug, Clone)]
struct Mount {
    id: u64,
    device: String,
    root: PathBuf,
    point: PathBuf,
    kind: String,
}

/// OCX's own files on this host.
#[derive(Debug)]
pub(crate) struct OwnFiles {
    own: Vec<Own>,
    table: RefCell<Table>,
    /// Where each lies, for those that are there: looked at once for all the paths of a plan.
    lie: RefCell<Vec<Option<Place>>>,
}

/// The kernel's mount table, read again when it says that it changed.
#[derive(Debug)]
struct Table {
    file: File,
    mounts: Vec<Mount>,
}

impl Table {
    fn open() -> io::Result<Self> {
        let mut table = Self { file: File::open("/proc/self/mountinfo")?, mounts: Vec::new() };
        table.read()?;
        Ok(table)
    }

    fn read(&mut self) -> io::Result<()> {
        // The kernel writes the whole table again for each read: few large ones.
        let mut bytes = Vec::with_capacity(TABLE_BYTES_USUAL);
        io::Seek::rewind(&mut self.file)?;
        io::Read::read_to_end(&mut io::Read::take(&mut self.file, TABLE_BYTES_MAX), &mut bytes)?;
        let text = String::from_utf8_lossy(&bytes);
        self.mounts = text.lines().filter_map(mount).collect();
        Ok(())
    }

    /// Reads it again if it changed: the file then has an error condition (proc_pid_mountinfo(5)).
    fn refresh(&mut self) -> io::Result<()> {
        let mut asked = [PollFd::new(&self.file, PollFlags::PRI)];
        poll(&mut asked, Some(&Timespec { tv_sec: 0, tv_nsec: 0 }))?;
        let [answer] = asked.map(|it| it.revents());
        if answer.intersects(PollFlags::ERR | PollFlags::PRI) { self.read() } else { Ok(()) }
    }

    fn of(&self, id: u64) -> Option<&Mount> {
        self.mounts.iter().find(|it| it.id == id)
    }
}

/// One line: `36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext3 /dev/root rw`.
fn mount(line: &str) -> Option<Mount> {
    let (front, back) = line.split_once(" - ")?;
    let mut front = front.split(' ');
    let id = front.next()?.parse().ok()?;
    let device = front.nth(1)?.to_owned();
    let (root, point) = (unescaped(front.next()?), unescaped(front.next()?));
    Some(Mount { id, device, root, point, kind: back.split(' ').next()?.to_owned() })
}

/// Space, tab, newline and backslash are written as `\` and three octal digits.
fn unescaped(text: &str) -> PathBuf {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let octal = |it: &u8| it.checked_sub(b'0').filter(|it| *it < 8);
        if let (b'\\', [a, b, c, after @ ..]) = (first, more)
            && let (Some(a), Some(b), Some(c)) = (octal(a), octal(b), octal(c))
        {
            bytes.push((a << 6) | (b << 3) | c);
            rest = after;
            continue;
        }
        bytes.push(*first);
        rest = more;
    }
    PathBuf::from(std::ffi::OsString::from_vec(bytes))
}

/// The path by which the kernel knows what a descriptor names.
///
/// # Errors
/// As `readlink(2)` has them.
pub(crate) fn path_of(fd: BorrowedFd<'_>) -> io::Result<PathBuf> {
    let link = readlinkat(CWD, format!("/proc/self/fd/{}", fd.as_raw_fd()), Vec::new())?;
    Ok(PathBuf::from(std::ffi::OsString::from_vec(CString::into_bytes(link))))
}

/// Opens what a path names, following links, without opening it for anything.
fn at(path: &Path) -> Option<OwnedFd> {
    openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()).ok()
}

impl OwnFiles {
    /// The own files of a service or trial: paths and when each is refused. A path that is not there yet counts from when
    /// it is.
    ///
    /// # Errors
    /// When the mount table cannot be read.
    pub(crate) fn new(paths: impl IntoIterator<Item = (PathBuf, Guard)>) -> io::Result<Self> {
        let own = paths.into_iter().map(|(path, guard)| Own { path, guard }).collect();
        let files = Self { own, table: RefCell::new(Table::open()?), lie: RefCell::default() };
        files.look();
        Ok(files)
    }

    fn look(&self) {
        let table = self.table.borrow();
        let lies = |it: &Own| at(&it.path).and_then(|fd| where_is(&table, fd.as_fd()));
        *self.lie.borrow_mut() = self.own.iter().map(lies).collect();
    }

    /// Takes note of mounts made since last asked, and of where the own files lie now. Once before the paths of a plan are
    /// looked at.
    ///
    /// # Errors
    /// When the mount table cannot be read.
    pub(crate) fn refresh(&self) -> io::Result<()> {
        self.table.borrow_mut().refresh()?;
        self.look();
        Ok(())
    }

    /// Why what `fd` names may not be shown, or nothing. `except` are the places a rule allows for this very list.
    ///
    /// # Errors
    /// When the kernel does not say where it lies.
    pub(crate) fn forbids(&self, fd: BorrowedFd<'_>, writing: bool, except: &[PathBuf]) -> io::Result<Option<String>> {
        let table = self.table.borrow();
        let path = path_of(fd)?;
        let (place, kind) = place(&table, fd, &path)?;
        if KERNELS.contains(&kind.as_str()) {
            return Ok(Some(format!("it lies on a {kind} file system, the host's own controls")));
        }
        let beneath = || table.mounts.iter().filter(|it| it.point.starts_with(&path));
        if let Some(mount) = beneath().find(|it| KERNELS.contains(&it.kind.as_str())) {
            return Ok(Some(format!("it holds {}, the host's own controls ({})", mount.point.display(), mount.kind)));
        }
        let allowed = |it: &Place| {
            let opened = except.iter().filter_map(|path| at(path));
            opened.filter_map(|fd| where_is(&table, fd.as_fd())).any(|exception| it.within(&exception))
        };
        let lie = self.lie.borrow();
        for (own, lies) in self.own.iter().zip(&*lie).filter(|(it, _)| writing || it.guard == Guard::Always) {
            let Some(lies) = lies else { continue };
            let relation = if place == *lies {
                "it is"
            } else if place.within(lies) {
                "it lies within"
            } else if lies.within(&place) {
                "it holds"
            } else if beneath().any(|mount| {
                let shown = Place { device: mount.device.clone(), path: mount.root.clone() };
                shown.within(lies) || lies.within(&shown)
            }) {
                "another mount in it shows"
            } else {
                continue;
            };
            if !allowed(&place) {
                return Ok(Some(format!("{relation} {}, which is OCX's own", own.path.display())));
            }
        }
        Ok(None)
    }

    /// The type of the file system something lies on.
    ///
    /// # Errors
    /// When the kernel does not say where it lies.
    pub(crate) fn kind(&self, fd: BorrowedFd<'_>) -> io::Result<String> {
        place(&self.table.borrow(), fd, &path_of(fd)?).map(|(_, kind)| kind)
    }
}

fn where_is(table: &Table, fd: BorrowedFd<'_>) -> Option<Place> {
    path_of(fd).ok().and_then(|path| place(table, fd, &path).ok()).map(|it| it.0)
}

fn place(table: &Table, fd: BorrowedFd<'_>, path: &Path) -> io::Result<(Place, String)> {
    let about = statx(fd, c"", AtFlags::EMPTY_PATH, StatxFlags::MNT_ID)?;
    let unclear = || io::Error::other(format!("{}: the kernel does not say where it lies", path.display()));
    let mount = table.of(about.stx_mnt_id).ok_or_else(unclear)?;
    let rest = path.strip_prefix(&mount.point).ok().ok_or_else(unclear)?;
    Ok((Place { device: mount.device.clone(), path: mount.root.join(rest) }, mount.kind.clone()))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn a_mount_line_with_escapes_and_optional_fields() {
        let read = mount(r"36 35 98:0 /a\040b /mnt\0112 rw shared:1 master:2 - ext4 /dev/x rw").unwrap();
        assert_eq!((read.id, read.device.as_str(), read.kind.as_str()), (36, "98:0", "ext4"));
        assert_eq!((read.root, read.point), (PathBuf::from("/a b"), PathBuf::from("/mnt\t2")));
    }

    #[test]
    fn own_files_are_known_by_themselves_their_parents_and_their_children() {
        let folder = std::env::temp_dir().join(format!("ocx-own-{}", std::process::id()));
        let (own, other) = (folder.join("own/sub"), folder.join("other"));
        std::fs::create_dir_all(&own).unwrap();
        std::fs::create_dir_all(&other).unwrap();
        let files = OwnFiles::new([(folder.join("own"), Guard::Always), (other.clone(), Guard::Writing)]).unwrap();
        let why = |path: &Path, writing, except: &[PathBuf]| {
            files.forbids(at(path).unwrap().as_fd(), writing, except).unwrap().unwrap_or_default()
        };
        assert!(why(&folder.join("own"), false, &[]).starts_with("it is"));
        assert!(why(&own, false, &[]).starts_with("it lies within"));
        assert!(why(&folder, false, &[]).starts_with("it holds"));
        assert_eq!(why(&own, false, std::slice::from_ref(&own)), "");
        assert_eq!(why(&other, false, &[]), "");
        assert!(why(&other, true, &[]).starts_with("it is"));
        assert!(why(Path::new("/proc/sys"), false, &[]).contains("controls"));
        std::fs::remove_dir_all(&folder).unwrap();
    }
}

//! Reads back from the kernel what a process has become, and holds each fact against what was promised.
//!
//! The cell does so about itself before it executes the program, `audit` about a process that runs. What can be read of
//! any process, from its folder in a proc file system, is [`outside`]; what only the process itself can tell, [`inside`].

use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use core::ffi::CStr;
use core::fmt;

use rustix::fd::{BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, Mode, OFlags, RawDir, fstat, openat, readlinkat, stat, statat};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, connect, getsockname, socket_with};
use rustix::process::{self, DumpableBehavior, Signal};

use crate::op::{Maps, Resource};
use crate::promise::{Denies, Groups, Mount, NamespaceKind, Promise, Watcher};
use crate::{landlock, sys};

/// Most bytes read of one file of proc: hosts with tens of thousands of mounts are no place for a whole `/`.
const PROC_BYTES_MAX: usize = 16 << 20;

/// A fact that is not as promised, in words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference(pub String);

impl Difference {
    fn unread(what: &str, error: Errno) -> Self {
        Self(format!("{what} cannot be read: {error}"))
    }
}

/// Who is told of each fact.
pub trait Judge {
    /// Whether less than promised is a difference too: a process that runs may have given something up since.
    fn exact(&self) -> bool;

    /// A fact as found and as promised.
    ///
    /// # Errors
    /// When the rest is not to be measured.
    fn fact(
        &mut self,
        what: &dyn fmt::Display,
        same: bool,
        found: &dyn fmt::Display,
        promised: &dyn fmt::Display,
    ) -> Result<(), Difference>;
}

/// Ends at the first difference: the cell's.
#[derive(Debug)]
pub struct Strict;

impl Judge for Strict {
    fn exact(&self) -> bool {
        true
    }

    fn fact(
        &mut self,
        what: &dyn fmt::Display,
        same: bool,
        found: &dyn fmt::Display,
        promised: &dyn fmt::Display,
    ) -> Result<(), Difference> {
        if same { Ok(()) } else { Err(Difference(format!("{what} is {found}, promised {promised}"))) }
    }
}

fn same<T: PartialEq + fmt::Display>(
    judge: &mut dyn Judge,
    what: &dyn fmt::Display,
    found: T,
    promised: T,
) -> Result<(), Difference> {
    judge.fact(what, found == promised, &found, &promised)
}

/// Four ids of a process in words.
struct Ids([u32; 4]);

impl fmt::Display for Ids {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [real, effective, saved, files] = self.0;
        if self.0 == [real; 4] { write!(f, "{real}") } else { write!(f, "{real} {effective} {saved} {files}") }
    }
}

/// Bits in words.
#[derive(PartialEq)]
struct Bits(u64);

impl fmt::Display for Bits {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:x}", self.0)
    }
}

/// A fact that holds or does not.
#[derive(PartialEq)]
struct On(bool);

impl fmt::Display for On {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.0 { "on" } else { "off" })
    }
}

/// A text of the kernel's in words.
struct Text<'a>(&'a [u8]);

impl fmt::Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0.escape_ascii())
    }
}

fn read(folder: BorrowedFd<'_>, name: &CStr) -> Result<Vec<u8>, Difference> {
    let whole = || {
        let file = openat(folder, name, OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty())?;
        let mut bytes = vec![0; 8 << 10];
        let mut length = 0;
        loop {
            let count = rustix::io::read(&file, bytes.get_mut(length..).unwrap_or_default())?;
            length += count;
            if count == 0 {
                bytes.truncate(length);
                return Ok(bytes);
            }
            if length == bytes.len() {
                if length >= PROC_BYTES_MAX {
                    return Err(Errno::FBIG);
                }
                bytes.resize(length * 2, 0);
            }
        }
    };
    whole().map_err(|error| Difference::unread(&name.to_string_lossy(), error))
}

fn words(line: &[u8]) -> impl Iterator<Item = &[u8]> {
    line.split(u8::is_ascii_whitespace).filter(|it| !it.is_empty())
}

fn number<T: core::str::FromStr>(word: &[u8]) -> Option<T> {
    core::str::from_utf8(word).ok()?.parse().ok()
}

fn hexadecimal(word: &[u8]) -> Option<u64> {
    u64::from_str_radix(core::str::from_utf8(word).ok()?, 16).ok()
}

/// What of `/proc/PID/status` is measured (`proc_pid_status(5)`).
struct Status<'a>(&'a [u8]);

impl<'a> Status<'a> {
    fn value(&self, key: &str) -> Result<&'a [u8], Difference> {
        let is = |line: &&[u8]| line.strip_prefix(key.as_bytes()).is_some_and(|rest| rest.starts_with(b":"));
        let line = self.0.split(|it| *it == b'\n').find(is);
        line.and_then(|it| it.get(key.len() + 1..)).ok_or_else(|| Difference(format!("status has no {key}")))
    }

    fn read<T>(&self, key: &str, read: impl FnOnce(&'a [u8]) -> Option<T>) -> Result<T, Difference> {
        read(self.value(key)?).ok_or_else(|| Difference(format!("{key} of status cannot be read")))
    }

    fn ids(&self, key: &str) -> Result<[u32; 4], Difference> {
        self.read(key, |it| {
            let mut words = words(it);
            let mut next = || words.next().and_then(number);
            Some([next()?, next()?, next()?, next()?])
        })
    }

    fn bits(&self, key: &str) -> Result<Bits, Difference> {
        self.read(key, |it| words(it).next().and_then(hexadecimal).map(Bits))
    }

    fn number(&self, key: &str) -> Result<u32, Difference> {
        self.read(key, |it| words(it).next().and_then(number))
    }

    /// Of a list with one number for each namespace, the innermost.
    fn innermost(&self, key: &str) -> Result<u32, Difference> {
        self.read(key, |it| words(it).last().and_then(number))
    }
}

/// Ids, groups, capabilities and `no_new_privs`, in which what watches a process differs from it.
fn identity(
    judge: &mut dyn Judge,
    of: &str,
    status: &Status<'_>,
    [uid, gid]: [u32; 2],
    capabilities: u64,
) -> Result<(), Difference> {
    for (key, id) in [("Uid", uid), ("Gid", gid)] {
        let found = status.ids(key)?;
        judge.fact(&format_args!("{of}{key}"), found == [id; 4], &Ids(found), &id)?;
    }
    let groups = words(status.value("Groups")?).count();
    same(judge, &format_args!("{of}supplementary groups"), groups, 0)?;
    for key in ["CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"] {
        let found = status.bits(key)?;
        let kept = found.0 == capabilities || !judge.exact() && found.0 & !capabilities == 0;
        judge.fact(&format_args!("{of}{key}"), kept, &found, &Bits(capabilities))?;
    }
    same(judge, &format_args!("{of}no_new_privs"), On(status.number("NoNewPrivs")? == 1), On(true))
}

/// `SECCOMP_MODE_FILTER`.
const FILTER: u32 = 2;

/// The system call filter, as `status` says.
fn filter(judge: &mut dyn Judge, of: &str, status: &Status<'_>, promised: bool) -> Result<(), Difference> {
    same(judge, &format_args!("{of}filter"), On(status.number("Seccomp")? == FILTER), On(promised))
}

/// Everything that a process's folder in a proc file system tells and that the process cannot change afterwards, but to
/// have less.
///
/// `ids_here` are its ids as the reader's user namespace has them.
///
/// # Errors
/// The judge's, or that something cannot be read.
pub fn outside(
    judge: &mut dyn Judge,
    folder: BorrowedFd<'_>,
    ids_here: [u32; 2],
    promise: &Promise,
) -> Result<(), Difference> {
    let text = read(folder, c"status")?;
    identity(judge, "", &Status(&text), ids_here, promise.capabilities)?;
    maps(judge, folder, promise.maps.as_ref())?;
    for namespace in &promise.namespaces {
        let found = namespace_of(folder, namespace.kind)?;
        let what = format_args!("{} namespace", namespace.kind.word());
        judge.fact(&what, found != namespace.not, &format_args!("{found}"), &format_args!("not {}", namespace.not))?;
    }
    limits(judge, folder, promise)?;
    if !promise.mounts.is_empty() {
        mounts(judge, &read(folder, c"mountinfo")?, &promise.mounts)?;
    }
    Ok(())
}

/// What else that folder tells as long as the program has not changed it: signals, umask, session.
fn as_started(judge: &mut dyn Judge, folder: BorrowedFd<'_>, promise: &Promise) -> Result<(), Difference> {
    let text = read(folder, c"status")?;
    let status = Status(&text);
    same(judge, &"blocked signals", status.bits("SigBlk")?, Bits(0))?;
    same(judge, &"ignored signals", status.bits("SigIgn")?, Bits(0))?;
    let mask = status.read("Umask", |it| u32::from_str_radix(core::str::from_utf8(it).ok()?.trim(), 8).ok())?;
    judge.fact(&"umask", mask == promise.mask, &format_args!("{mask:03o}"), &format_args!("{:03o}", promise.mask))?;
    let (pid, session) = (status.innermost("NSpid")?, status.innermost("NSsid")?);
    if promise.leads_session {
        same(judge, &"session", session, pid)
    } else {
        judge.fact(&"session", session != 0, &"one outside", &"inside")
    }
}

/// The inode number of a process's namespace, which names it (`namespaces(7)`).
///
/// # Errors
/// That it cannot be read.
pub fn namespace_of(folder: BorrowedFd<'_>, kind: NamespaceKind) -> Result<u64, Difference> {
    let mut path = b"ns/".to_vec();
    path.extend_from_slice(kind.word().as_bytes());
    let about = statat(folder, path.as_slice(), AtFlags::empty());
    about.map(|it| it.st_ino).map_err(|error| Difference::unread(kind.word(), error))
}

fn maps(judge: &mut dyn Judge, folder: BorrowedFd<'_>, promised: Option<&Maps>) -> Result<(), Difference> {
    let Some(promised) = promised else { return Ok(()) };
    for (name, what, map) in [(c"uid_map", "uid map", promised.uid), (c"gid_map", "gid map", promised.gid)] {
        let text = read(folder, name)?;
        let found: Vec<u32> = words(&text).filter_map(number).collect();
        let [inside, host] = map;
        judge.fact(&what, found == [inside, host, 1], &Text(text.trim_ascii()), &format_args!("{inside} {host} 1"))?;
    }
    let text = read(folder, c"setgroups")?;
    judge.fact(&"setgroups", text.trim_ascii() == b"deny", &Text(text.trim_ascii()), &"deny")
}

/// One line of `mountinfo`.
struct Line<'a> {
    id: u32,
    parent: u32,
    at: &'a [u8],
    denies: Denies,
    shared: bool,
}

impl<'a> Line<'a> {
    fn read(line: &'a [u8]) -> Option<Self> {
        let mut words = line.split(|it| *it == b' ');
        let (id, parent) = (words.next().and_then(number)?, words.next().and_then(number)?);
        let (at, options) = (words.nth(2)?, words.next()?);
        let mut denies = Denies(0);
        for option in options.split(|it| *it == b',') {
            for (bit, word) in Denies::WORDS {
                if option == word.as_bytes() {
                    denies = denies.and(bit);
                }
            }
        }
        // What follows, up to the dash, says with whom mounts made later are shared.
        let shared =
            words.take_while(|it| *it != b"-").any(|it| it.starts_with(b"shared:") || it.starts_with(b"master:"));
        Some(Self { id, parent, at, denies, shared })
    }
}

/// Whether a path in `mountinfo`, where some characters are octal numbers, is this one.
fn is_at(mut written: &[u8], path: &[u8]) -> bool {
    for byte in path {
        let (found, rest) = match written {
            [b'\\', a, b, c, rest @ ..] => {
                let digit = |it: &u8| u32::from(it.wrapping_sub(b'0'));
                (digit(a) * 64 + digit(b) * 8 + digit(c), rest)
            }
            [first, rest @ ..] => (u32::from(*first), rest),
            [] => return false,
        };
        if found != u32::from(*byte) {
            return false;
        }
        written = rest;
    }
    written.is_empty()
}

/// Each mount there is, against those promised: none missing, none more, none that denies less. A mount beneath one that
/// may hold the host's belongs to that one, which is told by whose child it is and not by its path alone.
fn mounts(judge: &mut dyn Judge, text: &[u8], promised: &[Mount]) -> Result<(), Difference> {
    let lines: Vec<&[u8]> = text.split(|it| *it == b'\n').filter(|it| !it.is_empty()).collect();
    let found: Vec<Line<'_>> = lines.iter().filter_map(|it| Line::read(it)).collect();
    same(judge, &"lines of mountinfo that can be read", found.len(), lines.len())?;
    let mut owner: Vec<Option<usize>> = vec![None; found.len()];
    for (index, mount) in promised.iter().enumerate() {
        let is = |(line, owner): (&Line<'_>, &Option<usize>)| owner.is_none() && is_at(line.at, mount.at.to_bytes());
        let mut there: Vec<usize> =
            found.iter().zip(&owner).enumerate().filter(|(_, it)| is(*it)).map(|(at, _)| at).collect();
        // The kernel lists them by when they were made, which may be long before they were put there. Of two at one place
        // the later one lies on the earlier.
        if there.len() > 1 {
            there.sort_by_key(|at| found.get(*at).map(|it| above(it, &found).count()));
        }
        let good = there.iter().find(|at| found.get(**at).is_some_and(|it| it.denies.covers(mount.denies)));
        let what = format_args!("mount {}", Text(mount.at.to_bytes()));
        let Some(at) = good.or(there.first()) else {
            judge.fact(&what, false, &"not there", &mount.denies)?;
            continue;
        };
        let denies = found.get(*at).map_or(Denies(0), |it| it.denies);
        judge.fact(&what, good.is_some(), &denies, &mount.denies)?;
        if let Some(owner) = owner.get_mut(*at) {
            *owner = Some(index);
        }
    }
    for (line, own) in found.iter().zip(&owner) {
        let what = format_args!("mount {}", Text(line.at));
        if line.shared {
            judge.fact(&what, false, &"shared with other mount namespaces", &"private")?;
        }
        if own.is_some() {
            continue;
        }
        let Some(mount) = holder(line, &found, &owner).and_then(|it| promised.get(it)) else {
            judge.fact(&what, false, &line.denies, &"none there")?;
            continue;
        };
        let promised = format_args!("{} as part of {}", mount.denies, Text(mount.at.to_bytes()));
        judge.fact(&what, mount.whole && line.denies.covers(mount.denies), &line.denies, &promised)?;
    }
    Ok(())
}

/// The promised mount that the nearest mount above this one is.
fn holder(line: &Line<'_>, found: &[Line<'_>], owner: &[Option<usize>]) -> Option<usize> {
    above(line, found).find_map(|at| owner.get(at).copied().flatten())
}

/// The mounts this one lies on, from the nearest to the root. A circle, which no kernel makes, ends with the list.
fn above<'a>(line: &Line<'_>, found: &'a [Line<'_>]) -> impl Iterator<Item = usize> + 'a {
    let up = move |id: u32| found.iter().position(|it| it.id == id);
    core::iter::successors(up(line.parent), move |at| up(found.get(*at)?.parent)).take(found.len())
}

/// What the cell keeps of before, to compare with.
#[derive(Debug, Clone, Copy)]
pub struct Before<'a> {
    /// Its streams as they were given.
    pub streams: [Option<BorrowedFd<'a>>; 3],
    /// The session keyring it was started with; none where the kernel has no keyrings.
    pub keyring: Option<i32>,
    /// An [`abstract_socket`] of before Landlock.
    pub socket: Option<BorrowedFd<'a>>,
}

/// What only the process itself can tell.
///
/// # Errors
/// The judge's, or that something cannot be read.
pub fn inside(
    judge: &mut dyn Judge,
    folder: BorrowedFd<'_>,
    promise: &Promise,
    before: &Before<'_>,
) -> Result<(), Difference> {
    if let Some(keyring) = before.keyring {
        let other = sys::session_keyring().is_some_and(|it| it != keyring);
        judge.fact(&"session keyring", other, &"the supervisor's", &"its own")?;
    }
    as_started(judge, folder, promise)?;
    ends_with(judge, &"its end with its parent", promise.ends_with_parent)?;
    let priority = process::getpriority_process(None).map_err(|error| Difference::unread("priority", error))?;
    same(judge, &"priority", priority, 0)?;
    if let Some(name) = &promise.host_name {
        let uname = rustix::system::uname();
        let found = uname.nodename();
        judge.fact(&"host name", found == name.as_c_str(), &Text(found.to_bytes()), &Text(name.to_bytes()))?;
    }
    for link in &promise.links {
        let found = readlinkat(rustix::fs::CWD, &link.at, Vec::new());
        let found = found.map_err(|error| Difference::unread(&link.at.to_string_lossy(), error))?;
        let what = format_args!("link {}", Text(link.at.to_bytes()));
        judge.fact(&what, found == link.target, &Text(found.to_bytes()), &Text(link.target.to_bytes()))?;
    }
    let unread = |error| Difference::unread("where it starts", error);
    let (here, there) = (stat(c".").map_err(unread)?, stat(&promise.directory).map_err(unread)?);
    let place = Text(promise.directory.to_bytes());
    judge.fact(&"where it starts", (here.st_dev, here.st_ino) == (there.st_dev, there.st_ino), &"elsewhere", &place)?;
    for (given, (number, what)) in before.streams.into_iter().zip([(0, "stdin"), (1, "stdout"), (2, "stderr")]) {
        let Some(given) = given else { continue };
        judge.fact(&what, is_stream(number, given), &"another file", &"as given")?;
    }
    if promise.scoped {
        closed_sockets(judge, before)?;
    }
    descriptors(judge, folder)
}

fn closed_sockets(judge: &mut dyn Judge, before: &Before<'_>) -> Result<(), Difference> {
    let closed = before.socket.map(reaches) == Some(Err(Errno::PERM));
    judge.fact(&"abstract sockets", closed, &"open", &"closed by Landlock")
}

/// Whether Landlock holds a process: no call tells, so what it denies is tried.
///
/// # Errors
/// The judge's.
pub fn files(judge: &mut dyn Judge, promise: &Promise, before: &Before<'_>) -> Result<(), Difference> {
    if promise.held == 0 {
        return Ok(());
    }
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(rustix::fs::CWD, c"/", flags, Mode::empty());
    judge.fact(&"the list of the root", root.err() == Some(Errno::ACCESS), &"open", &"closed by Landlock")?;
    if landlock::scoped(promise.held) == 0 { Ok(()) } else { closed_sockets(judge, before) }
}

fn is_stream(number: i32, given: BorrowedFd<'_>) -> bool {
    let (Ok(own), Ok(given)) = (fstat(sys::stream(number)), fstat(given)) else { return false };
    (own.st_dev, own.st_ino, own.st_rdev) == (given.st_dev, given.st_ino, given.st_rdev)
}

/// What is open across exec: the three streams and nothing else.
fn descriptors(judge: &mut dyn Judge, folder: BorrowedFd<'_>) -> Result<(), Difference> {
    let unread = |error| Difference::unread("its descriptors", error);
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let list = openat(folder, c"fd", flags, Mode::empty()).map_err(unread)?;
    let mut room = Vec::with_capacity(4 << 10);
    let mut entries = RawDir::new(&list, room.spare_capacity_mut());
    while let Some(entry) = entries.next() {
        let entry = entry.map_err(unread)?;
        let Some(descriptor) = number::<i32>(entry.file_name().to_bytes()) else { continue };
        let survives = descriptor > 2 && sys::survives_exec(descriptor);
        judge.fact(&format_args!("descriptor {descriptor}"), !survives, &"open across exec", &"closed by it")?;
    }
    Ok(())
}

/// A socket in the abstract name space, of before this process is kept from those: what it must not reach afterwards.
///
/// # Errors
/// As `socket(2)` and `bind(2)` have them.
pub fn abstract_socket() -> Result<OwnedFd, Errno> {
    let socket = datagrams()?;
    // Without a name the kernel chooses one (unix(7), autobind).
    bind(&socket, &SocketAddrUnix::new_unnamed())?;
    Ok(socket)
}

fn datagrams() -> Result<OwnedFd, Errno> {
    socket_with(AddressFamily::UNIX, SocketType::DGRAM, SocketFlags::CLOEXEC, None)
}

fn reaches(socket: BorrowedFd<'_>) -> Result<(), Errno> {
    connect(datagrams()?, &getsockname(socket)?)
}

/// The cell's cgroups, while their names can still be seen (`cgroups(7)`).
///
/// # Errors
/// The judge's, or that something cannot be read.
pub fn groups(judge: &mut dyn Judge, folder: BorrowedFd<'_>, promised: &Groups) -> Result<(), Difference> {
    let text = read(folder, c"cgroup")?;
    let end = promised.end.to_bytes();
    let count = text.split(|it| *it == b'\n').filter(|line| line.ends_with(end)).count();
    let what = format_args!("cgroups that end with {}", Text(end));
    let enough = u32::try_from(count).is_ok_and(|count| count >= promised.count);
    judge.fact(&what, enough, &count, &promised.count)
}

/// What watches a process, by itself, before its filter is on.
///
/// # Errors
/// The judge's, or that something cannot be read.
pub fn watcher(judge: &mut dyn Judge, folder: BorrowedFd<'_>, promised: &Watcher) -> Result<(), Difference> {
    let text = read(folder, c"status")?;
    let status = Status(&text);
    identity(judge, "the init's ", &status, promised.ids, 0)?;
    same(judge, &"the init's session", status.innermost("NSsid")?, status.innermost("NSpid")?)?;
    let dumpable = process::dumpable_behavior().map_err(|error| Difference::unread("dumpable", error))?;
    same(judge, &"the init's memory for others", On(dumpable != DumpableBehavior::NotDumpable), On(false))?;
    if promised.reaps {
        let reaper = process::child_subreaper().is_ok_and(|it| it.is_some());
        same(judge, &"the init's reaping", On(reaper), On(true))?;
    }
    ends_with(judge, &"the init's end with its parent", promised.ends_with_parent)
}

fn ends_with(judge: &mut dyn Judge, what: &dyn fmt::Display, promised: bool) -> Result<(), Difference> {
    let kill = process::parent_process_death_signal().is_ok_and(|it| it == Some(Signal::KILL));
    judge.fact(what, kill || !promised, &On(kill), &On(promised))
}

/// The system call filters of a process and of what watches it, from the folders of both.
///
/// # Errors
/// The judge's, or that something cannot be read.
pub fn modes(
    judge: &mut dyn Judge,
    folder: BorrowedFd<'_>,
    watcher: Option<BorrowedFd<'_>>,
    promise: &Promise,
) -> Result<(), Difference> {
    filter(judge, "", &Status(&read(folder, c"status")?), promise.filtered)?;
    match (watcher, &promise.watcher) {
        (Some(watcher), Some(_)) => filter(judge, "the init's ", &Status(&read(watcher, c"status")?), true),
        _ => Ok(()),
    }
}

/// That the process's filter denies what it is to: one call that worked before. One that lets all through is on, and is
/// none.
///
/// # Errors
/// The judge's.
pub fn denies(judge: &mut dyn Judge, promise: &Promise, before: &Before<'_>) -> Result<(), Difference> {
    if !promise.filtered || before.keyring.is_none() {
        return Ok(());
    }
    same(judge, &"a call of the filter's list", On(sys::session_keyring().is_some()), On(false))
}

/// Each limit, by its line of `limits` (`proc_pid_limits(5)`): name, soft, hard. A host's own tighter one stays, and is as
/// good.
fn limits(judge: &mut dyn Judge, folder: BorrowedFd<'_>, promise: &Promise) -> Result<(), Difference> {
    let text = read(folder, c"limits")?;
    let amount = |word: &[u8]| if word == b"unlimited" { Some(u64::MAX) } else { number(word) };
    for limit in &promise.limits {
        let name = match limit.resource {
            Resource::Cpu => "Max cpu time",
            Resource::FileSize => "Max file size",
            Resource::Processes => "Max processes",
            Resource::Core => "Max core file size",
        };
        let line = text.split(|it| *it == b'\n').find_map(|it| it.strip_prefix(name.as_bytes()));
        let mut given = line.into_iter().flat_map(words).map(amount);
        let (Some(Some(soft)), Some(Some(hard))) = (given.next(), given.next()) else {
            return Err(Difference(format!("limits has no {name}")));
        };
        let kept = soft <= limit.soft && hard <= limit.hard;
        let what = format_args!("limit {}", limit.resource.word());
        judge.fact(&what, kept, &format_args!("{soft} {hard}"), &format_args!("{} {}", limit.soft, limit.hard))?;
    }
    Ok(())
}

#[cfg(test)]
#[path = "measure_tests.rs"]
mod tests;

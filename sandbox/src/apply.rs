//! Carries a recipe out: one loop, one arm an operation. This is what runs as root inside the cell.

use alloc::ffi::CString;
use alloc::format;
use alloc::vec::Vec;
use core::ffi::CStr;

use rustix::fd::{AsFd as _, BorrowedFd, OwnedFd};
use rustix::fs::{CWD, FileType, Gid, Mode, OFlags, Uid, openat};
use rustix::io::Errno;
use rustix::mount::{MountAttrFlags, OpenTreeFlags, UnmountFlags, open_tree, unmount};
use rustix::pipe::{PipeFlags, pipe_with};
use rustix::process::{self, DumpableBehavior, Resource as Kernel, Rlimit, Signal};
use rustix::thread::{self, CapabilitySet, CapabilitySets};

use crate::measure::{self, Before, Difference, Strict};
use crate::op::{Access, Exec, Inner, Kind, Maps, Measured, Op, Point, Recipe, Resource, Stage};
use crate::promise::Promise;
use crate::status::Line;
use crate::{init, landlock, mounts, paths, sys};

/// MS_PRIVATE, as `mount_setattr(2)` takes it.
const PRIVATE: u64 = 1 << 18;

/// Highest capability number asked about; the kernel's own last one ends the loop earlier.
const CAPABILITY_MAX: u32 = 63;

/// What the operations leave for each other.
struct Building<'a> {
    promise: &'a Promise,
    /// The session keyring it was started with.
    keyring: Option<i32>,
    /// A socket of before Landlock, to see that it cannot be reached after.
    socket: Option<OwnedFd>,
    /// The descriptors given, by index; each is taken from here by the operation that uses it up.
    given: Vec<Option<OwnedFd>>,
    account: [u32; 2],
    root: Option<OwnedFd>,
    proc: Option<OwnedFd>,
    /// Where its proc will be: dev links to it, whichever comes first.
    proc_at: Vec<u8>,
    created: Option<(OwnedFd, u32)>,
    /// Landlock's, and its ABI, until it restricts.
    ruleset: Option<(OwnedFd, u32)>,
}

/// Carries `recipe` out and becomes its program, or the init of it. Never returns: what fails is said on the status pipe.
///
/// `forget` gives back what was allocated, once the init has nothing more to do with it.
pub fn run(recipe: &Recipe, forget: sys::Forget) -> ! {
    let mut given = Vec::with_capacity(recipe.fds.len());
    for number in &recipe.fds {
        given.push(sys::inherited(*number).ok());
    }
    let Some(status) = usize::try_from(recipe.status).ok().and_then(|at| given.get_mut(at)).and_then(Option::take)
    else {
        sys::exit_now(125)
    };
    let mut building = Building {
        promise: &recipe.promise,
        keyring: sys::session_keyring(),
        socket: None,
        given,
        account: recipe.account,
        root: None,
        proc: None,
        proc_at: recipe.build.iter().find_map(proc_at).unwrap_or_default(),
        created: None,
        ruleset: None,
    };
    for op in &recipe.build {
        do_or_fail(&mut building, op, status.as_fd());
    }
    match &recipe.inner {
        None => become_program(&mut building, recipe, status.as_fd()),
        Some(inner) => start_program(building, recipe, inner, status, forget),
    }
}

fn proc_at(op: &Op) -> Option<Vec<u8>> {
    if let Op::Proc { at, .. } = op { Some(at.to_bytes().to_vec()) } else { None }
}

fn do_or_fail(building: &mut Building<'_>, op: &Op, tell: BorrowedFd<'_>) {
    if let Op::Measure { what } = op
        && let Err(Difference(words)) = measure(building, *what)
    {
        fail(tell, 125, op.stage(), Errno::PROTO, words.as_bytes());
    }
    if let Err(error) = apply(building, op) {
        fail(tell, 125, op.stage(), error, op.subject().map_or(b"", |it| it.to_bytes()));
    }
}

/// Holds a part of what came of the operations against the promise.
fn measure(building: &Building<'_>, what: Measured) -> Result<(), Difference> {
    let promise = building.promise;
    let own = folder(building, c"self")?;
    let own = own.as_fd();
    match what {
        // No proc of its own yet: the host's, which tells of the cgroups by their names there.
        Measured::Groups => promise.groups.as_ref().map_or(Ok(()), |it| measure::groups(&mut Strict, own, it)),
        Measured::Watcher => promise.watcher.as_ref().map_or(Ok(()), |it| measure::watcher(&mut Strict, own, it)),
        Measured::All => {
            measure::outside(&mut Strict, own, promise.ids, promise)?;
            measure::inside(&mut Strict, own, promise, &before(building))
        }
        Measured::Filters => {
            let mut parent = Small::default();
            parent.number(process::getppid().map_or(0, |it| it.as_raw_pid().cast_unsigned()));
            let parent = CString::new(parent.text()).ok().filter(|_| promise.watcher.is_some());
            let parent = parent.map(|it| folder(building, &it)).transpose()?;
            let parent = parent.as_ref().map(OwnedFd::as_fd);
            measure::modes(&mut Strict, own, parent, promise)?;
            measure::denies(&mut Strict, promise, &before(building))
        }
        Measured::Files => measure::files(&mut Strict, promise, &before(building)),
    }
}

fn before<'a>(building: &'a Building<'_>) -> Before<'a> {
    let given = |it: u32| usize::try_from(it).ok().and_then(|at| building.given.get(at)?.as_ref());
    Before {
        streams: building.promise.streams.map(|it| given(it).map(OwnedFd::as_fd)),
        keyring: building.keyring,
        socket: building.socket.as_ref().map(OwnedFd::as_fd),
    }
}

/// A process's folder in the proc of the sandbox, or in the host's before and without one.
fn folder(building: &Building<'_>, name: &CStr) -> Result<OwnedFd, Difference> {
    let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let proc = || match &building.proc {
        Some(proc) => openat(proc, name, flags, Mode::empty()),
        None => openat(openat(CWD, c"/proc", flags, Mode::empty())?, name, flags, Mode::empty()),
    };
    proc().map_err(|error| Difference(format!("proc cannot be read: {error}")))
}

fn fail(tell: BorrowedFd<'_>, code: u8, stage: Stage, error: Errno, subject: &[u8]) -> ! {
    let line = Line::failed(code, stage, error.raw_os_error(), subject);
    // Nobody left to tell is no reason to go on.
    let _told = rustix::io::write(tell, line.as_bytes());
    sys::exit_now(code)
}

/// The last steps of the process that becomes the program.
fn become_program(building: &mut Building<'_>, recipe: &Recipe, tell: BorrowedFd<'_>) -> ! {
    let (argv, env) = (sys::Texts::new(&recipe.exec.argv), sys::Texts::new(&recipe.exec.env));
    become_prepared(building, recipe, &argv, &env, tell)
}

fn become_prepared(
    building: &mut Building<'_>,
    recipe: &Recipe,
    argv: &sys::Texts<'_>,
    env: &sys::Texts<'_>,
    tell: BorrowedFd<'_>,
) -> ! {
    for op in &recipe.program {
        do_or_fail(building, op, tell);
    }
    let (code, error, subject) = exec(&recipe.exec, argv, env);
    fail(tell, code, Stage::Exec, error, subject)
}

/// Tries each place in turn, as a shell does: a place that is closed to us does not hide a later one.
fn exec<'a>(exec: &'a Exec, argv: &sys::Texts<'_>, env: &sys::Texts<'_>) -> (u8, Errno, &'a [u8]) {
    let asked = exec.argv.first().map_or(&b""[..], |it| it.to_bytes());
    let mut worst = (127, Errno::NOENT, asked);
    for place in &exec.candidates {
        let error = sys::execve(place, argv, env);
        match error {
            // There, but what its first line or its header names is not: a later place would not be the same program.
            Errno::NOENT | Errno::NOTDIR if rustix::fs::stat(place).is_ok() => {
                return (126, Errno::LIBBAD, place.to_bytes());
            }
            Errno::NOENT | Errno::NOTDIR => {}
            Errno::ACCESS => worst = (126, error, place.to_bytes()),
            _ => return (126, error, place.to_bytes()),
        }
    }
    worst
}

/// Makes the program's process, in a user namespace of its own where it is to have one, and becomes its init.
fn start_program(
    mut building: Building<'_>,
    recipe: &Recipe,
    inner: &Inner,
    status: OwnedFd,
    forget: sys::Forget,
) -> ! {
    let trouble = |stage, error| fail(status.as_fd(), 125, stage, error, b"");
    let Some(lifeline) = take(&mut building, inner.lifeline) else { trouble(Stage::Init, Errno::BADF) };
    let (Ok((let_go, go)), Ok((failure, failing))) = (pipe_with(PipeFlags::CLOEXEC), pipe_with(PipeFlags::CLOEXEC))
    else {
        trouble(Stage::Init, Errno::MFILE)
    };
    let (argv, env) = (sys::Texts::new(&recipe.exec.argv), sys::Texts::new(&recipe.exec.env));
    let signals = match sys::signals_as_descriptor(&[libc::SIGCHLD]) {
        Ok(signals) => signals,
        Err(error) => trouble(Stage::Init, error),
    };
    // With one thread, both may go on as any process after fork.
    let program = match sys::fork(inner.maps.is_some()) {
        Ok(Some(pid)) => pid,
        Ok(None) => {
            drop(go);
            drop(failure);
            let mut byte = [0];
            // End of file: the init is gone or going, and nothing was let go.
            if rustix::io::read(&let_go, &mut byte) != Ok(1) {
                sys::exit_now(125)
            }
            become_prepared(&mut building, recipe, &argv, &env, failing.as_fd())
        }
        Err(error) => trouble(Stage::UserNamespace, error),
    };
    drop(failing);
    drop(let_go);
    if let Some(maps) = &inner.maps
        && let Err(error) = write_maps(building.proc.as_ref(), program, maps)
    {
        trouble(Stage::UserNamespace, error)
    }
    for op in &inner.init {
        do_or_fail(&mut building, op, status.as_fd());
    }
    let kept = [status.as_fd(), lifeline.as_fd(), go.as_fd(), failure.as_fd(), signals.as_fd()];
    if let Err(error) = sys::close_all_but(&kept) {
        trouble(Stage::Init, error)
    }
    let ends_with_parent = inner.ends_with_parent;
    // The run's environment and files are none of its init's business, and room beside each run is dear.
    sys::forget(forget);
    init::watch(&init::Watch {
        program,
        status: &status,
        lifeline: &lifeline,
        go: &go,
        failure: &failure,
        signals: &signals,
        ends_with_parent,
    })
}

/// `INSIDE HOST 1` for user and group, groups denied first, which the group map requires of nobody but keeps shut.
fn write_maps(proc: Option<&OwnedFd>, program: u32, maps: &Maps) -> Result<(), Errno> {
    let proc = proc.ok_or(Errno::NOENT)?;
    let mut path = Small::default();
    path.number(program);
    let folder = openat(proc, path.text(), OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty())?;
    let write = |name: &CStr, bytes: &[u8]| {
        let file = openat(&folder, name, OFlags::WRONLY | OFlags::CLOEXEC, Mode::empty())?;
        rustix::io::write(&file, bytes).map(|_| ())
    };
    write(c"setgroups", b"deny")?;
    for (name, [inside, host]) in [(c"uid_map", maps.uid), (c"gid_map", maps.gid)] {
        let mut line = Small::default();
        line.number(inside);
        line.byte(b' ');
        line.number(host);
        line.byte(b' ');
        line.byte(b'1');
        write(name, line.text())?;
    }
    Ok(())
}

/// A short text made without allocation.
#[derive(Default)]
struct Small {
    bytes: [u8; 32],
    length: usize,
}

impl Small {
    fn byte(&mut self, byte: u8) {
        if let Some(place) = self.bytes.get_mut(self.length) {
            *place = byte;
            self.length += 1;
        }
    }
    fn number(&mut self, number: u32) {
        let mut scale = 1_000_000_000;
        while scale > 1 && number / scale == 0 {
            scale /= 10;
        }
        while scale > 0 {
            self.byte(b'0' + u8::try_from(number / scale % 10).unwrap_or(0));
            scale /= 10;
        }
    }
    fn text(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

fn at<'a>(building: &'a mut Building<'_>, source: u32) -> Option<&'a mut Option<OwnedFd>> {
    usize::try_from(source).ok().and_then(|it| building.given.get_mut(it))
}

fn take(building: &mut Building<'_>, source: u32) -> Option<OwnedFd> {
    at(building, source).and_then(Option::take)
}

fn root<'a>(building: &'a Building<'_>) -> Result<BorrowedFd<'a>, Errno> {
    building.root.as_ref().map(OwnedFd::as_fd).ok_or(Errno::NOENT)
}

fn mount_at(building: &Building<'_>, tree: &OwnedFd, at: &CStr, kind: Kind, point: Point) -> Result<(), Errno> {
    let on = paths::mount_point(root(building)?, at, kind, point, building.account)?;
    mounts::place(tree.as_fd(), on.as_fd())
}

pub(crate) fn attributes(access: Access) -> u64 {
    let nosuid = u64::from(MountAttrFlags::MOUNT_ATTR_NOSUID.bits());
    let nodev = u64::from(MountAttrFlags::MOUNT_ATTR_NODEV.bits());
    match access {
        Access::Read => nosuid | nodev | u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits()),
        Access::Write => nosuid | nodev,
        Access::Device => nosuid | u64::from(MountAttrFlags::MOUNT_ATTR_NOEXEC.bits()),
    }
}

/// One operation.
fn apply(building: &mut Building<'_>, op: &Op) -> Result<(), Errno> {
    match op {
        Op::JoinGroup { procs } => {
            let file = take(building, *procs).ok_or(Errno::BADF)?;
            rustix::io::write(&file, b"0").map(|_| ())
        }
        Op::CgroupNamespace {} => sys::unshare(libc::CLONE_NEWCGROUP),
        Op::Session {} => match process::setsid() {
            // Already a leader of its own: what was asked.
            Ok(_) | Err(Errno::PERM) => Ok(()),
            Err(error) => Err(error),
        },
        Op::Keyring {} => sys::keyring_of_its_own(),
        Op::Mask { bits } => {
            process::umask(Mode::from_raw_mode(*bits));
            Ok(())
        }
        Op::PrivateMounts {} => {
            let whole = openat(CWD, c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            sys::mount_setattr(whole.as_fd(), true, 0, PRIVATE)
        }
        Op::Root {} => {
            let root = mounts::root()?;
            // Attached at once, over the old root, since older kernels mount nothing inside what is detached.
            let over = openat(CWD, c"/", OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            mounts::place(root.as_fd(), over.as_fd())?;
            building.root = Some(root);
            Ok(())
        }
        Op::Proc { at, point } => {
            let proc = mounts::proc()?;
            mount_at(building, &proc, at, Kind::Folder, *point)?;
            building.proc = Some(proc);
            Ok(())
        }
        Op::Dev { at, point } => {
            let dev = mounts::dev(&building.proc_at)?;
            mount_at(building, &dev, at, Kind::Folder, *point)?;
            let on = openat(&dev, c"pts", OFlags::PATH | OFlags::CLOEXEC | OFlags::NOFOLLOW, Mode::empty())?;
            mounts::place(mounts::pts()?.as_fd(), on.as_fd())
        }
        Op::Tmp { at, point } => mount_at(building, &mounts::tmp()?, at, Kind::Folder, *point),
        Op::Link { at, target } => paths::link(root(building)?, at, target),
        Op::Bind { source, at, access, kind, point } => {
            let tree = take(building, *source).ok_or(Errno::BADF)?;
            // Private too: a mount the host makes later beneath a shared path must not show here.
            sys::mount_setattr(tree.as_fd(), true, attributes(*access), PRIVATE)?;
            mount_at(building, &tree, at, *kind, *point)
        }
        Op::CreatedFile { at, text, point } => created_file(building, at, text, *point),
        Op::Pivot {} => {
            process::fchdir(root(building)?)?;
            process::pivot_root(c".", c".")?;
            unmount(c".", UnmountFlags::DETACH)?;
            process::chdir(c"/")
        }
        Op::RootReadOnly {} => {
            let read_only = u64::from(MountAttrFlags::MOUNT_ATTR_RDONLY.bits());
            sys::mount_setattr(root(building)?, false, read_only, 0)
        }
        Op::HostName { name } => rustix::system::sethostname(name.to_bytes()),
        Op::Loopback {} => sys::loopback_up(),
        Op::NoGroups {} => thread::set_thread_groups(&[]),
        Op::OwnNamespaces { network } => {
            sys::unshare(libc::CLONE_NEWUTS | if *network { libc::CLONE_NEWNET } else { 0 })
        }
        Op::Ids { uid, gid } => {
            let (uid, gid) = (Uid::from_raw(*uid), Gid::from_raw(*gid));
            thread::set_thread_res_gid(gid, gid, gid)?;
            thread::set_thread_res_uid(uid, uid, uid)
        }
        Op::Limit { resource, soft, hard } => limit(*resource, *soft, *hard),
        Op::Bounding { keep } => bounding(*keep),
        Op::Capabilities { keep } => capabilities(*keep),
        Op::NoNewPrivileges {} => thread::set_no_new_privs(true),
        Op::Streams { stdin, stdout, stderr } => {
            for (number, source) in (0..).zip([stdin, stdout, stderr]) {
                let from = at(building, *source).and_then(|it| it.as_ref()).ok_or(Errno::BADF)?;
                sys::onto(from.as_fd(), number)?;
            }
            Ok(())
        }
        Op::Signals {} => sys::reset_signals(),
        Op::Directory { at } => process::chdir(at),
        Op::Scopes {} => {
            building.socket = Some(measure::abstract_socket()?);
            let ruleset = sys::landlock_ruleset(0, landlock::SCOPES)?;
            sys::landlock_restrict(ruleset.as_fd())
        }
        Op::Ruleset { abi } => {
            let made = sys::landlock_ruleset(landlock::handled(*abi), landlock::scoped(*abi));
            building.ruleset = Some((made?, *abi));
            Ok(())
        }
        Op::Allow { source, grant } => {
            let what = take(building, *source).ok_or(Errno::BADF)?;
            let (ruleset, abi) = building.ruleset.as_ref().ok_or(Errno::BADF)?;
            let folder = FileType::from_raw_mode(rustix::fs::fstat(&what)?.st_mode) == FileType::Directory;
            let rights = landlock::rights(*grant, *abi, folder);
            sys::landlock_allow(ruleset.as_fd(), what.as_fd(), rights)
        }
        Op::Restrict {} => {
            let (ruleset, abi) = building.ruleset.take().ok_or(Errno::BADF)?;
            if landlock::scoped(abi) != 0 {
                building.socket = Some(measure::abstract_socket()?);
            }
            sys::landlock_restrict(ruleset.as_fd())
        }
        Op::OnlyStreams {} => sys::only_streams_survive(),
        Op::Filter { program } => sys::load_filter(program),
        Op::EndWithParent { parent } => {
            process::set_parent_process_death_signal(Some(Signal::KILL))?;
            let now = process::getppid().map_or(0, |it| it.as_raw_pid().cast_unsigned());
            // The parent may have ended before the call: then its signal never comes.
            if *parent != 0 && now != *parent { Err(Errno::SRCH) } else { Ok(()) }
        }
        // Measured already: what differs needs more words than an error number.
        Op::Measure { .. } => Ok(()),
        Op::AwaitGo { lifeline } => {
            let lifeline = take(building, *lifeline).ok_or(Errno::BADF)?;
            let mut byte = [0];
            match rustix::io::read(&lifeline, &mut byte)? {
                1 if byte == [init::GO] => Ok(()),
                _ => Err(Errno::CANCELED),
            }
        }
        Op::Priority {} => process::setpriority_process(None, 0),
        // Any process given means on.
        Op::Subreaper {} => process::set_child_subreaper(Some(process::getpid())),
        Op::Undumpable {} => process::set_dumpable_behavior(DumpableBehavior::NotDumpable),
    }
}

/// Where the tmpfs of created files is attached: on the old root, which `Pivot` takes away with all that is on it.
const CREATED_ON: &CStr = c"/proc";

/// Written once in a tmpfs that the sandbox never sees, then mounted at its place from there.
fn created_file(building: &mut Building<'_>, at: &CStr, text: &[u8], point: Point) -> Result<(), Errno> {
    if building.created.is_none() {
        let created = mounts::created()?;
        // Attached, for kernels before 6.15 clone no part of a tree that is attached nowhere (EINVAL).
        let on = openat(CWD, CREATED_ON, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
        mounts::place(created.as_fd(), on.as_fd())?;
        building.created = Some((created, 0));
    }
    let [uid, gid] = building.account;
    let (folder, count) = building.created.as_mut().ok_or(Errno::NOENT)?;
    let mut name = Small::default();
    name.number(*count);
    *count += 1;
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::CLOEXEC;
    let file = openat(&*folder, name.text(), flags, Mode::from_raw_mode(0o644))?;
    let mut rest = text;
    while !rest.is_empty() {
        let count = rustix::io::write(&file, rest)?;
        rest = rest.get(count..).unwrap_or_default();
    }
    rustix::fs::fchown(&file, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
    let flags = OpenTreeFlags::OPEN_TREE_CLONE | OpenTreeFlags::OPEN_TREE_CLOEXEC;
    let tree = open_tree(&*folder, name.text(), flags)?;
    mount_at(building, &tree, at, Kind::File, point)
}

fn limit(resource: Resource, soft: u64, hard: u64) -> Result<(), Errno> {
    let resource = match resource {
        Resource::Cpu => Kernel::Cpu,
        Resource::FileSize => Kernel::Fsize,
        Resource::Processes => Kernel::Nproc,
        Resource::Core => Kernel::Core,
    };
    // No hard limit can be raised here; one that is tighter already stays.
    let highest = process::getrlimit(resource).maximum.unwrap_or(u64::MAX);
    let hard = hard.min(highest);
    process::setrlimit(resource, Rlimit { current: Some(soft.min(hard)), maximum: Some(hard) })
}

fn bounding(keep: u64) -> Result<(), Errno> {
    for number in 0..=CAPABILITY_MAX {
        let one = 1_u64 << number;
        if keep & one == 0 {
            match thread::remove_capability_from_bounding_set(CapabilitySet::from_bits_retain(one)) {
                Ok(()) => {}
                Err(Errno::INVAL) => break, // past the kernel's last
                Err(error) => return Err(error),
            }
        }
    }
    Ok(())
}

fn capabilities(keep: u64) -> Result<(), Errno> {
    let kept = CapabilitySet::from_bits_retain(keep);
    thread::set_capabilities(None, CapabilitySets { effective: kept, permitted: kept, inheritable: kept })?;
    if keep == 0 {
        // The ambient set never holds what permitted does not.
        return Ok(());
    }
    for number in 0..=CAPABILITY_MAX {
        let one = 1_u64 << number;
        if keep & one != 0 {
            // The program's file has no capabilities of its own: only ambient ones survive its exec.
            thread::configure_capability_in_ambient_set(CapabilitySet::from_bits_retain(one), true)?;
        }
    }
    Ok(())
}

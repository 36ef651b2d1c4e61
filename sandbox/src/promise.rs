//! What a process has to be when it executes its program: derived from the description, never from the operations, so
//! that an operation that was left out, or did nothing, is found by [`crate::measure`].

use alloc::ffi::CString;
use alloc::vec::Vec;
use core::fmt;

use crate::flat::{Flat, Item, Reader, Unreadable};
use crate::op::{Maps, Resource, Source};

/// What a mount lets nobody do through it: bits of the word `mountinfo` has for each (`proc_pid_mountinfo(5)`).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Denies(pub u8);

impl Denies {
    /// `ro`.
    pub const WRITING: Self = Self(1);
    /// `nosuid`.
    pub const SET_ID: Self = Self(2);
    /// `nodev`.
    pub const DEVICES: Self = Self(4);
    /// `noexec`.
    pub const EXECUTING: Self = Self(8);

    /// Each with its word.
    pub const WORDS: [(Self, &'static str); 4] =
        [(Self::WRITING, "ro"), (Self::SET_ID, "nosuid"), (Self::DEVICES, "nodev"), (Self::EXECUTING, "noexec")];

    /// Both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether everything `other` denies is denied.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }
}

impl fmt::Display for Denies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(if self.covers(Self::WRITING) { "ro" } else { "rw" })?;
        for (bit, word) in Self::WORDS.iter().skip(1) {
            if self.covers(*bit) {
                write!(f, ",{word}")?;
            }
        }
        Ok(())
    }
}

/// One mount of a sandbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mount {
    /// Where, as the process sees it.
    pub at: CString,
    /// What it denies at least.
    pub denies: Denies,
    /// Whether mounts of the host may lie beneath it, which then deny as much.
    pub whole: bool,
}

/// A link of the sandbox's own root.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// Where.
    pub at: CString,
    /// Its text.
    pub target: CString,
}

/// A resource limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limit {
    /// Which.
    pub resource: Resource,
    /// Where it is signalled; a host's own tighter limit is as good.
    pub soft: u64,
    /// Where it ends.
    pub hard: u64,
}

/// A namespace that is not the supervisor's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Namespace {
    /// Which.
    pub kind: NamespaceKind,
    /// The supervisor's own: the inode number of its file in `/proc/self/ns` (`namespaces(7)`).
    pub not: u64,
}

crate::op::words! {
    /// A kind of namespace, by the name of its file in `/proc/PID/ns`.
    NamespaceKind {
        /// cgroups.
        Cgroup = 1, "cgroup";
        /// System V and POSIX queues.
        Ipc = 2, "ipc";
        /// Mounts.
        Mnt = 3, "mnt";
        /// Network.
        Net = 4, "net";
        /// Processes.
        Pid = 5, "pid";
        /// Users and capabilities.
        User = 6, "user";
        /// Host name.
        Uts = 7, "uts";
    }
}

impl NamespaceKind {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::Cgroup, Self::Ipc, Self::Mnt, Self::Net, Self::Pid, Self::User, Self::Uts];
}

/// The cgroups of a run, one in each hierarchy that holds it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Groups {
    /// What the path of each ends with.
    pub end: CString,
    /// How many there are.
    pub count: u32,
}

/// What watches a process: it has no group, no capability, a session and a filter of its own, and nobody looks into it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Watcher {
    /// Its user and group.
    pub ids: [u32; 2],
    /// Whether the kernel ends it with its parent.
    pub ends_with_parent: bool,
    /// Whether what is left becomes its own: where it is not process 1 of a sandbox.
    pub reaps: bool,
}

/// Everything measured. What is the same for every process is not here, but measured all the same: no supplementary
/// group, `no_new_privs`, a keyring of its own, no signal blocked or ignored, the ordinary priority, no descriptor but the
/// three streams open across exec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Promise {
    /// Real, effective, saved and file-system user and group, as the process sees them.
    pub ids: [u32; 2],
    /// All five capability sets, as bits.
    pub capabilities: u64,
    /// The maps of its user namespace; absent, it is in the host's.
    pub maps: Option<Maps>,
    /// Namespaces of its own.
    pub namespaces: Vec<Namespace>,
    /// Its cgroups, looked at before a namespace hides them.
    pub groups: Option<Groups>,
    /// Every mount it sees, the root first; empty, the host's are its own.
    pub mounts: Vec<Mount>,
    /// Links of its root.
    pub links: Vec<Link>,
    /// The host's name as it sees it.
    pub host_name: Option<CString>,
    /// Resource limits.
    pub limits: Vec<Limit>,
    /// The file mode creation mask.
    pub mask: u32,
    /// Whether it leads its session; its session never is one outside.
    pub leads_session: bool,
    /// Whether Landlock keeps it from abstract sockets outside.
    pub scoped: bool,
    /// The Landlock ABI by which it is kept from files it was not granted and from abstract sockets outside; 0 for none.
    pub held: u32,
    /// Whether a system call filter is on.
    pub filtered: bool,
    /// Whether the kernel ends it with its parent.
    pub ends_with_parent: bool,
    /// Where it starts.
    pub directory: CString,
    /// Input, output and error are these.
    pub streams: [Source; 3],
    /// What watches it.
    pub watcher: Option<Watcher>,
}

/// Writes the flat codec of a structure from the list of its fields.
macro_rules! fields {
    ($name:ident { $($field:ident),* $(,)? }) => {
        impl Flat for $name {
            fn put(&self, to: &mut Vec<u8>) { $(self.$field.put(to);)* }
            fn get(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
                Ok(Self { $($field: Flat::get(from)?),* })
            }
        }
    };
}

fields!(Mount { at, denies, whole });
fields!(Link { at, target });
fields!(Limit { resource, soft, hard });
fields!(Namespace { kind, not });
fields!(Groups { end, count });
fields!(Watcher { ids, ends_with_parent, reaps });
fields!(Promise {
    ids,
    capabilities,
    maps,
    namespaces,
    groups,
    mounts,
    links,
    host_name,
    limits,
    mask,
    leads_session,
    scoped,
    held,
    filtered,
    ends_with_parent,
    directory,
    streams,
    watcher,
});

impl Flat for Denies {
    fn put(&self, to: &mut Vec<u8>) {
        self.0.put(to);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        u8::get(from).map(Self)
    }
}

impl Item for Mount {}
impl Item for Link {}
impl Item for Limit {}
impl Item for Namespace {}

//! Every single thing that is done to make a sandbox: a reviewer reads this enum and the loop in `apply`, and knows.

use alloc::ffi::CString;
use alloc::vec::Vec;
use core::fmt;

use crate::flat::{Flat, Reader, Unreadable};
use crate::promise::Promise;

/// Names a descriptor given to the cell: an index into [`Recipe::fds`].
pub type Source = u32;

/// Most operations in one list of a recipe.
pub const OPS_MAX: usize = 4096;

/// Writes an enum of unit variants with its words and its place in the flat codec from one list.
macro_rules! words {
    ($(#[$doc:meta])* $name:ident { $($(#[$vdoc:meta])* $variant:ident = $tag:literal, $word:literal;)* }) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum $name { $($(#[$vdoc])* $variant,)* }

        impl $name {
            /// The word for it in messages.
            #[must_use]
            pub fn word(self) -> &'static str {
                match self { $(Self::$variant => $word,)* }
            }
            /// Its number in the flat codec.
            #[must_use]
            pub fn tag(self) -> u8 {
                match self { $(Self::$variant => $tag,)* }
            }
            /// The one with this number.
            #[must_use]
            pub fn from_tag(tag: u8) -> Option<Self> {
                match tag { $($tag => Some(Self::$variant),)* _ => None }
            }
        }

        impl $crate::flat::Flat for $name {
            fn put(&self, to: &mut Vec<u8>) { to.push(self.tag()); }
            fn get(from: &mut $crate::flat::Reader<'_>) -> Result<Self, $crate::flat::Unreadable> {
                let tag = <u8 as $crate::flat::Flat>::get(from)?;
                Self::from_tag(tag).ok_or($crate::flat::Unreadable(concat!("no such ", stringify!($name))))
            }
        }
    };
}
pub(crate) use words;

words! {
    /// Where a launch failed.
    Stage {
        /// Reading the recipe.
        Recipe = 1, "recipe";
        /// Joining the run's cgroups.
        Cgroup = 2, "cgroup";
        /// Namespaces, session, keyring.
        Namespaces = 3, "namespaces";
        /// The run's own root.
        Root = 4, "root";
        /// proc, dev and tmp.
        OwnFolders = 5, "proc, dev and tmp";
        /// Host paths, devices, homes and the workspace.
        HostPaths = 6, "host paths";
        /// created_files.
        CreatedFiles = 7, "created_files";
        /// Host name and loopback.
        Network = 8, "network";
        /// The program's user namespace and its id map.
        UserNamespace = 9, "user namespace";
        /// Account ids and groups.
        Ids = 10, "ids";
        /// Resource limits.
        Limits = 11, "limits";
        /// Capability sets and no_new_privs.
        Capabilities = 12, "capabilities";
        /// Landlock.
        Landlock = 13, "landlock";
        /// The system call filter.
        Filter = 14, "filter";
        /// The working directory.
        Directory = 15, "cwd";
        /// Streams, signals and descriptors.
        Streams = 16, "streams";
        /// The program itself.
        Exec = 17, "exec";
        /// The sandbox's init.
        Init = 18, "init";
        /// What the process became is not what was promised: the difference is named, and nothing is executed.
        Verify = 19, "verify";
    }
}

words! {
    /// What a bind lets the process do with what it shows.
    Access {
        /// Read only, no devices, no set-id.
        Read = 1, "read-only";
        /// Read and write, no devices, no set-id.
        Write = 2, "read-write";
        /// One device node, no set-id, nothing executed.
        Device = 3, "device";
    }
}

words! {
    /// What something is mounted on.
    Kind {
        /// A directory.
        Folder = 1, "folder";
        /// Anything else.
        File = 2, "file";
    }
}

words! {
    /// Who owns the place where a mount point is needed, so who makes it and with what trust.
    Point {
        /// The run's own file systems: made as root, with its parents.
        Own = 1, "made";
        /// A host path shown read-only: it has to be there already.
        There = 2, "found";
        /// A host path shown read-write: made, when missing, with the run account's rights, following nothing.
        Account = 3, "made as the account";
    }
}

words! {
    /// A part of what is measured before the program is executed, each when it can be seen.
    Measured {
        /// Its cgroups, while their names can still be seen.
        Groups = 1, "cgroups";
        /// What watches it, by itself.
        Watcher = 2, "what watches it";
        /// Everything else.
        All = 3, "all of it";
        /// The system call filters. Apart, since a filter denies what the rest is measured by.
        Filters = 4, "filters";
        /// What Landlock keeps it from. Last, since it keeps it from what the rest is measured by.
        Files = 5, "files";
    }
}

words! {
    /// A resource limit.
    Resource {
        /// RLIMIT_CPU, seconds.
        Cpu = 1, "cpu";
        /// RLIMIT_FSIZE, bytes.
        FileSize = 2, "file_size";
        /// RLIMIT_NPROC.
        Processes = 3, "processes";
        /// RLIMIT_CORE, bytes.
        Core = 4, "core";
    }
}

words! {
    /// What Landlock lets a process do with a file or with everything beneath a folder.
    Grant {
        /// Reads files, and lists no folder.
        Reads = 1, "reads";
        /// Reads files and lists folders.
        Lists = 2, "reads and lists";
        /// As above, and runs programs.
        Runs = 3, "runs";
        /// Makes, reads, writes and removes files and folders; runs none of them.
        Keeps = 4, "keeps";
        /// Reads, writes and controls devices.
        Device = 5, "uses the device";
    }
}

/// Writes the enum and its flat codec from one list.
macro_rules! ops {
    ($($(#[$doc:meta])* $name:ident = $tag:literal, $stage:ident, {
        $($(#[$fdoc:meta])* $field:ident: $ty:ty),* $(,)?
    };)*) => {
        /// One operation.
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub enum Op { $($(#[$doc])* $name { $($(#[$fdoc])* $field: $ty),* },)* }

        impl Op {
            /// The stage a failure of it belongs to.
            #[must_use]
            pub fn stage(&self) -> Stage {
                match self { $(Self::$name { .. } => Stage::$stage,)* }
            }
        }

        impl Flat for Op {
            fn put(&self, to: &mut Vec<u8>) {
                match self { $(Self::$name { $($field),* } => { to.push($tag); $($field.put(to);)* })* }
            }
            fn get(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
                match u8::get(from)? {
                    $($tag => Ok(Self::$name { $($field: <$ty>::get(from)?),* }),)*
                    _ => Err(Unreadable("no such operation")),
                }
            }
        }
    };
}

ops! {
    /// Writes `0` to a cgroup v1 `tasks` opened by the supervisor: its one thread is all of it.
    JoinGroup = 1, Cgroup, { /** The file. */ procs: Source };
    /// A cgroup namespace whose root is the group the cell is in now, so that no name of the host's shows.
    CgroupNamespace = 2, Cgroup, {};
    /// A session of its own: no controlling terminal.
    Session = 3, Namespaces, {};
    /// A session keyring of its own: the supervisor's keys are not inherited.
    Keyring = 4, Namespaces, {};
    /// The file mode creation mask.
    Mask = 5, Namespaces, { /** Bits withheld. */ bits: u32 };
    /// No mount made from here on is seen outside, nor the reverse.
    PrivateMounts = 6, Root, {};
    /// An empty tmpfs, to become the root.
    Root = 7, Root, {};
    /// Its own proc.
    Proc = 8, OwnFolders, { /** Where. */ at: CString, /** On what. */ point: Point };
    /// Its own device directory, with the usual nodes, pts and shm.
    Dev = 9, OwnFolders, { /** Where. */ at: CString, /** On what. */ point: Point };
    /// An empty directory for temporary files.
    Tmp = 10, OwnFolders, { /** Where. */ at: CString, /** On what. */ point: Point };
    /// A symbolic link that the host has at the same place.
    Link = 11, HostPaths, { /** Where. */ at: CString, /** Its text. */ target: CString };
    /// A host path, already a detached mount of its own.
    Bind = 12, HostPaths, {
        /** The detached mount. */ source: Source, /** Where. */ at: CString, /** For what. */ access: Access,
        /** File or folder. */ kind: Kind, /** On what. */ point: Point,
    };
    /// A file made for the process alone, mode 0644, owned by the account, in a tmpfs.
    CreatedFile = 13, CreatedFiles, {
        /** Where. */ at: CString, /** What it holds. */ text: Vec<u8>, /** On what. */ point: Point,
    };
    /// The tmpfs becomes the root; the host's is gone.
    Pivot = 14, Root, {};
    /// The root itself becomes read-only; what is mounted below keeps its own access.
    RootReadOnly = 15, Root, {};
    /// The name of the host, as seen inside.
    HostName = 16, Network, { /** The name. */ name: CString };
    /// Brings `lo` up.
    Loopback = 17, Network, {};
    /// No supplementary groups.
    NoGroups = 18, Ids, {};
    /// Network and host name owned by the process's own user namespace, for a run that keeps capabilities over them.
    OwnNamespaces = 19, Namespaces, { /** A new network too. */ network: bool };
    /// Real, effective, saved and file-system ids.
    Ids = 20, Ids, { /** User. */ uid: u32, /** Group. */ gid: u32 };
    /// A resource limit; never above what the supervisor itself may have.
    Limit = 21, Limits, {
        /** Which. */ resource: Resource, /** Where it is signalled. */ soft: u64, /** Where it ends. */ hard: u64,
    };
    /// Drops every capability but these from the bounding set.
    Bounding = 22, Capabilities, { /** Bits kept. */ keep: u64 };
    /// Permitted, effective, inheritable and ambient are exactly these.
    Capabilities = 23, Capabilities, { /** Bits kept. */ keep: u64 };
    /// No program it runs gains anything by being run.
    NoNewPrivileges = 24, Capabilities, {};
    /// Standard input, output and error.
    Streams = 25, Streams, {
        /** Input. */ stdin: Source, /** Output. */ stdout: Source, /** Error. */ stderr: Source,
    };
    /// Empty signal mask, default dispositions.
    Signals = 26, Streams, {};
    /// Where it starts.
    Directory = 27, Directory, { /** As the process sees it. */ at: CString };
    /// Landlock: no abstract socket and no signal to anything outside.
    Scopes = 28, Landlock, {};
    /// Nothing but the streams survives the exec.
    OnlyStreams = 29, Streams, {};
    /// Landlock: makes a ruleset of every file right and scope that this ABI knows.
    Ruleset = 37, Landlock, { /** The kernel's ABI, or a lower one. */ abi: u32 };
    /// Landlock: what may be done with this, and with everything beneath it when it is a folder.
    Allow = 38, Landlock, { /** The file or folder, opened. */ source: Source, /** What. */ grant: Grant };
    /// Landlock: from here on nothing else is opened, and nothing outside is signalled.
    Restrict = 39, Landlock, {};
    /// The system call filter, as BPF instructions of 8 bytes.
    Filter = 30, Filter, { /** The program. */ program: Vec<u8> };
    /// Ends with its parent; at once when the parent is already not the one given (0: not compared).
    EndWithParent = 31, Init, { /** The parent's pid as seen here. */ parent: u32 };
    /// Nothing of its memory can be read by another process.
    Undumpable = 32, Init, {};
    /// Compares what the process has become with what was promised, so that a step that did nothing does not pass.
    Measure = 34, Verify, { /** Which part. */ what: Measured };
    /// The ordinary nice value, whatever the supervisor's own is.
    Priority = 36, Namespaces, {};
    /// What its descendants leave becomes its own children, so that it reaps them (`PR_SET_CHILD_SUBREAPER`).
    Subreaper = 35, Init, {};
    /// Waits for the byte that lets it go; the pipe's end means nobody will.
    AwaitGo = 33, Init, { /** The pipe. */ lifeline: Source };
}

impl Op {
    /// What a failure is about, when it is about a path.
    #[must_use]
    pub fn subject(&self) -> Option<&CString> {
        match self {
            Self::Proc { at, .. }
            | Self::Dev { at, .. }
            | Self::Tmp { at, .. }
            | Self::Link { at, .. }
            | Self::Bind { at, .. }
            | Self::CreatedFile { at, .. }
            | Self::Directory { at } => Some(at),
            Self::JoinGroup { .. }
            | Self::CgroupNamespace {}
            | Self::Session {}
            | Self::Keyring {}
            | Self::Mask { .. }
            | Self::PrivateMounts {}
            | Self::Root {}
            | Self::Pivot {}
            | Self::RootReadOnly {}
            | Self::HostName { .. }
            | Self::Loopback {}
            | Self::NoGroups {}
            | Self::OwnNamespaces { .. }
            | Self::Ids { .. }
            | Self::Limit { .. }
            | Self::Bounding { .. }
            | Self::Capabilities { .. }
            | Self::NoNewPrivileges {}
            | Self::Streams { .. }
            | Self::Signals {}
            | Self::Scopes {}
            | Self::Ruleset { .. }
            | Self::Allow { .. }
            | Self::Restrict {}
            | Self::OnlyStreams {}
            | Self::Filter { .. }
            | Self::EndWithParent { .. }
            | Self::Undumpable {}
            | Self::Subreaper {}
            | Self::Priority {}
            | Self::Measure { .. }
            | Self::AwaitGo { .. } => None,
        }
    }
}

/// The operation in words, for `explain` and for snapshots.
impl fmt::Display for Op {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = |it: &CString| it.to_string_lossy().into_owned();
        match self {
            Self::JoinGroup { procs } => write!(f, "join the cgroup of descriptor {procs}"),
            Self::CgroupNamespace {} => f.write_str("cgroup namespace"),
            Self::Session {} => f.write_str("session of its own"),
            Self::Keyring {} => f.write_str("keyring of its own"),
            Self::Mask { bits } => write!(f, "umask {bits:03o}"),
            Self::PrivateMounts {} => f.write_str("private mounts"),
            Self::Root {} => f.write_str("empty root"),
            Self::Proc { at, point } => write!(f, "proc at {}, {}", text(at), point.word()),
            Self::Dev { at, point } => write!(f, "dev at {}, {}", text(at), point.word()),
            Self::Tmp { at, point } => write!(f, "tmp at {}, {}", text(at), point.word()),
            Self::Link { at, target } => write!(f, "link {} -> {}", text(at), text(target)),
            Self::Bind { source, at, access, kind, point } => {
                write!(f, "{} {} {source} at {}, {}", access.word(), kind.word(), text(at), point.word())
            }
            Self::CreatedFile { at, text: held, point } => {
                write!(f, "file of {} bytes at {}, {}", held.len(), text(at), point.word())
            }
            Self::Pivot {} => f.write_str("pivot"),
            Self::RootReadOnly {} => f.write_str("read-only root"),
            Self::HostName { name } => write!(f, "host name {}", text(name)),
            Self::Loopback {} => f.write_str("loopback up"),
            Self::NoGroups {} => f.write_str("no groups"),
            Self::OwnNamespaces { network: true } => f.write_str("network and host name of its own user namespace"),
            Self::OwnNamespaces { network: false } => f.write_str("host name of its own user namespace"),
            Self::Ids { uid, gid } => write!(f, "ids {uid}:{gid}"),
            Self::Limit { resource, soft, hard } => write!(f, "limit {} {soft} {hard}", resource.word()),
            Self::Bounding { keep } => write!(f, "bounding set {keep:x}"),
            Self::Capabilities { keep } => write!(f, "capabilities {keep:x}"),
            Self::NoNewPrivileges {} => f.write_str("no new privileges"),
            Self::Streams { stdin, stdout, stderr } => write!(f, "streams {stdin} {stdout} {stderr}"),
            Self::Signals {} => f.write_str("signals reset"),
            Self::Directory { at } => write!(f, "start in {}", text(at)),
            Self::Scopes {} => f.write_str("landlock scopes: abstract sockets, signals"),
            Self::Ruleset { abi } => write!(f, "landlock ruleset, abi {abi}"),
            Self::Allow { source, grant } => write!(f, "landlock {} {source}", grant.word()),
            Self::Restrict {} => f.write_str("landlock restricts"),
            Self::OnlyStreams {} => f.write_str("only the streams survive exec"),
            Self::Filter { program } => write!(f, "filter of {} instructions", program.len() / 8),
            Self::EndWithParent { .. } => f.write_str("ends with its parent"),
            Self::Undumpable {} => f.write_str("undumpable"),
            Self::Priority {} => f.write_str("ordinary priority"),
            Self::Subreaper {} => f.write_str("reaps what is left"),
            Self::Measure { what } => write!(f, "{} measured", what.word()),
            Self::AwaitGo { lifeline } => write!(f, "wait for go on {lifeline}"),
        }
    }
}

/// The program to become.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exec {
    /// Where it is looked for, in order.
    pub candidates: Vec<CString>,
    /// Its arguments, its own name first.
    pub argv: Vec<CString>,
    /// Its whole environment, `NAME=value` each.
    pub env: Vec<CString>,
}

/// A user namespace of one user and one group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maps {
    /// The user id inside and the host's for it.
    pub uid: [u32; 2],
    /// The group id inside and the host's for it.
    pub gid: [u32; 2],
}

/// The process of the program, and what its init does when the supervisor goes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inner {
    /// The program's own user namespace; absent, it is in the host's, and the init is a keeper without a sandbox.
    pub maps: Option<Maps>,
    /// The pipe whose first byte lets the program go and whose end is the supervisor's.
    pub lifeline: Source,
    /// Whether the end of the lifeline ends the sandbox once the program was let go.
    pub ends_with_parent: bool,
    /// What the init gives up.
    pub init: Vec<Op>,
}

/// A whole launch, ordered: `build`, then, where there is an `inner`, a second process, then `program` and the exec.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recipe {
    /// The descriptors, by number, that operations name by index.
    pub fds: Vec<u32>,
    /// Where the cell says how it went.
    pub status: Source,
    /// Whose rights mount points in host paths are made with: user, group.
    pub account: [u32; 2],
    /// What the cell does as root.
    pub build: Vec<Op>,
    /// The program's own process; absent, the cell itself becomes the program.
    pub inner: Option<Inner>,
    /// What is done in the process that becomes the program.
    pub program: Vec<Op>,
    /// What has come of all that when the program is executed.
    pub promise: Promise,
    /// The program.
    pub exec: Exec,
}

impl Flat for Recipe {
    fn put(&self, to: &mut Vec<u8>) {
        self.fds.put(to);
        self.status.put(to);
        self.account.put(to);
        self.build.put(to);
        self.inner.put(to);
        self.program.put(to);
        self.promise.put(to);
        self.exec.candidates.put(to);
        self.exec.argv.put(to);
        self.exec.env.put(to);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            fds: Vec::get(from)?,
            status: u32::get(from)?,
            account: <[u32; 2]>::get(from)?,
            build: Vec::get(from)?,
            inner: Option::get(from)?,
            program: Vec::get(from)?,
            promise: Promise::get(from)?,
            exec: Exec { candidates: Vec::get(from)?, argv: Vec::get(from)?, env: Vec::get(from)? },
        })
    }
}

impl Flat for Maps {
    fn put(&self, to: &mut Vec<u8>) {
        self.uid.put(to);
        self.gid.put(to);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        Ok(Self { uid: <[u32; 2]>::get(from)?, gid: <[u32; 2]>::get(from)? })
    }
}

impl Flat for Inner {
    fn put(&self, to: &mut Vec<u8>) {
        self.maps.put(to);
        self.lifeline.put(to);
        self.ends_with_parent.put(to);
        self.init.put(to);
    }
    fn get(from: &mut Reader<'_>) -> Result<Self, Unreadable> {
        Ok(Self {
            maps: Option::get(from)?,
            lifeline: u32::get(from)?,
            ends_with_parent: bool::get(from)?,
            init: Vec::get(from)?,
        })
    }
}

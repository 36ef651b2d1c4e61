//! What this host can give a run, looked at once at start.

use std::io;
use std::os::fd::AsFd as _;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use sandbox::measure::namespace_of;
use sandbox::promise::{Namespace, NamespaceKind};
use sandbox::seccomp;
use supervisor::wire::accounts::{Accounts, cgroup_name, node_cgroup_name};

use crate::cgroup::Cgroups;
use crate::own_files::{Guard, OwnFiles};

/// First Landlock ABI with scopes for abstract sockets and signals.
pub(crate) const LANDLOCK_SCOPES: u32 = 6;

/// In `ROOT`, where its owner lets runs make sandboxes of their own; looked at once, at start.
const NESTED: &str = "settings/nested_user_namespaces";

/// In `ROOT`, where its owner has runs share the host's abstract sockets rather than be refused.
const SHARED_SOCKETS: &str = "settings/shared_abstract_sockets";

/// The host, as policy and launches need it.
#[derive(Debug)]
pub(crate) struct Host {
    /// The accounts of `ROOT`.
    pub(crate) accounts: Accounts,
    /// `$$root$$`: where workspaces are.
    pub(crate) workspaces: PathBuf,
    /// `$$root$$` of runs without a sandbox.
    pub(crate) workspaces_open: PathBuf,
    /// `settings/unconfined`, which lets runs without a sandbox run here (decisions C-64).
    pub(crate) unconfined: PathBuf,
    /// `$$releases$$`.
    pub(crate) releases: PathBuf,
    /// `$$release$$`, the release that acts.
    pub(crate) release: PathBuf,
    /// OCX's own files.
    pub(crate) own: OwnFiles,
    /// The cgroups of this `ROOT`, where a usable hierarchy is.
    pub(crate) cgroups: Option<Cgroups>,
    /// Those of its protocol process, which no run has a part in; looked for when it is started.
    node_cgroups: OnceLock<Option<Cgroups>>,
    node_cgroup: String,
    /// The highest Landlock ABI, 0 for none.
    pub(crate) landlock_abi: u32,
    /// Whether its owner lets runs with a network meet the host's abstract sockets where the kernel cannot keep them away
    /// (decisions C-88): looked at once, at start.
    pub(crate) shared_abstract_sockets: bool,
    /// The namespaces this process is in, which no run's process is to be in.
    pub(crate) namespaces: Vec<Namespace>,
    /// Whether user namespaces can be made.
    pub(crate) user_namespaces: bool,
    /// The system call filter of every run's process.
    pub(crate) filter: Vec<u8>,
    /// The system call filter of every sandbox's init.
    pub(crate) init_filter: Vec<u8>,
}

impl Host {
    /// Looks at the host for a supervisor of this `ROOT`.
    ///
    /// # Errors
    /// When /proc cannot be read.
    pub(crate) fn look(root: &Path, accounts: Accounts, releases: &Path, release: &Path) -> io::Result<Self> {
        let always = [root, releases, release, Path::new("/run/ocx")].map(|it| (it.to_owned(), Guard::Always));
        let mut own = always.to_vec();
        own.extend(
            ["/usr/bin/ocx", "/usr/lib/systemd/system/ocx.service", "/etc/systemd/system/ocx.service"]
                .map(|it| (PathBuf::from(it), Guard::Writing)),
        );
        if let Ok(program) = std::env::current_exe() {
            own.push((program, Guard::Writing));
        }
        Ok(Self {
            accounts,
            workspaces: root.join("workspaces"),
            workspaces_open: root.join("workspaces-open"),
            unconfined: root.join("settings/unconfined"),
            releases: releases.to_owned(),
            release: release.to_owned(),
            own: OwnFiles::new(own)?,
            cgroups: Cgroups::find(&cgroup_name(root)),
            node_cgroups: OnceLock::new(),
            node_cgroup: node_cgroup_name(root),
            landlock_abi: sandbox::sys::landlock_abi(),
            shared_abstract_sockets: root.join(SHARED_SOCKETS).exists(),
            namespaces: namespaces()?,
            user_namespaces: user_namespaces(),
            filter: if root.join(NESTED).exists() { seccomp::nested_filter() } else { seccomp::filter() },
            init_filter: seccomp::init_filter(),
        })
    }

    /// The cgroups of its protocol process, which no run has a part in.
    pub(crate) fn node_cgroups(&self) -> Option<&Cgroups> {
        self.node_cgroups.get_or_init(|| Cgroups::find(&self.node_cgroup)).as_ref()
    }

    /// Whether runs without a sandbox may run here: looked at anew each time, since the owner may change his mind.
    ///
    /// # Errors
    /// Why not, for the run's author.
    pub(crate) fn unconfined(&self) -> Result<(), &'static str> {
        if std::fs::symlink_metadata(&self.unconfined).is_err() {
            return Err("the run has no sandbox, and this host runs nothing unconfined");
        }
        if self.cgroups.is_none() {
            return Err("the run has no sandbox, and this host has no cgroups, which alone could end all of it");
        }
        Ok(())
    }
}

fn user_namespaces() -> bool {
    // The file is absent where the kernel has none at all.
    let most = std::fs::read_to_string("/proc/sys/user/max_user_namespaces").unwrap_or_default();
    most.trim().parse::<u64>().is_ok_and(|it| it > 0)
}

/// The namespaces of this process (`namespaces(7)`).
fn namespaces() -> io::Result<Vec<Namespace>> {
    let own = std::fs::File::open("/proc/self")?;
    let one = |kind| namespace_of(own.as_fd(), kind).map(|not| Namespace { kind, not });
    // A kernel without user namespaces has no such file; what would be confined is refused there.
    let there = |kind: &NamespaceKind| *kind != NamespaceKind::User || user_namespaces();
    NamespaceKind::ALL.into_iter().filter(there).map(one).collect::<Result<_, _>>().map_err(|it| io::Error::other(it.0))
}

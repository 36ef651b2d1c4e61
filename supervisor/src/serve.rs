//! `ocx-supervisor serve`: start-up in order, then the loop.

use std::path::Path;
use std::time::Duration;

use mio::Interest;
use rustix::process::{DumpableBehavior, Resource, Rlimit};

use supervisor::points;

use crate::care::Care;
use crate::deadlines::{BootTime, Deadlines};
use crate::floor;
use crate::launch::{Host, LANDLOCK_SCOPES};
use crate::log;
use crate::names::{Due, Name};
use crate::node_process::NodeProcess;
use crate::outputs::Outputs;
use crate::places;
use crate::rings::Rings;
use crate::service::{Fixed, Service};
use crate::settings;
use crate::signals;
use crate::turn::Turn;
use crate::workspaces::Roots;

/// At the end, so many looks whether the node's programs are gone, and the time between two.
const LAST_LOOKS: u32 = 50;
const LAST_LOOK: Duration = Duration::from_millis(10);
/// The supervisor's own nice value.
const PRIORITY: i32 = -15;

/// Serves until asked to end.
///
/// # Errors
/// What is wrong and how to set it right; nothing was started then.
pub(crate) fn serve(root: &Path) -> Result<(), String> {
    if !rustix::process::geteuid().is_root() {
        return Err("serve needs root: it starts each run as an account of its own".to_owned());
    }
    harden()?;
    let root = places::root(root).map_err(|e| e.to_string())?;
    let accounts = places::accounts(&root).map_err(|e| e.to_string())?;
    places::check(&root, &accounts).map_err(|e| e.to_string())?;
    points::begin(&root);
    let grace = settings::grace(&root)?;
    let rings = Rings::new(settings::rings(&root)?);
    let floor = floor::read(&root)?;
    let boot = std::fs::read_to_string("/proc/sys/kernel/random/boot_id").map_err(|e| format!("boot id: {e}"))?;
    let boot = points::boot(boot);
    let (care, found) = Care::open(&root, boot.trim())?;

    let program = std::env::current_exe().map_err(|e| format!("/proc/self/exe: {e}"))?;
    let release = program.parent().ok_or("this program lies in no directory")?.to_owned();
    let mut host = Host::look(&root, accounts, releases(&release), &release).map_err(|e| format!("the host: {e}"))?;
    if let Some((cgroups, most)) = host.cgroups.as_mut().zip(settings::processes(&root)?) {
        cgroups.bound(most);
    }
    if !host.user_namespaces {
        // Not a reason to stay away: who asks for a run is to be answered, and the answer names this.
        log::say(format_args!(
            "user namespaces are off, and every run in a sandbox has one of its own: each is refused until \
             sysctl -w user.max_user_namespaces=10000 (and kernel.unprivileged_userns_clone=1 where there is one) \
             and a restart"
        ));
    }
    if host.shared_abstract_sockets && host.landlock_abi < LANDLOCK_SCOPES {
        log::say(format_args!(
            "settings/shared_abstract_sockets: runs with network true are not refused, though this kernel's Landlock cannot \
             keep the host's abstract sockets from them; remove the file and restart to have them refused"
        ));
    }
    if host.landlock_abi == 0 {
        log::say(format_args!(
            "this kernel has no Landlock: the protocol process can open whatever its account can (from Linux 5.13, with \
             landlock among the modules of lsm=, it can open its own files only)"
        ));
    }
    let signals = signals::open().map_err(|e| format!("signals: {e}"))?;
    let mut turn = Turn::new(Name::Timer).map_err(|e| format!("the loop: {e}"))?;
    let sources = turn.sources().clone();
    let signals = sources.watch(signals, Name::Signals, Interest::READABLE).map_err(|e| format!("signals: {e}"))?;
    let workspaces = Roots::of(&root, &accounts);
    let mut service = Service {
        fixed: Fixed { root, workspaces, release, grace, floor, host },
        sources,
        signals,
        deadlines: Deadlines::default(),
        care,
        runs: std::collections::BTreeMap::new(),
        last_handle: 0,
        node: NodeProcess::default(),
        link: None,
        rings,
        outputs: Outputs::default(),
        strays: false,
        ending: false,
        given_up: false,
    };
    log::say(format_args!("serving {}: {} runs found in care", service.fixed.root.display(), found.len()));
    service.take_over(found);
    service.node.take_over(&service.fixed.host);
    service.deadlines.set(BootTime::now(), Due::StartNode);
    while service.goes_on() {
        let ready = turn.wait(service.deadlines.next()).map_err(|e| format!("the loop: {e}"))?;
        service.turn(&ready);
    }
    // Killed whole; the last look takes its cgroup away.
    for _ in 0..LAST_LOOKS {
        if !service.node.lingers() {
            break;
        }
        std::thread::sleep(LAST_LOOK);
    }
    if service.given_up {
        return Err(
            "ended although something still lives; its care records name it, and the next start ends it".to_owned()
        );
    }
    log::say(format_args!("ended; {} runs stay in care for the next start", service.runs.len()));
    Ok(())
}

/// What this process must not do, whatever happens to it: leave a core, show its memory, lose what runs leave behind.
fn harden() -> Result<(), String> {
    rustix::process::set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(|e| format!("not dumpable: {e}"))?;
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    rustix::process::setrlimit(Resource::Core, none).map_err(|e| format!("no core: {e}"))?;
    // What an init leaves comes here and not to the host's init.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(|e| format!("subreaper: {e}"))?;
    // Runs compete for the processors with each other, not with what has to end them; a program starts without it.
    rustix::process::setpriority_process(None, PRIORITY).map_err(|e| format!("priority: {e}"))?;
    nix::unistd::setgroups(&[]).map_err(|e| format!("no groups: {e}"))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o077));
    let most = rustix::process::getrlimit(Resource::Nofile).maximum;
    // Runs are bounded by number; each needs a few descriptors.
    let files = Rlimit { current: most.or(Some(1 << 16)), maximum: most };
    rustix::process::setrlimit(Resource::Nofile, files).map_err(|e| format!("open files: {e}"))
}

/// The release root of a release: `ROOT/releases/NAME`'s is `ROOT` (decisions C-67); any other directory is its own.
fn releases(release: &Path) -> &Path {
    match release.parent().filter(|parent| parent.ends_with("releases")).and_then(Path::parent) {
        Some(releases) => releases,
        None => release,
    }
}

//! What this host provides, told once in `welcome`.

use supervisor::wire::plan::Provides;

use crate::cgroup::Cgroups;
use crate::service::Fixed;
use crate::{credentials, log};

/// Looks at what may have changed since the start, and says the rest as it was found then.
pub(crate) fn provides(fixed: &Fixed, boot: &str) -> Provides {
    let system = rustix::system::uname();
    let projects = credentials::projects(&fixed.root).unwrap_or_else(|error| {
        log::say(format_args!("passwords: {error}; no project is served"));
        Vec::new()
    });
    let host = &fixed.host;
    Provides {
        kernel: system.release().to_string_lossy().into_owned(),
        boot_id: boot.to_owned(),
        host_name: system.nodename().to_string_lossy().into_owned(),
        root: fixed.root.display().to_string(),
        workspaces: fixed.workspaces.confined.path.display().to_string(),
        workspaces_open: fixed.workspaces.open.path.display().to_string(),
        releases: host.releases.display().to_string(),
        release: host.release.display().to_string(),
        projects,
        user_namespaces: host.user_namespaces,
        landlock_abi: host.landlock_abi,
        cgroup: host.cgroups.is_some(),
        memory: host.cgroups.as_ref().is_some_and(Cgroups::memory),
        floor: fixed.floor,
    }
}

//! A whole guest: systemd is PID 1, and what is to be done is a service of it, with a cgroup given away to it.

use std::fs::{self, File};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::mount::MountFlags;

use crate::words::Plan;
use crate::{carry_out, mounted, programs};

/// The word that this program is started with as a service.
pub(crate) const WORD: &str = "whole";

/// Where it keeps itself and its plan; on the /run that systemd finds mounted and leaves so.
const PLACE: &str = "/run/ocx-guest";
/// The service's name.
const UNIT: &str = "ocx-guest.service";
/// The console, which is its terminal.
const CONSOLE: &str = "/dev/console";

/// Makes the service known, and becomes systemd. Only an error comes back.
pub(crate) fn hand_over(own: &[u8], plan: &str) -> String {
    match prepare(own, plan) {
        Err(why) => why,
        Ok(()) => format!("/usr/sbin/init: {}", Command::new("/usr/sbin/init").exec()),
    }
}

fn prepare(own: &[u8], plan: &str) -> Result<(), String> {
    mounted("tmpfs", "/run", "tmpfs", MountFlags::NOSUID | MountFlags::NODEV, "mode=0755")?;
    let place = Path::new(PLACE);
    let units = Path::new("/run/systemd/system");
    let wants = units.join("multi-user.target.wants");
    for directory in [place, units, &wants] {
        fs::create_dir_all(directory).map_err(|e| format!("{}: {e}", directory.display()))?;
    }
    // The subgroup leaves the group itself without processes, so that it can pass controllers on to other groups in it.
    let unit = format!(
        "[Unit]\nDescription=What this guest is there for\nFailureAction=poweroff-force\n\
         [Service]\nType=exec\nExecStart={PLACE}/init {WORD}\nDelegate=yes\nDelegateSubgroup=jobs\nTasksMax=infinity\n"
    );
    for (file, bytes) in
        [(place.join("init"), own), (place.join("plan"), plan.as_bytes()), (units.join(UNIT), unit.as_bytes())]
    {
        fs::write(&file, bytes).map_err(|e| format!("{}: {e}", file.display()))?;
    }
    let init = place.join("init");
    fs::set_permissions(&init, fs::Permissions::from_mode(0o755)).map_err(|e| format!("{}: {e}", init.display()))?;
    symlink(units.join(UNIT), wants.join(UNIT)).map_err(|e| format!("{}: {e}", wants.display()))
}

/// As the service: the plan, on the console.
pub(crate) fn service() -> Result<(), String> {
    let console = File::options().read(true).write(true).open(CONSOLE).map_err(|e| format!("{CONSOLE}: {e}"))?;
    let all = [rustix::stdio::dup2_stdin(&console), rustix::stdio::dup2_stdout(&console)];
    for done in all.into_iter().chain([rustix::stdio::dup2_stderr(&console)]) {
        done.map_err(|e| format!("{CONSOLE}: {e}"))?;
    }
    let file = Path::new(PLACE).join("plan");
    let plan = Plan::read(&fs::read_to_string(&file).map_err(|e| format!("{}: {e}", file.display()))?)?;
    // Not earlier: it may lie under /tmp, where systemd mounts one of its own.
    programs(&plan.programs_at)?;
    // Orphans of the jobs come to us, as they do to PID 1 of a bare guest.
    rustix::process::set_child_subreaper(Some(rustix::process::getpid())).map_err(|e| format!("subreaper: {e}"))?;
    let group = group()?;
    carry_out(&plan, &|| {
        let mut all = Vec::new();
        members(&group, &mut all);
        all.retain(|pid| *pid != rustix::process::getpid().as_raw_pid());
        all
    });
    Ok(())
}

/// Has systemd end everything and power off.
pub(crate) fn power_off() -> Result<(), String> {
    match Command::new("/usr/bin/systemctl").args(["--no-block", "poweroff"]).status() {
        Ok(status) if status.success() => Ok(()),
        other => Err(format!("systemctl poweroff: {other:?}")),
    }
}

/// The cgroup given to the service: the one above our own.
fn group() -> Result<PathBuf, String> {
    let file = "/proc/self/cgroup";
    let text = fs::read_to_string(file).map_err(|e| format!("{file}: {e}"))?;
    let own = text.lines().find_map(|it| it.strip_prefix("0::/")).ok_or_else(|| format!("{file}: no cgroup v2"))?;
    let own = Path::new("/sys/fs/cgroup").join(own);
    own.parent().map(Path::to_owned).ok_or_else(|| format!("{}: nothing above it", own.display()))
}

/// The processes of a group and of all below it.
fn members(group: &Path, all: &mut Vec<i32>) {
    let text = fs::read_to_string(group.join("cgroup.procs")).unwrap_or_default();
    all.extend(text.lines().filter_map(|it| it.parse::<i32>().ok()));
    for entry in fs::read_dir(group).into_iter().flatten().flatten() {
        if entry.file_type().is_ok_and(|it| it.is_dir()) {
            members(&entry.path(), all);
        }
    }
}

//! What a cell said of a failure, and how a process ended, in words and exit codes.

use rustix::io::Errno;
use sandbox::op::Stage;
use sandbox::spec::Limits;
use sandbox::status::{Ended, Failed};

use crate::policy::plain;

/// SIGKILL, SIGXCPU, SIGXFSZ.
const KILL: u8 = 9;
const CPU: u8 = 24;
const FILE_SIZE: u8 = 25;

/// A failure in one line, without its stage: `PATH: No such file or directory` (decisions C-45).
pub(crate) fn why(failed: &Failed) -> String {
    let subject = String::from_utf8_lossy(&failed.subject);
    let error = Errno::from_raw_os_error(failed.errno);
    let words = match (failed.stage, error) {
        // The file is there, so what it names on its first line or in its header is not.
        (Stage::Exec, Errno::LIBBAD) => "its interpreter or loader is not in the sandbox".to_owned(),
        (Stage::HostPaths | Stage::CreatedFiles, Errno::LOOP) => {
            "a symbolic link is in the way of its mount point".to_owned()
        }
        (Stage::UserNamespace, Errno::NOSPC) => "no more user namespaces (user.max_user_namespaces)".to_owned(),
        _ => plain(error),
    };
    if subject.is_empty() { words } else { format!("{subject}: {words}") }
}

/// The exit code a shell gives a process that ended so.
pub(crate) const fn exit_code(how: Ended) -> u8 {
    match how {
        Ended::Code(code) => code,
        Ended::Signal(signal) => 128_u8.saturating_add(signal),
    }
}

/// The kernel's limit that ended a process nobody else ended (decisions C-35), by its key.
pub(crate) fn limit_passed(how: Ended, cpu_us: u64, limits: &Limits, out_of_memory: bool) -> Option<&'static str> {
    let cpu = limits.cpu_s.map(|it| it.saturating_mul(1_000_000));
    match how {
        _ if out_of_memory => Some("memory"),
        Ended::Signal(CPU) if cpu.is_some() => Some("cpu"),
        Ended::Signal(KILL) if cpu.is_some_and(|it| cpu_us >= it) => Some("cpu"),
        Ended::Signal(FILE_SIZE) if limits.file_size_bytes.is_some() => Some("file_size"),
        Ended::Signal(_) | Ended::Code(_) => None,
    }
}

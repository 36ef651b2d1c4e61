//! Linux capability names → bits (capabilities(7)). Upper case, as the protocol has them (decisions C-47).

/// Every capability, in the kernel's order: its bit is its place.
pub(crate) const NAMES: [&str; 41] = [
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_DAC_READ_SEARCH",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_KILL",
    "CAP_SETGID",
    "CAP_SETUID",
    "CAP_SETPCAP",
    "CAP_LINUX_IMMUTABLE",
    "CAP_NET_BIND_SERVICE",
    "CAP_NET_BROADCAST",
    "CAP_NET_ADMIN",
    "CAP_NET_RAW",
    "CAP_IPC_LOCK",
    "CAP_IPC_OWNER",
    "CAP_SYS_MODULE",
    "CAP_SYS_RAWIO",
    "CAP_SYS_CHROOT",
    "CAP_SYS_PTRACE",
    "CAP_SYS_PACCT",
    "CAP_SYS_ADMIN",
    "CAP_SYS_BOOT",
    "CAP_SYS_NICE",
    "CAP_SYS_RESOURCE",
    "CAP_SYS_TIME",
    "CAP_SYS_TTY_CONFIG",
    "CAP_MKNOD",
    "CAP_LEASE",
    "CAP_AUDIT_WRITE",
    "CAP_AUDIT_CONTROL",
    "CAP_SETFCAP",
    "CAP_MAC_OVERRIDE",
    "CAP_MAC_ADMIN",
    "CAP_SYSLOG",
    "CAP_WAKE_ALARM",
    "CAP_BLOCK_SUSPEND",
    "CAP_AUDIT_READ",
    "CAP_PERFMON",
    "CAP_BPF",
    "CAP_CHECKPOINT_RESTORE",
];

/// The names of these bits.
pub(crate) fn names(bits: u64) -> Vec<&'static str> {
    NAMES.iter().enumerate().filter(|(place, _)| bits & (1 << place) != 0).map(|(_, name)| *name).collect()
}

/// The bits of these names.
///
/// # Errors
/// The index of the first that is none this host knows, and why.
pub(crate) fn bits(names: &[String]) -> Result<u64, (usize, String)> {
    let mut bits = 0;
    for (index, name) in names.iter().enumerate() {
        let place = NAMES.iter().position(|it| it == name).filter(|it| u64::try_from(*it).is_ok_and(|it| it <= last()));
        bits |= 1_u64 << place.ok_or_else(|| (index, format!("{name}: this host knows no such capability")))?;
    }
    Ok(bits)
}

/// The kernel's last capability.
fn last() -> u64 {
    let text = std::fs::read_to_string("/proc/sys/kernel/cap_last_cap").unwrap_or_default();
    text.trim().parse().unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_its_bit_and_an_unknown_one_is_named() {
        let names = |it: &[&str]| it.iter().map(|it| (*it).to_owned()).collect::<Vec<_>>();
        assert_eq!(bits(&names(&["CAP_CHOWN", "CAP_NET_BIND_SERVICE"])), Ok(1 | 1 << 10));
        assert_eq!(bits(&names(&["CAP_CHOWN", "cap_kill"])).map_err(|it| it.0), Err(1));
        assert_eq!(bits(&[]), Ok(0));
    }
}

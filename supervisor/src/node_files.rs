//! What the protocol process and the programs it drives may open, as a table: its own two folders, what it is made of,
//! and what a name server and TLS need. Landlock denies the rest, whatever the account's own rights (design, section 1).

use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::{Mode, OFlags, open as open_path};
use rustix::io::Errno;
use sandbox::op::Grant;

/// Places of every host; one that is not there is passed over.
///
/// A rule holds for what a name leads to now. So a file that is replaced while the node runs is reached by its folder:
/// `resolv.conf` above all, which changes with the network. That is why `/etc` is whole. It can be read, as by anybody,
/// and not listed.
const HOST: &[(&str, Grant)] = &[
    ("/usr", Grant::Runs),
    ("/bin", Grant::Runs),
    ("/lib", Grant::Runs),
    ("/lib64", Grant::Runs),
    // Where these are links out of /usr.
    ("/usr/bin/fossil", Grant::Runs),
    ("/usr/local/bin/fossil", Grant::Runs),
    ("/etc", Grant::Reads),
    ("/etc/ssl", Grant::Lists),
    // What /etc/resolv.conf leads to.
    ("/run/systemd/resolve", Grant::Reads),
    ("/run/NetworkManager", Grant::Reads),
    ("/run/resolvconf", Grant::Reads),
    ("/dev/null", Grant::Device),
    ("/dev/random", Grant::Reads),
    ("/dev/urandom", Grant::Reads),
    // Fossil is told a password on a terminal made for it.
    ("/dev/ptmx", Grant::Device),
    ("/dev/pts", Grant::Device),
];

/// Opens all of it, for the node's cell.
///
/// # Errors
/// Which place, and why.
pub(crate) fn open(root: &Path, release: &Path) -> Result<Vec<(OwnedFd, Grant)>, String> {
    let own =
        [(root.join("state"), Grant::Keeps), (root.join("clones"), Grant::Keeps), (release.to_owned(), Grant::Runs)];
    let host = HOST.iter().map(|(path, grant)| (Path::new(path).to_owned(), *grant));
    let mut opened = Vec::new();
    for (path, grant) in own.into_iter().chain(host) {
        match open_path(&path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Ok(fd) => opened.push((fd, grant)),
            Err(Errno::NOENT) if HOST.iter().any(|(there, _)| Path::new(there) == path) => {}
            Err(errno) => return Err(format!("{}: {errno}", path.display())),
        }
    }
    Ok(opened)
}

//! What lies where under a trial's one directory, and making it.

use std::fs::{self, DirBuilder, Permissions};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::path::{Path, PathBuf};

use ::supervisor::wire::accounts::{Account, Accounts, derive};

use super::Trouble;
use super::host::PROGRAMS;

/// The project's name: of its passwords file and of its clone.
pub const PROJECT: &str = "trial";

/// The paths of one trial.
#[derive(Debug, Clone)]
pub struct Layout {
    /// The one directory; everything else is below it.
    pub dir: PathBuf,
}

impl Layout {
    /// The server's own directory, which its account owns.
    #[must_use]
    pub fn server(&self) -> PathBuf {
        self.dir.join("server")
    }
    /// The server's repository.
    #[must_use]
    pub fn repository(&self) -> PathBuf {
        self.server().join("server.fossil")
    }
    /// Where the server finds its extension.
    #[must_use]
    pub fn extensions(&self) -> PathBuf {
        self.server().join("ext")
    }
    /// `ROOT` of the node.
    #[must_use]
    pub fn root(&self) -> PathBuf {
        self.dir.join("root")
    }
    /// The node's clone.
    #[must_use]
    pub fn clone_file(&self) -> PathBuf {
        self.root().join("clones").join(format!("{PROJECT}.fossil"))
    }
    /// The passwords file of the project (decisions C-66).
    #[must_use]
    pub fn passwords(&self) -> PathBuf {
        self.root().join("passwords").join(format!("{PROJECT}.json"))
    }
    /// The release that acts.
    #[must_use]
    pub fn release(&self) -> PathBuf {
        self.dir.join("opt/releases/trial")
    }
    /// Runs that were launched and are settled, a line each (decisions C-101).
    #[must_use]
    pub fn launched(&self) -> PathBuf {
        self.root().join("care/launched")
    }
    /// What the supervisor, and the node below it, say.
    #[must_use]
    pub fn log(&self) -> PathBuf {
        self.dir.join("supervisor.log")
    }
    /// What is needed to come back to a kept trial.
    #[must_use]
    pub fn kept(&self) -> PathBuf {
        self.dir.join("trial.json")
    }
    /// The host accounts, derived from `ROOT` (decisions C-96).
    #[must_use]
    pub fn accounts(&self) -> Accounts {
        derive(&self.root())
    }
}

/// Makes the directories and copies the programs.
///
/// # Errors
/// When the directory named is there and not empty, or something cannot be written; what was made then stays for
/// [`remove`].
pub fn make(dir: Option<&Path>, programs: &Path) -> Result<Layout, Trouble> {
    let dir = match dir {
        Some(named) => take(named)?,
        None => fresh()?,
    };
    let layout = Layout { dir };
    // From here on the directory is ours, so a failure takes it away again.
    let made = fill(&layout, programs);
    if made.is_err() {
        drop(fs::remove_dir_all(&layout.dir));
    }
    made.map(|()| layout)
}

/// A directory a person named: absent or empty.
fn take(named: &Path) -> Result<PathBuf, Trouble> {
    let at = |e| Trouble::at(named.display(), e);
    match fs::read_dir(named) {
        Ok(mut entries) => {
            if entries.next().is_some() {
                return Err(Trouble::stopped(format!(
                    "{} is not empty, and a trial removes its directory: name one that is absent or empty (a kept \
                     trial is stopped by `ocx try --stop {}`)",
                    named.display(),
                    named.display()
                )));
            }
        }
        Err(e) if e.kind() == std::io::ErrorKind::NotFound => {
            DirBuilder::new().mode(0o711).create(named).map_err(at)?;
        }
        Err(e) => return Err(at(e)),
    }
    // Accounts and sockets derive from the path, so it is the true one, and every account must reach it.
    let real = fs::canonicalize(named).map_err(at)?;
    fs::set_permissions(&real, Permissions::from_mode(0o711)).map_err(at)?;
    for above in real.ancestors().skip(1) {
        let mode = fs::metadata(above).map_err(|e| Trouble::at(above.display(), e))?.permissions().mode();
        if mode & 0o001 == 0 {
            drop(fs::remove_dir(&real));
            return Err(Trouble::stopped(format!(
                "{} lies below {}, which others may not enter (mode {:o}), and each part of a trial has an account of \
                 its own; name a directory below /tmp or /srv",
                named.display(),
                above.display(),
                mode & 0o7777
            )));
        }
    }
    Ok(real)
}

/// A directory of our own in the directory for temporary files.
fn fresh() -> Result<PathBuf, Trouble> {
    let temporary = std::env::temp_dir();
    let temporary = fs::canonicalize(&temporary).map_err(|e| Trouble::at(temporary.display(), e))?;
    let dir = temporary.join(format!("ocx-try-{}", super::random(8)?));
    // An existing one is an error: with 40 random bits it was put there.
    DirBuilder::new().mode(0o711).create(&dir).map_err(|e| Trouble::at(dir.display(), e))?;
    // Whatever the umask took.
    fs::set_permissions(&dir, Permissions::from_mode(0o711)).map_err(|e| Trouble::at(dir.display(), e))?;
    Ok(dir)
}

fn fill(layout: &Layout, programs: &Path) -> Result<(), Trouble> {
    let accounts = layout.accounts();
    let root = Account { uid: 0, gid: 0 };
    // Owners and modes of design's table for ROOT; each part checks its own at start.
    let directories = [
        (layout.server(), accounts.server, 0o700),
        (layout.dir.join("opt"), root, 0o755),
        (layout.dir.join("opt/releases"), root, 0o755),
        (layout.release(), root, 0o755),
        (layout.root(), root, 0o711),
        (layout.root().join("settings"), root, 0o755),
        (layout.root().join("passwords"), root, 0o700),
        (layout.root().join("care"), root, 0o700),
        (layout.root().join("clones"), accounts.node, 0o700),
        (layout.root().join("state"), accounts.node, 0o700),
        (layout.root().join("workspaces"), accounts.run, 0o700),
        (layout.root().join("workspaces-open"), accounts.open, 0o700),
    ];
    for (path, owner, mode) in directories {
        let at = |e| Trouble::at(path.display(), e);
        DirBuilder::new().mode(mode).create(&path).map_err(at)?;
        fs::set_permissions(&path, Permissions::from_mode(mode)).map_err(at)?;
        chown(&path, Some(owner.uid), Some(owner.gid)).map_err(at)?;
    }
    for program in PROGRAMS {
        let (from, to) = (programs.join(program), layout.release().join(program));
        fs::copy(&from, &to).map_err(|e| Trouble::at(format!("copying {} to {}", from.display(), to.display()), e))?;
        fs::set_permissions(&to, Permissions::from_mode(0o755)).map_err(|e| Trouble::at(to.display(), e))?;
    }
    let current = layout.dir.join("opt/current");
    std::os::unix::fs::symlink("releases/trial", &current).map_err(|e| Trouble::at(current.display(), e))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_that_is_not_empty_is_left_as_it_is() -> std::io::Result<()> {
        let dir = std::env::temp_dir().join(format!("ocx-layout-{}", std::process::id()));
        fs::create_dir(&dir)?;
        fs::write(dir.join("mine"), "kept")?;
        let refused = make(Some(&dir), Path::new("/nonexistent"));
        let kept = fs::read_to_string(dir.join("mine"));
        fs::remove_dir_all(&dir)?;
        assert!(refused.is_err_and(|e| e.to_string().contains("is not empty")));
        assert_eq!(kept?, "kept");
        Ok(())
    }
}

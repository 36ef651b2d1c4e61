//! Putting the program where Fossil runs extensions.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

/// Copies `program` to `EXTROOT/ocx`, mode 0755, in one step: a request sees the old one or the new one. Makes EXTROOT
/// (0755) when it is not there. Gives the path of the copy.
///
/// # Errors
/// With the path that failed.
pub fn install(extroot: &Path, program: &Path) -> io::Result<PathBuf> {
    let at = |path: &Path, error: io::Error| io::Error::new(error.kind(), format!("{}: {error}", path.display()));
    if !extroot.is_dir() {
        fs::create_dir(extroot).map_err(|error| at(extroot, error))?;
        fs::set_permissions(extroot, fs::Permissions::from_mode(0o755)).map_err(|error| at(extroot, error))?;
    }
    let place = extroot.join("ocx");
    // A name that begins with a dot is none that Fossil would run.
    let part = extroot.join(".ocx.part");
    fs::copy(program, &part).map_err(|error| at(program, error))?;
    fs::set_permissions(&part, fs::Permissions::from_mode(0o755)).map_err(|error| at(&part, error))?;
    File::open(&part).and_then(|file| file.sync_all()).map_err(|error| at(&part, error))?;
    fs::rename(&part, &place).map_err(|error| at(&place, error))?;
    File::open(extroot).and_then(|folder| folder.sync_all()).map_err(|error| at(extroot, error))?;
    Ok(place)
}

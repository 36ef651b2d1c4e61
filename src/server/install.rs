//! Putting the program where Fossil runs extensions.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

/// Tries of starting the copy: another thread's child may hold it open for writing until it has exec'ed.
pub const START_TRIES: u32 = 100;
/// Wait between two such tries.
pub const START_AGAIN: Duration = Duration::from_millis(20);

/// Copies `program` to `EXTROOT/ocx`, mode 0755, in one step: a request sees the old one or the new one, which has
/// been seen to start here. Makes EXTROOT (0755) when it is not there. Gives the path of the copy.
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
    // Fossil would answer 200 `Not Found` for a program it cannot start.
    if let Err(error) = starts(&part) {
        drop(fs::remove_file(&part));
        return Err(at(program, error));
    }
    fs::rename(&part, &place).map_err(|error| at(&place, error))?;
    File::open(extroot).and_then(|folder| folder.sync_all()).map_err(|error| at(extroot, error))?;
    Ok(place)
}

/// Starts the copy as Fossil does, with no tool named, which it must refuse in JSON.
fn starts(program: &Path) -> io::Result<()> {
    let mut tries = 1;
    let output = loop {
        let started =
            Command::new(program).env_clear().env("GATEWAY_INTERFACE", "CGI/1.1").stdin(Stdio::null()).output();
        match started {
            Err(error) if error.kind() == io::ErrorKind::ExecutableFileBusy && tries < START_TRIES => {
                tries += 1;
                std::thread::sleep(START_AGAIN);
            }
            other => break other?,
        }
    };
    if output.stdout.starts_with(b"Status: 404 ") {
        Ok(())
    } else {
        Err(io::Error::other(format!("is not the extension: it ended with {} and another answer", output.status)))
    }
}

//! The `files` step: the files a pipe carries, written beneath a directory of the workspace and nowhere else
//! (protocol 2.7; decisions C-16, C-98).

use std::fs::File;
use std::io::{self, Read};
use std::os::fd::OwnedFd;
use std::path::{Component, Path};

use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

use super::bundle::{self, BYTES_MAX, Entry, FILES_MAX};
use super::tree;

/// Writes every file of the bundle below `into`, which is strictly below `workspace` and is made where it is not.
///
/// # Errors
/// When the bundle is cut short, holds more than it may or a name that leads elsewhere, or a file cannot be written.
pub(super) fn unpack(workspace: &Path, into: &Path, from: &mut impl Read) -> io::Result<()> {
    let top = tree::make_directories(workspace, into)?;
    let (mut files, mut left_bytes) = (0, BYTES_MAX);
    while let Some(entry) = bundle::next(from)? {
        files += 1;
        if files > FILES_MAX {
            return Err(io::Error::other(format!("the check-in has more than {FILES_MAX} files")));
        }
        left_bytes = left_bytes
            .checked_sub(entry.bytes)
            .ok_or_else(|| io::Error::other(format!("the check-in's files are larger than {BYTES_MAX} bytes")))?;
        write(&top, &entry, from)
            .map_err(|error| io::Error::new(error.kind(), format!("{:?}: {error}", entry.name)))?;
    }
    Ok(())
}

fn write(top: &OwnedFd, entry: &Entry, from: &mut impl Read) -> io::Result<()> {
    let name = Path::new(&entry.name);
    // Each part as it is written: `a/`, `a//b` and `./a` are other spellings, which no check-in has.
    let plain = entry.name.split('/').all(|part| !part.is_empty())
        && name.components().all(|part| matches!(part, Component::Normal(_)))
        && name.components().count() == entry.name.split('/').count();
    let (Some(last), true) = (name.file_name(), plain) else {
        return Err(io::Error::other("not a plain path below the check-in's top"));
    };
    let parent = tree::make_below(top, name.parent().unwrap_or(Path::new("")))?;
    // What stands there, a link of an earlier step's among them, goes; a directory does not.
    match rustix::fs::unlinkat(&parent, last, AtFlags::empty()) {
        Ok(()) | Err(Errno::NOENT) => {}
        Err(errno) => return Err(errno.into()),
    }
    let mode = if entry.executable { Mode::from_raw_mode(0o755) } else { Mode::from_raw_mode(0o644) };
    let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let mut file = File::from(rustix::fs::openat(&parent, last, flags, mode)?);
    let written = io::copy(&mut from.take(entry.bytes), &mut file)?;
    if written != entry.bytes {
        return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "cut short on its way"));
    }
    // Whatever the mask of this process is.
    rustix::fs::fchmod(&file, mode)?;
    Ok(())
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use std::fs;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    use super::super::scratch::Folder;
    use super::*;

    fn bundle_of(files: &[(&str, bool, &str)]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, executable, text) in files {
            bundle::put(&mut bytes, name, *executable, text.as_bytes()).unwrap();
        }
        bundle::end(&mut bytes).unwrap();
        bytes
    }

    fn unpacked(folder: &Folder, files: &[(&str, bool, &str)]) -> io::Result<()> {
        unpack(&folder.0, &folder.0.join("tree"), &mut bundle_of(files).as_slice())
    }

    #[test]
    fn v2_2_7_11_files_are_executable_as_the_check_in_marks_them() {
        let folder = Folder::new("modes");
        let files = [("a.txt", false, "hi\n"), ("d/e/run.sh", true, "#!/bin/sh\n"), ("empty", false, "")];
        unpacked(&folder, &files).unwrap();
        let mode = |name: &str| fs::metadata(folder.0.join("tree").join(name)).unwrap().permissions().mode() & 0o777;
        assert_eq!((mode("a.txt"), mode("d/e/run.sh"), mode("empty")), (0o644, 0o755, 0o644));
        assert_eq!(fs::read_to_string(folder.0.join("tree/a.txt")).unwrap(), "hi\n");
    }

    #[test]
    fn c_16_every_write_is_beneath_and_no_link_is_followed() {
        let folder = Folder::new("links");
        let victim = Folder::new("links-victim");
        fs::write(victim.0.join("kept"), "x").unwrap();
        fs::create_dir_all(folder.0.join("tree")).unwrap();
        symlink(&victim.0, folder.0.join("tree/out")).unwrap();
        symlink(victim.0.join("kept"), folder.0.join("tree/file")).unwrap();
        unpacked(&folder, &[("out/kept", false, "y")]).unwrap_err();
        // A link at the place of a file goes, and what it named stays.
        unpacked(&folder, &[("file", false, "y")]).unwrap();
        assert_eq!(fs::read_to_string(victim.0.join("kept")).unwrap(), "x");
        assert!(fs::symlink_metadata(folder.0.join("tree/file")).unwrap().is_file());
        for name in ["../x", "/x", "a/../../x", "a/", ".", "..", "a//b", "./a"] {
            assert!(unpacked(&folder, &[(name, false, "y")]).is_err(), "{name}");
        }
        assert!(!folder.0.join("x").exists());
        // Control: the same place without a link in the way.
        unpacked(&folder, &[("in/kept", false, "y")]).unwrap();
    }

    #[test]
    fn c_98_what_is_cut_short_or_no_bundle_is_an_error_wherever_it_ends() {
        let folder = Folder::new("cut");
        let whole = bundle_of(&[("a", false, "text"), ("b/c", true, "more")]);
        let into = folder.0.join("tree");
        unpack(&folder.0, &into, &mut whole.as_slice()).unwrap();
        for end in 0..whole.len() {
            assert!(unpack(&folder.0, &into, &mut whole.get(..end).unwrap()).is_err(), "{end}");
        }
        unpack(&folder.0, &into, &mut [9_u8].as_slice()).unwrap_err();
        let mut huge = vec![1, 0, 1, b'x'];
        huge.extend(u64::MAX.to_be_bytes());
        unpack(&folder.0, &into, &mut huge.as_slice()).unwrap_err();
    }
}

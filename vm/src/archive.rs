//! Debian packages without touching the host's: an apt of our own, with its lists and packages in the cache.
//!
//! apt takes the packages asked for and what they depend on as if nothing were installed; `dpkg-deb` unpacks them, and no
//! script of theirs runs. So it works for an architecture this machine cannot execute, in seconds.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::recipe::{self, Kernel};
use crate::sum;

/// The key that Debian signs with, on every Debian.
const KEYS: &str = "/usr/share/keyrings/debian-archive-keyring.gpg";
/// Longest silence of the archive, in seconds, and how often it is asked again.
const ASK_SECONDS: u32 = 30;
const ASK_AGAIN: u32 = 3;

/// One architecture's packages.
pub(crate) struct Archive {
    dir: PathBuf,
    release: String,
}

impl Archive {
    /// Makes the apt of `dir`, and asks the archive for its lists.
    ///
    /// # Errors
    /// The archive cannot be reached or is not signed as it must be: apt's words stand above.
    pub(crate) fn open(dir: &Path, from: &recipe::Archive, debian: &str) -> Result<Self, String> {
        let archive = Self { dir: dir.to_owned(), release: from.release.clone() };
        for sub in ["etc/apt.conf.d", "etc/preferences.d", "lists/partial", "archives/partial"] {
            fs::create_dir_all(dir.join(sub)).map_err(|e| format!("{}: {e}", dir.join(sub).display()))?;
        }
        let sources: String = from.sources.iter().map(|it| format!("deb [signed-by={KEYS}] {it}\n")).collect();
        let at = dir.display();
        let settings = format!(
            "Dir \"{at}\";\nDir::Etc \"etc\";\nDir::State \"{at}\";\nDir::State::lists \"{at}/lists\";\n\
             Dir::State::status \"{at}/status\";\nDir::Cache \"{at}\";\nDir::Cache::archives \"{at}/archives\";\n\
             APT::Architecture \"{debian}\";\nAPT::Architectures {{ \"{debian}\"; }};\n\
             APT::Install-Recommends \"false\";\nAPT::Sandbox::User \"root\";\nAcquire::Languages \"none\";\n\
             Acquire::Retries \"{ASK_AGAIN}\";\nAcquire::http::Timeout \"{ASK_SECONDS}\";\nDebug::NoLocking \"true\";\n"
        );
        for (name, text) in [("etc/sources.list", sources.as_str()), ("status", ""), ("apt.conf", settings.as_str())] {
            fs::write(dir.join(name), text).map_err(|e| format!("{}: {e}", dir.join(name).display()))?;
        }
        archive.apt(&["--error-on=any", "update"], &archive.dir)?;
        Ok(archive)
    }

    fn apt(&self, args: &[&str], at: &Path) -> Result<(), String> {
        let status = Command::new("apt-get")
            .args(["--yes", "--quiet=2"])
            .args(args)
            .current_dir(at)
            .env("APT_CONFIG", self.dir.join("apt.conf"))
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null())
            .stdout(std::io::stderr())
            .status()
            .map_err(|e| format!("apt-get: {e}"))?;
        if status.success() {
            Ok(())
        } else {
            Err(format!("apt-get {}: {status}; its words stand above", args.join(" ")))
        }
    }

    /// The files of these packages and of all they depend on.
    ///
    /// # Errors
    /// As apt has them.
    pub(crate) fn with_dependencies(&self, packages: &[String]) -> Result<Vec<PathBuf>, String> {
        let place = self.dir.join("archives");
        // What an earlier call left is not this call's; apt's own "partial" stays.
        for file in debs(&place)? {
            fs::remove_file(&file).map_err(|e| format!("{}: {e}", file.display()))?;
        }
        let words: Vec<&str> =
            ["--download-only", "install"].into_iter().chain(packages.iter().map(String::as_str)).collect();
        self.apt(&words, &self.dir)?;
        debs(&place)
    }

    /// The files of a kernel's packages, each one's sum checked.
    ///
    /// # Errors
    /// The archive no longer has it, and what to do then; or it is another file than was pinned.
    pub(crate) fn pinned(&self, kernel: &Kernel) -> Result<Vec<PathBuf>, String> {
        kernel.packages.iter().map(|(package, sum)| self.one_pinned(package, &kernel.version, sum)).collect()
    }

    fn one_pinned(&self, package: &str, version: &str, sha256: &str) -> Result<PathBuf, String> {
        let place = self.dir.join("pinned").join(package);
        drop(fs::remove_dir_all(&place));
        fs::create_dir_all(&place).map_err(|e| format!("{}: {e}", place.display()))?;
        self.apt(&["download", &format!("{package}={version}")], &place).map_err(|why| {
            format!(
                "Debian's archive ({}) has no {package} {version}, which vm/kernels.toml pins: either it cannot be reached, \
                 or it has gone on to a newer kernel. Then write that one's package, version and SHA256 there, as \
                 `apt-cache policy` and `apt-cache show` print them ({why})",
                self.release
            )
        })?;
        let found = debs(&place)?;
        let [file] = found.as_slice() else { return Err(format!("{package}: {} files came", found.len())) };
        let sum = sum::of_file(file).map_err(|e| format!("{}: {e}", file.display()))?;
        if sum == sha256 {
            Ok(file.clone())
        } else {
            Err(format!("{package} {version}: its sum is {sum}, not {sha256} as vm/kernels.toml pins; it is not used"))
        }
    }
}

fn debs(place: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(place).map_err(|e| format!("{}: {e}", place.display()))?;
    let mut files: Vec<PathBuf> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|file| file.extension() == Some(OsStr::new("deb")));
    files.sort();
    Ok(files)
}

/// Unpacks packages into a directory.
///
/// # Errors
/// The package that cannot be.
pub(crate) fn unpack(files: &[PathBuf], into: &Path) -> Result<(), String> {
    // What older packages have in /lib goes where Debian 13 has it, whichever package comes first.
    for link in ["bin", "sbin", "lib", "lib64"] {
        let real = into.join("usr").join(link);
        fs::create_dir_all(&real).map_err(|e| format!("{}: {e}", real.display()))?;
        std::os::unix::fs::symlink(format!("usr/{link}"), into.join(link))
            .map_err(|e| format!("{}/{link}: {e}", into.display()))?;
    }
    for file in files {
        let status = Command::new("dpkg-deb").arg("--extract").arg(file).arg(into).stdin(Stdio::null()).status();
        if !status.as_ref().is_ok_and(std::process::ExitStatus::success) {
            return Err(format!("dpkg-deb --extract {}: {status:?}", file.display()));
        }
    }
    Ok(())
}

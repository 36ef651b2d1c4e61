//! What guests are made of, taken from the cache or made: QEMU, the kernel, the root image.

use std::fs::{self, File};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::archive::{self, Archive};
use crate::recipe::{self, Arch, Recipe};

/// The cache where nothing else is said.
const CACHE: &str = "/var/cache/ocx-vm";
const MIB: u64 = 1 << 20;
/// Longest wait for another command to have made what it makes.
const CACHE_WAIT: Duration = Duration::from_secs(1800);
/// How often it is looked whether it has.
const LOOK: Duration = Duration::from_millis(500);

/// The cache, held by this process: two commands do not make the same thing at once.
pub(crate) struct Cache<'a> {
    dir: PathBuf,
    recipe: &'a Recipe,
    /// Closed with this value, which lets the next command in.
    _lock: File,
}

/// QEMU, unpacked.
#[derive(Debug, Clone)]
pub(crate) struct Tools {
    dir: PathBuf,
}

/// A kernel, unpacked.
#[derive(Debug, Clone)]
pub(crate) struct Kernel {
    /// The image QEMU starts.
    pub(crate) image: PathBuf,
    /// The modules a guest loads, in order.
    pub(crate) modules: Vec<PathBuf>,
}

/// Where the cache is: `$XDG_CACHE_HOME/ocx-vm`, or `/var/cache/ocx-vm`.
pub(crate) fn place() -> PathBuf {
    std::env::var_os("XDG_CACHE_HOME").map_or_else(|| PathBuf::from(CACHE), |dir| PathBuf::from(dir).join("ocx-vm"))
}

impl<'a> Cache<'a> {
    /// Opens it, and waits for another command that holds it.
    ///
    /// # Errors
    /// It cannot be made or locked.
    pub(crate) fn open(recipe: &'a Recipe) -> Result<Self, String> {
        let dir = place();
        let named = |e: std::io::Error| format!("{}: {e}", dir.display());
        fs::create_dir_all(&dir).map_err(named)?;
        let lock = File::create(dir.join("lock")).map_err(named)?;
        let start = Instant::now();
        while rustix::fs::flock(&lock, rustix::fs::FlockOperation::NonBlockingLockExclusive).is_err() {
            if start.elapsed() > CACHE_WAIT {
                let waited = CACHE_WAIT.as_secs();
                return Err(format!("{}: another cargo vm has held it for {waited} s; is it stuck?", dir.display()));
            }
            if start.elapsed() < LOOK {
                eprintln!("cargo vm: {} is in use by another cargo vm; waiting for it", dir.display());
            }
            std::thread::sleep(LOOK);
        }
        Ok(Self { dir, recipe, _lock: lock })
    }

    /// Takes `name` from the cache, or makes it under another name first: nothing half-made is ever taken.
    fn made(&self, name: &str, what: &str, make: impl FnOnce(&Path) -> Result<(), String>) -> Result<PathBuf, String> {
        let done = self.dir.join(name);
        if done.exists() {
            return Ok(done);
        }
        eprintln!("cargo vm: making {what} ({})", done.display());
        let start = Instant::now();
        let making = self.dir.join(format!("making-{name}"));
        clear(&making)?;
        make(&making)?;
        fs::rename(&making, &done).map_err(|e| format!("{}: {e}", done.display()))?;
        eprintln!("cargo vm: made {what} in {} s", start.elapsed().as_secs());
        Ok(done)
    }

    /// Removes what another recipe made under this beginning: an image is a gigabyte. A guest that has it open keeps it.
    fn drop_older(&self, beginning: &str, name: &str) -> Result<(), String> {
        let entries = fs::read_dir(&self.dir).map_err(|e| format!("{}: {e}", self.dir.display()))?;
        for entry in entries.flatten() {
            let found = entry.file_name().to_string_lossy().into_owned();
            if found.starts_with(beginning) && found != name {
                clear(&entry.path())?;
            }
        }
        Ok(())
    }

    fn archive(&self, debian: &str) -> Result<Archive, String> {
        Archive::open(&self.dir.join(format!("apt-{debian}")), &self.recipe.archive, debian)
    }

    /// QEMU for this machine.
    ///
    /// # Errors
    /// It cannot be fetched or unpacked.
    pub(crate) fn tools(&self) -> Result<Tools, String> {
        let host = host_debian()?;
        let dir = self.made(&self.recipe.tools_name(&host)?, "QEMU", |into| {
            let files = self.archive(&host)?.with_dependencies(&self.recipe.tools.packages)?;
            archive::unpack(&files, into)
        })?;
        Ok(Tools { dir })
    }

    /// A pinned kernel of an architecture.
    ///
    /// # Errors
    /// It cannot be fetched, is another than pinned, or lacks a module that is asked for.
    pub(crate) fn kernel(&self, arch: &Arch, kernel: &recipe::Kernel) -> Result<Kernel, String> {
        let dir = self.made(&kernel.name()?, &kernel.packages(), |into| {
            archive::unpack(&self.archive(&arch.debian)?.pinned(kernel)?, into)
        })?;
        let own = entry(&dir.join("usr/lib/modules"), "")?;
        // Newer packages keep the image beside the modules.
        let beside = own.join("vmlinuz");
        let image = if beside.is_file() { beside } else { entry(&dir.join("boot"), "vmlinuz-")? };
        let modules: Vec<PathBuf> = arch.modules.iter().map(|it| own.join("kernel").join(it)).collect();
        match modules.iter().find(|it| !it.is_file()) {
            Some(lacking) => Err(format!("{}: this kernel has no such module", lacking.display())),
            None => Ok(Kernel { image, modules }),
        }
    }

    /// The root image of an architecture; guests write to a copy of theirs alone.
    ///
    /// # Errors
    /// It cannot be fetched or made.
    pub(crate) fn root(&self, arch: &Arch) -> Result<PathBuf, String> {
        let name = self.recipe.root_name(arch)?;
        self.drop_older(&format!("root-{}-", arch.debian), &name)?;
        self.made(&name, &format!("the {} root of {}", arch.debian, self.recipe.archive.release), |into| {
            let tree = self.dir.join(format!("tree-{}", arch.debian));
            clear(&tree)?;
            let files = self.archive(&arch.debian)?.with_dependencies(&self.recipe.root.packages)?;
            archive::unpack(&files, &tree)?;
            furnish(&tree)?;
            ext4(&tree, into, self.recipe.root.free_mib)?;
            clear(&tree)
        })
    }
}

/// The one entry of a directory with this beginning.
fn entry(dir: &Path, beginning: &str) -> Result<PathBuf, String> {
    let entries = fs::read_dir(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    let found = entries.flatten().find(|it| it.file_name().to_string_lossy().starts_with(beginning));
    found.map(|it| it.path()).ok_or_else(|| format!("{}: nothing named {beginning}…", dir.display()))
}

/// Removes what an interrupted command left.
fn clear(path: &Path) -> Result<(), String> {
    let gone = if path.is_dir() { fs::remove_dir_all(path) } else { fs::remove_file(path) };
    match gone {
        Err(e) if e.kind() != std::io::ErrorKind::NotFound => Err(format!("{}: {e}", path.display())),
        Ok(()) | Err(_) => Ok(()),
    }
}

/// This machine's architecture, in Debian's words.
fn host_debian() -> Result<String, String> {
    let output = Command::new("dpkg").arg("--print-architecture").output();
    let output = output.map_err(|e| format!("dpkg: {e}; guests are made on Debian"))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}

/// What the packages' scripts would have made that a bare guest needs.
fn furnish(tree: &Path) -> Result<(), String> {
    let named = |path: &str| {
        let at = tree.join(path).display().to_string();
        move |e: std::io::Error| format!("{at}: {e}")
    };
    for (from, to) in [("passwd.master", "etc/passwd"), ("group.master", "etc/group")] {
        fs::copy(tree.join("usr/share/base-passwd").join(from), tree.join(to)).map_err(named(to))?;
    }
    for (file, text) in [
        ("etc/hosts", "127.0.0.1 localhost guest\n::1 localhost\n"),
        ("etc/hostname", "guest\n"),
        ("etc/resolv.conf", "# A guest has no network.\n"),
        ("etc/nsswitch.conf", "passwd: files\ngroup: files\nhosts: files\n"),
        // A host that was started before: systemd asks nothing at its console.
        ("etc/machine-id", "0c0c0c0c0c0c4c0c8c0c0c0c0c0c0c0c\n"),
    ] {
        fs::write(tree.join(file), text).map_err(named(file))?;
    }
    for directory in ["proc", "sys", "dev", "run", "tmp", "root", "etc/ssl/certs", "var/tmp"] {
        fs::create_dir_all(tree.join(directory)).map_err(named(directory))?;
    }
    for directory in ["tmp", "var/tmp"] {
        let mode = std::os::unix::fs::PermissionsExt::from_mode(0o1777);
        fs::set_permissions(tree.join(directory), mode).map_err(named(directory))?;
    }
    // An alternative of Debian's, made by a script.
    if !tree.join("usr/bin/awk").exists() {
        symlink("gawk", tree.join("usr/bin/awk")).map_err(named("usr/bin/awk"))?;
    }
    Ok(())
}

/// A file system with what a directory holds, made without mounting anything.
pub(crate) fn ext4(from: &Path, image: &Path, free_mib: u64) -> Result<(), String> {
    let file = File::create(image).map_err(|e| format!("{}: {e}", image.display()))?;
    // A tenth and a little more is the file system's own.
    let bytes = size(from)? * 11 / 10 + (free_mib + 16) * MIB;
    file.set_len(bytes.next_multiple_of(MIB)).map_err(|e| format!("{}: {e}", image.display()))?;
    let output = Command::new("mke2fs")
        .args([
            "-q",
            "-F",
            "-t",
            "ext4",
            "-O",
            "^has_journal",
            "-m",
            "0",
            "-E",
            "lazy_itable_init=1,root_owner=0:0",
            "-d",
        ])
        .arg(from)
        .arg(image)
        .env("PATH", "/usr/sbin:/sbin:/usr/bin:/bin")
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("mke2fs: {e}"))?;
    if output.status.success() {
        Ok(())
    } else {
        Err(format!("mke2fs -d {}: {}: {}", from.display(), output.status, String::from_utf8_lossy(&output.stderr)))
    }
}

/// What a tree takes on disk, by its files' sizes, each rounded up to a block.
fn size(tree: &Path) -> Result<u64, String> {
    let named = |e: std::io::Error| format!("{}: {e}", tree.display());
    let mut bytes = 4096;
    for entry in fs::read_dir(tree).map_err(named)? {
        let entry = entry.map_err(named)?;
        let facts = entry.metadata().map_err(named)?;
        bytes += if facts.is_dir() { size(&entry.path())? } else { facts.len().next_multiple_of(4096) };
    }
    Ok(bytes)
}

impl Tools {
    /// QEMU for an architecture, started through the loader it came with: the host's libraries are another release's.
    ///
    /// # Errors
    /// What came lacks its loader.
    pub(crate) fn qemu(&self, arch: &str) -> Result<Command, String> {
        let lib = entry(&self.dir.join("usr/lib"), &format!("{}-linux-gnu", std::env::consts::ARCH))?;
        let loader = entry(&lib, "ld-linux")?;
        // It goes with us, however we go: a guest that nobody listens to is of no use.
        let mut command = Command::new("setpriv");
        command
            .args(["--pdeathsig", "KILL", "--"])
            .arg(loader)
            .arg("--library-path")
            .arg(&lib)
            .arg(self.dir.join(format!("usr/bin/qemu-system-{arch}")));
        command.env("QEMU_MODULE_DIR", lib.join("qemu"));
        for firmware in ["qemu", "seabios"] {
            command.arg("-L").arg(self.dir.join("usr/share").join(firmware));
        }
        Ok(command)
    }
}

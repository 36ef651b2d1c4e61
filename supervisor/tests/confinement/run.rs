//! A file for `once`, and what came of running it.

use std::ffi::OsStr;
use std::fs;
use std::io::Write as _;
use std::os::unix::fs::{PermissionsExt as _, chown};
use std::os::unix::process::ExitStatusExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::Failed;
use serde_json::{Value, json};

/// An account that owns nothing, and needs no entry in the host's list.
pub(crate) const ACCOUNT: u32 = 64321;

/// How long anything waited for may take.
const WAIT_MAX: Duration = Duration::from_secs(120);

/// Why nothing can be tested here.
pub(crate) fn lacks() -> Option<&'static str> {
    (!rustix::process::geteuid().is_root()).then_some("confinement is made by root, and this is not root")
}

/// What one run came to.
#[derive(Debug)]
pub(crate) struct Came {
    pub(crate) code: i32,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Came {
    /// Fails the test unless it exited so.
    pub(crate) fn exits(self, code: i32) -> Result<Self, Failed> {
        if self.code == code { Ok(self) } else { Err(format!("exit {code} was expected: {self:?}").into()) }
    }

    /// Fails the test unless stderr holds this.
    pub(crate) fn says(self, words: &str) -> Result<Self, Failed> {
        if self.err.contains(words) {
            Ok(self)
        } else {
            Err(format!("{words:?} was expected on stderr: {self:?}").into())
        }
    }

    /// Fails the test unless stdout is exactly this.
    pub(crate) fn prints(self, out: &str) -> Result<Self, Failed> {
        if self.out == out { Ok(self) } else { Err(format!("{out:?} was expected: {self:?}").into()) }
    }
}

/// A folder of one test's own, the account's, gone with it.
pub(crate) struct Folder(pub(crate) PathBuf);

impl Folder {
    pub(crate) fn new() -> Result<Self, Failed> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = PathBuf::from(format!("/var/tmp/ocx-confinement-{}-{count}", std::process::id()));
        fs::create_dir(&path)?;
        chown(&path, Some(ACCOUNT), Some(ACCOUNT))?;
        Ok(Self(path))
    }

    /// Those a process made and left.
    pub(crate) fn of(pid: u32) -> Vec<PathBuf> {
        let own = format!("ocx-confinement-{pid}-");
        let all = fs::read_dir("/var/tmp").into_iter().flatten().flatten();
        all.filter(|it| it.file_name().to_string_lossy().starts_with(&own)).map(|it| it.path()).collect()
    }

    pub(crate) fn text(&self) -> String {
        self.0.display().to_string()
    }

    /// A folder in it, the account's or root's.
    pub(crate) fn folder(&self, name: &str, owner: u32) -> Result<String, Failed> {
        let path = self.0.join(name);
        fs::create_dir(&path)?;
        chown(&path, Some(owner), Some(owner))?;
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755))?;
        Ok(path.display().to_string())
    }

    pub(crate) fn file(&self, name: &str, text: &str) -> Result<String, Failed> {
        let path = self.0.join(name);
        fs::write(&path, text)?;
        Ok(path.display().to_string())
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        // A test that failed may leave it; the next is not held up by it.
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A run to be made: the ordinary one, changed by each test.
#[derive(Clone)]
pub(crate) struct Run(Value);

impl Run {
    /// A shell script in a sandbox that shows programs and nothing else.
    pub(crate) fn sh(script: &str) -> Self {
        Self::command(&["sh", "-c", script])
    }

    pub(crate) fn command(command: &[&str]) -> Self {
        Self(json!({
            "sandbox": {
                "uid": 1000, "gid": 1000, "linux_capabilities": [], "network": false, "isolate_terminal": true,
                "ends_with_parent": true, "proc": "/proc", "dev": "/dev", "tmp": "/tmp",
                "read_only": programs(), "read_write": [], "homes": [], "created_files": [],
            },
            "process": {"command": command, "env": {"PATH": "/usr/bin:/bin"}, "cwd": "/"},
        }))
    }

    /// Sets one key, by a JSON pointer such as `/sandbox/network`.
    pub(crate) fn with(mut self, pointer: &str, value: Value) -> Self {
        let (parent, key) = pointer.rsplit_once('/').unwrap_or(("", pointer));
        if self.0.pointer(parent).is_none() {
            self = self.with(parent, json!({}));
        }
        if let Some(object) = self.0.pointer_mut(parent).and_then(Value::as_object_mut) {
            object.insert(key.to_owned(), value);
        }
        self
    }

    /// Adds paths to `read_only`.
    pub(crate) fn reading(self, paths: &[&str]) -> Self {
        let all: Vec<String> = programs().into_iter().chain(paths.iter().map(|it| (*it).to_owned())).collect();
        self.with("/sandbox/read_only", json!(all))
    }

    pub(crate) fn writing(self, paths: &[&str]) -> Self {
        self.with("/sandbox/read_write", json!(paths))
    }

    /// What is asked, as FILE holds it.
    pub(crate) fn json(&self) -> &Value {
        &self.0
    }

    /// Writes the file and gives the command that runs it.
    fn prepared(&self) -> Result<(File, Command), Failed> {
        let file = File::new(&self.0.to_string())?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_ocx-supervisor"));
        command.arg("once").arg("--account").arg(format!("{ACCOUNT}:{ACCOUNT}")).arg(&file.0);
        Ok((file, command))
    }

    /// Runs it to the end.
    pub(crate) fn run(&self) -> Result<Came, Failed> {
        let (_file, mut command) = self.prepared()?;
        came(command.stdin(Stdio::null()))
    }

    /// What `explain` says of it.
    pub(crate) fn explained(&self, words: &[&str]) -> Result<Came, Failed> {
        let (file, _) = self.prepared()?;
        let mut command = Command::new(env!("CARGO_BIN_EXE_ocx-supervisor"));
        command.arg("explain").arg("--account").arg(format!("{ACCOUNT}:{ACCOUNT}")).args(words).arg(&file.0);
        came(&mut command)
    }

    /// Runs it to the end from within a shell script, in which `$ONCE` runs it. For what has to be set up around it.
    pub(crate) fn around(&self, outer: &[&str], script: &str) -> Result<Came, Failed> {
        let (_file, command) = self.prepared()?;
        let once: Vec<&OsStr> = std::iter::once(command.get_program()).chain(command.get_args()).collect();
        let once = once.join(OsStr::new(" "));
        let (program, arguments) = outer.split_first().map_or(("sh", &[][..]), |(first, rest)| (*first, rest));
        let mut around = Command::new(program);
        around.args(arguments);
        if !outer.is_empty() {
            around.arg("sh");
        }
        came(around.arg("-c").arg(script).env("ONCE", once).stdin(Stdio::null()))
    }

    /// Starts it and leaves it running.
    pub(crate) fn start(&self) -> Result<Started, Failed> {
        let (file, mut command) = self.prepared()?;
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
        Ok(Started { child, _file: file })
    }
}

/// A run under way.
pub(crate) struct Started {
    child: Child,
    _file: File,
}

impl Started {
    pub(crate) fn signal(&self, signal: rustix::process::Signal) -> Result<(), Failed> {
        let pid = i32::try_from(self.child.id()).ok().and_then(rustix::process::Pid::from_raw).ok_or("no pid")?;
        rustix::process::kill_process(pid, signal)?;
        Ok(())
    }

    pub(crate) fn end(self) -> Result<Came, Failed> {
        let output = self.child.wait_with_output()?;
        Ok(read(&output))
    }

    /// Waits for the command alone, though a process it left may hold its streams.
    pub(crate) fn end_alone(mut self) -> Result<(), Failed> {
        self.child.wait()?;
        Ok(())
    }
}

fn came(command: &mut Command) -> Result<Came, Failed> {
    Ok(read(&command.output()?))
}

fn read(output: &std::process::Output) -> Came {
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let code = output.status.code().or_else(|| output.status.signal().map(|it| 1000 + it)).unwrap_or(-1);
    Came { code, out: text(&output.stdout), err: text(&output.stderr) }
}

/// A file gone with its value.
struct File(PathBuf);

impl File {
    fn new(text: &str) -> Result<Self, Failed> {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        let path = std::env::temp_dir().join(format!("ocx-once-{}-{count}.json", std::process::id()));
        fs::File::create(&path)?.write_all(text.as_bytes())?;
        Ok(Self(path))
    }
}

impl Drop for File {
    fn drop(&mut self) {
        drop(fs::remove_file(&self.0));
    }
}

/// Where programs and what they load are, on this host.
fn programs() -> Vec<String> {
    let all = ["/usr", "/bin", "/sbin", "/lib", "/lib64"];
    all.into_iter().filter(|it| Path::new(it).exists()).map(str::to_owned).collect()
}

/// Waits until `holds`; fails the test when it does not in time.
pub(crate) fn wait_until(what: &str, mut holds: impl FnMut() -> bool) -> Result<(), Failed> {
    let start = Instant::now();
    while !holds() {
        if start.elapsed() > WAIT_MAX {
            return Err(format!("{what}: not within {} s", WAIT_MAX.as_secs()).into());
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    Ok(())
}

/// A process of the host with this word on its command line.
pub(crate) fn pid_of(word: &str) -> Option<u32> {
    fs::read_dir("/proc").ok()?.flatten().find_map(|it| {
        let line = fs::read(it.path().join("cmdline")).unwrap_or_default();
        let has = line.split(|byte| *byte == 0).any(|it| it == word.as_bytes());
        has.then(|| it.file_name().to_str().and_then(|it| it.parse().ok())).flatten()
    })
}

/// Whether there is one.
pub(crate) fn lives(word: &str) -> bool {
    pid_of(word).is_some()
}

/// A word no other process has: a number of seconds to sleep for.
pub(crate) fn unique() -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    format!("4{:07}.{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed))
}

/// Fails the test unless both are the same.
pub(crate) fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, expected: T) -> Result<(), Failed> {
    if got == expected { Ok(()) } else { Err(format!("{what}: {got:?}, expected {expected:?}").into()) }
}

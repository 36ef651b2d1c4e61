//! Running the `fossil` program: an exact environment, bounded time and output, ended by its handle.

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// Most bytes kept of each of a command's outputs.
pub const OUTPUT_MAX: u64 = 1 << 20;
/// Wait for the last of the outputs once the program is gone: something it started could hold them open.
pub const DRAIN_WAIT: Duration = Duration::from_secs(2);
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// The `fossil` program and whom it runs for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Program {
    /// The program's path.
    pub path: PathBuf,
    /// A folder of our own that is its HOME; it keeps a small configuration file there.
    pub home: PathBuf,
    /// `USER`: only a default name for writes in a clone.
    pub user: String,
}

/// What a command did.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) status: ExitStatus,
    pub(crate) stdout: String,
    pub(crate) stderr: String,
}

/// Why a command has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ProgramError {
    /// It could not be started: is the program there?
    NotStarted(String),
    /// It was ended after the time given.
    TimedOut(Duration),
    /// Waiting for it or reading its output failed.
    Lost(String),
}

impl std::fmt::Display for ProgramError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NotStarted(why) => write!(f, "fossil could not be started: {why}"),
            Self::TimedOut(after) => write!(f, "fossil was ended after {} s", after.as_secs()),
            Self::Lost(why) => write!(f, "fossil was lost: {why}"),
        }
    }
}

impl std::error::Error for ProgramError {}

impl Program {
    /// The program at `path`, with HOME `home` and USER `user`.
    pub fn new(path: &Path, home: &Path, user: &str) -> Self {
        Self { path: path.to_owned(), home: home.to_owned(), user: user.to_owned() }
    }

    /// `fossil` in one of the folders of PATH, or in the usual ones.
    pub fn find() -> Option<PathBuf> {
        let path = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&path)
            .chain(["/usr/local/bin", "/usr/bin", "/bin"].map(PathBuf::from))
            .filter(|folder| folder.is_absolute())
            .map(|folder| folder.join("fossil"))
            .find(|file| file.is_file())
    }

    /// Environment exactly so: GATEWAY_INTERFACE would make it a web server, `http_proxy` send it elsewhere.
    pub(crate) fn dress(&self, command: &mut Command) {
        command
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &self.home)
            // The node may write in its own folders alone.
            .env("TMPDIR", &self.home)
            .env("USER", &self.user)
            .env("LANG", "C.UTF-8");
    }

    /// Runs to the end, or ends it after `wait`.
    pub(crate) fn run(&self, args: &[&std::ffi::OsStr], wait: Duration) -> Result<Ran, ProgramError> {
        let mut command = Command::new(&self.path);
        self.dress(&mut command);
        command.args(args).current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child =
            command.spawn().map_err(|error| ProgramError::NotStarted(format!("{}: {error}", self.path.display())))?;
        let stdout = child.stdout.take().map(collect);
        let stderr = child.stderr.take().map(collect);
        let status = finish(&mut child, Instant::now() + wait, wait)?;
        Ok(Ran { status, stdout: drain(stdout), stderr: drain(stderr) })
    }
}

/// Waits for `child` until `deadline`, then kills it; it is reaped in any case.
pub(super) fn finish(child: &mut Child, deadline: Instant, wait: Duration) -> Result<ExitStatus, ProgramError> {
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return Ok(status),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(LOOK_AGAIN),
            Ok(None) => {
                end(child);
                return Err(ProgramError::TimedOut(wait));
            }
            Err(error) => {
                end(child);
                return Err(ProgramError::Lost(error.to_string()));
            }
        }
    }
}

/// Kills and reaps; a child that is gone already is no failure.
pub(super) fn end(child: &mut Child) {
    drop(child.kill());
    drop(child.wait());
}

/// Reads in a thread of its own, so that a full pipe never stops the program.
fn collect(from: impl Read + Send + 'static) -> mpsc::Receiver<Vec<u8>> {
    let (sender, receiver) = mpsc::channel();
    std::thread::spawn(move || {
        let mut from = from;
        let mut kept = Vec::new();
        // What could be read counts; the rest is read and dropped.
        drop(from.by_ref().take(OUTPUT_MAX).read_to_end(&mut kept));
        drop(sender.send(kept));
        drop(std::io::copy(&mut from, &mut std::io::sink()));
    });
    receiver
}

fn drain(output: Option<mpsc::Receiver<Vec<u8>>>) -> String {
    let bytes = output.and_then(|receiver| receiver.recv_timeout(DRAIN_WAIT).ok()).unwrap_or_default();
    String::from_utf8_lossy(&bytes).into_owned()
}

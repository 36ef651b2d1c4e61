//! A `fossil server` on loopback for a trial, as an ordinary account.

use std::fmt;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process_group};

use crate::fossil::Program;
use crate::fossil::http::{Base, Http};

/// Longest wait for the first answer (measured: 9 to 16 ms on an idle machine).
pub const START_WAIT: Duration = Duration::from_secs(20);
/// Wait for an orderly end before it is killed.
pub const STOP_WAIT: Duration = Duration::from_secs(5);
/// Ports tried when any will do: another program may take one between our look and Fossil's.
pub const PORT_TRIES: u32 = 10;
const LOOK_AGAIN: Duration = Duration::from_millis(5);

/// Why no server runs.
#[derive(Debug)]
pub enum ServingError {
    /// Another program listens on the port that was asked for.
    PortTaken(u16),
    /// The program could not be started.
    NotStarted(String),
    /// It ended before it answered; its own words.
    Ended(String),
    /// It did not answer in time.
    Silent,
}

impl fmt::Display for ServingError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::PortTaken(port) => {
                write!(f, "server: port {port} of 127.0.0.1 is taken: choose another, or 0 for any free one")
            }
            Self::NotStarted(why) => write!(f, "server: fossil could not be started: {why}"),
            Self::Ended(why) => write!(f, "server: fossil ended before it answered: {why}"),
            Self::Silent => write!(f, "server: fossil did not answer within {} s", START_WAIT.as_secs()),
        }
    }
}

impl std::error::Error for ServingError {}

/// A running server; ended when dropped.
#[derive(Debug)]
pub struct Serving {
    child: Child,
    port: u16,
}

/// The account a server runs as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Account {
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
}

impl Serving {
    /// Serves `repository` on 127.0.0.1 at `port` (0: any free one) with extensions from `extroot`, as `account`
    /// (else as this process), and waits until it answers. `log` takes what it prints; as the account, it must be able
    /// to write the repository's folder.
    ///
    /// # Errors
    /// See [`ServingError`]. Nothing is left running.
    pub fn start(
        program: &Program,
        repository: &Path,
        port: u16,
        extroot: &Path,
        account: Option<Account>,
        log: &Path,
    ) -> Result<Self, ServingError> {
        for _ in 0..PORT_TRIES {
            // Fossil must be told a number: without one it begins at 8080.
            let chosen = free(port)?;
            match Self::start_at(program, repository, chosen, extroot, account, log) {
                // Taken in between: only one's own choice is changed.
                Err(ServingError::PortTaken(_)) if port == 0 => {}
                done => return done,
            }
        }
        Err(ServingError::PortTaken(port))
    }

    fn start_at(
        program: &Program,
        repository: &Path,
        port: u16,
        extroot: &Path,
        account: Option<Account>,
        log: &Path,
    ) -> Result<Self, ServingError> {
        let not_started = |error: std::io::Error| ServingError::NotStarted(error.to_string());
        let mut out =
            File::options().create(true).truncate(true).read(true).write(true).open(log).map_err(not_started)?;
        let mut command = Command::new(&program.path);
        program.dress(&mut command);
        // A jail, which root would get, has no program an extension could be.
        command.args(["server", "--localhost", "--nojail", "--port"]).arg(port.to_string());
        command
            .arg("--extroot")
            .arg(extroot)
            .arg(repository)
            .current_dir(repository.parent().unwrap_or(Path::new("/")));
        command.stdin(Stdio::null());
        command.stdout(out.try_clone().map_err(not_started)?).stderr(out.try_clone().map_err(not_started)?);
        // A group of its own: to end its children with it, and so that a terminal's Ctrl-C reaches only the one who
        // cleans up in order.
        command.process_group(0);
        if let Some(account) = account {
            command.uid(account.uid).gid(account.gid);
        }
        let child = command.spawn().map_err(not_started)?;
        let mut serving = Self { child, port };
        let base = Base::parse(&serving.url()).map_err(|error| ServingError::NotStarted(error.to_string()))?;
        let http = Http::new(base);
        let deadline = Instant::now() + START_WAIT;
        while Instant::now() < deadline {
            if let Ok(Some(status)) = serving.child.try_wait() {
                let mut said = String::new();
                drop(out.seek(SeekFrom::Start(0)).and_then(|_| out.read_to_string(&mut said)));
                if said.contains("unable to open listening socket") || said.contains("in use") {
                    return Err(ServingError::PortTaken(port));
                }
                return Err(ServingError::Ended(format!("{status}: {}", said.trim())));
            }
            if http.get("/login", None, START_WAIT).is_ok_and(|answer| answer.status == 200) {
                return Ok(serving);
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        serving.end();
        Err(ServingError::Silent)
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.port)
    }

    /// Its port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Its process id, for a log.
    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it and its children; a request being answered ends unanswered, and what it wrote half is rolled back.
    pub fn stop(mut self) {
        self.end();
    }

    fn end(&mut self) {
        if !matches!(self.child.try_wait(), Ok(None)) {
            return;
        }
        // Its group, so that no child goes on answering a long poll. Not yet reaped, so the number is still this child's.
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // If it cannot be told, it is killed below.
            kill_process_group(pid, Signal::TERM).ok();
        }
        let deadline = Instant::now() + STOP_WAIT;
        while Instant::now() < deadline {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(LOOK_AGAIN);
        }
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for Serving {
    fn drop(&mut self) {
        self.end();
    }
}

fn free(port: u16) -> Result<u16, ServingError> {
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
    // Binding is not enough of a look: a listener that allows reuse would not show.
    if port != 0 && TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_ok() {
        return Err(ServingError::PortTaken(port));
    }
    match TcpListener::bind(address).and_then(|listener| listener.local_addr()) {
        Ok(address) => Ok(address.port()),
        Err(error) if error.kind() == std::io::ErrorKind::AddrInUse => Err(ServingError::PortTaken(port)),
        Err(error) => Err(ServingError::NotStarted(format!("127.0.0.1 port {port}: {error}"))),
    }
}

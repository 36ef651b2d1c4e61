//! A whole system under one temporary directory: a Fossil server with users, a supervisor with its node, runs.
//!
//! `ocx try` shows it to a person, and the integration tests drive it. Everything is the real thing: the server is
//! `fossil server`, requests go through its pages, the node is started by `ocx-supervisor`. Nothing outside the
//! directory is written, and a trial that is dropped takes everything away.

pub mod accounts;
pub mod ask;
pub mod children;
pub mod follow;
pub mod host;
pub mod interrupt;
pub mod kept;
pub mod layout;
pub mod log;
pub mod record;
pub mod request;
mod serving;
mod supervisor;
mod sweep;
mod trouble;

use std::fs;
use std::path::{Path, PathBuf};

use crate::fossil::{Program, Session};

use accounts::{NODE, Passwords, SETUP, User};
pub use ask::{Asked, Where};
use children::{Named, TERM_WAIT};
pub use interrupt::Interrupt;
use kept::Kept;
use layout::Layout;
pub use record::{Entry, Record, Spot};
use serving::Server;
use supervisor::Process;
pub use trouble::Trouble;

/// What a trial is made of.
#[derive(Debug, Clone, Default)]
pub struct Setup {
    /// Its directory, absent or empty; else one of its own among the temporary files.
    pub dir: Option<PathBuf>,
    /// The loopback port it serves on; else a free one.
    pub port: Option<u16>,
    /// Where `ocx` and `ocx-supervisor` stand; else beside this program.
    pub programs: Option<PathBuf>,
}

/// A whole system. Dropped, it takes itself away, unless [`Trial::keep`] was asked.
#[derive(Debug)]
pub struct Trial {
    layout: Layout,
    url: String,
    passwords: Passwords,
    fossil: Program,
    record: Record,
    setup: Session,
    server: Option<Server>,
    supervisor: Option<Process>,
    interrupt: Interrupt,
    kept: bool,
}

impl Trial {
    /// Makes the directory, the server's repository with its users, and serves it. No supervisor runs yet.
    ///
    /// # Errors
    /// What the host lacks, what could not be made, or that a person interrupted; nothing is left then.
    pub fn make(setup: &Setup, interrupt: Interrupt) -> Result<Self, Trouble> {
        let programs = match &setup.programs {
            Some(programs) => programs.clone(),
            None => beside_this_program()?,
        };
        let place = setup.dir.clone().unwrap_or_else(std::env::temp_dir);
        host::check(&programs, &place)?;
        let layout = layout::make(setup.dir.as_deref(), &programs)?;
        let passwords = Passwords::new()?;
        // From here on dropping the trial removes the directory, whatever fails.
        let mut trial = Self::over(layout, passwords, String::from("http://127.0.0.1"), interrupt)?;
        trial.make_repository()?;
        trial.start_server(setup.port)?;
        accounts::write_private(&trial.layout.passwords(), &accounts::project(&trial.url, &trial.passwords))?;
        Ok(trial)
    }

    /// The trial another `ocx try --keep` left running in this directory. It stays kept.
    ///
    /// # Errors
    /// When there is none.
    pub fn open(dir: &Path, interrupt: Interrupt) -> Result<Self, Trouble> {
        let kept = Kept::read(dir)?;
        let dir = fs::canonicalize(dir).map_err(|e| Trouble::at(dir.display(), e))?;
        let mut trial = Self::over(Layout { dir }, kept.passwords, kept.url, interrupt)?;
        trial.kept = true;
        trial.server = Some(Server::Kept(kept.server));
        trial.supervisor = Some(Process::kept(kept.supervisor));
        Ok(trial)
    }

    fn over(layout: Layout, passwords: Passwords, url: String, interrupt: Interrupt) -> Result<Self, Trouble> {
        let fossil = Program::find().ok_or_else(|| Trouble::stopped("fossil is not on PATH"))?;
        let fossil = Program::new(&fossil, &layout.server(), SETUP.login);
        let record = Record::new(&layout.repository(), &fossil, NODE.login);
        let setup =
            Session::new(&url, SETUP.login, &passwords.setup).map_err(|e| Trouble::at("the server's URL", e))?;
        Ok(Self {
            layout,
            url,
            passwords,
            fossil,
            record,
            setup,
            server: None,
            supervisor: None,
            interrupt,
            kept: false,
        })
    }

    /// The server's URL.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.url
    }

    /// Where things are.
    #[must_use]
    pub fn layout(&self) -> &Layout {
        &self.layout
    }

    /// The server's repository, as it is.
    #[must_use]
    pub fn record(&self) -> &Record {
        &self.record
    }

    /// A user's password on the server.
    #[must_use]
    pub fn password(&self, user: User) -> &str {
        self.passwords.of(user)
    }

    /// A signed-in user of the server.
    ///
    /// # Errors
    /// When the URL is none.
    pub fn session(&self, user: User) -> Result<Session, Trouble> {
        Session::new(&self.url, user.login, self.password(user)).map_err(|e| Trouble::at("the server's URL", e))
    }

    /// Leaves everything running when this value goes, and writes down how to come back.
    ///
    /// # Errors
    /// When the record of it cannot be written.
    pub fn keep(&mut self) -> Result<(), Trouble> {
        if self.kept {
            return Ok(());
        }
        let server = match &self.server {
            Some(Server::Ours(serving)) => Named::now(serving.pid()),
            Some(Server::Kept(named)) => Some(*named),
            None => None,
        };
        let supervisor = self.supervisor.as_ref().map(|process| process.named());
        let (Some(server), Some(supervisor)) = (server, supervisor) else {
            return Err(Trouble::stopped("nothing runs that could be kept"));
        };
        let kept = Kept { url: self.url.clone(), server, supervisor, passwords: self.passwords.clone() };
        kept.write(&self.layout.dir)?;
        self.kept = true;
        // Its drop would end it.
        if let Some(Server::Ours(serving)) = self.server.take() {
            let _left_running = std::mem::ManuallyDrop::new(serving);
        }
        self.server = Some(Server::Kept(server));
        Ok(())
    }

    /// Ends everything and removes the directory.
    ///
    /// # Errors
    /// What is left, by name. The rest is gone.
    pub fn stop(mut self) -> Result<(), Trouble> {
        self.kept = true;
        self.take_away()
    }

    fn take_away(&mut self) -> Result<(), Trouble> {
        let mut left = Vec::new();
        // The supervisor first: it ends its runs in order, and the node may still post.
        if self.supervisor.take().is_some_and(|process| !process.end(TERM_WAIT, || self.interrupt.hurries())) {
            left.push(String::from("ocx-supervisor"));
        }
        if self.server.take().is_some_and(|server| !server.end()) {
            left.push(String::from("fossil server"));
        }
        left.extend(sweep::processes(&self.layout.accounts()));
        left.extend(sweep::cgroups(&self.layout.root()));
        left.extend(sweep::mounts(&self.layout.dir));
        if let Err(e) = fs::remove_dir_all(&self.layout.dir)
            && e.kind() != std::io::ErrorKind::NotFound
        {
            left.push(format!("{}: {e}", self.layout.dir.display()));
        }
        if left.is_empty() { Ok(()) } else { Err(Trouble::stopped(format!("left behind: {}", left.join("; ")))) }
    }
}

impl Drop for Trial {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        if let Err(trouble) = self.take_away() {
            #[expect(clippy::print_stderr, reason = "there is no one else to tell")]
            {
                eprintln!("ocx try: {trouble}");
            }
        }
    }
}

fn beside_this_program() -> Result<PathBuf, Trouble> {
    let me = std::env::current_exe().map_err(|e| Trouble::at("this program's own path", e))?;
    me.parent().map(PathBuf::from).ok_or_else(|| Trouble::stopped("this program stands nowhere"))
}

/// So many random characters of 32 that are not taken for one another; five bits each.
fn random(length: usize) -> Result<String, Trouble> {
    const LETTERS: &[u8; 32] = b"abcdefghijkmnpqrstuvwxyz23456789";
    let mut bytes = vec![0_u8; length];
    let filled = rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty());
    if filled.map_err(|e| Trouble::at("random bytes", e))? != length {
        return Err(Trouble::stopped("the kernel gave fewer random bytes than asked"));
    }
    Ok(bytes.iter().filter_map(|b| LETTERS.get(usize::from(b % 32)).copied().map(char::from)).collect())
}

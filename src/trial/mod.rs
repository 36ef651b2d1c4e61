//! A whole system under one temporary directory: a Fossil server with users, a supervisor with its node, runs.
//!
//! `ocx try` shows it to a person, and the integration tests drive it. Everything is the real thing: the server is
//! `fossil server`, requests go through its pages, the node is started by `ocx-supervisor`. Nothing outside the
//! directory is written, and a trial that is dropped takes everything away.

pub mod accounts;
pub mod children;
pub mod host;
pub mod interrupt;
pub mod kept;
pub mod layout;
pub mod log;
pub mod record;
pub mod request;
mod sweep;
mod trouble;

use std::fs::{self, OpenOptions};
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use crate::fossil::{CloneFile, Posted, Program, Session};
use crate::server::{self, ServerUser, Serving, repository};
use supervisor::wire::accounts::Account;

use accounts::{NODE, PROCESS, Passwords, SETUP, USERS, User};
use children::{Named, TERM_WAIT};
pub use interrupt::Interrupt;
use kept::Kept;
use layout::Layout;
pub use record::{Entry, Record, Spot};
pub use trouble::Trouble;

/// How often what is waited for is looked at.
const LOOK_EVERY: Duration = Duration::from_millis(10);
/// Longest wait for the node's clone and first round; a small clone takes a second.
pub const READY_WAIT: Duration = Duration::from_secs(60);
/// How long the server has after TERM; it has nothing to finish.
const SERVER_WAIT: Duration = Duration::from_secs(2);
/// Lines of the supervisor's log shown when what is waited for does not come.
const LOG_LINES_SHOWN: usize = 15;

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

/// Where a run is to be written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Where {
    /// The first post of a thread of its own.
    Thread,
    /// A change of a ticket of its own.
    Ticket,
}

/// A run that was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Asked {
    /// Its full hash.
    pub run: String,
    /// Where it and its answers are.
    pub spot: Spot,
    /// When the server answered that it is stored.
    pub stored: Instant,
}

impl Asked {
    /// Its first ten digits, as logs name it.
    #[must_use]
    pub fn short(&self) -> &str {
        self.run.get(..10).unwrap_or(&self.run)
    }
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

/// The server.
#[derive(Debug)]
enum Server {
    Ours(Serving),
    /// Another `ocx try` started it.
    Kept(Named),
}

impl Server {
    fn end(self) -> bool {
        match self {
            Self::Ours(serving) => {
                serving.stop();
                true
            }
            Self::Kept(named) => named.end(SERVER_WAIT),
        }
    }
}

/// The supervisor.
#[derive(Debug)]
struct Process {
    named: Named,
    /// Absent when another `ocx try` started it: then it is no child of ours, to be waited for.
    child: Option<Child>,
}

impl Process {
    fn started(child: Child) -> Result<Self, Trouble> {
        let named = Named::now(child.id()).ok_or_else(|| Trouble::stopped("a process ended as it was started"))?;
        Ok(Self { named, child: Some(child) })
    }

    /// How it ended, if it has.
    fn ended(&mut self) -> Option<String> {
        match &mut self.child {
            Some(child) => child.try_wait().ok().flatten().map(|status| status.to_string()),
            None => self.named.open().is_none().then(|| String::from("it is gone")),
        }
    }

    /// TERM, a wait, KILL; then its exit is taken.
    fn end(mut self, grace: Duration) -> bool {
        let gone = self.named.end(grace);
        if let Some(child) = self.child.as_mut().filter(|_| gone) {
            drop(child.wait());
        }
        gone
    }
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
        host::check(&programs, &place, setup.port)?;
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
    pub fn open(dir: &std::path::Path, interrupt: Interrupt) -> Result<Self, Trouble> {
        let kept = Kept::read(dir)?;
        let dir = fs::canonicalize(dir).map_err(|e| Trouble::at(dir.display(), e))?;
        let mut trial = Self::over(Layout { dir }, kept.passwords, kept.url, interrupt)?;
        trial.kept = true;
        trial.server = Some(Server::Kept(kept.server));
        trial.supervisor = Some(Process { named: kept.supervisor, child: None });
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

    /// Makes the repository with its users and the extension, all owned by the server's account.
    fn make_repository(&self) -> Result<(), Trouble> {
        let user =
            |user: &User| ServerUser { login: user.login, password: self.password(*user), letters: user.letters };
        let others: Vec<ServerUser<'_>> = USERS.iter().filter(|u| **u != SETUP).map(user).collect();
        repository::make(&self.fossil, &self.layout.repository(), &user(&SETUP), &others)
            .map_err(|e| Trouble::at("making the server's repository", e))?;
        server::install(&self.layout.extensions(), &self.layout.release().join("ocx"))
            .map_err(|e| Trouble::at("installing the extension", e))?;
        // What root made there is the server's from here on; the extension stays root's.
        let account = self.layout.accounts().server;
        let entries = fs::read_dir(self.layout.server()).map_err(|e| Trouble::at(self.layout.server().display(), e))?;
        for entry in entries.flatten() {
            let path = entry.path();
            std::os::unix::fs::lchown(&path, Some(account.uid), Some(account.gid))
                .map_err(|e| Trouble::at(path.display(), e))?;
        }
        Ok(())
    }

    /// Starts serving on this port, or on a free one.
    ///
    /// # Errors
    /// When the port is taken or fossil does not answer.
    pub fn start_server(&mut self, port: Option<u16>) -> Result<(), Trouble> {
        self.interrupt.check()?;
        let Account { uid, gid } = self.layout.accounts().server;
        let serving = Serving::start(
            &self.fossil,
            &self.layout.repository(),
            port.unwrap_or(0),
            &self.layout.extensions(),
            Some(server::serving::Account { uid, gid }),
            &self.layout.dir.join("server.log"),
        )
        .map_err(|e| Trouble::stopped(e.to_string()))?;
        self.url = serving.url();
        self.setup = self.session(SETUP)?;
        self.server = Some(Server::Ours(serving));
        Ok(())
    }

    /// Ends the server, with every request it is answering.
    ///
    /// # Errors
    /// When something of it stays.
    pub fn stop_server(&mut self) -> Result<(), Trouble> {
        if self.server.take().is_some_and(|server| !server.end()) {
            return Err(Trouble::stopped("fossil server did not go after KILL"));
        }
        let left = sweep::users(&[self.layout.accounts().server.uid]);
        if left.is_empty() { Ok(()) } else { Err(Trouble::stopped(format!("left of the server: {}", left.join("; ")))) }
    }

    /// Starts `ocx-supervisor serve`; its log goes on where it was.
    ///
    /// # Errors
    /// When it does not start.
    pub fn start_supervisor(&mut self) -> Result<(), Trouble> {
        let at = |e| Trouble::at(self.layout.log().display(), e);
        let log = OpenOptions::new().append(true).create(true).mode(0o600).open(self.layout.log()).map_err(at)?;
        let program = self.layout.dir.join("opt/current/ocx-supervisor");
        let child = Command::new(&program)
            .args(["serve", "--root"])
            .arg(self.layout.root())
            .env_clear()
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .env("LANG", "C.UTF-8")
            .current_dir("/")
            // A group of its own: Ctrl-C is for us, who then end it in order.
            .process_group(0)
            .stdin(Stdio::null())
            .stdout(log.try_clone().map_err(at)?)
            .stderr(log)
            .spawn()
            .map_err(|e| Trouble::at(program.display(), e))?;
        self.supervisor = Some(Process::started(child)?);
        Ok(())
    }

    /// Ends the supervisor with KILL, as a crash would; what it leaves is the next one's to find.
    ///
    /// # Errors
    /// When it stays.
    pub fn kill_supervisor(&mut self) -> Result<(), Trouble> {
        match self.supervisor.take().map(|process| process.end(Duration::ZERO)) {
            None | Some(true) => Ok(()),
            Some(false) => Err(Trouble::stopped("the supervisor did not go after KILL")),
        }
    }

    /// The node's processes: the protocol process alone, not the fossil it may be running.
    #[must_use]
    pub fn node(&self) -> Vec<Named> {
        children::of_users(&[self.layout.accounts().node.uid]).into_iter().filter(|p| p.runs("ocx")).collect()
    }

    /// Ends the protocol process with KILL, as a crash would.
    ///
    /// # Errors
    /// When there is none, or it stays.
    pub fn kill_node(&self) -> Result<(), Trouble> {
        let node = self.node();
        if node.is_empty() {
            return Err(Trouble::stopped("no protocol process runs"));
        }
        if node.iter().all(|process| process.end(Duration::ZERO)) {
            Ok(())
        } else {
            Err(Trouble::stopped("the protocol process did not go after KILL"))
        }
    }

    /// Waits until the node has its clone and has read all of it once; gives the clone's server-code.
    ///
    /// # Errors
    /// After [`READY_WAIT`], or when the supervisor ends.
    pub fn wait_ready(&mut self) -> Result<String, Trouble> {
        self.wait("the node's clone and its first round", READY_WAIT, |trial| {
            let Some(code) = trial.clone_code() else { return Ok(None) };
            let completed = trial.layout.root().join("state/completed").join(&code);
            Ok(completed.exists().then_some(code))
        })
    }

    /// The clone's server-code, once the node has made it.
    fn clone_code(&self) -> Option<String> {
        let clone = self.layout.clone_file();
        // SQLite would say of an absent file no more than that it cannot open it.
        if !clone.exists() {
            return None;
        }
        CloneFile::new(&clone, &self.fossil).server_code().ok()
    }

    /// Asks for a run as the setup user, through the server's pages.
    ///
    /// # Errors
    /// When the server does not store it.
    pub fn ask(&mut self, to: Where, clone: &str, command: &[String]) -> Result<Asked, Trouble> {
        let message = request::message(NODE.login, clone, PROCESS.login, command);
        self.post_run(to, &request::post("A run to try OCX with.", &message))
    }

    /// Posts a text that holds a run as the setup user.
    ///
    /// # Errors
    /// When the server does not store it.
    pub fn post_run(&mut self, to: Where, text: &str) -> Result<Asked, Trouble> {
        let title = "A run to try OCX with";
        match to {
            Where::Thread => {
                let posted = stored("the run", self.setup.new_thread(title, text))?;
                let stored = Instant::now();
                let digits = posted.0.ok_or_else(|| Trouble::stopped("the server named no post"))?;
                let run = self.record.full_hash(&digits)?;
                Ok(Asked { spot: Spot::Thread(run.clone()), run, stored })
            }
            Where::Ticket => {
                let opened = stored("a ticket", self.setup.new_ticket(title, "A run is asked for below."))?;
                let ticket = opened.1.ok_or_else(|| Trouble::stopped("the server named no ticket"))?;
                stored("the run", self.setup.change_ticket(&ticket, text))?;
                let stored = Instant::now();
                // A ticket change's redirect does not name the change (decisions C-57): it is the ticket's last.
                let spot = Spot::Ticket(ticket);
                let last = self.record.entries(&spot)?.into_iter().rfind(|entry| entry.from == SETUP.login);
                let run = last.ok_or_else(|| Trouble::stopped("the change is not in the server's repository"))?.hash;
                Ok(Asked { run, spot, stored })
            }
        }
    }

    /// The run and everything after it where it is, in the server's order.
    ///
    /// # Errors
    /// When the repository cannot be read.
    pub fn thread(&self, asked: &Asked) -> Result<Vec<Entry>, Trouble> {
        let entries = self.record.entries(&asked.spot)?;
        Ok(entries.into_iter().skip_while(|entry| entry.hash != asked.run).collect())
    }

    /// Waits until the server has an entry of this kind after the run.
    ///
    /// # Errors
    /// After `wait`, or when the supervisor ends; the log's last lines are in the words.
    pub fn wait_for(&mut self, asked: &Asked, kind: &str, wait: Duration) -> Result<Entry, Trouble> {
        let mut seen = 0;
        self.wait(&format!("`{kind}` of run {}", asked.short()), wait, |trial| {
            let last = trial.record.last_receipt()?;
            if last == seen {
                return Ok(None);
            }
            seen = last;
            Ok(trial.thread(asked)?.into_iter().skip(1).find(|entry| entry.kind == kind))
        })
    }

    /// Waits until the supervisor's log says that the run's process was launched, or the server that the run ended.
    ///
    /// # Errors
    /// As [`Trial::wait_for`].
    pub fn wait_running(&mut self, asked: &Asked, wait: Duration) -> Result<bool, Trouble> {
        let short = asked.short().to_owned();
        let mut seen = 0;
        self.wait(&format!("the process of run {short}"), wait, |trial| {
            if log::launched(&trial.layout.log(), &short)?.is_some() {
                return Ok(Some(true));
            }
            let last = trial.record.last_receipt()?;
            if last == seen {
                return Ok(None);
            }
            seen = last;
            Ok(trial.thread(asked)?.iter().any(|entry| entry.kind == "ended").then_some(false))
        })
    }

    /// Looks until something is there.
    ///
    /// # Errors
    /// When a person interrupts, the supervisor or the server ends, or `longest` passes; `what` names what was awaited.
    pub fn wait<T>(
        &mut self,
        what: &str,
        longest: Duration,
        mut look: impl FnMut(&mut Self) -> Result<Option<T>, Trouble>,
    ) -> Result<T, Trouble> {
        let deadline = Instant::now() + longest;
        loop {
            self.interrupt.check()?;
            if let Some(found) = look(self)? {
                return Ok(found);
            }
            let ended = self.supervisor.as_mut().and_then(Process::ended);
            if let Some(how) = ended {
                self.supervisor = None;
                return Err(self.with_log(&format!("ocx-supervisor ended ({how}) before {what} came")));
            }
            if Instant::now() >= deadline {
                return Err(self.with_log(&format!("{what} did not come within {} s", longest.as_secs())));
            }
            std::thread::sleep(LOOK_EVERY);
        }
    }

    fn with_log(&self, what: &str) -> Trouble {
        let path = self.layout.log();
        let text = fs::read_to_string(&path).unwrap_or_default();
        let lines: Vec<&str> = text.lines().collect();
        let shown = lines.get(lines.len().saturating_sub(LOG_LINES_SHOWN)..).unwrap_or(&[]);
        Trouble::stopped(format!("{what}; the last lines of {}:\n{}", path.display(), shown.join("\n")))
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
        let supervisor = self.supervisor.as_ref().map(|process| process.named);
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
        if self.supervisor.take().is_some_and(|process| !process.end(TERM_WAIT)) {
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

/// The hash digits and the ticket of a post that the server stored.
fn stored(what: &str, posted: Posted) -> Result<(Option<String>, Option<String>), Trouble> {
    match posted {
        Posted::Stored { hash_digits, ticket } => Ok((hash_digits, ticket)),
        Posted::NotStored { why, .. } => Err(Trouble::at(format!("posting {what}"), why)),
        Posted::Unknown { why } => Err(Trouble::at(format!("posting {what}, which may be stored"), why)),
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

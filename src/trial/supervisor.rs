//! The supervisor of a trial, and the node it starts.

use std::fs::OpenOptions;
use std::os::unix::fs::OpenOptionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use super::children::{self, Named};
use super::{Trial, Trouble, sweep};

/// The supervisor.
#[derive(Debug)]
pub(super) struct Process {
    named: Named,
    /// Absent when another `ocx try` started it: then it is no child of ours, to be waited for.
    child: Option<Child>,
}

impl Process {
    /// One that another `ocx try` started.
    pub(super) const fn kept(named: Named) -> Self {
        Self { named, child: None }
    }

    /// Which it is.
    pub(super) const fn named(&self) -> Named {
        self.named
    }

    pub(super) fn started(child: Child) -> Result<Self, Trouble> {
        let named = Named::now(child.id()).ok_or_else(|| Trouble::stopped("a process ended as it was started"))?;
        Ok(Self { named, child: Some(child) })
    }

    /// How it ended, if it has.
    pub(super) fn ended(&mut self) -> Option<String> {
        match &mut self.child {
            Some(child) => child.try_wait().ok().flatten().map(|status| status.to_string()),
            None => self.named.open().is_none().then(|| String::from("it is gone")),
        }
    }

    /// TERM, a wait, KILL; then its exit is taken.
    pub(super) fn end(mut self, grace: Duration, hurries: impl Fn() -> bool) -> bool {
        let gone = self.named.end(grace, hurries);
        if let Some(child) = self.child.as_mut().filter(|_| gone) {
            drop(child.wait());
        }
        gone
    }
}

impl Trial {
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
        match self.supervisor.take().map(|process| process.end(Duration::ZERO, || false)) {
            None | Some(true) => Ok(()),
            Some(false) => Err(Trouble::stopped("the supervisor did not go after KILL")),
        }
    }

    /// The supervisor, while one was started and not taken away.
    #[must_use]
    pub fn supervisor(&self) -> Option<Named> {
        self.supervisor.as_ref().map(Process::named)
    }

    /// Ends the supervisor and everything below it at once, with KILL, and removes its cgroups: what the host's own end
    /// leaves of a trial but for its files. The server goes on.
    ///
    /// # Errors
    /// What stays.
    pub fn kill_host(&mut self) -> Result<(), Trouble> {
        self.kill_supervisor()?;
        let accounts = self.layout.accounts();
        let users = [accounts.node, accounts.run, accounts.open, accounts.cell].map(|account| account.uid);
        let mut left = sweep::users(&users);
        left.extend(sweep::cgroups(&self.layout.root()));
        if left.is_empty() { Ok(()) } else { Err(Trouble::stopped(format!("left of the host: {}", left.join("; ")))) }
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
        if node.iter().all(|process| process.end(Duration::ZERO, || false)) {
            Ok(())
        } else {
            Err(Trouble::stopped("the protocol process did not go after KILL"))
        }
    }
}

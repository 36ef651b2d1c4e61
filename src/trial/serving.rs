//! The server of a trial: its repository, its users, serving it.

use std::fs;
use std::time::Duration;

use ::supervisor::wire::accounts::Account;

use super::accounts::{SETUP, USERS, User};
use super::children::Named;
use super::{Trial, Trouble, sweep};
use crate::server::{self, ServerUser, Serving, ServingError, repository};

/// How long a kept server has after TERM; it has nothing to finish.
const SERVER_WAIT: Duration = Duration::from_secs(2);

/// The server.
#[derive(Debug)]
pub(super) enum Server {
    Ours(Serving),
    /// Another `ocx try` started it.
    Kept(Named),
}

impl Server {
    pub(super) fn end(self) -> bool {
        match self {
            Self::Ours(serving) => {
                serving.stop();
                true
            }
            Self::Kept(named) => named.end(SERVER_WAIT, || false),
        }
    }
}

impl Trial {
    /// Makes the repository with its users and the extension, all owned by the server's account.
    pub(super) fn make_repository(&self) -> Result<(), Trouble> {
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
        .map_err(|e| match e {
            ServingError::PortTaken(port) => Trouble::stopped(format!(
                "port {port} of 127.0.0.1 is taken; `--port` names another, and without it a free one is found"
            )),
            ServingError::NotStarted(_) | ServingError::Ended(_) | ServingError::Silent => {
                Trouble::stopped(e.to_string())
            }
        })?;
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
}

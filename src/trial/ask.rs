//! Asking for a run as a person does, and what the server then has of it.

use std::time::Instant;

use super::accounts::{NODE, PROCESS, SETUP};
use super::record::{Entry, Spot};
use super::{Trial, Trouble, request};
use crate::fossil::Posted;

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

impl Trial {
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
}

/// The hash digits and the ticket of a post that the server stored.
fn stored(what: &str, posted: Posted) -> Result<(Option<String>, Option<String>), Trouble> {
    match posted {
        Posted::Stored { hash_digits, ticket } => Ok((hash_digits, ticket)),
        Posted::NotStored { why, .. } => Err(Trouble::at(format!("posting {what}"), why)),
        Posted::Unknown { why } => Err(Trouble::at(format!("posting {what}, which may be stored"), why)),
    }
}

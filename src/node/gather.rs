//! What a run's workspace steps need of the node before they cross to the supervisor: names of check-ins resolved in the
//! clone, the process's user's password, and the files of check-ins in pipes (protocol 2.7; decisions C-15, C-97, C-98).
//!
//! It may wait for the server and for Fossil, so a lane has it done in a thread of its own.

use std::fmt;
use std::fs::File;
use std::io::{self, BufWriter};
use std::os::fd::OwnedFd;
use std::sync::Arc;

use rustix::pipe::{PipeFlags, pipe_with};
use serde::Deserialize;
use supervisor::wire::frame::{read_sealed, seal};
use supervisor::wire::message::{Reply, Request};
use supervisor::wire::plan::Step;

use super::link::{HELLO_WAIT, Link};
use super::log::{say, short};
use crate::engine::check::{Accepted, Refusal};
use crate::engine::plan::StepLaid;
use crate::fossil::collect::{CollectError, collect};
use crate::fossil::{CloneFile, FossilError, Session, TreeFile};
use crate::step::{Credential, bundle};

/// Largest answer of the supervisor that holds one password, in bytes.
const PASSWORD_BYTES_MAX: u64 = 64 << 10;

/// What a lane gathers with.
#[derive(Debug, Clone)]
pub struct Gatherer {
    /// The node's own clone.
    pub clone: CloneFile,
    /// The way to the supervisor, which holds the host's passwords.
    pub link: Arc<Link>,
    /// The project's name.
    pub project: String,
    /// Its server-code, for which passwords are approved.
    pub server_code: String,
    /// The clone's user on the server.
    pub session: Arc<Session>,
}

/// Steps that may cross.
pub struct Gathered {
    /// The steps.
    pub steps: Vec<Step>,
    /// Which step of the run each is.
    pub places: Vec<usize>,
    /// A descriptor for each that carries one.
    pub descriptors: Vec<OwnedFd>,
    /// The check-in that the run's `of` names.
    pub checkin: Option<String>,
}

impl fmt::Debug for Gathered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Gathered").field("steps", &self.steps).finish_non_exhaustive()
    }
}

/// Why nothing crosses.
#[derive(Debug)]
pub enum NotGathered {
    /// A step cannot be carried out: the run is refused.
    Refused(Refusal),
    /// It may be possible later.
    Later(String),
}

/// One project's entry for a process's user, as the supervisor hands it over (decisions C-99).
#[derive(Deserialize)]
struct Entry {
    password: String,
}

/// Whether anything must be gathered: a run with `directory` steps alone needs nothing.
#[must_use]
pub fn is_needed(accepted: &Accepted) -> bool {
    accepted.run().of.is_some() || accepted.steps().iter().any(|step| !matches!(step, StepLaid::Directory { .. }))
}

impl Gatherer {
    /// Gathers what the steps need, in their order.
    ///
    /// # Errors
    /// See [`NotGathered`].
    pub fn gather(&self, accepted: &Accepted) -> Result<Gathered, NotGathered> {
        let mut all = Gathered { steps: Vec::new(), places: Vec::new(), descriptors: Vec::new(), checkin: None };
        let mut streams = Vec::new();
        let mut password = None;
        if let Some(of) = &accepted.run().of {
            let refused = |why: &str| NotGathered::Refused(Refusal::of_of(of, why));
            all.checkin = Some(self.resolve(of, &refused)?);
        }
        let mut checkin = all.checkin.clone();
        for (index, step) in accepted.steps().iter().enumerate() {
            let refused = |why: &str| NotGathered::Refused(Refusal::of_step(accepted.steps(), index, why));
            let crosses = match step {
                StepLaid::Directory { at } => Step::Directory { at: at.clone() },
                StepLaid::Password => {
                    password = Some(self.password(accepted, &refused)?);
                    continue;
                }
                StepLaid::Clone { into } => {
                    let credential = Credential {
                        server: self.session.server().to_owned(),
                        user: accepted.run().process.user.as_str().to_owned(),
                        password: password.clone().ok_or_else(|| refused("no password step stands before it"))?,
                    };
                    let sealed = serde_json::to_vec(&credential).map_err(io::Error::from);
                    let sealed = sealed.and_then(|text| seal("ocx-credential", &text));
                    all.descriptors.push(sealed.map_err(|error| later("its credential", &error))?);
                    Step::Clone { into: into.clone() }
                }
                StepLaid::Checkout { clone, of, into } => {
                    let of = accepted.name_of(of, checkin.as_deref()).map_err(|why| refused(&why))?;
                    Step::Checkout { clone: clone.clone(), of, into: into.clone() }
                }
                StepLaid::Files { of, into } => {
                    let of = accepted.name_of(of, checkin.as_deref()).map_err(|why| refused(&why))?;
                    let found = self.resolve(&of, &refused)?;
                    let files = self.clone.files_of(&found).map_err(|error| refused(&error.to_string()))?;
                    let files = files.ok_or_else(|| refused("what it names is no check-in"))?;
                    let (from, to) = pipe_with(PipeFlags::CLOEXEC)
                        .map_err(|error| later("a pipe for its files", &io::Error::from(error)))?;
                    all.descriptors.push(from);
                    streams.push((files, to));
                    checkin = Some(found.clone());
                    Step::Files { into: into.clone(), checkin: found }
                }
            };
            all.steps.push(crosses);
            all.places.push(index);
        }
        // Only now: a run refused for a later step reads nothing.
        for (files, to) in streams {
            let (clone, run) = (self.clone.clone(), accepted.id().as_str().to_owned());
            std::thread::spawn(move || {
                if let Err(why) = pour(&clone, &files, to) {
                    say(&format!("run {}: its check-in's files: {why}", short(&run)));
                }
            });
        }
        Ok(all)
    }

    fn resolve(&self, of: &str, refused: &dyn Fn(&str) -> NotGathered) -> Result<String, NotGathered> {
        match self.clone.resolve(of) {
            Ok(Some(found)) => Ok(found),
            Ok(None) => Err(refused(&format!("this node's clone has no one check-in named {of:?}"))),
            Err(error) => Err(NotGathered::Later(error.to_string())),
        }
    }

    /// The password of the process's user: the one approved on the server, else the one this host was given (V2-2.7-15).
    fn password(&self, accepted: &Accepted, refused: &dyn Fn(&str) -> NotGathered) -> Result<String, NotGathered> {
        let user = accepted.run().process.user.as_str();
        let why = match collect(&self.session, accepted.id().as_str(), user, &self.server_code) {
            Ok(password) => return Ok(password.text().to_owned()),
            Err(CollectError::Fossil(error @ (FossilError::NoConnection { .. } | FossilError::NoAnswer { .. }))) => {
                return Err(NotGathered::Later(error.to_string()));
            }
            Err(error) => error.to_string(),
        };
        let ask = Request::Credential { project: self.project.clone(), user: Some(user.to_owned()) };
        let answer = self.link.ask_and_wait(ask, HELLO_WAIT);
        let answer = answer.map_err(|why| NotGathered::Later(format!("the supervisor: {why}")))?;
        let none = || refused(&format!("{why}; nor has this host's passwords file one of {user:?} in its runs"));
        let (Reply::Descriptor, Some(fd)) = (&answer.reply, answer.descriptors.into_iter().next()) else {
            return Err(none());
        };
        let text = read_sealed(&fd, PASSWORD_BYTES_MAX).map_err(|error| NotGathered::Later(error.to_string()))?;
        serde_json::from_slice(&text).map(|entry: Entry| entry.password).map_err(|_words| none())
    }
}

fn later(what: &str, error: &io::Error) -> NotGathered {
    NotGathered::Later(format!("{what}: {error}"))
}

/// Writes a check-in's files into the pipe. A step that is gone is no fault here: its own end says what happened.
fn pour(clone: &CloneFile, files: &[TreeFile], to: OwnedFd) -> Result<(), String> {
    let mut to = BufWriter::new(File::from(to));
    for file in files {
        let content = clone.artifact(&file.hash).map_err(|error| format!("{:?}: {error}", file.name))?;
        let content = content.ok_or_else(|| format!("{:?}: its content has not come to the clone", file.name))?;
        match bundle::put(&mut to, &file.name, file.executable, &content) {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => return Ok(()),
            other => other.map_err(|error| format!("{:?}: {error}", file.name))?,
        }
    }
    match bundle::end(&mut to) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(error.to_string()),
        Ok(()) | Err(_) => Ok(()),
    }
}

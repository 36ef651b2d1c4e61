//! Whether what a workspace holds is on the server (protocol 2.7; decisions C-05, C-107): looked at by the supervisor's
//! confined fossil, and the server asked about what its clone made itself. It waits, as no lane may.

use std::time::{Duration, Instant};

use supervisor::wire::message::{Handle, Reply, Request};

use super::link::Link;
use crate::engine::check::Accepted;
use crate::engine::plan::StepLaid;
use crate::engine::publications::unsaved;
use crate::fossil::{Ask, Session};

/// How long the look may take: a step's ten minutes, and the supervisor's own time.
const LOOK_WAIT: Duration = Duration::from_secs(660);
/// How long the server is asked in all (decisions C-107).
const ASK_WAIT: Duration = Duration::from_secs(60);
/// Wait between two tries.
const ASK_AGAIN: Duration = Duration::from_secs(2);

/// What is to be looked at.
#[derive(Debug, Clone, Default)]
pub struct Look {
    workspace_at: Option<String>,
    clone: Option<String>,
    checkouts: Vec<String>,
}

impl Look {
    /// Of a run that asks that its workspace be removed once saved; nothing for one that does not.
    #[must_use]
    pub fn of(accepted: &Accepted) -> Option<Self> {
        if !accepted.run().removes_once_saved() {
            return None;
        }
        let workspace_at = accepted.run().sandbox.as_ref().and_then(|sandbox| sandbox.workspace_at.clone());
        let mut look = Self { workspace_at, ..Self::default() };
        for step in accepted.steps() {
            match step {
                StepLaid::Clone { into } => look.clone = Some(into.clone()),
                StepLaid::Checkout { into, .. } => look.checkouts.push(into.clone()),
                StepLaid::Directory { .. } | StepLaid::Password | StepLaid::Files { .. } => {}
            }
        }
        Some(look)
    }

    /// Looks.
    ///
    /// # Errors
    /// What `ended` says of a workspace that stays.
    pub fn look(self, link: &Link, session: &Session, handle: Handle) -> Result<(), String> {
        let Self { workspace_at, clone, checkouts } = self;
        if clone.is_none() && checkouts.is_empty() {
            return Ok(());
        }
        let request = Request::Inspect { handle, workspace_at, clone, checkouts };
        let holds = match link.ask_and_wait(request, LOOK_WAIT).map(|answer| answer.reply) {
            Ok(Reply::Inspected { holds }) => holds,
            Ok(Reply::NotInspected { why } | Reply::Impossible { why }) => return Err(not_seen(&why)),
            Ok(other) => return Err(not_seen(&format!("the supervisor answered {other:?}"))),
            Err(why) => return Err(not_seen(&why)),
        };
        let not_sent = not_sent(session, &holds.unsent).ok_or("kept: the server could not be asked")?;
        let unasked = holds.unsent_count.saturating_sub(u64::try_from(holds.unsent.len()).unwrap_or(u64::MAX));
        unsaved(&holds, not_sent + unasked).map_or(Ok(()), Err)
    }
}

fn not_seen(why: &str) -> String {
    format!("kept: what it holds could not be looked at: {why}")
}

/// How many of these the server does not have, or holds private; nothing when it does not say in time.
fn not_sent(session: &Session, hashes: &[String]) -> Option<u64> {
    if hashes.is_empty() {
        return Some(0);
    }
    let end = Instant::now() + supervisor::points::wait("saved", ASK_WAIT);
    loop {
        match session.receipt(&Ask { artifacts: hashes, users: &[], high: false }) {
            Ok(told) => {
                let lacks = hashes.iter().filter(|hash| told.artifacts.get(*hash).is_none_or(Option::is_none));
                return u64::try_from(lacks.count()).ok();
            }
            Err(_) if Instant::now() + ASK_AGAIN < end => std::thread::sleep(ASK_AGAIN),
            Err(_) => return None,
        }
    }
}

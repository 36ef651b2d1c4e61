//! What a decision rests on: plain data, gathered by the node.

use std::collections::{BTreeMap, BTreeSet};

use super::{Ceiling, Message, RunId};

/// Who the server says sent something, and what they hold on it now (decisions C-29, C-60).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Sender {
    /// The login; nothing for a user the server no longer has, who holds nothing.
    pub login: Option<String>,
    /// Whether they hold admin.
    pub admin: bool,
    /// Whether they hold setup.
    pub setup: bool,
    /// Whether they hold R.
    pub r: bool,
}

impl Sender {
    /// Whether they hold admin or setup.
    #[must_use]
    pub fn governs(&self) -> bool {
        self.login.is_some() && (self.admin || self.setup)
    }

    /// Whether R is all they may send runs by.
    #[must_use]
    pub fn holds_r_alone(&self) -> bool {
        self.login.is_some() && self.r && !self.governs()
    }

    /// Whether they may send a run at all.
    #[must_use]
    pub fn may_send_runs(&self) -> bool {
        self.governs() || self.holds_r_alone()
    }
}

/// What the receipt tool says of a user (decisions C-60).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct User {
    /// Whether they hold admin.
    pub admin: bool,
    /// Whether they hold setup.
    pub setup: bool,
    /// Every letter they hold, after Fossil's inheritance.
    pub letters: String,
    /// Whether they hold all of a node's letters.
    pub node: bool,
}

/// The acting clone's user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CloneUser {
    /// The login.
    pub login: String,
    /// Every letter they hold.
    pub letters: String,
}

/// What this host's owner allows, and what OCX itself sets (protocol 2.6).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Host {
    /// Whether `settings/unconfined` exists, and something that could end such a run whole.
    pub unconfined: bool,
    /// The owner's ceiling for R; none refuses such runs.
    pub r_senders: Option<Ceiling>,
    /// `$$root$$` of a run with a sandbox.
    pub root: String,
    /// `$$root$$` of a run without one: another account's (decisions C-92, C-96).
    pub root_open: String,
    /// `$$releases$$`.
    pub releases: String,
    /// `$$release$$`.
    pub release: String,
    /// `$$server_url$$`, without a password.
    pub server_url: String,
    /// `$$repository_name$$`: the URL's last part.
    pub repository_name: String,
}

/// Everything a decision rests on.
#[derive(Debug, Clone, Copy)]
pub struct Facts<'a> {
    /// The run.
    pub run: &'a RunId,
    /// Its message, of kind run and addressed to this clone: see [`address`].
    pub message: &'a Message,
    /// Its sender; nothing while the server has not said.
    pub sender: Option<&'a Sender>,
    /// The acting clone's user.
    pub clone_user: &'a CloneUser,
    /// The host.
    pub host: &'a Host,
    /// The logins that runs from users holding admin, setup or R ever named as `to` (decisions C-31).
    pub named_as_to: &'a BTreeSet<String>,
    /// The users the receipt tool was asked about; `None` within is one it does not know, who holds nothing.
    pub users: &'a BTreeMap<String, Option<User>>,
    /// Whether a stop that counts stands against the run.
    pub stop_stands: bool,
    /// Whether another run from R alone is in care.
    pub other_r_run_in_care: bool,
    /// The host paths of other runs' workspaces in care.
    pub workspaces_in_care: &'a [String],
}

//! What the supervisor has in care, and which lane tends it: events find their run here.

use std::collections::BTreeMap;
use std::sync::mpsc::Sender;
use std::sync::{Mutex, MutexGuard, PoisonError};

use supervisor::wire::message::{Event, EventNumber, Handle};

use super::lane::Input;
use super::link::Told;
use crate::engine::advance::Care;

/// A run in care that no lane has claimed yet.
#[derive(Debug)]
pub struct Found {
    /// Names it on this link.
    pub handle: Handle,
    /// How far it has come, and in whose care.
    pub care: Care,
    /// Its workspace.
    pub workspace: Option<String>,
    /// What was ended, for a run found orphaned.
    pub orphaned: Option<(EventNumber, String)>,
    /// Events that came before it was claimed.
    pub events: Vec<Told>,
}

#[derive(Debug)]
enum Entry {
    Found(Found),
    Claimed { handle: Handle, lane: Sender<Input> },
}

/// The registry, shared by the link's reading thread and the lanes.
#[derive(Debug, Default)]
pub struct Registry {
    entries: Mutex<BTreeMap<String, Entry>>,
}

impl Registry {
    /// Takes an event to the lane that tends its run, or keeps it until one does.
    ///
    /// # Errors
    /// The event, when it names a run that is not in care.
    pub fn tell(&self, told: Told) -> Result<(), Told> {
        let mut entries = self.lock();
        match &told.event {
            Event::InCare { handle, run, phase, workspace } => {
                let found = Found {
                    handle: *handle,
                    care: Care::Held(*phase),
                    workspace: workspace.clone(),
                    orphaned: None,
                    events: Vec::new(),
                };
                entries.insert(run.clone(), Entry::Found(found));
                Ok(())
            }
            Event::Orphaned { handle, event, run, phase, what } => {
                if let Some(Entry::Claimed { lane, .. }) = entries.get(run) {
                    // What was left of it took longer to end than its lane to meet it.
                    let run = run.clone();
                    drop(lane.send(Input::Told(run, told)));
                    return Ok(());
                }
                let found = Found {
                    handle: *handle,
                    care: Care::Orphaned(*phase),
                    workspace: None,
                    orphaned: Some((*event, what.clone())),
                    events: Vec::new(),
                };
                entries.insert(run.clone(), Entry::Found(found));
                Ok(())
            }
            Event::Exited { handle, .. } => {
                let handle = *handle;
                let entry = entries.iter_mut().find(|(_, entry)| match entry {
                    Entry::Found(found) => found.handle == handle,
                    Entry::Claimed { handle: claimed, .. } => *claimed == handle,
                });
                match entry {
                    Some((_, Entry::Found(found))) => {
                        found.events.push(told);
                        Ok(())
                    }
                    Some((run, Entry::Claimed { lane, .. })) => {
                        // A lane that is gone takes the node with it; the event stays unnoted and comes again.
                        drop(lane.send(Input::Told(run.clone(), told)));
                        Ok(())
                    }
                    None => Err(told),
                }
            }
        }
    }

    /// Claims a run for a lane; what was found of it, if it was in care before.
    pub fn claim(&self, run: &str, lane: &Sender<Input>) -> Option<Found> {
        let mut entries = self.lock();
        let Some(Entry::Found(found)) = entries.remove(run) else { return None };
        entries.insert(run.to_owned(), Entry::Claimed { handle: found.handle, lane: lane.clone() });
        Some(found)
    }

    /// Notes that a run was taken for a lane.
    pub fn taken(&self, run: &str, handle: Handle, lane: &Sender<Input>) {
        self.lock().insert(run.to_owned(), Entry::Claimed { handle, lane: lane.clone() });
    }

    /// Notes that a run is in care no more.
    pub fn released(&self, run: &str) {
        self.lock().remove(run);
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Entry>> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

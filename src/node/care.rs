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
    /// The check-in its steps set.
    pub checkin: Option<String>,
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
            Event::InCare { handle, run, phase, workspace, checkin } => {
                let found = Found {
                    handle: *handle,
                    care: Care::Held(*phase),
                    workspace: workspace.clone(),
                    checkin: checkin.clone(),
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
                    checkin: None,
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

    /// Whether a run is in care.
    #[must_use]
    pub fn has(&self, run: &str) -> bool {
        self.lock().contains_key(run)
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

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use std::sync::mpsc::channel;

    use supervisor::wire::message::Phase;

    use super::*;

    fn told(event: Event) -> Told {
        Told { event, descriptors: Vec::new() }
    }

    /// C-100: what is left of a run may take longer to end than its lane to meet it as in care.
    #[test]
    fn an_orphan_that_a_lane_tends_is_told_to_that_lane() {
        let registry = Registry::default();
        let (lane, inputs) = channel();
        let run = "a".repeat(40);
        let (run_, phase) = (run.clone(), Phase::Launched);
        let in_care = Event::InCare { handle: 1, run: run_, phase, workspace: None, checkin: None };
        registry.tell(told(in_care)).unwrap();
        assert_eq!(registry.claim(&run, &lane).unwrap().care, Care::Held(Phase::Launched));
        let orphaned = |run: &str| {
            told(Event::Orphaned {
                handle: 1,
                event: 1,
                run: run.to_owned(),
                phase: Phase::Launched,
                what: "its process was found, and ended".to_owned(),
            })
        };
        registry.tell(orphaned(&run)).unwrap();
        assert!(matches!(inputs.try_recv().unwrap(), Input::Told(of, _) if of == run));
        // Control: one that no lane tends yet is kept for whoever does.
        let other = "b".repeat(40);
        registry.tell(orphaned(&other)).unwrap();
        assert!(inputs.try_recv().is_err());
        assert_eq!(registry.claim(&other, &lane).unwrap().care, Care::Orphaned(Phase::Launched));
    }
}

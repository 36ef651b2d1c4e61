//! Walks LIFE: a run's next state and what is to be done. Pure; it knows no clock, file or socket.

use supervisor::wire::message::Phase;

use crate::protocol::life::{Do, Event, LIFE, NEVER, STAYS, State};

/// The answer of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Step {
    /// The state after the event.
    pub to: State,
    /// What is to be done, in order.
    pub effects: &'static [Do],
}

/// An event that cannot come in its state: a fault of the node, never of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutOfTurn {
    /// Where the run stood.
    pub from: State,
    /// What came.
    pub on: Event,
    /// Why it cannot.
    pub why: &'static str,
}

impl std::fmt::Display for OutOfTurn {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "'{}' cannot come while {}: {}", self.on.word(), self.from.word(), self.why)
    }
}

/// What `on` does to a run in `from`.
///
/// # Errors
/// [`OutOfTurn`] for a pair of NEVER; nothing is to be done then.
pub fn advance(from: State, on: Event) -> Result<Step, OutOfTurn> {
    if let Some(row) = LIFE.iter().find(|row| row.from == from && row.on == on) {
        return Ok(Step { to: row.to, effects: row.effects });
    }
    if let Some(stay) = STAYS.iter().find(|it| it.states.contains(&from) && it.events.contains(&on)) {
        return Ok(Step { to: from, effects: stay.effects });
    }
    let never = NEVER.iter().find(|(_, states, events)| states.contains(&from) && events.contains(&on));
    Err(OutOfTurn { from, on, why: never.map_or("no table has it", |(why, ..)| why) })
}

/// Whether `on` takes a run in `from` elsewhere.
#[must_use]
pub fn moves(from: State, on: Event) -> bool {
    LIFE.iter().any(|row| row.from == from && row.on == on)
}

/// What the node's own durable state says of a run (decisions C-65).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// No state file.
    Nothing,
    /// `taken`; an unreadable file counts as this.
    Taken {
        /// Whether the hash of `started` is in it.
        started: bool,
    },
    /// `ending`, with the text.
    Ending,
    /// `done`.
    Done {
        /// Whether a `publish` has been taken up and its retry is not over.
        retrying: bool,
    },
}

/// What the supervisor says of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Care {
    /// Not in care.
    None,
    /// In care, so far.
    Held(Phase),
    /// Was in an earlier supervisor's care; everything of it has been ended.
    Orphaned(Phase),
}

/// Where a run that this node meets for the first time stands (decisions C-86, C-102, C-108).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resume {
    /// Decide it as if new; give back a care that was never used first.
    Anew {
        /// Whether there is such a care.
        release: bool,
    },
    /// It was taken or launched and nothing of it lives: answer `lost`.
    Lost,
    /// Go on in this state, doing these; a post among them is looked for before it is sent.
    At(State, &'static [Do]),
}

/// Where to go on. `started_counts`: a counted `started` of this run is on the server.
#[must_use]
pub fn resume(kept: Kept, care: Care, started_counts: bool) -> Resume {
    match (kept, care) {
        (Kept::Done { retrying: false }, Care::None) => Resume::At(State::Settled, &[]),
        // Nobody has it in care: what is retried is read from where it was left.
        (Kept::Done { retrying: true }, Care::None) => Resume::At(State::Publishing, &[Do::Publish]),
        (Kept::Done { .. }, Care::Held(_)) => Resume::At(State::Publishing, &[Do::NoteEvents, Do::Publish]),
        // C-108: after the supervisor's death only `publish` retries what is unfinished.
        (Kept::Done { .. }, Care::Orphaned(_)) => Resume::At(State::Releasing, &[Do::NoteEvents, Do::Release]),
        (Kept::Ending, _) => Resume::At(State::Ending, &[Do::NoteEvents, Do::PostEnded]),
        (Kept::Taken { .. } | Kept::Nothing, Care::Held(Phase::Launched)) => Resume::At(State::Running, &[]),
        (Kept::Taken { .. } | Kept::Nothing, Care::Held(Phase::Exited)) => Resume::At(State::Running, &[]),
        (Kept::Taken { started: true }, Care::Held(Phase::Prepared)) => Resume::At(State::Launching, &[Do::Launch]),
        (Kept::Taken { started: false }, Care::Held(Phase::Prepared)) => {
            Resume::At(State::Starting, &[Do::PostStarted])
        }
        // `taken` is written after the workspace stands: it was over before its launch, and its workspace was being removed.
        (Kept::Taken { .. }, Care::Held(Phase::Taken | Phase::Preparing | Phase::Removed)) => Resume::Lost,
        (Kept::Taken { .. }, Care::None | Care::Orphaned(_)) => Resume::Lost,
        (Kept::Nothing, Care::Held(Phase::Taken | Phase::Preparing | Phase::Prepared | Phase::Removed))
            if !started_counts =>
        {
            Resume::Anew { release: true }
        }
        (Kept::Nothing, Care::Orphaned(Phase::Taken | Phase::Preparing | Phase::Prepared)) if !started_counts => {
            Resume::Anew { release: true }
        }
        (Kept::Nothing, Care::None) if !started_counts => Resume::Anew { release: false },
        (Kept::Nothing, _) => Resume::Lost,
    }
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    /// Every event in every state is answered, exactly once: by a row, by a reason to stay, or by why it cannot be.
    #[test]
    fn every_event_in_every_state_is_answered_exactly_once() {
        let mut faults = Vec::new();
        for &from in State::ALL {
            for &on in Event::ALL {
                let rows = LIFE.iter().filter(|row| row.from == from && row.on == on).count();
                let stays = STAYS.iter().filter(|it| it.states.contains(&from) && it.events.contains(&on)).count();
                let never = NEVER.iter().filter(|(_, s, e)| s.contains(&from) && e.contains(&on)).count();
                if rows + stays + never != 1 {
                    faults.push(format!("{on} while {from}: {rows} rows, {stays} to stay, {never} never"));
                }
                assert_eq!(advance(from, on).is_err(), never == 1, "{on} while {from}");
            }
        }
        assert!(faults.is_empty(), "{}", faults.join("\n"));
    }

    /// C-102: an event of the supervisor is noted in whatever state it is told, at once or once its end is durable.
    #[test]
    fn what_the_supervisor_tells_is_noted_in_every_state() {
        for &state in State::ALL {
            for event in [Event::Exited, Event::Orphaned] {
                let step = advance(state, event).unwrap();
                let later = matches!(step.to, State::Logging | State::Hashing | State::Ending) && step.to != state;
                assert!(later || step.effects.contains(&Do::NoteEvents), "{event} while {state}");
            }
        }
        assert!(advance(State::Hashing, Event::FilesHashed).unwrap().effects.contains(&Do::NoteEvents));
    }

    #[test]
    fn every_state_is_reached_and_all_but_the_last_are_left() {
        for &state in State::ALL {
            assert!(state == State::Unseen || LIFE.iter().any(|row| row.to == state), "{}", state.word());
            assert!(state == State::Settled || LIFE.iter().any(|row| row.from == state), "{}", state.word());
        }
    }

    #[test]
    fn a_stop_is_answered_in_every_state() {
        for &state in State::ALL {
            assert!(advance(state, Event::StopStands).is_ok(), "{}", state.word());
        }
    }

    /// V2-2.13-19, V2-2.13-20: `launch` comes only after a durable `taken` and a confirmed `started`.
    #[test]
    fn launch_has_one_way_in() {
        let ways: Vec<_> = LIFE.iter().filter(|row| row.effects.contains(&Do::Launch)).collect();
        let ways: Vec<_> = ways.iter().map(|row| (row.from, row.on)).collect();
        assert_eq!(ways, [(State::Starting, Event::StartedConfirmed)]);
        let starting: Vec<_> = LIFE.iter().filter(|row| row.to == State::Starting).collect();
        assert!(starting.iter().all(|row| row.effects.first() == Some(&Do::SaveTaken)));
    }

    /// C-100: in whatever state a run is met as in care, it may turn out to be an earlier supervisor's.
    #[test]
    fn a_run_in_hand_that_is_lost_is_answered() {
        for (state, event) in [
            (State::Unseen, Event::Lost),
            (State::Starting, Event::Orphaned),
            (State::Launching, Event::Orphaned),
            (State::Running, Event::Orphaned),
            (State::Stopping, Event::Orphaned),
        ] {
            let step = advance(state, event).unwrap();
            assert_eq!(step.to, State::Ending, "{}", state.word());
            assert!(step.effects.contains(&Do::PostEnded), "{}", state.word());
        }
        // 2.13: nor does a stop before the launch was asked for leave it without an end.
        assert_eq!(advance(State::Launching, Event::StoppedFirst).unwrap().to, State::Clearing);
        assert_eq!(advance(State::Clearing, Event::Cleared).unwrap().to, State::Ending);
    }

    /// V2-2.3-30: from a publish no road leads to a launch.
    #[test]
    fn a_publish_never_launches() {
        let mut reached = vec![advance(State::Settled, Event::PublishAsked).unwrap().to];
        while let Some(next) = reached
            .iter()
            .flat_map(|from| LIFE.iter().filter(move |row| row.from == *from && row.on != Event::PublishAsked))
            .map(|row| row.to)
            .find(|to| !reached.contains(to))
        {
            reached.push(next);
        }
        assert_eq!(reached, [State::Publishing, State::Releasing, State::Settled]);
        let effects = LIFE.iter().filter(|row| reached.contains(&row.from)).flat_map(|row| row.effects);
        assert!(!effects.into_iter().any(|it| *it == Do::Launch));
    }

    /// P2: `ended` is posted only from a durable text.
    #[test]
    fn ended_is_saved_before_it_is_posted() {
        for row in LIFE.iter().filter(|row| row.effects.contains(&Do::PostEnded)) {
            let save = row.effects.iter().position(|it| *it == Do::SaveEnding);
            let post = row.effects.iter().position(|it| *it == Do::PostEnded);
            assert!(save.unwrap() < post.unwrap(), "{}", row.spec);
        }
    }

    /// P1: no remembered state leads to a launch but the one in which it is known not to have happened.
    #[test]
    fn resuming_launches_only_what_is_prepared_confirmed_and_not_launched() {
        let phases = [Phase::Taken, Phase::Preparing, Phase::Prepared, Phase::Launched, Phase::Exited, Phase::Removed];
        let mut cares = vec![Care::None];
        cares.extend(phases.iter().flat_map(|p| [Care::Held(*p), Care::Orphaned(*p)]));
        for kept in [
            Kept::Nothing,
            Kept::Taken { started: false },
            Kept::Taken { started: true },
            Kept::Ending,
            Kept::Done { retrying: false },
            Kept::Done { retrying: true },
        ] {
            for care in &cares {
                for counts in [false, true] {
                    if let Resume::At(_, effects) = resume(kept, *care, counts)
                        && effects.contains(&Do::Launch)
                    {
                        assert_eq!((kept, *care), (Kept::Taken { started: true }, Care::Held(Phase::Prepared)));
                    }
                }
            }
        }
    }

    /// C-86: after `taken`, a run in nobody's care is lost; before it, it is decided anew.
    #[test]
    fn taken_and_orphaned_is_lost() {
        assert_eq!(resume(Kept::Taken { started: false }, Care::Orphaned(Phase::Prepared), false), Resume::Lost);
        assert_eq!(resume(Kept::Taken { started: true }, Care::None, true), Resume::Lost);
        assert_eq!(resume(Kept::Nothing, Care::Orphaned(Phase::Prepared), false), Resume::Anew { release: true });
        assert_eq!(resume(Kept::Nothing, Care::None, true), Resume::Lost);
    }
}

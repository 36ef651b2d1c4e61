//! One run's state, as a table: what may happen in it, and what it is then. Pure; knows no process and no frame.

use supervisor::wire::message::Phase;

/// How far a run in care has come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RunState {
    /// In care; nothing made.
    Taken,
    /// A workspace step runs.
    Preparing,
    /// A step failed, or a removal left something: the workspace may be half there.
    Unprepared,
    /// Its workspace stands.
    Prepared,
    /// The launch mark is durable; the cell builds.
    Launching,
    /// The program runs.
    Running,
    /// The program has been asked to end.
    Stopping,
    /// The program has ended; what it left may still write for a moment (decisions C-76).
    Draining,
    /// Everything of it is being killed.
    Ending,
    /// Nothing of it is left. Also a launch that failed.
    Exited,
    /// What its workspace holds is being looked at.
    Inspecting,
    /// Its workspace is being removed.
    Removing,
    /// Its workspace is gone.
    Removed,
    /// Of an earlier supervisor; what was found of it is being ended, or has been.
    Orphaned,
}

/// What happens to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Happening {
    /// A step was started.
    StepsBegan,
    /// Every step was done.
    StepsDone,
    /// A step failed.
    StepFailed,
    /// The launch mark was written.
    LaunchMarked,
    /// The launch is being undone: the program never ran.
    LaunchUndone,
    /// The program was executed.
    Executed,
    /// A stop, a limit or the supervisor's own end asks the program to end.
    EndAsked,
    /// The program ended.
    ProgramEnded,
    /// Its streams are at their end, or the time for that has passed: kill what is left.
    DrainOver,
    /// The time to end by itself has passed, or there is no program to ask: kill everything.
    KillAll,
    /// No process of it lives.
    Gone,
    /// A look at the workspace was started.
    InspectionBegan,
    /// It is over.
    InspectionOver,
    /// A removal was started.
    RemovalBegan,
    /// Nothing of the workspace is left.
    RemovalDone,
    /// Something of the workspace stays.
    RemovalLeft,
}

use Happening as H;
use RunState as S;

impl RunState {
    /// Every state.
    pub(crate) const ALL: [Self; 14] = [
        S::Taken,
        S::Preparing,
        S::Unprepared,
        S::Prepared,
        S::Launching,
        S::Running,
        S::Stopping,
        S::Draining,
        S::Ending,
        S::Exited,
        S::Inspecting,
        S::Removing,
        S::Removed,
        S::Orphaned,
    ];

    /// Whether its process has been asked to end or has, and something of it may live.
    #[must_use]
    pub(crate) const fn is_ending(self) -> bool {
        matches!(self, S::Stopping | S::Draining | S::Ending)
    }

    /// The phase the protocol process is told. `Removing` needs to know whether the run was launched: it is told as
    /// the phase to resume from.
    #[must_use]
    pub(crate) const fn phase(self, launched: bool) -> Phase {
        match self {
            S::Taken => Phase::Taken,
            S::Preparing | S::Unprepared => Phase::Preparing,
            S::Prepared => Phase::Prepared,
            S::Launching | S::Running | S::Stopping | S::Draining | S::Ending | S::Orphaned => Phase::Launched,
            S::Removing if !launched => Phase::Preparing,
            S::Exited | S::Inspecting | S::Removing => Phase::Exited,
            S::Removed => Phase::Removed,
        }
    }
}

/// LIFE of a run in care. What is not here cannot happen.
const LIFE: &[(RunState, Happening, RunState)] = &[
    (S::Taken, H::StepsBegan, S::Preparing),
    (S::Unprepared, H::StepsBegan, S::Preparing),
    (S::Taken, H::StepsDone, S::Prepared), // no step asked for
    (S::Unprepared, H::StepsDone, S::Prepared),
    (S::Preparing, H::StepsDone, S::Prepared),
    (S::Preparing, H::StepFailed, S::Unprepared),
    (S::Taken, H::StepFailed, S::Unprepared), // it could not be started
    (S::Unprepared, H::StepFailed, S::Unprepared),
    (S::Taken, H::LaunchMarked, S::Launching), // a run without a workspace
    (S::Prepared, H::LaunchMarked, S::Launching),
    (S::Launching, H::Executed, S::Running),
    (S::Launching, H::LaunchUndone, S::Ending),
    (S::Running, H::EndAsked, S::Stopping),
    (S::Running, H::ProgramEnded, S::Draining),
    (S::Stopping, H::ProgramEnded, S::Draining),
    (S::Running, H::KillAll, S::Ending), // the cell died
    (S::Stopping, H::KillAll, S::Ending),
    (S::Draining, H::DrainOver, S::Ending),
    (S::Ending, H::Gone, S::Exited),
    (S::Exited, H::InspectionBegan, S::Inspecting),
    (S::Inspecting, H::InspectionOver, S::Exited),
    (S::Prepared, H::RemovalBegan, S::Removing),
    (S::Unprepared, H::RemovalBegan, S::Removing),
    (S::Exited, H::RemovalBegan, S::Removing),
    (S::Orphaned, H::RemovalBegan, S::Removing),
    (S::Removing, H::RemovalDone, S::Removed),
    // `next` makes this `Exited` for a run that was launched.
    (S::Removing, H::RemovalLeft, S::Unprepared),
];

/// The state after `what` happens in `state`, or none when it cannot.
///
/// `launched` is whether a launch mark was ever written: a removal that leaves something goes back to `Exited` then, so
/// that no road leads from a launched run to a second launch (P1).
#[must_use]
pub(crate) fn next(state: RunState, what: Happening, launched: bool) -> Option<RunState> {
    let (.., after) = LIFE.iter().find(|(from, happening, _)| *from == state && *happening == what)?;
    Some(if *after == S::Unprepared && launched { S::Exited } else { *after })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_state_and_happening_has_at_most_one_row() {
        for (i, (from, what, _)) in LIFE.iter().enumerate() {
            let same = LIFE.iter().filter(|(f, w, _)| f == from && w == what).count();
            assert_eq!(same, 1, "row {i}: {from:?} {what:?}");
        }
    }

    #[test]
    fn every_state_but_the_two_it_may_begin_in_is_reached_and_every_one_but_the_last_is_left() {
        for state in RunState::ALL {
            let reached = LIFE.iter().any(|(.., to)| *to == state);
            assert_eq!(reached, !matches!(state, S::Taken | S::Orphaned), "{state:?} reached");
            let left = LIFE.iter().any(|(from, ..)| *from == state);
            assert_eq!(left, state != S::Removed, "{state:?} left");
        }
    }

    /// P1: follows every road there is, once launched, and finds no second launch on it.
    #[test]
    fn no_road_leads_from_a_launch_to_another() {
        let happenings = [
            H::StepsBegan,
            H::StepsDone,
            H::StepFailed,
            H::LaunchMarked,
            H::LaunchUndone,
            H::Executed,
            H::EndAsked,
            H::ProgramEnded,
            H::DrainOver,
            H::KillAll,
            H::Gone,
            H::InspectionBegan,
            H::InspectionOver,
            H::RemovalBegan,
            H::RemovalDone,
            H::RemovalLeft,
        ];
        let walk = |begin: RunState, launched: bool| {
            let mut seen = vec![begin];
            let mut launches = 0;
            let mut i = 0;
            while let Some(state) = seen.get(i).copied() {
                i += 1;
                for what in happenings {
                    if let Some(after) = next(state, what, launched) {
                        launches += usize::from(what == H::LaunchMarked);
                        if !seen.contains(&after) {
                            seen.push(after);
                        }
                    }
                }
            }
            launches
        };
        assert_eq!(walk(S::Launching, true), 0);
        assert_eq!(walk(S::Orphaned, true), 0);
        // Control: the same walk finds the two roads of a run not yet launched.
        assert_eq!(walk(S::Taken, false), 2);
    }

    #[test]
    fn a_removal_that_leaves_something_is_tried_again_from_where_the_run_was() {
        assert_eq!(next(S::Removing, H::RemovalLeft, true), Some(S::Exited));
        assert_eq!(next(S::Removing, H::RemovalLeft, false), Some(S::Unprepared));
        assert_eq!(next(S::Unprepared, H::LaunchMarked, false), None);
    }

    #[test]
    fn p3_only_a_run_of_which_nothing_lives_becomes_exited() {
        for (from, what, to) in LIFE {
            if *to == S::Exited {
                // A look at the workspace of a run that was that already, and is over when nothing of the look lives.
                let again = (*from, *what) == (S::Inspecting, H::InspectionOver);
                assert!(again || (*from, *what) == (S::Ending, H::Gone), "{from:?} {what:?}");
            }
            assert!(*to != S::Inspecting || *from == S::Exited, "{from:?} {what:?}");
        }
    }
}

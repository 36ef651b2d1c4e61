//! What is asked of a system so that an effect comes to pass, one scenario for each row of the tables of effects.
//!
//! The matches have no other arm: an effect added to a table does not compile until its scenario is named.

use ocx::node::effects::Saved;
use ocx::node::poster::Post;
use ocx::protocol::life::Do;
use supervisor::effects::{Did, Served, Told, Wrote};
use supervisor::points::{Point, of_table};

/// What is asked, and what is done meanwhile.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scenario {
    /// A run that prints and exits 0.
    Plain,
    /// A run that leaves a file, which is sent.
    Files,
    /// A run that leaves a file, which could not be sent, and a publish once it can be.
    Published,
    /// A run on a check-in, which asks a verdict.
    Judged,
    /// A run with a clone and a checkout, whose workspace is to go once saved.
    Saved,
    /// A run that waits, and is stopped.
    Stopped,
    /// A run that policy refuses.
    Refused,
    /// A run whose workspace cannot be made.
    StepFails,
    /// A run whose program is not there.
    NotFound,
    /// A run that waits while the node is killed; the point is in the next node's start.
    Adopted,
    /// A run that waits while the supervisor is killed; the point is in the next supervisor's start.
    Orphaned,
    /// A run that waits, and a stop of it in another thread, which is answered.
    Misplaced,
    /// A run this host launched and gave up before, of which the node knows nothing.
    Forgotten,
    /// A run settled so long ago that the next node folds its files.
    Folded,
}

/// How an effect is reached: by a scenario, or, with a reason, by none.
pub(crate) type Reached = Result<Scenario, &'static str>;

/// Every failpoint of both programs.
pub(crate) fn all() -> Vec<(Point, Reached)> {
    let mut all = Vec::new();
    all.extend(of_table::<Do>().into_iter().map(|(row, point)| (point, of_do(row))));
    all.extend(of_table::<Saved>().into_iter().map(|(row, point)| (point, of_saved(row))));
    all.extend(of_table::<Post>().into_iter().map(|(row, point)| (point, of_post(row))));
    all.extend(of_table::<Served>().into_iter().map(|(row, point)| (point, of_served(row))));
    all.extend(of_table::<Told>().into_iter().map(|(row, point)| (point, of_told(row))));
    all.extend(of_table::<Wrote>().into_iter().map(|(row, point)| (point, of_wrote(row))));
    all.extend(of_table::<Did>().into_iter().map(|(row, point)| (point, of_did(row))));
    all
}

fn of_do(row: Do) -> Reached {
    Ok(match row {
        Do::Take
        | Do::Check
        | Do::Prepare
        | Do::SaveTaken
        | Do::PostStarted
        | Do::SaveStarted
        | Do::Launch
        | Do::WriteLogs
        | Do::SavePlan
        | Do::SaveEnding
        | Do::NoteEvents
        | Do::PostEnded
        | Do::SaveDone
        | Do::Publish
        | Do::Release => Scenario::Plain,
        Do::HashFiles => Scenario::Files,
        Do::SaveRetry => Scenario::Published,
        Do::RemoveWorkspace => Scenario::StepFails,
        Do::StopProcess => Scenario::Stopped,
    })
}

fn of_saved(row: Saved) -> Reached {
    Ok(match row {
        Saved::Taken | Saved::Started | Saved::Ending | Saved::Done | Saved::Plan | Saved::Completed => Scenario::Plain,
        Saved::Folded | Saved::Removed => Scenario::Folded,
    })
}

fn of_post(row: Post) -> Reached {
    Ok(match row {
        Post::Started | Post::Ended | Post::Logs => Scenario::Plain,
        Post::File | Post::Files => Scenario::Files,
        Post::Verdict => Scenario::Judged,
        Post::NoVerdict => {
            return Err("said only of a run whose values cannot be read again, which no script brings about");
        }
        Post::Reply => Scenario::Misplaced,
    })
}

fn of_served(row: Served) -> Reached {
    Ok(match row {
        Served::Hello | Served::Credential => Scenario::Adopted,
        Served::Take
        | Served::Check
        | Served::Prepare
        | Served::Launch
        | Served::Noted
        | Served::WriteLogs
        | Served::Release => Scenario::Plain,
        Served::Open => Scenario::Files,
        Served::OpenSettled => Scenario::Published,
        Served::Inspect => Scenario::Saved,
        Served::Stop => Scenario::Stopped,
        Served::Remove => Scenario::StepFails,
    })
}

fn of_told(row: Told) -> Reached {
    Ok(match row {
        Told::Welcome | Told::Descriptor | Told::InCare => Scenario::Adopted,
        Told::Taken
        | Told::Permitted
        | Told::Prepared
        | Told::Launched
        | Told::Logs
        | Told::Released
        | Told::Exited => Scenario::Plain,
        Told::NotOpened => Scenario::Files,
        Told::Inspected => Scenario::Saved,
        Told::Refused => Scenario::Refused,
        Told::StepFailed | Told::Removed => Scenario::StepFails,
        Told::Failed => Scenario::NotFound,
        Told::Stopping => Scenario::Stopped,
        Told::Orphaned => Scenario::Orphaned,
        Told::Was => Scenario::Forgotten,
        Told::Busy => return Err("one lane of one node asks for a run's care once; a second is refused in tests/link"),
        Told::Impossible => return Err("answers a request that an event crossed, a race no script can hold open"),
    })
}

fn of_wrote(row: Wrote) -> Reached {
    Ok(match row {
        Wrote::Taken
        | Wrote::Step
        | Wrote::Prepared
        | Wrote::LaunchMark
        | Wrote::Init
        | Wrote::Phase
        | Wrote::Line
        | Wrote::Gone => Scenario::Plain,
    })
}

fn of_did(row: Did) -> Reached {
    Ok(match row {
        Did::MakeCgroup
        | Did::StartStep
        | Did::StartCell
        | Did::Go
        | Did::Kill
        | Did::RemoveCgroup
        | Did::KeepEnd
        | Did::PutLogs => Scenario::Plain,
        Did::Term => Scenario::Stopped,
        Did::EndOrphan => Scenario::Orphaned,
    })
}

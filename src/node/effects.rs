//! The node's effects, as tables: what LIFE has it do, what it posts, what it writes. Its failpoints are made from them
//! (`supervisor::points`), and the crash suite walks them all.

use supervisor::effects;
use supervisor::points::{Effect, Made, Program};

use super::poster::Post;
use crate::protocol::life::Do;

effects! {
    /// Files below `ROOT/state`.
    Saved, Node, "state" {
        /// `taken`, without the hash of `started`.
        Taken = "taken", Write;
        /// `taken`, with it.
        Started = "started", Write;
        /// `ending`.
        Ending = "ending", Write;
        /// `done`.
        Done = "done", Write;
        /// The plan of publications, at first and with each change.
        Plan = "plan", Write;
        /// A clone's completion number.
        Completed = "completed", Write;
        /// Lines of the ledger, for runs settled long ago.
        Folded = "folded", Append;
        /// The files of runs that are in it.
        Removed = "removed", Removal;
    }
}

impl Effect for Do {
    const PROGRAM: Program = Program::Node;
    const TABLE: &'static str = "do";

    fn rows() -> &'static [Self] {
        Self::ALL
    }

    fn name(self) -> &'static str {
        self.word()
    }

    fn made(self) -> Made {
        match self {
            Self::Take
            | Self::Check
            | Self::Prepare
            | Self::RemoveWorkspace
            | Self::Launch
            | Self::StopProcess
            | Self::WriteLogs
            | Self::HashFiles
            | Self::Release => Made::Ask,
            Self::SaveTaken
            | Self::PostStarted
            | Self::SaveStarted
            | Self::SavePlan
            | Self::SaveEnding
            | Self::NoteEvents
            | Self::PostEnded
            | Self::SaveDone
            | Self::SaveRetry
            | Self::Publish => Made::Act,
        }
    }
}

impl Effect for Post {
    const PROGRAM: Program = Program::Node;
    const TABLE: &'static str = "post";

    fn rows() -> &'static [Self] {
        &[Self::Started, Self::Ended, Self::Logs, Self::File, Self::Files, Self::Verdict, Self::NoVerdict, Self::Reply]
    }

    fn name(self) -> &'static str {
        match self {
            Self::Started => "started",
            Self::Ended => "ended",
            Self::Logs => "logs",
            Self::File => "file",
            Self::Files => "files",
            Self::Verdict => "verdict",
            Self::NoVerdict => "no_verdict",
            Self::Reply => "reply",
        }
    }

    fn made(self) -> Made {
        Made::Sent
    }
}

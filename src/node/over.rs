//! What the end of a process says in `ended` and in the kept log (protocol 2.10, 2.12). Pure.

use supervisor::wire::message::{End, EndedBy};

use super::tending::Over;
use crate::engine::report::{How, Tail, kept_log as kept_log_text};
use crate::engine::run::{Keep, Run};
use crate::protocol::forms::StdoutWhen;
use crate::protocol::names::RunId;

/// The outcome, with its exit or note.
pub(super) fn how_it_was(over: &Over, asked: Option<&Run>) -> How {
    match &over.ended_by {
        EndedBy::Stop => How::Stopped,
        EndedBy::Limit(limit) => {
            let written = asked.and_then(|run| run.limits.written.get(limit));
            let amount = written.map(|it| it.as_str().map_or_else(|| it.to_string(), str::to_owned));
            How::Budget { note: format!("past {limit} {}", amount.unwrap_or_default()).trim_end().to_owned() }
        }
        EndedBy::Itself => How::Exited {
            exit: match over.end {
                End::Code(code) => code,
                // V2-2.12-05: as a shell writes it.
                End::Signal(signal) => signal.saturating_add(128),
            },
        },
    }
}

/// The kept-log reply, when a stream that is kept printed a byte.
pub(super) fn kept_log(run: &RunId, over: &Over, keep: &Keep) -> Option<String> {
    let failed = over.end != End::Code(0);
    let how = match over.end {
        End::Code(code) => format!("exit {code}"),
        End::Signal(signal) => format!("exit {} (signal {signal})", signal.saturating_add(128)),
    };
    let stdout_kept = match keep.stdout_when {
        StdoutWhen::Always => true,
        StdoutWhen::Failure => failed,
    };
    let stderr = Tail { bytes: &over.tails.stderr, keep_bytes: keep.stderr_bytes };
    let stdout = Tail { bytes: &over.tails.stdout, keep_bytes: keep.stdout_bytes };
    kept_log_text(run, &how, Some(stderr), stdout_kept.then_some(stdout))
}

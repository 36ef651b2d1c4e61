//! What a run publishes once its process is over, beside its kept log: which files, and which verdict (protocol 2.10;
//! decisions C-26, C-70). Pure.

use supervisor::wire::plan::{CHANGES_TOLD, Holds};

use super::expand::{Expander, Values};
use super::report::How;
use super::run::Run;
use crate::protocol::forms;
use crate::protocol::keys::Reads;
use crate::protocol::names::RunId;
use crate::protocol::values::ValueName;

/// Largest file that is sent, in bytes.
pub const FILE_BYTES_MAX: u64 = 256 << 20;
/// Longest all names and places of a run's files may become with values in place, in bytes.
const NAMES_BYTES_MAX: usize = 2 << 20;
/// Longest path the kernel takes, in bytes, without its end.
const PATH_BYTES_MAX: usize = 4095;

/// A file that a run names, with values in place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedFile {
    /// Where it is to be.
    pub at: String,
    /// What the server is to call it.
    pub name: String,
}

/// The files a run names, in its order. A value that is not set, which no accepted run names, stands as written.
#[must_use]
pub fn files(asked: &Run, values: &Values) -> Vec<NamedFile> {
    let mut expander = Expander::new(values, None, NAMES_BYTES_MAX);
    let named = asked.process.unversioned_files.iter();
    named
        .map(|(at, name)| NamedFile {
            at: expander.expand_known(at, Reads::Host),
            name: expander.expand_known(name, Reads::Process),
        })
        .collect()
}

/// The path beneath the workspace of a file that lies within it as far as text alone shows.
///
/// # Errors
/// Why it is not one to be sent, in words.
pub fn beneath(at: &str, workspace: Option<&str>) -> Result<String, &'static str> {
    let workspace = workspace.ok_or("the run has no workspace")?;
    let within = forms::normalised(at).filter(|path| forms::is_below(path, workspace));
    let path = within.ok_or("it is not within the workspace")?;
    if path.len() > PATH_BYTES_MAX || path.contains('\0') {
        return Err("no file has such a path");
    }
    let below = path.strip_prefix(workspace).map(|rest| rest.trim_start_matches('/').to_owned());
    below.ok_or("it is not within the workspace")
}

/// The value of a run's verdict; `signal` is what ended its process, if one did. Nothing for an end that has none.
#[must_use]
pub fn verdict(run: &RunId, how: &How, signal: Option<u8>) -> Option<String> {
    let reason = match (how, signal) {
        (How::Exited { exit: 0 }, None) => return Some(format!("pass: exit 0 (against {run})")),
        (How::Exited { .. }, Some(signal)) => format!("signal {signal}"),
        (How::Exited { exit }, None) => format!("exit {exit}"),
        (How::Budget { note }, _) => note.split_whitespace().collect::<Vec<_>>().join(" "),
        (How::Refused { .. } | How::Stopped | How::Lost { .. }, _) => return None,
    };
    Some(format!("fail: {reason} (against {run})"))
}

/// What `ended` says of a workspace that is to be removed once saved, when all of it is (decisions C-05).
pub const PENDING: &str = "kept: publications pending";

/// What `ended` says of a workspace that holds work the server lacks; nothing when it holds none. `not_sent` is how many of
/// its own artifacts the server does not have.
#[must_use]
pub fn unsaved(holds: &Holds, not_sent: u64) -> Option<String> {
    let mut things = holds.changes.clone();
    let count = |count: u64, one: &str, many: &str| match count {
        0 => None,
        1 => Some(format!("1 {one}")),
        _ => Some(format!("{count} {many}")),
    };
    let stashes = count(holds.stashes, "stash", "stashes");
    let artifacts = count(not_sent, "artifact not sent", "artifacts not sent");
    let all = holds.changes_count + u64::from(stashes.is_some()) + u64::from(artifacts.is_some());
    things.extend(stashes);
    things.extend(artifacts);
    if all == 0 {
        return None;
    }
    things.truncate(CHANGES_TOLD);
    let told = u64::try_from(things.len()).unwrap_or(u64::MAX);
    let more = if all > told { format!(", {all} in all") } else { String::new() };
    Some(format!("kept: {}{more}", things.join(", ")))
}

/// The check-in a verdict is written on.
///
/// # Errors
/// Why there is none, in words.
pub fn checkin(values: Option<&Values>) -> Result<String, &'static str> {
    let values = values.ok_or("the run's values could not be read again")?;
    values.get(&ValueName::Checkin).cloned().ok_or("the run has no check-in")
}

#[cfg(test)]
#[expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    fn run() -> RunId {
        RunId::new(&"a".repeat(64)).unwrap()
    }

    /// C-70: the exact words.
    #[test]
    fn v2_2_10_17_a_verdict_says_pass_or_fail_and_how_it_ended() {
        let against = format!("(against {})", "a".repeat(64));
        let of = |how: &How, signal| verdict(&run(), how, signal);
        let budget = How::Budget { note: "past wall 2s".into() };
        assert_eq!(of(&How::Exited { exit: 0 }, None), Some(format!("pass: exit 0 {against}")));
        assert_eq!(of(&How::Exited { exit: 3 }, None), Some(format!("fail: exit 3 {against}")));
        assert_eq!(of(&How::Exited { exit: 137 }, Some(9)), Some(format!("fail: signal 9 {against}")));
        assert_eq!(of(&budget, Some(15)), Some(format!("fail: past wall 2s {against}")));
    }

    #[test]
    fn v2_2_10_18_no_verdict_on_what_was_stopped_refused_or_lost() {
        let note = || "why".to_owned();
        for how in [How::Stopped, How::Refused { note: note() }, How::Lost { note: note() }] {
            assert_eq!(verdict(&run(), &how, None), None, "{how:?}");
            assert!(
                !crate::protocol::outcomes::OUTCOMES.iter().any(|row| row.outcome == how.outcome() && row.publishes)
            );
        }
    }

    /// C-05: the exact words.
    #[test]
    fn v2_2_7_25_a_kept_workspace_says_what_it_holds() {
        let of = |changes: &[&str], changes_count, stashes, not_sent| {
            let changes = changes.iter().map(|it| (*it).to_owned()).collect();
            unsaved(&Holds { changes, changes_count, stashes, ..Holds::default() }, not_sent)
        };
        assert_eq!(of(&[], 0, 0, 0), None);
        assert_eq!(of(&["EXTRA made.txt"], 1, 0, 0).as_deref(), Some("kept: EXTRA made.txt"));
        assert_eq!(of(&[], 0, 0, 2).as_deref(), Some("kept: 2 artifacts not sent"));
        let all = of(&["EDITED a.c", "EXTRA b"], 2, 1, 3);
        assert_eq!(all.as_deref(), Some("kept: EDITED a.c, EXTRA b, 1 stash, 3 artifacts not sent"));
        let five = ["EXTRA 1", "EXTRA 2", "EXTRA 3", "EXTRA 4", "EXTRA 5"];
        assert_eq!(of(&five, 5, 0, 0).map(|it| it.contains("in all")), Some(false));
        let more = of(&five, 7, 2, 1).unwrap();
        assert_eq!(more, "kept: EXTRA 1, EXTRA 2, EXTRA 3, EXTRA 4, EXTRA 5, 9 in all");
    }

    #[test]
    fn v2_2_10_21_a_file_lies_within_the_workspace() {
        let of = |at: &str| beneath(at, Some("/w/run"));
        assert_eq!(of("/w/run/a/b"), Ok("a/b".to_owned()));
        assert_eq!(of("/w/run//a/./x/../b"), Ok("a/b".to_owned()));
        for at in [
            "/w/run",
            "/w/run/",
            "/w/run/..",
            "/w/run/../other/a",
            "/w/running/a",
            "/etc/passwd",
            "a",
            "",
            "/w/run/a\0",
        ] {
            assert!(of(at).is_err(), "{at:?}");
        }
        assert!(of(&format!("/w/run/{}", "a".repeat(5000))).is_err());
        assert_eq!(beneath("/w/run/a", None), Err("the run has no workspace"));
    }
}

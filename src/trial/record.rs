//! What the server has: its repository, read only, while it serves.

use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _};

use crate::engine::message;
use crate::fossil::{CloneFile, Place, Program};

use super::Trouble;

/// Longest wait for a request that is committing.
const BUSY_WAIT: Duration = Duration::from_secs(10);

/// One post or ticket change, as the server has it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The message's kind; `log` for a kept-log reply; `text` for anything else.
    pub kind: String,
    /// The artifact's full hash.
    pub hash: String,
    /// Who sent it, by the server's receipt.
    pub from: String,
    /// The whole text.
    pub text: String,
    /// When the server received it, UTC (RFC 3339).
    pub at: String,
}

/// The server's repository.
#[derive(Debug, Clone)]
pub struct Record {
    file: CloneFile,
    node_user: String,
}

impl Record {
    /// The repository at `file`, in which `node_user` writes the reports. Opens nothing.
    #[must_use]
    pub fn new(file: &Path, program: &Program, node_user: &str) -> Self {
        Self { file: CloneFile::new(file, program), node_user: node_user.to_owned() }
    }

    /// The full hash of the artifact these digits begin.
    ///
    /// # Errors
    /// When the repository cannot be read, or holds no such artifact.
    pub fn full_hash(&self, digits: &str) -> Result<String, Trouble> {
        let found = self.file.find_prefix(digits).map_err(|e| self.at(&e))?;
        found.ok_or_else(|| Trouble::stopped(format!("the server's repository has no artifact {digits}")))
    }

    /// The posts of a thread or the changes of a ticket, in the server's order (receipt, then row).
    ///
    /// # Errors
    /// When the repository cannot be read, or something in it cannot.
    pub fn entries(&self, place: &Spot) -> Result<Vec<Entry>, Trouble> {
        // SQLite's numbers are signed.
        let arrivals = self.file.arrivals(0, i64::MAX.unsigned_abs()).map_err(|e| self.at(&e))?;
        if let Some(unreadable) = arrivals.unreadable.first() {
            return Err(Trouble::at(&unreadable.hash, &unreadable.why));
        }
        let receipts = Receipts::open(self.file.path())?;
        let here = arrivals.read.into_iter().filter(|arrival| match (&arrival.place, place) {
            (Place::Thread { root, .. }, Spot::Thread(hash)) => root == hash,
            (Place::Ticket { id }, Spot::Ticket(ticket)) => id == ticket,
            (Place::Thread { .. }, Spot::Ticket(_)) | (Place::Ticket { .. }, Spot::Thread(_)) => false,
        });
        here.map(|arrival| {
            let (from, at) = receipts.of(&arrival.hash)?;
            let kind = kind(&arrival.text, from == self.node_user);
            Ok(Entry { kind, hash: arrival.hash, from, text: arrival.text, at })
        })
        .collect()
    }

    /// Hash and sender of every post and ticket change, in the order they came.
    ///
    /// # Errors
    /// When the repository cannot be read.
    pub fn received(&self) -> Result<Vec<(String, String)>, Trouble> {
        let arrivals = self.file.arrivals(0, i64::MAX.unsigned_abs()).map_err(|e| self.at(&e))?;
        let receipts = Receipts::open(self.file.path())?;
        arrivals.read.into_iter().map(|it| Ok((it.hash.clone(), receipts.of(&it.hash)?.0))).collect()
    }

    fn at(&self, cause: impl std::fmt::Display) -> Trouble {
        Trouble::at(self.file.path().display(), cause)
    }
}

/// Where a run is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Spot {
    /// In the thread whose first post has this full hash.
    Thread(String),
    /// In changes of the ticket with this id.
    Ticket(String),
}

fn kind(text: &str, from_node: bool) -> String {
    match message::find(text) {
        Some(message) => message.kind,
        None if from_node && kept(text, "stdout").or_else(|| kept(text, "stderr")).is_some() => String::from("log"),
        None => String::from("text"),
    }
}

/// The end of one stream as a kept-log reply holds it: the lines of the fence with this word.
///
/// The fence is longer than any run of backticks inside (decisions C-59), so its first equal line closes it.
#[must_use]
pub fn kept(text: &str, stream: &str) -> Option<String> {
    let mut lines = text.lines().map(|line| line.strip_suffix('\r').unwrap_or(line));
    let fence = lines.find_map(|line| {
        let ticks = line.strip_suffix(stream)?.trim_end();
        (ticks.len() >= 3 && ticks.bytes().all(|b| b == b'`')).then_some(ticks)
    })?;
    let inside: Vec<&str> = lines.take_while(|line| *line != fence).collect();
    Some(inside.iter().flat_map(|line| [line, "\n"]).collect())
}

/// Who sent what, and when.
struct Receipts(Connection);

impl Receipts {
    fn open(file: &Path) -> Result<Self, Trouble> {
        let open = || {
            let connection = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_ONLY)?;
            connection.busy_timeout(BUSY_WAIT)?;
            Ok::<_, rusqlite::Error>(connection)
        };
        open().map(Self).map_err(|e| Trouble::at(file.display(), e))
    }

    fn of(&self, hash: &str) -> Result<(String, String), Trouble> {
        let row = self.0.query_row(
            "SELECT coalesce(u.login, ''), strftime('%Y-%m-%dT%H:%M:%SZ', r.mtime) \
             FROM blob b JOIN rcvfrom r USING(rcvid) LEFT JOIN user u ON u.uid = r.uid WHERE b.uuid = ?1",
            [hash],
            |row| Ok((row.get(0)?, row.get(1)?)),
        );
        let row = row.optional().map_err(|e| Trouble::at(format!("the receipt of {hash}"), e))?;
        row.ok_or_else(|| Trouble::stopped(format!("the server has no receipt of {hash}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_kept_stream_is_read_out_of_its_fence_whole() {
        let text = "Run ab: exit 0\n\n````stdout\nuid=1000\n```\nlast\n````\n\n```stderr\nbad\n```\n";
        assert_eq!(kept(text, "stdout").as_deref(), Some("uid=1000\n```\nlast\n"));
        assert_eq!(kept(text, "stderr").as_deref(), Some("bad\n"));
        assert_eq!(kept("no fence here, stdout", "stdout"), None);
    }

    #[test]
    fn a_log_is_the_nodes_alone() {
        let log = "Run ab: exit 0\n\n```stdout\nx\n```";
        assert_eq!(kind(log, true), "log");
        assert_eq!(kind(log, false), "text");
        assert_eq!(
            kind("```json\n{\"ocx\": 2, \"re\": \"ab\", \"ended\": {\"outcome\": \"exited\"}}\n```", true),
            "ended"
        );
    }
}

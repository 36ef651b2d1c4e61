//! Reading a clone's file with SQLite alone, read-only, in short reads.
//!
//! Row and receipt numbers here are this clone's own: they say what is new in it, never who sent it nor in what order
//! the server received it.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsStr;
use std::fmt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rusqlite::{Connection, ErrorCode, OpenFlags, OptionalExtension as _};

use super::blob::{CHAIN_MAX, checked, signed, unsigned};
use super::cards::{self, Kind, NotRead};
use super::program::Program;

/// Longest wait for a writer that is committing.
pub const BUSY_WAIT: Duration = Duration::from_secs(10);
/// Longest wait for `fossil info`, which mends what a killed writer left.
pub const MEND_WAIT: Duration = Duration::from_secs(60);

/// Why a clone was not read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum StoreError {
    /// SQLite's own words.
    Sqlite {
        /// The clone.
        file: PathBuf,
        /// The cause.
        why: String,
    },
    /// An artifact in it is damaged, or larger than is read.
    Artifact {
        /// Its hash or row.
        name: String,
        /// What is wrong.
        why: String,
    },
}

impl fmt::Display for StoreError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite { file, why } => write!(f, "clone {}: {why}", file.display()),
            Self::Artifact { name, why } => write!(f, "artifact {name}: {why}"),
        }
    }
}

impl std::error::Error for StoreError {}

/// A clone's file. Each read opens it anew, so that this may be shared, and holds no lock between reads.
#[derive(Debug, Clone)]
pub struct CloneFile {
    file: PathBuf,
    program: Program,
}

/// Where a message stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Place {
    /// A forum thread.
    Thread {
        /// Hash of the thread's first post; of this post itself when it is the first.
        root: String,
        /// Hash of the post it answers (perhaps an edited version), from its I card.
        answers: Option<String>,
    },
    /// A ticket.
    Ticket {
        /// The ticket's id, 40 digits.
        id: String,
    },
}

/// A forum post or ticket change that came into the clone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Its full hash.
    pub hash: String,
    /// The clone's own receipt number.
    pub rcvid: u64,
    /// The clone's own row.
    pub rid: u64,
    /// Where it stands.
    pub place: Place,
    /// The title of a thread's first post, or of a ticket in a change that sets it.
    pub title: Option<String>,
    /// The whole text of the post, or the remark of the ticket change (empty when it has none).
    pub text: String,
    /// Its U card: what it says of its author. Never a proof of anything.
    pub author: String,
    /// The version it edits, when it is an edit.
    pub edits: Option<String>,
}

/// What came into the clone in a range of receipts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Arrivals {
    /// Posts and ticket changes, by (rcvid, rid).
    pub read: Vec<Arrival>,
    /// Artifacts that Fossil lists as posts or ticket changes and that cannot be read.
    pub unreadable: Vec<Unreadable>,
}

/// An artifact that cannot be read; the log should name it once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unreadable {
    /// Its full hash.
    pub hash: String,
    /// What is wrong.
    pub why: String,
}

impl CloneFile {
    /// The clone at `file`; nothing is opened. `program` mends what a killed writer left.
    pub fn new(file: &Path, program: &Program) -> Self {
        Self { file: file.to_owned(), program: program.clone() }
    }

    /// As `new`, once it is seen to be a repository.
    ///
    /// # Errors
    /// When it cannot be read or holds no server-code.
    pub fn open(file: &Path, program: &Program) -> Result<Self, StoreError> {
        let clone = Self::new(file, program);
        clone.server_code()?;
        Ok(clone)
    }

    pub(super) fn program(&self) -> &Program {
        &self.program
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.file
    }

    /// 40 lower-case hex digits that are this clone's own.
    ///
    /// # Errors
    /// When the file cannot be read or the code is none.
    pub fn server_code(&self) -> Result<String, StoreError> {
        self.code("server-code")
    }

    /// 40 lower-case hex digits that all clones of the project share.
    ///
    /// # Errors
    /// When the file cannot be read or the code is none.
    pub fn project_code(&self) -> Result<String, StoreError> {
        self.code("project-code")
    }

    /// The highest receipt number of this clone: after a pull that counts, its completion number.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn last_received(&self) -> Result<u64, StoreError> {
        self.read(|db| {
            db.query_row("SELECT coalesce(max(rcvid), 0) FROM rcvfrom", [], |row| unsigned(row, 0)).map_err(Into::into)
        })
    }

    /// Posts and ticket changes with a receipt of this clone above `after` and not above `up_to`.
    ///
    /// Read only up to a number taken after a pull that counts: a pull commits round by round.
    ///
    /// # Errors
    /// When the file cannot be read. A damaged artifact is no error, but in `unreadable`.
    pub fn arrivals(&self, after: u64, up_to: u64) -> Result<Arrivals, StoreError> {
        self.read(|db| {
            let forum = has_table(db, "forumpost")?;
            // `event` has a row for each post and ticket change whatever the server's ticket schema; `forumpost` is
            // asked as well, as a title lacking must not hide a post.
            let listed = if forum {
                "EXISTS (SELECT 1 FROM event e WHERE e.objid = b.rid AND e.type IN ('f', 't'))
                 OR EXISTS (SELECT 1 FROM forumpost f WHERE f.fpid = b.rid)"
            } else {
                "EXISTS (SELECT 1 FROM event e WHERE e.objid = b.rid AND e.type IN ('f', 't'))"
            };
            let sql = format!(
                "SELECT b.rid, b.rcvid, b.uuid FROM blob b
                  WHERE b.rcvid > ?1 AND b.rcvid <= ?2 AND b.size >= 0 AND ({listed}) ORDER BY b.rcvid, b.rid"
            );
            let mut statement = db.prepare(&sql)?;
            let rows = statement.query_map([signed(after), signed(up_to)], |row| {
                Ok((unsigned(row, 0)?, unsigned(row, 1)?, row.get::<_, String>(2)?))
            })?;
            let mut arrivals = Arrivals::default();
            for row in rows {
                let (rid, rcvid, hash) = row?;
                match arrival(db, rid, rcvid, &hash)? {
                    Ok(Some(arrival)) => arrivals.read.push(arrival),
                    Ok(None) => {}
                    Err(why) => arrivals.unreadable.push(Unreadable { hash, why }),
                }
            }
            Ok(arrivals)
        })
    }

    /// One post or ticket change by its full hash; `None` when it has not come, is something else or is damaged
    /// (which `artifact` tells apart).
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn message(&self, hash: &str) -> Result<Option<Arrival>, StoreError> {
        self.read(|db| {
            let found = db
                .query_row("SELECT rid, rcvid FROM blob WHERE uuid = ?1 AND size >= 0", [hash], |row| {
                    Ok((unsigned(row, 0)?, unsigned(row, 1)?))
                })
                .optional()?;
            let Some((rid, rcvid)) = found else { return Ok(None) };
            Ok(arrival(db, rid, rcvid, hash)?.ok().flatten())
        })
    }

    /// The bytes of the artifact named by its full hash, checked against it; `None` when it has not come.
    ///
    /// # Errors
    /// When the file cannot be read or the artifact is damaged.
    pub fn artifact(&self, hash: &str) -> Result<Option<Vec<u8>>, StoreError> {
        self.read(|db| {
            let rid = db
                .query_row("SELECT rid FROM blob WHERE uuid = ?1 AND size >= 0", [hash], |row| unsigned(row, 0))
                .optional()?;
            match rid {
                None => Ok(None),
                Some(rid) => checked(db, rid, hash)?
                    .map(Some)
                    .map_err(|why| Failure::Store(StoreError::Artifact { name: hash.to_owned(), why })),
            }
        })
    }

    /// The one artifact here whose hash begins with `prefix` (4 or more digits); `None` when there is none or several.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn find_prefix(&self, prefix: &str) -> Result<Option<String>, StoreError> {
        let hex = prefix.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if !hex || !(4..=64).contains(&prefix.len()) {
            return Ok(None);
        }
        self.read(|db| {
            let mut statement =
                db.prepare("SELECT uuid FROM blob WHERE uuid >= ?1 AND uuid < ?1 || 'g' AND size >= 0 LIMIT 2")?;
            let found: Vec<String> = statement.query_map([prefix], |row| row.get(0))?.collect::<Result<_, _>>()?;
            Ok(match found.as_slice() {
                [one] => Some(one.clone()),
                _ => None,
            })
        })
    }

    /// Hashes of every artifact that has come.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn hashes(&self) -> Result<Vec<String>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare("SELECT uuid FROM blob WHERE size >= 0 ORDER BY rid")?;
            Ok(statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
    }

    /// Hashes of artifacts that were made here and did not come from a server, `most` of them, and how many there are.
    /// Whether a server has them by now, no clone knows.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn made_here(&self, most: usize) -> Result<(Vec<String>, u64), StoreError> {
        self.read(|db| {
            // What comes over the network has its sender's address in its receipt (tried with 2.21 and 2.26).
            let here = "FROM blob b LEFT JOIN rcvfrom r USING (rcvid) WHERE r.ipaddr IS NULL AND b.size >= 0";
            let count = db.query_row(&format!("SELECT count(*) {here}"), [], |row| unsigned(row, 0))?;
            let mut statement = db.prepare(&format!("SELECT b.uuid {here} ORDER BY b.rid LIMIT ?1"))?;
            let found = statement.query_map([i64::try_from(most).unwrap_or(i64::MAX)], |row| row.get(0))?;
            Ok((found.collect::<Result<_, _>>()?, count))
        })
    }

    /// Artifacts that others name, that have not come and are not private.
    pub(super) fn missing(&self) -> Result<BTreeSet<String>, StoreError> {
        self.read(|db| {
            let mut statement = db.prepare(
                "SELECT b.uuid FROM phantom p JOIN blob b USING (rid) WHERE p.rid NOT IN (SELECT rid FROM private)",
            )?;
            Ok(statement.query_map([], |row| row.get(0))?.collect::<Result<_, _>>()?)
        })
    }

    pub(super) fn remembers_password(&self) -> Result<bool, StoreError> {
        Ok(self.config("last-sync-pw")?.is_some_and(|text| !text.is_empty()))
    }

    fn code(&self, name: &str) -> Result<String, StoreError> {
        let why = || StoreError::Sqlite { file: self.file.clone(), why: format!("its {name} is not 40 hex digits") };
        let code = self.config(name)?.ok_or_else(why)?;
        let hex = code.len() == 40 && code.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        if hex { Ok(code) } else { Err(why()) }
    }

    fn config(&self, name: &str) -> Result<Option<String>, StoreError> {
        self.read(|db| {
            Ok(db
                .query_row("SELECT CAST(value AS TEXT) FROM config WHERE name = ?1", [name], |row| row.get(0))
                .optional()?)
        })
    }

    /// One read in one transaction; when a writer killed half-way left its journal, `fossil` mends it and it is read
    /// once more: a read-only opener may not roll it back.
    fn read<T>(&self, read: impl Fn(&Connection) -> Result<T, Failure>) -> Result<T, StoreError> {
        let once = || {
            let flags = OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX;
            let mut db = Connection::open_with_flags(&self.file, flags)?;
            db.busy_timeout(BUSY_WAIT)?;
            let transaction = db.transaction()?;
            read(&transaction)
        };
        let result = match once() {
            Err(Failure::Sqlite(error)) if wants_mending(&error) && self.file.is_file() => {
                let args = [OsStr::new("info"), OsStr::new("-R"), self.file.as_os_str()];
                if let Err(error) = self.program.run(&args, MEND_WAIT) {
                    return Err(StoreError::Sqlite { file: self.file.clone(), why: error.to_string() });
                }
                once()
            }
            other => other,
        };
        result.map_err(|failure| match failure {
            Failure::Sqlite(error) => StoreError::Sqlite { file: self.file.clone(), why: error.to_string() },
            Failure::Store(error) => error,
        })
    }
}

enum Failure {
    Sqlite(rusqlite::Error),
    Store(StoreError),
}

impl From<rusqlite::Error> for Failure {
    fn from(error: rusqlite::Error) -> Self {
        Self::Sqlite(error)
    }
}

fn wants_mending(error: &rusqlite::Error) -> bool {
    matches!(error.sqlite_error_code(), Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen))
}

fn has_table(db: &Connection, name: &str) -> Result<bool, rusqlite::Error> {
    db.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = ?1)", [name], |row| row.get(0))
}

/// The message at `rid`; `Ok(None)` for what Fossil lists beside messages, `Err` with why it cannot be read.
fn arrival(
    db: &Connection,
    rid: u64,
    rcvid: u64,
    hash: &str,
) -> Result<Result<Option<Arrival>, String>, rusqlite::Error> {
    let bytes = match checked(db, rid, hash)? {
        Ok(bytes) => bytes,
        Err(why) => return Ok(Err(why)),
    };
    let told = match cards::read(&bytes) {
        Ok(told) => told,
        Err(NotRead::Attachment) => return Ok(Ok(None)),
        Err(NotRead::Broken(why)) => return Ok(Err(why.to_owned())),
    };
    let place = match told.kind {
        Kind::Forum { root, answers } => Place::Thread {
            // An edit of a first post names no G card: its thread is that of the version it edits.
            root: match (root, &told.edits) {
                (Some(root), _) => root,
                (None, None) => hash.to_owned(),
                (None, Some(edited)) => match first_version(db, edited)? {
                    Ok(first) => first,
                    Err(why) => return Ok(Err(why)),
                },
            },
            answers,
        },
        Kind::Ticket { id } => Place::Ticket { id },
    };
    let (title, text, author, edits) = (told.title, told.text, told.author, told.edits);
    Ok(Ok(Some(Arrival { hash: hash.to_owned(), rcvid, rid, place, title, text, author, edits })))
}

/// Follows P cards to the version that edits none.
fn first_version(db: &Connection, edited: &str) -> Result<Result<String, String>, rusqlite::Error> {
    let mut hash = edited.to_owned();
    let mut seen = HashSet::new();
    while seen.insert(hash.clone()) && seen.len() <= CHAIN_MAX {
        let rid = db
            .query_row("SELECT rid FROM blob WHERE uuid = ?1 AND size >= 0", [&hash], |row| unsigned(row, 0))
            .optional()?;
        let Some(rid) = rid else { return Ok(Err(format!("edits {hash}, which has not come"))) };
        let told = match checked(db, rid, &hash)? {
            Ok(bytes) => cards::read(&bytes).map_err(|why| why.why().to_owned()),
            Err(why) => Err(why),
        };
        match told {
            Err(why) => return Ok(Err(format!("edits {hash}: {why}"))),
            Ok(told) => match (told.kind, told.edits) {
                (Kind::Forum { root: Some(root), .. }, _) => return Ok(Ok(root)),
                (_, Some(before)) => hash = before,
                (_, None) => return Ok(Ok(hash)),
            },
        }
    }
    Ok(Err("edits itself".to_owned()))
}

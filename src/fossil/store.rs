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
use sha1::Digest as _;

use super::cards::{self, Kind};
use super::delta;
use super::program::Program;

/// Longest wait for a writer that is committing.
pub const BUSY_WAIT: Duration = Duration::from_secs(10);
/// Largest artifact read, in bytes.
pub const ARTIFACT_MAX: usize = 64 << 20;
/// Longest chain of deltas followed.
pub const CHAIN_MAX: usize = 10_000;
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
    /// A thread's title, when it carries one.
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
                    Ok(arrival) => arrivals.read.push(arrival),
                    Err(why) => arrivals.unreadable.push(Unreadable { hash, why }),
                }
            }
            Ok(arrivals)
        })
    }

    /// One post or ticket change by its full hash; `None` when it has not come or is something else.
    ///
    /// # Errors
    /// When the file cannot be read or the artifact is damaged.
    pub fn message(&self, hash: &str) -> Result<Option<Arrival>, StoreError> {
        self.read(|db| {
            let found = db
                .query_row("SELECT rid, rcvid FROM blob WHERE uuid = ?1 AND size >= 0", [hash], |row| {
                    Ok((unsigned(row, 0)?, unsigned(row, 1)?))
                })
                .optional()?;
            let Some((rid, rcvid)) = found else { return Ok(None) };
            Ok(arrival(db, rid, rcvid, hash)?.ok())
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

fn unsigned(row: &rusqlite::Row<'_>, at: usize) -> Result<u64, rusqlite::Error> {
    let value: i64 = row.get(at)?;
    u64::try_from(value).map_err(|_negative| rusqlite::Error::IntegralValueOutOfRange(at, value))
}

fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn has_table(db: &Connection, name: &str) -> Result<bool, rusqlite::Error> {
    db.query_row("SELECT EXISTS (SELECT 1 FROM sqlite_master WHERE name = ?1)", [name], |row| row.get(0))
}

fn arrival(db: &Connection, rid: u64, rcvid: u64, hash: &str) -> Result<Result<Arrival, String>, rusqlite::Error> {
    let bytes = match checked(db, rid, hash)? {
        Ok(bytes) => bytes,
        Err(why) => return Ok(Err(why)),
    };
    let told = match cards::read(&bytes) {
        Ok(told) => told,
        Err(why) => return Ok(Err(why.to_owned())),
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
    Ok(Ok(Arrival { hash: hash.to_owned(), rcvid, rid, place, title, text, author, edits }))
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
            Ok(bytes) => cards::read(&bytes).map_err(str::to_owned),
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

/// The artifact at `rid`, whose bytes have the hash it is named by.
fn checked(db: &Connection, rid: u64, hash: &str) -> Result<Result<Vec<u8>, String>, rusqlite::Error> {
    let bytes = match content(db, rid)? {
        Ok(bytes) => bytes,
        Err(why) => return Ok(Err(why)),
    };
    let is = match hash.len() {
        64 => hex(&sha3::Sha3_256::digest(&bytes)),
        40 => hex(&sha1::Sha1::digest(&bytes)),
        _ => return Ok(Err("its name is no hash".to_owned())),
    };
    Ok(if is == hash { Ok(bytes) } else { Err(format!("its bytes have another hash, {is}")) })
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Inflates the artifact at `rid`, following its deltas.
fn content(db: &Connection, rid: u64) -> Result<Result<Vec<u8>, String>, rusqlite::Error> {
    let mut source = db.prepare_cached("SELECT srcid FROM delta WHERE rid = ?1")?;
    let mut chain = vec![rid];
    let mut seen = HashSet::from([rid]);
    let mut at = rid;
    while let Some(from) = source.query_row([signed(at)], |row| unsigned(row, 0)).optional()? {
        if !seen.insert(from) {
            return Ok(Err("a delta of itself".to_owned()));
        }
        if chain.len() >= CHAIN_MAX {
            return Ok(Err(format!("a chain of more than {CHAIN_MAX} deltas")));
        }
        chain.push(from);
        at = from;
    }
    let mut bytes: Option<Vec<u8>> = None;
    for rid in chain.into_iter().rev() {
        let piece = match inflated(db, rid)? {
            Ok(piece) => piece,
            Err(why) => return Ok(Err(format!("row {rid}: {why}"))),
        };
        bytes = Some(match bytes {
            None => piece,
            Some(source) => match delta::apply(&source, &piece, ARTIFACT_MAX) {
                Ok(whole) => whole,
                Err(why) => return Ok(Err(format!("row {rid}: its delta {}", why.0))),
            },
        });
    }
    Ok(bytes.ok_or_else(|| "nothing to read".to_owned()))
}

/// One row's bytes: a 4-byte length, then a zlib stream of just that length.
fn inflated(db: &Connection, rid: u64) -> Result<Result<Vec<u8>, String>, rusqlite::Error> {
    let mut statement = db.prepare_cached("SELECT length(content), size FROM blob WHERE rid = ?1")?;
    let sizes: Option<(Option<i64>, i64)> =
        statement.query_row([signed(rid)], |row| Ok((row.get(0)?, row.get(1)?))).optional()?;
    let Some((Some(stored), _)) = sizes.filter(|(_, size)| *size >= 0) else {
        return Ok(Err("it has not come".to_owned()));
    };
    // Compressed bytes are never much more than plain ones.
    if usize::try_from(stored).map_or(true, |stored| stored > ARTIFACT_MAX + 4096) {
        return Ok(Err(format!("larger than {ARTIFACT_MAX} bytes")));
    }
    let mut statement = db.prepare_cached("SELECT content FROM blob WHERE rid = ?1")?;
    let content: Vec<u8> = statement.query_row([signed(rid)], |row| row.get(0))?;
    let Some((length, stream)) = content.split_first_chunk::<4>() else {
        return Ok(Err("stored without its length".to_owned()));
    };
    let length = u32::from_be_bytes(*length) as usize;
    if length > ARTIFACT_MAX {
        return Ok(Err(format!("larger than {ARTIFACT_MAX} bytes")));
    }
    Ok(match miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(stream, length) {
        Ok(bytes) if bytes.len() == length => Ok(bytes),
        Ok(_) => Err("stored with another length".to_owned()),
        Err(error) => Err(format!("cannot be inflated: {error}")),
    })
}

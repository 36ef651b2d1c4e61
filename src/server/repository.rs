//! Making a server's repository: users with letters, passwords that reach no command line, settings OCX needs.

use std::ffi::OsStr;
use std::fmt;
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags, OptionalExtension as _};
use sha1::Digest as _;

use crate::fossil::Program;
use crate::fossil::program::ProgramError;

/// Longest wait for `fossil init`.
pub const INIT_WAIT: Duration = Duration::from_secs(60);
const BUSY_WAIT: Duration = Duration::from_secs(15);

/// A user to make.
#[derive(Clone)]
pub struct ServerUser<'a> {
    /// The login.
    pub login: &'a str,
    /// The password, stored as Fossil stores it.
    pub password: &'a str,
    /// Capability letters.
    pub letters: &'a str,
}

impl fmt::Debug for ServerUser<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServerUser").field("login", &self.login).field("letters", &self.letters).finish_non_exhaustive()
    }
}

/// A setting: name and value, as table `config` holds them.
pub type Settings<'a> = &'a [(&'a str, &'a str)];

/// What a trial's server has: posts answered with their whole hash, a chat bell for every change, polls that end each
/// minute so that approvals are seen, and no backoffice, whose process would outlive the server by up to a minute.
pub const SETTINGS: Settings<'static> = &[
    ("hash-digits", "64"),
    ("chat-timeline-user", "ocx-bell"),
    ("chat-poll-timeout", "60"),
    ("backoffice-disable", "1"),
    ("backoffice-nodelay", "1"),
];

/// Why no repository was made or changed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RepositoryError {
    /// `fossil init` gave no result.
    Program(ProgramError),
    /// `fossil init` or SQLite refused; their own words.
    Failed(String),
}

impl fmt::Display for RepositoryError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Program(error) => write!(f, "server repository: {error}"),
            Self::Failed(why) => write!(f, "server repository: {why}"),
        }
    }
}

impl std::error::Error for RepositoryError {}

impl From<rusqlite::Error> for RepositoryError {
    fn from(error: rusqlite::Error) -> Self {
        Self::Failed(error.to_string())
    }
}

/// Makes the repository `file` with the setup user `setup` (its letters are ignored: it holds `s`), `users`, `nobody`
/// and `anonymous` without letters, and [`SETTINGS`]. Gives the project-code.
///
/// # Errors
/// When the file exists, or see [`RepositoryError`].
pub fn make(
    program: &Program,
    file: &Path,
    setup: &ServerUser<'_>,
    users: &[ServerUser<'_>],
) -> Result<String, RepositoryError> {
    let args = ["init", "--admin-user", setup.login].map(OsStr::new);
    let mut args = args.to_vec();
    args.push(file.as_os_str());
    let ran = program.run(&args, INIT_WAIT).map_err(RepositoryError::Program)?;
    if !ran.status.success() {
        return Err(RepositoryError::Failed(format!("fossil init: {}", ran.stderr.trim())));
    }
    set_user(file, &ServerUser { letters: "s", ..setup.clone() })?;
    for login in ["nobody", "anonymous"] {
        // Every signed-in user holds what these hold.
        set_letters(file, login, "")?;
    }
    for user in users {
        set_user(file, user)?;
    }
    set(file, SETTINGS)?;
    Ok(project_code(&open(file)?)?)
}

/// A password as table `user` holds it: SHA1 of `PROJECT-CODE/LOGIN/PASSWORD` in hex.
pub(super) fn stored_password(project: &str, login: &str, password: &str) -> String {
    let digest = sha1::Sha1::digest(format!("{project}/{login}/{password}").as_bytes());
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub(super) fn project_code(db: &Connection) -> Result<String, rusqlite::Error> {
    db.query_row("SELECT value FROM config WHERE name = 'project-code'", [], |row| row.get(0))
}

/// Whether `password` is the one `login` signs in with; `None` when there is no such user.
pub(super) fn is_password(db: &Connection, login: &str, password: &str) -> Result<Option<bool>, rusqlite::Error> {
    let stored: Option<Option<String>> =
        db.query_row("SELECT CAST(pw AS TEXT) FROM user WHERE login = ?1", [login], |row| row.get(0)).optional()?;
    let project = project_code(db)?;
    Ok(stored.map(|stored| stored.is_some_and(|stored| stored == stored_password(&project, login, password))))
}

/// Makes `user`, or gives it this password and these letters. Its session, if any, goes on.
///
/// # Errors
/// See [`RepositoryError`].
pub fn set_user(file: &Path, user: &ServerUser<'_>) -> Result<(), RepositoryError> {
    let mut db = open(file)?;
    let transaction = db.transaction_with_behavior(rusqlite::TransactionBehavior::Immediate)?;
    let project = project_code(&transaction)?;
    let secret = stored_password(&project, user.login, user.password);
    let changed = transaction
        .execute("UPDATE user SET pw = ?2, cap = ?3 WHERE login = ?1", [user.login, &secret, user.letters])?;
    if changed == 0 {
        transaction.execute(
            "INSERT INTO user (login, pw, cap, info, mtime) VALUES (?1, ?2, ?3, ?1, strftime('%s', 'now'))",
            [user.login, &secret, user.letters],
        )?;
    }
    Ok(transaction.commit()?)
}

/// Gives `login` these letters, as `fossil user capabilities` does: they hold from its next request.
///
/// # Errors
/// When there is no such user, or see [`RepositoryError`].
pub fn set_letters(file: &Path, login: &str, letters: &str) -> Result<(), RepositoryError> {
    match open(file)?.execute("UPDATE user SET cap = ?2 WHERE login = ?1", [login, letters])? {
        0 => Err(RepositoryError::Failed(format!("there is no user {login}"))),
        _ => Ok(()),
    }
}

/// Ends the session of `login`, as an admin's save on the Users page does.
///
/// # Errors
/// See [`RepositoryError`].
pub fn end_session(file: &Path, login: &str) -> Result<(), RepositoryError> {
    open(file)?.execute("UPDATE user SET cookie = NULL, cexpire = 0 WHERE login = ?1", [login])?;
    Ok(())
}

/// Sets `settings`.
///
/// # Errors
/// See [`RepositoryError`].
pub fn set(file: &Path, settings: Settings<'_>) -> Result<(), RepositoryError> {
    let db = open(file)?;
    for (name, value) in settings {
        db.execute("REPLACE INTO config (name, value, mtime) VALUES (?1, ?2, strftime('%s', 'now'))", [name, value])?;
    }
    Ok(())
}

pub(super) fn open(file: &Path) -> Result<Connection, RepositoryError> {
    let db = Connection::open_with_flags(file, OpenFlags::SQLITE_OPEN_READ_WRITE | OpenFlags::SQLITE_OPEN_NO_MUTEX)?;
    db.busy_timeout(BUSY_WAIT)?;
    Ok(db)
}

//! Users of a server's repository and their letters after Fossil's inheritance.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::time::Duration;

use rusqlite::{Connection, OpenFlags};

use super::cgi::{Stop, UNAVAILABLE};

/// Longest wait for another writer.
pub(super) const BUSY_WAIT: Duration = Duration::from_secs(10);

/// Letters that `a` implies in Fossil (all but setup, private branches and unversioned files), `o` and `i` included.
const OF_ADMIN: &str = "bcdefghijklmnopqrtwz234567ACD";
/// One letter, and those it implies.
const IMPLIES: [(char, &str); 6] = [('i', "o"), ('w', "rnc"), ('6', "2345"), ('5', "234"), ('4', "23"), ('3', "2")];

/// A user's letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Letters(BTreeSet<char>);

impl Letters {
    pub(super) fn holds(&self, letter: char) -> bool {
        self.0.contains(&letter)
    }

    /// `a` or `s`.
    pub(super) fn admin(&self) -> bool {
        self.holds('a') || self.holds('s')
    }

    /// May be a clone's user: all of g, o, C, 4, w.
    pub(super) fn node(&self) -> bool {
        "goC4w".chars().all(|letter| self.holds(letter))
    }

    pub(super) fn text(&self) -> String {
        // Fossil's own order.
        let class = |c: &char| (!c.is_ascii_lowercase(), !c.is_ascii_digit(), *c);
        let mut letters: Vec<char> = self.0.iter().copied().collect();
        letters.sort_by_key(class);
        letters.into_iter().collect()
    }
}

/// All users' stored letters.
pub(super) struct Users(BTreeMap<String, String>);

impl Users {
    pub(super) fn read(db: &Connection) -> Result<Self, Stop> {
        let read = || {
            let mut statement =
                db.prepare("SELECT login, coalesce(CAST(cap AS TEXT), '') FROM user WHERE login IS NOT NULL")?;
            let users = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
            users.collect::<Result<_, rusqlite::Error>>()
        };
        read().map(Self).map_err(|error| busy(&error))
    }

    /// The letters of `login`, or `None` when there is no such user.
    pub(super) fn of(&self, login: &str) -> Option<Letters> {
        let stored = |login: &str| self.0.get(login).map_or("", String::as_str);
        self.0.get(login)?;
        let mut letters = BTreeSet::new();
        for own in [stored(login), stored("nobody"), stored("anonymous")] {
            for letter in own.chars() {
                letters.insert(letter);
                match letter {
                    // Within an inherited user's letters, `u` and `v` have no meaning of their own.
                    'u' => letters.extend(stored("reader").chars()),
                    'v' => letters.extend(stored("developer").chars()),
                    _ => {}
                }
            }
        }
        if letters.contains(&'s') || letters.contains(&'a') {
            letters.extend(OF_ADMIN.chars());
        }
        for (letter, implied) in IMPLIES {
            if letters.contains(&letter) {
                letters.extend(implied.chars());
            }
        }
        letters.retain(char::is_ascii_alphanumeric);
        Some(Letters(letters))
    }
}

/// Opens the repository read-only.
pub(super) fn open(repository: &Path) -> Result<Connection, Stop> {
    let open = || {
        let db = Connection::open_with_flags(
            repository,
            OpenFlags::SQLITE_OPEN_READ_ONLY | OpenFlags::SQLITE_OPEN_NO_MUTEX,
        )?;
        db.busy_timeout(BUSY_WAIT)?;
        // One snapshot for the whole answer, and one wait for a writer instead of one a name.
        db.execute_batch("BEGIN")?;
        Ok(db)
    };
    open().map_err(|error: rusqlite::Error| busy(&error))
}

pub(super) fn busy(error: &rusqlite::Error) -> Stop {
    Stop::new(UNAVAILABLE, format!("the repository could not be read: {error}; ask again"))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "tests")]
    use super::*;

    fn users(list: &[(&str, &str)]) -> Users {
        Users(list.iter().map(|(login, cap)| ((*login).to_owned(), (*cap).to_owned())).collect())
    }

    #[test]
    fn letters_are_inherited_as_fossil_does() {
        let users = users(&[
            ("nobody", "j"),
            ("anonymous", "h"),
            ("developer", "ei"),
            ("reader", "kptw"),
            ("bob", "3R"),
            ("dev", "v"),
            ("top", "s"),
            ("adm", "a"),
            ("lab", "goC4w"),
            ("mod", "goC5w"),
        ]);
        let text = |login: &str| users.of(login).unwrap().text();
        assert_eq!(text("bob"), "hj23R");
        assert_eq!(text("dev"), "ehijov");
        assert_eq!(text("lab"), "cghjnorw234C");
        assert!(users.of("lab").unwrap().node() && users.of("mod").unwrap().node());
        assert!(!users.of("bob").unwrap().node() && !users.of("bob").unwrap().admin());
        assert!(users.of("top").unwrap().admin() && users.of("adm").unwrap().admin());
        assert!(!users.of("top").unwrap().holds('R'), "R is given, never implied");
        assert!(users.of("top").unwrap().node());
        assert!(users.of("who").is_none());
    }
}

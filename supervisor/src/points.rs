//! Failpoints: the moments of each effect at which the crash suite stops a process, made from the tables of effects.
//!
//! A build without the feature `failpoints` holds none of this but the empty [`reach`]. A build with it looks into
//! `ROOT/state/points`, where a test has named one point: reaching it, the process claims the name and stops (SIGSTOP),
//! and what happens next is the test's. Nothing here kills.

/// Which program an effect is of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Program {
    /// `ocx node`.
    Node,
    /// `ocx-supervisor`.
    Supervisor,
}

/// A moment of an effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Moment {
    /// Nothing of it is done.
    Before,
    /// The new file's bytes are written.
    Written,
    /// They are on the disk.
    Synced,
    /// The name is changed.
    Renamed,
    /// The change of name is on the disk.
    Lasting,
    /// It is done, or handed over.
    After,
    /// The other process, or the server, has done it; nothing has come of that here.
    Answered,
}

/// What an effect is made of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Made {
    /// One act.
    Act,
    /// Something asked for, answered later.
    Ask,
    /// A post: the server may have it before anybody here knows.
    Sent,
    /// A file replaced, durably.
    Write,
    /// A file replaced, durable when the kernel likes.
    LateWrite,
    /// A line added to a file, durably.
    Append,
    /// A file removed, durably.
    Removal,
}

impl Moment {
    /// Its word in a point's name.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Before => "before",
            Self::Written => "written",
            Self::Synced => "synced",
            Self::Renamed => "renamed",
            Self::Lasting => "lasting",
            Self::After => "after",
            Self::Answered => "answered",
        }
    }
}

impl Made {
    /// The moments at which a crash leaves something different behind.
    #[must_use]
    pub const fn moments(self) -> &'static [Moment] {
        use Moment as M;
        match self {
            Self::Act => &[M::Before, M::After],
            Self::Ask => &[M::Before, M::After, M::Answered],
            Self::Sent => &[M::Before, M::Answered],
            Self::Write => &[M::Before, M::Written, M::Synced, M::Renamed, M::Lasting],
            Self::LateWrite => &[M::Before, M::Written, M::Renamed],
            Self::Append => &[M::Before, M::Written, M::Lasting],
            Self::Removal => &[M::Before, M::Renamed, M::Lasting],
        }
    }
}

/// A row of a table of effects.
pub trait Effect: Copy + 'static {
    /// The program that has them.
    const PROGRAM: Program;
    /// The table's word, for a point's name.
    const TABLE: &'static str;
    /// Every row.
    fn rows() -> &'static [Self];
    /// The row's word.
    fn name(self) -> &'static str;
    /// What it is made of.
    fn made(self) -> Made;
}

/// One failpoint.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Point {
    /// The program that reaches it.
    pub program: Program,
    /// The table.
    pub table: &'static str,
    /// The effect.
    pub effect: &'static str,
    /// The moment of it.
    pub moment: Moment,
}

impl Point {
    fn of<E: Effect>(effect: E, moment: Moment) -> Self {
        Self { program: E::PROGRAM, table: E::TABLE, effect: effect.name(), moment }
    }
}

impl std::fmt::Display for Point {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let program = match self.program {
            Program::Node => "node",
            Program::Supervisor => "supervisor",
        };
        write!(f, "{program} {}.{} {}", self.table, self.effect, self.moment.word())
    }
}

/// Every failpoint of a table, each with its row.
#[must_use]
pub fn of_table<E: Effect>() -> Vec<(E, Point)> {
    let points = |row: &E| {
        let row = *row;
        row.made().moments().iter().map(move |moment| (row, Point::of(row, *moment)))
    };
    E::rows().iter().flat_map(points).collect()
}

/// Carries out an effect that is one act.
#[inline]
pub fn carry<E: Effect, T>(effect: E, act: impl FnOnce() -> T) -> T {
    reach(effect, Moment::Before);
    let done = act();
    reach(effect, Moment::After);
    done
}

/// A moment of an effect is reached.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn reach<E: Effect>(_effect: E, _moment: Moment) {}

/// A file is made, or emptied to be written anew: nothing of it is on the disk.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn opened(_file: impl std::os::fd::AsFd) {}

/// A file's bytes are on the disk.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn synced(_file: impl std::os::fd::AsFd) {}

/// A folder's names are on the disk.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn names_synced(_folder: impl std::os::fd::AsFd) {}

/// Whether a test has taken this rule away, to see that it is missed.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
#[must_use]
pub const fn broken(_rule: &str) -> bool {
    false
}

/// A wait, which a test may have made shorter.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
#[must_use]
pub const fn wait(_name: &str, wait: std::time::Duration) -> std::time::Duration {
    wait
}

/// The id of this boot, which a test may have changed.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
#[must_use]
pub fn boot(id: String) -> String {
    id
}

/// Where `ROOT` is.
#[cfg(not(feature = "failpoints"))]
#[inline(always)]
pub fn begin(_root: &std::path::Path) {}

#[cfg(feature = "failpoints")]
mod armed;
#[cfg(feature = "failpoints")]
pub use armed::{begin, boot, broken, names_synced, opened, reach, synced, wait};

/// Makes a table of effects: the enum, its rows, their words and what each is made of, written once.
#[macro_export]
macro_rules! effects {
    ($(#[$about:meta])* $table:ident, $program:ident, $word:literal {
        $($(#[$note:meta])* $row:ident = $name:literal, $made:ident;)+
    }) => {
        $(#[$about])*
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        pub enum $table { $($(#[$note])* $row),+ }

        impl $crate::points::Effect for $table {
            const PROGRAM: $crate::points::Program = $crate::points::Program::$program;
            const TABLE: &'static str = $word;
            fn rows() -> &'static [Self] { &[$(Self::$row),+] }
            fn name(self) -> &'static str { match self { $(Self::$row => $name),+ } }
            fn made(self) -> $crate::points::Made {
                match self { $(Self::$row => $crate::points::Made::$made),+ }
            }
        }
    };
}

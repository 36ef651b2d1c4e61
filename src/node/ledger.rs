//! `ROOT/state/ledger`: runs settled so long ago that their own files are gone (decisions C-112), one JSON object a line,
//! appended, never cut. A run in it is settled whatever else is found of it.

use std::collections::HashSet;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Read as _, Seek as _, SeekFrom, Write as _};
use std::path::Path;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Serialize};
use supervisor::points::{self, Moment, reach};

use super::effects::Saved;
use super::files;
use super::journal::Entry;

/// The file's name in `ROOT/state`.
pub const NAME: &str = "ledger";
/// Longest line, in bytes: a note and what the server refused are cut to fit.
pub const LINE_BYTES_MAX: usize = 16 << 10;

/// What is kept of a run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line {
    /// Its hash.
    pub run: String,
    /// When `done` was written, RFC 3339.
    pub settled: String,
    /// How it ended, as its log said.
    pub ended: Option<Entry>,
    /// The hash of `ended` on the server, where it was known.
    pub report: Option<String>,
    /// Publications the server refused, each with why.
    #[serde(default)]
    pub failed: Vec<(String, String)>,
}

/// The file, and which runs it names.
#[derive(Debug)]
pub struct Ledger {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    file: File,
    /// How long the file is without a torn end.
    whole: u64,
    runs: HashSet<[u8; 32]>,
    damaged: usize,
}

impl Ledger {
    /// Opens and reads the file, making it if there is none. A line without its end was being written when the machine
    /// stopped: it is cut off, and its run's own files are still there.
    ///
    /// A whole line that is none of ours is passed over: the server has the `ended` of the run it named, and what was
    /// launched is in `care/launched`, so nothing runs again.
    ///
    /// # Errors
    /// As the calls fail.
    pub fn open(state: &Path) -> io::Result<Self> {
        let file = files::update(&state.join(NAME))?;
        let mut inner = Inner { file, whole: 0, runs: HashSet::new(), damaged: 0 };
        let mut reader = BufReader::new(inner.file.try_clone()?);
        let mut line = Vec::new();
        loop {
            line.clear();
            let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
            let read = (&mut reader).take(limit).read_until(b'\n', &mut line)?;
            let ends = line.last() == Some(&b'\n');
            if read == 0 || (!ends && read < LINE_BYTES_MAX) {
                break;
            }
            inner.whole += u64::try_from(read).unwrap_or(0);
            match self::line(&line).and_then(|it| key(&it.run)) {
                Some(run) => drop(inner.runs.insert(run)),
                None => inner.damaged += 1,
            }
        }
        if inner.file.metadata()?.len() != inner.whole {
            inner.file.set_len(inner.whole)?;
            inner.file.sync_all()?;
            points::synced(&inner.file);
        }
        // The files of what is in it go: its own name must outlast them.
        let folder = File::open(state)?;
        folder.sync_all()?;
        points::names_synced(&folder);
        Ok(Self { inner: Mutex::new(inner) })
    }

    /// Whether a run is in it.
    #[must_use]
    pub fn has(&self, run: &str) -> bool {
        key(run).is_some_and(|run| self.lock().runs.contains(&run))
    }

    /// How many whole lines could not be read.
    #[must_use]
    pub fn damaged(&self) -> usize {
        self.lock().damaged
    }

    /// Adds runs, durably; once this is done each is settled by it alone.
    ///
    /// # Errors
    /// As `write(2)` and `fsync(2)` fail; none of them is in it then, and their own files must stay.
    pub fn add(&self, lines: &[Line]) -> io::Result<()> {
        let mut text = Vec::new();
        for line in lines {
            text.extend(written(line)?);
        }
        let mut inner = self.lock();
        reach(Saved::Folded, Moment::Before);
        // What a failed write left is written over, or the next line would stand behind half a line.
        let whole = inner.whole;
        inner.file.seek(SeekFrom::Start(whole))?;
        inner.file.write_all(&text)?;
        reach(Saved::Folded, Moment::Written);
        inner.file.sync_all()?;
        points::synced(&inner.file);
        reach(Saved::Folded, Moment::Lasting);
        inner.whole += u64::try_from(text.len()).unwrap_or(0);
        inner.runs.extend(lines.iter().filter_map(|line| key(&line.run)));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A line of the file, if it is one.
#[must_use]
pub fn line(bytes: &[u8]) -> Option<Line> {
    serde_json::from_slice(bytes.strip_suffix(b"\n")?).ok()
}

/// The bytes of a line; without what makes it too long.
fn written(line: &Line) -> io::Result<Vec<u8>> {
    let mut bytes = serde_json::to_vec(line)?;
    if bytes.len() >= LINE_BYTES_MAX {
        bytes = serde_json::to_vec(&Line { ended: None, failed: Vec::new(), ..line.clone() })?;
    }
    bytes.push(b'\n');
    Ok(bytes)
}

/// A hash as bytes, a short one with zeros behind it: a host may have settled a million runs.
fn key(run: &str) -> Option<[u8; 32]> {
    if !matches!(run.len(), 40 | 64) {
        return None;
    }
    let mut key = [0; 32];
    for (byte, two) in key.iter_mut().zip(run.as_bytes().chunks(2)) {
        *byte = u8::from_str_radix(std::str::from_utf8(two).ok()?, 16).ok()?;
    }
    Some(key)
}

#[cfg(test)]
#[expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test that cannot go on fails")]
mod tests {
    use super::*;

    fn folder(name: &str) -> std::path::PathBuf {
        let folder = std::env::temp_dir().join(format!("ocx-ledger-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        folder
    }

    fn of(digit: &str) -> Line {
        let ended = Entry::Ended { outcome: "exited".into(), exit: Some(3), note: None };
        Line {
            run: digit.repeat(64),
            settled: "2026-01-01T00:00:00Z".into(),
            ended: Some(ended),
            report: Some("b".repeat(64)),
            failed: vec![("logs".into(), "the thread is closed".into())],
        }
    }

    #[test]
    fn c_112_what_was_added_is_known_after_the_file_is_opened_again() {
        let folder = folder("again");
        let ledger = Ledger::open(&folder).unwrap();
        ledger.add(&[of("a"), of("c")]).unwrap();
        ledger.add(&[of("d")]).unwrap();
        let ledger = Ledger::open(&folder).unwrap();
        let has = |digit: &str| ledger.has(&digit.repeat(64));
        assert_eq!([has("a"), has("c"), has("d"), has("e")], [true, true, true, false]);
        let text = std::fs::read(folder.join(NAME)).unwrap();
        let lines: Vec<Line> = text.split_inclusive(|b| *b == b'\n').filter_map(line).collect();
        assert_eq!(lines, [of("a"), of("c"), of("d")]);
        std::fs::remove_dir_all(folder).unwrap();
    }

    /// P6: whatever the end of the file has become, the lines before it stand, and the next is whole.
    #[test]
    fn p6_every_torn_end_is_cut_off_and_a_damaged_line_costs_only_itself() {
        let folder = folder("torn");
        let at = folder.join(NAME);
        Ledger::open(&folder).unwrap().add(&[of("a")]).unwrap();
        let first = std::fs::read(&at).unwrap().len();
        Ledger::open(&folder).unwrap().add(&[of("b")]).unwrap();
        let whole = std::fs::read(&at).unwrap();
        for cut in 0..whole.len() {
            std::fs::write(&at, &whole[..cut]).unwrap();
            let ledger = Ledger::open(&folder).unwrap();
            assert_eq!(ledger.has(&"a".repeat(64)), cut >= first, "cut at {cut}");
            assert!(!ledger.has(&"b".repeat(64)), "cut at {cut}");
            ledger.add(&[of("c")]).unwrap();
            assert!(Ledger::open(&folder).unwrap().has(&"c".repeat(64)), "cut at {cut}");
        }
        let mut damaged = b"no line of ours\n".to_vec();
        damaged.extend(vec![b'x'; 2 * LINE_BYTES_MAX]);
        damaged.push(b'\n');
        damaged.extend(&whole);
        std::fs::write(&at, damaged).unwrap();
        let ledger = Ledger::open(&folder).unwrap();
        assert!(ledger.has(&"a".repeat(64)) && ledger.has(&"b".repeat(64)) && ledger.damaged() > 0);
        std::fs::remove_dir_all(folder).unwrap();
    }

    #[test]
    fn a_run_with_a_note_too_long_for_a_line_is_still_one_line() {
        let folder = folder("long");
        let long = Line { failed: vec![("logs".into(), "x".repeat(2 * LINE_BYTES_MAX))], ..of("a") };
        Ledger::open(&folder).unwrap().add(&[long]).unwrap();
        let ledger = Ledger::open(&folder).unwrap();
        assert!(ledger.has(&"a".repeat(64)) && ledger.damaged() == 0);
        std::fs::remove_dir_all(folder).unwrap();
    }
}

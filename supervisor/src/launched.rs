//! `ROOT/care/launched`: every run that was launched and settled, one line each, appended, never cut (decisions C-101,
//! C-112). It is why a protocol process that lost its memory, or lies, cannot run a run twice.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{self, BufRead as _, BufReader, Seek as _, SeekFrom, Write as _};
use std::os::fd::BorrowedFd;

use rustix::fs::{Mode, OFlags, openat};
use supervisor::effects::Wrote;
use supervisor::points::{self, Moment, reach};

use crate::durable;
use crate::run_hash::RunHash;

/// The file's name in `ROOT/care`.
pub(crate) const NAME: &str = "launched";
/// Longest line: 64 digits, a space, ten digits, the line's end.
const LINE_BYTES_MAX: usize = 80;

/// The file and what it says.
#[derive(Debug)]
pub(crate) struct Launched {
    file: File,
    /// How long the file is without a torn end.
    whole: u64,
    launches: BTreeMap<RunHash, u32>,
}

impl Launched {
    /// Opens and reads the file, making it if there is none.
    ///
    /// A line without its end was being written when the machine stopped. Its run's care record is still there, since
    /// that goes only after the line is on disk: the line is cut off, and comes again with the run's release.
    ///
    /// # Errors
    /// As the calls fail; and when a whole line is no line of ours, since a run it may have named could then be run
    /// again. So it is with what is no regular file.
    pub(crate) fn open(care: BorrowedFd<'_>) -> io::Result<Self> {
        durable::is_file(care, NAME).map_err(|error| {
            io::Error::other(format!("{error} and restore the file: a run it named could be run again without it"))
        })?;
        let flags = OFlags::RDWR | OFlags::CREATE | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = File::from(openat(care, NAME, flags, Mode::RUSR | Mode::WUSR)?);
        let mut launches = BTreeMap::new();
        let mut whole = 0;
        let mut reader = BufReader::new(&file);
        for number in 1_u64.. {
            let mut line = Vec::new();
            let limit = u64::try_from(LINE_BYTES_MAX).unwrap_or(u64::MAX);
            let read = io::Read::take(&mut reader, limit).read_until(b'\n', &mut line)?;
            if line.last() != Some(&b'\n') && read < LINE_BYTES_MAX {
                break;
            }
            let Some((hash, n)) = parse(&line) else {
                return Err(io::Error::other(format!(
                    "line {number} is damaged: a run it named could be run again; restore the file, or remove that \
                     line to accept this"
                )));
            };
            launches.insert(hash, n);
            whole += u64::try_from(read).unwrap_or(0);
        }
        if file.metadata()?.len() != whole {
            file.set_len(whole)?;
            file.sync_all()?;
            points::synced(&file);
        }
        rustix::fs::fsync(care)?;
        points::names_synced(care);
        Ok(Self { file, whole, launches })
    }

    /// How often a settled run was launched, if it was.
    #[must_use]
    pub(crate) fn launches(&self, run: &RunHash) -> Option<u32> {
        self.launches.get(run).copied()
    }

    /// Adds a run, durably.
    ///
    /// # Errors
    /// As `write(2)` and `fsync(2)` fail; then the run is not in it, and its care record must stay.
    pub(crate) fn add(&mut self, run: RunHash, launches: u32) -> io::Result<()> {
        let line = format!("{run} {launches}\n");
        // What a failed write left is written over, or the next line would stand behind half a line.
        self.file.seek(SeekFrom::Start(self.whole))?;
        reach(Wrote::Line, Moment::Before);
        self.file.write_all(line.as_bytes())?;
        reach(Wrote::Line, Moment::Written);
        self.file.sync_data()?;
        points::synced(&self.file);
        reach(Wrote::Line, Moment::Lasting);
        self.whole += u64::try_from(line.len()).unwrap_or(0);
        self.launches.insert(run, launches);
        Ok(())
    }
}

fn parse(line: &[u8]) -> Option<(RunHash, u32)> {
    let line = std::str::from_utf8(line).ok()?.strip_suffix('\n')?;
    let (hash, launches) = line.split_once(' ')?;
    Some((RunHash::parse(hash)?, launches.parse().ok().filter(|n| *n > 0)?))
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use std::os::fd::AsFd as _;

    use super::*;
    use crate::testing::Scratch;

    fn hash(digit: &str) -> RunHash {
        RunHash::parse(&digit.repeat(40)).unwrap()
    }

    #[test]
    fn c_101_what_was_added_is_known_after_the_file_is_opened_again() {
        let care = Scratch::new();
        let mut launched = Launched::open(care.fd().as_fd()).unwrap();
        assert_eq!(launched.launches(&hash("a")), None);
        launched.add(hash("a"), 1).unwrap();
        launched.add(hash("b"), 2).unwrap();
        let again = Launched::open(care.fd().as_fd()).unwrap();
        assert_eq!((again.launches(&hash("a")), again.launches(&hash("b"))), (Some(1), Some(2)));
    }

    #[test]
    fn p6_every_torn_end_is_cut_off_and_the_lines_before_it_stand() {
        let whole = format!("{} 1\n{} 1\n", hash("a"), hash("b"));
        for cut in 0..whole.len() {
            let care = Scratch::new();
            std::fs::write(care.path().join(NAME), whole.get(..cut).unwrap()).unwrap();
            let mut launched = Launched::open(care.fd().as_fd()).unwrap();
            assert_eq!(launched.launches(&hash("a")).is_some(), cut >= whole.len() / 2, "cut at {cut}");
            assert_eq!(launched.launches(&hash("b")), None, "cut at {cut}");
            launched.add(hash("c"), 1).unwrap();
            let again = Launched::open(care.fd().as_fd()).unwrap();
            assert_eq!(again.launches(&hash("c")), Some(1), "cut at {cut}");
        }
    }

    #[test]
    fn a_damaged_whole_line_is_refused_rather_than_forgotten() {
        for damage in ["garbage\n".to_owned(), format!("{} 0\n", hash("a")), "x".repeat(4096), "\0".repeat(41) + "\n"] {
            let care = Scratch::new();
            std::fs::write(care.path().join(NAME), format!("{} 1\n{damage}", hash("b"))).unwrap();
            let error = Launched::open(care.fd().as_fd()).unwrap_err().to_string();
            assert!(error.starts_with("line 2 is damaged"), "{error}");
        }
    }
}

//! A run's standard streams as bytes: what goes in, and the bounded end of what comes out. Never waits; knows no run.

use std::collections::VecDeque;
use std::os::fd::BorrowedFd;

use rustix::io::Errno;

/// Most bytes read from one stream in one turn of the loop.
pub(crate) const TURN_BYTES_MAX: usize = 256 << 10;
/// Most bytes read from all streams in one turn: programs that write without end delay a stop by no more than this
/// takes, however many they are.
pub(crate) const TURN_ALL_BYTES_MAX: usize = 2 << 20;
/// How much is read at a time: as much as a pipe of ours holds.
const CHUNK: usize = PIPE_BYTES;
/// How large the pipes of STDOUT and STDERR are made: a program that writes much, and we, are woken less often.
pub(crate) const PIPE_BYTES: usize = 256 << 10;

/// Where reads land, one for all streams.
#[derive(Debug)]
pub(crate) struct Landing(Box<[u8]>);

impl Default for Landing {
    fn default() -> Self {
        Self(vec![0; CHUNK].into())
    }
}

/// The last bytes of a stream.
#[derive(Debug)]
pub(crate) struct Ring {
    bytes: VecDeque<u8>,
    keep: usize,
}

impl Ring {
    /// A ring of the last `keep` bytes. It grows with what is written, so a quiet run costs nothing.
    #[must_use]
    pub(crate) const fn new(keep: usize) -> Self {
        Self { bytes: VecDeque::new(), keep }
    }

    /// Adds bytes, forgetting the oldest beyond `keep`.
    pub(crate) fn push(&mut self, new: &[u8]) {
        let new = new.get(new.len().saturating_sub(self.keep)..).unwrap_or_default();
        let over = (self.bytes.len() + new.len()).saturating_sub(self.keep);
        drop(self.bytes.drain(..over.min(self.bytes.len())));
        self.bytes.extend(new);
    }

    /// The bytes kept, in order.
    #[must_use]
    pub(crate) fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.bytes).into()
    }
}

/// What a bounded read or write came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Progress {
    /// There may be more at once: come again in the next turn.
    More,
    /// Nothing more until the descriptor says so.
    Waiting,
    /// The stream is at its end, or broken, which is as good.
    Over,
}

/// Reads what is there, at most [`TURN_BYTES_MAX`] and what is `left` for this turn, into the ring.
pub(crate) fn read(fd: BorrowedFd<'_>, ring: &mut Ring, landing: &mut Landing, left: &mut usize) -> Progress {
    let mut own = TURN_BYTES_MAX;
    while own > 0 && *left > 0 {
        match rustix::io::read(fd, &mut *landing.0) {
            Ok(0) => return Progress::Over,
            Ok(n) => {
                ring.push(landing.0.get(..n).unwrap_or_default());
                own = own.saturating_sub(n);
                *left = left.saturating_sub(n);
            }
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN) => return Progress::Waiting,
            Err(_) => return Progress::Over,
        }
    }
    Progress::More
}

/// What a program is given on its standard input.
#[derive(Debug)]
pub(crate) struct Input {
    bytes: Vec<u8>,
    written: usize,
}

impl Input {
    /// The whole of what it is given.
    #[must_use]
    pub(crate) const fn new(bytes: Vec<u8>) -> Self {
        Self { bytes, written: 0 }
    }

    /// Writes as much as there is room for. [`Progress::Over`] when all is written or nobody can read it any more: the
    /// stream is then closed, which is the program's end of input.
    pub(crate) fn write(&mut self, fd: BorrowedFd<'_>) -> Progress {
        while let Some(rest) = self.bytes.get(self.written..).filter(|rest| !rest.is_empty()) {
            match rustix::io::write(fd, rest) {
                Ok(n) => self.written += n,
                Err(Errno::INTR) => {}
                Err(Errno::AGAIN) => return Progress::Waiting,
                Err(_) => return Progress::Over,
            }
        }
        Progress::Over
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, reason = "a test stops at the first surprise")]
    use std::os::fd::AsFd as _;

    use rustix::pipe::{PipeFlags, pipe_with};

    use super::*;

    #[test]
    fn a_ring_is_the_end_of_what_was_pushed_however_it_was_cut() {
        let text: Vec<u8> = (0..=255).collect();
        for keep in [0, 1, 7, 255, 256, 300] {
            for piece in [1, 3, 100, 256] {
                let mut ring = Ring::new(keep);
                text.chunks(piece).for_each(|piece| ring.push(piece));
                assert_eq!(ring.take(), text.get(256_usize.saturating_sub(keep)..).unwrap(), "keep {keep} by {piece}");
            }
        }
    }

    #[test]
    fn a_ring_never_holds_more_than_it_keeps() {
        let mut ring = Ring::new(1000);
        for _ in 0..10_000 {
            ring.push(&[b'y'; 4096]);
            assert!(ring.bytes.len() <= 1000 && ring.bytes.capacity() <= 4096);
        }
    }

    #[test]
    fn one_turn_reads_a_bounded_part_and_the_end_is_told() {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
        let (mut ring, mut landing) = (Ring::new(4), Landing::default());
        let mut read = |ring: &mut Ring| super::read(reader.as_fd(), ring, &mut landing, &mut usize::MAX.clone());
        assert_eq!(read(&mut ring), Progress::Waiting);
        let endless = std::thread::spawn(move || {
            let mut written = 0;
            while written < 2 * TURN_BYTES_MAX {
                match rustix::io::write(&writer, b"yyy\n") {
                    Ok(n) => written += n,
                    Err(_full) => std::thread::yield_now(),
                }
            }
        });
        let mut turns = 0;
        loop {
            match read(&mut ring) {
                Progress::Over => break,
                Progress::More => turns += 1,
                Progress::Waiting => std::thread::yield_now(),
            }
        }
        endless.join().unwrap();
        assert_eq!(ring.take(), b"yyy\n");
        assert!(turns <= 2);
    }

    #[test]
    fn what_all_streams_may_read_in_a_turn_is_one_bound() {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
        rustix::io::write(&writer, &[b'x'; 10_000]).unwrap();
        let (mut ring, mut landing, mut left) = (Ring::new(9), Landing::default(), 0);
        assert_eq!(read(reader.as_fd(), &mut ring, &mut landing, &mut left), Progress::More);
        assert_eq!(ring.take(), b"");
        left = 1;
        assert_eq!(read(reader.as_fd(), &mut ring, &mut landing, &mut left), Progress::More);
        assert_eq!((ring.take(), left), (b"xxxxxxxxx".to_vec(), 0));
    }

    #[test]
    fn input_waits_for_room_and_is_over_when_written_or_unread() {
        let (reader, writer) = pipe_with(PipeFlags::NONBLOCK | PipeFlags::CLOEXEC).unwrap();
        let mut input = Input::new(vec![b'x'; 1 << 20]);
        assert_eq!(input.write(writer.as_fd()), Progress::Waiting);
        let (mut ring, mut landing) = (Ring::new(0), Landing::default());
        while input.write(writer.as_fd()) == Progress::Waiting {
            read(reader.as_fd(), &mut ring, &mut landing, &mut usize::MAX.clone());
        }
        assert_eq!(input.written, 1 << 20);
        drop(reader);
        assert_eq!(Input::new(vec![1]).write(writer.as_fd()), Progress::Over);
    }
}

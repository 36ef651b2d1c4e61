//! What a cell says on its status pipe: that the program runs, how it ended, or why it never ran.

use alloc::vec::Vec;

use crate::op::Stage;

/// Longest subject of a failure, in bytes; the rest is cut.
pub const SUBJECT_BYTES_MAX: usize = 1024;

/// Largest message: a failure with the longest subject. Below PIPE_BUF, so a write is whole or nothing.
pub const MESSAGE_BYTES_MAX: usize = 3 + 1 + 1 + 4 + SUBJECT_BYTES_MAX;

/// How the main process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// With this exit code.
    Code(u8),
    /// By this signal.
    Signal(u8),
}

/// Why the program never ran.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Failed {
    /// 127 not found, 126 found but not executable, 125 anything else.
    pub code: u8,
    /// Where.
    pub stage: Stage,
    /// The system's error number.
    pub errno: i32,
    /// The path or thing it is about; may be empty.
    pub subject: Vec<u8>,
}

/// One message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Said {
    /// The program never ran.
    Failed(Failed),
    /// The program was executed.
    Running,
    /// The program ended.
    Ended {
        /// How.
        how: Ended,
        /// Processor time of it alone, in microseconds.
        cpu_us: u64,
    },
}

/// A message in its form on the pipe, without allocation: the cell says failures after its second clone.
#[derive(Debug)]
pub struct Line {
    bytes: [u8; MESSAGE_BYTES_MAX],
    length: usize,
}

impl Line {
    fn new(tag: u8) -> Self {
        let mut line = Self { bytes: [0; MESSAGE_BYTES_MAX], length: 0 };
        line.push(&[tag, 0, 0]);
        line
    }

    fn push(&mut self, more: &[u8]) {
        let room = self.bytes.get_mut(self.length..).unwrap_or_default();
        let count = more.len().min(room.len());
        for (to, from) in room.iter_mut().zip(more) {
            *to = *from;
        }
        self.length += count;
    }

    fn sealed(mut self) -> Self {
        let payload = u16::try_from(self.length.saturating_sub(3)).unwrap_or(0).to_le_bytes();
        if let Some(place) = self.bytes.get_mut(1..3) {
            place.copy_from_slice(&payload);
        }
        self
    }

    /// A failure; a subject longer than [`SUBJECT_BYTES_MAX`] is cut.
    #[must_use]
    pub fn failed(code: u8, stage: Stage, errno: i32, subject: &[u8]) -> Self {
        let mut line = Self::new(1);
        line.push(&[code, stage.tag()]);
        line.push(&errno.to_le_bytes());
        line.push(subject);
        line.sealed()
    }

    /// The program runs.
    #[must_use]
    pub fn running() -> Self {
        Self::new(2).sealed()
    }

    /// The program ended.
    #[must_use]
    pub fn ended(how: Ended, cpu_us: u64) -> Self {
        let mut line = Self::new(3);
        match how {
            Ended::Code(code) => line.push(&[0, code]),
            Ended::Signal(signal) => line.push(&[1, signal]),
        }
        line.push(&cpu_us.to_le_bytes());
        line.sealed()
    }

    /// Its bytes.
    #[must_use]
    pub fn as_bytes(&self) -> &[u8] {
        self.bytes.get(..self.length).unwrap_or_default()
    }
}

/// What came on the pipe is none of the messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Garbled;

/// Collects what comes on the pipe and gives whole messages.
#[derive(Debug, Default)]
pub struct Listener {
    kept: Vec<u8>,
}

impl Listener {
    /// Takes bytes as they came.
    pub fn hear(&mut self, bytes: &[u8]) {
        self.kept.extend_from_slice(bytes);
    }

    /// The next whole message, if there is one.
    ///
    /// # Errors
    /// When the bytes are no message; nothing after them can be read.
    pub fn next_said(&mut self) -> Result<Option<Said>, Garbled> {
        let [tag, low, high, rest @ ..] = self.kept.as_slice() else { return Ok(None) };
        let length = usize::from(u16::from_le_bytes([*low, *high]));
        if length + 3 > MESSAGE_BYTES_MAX {
            return Err(Garbled);
        }
        let Some(payload) = rest.get(..length) else { return Ok(None) };
        let said = match (tag, payload) {
            (1, [code, stage, a, b, c, d, subject @ ..]) => Said::Failed(Failed {
                code: *code,
                stage: Stage::from_tag(*stage).ok_or(Garbled)?,
                errno: i32::from_le_bytes([*a, *b, *c, *d]),
                subject: subject.to_vec(),
            }),
            (2, []) => Said::Running,
            (3, [kind, value, time @ ..]) => {
                let how = match kind {
                    0 => Ended::Code(*value),
                    1 => Ended::Signal(*value),
                    _ => return Err(Garbled),
                };
                let time: [u8; 8] = time.try_into().ok().ok_or(Garbled)?;
                Said::Ended { how, cpu_us: u64::from_le_bytes(time) }
            }
            _ => return Err(Garbled),
        };
        self.kept.drain(..length + 3);
        Ok(Some(said))
    }
}

#[cfg(test)]
mod tests {
    #![expect(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic is how a test fails")]
    use super::*;

    #[test]
    fn what_is_said_is_heard_whatever_the_pieces() {
        let mut all = Vec::new();
        for line in [
            Line::failed(127, Stage::Exec, 2, b"/no"),
            Line::running(),
            Line::ended(Ended::Signal(9), 1_500_000),
            Line::ended(Ended::Code(3), 0),
        ] {
            all.extend_from_slice(line.as_bytes());
        }
        for piece in 1..all.len() {
            let mut listener = Listener::default();
            let mut heard = Vec::new();
            for bytes in all.chunks(piece) {
                listener.hear(bytes);
                while let Some(said) = listener.next_said().unwrap() {
                    heard.push(said);
                }
            }
            assert_eq!(heard.len(), 4);
            assert_eq!(heard[2], Said::Ended { how: Ended::Signal(9), cpu_us: 1_500_000 });
        }
    }

    #[test]
    fn a_subject_too_long_is_cut_and_garbage_is_told() {
        let line = Line::failed(125, Stage::HostPaths, 13, &[b'x'; 5000]);
        let mut listener = Listener::default();
        listener.hear(line.as_bytes());
        let Some(Said::Failed(failed)) = listener.next_said().unwrap() else { unreachable!("a failure was said") };
        assert_eq!(failed.subject.len(), SUBJECT_BYTES_MAX);
        let mut listener = Listener::default();
        listener.hear(&[9, 0, 0]);
        assert_eq!(listener.next_said(), Err(Garbled));
    }
}

//! The supervisor's log: one event a line, on stderr. Never waits for whoever reads it.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use rustix::event::{PollFd, PollFlags, Timespec};

use crate::run_hash::RunHash;

/// Longest line, in bytes. A pipe with room at all has room for this much (`pipe(7)`, `PIPE_BUF`), so a line within it
/// is written whole and at once.
const LINE_BYTES_MAX: usize = 4096;

/// Lines nobody had room for; told with the next that is written.
static DROPPED: AtomicU64 = AtomicU64::new(0);

/// Writes one line, or drops it when the reader has stalled: a log must never hold a run's end back.
pub(crate) fn say(what: fmt::Arguments<'_>) {
    let stderr = rustix::stdio::stderr();
    let mut ready = [PollFd::from_borrowed_fd(stderr, PollFlags::OUT)];
    let room = rustix::event::poll(&mut ready, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).is_ok_and(|n| n == 1);
    if !room {
        DROPPED.fetch_add(1, Ordering::Relaxed);
        return;
    }
    let dropped = DROPPED.swap(0, Ordering::Relaxed);
    let mut line = one_line(&what.to_string(), LINE_BYTES_MAX - 64);
    if dropped > 0 {
        line.push_str(&format!(" ({dropped} lines before this found no room)"));
    }
    line.push('\n');
    // A log that cannot be written is no reason to do anything else differently.
    let _lost = rustix::io::write(stderr, line.as_bytes());
}

/// One line about a run.
pub(crate) fn run(hash: &RunHash, what: fmt::Arguments<'_>) {
    say(format_args!("run {}: {what}", hash.short()));
}

/// Text from elsewhere as one line of at most so many bytes: control characters, line ends among them, are escaped, so
/// that nobody's text makes a line of its own or moves a reader's cursor.
#[must_use]
pub(crate) fn one_line(text: &str, bytes_max: usize) -> String {
    let mut line = String::new();
    for c in text.chars() {
        let before = line.len();
        if c.is_control() {
            line.extend(c.escape_default())
        } else {
            line.push(c)
        }
        if line.len() > bytes_max {
            line.truncate(before);
            line.push_str("...");
            break;
        }
    }
    line
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn foreign_text_stays_one_bounded_line() {
        assert_eq!(one_line("two\nlines\u{1b}[2J", 99), "two\\nlines\\u{1b}[2J");
        assert_eq!(one_line("0123456789", 4), "0123...");
        assert_eq!(one_line("ééé", 3), "é...");
    }
}

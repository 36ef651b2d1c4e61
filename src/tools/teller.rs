//! Telling a person what happens, one line an event, and keeping the lines for the answer.

use std::io::{IsTerminal as _, Write as _};
use std::time::{Duration, Instant};

/// Says what happens as it happens; with `--json` only keeps it.
#[derive(Debug)]
pub struct Teller {
    start: Instant,
    quiet: bool,
    colour: bool,
    lines: Vec<String>,
}

/// Which part of a line stands out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// As it is.
    Plain,
    /// A heading.
    Bold,
    /// Of less weight.
    Dim,
}

impl Teller {
    /// Time runs from here. Colours are for terminals, and for nobody who set `NO_COLOR`.
    #[must_use]
    pub fn new(quiet: bool) -> Self {
        let colour = std::io::stdout().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|v| v.is_empty());
        Self { start: Instant::now(), quiet, colour, lines: Vec::new() }
    }

    /// One event, with the time since the start.
    pub fn event(&mut self, what: &str) {
        let line = stamped(self.start.elapsed(), what);
        self.say(&line, Style::Plain);
        self.lines.push(line);
    }

    /// Words that are no event.
    pub fn say(&self, text: &str, style: Style) {
        if self.quiet {
            return;
        }
        let (on, off) = match (self.colour, style) {
            (true, Style::Bold) => ("\x1b[1m", "\x1b[0m"),
            (true, Style::Dim) => ("\x1b[2m", "\x1b[0m"),
            (true, Style::Plain) | (false, _) => ("", ""),
        };
        let mut stdout = std::io::stdout().lock();
        // Nobody reading is no reason to leave a trial half taken away.
        drop(writeln!(stdout, "{on}{text}{off}").and_then(|()| stdout.flush()));
    }

    /// The events so far.
    #[must_use]
    pub fn into_log(self) -> Vec<String> {
        self.lines
    }
}

fn stamped(elapsed: Duration, what: &str) -> String {
    format!("{:8.3} s  {what}", elapsed.as_secs_f64())
}

/// Text from elsewhere, made harmless on a terminal: control characters but line ends and tabs are escaped.
#[must_use]
pub fn harmless(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        if c.is_control() && c != '\n' && c != '\t' { out.extend(c.escape_default()) } else { out.push(c) }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_runs_escapes_never_reach_a_terminal() {
        assert_eq!(harmless("a\n\tb\u{1b}[2J\r\u{9b}"), "a\n\tb\\u{1b}[2J\\r\\u{9b}");
    }

    #[test]
    fn events_carry_their_time_and_stand_in_line() {
        assert_eq!(stamped(Duration::from_millis(1_234), "server up"), "   1.234 s  server up");
    }
}

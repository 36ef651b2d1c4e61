//! Ctrl-C and TERM: the first asks for an orderly end, a second for an end at once, a third leaves things as they are.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;

use super::Trouble;

/// Exit code after a third: what a shell says of a program ended by Ctrl-C.
const LEFT: i32 = 130;

/// How often a person asked for the end.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicU32>);

impl Interrupt {
    /// From here on the signals are counted, not obeyed, in a thread of their own.
    ///
    /// # Errors
    /// As `sigaction(2)` fails.
    pub fn watch() -> Result<Self, Trouble> {
        let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP]).map_err(|e| Trouble::at("watching for Ctrl-C", e))?;
        let count = Arc::new(AtomicU32::new(0));
        let counted = Arc::clone(&count);
        std::thread::spawn(move || {
            for _ in &mut signals {
                if counted.fetch_add(1, Ordering::Relaxed) >= 2 {
                    // Whoever asks three times wants no more waiting.
                    std::process::exit(LEFT);
                }
            }
        });
        Ok(Self(count))
    }

    /// # Errors
    /// [`Trouble::Interrupted`] once asked.
    pub fn check(&self) -> Result<(), Trouble> {
        if self.0.load(Ordering::Relaxed) == 0 { Ok(()) } else { Err(Trouble::Interrupted) }
    }

    /// Whether no grace is to be given.
    #[must_use]
    pub fn hurries(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= 2
    }
}

//! Ctrl-C and TERM: the first asks for an orderly end, a second ends at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};

use super::Trouble;

/// Exit code after a second Ctrl-C: what a shell says of one.
const FORCED: i32 = 130;

/// Whether a person asked for the end.
#[derive(Debug, Clone, Default)]
pub struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From here on the signals are noted, not obeyed; a second one ends the program as it stands.
    ///
    /// # Errors
    /// As `sigaction(2)` fails.
    pub fn watch() -> Result<Self, Trouble> {
        let flag = Arc::new(AtomicBool::new(false));
        for signal in [SIGINT, SIGTERM, SIGHUP] {
            // In this order: the first signal finds the flag down, and only then raises it.
            signal_hook::flag::register_conditional_shutdown(signal, FORCED, Arc::clone(&flag))
                .and_then(|_| signal_hook::flag::register(signal, Arc::clone(&flag)))
                .map_err(|e| Trouble::at("watching for Ctrl-C", e))?;
        }
        Ok(Self(flag))
    }

    /// # Errors
    /// [`Trouble::Interrupted`] once asked.
    pub fn check(&self) -> Result<(), Trouble> {
        if self.0.load(Ordering::Relaxed) { Err(Trouble::Interrupted) } else { Ok(()) }
    }
}

//! The cell: a small static program that builds one sandbox as root and is then its init, with nothing left.
//!
//! It is executed from a sealed memfd with one argument: the number of the descriptor that holds its recipe.

use std::ffi::OsString;
use std::fs::File;
use std::io::Read as _;

use sandbox::flat::{self, RECIPE_BYTES_MAX};
use sandbox::op::Recipe;
use sandbox::{apply, sys};

/// Exit code of a cell that has nobody to tell why.
const UNREADABLE: u8 = 125;

fn main() {
    match recipe(std::env::args_os().nth(1)) {
        Some(recipe) => apply::run(&recipe),
        None => sys::exit_now(UNREADABLE),
    }
}

fn recipe(number: Option<OsString>) -> Option<Recipe> {
    let number: u32 = number?.to_str()?.parse().ok()?;
    let mut bytes = Vec::with_capacity(16 << 10);
    let file = File::from(sys::inherited(number).ok()?);
    file.take(u64::try_from(RECIPE_BYTES_MAX).ok()? + 1).read_to_end(&mut bytes).ok()?;
    // Sets the name `ps -c` and /proc/PID/comm show; the command line tells the run.
    rustix::thread::set_name(c"ocx-cell").ok()?;
    flat::read(&bytes).ok()
}

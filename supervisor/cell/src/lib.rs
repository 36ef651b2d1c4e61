//! What the cell is made of, but for the few lines that make it a program.
#![no_std]

extern crate alloc;

mod sys;

use alloc::vec;

use rustix::fs::fstat;
use rustix::io::{Errno, read};
use sandbox::apply;
use sandbox::flat::{self, RECIPE_BYTES_MAX};
use sandbox::op::Recipe;
use sandbox::sys as calls;

/// Exit code of a cell that has nobody to tell why.
pub const UNREADABLE: u8 = 125;

/// The cell, from the number of the descriptor that holds its recipe, in decimal digits.
fn run(number: Option<&[u8]>) -> ! {
    // A status pipe nobody reads any more ends no init: its sandbox may have to outlive the supervisor.
    if calls::outlive_broken_pipes().is_err() {
        calls::exit_now(UNREADABLE)
    }
    match number.and_then(recipe) {
        Some(recipe) => apply::run(&recipe, sys::memory::give_back),
        None => calls::exit_now(UNREADABLE),
    }
}

fn recipe(number: &[u8]) -> Option<Recipe> {
    let number: u32 = core::str::from_utf8(number).ok()?.parse().ok()?;
    let file = calls::inherited(number).ok()?;
    let length = usize::try_from(fstat(&file).ok()?.st_size).ok().filter(|it| *it <= RECIPE_BYTES_MAX)?;
    let mut bytes = vec![0; length];
    let mut had = 0;
    while had < length {
        match read(&file, bytes.get_mut(had..)?) {
            Ok(0) => return None,
            Ok(count) => had += count,
            Err(Errno::INTR) => {}
            Err(_) => return None,
        }
    }
    // Sets the name `ps -c` and /proc/PID/comm show; the command line tells the run.
    rustix::thread::set_name(c"ocx-cell").ok()?;
    flat::read(&bytes).ok()
}

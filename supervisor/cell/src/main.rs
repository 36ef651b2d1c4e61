//! The cell: a small static program that builds one sandbox as root and is then its init, with nothing left.
//!
//! It is executed from a sealed memfd with one argument: the number of the descriptor that holds its recipe. It has no
//! C library and no standard library, whose start takes longer than all it does itself: the kernel enters it in
//! `sys/start.rs`.
#![no_std]
#![no_main]

use cell::UNREADABLE;

#[panic_handler]
fn panicked(_why: &core::panic::PanicInfo<'_>) -> ! {
    sandbox::sys::exit_now(UNREADABLE)
}

//! What a program without a C library has to do for itself: this package's unsafe code.

pub(crate) mod memory;
mod start;

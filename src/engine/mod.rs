//! The engines: small and pure. They read the tables of `protocol`; no clock, no file, no socket.

pub mod advance;
pub mod ceiling;
pub mod check;
pub mod expand;
pub mod message;
pub mod plan;
pub mod publications;
pub mod quote;
pub mod read;
pub mod report;
pub mod run;
pub mod walk;

mod fences;
mod held;
mod strict;

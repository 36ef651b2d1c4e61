//! The tables of protocol version 2: every kind, key, form, value, step, refusal, filter and outcome, written once.
//!
//! Data and word types only; what reads the tables is `engine`.

pub mod document;
pub mod filters;
pub mod forms;
pub mod keys;
pub mod kinds;
pub mod life;
pub mod names;
pub mod outcomes;
pub mod refusals;
pub mod steps;
pub mod values;
mod words;

/// The protocol's version, the envelope's `ocx` (protocol 2.1).
pub const VERSION: u64 = 2;

//! What crosses between the supervisor and the protocol process (`wire`), and the effects of both as failpoints of test
//! builds (`points`, `effects`): this is all that `ocx` can name.
#![forbid(unsafe_code)]

pub mod effects;
pub mod points;
pub mod wire;

#[cfg(test)]
#[path = "../../tests/support/random.rs"]
mod random;

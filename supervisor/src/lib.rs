//! What crosses between the supervisor and the protocol process, and nothing else: this is all that `ocx` can name.
#![forbid(unsafe_code)]

pub mod wire;

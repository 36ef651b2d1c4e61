//! OCX: the protocol process, the tools and the server's side.
#![forbid(unsafe_code)]

pub mod engine;
pub mod fossil;
pub mod node;
pub mod protocol;
pub mod server;
pub mod step;
pub mod tools;
pub mod trial;

#[cfg(test)]
#[path = "../tests/support/random.rs"]
mod random;

//! OCX: the protocol process, the tools and the server's side.
#![forbid(unsafe_code)]

pub mod tools;
pub mod fossil;
pub mod server;
pub mod engine;
pub mod protocol;
pub mod node;
pub mod step;
pub mod trial;

//! OCX: the protocol process, the tools and the server's side.
#![forbid(unsafe_code)]

pub mod fossil;
pub mod server;
pub mod engine;
pub mod protocol;
pub mod tools;
pub mod trial;

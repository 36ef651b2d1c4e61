//! The socketpair between the protocol process (`ocx node`) and the supervisor: what is said, and how it is framed.

pub mod accounts;
pub mod floor;
pub mod frame;
pub mod message;
pub mod plan;
#[cfg(test)]
mod properties;

/// The version of this boundary. Both ends come from one release; a difference ends the link.
pub const LINK_VERSION: u32 = 1;

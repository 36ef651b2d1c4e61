//! The only code that speaks to Fossil: its pages over HTTP, its program, and a clone's file through SQLite.
//!
//! Nothing here decides what a message means. Facts about Fossil that the code depends on are named beside it; they
//! were tried with Fossil 2.21, the lowest version the tests pass with, and 2.26.

pub mod blob;
mod cards;
pub mod chat;
mod checkin;
pub mod clone;
pub mod collect;
mod delta;
pub mod http;
pub mod listing;
pub mod login;
pub mod post;
pub mod program;
#[cfg(test)]
mod properties;
mod pull;
pub mod receipt;
pub mod store;
pub mod tag;
mod tool;
pub mod xfer;

pub use chat::CHAT_MARGIN;
pub use checkin::TreeFile;
pub use clone::{CloneError, PullError, Pulled};
pub use http::FossilError;
pub use listing::Listed;
pub use login::Session;
pub use post::{Again, Posted};
pub use program::Program;
pub use receipt::{Ask, Caller, Receipt, Receipts, User};
pub use store::{Arrival, Arrivals, CloneFile, Place, StoreError, Unreadable};

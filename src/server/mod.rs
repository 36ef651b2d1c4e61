//! The server's side: the extension Fossil runs under `/ext/ocx`, what puts it there, and servers for a trial.

pub mod cgi;
mod clones;
pub mod install;
mod letters;
mod receipt;
pub mod repository;
pub mod serving;

pub use install::install;
pub use repository::{ServerUser, Settings};
pub use serving::{Serving, ServingError};

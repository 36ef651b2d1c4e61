//! The server's side: the extension Fossil runs under `/ext/ocx`, what puts it there, and servers for a trial.

mod approvals;
pub mod approving;
pub mod cgi;
mod clones;
mod collect;
pub mod install;
mod kept;
mod letters;
pub mod on_host;
mod receipt;
pub mod repository;
pub mod secrets;
pub mod serving;
mod stamp;

pub use install::install;
pub use repository::{ServerUser, Settings};
pub use serving::{Serving, ServingError};

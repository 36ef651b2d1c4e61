//! The protocol as tables and pure engines: tables over themselves, whole messages with exact answers, hostile text.
#![expect(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::panic,
    clippy::wildcard_enum_match_arm,
    reason = "a test fails by panicking, and its own data is as it wrote it"
)]

mod commonmark;
mod examples;
mod forms;
mod hostile;
mod publication;
mod refusals;
mod reports;
mod support;
mod tables;

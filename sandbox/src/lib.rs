//! Confinement as data, the ordered operations that make it, and the loop that applies them.
//!
//! `spec` describes, `recipe` orders (pure), `flat` carries the recipe to the cell, `apply` and `init` carry it out
//! there, `measure` holds what came of it against `promise`, `status` carries back how it went.

pub mod apply;
pub mod flat;
pub mod init;
pub mod landlock;
pub mod measure;
mod mounts;
pub mod op;
mod paths;
pub mod promise;
#[cfg(feature = "describe")]
pub mod recipe;
#[cfg(feature = "describe")]
pub mod seccomp;
#[cfg(feature = "describe")]
pub mod spec;
pub mod status;
pub mod sys;

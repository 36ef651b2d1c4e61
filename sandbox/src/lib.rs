//! Confinement as data, the ordered operations that make it, and the loop that applies them.
//!
//! `spec` describes, `places` and `recipe` order (pure), `flat` carries the recipe to the cell, `apply` and `init` carry it out
//! there, `measure` holds what came of it against `promise`, `status` carries back how it went. What the cell needs of it
//! is without the standard library.

#![cfg_attr(not(feature = "describe"), no_std)]

extern crate alloc;

pub mod apply;
pub mod flat;
pub mod init;
pub mod landlock;
pub mod measure;
mod mounts;
pub mod op;
mod paths;
#[cfg(feature = "describe")]
mod places;
pub mod promise;
#[cfg(feature = "describe")]
pub mod recipe;
#[cfg(feature = "describe")]
pub mod seccomp;
#[cfg(feature = "describe")]
pub mod spec;
pub mod status;
pub mod sys;

#[cfg(test)]
#[path = "../../tests/support/random.rs"]
mod random;

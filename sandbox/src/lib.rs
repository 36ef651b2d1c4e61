//! Confinement as data, the ordered operations that make it, and the loop that applies them.

pub mod spec;

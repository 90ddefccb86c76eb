//! Converts a JIT compiler's jitdump into ELF images with symbols, source lines, unwind data and build-id.

// Types of other packages contain these, and derive Debug.
#![warn(missing_debug_implementations)]

/// The example of the README is compiled.
#[cfg(doctest)]
#[doc = include_str!("README.md")]
pub struct Readme;

mod arena;
mod functions;
mod image;
mod lines;
mod perf_map;
#[cfg(test)]
mod tests;
mod unwind;

pub use perfx_format;

pub use arena::{Arena, Member, arenas};
pub use functions::{Function, Functions};
pub use image::{Image, Target, Written};

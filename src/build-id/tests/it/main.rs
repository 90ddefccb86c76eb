//! The tests that need files; tests without files are next to the code.

#![allow(clippy::let_underscore_must_use, reason = "tests clean up, and look for panics")]

mod elf;
mod finder;
mod made;

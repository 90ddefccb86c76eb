//! The tests that need files; tests without files are next to the code.

mod elf;
mod finder;
mod made;

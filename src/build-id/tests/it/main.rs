//! The tests that need files; those that need none are beside the code.

mod elf;
mod finder;
mod made;

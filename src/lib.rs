//! The commands of perfx; a library only so that tests and benchmarks can call them.

mod args;
mod cli;
mod commands;
mod io;
mod tally;
mod term;

pub use cli::{command_line, main};
pub use commands::diff::document as diff;
pub use commands::du::document as du;
pub use term::render;

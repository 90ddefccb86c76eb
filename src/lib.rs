//! The commands of perfx over its packages; a library only so that tests and benchmarks can call what the program calls.

mod cli;
mod commands;
mod human;
mod input;
mod output;
mod progress;
pub mod render;
mod settle;
mod signals;
mod talk;
mod tally;

pub use cli::{command_line, main};
pub use commands::diff::document as diff;
pub use commands::du::document as du;

//! The commands of perfx over its packages; a library only so that tests and benchmarks can call what the program calls.

mod cli;
mod commands;
mod human;
mod input;
mod output;
pub mod render;
mod tally;

pub use cli::main;

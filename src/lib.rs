//! Contains the commands of perfx. It is a library only so that tests and benchmarks can call them.

mod args;
mod cli;
mod commands;
mod io;
mod tally;
mod term;

use perfx_look::json::schema;

pub use cli::{command_line, main};
pub use commands::diff::document as diff;
pub use commands::du::document as du;

/// The JSON schemas of what perfx prints, by name. The files in `schemas/` are these.
pub fn schemas() -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("doctor", schema::<commands::doctor::Output>()),
        ("dump", schema::<commands::dump::Output<'_>>()),
        ("info", schema::<commands::info::Output<'_>>()),
        ("passes", schema::<commands::passes::Output>()),
        ("schedule", schema::<commands::run::Output>()),
    ]
}

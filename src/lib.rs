//! The commands of perfx, as a library for programs that add passes, for tests and for benchmarks.

mod args;
mod cli;
mod commands;
mod first_page;
mod io;
mod term;

use perfx_look::json::schema;

pub use cli::Program;
pub use first_page::FIRST_COMMANDS;
pub use io::streams::Streams;

/// The JSON schemas of perfx's output, by name; they are the files in `schemas/`.
pub fn schemas() -> Vec<(&'static str, serde_json::Value)> {
    vec![
        ("diff", schema::<commands::diff::Output<'_>>()),
        ("doctor", schema::<commands::doctor::Output>()),
        ("du", schema::<commands::du::Output<'_>>()),
        ("dump", schema::<commands::dump::Output<'_>>()),
        ("info", schema::<commands::info::Output<'_>>()),
        ("list-calls", schema::<commands::list::CallOutput>()),
        ("list-fields", schema::<commands::list::FieldOutput>()),
        ("list-functions", schema::<commands::list::RankedOutput>()),
        ("list-lines", schema::<commands::list::LineOutput>()),
        ("list", schema::<commands::list::Output>()),
        ("pack", schema::<commands::pack::Output<'_>>()),
        ("passes", schema::<commands::passes::Output>()),
        ("schedule", schema::<commands::run::Output>()),
        ("stats", schema::<commands::stats::Output<'_>>()),
        ("view", schema::<perfx_export::view::Line<'_>>()),
    ]
}

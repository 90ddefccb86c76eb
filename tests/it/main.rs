//! The integration tests, one binary: what the whole program promises, shown on the recordings of `tests/data`.

mod cli;
mod forms;
mod fuzz_bodies;
mod identity;
mod injected;
mod merge;
mod oracle;
mod parse;
#[allow(clippy::type_complexity, reason = "a naive model is plainer with its tuples spelled out")]
mod properties;
mod second_opinion;
mod snapshots;
mod support;
mod validation;

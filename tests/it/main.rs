//! The integration tests, one binary: what the whole program promises, shown on the recordings of `tests/data`.

mod cli;
mod compress;
mod diff;
mod docs;
mod doctor;
mod du;
mod every_pass;
mod export;
mod filter;
mod forms;
mod fuzz_bodies;
mod identity;
mod in_place;
mod info;
mod injected;
mod join;
mod merge;
mod oracle;
mod pages;
mod parse;
mod promises;
#[allow(clippy::type_complexity, reason = "a naive model is plainer with its tuples spelled out")]
mod properties;
mod recover;
mod reindex;
mod repair;
mod retime;
mod second_opinion;
mod snapshots;
mod split;
mod stats;
mod support;
mod terminal;
mod tiny;
mod upstream;
mod validation;

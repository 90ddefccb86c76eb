//! Contains one file for each command that is more than a pass: a preset of passes and a report. Commands do
//! not read bytes of the format.

pub(crate) mod completion;
pub(crate) mod copy;
pub(crate) mod decompress;
pub(crate) mod diff;
pub(crate) mod doctor;
pub(crate) mod du;
pub(crate) mod dump;
pub(crate) mod export;
pub(crate) mod filter;
pub(crate) mod index;
pub(crate) mod info;
pub(crate) mod inject;
pub(crate) mod join;
pub(crate) mod list;
pub(crate) mod man;
pub(crate) mod merge;
pub(crate) mod overview;
pub(crate) mod pack;
pub(crate) mod pass;
pub(crate) mod passes;
pub(crate) mod perf;
pub(crate) mod recover;
pub(crate) mod redact;
pub(crate) mod reindex;
pub(crate) mod repair;
pub(crate) mod run;
pub(crate) mod shim;
pub(crate) mod sort;
pub(crate) mod split;
pub(crate) mod stats;
pub(crate) mod symbolize;
pub(crate) mod unpack;
pub(crate) mod view;
pub(crate) mod watch;

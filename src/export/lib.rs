//! Writes recordings in the formats of other programs, and shows and lists their contents.
//!
//! There are tables ([`csv`], [`parquet`]), call stacks ([`folded`] lines, profiles of [`pprof`],
//! [`otlp`] and [`firefox`], a page of [`html`], a picture of [`svg`]), and branches for compilers ([`branches`] of a
//! program, [`branch_files`] of all programs). [`list::list`] lists what a recording names, [`ranking`] its
//! functions, and [`view::view`] shows each sample.
//!
//! A recording is read twice: first for what its records mean ([`Facts`]: events, mappings, names), then for
//! its samples, on all threads. [`Stacks`] holds each distinct stack once, so memory does not depend on the
//! number of samples.

pub mod annotate;
pub mod branch_files;
pub mod branches;
mod calls;
mod chains;
pub mod changes;
mod counted;
pub mod csv;
mod durations;
pub mod fields;
pub mod firefox;
pub mod folded;
mod functions;
pub mod html;
pub mod list;
mod list_sum;
mod lists;
mod noise;
pub mod otlp;
pub mod pack;
pub mod parquet;
pub mod pprof;
mod quality;
mod ranges;
pub mod ranking;
mod recent;
mod shown;
mod sorted;
mod stacks;
pub mod svg;
pub mod symbolize;
mod traced;
pub mod view;

pub use calls::{CallList, CalledRow, ChosenCalls, Instance, IsNamed, Watched, WatchedCalls};
pub use chains::StackTree;
pub use durations::{DurationSummary, Durations, HistogramRow};
pub use functions::{CodeFile, CodePlace, FunctionId, FunctionTotal, NamedStacks};
pub use perfx_pipeline::{Error, Result};
pub use perfx_resolve::{EventFacts, Facts, Frame, FrameName, Function, Named, Search, name_frames};
pub use quality::{ChainQuality, Unnamed, data_quality};
pub use shown::{Counted, SampledEvents, ShownEvent};
pub use stacks::{Grouping, Label, Row, Stacks, Weight};

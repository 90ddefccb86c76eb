//! Reads the samples of a recording in one way for all that select, count, list and show them.
//!
//! A [`SampleView`] is a sample whose fields are read when they are asked for. [`visit`] passes the samples of a
//! recording to a [`Visit`] on all threads, with what they count for.

mod counters;
mod losses;
mod sample;
mod visit;

pub use counters::{Before, CounterEnds, Counters, First, Late};
pub use losses::{Losses, say_cut_off};
pub use sample::SampleView;
pub use visit::{IsSelected, Select, Visit, each_batch, visit};

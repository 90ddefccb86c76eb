//! Reads the samples of a recording, for everything that selects, counts, lists or shows them.
//!
//! A [`SampleView`] reads the fields of a sample on demand. [`visit`] passes the samples of a recording to a
//! [`Visit`] on all threads, with their weights.

mod branches;
mod counters;
mod losses;
mod rows;
mod sample;
mod visit;

pub use branches::{Branch, Branches};
pub use counters::{Before, CounterEnds, Counters, First, Late};
pub use losses::{Losses, say_cut_off};
pub use rows::{Alike, Rest, Rows, Sampled};
pub use sample::SampleView;
pub use visit::{IsSelected, Select, Visit, each_batch, visit};

//! Makes the samples of the parts of traces on the threads that decode them, as if one thread had decoded all in order.
//!
//! A thread logs what it decodes of a part in a [`PartLog`]. In its turn, when all parts before it in the buffer have been
//! logged, the [`Sampler`] of the buffer advances to the end of the log. [`SerialReplay`] is the work of the decoder that does
//! both; it makes a [`SampleQueue`] of each part, which [`Merge`] hands out in the order of time.

mod log;
mod merge;
mod replay;
mod sample_queue;
mod sequencer;
mod skip_first;
mod spill_file;

use perfx_auxtrace::{Split, UNIT};

pub(super) use self::log::{Entry, PartLog};
pub(super) use self::merge::Merge;
pub(super) use self::replay::{Sampler, SerialReplay};
pub(super) use self::sample_queue::SampleQueue;
pub(super) use self::skip_first::SkipFirst;
pub(super) use self::spill_file::SpillFile;

/// How traces are cut. Parts that make many samples are small, so that these usually fit in memory.
pub(super) fn split(threads: usize, has_many: bool) -> Split {
    Split { threads, size: if has_many { UNIT / 32 } else { UNIT } }
}

//! Makes the samples of the parts of traces on several threads, as if one thread had decoded all in order.
//!
//! A thread decodes a part into a [`PartLog`]. When all earlier parts of the buffer are done, it advances the
//! [`Sampler`] of the buffer to the end of the log, which makes a [`SampleQueue`] of the part;
//! [`SerialReplay`] does both. [`Merge`] hands out the samples in time order.

mod log;
mod merge;
mod replay;
mod sample_queue;
mod sequencer;
mod skip_first;
mod spill_file;

use perfx_auxtrace::{Split, UNIT};

pub(super) use self::log::{Entry, PartLog, PathBranch, SelectedBranches};
pub(super) use self::merge::Merge;
pub(super) use self::replay::{Sampler, SerialReplay};
pub(super) use self::sample_queue::SampleQueue;
pub(super) use self::skip_first::SkipFirst;
pub(super) use self::spill_file::SpillFile;

/// How to cut traces: into smaller parts if there are many samples, which then usually fit in memory.
pub(super) fn split(threads: usize, has_many: bool) -> Split {
    Split { threads, size: if has_many { UNIT / 32 } else { UNIT } }
}

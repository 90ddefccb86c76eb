//! Until when the records of a batch must wait so that all come in the order of time, as a look at all batches tells it.

use std::collections::VecDeque;

/// For each batch the earliest time of all that is behind it, from the earliest time in each; `u64::MAX` for none.
pub(crate) fn watermarks(earliest: impl DoubleEndedIterator<Item = u64>) -> VecDeque<u64> {
    let mut watermark = u64::MAX;
    let mut watermarks = VecDeque::new();
    for here in earliest.rev() {
        watermarks.push_front(watermark);
        watermark = watermark.min(here);
    }
    watermarks
}

//! Computes up to which time the records of each batch are complete, from a survey of all batches.

use std::collections::VecDeque;

/// For each batch, the earliest time of all later ones, from the earliest time in each; `u64::MAX` for none.
pub(crate) fn watermarks(earliest: impl DoubleEndedIterator<Item = u64>) -> VecDeque<u64> {
    let mut watermark = u64::MAX;
    let mut watermarks = VecDeque::new();
    for here in earliest.rev() {
        watermarks.push_front(watermark);
        watermark = watermark.min(here);
    }
    watermarks
}

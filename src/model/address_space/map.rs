//! A mapping in the timeline of its address space.

use super::Hit;

/// Marks a missing slot, mapping or span.
pub(super) const NONE: u32 = u32::MAX;

/// A mapping.
#[derive(Clone, Copy, Debug)]
pub(super) struct Map {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) time: u64,
    pub(super) hit: Hit,
}

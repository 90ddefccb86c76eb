//! Describes a mapping in the timeline of its address space.

use perfx_format::OrderKey;

pub(super) const NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug)]
pub(super) struct Map {
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) at: OrderKey,
    pub(super) hit: Hit,
}

/// The mapping at an address.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Hit {
    /// The DSO, as an index into [`AddressSpaces::dsos`](super::AddressSpaces::dsos).
    pub dso: u32,
    /// The MMAP or MMAP2 record, counted from 0 in the order of collection.
    pub mapping: u32,
}

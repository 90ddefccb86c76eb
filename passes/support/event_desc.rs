//! Builds feature EVENT_DESC, which has the names of all events.

use perfx_format::features::{EventDesc, write_event_desc};
use perfx_format::{Endian, Event};

/// The section with these events and names. All attrs get the size of the largest, at least `size` bytes.
pub(crate) fn event_desc(
    events: &[Event],
    names: &[Vec<u8>],
    size: usize,
    endian: Endian,
) -> Option<Vec<u8>> {
    let size = events.iter().map(|event| event.raw().len()).max().unwrap_or(0).max(size);
    let written: Vec<_> = events.iter().map(|event| event.written(size, endian)).collect();
    let described = events.iter().zip(&written).zip(names);
    let described: Vec<_> =
        described.map(|((event, attr), name)| EventDesc { attr, name, ids: event.ids.clone() }).collect();
    write_event_desc(u32::try_from(size).ok()?, &described, endian)
}

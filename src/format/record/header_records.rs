//! Reads the records of pipe data that say what a file says in its header, whichever of their layouts the writer chose.

use crate::header::{EVENT_TYPE_SIZE, are_event_types};
use crate::{Record, RecordType};

/// Bytes of HEADER_TRACING_DATA before a payload inside it: header, u32 size.
const TRACING_DATA_HEAD: usize = 12;

/// Most bytes of the name in a HEADER_EVENT_TYPE.
pub(crate) const EVENT_TYPE_NAME: usize = EVENT_TYPE_SIZE - 8;

/// The payload of `length` bytes lies inside the record of `size` bytes, not behind it. simpleperf writes HEADER_TRACING_DATA that way: u32 size,
/// the payload, zeros to a multiple of 64. perf's record has 12 or 16 bytes and a payload of at least 8, for which it never has room, so the
/// record alone proves which of the two it is, wherever a batch ends.
#[inline]
pub(crate) fn holds_payload(kind: RecordType, size: usize, length: u64) -> bool {
    kind == RecordType::HEADER_TRACING_DATA && length <= size.saturating_sub(TRACING_DATA_HEAD) as u64
}

/// What a HEADER_TRACING_DATA record carries, inside it or behind it.
pub fn tracing_data<'a>(record: &Record<'a>) -> &'a [u8] {
    let length = record.u32(8).unwrap_or(0) as usize;
    let inside = record.bytes().get(TRACING_DATA_HEAD..).and_then(|rest| rest.get(..length));
    inside.filter(|_| record.payload().is_empty()).unwrap_or(record.payload())
}

/// A HEADER_EVENT_TYPE record as an entry of a file's event types: u64 `attr.config`, char name\[64\]. perf before 3.3 pads the name to 8 bytes
/// only, and leaves out the NUL of one that fills them. `None` for any other record, and for one without a name that a file could hold.
pub fn event_type(record: &Record<'_>) -> Option<[u8; EVENT_TYPE_SIZE]> {
    let body = record.body();
    let mut entry = [0; EVENT_TYPE_SIZE];
    entry.get_mut(..body.len())?.copy_from_slice(body);
    let fits = record.kind() == RecordType::HEADER_EVENT_TYPE && are_event_types(&entry);
    fits.then_some(entry)
}

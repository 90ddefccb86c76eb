//! HEADER_TRACING_DATA records have their payload inside or after them, depending on the writer.

use super::reader::Reader;
use crate::{Record, RecordType};

/// Bytes of HEADER_TRACING_DATA before a payload inside it: header, u32 size.
const TRACING_DATA_HEAD: usize = 12;

/// True if the payload of `length` bytes is inside the record of `size` bytes, not after it. simpleperf
/// writes HEADER_TRACING_DATA that way: u32 size, the payload, zeros to a multiple of 64. perf's record has
/// 12 or 16 bytes, too few for its payload of at least 8, so the record alone shows where its payload is,
/// wherever a batch ends.
#[inline]
pub(crate) fn holds_payload(kind: RecordType, size: usize, length: u64) -> bool {
    kind == RecordType::HEADER_TRACING_DATA && length <= size.saturating_sub(TRACING_DATA_HEAD) as u64
}

/// The data of a HEADER_TRACING_DATA record, inside it or after it.
pub fn tracing_data<'a>(record: &Record<'a>) -> &'a [u8] {
    let length = record.u32(8).unwrap_or(0) as usize;
    let inside = record.bytes().get(TRACING_DATA_HEAD..).and_then(|rest| rest.get(..length));
    inside.filter(|_| record.payload().is_empty()).unwrap_or(record.payload())
}

pub(crate) fn decode<'a>(record: &Record<'a>, d: &mut Reader<'a>) -> Option<()> {
    d.number::<u32>("size")?;
    let inside = tracing_data(record).len();
    if record.payload().is_empty() && inside > 0 {
        d.bytes("data", inside)?;
    }
    Some(())
}

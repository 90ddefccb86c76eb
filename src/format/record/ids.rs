//! Finds event ids in records of any kind, and adds an IDENTIFIER to a record.
//!
//! | record | byte | source |
//! |---|---|---|
//! | LOST | 8 | include/uapi/linux/perf_event.h |
//! | THROTTLE, UNTHROTTLE | 16 id, 24 stream id | include/uapi/linux/perf_event.h |
//! | STAT | 8 | tools/lib/perf/include/perf/event.h |
//! | EVENT_UPDATE | 16 | tools/lib/perf/include/perf/event.h |
//! | READ | in the counters, from byte 16 on | perf_event_open(2), `read_format` |
//! | SAMPLE, and the trailer of other kernel records | by the event's `sample_type` | perf_event_open(2) |

use crate::sample::Read;
use crate::{
    Cursor, Layout, RECORD_SIZE_MAX, Record, RecordType, Result, sample_fields, sample_type as st,
    trailer_fields,
};

/// Bits of `read_format`.
pub const READ_FORMAT_ID: u64 = 1 << 2;

const READ_FORMAT_GROUP: u64 = 1 << 3;

const READ_FORMAT_LOST: u64 = 1 << 4;

/// The offsets of ids in a record's own fields, outside its sample_id.
pub fn ids_about(kind: RecordType) -> &'static [usize] {
    match kind {
        RecordType::LOST | RecordType::STAT => &[8],
        RecordType::THROTTLE | RecordType::UNTHROTTLE => &[16, 24],
        RecordType::EVENT_UPDATE => &[16],
        _ => &[],
    }
}

/// The fields of a sample or of a record's trailer, as bits of `sample_type`, with their offsets. Empty if
/// the record is too short for them.
fn fields<'l>(record: &Record<'_>, layout: &'l Layout) -> impl Iterator<Item = (u64, usize)> + use<'l> {
    let is_sample = record.kind() == RecordType::SAMPLE;
    let size = usize::from(if is_sample { layout.sample.size } else { layout.trailer.size });
    let start =
        if is_sample { Some(8) } else { record.bytes().len().checked_sub(size).filter(|&at| at >= 8) };
    // The kernel's records have these fields, and so does a HEADER_BUILD_ID with a trailer.
    let has_fields = record.kind().is_kernel() || record.kind() == RecordType::HEADER_BUILD_ID;
    let start = start.filter(|_| has_fields && record.bytes().len() >= size);
    let sample = sample_fields(layout.sample_type).filter(move |_| is_sample);
    let trailer = trailer_fields(layout.sample_type).filter(move |_| !is_sample && layout.sample_id_all);
    let bits = sample.chain(trailer).enumerate();
    bits.filter_map(move |(number, bit)| Some((bit, start? + number * 8)))
}

/// The offsets of the ids of a record's own event.
pub fn own_ids<'l>(record: &Record<'_>, layout: &'l Layout) -> impl Iterator<Item = usize> + use<'l> {
    let ids = st::ID | st::STREAM_ID | st::IDENTIFIER;
    fields(record, layout).filter(move |(bit, _)| bit & ids != 0).map(|(_, at)| at)
}

/// The offsets of all ids in a record.
pub fn ids_in(record: &Record<'_>, layout: Option<&Layout>) -> Vec<usize> {
    let mut places = ids_about(record.kind()).to_vec();
    let Some(layout) = layout else { return places };
    places.extend(own_ids(record, layout));
    let read_at = match record.kind() {
        RecordType::READ => Some(16),
        RecordType::SAMPLE if layout.sample_type & st::READ != 0 => Some(usize::from(layout.sample.size)),
        _ => None,
    };
    if let Some(at) = read_at.filter(|_| layout.read_format & READ_FORMAT_ID != 0)
        && let Some(bytes) = record.bytes().get(at..)
        && let Some(read) = Read::take(&mut Cursor::new(bytes, record.endian()), layout.read_format)
    {
        places.extend(ids_in_read(layout.read_format, read.counts().count()).map(|id| at + id));
    }
    places
}

/// The offsets of the ids in the counters of a sample: `{value, enabled, running, id, lost}`, or with GROUP
/// `{nr, enabled, running, {value, id, lost}…}`.
pub fn ids_in_read(read_format: u64, counts: usize) -> impl Iterator<Item = usize> {
    let times = (read_format & 3).count_ones() as usize * 8;
    let lost = if read_format & READ_FORMAT_LOST != 0 { 8 } else { 0 };
    // In a group, the first value follows the count; otherwise the times follow the value.
    (0..counts).map(move |at| {
        let before = 8 + times + if read_format & READ_FORMAT_GROUP != 0 { 8 } else { 0 };
        before + at * (16 + lost)
    })
}

/// Returns the kernel record with this IDENTIFIER added, which its event's `sample_type` does not have.
///
/// # Errors
///
/// The record with 8 more bytes is larger than a record can be.
pub fn with_identifier(record: &Record<'_>, id: u64) -> Result<Vec<u8>> {
    let endian = record.endian();
    let mut new = record.bytes().to_vec();
    let size = new.len() + 8;
    if size > RECORD_SIZE_MAX {
        return Err(record.error("with an IDENTIFIER it is larger than a record can be"));
    }
    let at = if record.kind() == RecordType::SAMPLE { 8 } else { new.len() };
    new.splice(at..at, endian.bytes_u64(id));
    endian.set_u16(&mut new, 6, size as u16);
    Ok(new)
}

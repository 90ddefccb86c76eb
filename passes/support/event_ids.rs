//! Event ids in records: where they lie, which are free, and the IDENTIFIER by which records of any event can be told apart.

use std::collections::BTreeSet;

use anyhow::Result;
use perfx_format::sample::Read;
use perfx_format::{
    Cursor, Event, Layout, RECORD_SIZE_MAX, Record, RecordType, sample_fields, sample_type as st,
    trailer_fields,
};

/// Bits of `read_format`.
pub(crate) const READ_FORMAT_ID: u64 = 1 << 2;
const READ_FORMAT_GROUP: u64 = 1 << 3;
const READ_FORMAT_LOST: u64 = 1 << 4;

/// perf tells records of different events apart by IDENTIFIER wherever else their attrs put an id.
pub(crate) fn lacks_identifier(events: &[Event]) -> bool {
    events.iter().any(|event| event.attr().sample_type & st::IDENTIFIER == 0)
}

/// ids that are not in use, ascending.
#[derive(Debug)]
pub(crate) struct FreeIds {
    pub(crate) used: BTreeSet<u64>,
    last: u64,
}

impl FreeIds {
    /// Larger ones than these and `late`, as long as there are any.
    pub(crate) fn beyond(used: BTreeSet<u64>, late: u64) -> FreeIds {
        let last = used.last().copied().unwrap_or(0).max(late).max(1);
        FreeIds { used, last }
    }

    pub(crate) fn next(&mut self) -> u64 {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && self.used.insert(self.last) {
                return self.last;
            }
        }
    }
}

/// Where ids lie in the counters of a sample: `{value, enabled, running, id, lost}`, or with GROUP `{nr, enabled, running, {value, id, lost}…}`.
pub(crate) fn ids_in_read(read_format: u64, counts: usize) -> impl Iterator<Item = usize> {
    let times = (read_format & 3).count_ones() as usize * 8;
    let lost = if read_format & READ_FORMAT_LOST != 0 { 8 } else { 0 };
    // The first value follows a count in a group, and is followed by the times otherwise.
    (0..counts).map(move |at| {
        let before = 8 + times + if read_format & READ_FORMAT_GROUP != 0 { 8 } else { 0 };
        before + at * (16 + lost)
    })
}

/// Where in a record lie ids of what it is about, its own sample_id aside.
pub(crate) fn ids_about(kind: RecordType) -> &'static [usize] {
    match kind {
        RecordType::LOST | RecordType::STAT => &[8],
        RecordType::THROTTLE | RecordType::UNTHROTTLE => &[16, 24],
        RecordType::EVENT_UPDATE => &[16],
        _ => &[],
    }
}

/// The fields of a record's sample, or of its trailer, as bits of `sample_type`, and where each begins. Nothing where it is too short for them.
fn fields<'l>(record: &Record<'_>, layout: &'l Layout) -> impl Iterator<Item = (u64, usize)> + use<'l> {
    let is_sample = record.kind() == RecordType::SAMPLE;
    let size = usize::from(if is_sample { layout.sample.size } else { layout.trailer.size });
    let start =
        if is_sample { Some(8) } else { record.bytes().len().checked_sub(size).filter(|&at| at >= 8) };
    // A layout of another kind than the kernel's is that of a HEADER_BUILD_ID's trailer.
    let has_fields = record.kind().is_kernel() || record.kind() == RecordType::HEADER_BUILD_ID;
    let start = start.filter(|_| has_fields && record.bytes().len() >= size);
    let sample = sample_fields(layout.sample_type).filter(move |_| is_sample);
    let trailer = trailer_fields(layout.sample_type).filter(move |_| !is_sample && layout.sample_id_all);
    let bits = sample.chain(trailer).enumerate();
    bits.filter_map(move |(number, bit)| Some((bit, start? + number * 8)))
}

/// Where the ids of a record's own event lie.
pub(crate) fn own_ids<'l>(record: &Record<'_>, layout: &'l Layout) -> impl Iterator<Item = usize> + use<'l> {
    let ids = st::ID | st::STREAM_ID | st::IDENTIFIER;
    fields(record, layout).filter(move |(bit, _)| bit & ids != 0).map(|(_, at)| at)
}

/// Where all ids of a record lie.
pub(crate) fn ids_in(record: &Record<'_>, layout: Option<&Layout>) -> Vec<usize> {
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

/// Where all times of a record lie, ns of the recording's clock.
pub(crate) fn times_in(record: &Record<'_>, layout: Option<&Layout>) -> Vec<usize> {
    let mut places = match record.kind() {
        RecordType::FORK | RecordType::EXIT => vec![24],
        RecordType::THROTTLE | RecordType::UNTHROTTLE => vec![8],
        RecordType::STAT_ROUND => vec![16],
        // Its format says that it has one.
        RecordType::AUXTRACE_ERROR if record.u32(28).is_some_and(|format| format > 0) => vec![40],
        _ => Vec::new(),
    };
    let Some(layout) = layout else { return places };
    places.extend(fields(record, layout).filter(|(bit, _)| *bit == st::TIME).map(|(_, at)| at));
    places
}

/// A kernel record with this IDENTIFIER, which its event does not give it.
pub(crate) fn with_identifier(record: &Record<'_>, id: u64) -> Result<Vec<u8>> {
    let endian = record.endian();
    let mut new = record.bytes().to_vec();
    let size = new.len() + 8;
    if size > RECORD_SIZE_MAX {
        return Err(record.error("with an IDENTIFIER it is larger than a record can be").into());
    }
    let at = if record.kind() == RecordType::SAMPLE { 8 } else { new.len() };
    new.splice(at..at, endian.bytes_u64(id));
    endian.set_u16(&mut new, 6, size as u16);
    Ok(new)
}

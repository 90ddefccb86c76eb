//! Finds event ids in records of any kind, and replaces them.
//!
//! | record | byte | source |
//! |---|---|---|
//! | LOST | 8 | include/uapi/linux/perf_event.h |
//! | THROTTLE, UNTHROTTLE | 16 id, 24 stream id | include/uapi/linux/perf_event.h |
//! | STAT | 8 | tools/lib/perf/include/perf/event.h |
//! | EVENT_UPDATE | 16 | tools/lib/perf/include/perf/event.h |
//! | ID_INDEX | in each entry | tools/lib/perf/include/perf/event.h |
//! | READ | in the counters, from byte 16 on | perf_event_open(2), `read_format` |
//! | SAMPLE, and the trailer of other kernel records | by the event's `sample_type` | perf_event_open(2) |

use std::borrow::Cow;

use super::id_index::IdIndex;
use crate::sample::Read;
use crate::{Cursor, Layout, Record, RecordType, sample_fields, sample_type as st, trailer_fields};

/// Bits of `read_format`.
pub const READ_FORMAT_ID: u64 = 1 << 2;

const READ_FORMAT_GROUP: u64 = 1 << 3;

const READ_FORMAT_LOST: u64 = 1 << 4;

/// The ids in a record's own fields, outside its sample_id.
pub fn ids_named(record: &Record<'_>) -> impl Iterator<Item = u64> {
    record.kind().own_ids().iter().filter_map(|&at| record.u64(at))
}

/// The fields of a sample or trailer, as bits of `sample_type`, with their offsets; none if it is too short.
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

fn own_ids<'l>(record: &Record<'_>, layout: &'l Layout) -> impl Iterator<Item = usize> + use<'l> {
    let ids = st::ID | st::STREAM_ID | st::IDENTIFIER;
    fields(record, layout).filter(move |(bit, _)| bit & ids != 0).map(|(_, at)| at)
}

fn ids_in(record: &Record<'_>, layout: Option<&Layout>) -> Vec<usize> {
    let mut places = record.kind().own_ids().to_vec();
    places.extend(IdIndex::of(record).iter().flat_map(IdIndex::ids_at));
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
pub(crate) fn ids_in_read(read_format: u64, counts: usize) -> impl Iterator<Item = usize> {
    let times = (read_format & 3).count_ones() as usize * 8;
    let lost = if read_format & READ_FORMAT_LOST != 0 { 8 } else { 0 };
    // In a group, the first value follows the count; otherwise the times follow the value.
    (0..counts).map(move |at| {
        let before = 8 + times + if read_format & READ_FORMAT_GROUP != 0 { 8 } else { 0 };
        before + at * (16 + lost)
    })
}

/// Replaces each id in a record for which there is a new one. `bytes` are those of the record, perhaps with
/// other changes already; they are copied only to be changed.
pub fn replace_ids(
    record: &Record<'_>,
    layout: Option<&Layout>,
    bytes: &mut Cow<'_, [u8]>,
    new: impl Fn(u64) -> Option<u64>,
) {
    for at in ids_in(record, layout) {
        if let Some(id) = record.u64(at).and_then(&new) {
            record.endian().set_u64(bytes.to_mut(), at, id);
        }
    }
}

/// Sets the id of a record's own event where it is 0, which means none; `bytes` as for [`replace_ids`].
pub fn set_missing_ids(record: &Record<'_>, layout: &Layout, bytes: &mut Cow<'_, [u8]>, id: u64) {
    for at in own_ids(record, layout).filter(|&at| record.u64(at) == Some(0)) {
        record.endian().set_u64(bytes.to_mut(), at, id);
    }
}

#[cfg(test)]
mod tests {
    use super::super::id_index::{IdEntry, one_id_index};
    use super::*;
    use crate::record::builder::build;
    use crate::{Attr, Endian, Origin};

    const BOTH: [Endian; 2] = [Endian::Little, Endian::Big];

    fn words(words: &[u64], endian: Endian) -> Vec<u8> {
        words.iter().flat_map(|&word| endian.bytes_u64(word)).collect()
    }

    fn layout(sample_type: u64, read_format: u64) -> Layout {
        // Bit 18 is sample_id_all.
        Layout::new(&Attr { sample_type, read_format, flags: 1 << 18, ..Attr::default() })
    }

    fn replaced(bytes: &[u8], layout: Option<&Layout>, endian: Endian) -> Option<Vec<u8>> {
        let record = Record::new(bytes, &[], Origin::Synthetic, endian).unwrap();
        let mut new = Cow::Borrowed(bytes);
        replace_ids(&record, layout, &mut new, |id| (id > 100).then_some(id + 1000));
        matches!(new, Cow::Owned(_)).then(|| new.into_owned())
    }

    #[test]
    fn every_id_of_a_record_is_replaced_and_nothing_else() {
        for endian in BOTH {
            let with = |kind, old: &[u64], layout: &Layout| {
                let old = build(kind, 0, &[&words(old, endian)], endian).unwrap();
                let new = replaced(&old, Some(layout), endian)?;
                Some((1..new.len() / 8).filter_map(|at| endian.u64(&new, at * 8)).collect::<Vec<_>>())
            };
            let trailed = layout(st::TIME | st::ID | st::IDENTIFIER, 0);
            assert_eq!(
                with(RecordType::LOST, &[200, 300, 400, 200, 200], &trailed),
                Some(vec![1200, 300, 400, 1200, 1200])
            );
            assert_eq!(
                with(RecordType::THROTTLE, &[200, 200, 201, 400, 202, 203], &trailed),
                Some(vec![200, 1200, 1201, 400, 1202, 1203])
            );
            // IDENTIFIER, TIME, ID, and a group of two counters.
            let group = READ_FORMAT_GROUP | READ_FORMAT_ID;
            let counted = layout(st::IDENTIFIER | st::TIME | st::ID | st::READ, group);
            assert_eq!(
                with(RecordType::SAMPLE, &[200, 300, 200, 2, 400, 201, 400, 202], &counted),
                Some(vec![1200, 300, 1200, 2, 400, 1201, 400, 1202])
            );
            assert_eq!(with(RecordType::SAMPLE, &[1, 300, 1, 1, 400, 2], &counted), None, "no copy");
            let entry = |id| IdEntry { id, idx: 200, cpu: 200, tid: 200, machine_pid: 200, vcpu: 200 };
            let old = one_id_index(&[entry(1), entry(200)], true, endian);
            assert_eq!(
                replaced(&old, None, endian),
                Some(one_id_index(&[entry(1), entry(1200)], true, endian))
            );
        }
    }

    #[test]
    fn only_a_missing_id_is_set() {
        for endian in BOTH {
            let layout = layout(st::TIME | st::ID | st::IDENTIFIER, 0);
            let old = build(RecordType::COMM, 0, &[&words(&[0, 0, 0, 7], endian)], endian).unwrap();
            let record = Record::new(&old, &[], Origin::Synthetic, endian).unwrap();
            let mut new = Cow::Borrowed(&old[..]);
            set_missing_ids(&record, &layout, &mut new, 9);
            assert_eq!(new[8..], words(&[0, 0, 9, 7], endian));
        }
    }
}

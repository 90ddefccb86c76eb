//! Adds an IDENTIFIER to kernel records that stay, or that move to a recording with other ids and times.

use super::builder::{set_misc, set_size};
use super::ids::{READ_FORMAT_ID, ids_in_read};
use super::time::own_time_at;
use crate::sample::Read;
use crate::{
    Cursor, Endian, HEADER_SIZE, Layout, RECORD_SIZE_MAX, Record, RecordType, Result, sample_fields,
    sample_type as st, trailer_fields,
};

/// Adds this IDENTIFIER, which its event's `sample_type` lacks, to a kernel record.
///
/// # Errors
///
/// The record with 8 more bytes is larger than a record can be.
pub fn with_identifier(record: &Record<'_>, id: u64) -> Result<Vec<u8>> {
    let mut new = Vec::with_capacity(record.bytes().len() + 8);
    write_with_identifier(record, id, &mut new)?;
    Ok(new)
}

/// Appends the result of [`with_identifier`] to `out`.
///
/// # Errors
///
/// As for [`with_identifier`]; then nothing is appended.
pub fn write_with_identifier(record: &Record<'_>, id: u64, out: &mut Vec<u8>) -> Result<()> {
    let (bytes, endian, start) = (record.bytes(), record.endian(), out.len());
    if bytes.len() + 8 > RECORD_SIZE_MAX {
        return Err(record.error("with an IDENTIFIER it is larger than a record can be"));
    }
    let at = if record.kind() == RecordType::SAMPLE { HEADER_SIZE } else { bytes.len() };
    let (front, rest) = bytes.split_at(at);
    out.extend_from_slice(front);
    out.extend_from_slice(&endian.bytes_u64(id));
    out.extend_from_slice(rest);
    set_size(&mut out[start..], endian);
    Ok(())
}

/// The fields that a record gets when it moves to another recording.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct NewFields {
    /// The id of its event.
    pub id: u64,
    /// ns.
    pub time: u64,
    /// `header.misc`.
    pub misc: u16,
}

/// The size of a moved record, and the position of its CPU, which may be known only later.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Moved {
    size: u16,
    cpu_at: Option<u16>,
}

impl Moved {
    /// Its size, bytes.
    pub fn size(&self) -> usize {
        self.size.into()
    }

    /// Sets the CPU in its bytes, if its event records it.
    pub fn set_cpu(&self, record: &mut [u8], cpu: u32, endian: Endian) {
        if let Some(at) = self.cpu_at {
            endian.set_u32(record, at.into(), cpu);
        }
    }
}

/// Appends to `out` the kernel record with an IDENTIFIER and these fields, as if its event had recorded them.
/// Its CPU is 0 until it is set. Ids of other events are replaced by those that `new_id` returns.
///
/// As in perf inject, a FORK or EXIT keeps the time of its own field: readers use that of the trailer.
///
/// # Errors
///
/// The record is too short for its event, or becomes too large. The appended bytes are then invalid.
pub fn write_moved(
    record: &Record<'_>,
    layout: &Layout,
    fields: &NewFields,
    new_id: impl Fn(u64) -> Option<u64>,
    out: &mut Vec<u8>,
) -> Result<Moved> {
    let (start, endian) = (out.len(), record.endian());
    let is_sample = record.kind() == RecordType::SAMPLE;
    if is_sample {
        move_sample(record, layout, fields, new_id, out)?;
    } else {
        move_other(record, layout, fields, new_id, out)?;
    }
    let new = out.get_mut(start..).unwrap_or_default();
    let Some(size) = set_size(new, endian) else {
        return Err(record.error("with an id it is larger than a record can be"));
    };
    set_misc(new, fields.misc, endian);
    let cpu_at = if is_sample {
        let fields = sample_fields(layout.sample_type | st::IDENTIFIER);
        HEADER_SIZE + 8 * fields.take_while(|&bit| bit != st::CPU).count()
    } else {
        // Only the IDENTIFIER of the trailer follows.
        usize::from(size).saturating_sub(16)
    };
    let cpu_at = u16::try_from(cpu_at).ok().filter(|_| layout.sample_type & st::CPU != 0);
    Ok(Moved { size, cpu_at })
}

fn move_sample(
    record: &Record<'_>,
    layout: &Layout,
    fields: &NewFields,
    new_id: impl Fn(u64) -> Option<u64>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let endian = record.endian();
    let Some((fixed, rest)) = record.bytes().split_at_checked(usize::from(layout.sample.size)) else {
        return Err(record.error("too short for its event's sample_type").damaged());
    };
    let (header, fixed) = fixed.split_at(HEADER_SIZE);
    out.extend_from_slice(header);
    let mut old_fields = fixed.chunks_exact(8);
    for bit in sample_fields(layout.sample_type | st::IDENTIFIER) {
        let there = if layout.sample_type & bit == 0 { None } else { old_fields.next() };
        out.extend_from_slice(&field(bit, there, fields, endian));
    }
    let read_at = out.len();
    out.extend_from_slice(rest);
    if layout.sample_type & st::READ != 0 && layout.read_format & READ_FORMAT_ID != 0 {
        let read = Read::take(&mut Cursor::new(rest, endian), layout.read_format);
        let read = read.ok_or_else(|| record.error("its counters do not fit in it").damaged())?;
        for at in ids_in_read(layout.read_format, read.counts().count()) {
            if let Some(id) = endian.u64(out, read_at + at).and_then(&new_id) {
                endian.set_u64(out, read_at + at, id);
            }
        }
    }
    Ok(())
}

fn move_other(
    record: &Record<'_>,
    layout: &Layout,
    fields: &NewFields,
    new_id: impl Fn(u64) -> Option<u64>,
    out: &mut Vec<u8>,
) -> Result<()> {
    let (old, start, endian) = (record.bytes(), out.len(), record.endian());
    let trailer_at = old.len().checked_sub(layout.trailer.size.into()).filter(|&at| at >= HEADER_SIZE);
    let trailer_at =
        trailer_at.ok_or_else(|| record.error("too short for its event's sample_id").damaged())?;
    out.extend_from_slice(&old[..trailer_at]);
    let mut old_fields = old[trailer_at..].chunks_exact(8);
    for bit in trailer_fields(layout.sample_type | st::IDENTIFIER) {
        let there = if layout.sample_type & bit == 0 { None } else { old_fields.next() };
        out.extend_from_slice(&field(bit, there, fields, endian));
    }
    let new = out.get_mut(start..).unwrap_or_default();
    for &at in record.kind().own_ids().iter().filter(|&&at| at + 8 <= trailer_at) {
        if let Some(id) = endian.u64(new, at).and_then(&new_id) {
            endian.set_u64(new, at, id);
        }
    }
    let throttled = matches!(record.kind(), RecordType::THROTTLE | RecordType::UNTHROTTLE);
    if let Some(at) = own_time_at(record).filter(|&at| throttled && at + 8 <= trailer_at) {
        endian.set_u64(new, at, fields.time);
    }
    Ok(())
}

/// Eight bytes of a fixed field; `old` holds the old ones, if the record has the field.
#[inline]
fn field(bit: u64, old: Option<&[u8]>, fields: &NewFields, endian: Endian) -> [u8; 8] {
    match bit {
        st::TIME => endian.bytes_u64(fields.time),
        st::ID | st::STREAM_ID | st::IDENTIFIER => endian.bytes_u64(fields.id),
        st::CPU => [0; 8],
        _ => old.and_then(|old| old.try_into().ok()).unwrap_or_default(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::builder::build;
    use crate::{Attr, Origin};

    const BOTH: [Endian; 2] = [Endian::Little, Endian::Big];

    fn layouts(sample_type: u64, read_format: u64) -> [Layout; 2] {
        // Bit 18 is sample_id_all.
        let attr = |sample_type| Attr { sample_type, read_format, flags: 1 << 18, ..Attr::default() };
        [sample_type, sample_type | st::IDENTIFIER].map(|bits| Layout::new(&attr(bits)))
    }

    fn made(kind: RecordType, words: &[u64], endian: Endian) -> Vec<u8> {
        let body: Vec<u8> = words.iter().flat_map(|&word| endian.bytes_u64(word)).collect();
        build(kind, 2, &[&body], endian).unwrap()
    }

    fn words(record: &[u8], endian: Endian) -> Vec<u64> {
        (1..record.len() / 8).filter_map(|at| endian.u64(record, at * 8)).collect()
    }

    fn view(bytes: &[u8], endian: Endian) -> Record<'_> {
        Record::new(bytes, &[], Origin::Synthetic, endian).unwrap()
    }

    const NEW: NewFields = NewFields { id: 91, time: 92, misc: 5 };

    #[test]
    fn an_identifier_is_read_where_it_was_added() {
        for endian in BOTH {
            let [old, new] = layouts(st::IP | st::TIME, 0);
            for kind in [RecordType::SAMPLE, RecordType::COMM] {
                let bytes = made(kind, &[1, 2, 3], endian);
                let added = with_identifier(&view(&bytes, endian), 9).unwrap();
                let (before, after) = (view(&bytes, endian), view(&added, endian));
                assert_eq!((new.id(&after), new.time(&after)), (Some(9), old.time(&before)));
                assert_eq!((old.id(&before), added.len()), (None, bytes.len() + 8));
            }
            let large = made(RecordType::COMM, &[0; 8190], endian);
            let error = with_identifier(&view(&large, endian), 9).unwrap_err();
            assert_eq!(error.what(), "with an IDENTIFIER it is larger than a record can be");
        }
    }

    #[test]
    fn a_moved_record_is_read_with_its_new_fields_and_its_old_others() {
        let other_id = |id| (id == 7).then_some(70);
        for endian in BOTH {
            for identified in [0, st::IDENTIFIER] {
                let sample_type = identified | st::IP | st::TID | st::TIME | st::ID | st::CPU | st::READ;
                let [layout, new] = layouts(sample_type, READ_FORMAT_ID);
                let front: &[u64] = if identified == 0 { &[] } else { &[6] };
                // IP, TID, TIME, ID, CPU, then a counter and its id.
                let sample = [front, &[11, 12, 13, 6, 15, 16, 7]].concat();
                let sample = made(RecordType::SAMPLE, &sample, endian);
                let mut out = vec![0xee];
                let moved = write_moved(&view(&sample, endian), &layout, &NEW, other_id, &mut out).unwrap();
                moved.set_cpu(&mut out[1..], 4, endian);
                assert_eq!(out.len(), 1 + moved.size());
                let after = view(&out[1..], endian);
                assert_eq!((after.kind(), after.misc()), (RecordType::SAMPLE, NEW.misc));
                assert_eq!(
                    (new.id(&after), new.recorded_time(&after), new.cpu(&after)),
                    (Some(91), Some(92), Some(4))
                );
                assert_eq!(
                    (new.ip(&after), new.pid_tid(&after)),
                    (Some(11), layout.pid_tid(&view(&sample, endian)))
                );
                assert_eq!(words(&out[1..], endian)[4], 91, "ID as well as IDENTIFIER");
                assert_eq!(words(&out[1..], endian)[6..], [16, 70]);

                // THROTTLE: time, id, stream id; then the trailer: TID, TIME, ID, CPU.
                let back: &[u64] = if identified == 0 { &[] } else { &[6] };
                let throttle = [&[13, 7, 8, 12, 13, 6, 15], back].concat();
                let throttle = made(RecordType::THROTTLE, &throttle, endian);
                let mut out = Vec::new();
                let moved = write_moved(&view(&throttle, endian), &layout, &NEW, other_id, &mut out).unwrap();
                moved.set_cpu(&mut out, 4, endian);
                let after = view(&out, endian);
                assert_eq!(
                    (new.id(&after), new.recorded_time(&after), new.cpu(&after)),
                    (Some(91), Some(92), Some(4))
                );
                assert_eq!(words(&out, endian)[..6], [92, 70, 8, 12, 92, 91]);
                assert_eq!(moved.size(), out.len());
            }
        }
    }

    #[test]
    fn a_record_that_is_too_short_or_too_long_is_an_error() {
        let endian = Endian::Little;
        let [layout, _] = layouts(st::TIME | st::READ, READ_FORMAT_ID);
        let failed = |kind, words: &[u64]| {
            let bytes = made(kind, words, endian);
            let moved = write_moved(&view(&bytes, endian), &layout, &NEW, |_| None, &mut Vec::new());
            moved.unwrap_err().what().to_owned()
        };
        assert_eq!(failed(RecordType::SAMPLE, &[]), "too short for its event's sample_type");
        assert_eq!(failed(RecordType::SAMPLE, &[1, 2]), "its counters do not fit in it");
        assert_eq!(failed(RecordType::COMM, &[]), "too short for its event's sample_id");
        assert_eq!(failed(RecordType::COMM, &[0; 8190]), "with an id it is larger than a record can be");
    }
}

//! Builds records from their parts, and changes the header of one.

use crate::{Endian, HEADER_SIZE, RECORD_SIZE_MAX, RecordType};

const MISC: usize = 4;
const SIZE: usize = 6;

/// Builds a record from a header and these parts. `None` if it is larger than a record can be.
pub fn build(kind: RecordType, misc: u16, parts: &[&[u8]], endian: Endian) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(HEADER_SIZE + parts.iter().map(|part| part.len()).sum::<usize>());
    start(&mut bytes, kind, misc, endian)?;
    parts.iter().for_each(|part| bytes.extend_from_slice(part));
    set_size(&mut bytes, endian)?;
    Some(bytes)
}

/// Begins a record after these bytes with its header, which gets its size at the end ([`set_size`]).
pub(crate) fn start(bytes: &mut Vec<u8>, kind: RecordType, misc: u16, endian: Endian) -> Option<()> {
    let at = bytes.len();
    bytes.resize(at + HEADER_SIZE, 0);
    endian.set_u32(bytes, at, kind.0)?;
    set_misc(&mut bytes[at..], misc, endian);
    Some(())
}

/// A FINISHED_ROUND: only a header.
pub fn finished_round(endian: Endian) -> [u8; HEADER_SIZE] {
    let mut record = [0; HEADER_SIZE];
    endian.set_u32(&mut record, 0, RecordType::FINISHED_ROUND.0);
    endian.set_u16(&mut record, SIZE, HEADER_SIZE as u16);
    record
}

/// Sets the `misc` of a record.
pub fn set_misc(record: &mut [u8], misc: u16, endian: Endian) {
    endian.set_u16(record, MISC, misc);
}

/// Inserts zeros before the last `trailer` bytes of a record, or returns `None` if it would be too large.
pub fn pad(record: &mut Vec<u8>, trailer: usize, zeros: usize, endian: Endian) -> Option<()> {
    let at = record.len().checked_sub(trailer).filter(|&at| at >= HEADER_SIZE)?;
    if record.len() + zeros > RECORD_SIZE_MAX {
        return None;
    }
    record.splice(at..at, std::iter::repeat_n(0, zeros));
    set_size(record, endian).map(|_| ())
}

/// Sets the header's size to the record's length; `None`, without a change, if a record can't be as long.
pub fn set_size(record: &mut [u8], endian: Endian) -> Option<u16> {
    let size = u16::try_from(record.len()).ok().filter(|&size| usize::from(size) <= RECORD_SIZE_MAX)?;
    endian.set_u16(record, SIZE, size)?;
    Some(size)
}

//! Reads and writes build-id entries, the same in a BUILD_ID section and in a HEADER_BUILD_ID record.

use std::ops::Range;

use super::builder::set_size;
use super::cpumode;
use super::reader::Reader;
use crate::value::bytes_of;
use crate::{Endian, FaultCode, RECORD_SIZE_MAX, Record, RecordType, Value, until_nul};

const FIXED: usize = 36;

/// Bit 15 of `misc`: the byte after the id is the length of the id.
pub const BUILD_ID_SIZE_VALID: u16 = 1 << 15;

/// A build-id: `struct perf_record_header_build_id` (tools/lib/perf/include/perf/event.h).
///
/// | byte | |
/// |---|---|
/// | 0 | u32 type (67; 0 in the section), u16 misc, u16 size of the whole entry, which need not be a multiple of 8 |
/// | 8 | s32 pid |
/// | 12 | id, 20 bytes |
/// | 32 | u8 length of the id, valid with bit 15 of misc; 3 bytes of padding |
/// | 36 | file name, a NUL, zeros; in pipe data a sample_id trailer may follow |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BuildIdEntry<'a> {
    /// Bits 0-2: cpumode (1 kernel, 2 user, 4 guest kernel, 5 guest user); bit 15: [`BUILD_ID_SIZE_VALID`].
    pub misc: u16,
    /// -1 for the host, 0 for the default guest, else the pid of the guest.
    pub pid: i32,
    /// At most 20 bytes. If bit 15 of `misc` is not set, all 20, with zeros after a shorter id.
    pub id: &'a [u8],
    /// Path of the DSO, or a name like `[kernel.kallsyms]`.
    pub filename: &'a [u8],
}

impl<'a> BuildIdEntry<'a> {
    /// An entry with the length of its id. `cpumode`: bits 0-2 of `misc`.
    pub fn new(cpumode: u16, pid: i32, id: &'a [u8], filename: &'a [u8]) -> Self {
        BuildIdEntry { misc: cpumode | BUILD_ID_SIZE_VALID, pid, id, filename }
    }

    /// Reads the entry, header included, at the front of `bytes`; `None` if its size is impossible.
    pub fn read(bytes: &'a [u8], endian: Endian) -> Option<Self> {
        let bytes = entry(bytes, FIXED, endian)?;
        let misc = endian.u16(bytes, 4)?;
        let length = if misc & BUILD_ID_SIZE_VALID != 0 { bytes[32].min(20) } else { 20 };
        Some(BuildIdEntry {
            misc,
            pid: endian.u32(bytes, 8)? as i32,
            id: &bytes[12..12 + usize::from(length)],
            filename: until_nul(&bytes[FIXED..]),
        })
    }

    pub(crate) fn decode(misc: u16, d: &mut Reader<'_>) -> Option<()> {
        d.any::<u32>("pid")?;
        let id = d.take("build_id", 20)?;
        let size = d.int::<u8>("size")?;
        let length = if misc & BUILD_ID_SIZE_VALID == 0 { 20 } else { size.into() };
        d.note("build_id", Value::Bytes(&id[..length.min(20)]));
        d.add_gap(length.min(20)..20, 21);
        if !(1..=20).contains(&length) {
            d.add_issue(FaultCode::BuildIdSize, format!("a build-id of {}", bytes_of(length)));
        }
        d.skip("reserved", 3)?;
        d.text("filename")
    }

    /// The [`cpumode`] of the DSO.
    pub fn cpumode(&self) -> u16 {
        cpumode::of(self.misc)
    }

    /// Size up to the NUL after the file name, header included, bytes.
    pub fn size(&self) -> usize {
        FIXED + self.filename.len() + 1
    }

    pub(crate) fn gaps(&self, size: usize, without_pid: bool) -> [Range<usize>; 3] {
        // Only the newer layout has a byte for the length of the id.
        let (id, length, name) = if without_pid { (8, 0, 32) } else { (12, 1, FIXED) };
        [id + self.id.len()..id + 20, id + 20 + length..name, name + self.filename.len()..size]
    }

    /// Appends the entry to a BUILD_ID section as perf does since 6.12: type 0, the name with its NUL padded
    /// to 8 bytes. Returns `None` and appends nothing if the id is longer than 20 bytes or the entry than
    /// 65535.
    pub fn write_section(&self, endian: Endian, out: &mut Vec<u8>) -> Option<()> {
        let size = FIXED + (self.filename.len() + 1).next_multiple_of(8);
        self.write(0, size, &[], endian, out)
    }

    /// Appends a HEADER_BUILD_ID record with a `trailer` (the zeros of a sample_id, or nothing), padded to 8
    /// bytes. Returns `None` and appends nothing if the id is longer than 20 bytes or the record than 65535.
    pub fn write_record(&self, trailer: &[u8], endian: Endian, out: &mut Vec<u8>) -> Option<()> {
        let size = (FIXED + self.filename.len() + 1).next_multiple_of(8) + trailer.len();
        self.write(RecordType::HEADER_BUILD_ID.0, size, trailer, endian, out)
    }

    fn write(&self, kind: u32, size: usize, trailer: &[u8], endian: Endian, out: &mut Vec<u8>) -> Option<()> {
        let (length, header_size) = (u8::try_from(self.id.len()).ok()?, u16::try_from(size).ok()?);
        if length > 20 {
            return None;
        }
        // Only an id of 20 bytes is unambiguous without its length.
        let sized = self.misc & BUILD_ID_SIZE_VALID != 0 || length != 20;
        let end = out.len() + size;
        out.extend(endian.bytes_u32(kind));
        out.extend(endian.bytes_u16(if sized { self.misc | BUILD_ID_SIZE_VALID } else { self.misc }));
        out.extend(endian.bytes_u16(header_size));
        out.extend(endian.bytes_u32(self.pid as u32));
        out.extend(self.id);
        out.resize(end - size + 32, 0);
        out.extend([if sized { length } else { 0 }, 0, 0, 0]);
        out.extend(self.filename);
        out.resize(end - trailer.len(), 0);
        out.extend(trailer);
        Some(())
    }

    /// Reads an entry of perf before 2.6.34, which has no pid: the id at byte 8, the file name at byte 32.
    pub(crate) fn read_without_pid(bytes: &'a [u8], endian: Endian) -> Option<Self> {
        let bytes = entry(bytes, 32, endian)?;
        let filename = until_nul(&bytes[32..]);
        Some(BuildIdEntry { misc: endian.u16(bytes, 4)?, pid: -1, id: &bytes[8..28], filename })
    }
}

/// Replaces the id of an entry of feature BUILD_ID, or of a HEADER_BUILD_ID record; at most 20 bytes. Returns
/// `None` and changes nothing if it does not fit.
pub fn set_build_id(entry: &mut [u8], id: &[u8], endian: Endian) -> Option<()> {
    if id.len() > 20 || entry.len() < FIXED {
        return None;
    }
    let misc = endian.u16(entry, 4)?;
    endian.set_u16(entry, 4, misc | BUILD_ID_SIZE_VALID)?;
    entry[12..FIXED].fill(0);
    entry[12..12 + id.len()].copy_from_slice(id);
    entry[32] = id.len() as u8;
    Some(())
}

/// The entry at the front of `bytes`, if it has at least `smallest` bytes.
fn entry(bytes: &[u8], smallest: usize, endian: Endian) -> Option<&[u8]> {
    bytes.get(..usize::from(endian.u16(bytes, 6)?)).filter(|entry| entry.len() >= smallest)
}

/// The record as newer perf requires it, if it differs: its size is a multiple of 8, and its name ends in
/// NUL. perf 6.1 injects records of 100 bytes. The trailer of `trailer` bytes stays last.
pub fn aligned(record: &Record<'_>, trailer: usize) -> Option<Vec<u8>> {
    let (bytes, endian) = (record.bytes(), record.endian());
    let name = bytes.get(FIXED..)?;
    let ends = name.contains(&0);
    let size = (bytes.len() + usize::from(!ends)).next_multiple_of(8);
    if size == bytes.len() || size > RECORD_SIZE_MAX {
        return None;
    }
    let name_end = FIXED + until_nul(name).len() + usize::from(ends);
    let trailer = if name_end + trailer <= bytes.len() { trailer } else { 0 };
    let (front, back) = bytes.split_at(bytes.len() - trailer);
    let mut new = front.to_vec();
    new.resize(size - trailer, 0);
    new.extend(back);
    set_size(&mut new, endian)?;
    Some(new)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Origin;

    fn record(name: &[u8], trailer: &[u8]) -> Vec<u8> {
        let mut bytes = vec![67, 0, 0, 0, 2, 0, 0, 0, 0xff, 0xff, 0xff, 0xff];
        bytes.resize(FIXED, 7);
        bytes.extend(name);
        bytes.extend(trailer);
        bytes[6] = bytes.len() as u8;
        bytes
    }

    fn aligned_bytes(bytes: &[u8], trailer: usize) -> Option<Vec<u8>> {
        aligned(&Record::new(bytes, &[], Origin::Synthetic, Endian::Little).unwrap(), trailer)
    }

    #[test]
    fn the_trailer_of_a_padded_record_stays_at_its_end() {
        let old = record(b"/usr/bin/x\0\0", &[9; 16]);
        assert_eq!(old.len(), 64);
        assert_eq!(aligned_bytes(&old, 16), None);
        let old = record(b"/bin/x\0\0", &[9; 16]);
        let new = aligned_bytes(&old, 16).unwrap();
        assert_eq!((old.len(), new.len()), (60, 64));
        assert_eq!((&new[36..48], &new[48..]), (&b"/bin/x\0\0\0\0\0\0"[..], &[9; 16][..]));
        assert_eq!(aligned_bytes(&new, 16), None);
    }

    #[test]
    fn an_unterminated_name_is_terminated() {
        let new = aligned_bytes(&record(b"/usr/bin/xyz", &[]), 16).unwrap();
        assert_eq!(&new[36..], b"/usr/bin/xyz\0\0\0\0\0\0\0\0");
        assert_eq!(aligned_bytes(&new, 16), None);
    }
}

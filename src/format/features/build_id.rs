//! Reads and writes build-id entries, which look alike in a BUILD_ID section and in a HEADER_BUILD_ID record, whichever perf wrote them.

use std::collections::HashSet;

use crate::{Endian, Record, RecordType, until_nul};

/// Bytes before the file name.
const FIXED: usize = 36;

/// Bit 15 of `misc`: the byte behind the id says how long the id is.
pub const BUILD_ID_SIZE_VALID: u16 = 1 << 15;

/// A build-id: `struct perf_record_header_build_id` (tools/lib/perf/include/perf/event.h).
///
/// | byte | |
/// |---|---|
/// | 0 | u32 type (67; 0 in the section), u16 misc, u16 size of the whole entry, which need not be a multiple of 8 |
/// | 8 | s32 pid |
/// | 12 | id, 20 bytes |
/// | 32 | u8 length of the id, valid with bit 15 of misc; 3 bytes of padding |
/// | 36 | file name, a NUL, zeros; in a pipe a sample_id trailer may follow |
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct BuildIdEntry<'a> {
    /// Bits 0-2: cpumode of the DSO (1 kernel, 2 user, 4 guest kernel, 5 guest user); bit 15: [`BUILD_ID_SIZE_VALID`].
    pub misc: u16,
    /// -1 for the host, 0 for the default guest, else the pid of the guest.
    pub pid: i32,
    /// At most 20 bytes. All 20, with zeros behind a shorter id, where bit 15 of `misc` is not set.
    pub id: &'a [u8],
    /// Path of the DSO, or a name like `[kernel.kallsyms]`.
    pub filename: &'a [u8],
}

impl<'a> BuildIdEntry<'a> {
    /// An entry that says how long its id is. `cpumode`: bits 0-2 of `misc`.
    pub fn new(cpumode: u16, pid: i32, id: &'a [u8], filename: &'a [u8]) -> Self {
        BuildIdEntry { misc: cpumode | BUILD_ID_SIZE_VALID, pid, id, filename }
    }

    /// Reads the entry, header included, at the front of `bytes`; `None` when its size can't be right.
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

    /// Appends the entry to a BUILD_ID section as perf does since 6.12: type 0, the name with its NUL padded to 8 bytes. `None`, and nothing
    /// appended, when the id is longer than 20 bytes or the entry than 65535.
    pub fn write_section(&self, endian: Endian, out: &mut Vec<u8>) -> Option<()> {
        let size = FIXED + (self.filename.len() + 1).next_multiple_of(8);
        self.write(0, size, &[], endian, out)
    }

    /// Appends a HEADER_BUILD_ID record with a `trailer` (the zeros of a sample_id, or nothing), padded to 8 bytes. `None`, and nothing
    /// appended, when the id is longer than 20 bytes or the record than 65535.
    pub fn write_record(&self, trailer: &[u8], endian: Endian, out: &mut Vec<u8>) -> Option<()> {
        let size = (FIXED + self.filename.len() + 1).next_multiple_of(8) + trailer.len();
        self.write(RecordType::HEADER_BUILD_ID.0, size, trailer, endian, out)
    }

    fn write(&self, kind: u32, size: usize, trailer: &[u8], endian: Endian, out: &mut Vec<u8>) -> Option<()> {
        let (length, header_size) = (u8::try_from(self.id.len()).ok()?, u16::try_from(size).ok()?);
        if length > 20 {
            return None;
        }
        // Only an id of 20 bytes means the same without its length.
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

    /// Reads an entry of perf before 2.6.34, which knew no pid: the id at byte 8, the file name at byte 32.
    fn read_without_pid(bytes: &'a [u8], endian: Endian) -> Option<Self> {
        let bytes = entry(bytes, 32, endian)?;
        let filename = until_nul(&bytes[32..]);
        Some(BuildIdEntry { misc: endian.u16(bytes, 4)?, pid: -1, id: &bytes[8..28], filename })
    }
}

/// Gives an entry of feature BUILD_ID, or a HEADER_BUILD_ID record, another id of at most 20 bytes. `None`, and nothing changed, where it does not fit.
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

/// The entry of at least `smallest` bytes at the front.
fn entry(bytes: &[u8], smallest: usize, endian: Endian) -> Option<&[u8]> {
    bytes.get(..usize::from(endian.u16(bytes, 6)?)).filter(|entry| entry.len() >= smallest)
}

/// PATH_MAX: what the name in an entry may have with its NUL, bytes.
pub const BUILD_ID_NAME_MAX: usize = 4096;

/// The entries of a BUILD_ID section. Ends before the first one whose size can't be right; [`BuildIds::rest`] tells whether there was one.
#[derive(Clone, Debug)]
pub struct BuildIds<'a> {
    rest: &'a [u8],
    endian: Endian,
    /// Made by perf before 2.6.34.
    without_pid: bool,
}

impl<'a> BuildIds<'a> {
    /// Starts at the front.
    pub fn new(section: &'a [u8], endian: Endian) -> Self {
        let mut ids = BuildIds { rest: section, endian, without_pid: false };
        // Nothing in an entry tells its version; but read as a newer one, the kernel's lacks the first four letters.
        ids.without_pid = ids.clone().any(|entry| entry.filename == b"nel.kallsyms]");
        ids
    }

    /// The next entry and its bytes.
    pub fn split(&mut self) -> Option<(&'a [u8], BuildIdEntry<'a>)> {
        let read = if self.without_pid { BuildIdEntry::read_without_pid } else { BuildIdEntry::read };
        let entry = read(self.rest, self.endian)?;
        let (bytes, rest) = self.rest.split_at_checked(usize::from(self.endian.u16(self.rest, 6)?))?;
        self.rest = rest;
        Some((bytes, entry))
    }

    /// Every perf reads an entry that [`BuildIds::split`] returned: its name ends, and fits into the buffer (PATH_MAX) into which perf 6.1 reads it
    /// without looking; its id has at most 20 bytes.
    pub fn every_perf_reads(&self, bytes: &[u8], entry: &BuildIdEntry<'_>) -> bool {
        let name = bytes.get(36..).unwrap_or_default();
        let sized = entry.misc & BUILD_ID_SIZE_VALID == 0 || bytes.get(32).is_some_and(|&size| size <= 20);
        self.without_pid || sized && name.contains(&0) && name.len() <= BUILD_ID_NAME_MAX
    }

    /// The bytes that are not entries, once the iterator has ended.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The section was made by perf before 2.6.34, whose entries have no pid.
    pub fn without_pid(&self) -> bool {
        self.without_pid
    }
}

impl<'a> Iterator for BuildIds<'a> {
    type Item = BuildIdEntry<'a>;

    fn next(&mut self) -> Option<BuildIdEntry<'a>> {
        self.split().map(|(_, entry)| entry)
    }
}

/// Build-ids by the names of their files, as feature BUILD_ID has them.
#[derive(Clone, Default, Debug)]
pub struct NamedIds(HashSet<(Vec<u8>, Vec<u8>)>);

impl NamedIds {
    /// Of this section.
    pub fn new(section: &[u8], endian: Endian) -> NamedIds {
        let named = BuildIds::new(section, endian);
        NamedIds(named.map(|entry| (entry.filename.to_vec(), trimmed_id(entry.id).to_vec())).collect())
    }

    /// An MMAP2 record holds, where device and inode stand in others, the very id that its file has here, so that bit 14 of its `misc` is right
    /// whatever else its bytes could mean.
    pub fn prove(&self, record: &Record<'_>) -> bool {
        // u8 size, u8 0, u16 0, 20 bytes of id with zeros behind; u32 prot, flags; file name.
        let union = record.bytes().get(40..64).filter(|_| record.kind() == RecordType::MMAP2);
        let Some((head, id)) = union.and_then(|union| union.split_at_checked(4)) else { return false };
        let name = until_nul(record.bytes().get(72..).unwrap_or_default());
        let id = trimmed_id(id);
        let size = usize::from(head[0]);
        let fits = (1..=20).contains(&size) && id.len() <= size && !id.is_empty();
        fits && head[1..] == [0; 3] && self.0.contains(&(name.to_vec(), id.to_vec()))
    }
}

/// An id without the zeros that may stand behind it: it may be said with its length, or without and with zeros up to 20 bytes.
pub fn trimmed_id(id: &[u8]) -> &[u8] {
    let end = id.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &id[..end]
}

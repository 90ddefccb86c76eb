//! Reads the entries of a BUILD_ID section, and looks up their ids by file name.

use std::collections::HashSet;

use crate::record::build_id::{BUILD_ID_SIZE_VALID, BuildIdEntry};
use crate::{Endian, PATH_MAX, Record, RecordType, until_nul};

/// The entries of a BUILD_ID section. Stops at the first entry with an impossible size; [`BuildIds::rest`]
/// then returns the remaining bytes.
#[derive(Clone, Debug)]
pub struct BuildIds<'a> {
    rest: &'a [u8],
    endian: Endian,
    /// True if perf before 2.6.34 wrote it.
    without_pid: bool,
}

impl<'a> BuildIds<'a> {
    /// Starts at the front of the section.
    pub fn new(section: &'a [u8], endian: Endian) -> Self {
        let mut ids = BuildIds { rest: section, endian, without_pid: false };
        // Entries carry no version. In the newer layout, the kernel's name lacks its first four letters.
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

    /// True if every perf reads an entry that [`BuildIds::split`] returned: its name is terminated and fits
    /// into PATH_MAX bytes, to which perf 6.1 copies it unchecked, and its id has at most 20 bytes.
    pub fn every_perf_reads(&self, bytes: &[u8], entry: &BuildIdEntry<'_>) -> bool {
        let name = bytes.get(36..).unwrap_or_default();
        let sized = entry.misc & BUILD_ID_SIZE_VALID == 0 || bytes.get(32).is_some_and(|&size| size <= 20);
        self.without_pid || sized && name.contains(&0) && name.len() <= PATH_MAX
    }

    /// The bytes that are not entries, after the iterator has ended.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// True if perf before 2.6.34 wrote the section: its entries have no pid.
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

/// Build-ids by file name, from feature BUILD_ID.
#[derive(Clone, Default, Debug)]
pub struct NamedIds(HashSet<(Vec<u8>, Vec<u8>)>);

impl NamedIds {
    /// Reads them from this section.
    pub fn new(section: &[u8], endian: Endian) -> NamedIds {
        let named = BuildIds::new(section, endian);
        NamedIds(named.map(|entry| (entry.filename.to_vec(), trimmed_id(entry.id).to_vec())).collect())
    }

    /// True if an MMAP2 record contains, in place of device and inode, the id that feature BUILD_ID has for
    /// its file. Bit 14 of its `misc` is then right, whatever else the bytes could mean.
    pub fn prove(&self, record: &Record<'_>) -> bool {
        // u8 size, u8 0, u16 0, the id padded with zeros to 20 bytes; u32 prot, flags; file name.
        let union = record.bytes().get(40..64).filter(|_| record.kind() == RecordType::MMAP2);
        let Some((head, id)) = union.and_then(|union| union.split_at_checked(4)) else { return false };
        let name = until_nul(record.bytes().get(72..).unwrap_or_default());
        let id = trimmed_id(id);
        let size = usize::from(head[0]);
        let fits = (1..=20).contains(&size) && id.len() <= size && !id.is_empty();
        fits && head[1..] == [0; 3] && self.0.contains(&(name.to_vec(), id.to_vec()))
    }
}

/// An id without trailing zeros: an id may be stored with its length, or padded with zeros to 20 bytes.
pub fn trimmed_id(id: &[u8]) -> &[u8] {
    let end = id.iter().rposition(|&byte| byte != 0).map_or(0, |last| last + 1);
    &id[..end]
}

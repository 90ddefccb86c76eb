//! Reads and writes lists of numbered entries: BPF_PROG_INFO, BPF_BTF, PMU_MAPPINGS (u32 count, entries).

use crate::{Cursor, Endian, until_nul};

/// The fields before the bytes of an entry, in a list whose entries have a number.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ListedBy {
    /// u32 info size, u32 data size, u64 arrays, `struct bpf_prog_info` (its id at 4), data.
    Programs,
    /// u32 id, u32 size, bytes: types of BPF programs; PMUs, by their `attr.type`.
    Number,
}

/// The number and the bytes of each entry; `None` if the section ends inside one.
pub fn numbered_entries(section: &[u8], by: ListedBy, endian: Endian) -> Option<Vec<(u32, &[u8])>> {
    let mut cursor = Cursor::new(section, endian);
    let count = cursor.u32()?;
    let entry = |cursor: &mut Cursor<'_>| {
        let start = cursor.at();
        let (first, second) = (cursor.u32()?, cursor.u32()?);
        let (number, size) = match by {
            ListedBy::Number => (first, second as usize),
            ListedBy::Programs => {
                cursor.u64()?;
                (endian.u32(cursor.rest(), 4)?, (first as usize).checked_add(second as usize)?)
            }
        };
        cursor.bytes(size)?;
        Some((number, section.get(start..cursor.at())?))
    };
    (0..count).map(|_| entry(&mut cursor)).collect()
}

/// The PMUs of a PMU_MAPPINGS section: each `attr.type` and name. `None` if the section ends inside an entry.
pub fn pmu_names(section: &[u8], endian: Endian) -> Option<Vec<(u32, &[u8])>> {
    let entries = numbered_entries(section, ListedBy::Number, endian)?;
    // The number and the size come before the name.
    let names =
        entries.iter().map(|&(number, entry)| (number, until_nul(entry.get(8..).unwrap_or_default())));
    Some(names.collect())
}

/// True for the PMUs of probes: the names and attrs of their events have paths, functions and addresses.
pub fn is_probe_pmu(name: &[u8]) -> bool {
    name == b"kprobe" || name == b"uprobe"
}

/// A section of these entries; `None` if there are too many.
pub fn write_numbered<'a>(
    entries: impl ExactSizeIterator<Item = &'a [u8]>,
    endian: Endian,
) -> Option<Vec<u8>> {
    let mut out = endian.bytes_u32(u32::try_from(entries.len()).ok()?).to_vec();
    entries.for_each(|bytes| out.extend_from_slice(bytes));
    Some(out)
}

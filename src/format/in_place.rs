//! Changes one feature section of a file without moving its data, so that at every instant, power cut included, the file is a whole recording.
//!
//! Where the table lies follows from the data section, and which slots it has from the bitmap in the header, so a new slot can't appear in
//! one step. What can is the header: its 104 bytes lie in one sector of any disk. So everything new is appended behind the file first, with a
//! journal that holds the new bitmap and table. Then the header points at the journal (in `event_types`, which no reader has looked at since
//! perf 3.x) and shows only features whose slots stay as they are; then the table is written; then the header shows all. Each step is on disk
//! before the next begins. perf sees a valid recording in between, for a moment with fewer features; perfx sees all of them at any time.

use std::fs::File;
use std::os::unix::fs::FileExt;

use crate::header::{FILE_HEADER_SIZE, FileHeader, SLOT_SIZE, Section, feature_bitmap};
use crate::{Endian, Error, Feature, Result};

const MAGIC: &[u8; 8] = b"PERFXJNL";

/// The feature table that an interrupted change had in mind.
///
/// | byte | |
/// |---|---|
/// | 0 | `PERFXJNL` |
/// | 8 | feature bitmap, 32 bytes |
/// | 40 | a slot for each set bit, ascending: u64 offset, u64 size |
/// | end - 8 | u64 FNV-1a of all before it |
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Journal {
    pub(crate) slots: Vec<(Feature, Section)>,
}

impl Journal {
    /// Reads it; `None` for anything else, such as what perf before 3.x kept there.
    pub(crate) fn read(bytes: &[u8], endian: Endian) -> Option<Journal> {
        let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
        if body.get(..8)? != MAGIC || endian.u64(sum, 0)? != checksum(body) {
            return None;
        }
        let bits = crate::header::feature_bits(body.get(8..40)?, endian, 8);
        let slots =
            body.get(40..)?.chunks_exact(SLOT_SIZE as usize).map(|slot| Section::read(slot, 0, endian));
        (bits.len() == slots.len()).then(|| Journal { slots: bits.into_iter().zip(slots).collect() })
    }

    fn write(&self, endian: Endian) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(feature_bitmap(self.slots.iter().map(|&(feature, _)| feature), endian));
        bytes.extend(table(&self.slots, endian));
        bytes.extend(endian.bytes_u64(checksum(&bytes)));
        bytes
    }
}

/// 64-bit FNV-1a: enough to tell a journal from what happens to lie there.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

fn table(slots: &[(Feature, Section)], endian: Endian) -> Vec<u8> {
    let words = slots.iter().flat_map(|(_, section)| [section.offset, section.size]);
    words.flat_map(|word| endian.bytes_u64(word)).collect()
}

/// Gives `feature` the section `bytes`. `file` is open for writing, and `header` was just read from it. False, and nothing done, where that is
/// not possible without moving the data: a header of 72 bytes, a damaged file, something other than a section behind the feature table.
pub fn replace_section(file: &File, header: &FileHeader, feature: Feature, bytes: &[u8]) -> Result<bool> {
    let endian = header.magic.endian;
    let interrupted = header.faults.iter().all(|fault| fault.code == INTERRUPTED);
    if header.magic.size != FILE_HEADER_SIZE as u64 || !interrupted {
        return Ok(false);
    }
    let io = |e| Error::io("the file can't be changed in place", e);
    let mut end = file.metadata().map_err(io)?.len();
    let mut appended = Vec::new();
    let mut append = |bytes: &[u8]| {
        let section = Section { offset: end, size: bytes.len() as u64 };
        appended.extend_from_slice(bytes);
        end += section.size;
        section
    };
    let mut slots: Vec<(Feature, Section)> =
        header.sections.iter().filter(|(f, _)| *f != feature).copied().collect();
    slots.push((feature, append(bytes)));
    slots.sort_unstable_by_key(|(feature, _)| *feature);
    // A table that grows may come to lie over sections; those go behind the file, too.
    let table_at = Section { offset: header.data.end(), size: slots.len() as u64 * SLOT_SIZE };
    if header.attrs.overlaps(&table_at) || header.ids.iter().any(|ids| ids.overlaps(&table_at)) {
        return Ok(false);
    }
    for (feature, section) in &mut slots {
        if section.overlaps(&table_at) {
            let Some(payload) = header.features.get(feature) else { return Ok(false) };
            *section = append(payload);
        }
    }
    let journal = Journal { slots };
    let journal_at = append(&journal.write(endian));
    let start = end - appended.len() as u64;

    let mut front = [0; FILE_HEADER_SIZE];
    file.read_exact_at(&mut front, 0).map_err(io)?;
    let write =
        |bytes: &[u8], at: u64| file.write_all_at(bytes, at).and_then(|()| file.sync_data()).map_err(io);
    write(&appended, start)?;
    // Slots before the changed one stay where they are, and so may their features, unless an interrupted change left the table half done.
    let stay = journal.slots.iter().map(|&(feature, _)| feature).take_while(|&other| other < feature);
    let stay: Vec<Feature> = if header.faults.is_empty() { stay.collect() } else { Vec::new() };
    let still = |f: &Feature| journal.slots.iter().any(|slot| slot.0 == *f && header.sections.contains(slot));
    let stay = stay.into_iter().take_while(still);
    write(&with_features(front, stay, journal_at, endian), 0)?;
    write(&table(&journal.slots, endian), table_at.offset)?;
    let all = journal.slots.iter().map(|&(feature, _)| feature);
    write(&with_features(front, all, Section::default(), endian), 0)?;
    Ok(true)
}

/// The code of the fault that a half-done change leaves.
pub(crate) const INTERRUPTED: &str = "in-place-interrupted";

fn with_features(
    mut front: [u8; FILE_HEADER_SIZE],
    features: impl IntoIterator<Item = Feature>,
    journal: Section,
    endian: Endian,
) -> [u8; FILE_HEADER_SIZE] {
    front[56..64].copy_from_slice(&endian.bytes_u64(journal.offset));
    front[64..72].copy_from_slice(&endian.bytes_u64(journal.size));
    front[72..].copy_from_slice(&feature_bitmap(features, endian));
    front
}

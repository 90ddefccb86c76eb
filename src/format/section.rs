//! Describes sections of a file, the feature bitmap, and the table of the features' sections.

use crate::{Endian, Feature};

/// Size of an entry of the feature table: u64 offset, u64 size.
pub(crate) const SLOT_SIZE: u64 = 16;

/// Offset and size of a section, in bytes from the start of the file.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Section {
    /// Offset in bytes from the start of the file.
    pub offset: u64,
    /// Size in bytes.
    pub size: u64,
}

impl Section {
    pub(crate) fn read(bytes: &[u8], at: usize, endian: Endian) -> Section {
        Section { offset: endian.u64(bytes, at).unwrap_or(0), size: endian.u64(bytes, at + 8).unwrap_or(0) }
    }

    /// The first byte after it; saturates.
    pub fn end(&self) -> u64 {
        self.offset.saturating_add(self.size)
    }

    pub(crate) fn overlaps(&self, other: &Section) -> bool {
        self.size > 0 && other.size > 0 && self.offset < other.end() && other.offset < self.end()
    }

    /// The section as a range, if it is inside a file of this length.
    pub(crate) fn inside(&self, len: usize) -> Option<std::ops::Range<usize>> {
        let end = usize::try_from(self.end()).ok().filter(|&end| end <= len)?;
        Some(self.offset as usize..end)
    }
}

/// The set bits, ascending, of a bitmap stored in words of `word` bytes.
pub(crate) fn feature_bits(words: &[u8], endian: Endian, word: usize) -> Vec<Feature> {
    let mut set = Vec::new();
    for (index, bytes) in words.chunks_exact(word).enumerate() {
        let value = match word {
            4 => endian.u32(bytes, 0).map(u64::from),
            _ => endian.u64(bytes, 0),
        };
        for bit in 0..8 * word {
            if value.unwrap_or(0) >> bit & 1 == 1 {
                set.push(Feature((index * 8 * word + bit) as u8));
            }
        }
    }
    set
}

/// The 32 bytes of the feature bitmap.
pub fn feature_bitmap(features: impl IntoIterator<Item = Feature>, endian: Endian) -> [u8; 32] {
    let mut words = [0u64; 4];
    for feature in features {
        words[usize::from(feature.0 / 64)] |= 1 << (feature.0 % 64);
    }
    let mut bitmap = [0; 32];
    for (word, bytes) in words.into_iter().zip(bitmap.chunks_exact_mut(8)) {
        bytes.copy_from_slice(&endian.bytes_u64(word));
    }
    bitmap
}

/// The feature table for sections of these sizes that follow it in order, with unused slots after the used
/// ones. `at` is the table's own offset, directly after the data.
pub fn feature_table(
    at: u64,
    sizes: impl ExactSizeIterator<Item = u64>,
    spare_slots: &[u8],
    endian: Endian,
) -> Vec<u8> {
    let mut offset = at + sizes.len() as u64 * SLOT_SIZE + spare_slots.len() as u64;
    let mut table = Vec::new();
    for size in sizes {
        table.extend(endian.bytes_u64(offset));
        table.extend(endian.bytes_u64(size));
        offset += size;
    }
    table.extend(spare_slots);
    table
}

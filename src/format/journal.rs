//! Reads and writes the journal of a change in place: the new feature table, to finish an interrupted change.

use crate::section::{SLOT_SIZE, Section, feature_bitmap, feature_bits};
use crate::{Endian, Feature};

const MAGIC: &[u8; 8] = b"PERFXJNL";

/// The maximum distance of the journal from the end of a change, bytes: many times the largest journal.
const TAIL: usize = 64 << 10;

/// How often the magic may occur without a valid journal before the search stops.
const LOOKALIKES_MAX: usize = 8;

/// The feature table that an interrupted change was going to write.
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
    /// Reads a journal; `None` for anything else, such as the bytes that perf before 3.x kept there.
    pub(crate) fn read(bytes: &[u8], endian: Endian) -> Option<Journal> {
        let (body, sum) = bytes.split_at_checked(bytes.len().checked_sub(8)?)?;
        if body.get(..8)? != MAGIC || endian.u64(sum, 0)? != checksum(body) {
            return None;
        }
        let bits = feature_bits(body.get(8..40)?, endian, 8);
        let slots =
            body.get(40..)?.chunks_exact(SLOT_SIZE as usize).map(|slot| Section::read(slot, 0, endian));
        (bits.len() == slots.len()).then(|| Journal { slots: bits.into_iter().zip(slots).collect() })
    }

    pub(crate) fn end_of_last(bytes: &[u8], endian: Endian) -> Option<usize> {
        let front = bytes.len().saturating_sub(TAIL);
        let places = bytes[front..].windows(MAGIC.len()).enumerate().rev();
        let places = places.filter(|(_, window)| window == MAGIC).take(LOOKALIKES_MAX);
        places.map(|(at, _)| front + at).find_map(|at| {
            let slots = feature_bits(bytes.get(at + 8..at + 40)?, endian, 8).len();
            let end = at + 40 + slots * SLOT_SIZE as usize + 8;
            Journal::read(bytes.get(at..end)?, endian).map(|_| end)
        })
    }

    pub(crate) fn write(&self, endian: Endian) -> Vec<u8> {
        let mut bytes = MAGIC.to_vec();
        bytes.extend(feature_bitmap(self.slots.iter().map(|&(feature, _)| feature), endian));
        bytes.extend(table(&self.slots, endian));
        bytes.extend(endian.bytes_u64(checksum(&bytes)));
        bytes
    }
}

/// 64-bit FNV-1a, enough to distinguish a journal from other bytes.
fn checksum(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |sum, &byte| (sum ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3))
}

pub(crate) fn table(slots: &[(Feature, Section)], endian: Endian) -> Vec<u8> {
    let words = slots.iter().flat_map(|(_, section)| [section.offset, section.size]);
    words.flat_map(|word| endian.bytes_u64(word)).collect()
}

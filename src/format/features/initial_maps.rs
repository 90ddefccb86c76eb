//! Reads the records in simpleperf's feature INIT_MAP: what was mapped, and how threads were called, when a recording
//! of the whole system began.
//!
//! The section is MMAP, MMAP2 and COMM records one after the other, with the trailer of the first event
//! (simpleperf/record_file_format.h).

use crate::header::Features;
use crate::{Endian, Feature, Origin, Record};

/// The records of feature INIT_MAP, if there is one. They come before all others, and end at the first that is damaged
/// or compressed.
pub fn initial_maps(features: &Features, endian: Endian) -> impl Iterator<Item = Record<'_>> {
    let mut rest = features.get(&Feature::INIT_MAP).map_or(&[][..], |section| section);
    std::iter::from_fn(move || {
        let size = endian.u16(rest, 6)?.into();
        let (bytes, behind) = rest.split_at_checked(size)?;
        rest = behind;
        Record::new(bytes, &[], Origin::Synthetic, endian)
            .ok()
            .filter(|record| !record.kind().is_compressed())
    })
}

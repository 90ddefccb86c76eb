//! Reads simpleperf's feature INIT_MAP: records of the mappings and threads that a recording begins with.
//!
//! The section is MMAP, MMAP2 and COMM records one after the other, with the trailer of the first event
//! (simpleperf/record_file_format.h). `simpleperf record -z` compresses them like those of the data section,
//! but not in the same zstd frame, because simpleperf reads the feature first (ReadInitMapFeature).

use crate::header::Features;
use crate::record::compressed::compressed_part;
use crate::unzstd::{self, Decoder};
use crate::{Endian, Feature, Origin, Record};
use std::borrow::Cow;

const MOST_EXPANDED: usize = 64 << 20;

/// The records of feature INIT_MAP.
#[derive(Clone, Debug)]
pub struct InitialMaps<'f> {
    bytes: Cow<'f, [u8]>,
    endian: Endian,
    is_damaged: bool,
}

/// The records of feature INIT_MAP, if present. They precede all others, and end at the first damaged one.
pub fn initial_maps(features: &Features, endian: Endian) -> InitialMaps<'_> {
    let bytes = features.get(&Feature::INIT_MAP).map_or(&[][..], |section| section);
    let (mut size, mut is_compressed) = (0, false);
    for record in records(bytes, endian) {
        size += record.bytes().len();
        is_compressed |= record.kind().is_compressed();
    }
    let mut is_damaged = size < bytes.len();
    let mut bytes = Cow::Borrowed(bytes);
    if is_compressed {
        let mut expanded = Vec::new();
        is_damaged |= expand(&bytes, endian, &mut expanded).is_err();
        bytes = expanded.into();
    }
    InitialMaps { bytes, endian, is_damaged }
}

impl InitialMaps<'_> {
    /// The records.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        records(&self.bytes, self.endian)
    }

    /// True if there are unreadable records.
    pub fn is_damaged(&self) -> bool {
        self.is_damaged
    }
}

fn records(mut rest: &[u8], endian: Endian) -> impl Iterator<Item = Record<'_>> {
    std::iter::from_fn(move || {
        let size = endian.u16(rest, 6)?.into();
        let (bytes, after) = rest.split_at_checked(size)?;
        rest = after;
        Record::new(bytes, &[], Origin::Synthetic, endian).ok()
    })
}

/// Appends the records, including those inside compressed ones, up to a limit.
fn expand(bytes: &[u8], endian: Endian, expanded: &mut Vec<u8>) -> Result<(), String> {
    let mut decoder = Decoder::new();
    for record in records(bytes, endian) {
        if record.kind().is_compressed() {
            unzstd::append(&mut decoder, compressed_part(&record).0, expanded, MOST_EXPANDED)?;
        } else {
            expanded.extend_from_slice(record.bytes());
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::RecordType;
    use crate::record::compressed::compressed_record;
    use crate::unzstd::tests::{repeated_frame, stored_frame};

    #[test]
    fn compressed_records_are_expanded_across_records_and_frames() {
        let endian = Endian::Little;
        let comm = |name: u8| {
            let body = [1, 0, 0, 0, 1, 0, 0, 0, name, 0, 0, 0, 0, 0, 0, 0];
            [&3_u32.to_le_bytes()[..], &[0, 0, 24, 0], &body].concat()
        };
        let piece = |bytes: &[u8]| compressed_record(RecordType::COMPRESSED, bytes, endian).unwrap();
        let (first, second) = (stored_frame(&[comm(b'b'), comm(b'c')].concat()), stored_frame(&comm(b'd')));
        let (front, back) = first.split_at(first.len() / 2);
        let pieces = [comm(b'a'), piece(front), piece(back), piece(&second), comm(b'e')];
        let named = |section: Vec<u8>| {
            let features = Features::from_iter([(Feature::INIT_MAP, section.into())]);
            let maps = initial_maps(&features, endian);
            let names: Vec<u8> = maps.records().map(|record| record.bytes()[16]).collect();
            (String::from_utf8(names).unwrap(), maps.is_damaged())
        };
        assert_eq!(named(pieces.concat()), ("abcde".to_owned(), false));
        assert_eq!(named(Vec::new()), (String::new(), false));
        assert_eq!(named([comm(b'a'), vec![0; 7]].concat()), ("a".to_owned(), true));
        let damaged = [comm(b'a'), piece(&[7; 40]), comm(b'e')].concat();
        assert_eq!(named(damaged), ("a".to_owned(), true));
        // Records that expand beyond the limit.
        let bomb = [comm(b'a'), piece(&repeated_frame(0, MOST_EXPANDED + 1))].concat();
        assert!(named(bomb).1);
    }
}

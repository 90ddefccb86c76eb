//! STAT_CONFIG records contain the aggregation mode of perf stat.

use super::builder::build;
use super::reader::Reader;
use crate::{Record, RecordType};

/// The known tags of perf 7.3 (tools/lib/perf/include/perf/event.h).
const STAT_TAGS: &[(u64, &str)] = &[(0, "AGGR_MODE"), (1, "INTERVAL"), (2, "SCALE"), (3, "AGGR_LEVEL")];

/// A STAT_CONFIG record without entries of unknown tags, and their number; `None` without any, or for others.
///
/// | byte | |
/// |---|---|
/// | 8 | u64 count |
/// | 16 | for each: u64 tag, u64 value |
pub fn without_unknown_tags(record: &Record<'_>) -> Option<(Vec<u8>, u64)> {
    let (count, endian) = (record.u64(8)?, record.endian());
    let entries = record.bytes().get(16..).filter(|_| record.kind() == RecordType::STAT_CONFIG)?;
    let count = usize::try_from(count).unwrap_or(usize::MAX);
    let is_known = |entry: &&[u8]| {
        endian.u64(entry, 0).is_some_and(|tag| STAT_TAGS.iter().any(|(known, _)| *known == tag))
    };
    let all = entries.chunks_exact(16).take(count);
    let (there, known) = (all.len(), all.filter(is_known).collect::<Vec<_>>());
    if known.len() == there {
        return None;
    }
    let count = endian.bytes_u64(known.len() as u64);
    let made = build(record.kind(), record.misc(), &[&count, &known.concat()], endian)?;
    Some((made, (there - known.len()) as u64))
}

pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
    let count = d.int::<u64>("nr")?;
    d.list("data", count, 16, |d| {
        d.named::<u64>("tag", STAT_TAGS)?;
        d.number::<u64>("val").map(drop)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Endian, Origin};

    #[test]
    fn entries_with_an_unknown_tag_are_left_out() {
        for endian in [Endian::Little, Endian::Big] {
            let record = |words: &[u64]| {
                let body: Vec<u8> = words.iter().flat_map(|&word| endian.bytes_u64(word)).collect();
                build(RecordType::STAT_CONFIG, 0, &[&body], endian).unwrap()
            };
            let without = |bytes: &[u8]| {
                without_unknown_tags(&Record::new(bytes, &[], Origin::Synthetic, endian).unwrap())
            };
            assert_eq!(without(&record(&[3, 0, 2, 99, 7, 2, 1])), Some((record(&[2, 0, 2, 2, 1]), 1)));
            assert_eq!(without(&record(&[2, 0, 2, 3, 1])), None);
            assert_eq!(without(&record(&[u64::MAX, 4, 2])), Some((record(&[0]), 1)));
            assert_eq!(without(&record(&[])), None);
        }
    }
}

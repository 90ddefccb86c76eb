//! Assigns every byte of a perf.data file to a part; parts neither overlap nor leave a gap.

use crate::header::{FILE_HEADER_SIZE, FileHeader};
use crate::journal::Journal;
use crate::section::Section;
use crate::{Bytes, Feature};

/// The role of a range of bytes in a file.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub enum What {
    /// The header.
    Header,
    /// The attrs.
    Attrs,
    /// The ids of events.
    Ids,
    /// The event types of perf before 3.3.
    EventTypes,
    /// The data section.
    Records,
    /// The feature table, unused slots included.
    FeatureTable,
    /// The section of a feature.
    Feature(Feature),
    /// Bytes that nothing points to.
    Hole,
}

impl What {
    /// A short name for reports and JSON.
    pub fn name(self) -> &'static str {
        match self {
            What::Header => "header",
            What::Attrs => "attrs",
            What::Ids => "ids",
            What::EventTypes => "event types",
            What::Records => "records",
            What::FeatureTable => "feature table",
            What::Feature(_) => "features",
            What::Hole => "holes",
        }
    }
}

/// A range of bytes of one kind.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Part {
    /// Their role.
    pub what: What,
    /// Their place in the file.
    pub section: Section,
}

impl FileHeader {
    /// The parts of the file, ascending. Their sizes add up to its length. Bytes that belong to several
    /// sections count for the data section, or otherwise for the section that begins first.
    pub fn parts(&self) -> Vec<Part> {
        let spare = Section { offset: self.table.end(), size: self.spare_slots.len() as u64 };
        let mut claims = vec![
            (What::Header, Section { offset: 0, size: self.magic.size }),
            (What::Attrs, self.attrs),
            (What::EventTypes, self.types),
            (What::FeatureTable, self.table),
            (What::FeatureTable, spare),
        ];
        claims.extend(self.ids.iter().map(|&ids| (What::Ids, ids)));
        claims.extend(self.sections.iter().map(|&(feature, section)| (What::Feature(feature), section)));
        let (data, len) = (self.data, self.len);
        let mut claims: Vec<(u64, u64, What)> = claims
            .into_iter()
            .flat_map(|(what, section)| {
                let before = (section.offset, section.end().min(data.offset).min(len), what);
                let after = (section.offset.max(data.end()), section.end().min(len), what);
                [before, after]
            })
            .chain([(data.offset, data.end(), What::Records), (len, len, What::Hole)])
            .collect();
        claims.retain(|&(start, end, what)| start < end || what == What::Hole);
        claims.sort_by_key(|&(start, end, what)| (start, std::cmp::Reverse(end), what));
        let mut parts: Vec<Part> = Vec::new();
        let mut at = 0;
        let mut push = |what, from: u64, to: u64| {
            if from < to {
                parts.push(Part { what, section: Section { offset: from, size: to - from } });
            }
        };
        for (start, end, what) in claims {
            push(What::Hole, at, start);
            push(what, at.max(start), end);
            at = at.max(end);
        }
        parts
    }

    /// Finds the bytes in no section, without the obsolete ones left by a change in place, up to its journal.
    pub(crate) fn find_unnamed(&mut self, file: &Bytes) {
        let holes = self.parts().into_iter().filter(|part| part.what == What::Hole);
        let holes: Vec<_> = holes.filter_map(|part| part.section.inside(file.len())).collect();
        let changed = holes.iter().rev().find_map(|range| {
            let end = Journal::end_of_last(&file[range.clone()], self.magic.endian)?;
            Some(self.data.end() as usize..range.start + end)
        });
        let changed = changed.unwrap_or_default();
        for mut range in holes {
            if changed.contains(&range.start) {
                range.start = range.end.min(changed.end);
            }
            // A change in place grows a header of 72 bytes to 104; the bytes after it are not trailing.
            let grown = FILE_HEADER_SIZE.min(range.end);
            if range.end == file.len() && range.start < grown {
                if file[range.start..grown].iter().any(|&byte| byte != 0) {
                    self.holes
                        .push(Section { offset: range.start as u64, size: (grown - range.start) as u64 });
                }
                range.start = grown;
            }
            if range.end == file.len() {
                self.trailing = file.slice(range);
            } else if file[range.clone()].iter().any(|&byte| byte != 0) {
                self.holes.push(Section { offset: range.start as u64, size: range.len() as u64 });
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A header with an attr of 64 bytes, two features with overlapping sections, and a hole before the data.
    fn file() -> Vec<u8> {
        let mut file = vec![0; 400];
        file[..8].copy_from_slice(b"PERFILE2");
        let words = [(8, 104), (16, 80), (24, 104), (32, 80), (40, 200), (48, 40), (72, 0b11000)];
        let slots = [(240, 280), (248, 100), (256, 300), (264, 90)];
        for (at, word) in words.into_iter().chain(slots) {
            file[at..at + 8].copy_from_slice(&u64::to_le_bytes(word));
        }
        file
    }

    #[test]
    fn every_byte_belongs_to_one_part() {
        let parts = FileHeader::read(&Bytes::from(file())).unwrap().parts();
        let shown: Vec<_> =
            parts.iter().map(|part| (part.what, part.section.offset, part.section.size)).collect();
        let expected = [
            (What::Header, 0, 104),
            (What::Attrs, 104, 80),
            (What::Hole, 184, 16),
            (What::Records, 200, 40),
            (What::FeatureTable, 240, 32),
            (What::Hole, 272, 8),
            (What::Feature(Feature::HOSTNAME), 280, 100),
            (What::Feature(Feature::OSRELEASE), 380, 10),
            (What::Hole, 390, 10),
        ];
        assert_eq!(shown, expected);
    }
}

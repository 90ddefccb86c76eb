//! Records the parts of files and kernels that were mapped.

use std::collections::BTreeMap;
use std::ops::Range;

use crate::address_space::Mapping;

/// The mapped parts of DSOs; overlapping parts are joined.
#[derive(Clone, Debug, Default)]
pub struct MappedParts {
    /// By DSO and start: the end, and the recorded offset of the start.
    parts: BTreeMap<(u32, u64), (u64, u64)>,
}

impl MappedParts {
    /// Adds a mapping of a DSO: of a file, a range of offsets; of a kernel, a range of addresses.
    pub fn learn(&mut self, dso: u32, mapping: &Mapping<'_>, is_kernel: bool) {
        let mut start = if is_kernel { mapping.start } else { mapping.pgoff };
        let (mut end, mut offset) = (start.saturating_add(mapping.len), mapping.pgoff);
        while let Some((&(_, from), &(until, first))) = self.parts.range((dso, 0)..(dso, end)).next_back()
            && until > start
        {
            if from <= start && until >= end {
                return;
            }
            self.parts.remove(&(dso, from));
            if from < start {
                (start, offset) = (from, first);
            }
            end = end.max(until);
        }
        if start < end {
            self.parts.insert((dso, start), (end, offset));
        }
    }

    /// The lowest offset or address of a DSO that was mapped.
    pub fn first(&self, dso: u32) -> Option<u64> {
        let ((of, start), _) = self.parts.range((dso, 0)..).next()?;
        (*of == dso).then_some(*start)
    }

    /// The part around an offset or address of a DSO, and the recorded offset of its start.
    pub fn at(&self, dso: u32, place: u64) -> Option<(Range<u64>, u64)> {
        let (&(_, start), &(end, offset)) = self.parts.range((dso, 0)..=(dso, place)).next_back()?;
        (place < end).then_some((start..end, offset))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::address_space::Identity;

    #[test]
    fn an_offset_is_in_the_part_mapped_around_it() {
        let mut parts = MappedParts::default();
        let mapping = |start, pgoff, len| Mapping {
            pid: 1,
            kernel: false,
            start,
            len,
            pgoff,
            flags: 0,
            name: b"/f",
            identity: Identity::Unknown,
            is_code: true,
        };
        // The second touches the first; the last three overlap, in both orders.
        let recorded = [(0, 0x1000), (0x1000, 0x3000), (0x9000, 0x1000), (0x8000, 0x4000), (0xb000, 0x2000)];
        for (pgoff, len) in recorded {
            parts.learn(0, &mapping(0x7000_0000, pgoff, len), false);
        }
        parts.learn(1, &mapping(0xffff_0000, 0xffff_0200, 0x1000), true);
        parts.learn(2, &mapping(0, u64::MAX, 0), false);
        let cases = [
            (0, 0, Some((0..0x1000, 0))),
            (0, 0xfff, Some((0..0x1000, 0))),
            (0, 0x1000, Some((0x1000..0x4000, 0x1000))),
            (0, 0x4000, None),
            (0, 0x8000, Some((0x8000..0xd000, 0x8000))),
            (0, 0xcfff, Some((0x8000..0xd000, 0x8000))),
            (0, 0xd000, None),
            (1, 0xffff_0fff, Some((0xffff_0000..0xffff_1000, 0xffff_0200))),
            (1, 0xfffe_ffff, None),
            (2, u64::MAX, None),
        ];
        for (dso, place, expected) in cases {
            assert_eq!(parts.at(dso, place), expected, "{dso} {place:#x}");
        }
    }
}

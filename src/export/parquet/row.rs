//! Packs a sample into few bytes for the temporary file in which samples are sorted by time.
//!
//! | byte | |
//! |---|---|
//! | 0 | u32: which parts follow, one bit each, and what the stack is |
//! | 4 | u32 event, u32 frame, u64 period, u8 cpumode |
//! | 21 | the parts, in the order of [`PARTS`]: u32 or u64 each |
//! | | the raw data of a tracepoint |

use super::history::signed;

macro_rules! parts {
    ($($part:ident $size:literal,)*) => {
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub(super) enum Part { $($part),* }

        const PARTS: [(Part, usize); [$($size),*].len()] = [$((Part::$part, $size)),*];
    };
}

parts! {
    // First the numbers that are valid within a batch.
    Stack 4, Comm 4, DataFrame 4, Cgroup 4,
    Cpu 4, Pid 4, Tid 4,
    Weight 8, Weight2 4, Weight3 4,
    Addr 8, PhysAddr 8, DataSrc 8, Transaction 8,
    MachinePid 4, Vcpu 4,
    CodePageSize 8, DataPageSize 8,
}

/// The stack is the number of a sample whose user part comes later.
const DEFERRED: u32 = 1 << 30;
/// Outer frames of the stack may be missing.
const TRUNCATED: u32 = 1 << 31;

const PERIOD: usize = 12;
const FRONT: usize = 21;

#[derive(Clone, Copy, Default, Debug)]
pub(super) struct SampleRow {
    pub(super) event: u32,
    pub(super) mode: u8,
    pub(super) frame: u32,
    pub(super) period: u64,
    pub(super) deferred: bool,
    pub(super) truncated: bool,
    /// A bit for each present part.
    pub(super) has: u32,
    pub(super) parts: [u64; PARTS.len()],
}

fn present(has: u32) -> impl Iterator<Item = (Part, usize)> {
    let mut rest = has & ((1 << PARTS.len()) - 1);
    std::iter::from_fn(move || {
        let part = PARTS.get(rest.trailing_zeros() as usize)?;
        rest &= rest - 1;
        Some(*part)
    })
}

impl SampleRow {
    pub(super) fn set(&mut self, part: Part, value: impl Into<Option<u64>>) {
        if let Some(value) = value.into() {
            self.has |= 1 << part as u32;
            self.parts[part as usize] = value;
        }
    }

    pub(super) fn get(&self, part: Part) -> Option<u64> {
        (self.has >> part as u32 & 1 != 0).then(|| self.parts[part as usize])
    }

    /// A signed part of 32 bits, such as a pid.
    pub(super) fn get_i32(&self, part: Part) -> Option<i64> {
        self.get(part).map(|value| i64::from(value as u32 as i32))
    }

    pub(super) fn bits(&self, part: Part) -> Option<i64> {
        self.get(part).map(|value| value as i64)
    }

    pub(super) fn amount(&self, part: Part) -> Option<i64> {
        self.get(part).map(signed)
    }

    pub(super) fn pack(&self, out: &mut Vec<u8>) {
        let stack = if self.deferred { DEFERRED } else { 0 } | if self.truncated { TRUNCATED } else { 0 };
        out.extend((self.has | stack).to_le_bytes());
        out.extend(self.event.to_le_bytes());
        out.extend(self.frame.to_le_bytes());
        out.extend(self.period.to_le_bytes());
        out.push(self.mode);
        for (part, size) in present(self.has) {
            out.extend_from_slice(&self.parts[part as usize].to_le_bytes()[..size]);
        }
    }

    /// Returns the row, and the raw data after it.
    pub(super) fn unpack(row: &[u8]) -> Option<(SampleRow, &[u8])> {
        let mut at = 0;
        let mut take = |size: usize| {
            let mut value = [0; 8];
            value[..size].copy_from_slice(row.get(at..at + size)?);
            at += size;
            Some(u64::from_le_bytes(value))
        };
        let bits = take(4)? as u32;
        let (event, frame, period, mode) = (take(4)? as u32, take(4)? as u32, take(8)?, take(1)? as u8);
        let (deferred, truncated) = (bits & DEFERRED != 0, bits & TRUNCATED != 0);
        let mut sample =
            SampleRow { event, mode, frame, period, deferred, truncated, ..SampleRow::default() };
        for (part, size) in present(bits) {
            sample.set(part, take(size)?);
        }
        Some((sample, row.get(at..)?))
    }
}

pub(super) fn set_period(row: &mut [u8], period: u64) {
    row[PERIOD..PERIOD + 8].copy_from_slice(&period.to_le_bytes());
}

/// Changes numbers of a batch to those of the recording. `stack` also gets its flags: deferred, truncated.
pub(super) fn renumber(
    row: &mut [u8],
    frame: impl Fn(u32) -> u32,
    mut stack: impl FnMut(u32, bool, bool) -> u32,
    comm: impl Fn(u32) -> u32,
    cgroup: impl Fn(u32) -> u32,
) -> Option<()> {
    let bits = u32::from_le_bytes(*row.first_chunk()?);
    let mut change = |at: usize, new: &mut dyn FnMut(u32) -> u32| {
        let value: &mut [u8; 4] = row.get_mut(at..at + 4)?.try_into().ok()?;
        *value = new(u32::from_le_bytes(*value)).to_le_bytes();
        Some(())
    };
    change(8, &mut |number| frame(number))?;
    let mut at = FRONT;
    for (part, size) in &PARTS[..=Part::Cgroup as usize] {
        if bits >> *part as u32 & 1 == 0 {
            continue;
        }
        match part {
            Part::Stack => change(at, &mut |n| stack(n, bits & DEFERRED != 0, bits & TRUNCATED != 0))?,
            Part::Comm => change(at, &mut |n| comm(n))?,
            Part::DataFrame => change(at, &mut |n| frame(n))?,
            _ => change(at, &mut |n| cgroup(n))?,
        }
        at += size;
    }
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_packed_row_is_the_same_again_and_its_numbers_can_change() {
        for (at, _) in PARTS.iter().enumerate() {
            let mut row = SampleRow { event: 3, mode: 2, frame: 7, period: u64::MAX, ..SampleRow::default() };
            row.deferred = at % 2 == 0;
            row.truncated = at % 3 == 0;
            for (part, size) in &PARTS[at..] {
                row.set(*part, (*part as u64 + 1) << (8 * (size - 1)));
            }
            let mut packed = Vec::new();
            row.pack(&mut packed);
            packed.extend(&b"raw"[..at % 4]);
            let (again, raw) = SampleRow::unpack(&packed).unwrap();
            assert_eq!((format!("{row:?}"), &b"raw"[..at % 4]), (format!("{again:?}"), raw));
            renumber(&mut packed, |n| n + 1, |n, _, _| n + 2, |n| n + 3, |n| n + 4).unwrap();
            let (new, _) = SampleRow::unpack(&packed).unwrap();
            assert_eq!(new.frame, 8);
            for (part, by) in [(Part::Stack, 2), (Part::Comm, 3), (Part::DataFrame, 1), (Part::Cgroup, 4)] {
                assert_eq!(new.get(part), row.get(part).map(|number| number + by));
            }
            assert_eq!(new.get(Part::DataPageSize), row.get(Part::DataPageSize));
        }
    }

    #[test]
    fn parts_are_shown_with_the_sign_of_their_kind() {
        let mut row = SampleRow::default();
        let part = PARTS[0].0;
        assert_eq!(
            (row.get(part), row.get_i32(part), row.bits(part), row.amount(part)),
            (None, None, None, None)
        );
        row.set(part, None);
        assert_eq!(row.get(part), None);
        row.set(part, 0xffff_ffff_u64);
        assert_eq!(
            (row.get(part), row.get_i32(part), row.bits(part)),
            (Some(0xffff_ffff), Some(-1), Some(0xffff_ffff))
        );
        row.set(part, u64::MAX);
        assert_eq!((row.bits(part), row.amount(part)), (Some(-1), Some(i64::MAX)));
    }
}

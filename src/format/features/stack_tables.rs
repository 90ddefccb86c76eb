//! Reads the call stacks that hiperf of OpenHarmony stores in a feature, instead of call chains.
//!
//! `hiperf record --dedup_stack` writes an empty call chain into each sample and a u64 at its end: its stack.
//! A stack is the index of its innermost frame in the table of its process, which contains the caller of each
//! frame.
//!
//! | | |
//! |---|---|
//! | section | u32 number of tables, then for each u32 pid, u32 size, u32 number of frames, and the frames |
//! | frame | u32 index, u64: bits 0 to 39 address, 40 to 62 index of the caller or 0, 63 set if bits 40 to 63 of the address are |
//! | stack | bits 0 to 22 index of the innermost frame, the others number of frames |
//!
//! Source: OpenHarmony, developtools_hiperf, unique_stack_table.h and perf_file_format.cpp.

use std::collections::{BTreeMap, HashMap};

use crate::header::Features;
use crate::sample::{CallStack, Sample, U64s};
use crate::{Endian, FaultCode, Feature, Layout, Record, bytes_that};

/// Maximum number of frames of a stack, as fit into a record.
const MOST_FRAMES: u64 = 8191;

/// The tables of a recording.
#[derive(Clone, Default, Debug)]
pub struct StackTables {
    is_there: bool,
    /// By process and index.
    frames: HashMap<(u32, u32), Frame>,
    fault: Option<(FaultCode, String)>,
}

#[derive(Clone, Copy, Debug)]
struct Frame {
    value: u64,
    /// The number of frames from this one to the outermost, or to one whose caller is missing.
    depth: u32,
}

impl Frame {
    const UNKNOWN: u32 = u32::MAX;
    /// Its callers are a circle, or its index has several frames.
    const ASTRAY: u32 = 0;

    fn caller(self) -> u32 {
        (self.value >> 40) as u32 & 0x7f_ffff
    }
}

impl StackTables {
    /// The tables of a recording; a truncated section has the frames up to its end.
    pub fn new(features: &Features, endian: Endian) -> StackTables {
        let Some(section) = features.get(&Feature::HIPERF_STACK_TABLE) else { return StackTables::default() };
        let mut tables = StackTables { is_there: true, ..StackTables::default() };
        tables.fault = match tables.read(section, endian) {
            None => Some((FaultCode::SectionShort, "it ends within a table".to_owned())),
            Some(0) => None,
            Some(rest) => {
                let what = bytes_that(rest, " follows", " follow") + " the last table";
                Some((FaultCode::SectionRest, what))
            }
        };
        tables.measure();
        tables
    }

    /// True if the recording has tables.
    pub fn is_there(&self) -> bool {
        self.is_there
    }

    /// The fault of the section, if it is damaged.
    pub fn fault(&self) -> Option<&(FaultCode, String)> {
        self.fault.as_ref()
    }

    /// Returns the number of bytes after the last table; `None` if the section is cut off.
    fn read(&mut self, section: &[u8], endian: Endian) -> Option<usize> {
        let mut at = 4;
        for _ in 0..endian.u32(section, 0)? {
            let (pid, count) = (endian.u32(section, at)?, endian.u32(section, at + 8)?);
            at += 12;
            for _ in 0..count {
                let (index, value) = (endian.u32(section, at)?, endian.u64(section, at + 4)?);
                let frame = self.frames.entry((pid, index)).or_insert(Frame { value, depth: Frame::UNKNOWN });
                if frame.value != value {
                    frame.depth = Frame::ASTRAY;
                }
                at += 12;
            }
        }
        section.len().checked_sub(at)
    }

    fn measure(&mut self) {
        let all: Vec<(u32, u32)> = self.frames.keys().copied().collect();
        let mut path = Vec::new();
        for mut at in all {
            let above = loop {
                match self.frames.get_mut(&at).filter(|_| at.1 != 0) {
                    None => break Some(0),
                    Some(frame) if frame.depth == Frame::UNKNOWN => {
                        // It stays unresolved if the path returns to it.
                        frame.depth = Frame::ASTRAY;
                        path.push(at);
                        at.1 = frame.caller();
                    }
                    Some(frame) => break Some(frame.depth).filter(|depth| *depth != Frame::ASTRAY),
                }
            };
            for (at, below) in path.drain(..).rev().zip(1..) {
                if let (Some(above), Some(frame)) = (above, self.frames.get_mut(&at)) {
                    frame.depth = above.saturating_add(below);
                }
            }
        }
    }

    /// The call stack of a sample: that of its parts, or the one in the tables, written into `buffer`. `None`
    /// if its event records none, it does not fit into the record, or the tables lack some of its frames.
    #[inline]
    pub fn call_stack<'b>(
        &self,
        record: &Record<'b>,
        layout: &Layout,
        buffer: &'b mut Vec<u8>,
    ) -> Option<CallStack<'b>> {
        if !self.is_there {
            return CallStack::of(record, layout);
        }
        let mut sample = Sample::parse_known(record, layout).ok()?;
        sample.callchain = self.chain_of(&sample, record.endian(), buffer);
        CallStack::in_sample(&sample, record, layout)
    }

    /// The call chain of a sample, innermost first, or that in the tables, written into `buffer`.
    pub fn chain_of<'b>(
        &self,
        sample: &Sample<'b>,
        endian: Endian,
        buffer: &'b mut Vec<u8>,
    ) -> Option<U64s<'b>> {
        let own = sample.callchain?;
        if !self.is_there || !own.is_empty() || sample.rest.is_empty() {
            return Some(own);
        }
        self.fill(sample, endian, buffer)?;
        Some(U64s::new(buffer, endian))
    }

    fn fill(&self, sample: &Sample<'_>, endian: Endian, buffer: &mut Vec<u8>) -> Option<()> {
        buffer.clear();
        let stack = endian.u64(sample.rest, 0).filter(|_| sample.rest.len() == 8)?;
        let (pid, _) = sample.pid_tid?;
        let (mut index, left) = (stack as u32 & 0x7f_ffff, stack >> 23);
        let depth = self.frames.get(&(pid, index)).filter(|_| index != 0).map_or(0, |frame| frame.depth);
        if left > MOST_FRAMES.min(depth.into()) {
            return None;
        }
        for _ in 0..left {
            let frame = self.frames.get(&(pid, index))?;
            let upper = if frame.value >> 63 == 0 { 0 } else { 0xff_ffff << 40 };
            buffer.extend(endian.bytes_u64(frame.value & 0xff_ffff_ffff | upper));
            index = frame.caller();
        }
        Some(())
    }
}

/// The section with the tables of both recordings. `None` if a process has different tables in them, because
/// samples name a frame only by its process and index, or if a section is damaged.
pub fn united_stack_tables(one: &[u8], other: &[u8], endian: Endian) -> Option<Vec<u8>> {
    let mut all: BTreeMap<u32, &[u8]> = BTreeMap::new();
    for section in [one, other] {
        let mut at = 4_usize;
        for _ in 0..endian.u32(section, 0)? {
            let frames = endian.u32(section, at.checked_add(8)?)? as usize;
            let end = frames.checked_mul(12)?.checked_add(at + 12)?;
            let table = section.get(at..end)?;
            if *all.entry(endian.u32(section, at)?).or_insert(table) != table {
                return None;
            }
            at = end;
        }
        section.get(at..).filter(|rest| rest.is_empty())?;
    }
    let mut section = endian.bytes_u32(u32::try_from(all.len()).ok()?).to_vec();
    all.values().for_each(|table| section.extend_from_slice(table));
    Some(section)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KERNEL: u64 = 1 << 63;

    /// A process with its frames: index, address and caller.
    type Table<'f> = (u32, &'f [(u32, u64, u64)]);

    fn section(endian: Endian, tables: &[Table<'_>]) -> Vec<u8> {
        let mut section = endian.bytes_u32(tables.len() as u32).to_vec();
        for (pid, frames) in tables {
            [*pid, 1 << 22, frames.len() as u32]
                .iter()
                .for_each(|word| section.extend(endian.bytes_u32(*word)));
            for (index, address, caller) in *frames {
                section.extend(endian.bytes_u32(*index));
                section.extend(endian.bytes_u64(address | caller << 40));
            }
        }
        section
    }

    #[test]
    fn a_stack_is_read_from_its_innermost_frame_outwards() {
        for endian in [Endian::Little, Endian::Big] {
            let own: &[(u32, u64, u64)] = &[
                (9, 0x1000, 0),
                (7, 0x2000, 9),
                (5, 0xff_ffff_fe00 | KERNEL, 7),
                (3, 0x80_0000 | KERNEL, 5),
                (2, 0x3000, 8),
                (6, 1, 6),
            ];
            let section = section(endian, &[(1, &[(3, 0x4000, 0)]), (7, own)]);
            let features = Features::from([(Feature::HIPERF_STACK_TABLE, section.into())]);
            let tables = StackTables::new(&features, endian);
            let chain = |tables: &StackTables, pid: u32, stack: &[u8]| {
                let callchain = Some(U64s::new(&[], endian));
                let mut sample = Sample::default();
                (sample.pid_tid, sample.callchain, sample.rest) = (Some((pid, pid)), callchain, stack);
                let mut buffer = vec![1];
                let chain = tables.chain_of(&sample, endian, &mut buffer);
                chain.map(|chain| chain.iter().collect::<Vec<u64>>())
            };
            let stack = |index: u64, count: u64| endian.bytes_u64(index | count << 23);
            let of = |pid: u32, index: u64, count: u64| chain(&tables, pid, &stack(index, count));
            let whole = [0xffff_ff00_0080_0000, u64::MAX - 511, 0x2000, 0x1000];
            assert_eq!(of(7, 3, 4).unwrap(), whole);
            assert_eq!(of(7, 3, 2).unwrap(), whole[..2]);
            assert_eq!(of(1, 3, 1).unwrap(), [0x4000]);
            assert_eq!(of(7, 2, 1).unwrap(), [0x3000]);
            assert!(of(7, 0, 0).unwrap().is_empty() && chain(&tables, 7, &[]).unwrap().is_empty());
            // Another process, a caller that is missing, too many, and other bytes at the end.
            assert_eq!(
                [of(8, 3, 4), of(7, 2, 2), of(7, 3, 8192), chain(&tables, 7, &[0; 16])],
                [const { None }; 4]
            );
            // More frames than the outermost has callers, and circles.
            assert_eq!([of(1, 3, 4), of(7, 0, 1), of(7, 6, 8191), of(7, 6, 1)], [const { None }; 4]);
            // Without the feature, the bytes have no meaning.
            assert!(chain(&StackTables::default(), 7, &stack(3, 4)).unwrap().is_empty());
        }
    }

    #[test]
    fn truncated_tables_have_the_frames_up_to_their_end() {
        let whole = section(Endian::Little, &[(7, &[(9, 0x1000, 0), (7, 0x2000, 9)])]);
        for end in 0..=whole.len() {
            let features = Features::from([(Feature::HIPERF_STACK_TABLE, whole[..end].to_vec().into())]);
            let tables = StackTables::new(&features, Endian::Little);
            assert_eq!(tables.frames.len(), end.saturating_sub(16) / 12);
            assert_eq!(tables.fault().is_some(), end < whole.len());
        }
        let rest = [&whole[..], &[0]].concat();
        let tables =
            StackTables::new(&Features::from([(Feature::HIPERF_STACK_TABLE, rest.into())]), Endian::Little);
        assert_eq!(
            tables.fault(),
            Some(&(FaultCode::SectionRest, "1 byte follows the last table".to_owned()))
        );
    }

    /// The last of the frames was taken.
    #[test]
    fn two_frames_with_one_index_are_both_ignored() {
        let frames: &[(u32, u64, u64)] =
            &[(9, 0x1000, 0), (9, 0x2000, 0), (7, 0x3000, 9), (5, 0x4000, 0), (5, 0x4000, 0)];
        let section = section(Endian::Little, &[(7, frames)]);
        let features = Features::from([(Feature::HIPERF_STACK_TABLE, section.into())]);
        let tables = StackTables::new(&features, Endian::Little);
        let depth = |index| tables.frames[&(7, index)].depth;
        assert_eq!([9, 7, 5].map(depth), [Frame::ASTRAY, Frame::ASTRAY, 1]);
    }

    #[test]
    fn tables_of_other_processes_are_united_and_those_of_one_are_not() {
        for endian in [Endian::Little, Endian::Big] {
            let of = |tables: &[Table<'_>]| section(endian, tables);
            let (one, other): (Table<'_>, Table<'_>) = ((7, &[(9, 0x1000, 0)]), (8, &[(9, 0x2000, 0)]));
            let united = |tables: &[Table<'_>]| united_stack_tables(&of(&[one]), &of(tables), endian);
            assert_eq!(united(&[other]), Some(of(&[one, other])));
            assert_eq!(united(&[other, one]), Some(of(&[one, other])));
            assert_eq!(united(&[(7, &[(9, 0x3000, 0)])]), None);
            assert_eq!(united_stack_tables(&of(&[one]), &of(&[other])[..20], endian), None);
        }
    }
}

//! Reads the call stacks that hiperf of OpenHarmony keeps in a feature, in place of the call chains of samples.
//!
//! `hiperf record --dedup_stack` writes an empty call chain into each sample and a u64 at its end: its stack. A stack is
//! its innermost frame in the table of its process, and the table has the caller of each frame.
//!
//! | | |
//! |---|---|
//! | section | u32 number of tables, then for each u32 pid, u32 size, u32 number of frames, and the frames |
//! | frame | u32 index, u64: bits 0 to 39 address, 40 to 62 index of the caller or 0, 63 set if bits 40 to 63 of the address are |
//! | stack | bits 0 to 22 index of the innermost frame, the others number of frames |
//!
//! Source: OpenHarmony, developtools_hiperf, unique_stack_table.h and perf_file_format.cpp.

use std::collections::HashMap;

use crate::header::Features;
use crate::sample::{CallStack, Sample, U64s};
use crate::{Endian, Feature, Layout, Record};

/// The most frames of a stack: those that fit into a record.
const MOST_FRAMES: u64 = 8191;

/// The tables of a recording.
#[derive(Clone, Default, Debug)]
pub struct StackTables {
    is_there: bool,
    /// By process and index.
    frames: HashMap<(u32, u32), u64>,
}

impl StackTables {
    /// Those of a recording; a section that is cut off has the frames up to there.
    pub fn new(features: &Features, endian: Endian) -> StackTables {
        let Some(section) = features.get(&Feature::HIPERF_STACK_TABLE) else { return StackTables::default() };
        let mut tables = StackTables { is_there: true, ..StackTables::default() };
        let _ = tables.read(section, endian);
        tables
    }

    /// True if the recording has tables.
    pub fn is_there(&self) -> bool {
        self.is_there
    }

    fn read(&mut self, section: &[u8], endian: Endian) -> Option<()> {
        let mut at = 4;
        for _ in 0..endian.u32(section, 0)? {
            let (pid, count) = (endian.u32(section, at)?, endian.u32(section, at + 8)?);
            at += 12;
            for _ in 0..count {
                let (index, frame) = (endian.u32(section, at)?, endian.u64(section, at + 4)?);
                self.frames.insert((pid, index), frame);
                at += 12;
            }
        }
        Some(())
    }

    /// The call stack of a sample: that of its parts, or the one in the tables, written into `buffer`. `None` if its event
    /// records none, it does not fit into the record, or not all of its frames are in the tables.
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
        let (mut index, mut left) = (stack as u32 & 0x7f_ffff, stack >> 23);
        if left > MOST_FRAMES {
            return None;
        }
        while index != 0 && left > 0 {
            let frame = *self.frames.get(&(pid, index))?;
            let upper = if frame >> 63 == 0 { 0 } else { 0xff_ffff << 40 };
            buffer.extend(endian.bytes_u64(frame & 0xff_ffff_ffff | upper));
            index = (frame >> 40) as u32 & 0x7f_ffff;
            left -= 1;
        }
        Some(())
    }
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
    fn a_stack_is_read_from_its_innermost_frame_on() {
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
            assert_eq!(of(1, 3, 4).unwrap(), [0x4000]);
            assert!(of(7, 0, 0).unwrap().is_empty() && chain(&tables, 7, &[]).unwrap().is_empty());
            // Another process, a caller that is missing, a circle, too many, and other bytes at the end.
            assert_eq!(
                [of(8, 3, 4), of(7, 2, 2), of(7, 6, 8192), chain(&tables, 7, &[0; 16])],
                [const { None }; 4]
            );
            assert_eq!(of(7, 6, 8191).unwrap().len(), 8191);
            // Without the feature, the bytes say nothing.
            assert!(chain(&StackTables::default(), 7, &stack(3, 4)).unwrap().is_empty());
        }
    }

    #[test]
    fn tables_that_are_cut_off_have_the_frames_up_to_there() {
        let whole = section(Endian::Little, &[(7, &[(9, 0x1000, 0), (7, 0x2000, 9)])]);
        for end in 0..=whole.len() {
            let features = Features::from([(Feature::HIPERF_STACK_TABLE, whole[..end].to_vec().into())]);
            let tables = StackTables::new(&features, Endian::Little);
            assert_eq!(tables.frames.len(), end.saturating_sub(16) / 12);
        }
    }
}

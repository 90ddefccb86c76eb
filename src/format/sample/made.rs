//! Builds SAMPLE records from their parts.

use super::{Branch, Read, registers};
use crate::record::builder::{set_size, start};
use crate::{Attr, Endian, RecordType, sample_fields, sample_type as st};

/// The parts of a new sample. Unrecorded ones are omitted; recorded ones without a value are empty or 0.
#[allow(missing_docs, reason = "the names are those of `Sample`")]
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct NewSample<'a> {
    /// The level at which the code ran ([`cpumode`](crate::record::cpumode)).
    pub cpumode: u16,
    /// True if `ip` is exactly that of the instruction: bit EXACT_IP of `misc`.
    pub is_exact: bool,
    pub ip: u64,
    pub pid: u32,
    pub tid: u32,
    pub time: u64,
    pub addr: u64,
    /// The event's id; also its stream id and identifier.
    pub id: u64,
    pub cpu: u32,
    pub period: u64,
    /// The entries of the call chain, with its markers.
    pub callchain: &'a [u64],
    /// Raw data, as 32-bit numbers.
    pub raw: &'a [u32],
    /// The last branches, newest first, in two slices, like a ring buffer.
    pub branches: [&'a [Branch]; 2],
    /// The index of the newest branch in the hardware; `u64::MAX` if that is not known.
    pub branch_index: u64,
    pub weight: u64,
    /// The latency of the instruction, recorded with WEIGHT_STRUCT.
    pub latency: u16,
    pub data_src: u64,
    pub transaction: u64,
    /// The registers at the interrupt: their ABI, and the value of each that the event records.
    pub registers: Option<(u64, &'a [u64])>,
    pub phys_addr: u64,
}

/// Bit of `misc`: the address is that of the instruction itself.
const EXACT_IP: u16 = 1 << 14;

pub use crate::attr::BRANCH_HW_INDEX;

const WORD: usize = size_of::<u64>();

impl NewSample<'_> {
    /// The record of an event with this attr. `None` if the event records parts that have no name yet, or the
    /// record would be larger than one can be.
    pub fn build(&self, attr: &Attr, endian: Endian) -> Option<Vec<u8>> {
        let mut bytes = Vec::new();
        self.write(attr, endian, &mut bytes)?;
        Some(bytes)
    }

    /// Like [`NewSample::build`], appended to `bytes`, which are unchanged if there is no record.
    pub fn write(&self, attr: &Attr, endian: Endian, bytes: &mut Vec<u8>) -> Option<()> {
        let start = bytes.len();
        let written = self.append(attr, endian, bytes);
        if written.is_none() {
            bytes.truncate(start);
        }
        written
    }

    fn append(&self, attr: &Attr, endian: Endian, bytes: &mut Vec<u8>) -> Option<()> {
        let begin = bytes.len();
        if attr.sample_type & st::UNNAMED != 0 {
            return None;
        }
        let has = |bit| attr.sample_type & bit != 0;
        let branches = self.branches[0].len() + self.branches[1].len();
        // Maximum number of words of the parts that are not lists.
        let values = self.registers.map_or(0, |(_, values)| values.len());
        let lists = self.callchain.len() + self.raw.len() + 3 * branches + values;
        bytes.reserve(WORD * (lists + 40));
        let exact = if self.is_exact { EXACT_IP } else { 0 };
        start(bytes, RecordType::SAMPLE, self.cpumode | exact, endian)?;
        let mut put = |word: u64| bytes.extend_from_slice(&endian.bytes_u64(word));
        let pair = |one: u32, other: u32| match endian {
            Endian::Little => u64::from(other) << 32 | u64::from(one),
            Endian::Big => u64::from(one) << 32 | u64::from(other),
        };
        for bit in sample_fields(attr.sample_type) {
            put(match bit {
                st::IP => self.ip,
                st::TID => pair(self.pid, self.tid),
                st::TIME => self.time,
                st::ADDR => self.addr,
                st::CPU => pair(self.cpu, 0),
                st::PERIOD => self.period,
                _ => self.id,
            });
        }
        if has(st::READ) {
            Read::empty(attr.read_format, self.id).into_iter().for_each(&mut put);
        }
        if has(st::CALLCHAIN) {
            put(self.callchain.len() as u64);
            self.callchain.iter().for_each(|entry| put(*entry));
        }
        if has(st::RAW) {
            // The size is that up to the end of a word.
            let size = 4 * (self.raw.len() | 1) as u32;
            let padding = if self.raw.len().is_multiple_of(2) { &[0][..] } else { &[] };
            for numbers in [&[size], self.raw, padding] {
                numbers.iter().for_each(|number| bytes.extend_from_slice(&endian.bytes_u32(*number)));
            }
        }
        let mut put = |word: u64| bytes.extend_from_slice(&endian.bytes_u64(word));
        if has(st::BRANCH_STACK) {
            put(branches as u64);
            if attr.branch_sample_type & BRANCH_HW_INDEX != 0 {
                put(self.branch_index);
            }
            for piece in self.branches {
                let at = bytes.len();
                bytes.resize(at + 3 * WORD * piece.len(), 0);
                let words = bytes[at..].as_chunks_mut().0.as_chunks_mut().0;
                for (branch, [from, to, flags]) in piece.iter().zip(words) {
                    *from = endian.bytes_u64(branch.from);
                    *to = endian.bytes_u64(branch.to);
                    *flags = endian.bytes_u64(branch.flags.to_word(endian));
                }
            }
        }
        let mut put = |word: u64| bytes.extend_from_slice(&endian.bytes_u64(word));
        let weight = match has(st::WEIGHT_STRUCT) {
            true => self.weight & u64::from(u32::MAX) | u64::from(self.latency) << 32,
            false => self.weight,
        };
        let (abi, values) = self.registers.unwrap_or((registers::ABI_NONE, &[]));
        let after = [
            (st::REGS_USER, registers::ABI_NONE, &[][..]),
            (st::STACK_USER, 0, &[]),
            (st::WEIGHT | st::WEIGHT_STRUCT, weight, &[]),
            (st::DATA_SRC, self.data_src, &[]),
            (st::TRANSACTION, self.transaction, &[]),
            (st::REGS_INTR, abi, values),
            (st::PHYS_ADDR, self.phys_addr, &[]),
            (st::CGROUP, 0, &[]),
            (st::DATA_PAGE_SIZE, 0, &[]),
            (st::CODE_PAGE_SIZE, 0, &[]),
            (st::AUX, 0, &[]),
        ];
        for (_, word, list) in after.into_iter().filter(|(bits, ..)| has(*bits)) {
            put(word);
            list.iter().for_each(|word| put(*word));
        }
        set_size(&mut bytes[begin..], endian)?;
        Some(())
    }
}

#[cfg(test)]
mod tests {
    use super::super::{BranchFlags, DataSrc, Sample, Weight};
    use super::*;
    use crate::{Layout, Origin, Record};

    #[test]
    fn a_built_sample_is_read_again() {
        for endian in [Endian::Little, Endian::Big] {
            let flags = BranchFlags(1 << 1 | 1234 << 4 | 4 << 20);
            let branches = [1, 3].map(|from| Branch { from, to: from + 1, flags });
            let new = NewSample {
                cpumode: 2,
                is_exact: true,
                ip: 0x40_0000,
                pid: 7,
                tid: 8,
                time: 9,
                addr: 10,
                id: 11,
                cpu: 3,
                period: 12,
                callchain: &[u64::MAX - 511, 16],
                raw: &[17, 18],
                branches: branches.split_at(1).into(),
                branch_index: u64::MAX,
                weight: 13,
                data_src: 14,
                phys_addr: 15,
                latency: 16,
                transaction: 17,
                registers: Some((registers::ABI_64, &[18, 19])),
            };
            let mut attr = Attr { branch_sample_type: BRANCH_HW_INDEX, ..Attr::default() };
            attr.sample_type = !(st::UNNAMED | st::WEIGHT);
            (attr.sample_regs_intr, attr.sample_regs_user, attr.read_format) = (5, 7, 4);
            let bytes = new.build(&attr, endian).unwrap();
            let record = Record::new(&bytes, &[], Origin::Synthetic, endian).unwrap();
            let sample = Sample::parse(&record, &Layout::new(&attr)).unwrap();
            assert_eq!(record.misc(), 2 | EXACT_IP);
            assert_eq!((record.cpumode(), sample.identifier, sample.ip), (2, Some(11), Some(0x40_0000)));
            assert_eq!((sample.pid_tid, sample.time, sample.addr), (Some((7, 8)), Some(9), Some(10)));
            assert_eq!((sample.id, sample.stream_id, sample.cpu), (Some(11), Some(11), Some(3)));
            assert_eq!((sample.period, sample.phys_addr), (Some(12), Some(15)));
            assert_eq!((sample.data_src, sample.rest.len()), (Some(DataSrc(14)), 0));
            assert_eq!(sample.callchain.unwrap().iter().collect::<Vec<_>>(), new.callchain);
            let raw = [17, 18, 0].map(|number| endian.bytes_u32(number)).concat();
            assert_eq!(sample.raw, Some(&raw[..]));
            let stack = sample.branches.unwrap();
            assert_eq!((stack.hw_idx, stack.iter().collect::<Vec<_>>()), (Some(u64::MAX), branches.to_vec()));
            let (weight, read) = (sample.weight, sample.read.unwrap().counts().next().unwrap());
            assert_eq!(weight, Some(Weight::Parts { var1_dw: 13, var2_w: 16, var3_w: 0 }));
            assert_eq!((read.value, read.id, sample.transaction), (0, Some(11), Some(17)));
            let found = sample.regs_intr.unwrap();
            assert_eq!((found.abi, found.iter().collect::<Vec<_>>()), (2, vec![(0, 18), (2, 19)]));
            assert_eq!((sample.regs_user.unwrap().abi, sample.stack_user.unwrap().bytes.len()), (0, 0));
            assert_eq!((sample.cgroup, sample.aux), (Some(0), Some(&[][..])));
            attr.sample_type |= 1 << 40;
            assert_eq!(new.build(&attr, endian), None);
            let mut after = vec![1, 2, 3];
            assert_eq!((new.write(&attr, endian, &mut after), &after[..]), (None, &[1, 2, 3][..]));
            attr.sample_type &= !(1 << 40);
            new.write(&attr, endian, &mut after).unwrap();
            assert_eq!(after[3..], bytes);
        }
    }
}

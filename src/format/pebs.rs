//! The samples that a processor writes into a trace of Intel PT instead of a buffer of its own: PEBS via PT.
//!
//! Each is a block of packets: groups of items (BBP), items (BIP), and an end (BEP). Source: Intel SDM volume
//! 3, "Intel Processor Trace", tables of BBP types and of BIP encodings.
//!
//! | group | items |
//! |---|---|
//! | 0x01 | 0 RFLAGS, 1 RIP, 2 RAX, 3 RCX, 4 RDX, 5 RBX, 6 RSP, 7 RBP, 8 RSI, 9 RDI, 10-17 R8-R15 |
//! | 0x04 | 0 instruction pointer, 1 applicable counters, as bits, 2 time-stamp counter |
//! | 0x05 | 0 address, 1 details, 2 latency, 3 transaction |
//! | 0x08, 0x09, 0x0a | the last branches, newest first: from, to and details of each |
//! | 0x10 | XMM0-XMM15, the lower half of each before the upper one |
//!
//! | bits of a latency | |
//! |---|---|
//! | 0-31 | the access to memory, if the other bits are 0 |
//! | 0-15, 32-47 | the instruction, and the access |
//!
//! | bits of the item for transactions | |
//! |---|---|
//! | 0-31 | cycles in the last transaction |
//! | 32-39 | bits of the sample's part TRANSACTION |

use crate::sample::{Branch, BranchFlags};

const ITEMS: usize = 32;

const REGISTERS: u8 = 0x01;
const BASIC: u8 = 0x04;
const MEMORY: u8 = 0x05;
const BRANCHES: [u8; 3] = [0x08, 0x09, 0x0a];
const XMM: u8 = 0x10;
const GROUPS: [u8; 7] = [REGISTERS, BASIC, MEMORY, BRANCHES[0], BRANCHES[1], BRANCHES[2], XMM];

/// The item of each register of x86-64, by its number in `attr.sample_regs_intr`. Segments have none.
const ITEM_OF_REGISTER: [Option<u8>; 24] = {
    let mut items = [None; 24];
    let named = [2, 5, 3, 4, 8, 9, 7, 6, 1, 0];
    let mut number = 0;
    while number < named.len() {
        items[number] = Some(named[number]);
        number += 1;
    }
    number = 16;
    while number < 24 {
        items[number] = Some(number as u8 - 6);
        number += 1;
    }
    items
};

/// The number of the first half of an XMM register in `attr.sample_regs_intr`.
const FIRST_XMM: u32 = 32;

/// The items of a sample.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Items {
    values: [[Option<u64>; ITEMS]; GROUPS.len()],
}

impl Default for Items {
    fn default() -> Items {
        Items { values: [[None; ITEMS]; GROUPS.len()] }
    }
}

impl Items {
    /// Adds an item, or replaces it. Items of unknown groups are ignored.
    pub fn add(&mut self, group: u8, id: u8, value: u64) {
        let group = GROUPS.iter().position(|known| *known == group);
        if let Some(item) = group.and_then(|group| self.values[group].get_mut(usize::from(id))) {
            *item = Some(value);
        }
    }

    fn group(&self, group: u8) -> &[Option<u64>; ITEMS] {
        let number = GROUPS.iter().position(|known| *known == group);
        &self.values[number.unwrap_or_default()]
    }

    fn has(&self, group: u8) -> bool {
        self.group(group).iter().any(Option::is_some)
    }

    /// The address of the instruction: that of the event if present.
    pub fn ip(&self) -> Option<u64> {
        self.group(BASIC)[0].or(self.group(REGISTERS)[1])
    }

    /// The sampled counters, as bits.
    pub fn counters(&self) -> u64 {
        self.group(BASIC)[1].unwrap_or(0)
    }

    /// The time, in ticks of the time-stamp counter.
    pub fn ticks(&self) -> Option<u64> {
        self.group(BASIC)[2].filter(|ticks| *ticks > 0)
    }

    /// The address of the memory that was used.
    pub fn address(&self) -> Option<u64> {
        self.group(MEMORY)[0]
    }

    /// The weight and the latency of the instruction, 0 if they are not known. In a transaction without a
    /// latency of memory its weight is the cycles in it.
    pub fn weight(&self) -> (u64, u16) {
        let latency = self.group(MEMORY)[2].unwrap_or(0);
        let (weight, of_instruction) = match latency >> 32 {
            0 => (latency, 0),
            access => (access & 0xffff, latency as u16),
        };
        let of_transaction = self.group(MEMORY)[3].unwrap_or(0) & 0xffff_ffff;
        (if weight == 0 { of_transaction } else { weight }, of_instruction)
    }

    /// The part TRANSACTION: how the last transaction ended, and the code of an abort, from RAX.
    pub fn transaction(&self) -> u64 {
        const OF_PROGRAM: u64 = 1 << 1;
        const CODE: u32 = 32;
        let ended = self.group(MEMORY)[3].unwrap_or(0) >> 32 & 0xff;
        let ax = self.group(REGISTERS)[2].unwrap_or(0);
        let code = if ended & OF_PROGRAM != 0 && ax & 1 != 0 { ax >> 24 & 0xff } else { 0 };
        ended | code << CODE
    }

    /// True if registers were recorded.
    pub fn has_registers(&self) -> bool {
        self.has(REGISTERS) || self.has(XMM)
    }

    /// The register with this number in `attr.sample_regs_intr`; 0 if it is not known.
    pub fn register(&self, number: u32) -> u64 {
        let item = match number.checked_sub(FIRST_XMM) {
            Some(half) => self.group(XMM).get(half as usize).copied().flatten(),
            None => ITEM_OF_REGISTER
                .get(number as usize)
                .and_then(|item| self.group(REGISTERS)[usize::from((*item)?)]),
        };
        item.unwrap_or(0)
    }

    /// The last branches, newest first, if they were recorded. Incomplete branches are left out.
    pub fn branches(&self) -> Option<Vec<Branch>> {
        if !BRANCHES.iter().any(|group| self.has(*group)) {
            return None;
        }
        let whole = |items: &[Option<u64>; 3]| {
            Some(Branch { from: items[0]?, to: items[1]?, flags: BranchFlags::of_lbr(items[2]?) })
        };
        let branches = BRANCHES.iter().flat_map(|group| self.group(*group).as_chunks().0);
        Some(branches.filter_map(whole).collect())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn registers_have_the_numbers_of_the_kernel() {
        let mut items = Items::default();
        (0..18).for_each(|id| items.add(REGISTERS, id, u64::from(id) + 100));
        (0..32).for_each(|id| items.add(XMM, id, u64::from(id) + 200));
        let registers: Vec<u64> = (0..64).map(|number| items.register(number)).collect();
        assert_eq!(registers[..10], [102, 105, 103, 104, 108, 109, 107, 106, 101, 100]);
        assert_eq!(registers[10..16], [0; 6]);
        assert_eq!(registers[16..24], [110, 111, 112, 113, 114, 115, 116, 117]);
        assert_eq!((registers[31], registers[32], registers[63]), (0, 200, 231));
        assert_eq!((items.ip(), items.has_registers()), (Some(101), true));
        items.add(BASIC, 0, 7);
        items.add(BASIC, 0, 8);
        items.add(0x1f, 0, 9);
        items.add(BASIC, 32, 9);
        assert_eq!((items.ip(), Items::default().ip()), (Some(8), None));
    }

    #[test]
    fn weights_and_transactions_are_those_of_the_kernel() {
        let of = |latency: u64, transaction: u64, ax: u64| {
            let mut items = Items::default();
            items.add(MEMORY, 2, latency);
            items.add(MEMORY, 3, transaction);
            items.add(REGISTERS, 2, ax);
            (items.weight(), items.transaction())
        };
        assert_eq!(of(33, 0x12 << 32 | 9, 0), ((33, 0), 0x12));
        assert_eq!(of(0xffff_ffff, 0, 0), ((0xffff_ffff, 0), 0));
        assert_eq!(of(0xffff_0003_1234_0005, 0, 0), ((3, 5), 0));
        assert_eq!(of(0, 0x13 << 32 | 99, 0x7f00_0001), ((99, 0), 0x7f_0000_0013));
        assert_eq!(of(1 << 48 | 7, 0x11 << 32 | 99, 0x7f00_0001), ((99, 7), 0x11));
    }

    #[test]
    fn a_branch_has_three_items() {
        let mut items = Items::default();
        assert_eq!(items.branches(), None);
        [(0, 1), (1, 2), (2, 3), (3, 4), (30, 5)].into_iter().for_each(|(id, value)| items.add(8, id, value));
        [(6, 6), (7, 7), (8, 1 << 63)].into_iter().for_each(|(id, value)| items.add(10, id, value));
        let found = items.branches().unwrap();
        let ends: Vec<_> = found.iter().map(|branch| (branch.from, branch.to)).collect();
        assert_eq!(ends, [(1, 2), (6, 7)]);
        assert_eq!(found[0].flags, BranchFlags(BranchFlags::PREDICTED | 3 << 4));
        assert_eq!(found[1].flags, BranchFlags(BranchFlags::MISPRED));
    }
}

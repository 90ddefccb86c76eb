//! Names the bit fields of `perf_branch_entry` and of `perf_mem_data_src` in a table each, and converts the
//! fields of a big-endian machine to little-endian numbering.

use std::borrow::Cow;

use crate::{Endian, bit_names};

#[derive(Clone, Copy, Debug)]
enum Names {
    Number,
    /// One of these; other values are numbers.
    One(&'static [&'static str]),
    Any(&'static [(u32, &'static str)]),
}

/// Name, lowest bit, number of bits, meaning.
type Field = (&'static str, u32, u32, Names);

fn get(word: u64, (_, shift, width, _): &Field) -> u64 {
    word >> shift & ((1 << width) - 1)
}

/// Name and value of the fields that are not 0; constants by name. Bits above the last field are `reserved`.
fn parts(word: u64, fields: &'static [Field]) -> impl Iterator<Item = (&'static str, Cow<'static, str>)> {
    let known = fields.iter().filter_map(move |field| {
        let value = get(word, field);
        let named = match field.3 {
            _ if value == 0 => return None,
            Names::Number => None,
            Names::One(names) => {
                names.get(value as usize).filter(|name| !name.is_empty()).map(|&name| name.into())
            }
            Names::Any(names) => Some(bit_names(value, names)),
        };
        Some((field.0, named.unwrap_or_else(|| value.to_string().into())))
    });
    let end = fields.last().map_or(0, |(_, shift, width, _)| shift + width);
    let reserved = (word >> end != 0).then(|| ("reserved", format!("{:#x}", word >> end).into()));
    known.chain(reserved)
}

/// Source: include/uapi/linux/perf_event.h, struct perf_branch_entry, in the numbering of a little-endian
/// machine; `not_taken` is perf's own (tools/perf/util/branch.h).
const BRANCH: &[Field] = &[
    ("mispred", 0, 1, Names::Number),
    ("predicted", 1, 1, Names::Number),
    ("in_tx", 2, 1, Names::Number),
    ("abort", 3, 1, Names::Number),
    ("cycles", 4, 16, Names::Number),
    ("type", 20, 4, Names::One(BRANCH_TYPES)),
    ("spec", 24, 2, Names::One(&["", "SPEC_WRONG_PATH", "NON_SPEC_CORRECT_PATH", "SPEC_CORRECT_PATH"])),
    (
        "new_type",
        26,
        4,
        Names::One(&["", "FAULT_DATA", "FAULT_INST", "ARCH_1", "ARCH_2", "ARCH_3", "ARCH_4", "ARCH_5"]),
    ),
    ("priv", 30, 3, Names::One(&["", "USER", "KERNEL", "HV"])),
    ("not_taken", 33, 1, Names::Number),
];

const BRANCH_TYPES: &[&str] = &[
    "", "COND", "UNCOND", "IND", "CALL", "IND_CALL", "RET", "SYSCALL", "SYSRET", "COND_CALL", "COND_RET",
    "ERET", "IRQ", "SERROR", "NO_TX", "EXTEND_ABI",
];

const NEW_BRANCH_TYPES: &[&str] =
    &["FAULT_ALGN", "FAULT_DATA", "FAULT_INST", "ARCH_1", "ARCH_2", "ARCH_3", "ARCH_4", "ARCH_5"];

/// Kinds of branches (include/uapi/linux/perf_event.h, `PERF_BR_*`).
#[allow(missing_docs, reason = "the names are those of the kernel")]
pub mod branch_kind {
    pub const UNKNOWN: u8 = 0;
    pub const COND: u8 = 1;
    pub const UNCOND: u8 = 2;
    pub const CALL: u8 = 4;
    pub const RET: u8 = 6;
    pub const COND_CALL: u8 = 9;
    pub const COND_RET: u8 = 10;
    /// `new_type` has the kind.
    pub const EXTEND_ABI: u8 = 15;
}

/// The flags of a branch, numbered as on a little-endian machine: 0 mispred, 1 predicted, 2 in_tx, 3 abort,
/// 4-19 cycles, 20-23 type, 24-25 spec, 26-29 new_type, 30-32 priv, 33 not_taken.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct BranchFlags(pub u64);

impl BranchFlags {
    /// Decodes the u64 as read in the recording's byte order. A big-endian compiler allocates the fields from
    /// the other end of the word, with the bits of each field in the usual order, so they are moved one by
    /// one.
    pub fn new(raw: u64, endian: Endian) -> BranchFlags {
        if endian == Endian::Little {
            return BranchFlags(raw);
        }
        let (mut word, mut end) = (0, 0);
        for &(_, shift, width, _) in BRANCH {
            end = shift + width;
            word |= (raw >> (64 - end) & ((1 << width) - 1)) << shift;
        }
        // The reserved bits are a field too.
        BranchFlags(word | (raw & ((1 << (64 - end)) - 1)) << end)
    }

    /// Bit 0: the target was mispredicted.
    pub const MISPRED: u64 = 1;
    /// Bit 1: the target was predicted correctly.
    pub const PREDICTED: u64 = 1 << 1;
    /// Bit 2: the branch was in a transaction.
    pub const IN_TX: u64 = 1 << 2;
    /// Bit 3: the branch aborted a transaction.
    pub const ABORT: u64 = 1 << 3;
    /// Bit 33: the branch was not taken.
    pub const NOT_TAKEN: u64 = 1 << 33;

    /// A branch of this kind, one of [`branch_kind`], with these of the bits above.
    pub fn made(kind: u8, cycles: u16, bits: u64) -> BranchFlags {
        BranchFlags(bits | u64::from(cycles) << 4 | u64::from(kind & 15) << 20)
    }

    /// The details of a branch as a register of the last branch record of Intel has them: bits 0-15 cycles,
    /// 61 abort, 62 in a transaction, 63 mispredicted.
    pub fn of_lbr(info: u64) -> BranchFlags {
        let flag = |bit: u32, flag: u64| if info >> bit & 1 != 0 { flag } else { 0 };
        let predicted = if info >> 63 != 0 { BranchFlags::MISPRED } else { BranchFlags::PREDICTED };
        let bits = predicted | flag(62, BranchFlags::IN_TX) | flag(61, BranchFlags::ABORT);
        BranchFlags::made(0, info as u16, bits)
    }

    /// The u64 that [`BranchFlags::new`] decodes.
    pub fn to_word(self, endian: Endian) -> u64 {
        if endian == Endian::Little {
            return self.0;
        }
        let (mut word, mut end) = (0, 0);
        for field in BRANCH {
            end = field.1 + field.2;
            word |= get(self.0, field) << (64 - end);
        }
        word | self.0 >> end
    }

    /// The target was mispredicted.
    pub fn mispred(self) -> bool {
        self.0 & 1 != 0
    }

    /// The target was predicted correctly.
    pub fn predicted(self) -> bool {
        self.0 & 2 != 0
    }

    /// Cycles since the previous branch; 0 if the CPU does not report them.
    pub fn cycles(self) -> u16 {
        get(self.0, &BRANCH[4]) as u16
    }

    /// The kind of branch, one of [`branch_kind`].
    pub fn kind(self) -> u8 {
        get(self.0, &BRANCH[5]) as u8
    }

    /// The name of its kind, without PERF_BR_ and PERF_BR_NEW_; `None` if that is unknown.
    pub fn kind_name(self) -> Option<&'static str> {
        let name = match self.kind() {
            branch_kind::EXTEND_ABI => *NEW_BRANCH_TYPES.get(get(self.0, &BRANCH[7]) as usize)?,
            kind => *BRANCH_TYPES.get(usize::from(kind))?,
        };
        (!name.is_empty()).then_some(name)
    }

    /// The fields that are not 0, constants by name.
    pub fn parts(self) -> impl Iterator<Item = (&'static str, Cow<'static, str>)> {
        parts(self.0, BRANCH)
    }
}

/// Source: include/uapi/linux/perf_event.h, union perf_mem_data_src; the same bits in either byte order.
const DATA_SRC: &[Field] = &[
    ("op", 0, 5, Names::Any(&[(0, "NA"), (1, "LOAD"), (2, "STORE"), (3, "PFETCH"), (4, "EXEC")])),
    ("lvl", 5, 14, Names::Any(LEVELS)),
    ("snoop", 19, 5, Names::Any(&[(0, "NA"), (1, "NONE"), (2, "HIT"), (3, "MISS"), (4, "HITM")])),
    ("lock", 24, 2, Names::Any(&[(0, "NA"), (1, "LOCKED")])),
    (
        "dtlb",
        26,
        7,
        Names::Any(&[(0, "NA"), (1, "HIT"), (2, "MISS"), (3, "L1"), (4, "L2"), (5, "WK"), (6, "OS")]),
    ),
    ("lvl_num", 33, 4, Names::One(LEVEL_NUMBERS)),
    ("remote", 37, 1, Names::Number),
    ("snoopx", 38, 2, Names::Any(&[(0, "FWD"), (1, "PEER")])),
    ("blk", 40, 3, Names::Any(&[(0, "NA"), (1, "DATA"), (2, "ADDR")])),
    ("hops", 43, 3, Names::One(&["", "HOPS_0", "HOPS_1", "HOPS_2", "HOPS_3"])),
    ("region", 46, 5, Names::One(REGIONS)),
];

const LEVELS: &[(u32, &str)] = &[
    (0, "NA"),
    (1, "HIT"),
    (2, "MISS"),
    (3, "L1"),
    (4, "LFB"),
    (5, "L2"),
    (6, "L3"),
    (7, "LOC_RAM"),
    (8, "REM_RAM1"),
    (9, "REM_RAM2"),
    (10, "REM_CCE1"),
    (11, "REM_CCE2"),
    (12, "IO"),
    (13, "UNC"),
];

const LEVEL_NUMBERS: &[&str] = &[
    "", "L1", "L2", "L3", "L4", "L2_MHB", "MSC", "L0", "UNC", "CXL", "IO", "ANY_CACHE", "LFB", "RAM", "PMEM",
    "NA",
];

const REGIONS: &[&str] = &[
    "", "RSVD", "L_SHARE", "L_NON_SHARE", "O_IO", "O_SHARE", "O_NON_SHARE", "MMIO", "MEM0", "MEM1", "MEM2",
    "MEM3", "MEM4", "MEM5", "MEM6", "MEM7",
];

/// The source of the data, `union perf_mem_data_src`: bits 0-4 op, 5-18 lvl, 19-23 snoop, 24-25 lock, 26-32
/// dtlb, 33-36 lvl_num, 37 remote, 38-39 snoopx, 40-42 blk, 43-45 hops, 46-50 region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct DataSrc(pub u64);

impl DataSrc {
    /// Unknown source: NA in each of the fields op, lvl, snoop, lock, dtlb and lvl_num, as perf writes it.
    pub const UNKNOWN: DataSrc = DataSrc(1 | 1 << 5 | 1 << 19 | 1 << 24 | 1 << 26 | 0xf << 33);

    /// The fields that are not 0, constants by name.
    pub fn parts(self) -> impl Iterator<Item = (&'static str, Cow<'static, str>)> {
        parts(self.0, DATA_SRC)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(parts: impl Iterator<Item = (&'static str, Cow<'static, str>)>) -> String {
        parts.map(|(name, value)| format!("{name}={value}")).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn branch_flags_of_both_byte_orders_are_the_same_fields() {
        let little = 1 << 1 | 1 << 2 | 0x1234 << 4 | 15 << 20 | 2 << 24 | 6 << 26 | 2 << 30 | 5 << 33;
        // As a big-endian compiler lays it out, from bit 63 down.
        let big = 1 << 62 | 1 << 61 | 0x1234 << 44 | 15 << 40 | 2 << 38 | 6 << 34 | 2 << 31 | 1 << 30 | 2;
        let expected = "predicted=1 in_tx=1 cycles=4660 type=EXTEND_ABI spec=NON_SPEC_CORRECT_PATH new_type=ARCH_4 priv=KERNEL \
                        not_taken=1 reserved=0x2";
        assert_eq!(words(BranchFlags::new(little, Endian::Little).parts()), expected);
        assert_eq!(BranchFlags::new(big, Endian::Big), BranchFlags::new(little, Endian::Little));
        assert_eq!(BranchFlags::new(big, Endian::Big).to_word(Endian::Big), big);
        assert_eq!(BranchFlags::new(u64::MAX, Endian::Big).0, u64::MAX);
        let flags = BranchFlags::new(1 << 63, Endian::Big);
        assert!(flags.mispred() && !flags.predicted());
        assert_eq!((BranchFlags(little).cycles(), BranchFlags(little).kind()), (0x1234, 15));
    }

    #[test]
    fn a_data_source_is_named() {
        let value =
            1 << 1 | (1 << 1 | 1 << 3) << 5 | 1 << 20 | 1 << 25 | 3 << 33 | 1 << 37 | 2 << 43 | 31 << 46;
        let expected = "op=LOAD lvl=HIT|L1 snoop=NONE lock=LOCKED lvl_num=L3 remote=1 hops=HOPS_1 region=31";
        assert_eq!(words(DataSrc(value).parts()), expected);
        assert_eq!(words(DataSrc(1 << 63).parts()), "reserved=0x1000");
        assert_eq!(words(DataSrc(0).parts()), "");
    }
}

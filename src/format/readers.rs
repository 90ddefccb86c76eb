//! Programs that read recordings, and the parts of the format that they know. The facts are from
//! include/uapi/linux/perf_event.h and tools/perf of these versions (`perf_attr_check` in util/header.c,
//! which refuses unknown bits), from hotspot-perfparser 1.3 and from quipper's sample_info_reader.cc; perf
//! and hotspot-perfparser were tried.

use crate::attr::KnownAttr;
use crate::sample_type as st;
use crate::{Kinds, RecordType};

/// A program that reads recordings.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub struct Reader {
    /// Its name on the command line.
    pub name: &'static str,
    /// The known parts of attrs. It refuses or misreads larger attrs, and other bits.
    pub attr: KnownAttr,
    /// The kinds of records that it refuses, or at which it aborts.
    pub refused: fn(RecordType) -> bool,
    /// True if it reads build-ids in MMAP2 records.
    pub mmap_build_ids: bool,
    /// The first unknown feature. It refuses pipe data with such a feature, and skips it in a file.
    pub first_unknown_feature: u32,
    /// True if it reads MMAP2 records of the kernel. perf before 5.12 reads them as MMAP records.
    pub kernel_mmap2: bool,
    /// The kinds of compressed records that it reads.
    pub compressed: Kinds,
    /// True if it reads version 2 of the description of Arm SPE.
    pub spe_v2: bool,
    /// True if it reads [`deferred`](crate::record::deferred) call chains.
    pub deferred_chains: bool,
}

const LOST: u64 = 1 << 4;

const BRANCH_COUNTERS: u64 = 1 << 19;

const fn below(bit: u32) -> u64 {
    (1 << bit) - 1
}

/// True for the kernel's kinds from `kernel` on, and for perf's from `perf` on.
const fn newer(kind: u32, kernel: u32, perf: u32) -> bool {
    kind >= kernel && kind < 64 || kind >= perf
}

const PERF_6_12: Reader = Reader {
    name: "perf-6.12",
    // PERF_ATTR_SIZE_VER8; the last flag is sigtrap, the last branch bit COUNTERS.
    attr: KnownAttr {
        size: 136,
        flags: below(38),
        sample_type: below(25),
        read_format: below(5),
        branch_sample_type: below(20),
    },
    refused: |kind| newer(kind.0, 22, 83),
    mmap_build_ids: true,
    first_unknown_feature: 32,
    kernel_mmap2: true,
    compressed: Kinds::of(&[RecordType::COMPRESSED]),
    spe_v2: false,
    deferred_chains: false,
};

const HOTSPOT: Reader = Reader {
    name: "hotspot",
    attr: KnownAttr {
        size: usize::MAX,
        flags: u64::MAX,
        sample_type: u64::MAX,
        read_format: u64::MAX,
        branch_sample_type: u64::MAX,
    },
    refused: |_| false,
    mmap_build_ids: false,
    first_unknown_feature: u32::MAX,
    kernel_mmap2: true,
    compressed: Kinds::NONE,
    spe_v2: true,
    deferred_chains: false,
};

/// The programs that are known.
pub static READERS: [Reader; 5] = [
    PERF_6_12,
    Reader {
        name: "perf-6.1",
        // PERF_ATTR_SIZE_VER7; the last branch bit is PRIV_SAVE.
        attr: KnownAttr { size: 128, branch_sample_type: below(19), ..PERF_6_12.attr },
        ..PERF_6_12
    },
    Reader {
        name: "perf-5.10",
        // PERF_ATTR_SIZE_VER6; last flag text_poke, last part CGROUP, last branch bit HW_INDEX.
        attr: KnownAttr {
            size: 120,
            flags: below(34),
            sample_type: below(22),
            read_format: below(4),
            branch_sample_type: below(18),
        },
        refused: |kind| newer(kind.0, 21, 82),
        mmap_build_ids: false,
        first_unknown_feature: 30,
        kernel_mmap2: false,
        ..PERF_6_12
    },
    HOTSPOT,
    Reader {
        name: "quipper",
        // It fails at registers and stacks, and does not know the parts after PHYS_ADDR.
        attr: KnownAttr {
            sample_type: below(20) & !(st::REGS_USER | st::STACK_USER | st::REGS_INTR),
            read_format: below(4),
            branch_sample_type: below(19),
            ..HOTSPOT.attr
        },
        mmap_build_ids: true,
        ..HOTSPOT
    },
];

impl Reader {
    /// The program with this name.
    pub fn named(name: &str) -> Option<&'static Reader> {
        READERS.iter().find(|reader| reader.name == name)
    }

    /// True if it does not know the numbers of lost samples that counters of this `read_format` have.
    pub fn loses_lost(&self, read_format: u64) -> bool {
        read_format & !self.attr.read_format & LOST != 0
    }

    /// True if it does not know the counters that branches of this `branch_sample_type` have.
    pub fn loses_branch_counters(&self, branch_sample_type: u64) -> bool {
        branch_sample_type & !self.attr.branch_sample_type & BRANCH_COUNTERS != 0
    }

    /// The kinds of records that it refuses, or at which it aborts; not COMPRESSED2, whose contents matter.
    pub fn refused_kinds(&self) -> Kinds {
        let refused = (1..=127).map(RecordType).filter(|&kind| (self.refused)(kind) && !kind.is_compressed());
        refused.fold(Kinds::NONE, |kinds, kind| kinds.union(Kinds::of(&[kind])))
    }
}

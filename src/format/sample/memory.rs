//! The values of the fields of [`DataSrc`](super::DataSrc), each at its bits, so that a data source is their
//! union (include/uapi/linux/perf_event.h, `PERF_MEM_*`).

#![allow(missing_docs, reason = "the names are perf_event_open(2)'s own")]

pub const OP_NA: u64 = 1;
pub const OP_LOAD: u64 = 1 << 1;
pub const OP_STORE: u64 = 1 << 2;

pub const LVL_NA: u64 = 1 << 5;
pub const LVL_HIT: u64 = 1 << 6;
pub const LVL_MISS: u64 = 1 << 7;
pub const LVL_L1: u64 = 1 << 8;
pub const LVL_LFB: u64 = 1 << 9;
pub const LVL_L2: u64 = 1 << 10;
pub const LVL_L3: u64 = 1 << 11;
pub const LVL_LOC_RAM: u64 = 1 << 12;
pub const LVL_REM_RAM1: u64 = 1 << 13;
pub const LVL_REM_CCE1: u64 = 1 << 15;
pub const LVL_REM_CCE2: u64 = 1 << 16;
pub const LVL_IO: u64 = 1 << 17;

pub const SNOOP_NA: u64 = 1 << 19;
pub const SNOOP_NONE: u64 = 1 << 20;
pub const SNOOP_HIT: u64 = 1 << 21;
pub const SNOOP_HITM: u64 = 1 << 23;

pub const TLB_HIT: u64 = 1 << 27;
pub const TLB_MISS: u64 = 1 << 28;
pub const TLB_WALKER: u64 = 1 << 31;

pub const NUM_L1: u64 = 1 << 33;
pub const NUM_L2: u64 = 2 << 33;
pub const NUM_L3: u64 = 3 << 33;
pub const NUM_IO: u64 = 10 << 33;
pub const NUM_ANY_CACHE: u64 = 11 << 33;
pub const NUM_LFB: u64 = 12 << 33;
pub const NUM_RAM: u64 = 13 << 33;
pub const NUM_NA: u64 = 15 << 33;

pub const REMOTE: u64 = 1 << 37;
pub const SNOOP_PEER: u64 = 1 << 39;

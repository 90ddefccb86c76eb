//! Builds small recordings of one event, record by record, for cases that no installed perf would record.

#[path = "../../passes/support/tiny_file.rs"]
mod tiny_file;

use self::tiny_file::words;
pub(crate) use self::tiny_file::{file, record};

/// Bits of `sample_type` (perf_event_open(2)).
pub(crate) const IP: u64 = 1;
pub(crate) const TID: u64 = 1 << 1;
pub(crate) const TIME: u64 = 1 << 2;

/// Bits of the attr's flags.
pub(crate) const COMM: u64 = 1 << 9;
pub(crate) const SAMPLE_ID_ALL: u64 = 1 << 18;

/// A SAMPLE of an event with IP, TID and TIME.
pub(crate) fn sample(pid: u32, time: u64) -> Vec<u8> {
    record(9, 2, &words(&[0x401150, u64::from(pid) << 32 | u64::from(pid), time]))
}

/// A COMM without a sample_id.
pub(crate) fn comm(pid: u32, name: &[u8; 8]) -> Vec<u8> {
    record(3, 0, &[&words(&[u64::from(pid) << 32 | u64::from(pid)]), &name[..]].concat())
}

//! TIME_CONV records describe how a machine's counter converts to the time of its recording.

use crate::{Record, RecordType};

/// A TIME_CONV record (tools/lib/perf/include/perf/event.h, `perf_record_time_conv`).
///
/// | byte | |
/// |---|---|
/// | 8 | u64 shift, u64 mult, u64 zero |
/// | 32 | u64 cycles, u64 mask, u8 cap_user_time_zero, u8 cap_user_time_short, since Linux 5.10 |
///
/// ns = zero + (counter × mult >> shift). For a short counter, only the bits of `mask` count, starting at
/// `cycles`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct TimeConv {
    /// Shift, bits.
    pub shift: u64,
    /// Multiplier.
    pub mult: u64,
    /// Time at counter 0, ns; wraps.
    pub zero: u64,
    /// For counters shorter than 64 bits: `cycles` and `mask`.
    pub short: Option<(u64, u64)>,
    /// True if the machine supports the conversion. Before Linux 5.10 perf wrote the record only in that
    /// case.
    pub can_convert: bool,
}

impl TimeConv {
    /// The offsets of `mult` and `zero`, bytes.
    pub(crate) const CONVERSION: (usize, usize) = (16, 24);

    /// Parses a TIME_CONV record; `None` for other kinds, and for a record that is too short.
    pub fn of(record: &Record<'_>) -> Option<TimeConv> {
        if record.kind() != RecordType::TIME_CONV {
            return None;
        }
        let (mult, zero) = TimeConv::CONVERSION;
        let (shift, mult, zero) = (record.u64(8)?, record.u64(mult)?, record.u64(zero)?);
        let can_convert = record.bytes().get(48).is_none_or(|&can| can != 0);
        let is_short = record.bytes().get(49).is_some_and(|&short| short != 0);
        let short = if is_short { record.u64(32).zip(record.u64(40)) } else { None };
        Some(TimeConv { shift, mult, zero, short, can_convert })
    }
}

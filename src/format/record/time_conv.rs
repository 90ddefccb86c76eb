//! TIME_CONV records contain the conversion of a machine's counter to the time of its recording.

use super::reader::Reader;
use crate::{OrderKey, Record, RecordType};

/// A TIME_CONV record (tools/lib/perf/include/perf/event.h, `perf_record_time_conv`).
///
/// | byte | |
/// |---|---|
/// | 8 | u64 shift, u64 mult, u64 zero |
/// | 32 | u64 cycles, u64 mask, u8 cap_user_time_zero, u8 cap_user_time_short, since Linux 5.10 |
///
/// ns = zero + (counter × mult >> shift). A short counter has the bits of `mask`; `cycles` is its base.
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
    /// True if the machine supports the conversion; if not, perf before Linux 5.10 wrote no record.
    pub can_convert: bool,
}

impl TimeConv {
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

    pub(crate) fn decode(d: &mut Reader<'_>) -> Option<()> {
        d.number::<u64>("time_shift")?;
        d.number::<u64>("time_mult")?;
        d.number::<u64>("time_zero")?;
        if d.left() == 0 {
            // Before Linux 5.10.
            return Some(());
        }
        d.number::<u64>("time_cycles")?;
        d.hex::<u64>("time_mask")?;
        d.number::<u8>("cap_user_time_zero")?;
        d.number::<u8>("cap_user_time_short").map(drop)
    }

    /// The value of the counter at a key that is a time, rounded down as perf does; `None` if there is none.
    pub fn counter(&self, at: OrderKey) -> Option<u64> {
        let since = u128::from(at.written().wrapping_sub(self.zero));
        let shifted = since.checked_shl(u32::try_from(self.shift).ok()?.min(63))?;
        Some(shifted.checked_div(u128::from(self.mult))? as u64)
    }

    /// The time of a value of the counter, ns; wraps, as in perf (tools/perf/util/tsc.c).
    pub fn time(&self, counter: u64) -> u64 {
        let counter = match self.short {
            Some((cycles, mask)) => cycles.wrapping_add(counter.wrapping_sub(cycles) & mask),
            None => counter,
        };
        let shifted = |value: u64| u32::try_from(self.shift).ok().and_then(|shift| value.checked_shr(shift));
        let whole = shifted(counter).unwrap_or(0);
        let rest = counter.wrapping_sub(whole.checked_shl(self.shift.min(64) as u32).unwrap_or(0));
        let part = shifted(rest.wrapping_mul(self.mult)).unwrap_or(0);
        self.zero.wrapping_add(whole.wrapping_mul(self.mult)).wrapping_add(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_counter_converts_to_ns() {
        // 1 GHz × 2.5, as arch_timer with 400 MHz.
        let conv = TimeConv { shift: 1, mult: 5, zero: 100, short: None, can_convert: true };
        assert_eq!((conv.time(0), conv.time(2), conv.time(3)), (100, 105, 107));
        let short = TimeConv { short: Some((0x1_0000, 0xffff)), ..conv };
        assert_eq!(short.time(4), conv.time(0x1_0004));
        // No contents of a recording cause a panic.
        let odd = TimeConv { shift: 64, mult: u64::MAX, zero: u64::MAX, short: None, can_convert: true };
        assert_eq!(odd.time(u64::MAX), u64::MAX);
        assert_eq!(TimeConv { shift: 0, ..odd }.time(3), u64::MAX - 3);
    }
}

//! Converts a guest's clock to the host's: perf's formula, but in integers, which are exact above 2^53.

use std::fmt;

use perfx_format::Record;
use perfx_format::record::time_conv;

/// The conversion of a machine's time stamp counter to perf time: a TIME_CONV record.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct TimeConv {
    shift: u32,
    mult: u64,
    zero: u64,
    /// `cycles` and `mask` of counters shorter than 64 bits.
    short: Option<(u64, u64)>,
}

impl TimeConv {
    /// Reads a TIME_CONV record. `None` for other kinds, and if the machine does not support the conversion.
    pub(crate) fn read(record: &Record<'_>) -> Option<TimeConv> {
        let conv = time_conv::TimeConv::of(record)?;
        let time_conv::TimeConv { mult, zero, short, .. } = conv;
        let shift = u32::try_from(conv.shift).ok().filter(|&shift| shift < 64)?;
        let can = conv.can_convert && mult != 0 && mult <= u64::from(u32::MAX);
        can.then_some(TimeConv { shift, mult, zero, short })
    }

    /// Converts cycles to ns. Wraps like the kernel's arithmetic.
    fn time(&self, cycles: u64) -> u64 {
        let cycles = match self.short {
            Some((base, mask)) => base.wrapping_add(cycles.wrapping_sub(base) & mask),
            None => cycles,
        };
        let ns = (u128::from(cycles) * u128::from(self.mult)) >> self.shift;
        self.zero.wrapping_add(ns as u64)
    }

    fn cycles(&self, time: u64) -> u64 {
        let ns = time.wrapping_sub(self.zero);
        ((u128::from(ns) << self.shift) / u128::from(self.mult)) as u64
    }

    pub(crate) fn rate(&self) -> f64 {
        (1u128 << self.shift) as f64 / self.mult as f64
    }
}

/// Units of the guest's clock per unit of the host's: positive, and small enough for the sums below.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Scale(f64);

impl Scale {
    pub(crate) const ONE: Scale = Scale(1.0);

    pub(crate) fn new(scale: f64) -> Option<Scale> {
        (scale > 1e-3 && scale < 1e6).then_some(Scale(scale))
    }

    pub(crate) fn get(self) -> f64 {
        self.0
    }

    /// Divides `units` by the scale: below 2^53 as perf's division of doubles, bit by bit; above it exactly.
    fn divide(self, units: u64) -> u64 {
        if units < 1 << 53 {
            return (units as f64 / self.0) as u64;
        }
        // A double is an integer of 53 bits times a power of two, here between 2^-62 and 2^-33.
        let bits = self.0.to_bits();
        let mantissa = u128::from(bits & ((1 << 52) - 1) | 1 << 52);
        let shift = 1075 - (bits >> 52);
        let quotient = (u128::from(units) << shift) / mantissa;
        u64::try_from(quotient).unwrap_or(u64::MAX)
    }
}

/// Shortest text that reads back as the same number.
impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

#[derive(Clone, Copy, PartialEq, Debug)]
pub(crate) struct Clock {
    pub(crate) guest: Option<TimeConv>,
    pub(crate) host: Option<TimeConv>,
    /// In units of the guest's clock: cycles if it has a TIME_CONV record, else ns.
    pub(crate) offset: i64,
    pub(crate) scale: Scale,
}

impl Clock {
    pub(crate) fn units(&self, time: u64) -> u64 {
        self.guest.map_or(time, |conv| conv.cycles(time))
    }

    /// Converts to ns of the host; `None` if the result is before the start of the host's clock.
    pub(crate) fn host_time(&self, time: u64) -> Option<u64> {
        let units = self.units(time).wrapping_sub(self.offset as u64);
        if units >= 1 << 63 {
            return None;
        }
        let there = self.scale.divide(units);
        Some(self.host.map_or(there, |conv| conv.time(there)))
    }

    pub(crate) fn host_units(&self, time: u64) -> u64 {
        self.host.map_or(time, |conv| conv.cycles(time))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONV: TimeConv =
        TimeConv { shift: 31, mult: 827_191_264, zero: 18_446_744_070_423_018_628, short: None };

    fn as_perf(clock: &Clock, time: u64) -> u64 {
        let mut x = time;
        if let Some(c) = clock.guest {
            let t = time.wrapping_sub(c.zero);
            x = ((t / c.mult) << c.shift).wrapping_add(((t % c.mult) << c.shift) / c.mult);
        }
        x = x.wrapping_sub(clock.offset as u64);
        x = (x as f64 / clock.scale.0) as u64;
        if let Some(c) = clock.host {
            let (quot, rem) = (x >> c.shift, x & ((1 << c.shift) - 1));
            x = c
                .zero
                .wrapping_add(quot.wrapping_mul(c.mult))
                .wrapping_add(rem.wrapping_mul(c.mult) >> c.shift);
        }
        x
    }

    #[test]
    fn times_are_perfs_to_the_bit_where_doubles_hold_them() {
        let mut time = 6_684_078_212u64;
        for step in 0..100_000u64 {
            time += step * 7919 % 65_537;
            for (guest, host) in
                [(None, None), (Some(CONV), None), (None, Some(CONV)), (Some(CONV), Some(CONV))]
            {
                let clock =
                    Clock { guest, host, offset: -4_745_478_104_161, scale: Scale(2.596135463297269) };
                assert_eq!(clock.host_time(time), Some(as_perf(&clock, time)));
            }
        }
    }

    #[test]
    fn above_2_to_53_no_unit_is_lost() {
        let clock = Clock { guest: None, host: None, offset: 5, scale: Scale::ONE };
        for time in [1_795_271_272_896_755_459u64, (1 << 53) + 6, (1 << 62) + 1] {
            assert_eq!(clock.host_time(time), Some(time - 5));
        }
        let half = Clock { scale: Scale(0.5), ..clock };
        assert_eq!(half.host_time((1 << 60) + 6), Some((1 << 61) + 2));
        let thrice = Clock { scale: Scale(3.0), ..clock };
        assert_eq!(thrice.host_time(3_000_000_000_000_000_005), Some(1_000_000_000_000_000_000));
    }

    #[test]
    fn a_time_before_the_hosts_clock_is_none() {
        let clock = Clock { guest: None, host: None, offset: 1000, scale: Scale::ONE };
        assert_eq!((clock.host_time(999), clock.host_time(1000)), (None, Some(0)));
    }

    #[test]
    fn only_sane_scales() {
        assert!(
            [0.0, -1.0, f64::NAN, f64::INFINITY, 1e9].into_iter().all(|scale| Scale::new(scale).is_none())
        );
        assert!([1.0, 2.6, 0.024].into_iter().all(|scale| Scale::new(scale).is_some()));
    }
}

//! Finds every time in a record, and changes all of them in the same way.

use std::borrow::Cow;

use super::time_conv::TimeConv;
use crate::{Endian, Layout, OrderKey, Record, RecordType, Time};

/// The offsets of a record's times, bytes: the own field of some types, `TIME` of the sample or trailer.
///
/// | record | byte | source |
/// |---|---|---|
/// | FORK, EXIT | 24 | include/uapi/linux/perf_event.h |
/// | THROTTLE, UNTHROTTLE | 8 | include/uapi/linux/perf_event.h |
/// | AUXTRACE_ERROR, if its format at 28 is not 0 | 40 | tools/lib/perf/include/perf/event.h |
/// | SAMPLE, and the trailer of other kernel records and of HEADER_BUILD_ID | by the event's `sample_type` | perf_event_open(2) |
#[inline]
fn times_in(record: &Record<'_>, layout: Option<&Layout>) -> impl Iterator<Item = usize> + use<> {
    let of_event = |layout: &Layout| match record.kind() {
        // perf inject appends the trailer of the sample for which it writes the record.
        RecordType::HEADER_BUILD_ID => record.bytes().len().checked_sub(layout.trailer.time?.into()),
        _ => layout.time_at(record),
    };
    own_time_at(record).into_iter().chain(layout.and_then(of_event))
}

/// Sort key of records without a time that come after all others. It is not a time, and never shown.
pub const LAST_KEY: u64 = OrderKey::LAST.written();

/// The time in a record's own field, ns.
pub fn own_time(record: &Record<'_>) -> Option<u64> {
    record.u64(own_time_at(record)?)
}

/// The offset of that time, bytes from the start of the record.
pub(crate) fn own_time_at(record: &Record<'_>) -> Option<usize> {
    let is_old =
        || record.kind() == RecordType::AUXTRACE_ERROR && record.u32(28).is_none_or(|format| format == 0);
    record.kind().own_time().filter(|_| !is_old())
}

/// Replaces each time in a record, ns, except 0 and `u64::MAX`, which mean none. `bytes` are those of the
/// record, perhaps with other changes already; they are copied only to be changed.
///
/// # Errors
///
/// The first error of `new`.
pub fn replace_times<E>(
    record: &Record<'_>,
    layout: Option<&Layout>,
    bytes: &mut Cow<'_, [u8]>,
    new: impl Fn(u64) -> Result<u64, E>,
) -> Result<(), E> {
    for at in times_in(record, layout) {
        if let Some(time) = record.u64(at).and_then(Time::recorded) {
            let time = new(time.ns())?;
            record.endian().set_u64(bytes.to_mut(), at, time);
        }
    }
    Ok(())
}

/// A change of a recording's clock: a time t, in ns, becomes `t × numerator / denominator + offset`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct ClockChange {
    /// Numerator of the factor.
    pub numerator: u64,
    /// Denominator of the factor; not 0.
    pub denominator: u64,
    /// The offset, ns.
    pub offset: i128,
    /// True if a time below 1 becomes 1; otherwise such a time is an error.
    pub stop_at_first: bool,
}

impl ClockChange {
    /// The new time; `None` below 0 or above the largest time. 0 and `u64::MAX` mean no time and are kept.
    pub fn time(&self, time: u64) -> Option<u64> {
        if time == 0 || time == u64::MAX {
            return Some(time);
        }
        let new = self.scaled(time.into())?.checked_add(self.offset)?;
        let new = if self.stop_at_first { new.max(1) } else { new };
        u64::try_from(new).ok().filter(|&new| new != 0 && new != u64::MAX)
    }

    /// True if the new time would be below 1, the smallest value that means a time.
    pub fn is_too_early(&self, time: u64) -> bool {
        time != 0 && self.scaled(time.into()).is_some_and(|scaled| scaled.saturating_add(self.offset) < 1)
    }

    /// Changes a time of the recording's clock together with the time of another clock at that moment. If the
    /// first would be below 0, both are moved to the same later time.
    pub fn times_of_one_moment(&self, time: u64, other: u64) -> Option<(u64, u64)> {
        let new = self.scaled(time.into())?.checked_add(self.offset)?;
        let early = new.min(0).unsigned_abs();
        let later = early.checked_mul(self.denominator.into())?.checked_div(self.numerator.into())?;
        let other = u128::from(other).checked_add(later)?;
        Some((u64::try_from(new.max(0)).ok()?, u64::try_from(other).ok()?))
    }

    /// A changed duration, ns: only the factor applies.
    pub fn duration(&self, ns: u64) -> Option<u64> {
        u64::try_from(self.scaled(ns.into())?).ok()
    }

    fn scaled(&self, ns: i128) -> Option<i128> {
        ns.checked_mul(self.numerator.into())?.checked_div_euclid(self.denominator.into())
    }

    /// Changes the conversion from a counter to the clock: `time = zero + (cycles × mult >> shift)`, with
    /// signed `zero`.
    fn conversion(&self, mult: u64, zero: u64) -> Option<(u64, u64)> {
        let zero = self.scaled(zero.cast_signed().into())?.checked_add(self.offset)?;
        Some((self.duration(mult)?, i64::try_from(zero).ok()?.cast_unsigned()))
    }
}

/// The offsets of `mult` and `zero` of a conversion: in TIME_CONV, and in AUXTRACE_INFO of Intel PT and BTS,
/// whose private words begin with the PMU's type and `shift` (tools/perf/util/intel-pt.h, intel-bts.h). The
/// `reference` of AUXTRACE is not a time of the clock: it is a raw counter or a random number.
fn conversion_at(record: &Record<'_>) -> Option<(usize, usize)> {
    const INTEL_PT: u32 = 1;
    const INTEL_BTS: u32 = 2;
    match record.kind() {
        RecordType::TIME_CONV => Some(TimeConv::CONVERSION),
        RecordType::AUXTRACE_INFO => {
            let intel = record.u32(8).is_some_and(|kind| matches!(kind, INTEL_PT | INTEL_BTS));
            intel.then_some((32, 40))
        }
        _ => None,
    }
}

/// Changes all times in `bytes`, a copy of the record.
///
/// # Errors
///
/// A time cannot be changed this way; the error is the first such time.
pub fn change_times(
    record: &Record<'_>,
    layout: Option<&Layout>,
    change: &ClockChange,
    bytes: &mut [u8],
) -> Result<(), u64> {
    let endian: Endian = record.endian();
    for at in times_in(record, layout) {
        let Some(time) = record.u64(at) else { continue };
        endian.set_u64(bytes, at, change.time(time).ok_or(time)?);
    }
    // The time of a round of counters is relative to its start.
    if let Some(time) = record.u64(16).filter(|_| record.kind() == RecordType::STAT_ROUND) {
        endian.set_u64(bytes, 16, change.duration(time).ok_or(time)?);
    }
    if let Some((mult_at, zero_at)) = conversion_at(record)
        && let Some((mult, zero)) = record.u64(mult_at).zip(record.u64(zero_at))
        && mult != 0
    {
        let (mult, zero) = change.conversion(mult, zero).ok_or(zero)?;
        endian.set_u64(bytes, mult_at, mult);
        endian.set_u64(bytes, zero_at, zero);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::record::builder::build;
    use crate::{Attr, Origin, sample_type as st};

    #[test]
    fn every_time_of_a_record_is_replaced_and_the_first_error_ends_it() {
        for endian in [Endian::Little, Endian::Big] {
            // Bit 18 is sample_id_all.
            let attr = Attr { sample_type: st::TIME, flags: 1 << 18, ..Attr::default() };
            let layout = Layout::new(&attr);
            let word = |word: u64| endian.bytes_u64(word);
            let parts =
                |own: u64, time: u64| [[1; 16].to_vec(), word(own).to_vec(), word(time).to_vec()].concat();
            let fork = |own, time| build(RecordType::FORK, 0, &[&parts(own, time)], endian).unwrap();
            let replaced = |bytes: &[u8]| {
                let record = Record::new(bytes, &[], Origin::Synthetic, endian).unwrap();
                let mut new = Cow::Borrowed(bytes);
                let later = |time: u64| time.checked_sub(10).ok_or(time);
                let done = replace_times(&record, Some(&layout), &mut new, later);
                done.map(|()| matches!(new, Cow::Owned(_)).then(|| new.into_owned()))
            };
            assert_eq!(replaced(&fork(30, 40)), Ok(Some(fork(20, 30))));
            assert_eq!(replaced(&fork(0, 40)), Ok(Some(fork(0, 30))));
            assert_eq!(replaced(&fork(0, u64::MAX)), Ok(None), "no copy");
            assert_eq!(replaced(&fork(30, 4)), Err(4));
        }
    }

    #[test]
    fn a_clock_is_scaled_and_moved_in_whole_numbers() {
        let change = ClockChange { numerator: 3, denominator: 2, offset: -5, stop_at_first: false };
        assert_eq!(change.time(1_000_000_000_000_000_001), Some(1_499_999_999_999_999_996));
        assert_eq!(change.duration(10), Some(15));
        assert_eq!((change.time(0), change.time(u64::MAX), change.time(1)), (Some(0), Some(u64::MAX), None));
        assert!(change.is_too_early(1) && change.is_too_early(3) && !change.is_too_early(4));
        assert_eq!(ClockChange { stop_at_first: true, ..change }.time(1), Some(1));
        assert_eq!(change.times_of_one_moment(10, 100), Some((10, 100)));
        assert_eq!(change.times_of_one_moment(2, 100), Some((0, 101)));
        // The counter keeps its pace, and its zero may be before the clock's.
        assert_eq!(change.conversion(8, (-4i64).cast_unsigned()), Some((12, (-11i64).cast_unsigned())));
    }
}

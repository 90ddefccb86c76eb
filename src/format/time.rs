//! Separates times from sort keys, so that a file position is never used as a time.

use std::num::NonZeroU64;
use std::ops::Range;

/// A time of the recording's clock. It contains its ns plus 1, so that an `Option` of it takes no more room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Time(NonZeroU64);

impl Time {
    /// The time of this many ns; `None` for the largest number, which means no time.
    pub fn from_ns(ns: u64) -> Option<Time> {
        ns.checked_add(1).and_then(NonZeroU64::new).map(Time)
    }

    /// A recorded time; `None` for 0 and the largest number, which mean no time in perf.
    #[inline]
    pub fn recorded(ns: u64) -> Option<Time> {
        Time::from_ns(ns).filter(|_| ns != 0)
    }

    /// The time, ns.
    #[inline]
    pub fn ns(self) -> u64 {
        self.0.get() - 1
    }
}

/// The sort key of records: their time, or their file position if no event records the time. It determines
/// the mappings and names at a record. It can't be converted back to a number, which may not be a time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct OrderKey(u64);

impl OrderKey {
    /// Before all records.
    pub const FIRST: OrderKey = OrderKey(0);
    /// The key of records without a time among others with one: it sorts last.
    pub const LAST: OrderKey = OrderKey(u64::MAX - 1);
    /// After all records: the end of a range without an end.
    pub const END: OrderKey = OrderKey(u64::MAX);
    /// From the first record to the last.
    pub const ALL: Range<OrderKey> = OrderKey::FIRST..OrderKey::END;

    /// The key of a time, ns.
    pub const fn at(ns: u64) -> OrderKey {
        OrderKey(ns)
    }

    /// The next key after it.
    pub fn next(self) -> OrderKey {
        OrderKey(self.0.saturating_add(1))
    }

    pub(crate) const fn written(self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_means_no_time_is_no_time_and_takes_no_room() {
        assert_eq!(
            [0, 1, u64::MAX - 1, u64::MAX].map(|ns| Time::from_ns(ns).map(Time::ns)),
            [Some(0), Some(1), Some(u64::MAX - 1), None]
        );
        assert_eq!([0, 1, u64::MAX].map(|ns| Time::recorded(ns).map(Time::ns)), [None, Some(1), None]);
        assert!(Time::from_ns(1) < Time::from_ns(2));
        assert_eq!(size_of::<Option<Time>>(), 8);
    }
}

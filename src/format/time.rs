//! Keeps a time and what sorts records apart: a place in a file is never taken for a time.

use std::num::NonZeroU64;
use std::ops::Range;

use crate::record::time::LAST_KEY;
use crate::{Layout, Layouts, Record, RecordType};

/// A time of the recording's clock. It holds its ns plus 1, so that an `Option` of it takes no more room.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Time(NonZeroU64);

impl Time {
    /// The time of this many ns; `None` for the largest number, which means no time.
    pub fn from_ns(ns: u64) -> Option<Time> {
        ns.checked_add(1).and_then(NonZeroU64::new).map(Time)
    }

    /// A recorded time; `None` for 0 and the largest number, which perf takes for no time.
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

/// Sorts records: by their times, or by their places in the file if no event records the time. It finds what was
/// mapped or named when a record was written. There is no way back to a number, as it may be no time.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct OrderKey(u64);

impl OrderKey {
    /// Before all records.
    pub const FIRST: OrderKey = OrderKey(0);
    /// Of what has no time although others have: after what has.
    pub const LAST: OrderKey = OrderKey(LAST_KEY);
    /// After all records: the end of a range without an end.
    pub const END: OrderKey = OrderKey(u64::MAX);
    /// From the first record to the last.
    pub const ALL: Range<OrderKey> = OrderKey::FIRST..OrderKey::END;

    /// The key of a time, ns.
    pub const fn at(ns: u64) -> OrderKey {
        OrderKey(ns)
    }

    /// The key of a record whose time is in `layout`. A sample without a time comes last: all that was ever mapped may
    /// be its code. Other records without one come first.
    #[inline]
    pub fn of(record: &Record<'_>, layout: Option<&Layout>, layouts: &Layouts) -> OrderKey {
        if !layouts.has_time() {
            return OrderKey(record.origin().stored_at().map_or(0, |(_, offset)| offset));
        }
        let without = if record.kind() == RecordType::SAMPLE { OrderKey::LAST } else { OrderKey::FIRST };
        layout.and_then(|layout| layout.recorded_time(record)).map_or(without, OrderKey)
    }

    /// The next key after it.
    pub fn next(self) -> OrderKey {
        OrderKey(self.0.saturating_add(1))
    }

    /// What is written where a record has a time.
    pub(crate) fn written(self) -> u64 {
        self.0
    }
}

//! Keeps the durations of calls: sums and the longest are exact, quantiles differ by less than 1 %.

use std::collections::{BTreeMap, HashMap};
use std::ops::AddAssign;

use foldhash::fast::RandomState;
use perfx_look::json::Decimal;
use schemars::JsonSchema;
use serde::Serialize;

/// The durations of calls, except those that began before the trace or did not end in it.
#[derive(Clone, Default, PartialEq, Eq, Debug)]
pub struct Durations(BTreeMap<Bucket, Calls>);

pub(crate) type OfStacks = HashMap<(u32, Bucket), Calls, RandomState>;

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub(crate) struct Bucket(pub(crate) u16);

#[derive(Clone, Copy, Default, PartialEq, Eq, Debug)]
pub(crate) struct Calls {
    count: u64,
    sum: u64,
    longest: u64,
    /// The time in them in which their threads did not run, ns.
    off_cpu: u64,
}

/// A summary of durations.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct DurationSummary {
    /// The number of calls that began and ended in the trace; their durations leave out the time for which
    /// their threads did not run (SWITCH records)
    pub calls: u64,
    /// Their average duration, ns
    pub mean_ns: Decimal<u64>,
    /// The duration that half of the calls do not exceed, ns
    pub median_ns: Decimal<u64>,
    /// The duration that 99% of the calls do not exceed, ns
    pub p99_ns: Decimal<u64>,
    /// The longest, ns
    pub max_ns: Decimal<u64>,
    /// The time in these calls for which their threads did not run, ns
    pub off_cpu_ns: Decimal<u64>,
}

/// The calls whose durations are in one range.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct HistogramRow {
    /// The shortest duration in the range, ns
    pub from_ns: Decimal<u64>,
    /// The longest duration in the range, ns
    pub to_ns: Decimal<u64>,
    /// The number of calls
    pub calls: u64,
}

impl Bucket {
    /// The number of leading bits that are kept.
    const BITS: u32 = 8;

    pub(crate) fn of(ns: u64) -> Bucket {
        let shift = (u64::BITS - ns.leading_zeros()).saturating_sub(Bucket::BITS);
        Bucket(((shift << Bucket::BITS) + (ns >> shift) as u32) as u16)
    }

    pub(crate) fn range(self) -> (u64, u64) {
        let shift = u32::from(self.0) >> Bucket::BITS;
        let low = u64::from(self.0 & ((1 << Bucket::BITS) - 1)) << shift;
        (low, low + ((1 << shift) - 1))
    }

    fn width(self) -> u32 {
        u64::BITS - self.range().0.leading_zeros()
    }
}

impl Calls {
    pub(crate) fn one(ns: u64, off_cpu: u64) -> Calls {
        Calls { count: 1, sum: ns, longest: ns, off_cpu }
    }

    pub(crate) fn took_no_time(&self) -> bool {
        self.sum == 0 && self.off_cpu == 0
    }
}

impl AddAssign for Calls {
    fn add_assign(&mut self, other: Calls) {
        self.count += other.count;
        self.sum = self.sum.saturating_add(other.sum);
        self.longest = self.longest.max(other.longest);
        self.off_cpu = self.off_cpu.saturating_add(other.off_cpu);
    }
}

impl Durations {
    pub(crate) fn add(&mut self, bucket: Bucket, calls: Calls) {
        *self.0.entry(bucket).or_default() += calls;
    }

    /// A summary; `None` if there are no calls.
    pub fn summary(&self) -> Option<DurationSummary> {
        let mut all = Calls::default();
        self.0.values().for_each(|calls| all += *calls);
        Some(DurationSummary {
            calls: all.count,
            mean_ns: Decimal(all.sum.checked_div(all.count)?),
            median_ns: Decimal(self.quantile(50, all.count)?),
            p99_ns: Decimal(self.quantile(99, all.count)?),
            max_ns: Decimal(all.longest),
            off_cpu_ns: Decimal(all.off_cpu),
        })
    }

    /// The shortest duration that this many percent of the calls do not exceed. A bucket's calls are equal.
    fn quantile(&self, percent: u64, all: u64) -> Option<u64> {
        let rank = (u128::from(all) * u128::from(percent)).div_ceil(100);
        let mut below = 0;
        let mut buckets = self.0.values();
        let calls = buckets.find(|calls| {
            below += u128::from(calls.count);
            below >= rank
        })?;
        calls.sum.checked_div(calls.count)
    }

    /// Powers of two of ns, from the shortest to the longest.
    pub fn histogram(&self) -> Vec<HistogramRow> {
        let mut widths: BTreeMap<u32, u64> = BTreeMap::new();
        for (bucket, calls) in &self.0 {
            *widths.entry(bucket.width()).or_default() += calls.count;
        }
        let (Some((&first, _)), Some((&last, _))) = (widths.first_key_value(), widths.last_key_value())
        else {
            return Vec::new();
        };
        let row = |width: u32| HistogramRow {
            from_ns: Decimal(if width == 0 { 0 } else { 1 << (width - 1) }),
            to_ns: Decimal(u64::MAX.checked_shr(u64::BITS - width).unwrap_or(0)),
            calls: widths.get(&width).copied().unwrap_or(0),
        };
        (first..=last).map(row).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn durations(all: impl Iterator<Item = u64>) -> Durations {
        let mut durations = Durations::default();
        all.for_each(|ns| durations.add(Bucket::of(ns), Calls::one(ns, 1)));
        durations
    }

    #[test]
    fn quantiles_are_near_those_of_all_durations() {
        let summary = durations(1..=100_000).summary().unwrap();
        assert_eq!((summary.calls, summary.mean_ns.0, summary.max_ns.0), (100_000, 50_000, 100_000));
        assert_eq!(summary.off_cpu_ns.0, 100_000);
        for (found, exact) in [(summary.median_ns, 50_000_u64), (summary.p99_ns, 99_000)] {
            assert!(found.0.abs_diff(exact) * 100 < exact, "{found:?}");
        }
        // The quantiles of short durations, and of equal ones, are exact.
        let summary = durations((0..100).chain([1_000_003; 300])).summary().unwrap();
        assert_eq!((summary.median_ns.0, summary.p99_ns.0), (1_000_003, 1_000_003));
        assert_eq!(durations(0..100).summary().unwrap().p99_ns.0, 98);
        assert_eq!(Durations::default().summary(), None);
    }

    #[test]
    fn a_histogram_has_a_row_for_each_power_of_two() {
        let all = [0, 1, 2, 3, 127, 128, 255, 256, 1023, u64::MAX];
        let rows = durations(all.into_iter()).histogram();
        let rows: Vec<_> = rows.iter().map(|row| (row.from_ns.0, row.to_ns.0, row.calls)).collect();
        assert_eq!(rows[..4], [(0, 0, 1), (1, 1, 1), (2, 3, 2), (4, 7, 0)]);
        assert_eq!(rows[7..11], [(64, 127, 1), (128, 255, 2), (256, 511, 1), (512, 1023, 1)]);
        assert_eq!((rows.len(), rows[64]), (65, (1 << 63, u64::MAX, 1)));
        assert_eq!(Durations::default().histogram(), []);
    }
}

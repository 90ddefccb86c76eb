//! Adds up values in bounded memory: their number, sum, extremes and percentiles (to 1 %).

use std::collections::BTreeMap;

use crate::durations::Bucket;

#[derive(Clone, Default, Debug)]
pub(super) struct Sum {
    pub(super) count: u64,
    pub(super) failed: u64,
    pub(super) sum: i128,
    pub(super) range: Option<(i64, i64)>,
    alike: BTreeMap<i32, u64>,
}

/// The class of values with the same first bits, ascending; below 0 for negative values.
fn class(value: i64) -> i32 {
    let class = i32::from(Bucket::of(value.unsigned_abs()).0);
    if value < 0 { -class } else { class }
}

fn highest(class: i32) -> i64 {
    let (low, high) = Bucket(class.unsigned_abs() as u16).range();
    let size = |size: u64| i64::try_from(size).unwrap_or(i64::MAX);
    if class < 0 { -size(low) } else { size(high) }
}

impl Sum {
    /// Adds a value; `None` is only counted.
    pub(super) fn add(&mut self, value: Option<i64>) {
        self.count += 1;
        let Some(value) = value else { return };
        self.sum += i128::from(value);
        let (low, high) = self.range.unwrap_or((value, value));
        self.range = Some((low.min(value), high.max(value)));
        *self.alike.entry(class(value)).or_default() += 1;
    }

    pub(super) fn join(&mut self, other: Sum) {
        self.count += other.count;
        self.failed += other.failed;
        self.sum += other.sum;
        let ranges = [self.range, other.range].into_iter().flatten();
        self.range = ranges.reduce(|(a, b), (c, d)| (a.min(c), b.max(d)));
        other.alike.into_iter().for_each(|(class, count)| *self.alike.entry(class).or_default() += count);
    }

    pub(super) fn values(&self) -> u64 {
        self.alike.values().sum()
    }

    /// A value that 99 % do not exceed, at most 1 % too high.
    pub(super) fn p99(&self) -> Option<i64> {
        let (_, high) = self.range?;
        let mut left = self.values() - self.values() / 100;
        let class = self.alike.iter().find(|(_, count)| {
            left = left.saturating_sub(**count);
            left == 0
        });
        class.map(|(class, _)| highest(*class).min(high))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_at_most_one_percent_too_high() {
        let mut sum = Sum::default();
        (1..=10_000).for_each(|value| sum.add(Some(value * 1_000)));
        let p99 = sum.p99().unwrap();
        assert!((9_900_000..9_999_000).contains(&p99), "{p99}");
        assert_eq!((sum.count, sum.sum, sum.range), (10_000, 50_005_000_000, Some((1_000, 10_000_000))));
        for value in [0, 1, 255, 256, 257, 1 << 40, i64::MAX, -1, -255, -256, -1000, i64::MIN + 1] {
            let high = highest(class(value));
            assert!(
                high >= value && i128::from(high - value) * 100 <= i128::from(value).abs(),
                "{value} {high}"
            );
        }
        let mut ascending: Vec<i64> = [-5000, -256, -1, 0, 1, 300, 5000].into();
        ascending.sort_by_key(|value| class(*value));
        assert_eq!(ascending, [-5000, -256, -1, 0, 1, 300, 5000]);
    }

    #[test]
    fn sums_of_two_recordings_are_those_of_all_values() {
        let of = |values: &[i64]| {
            let mut sum = Sum::default();
            values.iter().for_each(|value| sum.add(Some(*value)));
            sum
        };
        let mut joined = of(&[5, -7]);
        joined.join(of(&[100]));
        joined.join(Sum::default());
        assert_eq!(
            (joined.count, joined.sum, joined.range, joined.p99()),
            (3, 98, Some((-7, 100)), Some(100))
        );
        joined.add(None);
        assert_eq!((joined.count, joined.values()), (4, 3));
    }
}

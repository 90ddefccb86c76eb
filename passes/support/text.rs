//! Formats lists, ranges and times for reports.

use std::collections::BTreeMap;

use perfx_format::RecordType;
use perfx_pipeline::count;

/// `12 COMM, 3 MMAP`, most first.
pub(crate) fn by_kind(counts: &BTreeMap<RecordType, u64>) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|&(kind, &count)| (std::cmp::Reverse(count), *kind));
    list(counts.into_iter().map(|(kind, &number)| match kind.name() {
        Some(name) => format!("{} {name}", count(number)),
        None => format!("{} of unknown kind {}", count(number), kind.0),
    }))
}

/// `a, b, c`.
pub(crate) fn list(parts: impl IntoIterator<Item = String>) -> String {
    parts.into_iter().collect::<Vec<_>>().join(", ")
}

/// `4..7, 9` for 4, 5, 6, 7, 9.
pub(crate) fn ranges(ids: &[u64]) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for &id in ids {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(id) => *last = id,
            _ => runs.push((id, id)),
        }
    }
    list(runs.into_iter().map(
        |(first, last)| {
            if first == last { first.to_string() } else { format!("{first}..{last}") }
        },
    ))
}

/// Seconds with nine decimals, as perf shows times.
pub(crate) fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// The same with a sign.
pub(crate) fn signed_seconds(ns: i64) -> String {
    format!("{}{} s", if ns < 0 { "-" } else { "" }, seconds(ns.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_in_a_row_are_a_range() {
        assert_eq!(ranges(&[4, 5, 6, 7, 9, 11, 12]), "4..7, 9, 11..12");
        assert_eq!(ranges(&[u64::MAX, 0]), "18446744073709551615, 0");
        assert_eq!(ranges(&[]), "");
    }
}

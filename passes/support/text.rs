//! Formats lists, ranges and times for reports.

use std::collections::BTreeMap;

use perfx_format::RecordType;
use perfx_pipeline::{count, seconds};

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

/// Seconds with nine decimals and a sign.
pub(crate) fn signed_seconds(ns: i64) -> String {
    format!("{}{} s", if ns < 0 { "-" } else { "" }, seconds(ns.unsigned_abs()))
}

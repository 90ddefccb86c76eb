//! Formats numbers, times and lists, and suggests names, for passes and commands.

use std::collections::BTreeMap;

use perfx_format::RecordType;

/// Minimum similarity of two names for one to be a typo of the other: the limit of clap's own suggestions.
const ALIKE: f64 = 0.7;

/// `1 entry`, `2,000 entries`.
pub fn counted(count: u64, one: &str, many: &str) -> String {
    format!("{} {}", self::count(count), if count == 1 { one } else { many })
}

/// `1,234,567`.
pub fn count(number: u64) -> String {
    wide_count(number.into())
}

/// Like [`count`], for numbers that may exceed 64 bits, such as sums of untrusted counts.
pub fn wide_count(number: u128) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A time in ns as seconds with nine decimals.
pub fn seconds(ns: u64) -> String {
    format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000)
}

/// Ascending numbers, consecutive ones as a range: `ranges(numbers, "-", ",")` is `0-3,8`.
pub fn ranges(numbers: impl IntoIterator<Item = u64>, to: &str, separator: &str) -> String {
    let mut runs: Vec<(u64, u64)> = Vec::new();
    for number in numbers {
        match runs.last_mut() {
            Some((_, last)) if last.checked_add(1) == Some(number) => *last = number,
            _ => runs.push((number, number)),
        }
    }
    let run = |(first, last)| if first == last { format!("{first}") } else { format!("{first}{to}{last}") };
    runs.into_iter().map(run).collect::<Vec<_>>().join(separator)
}

/// The similarity of two names, from 0 to 1, ignoring case.
pub fn likeness(given: &str, name: &str) -> f64 {
    strsim::jaro(&given.to_lowercase(), &name.to_lowercase())
}

/// `; did you mean NAME?` for the name most similar to `given`, or nothing if none is similar.
pub fn did_you_mean(given: &str, names: impl IntoIterator<Item = impl AsRef<str>>) -> String {
    let scored = names.into_iter().map(|name| (likeness(given, name.as_ref()), name));
    let best = scored.max_by(|(a, _), (b, _)| a.total_cmp(b)).filter(|(score, _)| *score > ALIKE);
    best.map_or_else(String::new, |(_, name)| format!("; did you mean `{}`?", name.as_ref()))
}

/// True if `given` is `meant` with up to two typos; for names that may mean something else.
pub fn is_typo(given: &str, meant: &str) -> bool {
    strsim::osa_distance(given, meant) <= 2
}

/// `12 COMM, 3 MMAP`, most first.
pub fn by_kind(counts: &BTreeMap<RecordType, u64>) -> String {
    let mut counts: Vec<_> = counts.iter().collect();
    counts.sort_by_key(|&(kind, &count)| (std::cmp::Reverse(count), *kind));
    list(counts.into_iter().map(|(kind, &number)| match kind.name() {
        Some(name) => format!("{} {name}", count(number)),
        None => format!("{} of unknown kind {}", count(number), kind.0),
    }))
}

/// `a, b, c`.
pub fn list(parts: impl IntoIterator<Item = String>) -> String {
    parts.into_iter().collect::<Vec<_>>().join(", ")
}

/// Seconds with nine decimals and a sign.
pub fn signed_seconds(ns: i64) -> String {
    format!("{}{} s", if ns < 0 { "-" } else { "" }, seconds(ns.unsigned_abs()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn consecutive_numbers_are_a_range() {
        assert_eq!(ranges([4, 5, 6, 7, 9, 11, 12], "..", ", "), "4..7, 9, 11..12");
        assert_eq!(ranges([0, 1, 2, 9, u64::MAX], "-", ","), "0-2,9,18446744073709551615");
        assert_eq!(ranges([u64::MAX, 0], "-", ","), "18446744073709551615,0");
        assert_eq!(ranges([], "-", ","), "");
    }

    #[test]
    fn thousands_are_readable() {
        assert_eq!([count(0), count(999), count(1000), count(1_234_567)], ["0", "999", "1,000", "1,234,567"]);
    }

    #[test]
    fn a_typo_finds_its_name() {
        let names = ["build-ids", "mmap2-build-ids"];
        assert_eq!(did_you_mean("build-idz", names), "; did you mean `build-ids`?");
        assert_eq!(did_you_mean("MMAP2-buildids", names), "; did you mean `mmap2-build-ids`?");
        assert_eq!(did_you_mean("x", names), "");
        assert_eq!(did_you_mean("", names), "");
    }
}

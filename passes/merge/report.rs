//! Sentences about a merge.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use perfx_format::RecordType;
use perfx_pipeline::{Level, Report, count, counted};

use super::clock::Clock;
use super::events::Translation;
use super::judged::Judged;
use super::placed::Placed;

/// Reports the planned merge of a guest; returns its first and last time, in ns of the host.
pub(crate) fn tell(
    placed: &Placed,
    clock: &Clock,
    translation: &Translation,
    report: &mut Report,
) -> Result<Option<(u64, u64)>> {
    let name = placed.name();
    let facts = &placed.guest.facts;
    let old: Vec<u64> =
        placed.guest.recording.events.iter().flat_map(|event| event.ids.iter().copied()).collect();
    let threads = placed.threads.iter();
    let threads =
        list(threads.map(|(vcpu, thread)| format!("VCPU {vcpu} is thread {} ({})", thread.tid, thread.name)));
    let (old, new) = (ranges(&old), ranges(&translation.new));
    report.say(Level::Info, format!("{name}: machine {}; ids {old} become {new}; {threads}", placed.pid));
    report.say(Level::Info, format!("{name}: offset={},scale={}", clock.offset, clock.scale));
    let times = facts.times().map(|(first, last)| {
        let there = |time| {
            clock.host_time(time).with_context(|| {
                let offset = clock.offset;
                format!("{name}: its time {time} is before the host's clock began: offset {offset} is wrong")
            })
        };
        Ok::<_, anyhow::Error>((there(first)?, there(last)?))
    });
    let (merged, left_out) = (facts.merged(), facts.left_out());
    let total: u64 = merged.values().sum();
    ensure!(total > 0, "{name}: none of its records can be merged; it holds {}", by_kind(&left_out));
    report.say(
        Level::Info,
        format!(
            "{name}: {} merged, {} of them without a time: {}",
            counted(total, "record", "records"),
            facts.timeless,
            by_kind(&merged)
        ),
    );
    let mut reasons: BTreeMap<(Level, &str), BTreeMap<RecordType, u64>> = BTreeMap::new();
    for (kind, count) in left_out {
        reasons.entry(placed.guest.chosen.why_not(kind)).or_default().insert(kind, count);
    }
    for ((level, why), counts) in reasons {
        report.say(level, format!("{name}: {} left out, {why}", by_kind(&counts)));
    }
    times.transpose()
}

/// With fewer records nothing is concluded from where they lie.
const JUDGED_MIN: u64 = 100;
/// At a wrong offset it is what share of the time VCPUs run, and some percent less than all where it is wrong by some µs.
const SHARE_MIN: f64 = 0.95;

/// Where a guest's records lie on the host, whose records reach from `host.0` to `host.1`.
pub(crate) fn tell_done(
    name: &str,
    times: Option<(u64, u64)>,
    host: Option<(u64, u64)>,
    judged: &[Judged],
    report: &mut Report,
) {
    let Some((from, to)) = times else { return };
    let text = format!("{name}: from {} to {}, the host", seconds(from), seconds(to));
    match host {
        None => report.say(Level::Warning, format!("{text} at no time")),
        Some((first, last)) if to < first || from > last => {
            let [from, to, first, last] = [from, to, first, last].map(seconds);
            let text = format!(
                "{name}: with this offset its records are from {from} to {to}, outside of the host's from {first} to {last}"
            );
            report.say(Level::Warning, text);
            return;
        }
        Some((first, last)) => {
            report.say(Level::Info, format!("{text} from {} to {}", seconds(first), seconds(last)))
        }
    }
    let (inside, all) = judged.iter().fold((0, 0), |sum, part| (sum.0 + part.inside, sum.1 + part.all));
    if all == 0 {
        let text = format!(
            "{name}: the host's recording has no switch records (--switch-events) that could confirm its offset"
        );
        report.say(Level::Info, text);
        return;
    }
    let text = format!(
        "{name}: {} of {} lie where the host ran their VCPU",
        count(inside),
        counted(all, "record", "records")
    );
    let is_bad = |inside: u64, all: u64| all >= JUDGED_MIN && (inside as f64) < all as f64 * SHARE_MIN;
    if is_bad(inside, all) {
        let right = "nearly all would if its offset, its scale and the threads of its VCPUs were right";
        report.say(Level::Warning, format!("{text}, but {right}"));
        return;
    }
    report.say(Level::Info, text);
    // Few records outside may all be in one place, and there the offset is wrong.
    let length = (to - from) / judged.len().max(1) as u64;
    for (number, part) in judged.iter().enumerate().filter(|(_, part)| is_bad(part.inside, part.all)) {
        let start = from + number as u64 * length;
        let text = format!(
            "{name}: from {} to {} only {} of {} records lie where the host ran their VCPU: its clock runs unevenly, and there its records are at a wrong time",
            seconds(start),
            seconds(start + length),
            part.inside,
            part.all
        );
        report.say(Level::Warning, text);
    }
}

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

/// Seconds with all their digits, as perf shows times.
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

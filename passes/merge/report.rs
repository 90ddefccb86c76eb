//! Reports the plan and the result of a merge.

use std::collections::BTreeMap;

use perfx_format::RecordType;
use perfx_pipeline::{
    Context as _, Error, Level, Report, Result, by_kind, count, counted, ensure, list, ranges, seconds,
};

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
    let (old, new) = (ranges(old, "..", ", "), ranges(translation.new.iter().copied(), "..", ", "));
    report.say(Level::Info, format!("{name}: machine {}; ids {old} become {new}; {threads}", placed.pid));
    report.say(Level::Info, format!("{name}: offset={},scale={}", clock.offset, clock.scale));
    let times = facts.times().map(|(first, last)| {
        let there = |time| {
            clock.host_time(time).with_context(|| {
                let offset = clock.offset;
                format!("{name}: its time {time} would be before 0 on the host's clock, so offset {offset} is wrong")
            })
        };
        Ok::<_, Error>((there(first)?, there(last)?))
    });
    let (merged, left_out) = (facts.merged(), facts.left_out());
    let total: u64 = merged.values().sum();
    ensure!(total > 0, "{name}: none of its records can be merged; it has {}", by_kind(&left_out));
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

/// Minimum number of records from which a conclusion is drawn.
const JUDGED_MIN: u64 = 100;
/// Minimum share of records at times when their VCPU ran. At a wrong offset, it is the share of time in which
/// VCPUs run; at one wrong by some µs, some percent below 1.
const SHARE_MIN: f64 = 0.95;

/// Reports where a guest's records are on the host, whose own span `host.0` to `host.1`.
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
        "{name}: {} of {} are at times when the host ran their VCPU",
        count(inside),
        counted(all, "record", "records")
    );
    let is_bad = |inside: u64, all: u64| all >= JUDGED_MIN && (inside as f64) < all as f64 * SHARE_MIN;
    if is_bad(inside, all) {
        let right =
            "nearly all should be, so its offset, its scale or the threads of its VCPUs are probably wrong";
        report.say(Level::Warning, format!("{text}, but {right}"));
        return;
    }
    report.say(Level::Info, text);
    // The few outside may all be in one part, where the offset is wrong.
    let length = (to - from) / judged.len().max(1) as u64;
    for (number, part) in judged.iter().enumerate().filter(|(_, part)| is_bad(part.inside, part.all)) {
        let start = from + number as u64 * length;
        let text = format!(
            "{name}: from {} to {}, only {} of {} records are at times when the host ran their VCPU: its clock \
             runs unevenly, and its times are wrong there",
            seconds(start),
            seconds(start + length),
            part.inside,
            part.all
        );
        report.say(Level::Warning, text);
    }
}

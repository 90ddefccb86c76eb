//! Refuses inputs that cannot be joined, and reports the plan for others.

use perfx_pipeline::{Level, Report, Result, counted, ensure};

use super::input::{check_times, is_timeless};
use super::unite::{JoinSource, Union};

/// Refuses inputs that cannot be joined. Returns true if no record has a time: inputs then follow each other.
pub(super) fn check(sources: &[JoinSource<'_>]) -> Result<bool> {
    let in_turn = sources.iter().all(|source| is_timeless(&source.events));
    for source in sources {
        ensure!(
            !source.events.is_empty() || source.facts.records == 0,
            "{}: it has no event, so its records can't be read",
            source.name
        );
        ensure!(
            !source.facts.has_stat,
            "{}: it was written by perf stat record, whose counts have no time",
            source.name
        );
        if !in_turn {
            check_times(source.name, &source.events, source.facts)?;
        }
    }
    let mut traced = sources.iter().filter(|source| source.facts.has_aux || source.facts.aux_info.is_some());
    if let Some(first) = traced.next() {
        for other in traced {
            ensure!(
                other.facts.aux_info == first.facts.aux_info && ids(other) == ids(first),
                "{}: it has AUX data, and so has {}; perf decodes the AUX data of one recording only",
                other.name,
                first.name
            );
        }
    }
    Ok(in_turn)
}

fn ids<'a>(source: &'a JoinSource<'_>) -> Vec<&'a [u64]> {
    source.events.iter().map(|event| &event.ids[..]).collect()
}

pub(super) const IDENTIFIED: &str = "every record gets an IDENTIFIER, so that perf finds its event";

pub(super) fn report_plan(sources: &[JoinSource<'_>], union: &Union, report: &mut Report) {
    for (number, (source, translator)) in sources.iter().zip(&union.translators).enumerate() {
        let JoinSource { name, facts, events, .. } = source;
        if number > 0 {
            let records = counted(facts.records, "record", "records");
            report.say(Level::Info, format!("read {name}: {records}"));
        }
        let own = events.len() - union.shared[number];
        let mut counts = Vec::new();
        if number > 0 && union.shared[number] > 0 {
            let shared = union.shared[number] as u64;
            counts.push(counted(
                shared,
                "event merged with an earlier one",
                "events merged with earlier ones",
            ));
        }
        if number > 0 && own > 0 {
            counts.push(counted(own as u64, "event added", "events added"));
        }
        if !translator.ids.is_empty() {
            let changed = translator.ids.len() as u64;
            counts.push(counted(
                changed,
                "id replaced that another input uses",
                "ids replaced that other inputs use",
            ));
        }
        if !counts.is_empty() {
            report.say(Level::Info, format!("{name}: {}", counts.join(", ")));
        }
    }
    if union.identify {
        report.say(Level::Info, IDENTIFIED);
    }
    // perf refuses a file whose attrs are larger than its own.
    let size = |source: &JoinSource<'_>| source.events.iter().map(|event| event.raw().len()).max();
    let sized = || sources.iter().filter_map(|source| Some((size(source)?, source.name)));
    if let (Some(small), Some(large)) =
        (sized().min_by_key(|(size, _)| *size), sized().max_by_key(|(size, _)| *size))
        && small.0 < large.0
    {
        let what = format!(
            "attrs have {} bytes, as in {}; the perf that recorded {} knows only {} bytes, so it can read the \
             output only as pipe data (--to pipe)",
            large.0, large.1, small.1, small.0
        );
        report.say(Level::Info, what);
    }
}

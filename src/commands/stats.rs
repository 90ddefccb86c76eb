//! `perfx stats` counts the records of a recording by kind, its samples by event, losses, and AUX data.

use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use perfx_auxtrace::{Summary, Survey};
use perfx_filter::{FilterOptions, SelectArgs, SelectedSamples};
use perfx_format::read::Batch;
use perfx_format::{Record, RecordType};
use perfx_look::json::{Decimal, Document};
use perfx_look::render::{self, kind_name, printable};
use perfx_look::{AuxCount, Count, PacketCounts, Stats as Counts, TimeSpan, stats, stats_of};
use perfx_pipeline::{Level, Report};
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::{Format, ReadArgs};
use crate::commands::export::input::filter_of;
use crate::io::source::{InputsArgs, Source, each_input};
use crate::term::units::{self, fitted, percent};

/// Count records by kind, samples by event, and losses
///
/// Prints the numbers of perf report --stats, and more: bytes, the largest record of each kind,
/// periods, AUX data, compression, first and last time. COMPRESSED records are counted, and so are
/// the records they hold, as in perf. If samples hold counters (perf record -e '{…}:S'), "new values"
/// is how often a sample found a changed value of that event's counter; perf counts these as samples.
///
/// Options that select samples, such as --time and --pid, count the records that perfx filter would keep,
/// decompressed. With an index (perfx index), little more than these is read.
///
/// Several recordings are counted separately; one that can't be read does not stop the others.
///
/// Examples:
///   perfx stats perf.data
///   perfx stats --json perf.data | jq '.kinds[] | select(.kind == "SAMPLE").records'
///   perfx stats --time 50%-51% perf.data
///   perfx stats --format ndjson night/*.data
///   perf record -o - ./program | perfx stats
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Stats {
    #[command(flatten)]
    inputs: InputsArgs,
    #[command(flatten, next_help_heading = "Samples")]
    select: SelectArgs,
    #[command(flatten, next_help_heading = "Options")]
    read: ReadArgs,
}

pub(crate) type Output<'c> = Document<2, Printed<'c>>;

/// # perfx stats --format json
///
/// The counts of a recording, or of several; in ndjson, each of several has a line. perf report --stats counts the same,
/// with the exceptions in docs/guide/look.md.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "what", rename_all = "kebab-case")]
#[schemars(deny_unknown_fields)]
pub(crate) enum Printed<'c> {
    Stats(&'c Counts),
    StatsOfFiles { files: &'c [FileCounts] },
    StatsOfFile(&'c FileCounts),
}

/// The counts of one of several recordings.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct FileCounts {
    /// The name that the user gave
    file: String,
    #[serde(flatten)]
    counts: Counts,
}

/// The number of AUX buffers in text; JSON has all.
const SHOWN: usize = 16;

impl Stats {
    pub(crate) fn run(&self) -> Result<u8> {
        let options = filter_of(&self.select)?;
        let sources = self.inputs.sources()?;
        let format = self.read.format;
        if sources.len() == 1 {
            let (counts, report) = self.count(&sources[0], &options)?;
            format.print(|| text(&counts), || Output::new(Printed::Stats(&counts)))?;
            return Ok(self.read.verbosity.print(&report));
        }
        let mut files = Vec::new();
        let code = each_input(&sources, "are not counted", |source| {
            let (counts, report) = self.count(source, &options)?;
            let file = FileCounts { file: source.to_string(), counts };
            if format.format() == Format::Json {
                files.push(file);
            } else {
                let titled = || format!("{}:\n{}\n", printable(&file.file), text(&file.counts));
                format.print(titled, || Output::new(Printed::StatsOfFile(&file)))?;
            }
            Ok(self.read.verbosity.print(&report))
        });
        if format.format() == Format::Json {
            format.print(String::new, || Output::new(Printed::StatsOfFiles { files: &files }))?;
        }
        code
    }

    fn count(&self, source: &Source, options: &Arc<FilterOptions>) -> Result<(Counts, Report)> {
        let mut recording = if options.is_empty() { source.open()? } else { source.open_indexed()? };
        recording.progress().expect(if options.is_empty() { 1 } else { 2 + options.readings() });
        let (mut report, threads) = (Report::default(), self.read.threads.count(&recording));
        let bar = self.read.verbosity.progress(&recording);
        let counts = match SelectedSamples::if_any(&mut recording, options, threads, &mut report)? {
            None => {
                let mut counts = stats(&mut recording, threads, &mut report)?;
                if let Source::Path(_) = source
                    && !counts.aux.tracers.is_empty()
                {
                    counts.aux.packets = packets(source, threads, &mut report)?;
                }
                counts
            }
            Some(selected) => {
                let kept = selected.with_records(&mut recording, threads)?;
                let each = |batch: &Batch, see: &mut dyn FnMut(&Record<'_>)| kept.each(batch, see);
                let counts = stats_of(&mut recording, threads, &mut report, each)?;
                kept.say_if_none(&recording.name, &mut report);
                counts
            }
        };
        drop(bar);
        Ok((counts, report))
    }
}

fn packets(source: &Source, threads: usize, report: &mut Report) -> Result<Option<PacketCounts>> {
    let found = match Survey::summary(&mut source.open()?, threads) {
        Ok(found) => found,
        Err(error) => {
            report.say(Level::Warning, format!("the packets of AUX data are not counted: {error}"));
            return Ok(None);
        }
    };
    Ok(found.map(|Summary { packets, syncs, overflows, time }| PacketCounts {
        by_kind: packets,
        syncs,
        overflows,
        span_ns: time.map(|(span, _)| Decimal(span)),
        traced_ns: time.map(|(_, traced)| Decimal(traced)),
    }))
}

fn text(counts: &Counts) -> String {
    let total = counts.total();
    let line = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let row = |name: String, of: Count| {
        let share = percent(of.records, total.records);
        vec![name, units::count(of.records), share, units::size(of.bytes), units::count(of.largest_bytes)]
    };
    let mut rows = vec![line(&["kind", "records", "", "bytes", "largest"])];
    rows.extend(counts.kinds.iter().map(|of| row(kind_name(of.kind.0).into_owned(), of.count)));
    rows.push(row("all".to_owned(), total));
    let mut text = fitted(&rows);

    let samples = counts.of_kind(RecordType::SAMPLE).records;
    // perf shows this number as that of samples.
    let reads = counts.events.iter().any(|event| event.new_values.by_id + event.new_values.by_thread > 0);
    let columns = ["event", "samples", "", "bytes", "period", "lost", "new values"];
    let mut rows = vec![line(&columns[..columns.len() - usize::from(!reads)])];
    let row = |name: String, records: u64, bytes: u64, period: String, lost: String| {
        vec![name, units::count(records), percent(records, samples), units::size(bytes), period, lost]
    };
    for event in &counts.events {
        let name = render::readable(&event.name.0);
        let period = event.period.map_or_else(|| "-".to_owned(), |period| units::wide_count(period.0));
        let lost = units::wide_count(event.lost_samples.0 + event.filtered_samples.0);
        let mut row = row(name, event.samples, event.bytes, period, lost);
        if reads {
            row.push(units::count(event.new_values.by_id));
        }
        rows.push(row);
    }
    let unknown = counts.of_unknown_events;
    if unknown.samples > 0 {
        rows.push(row("(unknown)".to_owned(), unknown.samples, unknown.bytes, String::new(), String::new()));
    }
    text += "\n";
    text += &fitted(&rows);
    text += "\n";
    for (name, what) in facts(counts) {
        text += &format!("{name:<15} {what}\n");
    }
    text
}

fn facts(counts: &Counts) -> Vec<(&'static str, String)> {
    let told_by = |kind: RecordType| {
        format!("reported by {} {}", units::count(counts.of_kind(kind).records), kind_name(kind))
    };
    let lost = counts.lost;
    let and_filtered = if lost.filtered_samples.0 > 0 {
        format!(" and {} dropped by a filter", units::wide_count(lost.filtered_samples.0))
    } else {
        String::new()
    };
    let samples = units::wide_count(lost.lost_samples.0) + &and_filtered;
    let mut facts = vec![
        (
            "lost records",
            format!("{}, {}", units::wide_count(lost.lost_records.0), told_by(RecordType::LOST)),
        ),
        ("lost samples", format!("{samples}, {}", told_by(RecordType::LOST_SAMPLES))),
    ];
    let (traces, written) = (counts.of_kind(RecordType::AUXTRACE), counts.of_kind(RecordType::AUX));
    if traces.records + written.records > 0 {
        let held = format!("{} in {} AUXTRACE", units::size(counts.aux.bytes), units::count(traces.records));
        let [cut, partial, collisions] =
            [counts.aux.truncated, counts.aux.partial, counts.aux.collisions].map(units::count);
        let flags = format!("{cut} truncated, {partial} with gaps, {collisions} with collisions");
        facts.push((
            "AUX data",
            format!("{held}, reported by {} AUX, {flags}", units::count(written.records)),
        ));
    }
    facts.extend(aux_facts(&counts.aux));
    let compressed = counts.compressed;
    if compressed.records > 0 {
        let records = |records, bytes| format!("{} records of {}", units::count(records), units::size(bytes));
        let held = records(compressed.expanded_records, compressed.expanded_bytes);
        let factor = compressed.expanded_bytes as f64 / compressed.bytes as f64;
        let closed = records(compressed.records, compressed.bytes);
        facts.push(("compressed", format!("{closed} hold {held} ({factor:.1} to 1)")));
    }
    let too_small = counts.total().too_small;
    if too_small > 0 {
        facts.push((
            "too small",
            format!("{} records are smaller than the fields of their kind", units::count(too_small)),
        ));
    }
    if let Some(largest) = counts.largest {
        let (kind, size) = (kind_name(largest.kind.0), units::count(largest.bytes));
        facts.push(("largest record", format!("{kind} of {size} bytes at {}", largest.at.0)));
    }
    facts.extend(counts.time.samples.map(|span| ("samples", span_text(span))));
    facts.extend(counts.time.records.map(|span| ("all records", span_text(span))));
    facts
}

fn aux_facts(aux: &AuxCount) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if !aux.tracers.is_empty() {
        facts.push(("AUX tracer", aux.tracers.join(", ")));
    }
    for buffer in aux.buffers.iter().take(SHOWN) {
        let whose = buffer.owner();
        let (bytes, records) = (units::size(buffer.bytes), units::count(buffer.records));
        let psb = buffer.psb.map(|psb| format!(", {} PSB", units::count(psb))).unwrap_or_default();
        facts.push(("AUX buffer", format!("{whose}: {bytes} in {records} AUXTRACE{psb}")));
    }
    if aux.buffers.len() > SHOWN {
        let more = units::count((aux.buffers.len() - SHOWN) as u64);
        facts.push(("AUX buffer", format!("and {more} more (--json shows them)")));
    }
    facts.extend(aux.time.map(|span| ("AUX records", span_text(span))));
    if let Some(packets) = &aux.packets {
        let kinds = packets.by_kind.iter().map(|(kind, count)| format!("{} {kind}", units::count(*count)));
        facts.push(("AUX packets", kinds.collect::<Vec<_>>().join(", ")));
        let (syncs, lost) = (units::count(packets.syncs), units::count(packets.overflows));
        facts.push(("AUX flow", format!("{syncs} sync points, {lost} overflows")));
        if let (Some(Decimal(span)), Some(Decimal(traced))) = (packets.span_ns, packets.traced_ns) {
            let (share, span) = (percent(traced, span).trim_start().to_owned(), units::duration(span));
            facts.push(("AUX traced", format!("{share} of {span}, the time of all buffers")));
        }
    }
    facts
}

fn span_text(span: TimeSpan) -> String {
    let (first, last) = (span.first_ns.0, span.last_ns.0);
    let (from, to, long) = (units::time(first), units::time(last), units::duration(last - first));
    format!("from {from} to {to}, {long}")
}

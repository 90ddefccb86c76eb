//! `perfx du` shows where the bytes of a recording are: every byte of the input belongs to one part, and
//! those of records also to a kind, an event and a process.

use std::iter;

use anyhow::Result;
use clap::Args;
use perfx_filter::{SelectArgs, SelectedSamples};
use perfx_format::read::Batch;
use perfx_format::{Feature, Record};
use perfx_look::json::Document;
use perfx_look::render::{self, kind_name};
use perfx_look::{Du as Usage, EventBytes, FeatureBytes, Hole, KindBytes, Process};
use perfx_pipeline::Report;
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::ReadArgs;
use crate::commands::export::input::filter_of;
use crate::io::source::{InputArgs, Source};
use crate::term::units::{self, percent};

/// Show where the bytes of a recording are: header, records by kind, event and process, features
///
/// The parts add up to the size of the file, or of all files of a directory. Holes are bytes in no section of
/// the file. Compressed records are shown twice: as they are stored, and as the records they expand to. The
/// figures of events and processes count expanded records.
///
/// Options that select samples, such as --time and --pid, count the records that perfx filter would keep,
/// decompressed.
///
/// Examples:
///   perfx du perf.data
///   perfx du --comm nginx perf.data
///   perfx du --json perf.data | jq '.processes[0]'
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Du {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten, next_help_heading = "Samples")]
    select: SelectArgs,
    #[command(flatten, next_help_heading = "Options")]
    read: ReadArgs,
}

pub(crate) type Output<'u> = Document<2, Printed<'u>>;

/// # perfx du --format json
///
/// Where the bytes of a recording are.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "what", rename_all = "lowercase")]
pub(crate) enum Printed<'u> {
    Du(&'u Usage),
}

/// The number of processes in text; JSON has all.
const SHOWN: usize = 20;

impl Du {
    pub(crate) fn run(&self) -> Result<u8> {
        let options = filter_of(&self.select)?;
        let source = Source::of(&self.input);
        let mut recording = if options.is_empty() { source.open()? } else { source.open_indexed()? };
        recording.progress().expect(if options.is_empty() { 1 } else { 2 + options.readings() });
        let (mut report, threads) = (Report::default(), self.read.threads.count(&recording));
        let bar = self.read.verbosity.progress(&recording);
        let usage = match SelectedSamples::if_any(&mut recording, &options, threads, &mut report)? {
            None => perfx_look::du(&mut recording, threads, &mut report)?,
            Some(selected) => {
                let kept = selected.with_records(&mut recording, threads)?;
                let each = |batch: &Batch, see: &mut dyn FnMut(&Record<'_>)| kept.each(batch, see);
                let usage = perfx_look::du_of(&mut recording, threads, &mut report, each)?;
                kept.say_if_none(&recording.name, &mut report);
                usage
            }
        };
        drop(bar);
        self.read.format.print(|| text(&usage), || Output::new(Printed::Du(&usage)))?;
        Ok(self.read.verbosity.print(&report))
    }
}

#[derive(Serialize)]
pub(crate) struct ByteTable {
    title: &'static str,
    rows: Vec<ByteRow>,
}

/// A row; one with only a name counts omitted rows.
#[derive(Serialize)]
struct ByteRow {
    name: String,
    bytes: Option<u64>,
    of: Option<u64>,
    records: Option<u64>,
}

impl ByteRow {
    fn new(name: impl Into<String>, bytes: u64, of: u64, records: impl Into<Option<u64>>) -> ByteRow {
        ByteRow { name: name.into(), bytes: Some(bytes), of: Some(of), records: records.into() }
    }

    fn others(count: usize) -> Option<ByteRow> {
        let name = format!("{count} others");
        (count > 0).then_some(ByteRow { name, bytes: None, of: None, records: None })
    }
}

pub(crate) fn tables(usage: &Usage) -> Vec<ByteTable> {
    let total = usage.bytes;
    let mut rows: Vec<_> =
        usage.parts.iter().map(|row| ByteRow::new(&row.part, row.bytes, total, None)).collect();
    rows.push(ByteRow::new("all", total, total, None));
    let mut tables = vec![ByteTable { title: "part", rows }];

    let mut kinds = |title, kinds: &[KindBytes]| {
        let bytes = kinds.iter().map(|kind| kind.bytes).sum();
        let row = |kind: &KindBytes| ByteRow::new(kind_name(kind.kind.0), kind.bytes, bytes, kind.records);
        let mut rows: Vec<_> = kinds.iter().map(row).collect();
        rows.push(ByteRow::new("all", bytes, bytes, kinds.iter().map(|kind| kind.records).sum::<u64>()));
        tables.push(ByteTable { title, rows });
    };
    kinds("records", &usage.stored);
    if usage.stored.iter().any(|kind| kind.kind.0.is_compressed()) {
        kinds("compressed records hold", &usage.expanded);
    }

    let expanded = usage.expanded_bytes();
    let event = |event: &EventBytes| {
        ByteRow::new(render::readable(&event.name.0), event.bytes, expanded, event.samples)
    };
    tables.push(ByteTable { title: "samples of", rows: usage.events.iter().map(event).collect() });

    if !usage.aux.is_empty() {
        let buffers = usage.aux.iter().take(SHOWN);
        let mut rows: Vec<_> =
            buffers.map(|buffer| ByteRow::new(buffer.owner(), buffer.bytes, total, buffer.records)).collect();
        rows.extend(ByteRow::others(usage.aux.len().saturating_sub(SHOWN)));
        tables.push(ByteTable { title: "AUX data of", rows });
    }

    let process = |process: &Process| ByteRow::new(name(process), process.bytes, expanded, process.records);
    let mut rows: Vec<_> = usage.processes.iter().take(SHOWN).map(process).collect();
    let others = usage.processes.get(SHOWN..).unwrap_or_default();
    if !others.is_empty() {
        let records = others.iter().map(|process| process.records).sum::<u64>();
        let bytes = others.iter().map(|process| process.bytes).sum();
        rows.push(ByteRow::new(format!("{} others", others.len()), bytes, expanded, records));
    }
    tables.push(ByteTable { title: "process", rows });

    let feature = |of: &FeatureBytes| ByteRow::new(Feature(of.bit).to_string(), of.bytes, total, None);
    if !usage.features.is_empty() {
        tables.push(ByteTable { title: "feature", rows: usage.features.iter().map(feature).collect() });
    }
    if !usage.holes.is_empty() {
        let hole = |hole: &Hole| ByteRow {
            of: None,
            ..ByteRow::new(format!("{:#x}", hole.offset.0), hole.bytes, total, None)
        };
        let mut rows: Vec<_> = usage.holes.iter().take(SHOWN).map(hole).collect();
        rows.extend(ByteRow::others(usage.holes.len().saturating_sub(SHOWN)));
        tables.push(ByteTable { title: "hole at", rows });
    }
    tables
}

fn text(usage: &Usage) -> String {
    let shown = |table: &ByteTable| {
        let has_records = !["part", "feature", "hole at"].contains(&table.title);
        let columns = ["bytes", "", "records"].iter().take(if has_records { 3 } else { 1 });
        let mut rows = vec![iter::once(&table.title).chain(columns).map(|&name| name.to_owned()).collect()];
        rows.extend(table.rows.iter().map(|row| {
            let share = row.bytes.zip(row.of).map(|(bytes, of)| percent(bytes, of));
            let cells = [row.bytes.map(units::count), share, row.records.map(units::count)];
            iter::once(row.name.clone()).chain(cells.into_iter().flatten()).collect::<Vec<_>>()
        }));
        units::fitted(&rows)
    };
    tables(usage).iter().map(shown).collect::<Vec<_>>().join("\n")
}

fn name(process: &Process) -> String {
    match (process.pid, &process.comm) {
        (None, _) => "(no process)".to_owned(),
        (Some(pid), None) => pid.to_string(),
        (Some(pid), Some(comm)) => format!("{pid} {}", render::readable(&comm.0)),
    }
}

//! `perfx du` shows where the bytes of a recording are: every byte of the input belongs to one part, and the
//! bytes of records also to a kind, an event and a process.

use anyhow::Result;
use clap::Args;
use perfx_format::Feature;
use perfx_look::json::Document;
use perfx_look::render::{self, kind_name};
use perfx_look::{Du as Usage, KindBytes, Process};
use perfx_pipeline::Report;
use schemars::JsonSchema;
use serde::Serialize;

use crate::args::ReadArgs;
use crate::io::source::{InputArgs, Source};
use crate::term::units::{self, percent, table};

/// Show where the bytes of a recording are: header, records by kind, event and process, features
///
/// The parts add up to the size of the file, or of all files of a directory. Holes are bytes that
/// nothing in the file points at. Compressed records are shown twice: as they are stored, and as the
/// records they expand to. The figures of events and processes count expanded records.
///
/// Examples:
///   perfx du perf.data
///   perfx du --json perf.data | jq '.processes[0]'
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Du {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    read: ReadArgs,
}

/// What is printed as JSON.
pub(crate) type Output<'u> = Document<1, Printed<'u>>;

/// # perfx du --format json
///
/// Where the bytes of a recording are.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "what", rename_all = "lowercase")]
pub(crate) enum Printed<'u> {
    Du(&'u Usage),
}

/// The number of processes shown in text; JSON has all.
const SHOWN: usize = 20;

impl Du {
    pub(crate) fn run(&self) -> Result<u8> {
        let mut recording = Source::of(&self.input).open()?;
        let mut report = Report::default();
        let bar = self.read.verbosity.progress(&recording);
        let usage = perfx_look::du(&mut recording, self.read.threads.count(), &mut report)?;
        drop(bar);
        self.read.format.print(|| text(&usage), || Output::new(Printed::Du(&usage)))?;
        Ok(self.read.verbosity.print(&report))
    }
}

fn text(usage: &Usage) -> String {
    let line = |words: &[&str]| words.iter().map(|&word| word.to_owned()).collect::<Vec<_>>();
    let total = usage.bytes;
    let part = |name: &str, bytes: u64| vec![name.to_owned(), units::count(bytes), percent(bytes, total)];
    let mut rows = vec![line(&["part", "bytes"])];
    rows.extend(usage.parts.iter().map(|row| part(&row.part, row.bytes)));
    rows.push(part("all", total));
    let mut text = table(&rows);

    let row = |name: String, records: u64, bytes: u64, of: u64| {
        vec![name, units::count(bytes), percent(bytes, of), units::count(records)]
    };
    let mut kinds = |title: &str, kinds: &[KindBytes]| {
        let bytes = kinds.iter().map(|kind| kind.bytes).sum();
        let mut rows = vec![line(&[title, "bytes", "", "records"])];
        rows.extend(kinds.iter().map(|kind| row(kind_name(kind.kind.0), kind.records, kind.bytes, bytes)));
        rows.push(row("all".to_owned(), kinds.iter().map(|kind| kind.records).sum(), bytes, bytes));
        text += "\n";
        text += &table(&rows);
    };
    kinds("records", &usage.stored);
    if usage.stored.iter().any(|kind| kind.kind.0.is_compressed()) {
        kinds("compressed records hold", &usage.expanded);
    }

    let expanded = usage.expanded_bytes();
    let mut rows = vec![line(&["samples of", "bytes", "", "records"])];
    for event in &usage.events {
        rows.push(row(render::readable(&event.name.0), event.samples, event.bytes, expanded));
    }
    text += "\n";
    text += &table(&rows);

    if !usage.aux.is_empty() {
        let mut rows = vec![line(&["AUX data of", "bytes", "", "records"])];
        for buffer in usage.aux.iter().take(SHOWN) {
            rows.push(row(buffer.owner(), buffer.records, buffer.bytes, total));
        }
        if usage.aux.len() > SHOWN {
            rows.push(vec![format!("{} others", usage.aux.len() - SHOWN)]);
        }
        text += "\n";
        text += &table(&rows);
    }

    let mut rows = vec![line(&["process", "bytes", "", "records"])];
    let process = |process: &Process| row(name(process), process.records, process.bytes, expanded);
    rows.extend(usage.processes.iter().take(SHOWN).map(process));
    let others = usage.processes.get(SHOWN..).unwrap_or_default();
    if !others.is_empty() {
        let records = others.iter().map(|process| process.records).sum();
        let bytes = others.iter().map(|process| process.bytes).sum();
        rows.push(row(format!("{} others", others.len()), records, bytes, expanded));
    }
    text += "\n";
    text += &table(&rows);

    let mut rows = vec![line(&["feature", "bytes"])];
    rows.extend(usage.features.iter().map(|of| part(&Feature(of.bit).to_string(), of.bytes)));
    text += "\n";
    text += &table(&rows);
    if !usage.holes.is_empty() {
        let mut rows = vec![line(&["hole at", "bytes"])];
        for hole in usage.holes.iter().take(SHOWN) {
            rows.push(vec![format!("{:#x}", hole.offset.0), units::count(hole.bytes)]);
        }
        if usage.holes.len() > SHOWN {
            rows.push(vec![format!("{} others", usage.holes.len() - SHOWN)]);
        }
        text += "\n";
        text += &table(&rows);
    }
    text
}

fn name(process: &Process) -> String {
    match (process.pid, &process.comm) {
        (None, _) => "(no process)".to_owned(),
        (Some(pid), None) => pid.to_string(),
        (Some(pid), Some(comm)) => format!("{pid} {}", render::readable(&comm.0)),
    }
}

//! `perfx info` shows the header of a recording and reads nothing else, so it is fast at any size.

mod facts;
mod json;
mod text;
mod tracers;

use std::collections::HashMap;
use std::io::Write as _;

use anyhow::Result;
use clap::Args;
use perfx_format::read::{Form, Recording};
use perfx_format::record::event_update::name_update;
use perfx_format::record::header_records::HeaderRecord;
use perfx_format::{Feature, RecordType};
use perfx_pipeline::{Level, Report};

use crate::args::{Format, FormatArgs, json_document, json_line};
use crate::io::output::stdout;
use crate::io::source::{InputArgs, Source};
use crate::term::report::VerbosityArgs;
use facts::InfoFacts;
pub(crate) use json::Output;
use tracers::Tracers;

/// Show what a recording is: form, machine, command, times, events, features
///
/// Reads only the header, so it is quick on recordings of any size; in pipe data, and for the tracer of
/// AUX data, it reads up to the first sample. For figures that need all records, such as their number, use `perfx stats`.
/// Events are described with the terms of `perf evlist -v`.
///
/// Examples:
///   perfx info perf.data
///   perfx info --format json perf.data
///   perf record -o - ./program | perfx info
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Info {
    #[command(flatten)]
    input: InputArgs,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    verbosity: VerbosityArgs,
}

impl Info {
    pub(crate) fn run(&self) -> Result<u8> {
        let mut recording = Source::of(&self.input).open()?;
        let mut report = Report::default();
        let updates = read_on(&mut recording, &mut report);
        let tracers = Tracers::of(&mut recording);
        let facts = InfoFacts::new(&recording, &updates, tracers);
        facts.tell_faults(&mut report);
        let shown = match self.format.format() {
            Format::Text => text::page(&facts),
            Format::Json => json_document(&json::document(&facts))?,
            Format::Ndjson => json::lines(&facts).map(|line| json_line(&line)).collect::<Result<_>>()?,
        };
        let mut out = stdout();
        out.write_all(shown.as_bytes())?;
        out.flush()?;
        Ok(self.verbosity.print(&report))
    }
}

/// Headings with lines of a label and a text: what `perfx info` prints about a recording.
pub(crate) fn headings(recording: &mut Recording) -> Vec<(&'static str, Vec<(String, String)>)> {
    // The caller reads the whole recording, and reports its faults then.
    let updates = read_on(recording, &mut Report::default());
    let tracers = Tracers::of(recording);
    let facts = InfoFacts::new(recording, &updates, tracers);
    let mut all = text::headings(&facts).to_vec();
    all.push(("events", text::events(&facts)));
    all
}

/// Reads pipe data up to the first sample if its front does not name all events: some writers send
/// EVENT_UPDATE records, or features after other records. Returns names by event id.
fn read_on(recording: &mut Recording, report: &mut Report) -> HashMap<u64, Vec<u8>> {
    let mut names = HashMap::new();
    if recording.form != Form::Pipe || recording.features.contains_key(&Feature::EVENT_DESC) {
        return names;
    }
    for batch in recording.batches() {
        let read = || -> perfx_format::Result<bool> {
            let batch = batch?;
            let mut walker = batch.walk();
            while let Some(record) = walker.next_record()? {
                let kind = record.kind();
                if kind == RecordType::SAMPLE || kind == RecordType::AUXTRACE || kind.is_compressed() {
                    return Ok(false);
                }
                if let Some((id, name)) = name_update(&record) {
                    names.insert(id, name.to_vec());
                }
                if let Some(header) = HeaderRecord::read(&record)? {
                    recording.absorb(header);
                }
            }
            Ok(batch.fragment.is_none())
        };
        match read() {
            Ok(true) => {}
            Ok(false) => break,
            Err(error) => {
                report.say(Level::Warning, error.file(&recording.name).to_string());
                break;
            }
        }
    }
    names
}

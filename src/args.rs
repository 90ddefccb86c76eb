//! Defines the argument groups that commands share (threads, output format), and usage errors.

use std::io::Write as _;

use anyhow::{Context as _, Result};
use clap::{Args, ValueEnum};
use perfx_auxtrace::Presence;
use perfx_format::RecordType;
use perfx_format::read::Recording;
use perfx_look::json::push_json;
use perfx_pipeline::did_you_mean;
use serde::Serialize;

use crate::io::streams::stdout;
use crate::term::report::VerbosityArgs;

/// The number of threads.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct ThreadArgs {
    /// Number of threads; 0 means one per processor, or a single one for a small recording. The output does not depend on it
    #[arg(short = '@', long, value_name = "N", default_value_t = 0, value_parser = threads, allow_negative_numbers = true)]
    threads: u16,
}

const THREADS_MAX: u16 = 1024;

fn threads(text: &str) -> Result<u16, String> {
    let number = text.parse().ok().filter(|number| *number <= THREADS_MAX);
    number.ok_or_else(|| format!("give a number from 1 to {THREADS_MAX}, or 0 for one thread per processor"))
}

impl ThreadArgs {
    /// By default one thread for a recording on which it takes longer to start another than to do the work.
    pub(crate) fn count(self, recording: &Recording) -> usize {
        const SMALL: u64 = 256 << 10;
        let expands = recording.is_compressed() || Presence::is_listed(recording);
        let is_small = recording.data_size().is_some_and(|size| size < SMALL) && !expands;
        match self.threads {
            0 if is_small => 1,
            0 => std::thread::available_parallelism().map_or(1, usize::from),
            threads => threads.into(),
        }
    }
}

/// The format of a command's output.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct FormatArgs {
    /// Format of the output
    #[arg(help_heading = "Report", long, value_name = "FORM", default_value = "text")]
    format: Format,
    /// The same as --format json
    #[arg(help_heading = "Report", long, conflicts_with = "format")]
    json: bool,
}

/// The output formats. The version of a JSON format, `schema`, increases whenever a reader of the old one
/// would misread the new one.
#[derive(ValueEnum, Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Format {
    /// For people
    Text,
    /// One JSON document; numbers in "fields", and others that may exceed 2^53, are strings
    Json,
    /// One JSON object per line
    Ndjson,
}

impl FormatArgs {
    pub(crate) fn format(self) -> Format {
        if self.json { Format::Json } else { self.format }
    }

    pub(crate) fn printer<E>(self) -> Printer<E> {
        Printer { format: self.format(), entries: Vec::new() }
    }

    /// Prints a result that is one JSON document, or one line of NDJSON.
    pub(crate) fn print<T: Serialize>(
        self,
        text: impl FnOnce() -> String,
        document: impl FnOnce() -> T,
    ) -> Result<()> {
        let shown = match self.format() {
            Format::Text => text(),
            Format::Json => json_document(&document())?,
            Format::Ndjson => json_line(&document())?,
        };
        print(&shown)
    }
}

/// Prints entries as they are found (text, NDJSON), or together at the end (JSON).
pub(crate) struct Printer<E> {
    format: Format,
    entries: Vec<E>,
}

impl<E> Printer<E> {
    pub(crate) fn print<T: Serialize>(
        &mut self,
        entry: E,
        text: impl FnOnce(&E) -> String,
        line: impl FnOnce(E) -> T,
    ) -> Result<()> {
        let shown = match self.format {
            Format::Text => text(&entry),
            Format::Ndjson => json_line(&line(entry))?,
            Format::Json => {
                self.entries.push(entry);
                return Ok(());
            }
        };
        print(&shown)
    }

    pub(crate) fn end<T: Serialize>(self, document: impl FnOnce(Vec<E>) -> T) -> Result<()> {
        if self.format == Format::Json {
            print(&json_document(&document(self.entries))?)?;
        }
        Ok(())
    }
}

fn print(text: &str) -> Result<()> {
    stdout().write_all(text.as_bytes()).context("standard output")
}

pub(crate) fn json_document(document: &impl Serialize) -> Result<String> {
    json(document, true)
}

pub(crate) fn json_line(line: &impl Serialize) -> Result<String> {
    json(line, false)
}

fn json(value: &impl Serialize, indented: bool) -> Result<String> {
    let mut text = Vec::new();
    push_json(&mut text, value, indented)?;
    text.push(b'\n');
    Ok(String::from_utf8(text)?)
}

/// Options of the commands that read all records and report on them.
#[derive(Args, Debug, Clone, Copy)]
pub(crate) struct ReadArgs {
    #[command(flatten)]
    pub(crate) format: FormatArgs,
    #[command(flatten)]
    pub(crate) threads: ThreadArgs,
    #[command(flatten)]
    pub(crate) verbosity: VerbosityArgs,
}

/// A usage error found after parsing.
#[derive(Debug)]
pub(crate) struct Usage(pub(crate) String);

impl Usage {
    pub(crate) fn refuse(options: &[(&str, bool)], of: &str) -> Result<()> {
        match options.iter().find(|(_, given)| *given) {
            Some((option, _)) => Err(Usage(format!("{option} is for {of}")).into()),
            None => Ok(()),
        }
    }
}

impl std::fmt::Display for Usage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for Usage {}

pub(crate) fn usage(error: perfx_pipeline::Error) -> anyhow::Error {
    Usage(error.to_string()).into()
}

pub(crate) fn record_kind(text: &str) -> Result<RecordType> {
    RecordType::parse(text).ok_or_else(|| {
        let names = RecordType::NAMED.iter().filter_map(|kind| kind.name());
        let bare = text.to_ascii_uppercase().replace("PERF_RECORD_", "");
        Usage(format!("unknown kind of record `{text}`{}", did_you_mean(&bare, names))).into()
    })
}

//! `perfx doctor` reports the faults of recordings, their places, and the affected versions of perf.

mod code;

use std::borrow::Cow;
use std::io::Write as _;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use clap::builder::PossibleValuesParser;
use perfx_doctor::{
    CODES, Code, Diagnosis, Finding, FindingKind, Location, Obstacle, Reaction, Verdict, examine, obstacles,
    unopened,
};
use perfx_export::{ChainQuality, Unnamed, data_quality};
use perfx_format::Origin;
use perfx_format::readers::{READERS, Reader};
use perfx_look::json::{Document, Offset};
use perfx_look::render::printable;
use perfx_passes::{ConvertCallchain, IdOptions, SymbolArgs};
use perfx_pipeline::counted;
use schemars::{JsonSchema, Schema, SchemaGenerator, json_schema};
use serde::{Serialize, Serializer};

use self::code::{MissingCode, missing};
use crate::args::{FormatArgs, ThreadArgs};
use crate::io::source::{InputsArgs, Source};
use crate::io::streams::stderr;
use crate::term::progress::Bar;
use crate::term::report::message;
use crate::term::units::{count, percent};

/// Check the structure of recordings
///
/// For each fault, prints its code (codes never change), its places, a description, how perf 6.1 and
/// 7.3 react unless both read it anyway, and the command that repairs it. If only older perfs can't
/// read something, that is a note and not a fault; -v also prints notes.
///
/// For traces of Intel PT or CoreSight, it also lists code that the trace needs but that is not found here,
/// with the share of the trace that needs it and the options that find it. It also reports broken call chains,
/// if many are, and files with samples whose functions have no names here. None of these is a fault of the
/// recording.
///
/// Exit codes: 0 sound, 3 suspect, 1 unreadable: perfx can't copy every record of the recording.
///
/// Examples:
///   perfx doctor perf.data
///   perfx doctor --format ndjson *.data
///   perf record -o - ./program | perfx doctor -
///   perfx doctor --list
///   perfx doctor --for perf-5.10 perf.data
///   perfx doctor --root sysroot traced.data
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Doctor {
    #[command(flatten)]
    inputs: InputsArgs,
    /// List the codes with their meanings
    #[arg(long, conflicts_with_all = ["positional", "input", "places", "quiet", "verbose"])]
    list: bool,
    /// Instead of faults, list the contents that this program refuses or misreads: perf-6.12, perf-6.1,
    /// perf-5.10, hotspot or quipper
    #[arg(long = "for", value_name = "READER", hide_possible_values = true, conflicts_with_all = ["list", "places", "verbose"],
        value_parser = PossibleValuesParser::new(READERS.each_ref().map(|reader| reader.name)))]
    reader: Option<String>,
    /// Print the first N places of each fault
    #[arg(long, value_name = "N", default_value_t = 3)]
    places: u16,
    /// Print nothing about sound recordings
    #[arg(short, long)]
    quiet: bool,
    /// Also print notes: things that only some perfs can't read
    #[arg(short, long)]
    verbose: bool,
    #[command(flatten)]
    search: SymbolArgs,
    #[command(flatten)]
    format: FormatArgs,
    #[command(flatten)]
    threads: ThreadArgs,
}

pub(crate) type Output = Document<2, Printed>;

/// # The output of perfx doctor --format json, or a line of --format ndjson
///
/// Offsets are strings, because they may need 64 bits.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "what", rename_all = "kebab-case")]
#[schemars(deny_unknown_fields)]
pub(crate) enum Printed {
    Doctor { files: Vec<FileEntry> },
    DoctorFile(FileEntry),
    DoctorCodes { codes: Vec<CodeEntry> },
    DoctorCode(CodeEntry),
    DoctorFor { files: Vec<ReaderEntry> },
    DoctorForFile(ReaderEntry),
}

/// The contents of a recording that a program refuses or misreads.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct ReaderEntry {
    /// The name that the user gave
    file: String,
    /// The program
    reader: &'static str,
    obstacles: Vec<ObstacleEntry>,
}

/// Contents that the program refuses or misreads.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct ObstacleEntry {
    what: String,
    /// The number of records or events that have it
    count: u64,
}

/// A recording.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct FileEntry {
    /// The name that the user gave
    file: String,
    #[schemars(extend("enum" = ["sound", "suspect", "unreadable"]))]
    verdict: &'static str,
    /// Records examined
    records: u64,
    findings: Vec<FindingEntry>,
    /// Code that its hardware traces need and that is not found here
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    missing_code: Vec<MissingCode>,
    /// Its call chains; of a large recording, a part of them
    #[serde(skip_serializing_if = "Option::is_none")]
    call_chains: Option<ChainQuality>,
    /// Files with at least 1 % of its samples that have no names here, or only some; of a large recording, a
    /// part of the samples is counted
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schemars(default)]
    unnamed: Vec<Unnamed>,
}

/// All places of one code.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct FindingEntry {
    #[serde(flatten)]
    code: CodeEntry,
    /// How often it was found
    count: u64,
    /// The first of them
    places: Vec<PlaceEntry>,
}

/// A kind of fault.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct CodeEntry {
    #[schemars(regex(pattern = "^[a-z0-9-]+$"))]
    code: &'static str,
    #[schemars(extend("enum" = ["note", "fault"]))]
    severity: &'static str,
    about: &'static str,
    #[serde(rename = "perf_6.1")]
    perf_61: Reacts,
    #[serde(rename = "perf_7.3")]
    perf_73: Reacts,
    /// The perfx command that repairs it
    repair: Option<&'static str>,
}

struct Reacts(Reaction);

impl Serialize for Reacts {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(&self.0)
    }
}

impl JsonSchema for Reacts {
    fn schema_name() -> Cow<'static, str> {
        "Reaction".into()
    }

    fn json_schema(_: &mut SchemaGenerator) -> Schema {
        use Reaction::{Aborts, Crashes, Reads, Refuses, Skips, Varies};
        let all = [Reads, Skips, Aborts, Refuses, Crashes, Varies];
        json_schema!({ "enum": all.map(|reaction| reaction.to_string()) })
    }
}

/// A place where something does not follow the format.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct PlaceEntry {
    /// The file of a directory
    file: Option<String>,
    /// Bytes from the start of the file; after +, bytes in the contents of the compressed record there
    offset: Option<Offset>,
    /// The kind of the record
    kind: Option<String>,
    what: String,
}

impl Doctor {
    pub(crate) fn run(&self) -> Result<u8> {
        if self.list {
            return self.list();
        }
        if let Some(reader) = self.reader.as_deref().and_then(Reader::named) {
            return self.examine_for(reader);
        }
        let (mut worst, mut files) = (Verdict::Sound, self.format.printer());
        let ids = self.search.clone().options()?;
        let failed = self.each(
            |source| self.examine(source, &ids),
            |(diagnosis, Data { missing_code, call_chains, unnamed })| {
                worst = worst.max(diagnosis.verdict);
                if self.quiet && diagnosis.verdict == Verdict::Sound {
                    return Ok(());
                }
                let entry = FileEntry { missing_code, call_chains, unnamed, ..FileEntry::of(&diagnosis) };
                let text = |entry: &FileEntry| text(&diagnosis, self.verbose) + &entry.data_text();
                files.print(entry, text, |entry| Output::new(Printed::DoctorFile(entry)))
            },
        )?;
        files.end(|files| Output::new(Printed::Doctor { files }))?;
        Ok(match worst {
            _ if failed => 1,
            Verdict::Sound => 0,
            Verdict::Suspect => 3,
            Verdict::Unreadable => 1,
        })
    }

    fn list(&self) -> Result<u8> {
        let mut codes = self.format.printer();
        for code in CODES {
            let text = |_: &CodeEntry| {
                let first = format!("{} ({}): {}\n", code.code, severity(code.kind), code.about);
                first + &consequences(code)
            };
            codes.print(CodeEntry::of(code), text, |code| Output::new(Printed::DoctorCode(code)))?;
        }
        codes.end(|codes| Output::new(Printed::DoctorCodes { codes }))?;
        Ok(0)
    }

    /// Passes what each input contains to `say`. Reports unreadable inputs; returns true if there was one.
    fn each<T>(
        &self,
        read: impl Fn(&Source) -> Result<T>,
        mut say: impl FnMut(T) -> Result<()>,
    ) -> Result<bool> {
        let mut failed = false;
        for source in self.inputs.sources()? {
            match read(&source) {
                Ok(found) => say(found)?,
                Err(error) => {
                    writeln!(stderr(), "perfx: {}", printable(&message(&error)))?;
                    failed = true;
                }
            }
        }
        Ok(failed)
    }

    fn examine_for(&self, reader: &'static Reader) -> Result<u8> {
        let (mut refuses, mut files) = (false, self.format.printer());
        let read = |source: &Source| {
            let mut recording = source.open_rereadable()?;
            let threads = self.threads.count(&recording);
            let obstacles = obstacles(&mut recording, reader, threads)?;
            Ok((recording.name, obstacles))
        };
        let failed = self.each(read, |(name, obstacles)| {
            refuses |= !obstacles.is_empty();
            if self.quiet && obstacles.is_empty() {
                return Ok(());
            }
            let entry = ReaderEntry::of(&name, reader, obstacles);
            files.print(entry, ReaderEntry::text, |entry| Output::new(Printed::DoctorForFile(entry)))
        })?;
        files.end(|files| Output::new(Printed::DoctorFor { files }))?;
        Ok(match (failed, refuses) {
            (true, _) => 1,
            (_, true) => 3,
            _ => 0,
        })
    }

    fn examine(&self, source: &Source, ids: &IdOptions) -> Result<(Diagnosis, Data)> {
        match source.open() {
            Ok(recording) => {
                let threads = self.threads.count(&recording);
                let _bar = if self.quiet { Bar::none() } else { Bar::of(&recording) };
                let diagnosis = examine(recording, threads, self.places.into())?;
                let data = match source {
                    Source::Path(_) => Data::of(source, &diagnosis, ids, threads)?,
                    // Standard input cannot be read again.
                    _ => Data::default(),
                };
                Ok((diagnosis, data))
            }
            Err(error) => {
                let name: Arc<str> = source.to_string().into();
                Ok((unopened(&name, error.downcast()?)?, Data::default()))
            }
        }
    }
}

/// Broken call chains, and missing code and names, which are no faults.
#[derive(Default)]
struct Data {
    missing_code: Vec<MissingCode>,
    call_chains: Option<ChainQuality>,
    unnamed: Vec<Unnamed>,
}

/// The bytes of samples that are examined: shares need no more.
const SAMPLES_MAX: u64 = 8 << 20;

impl Data {
    /// Errors of this examination do not fail the diagnosis.
    fn of(source: &Source, diagnosis: &Diagnosis, ids: &IdOptions, threads: usize) -> Result<Data> {
        let mut data = Data::default();
        if diagnosis.has_traces {
            let missing = missing(source, ids, threads);
            data.missing_code =
                reported(source, missing, "the code that its traces need is not searched for")?;
        }
        if diagnosis.whole {
            let samples = samples(source, diagnosis.has_chains, ids, threads);
            (data.call_chains, data.unnamed) = reported(source, samples, "its samples are not examined")?;
        }
        Ok(data)
    }
}

/// The quality of a recording's call chains, and DSOs without names. The chains of recorded stacks are known only
/// when these are unwound.
fn samples(
    source: &Source,
    has_chains: bool,
    ids: &IdOptions,
    threads: usize,
) -> Result<(Option<ChainQuality>, Vec<Unnamed>)> {
    let mut recording = source.open()?;
    let (chains, unnamed) = data_quality(&mut recording, ids, SAMPLES_MAX, threads)?;
    let has_chains = has_chains && !ConvertCallchain::concerns(&recording);
    Ok((has_chains.then_some(chains), unnamed))
}

fn reported<T: Default>(source: &Source, result: Result<T>, what: &str) -> Result<T> {
    result.or_else(|error| {
        let what = format!("{source}: {what}: {}", message(&error));
        writeln!(stderr(), "perfx: {}", printable(&what))?;
        Ok(T::default())
    })
}

fn verdict(verdict: Verdict) -> &'static str {
    match verdict {
        Verdict::Sound => "sound",
        Verdict::Suspect => "suspect",
        Verdict::Unreadable => "unreadable",
    }
}

fn severity(severity: FindingKind) -> &'static str {
    match severity {
        FindingKind::Note => "note",
        FindingKind::Fault => "fault",
    }
}

fn stream<'d>(diagnosis: &'d Diagnosis, location: &Location) -> Option<&'d str> {
    let (stream, _) = location.origin.and_then(Origin::stored_at)?;
    let names = &diagnosis.streams;
    names.get(stream as usize).filter(|_| names.len() > 1).map(|name| &**name)
}

fn text(diagnosis: &Diagnosis, notes: bool) -> String {
    let unfinished = diagnosis.verdict == Verdict::Unreadable && diagnosis.whole;
    let state = if unfinished { "unfinished" } else { verdict(diagnosis.verdict) };
    let mut text = format!("{}: {state}", printable(&diagnosis.name));
    let is = |severity| diagnosis.findings.iter().filter(move |finding| finding.code.kind == severity);
    let sum = |severity| is(severity).map(|finding| finding.count).sum::<u64>();
    for (severity, one, many) in
        [(FindingKind::Fault, "fault", "faults"), (FindingKind::Note, "note", "notes")]
    {
        if sum(severity) > 0 && (notes || severity == FindingKind::Fault) {
            text += &format!(", {}", counted(sum(severity), one, many));
        }
    }
    let records = count(diagnosis.records);
    text += &if unfinished {
        format!("; perfx recover restores all {records} records\n")
    } else {
        format!(" in {records} records\n")
    };
    for finding in &diagnosis.findings {
        if notes || finding.code.kind == FindingKind::Fault {
            text += &finding_text(diagnosis, finding);
        }
    }
    text.lines().map(|line| printable(line) + "\n").collect()
}

fn missing_text(code: &[MissingCode]) -> String {
    let title = "missing code, with the share of the trace that needs it and the option that finds it";
    titled(title, code.iter().map(MissingCode::text))
}

fn unnamed_text(dsos: &[Unnamed]) -> String {
    let line = |Unnamed { name, samples, of_samples, why, help }: &Unnamed| {
        let help = help.as_ref().map_or_else(String::new, |help| format!(": {help}"));
        format!("    {}  {} ({why}){help}", percent(*samples, *of_samples), name.0.escape_ascii())
    };
    titled("missing names, with the share of the samples and what finds them", dsos.iter().map(line))
}

/// Lines below a title; nothing without lines.
fn titled(title: &str, lines: impl Iterator<Item = String>) -> String {
    let text: String = lines.map(|line| printable(&line) + "\n").collect();
    if text.is_empty() { text } else { format!("  {title}\n{text}") }
}

/// perf's reactions, if worth mentioning, and the repair command, in one line; may be empty.
fn consequences(code: &Code) -> String {
    let mut notes = Vec::new();
    if (code.perf_61, code.perf_73) != (Reaction::Reads, Reaction::Reads) {
        notes.push(format!("perf 6.1 {}, perf 7.3 {}", code.perf_61, code.perf_73));
    }
    notes.extend(code.repair.map(|repair| format!("perfx {repair} repairs it")));
    if notes.is_empty() { String::new() } else { format!("    {}\n", notes.join("; ")) }
}

fn finding_text(diagnosis: &Diagnosis, finding: &Finding) -> String {
    let code = finding.code;
    let times = if finding.count > 1 { format!(" ({} times)", count(finding.count)) } else { String::new() };
    let mut text = format!("  {} {}{times}: {}\n", severity(code.kind), code.code, code.about);
    text += &consequences(code);
    for location in &finding.locations {
        let mut place = Vec::new();
        place.extend(stream(diagnosis, location).map(str::to_owned));
        place.extend(location.origin.map(|origin| Offset(origin).to_string()));
        place.extend(location.kind.map(|kind| kind.to_string()));
        let place = place.join(" ");
        let colon = if place.is_empty() { "" } else { ": " };
        text += &format!("    {place}{colon}{}\n", location.what);
    }
    text
}

impl ReaderEntry {
    fn of(file: &str, reader: &Reader, obstacles: Vec<Obstacle>) -> ReaderEntry {
        let obstacles = obstacles.into_iter();
        let obstacles = obstacles.map(|Obstacle { what, count }| ObstacleEntry { what, count });
        ReaderEntry { file: file.to_owned(), reader: reader.name, obstacles: obstacles.collect() }
    }

    fn text(&self) -> String {
        let ReaderEntry { file, reader, obstacles } = self;
        let file = printable(file);
        if obstacles.is_empty() {
            return format!("{file}: {reader} reads it\n");
        }
        let mut text = format!("{file}: {reader} refuses or misreads\n");
        for ObstacleEntry { what, count: number } in obstacles {
            text += &format!("  {}: {}\n", printable(what), count(*number));
        }
        text + &format!("    perfx normalize --for {reader} removes this\n")
    }
}

impl FileEntry {
    fn data_text(&self) -> String {
        let chains = self.call_chains.iter().flat_map(ChainQuality::sentences);
        let chains: String = chains.map(|sentence| format!("  broken chains: {sentence}\n")).collect();
        chains + &missing_text(&self.missing_code) + &unnamed_text(&self.unnamed)
    }

    pub(crate) fn of(diagnosis: &Diagnosis) -> FileEntry {
        FileEntry {
            file: diagnosis.name.to_string(),
            verdict: verdict(diagnosis.verdict),
            records: diagnosis.records,
            findings: diagnosis.findings.iter().map(|finding| FindingEntry::of(diagnosis, finding)).collect(),
            missing_code: Vec::new(),
            call_chains: None,
            unnamed: Vec::new(),
        }
    }
}

impl FindingEntry {
    fn of(diagnosis: &Diagnosis, finding: &Finding) -> FindingEntry {
        let place = |location: &Location| PlaceEntry {
            file: stream(diagnosis, location).map(str::to_owned),
            offset: location.origin.map(Offset),
            kind: location.kind.map(|kind| kind.to_string()),
            what: location.what.clone(),
        };
        FindingEntry {
            code: CodeEntry::of(finding.code),
            count: finding.count,
            places: finding.locations.iter().map(place).collect(),
        }
    }
}

impl CodeEntry {
    fn of(code: &Code) -> CodeEntry {
        CodeEntry {
            code: code.code,
            severity: severity(code.kind),
            about: code.about,
            perf_61: Reacts(code.perf_61),
            perf_73: Reacts(code.perf_73),
            repair: code.repair,
        }
    }
}

//! `perfx doctor` reports what is wrong with recordings, where, and which perf is affected.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::sync::Arc;

use anyhow::Result;
use clap::Args;
use perfx_doctor::{
    CODES, Code, Diagnosis, Finding, FindingKind, Location, Reaction, Verdict, examine, unopened,
};
use perfx_format::Origin;
use perfx_pipeline::counted;
use serde_json::{Map, Value as Json, json};

use crate::args::{Format, FormatArgs, ThreadArgs};
use crate::io::source::{InputsArgs, Source};
use crate::io::target::stdout;
use crate::term::progress::Bar;
use crate::term::report::{message, printable};
use crate::term::units::count;

/// Check the structure of recordings
///
/// For each fault, prints its code (codes never change), its places, a description, how perf 6.1 and
/// 7.3 react unless both read it anyway, and the command that repairs it. If only older perfs can't
/// read something, that is a note and not a fault; -v also prints notes.
///
/// Exit codes: 0 sound, 3 suspect, 1 unreadable: perfx can't copy every record of the recording.
///
/// Examples:
///   perfx doctor perf.data
///   perfx doctor --format ndjson *.data
///   perf record -o - ./program | perfx doctor -
///   perfx doctor --list
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Doctor {
    #[command(flatten)]
    inputs: InputsArgs,
    /// List the codes and what they mean
    #[arg(long, conflicts_with_all = ["positional", "input", "places", "quiet", "verbose"])]
    list: bool,
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
    format: FormatArgs,
    #[command(flatten)]
    threads: ThreadArgs,
}

/// Version of the JSON forms.
const SCHEMA: u32 = 1;

impl Doctor {
    pub(crate) fn run(&self) -> Result<u8> {
        let format = self.format.format();
        if self.list {
            stdout().write_all(list(format).as_bytes())?;
            return Ok(0);
        }
        let mut worst = Verdict::Sound;
        let mut failed = false;
        let mut all = Vec::new();
        for source in self.inputs.sources()? {
            let diagnosis = match self.examine(&source) {
                Ok(diagnosis) => diagnosis,
                // A missing recording does not stop the check of the others.
                Err(error) => {
                    writeln!(io::stderr(), "perfx: {}", printable(&message(&error)))?;
                    failed = true;
                    continue;
                }
            };
            worst = worst.max(diagnosis.verdict);
            if self.quiet && diagnosis.verdict == Verdict::Sound {
                continue;
            }
            match format {
                Format::Text => stdout().write_all(text(&diagnosis, self.verbose).as_bytes())?,
                Format::Json => all.push(file(&diagnosis)),
                Format::Ndjson => {
                    let mut line = head("doctor-file");
                    line.extend(file(&diagnosis));
                    writeln!(stdout(), "{}", Json::Object(line))?;
                }
            }
        }
        if format == Format::Json {
            let mut document = head("doctor");
            document.insert("files".into(), all.into_iter().map(Json::Object).collect());
            writeln!(stdout(), "{:#}", Json::Object(document))?;
        }
        Ok(match worst {
            _ if failed => 1,
            Verdict::Sound => 0,
            Verdict::Suspect => 3,
            Verdict::Unreadable => 1,
        })
    }

    fn examine(&self, source: &Source) -> Result<Diagnosis> {
        match source.open() {
            Ok(recording) => {
                let _bar = if self.quiet { Bar::none() } else { Bar::of(&recording) };
                Ok(examine(recording, self.threads.count(), self.places.into())?)
            }
            Err(error) => {
                let name: Arc<str> = source.to_string().into();
                Ok(unopened(&name, error.downcast()?)?)
            }
        }
    }
}

fn head(what: &str) -> Map<String, Json> {
    let mut head = Map::new();
    head.insert("schema".into(), json!(SCHEMA));
    head.insert("what".into(), what.into());
    head
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

/// The offset of a place: `0x410`, or `0x410+0x20` inside a compressed record's contents.
fn offset(location: &Location) -> Option<String> {
    let text = location.origin?.to_string();
    Some(text.strip_prefix("offset ").unwrap_or(&text).to_owned())
}

/// The file of a directory that contains the place.
fn stream<'d>(diagnosis: &'d Diagnosis, location: &Location) -> Option<&'d str> {
    let (stream, _) = location.origin.and_then(Origin::stored_at)?;
    let names = &diagnosis.streams;
    names.get(stream as usize).filter(|_| names.len() > 1).map(|name| &**name)
}

fn text(diagnosis: &Diagnosis, notes: bool) -> String {
    let unfinished = diagnosis.verdict == Verdict::Unreadable && diagnosis.whole;
    let said = if unfinished { "unfinished" } else { verdict(diagnosis.verdict) };
    let mut text = format!("{}: {said}", printable(&diagnosis.name));
    let is = |severity| diagnosis.findings.iter().filter(move |finding| finding.code.kind == severity);
    let sum = |severity| is(severity).map(|finding| finding.count).sum::<u64>();
    for (severity, one, many) in
        [(FindingKind::Fault, "fault", "faults"), (FindingKind::Note, "note", "notes")]
    {
        if sum(severity) > 0 && (notes || severity == FindingKind::Fault) {
            let _ = write!(text, ", {}", counted(sum(severity), one, many));
        }
    }
    let records = count(diagnosis.records);
    let _ = if unfinished {
        writeln!(text, "; perfx recover restores all {records} records")
    } else {
        writeln!(text, " in {records} records")
    };
    for finding in &diagnosis.findings {
        if notes || finding.code.kind == FindingKind::Fault {
            text += &finding_text(diagnosis, finding);
        }
    }
    text.lines().map(|line| printable(line) + "\n").collect()
}

/// How perf reacts, if that is worth mentioning, and the command that repairs it: one line, or nothing.
fn consequences(code: &Code) -> String {
    let mut said = Vec::new();
    if (code.perf_61, code.perf_73) != (Reaction::Reads, Reaction::Reads) {
        said.push(format!("perf 6.1 {}, perf 7.3 {}", code.perf_61, code.perf_73));
    }
    said.extend(code.mend.map(|mend| format!("perfx {mend} fixes it")));
    if said.is_empty() { String::new() } else { format!("    {}\n", said.join("; ")) }
}

fn finding_text(diagnosis: &Diagnosis, finding: &Finding) -> String {
    let code = finding.code;
    let times = if finding.count > 1 { format!(" ({} times)", count(finding.count)) } else { String::new() };
    let mut text = format!("  {} {}{times}: {}\n", severity(code.kind), code.code, code.about);
    text += &consequences(code);
    for location in &finding.locations {
        let mut place = Vec::new();
        place.extend(stream(diagnosis, location).map(str::to_owned));
        place.extend(offset(location));
        place.extend(location.kind.map(|kind| kind.to_string()));
        let place = place.join(" ");
        let colon = if place.is_empty() { "" } else { ": " };
        let _ = writeln!(text, "    {place}{colon}{}", location.what);
    }
    text
}

fn file(diagnosis: &Diagnosis) -> Map<String, Json> {
    let findings: Vec<_> =
        diagnosis.findings.iter().map(|finding| finding_json(diagnosis, finding)).collect();
    let mut file = Map::new();
    file.insert("file".into(), diagnosis.name.as_ref().into());
    file.insert("verdict".into(), verdict(diagnosis.verdict).into());
    file.insert("records".into(), diagnosis.records.to_string().into());
    file.insert("findings".into(), findings.into());
    file
}

fn finding_json(diagnosis: &Diagnosis, finding: &Finding) -> Json {
    let locations: Vec<_> = finding
        .locations
        .iter()
        .map(|location| {
            json!({
                "file": stream(diagnosis, location),
                "offset": offset(location),
                "kind": location.kind.map(|kind| kind.to_string()),
                "what": location.what,
            })
        })
        .collect();
    let mut json = code_json(finding.code);
    json.insert("count".into(), finding.count.to_string().into());
    json.insert("places".into(), locations.into());
    Json::Object(json)
}

fn code_json(code: &Code) -> Map<String, Json> {
    let mut json = Map::new();
    json.insert("code".into(), code.code.into());
    json.insert("severity".into(), severity(code.kind).into());
    json.insert("about".into(), code.about.into());
    json.insert("perf_6.1".into(), code.perf_61.to_string().into());
    json.insert("perf_7.3".into(), code.perf_73.to_string().into());
    json.insert("mend".into(), code.mend.into());
    json
}

fn list(format: Format) -> String {
    let mut text = String::new();
    match format {
        Format::Text => {
            for code in CODES {
                let _ = writeln!(text, "{} ({}): {}", code.code, severity(code.kind), code.about);
                text += &consequences(code);
            }
        }
        Format::Json => {
            let mut document = head("doctor-codes");
            document.insert("codes".into(), CODES.iter().map(code_json).map(Json::Object).collect());
            let _ = writeln!(text, "{:#}", Json::Object(document));
        }
        Format::Ndjson => {
            for code in CODES {
                let mut line = head("doctor-code");
                line.extend(code_json(code));
                let _ = writeln!(text, "{}", Json::Object(line));
            }
        }
    }
    text
}

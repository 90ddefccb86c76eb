//! `perfx info` shows the header of a recording and reads nothing else, so it is fast at any size.

mod json;
mod text;

use std::collections::HashMap;
use std::io::Write as _;
use std::time::{Duration, UNIX_EPOCH};

use anyhow::Result;
use clap::Args;
use perfx_format::decode::clock_name;
use perfx_format::event_name::{EventName, event_names};
use perfx_format::features::{ClockData, FeatureContext, NrCpus, SampleTime, decode_feature};
use perfx_format::header::Severity;
use perfx_format::read::{Form, Recording};
use perfx_format::record::event_update::name_update;
use perfx_format::record::header_records::HeaderRecord;
use perfx_format::{Decoded, Feature, RecordType};
use perfx_pipeline::{Level, Report};

use crate::args::{Format, FormatArgs};
use crate::io::source::{InputArgs, Source};
use crate::io::target::stdout;
use crate::term::report::VerbosityArgs;

/// Show what a recording is: form, machine, command, times, events, features
///
/// Reads only the header, so it is quick on recordings of any size; in pipe data, it reads up to the
/// first sample. For figures that need all records, such as their number, use `perfx stats`.
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
        let facts = InfoFacts::new(&recording, &updates);
        facts.tell_faults(&mut report);
        let shown = match self.format.format() {
            Format::Text => text::page(&facts),
            Format::Json => format!("{:#}\n", json::document(&facts)),
            Format::Ndjson => json::lines(&facts).iter().map(|line| format!("{line}\n")).collect(),
        };
        let mut out = stdout();
        out.write_all(shown.as_bytes())?;
        out.flush()?;
        Ok(self.verbosity.print(&report))
    }
}

/// Reads pipe data up to the first sample if its front leaves events without names: some writers send
/// EVENT_UPDATE records, or features after other records, before the first sample. Returns the names by an id
/// of their event.
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
                match HeaderRecord::read(&record)? {
                    Some(HeaderRecord::Event(event)) => recording.events.push(event),
                    Some(HeaderRecord::Feature(feature, section)) => {
                        recording.features.insert(feature, section);
                    }
                    Some(HeaderRecord::EventType(entry)) => recording.event_types.extend(entry),
                    _ => {}
                }
            }
            Ok(batch.torn.is_none())
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

/// The facts to show, in any format.
struct InfoFacts<'r> {
    recording: &'r Recording,
    /// For each event, in order.
    names: Vec<EventName>,
    features: Vec<Section<'r>>,
    clock: Clock,
    /// `None` without feature SAMPLE_TIME.
    times: Option<SampleTime>,
}

/// A feature section.
struct Section<'r> {
    feature: Feature,
    size: u64,
    decoded: Decoded<'r>,
}

/// The clock of the records' times.
struct Clock {
    /// As for clock_gettime(2); `None` is perf's own clock, which starts near boot.
    id: Option<u32>,
    /// The clock and the wall clock at the same moment.
    reference: Option<ClockData>,
}

impl Clock {
    fn of(recording: &Recording) -> Clock {
        let asked = recording.events.iter().map(|event| event.attr()).find(|attr| attr.use_clockid());
        let section = recording.features.get(&Feature::CLOCK_DATA);
        let reference = section.and_then(|section| ClockData::read(section, recording.endian));
        let id = asked.map(|attr| attr.clockid);
        // A reference of another clock does not apply to these times; nor do the zeros of perf stat record.
        let reference = reference.filter(|reference| id.is_none_or(|id| id == reference.clockid));
        let reference = reference.filter(|reference| reference.wall_ns > 0);
        Clock { id: id.or(reference.map(|reference| reference.clockid)), reference }
    }

    /// A time of the recording, in RFC 3339, UTC.
    fn wall(&self, ns: u64) -> Option<String> {
        let ns = match self.reference {
            Some(ClockData { wall_ns, clock_ns, .. }) => {
                i128::from(wall_ns) + i128::from(ns) - i128::from(clock_ns)
            }
            None if self.id.and_then(clock_name) == Some("REALTIME") => ns.into(),
            None => return None,
        };
        Some(rfc3339(u64::try_from(ns).ok()?))
    }
}

/// ns since 1970 in RFC 3339, UTC. The largest u64 is in the year 2554, which the library supports.
fn rfc3339(ns: u64) -> String {
    humantime::format_rfc3339_nanos(UNIX_EPOCH + Duration::from_nanos(ns)).to_string()
}

impl<'r> InfoFacts<'r> {
    fn new(recording: &'r Recording, updates: &HashMap<u64, Vec<u8>>) -> InfoFacts<'r> {
        let endian = recording.endian;
        let section = |feature| recording.features.get(&feature);
        let context = FeatureContext {
            cpus: section(Feature::NRCPUS).and_then(|section| NrCpus::read(section, endian)),
        };
        let features = recording.features.iter().map(|(&feature, section)| Section {
            feature,
            size: section.len() as u64,
            decoded: decode_feature(feature, section, endian, context),
        });
        InfoFacts {
            recording,
            names: event_names(recording, updates),
            features: features.collect(),
            clock: Clock::of(recording),
            // Writers that start from the largest number and see no sample leave that number.
            times: section(Feature::SAMPLE_TIME)
                .and_then(|section| SampleTime::read(section, endian))
                .filter(|times| ![times.first_ns, times.last_ns].contains(&u64::MAX)),
        }
    }

    fn feature(&self, feature: Feature) -> Option<&Decoded<'r>> {
        self.features.iter().find(|section| section.feature == feature).map(|section| &section.decoded)
    }

    /// The number of items in a feature's list; 0 without the feature.
    fn items(&self, feature: Feature, list: &str) -> usize {
        self.feature(feature).and_then(|decoded| decoded.get(list)).map_or(0, |list| list.items().len())
    }

    /// The kernel's name for a PMU with a number of its own.
    fn pmu(&self, number: u32) -> Option<&'r [u8]> {
        let pmus = self.feature(Feature::PMU_MAPPINGS)?.get("pmus")?.items();
        let pmu = pmus.iter().find(|pmu| pmu.get("type").and_then(|n| n.number()) == Some(number.into()))?;
        pmu.get("name")?.text()
    }

    fn tell_faults(&self, report: &mut Report) {
        for fault in &self.recording.faults {
            let level = if fault.severity == Severity::Loss { Level::Loss } else { Level::Warning };
            report.say(level, fault.to_error().file(&self.recording.name).to_string());
        }
        for section in &self.features {
            for odd in &section.decoded.odd {
                let Section { feature, .. } = section;
                let name = &self.recording.name;
                report.say(Level::Warning, format!("{name}: feature {feature}: {}: {}", odd.code, odd.what));
            }
        }
    }
}

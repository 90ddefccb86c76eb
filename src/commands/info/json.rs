//! The facts of `perfx info` as JSON, with exact numbers.

use perfx_format::decode::{clock_name, decode_attr};
use perfx_format::event_name::{EventName, NameSource};
use perfx_format::features::{ClockData, GroupDesc, SampleTime, read_group_desc};
use perfx_format::header::{self, Severity};
use perfx_format::section::Section;
use perfx_format::{Feature, Issue};
use perfx_look::clock::rfc3339;
use perfx_look::json::{ByteOrder, Decimal, Document, Fields, FormName, Hex, Text};
use schemars::JsonSchema;
use serde::Serialize;

use super::facts::{self, InfoFacts};

pub(crate) type Output<'f> = Document<2, Printed<'f>>;

/// # perfx info --format json, and each line of --format ndjson
///
/// Counts and sizes are numbers; ids and times are strings; offsets and masks are strings in hexadecimal; text that is not UTF-8 is {"bytes": HEX}.
#[derive(Serialize, JsonSchema)]
#[serde(tag = "what")]
#[schemars(deny_unknown_fields)]
#[expect(clippy::large_enum_variant, reason = "one at a time exists, and only until it is printed")]
pub(crate) enum Printed<'f> {
    #[serde(rename = "info")]
    Info {
        header: Header<'f>,
        counts: Count,
        clock: Clock,
        time: Option<Time>,
        events: Vec<Event<'f>>,
        groups: Vec<Group<'f>>,
        features: Vec<FeatureEntry<'f>>,
        faults: Vec<Fault<'f>>,
    },
    #[serde(rename = "info.header")]
    Header(Header<'f>),
    #[serde(rename = "info.count")]
    Count(Count),
    #[serde(rename = "info.clock")]
    Clock(Clock),
    #[serde(rename = "info.time")]
    Time(Time),
    #[serde(rename = "info.event")]
    Event(Event<'f>),
    #[serde(rename = "info.group")]
    Group(Group<'f>),
    #[serde(rename = "info.feature")]
    Feature(FeatureEntry<'f>),
    #[serde(rename = "info.fault")]
    Fault(Fault<'f>),
}

/// The form of the recording.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Header<'f> {
    /// The name that the user gave
    name: &'f str,
    #[serde(flatten)]
    form: FormName,
    byte_order: ByteOrder,
    #[serde(flatten)]
    file: Option<FileHeader>,
}

/// The header of a file.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct FileHeader {
    /// 1: PERFFILE, 2: PERFILE2; not for pipes
    #[schemars(extend("enum" = [1, 2]))]
    version: u8,
    /// Size of the file header
    header_bytes: u64,
    attrs: Place,
    data: Place,
    feature_table: TablePlace,
}

/// A section of the file.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Place {
    offset: Hex,
    bytes: u64,
}

/// The table of the features' sections.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct TablePlace {
    offset: Hex,
}

/// The numbers of records, samples and other contents.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Count {
    events: usize,
    ids: u64,
    features: usize,
    /// Entries of feature BUILD_ID
    build_ids: usize,
    /// Entries of feature AUXTRACE
    auxtrace_index: usize,
    /// Tracer of the AUX data, from AUXTRACE_INFO; empty if there is none, and for pipe data
    aux_tracers: Vec<&'static str>,
    /// Settings of Intel PT or CoreSight, in words
    aux_traced: Vec<String>,
    /// Files with records
    #[schemars(range(min = 1))]
    streams: usize,
    /// Bytes of records; null if unknown until the end
    data_bytes: Option<u64>,
}

/// The clock of the records' times.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Clock {
    /// As for clock_gettime(2); null is perf's own clock
    clockid: Option<u32>,
    name: Option<&'static str>,
    resolution_ns: Option<Decimal<u64>>,
    /// The clock and the wall clock at the same moment
    reference: Option<Reference>,
}

/// The clock and the wall clock at the same moment.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Reference {
    wall_ns: Decimal<u64>,
    clock_ns: Decimal<u64>,
    wall: Wall,
}

/// RFC 3339 in UTC, to the ns
#[derive(Serialize, JsonSchema)]
struct Wall(
    #[schemars(regex(pattern = r"^[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{9}Z$"))]
    String,
);

/// Times of the first and the last sample, from feature SAMPLE_TIME; 0 in pipe data
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Time {
    first_ns: Decimal<u64>,
    last_ns: Decimal<u64>,
    /// null if the last is before the first
    duration_ns: Option<Decimal<u64>>,
    first_wall: Option<Wall>,
    last_wall: Option<Wall>,
}

/// An event.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Event<'f> {
    index: usize,
    name: Text<&'f [u8]>,
    #[schemars(extend("enum" = ["EVENT_UPDATE", "EVENT_DESC", "event types", "TRACING_DATA", "attr"]))]
    name_from: &'static str,
    /// Name of the attr's type in feature PMU_MAPPINGS
    pmu: Option<Text<&'f [u8]>>,
    /// struct perf_event_attr, the recorded fields
    #[schemars(with = "std::collections::BTreeMap<String, String>")]
    attr: Fields<'f>,
    ids: Vec<Decimal<u64>>,
}

/// A group of events.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Group<'f> {
    /// {anon_group} if the user named none
    name: Text<&'f [u8]>,
    /// Index of the event; the members follow it
    leader: u32,
    /// Including the leader
    members: u32,
}

/// A feature section.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct FeatureEntry<'f> {
    bit: u8,
    /// null for an unknown number
    name: Option<&'static str>,
    /// null in pipe data
    offset: Option<Hex>,
    bytes: u64,
    /// As in perfx dump
    fields: Fields<'f>,
    odd: Vec<Odd<'f>>,
}

/// A deviation from the format that did not stop decoding.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
struct Odd<'f> {
    code: &'static str,
    what: &'f str,
}

/// A fault of the header.
#[derive(Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub(crate) struct Fault<'f> {
    code: &'static str,
    offset: Hex,
    #[schemars(extend("enum" = ["odd", "loss", "fatal"]))]
    severity: &'static str,
    // `what` is already the type of an NDJSON line.
    message: &'f str,
    hint: Option<&'static str>,
}

pub(super) fn document<'f>(facts: &'f InfoFacts<'_>) -> Output<'f> {
    Output::new(Printed::Info {
        header: Header::of(facts),
        counts: Count::of(facts),
        clock: Clock::of(facts),
        time: facts.times.map(|times| Time::of(facts, times)),
        events: events(facts).collect(),
        groups: groups(facts).collect(),
        features: features(facts).collect(),
        faults: faults(facts).collect(),
    })
}

/// The same facts, one line for each part and each item of a list.
pub(super) fn lines<'f>(facts: &'f InfoFacts<'_>) -> impl Iterator<Item = Output<'f>> {
    let parts = [
        Printed::Header(Header::of(facts)),
        Printed::Count(Count::of(facts)),
        Printed::Clock(Clock::of(facts)),
    ];
    let time = facts.times.map(|times| Printed::Time(Time::of(facts, times)));
    let lists = events(facts).map(Printed::Event).chain(groups(facts).map(Printed::Group));
    let lists = lists.chain(features(facts).map(Printed::Feature)).chain(faults(facts).map(Printed::Fault));
    parts.into_iter().chain(time).chain(lists).map(Output::new)
}

impl<'f> Header<'f> {
    fn of(facts: &'f InfoFacts<'_>) -> Header<'f> {
        let recording = facts.recording;
        let place = |section: Section| Place { offset: Hex(section.offset), bytes: section.size };
        let file = recording.file.as_ref().map(|file| FileHeader {
            version: if file.magic.version1 { 1 } else { 2 },
            header_bytes: file.magic.size,
            attrs: place(file.attrs),
            data: place(file.data),
            feature_table: TablePlace { offset: Hex(file.data.end()) },
        });
        Header {
            name: &recording.name,
            form: FormName(recording.form),
            byte_order: recording.endian.into(),
            file,
        }
    }
}

impl Count {
    fn of(facts: &InfoFacts<'_>) -> Count {
        let recording = facts.recording;
        Count {
            events: recording.events.len(),
            ids: recording.events.iter().map(|event| event.ids.len() as u64).sum(),
            features: facts.features.len(),
            build_ids: facts.items(Feature::BUILD_ID, "dsos"),
            auxtrace_index: facts.items(Feature::AUXTRACE, "entries"),
            aux_tracers: facts.tracers.names.clone(),
            aux_traced: facts.tracers.traced.clone(),
            streams: recording.stream_count(),
            data_bytes: recording.data_size(),
        }
    }
}

impl Clock {
    fn of(facts: &InfoFacts<'_>) -> Clock {
        let clock = &facts.clock;
        let resolution = facts.feature(Feature::CLOCKID).and_then(|decoded| decoded.get("resolution_ns"));
        let reference = |reference: ClockData| Reference {
            wall_ns: Decimal(reference.wall_ns),
            clock_ns: Decimal(reference.clock_ns),
            wall: Wall(rfc3339(reference.wall_ns)),
        };
        Clock {
            clockid: clock.id,
            name: clock.id.map_or(Some("perf"), clock_name),
            resolution_ns: resolution.and_then(|resolution| resolution.number()).map(Decimal),
            reference: clock.reference.map(reference),
        }
    }
}

impl Time {
    fn of(facts: &InfoFacts<'_>, times: SampleTime) -> Time {
        Time {
            first_ns: Decimal(times.first_ns),
            last_ns: Decimal(times.last_ns),
            duration_ns: times.last_ns.checked_sub(times.first_ns).map(Decimal),
            first_wall: facts.wall(times.first_ns).map(Wall),
            last_wall: facts.wall(times.last_ns).map(Wall),
        }
    }
}

fn events<'f>(facts: &'f InfoFacts<'_>) -> impl Iterator<Item = Event<'f>> {
    let recording = facts.recording;
    let events = recording.events.iter().zip(&facts.names).enumerate();
    events.map(|(index, (event, name)): (usize, (&'f perfx_format::Event, &'f EventName))| {
        let source = match name.source {
            NameSource::EventUpdate => "EVENT_UPDATE",
            NameSource::EventDesc => "EVENT_DESC",
            NameSource::EventTypes => "event types",
            NameSource::TracingData => "TRACING_DATA",
            NameSource::MetaInfo => "META_INFO",
            NameSource::Attr => "attr",
        };
        Event {
            index,
            name: Text(&name.name),
            name_from: source,
            pmu: facts.pmu(event.attr().type_).map(Text),
            attr: decode_attr(event.raw(), recording.endian).into(),
            ids: event.ids.iter().copied().map(Decimal).collect(),
        }
    })
}

fn groups<'f>(facts: &'f InfoFacts<'_>) -> impl Iterator<Item = Group<'f>> {
    let recording = facts.recording;
    let section = recording.features.get(&Feature::GROUP_DESC);
    let groups = section.and_then(|section| read_group_desc(section, recording.endian)).unwrap_or_default();
    let group = |GroupDesc { name, leader, members }| Group { name: Text(name), leader, members };
    groups.into_iter().map(group)
}

fn features<'f>(facts: &'f InfoFacts<'_>) -> impl Iterator<Item = FeatureEntry<'f>> {
    let file = facts.recording.file.as_ref();
    facts.features.iter().map(move |section: &facts::Section<'_>| {
        let place =
            file.and_then(|file| file.sections.iter().find(|(feature, _)| *feature == section.feature));
        let odd = |odd: &'f Issue| Odd { code: odd.code.as_str(), what: &odd.what };
        FeatureEntry {
            bit: section.feature.0,
            name: section.feature.name(),
            offset: place.map(|(_, place)| Hex(place.offset)),
            bytes: section.size,
            fields: (&section.decoded.fields).into(),
            odd: section.decoded.issues.iter().map(odd).collect(),
        }
    })
}

fn faults<'f>(facts: &'f InfoFacts<'_>) -> impl Iterator<Item = Fault<'f>> {
    facts.recording.faults.iter().map(|fault: &header::Fault| Fault {
        code: fault.code.as_str(),
        offset: Hex(fault.offset),
        severity: severity(fault.severity),
        message: &fault.what,
        hint: fault.hint,
    })
}

fn severity(severity: Severity) -> &'static str {
    match severity {
        Severity::Odd => "odd",
        Severity::Loss => "loss",
        Severity::Fatal => "fatal",
    }
}

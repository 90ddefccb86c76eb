//! Writes stacks as profiles of OpenTelemetry (OTLP), which collectors receive and pass on.
//!
//! The format is `message ProfilesData` of profiles/v1development, of opentelemetry-proto 1.10.0, an
//! alpha that may change incompatibly. An `ExportProfilesServiceRequest` has the same bytes.

#![allow(missing_docs, reason = "the fields of messages are those of the format, which documents them")]

use std::collections::HashMap;
use std::hash::Hash;
use std::io::{self, Write};
use std::str;

use foldhash::fast::RandomState;
use indexmap::{IndexMap, IndexSet};
use perfx_format::features::read_str;
use perfx_format::{Feature, OrderKey};
use perfx_look::clock::Clock;
use perfx_model::address_space::name_of_nameless;
use perfx_pipeline::{Report, Result};
use perfx_resolve::{EventFacts, Facts, Frame, Named, Search};
use perfx_samples::say_cut_off;
use prost::{Message, Oneof};

use crate::pprof::{self, Places, is_kernel, records_calls};
use crate::stacks::{Label, Stacks, container};

/// Profiles of several recordings.
#[derive(Clone, PartialEq, Message)]
pub struct ProfilesData {
    #[prost(message, repeated, tag = "1")]
    pub resource_profiles: Vec<ResourceProfiles>,
    /// The tables that all profiles share.
    #[prost(message, optional, tag = "2")]
    pub dictionary: Option<ProfilesDictionary>,
}

/// The tables. Entry 0 of each is empty, and stands for nothing.
#[derive(Clone, PartialEq, Message)]
pub struct ProfilesDictionary {
    #[prost(message, repeated, tag = "1")]
    pub mapping_table: Vec<Mapping>,
    #[prost(message, repeated, tag = "2")]
    pub location_table: Vec<Location>,
    #[prost(message, repeated, tag = "3")]
    pub function_table: Vec<Function>,
    /// Spans of traces; recordings have none.
    #[prost(message, repeated, tag = "4")]
    pub link_table: Vec<Link>,
    #[prost(string, repeated, tag = "5")]
    pub string_table: Vec<String>,
    /// The attributes of samples, mappings and locations.
    #[prost(message, repeated, tag = "6")]
    pub attribute_table: Vec<KeyValueAndUnit>,
    #[prost(message, repeated, tag = "7")]
    pub stack_table: Vec<Stack>,
}

#[derive(Clone, PartialEq, Message)]
pub struct ResourceProfiles {
    #[prost(message, optional, tag = "1")]
    pub resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub scope_profiles: Vec<ScopeProfiles>,
}

/// The recorded machine.
#[derive(Clone, PartialEq, Message)]
pub struct Resource {
    /// Its name, if known and not left out.
    #[prost(message, repeated, tag = "1")]
    pub attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
pub struct KeyValue {
    #[prost(string, tag = "1")]
    pub key: String,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

/// The profiles made by one program.
#[derive(Clone, PartialEq, Message)]
pub struct ScopeProfiles {
    /// The program: perfx.
    #[prost(message, optional, tag = "1")]
    pub scope: Option<InstrumentationScope>,
    /// Two for each event: the numbers of its samples, and the sums of their periods.
    #[prost(message, repeated, tag = "2")]
    pub profiles: Vec<Profile>,
}

#[derive(Clone, PartialEq, Message)]
pub struct InstrumentationScope {
    #[prost(string, tag = "1")]
    pub name: String,
    #[prost(string, tag = "2")]
    pub version: String,
}

/// One kind of values.
#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    /// The kind of its values.
    #[prost(message, optional, tag = "1")]
    pub sample_type: Option<ValueType>,
    #[prost(message, repeated, tag = "2")]
    pub samples: Vec<Sample>,
    /// The time of the first sample, ns since 1970; 0 if unknown.
    #[prost(fixed64, tag = "3")]
    pub time_unix_nano: u64,
    /// The time from the first sample until just after the last one, ns.
    #[prost(uint64, tag = "4")]
    pub duration_nano: u64,
    /// The name and the unit of the event that the period counts.
    #[prost(message, optional, tag = "5")]
    pub period_type: Option<ValueType>,
    /// The interval between samples, in the event's unit; 0 if it varies.
    #[prost(int64, tag = "6")]
    pub period: i64,
}

/// The name and the unit of values, as numbers of strings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct ValueType {
    #[prost(int32, tag = "1")]
    pub type_strindex: i32,
    #[prost(int32, tag = "2")]
    pub unit_strindex: i32,
}

/// Samples with the same stack and attributes.
#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    #[prost(int32, tag = "1")]
    pub stack_index: i32,
    #[prost(int32, repeated, tag = "2")]
    pub attribute_indices: Vec<i32>,
    /// The sum of their values, or the value at each time.
    #[prost(int64, repeated, tag = "4")]
    pub values: Vec<i64>,
    /// The time of each value, ns since 1970; empty unless requested.
    #[prost(fixed64, repeated, tag = "5")]
    pub timestamps_unix_nano: Vec<u64>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Mapping {
    /// The lowest address.
    #[prost(uint64, tag = "1")]
    pub memory_start: u64,
    /// The end of the addresses, exclusive.
    #[prost(uint64, tag = "2")]
    pub memory_limit: u64,
    /// The offset in the file of the lowest address.
    #[prost(uint64, tag = "3")]
    pub file_offset: u64,
    /// Its path, as a number of a string.
    #[prost(int32, tag = "4")]
    pub filename_strindex: i32,
    #[prost(int32, repeated, tag = "5")]
    pub attribute_indices: Vec<i32>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Stack {
    /// Its locations, innermost first.
    #[prost(int32, repeated, tag = "1")]
    pub location_indices: Vec<i32>,
}

/// A place in a file.
#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct Location {
    #[prost(int32, tag = "1")]
    pub mapping_index: i32,
    /// The address: an offset in a file.
    #[prost(uint64, tag = "2")]
    pub address: u64,
    /// The functions, the innermost inlined one first.
    #[prost(message, repeated, tag = "3")]
    pub lines: Vec<Line>,
    /// The type of the frame.
    #[prost(int32, repeated, tag = "4")]
    pub attribute_indices: Vec<i32>,
}

/// A function at a place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Line {
    #[prost(int32, tag = "1")]
    pub function_index: i32,
    /// The line in the source file; 0 if unknown.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function; its strings by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Function {
    #[prost(int32, tag = "1")]
    pub name_strindex: i32,
    /// Its name in the symbol table or in DWARF.
    #[prost(int32, tag = "2")]
    pub system_name_strindex: i32,
    #[prost(int32, tag = "3")]
    pub filename_strindex: i32,
}

/// A span of a trace.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Link {}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct KeyValueAndUnit {
    /// Its name, as a number of a string.
    #[prost(int32, tag = "1")]
    pub key_strindex: i32,
    #[prost(message, optional, tag = "2")]
    pub value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Eq, Hash, Message)]
pub struct AnyValue {
    #[prost(oneof = "Value", tags = "1, 3")]
    pub value: Option<Value>,
}

#[derive(Clone, PartialEq, Eq, Hash, Oneof)]
pub enum Value {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
}

impl From<Value> for AnyValue {
    fn from(value: Value) -> AnyValue {
        AnyValue { value: Some(value) }
    }
}

/// The attributes to write, besides those by which the stacks are grouped.
#[derive(Clone, Copy, Default, Debug)]
pub struct Attributes {
    /// `process.pid` and `process.executable.name`; the stacks must be grouped by process and thread.
    pub process: bool,
    /// `thread.id` and `thread.name`.
    pub thread: bool,
    /// `host.name`.
    pub host: bool,
}

/// A table without duplicates, whose entry 0 is empty.
struct Table<T>(IndexSet<T, RandomState>);

impl<T: Default + Eq + Hash> Default for Table<T> {
    fn default() -> Self {
        Table(IndexSet::from_iter([T::default()]))
    }
}

impl<T: Eq + Hash> Table<T> {
    /// The number of an entry. 2³¹ entries do not fit into memory.
    fn number(&mut self, entry: T) -> i32 {
        self.0.insert_full(entry).0 as i32
    }

    fn entries(self) -> Vec<T> {
        self.0.into_iter().collect()
    }
}

/// Profiles that are being made.
#[derive(Default)]
pub struct Otlp {
    resources: Vec<ResourceProfiles>,
    mappings: Table<Mapping>,
    locations: Table<Location>,
    functions: Table<Function>,
    strings: Table<String>,
    attributes: Table<KeyValueAndUnit>,
    stacks: Table<Stack>,
}

#[derive(Default)]
struct Series {
    times: Vec<u64>,
    /// The numbers of samples, and their periods.
    values: [Vec<i64>; 2],
}

/// The series of an event, by attributes, stack, and whether the samples have times.
type SeriesOfEvent = IndexMap<(usize, i32, bool), Series, RandomState>;

impl Otlp {
    /// Adds a recording. Also returns how many DSOs have symbols. Samples have times if they are grouped by
    /// time, and the clock is related to the wall clock.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn add(
        &mut self,
        stacks: &Stacks,
        search: Search<'_>,
        clock: Clock,
        attributes: Attributes,
    ) -> Result<Named> {
        let Search { facts, features, endian, .. } = search;
        let (profile, places) = pprof::Profile::without_samples(stacks, search)?;
        let mut sets: IndexSet<Vec<i32>, RandomState> = IndexSet::default();
        let of_labels: Vec<usize> = stacks
            .labels
            .iter()
            .map(|label| sets.insert_full(self.of_label(label, facts, attributes)).0)
            .collect();
        let frames = places.frames_of_locations();
        let (known, locations) = Default::default();
        let mut part = Recording { profile, places, frames, stacks: known, locations };
        let mut of_events: HashMap<u32, SeriesOfEvent> = HashMap::new();
        for (row, weight) in &stacks.rows {
            let stack = self.stack(&mut part, (row.stack, records_calls(facts, row.event)));
            let time = row.time.and_then(|time| clock.wall_ns(time.ns()));
            let key = (of_labels[row.label as usize], stack, time.is_some());
            let series = of_events.entry(row.event).or_default().entry(key).or_default();
            if time.is_some() || series.values[0].is_empty() {
                series.times.extend(time);
                series.values.iter_mut().for_each(|values| values.push(0));
            }
            for (values, value) in series.values.iter_mut().zip([weight.samples, weight.period]) {
                values.last_mut().into_iter().for_each(|sum| *sum = sum.saturating_add_unsigned(value));
            }
        }
        let Recording { profile, places, .. } = &part;
        let mut profiles = Vec::new();
        for (&event, types) in places.events.iter().zip(profile.sample_type.chunks_exact(2)) {
            let series = of_events.remove(&event).unwrap_or_default();
            let [count, weight] = [types[0], types[1]].map(|of| ValueType {
                type_strindex: self.text(places.strings.text(of.r#type)),
                unit_strindex: self.text(places.strings.text(of.unit)),
            });
            let span = stacks.times.get(&event).copied().flatten();
            let period = facts.events.get(event as usize).and_then(EventFacts::fixed_period);
            let of = |sample_type, values: usize| Profile {
                sample_type: Some(sample_type),
                samples: series
                    .iter()
                    .map(|(&(set, stack_index, _), series)| Sample {
                        stack_index,
                        attribute_indices: sets[set].clone(),
                        values: series.values[values].clone(),
                        timestamps_unix_nano: series.times.clone(),
                    })
                    .collect(),
                time_unix_nano: span.and_then(|(first, _)| clock.wall_ns(first.ns())).unwrap_or(0),
                duration_nano: span.map_or(0, |(first, last)| (last.ns() - first.ns()).saturating_add(1)),
                period_type: Some(weight),
                period: i64::try_from(period.unwrap_or(0)).unwrap_or(i64::MAX),
            };
            profiles.extend([of(count, 0), of(weight, 1)]);
        }
        let host = features.get(&Feature::HOSTNAME).and_then(|section| read_str(section, endian));
        let host = host.filter(|_| attributes.host).map(|host| KeyValue {
            key: "host.name".to_owned(),
            value: Some(Value::Text(String::from_utf8_lossy(host).into_owned()).into()),
        });
        let scope = Some(InstrumentationScope {
            name: "perfx".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
        });
        self.resources.push(ResourceProfiles {
            resource: Some(Resource { attributes: host.into_iter().collect() }),
            scope_profiles: vec![ScopeProfiles { scope, profiles }],
        });
        Ok(part.places.named)
    }

    fn text(&mut self, text: &str) -> i32 {
        self.strings.number(text.to_owned())
    }

    fn attribute(&mut self, key: &str, value: Value) -> i32 {
        let key_strindex = self.text(key);
        self.attributes.number(KeyValueAndUnit { key_strindex, value: Some(value.into()) })
    }

    fn of_label(&mut self, label: &Label, facts: &Facts, attributes: Attributes) -> Vec<i32> {
        let text = |text: &[u8]| Value::Text(String::from_utf8_lossy(text).into_owned());
        let number = |number: u32| Value::Number(i64::from(number as i32));
        let mut all = Vec::new();
        if let Some(pid) = label.pid.filter(|_| attributes.process) {
            all.push(self.attribute("process.pid", number(pid)));
            // The name that the main thread took when it executed the program, unless it changed it.
            let name = facts.tasks.name(label.machine, pid, OrderKey::END);
            if *name != *name_of_nameless(pid) {
                all.push(self.attribute("process.executable.name", text(&name)));
            }
        }
        if let Some(tid) = label.tid.filter(|_| attributes.thread) {
            all.push(self.attribute("thread.id", number(tid)));
            if let Some(comm) = label.comm.as_ref().filter(|comm| ***comm != *name_of_nameless(tid)) {
                all.push(self.attribute("thread.name", text(comm)));
            }
        }
        if let Some(id) = label.cgroup.as_ref().and_then(|path| container(path)) {
            all.push(self.attribute("container.id", Value::Text(id.to_owned())));
        }
        if let Some(cpu) = label.cpu {
            all.push(self.attribute("cpu.logical_number", number(cpu)));
        }
        all
    }

    fn stack(&mut self, part: &mut Recording, of: (u32, bool)) -> i32 {
        if let Some(&known) = part.stacks.get(&of) {
            return known;
        }
        let ids: Vec<u64> = part.places.locations_of(of.0, of.1).collect();
        let location_indices = ids.into_iter().map(|id| self.location(part, id)).collect();
        let number = self.stacks.number(Stack { location_indices });
        part.stacks.insert(of, number);
        number
    }

    fn location(&mut self, part: &mut Recording, id: u64) -> i32 {
        if let Some(&known) = part.locations.get(&id) {
            return known;
        }
        let Recording { profile, places, frames, .. } = &*part;
        let location = &profile.location[id as usize - 1];
        let lines = location.line.iter().map(|line| {
            let function = &profile.function[line.function_id as usize - 1];
            let [name_strindex, system_name_strindex, filename_strindex] =
                [function.name, function.system_name, function.filename]
                    .map(|string| self.text(places.strings.text(string)));
            let function = Function { name_strindex, system_name_strindex, filename_strindex };
            Line { function_index: self.functions.number(function), line: line.line }
        });
        let lines = lines.collect();
        let mapping = (location.mapping_id as usize).checked_sub(1).map(|at| profile.mapping[at]);
        let mapping_index = mapping.map_or(0, |mapping| {
            let id = places.strings.text(mapping.build_id);
            let id = Some(id).filter(|id| !id.is_empty());
            let id = id.map(|id| self.attribute(BUILD_ID, Value::Text(id.to_owned())));
            let filename_strindex = self.text(places.strings.text(mapping.filename));
            self.mappings.number(Mapping {
                memory_start: mapping.memory_start,
                memory_limit: mapping.memory_limit,
                file_offset: mapping.file_offset,
                filename_strindex,
                attribute_indices: id.into_iter().collect(),
            })
        });
        let outer = location.line.last().map(|line| &profile.function[line.function_id as usize - 1]);
        let outer = outer.map(|outer| [outer.name, outer.filename].map(|string| places.strings.text(string)));
        let frame_type = frames.get(&id).and_then(|frame| frame_type(*frame, outer));
        let frame_type =
            frame_type.map(|name| self.attribute("profile.frame.type", Value::Text(name.to_owned())));
        let attribute_indices = frame_type.into_iter().collect();
        let new = Location { mapping_index, address: location.address, lines, attribute_indices };
        let number = self.locations.number(new);
        part.locations.insert(id, number);
        number
    }

    /// The message of all recordings.
    pub fn finish(self) -> ProfilesData {
        let dictionary = ProfilesDictionary {
            mapping_table: self.mappings.entries(),
            location_table: self.locations.entries(),
            function_table: self.functions.entries(),
            link_table: vec![Link {}],
            string_table: self.strings.entries(),
            attribute_table: self.attributes.entries(),
            stack_table: self.stacks.entries(),
        };
        ProfilesData { resource_profiles: self.resources, dictionary: Some(dictionary) }
    }
}

impl ProfilesData {
    /// The profiles of all recordings.
    pub fn profiles(&self) -> impl Iterator<Item = &Profile> {
        self.resource_profiles.iter().flat_map(|of| &of.scope_profiles).flat_map(|of| &of.profiles)
    }

    /// Reports sums that are cut off because they exceed 63 bits.
    pub fn say_cut_off(&self, report: &mut Report) {
        let values = self.profiles().flat_map(|profile| &profile.samples).flat_map(|sample| &sample.values);
        say_cut_off(values.map(|value| value.unsigned_abs()), i64::MAX as u64, report);
    }

    /// Writes the message.
    ///
    /// # Errors
    ///
    /// `out` cannot be written.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        out.write_all(&self.encode_to_vec())?;
        out.flush()
    }
}

const BUILD_ID: &str = "process.executable.build_id.gnu";

/// The tables of one recording, and the numbers of its entries in the shared tables.
struct Recording {
    profile: pprof::Profile,
    places: Places,
    frames: HashMap<u64, Frame>,
    stacks: HashMap<(u32, bool), i32>,
    locations: HashMap<u64, i32>,
}

/// The type of a frame, if its function and source file, or the kind of its code, show it.
fn frame_type(frame: Frame, function: Option<[&str; 2]>) -> Option<&'static str> {
    if is_kernel(frame) {
        return Some("kernel");
    }
    // JIT compilers write the names into perf maps and jitdumps.
    let [name, file] = function.unwrap_or_default();
    let v8 =
        ["LazyCompile:", "Function:", "Script:", "Eval:", "JS:", "Builtin:", "BytecodeHandler:", "RegExp:"];
    let of_file = || frame.dso.is_some() && frame.process == 0;
    match file.rsplit_once('.') {
        _ if name.starts_with("py::") => Some("cpython"),
        _ if v8.iter().any(|kind| name.starts_with(kind)) => Some("v8js"),
        _ if name.starts_with('L') && name.contains(';') => Some("jvm"),
        Some((_, "go")) => Some("go"),
        Some((_, "rs")) => Some("rust"),
        _ => of_file().then_some("native"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_names_of_code_show_the_type_of_a_frame() {
        let frame = |dso, process| Frame { dso, at: 1, mode: perfx_format::record::cpumode::USER, process };
        let (of_file, jit) = (frame(Some(1), 0), frame(Some(2), 7));
        let of = |frame, name, file| frame_type(frame, Some([name, file]));
        assert_eq!(of(of_file, "main", "/src/main.c"), Some("native"));
        assert_eq!(of(of_file, "main.main", "/src/main.go"), Some("go"));
        assert_eq!(of(of_file, "work::run", "src/main.rs"), Some("rust"));
        assert_eq!(of(jit, "py::run:/srv/app.py", ""), Some("cpython"));
        assert_eq!(of(jit, "LazyCompile:*run /srv/app.js:1", ""), Some("v8js"));
        assert_eq!(of(jit, "Ljava/lang/String;::hashCode", ""), Some("jvm"));
        assert_eq!(frame_type(jit, None), None, "code of an unknown compiler");
        assert_eq!(frame_type(of_file, None), Some("native"));
    }
}

//! Writes stacks as a profile of pprof. It includes functions, source lines and inlined calls, so that no
//! reader needs the programs.
//!
//! The format is `message Profile` of google/pprof (proto/profile.proto), compressed with gzip.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::iter;

use flate2::{Compression, GzBuilder};
use foldhash::fast::RandomState;
use indexmap::{IndexMap, IndexSet};
use perfx_format::Feature;
use perfx_format::features::{read_cmdline, read_str};
use perfx_format::record::cpumode::{GUEST_KERNEL, KERNEL};
use perfx_pipeline::{Report, Result};
use perfx_resolve::{EventFacts, Facts, Frame, FrameName, Named, Search, dso_name};
use perfx_samples::say_cut_off;
use prost::Message;

use crate::chains::StackTree;
use crate::shown::SampledEvents;
use crate::stacks::{Label, Stacks};

/// A profile.
#[derive(Clone, PartialEq, Message)]
pub struct Profile {
    /// The types of a sample's values.
    #[prost(message, repeated, tag = "1")]
    pub sample_type: Vec<ValueType>,
    /// The samples.
    #[prost(message, repeated, tag = "2")]
    pub sample: Vec<Sample>,
    /// The files, starting with the main program.
    #[prost(message, repeated, tag = "3")]
    pub mapping: Vec<Mapping>,
    /// The places in files.
    #[prost(message, repeated, tag = "4")]
    pub location: Vec<Location>,
    /// The functions.
    #[prost(message, repeated, tag = "5")]
    pub function: Vec<Function>,
    /// All strings, starting with the empty one.
    #[prost(string, repeated, tag = "6")]
    pub string_table: Vec<String>,
    /// The time from the first sample to the last, ns.
    #[prost(int64, tag = "10")]
    pub duration_nanos: i64,
    /// The event of the period.
    #[prost(message, optional, tag = "11")]
    pub period_type: Option<ValueType>,
    /// The interval between samples, in the event's unit; 0 if it varies.
    #[prost(int64, tag = "12")]
    pub period: i64,
    /// Numbers of strings.
    #[prost(int64, repeated, tag = "13")]
    pub comment: Vec<i64>,
    /// The string of the type to show first.
    #[prost(int64, tag = "14")]
    pub default_sample_type: i64,
}

/// The name and the unit of a value, as numbers of strings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct ValueType {
    /// Its name.
    #[prost(int64, tag = "1")]
    pub r#type: i64,
    /// Its unit.
    #[prost(int64, tag = "2")]
    pub unit: i64,
}

/// Samples with the same stack and labels.
#[derive(Clone, PartialEq, Message)]
pub struct Sample {
    /// Ids of locations, innermost first.
    #[prost(uint64, repeated, tag = "1")]
    pub location_id: Vec<u64>,
    /// One for each sample type.
    #[prost(int64, repeated, tag = "2")]
    pub value: Vec<i64>,
    /// The common labels of the samples.
    #[prost(message, repeated, tag = "3")]
    pub label: Vec<PprofLabel>,
}

/// A key with a string or a number.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct PprofLabel {
    /// The number of the key's string.
    #[prost(int64, tag = "1")]
    pub key: i64,
    /// The number of the value's string.
    #[prost(int64, tag = "2")]
    pub str: i64,
    /// The value as a number.
    #[prost(int64, tag = "3")]
    pub num: i64,
}

/// A file.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Mapping {
    /// From 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The lowest address.
    #[prost(uint64, tag = "2")]
    pub memory_start: u64,
    /// The end of the addresses, exclusive.
    #[prost(uint64, tag = "3")]
    pub memory_limit: u64,
    /// The offset in the file of the lowest address.
    #[prost(uint64, tag = "4")]
    pub file_offset: u64,
    /// The path, as a number of a string.
    #[prost(int64, tag = "5")]
    pub filename: i64,
    /// The build-id in hex, as a number of a string.
    #[prost(int64, tag = "6")]
    pub build_id: i64,
    /// True if the functions are in the profile.
    #[prost(bool, tag = "7")]
    pub has_functions: bool,
    /// True if source files are in the profile.
    #[prost(bool, tag = "8")]
    pub has_filenames: bool,
    /// True if lines are in the profile.
    #[prost(bool, tag = "9")]
    pub has_line_numbers: bool,
    /// True if inlined calls are in the profile.
    #[prost(bool, tag = "10")]
    pub has_inline_frames: bool,
}

/// A place in a file.
#[derive(Clone, PartialEq, Message)]
pub struct Location {
    /// From 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// The file; 0 if there is none.
    #[prost(uint64, tag = "2")]
    pub mapping_id: u64,
    /// The address: an offset in a file.
    #[prost(uint64, tag = "3")]
    pub address: u64,
    /// The functions, the innermost inlined one first.
    #[prost(message, repeated, tag = "4")]
    pub line: Vec<Line>,
}

/// A function at a place.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Line {
    /// Its id.
    #[prost(uint64, tag = "1")]
    pub function_id: u64,
    /// The line in the source file; 0 if unknown.
    #[prost(int64, tag = "2")]
    pub line: i64,
}

/// A function; its strings by their numbers.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Message)]
pub struct Function {
    /// From 1.
    #[prost(uint64, tag = "1")]
    pub id: u64,
    /// Its name.
    #[prost(int64, tag = "2")]
    pub name: i64,
    /// Its name in the symbol table or in DWARF. If it equals the name, pprof demangles it again.
    #[prost(int64, tag = "3")]
    pub system_name: i64,
    /// The source file.
    #[prost(int64, tag = "4")]
    pub filename: i64,
}

/// The strings of a function's name, its name in the symbol table, and its file: pprof merges equal ones.
type FunctionKey = [i64; 3];

/// By DSO, process (for its memory) and recorded start: whether the mapping is a file, and the mapping.
type Mappings = IndexMap<(Option<u32>, u32, Option<u64>), (bool, Mapping), RandomState>;

#[derive(Default)]
pub(crate) struct Strings(IndexSet<String, RandomState>);

impl Strings {
    pub(crate) fn text(&self, number: i64) -> &str {
        self.0.get_index(number as usize).map_or("", |text| text)
    }

    fn number(&mut self, text: &str) -> i64 {
        match self.0.get_index_of(text) {
            Some(number) => number as i64,
            None => self.0.insert_full(text.to_owned()).0 as i64,
        }
    }
}

pub(crate) struct Places {
    pub(crate) events: Vec<u32>,
    pub(crate) strings: Strings,
    nodes: Vec<(u32, u32)>,
    frames: Vec<Frame>,
    /// The ids of each frame's locations, as innermost and as caller.
    locations: Vec<[u64; 2]>,
    pub(crate) named: Named,
}

impl Places {
    /// The ids of a stack's locations, innermost first. `records_calls`: user code has addresses of calls.
    pub(crate) fn locations_of(&self, stack: u32, records_calls: bool) -> impl Iterator<Item = u64> {
        let (mut next, mut callee) = (stack, None);
        iter::from_fn(move || {
            let (parent, number) = *self.nodes.get(next as usize).filter(|_| next != StackTree::ROOT)?;
            let frame = self.frames[number as usize];
            // The user address next to the kernel's is where execution was.
            let returns = callee == Some(frame.mode) && (!records_calls || is_kernel(frame));
            (next, callee) = (parent, Some(frame.mode));
            Some(self.locations[number as usize][usize::from(returns)])
        })
    }

    pub(crate) fn frames_of_locations(&self) -> HashMap<u64, Frame> {
        let frames = self.frames.iter().zip(&self.locations);
        frames.flat_map(|(frame, ids)| ids.map(|id| (id, *frame))).collect()
    }
}

impl Profile {
    /// Makes the profile of all events of a recording. Also returns how many DSOs have symbols.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn new(stacks: &Stacks, search: Search<'_>) -> Result<(Profile, Named)> {
        let Search { facts, features, endian, .. } = search;
        let (mut profile, mut places) = Profile::without_samples(stacks, search)?;
        profile.samples(stacks, facts, &mut places);
        let Places { mut strings, named, .. } = places;
        let text = |feature| features.get(&feature).and_then(|section| read_str(section, endian));
        let mut comment = |text: String| profile.comment.push(strings.number(&text));
        if let Some(version) = text(Feature::VERSION) {
            comment(format!("perf-version: {}", String::from_utf8_lossy(version)));
        }
        if let Some(line) = features.get(&Feature::CMDLINE).and_then(|section| read_cmdline(section, endian))
        {
            let words: Vec<_> = line.iter().map(|word| String::from_utf8_lossy(word)).collect();
            comment(format!("perf-command: {}", words.join(" ")));
        }
        profile.string_table = strings.0.into_iter().collect();
        Ok((profile, named))
    }

    /// The types of the values, and all places. The strings are not yet in the profile.
    pub(crate) fn without_samples(stacks: &Stacks, search: Search<'_>) -> Result<(Profile, Places)> {
        let mut strings = Strings(IndexSet::default());
        strings.number("");
        let mut profile = Profile::default();
        // Like `export folded`, begins with the default event.
        let sampled = stacks.sampled(search.facts);
        let first = sampled.default_event();
        let events: Vec<u32> = first
            .into_iter()
            .chain(stacks.times.keys().copied().filter(|&event| Some(event) != first))
            .collect();
        profile.sample_types(&events, &sampled, &mut strings);
        let duration = stacks.span().map_or(0, |(start, end)| end.ns() - start.ns());
        profile.duration_nanos = i64::try_from(duration).unwrap_or(i64::MAX);
        let (locations, named) = profile.locations(stacks, search, &mut strings)?;
        let (nodes, frames) = (stacks.tree.nodes().collect(), stacks.tree.frames().collect());
        Ok((profile, Places { events, strings, nodes, frames, locations, named }))
    }

    fn sample_types(&mut self, events: &[u32], sampled: &SampledEvents<'_>, strings: &mut Strings) {
        for (at, &number) in events.iter().enumerate() {
            let name = sampled.name(number);
            let samples = if events.len() == 1 { "samples".to_owned() } else { format!("{name}:samples") };
            let unit = if sampled.is_time(number) { "nanoseconds" } else { "count" };
            let weight = ValueType { r#type: strings.number(&name), unit: strings.number(unit) };
            let count = ValueType { r#type: strings.number(&samples), unit: strings.number("count") };
            self.sample_type.extend([count, weight]);
            if at == 0 {
                self.default_sample_type = weight.r#type;
                self.period_type = Some(weight);
                let period = sampled.facts(number).and_then(EventFacts::fixed_period);
                self.period = i64::try_from(period.unwrap_or(0)).unwrap_or(i64::MAX);
            }
        }
    }

    /// Adds mappings, functions and locations; returns each frame's locations as innermost and as caller.
    fn locations(
        &mut self,
        stacks: &Stacks,
        search: Search<'_>,
        strings: &mut Strings,
    ) -> Result<(Vec<[u64; 2]>, Named)> {
        let mut mappings = Mappings::default();
        let mut functions: IndexMap<FunctionKey, Function, RandomState> = IndexMap::default();
        let mut of_frames = vec![[0; 2]; stacks.tree.frames().len()];
        let named = stacks.name_frames(search, |number, frame, name| {
            let lines = lines(&name, &mut functions, strings);
            let mapped = frame.dso.filter(|_| frame.process == 0);
            let part = mapped.and_then(|dso| search.facts.parts.at(dso, frame.at));
            let start = part.as_ref().map(|(part, _)| part.start);
            let mapping = name.dso.as_ref().map(|dso| {
                let id = mappings.len() as u64 + 1;
                let path = strings.number(&String::from_utf8_lossy(dso));
                let key = (frame.dso, frame.process, start);
                let (is_file, mapping) = mappings.entry(key).or_insert_with(|| {
                    let build_id = build_id(frame, search.facts, strings);
                    let is_file = dso.starts_with(b"/") && frame.process == 0 && !is_kernel(frame);
                    let (part, file_offset) = part.unwrap_or((frame.at..frame.at, 0));
                    let (memory_start, memory_limit) = (part.start, part.end);
                    let names = Mapping { id, filename: path, build_id, ..Mapping::default() };
                    (is_file, Mapping { memory_start, memory_limit, file_offset, ..names })
                });
                if start.is_none() {
                    mapping.extend(frame, *is_file);
                }
                mapping.add(&name);
                mapping.id
            });
            let mapping_id = mapping.unwrap_or(0);
            // The call is before the address to which it returns.
            let call = frame.at.saturating_sub(1).max(start.unwrap_or(0));
            for (at, address) in [frame.at, call].into_iter().enumerate() {
                let id = self.location.len() as u64 + 1;
                of_frames[number as usize][at] = id;
                self.location.push(Location { id, mapping_id, address, line: lines.clone() });
            }
        })?;
        let sampled = if search.facts.whole_cpus {
            self.sampled(stacks, &of_frames, mappings.len())
        } else {
            Vec::new()
        };
        self.number_mappings(mappings, &sampled);
        self.function = functions.into_values().collect();
        Ok((of_frames, named))
    }

    fn sampled(&self, stacks: &Stacks, of_frames: &[[u64; 2]], mappings: usize) -> Vec<u64> {
        let nodes: Vec<(u32, u32)> = stacks.tree.nodes().collect();
        let mut sampled = vec![0; mappings + 1];
        for (row, weight) in stacks.rows.iter().filter(|(row, _)| row.stack != StackTree::ROOT) {
            let (_, frame) = nodes[row.stack as usize];
            let [location, _] = of_frames[frame as usize];
            let mapping = (location as usize).checked_sub(1).map_or(0, |at| self.location[at].mapping_id);
            sampled[mapping as usize] += weight.samples;
        }
        sampled
    }

    /// Orders and numbers the mappings: readers expect the main program first, which is the first file that a
    /// process of the recording mapped. A recording of all CPUs has none, and its first file would be that of
    /// some daemon: there, the file with the most samples (`sampled`) comes first.
    fn number_mappings(&mut self, mappings: Mappings, sampled: &[u64]) {
        let mut mappings: Vec<_> = mappings.into_iter().collect();
        mappings.sort_by_key(|&((dso, process, start), (is_file, ref mapping))| {
            (!is_file, Reverse(sampled.get(mapping.id as usize).copied()), process, dso, start)
        });
        let mut new_ids = vec![0; mappings.len() + 1];
        for ((_, (_, mut mapping)), id) in mappings.into_iter().zip(1..) {
            new_ids[mapping.id as usize] = id;
            mapping.id = id;
            self.mapping.push(mapping);
        }
        for location in &mut self.location {
            location.mapping_id = new_ids[location.mapping_id as usize];
        }
    }

    fn samples(&mut self, stacks: &Stacks, facts: &Facts, places: &mut Places) {
        let columns = places.events.len() * 2;
        let column: HashMap<u32, usize> = places.events.iter().copied().zip((0..).step_by(2)).collect();
        let mut values: IndexMap<(u32, u32, bool), Vec<i64>, RandomState> = IndexMap::default();
        for (row, weight) in &stacks.rows {
            let Some(&column) = column.get(&row.event) else { continue };
            let key = (row.label, row.stack, records_calls(facts, row.event));
            let value = values.entry(key).or_insert_with(|| vec![0; columns]);
            value[column] = value[column].saturating_add_unsigned(weight.samples);
            value[column + 1] = value[column + 1].saturating_add_unsigned(weight.period);
        }
        let labels: Vec<Vec<PprofLabel>> =
            stacks.labels.iter().map(|label| pprof_labels(label, &mut places.strings)).collect();
        for ((label, stack, records_calls), value) in values {
            let location_id = places.locations_of(stack, records_calls).collect();
            self.sample.push(Sample { location_id, value, label: labels[label as usize].clone() });
        }
        // Drops locations without samples.
        let used: HashSet<u64> =
            self.sample.iter().flat_map(|sample| sample.location_id.iter().copied()).collect();
        self.location.retain(|location| used.contains(&location.id));
    }

    /// The profile of several recordings: values of equal stacks add up, as do durations.
    pub fn joined(parts: Vec<Profile>) -> Profile {
        if parts.len() == 1 {
            return parts.into_iter().next().unwrap_or_default();
        }
        let mut join = Join::default();
        join.strings.number("");
        let mut all = Profile::default();
        for part in parts {
            all.duration_nanos = all.duration_nanos.saturating_add(part.duration_nanos);
            join.add(part, &mut all);
        }
        let events: Vec<ValueType> = join.events.into_iter().collect();
        for event in &events {
            let name = join.strings.0.get_index(event.r#type as usize).cloned().unwrap_or_default();
            let samples = if events.len() == 1 { "samples".to_owned() } else { format!("{name}:samples") };
            let (samples, unit) = (join.strings.number(&samples), join.strings.number("count"));
            all.sample_type.extend([ValueType { r#type: samples, unit }, *event]);
        }
        let width = all.sample_type.len();
        all.sample = join
            .samples
            .into_iter()
            .map(|((location_id, label), mut value)| {
                value.resize(width, 0);
                Sample { location_id, value, label }
            })
            .collect();
        all.mapping = join.mappings.into_values().collect();
        all.function = join.functions.into_values().collect();
        all.location = join.locations.into_values().collect();
        all.string_table = join.strings.0.into_iter().collect();
        all
    }

    /// Reports sums that are cut off because they exceed 64 bits.
    pub fn say_cut_off(&self, report: &mut Report) {
        let values = self.sample.iter().flat_map(|sample| &sample.value);
        say_cut_off(values.map(|value| value.unsigned_abs()), i64::MAX as u64, report);
    }

    /// Writes the profile, compressed.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        // Without a time and a name, the same profile has the same bytes.
        let mut packed = GzBuilder::new().mtime(0).write(out, Compression::default());
        packed.write_all(&self.encode_to_vec())?;
        packed.finish()?.flush()
    }
}

/// The shared tables of several recordings' profiles; ids start at 1, in order of insertion.
#[derive(Default)]
struct Join {
    strings: Strings,
    events: IndexSet<ValueType, RandomState>,
    /// By path, build-id and start.
    mappings: IndexMap<(i64, i64, u64), Mapping, RandomState>,
    functions: IndexMap<FunctionKey, Function, RandomState>,
    /// By mapping, address and functions.
    locations: IndexMap<(u64, u64, Vec<Line>), Location, RandomState>,
    samples: IndexMap<(Vec<u64>, Vec<PprofLabel>), Vec<i64>, RandomState>,
}

impl Join {
    fn add(&mut self, part: Profile, all: &mut Profile) {
        let strings: Vec<i64> = part.string_table.iter().map(|text| self.strings.number(text)).collect();
        let string =
            |number: i64| usize::try_from(number).ok().and_then(|at| strings.get(at)).copied().unwrap_or(0);
        let value_type = |of: ValueType| ValueType { r#type: string(of.r#type), unit: string(of.unit) };
        // Each event has its number of samples, then the sum of its periods.
        let columns: Vec<usize> = part
            .sample_type
            .chunks_exact(2)
            .map(|pair| self.events.insert_full(value_type(pair[1])).0 * 2)
            .flat_map(|column| [column, column + 1])
            .collect();
        if all.period_type.is_none() {
            all.period_type = part.period_type.map(value_type);
            (all.period, all.default_sample_type) = (part.period, string(part.default_sample_type));
        }
        for comment in part.comment {
            let comment = string(comment);
            if !all.comment.contains(&comment) {
                all.comment.push(comment);
            }
        }
        let mut mappings = HashMap::from([(0, 0)]);
        for mapping in part.mapping {
            let id = self.mappings.len() as u64 + 1;
            let key = (string(mapping.filename), string(mapping.build_id), mapping.memory_start);
            let new = Mapping { id, filename: key.0, build_id: key.1, ..mapping };
            let known = self.mappings.entry(key).or_insert(new);
            known.join(&new);
            mappings.insert(mapping.id, known.id);
        }
        let mut functions = HashMap::new();
        for function in part.function {
            let id = self.functions.len() as u64 + 1;
            let key = [function.name, function.system_name, function.filename].map(&string);
            let [name, system_name, filename] = key;
            let new = Function { id, name, system_name, filename };
            functions.insert(function.id, self.functions.entry(key).or_insert(new).id);
        }
        let mut locations = HashMap::new();
        for location in part.location {
            let id = self.locations.len() as u64 + 1;
            let mapping_id = mappings.get(&location.mapping_id).copied().unwrap_or(0);
            let line = |line: Line| Line {
                function_id: functions.get(&line.function_id).copied().unwrap_or(0),
                ..line
            };
            let lines: Vec<Line> = location.line.into_iter().map(line).collect();
            let key = (mapping_id, location.address, lines.clone());
            let new = Location { id, mapping_id, address: location.address, line: lines };
            locations.insert(location.id, self.locations.entry(key).or_insert(new).id);
        }
        for sample in part.sample {
            let places = sample.location_id.iter().filter_map(|id| locations.get(id).copied()).collect();
            let label = |of: PprofLabel| PprofLabel { key: string(of.key), str: string(of.str), num: of.num };
            let values =
                self.samples.entry((places, sample.label.into_iter().map(label).collect())).or_default();
            for (&column, value) in columns.iter().zip(sample.value) {
                values.resize(values.len().max(column + 1), 0);
                values[column] = values[column].saturating_add(value);
            }
        }
    }
}

impl Mapping {
    /// Extends the mapping by one of the same file part in another recording.
    fn join(&mut self, other: &Mapping) {
        self.memory_limit = self.memory_limit.max(other.memory_limit);
        self.has_functions |= other.has_functions;
        self.has_filenames |= other.has_filenames;
        self.has_line_numbers |= other.has_line_numbers;
        self.has_inline_frames |= other.has_inline_frames;
    }

    /// Extends a mapping that was not recorded, such as the memory of a process, to the page of a frame.
    fn extend(&mut self, frame: Frame, is_file: bool) {
        // The caller's address is one byte lower.
        self.memory_start = self.memory_start.min(frame.at.saturating_sub(1)) & !0xfff;
        self.memory_limit = self.memory_limit.max((frame.at | 0xfff).saturating_add(1));
        // Addresses in files are offsets; those of kernels and memory are the addresses themselves.
        self.file_offset = if is_file { self.memory_start } else { 0 };
    }

    fn add(&mut self, name: &FrameName<'_>) {
        self.has_functions |= !name.functions.is_empty();
        self.has_filenames |= name.functions.iter().any(|function| function.file.is_some());
        self.has_line_numbers |= name.functions.iter().any(|function| function.line.is_some());
        self.has_inline_frames |= name.functions.len() > 1;
    }
}

/// True if the user addresses in the call chains of an event are those of calls.
pub(crate) fn records_calls(facts: &Facts, event: u32) -> bool {
    facts.events.get(event as usize).is_some_and(|event| event.records_calls)
}

pub(crate) fn is_kernel(frame: Frame) -> bool {
    matches!(frame.mode, KERNEL | GUEST_KERNEL)
}

/// The functions at a frame, innermost first.
fn lines(
    name: &FrameName<'_>,
    functions: &mut IndexMap<FunctionKey, Function, RandomState>,
    strings: &mut Strings,
) -> Vec<Line> {
    let line = |function: &perfx_resolve::Function<'_>| {
        let file = function.file.as_deref().unwrap_or("");
        let key = [&*function.name, &*function.symbol, file].map(|text| strings.number(text));
        let [name, system_name, filename] = key;
        let id = functions.len() as u64 + 1;
        let made = functions.entry(key).or_insert(Function { id, name, system_name, filename });
        Line { function_id: made.id, line: function.line.map_or(0, i64::from) }
    };
    name.functions.iter().rev().map(line).collect()
}

fn build_id(frame: Frame, facts: &Facts, strings: &mut Strings) -> i64 {
    let dso = frame.dso.filter(|_| frame.process == 0).and_then(|dso| facts.spaces.dsos().get(dso as usize));
    let id = dso.and_then(|(dso, _)| facts.ids.get(dso).filter(|_| !dso_name(dso).is_empty()));
    id.map_or(0, |id| strings.number(&id.to_string()))
}

fn pprof_labels(label: &Label, strings: &mut Strings) -> Vec<PprofLabel> {
    let mut labels = Vec::new();
    let texts = [("comm", &label.comm), ("cgroup", &label.cgroup)];
    for (key, value) in texts.into_iter().filter_map(|(key, value)| Some((key, value.as_deref()?))) {
        let (key, str) = (strings.number(key), strings.number(&String::from_utf8_lossy(value)));
        labels.push(PprofLabel { key, str, num: 0 });
    }
    let numbers = [("pid", label.pid), ("tid", label.tid), ("cpu", label.cpu)];
    for (key, value) in numbers.into_iter().filter_map(|(key, value)| Some((key, value?))) {
        labels.push(PprofLabel { key: strings.number(key), str: 0, num: i64::from(value as i32) });
    }
    labels
}

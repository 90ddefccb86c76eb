//! Writes call stacks over time as a profile for the Firefox Profiler, with functions, lines and inlined
//! calls, so that no symbol server is needed.
//!
//! The format is version 62 of the processed profile format of firefox-devtools/profiler (docs-developer), as
//! JSON compressed with gzip. Tables are columns of equal length, and refer to each other by index.

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufWriter, IntoInnerError, Write};

use flate2::{Compression, GzBuilder};
use foldhash::fast::RandomState;
use indexmap::IndexSet;
use perfx_format::features::read_cmdline;
use perfx_format::header::Features;
use perfx_format::read::{Batch, Recording};
use perfx_format::record::cpumode::{GUEST_KERNEL, KERNEL};
use perfx_format::record::lost::{Losses, Lost, LostSum};
use perfx_format::{Endian, Feature, Kinds, OrderKey, Time};
use perfx_look::clock::Clock;
use perfx_model::address_space::{KERNEL as KERNEL_PID, Machine};
use perfx_pipeline::{Result, scan};
use perfx_resolve::{EventFacts, Facts, Frame, FrameName, Named, Search, dso_name};
use serde::Serialize;

use crate::chains::StackTree;
use crate::shown::SampledEvents;
use crate::stacks::{Row, Stacks, Weight};

/// A profile of any number of recordings.
#[derive(Default, Debug)]
pub struct FirefoxProfile {
    shared: Shared,
    libs: IndexSet<Lib, RandomState>,
    threads: Vec<Thread>,
    counters: Vec<Counter>,
    recordings: usize,
    command: Option<String>,
    /// The start of the first recording, ms since 1970, if its clock is related to the wall clock.
    start: Option<f64>,
    /// The first known sampling interval, ms.
    interval: Option<f64>,
}

#[derive(PartialEq, Eq, Hash, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Lib {
    arch: Option<String>,
    breakpad_id: String,
    code_id: Option<String>,
    debug_name: String,
    debug_path: String,
    name: String,
    path: String,
}

/// The tables of all threads, before they are written as columns.
#[derive(Default, Debug)]
struct Shared {
    strings: IndexSet<String, RandomState>,
    sources: IndexSet<u32, RandomState>,
    /// The number of the lib, and the name.
    resources: IndexSet<(u32, u32), RandomState>,
    functions: IndexSet<FunctionRow, RandomState>,
    frames: IndexSet<FrameRow, RandomState>,
    /// Parent, or [`StackTree::ROOT`], and frame.
    stacks: IndexSet<(u32, u32), RandomState>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct FunctionRow {
    name: u32,
    resource: Option<u32>,
    source: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct FrameRow {
    /// Offset in the file; `None` outside of files.
    address: Option<u64>,
    /// 0 for the function in the symbol table, from 1 for those inlined into it.
    depth: u32,
    function: u32,
    line: Option<u32>,
    kernel: bool,
}

impl Shared {
    fn string(&mut self, text: &str) -> u32 {
        match self.strings.get_index_of(text) {
            Some(number) => number as u32,
            None => self.strings.insert_full(text.to_owned()).0 as u32,
        }
    }
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Thread {
    is_main_thread: bool,
    markers: Markers,
    name: String,
    paused_ranges: [u8; 0],
    pid: String,
    process_name: String,
    process_shutdown_time: Option<f64>,
    process_startup_time: f64,
    process_type: &'static str,
    register_time: f64,
    samples: Samples,
    show_markers_in_timeline: bool,
    tid: String,
    unregister_time: Option<f64>,
}

#[derive(Default, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Samples {
    length: usize,
    stack: Vec<Option<u32>>,
    /// The time on a CPU since the previous sample, µs; the rest of the gap is idle.
    #[serde(rename = "threadCPUDelta", skip_serializing_if = "Option::is_none")]
    cpu_deltas: Option<Vec<f64>>,
    time_deltas: Vec<f64>,
    weight: Weights,
    weight_type: &'static str,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Weights {
    Samples(Vec<u64>),
    Times(Vec<f64>),
}

impl Default for Weights {
    fn default() -> Weights {
        Weights::Samples(Vec::new())
    }
}

#[derive(Default, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Markers {
    length: usize,
    category: Vec<u32>,
    data: Vec<MarkerData>,
    end_time: Vec<Option<f64>>,
    name: Vec<u32>,
    phase: Vec<u32>,
    start_time: Vec<f64>,
}

#[derive(Debug, Serialize)]
struct MarkerData {
    r#type: &'static str,
    count: u64,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Counter {
    category: &'static str,
    description: String,
    display: Display,
    main_thread_index: usize,
    name: String,
    pid: String,
    samples: CounterSamples,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct Display {
    color: &'static str,
    graph_type: &'static str,
    label: String,
    marker_schema_location: Option<&'static str>,
    sort_weight: u32,
    unit: &'static str,
}

#[derive(Default, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct CounterSamples {
    length: usize,
    count: Vec<u64>,
    time_deltas: Vec<f64>,
}

const USER_CATEGORY: u32 = 1;
const KERNEL_CATEGORY: u32 = 2;

const MS: &str = "tracing-ms";

const LOST: &str = "Lost";

/// Records or samples that the kernel could not write.
#[derive(Clone, Copy, Debug)]
pub struct Loss {
    time: Option<Time>,
    thread: Option<(u32, u32)>,
    count: u64,
    samples: bool,
}

impl FirefoxProfile {
    /// Adds a recording, with its `stacks` grouped by time, process and thread, and its losses. Times start
    /// at each recording's first sample; `clock` relates those of the first recording to the wall clock.
    /// `shown` is the event whose stacks are shown, `None` for all; other events become counters. Returns how
    /// many DSOs have symbols.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub fn add(
        &mut self,
        stacks: &Stacks,
        search: Search<'_>,
        lost: Vec<Loss>,
        shown: Option<u32>,
        clock: Clock,
    ) -> Result<Named> {
        let facts = search.facts;
        let (nodes, named) = self.stacks(stacks, search)?;
        self.learn_command(search.features, search.endian);
        let start = stacks.span().map(|(start, _)| start);
        if self.recordings == 0 {
            self.start = start.and_then(|start| clock.wall_ns(start.ns())).map(|ns| ns as f64 / 1e6);
        }
        // The profiler requires a time, so samples without one go to the start.
        let since_start = |time: Option<Time>| {
            time.zip(start).map_or(0, |(time, start)| time.ns().saturating_sub(start.ns()))
        };
        let ms = |time: Option<Time>| since_start(time) as f64 / 1e6;
        let mut rows: ThreadRows<'_> = BTreeMap::new();
        let is_shown = |row: &Row| shown.is_none_or(|shown| shown == row.event);
        for (row, &weight) in &stacks.rows {
            let label = &stacks.labels[row.label as usize];
            let number = |number: Option<u32>| number.unwrap_or(KERNEL_PID);
            let thread = (label.machine, number(label.pid), number(label.tid));
            rows.entry(thread).or_default().push((row, weight));
        }
        let mut first_of_process: HashMap<(Machine, u32), usize> = HashMap::new();
        let name = |machine, tid| {
            let name = facts.tasks.name(machine, tid, OrderKey::END);
            String::from_utf8_lossy(&name).into_owned()
        };
        let own_lost: HashMap<ThreadKey, Vec<Loss>> = by_thread(lost, &rows);
        let sampled = stacks.sampled(facts);
        let weighs_time = weighs_time(&sampled, shown);
        let lasts = shown.and_then(|shown| facts.events.get(shown as usize)).is_some_and(EventFacts::lasts);
        for rows in rows.values_mut() {
            match lasts {
                // By start; of those that start together, the one with a duration is last.
                true => rows.sort_by_key(|(row, weight)| (row.time.is_none(), row.time, weight.period > 0)),
                false => {
                    rows.sort_unstable_by_key(|(row, _)| {
                        (since_start(row.time), row.event, row.stack, row.label)
                    });
                }
            }
        }
        let usual = Usual::of(
            facts,
            shown,
            rows.values().map(|rows| {
                rows.iter().filter(|(row, _)| is_shown(row)).map(|(row, _)| since_start(row.time))
            }),
        );
        self.interval = self.interval.or(usual.interval.map(|ns| ns as f64 / 1e6));
        for (&(machine, pid, tid), rows) in &rows {
            let own = rows.iter().filter(|(row, _)| is_shown(row));
            let own = own.map(|&(row, weight)| (since_start(row.time), row, weight));
            let samples = match lasts {
                true => Samples::lasting(own, stacks, &nodes),
                false => Samples::of(own, &nodes, weighs_time, |row, weight, distance| {
                    usual.on_cpu(facts, row.event, weight, distance)
                }),
            };
            let mut markers = Markers::default();
            for loss in own_lost.get(&(machine, pid, tid)).into_iter().flatten() {
                let what = if loss.samples { "lost samples" } else { "lost records" };
                markers.add(ms(loss.time), self.shared.string(what), loss.count);
            }
            let startup = ms(rows.first().and_then(|(row, _)| row.time));
            first_of_process.entry((machine, pid)).or_insert(self.threads.len());
            self.threads.push(Thread {
                is_main_thread: pid == tid,
                markers,
                name: name(machine, tid),
                paused_ranges: [],
                pid: self.number(machine, pid),
                process_name: name(machine, pid),
                process_shutdown_time: None,
                process_startup_time: startup,
                process_type: "default",
                register_time: startup,
                samples,
                show_markers_in_timeline: true,
                tid: self.number(machine, tid),
                unregister_time: None,
            });
        }
        self.counters(&sampled, &rows, &first_of_process, &|row| !is_shown(row), &since_start);
        self.recordings += 1;
        Ok(named)
    }

    fn number(&self, machine: Machine, number: u32) -> String {
        let machine = machine.guest().map_or_else(String::new, |pid| format!("{pid}:"));
        let recording = if self.recordings == 0 { String::new() } else { format!(".{}", self.recordings) };
        format!("{machine}{}{recording}", number as i32)
    }

    fn learn_command(&mut self, features: &Features, endian: Endian) {
        let line = features.get(&Feature::CMDLINE).and_then(|section| read_cmdline(section, endian));
        let words = line.into_iter().flatten().map(|word| String::from_utf8_lossy(word).into_owned());
        let command = words.collect::<Vec<_>>().join(" ");
        self.command = self.command.take().or(Some(command).filter(|command| !command.is_empty()));
    }

    fn stacks(&mut self, stacks: &Stacks, search: Search<'_>) -> Result<(Vec<u32>, Named)> {
        let mut of_frames: Vec<Vec<u32>> = vec![Vec::new(); stacks.tree.frames().len()];
        let FirefoxProfile { shared, libs, .. } = self;
        let named = stacks.name_frames(search, |number, frame, name| {
            of_frames[number as usize] = frames(shared, libs, search.facts, frame, &name);
        })?;
        Ok((stacks.tree.renamed(&mut shared.stacks, &of_frames, |_| false), named))
    }

    fn counters(
        &mut self,
        sampled: &SampledEvents<'_>,
        rows: &ThreadRows<'_>,
        first_of_process: &HashMap<(Machine, u32), usize>,
        is_counted: &dyn Fn(&Row) -> bool,
        since_start: &dyn Fn(Option<Time>) -> u64,
    ) {
        let mut counts: BTreeMap<((Machine, u32), u32), BTreeMap<u64, u64>> = BTreeMap::new();
        for (&(machine, pid, _), rows) in rows {
            let process = (machine, pid);
            for (row, weight) in rows.iter().filter(|(row, _)| is_counted(row)) {
                let count =
                    counts.entry((process, row.event)).or_default().entry(since_start(row.time)).or_default();
                *count = count.saturating_add(weight.period);
            }
        }
        for ((process, event), counts) in counts {
            let name = sampled.name(event).into_owned();
            let mut samples = CounterSamples::default();
            let mut last = 0.0;
            for (time, count) in counts {
                let time = time as f64 / 1e6;
                samples.time_deltas.push(time - last);
                samples.count.push(count);
                last = time;
            }
            samples.length = samples.count.len();
            self.counters.push(Counter {
                category: "Events",
                description: format!("{name} of the process"),
                display: Display {
                    color: "blue",
                    graph_type: "line-rate",
                    label: name.clone(),
                    marker_schema_location: None,
                    sort_weight: 20,
                    unit: "",
                },
                main_thread_index: first_of_process.get(&process).copied().unwrap_or(0),
                name,
                pid: self.number(process.0, process.1),
                samples,
            });
        }
    }

    /// The number of threads.
    pub fn threads(&self) -> usize {
        self.threads.len()
    }

    /// The number of samples; those with the same time and stack count once.
    pub fn samples(&self) -> u64 {
        self.threads.iter().map(|thread| thread.samples.length as u64).sum()
    }

    fn program(&self) -> Option<&str> {
        let mut sums = BTreeMap::<&str, usize>::new();
        for thread in &self.threads {
            *sums.entry(&thread.process_name).or_default() += thread.samples.length;
        }
        let (name, _) = sums.into_iter().rev().max_by_key(|(_, samples)| *samples)?;
        Some(name).filter(|name| !name.is_empty())
    }

    /// Counters by event and process.
    pub fn counter_tracks(&self) -> usize {
        self.counters.len()
    }

    /// Writes the profile, compressed.
    ///
    /// # Errors
    ///
    /// Those of `out`.
    pub fn write(&self, out: &mut dyn Write) -> io::Result<()> {
        // Without a time and a name, the same profile has the same bytes.
        let packed = GzBuilder::new().mtime(0).write(out, Compression::default());
        // Writes to the encoder are expensive, and JSON comes in small pieces.
        let mut buffered = BufWriter::with_capacity(1 << 16, packed);
        serde_json::to_writer(&mut buffered, &self.document())?;
        buffered.into_inner().map_err(IntoInnerError::into_error)?.finish()?.flush()
    }

    fn document(&self) -> impl Serialize {
        let category =
            |name, color| serde_json::json!({ "name": name, "color": color, "subcategories": ["Other"] });
        let lost = serde_json::json!({
            "name": LOST,
            "tableLabel": "{marker.name}: {marker.data.count}",
            "display": ["marker-chart", "marker-table", "timeline-overview"],
            "fields": [{ "key": "count", "label": "Number", "format": "integer" }],
            "description": "Records that the kernel could not write",
        });
        let meta = serde_json::json!({
            "arguments": self.command,
            "categories": [category("Other", "grey"), category("User", "yellow"), category("Kernel", "orange")],
            "debug": false,
            "extensions": { "baseURL": [], "id": [], "length": 0, "name": [] },
            // 1 is the profiler's own default.
            "interval": self.interval.unwrap_or(1.0),
            "markerSchema": [lost],
            "pausedRanges": [],
            "preprocessedProfileVersion": 62,
            "processType": 0,
            "product": self.program().unwrap_or("perf record"),
            "sampleUnits": { "eventDelay": "ms", "threadCPUDelta": "µs", "time": "ms" },
            "sourceCodeIsNotOnSearchfox": true,
            "startTime": self.start.unwrap_or(0.0),
            "symbolicated": true,
            "usesOnlyOneStackType": true,
            "version": 24,
        });
        Document {
            meta,
            libs: self.libs.iter().collect(),
            shared: self.shared.columns(),
            threads: &self.threads,
            counters: &self.counters,
            pages: [],
            profiler_overhead: [],
        }
    }
}

impl Samples {
    /// The samples of a thread in time order, each after its time since the start, ns. With `weighs_time`,
    /// their weights are their periods. `on_cpu` is the time on a CPU since the previous sample, ns.
    fn of<'r>(
        rows: impl Iterator<Item = (u64, &'r Row, Weight)>,
        nodes: &[u32],
        weighs_time: bool,
        on_cpu: impl Fn(&Row, Weight, u64) -> Option<u64>,
    ) -> Samples {
        let mut samples = Samples::default();
        let (mut cpu_deltas, mut weights, mut last) = (Vec::new(), Vec::new(), 0);
        for (time, row, weight) in rows {
            samples.add(nodes.get(row.stack as usize).copied(), time - last);
            cpu_deltas.extend(on_cpu(row, weight, time - last).map(|ns| ns as f64 / 1e3));
            weights.push(weight);
            last = time;
        }
        // All or none: the profiler would guess missing ones.
        samples.cpu_deltas = Some(cpu_deltas).filter(|deltas| deltas.len() == samples.length);
        (samples.weight_type, samples.weight) = match weighs_time {
            true => (MS, Weights::Times(weights.iter().map(|weight| weight.period as f64 / 1e6).collect())),
            false => ("samples", Weights::Samples(weights.iter().map(|weight| weight.samples).collect())),
        };
        samples
    }

    /// Like `of`, for samples that last for their period; a gap becomes a sample without a stack.
    fn lasting<'r>(
        rows: impl Iterator<Item = (u64, &'r Row, Weight)>,
        stacks: &Stacks,
        nodes: &[u32],
    ) -> Samples {
        let mut samples = Samples { weight_type: MS, ..Samples::default() };
        let (mut cpu_deltas, mut weights) = (Vec::new(), Vec::new());
        // Of the last sample: start, end, and time on a CPU.
        let (mut last, mut end, mut on_cpu) = (0, None, 0);
        let mut add = |time: u64, stack: Option<u32>, period: u64, on_cpu: u64| {
            samples.add(stack, time - last);
            cpu_deltas.push(on_cpu.min(time - last) as f64 / 1e3);
            weights.push(period as f64 / 1e6);
            last = time;
        };
        for (time, row, weight) in rows {
            if let Some(end) = end.filter(|end| *end < time) {
                add(end, None, 0, std::mem::take(&mut on_cpu));
            }
            add(time, nodes.get(row.stack as usize).copied(), weight.period, on_cpu);
            end = end.max(Some(time + weight.period));
            let is_untraced = stacks.tree.innermost(row.stack) == Some(Frame::UNTRACED);
            on_cpu = if is_untraced { 0 } else { weight.period };
        }
        end.into_iter().for_each(|end| add(end, None, 0, on_cpu));
        (samples.cpu_deltas, samples.weight) = (Some(cpu_deltas), Weights::Times(weights));
        samples
    }

    fn add(&mut self, stack: Option<u32>, distance: u64) {
        self.stack.push(stack);
        self.time_deltas.push(distance as f64 / 1e6);
        self.length += 1;
    }
}

impl Markers {
    fn add(&mut self, time: f64, name: u32, count: u64) {
        self.length += 1;
        self.category.push(0);
        self.data.push(MarkerData { r#type: LOST, count });
        self.end_time.push(None);
        self.name.push(name);
        self.phase.push(0);
        self.start_time.push(time);
    }
}

/// True if all shown periods are times. For others the format has no unit: the samples have equal weights.
fn weighs_time(sampled: &SampledEvents<'_>, shown: Option<u32>) -> bool {
    let mut events = sampled.iter().filter(|(event, _)| shown.is_none_or(|shown| shown == *event)).peekable();
    events.peek().is_some() && events.all(|(event, weight)| sampled.is_time(event) && weight.period > 0)
}

type ThreadKey = (Machine, u32, u32);

/// The rows of each thread, with their weights.
type ThreadRows<'s> = BTreeMap<ThreadKey, Vec<(&'s Row, Weight)>>;

/// The losses of each thread that has samples; the first thread shows the others.
fn by_thread(lost: Vec<Loss>, rows: &ThreadRows<'_>) -> HashMap<ThreadKey, Vec<Loss>> {
    let mut all: HashMap<ThreadKey, Vec<Loss>> = HashMap::new();
    for loss in lost {
        let own = loss.thread.map(|(pid, tid)| (Machine::Host, pid, tid));
        let own = own.filter(|thread| rows.contains_key(thread));
        let Some(thread) = own.or_else(|| rows.keys().next().copied()) else { continue };
        all.entry(thread).or_default().push(loss);
    }
    all
}

/// Records that the kernel lost, in file order. A loss that two kinds of records report is counted once.
///
/// # Errors
///
/// The recording cannot be read.
pub fn losses(recording: &mut Recording, threads: usize) -> Result<Vec<Loss>> {
    let wanted = Kinds::LOST;
    let (mut sums, mut all) = (Losses::default(), Vec::<(LostSum, Loss)>::new());
    let work = |batch: &Batch| {
        let (mut sums, mut lost) = (Losses::default(), Vec::new());
        let mut walker = batch.walk();
        while batch.kinds.intersects(wanted)
            && let Some(record) = walker.next_wanted(wanted, usize::MAX)?
        {
            let layout = batch.layouts.layout_of(&record);
            let Some((sum, count)) = LostSum::of(&record, &batch.layouts) else { continue };
            sums.add(&record, &batch.layouts);
            let time = layout.and_then(|layout| layout.time(&record));
            let thread = layout.and_then(|layout| layout.pid_tid(&record));
            let samples = matches!(Lost::of(&record), Some(Lost::Samples(_)));
            lost.push((sum, Loss { time, thread, count, samples }));
        }
        Ok((sums, lost))
    };
    // Damage was reported when the samples were read.
    scan(recording, threads, true, work, |_, (part, lost)| {
        sums.join(part);
        all.extend(lost);
        Ok(())
    })?;
    Ok(all.into_iter().filter(|(sum, _)| sums.counts(*sum)).map(|(_, loss)| loss).collect())
}

/// Outermost first.
fn frames(
    shared: &mut Shared,
    libs: &mut IndexSet<Lib, RandomState>,
    facts: &Facts,
    frame: Frame,
    name: &FrameName<'_>,
) -> Vec<u32> {
    let resource = name.dso.as_ref().map(|dso| {
        let lib = lib(&String::from_utf8_lossy(dso), build_id(frame, facts));
        let name = shared.string(&lib.name);
        let lib = libs.insert_full(lib).0 as u32;
        shared.resources.insert_full((lib, name)).0 as u32
    });
    let kernel = matches!(frame.mode, KERNEL | GUEST_KERNEL);
    let address = resource.map(|_| frame.at);
    let mut add = |name: &str, depth, file: Option<&str>, line| {
        let name = shared.string(name);
        let source =
            file.map(|file| shared.string(file)).map(|file| shared.sources.insert_full(file).0 as u32);
        let function = shared.functions.insert_full(FunctionRow { name, resource, source }).0 as u32;
        shared.frames.insert_full(FrameRow { address, depth, function, line, kernel }).0 as u32
    };
    if name.functions.is_empty() {
        return vec![add(&format!("{:#x}", frame.at), 0, None, None)];
    }
    let functions = (0..).zip(&name.functions);
    functions
        .map(|(depth, function)| add(&function.name, depth, function.file.as_deref(), function.line))
        .collect()
}

fn build_id(frame: Frame, facts: &Facts) -> Option<String> {
    let dso = frame.dso.filter(|_| frame.process == 0)?;
    let (dso, _) = facts.spaces.dsos().get(dso as usize).filter(|(dso, _)| !dso_name(dso).is_empty())?;
    facts.ids.get(dso).map(|id| id.to_string())
}

fn lib(path: &str, build_id: Option<String>) -> Lib {
    let name = path.rsplit('/').next().unwrap_or(path).to_owned();
    Lib {
        arch: None,
        breakpad_id: breakpad_id(build_id.as_deref().unwrap_or("")),
        code_id: build_id,
        debug_name: name.clone(),
        debug_path: path.to_owned(),
        name,
        path: path.to_owned(),
    }
}

/// Breakpad's id: the first 16 bytes of the build-id as a GUID (first three numbers little-endian), and age
/// 0.
fn breakpad_id(build_id: &str) -> String {
    let digits = format!("{build_id:0<32}").to_ascii_uppercase();
    let pair = |at: usize| digits.get(2 * at..2 * at + 2).unwrap_or("00");
    let order = [3, 2, 1, 0, 5, 4, 7, 6, 8, 9, 10, 11, 12, 13, 14, 15];
    order.map(pair).concat() + "0"
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Document<'p> {
    meta: serde_json::Value,
    libs: Vec<&'p Lib>,
    shared: Columns<'p>,
    threads: &'p [Thread],
    counters: &'p [Counter],
    pages: [u8; 0],
    profiler_overhead: [u8; 0],
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct Columns<'p> {
    frame_table: FrameTable,
    func_table: FuncTable,
    native_symbols: NativeSymbols,
    resource_table: ResourceTable,
    sources: SourceTable,
    stack_table: StackColumns,
    string_array: Vec<&'p str>,
}

#[derive(Serialize)]
struct FrameTable {
    length: usize,
    address: Vec<i64>,
    category: Vec<u32>,
    column: Vec<Option<u32>>,
    func: Vec<u32>,
    #[serde(rename = "inlineDepth")]
    inline_depth: Vec<u32>,
    #[serde(rename = "innerWindowID")]
    inner_window_id: Vec<u32>,
    line: Vec<Option<u32>>,
    #[serde(rename = "nativeSymbol")]
    native_symbol: Vec<Option<u32>>,
    subcategory: Vec<u32>,
}

#[derive(Serialize)]
struct FuncTable {
    length: usize,
    #[serde(rename = "columnNumber")]
    column_number: Vec<Option<u32>>,
    #[serde(rename = "isJS")]
    is_js: Vec<bool>,
    #[serde(rename = "lineNumber")]
    line_number: Vec<Option<u32>>,
    name: Vec<u32>,
    #[serde(rename = "relevantForJS")]
    relevant_for_js: Vec<bool>,
    resource: Vec<i64>,
    source: Vec<Option<u32>>,
}

#[derive(Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct NativeSymbols {
    length: usize,
    address: [u64; 0],
    function_size: [u64; 0],
    lib_index: [u32; 0],
    name: [u32; 0],
}

#[derive(Serialize)]
struct ResourceTable {
    length: usize,
    host: Vec<Option<u32>>,
    lib: Vec<u32>,
    name: Vec<u32>,
    r#type: Vec<u32>,
}

#[derive(Serialize)]
struct SourceTable {
    length: usize,
    filename: Vec<u32>,
    id: Vec<Option<u32>>,
    #[serde(rename = "sourceMapURL")]
    source_map_url: Vec<Option<u32>>,
    #[serde(rename = "startColumn")]
    start_column: Vec<u32>,
    #[serde(rename = "startLine")]
    start_line: Vec<u32>,
}

#[derive(Serialize)]
struct StackColumns {
    length: usize,
    frame: Vec<u32>,
    prefix: Vec<Option<u32>>,
}

impl Shared {
    fn columns(&self) -> Columns<'_> {
        let Shared { strings, sources, resources, functions, frames, stacks } = self;
        let signed = |number: Option<u64>| number.map_or(-1, |number| i64::try_from(number).unwrap_or(-1));
        Columns {
            frame_table: FrameTable {
                length: frames.len(),
                address: frames.iter().map(|frame| signed(frame.address)).collect(),
                category: frames
                    .iter()
                    .map(|frame| if frame.kernel { KERNEL_CATEGORY } else { USER_CATEGORY })
                    .collect(),
                column: vec![None; frames.len()],
                func: frames.iter().map(|frame| frame.function).collect(),
                inline_depth: frames.iter().map(|frame| frame.depth).collect(),
                inner_window_id: vec![0; frames.len()],
                line: frames.iter().map(|frame| frame.line).collect(),
                native_symbol: vec![None; frames.len()],
                subcategory: vec![0; frames.len()],
            },
            func_table: FuncTable {
                length: functions.len(),
                column_number: vec![None; functions.len()],
                is_js: vec![false; functions.len()],
                line_number: vec![None; functions.len()],
                name: functions.iter().map(|function| function.name).collect(),
                relevant_for_js: vec![false; functions.len()],
                resource: functions.iter().map(|function| function.resource.map_or(-1, i64::from)).collect(),
                source: functions.iter().map(|function| function.source).collect(),
            },
            native_symbols: NativeSymbols::default(),
            resource_table: ResourceTable {
                length: resources.len(),
                host: vec![None; resources.len()],
                lib: resources.iter().map(|&(lib, _)| lib).collect(),
                name: resources.iter().map(|&(_, name)| name).collect(),
                r#type: vec![1; resources.len()],
            },
            sources: SourceTable {
                length: sources.len(),
                filename: sources.iter().copied().collect(),
                id: vec![None; sources.len()],
                source_map_url: vec![None; sources.len()],
                start_column: vec![1; sources.len()],
                start_line: vec![1; sources.len()],
            },
            stack_table: StackColumns {
                length: stacks.len(),
                frame: stacks.iter().map(|&(_, frame)| frame).collect(),
                prefix: stacks
                    .iter()
                    .map(|&(parent, _)| Some(parent).filter(|&parent| parent != StackTree::ROOT))
                    .collect(),
            },
            string_array: strings.iter().map(String::as_str).collect(),
        }
    }
}

/// The usual interval between samples while a CPU is busy.
#[derive(Clone, Copy, Debug)]
struct Usual {
    /// ns; `None` if no thread has two samples.
    interval: Option<u64>,
}

impl Usual {
    /// The interval of the shown event, or else the median distance between samples of each thread. A mean
    /// would include waiting times; so does the median if threads wait most of the time.
    fn of(
        facts: &Facts,
        shown: Option<u32>,
        threads: impl Iterator<Item = impl Iterator<Item = u64>>,
    ) -> Usual {
        let recorded = shown.and_then(|event| facts.events.get(event as usize)?.interval());
        Usual { interval: recorded.or_else(|| median_distance(threads)) }
    }

    /// The CPU time of a thread before a sample, ns, at `distance` from the previous one: the count of a
    /// clock event, else at most the usual distance. `None` if the event does not count work.
    fn on_cpu(self, facts: &Facts, event: u32, weight: Weight, distance: u64) -> Option<u64> {
        let event = facts.events.get(event as usize).filter(|event| event.counts_work())?;
        let most = if event.counts_time() {
            weight.period
        } else {
            event.interval().or(self.interval)?.saturating_mul(weight.samples)
        };
        Some(distance.min(most))
    }
}

/// The median distance between the ascending times of each thread; `None` if it is 0.
fn median_distance(threads: impl Iterator<Item = impl Iterator<Item = u64>>) -> Option<u64> {
    let mut distances = Vec::new();
    for mut times in threads {
        let Some(mut last) = times.next() else { continue };
        distances.extend(times.map(|time| time - std::mem::replace(&mut last, time)));
    }
    let middle = distances.len() / 2;
    if distances.is_empty() {
        return None;
    }
    let (_, median, _) = distances.select_nth_unstable(middle);
    Some(*median).filter(|&median| median > 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waiting_is_not_part_of_the_interval() {
        let median = |threads: &[&[u64]]| median_distance(threads.iter().map(|times| times.iter().copied()));
        assert_eq!(median(&[&[0, 1, 2, 502], &[7, 8, 9]]), Some(1));
        assert_eq!(median(&[&[0, 25, 50, 3050]]), Some(25));
        assert_eq!((median(&[]), median(&[&[3], &[9]]), median(&[&[3, 3]])), (None, None, None));
    }

    #[test]
    fn breakpads_id_is_that_of_the_file() {
        let ids = ["510d0a5c19eadf8043f203b4525be9be3dcb9554", "ab", ""].map(breakpad_id);
        assert_eq!(ids[0], "5C0A0D51EA1980DF43F203B4525BE9BE0");
        assert_eq!(ids[1..], ["000000AB0000000000000000000000000", "000000000000000000000000000000000"]);
    }

    /// Stack, distance from the previous sample in ms, and time on a CPU in µs.
    fn shown(samples: &Samples) -> Vec<(Option<u32>, f64, Option<f64>)> {
        let cpu = |at: usize| samples.cpu_deltas.as_ref().map(|deltas| deltas[at]);
        (0..samples.length).map(|at| (samples.stack[at], samples.time_deltas[at], cpu(at))).collect()
    }

    #[test]
    fn samples_have_distances_and_the_time_on_a_cpu_if_all_have_one() {
        let row = |stack| Row { event: 0, label: 0, stack, time: None };
        let rows = [row(0), row(1), row(StackTree::ROOT)];
        let weight = |period| Weight { samples: 2, period };
        let of = |weighs_time, most| {
            let times = [(0, weight(5_000)), (3_000_000, weight(2_000)), (3_500_000, weight(0))];
            let rows = times.into_iter().zip(&rows).map(|((time, weight), row)| (time, row, weight));
            Samples::of(rows, &[7, 8], weighs_time, |_, _, distance| {
                (distance < most).then_some(distance / 2)
            })
        };
        let all = of(false, u64::MAX);
        let cpu = [(Some(7), 0.0, Some(0.0)), (Some(8), 3.0, Some(1500.0)), (None, 0.5, Some(250.0))];
        assert_eq!(shown(&all), cpu);
        assert!(
            matches!(&all.weight, Weights::Samples(weights) if *weights == [2, 2, 2])
                && all.weight_type == "samples"
        );
        let timed = of(true, 1_000_000);
        assert_eq!(shown(&timed), cpu.map(|(stack, distance, _)| (stack, distance, None)));
        assert!(
            matches!(&timed.weight, Weights::Times(weights) if *weights == [0.005, 0.002, 0.0])
                && timed.weight_type == MS
        );
    }

    #[test]
    fn a_sample_that_lasts_ends_with_an_empty_stack_unless_the_next_follows_at_once() {
        let mut stacks = Stacks::default();
        let frames = [Frame { dso: None, at: 1, mode: 2, process: 0 }, Frame::UNTRACED];
        for frame in frames {
            let frame = stacks.tree.frame(frame).unwrap();
            stacks.tree.child(StackTree::ROOT, frame).unwrap();
        }
        let row = |stack| Row { event: 0, label: 0, stack, time: None };
        let (code, untraced) = (row(0), row(1));
        let weight = |period| Weight { samples: 1, period };
        let rows = [
            (0, &code, weight(1_000_000)),
            (1_000_000, &untraced, weight(2_000_000)),
            (5_000_000, &code, weight(500_000)),
        ];
        let samples = Samples::lasting(rows.into_iter(), &stacks, &[7, 8]);
        let expected = [
            (Some(7), 0.0, Some(0.0)),
            (Some(8), 1.0, Some(1000.0)),
            (None, 2.0, Some(0.0)),
            (Some(7), 2.0, Some(0.0)),
            (None, 0.5, Some(500.0)),
        ];
        assert_eq!(shown(&samples), expected);
        assert!(matches!(&samples.weight, Weights::Times(weights) if *weights == [1.0, 2.0, 0.0, 0.5, 0.0]));
        assert_eq!(Samples::lasting([].into_iter(), &stacks, &[]).length, 0);
    }

    #[test]
    fn losses_without_a_shown_thread_are_of_the_first_one() {
        let loss = |thread| Loss { time: None, thread, count: 1, samples: false };
        let rows = BTreeMap::from([((Machine::Host, 5, 6), vec![]), ((Machine::Host, 7, 8), vec![])]);
        let all = by_thread(vec![loss(Some((7, 8))), loss(Some((7, 9))), loss(None)], &rows);
        let count = |pid, tid| all.get(&(Machine::Host, pid, tid)).map(Vec::len);
        assert_eq!((count(5, 6), count(7, 8), all.len()), (Some(2), Some(1), 2));
        assert!(by_thread(vec![loss(None)], &BTreeMap::new()).is_empty());
        let lib = lib("/usr/bin/prog", Some("ab".to_owned()));
        assert_eq!((&*lib.name, &*lib.path, lib.code_id.as_deref()), ("prog", "/usr/bin/prog", Some("ab")));
        let mut profile = FirefoxProfile::default();
        assert_eq!((profile.threads(), profile.samples(), profile.counter_tracks()), (0, 0, 0));
        assert_eq!(profile.number(Machine::Host, u32::MAX), "-1");
        profile.recordings = 2;
        assert_eq!(profile.number(Machine::Guest(9), 5), "9:5.2");
    }
}

//! Gathers the contents of the tables.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap};
use std::fs::File;

use ::csv::ByteRecord;
use foldhash::fast::RandomState;
use perfx_filter::SelectedSamples;
use perfx_format::decode::decode;
use perfx_format::read::Recording;
use perfx_format::record::time::own_time;
use perfx_format::siblings::CountedAs;
use perfx_format::{Comm, HexNumber, Kinds, Layouts, Record, RecordType, Task, Value, named_pid};
use perfx_look::render::{Style, kind_name, push_line, push_number};
use perfx_model::address_space::{KERNEL, Lookup, name_of_nameless};
use perfx_pipeline::{Report, Result};
use perfx_resolve::Facts;
use perfx_samples::{Before, Counters, Late, Losses, SampleView, Visit, visit};

use super::cell::plain;
use super::overview::Rows;
use crate::sorted::Sorted;
use crate::stacks::Weight;

/// A sample's address: an offset in a file, or itself in a kernel or outside of mappings.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub(super) struct HitKey {
    pub(super) event: u32,
    pub(super) dso: Option<u32>,
    pub(super) address: u64,
}

/// Each address takes about 40 bytes of memory.
pub(super) type Hits = HashMap<HitKey, Weight, RandomState>;

/// All processes with the same pid. There may be millions, so rare fields are boxed.
#[derive(Clone, Default, Debug)]
pub(super) struct Process {
    /// The last name of its main thread, and when it got that.
    comm: Option<Box<(u64, Box<[u8]>)>>,
    pub(super) mappings: u64,
    pub(super) fork: Option<u64>,
    pub(super) exit: Option<u64>,
    parent: Option<u32>,
    pub(super) count: Weight,
}

impl Process {
    fn join(&mut self, later: Process) {
        if later.comm.as_ref().map(|comm| comm.0) >= self.comm.as_ref().map(|comm| comm.0) {
            self.comm = later.comm.or(self.comm.take());
        }
        self.mappings += later.mappings;
        self.fork = self.fork.into_iter().chain(later.fork).min();
        self.exit = self.exit.max(later.exit);
        self.parent = self.parent.or(later.parent);
        self.count += later.count;
    }
}

#[derive(Default)]
pub(super) struct Processes {
    places: HashMap<Option<u32>, u32>,
    list: Vec<Process>,
}

impl Processes {
    fn of(&mut self, pid: Option<u32>) -> &mut Process {
        let place = *self.places.entry(pid).or_insert(self.list.len() as u32) as usize;
        if place == self.list.len() {
            self.list.push(Process::default());
        }
        &mut self.list[place]
    }

    fn join(&mut self, later: Processes) {
        let mut list = later.list;
        for (pid, place) in later.places {
            self.of(pid).join(std::mem::take(&mut list[place as usize]));
        }
    }

    pub(super) fn len(&self) -> usize {
        self.list.len()
    }

    /// Sorted by pid, each with its last name, that of its nearest named ancestor, or perf's name.
    pub(super) fn named(&self) -> impl Iterator<Item = (Option<u32>, Cow<'_, [u8]>, &Process)> {
        let namesakes = self.namesakes();
        let mut pids: Vec<_> = self.places.iter().map(|(&pid, &place)| (pid, place)).collect();
        pids.sort_unstable();
        pids.into_iter().map(move |(pid, place)| {
            let named = self.list.get(namesakes[place as usize] as usize);
            let name = named.and_then(|named| named.comm.as_ref()).map(|comm| Cow::Borrowed(&*comm.1));
            let nameless =
                || pid.filter(|&pid| pid != KERNEL).map(name_of_nameless).unwrap_or_default().into();
            let name = name.unwrap_or_else(nameless);
            (pid, name, &self.list[place as usize])
        })
    }

    /// For each index, that of the process whose name it has.
    fn namesakes(&self) -> Vec<u32> {
        let mut namesakes = vec![OPEN; self.list.len()];
        let mut heirs = Vec::new();
        for place in 0..self.list.len() {
            let mut next = Some(place as u32);
            let namesake = loop {
                let Some(place) = next else { break NAMELESS };
                let known = &mut namesakes[place as usize];
                if *known != OPEN {
                    break *known;
                }
                let process = &self.list[place as usize];
                if process.comm.is_some() {
                    break place;
                }
                // A process that the search reaches again is its own ancestor.
                *known = NAMELESS;
                heirs.push(place);
                next = process.parent.and_then(|parent| self.places.get(&Some(parent))).copied();
            };
            heirs.drain(..).for_each(|heir| namesakes[heir as usize] = namesake);
            if self.list[place].comm.is_some() {
                namesakes[place] = place as u32;
            }
        }
        namesakes
    }
}

/// There is no name, or it is not yet known.
const NAMELESS: u32 = u32::MAX;
const OPEN: u32 = u32::MAX - 1;

pub(super) struct Gathered {
    pub(super) kinds: BTreeMap<RecordType, u64>,
    pub(super) overview: Sorted,
    pub(super) hits: Hits,
    pub(super) processes: Processes,
}

/// Reads all records; also returns the losses of samples. `spill` is an empty file.
pub(super) fn gather(
    recording: &mut Recording,
    (facts, counted_as): (&Facts, &[Option<CountedAs>]),
    spill: File,
    threads: usize,
    report: &mut Report,
) -> Result<(Gathered, Losses)> {
    let mut all = Gathered {
        kinds: BTreeMap::new(),
        overview: Sorted::new(spill),
        hits: Hits::default(),
        processes: Processes::default(),
    };
    let lookup = || Lookup::new(facts.spaces.clone());
    let labels: Vec<String> = match &facts.events[..] {
        [_] => vec![String::new()],
        events => events.iter().map(|event| format!("event={} ", plain(&event.name))).collect(),
    };
    let new = || Reader {
        facts,
        labels: &labels,
        counted_as,
        lookup: lookup(),
        rows: Rows::new(),
        row: Row::default(),
        part: Part::default(),
    };
    let none = None::<&SelectedSamples>;
    let (losses, bytes) = visit(recording, (facts, none), threads, report, new, &mut all)?;
    report.read.bytes += bytes;
    Ok((all, losses))
}

type Target = (Option<u32>, HitKey);

fn add(hits: &mut Hits, processes: &mut Processes, (pid, hit_key): Target, period: u64) {
    let count = Weight { samples: 1, period };
    *hits.entry(hit_key).or_default() += count;
    processes.of(pid).count += count;
}

#[derive(Default)]
struct Part {
    kinds: BTreeMap<RecordType, u64>,
    rows: Vec<u8>,
    hits: Hits,
    processes: Processes,
    late: Late<Target>,
}

struct Reader<'f> {
    facts: &'f Facts,
    labels: &'f [String],
    counted_as: &'f [Option<CountedAs>],
    lookup: Lookup,
    rows: Rows,
    row: Row,
    part: Part,
}

impl Visit for Reader<'_> {
    type Part = Part;
    type All = Gathered;
    const OTHERS: Kinds = Kinds::ALL;

    fn other(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        *self.part.kinds.entry(record.kind()).or_default() += 1;
        let time = time_of(record, layouts);
        self.row.fill(record, time, layouts, (self.facts, self.labels));
        self.rows.push(time, &self.row.cells)?;
        self.part.task(record, time, layouts);
        Ok(())
    }

    fn sample(&mut self, sample: SampleView<'_>, event: usize, counters: &mut Counters<'_>) -> Result<()> {
        counters.losses.see(sample);
        let Reader { facts, counted_as, lookup, part: Part { hits, processes, late, .. }, .. } = self;
        let (pid, ip) = (sample.pid(), sample.ip().unwrap_or(0));
        let space = sample.space(&facts.guests, sample.record.cpumode());
        let hit = space.and_then(|space| lookup.find(space, ip, sample.key()));
        let address = hit.map_or(ip, |hit| facts.files.offset(hit, ip));
        let dso = hit.map(|hit| hit.dso);
        let target = |event: usize| {
            let event = counted_as[event].as_ref()?.first as u32;
            Some((pid, HitKey { event, dso, address }))
        };
        counters.count(sample, event, late, target, |target, period| add(hits, processes, target, period));
        Ok(())
    }

    fn part(mut self, _passed_over: u64) -> Result<Part> {
        self.part.rows = self.rows.sorted();
        Ok(self.part)
    }

    fn join(all: &mut Gathered, part: Part, before: &Before) -> Result<()> {
        let Gathered { kinds, overview, hits, processes } = all;
        overview.push(&part.rows, part.kinds.values().sum())?;
        for (kind, count) in part.kinds {
            *kinds.entry(kind).or_default() += count;
        }
        for (hit_key, count) in part.hits {
            *hits.entry(hit_key).or_default() += count;
        }
        processes.join(part.processes);
        before.count(part.late, |target, period| add(hits, processes, target, period));
        Ok(())
    }
}

/// The time, ns. FORK and EXIT have a time field of their own, for recordings without a trailer.
fn time_of(record: &Record<'_>, layouts: &Layouts) -> Option<u64> {
    layouts.recorded_time(record).or_else(|| own_time(record)).filter(|&time| time != u64::MAX)
}

impl Part {
    fn task(&mut self, record: &Record<'_>, time: Option<u64>, layouts: &Layouts) {
        let pid = named_pid(record);
        match record.kind() {
            kind if Kinds::MAPPINGS.contains(kind) => self.processes.of(pid).mappings += 1,
            RecordType::COMM => {
                let layout = layouts.layout_of(record);
                let trailer = layout.map_or(0, |layout| usize::from(layout.trailer.size));
                if let Some(Comm { name, .. }) = Comm::of(record, trailer).filter(|comm| comm.pid == comm.tid)
                {
                    let comm = Some(Box::new((time.unwrap_or(0), name.into())));
                    self.processes.of(pid).join(Process { comm, ..Process::default() });
                }
            }
            RecordType::FORK => {
                if let Some(task) = Task::of(record).filter(|task| task.pid != task.ppid) {
                    let forked = Process { fork: time, parent: Some(task.ppid), ..Process::default() };
                    self.processes.of(pid).join(forked);
                }
            }
            RecordType::EXIT if Task::of(record).is_some_and(|task| task.pid == task.tid) => {
                self.processes.of(pid).join(Process { exit: time, ..Process::default() });
            }
            _ => {}
        }
    }
}

/// A row of `overview.csv` without its first cell, the number.
#[derive(Default)]
struct Row {
    cells: ByteRecord,
    number: Vec<u8>,
    text: Vec<u8>,
}

impl Row {
    fn fill(
        &mut self,
        record: &Record<'_>,
        time: Option<u64>,
        layouts: &Layouts,
        (facts, labels): (&Facts, &[String]),
    ) {
        let kind = record.kind();
        self.cells.clear();
        self.cells.push_field(kind_name(kind).as_bytes());
        let layout = layouts.layout_of(record);
        let (mut pid, mut tid) = layout.and_then(|layout| layout.pid_tid(record)).unzip();
        if let (RecordType::SAMPLE, Some(layout)) = (kind, layout) {
            self.text.clear();
            let event = layouts.event_of(record);
            let label = event.and_then(|event| labels.get(event)).map_or("", String::as_str);
            self.text.extend_from_slice(label.as_bytes());
            let event = event.and_then(|event| facts.events.get(event));
            let period = event.map(|event| layout.period(record).unwrap_or(event.period));
            self.text.extend_from_slice(b"ip=");
            self.text.extend_from_slice(HexNumber::new(layout.ip(record).unwrap_or(0)).as_bytes());
            self.text.extend_from_slice(b" period=");
            push_number(&mut self.text, period.unwrap_or(0));
        } else {
            let mut fields = decode(record, layouts).fields;
            let number = |name| match fields.iter().find(|(field, _)| *field == name) {
                Some((_, Value::Number(number))) => Some(*number as u32),
                Some((_, Value::Signed(number))) => Some(*number as u32),
                _ => None,
            };
            (pid, tid) = (number("pid").or(pid), number("tid").or(tid));
            // These fields have cells of their own.
            fields.retain(|(name, _)| !matches!(*name, "pid" | "tid" | "time" | "sample_id"));
            self.text.clear();
            push_line(&mut self.text, &fields, Style::default());
        }
        // As in perf: -1 is no process, or the kernel.
        let signed = |number: Option<u32>| number.map(|number| i64::from(number as i32).into());
        for number in [signed(pid), signed(tid), time.map(i128::from)] {
            self.number.clear();
            number.into_iter().for_each(|number: i128| push_number(&mut self.number, number));
            self.cells.push_field(&self.number);
        }
        self.cells.push_field(&self.text);
    }
}

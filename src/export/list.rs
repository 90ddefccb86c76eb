//! Lists what a recording names, with samples: events, DSOs, build-ids, tasks, cgroups, namespaces, mappings.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use perfx_filter::{FilterOptions, SelectedSamples};
use perfx_format::read::Recording;
use perfx_format::record::ksymbol::Ksymbol;
use perfx_format::record::namespaces::{NamespaceKind, Namespaces};
use perfx_format::sample::Sample;
use perfx_format::siblings::CountedAs;
use perfx_format::{Comm, Layouts, Mmap, OrderKey, Record, Task};
use perfx_look::json::{Decimal, Hex, Text};
use perfx_model::address_space::{Dso, Identity, KERNEL, Machine, Mapping, Space};
use perfx_model::tasks::{TaskChanges, Tasks};
use perfx_pipeline::{Level, Report, Result};
use perfx_resolve::{EventFacts, Explainer, Explanation, Facts, IdOptions, NamedBy, Search, dso_name};
use perfx_samples::{Before, Counters, Late, SampleView, Visit, say_cut_off, visit};
use schemars::JsonSchema;
use serde::Serialize;

use crate::counted::counted_events;
use crate::quality::WORTH_SAYING;
use crate::shown::{Counted, SampledEvents, ShownEvent};
use crate::stacks::Weight;

/// The kinds of lists.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum What {
    /// Events, also those without samples
    Events,
    /// Mapped files, kernels and other code, with the number of their mappings
    Dsos,
    /// Build-ids in the recording
    BuildIds,
    /// Processes, with the numbers of their threads and mappings
    Processes,
    /// Threads
    Threads,
    /// Cgroups (perf record --all-cgroups)
    Cgroups,
    /// Namespaces of threads (perf record --namespaces)
    Namespaces,
    /// Mappings, with their addresses
    Mappings,
}

/// A list. Without another order, the heaviest rows come first.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(tag = "what", rename_all = "kebab-case")]
#[schemars(deny_unknown_fields)]
pub enum Listing {
    /// The events.
    Events {
        /// In the order of the attrs
        rows: Vec<EventRow>,
    },
    /// The DSOs.
    Dsos {
        /// Events and unit of the counts
        counted: Counted,
        /// The heaviest first
        rows: Vec<DsoRow>,
    },
    /// The build-ids.
    BuildIds {
        /// Events and unit of the counts
        counted: Counted,
        /// The heaviest first
        rows: Vec<BuildIdRow>,
    },
    /// The processes.
    Processes {
        /// Events and unit of the counts
        counted: Counted,
        /// The heaviest first
        rows: Vec<ProcessRow>,
    },
    /// The threads.
    Threads {
        /// Events and unit of the counts
        counted: Counted,
        /// The heaviest first
        rows: Vec<ThreadRow>,
    },
    /// The cgroups.
    Cgroups {
        /// Events and unit of the counts
        counted: Counted,
        /// The heaviest first
        rows: Vec<CgroupRow>,
    },
    /// The namespaces.
    Namespaces {
        /// Events and unit of the counts
        counted: Counted,
        /// By kind, the heaviest first
        rows: Vec<NamespaceRow>,
    },
    /// The mappings.
    Mappings {
        /// Events and unit of the counts
        counted: Counted,
        /// In the order of the recording
        rows: Vec<MappingRow>,
    },
}

/// An event.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct EventRow {
    /// Its name
    pub name: Text<Vec<u8>>,
    /// Its samples, as counted by perf report -n
    pub samples: u64,
    /// The sum of their periods
    pub period: Decimal<u64>,
}

/// A DSO.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct DsoRow {
    /// Its path, or a name such as `[vdso]`
    pub name: Text<Vec<u8>>,
    /// The build-id in the recording
    pub build_id: Option<String>,
    /// Of a guest's DSO, the process that runs the guest
    pub guest: Option<u32>,
    /// How often it was mapped
    pub mappings: u64,
    /// Samples of its code
    pub samples: u64,
    /// The sum of their periods
    pub period: Decimal<u64>,
    /// The source of its functions' names; null without samples
    pub names: Option<DsoNames>,
}

/// The source of the names of a DSO's functions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct DsoNames {
    /// lines: all names, inlined calls and source lines; symbols: all names; exported: only those that the dynamic
    /// linker needs; none
    #[schemars(extend("enum" = ["lines", "symbols", "exported", "none"]))]
    pub by: &'static str,
    /// The file with the names, or `the recording`
    pub from: Option<String>,
    /// Why names are missing
    pub why: Option<String>,
    /// Options or a command that would help
    pub help: Option<String>,
}

impl From<Explanation> for DsoNames {
    fn from(Explanation { by, from, why, help }: Explanation) -> DsoNames {
        let by = match by {
            NamedBy::SymbolsAndLines => "lines",
            NamedBy::Symbols => "symbols",
            NamedBy::Exported => "exported",
            NamedBy::Nothing => "none",
        };
        DsoNames { by, from, why, help }
    }
}

/// A build-id.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct BuildIdRow {
    /// Hex digits
    pub build_id: String,
    /// The file that has it
    pub name: Text<Vec<u8>>,
    /// Of a guest's file, the process that runs the guest
    pub guest: Option<u32>,
    /// Samples of its code
    pub samples: u64,
    /// The sum of their periods
    pub period: Decimal<u64>,
}

/// A process.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ProcessRow {
    /// -1: the kernel
    pub pid: i32,
    /// Of a guest's process, the process that runs the guest
    pub guest: Option<u32>,
    /// The last name of its main thread
    pub comm: Text<Vec<u8>>,
    /// Its threads
    pub threads: u64,
    /// Its mappings, without those inherited from its parent
    pub mappings: u64,
    /// Its samples
    pub samples: u64,
    /// The sum of their periods
    pub period: Decimal<u64>,
}

/// A thread.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ThreadRow {
    /// The thread
    pub tid: i32,
    /// Its process; -1: the kernel
    pub pid: i32,
    /// Of a guest's thread, the process that runs the guest
    pub guest: Option<u32>,
    /// Its last name
    pub comm: Text<Vec<u8>>,
    /// Its samples
    pub samples: u64,
    /// The sum of their periods
    pub period: Decimal<u64>,
}

/// A cgroup.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CgroupRow {
    /// Its number in samples
    pub id: Decimal<u64>,
    /// Its path; null if only samples name it
    pub path: Option<Text<Vec<u8>>>,
    /// Its samples
    pub samples: u64,
    /// The sum of their periods
    pub period: Decimal<u64>,
}

/// A namespace.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct NamespaceRow {
    /// As in /proc/PID/ns: net, uts, ipc, pid, user, mnt or cgroup
    pub kind: &'static str,
    /// Its inode, which --netns and the like take
    pub inode: Decimal<u64>,
    /// Samples of the threads in it at that time
    pub samples: u64,
    /// The sum of their periods
    pub period: Decimal<u64>,
}

/// A mapping.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct MappingRow {
    /// The file, or a name such as `[vdso]`
    pub name: Text<Vec<u8>>,
    /// The process; -1: the kernel
    pub pid: i32,
    /// Of a guest's process, the process that runs the guest
    pub guest: Option<u32>,
    /// When it was mapped, ns of the recording's clock
    pub time_ns: Option<Decimal<u64>>,
    /// The first address
    pub start: Hex,
    /// How many addresses it has
    pub length: Hex,
    /// The offset of the first address in the file
    pub offset: Hex,
    /// As in /proc/PID/maps: r, w, x and p or s; null if the record does not have it
    pub access: Option<String>,
    /// Samples of code in it, also those of processes that inherited it
    pub samples: u64,
    /// The sum of their periods
    pub period: Decimal<u64>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Key {
    Event(u32),
    /// By number; `None` outside of mappings.
    Mapping(Option<u32>),
    /// With its process; `None` if the sample has neither.
    Thread(Option<(Space, u32)>),
    Cgroup(Option<u64>),
    Namespaces(Option<Namespaces>),
}

impl Listing {
    fn periods(&self) -> Vec<u64> {
        match self {
            Listing::Events { rows, .. } => rows.iter().map(|row| row.period.0).collect(),
            Listing::Dsos { rows, .. } => rows.iter().map(|row| row.period.0).collect(),
            Listing::BuildIds { rows, .. } => rows.iter().map(|row| row.period.0).collect(),
            Listing::Processes { rows, .. } => rows.iter().map(|row| row.period.0).collect(),
            Listing::Threads { rows, .. } => rows.iter().map(|row| row.period.0).collect(),
            Listing::Cgroups { rows, .. } => rows.iter().map(|row| row.period.0).collect(),
            Listing::Namespaces { rows, .. } => rows.iter().map(|row| row.period.0).collect(),
            Listing::Mappings { rows, .. } => rows.iter().map(|row| row.period.0).collect(),
        }
    }
}

impl What {
    /// The key of a sample; `None` if it is missing, or follows registers of an unknown ABI.
    fn key(self, sample: SampleView<'_>, event: usize, facts: &Facts, tasks: &Tasks) -> Option<Key> {
        Some(match self {
            What::Events => Key::Event(event as u32),
            What::Dsos | What::BuildIds | What::Mappings => {
                let space = sample.space(&facts.guests, sample.record.cpumode());
                let hit = space.zip(sample.ip());
                let hit = hit.and_then(|(space, ip)| facts.spaces.find(space, ip, sample.key()).0);
                Key::Mapping(hit.map(|hit| hit.mapping))
            }
            What::Processes | What::Threads => {
                let machine = sample.machine(&facts.guests);
                Key::Thread(sample.task().map(|(pid, tid)| (Space { machine, pid }, tid)))
            }
            What::Namespaces => {
                let machine = sample.machine(&facts.guests);
                let of = |(_, tid)| tasks.namespaces(machine, tid, sample.key()).copied();
                Key::Namespaces(sample.task().and_then(of))
            }
            What::Cgroups => Key::Cgroup(Sample::parse(sample.record, sample.layout).ok()?.cgroup),
        })
    }

    /// The field without which a sample has no key.
    fn missing(self) -> &'static str {
        match self {
            What::Events => "an event",
            What::Dsos | What::BuildIds | What::Mappings => "a mapping at their address",
            What::Processes | What::Threads => "a process",
            What::Cgroups => "a cgroup (perf record --all-cgroups)",
            What::Namespaces => "a thread whose namespaces are known (perf record --namespaces)",
        }
    }
}

type Counts<K> = HashMap<K, Weight, RandomState>;

/// The counts of one batch, by event; siblings count as one.
#[derive(Default)]
struct Tally {
    counts: Counts<(u32, Key)>,
    late: Late<(u32, Key)>,
}

struct Counter<'l> {
    what: What,
    facts: &'l Facts,
    tasks: &'l Tasks,
    counted_as: &'l [Option<CountedAs>],
    part: Tally,
}

impl Visit for Counter<'_> {
    type Part = Tally;
    type All = Counts<(u32, Key)>;

    #[inline(always)]
    fn sample(&mut self, sample: SampleView<'_>, event: usize, counters: &mut Counters<'_>) -> Result<()> {
        let Counter { what, facts, tasks, counted_as, part: Tally { counts, late } } = self;
        let before = counters.losses.cut;
        counters.losses.see(sample);
        let Some(key) = what.key(sample, event, facts, tasks) else {
            counters.losses.short += u64::from(counters.losses.cut == before);
            return Ok(());
        };
        let key = |event| if *what == What::Events { Key::Event(event) } else { key };
        let target = |event: usize| Some((counted_as[event].as_ref()?.first as u32, key(event as u32)));
        counters.count(sample, event, late, target, |key, period| count(counts, key, period));
        Ok(())
    }

    fn part(self, _passed_over: u64) -> Result<Tally> {
        Ok(self.part)
    }

    fn join(all: &mut Self::All, Tally { counts, late }: Tally, before: &Before) -> Result<()> {
        for (key, weight) in counts {
            *all.entry(key).or_default() += weight;
        }
        before.count(late, |key, period| count(all, key, period));
        Ok(())
    }
}

fn count(counts: &mut Counts<(u32, Key)>, key: (u32, Key), period: u64) {
    *counts.entry(key).or_default() += Weight { samples: 1, period };
}

struct Mapped {
    dso: Dso,
    pid: u32,
    time: Option<u64>,
    start: u64,
    size: u64,
    offset: u64,
    access: Option<String>,
}

#[derive(Default)]
struct Named {
    threads: BTreeMap<Space, BTreeMap<u32, Weight>>,
    mappings: Vec<Mapped>,
    tasks: Option<TaskChanges>,
    namespaces: Vec<Namespaces>,
}

/// Lists the names in a recording, with the samples that `filter` selects: of the event `shown`, unless the
/// filter selects events. Symbols of DSOs are searched for in the places of `ids`, and reported if missing.
///
/// # Errors
///
/// The recording cannot be read or decompressed, or its samples lack a field to select by.
pub fn list(
    recording: &mut Recording,
    what: What,
    filter: &Arc<FilterOptions>,
    ids: &IdOptions,
    shown: &mut ShownEvent,
    threads: usize,
    report: &mut Report,
) -> Result<Listing> {
    let selected = SelectedSamples::if_any(recording, filter, threads, report)?;
    let tasks = (what == What::Namespaces).then(|| TaskChanges::new(false).with_namespaces());
    let mut named = Named { tasks, ..Named::default() };
    let facts = Facts::survey_with(recording, threads, true, |record, layouts, machine, _| {
        named.learn(record, layouts, machine);
    })?;
    let tasks = named.tasks.take().unwrap_or_default();
    named.namespaces.extend(tasks.namespaces());
    let tasks = Tasks::new(tasks, &facts.guests);
    let counted_as = counted_events(&facts, filter);
    let mut counts = Counts::default();
    let new =
        || Counter { what, facts: &facts, tasks: &tasks, counted_as: &counted_as, part: Tally::default() };
    let (losses, _) = visit(recording, (&facts, selected.as_ref()), threads, report, new, &mut counts)?;
    let mut weights: BTreeMap<u32, Weight> = BTreeMap::new();
    counts.iter().for_each(|(&(event, _), &weight)| *weights.entry(event).or_default() += weight);
    if let Some(selected) = selected.filter(|_| counts.is_empty()) {
        selected.say_none(&recording.name, false, report);
    }
    losses.say("not counted", report);
    let sampled = SampledEvents { weights, counted_as: &counted_as, facts: &facts };
    let takes_all = what == What::Events || filter.chooses_events();
    let only = if takes_all { None } else { shown.of(&recording.name, &sampled)? };
    if what != What::Events && filter.chooses_events() {
        sampled.adds_up()?;
    }
    let counted = sampled.counted(only);
    sampled.say_others(only, report);
    let mut of_keys: Counts<Key> = Counts::default();
    for ((_, key), weight) in
        counts.into_iter().filter(|((event, _), _)| only.is_none_or(|only| only == *event))
    {
        *of_keys.entry(key).or_default() += weight;
    }
    let counts = of_keys;
    let none = [Key::Mapping(None), Key::Thread(None), Key::Cgroup(None), Key::Namespaces(None)];
    let missing: u64 = none.iter().filter_map(|key| counts.get(key)).map(|weight| weight.samples).sum();
    if missing > 0 {
        let samples = perfx_pipeline::counted(missing, "sample is", "samples are");
        report.say(Level::Info, format!("{samples} in no row: without {}", what.missing()));
    }
    let (features, endian) = (&recording.features, recording.endian);
    let search = Search { facts: &facts, features, endian, ids, inlined: false };
    let listing = named.rows(what, counted, &counts, search);
    if let Listing::Dsos { rows, .. } = &listing {
        say_nameless(rows, report);
    }
    say_cut_off(listing.periods(), u64::MAX, report);
    Ok(listing)
}

/// Reports which DSOs with many samples have no names, and what helps.
fn say_nameless(rows: &[DsoRow], report: &mut Report) {
    let all: u128 = rows.iter().map(|row| u128::from(row.period.0)).sum();
    for row in rows {
        let Some((names, why)) = row.names.as_ref().and_then(|names| Some((names, names.why.as_ref()?)))
        else {
            continue;
        };
        let percent = u128::from(row.period.0) * 100 / all.max(1);
        let help = names.help.as_ref().map_or_else(String::new, |help| format!("; what helps: {help}"));
        let level = if percent >= WORTH_SAYING { Level::Info } else { Level::Detail };
        let name = row.name.0.escape_ascii();
        report.say(level, format!("{percent} % of the samples are in {name}: {why}{help}"));
    }
}

impl Named {
    fn learn(&mut self, record: &Record<'_>, layouts: &Layouts, machine: Machine) {
        let layout = layouts.layout_of(record);
        let time = layout.and_then(|layout| layout.recorded_time(record));
        if let Some(tasks) = &mut self.tasks {
            tasks.add(record, layouts);
        }
        if let Some(task) = Task::of(record) {
            self.thread(Space { machine, pid: task.pid }, task.tid);
        } else if let Some(comm) =
            Comm::of(record, layout.map_or(0, |layout| usize::from(layout.trailer.size)))
        {
            self.thread(Space { machine, pid: comm.pid }, comm.tid);
        } else if let Some(symbol) = Ksymbol::of(record).filter(|symbol| !symbol.is_gone()) {
            let dso = Dso { machine, kernel: true, name: symbol.name.into(), identity: Identity::Unknown };
            let (start, size) = (symbol.address, symbol.length.into());
            self.mappings.push(Mapped { dso, pid: KERNEL, time, start, size, offset: 0, access: None });
        } else if let Some(mapping) = Mapping::read(record, layouts) {
            let dso = mapping.dso(machine);
            let pid = if dso.kernel { KERNEL } else { mapping.pid };
            if !dso.kernel {
                self.threads.entry(Space { machine, pid }).or_default();
            }
            let Mapping { start, len: size, pgoff: offset, .. } = mapping;
            let access = Mmap::of(record).and_then(|mmap| mmap.access());
            self.mappings.push(Mapped { dso, pid, time, start, size, offset, access });
        }
    }

    fn thread(&mut self, process: Space, tid: u32) {
        self.threads.entry(process).or_default().entry(tid).or_default();
    }

    fn rows(mut self, what: What, counted: Counted, counts: &Counts<Key>, search: Search<'_>) -> Listing {
        let facts = search.facts;
        let of = |key: Key| counts.get(&key).copied().unwrap_or_default();
        let name = |space: Space, tid| Text(facts.tasks.name(space.machine, tid, OrderKey::END).into_owned());
        for (key, &weight) in counts {
            if let Key::Thread(Some((process, tid))) = *key {
                *self.threads.entry(process).or_default().entry(tid).or_default() += weight;
            }
        }
        match what {
            What::Events => {
                let row = |(at, event): (u32, &EventFacts)| {
                    let Weight { samples, period } = of(Key::Event(at));
                    EventRow { name: Text(event.name.clone()), samples, period: Decimal(period) }
                };
                Listing::Events { rows: (0..).zip(&facts.events).map(row).collect() }
            }
            What::Dsos => {
                let numbers: HashMap<&Dso, u32> =
                    facts.spaces.dsos().iter().zip(0..).map(|((dso, _), number)| (dso, number)).collect();
                let explainer = Explainer::new(search);
                let explain = |dso: &Dso| Some(explainer.explain(*numbers.get(dso)?).into());
                let row = |(dso, (mappings, Weight { samples, period })): (Dso, (u64, Weight))| DsoRow {
                    name: Text(dso_name(&dso).to_vec()),
                    build_id: facts.ids.get(&dso).map(|id| id.to_string()),
                    guest: dso.machine.guest(),
                    mappings,
                    samples,
                    period: Decimal(period),
                    names: (samples > 0).then(|| explain(&dso)).flatten(),
                };
                let mut rows: Vec<DsoRow> = self.by_dso(counts).into_iter().map(row).collect();
                rows.sort_by(|a, b| a.name.0.cmp(&b.name.0));
                rows.sort_by_key(|row| Reverse((row.period.0, row.samples)));
                Listing::Dsos { counted, rows }
            }
            What::BuildIds => {
                let mut ids: BTreeMap<(String, i32, Vec<u8>), Weight> = BTreeMap::new();
                for (machine, name, id) in facts.ids.entries() {
                    ids.entry((id.to_string(), machine, name.to_vec())).or_default();
                }
                for (dso, (_, weight)) in self.by_dso(counts) {
                    let Some(id) = facts.ids.get(&dso) else { continue };
                    let name = dso_name(&dso).to_vec();
                    *ids.entry((id.to_string(), dso.machine.pid(), name)).or_default() += weight;
                }
                let row = |((build_id, machine, name), Weight { samples, period })| BuildIdRow {
                    build_id,
                    name: Text(name),
                    guest: u32::try_from(machine).ok(),
                    samples,
                    period: Decimal(period),
                };
                let mut rows: Vec<BuildIdRow> = ids.into_iter().map(row).collect();
                rows.sort_by(|a, b| a.name.0.cmp(&b.name.0));
                rows.sort_by_key(|row| Reverse((row.period.0, row.samples)));
                Listing::BuildIds { counted, rows }
            }
            What::Processes => {
                let mut mappings: HashMap<Space, u64> = HashMap::new();
                for mapping in &self.mappings {
                    *mappings.entry(Space { machine: mapping.dso.machine, pid: mapping.pid }).or_default() +=
                        1;
                }
                let row = |(process, threads): (Space, BTreeMap<u32, Weight>)| {
                    let mut sum = Weight::default();
                    threads.values().for_each(|&weight| sum += weight);
                    ProcessRow {
                        pid: process.pid as i32,
                        guest: process.machine.guest(),
                        comm: name(process, process.pid),
                        threads: threads.len() as u64,
                        mappings: mappings.get(&process).copied().unwrap_or(0),
                        samples: sum.samples,
                        period: Decimal(sum.period),
                    }
                };
                let mut rows: Vec<ProcessRow> = self.threads.into_iter().map(row).collect();
                rows.sort_by_key(|row| Reverse((row.period.0, row.samples)));
                Listing::Processes { counted, rows }
            }
            What::Threads => {
                let row = |process: Space, (tid, Weight { samples, period }): (u32, Weight)| ThreadRow {
                    tid: tid as i32,
                    pid: process.pid as i32,
                    guest: process.machine.guest(),
                    comm: name(process, tid),
                    samples,
                    period: Decimal(period),
                };
                let of_process = |(process, threads): (Space, BTreeMap<u32, Weight>)| {
                    threads.into_iter().map(move |thread| row(process, thread))
                };
                let mut rows: Vec<ThreadRow> = self.threads.into_iter().flat_map(of_process).collect();
                rows.sort_by_key(|row| Reverse((row.period.0, row.samples)));
                Listing::Threads { counted, rows }
            }
            What::Cgroups => {
                let sampled = counts.keys().filter_map(|key| match key {
                    Key::Cgroup(id) => *id,
                    _ => None,
                });
                let ids: BTreeSet<u64> = facts.cgroups.keys().copied().chain(sampled).collect();
                let row = |id: u64| {
                    let Weight { samples, period } = of(Key::Cgroup(Some(id)));
                    let path = facts.cgroups.get(&id).map(|path| Text(path.to_vec()));
                    CgroupRow { id: Decimal(id), path, samples, period: Decimal(period) }
                };
                let mut rows: Vec<CgroupRow> = ids.into_iter().map(row).collect();
                rows.sort_by_key(|row| Reverse((row.period.0, row.samples)));
                Listing::Cgroups { counted, rows }
            }
            What::Namespaces => {
                let mut sums: BTreeMap<(NamespaceKind, u64), Weight> = BTreeMap::new();
                for set in self.namespaces {
                    for kind in NamespaceKind::ALL {
                        if let Some(inode) = set.inode(kind) {
                            *sums.entry((kind, inode)).or_default() += of(Key::Namespaces(Some(set)));
                        }
                    }
                }
                let row = |((kind, inode), Weight { samples, period }): ((NamespaceKind, u64), Weight)| {
                    let kind = kind.name();
                    NamespaceRow { kind, inode: Decimal(inode), samples, period: Decimal(period) }
                };
                let mut rows: Vec<(NamespaceKind, NamespaceRow)> =
                    sums.into_iter().map(|sum| (sum.0.0, row(sum))).collect();
                rows.sort_by_key(|(kind, row)| (*kind, Reverse((row.period.0, row.samples))));
                Listing::Namespaces { counted, rows: rows.into_iter().map(|(_, row)| row).collect() }
            }
            What::Mappings => {
                let row = |(number, mapping): (u32, Mapped)| {
                    let Weight { samples, period } = of(Key::Mapping(Some(number)));
                    MappingRow {
                        name: Text(mapping.dso.name.to_vec()),
                        pid: mapping.pid as i32,
                        guest: mapping.dso.machine.guest(),
                        time_ns: mapping.time.map(Decimal),
                        start: Hex(mapping.start),
                        length: Hex(mapping.size),
                        offset: Hex(mapping.offset),
                        access: mapping.access,
                        samples,
                        period: Decimal(period),
                    }
                };
                Listing::Mappings { counted, rows: (0..).zip(self.mappings).map(row).collect() }
            }
        }
    }

    /// For each DSO, the number of its mappings and its samples, in the order of the recording.
    fn by_dso(&self, counts: &Counts<Key>) -> Vec<(Dso, (u64, Weight))> {
        let mut dsos: IndexMap<&Dso, (u64, Weight)> = IndexMap::new();
        for (number, mapping) in (0..).zip(&self.mappings) {
            let (mappings, sum) = dsos.entry(&mapping.dso).or_default();
            *mappings += 1;
            *sum += counts.get(&Key::Mapping(Some(number))).copied().unwrap_or_default();
        }
        dsos.into_iter().map(|(dso, counts)| (dso.clone(), counts)).collect()
    }
}

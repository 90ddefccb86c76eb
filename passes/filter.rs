//! `filter` cuts a smaller recording out of a large one: the selected samples, and the records that readers
//! need to understand them.
//!
//! A *process* is kept if it, or a descendant, owns a kept sample (a child inherits its parent's mappings).
//! If only times, kinds and machines are selected, it is also kept if it is alive in a window. MMAP, MMAP2,
//! COMM, FORK, EXIT, NAMESPACES and ITRACE_START of kept processes are kept up to the end of the last window,
//! as are all records of the kernel's address space (its MMAPs, KSYMBOL, BPF_EVENT, TEXT_POKE), CGROUP, and
//! records of unknown kinds. AUX data is kept in whole chunks.

mod aux;
mod choice;
mod hints;
mod split;
mod time;
mod unused;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use anyhow::{Result, bail};
use perfx_format::event_name::names_of;
use perfx_format::features::{ClockData, SampleTime};
use perfx_format::header::Features;
use perfx_format::read::{Batch, Recording};
use perfx_format::record::cgroup::Cgroup;
use perfx_format::record::deferred::CallchainDeferred;
use perfx_format::record::event_update::name_update;
use perfx_format::record::event_update::updated_id;
use perfx_format::sample::{Marker, Sample, callchain};
use perfx_format::{
    Endian, Event, Feature, Kinds, Layouts, Record, RecordType, Task, named_pid, sample_type,
};
use perfx_model::address_space::{AddressSpaces, Changes, KERNEL, Lookup, moment};
use perfx_pipeline::{
    Emit, Fork, Interest, Level, Needs, Pass, Place, Rewrite, Session, Stage, Survey, count, counted, in_file,
};

use crate::support::ids::dso_name;
use crate::support::options::PassOptions as _;
use crate::support::used_events::shorten_id_index;
use aux::Chunks;
use hints::Hints;
use perfx_model::guests::Guests;
use perfx_model::tasks::{Process, Processes, TaskChanges, TaskKey, Tasks};
use split::Owner;
use time::{Window, Windows};
use unused::Unused;

pub use choice::{FilterArgs, FilterOptions};
pub(crate) use choice::{List, is_event, regexes};
pub use split::{Part, PartName, Split, SplitBy};

/// The pass.
#[derive(Clone, Debug)]
pub struct Filter {
    options: Arc<FilterOptions>,
}

/// The first survey: tasks, names, times.
struct Gather {
    options: Arc<FilterOptions>,
    gathered: Gathered,
}

/// The second survey: which samples are kept, and what they need.
struct Choose {
    chooser: Arc<Chooser>,
    lookups: Lookups,
    chosen: ChosenSamples,
}

/// Drops the records that are not needed.
struct CutRecords {
    cut: Arc<FilterPlan>,
    lookups: Lookups,
    /// For a part of a split: a record of this part was kept since the last round of this batch. Another
    /// round would have no effect.
    rounds: bool,
}

/// The results of the first survey.
#[derive(Debug, Default)]
struct Gathered {
    guests: Guests,
    tasks: TaskChanges,
    /// Only with `--dso`.
    changes: Option<Changes>,
    /// Names of cgroups, by id.
    cgroups: BTreeMap<u64, Box<[u8]>>,
    /// Names from EVENT_UPDATE records, by event id.
    names: HashMap<u64, Vec<u8>>,
    chunks: Chunks,
    unused: Unused,
    samples: u64,
    /// The samples of each batch that has any.
    batches: BTreeMap<Place, Samples>,
}

/// The samples of a batch.
#[derive(Clone, Copy, Debug)]
struct Samples {
    /// Times of the earliest and the latest one.
    first: u64,
    last: u64,
    count: u64,
}

/// Decides whether a sample is kept.
#[derive(Debug)]
struct Chooser {
    options: Arc<FilterOptions>,
    windows: Windows,
    guests: Guests,
    tasks: Tasks,
    spaces: Option<Arc<AddressSpaces>>,
    /// Indexed by the DSO's number in `spaces`.
    dsos: Vec<bool>,
    events: Vec<bool>,
    cgroups: HashSet<u64>,
    chunks: Chunks,
    unused: Unused,
    samples: u64,
    batches: BTreeMap<Place, Samples>,
    has_time: bool,
    hints: Hints,
    /// Why the recording's own statement about the times of its samples is not believed.
    doubt: Option<String>,
}

/// A thread's cache for address lookups; only with `--dso`.
type Lookups = Option<Lookup>;

/// The results of the second survey.
#[derive(Debug, Default)]
struct ChosenSamples {
    samples: u64,
    /// The number of kept samples of each event.
    by_event: Vec<u64>,
    processes: Processes,
    /// The process of the previous sample, to save lookups in the set.
    last: Option<Process>,
    /// Cookies of call chains whose user part comes later.
    cookies: HashSet<u64>,
    /// The places of the first and the last kept sample in the file.
    places: Option<(Place, Place)>,
    times: Option<(u64, u64)>,
    /// Batches with kept samples, and their number. Then the current batch, and its number before.
    batches: HashMap<Place, u64>,
    batch: Option<Place>,
    before: u64,
}

/// Everything that is known when writing begins.
#[derive(Debug)]
struct FilterPlan {
    chooser: Arc<Chooser>,
    chosen: ChosenSamples,
    windows: Windows,
    /// Set if the output is one part of a split.
    owner: Option<Owner>,
    /// Processes whose mappings, names and forks are kept.
    needed: Processes,
    /// Also keep processes whose start and end are unknown.
    timeless: bool,
    /// Events that are dropped.
    gone: HashSet<u64>,
}

/// Kinds of event records that are selected like samples.
const CHOSEN: [RecordType; 7] = [
    RecordType::SAMPLE,
    RecordType::THROTTLE,
    RecordType::UNTHROTTLE,
    RecordType::READ,
    RecordType::SWITCH,
    RecordType::SWITCH_CPU_WIDE,
    RecordType::LOST,
];

/// Kinds that are dropped without a report: the number of kept samples is reported anyway, and a round only
/// says that the records before it may be sorted, as does the round after the next kept sample.
const UNTOLD: [RecordType; 2] = [RecordType::SAMPLE, RecordType::FINISHED_ROUND];

/// A process's records that readers need to understand its samples.
const OF_PROCESS: [RecordType; 7] = [
    RecordType::MMAP,
    RecordType::MMAP2,
    RecordType::COMM,
    RecordType::FORK,
    RecordType::EXIT,
    RecordType::NAMESPACES,
    RecordType::ITRACE_START,
];

/// The same for the kernel, for cgroups, and for AUX data.
const OF_ALL: [RecordType; 6] = [
    RecordType::KSYMBOL,
    RecordType::BPF_EVENT,
    RecordType::TEXT_POKE,
    RecordType::CGROUP,
    RecordType::AUX,
    RecordType::AUX_OUTPUT_HW_ID,
];

impl Filter {
    /// The pass with these options.
    pub fn new(options: FilterOptions) -> Filter {
        Filter { options: Arc::new(options) }
    }
}

impl Gathered {
    /// An empty result for a filter with these options.
    fn new(options: &FilterOptions) -> Gathered {
        let changes = options.dso.is_set().then(Changes::default);
        // If a pid keeps nothing, the report lists the names of the existing ones.
        let named = options.comm.is_set() || options.pid.is_set();
        Gathered { changes, tasks: TaskChanges::new(named), ..Gathered::default() }
    }

    /// The kinds that the first survey needs.
    fn kinds(options: &FilterOptions) -> Kinds {
        if options.drop_unused {
            return Kinds::ALL;
        }
        let kinds =
            Kinds::of(&[RecordType::SAMPLE, RecordType::ID_INDEX, RecordType::CGROUP, RecordType::AUX]);
        let kinds = kinds.union(TaskChanges::kinds());
        if options.dso.is_set() { kinds.union(Changes::kinds()) } else { kinds }
    }

    fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts, options: &FilterOptions) {
        let kind = record.kind();
        if options.drop_unused {
            self.unused.look_at(record, layouts);
        }
        match kind {
            RecordType::ID_INDEX => self.guests.learn(record),
            RecordType::FORK | RecordType::EXIT | RecordType::COMM => {
                self.tasks.add(record, layouts);
            }
            RecordType::CGROUP => {
                self.cgroups.extend(Cgroup::of(record).map(|cgroup| (cgroup.id, cgroup.path.into())));
            }
            RecordType::AUX => self.chunks.learn(record, layouts),
            RecordType::EVENT_UPDATE => {
                self.names.extend(name_update(record).map(|(id, name)| (id, name.to_vec())));
            }
            _ => {}
        }
        if let Some(changes) = self.changes.as_mut().filter(|_| Changes::kinds().has(kind)) {
            let machine = self.guests.machine(record, layouts, named_pid(record));
            changes.add(record, layouts, machine);
        }
    }

    /// Takes in all samples of a batch at once, because only a little of each is needed and there are many.
    /// Unreadable bytes are reported when the other records are read.
    fn count_samples(&mut self, batch: &Batch) {
        let (mut walker, samples) = (batch.walk(), Kinds::of(&[RecordType::SAMPLE]));
        let (mut first, mut last, mut count) = (u64::MAX, 0, 0);
        while let Ok(Some(record)) = walker.next_wanted(samples, usize::MAX) {
            let time = batch.layouts.time(&record).unwrap_or(0);
            (first, last) = (first.min(time), last.max(time));
            count += 1;
        }
        self.samples += count;
        let samples = (count > 0).then_some(Samples { first, last, count });
        self.batches.extend(Place::of_batch(batch).zip(samples));
    }

    fn join(&mut self, later: Gathered) {
        self.guests.absorb(later.guests);
        self.tasks.absorb(later.tasks);
        self.cgroups.extend(later.cgroups);
        self.names.extend(later.names);
        self.chunks.join(later.chunks);
        self.unused.join(later.unused);
        self.samples += later.samples;
        self.batches.extend(later.batches);
    }

    /// Times of the first and the last sample.
    fn range(&self) -> Option<(u64, u64)> {
        let batches = || self.batches.values();
        Some((batches().map(|samples| samples.first).min()?, batches().map(|samples| samples.last).max()?))
    }
}

/// True if two spans of time overlap by at least half of the longer one.
fn are_alike(one: (u64, u64), other: (u64, u64)) -> bool {
    let length = |from: u64, to: u64| to.checked_sub(from).map_or(0, |length| u128::from(length) + 1);
    let shared = length(one.0.max(other.0), one.1.min(other.1));
    shared * 2 >= length(one.0, one.1).max(length(other.0, other.1))
}

impl Chooser {
    fn new(
        gathered: Gathered,
        options: &Arc<FilterOptions>,
        (events, features, endian): (&[Event], &Features, Endian),
    ) -> Result<Chooser> {
        let layouts = Layouts::new(events);
        let has = |field: &dyn Fn(&perfx_format::Layout) -> bool| layouts.all().iter().any(field);
        let missing = [
            (!options.windows.is_empty() && !layouts.has_time(), "the time (perf record --timestamp)"),
            (options.cpu.is_set() && !has(&|l| l.sample.cpu.is_some()), "the CPU (perf record --sample-cpu)"),
            (options.needs_task() && !has(&|l| l.sample.tid.is_some()), "pid and tid"),
            (options.dso.is_set() && !has(&|l| l.sample.ip.is_some()), "the instruction pointer"),
            (
                options.cgroup.is_set() && !has(&|l| l.sample_type & sample_type::CGROUP != 0),
                "the cgroup (perf record --all-cgroups)",
            ),
        ];
        if let Some((_, what)) = missing.iter().find(|(missing, _)| *missing) {
            bail!("no event of this recording records {what}, so samples can't be selected by it");
        }
        if options.event.is_set() && gathered.samples > 0 {
            layouts.check_ids()?;
        }
        let said = features.get(&Feature::SAMPLE_TIME).and_then(|section| SampleTime::read(section, endian));
        // perf also uses the feature, even if the samples differ slightly.
        let said = said.map(|time| (time.first_ns, time.last_ns)).filter(|&(_, last)| last > 0);
        let mut doubt = None;
        let range = match (said, gathered.range()) {
            (Some(said), Some(is))
                if options.windows.iter().any(Window::is_relative) && !are_alike(said, is) =>
            {
                doubt = Some(format!(
                    "feature SAMPLE_TIME says {} to {} ns, but samples are from {} to {} ns; --time uses the \
                     samples' times (perfx reindex --times repairs the feature)",
                    said.0, said.1, is.0, is.1
                ));
                is
            }
            (said, is) => said.or(is).unwrap_or((0, 0)),
        };
        let clock = features.get(&Feature::CLOCK_DATA).and_then(|section| ClockData::read(section, endian));
        let windows = Windows::new(&options.windows, range, clock)?;
        let names = names_of(events, features, &[], endian, &gathered.names);
        let mut hints = Hints::default();
        hints.of_times(&options.windows, range);
        hints.of_names("event", &options.event, names.iter().map(|event| &event.name[..]), choice::is_event);
        hints.of_names("comm", &options.comm, gathered.tasks.names(), |regex, name| regex.is_match(name));
        hints.of_pids(&options.pid, gathered.tasks.pids());
        // One after the other, so that the memory for building them is not needed for both at once.
        let tasks = Tasks::new(gathered.tasks, &gathered.guests);
        let spaces = gathered.changes.map(|changes| Arc::new(AddressSpaces::new(changes)));
        let dso_names = spaces.iter().flat_map(|spaces| spaces.dsos()).map(|(dso, _)| dso_name(dso));
        hints.of_names("dso", &options.dso, dso_names, choice::is_file);
        let events =
            names.iter().map(|event| options.event.allows(|regex| choice::is_event(regex, &event.name)));
        let dsos = spaces.iter().flat_map(|spaces| spaces.dsos());
        let dsos = dsos.map(|(dso, _)| options.dso.allows(|regex| choice::is_dso(regex, dso)));
        let chosen = |name: &[u8]| options.cgroup.allows(|regex| regex.is_match(name));
        Ok(Chooser {
            windows,
            tasks,
            guests: gathered.guests,
            dsos: dsos.collect(),
            spaces: spaces.clone(),
            events: events.collect(),
            cgroups: gathered.cgroups.iter().filter(|(_, name)| chosen(name)).map(|(&id, _)| id).collect(),
            chunks: gathered.chunks.sorted(),
            unused: gathered.unused,
            samples: gathered.samples,
            batches: gathered.batches,
            has_time: layouts.has_time(),
            options: options.clone(),
            hints,
            doubt,
        })
    }

    fn lookups(&self) -> Lookups {
        self.spaces.clone().map(Lookup::new)
    }

    /// True if a batch may hold samples in the windows.
    fn meets(&self, batch: &Batch) -> bool {
        let samples = Place::of_batch(batch).and_then(|place| self.batches.get(&place));
        samples.is_some_and(|samples| self.windows.meet(samples.first, samples.last))
    }

    /// For a sample or another event record that is kept, its process and its time.
    fn choose(
        &self,
        record: &Record<'_>,
        layouts: &Layouts,
        lookups: &mut Lookups,
    ) -> Option<(Option<Process>, u64)> {
        let layout = layouts.layout_of(record)?;
        let options = &*self.options;
        let time = moment(record, Some(layout), layouts);
        if !self.windows.meet(time, time) || !options.kind.allows(|&kind| kind == record.kind()) {
            return None;
        }
        let is_sample = record.kind() == RecordType::SAMPLE;
        if options.event.is_set() && !self.events.get(layouts.event_of(record)?).copied()? {
            return None;
        }
        if options.cpu.is_set() {
            let cpu = layout.cpu(record);
            options.cpu.allows(|cpus| cpu.is_some_and(|cpu| cpus.contains(&cpu))).then_some(())?;
        }
        let task = layout.pid_tid(record);
        let process = task.map(|(pid, _)| self.process_of(record, layouts, pid, time));
        // The process of lost records is unknown.
        if record.kind() == RecordType::LOST {
            return Some((None, time));
        }
        options.pid.allows(|&pid| task.is_some_and(|task| task.0 == pid)).then_some(())?;
        options.tid.allows(|&tid| task.is_some_and(|task| task.1 == tid)).then_some(())?;
        if options.machine.is_set() {
            let machine = self.guests.machine(record, layouts, task.map(|task| task.0));
            options.machine.allows(|&wanted| wanted == machine).then_some(())?;
        }
        if options.comm.is_set() {
            let machine = self.guests.machine(record, layouts, task.map(|task| task.0));
            let name = task.map(|(_, tid)| self.tasks.name(machine, tid, time));
            options
                .comm
                .allows(|regex| name.as_ref().is_some_and(|name| regex.is_match(name)))
                .then_some(())?;
        }
        if options.dso.is_set() && is_sample {
            let pid = task.map(|task| task.0);
            let space = self.guests.space(record, layouts, pid, record.cpumode());
            let hit = lookups.as_mut().zip(space).zip(layout.ip(record));
            let hit = hit.and_then(|((lookup, space), ip)| lookup.find(space, ip, time));
            let nowhere = || options.dso.allows(|_| false);
            hit.map_or_else(nowhere, |hit| self.dsos[hit.dso as usize]).then_some(())?;
        }
        if options.cgroup.is_set() && is_sample {
            let cgroup = Sample::parse(record, layout).ok().and_then(|sample| sample.cgroup);
            let nowhere = || options.cgroup.allows(|_| false);
            cgroup.map_or_else(nowhere, |id| self.cgroups.contains(&id)).then_some(())?;
        }
        Some((process, time))
    }

    /// The process of a record.
    fn process_of(&self, record: &Record<'_>, layouts: &Layouts, pid: u32, time: u64) -> Process {
        self.tasks.process(TaskKey::of(record, layouts, pid).space(&self.guests), time)
    }
}

impl ChosenSamples {
    fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts, chooser: &Chooser, lookups: &mut Lookups) {
        if let Some((process, time)) = chooser.choose(record, layouts, lookups) {
            self.take(record, layouts, process, time);
        }
    }

    fn take(&mut self, record: &Record<'_>, layouts: &Layouts, process: Option<Process>, time: u64) {
        self.samples += 1;
        if let Some(process) = process.filter(|&process| self.last != Some(process)) {
            self.last = Some(process);
            self.processes.insert(process);
        }
        self.of_event(layouts.event_of(record));
        let layout = layouts.layout_of(record);
        // A group's counters are named by their ids, so readers need all events of the group.
        if let Some(layout) = layout.filter(|layout| layout.sample_type & sample_type::READ != 0)
            && let Some(read) = Sample::parse(record, layout).ok().and_then(|sample| sample.read)
        {
            read.counts().for_each(|count| self.of_event(count.id.and_then(|id| layouts.event_of_id(id))));
        }
        let chain = layout.and_then(|layout| callchain(record, layout));
        // The last entry but one marks the last one as the cookie of a later record.
        if let Some(chain) = chain
            && let Some(last) = chain.len().checked_sub(1)
            && last.checked_sub(1).and_then(|at| chain.get(at)) == Some(Marker::USER_DEFERRED.0)
        {
            self.cookies.extend(chain.get(last));
        }
        self.add(Place::of_record(record).map(|place| (place, place)), Some((time, time)));
    }

    /// Goes to another batch, or to none.
    fn turn_to(&mut self, batch: Option<Place>) {
        let count = self.samples - std::mem::replace(&mut self.before, self.samples);
        let ended = std::mem::replace(&mut self.batch, batch);
        self.batches.extend(ended.filter(|_| count > 0).map(|ended| (ended, count)));
    }

    fn of_event(&mut self, event: Option<usize>) {
        if let Some(event) = event {
            self.by_event.resize(self.by_event.len().max(event + 1), 0);
            self.by_event[event] += 1;
        }
    }

    fn add(&mut self, places: Option<(Place, Place)>, times: Option<(u64, u64)>) {
        fn widen<T: Ord + Copy>(all: &mut Option<(T, T)>, more: Option<(T, T)>) {
            *all = match (*all, more) {
                (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
                (all, more) => all.or(more),
            };
        }
        widen(&mut self.places, places);
        widen(&mut self.times, times);
    }

    fn join(&mut self, mut later: ChosenSamples) {
        later.turn_to(None);
        self.samples += later.samples;
        self.before = self.samples;
        if self.by_event.len() < later.by_event.len() {
            self.by_event.resize(later.by_event.len(), 0);
        }
        self.by_event.iter_mut().zip(later.by_event).for_each(|(all, later)| *all += later);
        self.processes.absorb(later.processes);
        self.cookies.extend(later.cookies);
        self.batches.extend(later.batches);
        self.add(later.places, later.times);
    }
}

impl FilterPlan {
    fn new(
        chooser: Arc<Chooser>,
        chosen: ChosenSamples,
        owner: Option<Owner>,
        events: &[Event],
    ) -> FilterPlan {
        let windows = owner.as_ref().map_or_else(|| chooser.windows.clone(), Owner::windows);
        let timeless = match &owner {
            Some(owner) => owner.is_of_time(),
            None => !chooser.options.chooses_samples(),
        };
        let mut needed = Processes::default();
        let mut need = |process: Process| {
            let mut next = Some(process);
            while let Some(process) = next.filter(|&process| needed.insert(process)) {
                next = chooser.tasks.parent(process);
            }
        };
        chosen.processes.iter().for_each(&mut need);
        if timeless {
            for window in windows.intervals() {
                chooser.tasks.living(window.start, window.stop).for_each(&mut need);
            }
        }
        let gone = if chooser.options.drop_unused {
            chooser.unused.ids(events, &chosen.by_event)
        } else {
            HashSet::new()
        };
        FilterPlan { chooser, chosen, windows, owner, needed, timeless, gone }
    }

    /// Whether a record other than a sample is kept.
    fn keeps(&self, record: &Record<'_>, layouts: &Layouts, lookups: &mut Lookups) -> bool {
        let (chooser, kind) = (&*self.chooser, record.kind());
        let options = &*chooser.options;
        if options.kind.excludes(|&excluded| excluded == kind) {
            return false;
        }
        let owner = self.owner.as_ref();
        if CHOSEN.contains(&kind) {
            let chosen = || chooser.choose(record, layouts, lookups).is_some();
            return owner.map_or_else(chosen, |owner| owner.owns(record, layouts));
        }
        match kind {
            RecordType::CALLCHAIN_DEFERRED => {
                let cookie = CallchainDeferred::of(record).map(|deferred| deferred.cookie);
                let nobody_s =
                    owner.is_some_and(|owner| owner.owns_cookie(cookie) && owner.owns(record, layouts));
                return nobody_s || cookie.is_some_and(|cookie| self.chosen.cookies.contains(&cookie));
            }
            RecordType::LOST_SAMPLES if owner.is_some() => {
                return owner.is_some_and(|owner| owner.owns(record, layouts));
            }
            // A round only says that the records before it may be sorted, so it means nothing if there are
            // none.
            RecordType::FINISHED_ROUND => {
                let here = Place::of_record(record);
                return self
                    .chosen
                    .places
                    .zip(here)
                    .is_some_and(|((first, last), here)| first < here && here < last);
            }
            RecordType::AUXTRACE => {
                return chooser.chunks.keeps(record, options, &|from, to| self.windows.meet(from, to));
            }
            RecordType::EVENT_UPDATE => return updated_id(record).is_none_or(|id| !self.gone.contains(&id)),
            _ => {}
        }
        let of_process = OF_PROCESS.contains(&kind);
        if !of_process && !OF_ALL.contains(&kind) || options.keep_all_sideband {
            return true;
        }
        if owner.is_some_and(|owner| owner.owns(record, layouts)) {
            return true;
        }
        let layout = layouts.layout_of(record);
        let time = moment(record, layout, layouts);
        if layouts.has_time() && time >= self.windows.end() {
            return false;
        }
        let Some(pid) = named_pid(record).filter(|&pid| of_process && pid != KERNEL) else { return true };
        if matches!(kind, RecordType::MMAP | RecordType::MMAP2) && record.is_of_kernel() {
            return true;
        }
        let forked = Task::of(record).filter(|_| kind == RecordType::FORK && layouts.has_time());
        let time = forked.map_or(time, |task| task.time);
        let process = chooser.process_of(record, layouts, pid, time);
        self.needed.contains(process) || self.timeless && matches!(process, Process::Timeless(_))
    }
}

impl CutRecords {
    fn new(cut: FilterPlan) -> CutRecords {
        let lookups = cut.chooser.lookups();
        CutRecords { cut: Arc::new(cut), lookups, rounds: false }
    }

    /// Sets the features of the output, reports what is kept, and creates the rewrite.
    fn begin(self, session: &mut Session) -> Stage {
        let cut = &*self.cut;
        let chooser = &*cut.chooser;
        let times = cut.chosen.times.filter(|_| chooser.has_time);
        if session.feature(Feature::SAMPLE_TIME).is_some()
            && let Some((first_ns, last_ns)) = times.filter(|_| cut.chosen.samples < chooser.samples)
        {
            let section = SampleTime { first_ns, last_ns }.write(session.endian);
            session.set_feature(Feature::SAMPLE_TIME, section);
        }
        if chooser.options.drop_unused {
            let needed = |process: Process| {
                cut.needed.contains(process) || cut.timeless && matches!(process, Process::Timeless(_))
            };
            let process = |who: TaskKey, time| chooser.tasks.process(who.space(&chooser.guests), time);
            chooser.unused.leave_out(session, &cut.gone, &|who, time| needed(process(who, time)));
        }
        let (kept, all) = (cut.chosen.samples, chooser.samples);
        let mut line = format!("kept {} of {}", count(kept), counted(all, "sample", "samples"));
        if let Some((first, last)) = times {
            let seconds = |ns: u64| format!("{}.{:09}", ns / 1_000_000_000, ns % 1_000_000_000);
            line += &format!(", from {} to {}", seconds(first), seconds(last));
        }
        // A user who excludes all samples by kind expects none, and a part of a split recording may have
        // none.
        let asked = cut.owner.is_some() || !chooser.options.kind.allows(|kind| *kind == RecordType::SAMPLE);
        let suspect = kept == 0 && all > 0 && !asked;
        session.report.say(if suspect { Level::Warning } else { Level::Info }, line);
        for hint in chooser.hints.lines().filter(|_| suspect) {
            session.report.say(Level::Warning, hint);
        }
        Stage::rewrite(self)
    }

    fn needs() -> Needs {
        Needs { records: Kinds::ALL, decompressed: true, ids: true, ..Needs::default() }
    }
}

impl Pass for Filter {
    fn name(&self) -> &'static str {
        FilterArgs::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        let surveys = vec![Gathered::kinds(&self.options), Kinds::of(&[RecordType::SAMPLE])];
        Needs { surveys, ..CutRecords::needs() }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        let gather = Gather { gathered: Gathered::new(&self.options), options: self.options };
        // The meaning of a mapping depends on those before it.
        if gather.gathered.changes.is_some() { Stage::survey_in_order(gather) } else { Stage::survey(gather) }
    }
}

/// A part of a split recording, whose surveys are done.
impl Pass for CutRecords {
    fn name(&self) -> &'static str {
        FilterArgs::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        CutRecords::needs()
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        Stage::begin(|begin| Ok(self.begin(begin)))
    }
}

impl Survey for Gather {
    fn begin_batch(&mut self, batch: &Batch, declared: Kinds) -> Kinds {
        self.gathered.count_samples(batch);
        declared.without(RecordType::SAMPLE)
    }

    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.gathered.look_at(record, layouts, &self.options);
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let known = (&session.events[..], session.features(), session.endian);
        let chooser = Chooser::new(self.gathered, &self.options, known);
        let chooser = Arc::new(chooser.map_err(|error| in_file(error, &session.name))?);
        if let Some(doubt) = &chooser.doubt {
            session.report.say(Level::Warning, doubt.clone());
        }
        Ok(Stage::survey(Choose { lookups: chooser.lookups(), chooser, chosen: ChosenSamples::default() }))
    }
}

impl Fork for Gather {
    fn fork(&self) -> Gather {
        Gather { options: self.options.clone(), gathered: Gathered::new(&self.options) }
    }

    fn absorb(&mut self, later: Gather) -> Result<()> {
        self.gathered.join(later.gathered);
        Ok(())
    }
}

impl Survey for Choose {
    fn begin_batch(&mut self, batch: &Batch, declared: Kinds) -> Kinds {
        self.chosen.turn_to(Place::of_batch(batch));
        if self.chooser.meets(batch) { declared } else { Kinds::NONE }
    }

    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.chosen.look_at(record, layouts, &self.chooser, &mut self.lookups);
        Ok(())
    }

    fn end(mut self, session: &mut Session) -> Result<Stage> {
        self.chosen.turn_to(None);
        let cut = CutRecords::new(FilterPlan::new(self.chooser, self.chosen, None, &session.events));
        Ok(Stage::begin(|begin| Ok(cut.begin(begin))))
    }
}

impl Fork for Choose {
    fn fork(&self) -> Choose {
        let chooser = self.chooser.clone();
        Choose { lookups: chooser.lookups(), chooser, chosen: ChosenSamples::default() }
    }

    fn absorb(&mut self, later: Choose) -> Result<()> {
        self.chosen.join(later.chosen);
        Ok(())
    }
}

impl Rewrite for CutRecords {
    fn begin_batch(&mut self, batch: &Batch) -> Interest {
        self.rounds = false;
        let (cut, place) = (&*self.cut, Place::of_batch(batch));
        let stay = place.and_then(|place| cut.chosen.batches.get(&place).copied());
        let there = place.and_then(|place| cut.chooser.batches.get(&place));
        match stay {
            None => Interest::DropRest(UNTOLD.into_iter().fold(Kinds::ALL, Kinds::without)),
            Some(count) if there.is_some_and(|there| there.count == count) => {
                Interest::KeepRest(Kinds::ALL.without(RecordType::SAMPLE))
            }
            Some(_) => Interest::AsDeclared,
        }
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let (cut, lookups) = (&self.cut, &mut self.lookups);
        if record.kind() == RecordType::ID_INDEX && !cut.gone.is_empty() {
            return shorten_id_index(&record, &cut.gone, out);
        }
        let is_round = record.kind() == RecordType::FINISHED_ROUND && cut.owner.is_some();
        if (!is_round || self.rounds) && cut.keeps(&record, out.layouts(), lookups) {
            self.rounds = CHOSEN.contains(&record.kind()) || self.rounds && !is_round;
            out.keep(record)?;
        } else if !UNTOLD.contains(&record.kind()) {
            out.drop_record(record);
        }
        Ok(())
    }
}

impl Fork for CutRecords {
    fn fork(&self) -> CutRecords {
        CutRecords { cut: self.cut.clone(), lookups: self.cut.chooser.lookups(), rounds: false }
    }

    fn absorb(&mut self, _later: CutRecords) -> Result<()> {
        Ok(())
    }
}

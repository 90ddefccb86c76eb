//! Decides which samples are kept.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, OnceLock};

use perfx_format::event_name::names_of;
use perfx_format::features::{ClockData, SampleTime};
use perfx_format::header::Features;
use perfx_format::read::{Batch, SampleSpan};
use perfx_format::record::namespaces::NamespaceKind;
use perfx_format::sample::{Read, Sample};
use perfx_format::{
    ByTracepoint, Endian, Event, Feature, Kinds, Layouts, OrderKey, Record, RecordType, Task, named_pid,
    sample_type,
};
use perfx_model::address_space::{AddressSpaces, KERNEL, Lookup};
use perfx_model::guests::Guests;
use perfx_model::tasks::{Process, TaskKey, Tasks};
use perfx_pipeline::{Place, Result, bail};
use perfx_resolve::dso_name;
use perfx_samples::SampleView;
use regex::bytes::Regex;

use crate::aux::Chunks;
use crate::choice::{self, FilterOptions};
use crate::fields::{Condition, EventCondition};
use crate::functions::{FunctionLookup, Functions};
use crate::gathered::Gathered;
use crate::hints::Hints;
use crate::kept_kinds::OF_PROCESS;
use crate::time::{Interval, Window, Windows};
use crate::unused::Unused;

/// A thread's caches for finding the process and the file of a sample.
pub(crate) struct Lookups {
    /// Only with `--dso`.
    files: Option<Lookup>,
    /// Only with `--symbol` or `--leaf`, once functions are named.
    functions: Option<FunctionLookup>,
    /// Of the previous record.
    pub(crate) last: Option<Process>,
}

pub(crate) struct Chooser {
    pub(crate) options: Arc<FilterOptions>,
    pub(crate) intervals: Option<Vec<Interval>>,
    pub(crate) windows: Windows,
    pub(crate) guests: Guests,
    pub(crate) tasks: Tasks,
    pub(crate) spaces: Option<Arc<AddressSpaces>>,
    /// By the DSO's number in `spaces`.
    pub(crate) dsos: Vec<bool>,
    pub(crate) events: Vec<bool>,
    /// Of `--where`.
    conditions: Option<ByTracepoint<EventCondition>>,
    pub(crate) cgroups: HashSet<u64>,
    pub(crate) chunks: Chunks,
    pub(crate) unused: Unused,
    pub(crate) samples: u64,
    pub(crate) batches: BTreeMap<Place, Arc<SampleSpan>>,
    pub(crate) has_time: bool,
    pub(crate) hints: Hints,
    /// Until they are set, all samples match.
    functions: OnceLock<Arc<Functions>>,
    /// Why the feature SAMPLE_TIME is not used.
    pub(crate) doubt: Option<String>,
}

/// True if two spans overlap by at least half of the longer one.
pub(crate) fn are_alike(one: (u64, u64), other: (u64, u64)) -> bool {
    let length = |from: u64, to: u64| to.checked_sub(from).map_or(0, |length| u128::from(length) + 1);
    let shared = length(one.0.max(other.0), one.1.min(other.1));
    shared * 2 >= length(one.0, one.1).max(length(other.0, other.1))
}

impl Chooser {
    pub(crate) fn new(
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
        if !options.namespaces.is_empty() && gathered.tasks.namespaces().is_empty() {
            bail!(
                "the recording does not name the namespaces of its tasks (perf record --namespaces), so samples \
                 can't be selected by them"
            );
        }
        if options.event.is_set() && gathered.samples > 0 {
            layouts.check_ids()?;
        }
        let recorded =
            features.get(&Feature::SAMPLE_TIME).and_then(|section| SampleTime::read(section, endian));
        // perf also uses the feature if the samples differ slightly.
        let recorded = recorded.filter(|recorded| recorded.last_ns > 0);
        let mut doubt = None;
        let range = match (recorded, gathered.range()) {
            (Some(recorded), Some(is))
                if options.windows.iter().any(Window::is_relative)
                    && !are_alike((recorded.first_ns, recorded.last_ns), is) =>
            {
                doubt = Some(format!(
                    "feature SAMPLE_TIME says {} to {} ns, but samples are from {} to {} ns; --time uses the \
                     samples' times (perfx reindex --times repairs the feature)",
                    recorded.first_ns, recorded.last_ns, is.0, is.1
                ));
                Some(is)
            }
            // A recording of AUX data often has no samples.
            (recorded, is) => {
                recorded.and_then(|recorded| recorded.times()).or(is).or_else(|| gathered.chunks.range())
            }
        };
        let clock = features.get(&Feature::CLOCK_DATA).and_then(|section| ClockData::read(section, endian));
        let intervals = Window::intervals(&options.windows, range.unwrap_or((0, 0)), clock)?;
        let events_of = events;
        let names = names_of(events, features, &[], endian, &gathered.names);
        let mut hints = Hints::default();
        if let Some(intervals) = &intervals {
            hints.of_times(intervals, range.filter(|_| gathered.samples == 0 || gathered.range().is_some()));
        }
        let event_names = names.iter().map(|event| &event.name[..]);
        let of_events = options.event.of_names(event_names.clone());
        let of_events =
            hints.of_names(("event", "events"), &of_events, event_names.clone(), choice::is_event);
        let mut options = FilterOptions::clone(options);
        let is = |regex: &Regex, name: &[u8]| regex.is_match(name);
        // No COMM record names the idle task of each CPU.
        let idle = Some(&b"swapper"[..]).filter(|name| options.comm.excludes(|regex| regex.is_match(name)));
        let comms = gathered.tasks.names().chain(idle);
        options.comm = hints.of_names(("comm", "threads"), &options.comm, comms, is);
        let cgroups = gathered.cgroups.values().map(|name| &**name);
        options.cgroup = hints.of_names(("cgroup", "cgroups"), &options.cgroup, cgroups, is);
        hints.of_tasks(("pid", "process", "processes"), &options.pid, &gathered.tasks);
        hints.of_tasks(("tid", "thread", "threads"), &options.tid, &gathered.tasks);
        for (kind, inodes) in &options.namespaces {
            hints.of_namespaces(*kind, inodes, gathered.tasks.namespaces());
        }
        // One after the other, so that one can use the memory freed by the other.
        let tasks = Tasks::new(gathered.tasks, &gathered.guests);
        let spaces = gathered.changes.map(|changes| Arc::new(AddressSpaces::new(changes)));
        let dso_names = spaces.iter().flat_map(|spaces| spaces.dsos()).map(|(dso, _)| dso_name(dso));
        options.dso = hints.of_names(("dso", "dsos"), &options.dso, dso_names, choice::is_file);
        let events = event_names.map(|name| of_events.allows(|regex| choice::is_event(regex, name)));
        let dsos = spaces.iter().flat_map(|spaces| spaces.dsos());
        let dsos = dsos.map(|(dso, _)| options.dso.allows(|regex| choice::is_dso(regex, dso)));
        let chosen = |name: &[u8]| options.cgroup.allows(|regex| regex.is_match(name));
        let conditions = match options.conditions.is_empty() {
            true => None,
            false => Some(Condition::for_events(&options.conditions, events_of, features, endian)?),
        };
        Ok(Chooser {
            conditions,
            windows: Windows::new(intervals.as_deref()),
            intervals,
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
            options: Arc::new(options),
            hints,
            functions: OnceLock::new(),
            doubt,
        })
    }

    pub(crate) fn lookups(&self) -> Lookups {
        let functions = self.functions.get().cloned().map(FunctionLookup::new);
        Lookups { files: self.spaces.clone().map(Lookup::new), functions, last: None }
    }

    pub(crate) fn set_functions(&self, functions: Functions) {
        let set = self.functions.set(Arc::new(functions));
        debug_assert!(set.is_ok(), "they are named once");
    }

    pub(crate) fn all_hints(&self) -> impl Iterator<Item = &Hints> {
        std::iter::once(&self.hints).chain(self.functions.get().map(|functions| &functions.hints))
    }

    pub(crate) fn samples_of(&self, batch: &Batch) -> Option<&SampleSpan> {
        self.batches.get(&Place::of_batch(batch)?).map(|samples| &**samples)
    }

    /// True if a batch may hold kept samples, by its times and, with an index, its processes.
    pub(crate) fn may_choose_of(&self, batch: &Batch) -> bool {
        let pid = &self.options.pid;
        let of_pid = |pids: &[u32]| pids.iter().any(|known| pid.allows(|wanted| wanted == known));
        self.samples_of(batch).is_some_and(|samples| {
            self.windows.meet(OrderKey::at(samples.first), OrderKey::at(samples.last))
                && (!pid.is_set() || samples.pids.as_deref().is_none_or(of_pid))
        })
    }

    pub(crate) fn choose(
        &self,
        sample: SampleView<'_>,
        lookups: &mut Lookups,
    ) -> Option<(Option<Process>, OrderKey)> {
        let SampleView { record, layout, layouts } = sample;
        let options = &*self.options;
        let key = sample.key();
        if !self.windows.meet(key, key) || !options.kind.allows(|&kind| kind == record.kind()) {
            return None;
        }
        let is_sample = record.kind() == RecordType::SAMPLE;
        // A window contains only samples with a time, even if it is unlimited on one side.
        if is_sample && !self.windows.are_all() && sample.time().is_none() {
            return None;
        }
        if options.event.is_set() && !self.is_of_chosen_event(sample) {
            return None;
        }
        if options.cpu.is_set() {
            let cpu = sample.cpu();
            options.cpu.allows(|cpus| cpu.is_some_and(|cpu| cpus.contains(&cpu))).then_some(())?;
        }
        let task = sample.task();
        let process = task.map(|(pid, _)| self.process_of(record, layouts, pid, key, lookups.last));
        lookups.last = process;
        // The process of lost records is unknown.
        if record.kind() == RecordType::LOST {
            return Some((None, key));
        }
        options.pid.allows(|&pid| task.is_some_and(|task| task.0 == pid)).then_some(())?;
        options.tid.allows(|&tid| task.is_some_and(|task| task.1 == tid)).then_some(())?;
        if options.machine.is_set() {
            let machine = sample.machine(&self.guests);
            options.machine.allows(|&wanted| wanted == machine).then_some(())?;
        }
        if options.comm.is_set() {
            let machine = sample.machine(&self.guests);
            let name = task.map(|(_, tid)| self.tasks.name(machine, tid, key));
            options
                .comm
                .allows(|regex| name.as_ref().is_some_and(|name| regex.is_match(name)))
                .then_some(())?;
        }
        if !options.namespaces.is_empty() {
            let machine = sample.machine(&self.guests);
            let own = self.tasks.namespaces(machine, task?.1, key)?;
            let is_in = |(kind, inodes): &(NamespaceKind, Vec<u64>)| {
                own.inode(*kind).is_some_and(|inode| inodes.contains(&inode))
            };
            options.namespaces.iter().all(is_in).then_some(())?;
        }
        if options.dso.is_set() && is_sample {
            let pid = task.map(|task| task.0);
            let space = self.guests.space(record, layouts, pid, record.cpumode());
            let hit = lookups.files.as_mut().zip(space).zip(sample.ip());
            let hit = hit.and_then(|((lookup, space), ip)| lookup.find(space, ip, key));
            let nowhere = || options.dso.allows(|_| false);
            hit.map_or_else(nowhere, |hit| self.dsos[hit.dso as usize]).then_some(())?;
        }
        if options.cgroup.is_set() && is_sample {
            let cgroup = Sample::parse(record, layout).ok().and_then(|sample| sample.cgroup);
            let nowhere = || options.cgroup.allows(|_| false);
            cgroup.map_or_else(nowhere, |id| self.cgroups.contains(&id)).then_some(())?;
        }
        if is_sample && let Some(conditions) = &self.conditions {
            let condition = conditions.get(sample.event()?)?;
            let raw = sample.parts().ok()?.raw?;
            condition.is_true(raw, record.endian()).then_some(())?;
        }
        if is_sample && let Some(functions) = &mut lookups.functions {
            functions.allows(sample, key, options).then_some(())?;
        }
        Some((process, key))
    }

    /// True if the event of the record, or of a counter that the sample read, is selected: perf reports the
    /// sample for each event whose counter gained.
    fn is_of_chosen_event(&self, sample: SampleView<'_>) -> bool {
        let is_chosen = |event: Option<usize>| event.and_then(|event| self.events.get(event)) == Some(&true);
        let mut counts =
            Read::of_sample(sample.record, sample.layout).into_iter().flat_map(|read| read.counts());
        is_chosen(sample.event())
            || counts.any(|count| is_chosen(count.id.and_then(|id| sample.layouts.event_of_id(id))))
    }

    /// The process whose samples need a record of [`NEEDED`](crate::kept_kinds::NEEDED); `None` if all do.
    /// `last` is that of the previous record.
    pub(crate) fn process_that_needs(
        &self,
        record: &Record<'_>,
        layouts: &Layouts,
        last: Option<Process>,
    ) -> Option<Process> {
        let kind = record.kind();
        let pid = named_pid(record).filter(|&pid| OF_PROCESS.contains(kind) && pid != KERNEL)?;
        if Kinds::MAPPINGS.contains(kind) && record.is_of_kernel() {
            return None;
        }
        let forked = Task::of(record).filter(|_| kind == RecordType::FORK && layouts.has_time());
        let key = match forked {
            Some(task) => OrderKey::at(task.time),
            None => OrderKey::of(record, layouts.layout_of(record), layouts),
        };
        Some(self.process_of(record, layouts, pid, key, last))
    }

    pub(crate) fn process_of(
        &self,
        record: &Record<'_>,
        layouts: &Layouts,
        pid: u32,
        key: OrderKey,
        last: Option<Process>,
    ) -> Process {
        self.tasks.process_after(last, TaskKey::of(record, layouts, pid).space(&self.guests), key)
    }
}

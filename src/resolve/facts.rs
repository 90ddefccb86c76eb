//! Interprets the records of a recording in a first reading: events, address spaces, tasks, build-ids.

use std::collections::{BTreeSet, HashMap};
use std::ops::Range;
use std::sync::Arc;

use perfx_format::event_name::{EventName, counts_cycles, names_of};
use perfx_format::features::{StackTables, initial_maps};
use perfx_format::header::Features;
use perfx_format::names::is_listed_memory;
use perfx_format::read::{Batch, Recording};
use perfx_format::record::cgroup::Cgroup;
use perfx_format::record::cpumode::KERNEL;
use perfx_format::record::event_update::name_update;
use perfx_format::record::id_index::{ANY, IdIndex};
use perfx_format::record::ksymbol::Ksymbol;
use perfx_format::siblings::{CountedAs, counted_as};
use perfx_format::{
    BranchStacks, Endian, Event, Kinds, Layout, Layouts, Record, RecordType, named_pid, sample_type,
};
use perfx_model::address_space::{AddressSpaces, Changes, Hit, Machine, Mapping, Space};
use perfx_model::guests::Guests;
use perfx_model::mapped_files::MappedFiles;
use perfx_model::mapped_parts::MappedParts;
use perfx_model::tasks::{TaskChanges, Tasks};
use perfx_pipeline::{Result, scan};
use symbols::Reference;

use crate::ids::{RecordedIds, is_kernel_name};

/// The result of the first reading.
#[derive(Debug)]
pub struct Facts {
    /// The events, in the order of the recording.
    pub events: Vec<EventFacts>,
    /// How the events are counted: the same event on several PMUs is one.
    pub counted_as: Vec<CountedAs>,
    /// The mappings of all processes over time.
    pub spaces: Arc<AddressSpaces>,
    /// The offsets of mappings in their files.
    pub files: MappedFiles,
    /// The parts of DSOs that were mapped.
    pub parts: MappedParts,
    /// Call stacks that are not in the samples.
    pub stacks: StackTables,
    /// The events of guests.
    pub guests: Guests,
    /// Empty unless tasks were requested.
    pub tasks: Tasks,
    /// Names of cgroups, by id.
    pub cgroups: HashMap<u64, Box<[u8]>>,
    /// The build-ids in the recording.
    pub ids: RecordedIds,
    /// The position of the recorded kernel.
    pub reference: Option<Reference>,
    /// The positions of the kernels of guests.
    pub guest_references: HashMap<Machine, Reference>,
    /// ID_INDEX says that events count CPUs (`perf record -a`), not threads.
    pub whole_cpus: bool,
    /// For each DSO, true if it is memory of a process without a file.
    memory: Vec<bool>,
    /// The load addresses of kernel modules; `None` for those with several.
    pub modules: HashMap<u32, Option<u64>>,
    /// The kernel of the host, and the addresses between its end and the next mapping.
    beyond_kernel: Option<(u32, Range<u64>)>,
    jit_processes: BTreeSet<u32>,
    /// The addresses of DSOs named by KSYMBOL records: BPF programs and other code that the kernel loads.
    pub ksymbols: HashMap<u32, BTreeSet<u64>>,
}

/// An event.
#[derive(Debug)]
pub struct EventFacts {
    /// May hold any bytes.
    pub name: Vec<u8>,
    /// The weight of a sample without a period.
    pub period: u64,
    /// Also counts threads created by its thread.
    pub inherit: bool,
    /// True if its samples contain the values of counters (`attr.sample_type` READ).
    pub reads_counters: bool,
    tracepoint: bool,
    clock: bool,
    cycles: bool,
    /// Of all samples; `None` if it varies.
    fixed_period: Option<u64>,
    /// In samples per second.
    frequency: Option<u64>,
    counts_work: bool,
    /// Samples have call chains.
    pub has_chains: bool,
    /// Call chains contain callers in user code (`exclude_callchain_user` is not set).
    pub has_user_chains: bool,
    /// The user parts of call chains contain the addresses of calls, recorded by the processor, not return
    /// addresses (`perf record --call-graph lbr`).
    pub records_calls: bool,
    /// Maximum number of frames in a call chain.
    pub max_stack: usize,
    lasts: bool,
}

impl EventFacts {
    /// The calls in a hardware trace. A sample is a change of function, its period the time to the next, ns.
    pub fn of_calls() -> EventFacts {
        EventFacts {
            name: b"calls".to_vec(),
            period: 0,
            inherit: false,
            reads_counters: false,
            tracepoint: false,
            clock: true,
            cycles: false,
            fixed_period: None,
            frequency: None,
            counts_work: true,
            has_chains: true,
            has_user_chains: true,
            records_calls: false,
            max_stack: usize::MAX,
            lasts: true,
        }
    }

    fn new(event: &Event, EventName { name, .. }: EventName) -> EventFacts {
        let attr = event.attr();
        // PERF_TYPE_SOFTWARE: PERF_COUNT_SW_CPU_CLOCK, PERF_COUNT_SW_TASK_CLOCK.
        let is_clock = attr.type_ == 1 && attr.config <= 1;
        EventFacts {
            cycles: counts_cycles(&name),
            name,
            period: attr.sample_period,
            inherit: attr.flag(1),
            reads_counters: attr.sample_type & sample_type::READ != 0,
            tracepoint: attr.is_tracepoint(),
            clock: is_clock,
            fixed_period: attr.fixed_period(),
            frequency: attr.frequency(),
            // PERF_TYPE_HARDWARE, PERF_TYPE_HW_CACHE, PERF_TYPE_RAW.
            counts_work: is_clock || matches!(attr.type_, 0 | 3 | 4),
            has_chains: attr.sample_type & sample_type::CALLCHAIN != 0,
            has_user_chains: attr.sample_type & sample_type::CALLCHAIN != 0 && !attr.flag(22),
            records_calls: Layout::new(attr).branch_stacks() == BranchStacks::Calls,
            // PERF_MAX_STACK_DEPTH is the kernel's default.
            max_stack: if attr.sample_max_stack == 0 { 127 } else { attr.sample_max_stack.into() },
            lasts: false,
        }
    }

    /// True for a tracepoint.
    pub fn is_tracepoint(&self) -> bool {
        self.tracepoint
    }

    /// True if its period is a time, in ns: `cpu-clock` and `task-clock`.
    pub fn counts_time(&self) -> bool {
        self.clock
    }

    /// True for events whose period can be a measured time, ns: the time of a task off the CPU, as set by
    /// `perfx off-cpu`, `perf inject --sched-stat` or `perf record --off-cpu`, or a sum of the scheduler.
    pub fn measures_time(&self) -> bool {
        self.name.starts_with(b"offcpu-time")
            || self.tracepoint
                && (self.name == b"sched:sched_switch" || self.name.starts_with(b"sched:sched_stat_"))
    }

    /// True if it counts the cycles of a processor.
    pub fn counts_cycles(&self) -> bool {
        self.cycles
    }

    /// Time between samples while a CPU works, ns, if known: the period of a clock, or by the frequency.
    pub fn interval(&self) -> Option<u64> {
        let period = self.fixed_period.filter(|_| self.clock);
        period
            .or_else(|| 1_000_000_000_u64.checked_div(self.frequency?))
            .filter(|&ns| self.counts_work && ns > 0)
    }

    /// True if it counts the work of a CPU: time, or a hardware event. Samples of other events, such as page
    /// faults, do not show how long a thread ran.
    pub fn counts_work(&self) -> bool {
        self.counts_work
    }

    /// True if a sample represents the time of its period's length after it.
    pub fn lasts(&self) -> bool {
        self.lasts
    }

    /// The period of all its samples; `None` if it varies.
    pub fn fixed_period(&self) -> Option<u64> {
        self.fixed_period
    }
}

/// Collects the facts, record by record in file order.
#[derive(Debug, Default)]
pub struct FactsSurvey {
    /// Also collect the names of threads and cgroups.
    tasks: bool,
    task_changes: TaskChanges,
    changes: Changes,
    files: MappedFiles,
    parts: MappedParts,
    guests: Guests,
    reference: Option<Reference>,
    guest_references: HashMap<Machine, Reference>,
    names: HashMap<u64, Vec<u8>>,
    cgroups: HashMap<u64, Box<[u8]>>,
    ksymbols: HashMap<u32, BTreeSet<u64>>,
    modules: HashMap<u32, Option<u64>>,
    kernel: Option<(u32, u64)>,
    whole_cpus: bool,
    recorded_ids: Vec<Vec<u8>>,
    jit_processes: BTreeSet<u32>,
}

impl FactsSurvey {
    /// An empty survey. With `tasks`, the names of threads and cgroups are collected, too.
    pub fn new(tasks: bool) -> FactsSurvey {
        FactsSurvey { tasks, task_changes: TaskChanges::new(true), ..FactsSurvey::default() }
    }

    /// The kinds of records to pass to [`FactsSurvey::learn`].
    pub fn kinds(tasks: bool) -> Kinds {
        let others = [RecordType::ID_INDEX, RecordType::HEADER_BUILD_ID, RecordType::EVENT_UPDATE];
        let kinds = Changes::kinds().union(Kinds::CODE).union(Kinds::of(&others));
        let of_tasks = || TaskChanges::kinds().and(RecordType::CGROUP).and(RecordType::NAMESPACES);
        if tasks { kinds.union(of_tasks()) } else { kinds }
    }

    /// Adds a record of these kinds. `look` is called with each record that changes address spaces or tasks,
    /// its machine, and the number of the DSO that it maps.
    pub fn learn(
        &mut self,
        record: &Record<'_>,
        layouts: &Layouts,
        look: impl FnOnce(&Record<'_>, &Layouts, Machine, Option<u32>),
    ) {
        if self.tasks && TaskChanges::kinds().contains(record.kind()) {
            self.task_changes.add(record, layouts);
        }
        match record.kind() {
            RecordType::ID_INDEX => {
                self.guests.learn(record);
                let mut entries = IdIndex::of(record).into_iter().flat_map(|index| index.entries());
                self.whole_cpus |= entries.any(|entry| entry.tid == ANY);
            }
            RecordType::HEADER_BUILD_ID => self.recorded_ids.push(record.bytes().to_vec()),
            RecordType::CGROUP => {
                self.cgroups.extend(Cgroup::of(record).map(|cgroup| (cgroup.id, cgroup.path.into())));
            }
            RecordType::EVENT_UPDATE => {
                self.names.extend(name_update(record).map(|(id, name)| (id, name.to_vec())));
            }
            _ => {
                let machine = self.guests.machine(record, layouts, named_pid(record));
                let dso = self.changes.add(record, layouts, machine);
                look(record, layouts, machine, dso);
                if let Some(dso) = dso {
                    self.learn_mapping(record, layouts, machine, dso);
                }
            }
        }
    }

    fn learn_mapping(&mut self, record: &Record<'_>, layouts: &Layouts, machine: Machine, dso: u32) {
        if let Some(symbol) = Ksymbol::of(record) {
            self.ksymbols.entry(dso).or_default().insert(symbol.address);
        }
        let mapping = Mapping::read(record, layouts);
        let is_of_kernel = mapping.is_none_or(|mapping| mapping.kernel);
        self.files.learn(dso, mapping.as_ref(), is_of_kernel);
        let Some(mapping) = mapping else { return };
        self.parts.learn(dso, &mapping, is_of_kernel);
        if !is_of_kernel {
            if mapping.is_code && machine == Machine::Host && is_listed_memory(mapping.name) {
                self.jit_processes.insert(mapping.pid);
            }
            return;
        }
        let start = self.modules.entry(dso).or_insert(Some(mapping.start));
        *start = start.filter(|start| *start == mapping.start);
        match kernel_reference(&mapping) {
            Some(found) if machine == Machine::Host => {
                self.reference.get_or_insert(found);
                self.kernel.get_or_insert((dso, mapping.start.saturating_add(mapping.len)));
            }
            Some(found) => drop(self.guest_references.entry(machine).or_insert(found)),
            None => {}
        }
    }

    /// Completes the facts for a recording with these events and features.
    pub fn finish(self, all: &[Event], features: &Features, event_types: &[u8], endian: Endian) -> Facts {
        let FactsSurvey {
            task_changes, changes, files, parts, guests, mut reference, names, cgroups, ..
        } = self;
        let FactsSurvey {
            jit_processes,
            ksymbols,
            modules,
            kernel,
            whole_cpus,
            recorded_ids,
            guest_references,
            ..
        } = self;
        let names = names_of(all, features, event_types, endian, &names);
        let counted_as = counted_as(all, &names);
        let events = all.iter().zip(names).map(|(event, name)| EventFacts::new(event, name)).collect();
        let tasks = Tasks::new(task_changes, &guests);
        let spaces = Arc::new(AddressSpaces::new(changes));
        let mut ids = RecordedIds::new(features, endian, spaces.dsos());
        ids.learn_records(&recorded_ids, endian);
        if let (Some(reference), Some((dso, _))) = (&mut reference, kernel) {
            reference.kernel = spaces.dsos().get(dso as usize).and_then(|(dso, _)| ids.get(dso));
        }
        let beyond_kernel = kernel.map(|(dso, end)| {
            let next = modules.values().flatten().copied().filter(|&start| start >= end).min();
            (dso, end..next.unwrap_or(u64::MAX))
        });
        let memory =
            spaces.dsos().iter().map(|(dso, _)| !dso.kernel && is_listed_memory(&dso.name)).collect();
        Facts {
            events,
            counted_as,
            spaces,
            files,
            parts,
            stacks: StackTables::new(features, endian),
            guests,
            tasks,
            cgroups,
            ids,
            reference,
            guest_references,
            whole_cpus,
            memory,
            modules,
            beyond_kernel,
            jit_processes,
            ksymbols,
        }
    }
}

impl Facts {
    /// Reads the recording once. With `tasks`, the names of threads and cgroups are collected, too.
    ///
    /// # Errors
    ///
    /// The recording cannot be read or decompressed.
    pub fn survey(recording: &mut Recording, threads: usize, tasks: bool) -> Result<Facts> {
        Facts::survey_with(recording, threads, tasks, |_, _, _, _| {})
    }

    /// [`Facts::survey`]; `look` is called with each record that changes address spaces (or tasks, if
    /// `tasks`), its machine, and the number of the DSO that it maps.
    ///
    /// # Errors
    ///
    /// The recording cannot be read or decompressed.
    pub fn survey_with(
        recording: &mut Recording,
        threads: usize,
        tasks: bool,
        mut look: impl FnMut(&Record<'_>, &Layouts, Machine, Option<u32>),
    ) -> Result<Facts> {
        let (mut survey, wanted) = (FactsSurvey::new(tasks), FactsSurvey::kinds(tasks));
        let layouts = Layouts::new(&recording.events);
        for record in initial_maps(&recording.features, recording.endian).records() {
            if wanted.contains(record.kind()) {
                survey.learn(&record, &layouts, &mut look);
            }
        }
        let mut read = |batch: &Batch| -> Result<()> {
            let mut walker = batch.walk();
            while let Some(record) = walker.next_wanted(wanted, usize::MAX)? {
                survey.learn(&record, &batch.layouts, &mut look);
            }
            Ok(())
        };
        recording.head().iter().try_for_each(&mut read)?;
        scan(
            recording,
            threads,
            true,
            |_| Ok(()),
            |batch, ()| {
                if batch.kinds.intersects(wanted) { read(batch) } else { Ok(()) }
            },
        )?;
        let all = recording.all_events();
        Ok(survey.finish(&all, &recording.features, &recording.event_types, recording.endian))
    }

    /// The processes that mapped code in memory without a file.
    pub fn jit_processes(&self) -> impl Iterator<Item = u32> + Clone {
        self.jit_processes.iter().copied()
    }

    /// The process that mapped code in memory without a file, if only one did.
    pub fn only_jit_process(&self) -> Option<u32> {
        self.jit_processes().next().filter(|_| self.jit_processes.len() == 1)
    }

    /// True if it is memory of a process without a file.
    pub fn is_memory(&self, dso: u32) -> bool {
        self.memory.get(dso as usize).is_some_and(|&memory| memory)
    }

    /// The kernel, if an unmapped address may be in its code: its mapping ends at `_etext`, but the code that
    /// starts the kernel (`start_kernel`) comes after that. As in perf, only a symbol there makes it the
    /// kernel's.
    pub fn beyond_kernel(&self, machine: Machine, mode: u16, address: u64) -> Option<u32> {
        let (dso, range) = self.beyond_kernel.as_ref()?;
        (machine == Machine::Host && mode == KERNEL && range.contains(&address)).then_some(*dso)
    }

    /// True if the DSO is the kernel, but the address is outside its mapping.
    pub fn is_beyond_kernel(&self, dso: u32, address: u64) -> bool {
        self.beyond_kernel.as_ref().is_some_and(|(kernel, range)| *kernel == dso && range.contains(&address))
    }

    /// True if the mapping may contain JIT code: executable memory without a file, of a process of the host.
    pub fn has_jit(&self, hit: Hit, space: Space) -> bool {
        space.machine == Machine::Host && self.is_memory(hit.dso) && self.files.is_code(hit)
    }
}

/// The kernel's mapping has a symbol at the end of its name, and that symbol's address in place of an offset.
pub fn kernel_reference(mapping: &Mapping<'_>) -> Option<Reference> {
    let end = mapping.name.iter().position(|&byte| byte == b']')?;
    let name = mapping.name.get(end + 1..).filter(|name| !name.is_empty())?;
    is_kernel_name(mapping.name).then(|| Reference {
        name: name.to_vec(),
        address: mapping.pgoff,
        kernel: None,
    })
}

//! Finds in a recording what is needed to decode its traces.

use std::collections::{BTreeSet, HashMap};

use perfx_format::features::{initial_maps, read_str};
use perfx_format::intel_pt::psbs;
use perfx_format::read::{Batch, Recording, StoredBytes};
use perfx_format::record::aux::{Aux, Auxtrace, AuxtraceInfo, hardware_id};
use perfx_format::record::cpumode::KERNEL_START;
use perfx_format::record::id_index::{ANY, IdEntry, IdIndex};
use perfx_format::record::ksymbol::TextPoke;
use perfx_format::record::pt_info::PtInfo;
use perfx_format::{
    Event, Feature, Kinds, Layout, Layouts, OrderKey, Origin, Record, RecordType, named_pid,
    sample_type as st,
};
use perfx_model::address_space::{AddressSpaces, Changes, Dso, Machine, Mapping};
use perfx_model::guests::Guests;
use perfx_model::spe::TaskChange;
use perfx_pipeline::{Result, bail, scan};
use perfx_trace::intel_pt::Errata;

use crate::buffer::Buffer;
use crate::clock::Clock;
use crate::coresight::{CoreSight, Written};
use crate::filters::Filter;
use crate::intel_pt::{IntelPt, errata};
use crate::kept::{AuxData, Kept, Place};
use crate::mappings::Mappings;
use crate::overlap::Ending;
use crate::running::{Running, Task, Vcpu};
use crate::sampled::Sampled;
use crate::sched_switch::SchedSwitch;

/// Collects in file order what the traces of a recording need.
#[derive(Debug, Default)]
pub struct Survey {
    tracers: BTreeSet<Option<&'static str>>,
    pt: Option<PtInfo>,
    written: Written,
    chunks: Vec<(Auxtrace, Place)>,
    kept: Kept,
    lost: Vec<Lost>,
    counters: Vec<Counter>,
    running: Running,
    changes: Changes,
    mappings: Mappings,
    guests: Guests,
    /// A time at which something was traced.
    near: Option<u64>,
    sched_switch: SchedSwitch,
    sampled: Sampled,
    errata: Errata,
}

/// The kernel lost data of a trace, because a buffer was full (AUX record).
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// When.
    pub time: u64,
    /// Where.
    pub cpu: u32,
    /// The thread that ran.
    pub task: Task,
}

/// From a time on, a counter counted an event whose samples are written to the trace (AUX_OUTPUT_HW_ID record).
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// Since when.
    pub time: u64,
    /// The CPU and the thread, or [`Auxtrace::ANY`].
    pub cpu: u32,
    /// The thread.
    pub tid: u32,
    /// The number of the counter.
    pub number: u64,
    /// An id of the event.
    pub id: u64,
}

/// What was found.
#[derive(Debug)]
pub struct Recorded<T = IntelPt> {
    /// What made the traces.
    pub tracer: T,
    /// In the order of their first AUXTRACE records.
    pub buffers: Vec<Buffer>,
    /// The thread of each [`Space`](perfx_trace::Space).
    pub tasks: Vec<Task>,
    /// What the kernel lost, in file order.
    pub lost: Vec<Lost>,
    /// Which events wrote their samples to the traces, in the order of time.
    pub counters: Vec<Counter>,
    /// The number of AUXTRACE records whose data cannot be read again.
    pub unreadable: u64,
    /// The number of AUX records that cover data of earlier ones.
    pub repeated: u64,
    pub(crate) mappings: Mappings,
}

impl Survey {
    const KINDS: Kinds = TaskChange::KINDS.union(Kinds::DECODED_AUX).union(Kinds::CODE).union(Kinds::of(&[
        RecordType::TIME_CONV,
        RecordType::ID_INDEX,
        RecordType::TEXT_POKE,
    ]));

    /// Starts the survey of a recording with its features.
    pub fn of(recording: &Recording) -> Survey {
        let (sched_switch, sampled) = (SchedSwitch::of(recording), Sampled::of(&recording.events));
        let cpuid = recording.features.get(&Feature::CPUID);
        let errata =
            cpuid.and_then(|section| errata(read_str(section, recording.endian)?)).unwrap_or_default();
        let mut survey = Survey { sched_switch, sampled, errata, ..Survey::default() };
        let layouts = Layouts::new(&recording.events);
        for record in initial_maps(&recording.features, recording.endian).records() {
            survey.add(&record, &layouts);
        }
        survey
    }

    /// Reads a recording.
    ///
    /// # Errors
    ///
    /// It cannot be read.
    pub fn read(recording: &mut Recording, threads: usize) -> Result<Survey> {
        let mut survey = Survey::of(recording);
        let kinds = survey.kinds();
        let mut see = |batch: &Batch| {
            batch.each(kinds, |record| -> Result<()> {
                survey.add(record, &batch.layouts);
                Ok(())
            })
        };
        recording.take_head().iter().try_for_each(&mut see)?;
        scan(recording, threads, true, |_| Ok(()), |batch, ()| see(batch))?;
        Ok(survey)
    }

    /// The kinds of records that [`Survey::add`] reads.
    pub fn kinds(&self) -> Kinds {
        let has_samples = !self.sched_switch.is_empty() || self.sampled.is_expected();
        let samples = if has_samples { Kinds::of(&[RecordType::SAMPLE]) } else { Kinds::NONE };
        Survey::KINDS.union(samples)
    }

    /// Takes in a record.
    pub fn add(&mut self, record: &Record<'_>, layouts: &Layouts) {
        let layout = layouts.layout_of(record);
        let time = layout.and_then(|layout| layout.recorded_time(record));
        self.written.add(record, layout);
        match record.kind() {
            RecordType::AUXTRACE_INFO => {
                self.tracers.extend(AuxtraceInfo::of(record).map(|info| info.tracer()));
                if let Some(info) = PtInfo::of(record).filter(|_| self.pt.is_none()) {
                    self.pt = Some(info);
                    self.mappings.filters = Filter::all(PtInfo::filters(record).unwrap_or_default());
                }
            }
            RecordType::AUXTRACE => {
                let place = self.place(record, record.bytes().len(), record.payload());
                self.chunks.extend(Auxtrace::of(record).map(|chunk| (chunk, place)));
            }
            RecordType::AUX => {
                self.near = self.near.or(time);
                let is_cut = Aux::of(record).is_some_and(|aux| aux.flags & Aux::TRUNCATED != 0);
                if let Some(layout) = layout.filter(|_| is_cut) {
                    let (pid, tid) = layout.pid_tid(record).unwrap_or((Auxtrace::ANY, Auxtrace::ANY));
                    let cpu = layout.cpu(record).unwrap_or(Auxtrace::ANY);
                    self.lost.push(Lost { time: time.unwrap_or(0), cpu, task: Task::of_host(pid, tid) });
                }
            }
            RecordType::AUX_OUTPUT_HW_ID if self.pt.is_some() => {
                let id = layout.and_then(|layout| layout.id(record));
                if let (Some(number), Some(id), Some(layout)) = (hardware_id(record), id, layout) {
                    let (_, tid) = layout.pid_tid(record).unwrap_or((Auxtrace::ANY, Auxtrace::ANY));
                    let cpu = layout.cpu(record).unwrap_or(Auxtrace::ANY);
                    self.counters.push(Counter { time: time.unwrap_or(0), cpu, tid, number, id });
                }
            }
            RecordType::ITRACE_START => {
                let traced = layout.and_then(|layout| layout.pid_tid(record).zip(layout.cpu(record)));
                if let Some(((pid, tid), cpu)) = traced {
                    self.running.learn(TaskChange::Runs { cpu, pid, tid }, time.unwrap_or(0));
                }
                self.near = self.near.or(time);
            }
            RecordType::ID_INDEX => {
                self.guests.learn(record);
                for entry in IdIndex::of(record).into_iter().flat_map(|index| index.entries()) {
                    let IdEntry { machine_pid, vcpu, tid, .. } = entry;
                    if machine_pid != 0 && vcpu != ANY && tid != ANY {
                        let (machine_pid, number) = (machine_pid as u32, vcpu as u32);
                        self.running.learn_vcpu(Vcpu { machine_pid, number, tid: tid as u32 });
                    }
                }
                self.sampled.learn(record);
            }
            RecordType::TEXT_POKE => {
                let is_host = self.guests.machine(record, layouts, None) == Machine::Host;
                let is_of_kernel = |poke: &TextPoke<'_>| is_host && poke.address >= KERNEL_START;
                if let Some(poke) = TextPoke::of(record).filter(is_of_kernel) {
                    self.mappings.change(&poke, time.map_or(OrderKey::FIRST, OrderKey::at));
                }
            }
            RecordType::SAMPLE => {
                if let Some(pt) = self.pt {
                    if pt.switches == PtInfo::BY_SAMPLES {
                        let switched = self.sched_switch.read(record, layouts);
                        switched.into_iter().for_each(|to| self.running.learn_switch(to, time.unwrap_or(0)));
                    }
                    self.add_sampled(record, layout, time);
                }
            }
            _ => {
                let time = time.unwrap_or(0);
                if let Some((cpu, pid, tid)) =
                    TaskChange::left(record, layouts).filter(|_| !record.is_of_guest())
                {
                    self.running.learn_left(cpu, Task::of_host(pid, tid), time);
                }
                match TaskChange::of_any(record, layouts) {
                    Some(change) if !record.is_of_guest() => self.running.learn(change, time),
                    Some(change) => {
                        let vcpu = layout.and_then(|layout| self.guests.cpu_of(layout.id(record)?));
                        if let Some((machine_pid, Some(number))) = vcpu {
                            self.running.learn_guest(change, (machine_pid, number), time);
                        }
                    }
                    None => {}
                }
                if Changes::kinds().union(Kinds::CODE).contains(record.kind()) {
                    let machine = self.guests.machine(record, layouts, named_pid(record));
                    let dso = self.changes.add(record, layouts, machine);
                    if let Some(dso) = dso {
                        self.mappings.learn(dso, Mapping::read(record, layouts).as_ref(), machine);
                    }
                }
            }
        }
    }

    /// Takes in the trace in a sample.
    fn add_sampled(&mut self, record: &Record<'_>, layout: Option<&Layout>, time: Option<u64>) {
        if let Some(layout) = layout.filter(|layout| layout.sample_type & st::AUX != 0)
            && let Some((chunk, start, data)) = self.sampled.read(record, layout)
        {
            self.near = self.near.or(time);
            let place = self.place(record, start, data);
            self.chunks.push((chunk, place));
        }
    }

    /// Where data of a record is that begins so many bytes behind its start.
    fn place(&mut self, record: &Record<'_>, start: usize, data: &[u8]) -> Place {
        match record.origin() {
            Origin::Chunk { .. } => Place::Kept(self.kept.add(data)),
            origin => Place::Stored(origin, start),
        }
    }

    /// True if there are no traces.
    pub fn is_empty(&self) -> bool {
        self.tracers.is_empty() && self.chunks.is_empty()
    }

    /// True if all AUX data is of Intel PT.
    pub fn is_pt(&self) -> bool {
        self.pt.is_some() && self.tracers.len() == 1
    }

    /// True if all AUX data is of CoreSight.
    pub fn is_coresight(&self) -> bool {
        self.written.has_info() && self.tracers.len() == 1
    }

    /// Ends the survey of a recording whose AUX data is of CoreSight. Its buffers are those of the tracer.
    ///
    /// # Errors
    ///
    /// The AUX data is of another kind, or of trace units that are not decoded.
    pub fn done_coresight(self, stored: &StoredBytes) -> Result<Recorded<CoreSight>> {
        let Survey { written, chunks, kept, lost, running, changes, mut mappings, .. } = self;
        let mut ran = running.done(&Clock { conv: None });
        let data = AuxData::new(stored, kept)?;
        let (tracer, unreadable, repeated) = written.done(&chunks, &data, &mut ran)?;
        mappings.spaces = AddressSpaces::new(changes);
        let (buffers, counters, tasks) = (Vec::new(), Vec::new(), ran.tasks);
        Ok(Recorded { tracer, buffers, tasks, lost, counters, unreadable, repeated, mappings })
    }

    /// Ends the survey of a recording with these events, whose AUX data is of Intel PT.
    ///
    /// # Errors
    ///
    /// The AUX data is of another kind, or cannot be decoded.
    pub fn done(self, stored: &StoredBytes, events: &[Event]) -> Result<Recorded> {
        let Survey { pt, chunks, kept, lost, running, changes, mut mappings, near, sampled, .. } = self;
        let mut counters = self.counters;
        counters.sort_by_key(|counter| counter.time);
        let stored = AuxData::new(stored, kept)?;
        let Some(info) = pt else { bail!("the AUX data is not of Intel PT") };
        let mut tracer = IntelPt::new(info, events, near.unwrap_or(0))?;
        tracer.config.errata = self.errata;
        let clock = Clock { conv: tracer.info.conv };
        let mut ran = running.done(&clock);
        let (mut buffers, mut numbers, mut unreadable) = (Vec::new(), HashMap::new(), 0);
        // Pieces of a buffer may overlap, or each follows the one before.
        let may_overlap = info.is_snapshot || sampled.is_expected();
        // Where the data of each buffer ends so far, and how the last piece of it ends.
        let mut ends: Vec<(u64, Option<Ending>)> = Vec::new();
        for (Auxtrace { size, offset, idx, tid, cpu, .. }, place) in chunks {
            let number = *numbers.entry((idx, cpu, tid)).or_insert_with(|| {
                let switches = ran.switches(cpu, tid);
                buffers.push(Buffer { cpu, tid, traces: Vec::new(), switches });
                ends.push((0, None));
                buffers.len() - 1
            });
            let data = stored.get(place, size);
            let Some(data) = data else {
                unreadable += 1;
                continue;
            };
            let traces = &mut buffers[number].traces;
            let (end, before) = &ends[number];
            // The bytes that are known already, if it follows on what is before.
            let known = match may_overlap {
                true => before.as_ref().and_then(|before| before.overlap(&data)),
                false => (*end == offset).then_some(0),
            };
            match (traces.last_mut(), known) {
                // Nothing is new.
                (Some(_), Some(known)) if known == data.len() && may_overlap => continue,
                (Some(pieces), Some(known)) => pieces.push(data.slice(known..data.len())),
                // perf does not count what is in front of the first point of synchronization.
                (Some(_), None) if may_overlap => match psbs(&data).next() {
                    Some(first) => traces.push(vec![data.slice(first.at..data.len())]),
                    None => continue,
                },
                (None, _) | (_, None) => traces.push(vec![data.clone()]),
            }
            let ending = if may_overlap { Ending::of(&data) } else { None };
            ends[number] = (offset.wrapping_add(size), ending);
        }
        mappings.spaces = AddressSpaces::new(changes);
        let (tasks, repeated) = (ran.tasks, 0);
        Ok(Recorded { tracer, buffers, tasks, lost, counters, unreadable, repeated, mappings })
    }
}

impl<T> Recorded<T> {
    /// The DSOs of the recording, and the process that mapped each first, `None` for those of a kernel.
    pub fn dsos(&self) -> impl ExactSizeIterator<Item = (&Dso, u32, Option<u32>)> {
        self.mappings.dsos()
    }
}

impl Recorded {
    /// Where each trace, of all traces of all buffers, begins in the data of its buffer.
    pub fn begins(&self) -> Vec<u64> {
        let begins = self.buffers.iter().flat_map(|buffer| {
            let mut end = 0;
            buffer.traces.iter().map(move |pieces| {
                let size: u64 = pieces.iter().map(|piece| piece.len() as u64).sum();
                let begin = end;
                end += size;
                begin
            })
        });
        begins.collect()
    }

    /// How the ticks of the traces become times.
    pub fn clock(&self) -> Clock {
        Clock { conv: self.tracer.info.conv }
    }
}

//! Collects from a recording what is needed to decode its traces.

use std::collections::{BTreeSet, HashMap};

use perfx_format::features::{initial_maps, read_str};
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
use perfx_model::address_space::{AddressSpaces, Changes, Machine};
use perfx_model::guests::Guests;
use perfx_model::spe::TaskChange;
use perfx_pipeline::{Result, scan};
use perfx_trace::intel_pt::Errata;

use crate::clock::Clock;
use crate::coresight::Written;
use crate::filters::Filter;
use crate::intel_pt::{IntelPt, errata};
use crate::kept::{Chunk, Kept, Place, StoredAux};
use crate::mappings::Mappings;
use crate::recorded::{Counter, Lost, Recorded};
use crate::running::{Running, Task, Vcpu};
use crate::sampled::Sampled;
use crate::sched_switch::SchedSwitch;
use crate::summary::Summary;
use crate::tracer::Tracer;

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
    /// The recording cannot be read.
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
                        self.mappings.learn(dso, record, layouts, machine);
                    }
                }
            }
        }
    }

    fn add_sampled(&mut self, record: &Record<'_>, layout: Option<&Layout>, time: Option<u64>) {
        if let Some(layout) = layout.filter(|layout| layout.sample_type & st::AUX != 0)
            && let Some((chunk, start, data)) = self.sampled.read(record, layout)
        {
            self.near = self.near.or(time);
            let place = self.place(record, start, data);
            self.chunks.push((chunk, place));
        }
    }

    /// The place of a record's data, which begins at its byte `start`.
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

    /// True if all AUX data is of one tracer, whose traces are decoded with the code.
    pub fn follows_code(&self) -> bool {
        (self.pt.is_some() || self.written.has_info()) && self.tracers.len() == 1
    }

    /// Counts the packets of a recording; `None` if its traces are not decoded with code.
    ///
    /// # Errors
    ///
    /// The recording cannot be read, or its traces are of a kind that is not decoded.
    pub fn summary(recording: &mut Recording, threads: usize) -> Result<Option<Summary>> {
        let survey = Survey::read(recording, threads)?;
        if !survey.follows_code() {
            return Ok(None);
        }
        let (tracer, _) = survey.done(&recording.stored_bytes(), &recording.all_events())?;
        tracer.summary(threads).map(Some)
    }

    /// Ends the survey of a recording with these events, whose AUX data is of one tracer: returns the traces,
    /// and the facts that do not depend on the tracer.
    ///
    /// # Errors
    ///
    /// The AUX data is of another tracer, or cannot be decoded.
    pub fn done(self, stored: &StoredBytes, events: &[Event]) -> Result<(Tracer, Recorded)> {
        let Survey { pt, written, chunks, kept, lost, running, changes, mut mappings, sampled, .. } = self;
        let stored = StoredAux::new(stored, kept)?;
        let mut ran = running.done(&Clock { conv: pt.and_then(|info| info.conv) });
        let (mut buffers, mut unreadable) = (HashMap::new(), 0);
        let chunks = chunks.into_iter().filter_map(|(auxtrace, place)| {
            let Auxtrace { size, idx, tid, cpu, .. } = auxtrace;
            let data = stored.get(place, size);
            unreadable += u64::from(data.is_none());
            let (data, next) = (data?, buffers.len());
            let new = || (next, ran.switches(cpu, tid));
            let (buffer, switches) = buffers.entry((idx, cpu, tid)).or_insert_with(new).clone();
            Some(Chunk { auxtrace, buffer, switches, data })
        });
        let chunks: Vec<Chunk> = chunks.collect();
        let (tracer, repeated) = match pt {
            Some(info) => {
                let mut pt = IntelPt::new(info, events, self.near.unwrap_or(0))?;
                pt.config.errata = self.errata;
                pt.counters = self.counters;
                pt.counters.sort_by_key(|counter| counter.time);
                pt.read(&chunks, sampled.is_expected());
                (Tracer::IntelPt(pt), 0)
            }
            None => {
                let (etm, repeated) = written.done(&chunks, ran.spaces())?;
                (Tracer::CoreSight(etm), repeated)
            }
        };
        mappings.spaces = AddressSpaces::new(changes);
        Ok((tracer, Recorded { tasks: ran.tasks, lost, unreadable, repeated, mappings }))
    }
}

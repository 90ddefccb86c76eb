//! A guest's recording: what is in it, and its records, in time order, as they stand in the host's.

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, ensure};
use build_id::{Answer, Finder, Object, Places};
use perfx_format::features::{BUILD_ID_SIZE_VALID, BuildIdEntry, BuildIds};
use perfx_format::input::{Batch, Form, HeaderRecord, Recording};
use perfx_format::sample::Read;
use perfx_format::{
    Cursor, Endian, Event, Feature, HEADER_SIZE, Kinds, Layout, Layouts, Origin, RECORD_SIZE_MAX, Record,
    RecordType, sample_fields, sample_type as st, trailer_fields,
};
use perfx_pipeline::address_space::{Machine, Mapping};
use perfx_pipeline::{Level, opened, scan};

use super::clock::{Clock, TimeConv};
use super::host::{IdIndex, Times, is_guests};
use crate::support::event_ids::{READ_FORMAT_ID, ids_about, ids_in_read};

/// Which of a guest's records are merged.
#[derive(Clone, Default, Debug)]
pub(crate) struct Chosen {
    kinds: Kinds,
    /// Symbols of BPF programs, too.
    bpf: bool,
    /// Events whose samples no reader of the host could understand: tracepoints, for the host's formats are not the guest's.
    mute: Vec<bool>,
}

/// What perf inject takes.
const DEFAULT: [RecordType; 10] = [
    RecordType::MMAP,
    RecordType::MMAP2,
    RecordType::COMM,
    RecordType::FORK,
    RecordType::EXIT,
    RecordType::LOST,
    RecordType::SWITCH,
    RecordType::SWITCH_CPU_WIDE,
    RecordType::KSYMBOL,
    RecordType::TEXT_POKE,
];

/// What says something to a reader beyond that.
const MORE: [RecordType; 6] = [
    RecordType::NAMESPACES,
    RecordType::CGROUP,
    RecordType::THROTTLE,
    RecordType::UNTHROTTLE,
    RecordType::LOST_SAMPLES,
    RecordType::BPF_EVENT,
];

/// `attr.type` of a tracepoint.
pub(crate) const TRACEPOINT: u32 = 2;

const SAMPLES: [RecordType; 2] = [RecordType::SAMPLE, RecordType::CALLCHAIN_DEFERRED];

/// `ksym_type` of a KSYMBOL record: code out of line, such as a trampoline of ftrace.
const KSYM_TYPE_OOL: u16 = 2;

impl Chosen {
    pub(crate) fn new(samples: bool, all: bool, events: &[Event]) -> Chosen {
        let mut kinds = Kinds::of(&DEFAULT);
        if all {
            kinds = kinds.union(Kinds::of(&MORE));
        }
        if samples {
            kinds = kinds.union(Kinds::of(&SAMPLES));
        }
        let mute = events.iter().map(|event| event.attr().type_ == TRACEPOINT).collect();
        Chosen { kinds, bpf: all, mute }
    }

    fn takes(&self, record: &Record<'_>, layouts: &Layouts) -> bool {
        let kind = record.kind();
        // perf leaves the symbols of BPF programs out: their BPF_EVENTs are not there either. A guest of the guest has no name in the host.
        let bpf = || kind == RecordType::KSYMBOL && record.u16(20) != Some(KSYM_TYPE_OOL) && !self.bpf;
        let mute = || {
            let event = layouts.event_of(record).and_then(|event| self.mute.get(event));
            SAMPLES.contains(&kind) && event == Some(&true)
        };
        self.kinds.has(kind) && kind.is_kernel() && !is_guests(record) && !bpf() && !mute()
    }

    /// Why records of a kind are left out, and how much that matters.
    pub(crate) fn why_not(&self, kind: RecordType) -> (Level, &'static str) {
        let asked = self.kinds.has(kind);
        if asked && SAMPLES.contains(&kind) && self.mute.contains(&true) {
            (Level::Loss, "for they are of tracepoints, whose formats the host's recording does not have")
        } else if asked && (self.bpf || kind != RecordType::KSYMBOL) {
            (Level::Loss, "for they are of guests of the guest")
        } else if SAMPLES.contains(&kind) {
            (Level::Info, "--samples keeps them")
        } else if MORE.contains(&kind) || kind == RecordType::KSYMBOL {
            (Level::Info, "--all keeps them")
        } else {
            let level = if self.bpf { Level::Loss } else { Level::Info };
            (level, "for they mean nothing among the host's")
        }
    }
}

/// A moment at which a VCPU ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// As recorded.
    pub(crate) time: u64,
    pub(crate) vcpu: u32,
}

/// The most moments kept for finding an offset.
const MOMENTS_MAX: usize = 1 << 20;

/// What one look at the whole recording tells.
#[derive(Clone, Default, Debug)]
pub(crate) struct Facts {
    pub(crate) time_conv: Option<TimeConv>,
    /// The VCPU an id belongs to; `None` where it belongs to all.
    pub(crate) vcpu_of_id: BTreeMap<u64, Option<u32>>,
    /// The same as the records show it, for recordings that have no ID_INDEX.
    seen: BTreeMap<u64, BTreeSet<u32>>,
    /// Entries of feature BUILD_ID among the records.
    build_ids: Vec<u8>,
    /// What will be merged, by kind.
    pub(crate) merged: BTreeMap<RecordType, u64>,
    /// What will not.
    pub(crate) left_out: BTreeMap<RecordType, u64>,
    /// Merged records without a time.
    pub(crate) timeless: u64,
    /// First and last time of merged records.
    pub(crate) times: Option<(u64, u64)>,
    pub(crate) moments: Vec<Moment>,
    /// Files that processes run, whose mappings do not tell their build-id.
    files: BTreeSet<Box<[u8]>>,
    /// What could not be read, as said.
    pub(crate) torn: Vec<String>,
}

/// A guest's recording.
#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) recording: Recording,
    pub(crate) facts: Facts,
    pub(crate) chosen: Chosen,
}

impl Guest {
    /// Looks at all of it. Errors on what can't be merged, whatever the host.
    pub(crate) fn new(mut recording: Recording, chosen: Chosen, moments: bool) -> Result<Guest> {
        recording.check_whole()?;
        let name = recording.name.clone();
        for (index, event) in recording.events.iter().enumerate() {
            let wanted = st::TIME;
            ensure!(
                event.attr().sample_id_all() && event.attr().sample_type & wanted != 0,
                "{name}: event {index} gives its records no time, without which nobody knows where they belong: record with --timestamp"
            );
        }
        ensure!(!recording.events.is_empty(), "{name}: there is no event in it");
        Layouts::new(&recording.events).check_ids().map_err(|e| e.file(&name))?;
        let mut facts = Facts::default();
        let endian = recording.endian;
        let is_pipe = recording.form == Form::Pipe;
        // One batch after another: what an id means stands before the records that have it.
        scan(
            &mut recording,
            1,
            true,
            |_| Ok(()),
            |batch, ()| {
                if let Some(torn) = &batch.torn {
                    let error = torn.to_error().file(&batch.name);
                    if !is_pipe && matches!(torn.origin, Origin::Input { .. }) {
                        return Err(error.into());
                    }
                    facts.torn.push(error.to_string());
                }
                let mut walker = batch.walk(endian);
                while let Some(record) = walker.next_record()? {
                    facts.look_at(&record, batch, &chosen, moments)?;
                }
                Ok(())
            },
        )?;
        facts.settle();
        Ok(Guest { recording, facts, chosen })
    }

    /// VCPUs that its records or ids name.
    pub(crate) fn vcpus(&self) -> BTreeSet<u32> {
        self.facts.vcpu_of_id.values().flatten().copied().chain(self.facts.seen_vcpus()).collect()
    }

    /// Its build-ids as entries of the host's feature BUILD_ID, and how many of them are of guests of its own, for whom there is no place.
    pub(crate) fn build_ids(&self, machine: u32) -> (Vec<u8>, u64) {
        let endian = self.recording.endian;
        let section = self.recording.features.get(&Feature::BUILD_ID).map_or(&[][..], |section| section);
        let (mut entries, mut nested) = (Vec::new(), 0);
        for entry in BuildIds::new(section, endian).chain(BuildIds::new(&self.facts.build_ids, endian)) {
            if entry.pid != -1 {
                nested += 1;
                continue;
            }
            let kernel = match entry.misc & 7 {
                1 => true,
                0 => entry.filename.starts_with(b"[kernel"),
                _ => false,
            };
            let misc = entry.misc & BUILD_ID_SIZE_VALID | if kernel { GUEST_KERNEL } else { GUEST_USER };
            // It fitted before.
            let _ = BuildIdEntry { misc, pid: machine as i32, ..entry }.write_section(endian, &mut entries);
        }
        (entries, nested)
    }

    /// Adds those of files that processes of the guest ran, where `entries` has none yet, from below this folder; returns how many.
    pub(crate) fn build_ids_below(&self, root: &Path, machine: u32, entries: &mut Vec<u8>) -> u64 {
        let endian = self.recording.endian;
        let finder = Finder::new(Places { roots: vec![root.to_owned()], ..Places::default() });
        let known: BTreeSet<Box<[u8]>> =
            BuildIds::new(entries, endian).map(|entry| entry.filename.into()).collect();
        let mut found = 0;
        for name in self.facts.files.difference(&known) {
            let path = PathBuf::from(OsStr::from_bytes(name));
            if let Answer::Found { id, .. } = &*finder.find(&Object::File { path, inode: None, pid: None }) {
                let entry = BuildIdEntry::new(GUEST_USER, machine as i32, id.as_bytes(), name);
                found += u64::from(entry.write_section(endian, entries).is_some());
            }
        }
        found
    }
}

impl Facts {
    fn look_at(&mut self, record: &Record<'_>, batch: &Batch, chosen: &Chosen, moments: bool) -> Result<()> {
        let kind = record.kind();
        match kind {
            RecordType::TIME_CONV => self.time_conv = self.time_conv.or_else(|| TimeConv::read(record)),
            RecordType::ID_INDEX => {
                self.vcpu_of_id.extend(IdIndex::read(record).map(|entry| (entry.id, entry.cpu)));
            }
            RecordType::HEADER_BUILD_ID => {
                if let Some(HeaderRecord::BuildId(entry)) = HeaderRecord::read(record)? {
                    self.build_ids.extend(entry);
                }
            }
            _ => {}
        }
        if !kind.is_kernel() {
            return Ok(());
        }
        let taken = chosen.takes(record, &batch.layouts);
        let counts = if taken { &mut self.merged } else { &mut self.left_out };
        *counts.entry(kind).or_default() += 1;
        if let Some(mapping) = Mapping::read(record, &batch.layouts).filter(|_| taken) {
            let tells_id = mapping.dso(record, Machine::Host).tells_id();
            if record.cpumode() == 2
                && mapping.name.starts_with(b"/")
                && !tells_id
                && !self.files.contains(mapping.name)
            {
                self.files.insert(mapping.name.into());
            }
        }
        let Some(layout) = batch.layouts.layout_of(record) else { return Ok(()) };
        let time = layout.time(record).unwrap_or(0);
        if time == 0 || time == u64::MAX {
            self.timeless += u64::from(taken);
            return Ok(());
        }
        if taken {
            let (first, last) = self.times.unwrap_or((time, time));
            self.times = Some((first.min(time), last.max(time)));
        }
        let (id, cpu) = (layout.id(record), layout.cpu(record));
        if let (Some(id), Some(vcpu)) = (id, cpu) {
            let seen = self.seen.entry(id).or_default();
            if seen.len() < 2 {
                seen.insert(vcpu);
            }
        }
        let known = |id| self.vcpu_of_id.get(&id).copied().flatten();
        let vcpu = cpu.or_else(|| id.and_then(known)).filter(|_| moments && self.moments.len() < MOMENTS_MAX);
        self.moments.extend(vcpu.map(|vcpu| Moment { time, vcpu }));
        Ok(())
    }

    /// Before perf 6.0 there was no ID_INDEX, but an id of one CPU shows nothing but that CPU.
    fn settle(&mut self) {
        for (&id, vcpus) in &self.seen {
            let only = vcpus.first().copied().filter(|_| vcpus.len() == 1);
            self.vcpu_of_id.entry(id).or_insert(only);
        }
        self.vcpu_of_id.remove(&0);
    }

    fn seen_vcpus(&self) -> impl Iterator<Item = u32> {
        self.seen.values().flatten().copied()
    }
}

/// What an id of the guest becomes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NewId {
    pub(crate) id: u64,
    pub(crate) vcpu: Option<u32>,
}

/// Turns a guest's records into the host's.
#[derive(Debug)]
pub(crate) struct Translator {
    pub(crate) endian: Endian,
    pub(crate) clock: Clock,
    pub(crate) chosen: Chosen,
    pub(crate) ids: HashMap<u64, NewId>,
    /// The ids of each event, as they were.
    pub(crate) events: Vec<Vec<u64>>,
    /// The host's thread of each VCPU.
    pub(crate) threads: BTreeMap<u32, u32>,
    pub(crate) host: Arc<Times>,
}

// PERF_RECORD_MISC_* of perf_event_open(2).
const GUEST_KERNEL: u16 = 4;
const GUEST_USER: u16 = 5;

/// A record as it stands in the host's recording.
struct Made {
    /// The host's; 0 for none.
    time: u64,
    bytes: Vec<u8>,
}

impl Translator {
    /// `None` for what is not merged.
    fn translate(&self, record: &Record<'_>, batch: &Batch) -> Result<Option<Made>> {
        if !self.chosen.takes(record, &batch.layouts) {
            return Ok(None);
        }
        let Some(event) = batch.layouts.event_of(record) else {
            return Err(record.error("no event has its id").into());
        };
        let Some(layout) = batch.layouts.all().get(event) else { return Ok(None) };
        let short = || record.error(format!("no room for a sample_id of {} bytes", layout.trailer.size));
        if record.kind() != RecordType::SAMPLE {
            let needed = record.kind().min_size() + usize::from(layout.trailer.size);
            if record.bytes().len() < needed.min(HEADER_SIZE + usize::from(layout.trailer.size)) {
                return Err(short().into());
            }
        }
        let time = layout.time(record).ok_or_else(short)?;
        let is_timed = time != 0 && time != u64::MAX;
        let host_time = if is_timed {
            self.clock.host_time(time).filter(|&time| time != 0 && time != u64::MAX).ok_or_else(|| {
                record.error(format!(
                    "its time {time} lies before the host's clock began: the offset can't be right"
                ))
            })?
        } else {
            0
        };
        let id = self.id_of(record, layout, event)?;
        let vcpu = id.vcpu.or_else(|| layout.cpu(record));
        let thread = vcpu.and_then(|vcpu| self.threads.get(&vcpu)).filter(|_| is_timed);
        let cpu = thread.and_then(|&thread| self.host.run(thread)).map_or(0, |run| run.cpu_at(host_time));
        let fields = Fields { id: id.id, time: if is_timed { host_time } else { time }, cpu };
        let bytes = if record.kind() == RecordType::SAMPLE {
            self.sample(record, layout, &fields)?
        } else {
            self.other(record, layout, &fields)?
        };
        Ok(Some(Made { time: host_time, bytes }))
    }

    fn id_of(&self, record: &Record<'_>, layout: &Layout, event: usize) -> Result<NewId> {
        let id = layout.id(record).filter(|&id| id != 0);
        let found = match id {
            Some(id) => self.ids.get(&id),
            None => {
                // Its event is all that is known, and maybe its CPU.
                let cpu = layout.cpu(record).filter(|_| layout.id(record).is_none());
                let mut ids = self.events.get(event).into_iter().flatten().filter_map(|id| self.ids.get(id));
                let first = ids
                    .clone()
                    .next()
                    .or_else(|| self.events.iter().flatten().find_map(|id| self.ids.get(id)));
                ids.find(|id| cpu.is_some() && id.vcpu == cpu).or(first)
            }
        };
        Ok(*found.ok_or_else(|| record.error(format!("no event has its id {}", id.unwrap_or(0))))?)
    }

    fn other(&self, record: &Record<'_>, layout: &Layout, fields: &Fields) -> Result<Vec<u8>> {
        let old = record.bytes();
        let trailer_at = old.len() - usize::from(layout.trailer.size);
        let mut new = Vec::with_capacity(old.len() + 8);
        new.extend_from_slice(&old[..trailer_at]);
        let mut old_fields = old[trailer_at..].chunks_exact(8);
        for bit in trailer_fields(layout.sample_type | st::IDENTIFIER) {
            let there = if layout.sample_type & bit == 0 { None } else { old_fields.next() };
            new.extend(self.field(bit, there, fields));
        }
        // Ids that a record is about.
        let about = ids_about(record.kind());
        for &at in about.iter().filter(|&&at| at + 8 <= trailer_at) {
            if let Some(id) = self.endian.u64(&new, at).and_then(|id| self.ids.get(&id)) {
                self.endian.set_u64(&mut new, at, id.id);
            }
        }
        if matches!(record.kind(), RecordType::THROTTLE | RecordType::UNTHROTTLE) && trailer_at >= 16 {
            self.endian.set_u64(&mut new, 8, fields.time);
        }
        self.seal(record, new)
    }

    fn sample(&self, record: &Record<'_>, layout: &Layout, fields: &Fields) -> Result<Vec<u8>> {
        let old = record.bytes();
        let Some((fixed, rest)) = old.split_at_checked(usize::from(layout.sample.size)) else {
            return Err(record.error("too short for its event's sample_type").into());
        };
        let (header, fixed) = fixed.split_at(HEADER_SIZE);
        let mut new = Vec::with_capacity(old.len() + 8);
        new.extend_from_slice(header);
        let mut old_fields = fixed.chunks_exact(8);
        for bit in sample_fields(layout.sample_type | st::IDENTIFIER) {
            let there = if layout.sample_type & bit == 0 { None } else { old_fields.next() };
            new.extend(self.field(bit, there, fields));
        }
        let read_at = new.len();
        new.extend_from_slice(rest);
        if layout.sample_type & st::READ != 0 && layout.read_format & READ_FORMAT_ID != 0 {
            let read = Read::take(&mut Cursor::new(rest, self.endian), layout.read_format);
            let read = read.ok_or_else(|| record.error("its counters do not fit in it"))?;
            for at in ids_in_read(layout.read_format, read.counts().count()) {
                if let Some(id) = self.endian.u64(&new, read_at + at).and_then(|id| self.ids.get(&id)) {
                    self.endian.set_u64(&mut new, read_at + at, id.id);
                }
            }
        }
        self.seal(record, new)
    }

    /// Eight bytes of a fixed field; `old` where it was there.
    fn field(&self, bit: u64, old: Option<&[u8]>, fields: &Fields) -> [u8; 8] {
        match bit {
            st::TIME => self.endian.bytes_u64(fields.time),
            st::ID | st::STREAM_ID | st::IDENTIFIER => self.endian.bytes_u64(fields.id),
            st::CPU => {
                let mut cpu = [0; 8];
                self.endian.set_u32(&mut cpu, 0, fields.cpu);
                cpu
            }
            _ => old.and_then(|old| old.try_into().ok()).unwrap_or_default(),
        }
    }

    /// Whose the record is, and its size.
    fn seal(&self, record: &Record<'_>, mut new: Vec<u8>) -> Result<Vec<u8>> {
        let Some(size) = u16::try_from(new.len()).ok().filter(|&size| usize::from(size) <= RECORD_SIZE_MAX)
        else {
            return Err(record.error("with an id it is larger than a record can be").into());
        };
        let cpumode = if record.cpumode() == 2 { GUEST_USER } else { GUEST_KERNEL };
        self.endian.set_u16(&mut new, 4, record.misc() & !7 | cpumode);
        self.endian.set_u16(&mut new, 6, size);
        Ok(new)
    }
}

/// What is written anew.
struct Fields {
    id: u64,
    time: u64,
    cpu: u32,
}

/// Reads a guest's records with a time in the order of that time. A FINISHED_ROUND tells that nothing is to come that is older than what had been
/// seen at the one before, so no more than two rounds wait.
pub(crate) struct Sorted {
    batches: Box<dyn Iterator<Item = perfx_format::Result<Batch>> + Send>,
    translator: Arc<Translator>,
    /// In the order of the file.
    waiting: Vec<Made>,
    /// In order, and nothing is to come before them.
    ready: VecDeque<Made>,
    /// Up to this time nothing is to come.
    settled: u64,
    /// The latest time before the last FINISHED_ROUND, and by now.
    level: u64,
    latest: u64,
    /// Its FINISHED_ROUNDs mean something: a directory's files are not in step.
    rounds: bool,
    ended: bool,
    /// Records older than FINISHED_ROUND allows.
    pub(crate) late: u64,
}

impl std::fmt::Debug for Sorted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sorted({} waiting)", self.waiting.len())
    }
}

impl Sorted {
    pub(crate) fn new(recording: &mut Recording, translator: Arc<Translator>) -> Sorted {
        Sorted {
            rounds: recording.stream_count() == 1,
            batches: Box::new(opened(recording)),
            translator,
            waiting: Vec::new(),
            ready: VecDeque::new(),
            settled: 0,
            level: 0,
            latest: 0,
            ended: false,
            late: 0,
        }
    }

    /// The time of the next record up to `limit`.
    pub(crate) fn peek(&mut self, limit: u64) -> Result<Option<u64>> {
        loop {
            if let Some(next) = self.ready.front() {
                return Ok(Some(next.time).filter(|&time| time <= limit));
            }
            if self.settled >= limit || self.ended {
                return Ok(None);
            }
            match self.batches.next() {
                Some(batch) => self.read(&batch?)?,
                None => {
                    self.ended = true;
                    self.settle(u64::MAX);
                }
            }
        }
    }

    /// The record that was peeked at.
    pub(crate) fn pop(&mut self) -> Option<Vec<u8>> {
        self.ready.pop_front().map(|next| next.bytes)
    }

    /// Nothing up to this time is to come. What waits is mostly in order, which a stable sort makes use of; and records of one moment stay as
    /// they are.
    fn settle(&mut self, time: u64) {
        self.settled = time;
        self.waiting.sort_by_key(|made| made.time);
        let old = self.waiting.partition_point(|made| made.time <= time);
        self.ready.extend(self.waiting.drain(..old));
    }

    fn read(&mut self, batch: &Batch) -> Result<()> {
        let translator = self.translator.clone();
        let wanted = translator.chosen.kinds.union(Kinds::of(&[RecordType::FINISHED_ROUND]));
        let mut walker = batch.walk(translator.endian);
        while let Some(record) = walker.next_wanted(wanted, usize::MAX)? {
            if record.kind() == RecordType::FINISHED_ROUND {
                if self.rounds {
                    self.settle(self.level);
                    self.level = self.latest;
                }
                continue;
            }
            let made = translator.translate(&record, batch).map_err(|e| in_file(e, batch))?;
            let Some(made) = made.filter(|made| made.time != 0) else { continue };
            self.late += u64::from(made.time < self.settled);
            self.latest = self.latest.max(made.time);
            self.waiting.push(made);
        }
        Ok(())
    }
}

fn in_file(error: anyhow::Error, batch: &Batch) -> anyhow::Error {
    match error.downcast::<perfx_format::Error>() {
        Ok(error) => error.file(&batch.name).into(),
        Err(error) => error,
    }
}

/// The records without a time, in the order of the file.
pub(crate) fn timeless(
    guest: &mut Guest,
    translator: &Translator,
    mut put: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut left = guest.facts.timeless;
    let kinds = translator.chosen.kinds;
    for batch in opened(&mut guest.recording) {
        let batch = batch?;
        let mut walker = batch.walk(translator.endian);
        while left > 0
            && let Some(record) = walker.next_wanted(kinds, usize::MAX)?
        {
            let time = batch.layouts.time(&record).unwrap_or(0);
            if time != 0 && time != u64::MAX {
                continue;
            }
            if let Some(made) = translator.translate(&record, &batch).map_err(|e| in_file(e, &batch))? {
                left -= 1;
                put(&made.bytes)?;
            }
        }
        if left == 0 {
            break;
        }
    }
    Ok(())
}

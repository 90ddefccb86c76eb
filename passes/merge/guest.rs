//! Surveys a guest's recording.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use build_id::{Answer, Finder, Places};
use perfx_format::features::BuildIds;
use perfx_format::read::sort::watermarks;
use perfx_format::read::{Batch, Form, Recording, TempFiles};
use perfx_format::record::build_id::{BUILD_ID_SIZE_VALID, BuildIdEntry};
use perfx_format::record::cpumode::{GUEST_KERNEL, GUEST_USER, KERNEL, UNKNOWN, USER};
use perfx_format::record::header_records::HeaderRecord;
use perfx_format::record::id_index::IdIndex;
use perfx_format::{Feature, Layouts, Origin, Record, RecordType, Time, sample_type as st};
use perfx_model::address_space::{Dso, Identity, Machine, Mapping};
use perfx_pipeline::{Job, OutputForm, Result, ensure, scan};
use perfx_resolve::{MappedIds, dso_name, object_of, recorded_on};

use super::chosen::MergedKinds;
use super::clock::TimeConv;
use super::moments::{Moment, Moments, VcpuRef};
use crate::sort::sort;

/// The time range of the merged records in a batch, reversed if there are none, and their size.
#[derive(Clone, Copy, Debug)]
struct BatchTimes {
    earliest: u64,
    latest: u64,
    size: u64,
}

#[derive(Clone, Default, Debug)]
pub(crate) struct GuestFacts {
    pub(crate) time_conv: Option<TimeConv>,
    pub(crate) vcpu_of_id: BTreeMap<u64, Option<u32>>,
    /// The VCPUs found in records, for recordings without ID_INDEX, and the last result.
    seen: BTreeMap<u64, BTreeSet<u32>>,
    last_seen: Option<(u64, u32)>,
    build_ids: Vec<u8>,
    pub(crate) mapped_ids: MappedIds,
    /// For each of the kernel's kinds, the numbers of records that will be dropped and merged.
    counts: Vec<[u64; 2]>,
    pub(crate) timeless: u64,
    pub(crate) moments: Moments,
    pub(crate) sampled: Option<(u64, u64)>,
    parts: Vec<BatchTimes>,
    /// Files without a build-id; true for the kernel and its modules.
    files: BTreeSet<(bool, Box<[u8]>)>,
    pub(crate) fragments: Vec<String>,
}

#[derive(Debug)]
pub(crate) struct Guest {
    pub(crate) recording: Recording,
    pub(crate) facts: GuestFacts,
    pub(crate) chosen: MergedKinds,
}

impl Guest {
    /// Surveys the recording; fails if no host can merge it.
    pub(crate) fn new(
        mut recording: Recording,
        chosen: MergedKinds,
        moments: bool,
        threads: usize,
        temp_files: TempFiles,
    ) -> Result<Guest> {
        recording.check_whole()?;
        let name = recording.name.clone();
        for (index, event) in recording.events.iter().enumerate() {
            let wanted = st::TIME;
            ensure!(
                event.attr().sample_id_all() && event.attr().sample_type & wanted != 0,
                "{name}: event {index} gives its records no time, so they can't be placed in the host's recording: \
                 record with --timestamp"
            );
        }
        ensure!(!recording.events.is_empty(), "{name}: it has no event");
        // Samples of the guest would get the call stacks of the host.
        let tables = Feature::HIPERF_STACK_TABLE;
        ensure!(
            !recording.features.contains_key(&tables),
            "{name}: its call stacks are in feature {tables}, which the output has for the host only"
        );
        Layouts::new(&recording.events).check_ids().map_err(|e| e.file(&name))?;
        let mut facts = GuestFacts::of(&mut recording, &chosen, moments, threads)?;
        if facts.waiting_max() > WAITING_MAX {
            let extras = std::mem::take(&mut recording.extras);
            recording = sorted(recording, threads, temp_files)?;
            recording.extras = extras;
            let fragments = facts.fragments;
            facts = GuestFacts { fragments, ..GuestFacts::of(&mut recording, &chosen, moments, threads)? };
        }
        Ok(Guest { recording, facts, chosen })
    }

    pub(crate) fn vcpus(&self) -> BTreeSet<u32> {
        self.facts.vcpu_of_id.values().flatten().copied().chain(self.facts.seen_vcpus()).collect()
    }

    /// Its build-ids as entries of the host's feature BUILD_ID, and the number of those of nested guests,
    /// which the host cannot represent.
    pub(crate) fn build_ids(&self, machine: u32) -> (Vec<u8>, u64) {
        let endian = self.recording.endian;
        let section = self.recording.features.get(&Feature::BUILD_ID).map_or(&[][..], |section| section);
        let (mut entries, mut nested) = (Vec::new(), 0);
        for entry in BuildIds::new(section, endian).chain(BuildIds::new(&self.facts.build_ids, endian)) {
            if entry.pid != -1 {
                nested += 1;
                continue;
            }
            let kernel = match entry.cpumode() {
                KERNEL => true,
                UNKNOWN => entry.filename.starts_with(b"[kernel"),
                _ => false,
            };
            let misc = entry.misc & BUILD_ID_SIZE_VALID | if kernel { GUEST_KERNEL } else { GUEST_USER };
            // It was written before, so it fits.
            let _ = BuildIdEntry { misc, pid: machine as i32, ..entry }.write_section(endian, &mut entries);
        }
        (entries, nested)
    }

    /// Adds missing build-ids of files below this folder; returns the numbers found and missing.
    pub(crate) fn build_ids_below(&self, root: &Path, machine: u32, entries: &mut Vec<u8>) -> (u64, u64) {
        let endian = self.recording.endian;
        let finder = Finder::new(Places {
            roots: vec![root.to_owned()],
            // A running guest mounted here has its /proc and /sys.
            recorded_on: recorded_on(&self.recording.features, endian),
            running_kernel: true,
            system_root: root.to_owned(),
            ..Places::default()
        });
        let known: BTreeSet<Box<[u8]>> =
            BuildIds::new(entries, endian).map(|entry| entry.filename.into()).collect();
        let (mut found, mut missing) = (0, 0);
        for (kernel, name) in self.facts.files.iter().filter(|(_, name)| !known.contains(name)) {
            let (kernel, name) = (*kernel, name.clone());
            let misc = if kernel { GUEST_KERNEL } else { GUEST_USER };
            let dso = Dso { machine: Machine::Host, kernel, name, identity: Identity::Unknown };
            let written = match finder.find(&object_of(&dso, None)) {
                Answer::Found { id, .. } => BuildIdEntry::new(misc, machine as i32, id.as_bytes(), &dso.name)
                    .write_section(endian, entries)
                    .is_some(),
                Answer::Missing { .. } => false,
            };
            found += u64::from(written);
            missing += u64::from(!written);
        }
        (found, missing)
    }
}

/// Maximum size of waiting records, bytes. perf's two rounds take far less, unordered files may not.
const WAITING_MAX: u64 = 32 << 20;

fn sorted(recording: Recording, threads: usize, temp_files: TempFiles) -> Result<Recording> {
    let job = Job { recording, passes: vec![Box::new(sort())], threads, temp_files };
    Ok(job.into_recording(OutputForm::File)?.0)
}

/// From the earlier start to the later end.
fn wider(one: (u64, u64), other: (u64, u64)) -> (u64, u64) {
    (one.0.min(other.0), one.1.max(other.1))
}

impl GuestFacts {
    fn of(
        recording: &mut Recording,
        chosen: &MergedKinds,
        moments: bool,
        threads: usize,
    ) -> Result<GuestFacts> {
        let is_pipe = recording.form == Form::Pipe;
        let mut facts = GuestFacts::default();
        let work = |batch: &Batch| {
            let mut found = GuestFacts::begin(batch);
            let mut walker = batch.walk();
            while let Some(record) = walker.next_record()? {
                found.look_at(&record, batch, chosen, moments)?;
            }
            Ok(found)
        };
        scan(recording, threads, true, work, |batch, found| {
            if let Some(fragment) = &batch.fragment {
                let error = fragment.to_error().file(&batch.name);
                if !is_pipe && matches!(fragment.origin, Origin::Input { .. }) {
                    return Err(error.into());
                }
                facts.fragments.push(error.to_string());
            }
            facts.join(found);
            Ok(())
        })?;
        facts.complete_vcpus();
        Ok(facts)
    }

    fn begin(batch: &Batch) -> GuestFacts {
        let part = BatchTimes { earliest: u64::MAX, latest: 0, size: batch.bytes.len() as u64 };
        GuestFacts { parts: vec![part], counts: vec![[0; 2]; 64], ..GuestFacts::default() }
    }

    fn join(&mut self, later: GuestFacts) {
        self.time_conv = self.time_conv.or(later.time_conv);
        self.vcpu_of_id.extend(later.vcpu_of_id);
        for (id, vcpus) in later.seen {
            self.seen.entry(id).or_default().extend(vcpus);
        }
        self.build_ids.extend(later.build_ids);
        self.mapped_ids.join(later.mapped_ids);
        self.counts.resize(64, [0; 2]);
        for (all, later) in self.counts.iter_mut().flatten().zip(later.counts.iter().flatten()) {
            *all += later;
        }
        self.timeless += later.timeless;
        self.moments.join(later.moments);
        self.sampled = self.sampled.into_iter().chain(later.sampled).reduce(wider);
        self.parts.extend(later.parts);
        self.files.extend(later.files);
    }

    fn look_at(
        &mut self,
        record: &Record<'_>,
        batch: &Batch,
        chosen: &MergedKinds,
        moments: bool,
    ) -> Result<()> {
        let kind = record.kind();
        match kind {
            RecordType::TIME_CONV => self.time_conv = self.time_conv.or_else(|| TimeConv::read(record)),
            RecordType::ID_INDEX => {
                let entries = IdIndex::of(record).into_iter().flat_map(|index| index.entries());
                self.vcpu_of_id.extend(entries.map(|entry| (entry.id, u32::try_from(entry.cpu).ok())));
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
        if let Some(counts) = self.counts.get_mut(kind.0 as usize) {
            counts[usize::from(taken)] += 1;
        }
        if let Some(mapping) = Mapping::read(record, &batch.layouts).filter(|_| taken) {
            let dso = mapping.dso(Machine::Host);
            self.mapped_ids.learn(&dso);
            let runs = dso.kernel || record.cpumode() == USER && mapping.name.starts_with(b"/");
            if runs && !dso.tells_id() {
                self.files.insert((dso.kernel, dso_name(&dso).into()));
            }
        }
        let Some(layout) = batch.layouts.layout_of(record) else { return Ok(()) };
        let Some(time) = layout.time(record).map(Time::ns) else {
            self.timeless += u64::from(taken);
            return Ok(());
        };
        if let Some(part) = self.parts.last_mut().filter(|_| taken) {
            (part.earliest, part.latest) = (part.earliest.min(time), part.latest.max(time));
            if kind == RecordType::SAMPLE {
                self.sampled = Some(self.sampled.map_or((time, time), |all| wider(all, (time, time))));
            }
        }
        let (id, cpu) = (layout.id(record), layout.cpu(record));
        if let (Some(id), Some(vcpu)) = (id, cpu)
            && self.last_seen.replace((id, vcpu)) != Some((id, vcpu))
        {
            let seen = self.seen.entry(id).or_default();
            if seen.len() < 2 {
                seen.insert(vcpu);
            }
        }
        if let Some(vcpu) = cpu.map(VcpuRef::Vcpu).or(id.map(VcpuRef::OfId)).filter(|_| moments) {
            self.moments.push(Moment { time, vcpu });
        }
        Ok(())
    }

    /// Before perf 6.0 there was no ID_INDEX, but an id whose records are all of one CPU belongs to it.
    fn complete_vcpus(&mut self) {
        for (&id, vcpus) in &self.seen {
            let only = vcpus.first().copied().filter(|_| vcpus.len() == 1);
            self.vcpu_of_id.entry(id).or_insert(only);
        }
        self.vcpu_of_id.remove(&0);
    }

    pub(crate) fn merged(&self) -> BTreeMap<RecordType, u64> {
        self.count(1)
    }

    pub(crate) fn left_out(&self) -> BTreeMap<RecordType, u64> {
        self.count(0)
    }

    fn count(&self, which: usize) -> BTreeMap<RecordType, u64> {
        let counts = (0..).map(RecordType).zip(self.counts.iter().map(|counts| counts[which]));
        counts.filter(|(_, count)| *count > 0).collect()
    }

    pub(crate) fn vcpu(&self, moment: &Moment) -> Option<u32> {
        match moment.vcpu {
            VcpuRef::Vcpu(vcpu) => Some(vcpu),
            VcpuRef::OfId(id) => self.vcpu_of_id.get(&id).copied().flatten(),
        }
    }

    pub(crate) fn times(&self) -> Option<(u64, u64)> {
        let first = self.parts.iter().map(|part| part.earliest).min()?;
        let last = self.parts.iter().map(|part| part.latest).max()?;
        (first <= last).then_some((first, last))
    }

    pub(crate) fn watermarks(&self) -> VecDeque<u64> {
        watermarks(self.parts.iter().map(|part| part.earliest))
    }

    fn waiting_max(&self) -> u64 {
        let mut waiting: Vec<BatchTimes> = Vec::new();
        let mut most = 0;
        for (part, level) in self.parts.iter().zip(self.watermarks()) {
            waiting.push(*part);
            waiting.retain(|part| part.latest >= level);
            most = most.max(waiting.iter().map(|part| part.size).sum());
        }
        most
    }

    fn seen_vcpus(&self) -> impl Iterator<Item = u32> {
        self.seen.values().flatten().copied()
    }
}

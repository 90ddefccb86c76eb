//! A guest's recording and what one look at it tells.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use anyhow::{Result, ensure};
use build_id::{Answer, Finder, Object, Places};
use perfx_format::features::{BUILD_ID_SIZE_VALID, BuildIdEntry, BuildIds};
use perfx_format::input::{Batch, Form, HeaderRecord, Recording};
use perfx_format::{Feature, Layouts, Origin, Record, RecordType, sample_type as st};
use perfx_pipeline::address_space::{Machine, Mapping};
use perfx_pipeline::scan;

use super::chosen::Chosen;
use super::clock::TimeConv;
use super::machines::IdIndex;
use super::translate::{GUEST_KERNEL, GUEST_USER};

/// A moment at which a VCPU ran.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// As recorded.
    pub(crate) time: u64,
    pub(crate) vcpu: u32,
}

/// The most moments kept for finding an offset.
const MOMENTS_MAX: usize = 1 << 19;

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

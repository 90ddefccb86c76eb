//! `mmap2-build-ids` rewrites MMAP and MMAP2 records to MMAP2 records that carry the build-id of what they map, where one is found; all
//! others stay as they are, inode and all. With `hit`, mappings that no sample hits leave the recording.

use std::sync::Arc;

use anyhow::Result;
use perfx_format::decode::MMAP_BUILD_ID;
use perfx_format::features::BuildIdEntry;
use perfx_format::input::Recording;
use perfx_format::{HEADER_SIZE, Kinds, Layouts, RECORD_SIZE_MAX, Record, RecordType};
use perfx_pipeline::address_space::{AddressSpaces, Changes, Mapping};
use perfx_pipeline::{Emit, Needs, Pass, Session, counted, worker_as};

use crate::support::hits::{Guests, Hits, Spot};
use crate::support::ids::{IdOptions, Ids};
use crate::support::options::{Choice, Options};

/// The pass.
#[derive(Debug, Default)]
pub struct Mmap2BuildIds {
    options: Mmap2BuildIdsOptions,
    step: Step,
    ids: Option<Ids>,
    /// MMAP and MMAP2 records gone by.
    mappings: usize,
    rewritten: u64,
    /// Some mapping told its build-id before.
    any_id: bool,
}

/// What the user chose.
#[derive(Clone, Debug, Default)]
pub struct Mmap2BuildIdsOptions {
    /// Keep only mappings that samples hit.
    pub hit: bool,
    /// Where ids may come from.
    pub ids: IdOptions,
}

/// What it is doing.
#[derive(Debug)]
enum Step {
    /// Look 1: which mappings there are.
    Mappings { changes: Changes, guests: Guests },
    /// Look 2: which of them samples hit.
    Samples(Hits),
    /// On the way to the output. `hit` says it of each mapping in file order; `None` means that all of them stay.
    Writing { guests: Guests, hit: Option<Vec<bool>> },
}

impl Default for Step {
    fn default() -> Step {
        let (changes, guests) = Default::default();
        Step::Mappings { changes, guests }
    }
}

/// Bit 13 of a MMAP's `misc`: a mapping of data.
const MMAP_DATA: u16 = 1 << 13;
const PROT_READ: u32 = 1;
const PROT_EXEC: u32 = 4;

impl Mmap2BuildIds {
    pub(crate) const ABOUT: &'static str =
        "rewrite MMAP and MMAP2 records to MMAP2 records with the build-id of what they map";
    pub(crate) const OPTIONS: &'static [Choice] = &[
        Choice { name: "hit", value: None, about: "leave out mappings that no sample hits" },
        IdOptions::KNOWN,
        IdOptions::ROOT,
        IdOptions::CACHE,
        IdOptions::NO_FILES,
    ];

    pub(crate) fn make(options: &Options) -> Result<Box<dyn Pass>> {
        let ids = IdOptions::from_options(options)?;
        Ok(Box::new(Mmap2BuildIds::new(Mmap2BuildIdsOptions { hit: options.has("hit"), ids })))
    }

    /// With these options.
    pub fn new(options: Mmap2BuildIdsOptions) -> Mmap2BuildIds {
        Mmap2BuildIds { options, ..Mmap2BuildIds::default() }
    }

    /// The record with a build-id, if there is one and it has none yet.
    fn with_id(&mut self, record: &Record<'_>, guests: &Guests, layouts: &Layouts) -> Option<Vec<u8>> {
        let mapping = Mapping::read(record, layouts)?;
        let dso = mapping.dso(record, guests.machine(record, layouts, Some(mapping.pid)));
        // The kernel's own mapping says where it was relocated to, and readers know it by its name and MMAP's form.
        if dso.kernel || dso.tells_id() {
            self.any_id |= dso.tells_id();
            return None;
        }
        // Without a layout nobody knows where the name ends and the trailer begins.
        layouts.layout_of(record)?;
        let spot = Spot::of_mapping(record, layouts);
        let id = self.ids.as_mut()?.find(&dso, mapping.flags, spot.pid)?;
        let endian = record.endian();
        let mut bytes = record.bytes().get(..40)?.to_vec();
        let (prot, flags) = match record.kind() {
            RecordType::MMAP2 => (record.u32(64)?, record.u32(68)?),
            // MMAP tells neither; what it maps is data or code.
            _ => (if record.misc() & MMAP_DATA != 0 { PROT_READ } else { PROT_EXEC }, 0),
        };
        bytes.extend([id.as_bytes().len() as u8, 0, 0, 0]);
        bytes.extend(id.as_bytes());
        bytes.resize(64, 0);
        bytes.extend(endian.bytes_u32(prot));
        bytes.extend(endian.bytes_u32(flags));
        bytes.extend(mapping.name);
        bytes.resize((bytes.len() + 1).next_multiple_of(8), 0);
        bytes.extend(spot.trailer);
        if bytes.len() > RECORD_SIZE_MAX {
            return None;
        }
        endian.set_u32(&mut bytes, 0, RecordType::MMAP2.0)?;
        endian.set_u16(&mut bytes, 4, record.misc() | MMAP_BUILD_ID)?;
        let size = bytes.len() as u16;
        endian.set_u16(&mut bytes, HEADER_SIZE - 2, size)?;
        Some(bytes)
    }
}

impl Pass for Mmap2BuildIds {
    fn name(&self) -> &'static str {
        "mmap2-build-ids"
    }

    fn needs(&self, _input: &Recording) -> Needs {
        let known = Kinds::of(&[RecordType::HEADER_BUILD_ID, RecordType::ID_INDEX]);
        let looks =
            if self.options.hit { vec![Changes::kinds().union(known), Hits::kinds()] } else { Vec::new() };
        let records = Kinds::of(&[RecordType::MMAP, RecordType::MMAP2]).union(known);
        Needs { records, looks, decompressed: true, ids: self.options.hit, ..Needs::default() }
    }

    fn survey(&mut self, _look: usize, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        match &mut self.step {
            Step::Mappings { changes, guests } => match record.kind() {
                RecordType::ID_INDEX => guests.learn(record),
                RecordType::HEADER_BUILD_ID => {}
                _ => {
                    let machine = guests.machine(record, layouts, record.u32(8));
                    changes.add(record, layouts, machine);
                }
            },
            Step::Samples(hits) => hits.look_at(record, layouts),
            Step::Writing { .. } => {}
        }
        Ok(())
    }

    fn surveyed(&mut self, _look: usize, _session: &mut Session) -> Result<()> {
        self.step = match std::mem::take(&mut self.step) {
            Step::Mappings { changes, guests } => {
                Step::Samples(Hits::new(Arc::new(AddressSpaces::new(changes)), Arc::new(guests)))
            }
            Step::Samples(hits) => {
                Step::Writing { guests: Guests::default(), hit: Some(hits.mappings().to_vec()) }
            }
            step => step,
        };
        Ok(())
    }

    fn begin(&mut self, session: &mut Session) -> Result<()> {
        self.ids = Some(Ids::new(&self.options.ids, session, &[]));
        if !matches!(self.step, Step::Writing { .. }) {
            self.step = Step::Writing { guests: Guests::default(), hit: None };
        }
        Ok(())
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let mut step = std::mem::take(&mut self.step);
        if let Step::Writing { guests, hit } = &mut step {
            match record.kind() {
                RecordType::ID_INDEX => guests.learn(&record),
                RecordType::HEADER_BUILD_ID => {
                    if let (Some(ids), Some(entry)) =
                        (&mut self.ids, BuildIdEntry::read(record.bytes(), record.endian()))
                    {
                        ids.learn(&entry);
                    }
                }
                _ => {
                    let number = self.mappings;
                    self.mappings += usize::from(Mapping::read(&record, out.layouts()).is_some());
                    let kernel = matches!(record.cpumode(), 1 | 4);
                    let is_hit = hit.as_ref().is_none_or(|hit| hit.get(number).copied().unwrap_or(false));
                    let new = is_hit.then(|| self.with_id(&record, guests, out.layouts())).flatten();
                    self.step = step;
                    return match new {
                        Some(new) => {
                            self.rewritten += 1;
                            out.replace(&record, &new)
                        }
                        None if is_hit || kernel => out.keep(record),
                        None => {
                            out.drop_record(record);
                            Ok(())
                        }
                    };
                }
            }
        }
        self.step = step;
        out.keep(record)
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        if let Some(ids) = &self.ids {
            let rewritten = counted(self.rewritten, "mapping", "mappings");
            let any = self.any_id || self.rewritten > 0;
            ids.report(&format!("{rewritten} rewritten with a build-id"), any, &mut session.report);
        }
        Ok(())
    }

    fn fork(&self) -> Option<Box<dyn Pass>> {
        // Mappings are numbered as they go by, so only the look at samples can be shared.
        let Step::Samples(hits) = &self.step else { return None };
        let step = Step::Samples(hits.fork());
        Some(Box::new(Mmap2BuildIds { options: self.options.clone(), step, ..Mmap2BuildIds::default() }))
    }

    fn join(&mut self, worker: Box<dyn Pass>) -> Result<()> {
        if let (Step::Samples(hits), Some(Mmap2BuildIds { step: Step::Samples(later), .. })) =
            (&mut self.step, worker_as(worker))
        {
            hits.join(later);
        }
        Ok(())
    }
}

//! `mmap2-build-ids` rewrites MMAP and MMAP2 records to MMAP2 records that carry the build-id of what they map, where one is found; all
//! others stay as they are, inode and all. With `hit`, mappings that no sample needs leave the recording.

use std::collections::BTreeSet;

use anyhow::Result;
use perfx_format::features::BuildIdEntry;
use perfx_format::input::Recording;
use perfx_format::{Kinds, Layouts, Mmap, Record, RecordType};
use perfx_pipeline::address_space::Mapping;
use perfx_pipeline::{Emit, Level, Needs, Pass, Session, counted, worker_as};

use crate::support::hits::{Guests, Hits, Mapped, Spot};
use crate::support::ids::{Correction, IdOptions, Ids};
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
    /// Ids of the user that replace those of the recording.
    corrections: BTreeSet<Correction>,
}

/// What the user chose.
#[derive(Clone, Debug, Default)]
pub struct Mmap2BuildIdsOptions {
    /// Keep only mappings that samples hit, or that are needed to unwind or decode them.
    pub hit: bool,
    /// Where ids may come from.
    pub ids: IdOptions,
}

/// What it is doing.
#[derive(Debug)]
enum Step {
    /// Look 1: which mappings there are.
    Mappings(Mapped),
    /// Look 2: which of them samples need.
    Samples(Hits),
    /// On the way to the output. `needed` says it of each mapping in file order; `None` means that all of them stay.
    Writing { guests: Guests, needed: Option<Vec<bool>> },
}

impl Default for Step {
    fn default() -> Step {
        Step::Mappings(Mapped::default())
    }
}

impl Mmap2BuildIds {
    pub(crate) const ABOUT: &'static str =
        "rewrite MMAP and MMAP2 records to MMAP2 records with the build-id of what they map";
    pub(crate) const OPTIONS: &'static [Choice] = &[
        Choice {
            name: "hit",
            value: None,
            about: "leave out mappings that no sample hits or may need to be unwound or decoded",
        },
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
        Mmap::of(record)?.with_build_id(id.as_bytes(), &spot.trailer)
    }
}

impl Mmap2BuildIds {
    /// Passes a record on, with the id that the user gives where it has another.
    fn correct(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let Some(correction) = self.options.ids.correction(&record, out.layouts()) else {
            return out.keep(record);
        };
        let done = out.patch(record, |bytes| correction.apply(record.kind(), bytes, record.endian()));
        self.corrections.insert(correction);
        done
    }
}

impl Pass for Mmap2BuildIds {
    fn name(&self) -> &'static str {
        "mmap2-build-ids"
    }

    fn needs(&self, _input: &Recording) -> Needs {
        let looks = if self.options.hit { vec![Mapped::kinds(), Hits::kinds()] } else { Vec::new() };
        let records = Kinds::of(&[
            RecordType::MMAP,
            RecordType::MMAP2,
            RecordType::HEADER_BUILD_ID,
            RecordType::ID_INDEX,
        ]);
        Needs { records, looks, decompressed: true, ids: self.options.hit, ..Needs::default() }
    }

    fn survey(&mut self, _look: usize, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        match &mut self.step {
            Step::Mappings(mapped) => mapped.learn(record, layouts),
            Step::Samples(hits) => hits.look_at(record, layouts),
            Step::Writing { .. } => {}
        }
        Ok(())
    }

    fn surveyed(&mut self, _look: usize, session: &mut Session) -> Result<()> {
        self.step = match std::mem::take(&mut self.step) {
            Step::Mappings(mapped) if mapped.has_aux() => {
                session.report.say(
                    Level::Info,
                    "the recording holds AUX data, and decoding it may need any mapping: all of them stay",
                );
                session.skip_looks();
                Step::Writing { guests: Guests::default(), needed: None }
            }
            Step::Mappings(mapped) => Step::Samples(mapped.into_hits().1),
            Step::Samples(hits) => {
                if hits.unwound() > 0 {
                    let processes = counted(hits.unwound(), "process", "processes");
                    session.report.say(
                        Level::Info,
                        format!("samples hold user stacks, so all mappings of {processes} stay: unwinding may need any of them"),
                    );
                }
                Step::Writing { guests: Guests::default(), needed: Some(hits.needed_mappings()) }
            }
            step => step,
        };
        Ok(())
    }

    fn begin(&mut self, session: &mut Session) -> Result<()> {
        self.ids = Some(Ids::new(&self.options.ids, session, &[]));
        if !matches!(self.step, Step::Writing { .. }) {
            self.step = Step::Writing { guests: Guests::default(), needed: None };
        }
        Ok(())
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let mut step = std::mem::take(&mut self.step);
        if let Step::Writing { guests, needed } = &mut step {
            match record.kind() {
                RecordType::ID_INDEX => guests.learn(&record),
                RecordType::HEADER_BUILD_ID => {
                    if let (Some(ids), Some(entry)) =
                        (&mut self.ids, BuildIdEntry::read(record.bytes(), record.endian()))
                    {
                        ids.learn(&entry);
                    }
                    self.step = step;
                    return self.correct(record, out);
                }
                _ => {
                    let number = self.mappings;
                    self.mappings += usize::from(Mapping::read(&record, out.layouts()).is_some());
                    let kernel = matches!(record.cpumode(), 1 | 4);
                    let is_needed =
                        needed.as_ref().is_none_or(|needed| needed.get(number).copied().unwrap_or(false));
                    let new = is_needed.then(|| self.with_id(&record, guests, out.layouts())).flatten();
                    self.step = step;
                    return match new {
                        Some(new) => {
                            self.rewritten += 1;
                            out.replace(&record, &new)
                        }
                        None if is_needed || kernel => self.correct(record, out),
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
        self.options.ids.correct_feature(session, &mut self.corrections);
        if let Some(ids) = &self.ids {
            let rewritten = counted(self.rewritten, "mapping", "mappings");
            let any = self.any_id || self.rewritten > 0;
            let rewritten = format!("{rewritten} rewritten with a build-id");
            ids.report(&rewritten, any, &self.corrections, &mut session.report);
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

//! `mmap2-build-ids` rewrites MMAP and MMAP2 records to MMAP2 records with build-ids, where one is found.
//! With `hit`, mappings that no sample needs are dropped.

use std::collections::BTreeSet;

use clap::Args;
use perfx_format::read::Recording;
use perfx_format::record::build_id::BuildIdEntry;
use perfx_format::{Kinds, Layouts, Mmap, Record, RecordType};
use perfx_model::address_space::Mapping;
use perfx_model::guests::Guests;
use perfx_model::hits::{FirstUse, Hits, Mapped};
use perfx_pipeline::{Emit, Fork, Level, Needs, Pass, Result, Rewrite, Session, Stage, Survey, counted};
use perfx_resolve::{Correction, IdArgs, IdOptions, Ids};

use crate::support::options::PassOptions;

/// The pass.
#[derive(Debug)]
pub struct Mmap2BuildIds {
    options: Mmap2BuildIdsOptions,
}

/// The options, checked.
#[derive(Clone, Debug, Default)]
pub struct Mmap2BuildIdsOptions {
    /// Keep only mappings that samples hit, or that are needed to unwind or decode samples.
    pub hit: bool,
    /// The sources of ids.
    pub ids: IdOptions,
}

/// The options on the command line.
#[derive(Args, Clone, Debug)]
pub struct Mmap2BuildIdsArgs {
    /// Leave out mappings that samples neither hit nor need for unwinding or decoding
    #[arg(long)]
    hit: bool,
    #[command(flatten)]
    ids: IdArgs,
}

impl PassOptions for Mmap2BuildIdsArgs {
    const NAME: &'static str = "mmap2-build-ids";
    const ABOUT: &'static str =
        "turn MMAP and MMAP2 records into MMAP2 records with the build-id of the mapped file";

    fn pass(self) -> Result<Box<dyn Pass>> {
        let options = Mmap2BuildIdsOptions { hit: self.hit, ids: self.ids.options()? };
        Ok(Box::new(Mmap2BuildIds::new(options)))
    }
}

struct MapSurvey {
    options: Mmap2BuildIdsOptions,
    mapped: Mapped,
}

/// The second survey: finds the mappings that samples need.
struct NeedSurvey {
    options: Mmap2BuildIdsOptions,
    hits: Hits,
}

struct RewriteMaps {
    options: Mmap2BuildIdsOptions,
    ids: Ids,
    guests: Guests,
    /// For each mapping in file order, true if needed; `None` keeps all.
    needed: Option<Vec<bool>>,
    mappings: usize,
    rewritten: u64,
    any_id: bool,
    corrections: BTreeSet<Correction>,
}

impl Mmap2BuildIds {
    /// The pass with these options.
    pub fn new(options: Mmap2BuildIdsOptions) -> Mmap2BuildIds {
        Mmap2BuildIds { options }
    }
}

impl RewriteMaps {
    fn stage(options: Mmap2BuildIdsOptions, needed: Option<Vec<bool>>) -> Stage {
        Stage::begin(|begin| {
            Ok(Stage::rewrite_in_order(RewriteMaps {
                ids: Ids::new(&options.ids, begin, &[]),
                options,
                guests: Guests::default(),
                needed,
                mappings: 0,
                rewritten: 0,
                any_id: false,
                corrections: BTreeSet::new(),
            }))
        })
    }

    fn with_id(&mut self, record: &Record<'_>, layouts: &Layouts) -> Option<Vec<u8>> {
        let mapping = Mapping::read(record, layouts)?;
        let dso = mapping.dso(self.guests.machine(record, layouts, Some(mapping.pid)));
        // The kernel's mapping contains its relocation; readers recognise it by name and kind (MMAP).
        if dso.kernel || dso.tells_id() {
            self.any_id |= dso.tells_id();
            return None;
        }
        // Only the layout determines where the name ends and the trailer begins.
        layouts.layout_of(record)?;
        let first_use = FirstUse::of_mapping(record, layouts);
        let id = self.ids.find(&dso, mapping.flags, first_use.pid)?;
        Mmap::of(record)?.with_build_id(id.as_bytes(), &first_use.trailer)
    }

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
        Mmap2BuildIdsArgs::NAME
    }

    fn needs(&self, _input: &Recording) -> Needs {
        let surveys = if self.options.hit { vec![Mapped::kinds(), Hits::kinds()] } else { Vec::new() };
        let records = Kinds::PATHS.and(RecordType::ID_INDEX);
        Needs { records, surveys, decompressed: true, ids: self.options.hit, ..Needs::default() }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        let options = self.options;
        if options.hit {
            // The meaning of a mapping depends on those before it.
            Stage::survey_in_order(MapSurvey { options, mapped: Mapped::default() })
        } else {
            RewriteMaps::stage(options, None)
        }
    }
}

impl Survey for MapSurvey {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.mapped.learn(record, layouts);
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let MapSurvey { options, mapped } = self;
        if mapped.has_aux() {
            session.report.say(
                Level::Info,
                "the recording has AUX data, which may need any mapping to be decoded, so all mappings stay",
            );
            return Ok(RewriteMaps::stage(options, None));
        }
        Ok(Stage::survey(NeedSurvey { options, hits: mapped.into_hits().1 }))
    }
}

impl Survey for NeedSurvey {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.hits.look_at(record, layouts);
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        if self.hits.unwound() > 0 {
            let processes = counted(self.hits.unwound(), "process", "processes");
            session.report.say(
                Level::Info,
                format!(
                    "samples have user stacks, and unwinding may need any mapping, so all mappings of \
                    {processes} stay"
                ),
            );
        }
        Ok(RewriteMaps::stage(self.options, Some(self.hits.needed_mappings())))
    }
}

impl Fork for NeedSurvey {
    fn fork(&self) -> NeedSurvey {
        NeedSurvey { options: self.options.clone(), hits: self.hits.fork() }
    }

    fn absorb(&mut self, later: NeedSurvey) {
        self.hits.absorb(later.hits);
    }
}

impl Rewrite for RewriteMaps {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        match record.kind() {
            RecordType::ID_INDEX => {
                self.guests.learn(&record);
                out.keep(record)
            }
            RecordType::HEADER_BUILD_ID => {
                if let Some(entry) = BuildIdEntry::read(record.bytes(), record.endian()) {
                    self.ids.learn(&entry);
                }
                self.correct(record, out)
            }
            _ => {
                let number = self.mappings;
                self.mappings += usize::from(Mapping::read(&record, out.layouts()).is_some());
                let kernel = record.is_of_kernel();
                let needed = |needed: &Vec<bool>| needed.get(number).copied().unwrap_or(false);
                let is_needed = self.needed.as_ref().is_none_or(needed);
                match is_needed.then(|| self.with_id(&record, out.layouts())).flatten() {
                    Some(new) => {
                        self.rewritten += 1;
                        out.replace(&record, &new)
                    }
                    None if is_needed || kernel => self.correct(record, out),
                    None => {
                        out.drop_record(record);
                        Ok(())
                    }
                }
            }
        }
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        self.options.ids.correct_feature(session, &mut self.corrections);
        let rewritten = counted(self.rewritten, "mapping", "mappings");
        let any = self.any_id || self.rewritten > 0;
        let rewritten = format!("{rewritten} rewritten with a build-id");
        self.ids.report(&rewritten, any, &self.corrections, &mut session.report);
        Ok(())
    }
}

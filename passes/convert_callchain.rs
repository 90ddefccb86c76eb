//! `convert-callchain` converts the user stacks of samples into call chains, and leaves the stacks out: the
//! recording becomes small, quick to read, and free of the programs' memory contents. Stacks that can't be
//! unwound stay unless `--drop-unresolved` is given. On aarch64, callers known only by the link register are
//! inserted into call chains.
//!
//! A survey collects the mappings; then each sample is unwound by itself, with the files mapped at its time.

use std::sync::Arc;

use clap::Args;
use perfx_format::read::Recording;
use perfx_format::{Kinds, Layouts, Record, RecordType, named_pid};
use perfx_model::address_space::{AddressSpaces, Changes, KERNEL, Mapping};
use perfx_model::guests::Guests;
use perfx_model::mapped_files::MappedFiles;
use perfx_pipeline::{Level, Needs, Pass, Result, Session, Stage, Survey, change_attrs, ensure};
use perfx_resolve::{IdOptions, RecordedIds, SearchArgs};
use perfx_unwind::{Kept, Mapped, Unwinder};

use crate::support::options::PassOptions;

/// The options on the command line.
#[derive(Args, Clone, Debug)]
pub struct ConvertCallchainArgs {
    /// Leave out the user registers and stacks of samples that can't be unwound, too
    #[arg(long)]
    drop_unresolved: bool,
    #[command(flatten)]
    search: SearchArgs,
}

impl PassOptions for ConvertCallchainArgs {
    const NAME: &'static str = "convert-callchain";
    const ABOUT: &'static str = "convert the user stacks of samples into call chains";

    fn pass(self) -> Result<Box<dyn Pass>> {
        let kept =
            if self.drop_unresolved { Kept::Nothing { must_resolve: false } } else { Kept::Unresolved };
        Ok(Box::new(ConvertCallchain::new(kept, self.search.options(None)?)))
    }
}

/// The pass.
#[derive(Debug)]
pub struct ConvertCallchain {
    kept: Kept,
    /// Refuse a recording of an architecture whose stacks can't be unwound.
    must: bool,
    ids: IdOptions,
}

impl ConvertCallchain {
    /// Creates the pass; `ids` locates the mapped files.
    pub fn new(kept: Kept, ids: IdOptions) -> ConvertCallchain {
        ConvertCallchain { kept, must: true, ids }
    }

    /// The pass for readers of call chains: for an architecture that can't be unwound, it only warns.
    pub fn if_possible(ids: IdOptions) -> ConvertCallchain {
        ConvertCallchain { kept: Kept::Registers, must: false, ids }
    }
}

struct Gather {
    pass: ConvertCallchain,
    changes: Changes,
    guests: Guests,
    files: MappedFiles,
    build_ids: Vec<Vec<u8>>,
}

impl ConvertCallchain {
    /// True if the pass would change the recording: it has user stacks, or link registers of aarch64.
    pub fn concerns(input: &Recording) -> bool {
        perfx_unwind::is_needed(&input.events, &input.features, input.endian)
    }
}

impl Pass for ConvertCallchain {
    fn name(&self) -> &'static str {
        ConvertCallchainArgs::NAME
    }

    fn needs(&self, input: &Recording) -> Needs {
        if !ConvertCallchain::concerns(input) {
            return Needs::default();
        }
        // Without COMM, an exec leaves old mappings in place, but stacks contain only addresses in new ones.
        let surveyed = Changes::kinds().without(RecordType::COMM);
        let surveyed = surveyed.and(RecordType::ID_INDEX).and(RecordType::HEADER_BUILD_ID);
        let records = Kinds::of(&[RecordType::SAMPLE]);
        Needs { records, surveys: vec![surveyed], decompressed: true, ids: true, ..Needs::default() }
    }

    fn start(self: Box<Self>, input: &Recording) -> Stage {
        if !ConvertCallchain::concerns(input) {
            return Stage::begin(|begin| {
                let line = "no event has call chains with user registers and stacks \
                            (perf record --call-graph dwarf), so there is nothing to convert";
                begin.report.say(Level::Warning, line);
                Ok(Stage::rewrite(Unchanged))
            });
        }
        let (changes, guests, files, build_ids) = Default::default();
        // The meaning of a mapping depends on those before it.
        Stage::survey_in_order(Gather { pass: *self, changes, guests, files, build_ids })
    }
}

impl Survey for Gather {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        match record.kind() {
            RecordType::ID_INDEX => self.guests.learn(record),
            RecordType::HEADER_BUILD_ID => self.build_ids.push(record.bytes().to_vec()),
            _ => {
                let machine = self.guests.machine(record, layouts, named_pid(record));
                if let Some(dso) = self.changes.add(record, layouts, machine) {
                    let mapping = Mapping::read(record, layouts);
                    let is_kernel = mapping.is_none_or(|mapping| mapping.pid == KERNEL);
                    self.files.learn(dso, mapping.as_ref(), is_kernel);
                }
            }
        }
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let Gather { pass, changes, guests, files, build_ids } = self;
        let endian = session.endian;
        if let Some(why) = perfx_unwind::why_not(session.features(), endian) {
            ensure!(!pass.must, "{}: {why}", session.name);
            session.report.say(Level::Warning, why);
        }
        let spaces = Arc::new(AddressSpaces::new(changes));
        let mut ids = RecordedIds::new(session.features(), endian, spaces.dsos());
        ids.learn_records(&build_ids, endian);
        let mapped = Mapped { spaces, files, ids, guests };
        let unwinder = Unwinder::new(mapped, pass.ids, (session.features(), endian), session.made_files()?);
        let kept = pass.kept;
        Ok(Stage::begin(move |begin| {
            change_attrs(begin, |attr, endian| unwinder.convert_attr(attr, kept, endian));
            Ok(Stage::rewrite(unwinder.on_thread(kept)))
        }))
    }
}

struct Unchanged;

impl perfx_pipeline::Rewrite for Unchanged {}

impl perfx_pipeline::Fork for Unchanged {
    fn fork(&self) -> Unchanged {
        Unchanged
    }

    fn absorb(&mut self, _later: Unchanged) {}
}

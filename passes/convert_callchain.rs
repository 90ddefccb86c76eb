//! `convert-callchain` converts the user stacks of samples into call chains, and leaves the stacks out: the
//! recording becomes small, quick to read, and free of what was in the memory of the programs. Into the call chains of
//! aarch64 it inserts the callers that only the link register tells.
//!
//! A survey collects the mappings. Then samples are independent of each other: each is unwound with the files
//! that were mapped at its time.

mod arch;
mod convert;
mod exidx;
mod images;
mod rules;
mod walk;

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;

use build_id::RecordedOn;
use clap::Args;
use perfx_format::header::Features;
use perfx_format::read::Recording;
use perfx_format::record::build_id::BuildIdEntry;
use perfx_format::{
    Attr, Bytes, Endian, Event, Kinds, Layouts, Record, RecordType, named_pid, sample_type as st,
    with_user_callchains, without_parts,
};
use perfx_model::address_space::{AddressSpaces, Changes, KERNEL, Mapping};
use perfx_model::guests::Guests;
use perfx_model::mapped_files::MappedFiles;
use perfx_pipeline::{Level, Needs, Pass, Result, Session, Stage, Survey, ensure};

use crate::support::options::PassOptions;
use crate::support::used_events::change_attrs;
use arch::Architectures;
pub(crate) use convert::Convert;
pub(crate) use convert::has_stacks;
use convert::{has_link_register, has_only_link_register};
use images::Images;
use perfx_resolve::{Facts, IdOptions, RecordedIds, SearchArgs, recorded_on};
use walk::Shared;

/// The options on the command line.
#[derive(Args, Clone, Debug)]
pub struct ConvertCallchainArgs {
    /// Leave the user registers and stacks of samples that can't be unwound
    #[arg(long)]
    keep_unresolved: bool,
    #[command(flatten)]
    search: SearchArgs,
}

impl PassOptions for ConvertCallchainArgs {
    const NAME: &'static str = "convert-callchain";
    const ABOUT: &'static str = "convert the user stacks of samples into call chains";

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(ConvertCallchain::new(self.keep_unresolved, self.search.options(None)?)))
    }
}

/// The pass.
#[derive(Debug)]
pub struct ConvertCallchain {
    keep_unresolved: bool,
    /// False to convert a recording of an architecture whose stacks can't be unwound, too.
    must: bool,
    ids: IdOptions,
}

impl ConvertCallchain {
    /// Creates the pass. `keep_unresolved` leaves the stacks of samples that can't be unwound, and `ids` says
    /// where the mapped files are.
    pub fn new(keep_unresolved: bool, ids: IdOptions) -> ConvertCallchain {
        ConvertCallchain { keep_unresolved, must: true, ids }
    }

    /// The pass for a reader of call chains: if the stacks are of an architecture that can't be unwound, it warns,
    /// and only the innermost frames are known.
    pub fn if_possible(ids: IdOptions) -> ConvertCallchain {
        ConvertCallchain { keep_unresolved: false, must: false, ids }
    }
}

/// The survey: collects what processes mapped.
struct Mapped {
    pass: ConvertCallchain,
    changes: Changes,
    guests: Guests,
    files: MappedFiles,
    /// HEADER_BUILD_ID records.
    build_ids: Vec<Vec<u8>>,
}

/// What a pass says that cuts the registers of [`callers_in_registers`].
pub(crate) const CALLERS_LOST: &str = "call chains lose the caller of the innermost function, which readers find by \
                                       the link register: perfx inject --convert-callchain, run before, keeps it";

/// True if readers complete call chains by the link registers of samples.
pub(crate) fn callers_in_registers(session: &Session) -> bool {
    let arch = recorded_on(session.features(), session.endian).arch;
    let attrs = session.events.iter().map(|event| event.attr());
    Architectures::of_machine(&arch.unwrap_or_default()).has_link_register()
        && attrs.into_iter().any(|attr| has_link_register(attr.sample_type, attr.sample_regs_user))
}

impl ConvertCallchain {
    /// True if the recording has anything for this pass to do: user stacks, or link registers of aarch64.
    pub fn concerns(input: &Recording) -> bool {
        ConvertCallchain::concerns_events(&input.events, &input.features, input.endian)
    }

    /// The same, of a recording with these events and features.
    pub(crate) fn concerns_events(events: &[Event], features: &Features, endian: Endian) -> bool {
        let arch = recorded_on(features, endian).arch;
        let archs = Architectures::of_machine(&arch.unwrap_or_default());
        events.iter().map(|event| event.attr()).any(|attr| {
            has_stacks(attr.sample_type)
                || archs.has_link_register() && has_link_register(attr.sample_type, attr.sample_regs_user)
        })
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
        let surveyed = Kinds::of(&[
            RecordType::MMAP,
            RecordType::MMAP2,
            RecordType::FORK,
            RecordType::ID_INDEX,
            RecordType::HEADER_BUILD_ID,
        ]);
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
        Stage::survey_in_order(Mapped { pass: *self, changes, guests, files, build_ids })
    }
}

impl Survey for Mapped {
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
        let recorded_on = recorded_on(session.features(), session.endian);
        let archs = Architectures::of_machine(recorded_on.arch.as_deref().unwrap_or_default());
        if archs.all().next().is_none() {
            let why = match &recorded_on.arch {
                Some(arch) => {
                    let (arch, known) = (arch.escape_default(), Architectures::NAMES);
                    format!("user stacks of {arch} can't be unwound, only those of {known}")
                }
                None => "feature ARCH is missing, so it is unknown how to unwind the user stacks".to_owned(),
            };
            ensure!(!self.pass.must, "{}: {why}", session.name);
            session.report.say(Level::Warning, why);
        }
        self.stage(archs, &recorded_on, session)
    }
}

impl Mapped {
    fn stage(self, archs: Architectures, recorded_on: &RecordedOn, session: &Session) -> Result<Stage> {
        let Mapped { pass, changes, guests, files, build_ids } = self;
        let spaces = Arc::new(AddressSpaces::new(changes));
        let mut ids = RecordedIds::new(session.features(), session.endian, spaces.dsos());
        for record in &build_ids {
            BuildIdEntry::read(record, session.endian).iter().for_each(|entry| ids.learn(entry));
        }
        let made = session.made_files()?;
        let images = Images::new((archs, session.endian), spaces, files, ids, pass.ids, recorded_on, made);
        let (keep, inserts) = (pass.keep_unresolved, archs.has_link_register());
        Ok(Stage::begin(move |begin| {
            change_attrs(begin, |attr, endian| {
                let Attr { sample_type, sample_regs_user, .. } = Attr::decode(attr, endian);
                if has_stacks(sample_type) {
                    with_user_callchains(attr, keep, endian);
                } else if inserts && !keep && has_only_link_register(sample_type, sample_regs_user) {
                    without_parts(attr, st::REGS_USER, endian);
                }
            });
            Ok(Stage::rewrite(Convert::new(Arc::new(Shared::new(images)), Arc::new(guests), keep)))
        }))
    }
}

/// Completes the call chains of samples for another pass, which does not write them.
pub(crate) struct Unwinder {
    shared: Arc<Shared>,
    guests: Arc<Guests>,
}

impl Unwinder {
    /// For a recording of which these facts, and its features, are known; `made` are the files of earlier passes.
    pub(crate) fn new(
        facts: &Facts,
        ids: &IdOptions,
        (features, endian): (&Features, Endian),
        made: HashMap<PathBuf, Bytes>,
    ) -> Unwinder {
        let recorded_on = recorded_on(features, endian);
        let archs = Architectures::of_machine(recorded_on.arch.as_deref().unwrap_or_default());
        let (files, recorded, spaces) = (facts.files.clone(), facts.ids.clone(), facts.spaces.clone());
        let images = Images::new((archs, endian), spaces, files, recorded, ids.clone(), &recorded_on, made);
        Unwinder { shared: Arc::new(Shared::new(images)), guests: Arc::new(facts.guests.clone()) }
    }

    /// What works on one thread.
    pub(crate) fn on_thread(&self) -> Convert {
        Convert::new(self.shared.clone(), self.guests.clone(), false)
    }
}

/// The rewrite of a recording without stacks.
struct Unchanged;

impl perfx_pipeline::Rewrite for Unchanged {}

impl perfx_pipeline::Fork for Unchanged {
    fn fork(&self) -> Unchanged {
        Unchanged
    }

    fn absorb(&mut self, _later: Unchanged) -> Result<()> {
        Ok(())
    }
}

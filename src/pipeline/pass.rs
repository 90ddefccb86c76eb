//! A pass is a transformation of records; every method has a default, and the defaults copy.

use std::any::Any;
use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context as _, Result};
use perfx_format::features::{BuildIdEntry, BuildIds, FeatureContext, Mended, NrCpus, mend};
use perfx_format::header::Features;
use perfx_format::input::{Batch, Form, HeaderRecord, Recording, Spool};
use perfx_format::{Bytes, Endian, Event, Feature, Kinds, Layouts, Origin, Origins, Record, Walker};

use crate::plan::Planner;
use crate::report::{Level, Report};
use crate::run::OutputForm;

/// A transformation. A stranger adds one as a file in `passes/` and a line in the registry.
///
/// Order of calls: `survey` for every wanted record of the input, one look after another, each closed by `surveyed`; `begin`; `record` for
/// every wanted record on its way to the output, with `end_of_batch` behind the last one of each batch; `rest` until there is no more; `finish`.
pub trait Pass: Any + Send {
    /// The name it is asked for by, in kebab-case.
    fn name(&self) -> &'static str;

    /// What it needs, merged with the other passes' and checked before the first byte moves.
    fn needs(&self, _input: &Recording) -> Needs {
        Needs::default()
    }

    /// One record of the input during a read-only look, decompressed. Looks run before any pass changes anything.
    fn survey(&mut self, _look: usize, _record: &Record<'_>, _layouts: &Layouts) -> Result<()> {
        Ok(())
    }

    /// A look is over. [`Session::skip_looks`] spares the others.
    fn surveyed(&mut self, _look: usize, _session: &mut Session) -> Result<()> {
        Ok(())
    }

    /// The last chance to change events before records are written.
    fn begin(&mut self, _session: &mut Session) -> Result<()> {
        Ok(())
    }

    /// What it wants of a batch, in a look or (`None`) on the way to the output, before any of its records is walked.
    fn scope(&mut self, _look: Option<usize>, _batch: &Batch) -> Scope {
        Scope::Wanted
    }

    /// One record it is interested in: keep, patch, replace, drop it, put others beside it.
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        out.keep(record)
    }

    /// The batch is over, which is no place that means anything: put what was held back. (How records are cut into batches depends on nothing
    /// but the input.)
    fn end_of_batch(&mut self, _out: &mut Emit<'_>) -> Result<()> {
        Ok(())
    }

    /// All records of the input have passed: puts what belongs behind them, some MiB at a time; true as long as there is more.
    fn rest(&mut self, _out: &mut Emit<'_>) -> Result<bool> {
        Ok(false)
    }

    /// All is written: put what belongs at the very end, set features.
    fn finish(&mut self, _session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        Ok(())
    }

    /// A worker that can take any one batch by itself, in `survey` and in `record`. `None`: batches must come one after another, in order, and
    /// the whole chain of passes runs on one thread.
    fn fork(&self) -> Option<Box<dyn Pass>> {
        None
    }

    /// For a pass that can't fork: who looks at a batch on any thread beforehand, so that less is left to do. Each batch gets a fork of it, to whose
    /// `survey` the kinds in [`Needs::records`] are shown as in a look, and which is handed to `join` before the pass gets the batch. Only the
    /// first pass of a chain is asked, for the others see what it lets through.
    fn scout(&self) -> Option<Box<dyn Pass>> {
        None
    }

    /// Takes in what a worker or scout learned from its batch; called in file order.
    fn join(&mut self, _worker: Box<dyn Pass>) -> Result<()> {
        Ok(())
    }
}

/// What a pass wants of a batch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Scope {
    /// The kinds it said it needs; all others go by.
    Wanted,
    /// Nothing but these kinds: in a look the others are not shown; on the way to the output they are left out without being looked at, which
    /// the pass reports itself, since nobody counts them. Only the first pass of a chain is asked that, for the others see what it lets through.
    Only(Kinds),
    /// Of the kinds it said it needs, these; all others go by. Only the first pass of a chain is asked that, too; the others get what they need.
    These(Kinds),
}

/// The worker that [`Pass::join`] is handed, as the pass it was forked from.
pub fn worker_as<P: Pass>(worker: Box<dyn Pass>) -> Option<P> {
    let worker: Box<dyn Any> = worker;
    worker.downcast().ok().map(|worker| *worker)
}

/// What a pass needs of the pipeline, as data.
#[derive(Clone, Debug)]
pub struct Needs {
    /// The kinds its `record` wants; all others go by without being looked at.
    pub records: Kinds,
    /// The kinds its `survey` wants, one entry a look.
    pub looks: Vec<Kinds>,
    /// Its `record` wants COMPRESSED records replaced by what they hold, which leaves the output uncompressed.
    pub decompressed: bool,
    /// It can't work unless every record's event can be told.
    pub ids: bool,
    /// Features that are wrong after it, dropped unless the pass sets them.
    pub stale: &'static [Feature],
    /// What it writes no other pass can read, so none may stand behind it.
    pub last: bool,
    /// It leaves records out, or puts in such as passes behind it want to have looked at: these look at what it made, which goes to a temporary
    /// file first.
    pub reshapes: bool,
    /// What to do where records can't be read. Of several passes the last of these counts.
    pub damage: Damage,
}

/// What to do where records can't be read.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default, Debug)]
pub enum Damage {
    /// What perf bears (pipe data or a zstd stream that ends inside a record) is told as a loss, anything else is an error.
    #[default]
    Bear,
    /// A zstd stream must be whole, too.
    Refuse,
    /// What can be read is kept; what can't is told as a loss.
    Salvage,
}

impl Default for Needs {
    fn default() -> Self {
        Needs {
            records: Kinds::NONE,
            looks: Vec::new(),
            decompressed: false,
            ids: false,
            stale: &[],
            last: false,
            reshapes: false,
            damage: Damage::Bear,
        }
    }
}

/// What passes may see and change of the recording beside its records.
#[derive(Debug)]
pub struct Session {
    /// What the user called it.
    pub name: Arc<str>,
    /// Byte order of the recording.
    pub endian: Endian,
    /// The form it is stored in.
    pub input: Form,
    /// The form it will be written in.
    pub form: OutputForm,
    /// Its events. A pass that changes them does so in `begin`.
    pub events: Vec<Event>,
    /// Its feature sections, as they will be written.
    features: Features,
    /// Entries of HEADER_BUILD_ID records among the others of pipe data.
    late_build_ids: Vec<u8>,
    /// Features that a pass has set.
    pub(crate) set: BTreeSet<Feature>,
    /// What is told to the user at the end.
    pub report: Report,
    /// What goes into an output directory beside its records, and under which name.
    pub beside: Vec<(PathBuf, OsString)>,
    /// `record` sees records as they are stored, compressed ones unopened.
    pub(crate) stored: bool,
    /// Where the pass being begun wants records whatever their kind.
    pub(crate) places: Vec<Place>,
    /// The kinds that the pass being begun wants after all.
    pub(crate) kinds: Option<Kinds>,
    /// The pass whose look is over wants no other.
    pub(crate) seen_enough: bool,
    /// Feature AUXTRACE is to be made anew.
    pub(crate) list_aux: bool,
    /// On so many threads passes may work; 1: on the calling one only.
    pub threads: usize,
    spool: TemporaryFiles,
}

/// Makes temporary files.
struct TemporaryFiles(Spool);

impl std::fmt::Debug for TemporaryFiles {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("TemporaryFiles")
    }
}

impl Session {
    pub(crate) fn new(
        recording: &Recording,
        form: OutputForm,
        features: Features,
        report: Report,
        stored: bool,
        threads: usize,
        spool: Spool,
    ) -> Session {
        Session {
            name: recording.name.clone(),
            endian: recording.endian,
            input: recording.form,
            form,
            events: recording.events.clone(),
            features,
            late_build_ids: Vec::new(),
            set: BTreeSet::new(),
            report,
            beside: Vec::new(),
            stored,
            places: Vec::new(),
            kinds: None,
            seen_enough: false,
            list_aux: false,
            threads,
            spool: TemporaryFiles(spool),
        }
    }

    /// What makes temporary files.
    pub fn spool(&self) -> Spool {
        self.spool.0.clone()
    }

    /// Opens another recording that a pass reads beside the input; it can be read more than once.
    pub fn open(&self, path: &Path) -> Result<Recording> {
        let TemporaryFiles(spool) = &self.spool;
        Ok(Recording::open(path, spool.clone())?.spooled(spool)?)
    }

    /// Adds entries to feature BUILD_ID, but for those it has already; returns how many are new. Bytes of it that are not entries stay behind all
    /// entries, for no reader gets past them.
    pub fn add_build_ids(&mut self, entries: &[u8]) -> u64 {
        let section = self.features.get(&Feature::BUILD_ID).cloned().unwrap_or_default();
        let key = |entry: BuildIdEntry<'_>| (entry.pid, entry.id.to_vec(), entry.filename.to_vec());
        let mut old = BuildIds::new(&section, self.endian);
        let mut there: HashSet<_> = old.by_ref().map(key).collect();
        let before = there.len();
        let mut all = section[..section.len() - old.rest().len()].to_vec();
        for entry in BuildIds::new(entries, self.endian) {
            if there.insert(key(entry)) {
                entry.write_section(self.endian, &mut all);
            }
        }
        let new = (there.len() - before) as u64;
        if new > 0 {
            all.extend_from_slice(old.rest());
            self.set_feature(Feature::BUILD_ID, all);
        }
        new
    }

    /// All records have been read: what pipe data said among them is known now.
    pub(crate) fn settle(&mut self) {
        let late = std::mem::take(&mut self.late_build_ids);
        self.add_build_ids(&late);
    }

    /// Takes in what pipe data said among its records and a file says in its header. What a pass has set stays.
    pub(crate) fn absorb(&mut self, header: HeaderRecord) {
        match header {
            HeaderRecord::Event(event) => self.events.push(event),
            HeaderRecord::Feature(feature, section) if !self.set.contains(&feature) => {
                self.features.insert(feature, section);
            }
            HeaderRecord::BuildId(entry) => self.late_build_ids.extend(entry),
            HeaderRecord::Feature(..) | HeaderRecord::EndOfFeatures => {}
        }
    }

    /// The section of a feature.
    pub fn feature(&self, feature: Feature) -> Option<&Bytes> {
        self.features.get(&feature)
    }

    /// All feature sections.
    pub fn features(&self) -> &Features {
        &self.features
    }

    /// Sets a feature's section.
    pub fn set_feature(&mut self, feature: Feature, section: impl Into<Bytes>) {
        self.features.insert(feature, section.into());
        self.set.insert(feature);
    }

    /// Makes the sections of features below this one such that every perf reads on behind them: a perf that can't read a section stops there and
    /// sees no feature behind it, or gives up on pipe data altogether. What can't be read is left out, and said.
    pub fn mend_features(&mut self, below: Feature) {
        let nrcpus = self.features.get(&Feature::NRCPUS);
        let context = FeatureContext { cpus: nrcpus.and_then(|section| NrCpus::read(section, self.endian)) };
        let features: Vec<_> =
            self.features.range(..below).map(|(feature, section)| (*feature, section.clone())).collect();
        for (feature, section) in features {
            match mend(feature, &section, self.endian, context) {
                Mended::Sound => {}
                Mended::Rewritten(section) => {
                    self.set_feature(feature, section);
                    let what = format!("feature {feature} was damaged and is written as every perf reads it");
                    self.report.say(Level::Warning, what);
                }
                Mended::Unreadable(why) => {
                    self.clear_feature(feature);
                    let what =
                        format!("feature {feature} was left out, because perf stops reading there: {why}");
                    self.report.say(Level::Loss, what);
                }
            }
        }
    }

    /// Removes a feature.
    pub fn clear_feature(&mut self, feature: Feature) {
        self.features.remove(&feature);
        self.set.insert(feature);
    }

    /// Where a record that came from `origin` in a look will go by. Where compressed records go by unopened, that is the COMPRESSED record in
    /// which it begins. `None` for records that were made.
    pub fn place(&self, origin: Origin) -> Option<Place> {
        Place::of(origin, self.stored)
    }

    /// To be called in `surveyed`: what the pass saw makes its other looks needless.
    pub fn skip_looks(&mut self) {
        self.seen_enough = true;
    }

    /// To be called in `begin`: feature AUXTRACE is to list each AUXTRACE record of the output, and to go when there is none.
    pub fn list_aux(&mut self) {
        self.list_aux = true;
    }

    /// To be called in `begin`: the pass's `record` wants these kinds, whatever [`Needs::records`] said before anything had been looked at.
    pub fn want_only(&mut self, kinds: Kinds) {
        self.kinds = Some(kinds);
    }

    /// To be called in `begin`: the pass's `record` also wants the record at this place, whatever its kind.
    pub fn want_at(&mut self, place: Place) {
        self.places.push(place);
    }
}

/// Where a record begins in the input, in file order.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    stream: u32,
    stored: u64,
    /// `None` for a stored record.
    inside: Option<i64>,
}

impl Place {
    pub(crate) fn of(origin: Origin, stored: bool) -> Option<Place> {
        match origin {
            Origin::Input { stream, offset } => Some(Place { stream, stored: offset, inside: None }),
            Origin::Chunk { stream, record, offset } => {
                Some(Place { stream, stored: record, inside: (!stored).then_some(offset) })
            }
            Origin::Synthetic => None,
        }
    }

    /// Where a record of the input stands; `None` for records that were made.
    pub fn of_record(record: &Record<'_>) -> Option<Place> {
        Place::of(record.origin(), false)
    }

    /// Where a batch begins.
    pub fn of_batch(batch: &Batch) -> Option<Place> {
        Place::of(batch.origins.at(0), false)
    }

    /// In a stream, at an absolute offset.
    pub(crate) fn stored(self) -> (u32, u64) {
        (self.stream, self.stored)
    }

    /// The same as an origin.
    pub(crate) fn origin(self) -> Origin {
        let Place { stream, stored, inside } = self;
        match inside {
            None => Origin::Input { stream, offset: stored },
            Some(offset) => Origin::Chunk { stream, record: stored, offset },
        }
    }
}

/// A pass in the chain with what it wants.
pub(crate) struct Stage {
    pub(crate) pass: Box<dyn Pass>,
    pub(crate) kinds: Kinds,
    /// Sorted.
    pub(crate) places: Arc<[Place]>,
    /// It wants no more looks.
    pub(crate) seen_enough: bool,
    /// How records that come to it find their events, where passes before it changed the events.
    pub(crate) layouts: Option<Arc<Layouts>>,
}

impl Stage {
    fn wants(&self, record: &Record<'_>) -> bool {
        // A record at hand is what it is, stored or decompressed, so its place needs no translation.
        let at = || {
            Place::of(record.origin(), false).is_some_and(|place| self.places.binary_search(&place).is_ok())
        };
        self.kinds.has(record.kind()) || !self.places.is_empty() && at()
    }

    /// The same for one batch.
    pub(crate) fn fork(&self) -> Option<Stage> {
        Some(self.with(self.pass.fork()?))
    }

    /// Who looks at batches before it.
    pub(crate) fn scout(&self) -> Option<Stage> {
        Some(self.with(self.pass.scout()?))
    }

    fn with(&self, pass: Box<dyn Pass>) -> Stage {
        let (places, layouts) = (self.places.clone(), self.layouts.clone());
        Stage { pass, kinds: self.kinds, places, layouts, seen_enough: self.seen_enough }
    }
}

/// The way out of a pass: into the passes behind it, and at last into the output.
pub struct Emit<'e> {
    rest: &'e mut [Stage],
    planner: &'e mut Planner,
    /// Of the records as they come.
    layouts: &'e Layouts,
    /// Of the records of the input.
    of_input: &'e Layouts,
}

impl std::fmt::Debug for Emit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Emit(into {} passes)", self.rest.len())
    }
}

impl<'e> Emit<'e> {
    pub(crate) fn new(rest: &'e mut [Stage], planner: &'e mut Planner, layouts: &'e Layouts) -> Emit<'e> {
        Emit { rest, planner, layouts, of_input: layouts }
    }

    /// Byte order of the recording.
    pub fn endian(&self) -> Endian {
        self.planner.endian()
    }

    /// How records find their events.
    pub fn layouts(&self) -> &'e Layouts {
        self.layouts
    }

    /// The place of a record that goes by.
    pub fn place(&self, record: &Record<'_>) -> Option<Place> {
        Place::of(record.origin(), false)
    }

    /// Passes a record on as it is; no byte moves.
    pub fn keep(&mut self, record: Record<'_>) -> Result<()> {
        let Some(next) = self.rest.iter().position(|stage| stage.wants(&record)) else {
            return self.planner.keep(record);
        };
        let Some((stage, rest)) = self.rest[next..].split_first_mut() else { return Ok(()) };
        let changed = stage.layouts.clone();
        let layouts = changed.as_deref().unwrap_or(self.of_input);
        let mut out = Emit { rest, planner: self.planner, layouts, of_input: self.of_input };
        let result = stage.pass.record(record, &mut out);
        result
            .with_context(|| format!("pass {}, {} at {}", stage.pass.name(), record.kind(), record.origin()))
    }

    /// Passes on a new record: whole bytes with a header whose size is their length, at most 65,528 and a multiple of 8 (COMPRESSED:
    /// of anything); splitting what is larger is the pass's duty.
    pub fn put(&mut self, bytes: &[u8]) -> Result<()> {
        let endian = self.planner.endian();
        self.keep(Record::new(bytes, &[], Origin::Synthetic, endian)?)
    }

    /// Passes on new records that stand one behind the other, each as [`Emit::put`] wants it.
    pub fn put_all(&mut self, bytes: &[u8]) -> Result<()> {
        if self.rest.is_empty() && self.planner.takes_any() {
            self.planner.made(bytes);
            return Ok(());
        }
        let origins = Origins::default();
        let mut walker = Walker::new(bytes, &origins, self.planner.endian());
        while let Some(record) = walker.next_record()? {
            self.put(record.bytes())?;
        }
        Ok(())
    }

    /// Passes on another record, of any size, in the place of this one: what stands before it or is looked for there goes for the new one, too.
    pub fn replace(&mut self, record: &Record<'_>, bytes: &[u8]) -> Result<()> {
        self.keep(Record::new(bytes, &[], record.origin(), record.endian())?)
    }

    /// Passes on an edited copy of the same size.
    pub fn patch(&mut self, record: Record<'_>, edit: impl FnOnce(&mut [u8])) -> Result<()> {
        let mut bytes = record.bytes().to_vec();
        edit(&mut bytes);
        self.keep(Record::new(&bytes, record.payload(), record.origin(), record.endian())?)
    }

    /// Leaves a record out of the output; counted, and told as a loss unless the pass says otherwise.
    pub fn drop_record(&mut self, record: Record<'_>) {
        self.planner.drop_record(record);
    }
}

//! What passes may see and change of the recording beside its records, and where its records are.

use std::collections::{BTreeSet, HashSet};
use std::ffi::OsString;
use std::ops::{Deref, DerefMut};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use perfx_format::features::{BuildIds, FeatureContext, Mended, NrCpus, mend};
use perfx_format::header::Features;
use perfx_format::read::{Batch, Form, Recording, TempFiles};
use perfx_format::record::build_id::BuildIdEntry;
use perfx_format::record::header_records::HeaderRecord;
use perfx_format::{Bytes, Endian, Event, Feature, Kinds, Origin, Record};

use crate::output::OutputForm;
use crate::report::{Level, Report};

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
    /// The names perf before 3.3 gave its events, as they will be written.
    pub(crate) event_types: Vec<u8>,
    /// Entries of HEADER_BUILD_ID records among the others of pipe data.
    late_build_ids: Vec<u8>,
    /// Features that a pass has set.
    pub(crate) set: BTreeSet<Feature>,
    /// What is told to the user at the end.
    pub report: Report,
    /// What goes into an output directory beside its records, and under which name.
    pub beside: Vec<(PathBuf, OsString)>,
    /// Rewrites see records as they are stored, COMPRESSED ones unopened.
    pub(crate) stored: bool,
    /// Feature AUXTRACE is to be rebuilt.
    pub(crate) list_aux: bool,
    /// On so many threads passes may work; 1: on the calling one only.
    pub threads: usize,
    temp_files: Opener,
}

/// Makes temporary files.
struct Opener(TempFiles);

impl std::fmt::Debug for Opener {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Opener")
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
        temp_files: TempFiles,
    ) -> Session {
        Session {
            name: recording.name.clone(),
            endian: recording.endian,
            input: recording.form,
            form,
            events: recording.events.clone(),
            features,
            event_types: recording.event_types.clone(),
            late_build_ids: Vec::new(),
            set: BTreeSet::new(),
            report,
            beside: Vec::new(),
            stored,
            list_aux: false,
            threads,
            temp_files: Opener(temp_files),
        }
    }

    /// What makes temporary files.
    pub fn temp_files(&self) -> TempFiles {
        self.temp_files.0.clone()
    }

    /// Opens another recording that a pass reads beside the input; it can be read more than once.
    pub fn open(&self, path: &Path) -> Result<Recording> {
        let Opener(temp_files) = &self.temp_files;
        Ok(Recording::open_with(path, temp_files.clone())?.spooled(temp_files)?)
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
            HeaderRecord::EventType(entry) => self.event_types.extend(entry),
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
                    let what = format!(
                        "feature {feature} was damaged and was rewritten so that every perf can \
                        read it"
                    );
                    self.report.say(Level::Warning, what);
                }
                Mended::Unreadable(why) => {
                    self.clear_feature(feature);
                    let what = format!(
                        "feature {feature} was dropped, because perf would stop reading there: {why}"
                    );
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
}

/// The session of a pass that begins, with what can be asked for only then.
#[derive(Debug)]
pub struct Begin<'s> {
    session: &'s mut Session,
    pub(crate) places: Vec<Place>,
    pub(crate) kinds: Option<Kinds>,
}

impl<'s> Begin<'s> {
    pub(crate) fn new(session: &'s mut Session) -> Begin<'s> {
        Begin { session, places: Vec::new(), kinds: None }
    }

    /// Feature AUXTRACE is to list each AUXTRACE record of the output, and to be removed if there is none.
    pub fn list_aux(&mut self) {
        self.session.list_aux = true;
    }

    /// The rewrite wants these kinds instead of [`Needs::records`](crate::Needs::records), which was said before anything had been surveyed.
    pub fn want_only(&mut self, kinds: Kinds) {
        self.kinds = Some(kinds);
    }

    /// The rewrite also wants the record at this place, whatever its kind.
    pub fn want_at(&mut self, place: Place) {
        self.places.push(place);
    }
}

impl Deref for Begin<'_> {
    type Target = Session;

    fn deref(&self) -> &Session {
        self.session
    }
}

impl DerefMut for Begin<'_> {
    fn deref_mut(&mut self) -> &mut Session {
        self.session
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

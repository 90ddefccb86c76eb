//! Gives passes access to the parts of a recording besides its records, and to the places of its records.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::ffi::OsString;
use std::fs::File;
use std::ops::{Deref, DerefMut, Range};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use perfx_format::features::{BuildIds, FeatureContext, NrCpus, Repaired, SampleTime, repair, trimmed_id};
use perfx_format::header::{Features, FileHeader};
use perfx_format::read::{Batch, Form, Recording, TempFiles};
use perfx_format::record::build_id::BuildIdEntry;
use perfx_format::record::header_records::HeaderRecord;
use perfx_format::{Bytes, Endian, Event, Feature, Kinds, Origin, Record};

use crate::error::Result;
use crate::output::OutputForm;
use crate::report::{Level, Report};

/// The parts of a recording besides its records, which passes can read and change.
pub struct Session {
    /// The name that the user gave.
    pub name: Arc<str>,
    /// Byte order of the recording.
    pub endian: Endian,
    /// The form of the input.
    pub input: Form,
    /// The form of the output.
    pub form: OutputForm,
    /// Its events. A pass may change them only in `begin`. Events that pipe data defines after its head are
    /// added when the rewrite reaches their attrs.
    pub events: Vec<Event>,
    /// The events that pipe data defines after its head, as found by surveys.
    pub(crate) late_events: Vec<Event>,
    features: Features,
    /// Event names as perf before 3.3 stored them, for the output.
    pub event_types: Vec<u8>,
    /// Entries of HEADER_BUILD_ID records among the records of pipe data.
    late_build_ids: Vec<u8>,
    pub(crate) set: BTreeSet<Feature>,
    /// True if no pass after the surveying one is a barrier.
    pub(crate) survey_is_final: bool,
    /// The report for the user.
    pub report: Report,
    /// Files to put into an output directory next to the records, with their names.
    pub beside: Vec<(PathBuf, OsString)>,
    /// Files named in records of the output, made by this pass and earlier ones.
    pub made: Vec<SideFile>,
    /// True if rewrites see records as stored, with COMPRESSED ones not expanded.
    pub(crate) stored: bool,
    /// True if it is known after a survey that no record stays inside a COMPRESSED one.
    pub(crate) nothing_hidden: bool,
    pub(crate) rebuild_aux_index: bool,
    /// True to omit bytes of the input outside all sections.
    pub(crate) drops_unnamed: bool,
    unnamed: u64,
    /// The number of threads that passes may use; with 1, only the calling thread works.
    pub threads: usize,
    temp_files: Opener,
}

/// A file made by a pass, which gets its final path when the output does.
#[derive(Clone, Debug)]
pub struct SideFile {
    /// Its final path.
    pub path: PathBuf,
    /// The file that holds its bytes until then.
    pub from: Arc<File>,
    /// The range of its bytes in that file.
    pub range: Range<u64>,
    /// Its entry in a build-id cache.
    pub cached: Option<Cached>,
}

/// An entry of perf's build-id cache, which perf reads when the file itself is gone.
#[derive(Clone, Debug)]
pub struct Cached {
    /// The folder of the cache, such as ~/.debug.
    pub cache: PathBuf,
    /// The file's build-id in hex.
    pub build_id: String,
}

struct Opener(TempFiles);

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
            late_events: Vec::new(),
            features,
            event_types: recording.event_types.clone(),
            late_build_ids: Vec::new(),
            set: BTreeSet::new(),
            report,
            beside: Vec::new(),
            made: Vec::new(),
            stored,
            nothing_hidden: false,
            survey_is_final: false,
            rebuild_aux_index: false,
            drops_unnamed: false,
            unnamed: recording.file.as_ref().map_or(0, FileHeader::unnamed) as u64,
            threads,
            temp_files: Opener(temp_files),
        }
    }

    /// The factory of temporary files.
    pub fn temp_files(&self) -> TempFiles {
        self.temp_files.0.clone()
    }

    /// The bytes of the files made by earlier passes, by path. They are mapped, because an image of JIT code
    /// may have holes of any size; a temporary file that holds several files is mapped once.
    ///
    /// # Errors
    ///
    /// A temporary file cannot be mapped.
    pub fn made_files(&self) -> Result<HashMap<PathBuf, Bytes>> {
        let mut mapped: Option<(&Arc<File>, Bytes)> = None;
        let mut files = HashMap::new();
        for SideFile { path, from, range, .. } in &self.made {
            let bytes = match mapped.take() {
                Some((last, bytes)) if Arc::ptr_eq(last, from) => bytes,
                _ => Bytes::map(from)?,
            };
            files.insert(path.clone(), bytes.slice(range.start as usize..range.end as usize));
            mapped = Some((from, bytes));
        }
        Ok(files)
    }

    /// Opens another recording for a pass; it can be read more than once.
    ///
    /// # Errors
    ///
    /// The file cannot be opened, is not a recording, or there is no space for a temporary copy.
    pub fn open(&self, path: &Path) -> Result<Recording> {
        let Opener(temp_files) = &self.temp_files;
        Ok(Recording::open_with(path, temp_files.clone())?.spooled(temp_files)?)
    }

    /// Adds new entries to feature BUILD_ID; returns their number. Bytes that are not entries stay after all
    /// entries, because readers stop there.
    pub fn add_build_ids(&mut self, entries: &[u8]) -> u64 {
        let section = self.features.get(&Feature::BUILD_ID).cloned().unwrap_or_default();
        let key =
            |entry: BuildIdEntry<'_>| (entry.pid, trimmed_id(entry.id).to_vec(), entry.filename.to_vec());
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

    pub(crate) fn add_late_build_ids(&mut self) {
        let late = std::mem::take(&mut self.late_build_ids);
        self.add_build_ids(&late);
    }

    /// Takes the contents of a header record among pipe data. A feature set by a pass is kept.
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

    /// The events of the whole recording, including those that pipe data defines after its head. For
    /// [`Survey::end`](crate::Survey::end).
    pub fn all_events(&self) -> Vec<Event> {
        [&self.events[..], &self.late_events].concat()
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

    /// Updates feature SAMPLE_TIME, if present, when samples are dropped: to the times of the first and the
    /// last remaining sample, ns. If none remains, the first is later than the last, and the feature is
    /// unchanged.
    pub fn set_sample_time(&mut self, (first_ns, last_ns): (u64, u64)) {
        if first_ns <= last_ns && self.feature(Feature::SAMPLE_TIME).is_some() {
            let section = SampleTime { first_ns, last_ns }.write(self.endian);
            self.set_feature(Feature::SAMPLE_TIME, section);
        }
    }

    /// Rewrites the sections of features below this one so that every perf reads on after them: a perf that
    /// cannot read a section ignores all later features, or fails on pipe data. A section that cannot be
    /// rewritten is left out and reported.
    pub fn repair_features(&mut self, below: Feature) {
        let nrcpus = self.features.get(&Feature::NRCPUS);
        let context = FeatureContext { cpus: nrcpus.and_then(|section| NrCpus::read(section, self.endian)) };
        let features: Vec<_> =
            self.features.range(..below).map(|(feature, section)| (*feature, section.clone())).collect();
        for (feature, section) in features {
            match repair(feature, &section, self.endian, context) {
                Repaired::Sound => {}
                Repaired::Rewritten(section) => {
                    self.set_feature(feature, section);
                    let what = format!(
                        "feature {feature} was damaged and was rewritten so that every perf can \
                        read it"
                    );
                    self.report.say(Level::Warning, what);
                }
                Repaired::Unreadable(why) => {
                    self.clear_feature(feature);
                    let what = format!(
                        "feature {feature} was left out, because perf would stop reading there: {why}"
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

    /// True if the rewrite sees every record that the survey saw, and never a COMPRESSED record in its place.
    pub fn nothing_hidden(&self) -> bool {
        self.nothing_hidden
    }

    /// True if no later pass changes facts that a survey collects, so that facts collected during the rewrite
    /// also hold for the output. For [`Survey::end`](crate::Survey::end).
    pub fn survey_is_final(&self) -> bool {
        self.survey_is_final
    }

    /// The place at which a record that a survey saw at `origin` will be rewritten. If compressed records are
    /// not expanded, that is the COMPRESSED record in which it begins. `None` for new records.
    pub fn place(&self, origin: Origin) -> Option<Place> {
        Place::of(origin, self.stored)
    }
}

/// The session while a pass begins, with the methods that are valid only then.
pub struct Begin<'s> {
    session: &'s mut Session,
    pub(crate) places: Vec<Place>,
    pub(crate) kinds: Option<Kinds>,
}

impl<'s> Begin<'s> {
    pub(crate) fn new(session: &'s mut Session) -> Begin<'s> {
        Begin { session, places: Vec::new(), kinds: None }
    }

    /// Rebuilds feature AUXTRACE from the AUXTRACE records of the output, or removes it if there are none.
    pub fn rebuild_aux_index(&mut self) {
        self.session.rebuild_aux_index = true;
    }

    /// Omits the bytes of the input that belong to no section: those after the last one, and those after the
    /// feature table. Returns their number, which the pass reports.
    pub fn leave_out_unnamed(&mut self) -> u64 {
        self.session.drops_unnamed = true;
        self.session.unnamed
    }

    /// Makes the rewrite see these kinds instead of [`Needs::records`](crate::Needs::records).
    pub fn want_only(&mut self, kinds: Kinds) {
        self.kinds = Some(kinds);
    }

    /// Makes the rewrite also see the record at this place, whatever its kind.
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

/// The place of a record in the input; ordered as in the file.
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

    /// The place of a record that the rewrite sees with this origin; `None` for new records.
    pub fn of_origin(origin: Origin) -> Option<Place> {
        Place::of(origin, false)
    }

    /// The place of an input record; `None` for new records.
    pub fn of_record(record: &Record<'_>) -> Option<Place> {
        Place::of_origin(record.origin())
    }

    /// The place of a batch's start.
    pub fn of_batch(batch: &Batch) -> Option<Place> {
        Place::of_origin(batch.origins.at(0))
    }

    /// The stream and the absolute offset in it.
    pub(crate) fn stored(self) -> (u32, u64) {
        (self.stream, self.stored)
    }

    pub(crate) fn origin(self) -> Origin {
        let Place { stream, stored, inside } = self;
        match inside {
            None => Origin::Input { stream, offset: stored },
            Some(offset) => Origin::Chunk { stream, record: stored, offset },
        }
    }
}

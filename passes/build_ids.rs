//! `build-ids` puts the build-ids of the DSOs that samples hit (or of all) into the recording: a HEADER_BUILD_ID record before the first
//! sample that hits, and an entry in feature BUILD_ID. Nothing that was there is changed or lost.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use anyhow::Result;
use perfx_format::features::{BuildIdEntry, BuildIds as Entries};
use perfx_format::input::Recording;
use perfx_format::{Endian, Kinds, Layouts, Origin, Record, RecordType};
use perfx_pipeline::address_space::{AddressSpaces, Dso, Mapping};
use perfx_pipeline::{Emit, Level, Needs, Pass, Place, Session, counted, worker_as};

use crate::support::hits::{Guests, Hits, Mapped, Spot};
use crate::support::ids::{Correction, IdOptions, Ids, MappedIds, cpumode, dso_name};
use crate::support::options::{Choice, Options};

/// The pass.
#[derive(Debug, Default)]
pub struct BuildIds {
    options: BuildIdsOptions,
    step: Step,
    found: Found,
}

/// What the user chose.
#[derive(Clone, Debug, Default)]
pub struct BuildIdsOptions {
    /// All mapped DSOs, not only those that samples hit.
    pub all: bool,
    /// Leave the stream as it is, and only set the feature.
    pub feature_only: bool,
    /// Where ids may come from.
    pub ids: IdOptions,
}

/// What it is doing.
#[derive(Debug)]
enum Step {
    /// Look 1: which mappings there are.
    Mappings(Mapped),
    /// Look 2: which of them samples hit. `mapped` says where each DSO is first mapped.
    Samples { hits: Hits, mapped: Arc<[Spot]> },
    /// Records to put before those at these places.
    Placed(Arc<HashMap<Place, Vec<Vec<u8>>>>),
    /// Without a look: every DSO gets its record where it is first mapped.
    Streaming { guests: Guests, seen: HashSet<Dso> },
}

impl Default for Step {
    fn default() -> Step {
        Step::Mappings(Mapped::default())
    }
}

/// The ids found so far.
#[derive(Debug, Default)]
struct Found {
    ids: Option<Ids>,
    /// Entries of feature BUILD_ID.
    entries: Vec<u8>,
    entry_count: u64,
    /// Records for the stream.
    record_count: u64,
    /// DSOs whose id the stream tells by a HEADER_BUILD_ID record: machine and name, and where the first such record stands.
    told: HashMap<(i32, Box<[u8]>), Origin>,
    /// Those records, as entries of a section, until `ids` takes them in.
    heard: Vec<u8>,
    /// The ids that MMAP2 records hold.
    mapped: MappedIds,
    /// Ids of the user that replace those of the recording, as the user sees them.
    corrections: BTreeSet<Correction>,
    /// Records that hold another id than the user gives, and how many of them could be corrected.
    contradicting: u64,
    corrected: u64,
}

impl Found {
    /// Looks for a DSO's id and puts down the feature's entry; returns the record, unless the stream tells the id in time.
    fn take(&mut self, dso: &Dso, flags: u32, spot: &Spot, endian: Endian) -> Option<Vec<u8>> {
        let id = self.ids.as_mut()?.find(dso, flags, spot.pid)?;
        let (pid, name) = (dso.machine.pid(), dso_name(dso));
        let entry = BuildIdEntry::new(cpumode(dso), pid, id.as_bytes(), name);
        entry.write_section(endian, &mut self.entries)?;
        self.entry_count += 1;
        let key = (pid, Box::from(name));
        let in_time = self.told.get(&key).is_some_and(|told| told.is_before(spot.origin));
        if dso.tells_id() || in_time {
            return None;
        }
        self.told.insert(key, spot.origin);
        let mut record = Vec::new();
        entry.write_record(&spot.trailer, endian, &mut record)?;
        Some(record)
    }

    /// Notes that a record contradicts the user.
    fn contradicts(&mut self, correction: Option<Correction>) {
        self.contradicting += u64::from(correction.is_some());
        self.corrections.extend(correction);
    }

    /// A HEADER_BUILD_ID record of the input.
    fn learn(&mut self, record: &Record<'_>) {
        let endian = record.endian();
        let Some(entry) = BuildIdEntry::read(record.bytes(), endian) else { return };
        if entry.id.iter().any(|&byte| byte != 0) {
            self.told.entry((entry.pid, entry.filename.into())).or_insert(record.origin());
            match &mut self.ids {
                Some(ids) => ids.learn(&entry),
                None => drop(entry.write_section(endian, &mut self.heard)),
            }
        }
    }

    /// The looks are over, or there are none: from now on ids can be found.
    fn start(&mut self, mut ids: Ids, endian: Endian) {
        Entries::new(&std::mem::take(&mut self.heard), endian).for_each(|entry| ids.learn(&entry));
        self.ids = Some(ids);
    }
}

impl BuildIds {
    pub(crate) const ABOUT: &'static str = "put the build-ids of the DSOs that samples hit (or of all) into the stream and into feature BUILD_ID";
    pub(crate) const OPTIONS: &'static [Choice] = &[
        Choice { name: "all", value: None, about: "of all mapped DSOs, not only of those that samples hit" },
        Choice {
            name: "feature-only",
            value: None,
            about: "only into feature BUILD_ID; records stay as they are, unless they contradict `known`",
        },
        IdOptions::KNOWN,
        IdOptions::ROOT,
        IdOptions::CACHE,
        IdOptions::NO_FILES,
    ];

    pub(crate) fn make(options: &Options) -> Result<Box<dyn Pass>> {
        Ok(Box::new(BuildIds::new(BuildIdsOptions {
            all: options.has("all"),
            feature_only: options.has("feature-only"),
            ids: IdOptions::from_options(options)?,
        })))
    }

    /// With these options.
    pub fn new(options: BuildIdsOptions) -> BuildIds {
        BuildIds { options, ..BuildIds::default() }
    }

    /// Records of the DSOs at these spots, in file order.
    fn place(&mut self, spaces: &AddressSpaces, spots: &[(u32, Spot)], session: &mut Session) -> Step {
        let mut placed: HashMap<Place, Vec<Vec<u8>>> = HashMap::new();
        for (number, spot) in spots {
            let (dso, flags) = &spaces.dsos()[*number as usize];
            let record = self.found.take(dso, *flags, spot, session.endian);
            if let (Some(record), Some(place)) = (record, session.place(spot.origin)) {
                placed.entry(place).or_default().push(record);
            }
        }
        Step::Placed(Arc::new(placed))
    }
}

impl Pass for BuildIds {
    fn name(&self) -> &'static str {
        "build-ids"
    }

    fn needs(&self, input: &Recording) -> Needs {
        let told = Kinds::of(&[RecordType::HEADER_BUILD_ID]);
        if self.options.all && !input.is_compressed() {
            let mappings = [RecordType::MMAP, RecordType::MMAP2, RecordType::ID_INDEX];
            return Needs { records: Kinds::of(&mappings).union(told), ..Needs::default() };
        }
        let mut looks = vec![Mapped::kinds().union(told)];
        if !self.options.all {
            looks.push(Hits::kinds());
        }
        Needs { records: self.options.ids.correctable(), looks, ids: !self.options.all, ..Needs::default() }
    }

    fn survey(&mut self, _look: usize, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        match &mut self.step {
            Step::Mappings(mapped) => {
                self.found.contradicts(self.options.ids.correction(record, layouts));
                match record.kind() {
                    RecordType::HEADER_BUILD_ID => self.found.learn(record),
                    _ => mapped.learn(record, layouts),
                }
            }
            Step::Samples { hits, .. } => hits.look_at(record, layouts),
            Step::Placed(_) | Step::Streaming { .. } => {}
        }
        Ok(())
    }

    fn surveyed(&mut self, _look: usize, session: &mut Session) -> Result<()> {
        match std::mem::take(&mut self.step) {
            Step::Mappings(mapped) => {
                let aux = mapped.has_aux();
                let (spots, hits) = mapped.into_hits();
                let spaces = hits.spaces().clone();
                self.found.start(Ids::new(&self.options.ids, session, spaces.dsos()), session.endian);
                spaces.dsos().iter().for_each(|(dso, _)| self.found.mapped.learn(dso));
                if aux && !self.options.all {
                    // What a trace hits is known only once it is decoded.
                    session.report.say(
                        Level::Info,
                        "the recording holds AUX data, which may hit any DSO: all of them count as hit",
                    );
                }
                if aux || self.options.all {
                    let spots: Vec<_> = (0..).zip(spots).collect();
                    self.step = self.place(&spaces, &spots, session);
                    session.skip_looks();
                } else {
                    self.step = Step::Samples { hits, mapped: spots.into() };
                }
            }
            Step::Samples { hits, mapped } => {
                let mut spots = hits.first().to_vec();
                let unwound = hits.unwound_dsos();
                if !unwound.is_empty() {
                    let dsos = counted(unwound.len() as u64, "more DSO", "more DSOs");
                    session.report.say(
                        Level::Info,
                        format!("samples hold user stacks, which may hit anything that their processes mapped: {dsos} count as hit"),
                    );
                }
                spots.extend(unwound.into_iter().map(|dso| (dso, mapped[dso as usize].clone())));
                self.step = self.place(hits.spaces(), &spots, session);
            }
            step => self.step = step,
        }
        Ok(())
    }

    fn begin(&mut self, session: &mut Session) -> Result<()> {
        match &self.step {
            Step::Placed(placed) => placed.keys().for_each(|&place| session.want_at(place)),
            _ => {
                self.found.start(Ids::new(&self.options.ids, session, &[]), session.endian);
                self.step = Step::Streaming { guests: Guests::default(), seen: HashSet::new() };
            }
        }
        Ok(())
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        match &mut self.step {
            Step::Placed(placed) => {
                let records = out.place(&record).and_then(|place| placed.get(&place));
                for new in records.into_iter().flatten().filter(|_| !self.options.feature_only) {
                    self.found.record_count += 1;
                    out.put(new)?;
                }
            }
            Step::Streaming { guests, seen } => match record.kind() {
                RecordType::HEADER_BUILD_ID => {
                    self.found.contradicts(self.options.ids.correction(&record, out.layouts()));
                    self.found.learn(&record);
                }
                RecordType::ID_INDEX => guests.learn(&record),
                _ => {
                    self.found.contradicts(self.options.ids.correction(&record, out.layouts()));
                    if let Some(mapping) = Mapping::read(&record, out.layouts()) {
                        let machine = guests.machine(&record, out.layouts(), Some(mapping.pid));
                        let dso = mapping.dso(&record, machine);
                        if !seen.contains(&dso) {
                            let spot = Spot::of_mapping(&record, out.layouts());
                            let new = self.found.take(&dso, mapping.flags, &spot, record.endian());
                            seen.insert(dso);
                            if let Some(new) = new.filter(|_| !self.options.feature_only) {
                                self.found.record_count += 1;
                                out.put(&new)?;
                            }
                        }
                    }
                }
            },
            Step::Mappings(_) | Step::Samples { .. } => {}
        }
        match self.options.ids.correction(&record, out.layouts()) {
            Some(correction) => {
                self.found.corrected += 1;
                out.patch(record, |bytes| correction.apply(record.kind(), bytes, record.endian()))
            }
            None => out.keep(record),
        }
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        let added = self.found.mapped.add_with(&self.found.entries, session);
        self.options.ids.correct_feature(session, &mut self.found.corrections);
        let Found { ids, entry_count, record_count, corrections, contradicting, corrected, .. } = &self.found;
        if let Some(ids) = ids {
            let what = if self.options.all { "mapped" } else { "hit" };
            let dsos = counted(*entry_count, &format!("{what} DSO"), &format!("{what} DSOs"));
            let dsos = format!("{dsos} with a build-id");
            ids.report(&dsos, *entry_count > 0, corrections, &mut session.report);
        }
        let records = *record_count;
        let line = match (records, added) {
            (0, 0) if *entry_count == 0 => "nothing injected: no build-id was found".to_owned(),
            (0, 0) => "nothing injected: the recording already has all of these build-ids".to_owned(),
            _ => {
                let records = counted(records, "HEADER_BUILD_ID record", "HEADER_BUILD_ID records");
                format!(
                    "injected {records}, and {} into feature BUILD_ID",
                    counted(added, "entry", "entries")
                )
            }
        };
        session.report.say(Level::Info, line);
        if corrected < contradicting {
            let records = counted(contradicting - corrected, "record keeps", "records keep");
            let line = format!(
                "inside COMPRESSED records {records} another build-id than you gave: run perfx decompress first"
            );
            session.report.say(Level::Warning, line);
        }
        Ok(())
    }

    fn fork(&self) -> Option<Box<dyn Pass>> {
        let step = match &self.step {
            Step::Samples { hits, mapped } => Step::Samples { hits: hits.fork(), mapped: mapped.clone() },
            Step::Placed(placed) => Step::Placed(placed.clone()),
            // What a mapping means depends on the ones before it.
            Step::Mappings(_) | Step::Streaming { .. } => return None,
        };
        Some(Box::new(BuildIds { options: self.options.clone(), step, found: Found::default() }))
    }

    fn join(&mut self, worker: Box<dyn Pass>) -> Result<()> {
        if let Some(BuildIds { step, found, .. }) = worker_as(worker) {
            self.found.record_count += found.record_count;
            self.found.corrected += found.corrected;
            if let (Step::Samples { hits, .. }, Step::Samples { hits: later, .. }) = (&mut self.step, step) {
                hits.join(later);
            }
        }
        Ok(())
    }
}

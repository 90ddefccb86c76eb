//! `build-ids` adds the build-ids of the DSOs that samples hit (or of all DSOs): a HEADER_BUILD_ID record
//! before the first sample that hits the DSO, and an entry in feature BUILD_ID. Existing records stay.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use clap::Args;
use perfx_format::features::BuildIds as Entries;
use perfx_format::read::{Batch, Form, Recording};
use perfx_format::record::build_id::BuildIdEntry;
use perfx_format::{Endian, Kinds, Layouts, Origin, Record, RecordType, sample_type as st};
use perfx_model::address_space::{AddressSpaces, Dso, Mapping};
use perfx_model::guests::Guests;
use perfx_model::hits::{FirstUse, Hits, Mapped};
use perfx_pipeline::{
    Emit, Fork, Level, Needs, OutputForm, Pass, Place, Prescan, Prescanned, Result, Rewrite, Session, Stage,
    Survey, counted,
};
use perfx_resolve::{Correction, IdArgs, IdOptions, Ids, MappedIds, cpumode_of, dso_name};

use crate::support::options::PassOptions;

/// The pass.
#[derive(Debug)]
pub struct BuildIds {
    options: BuildIdsOptions,
}

/// The options, checked.
#[derive(Clone, Debug, Default)]
pub struct BuildIdsOptions {
    /// Include all mapped DSOs, not only those that samples hit.
    pub all: bool,
    /// Set only the feature; the records stay unchanged.
    pub feature_only: bool,
    /// The sources of ids.
    pub ids: IdOptions,
}

/// The options on the command line.
#[derive(Args, Clone, Debug)]
pub struct BuildIdsArgs {
    /// Add the build-ids of all mapped DSOs, not only of those that samples hit
    #[arg(long)]
    all: bool,
    /// Change only feature BUILD_ID; records stay as they are, unless they contradict --known-build-ids
    #[arg(long)]
    feature_only: bool,
    #[command(flatten)]
    ids: IdArgs,
}

impl PassOptions for BuildIdsArgs {
    const NAME: &'static str = "build-ids";
    const ABOUT: &'static str = "add the build-ids of the DSOs that samples hit (or of all DSOs) as records and to \
        feature BUILD_ID";

    fn pass(self) -> Result<Box<dyn Pass>> {
        let BuildIdsArgs { all, feature_only, ids } = self;
        Ok(Box::new(BuildIds::new(BuildIdsOptions { all, feature_only, ids: ids.options()? })))
    }
}

struct MapSurvey {
    options: BuildIdsOptions,
    found: FoundIds,
    mapped: Mapped,
}

/// The second survey: finds the mappings that samples hit, unless [`PlaceRecords`] can do so.
struct HitSurvey {
    options: BuildIdsOptions,
    found: FoundIds,
    hits: Hits,
    first_uses: Arc<[FirstUse]>,
}

struct PlaceRecords {
    options: Arc<BuildIdsOptions>,
    found: FoundIds,
    placed: Arc<Placed>,
    endian: Endian,
    /// The mappings hit by earlier samples, if the places are not known in advance.
    hits: Option<Hits>,
}

/// The new records of DSOs, by the place of the record that uses them first.
type Placed = HashMap<Place, Vec<Vec<u8>>>;

struct HitsOfBatch(Option<Hits>);

/// Works without a survey: inserts the record of every DSO at its first mapping.
struct Stream {
    options: BuildIdsOptions,
    found: FoundIds,
    guests: Guests,
    seen: HashSet<Dso>,
}

#[derive(Debug, Default)]
struct FoundIds {
    ids: Option<Ids>,
    entries: Vec<u8>,
    entry_count: u64,
    record_count: u64,
    /// DSOs with a HEADER_BUILD_ID record in the input: machine and name, and the first such record.
    recorded: HashMap<(i32, Box<[u8]>), Origin>,
    /// These records, as entries of a BUILD_ID section, until `ids` is created.
    recorded_entries: Vec<u8>,
    /// DSOs whose id was missing at their first use, and the number of these whose id is recorded later.
    without: HashSet<(i32, Box<[u8]>)>,
    too_late: u64,
    mapped: MappedIds,
    corrections: BTreeSet<Correction>,
    /// Records whose id differs from the user's, and how many of them were corrected.
    contradicting: u64,
    corrected: u64,
}

impl FoundIds {
    /// Finds a DSO's id and adds it to the feature. Returns the record to insert, if one is missing.
    fn take(&mut self, dso: &Dso, flags: u32, first_use: &FirstUse, endian: Endian) -> Option<Vec<u8>> {
        let (pid, name) = (dso.machine.pid(), dso_name(dso));
        let Some(id) = self.ids.as_mut()?.find_once(dso, flags, first_use.pid) else {
            self.without.insert((pid, name.into()));
            return None;
        };
        let entry = BuildIdEntry::new(cpumode_of(dso), pid, id.as_bytes(), name);
        entry.write_section(endian, &mut self.entries)?;
        self.entry_count += 1;
        let key = (pid, Box::from(name));
        let in_time = self.recorded.get(&key).is_some_and(|recorded| recorded.is_before(first_use.origin));
        if dso.tells_id() || in_time {
            return None;
        }
        self.recorded.insert(key, first_use.origin);
        let mut record = Vec::new();
        entry.write_record(&first_use.trailer, endian, &mut record)?;
        Some(record)
    }

    /// Adds the id of a DSO at its first use, in file order; see [`FoundIds::take`].
    fn place(
        &mut self,
        spaces: &AddressSpaces,
        first_uses: Vec<(u32, FirstUse)>,
        endian: Endian,
        place: impl Fn(Origin) -> Option<Place>,
    ) -> Placed {
        let mut placed = Placed::new();
        for (number, first_use) in first_uses {
            let (dso, flags) = &spaces.dsos()[number as usize];
            let record = self.take(dso, *flags, &first_use, endian);
            if let (Some(record), Some(place)) = (record, place(first_use.origin)) {
                placed.entry(place).or_default().push(record);
            }
        }
        placed
    }

    fn contradicts(&mut self, correction: Option<Correction>) {
        self.contradicting += u64::from(correction.is_some());
        self.corrections.extend(correction);
    }

    fn learn(&mut self, record: &Record<'_>) {
        let endian = record.endian();
        let Some(entry) = BuildIdEntry::read(record.bytes(), endian) else { return };
        if entry.id.iter().any(|&byte| byte != 0) {
            let key = (entry.pid, entry.filename.into());
            self.too_late += u64::from(self.without.remove(&key));
            self.recorded.entry(key).or_insert(record.origin());
            match &mut self.ids {
                Some(ids) => ids.learn(&entry),
                None => drop(entry.write_section(endian, &mut self.recorded_entries)),
            }
        }
    }

    fn start(&mut self, mut ids: Ids, endian: Endian) {
        Entries::new(&std::mem::take(&mut self.recorded_entries), endian).for_each(|entry| ids.learn(&entry));
        self.ids = Some(ids);
    }

    /// Emits a record, with the user's id if its own contradicts that.
    fn pass_on(&mut self, record: Record<'_>, options: &BuildIdsOptions, out: &mut Emit<'_>) -> Result<()> {
        match options.ids.correction(&record, out.layouts()) {
            Some(correction) => {
                self.corrected += 1;
                out.patch(record, |bytes| correction.apply(record.kind(), bytes, record.endian()))
            }
            None => out.keep(record),
        }
    }

    fn finish(&mut self, options: &BuildIdsOptions, session: &mut Session) {
        let added = self.mapped.add_with(&self.entries, session);
        // Pipe data has HEADER_BUILD_ID records instead of the feature.
        let added = if session.form == OutputForm::Pipe { 0 } else { added };
        options.ids.correct_feature(session, &mut self.corrections);
        let FoundIds {
            ids, entry_count, record_count, corrections, contradicting, corrected, too_late, ..
        } = self;
        if let Some(ids) = ids {
            let what = if options.all { "mapped" } else { "hit" };
            let dsos = counted(*entry_count, &format!("{what} DSO"), &format!("{what} DSOs"));
            let dsos = format!("{dsos} with a build-id");
            ids.report(&dsos, *entry_count > 0, corrections, &mut session.report);
        }
        if *too_late > 0 {
            let dsos = counted(*too_late, "DSO", "DSOs");
            let what = format!(
                "the build-ids of {dsos} come only after the first mapping, where they stay; perfx inject -b waits \
                 for them, or perfx inject --buildid-all of the output as a file"
            );
            session.report.say(Level::Info, what);
        }
        let line = match (*record_count, added) {
            (0, 0) if *entry_count == 0 => "nothing injected: no build-id was found".to_owned(),
            (0, 0) => "nothing injected: the recording already has all of these build-ids".to_owned(),
            (records, added) => {
                let records = (records > 0)
                    .then(|| counted(records, "HEADER_BUILD_ID record", "HEADER_BUILD_ID records"));
                let entries = (added > 0)
                    .then(|| format!("{} into feature BUILD_ID", counted(added, "entry", "entries")));
                let injected: Vec<_> = records.into_iter().chain(entries).collect();
                format!("injected {}", injected.join(", and "))
            }
        };
        session.report.say(Level::Info, line);
        if *corrected < *contradicting {
            let records = counted(*contradicting - *corrected, "record keeps", "records keep");
            let line = format!(
                "{records} a build-id other than the one you gave inside COMPRESSED records: run perfx decompress \
                 first"
            );
            session.report.say(Level::Warning, line);
        }
    }
}

impl BuildIds {
    /// The pass with these options.
    pub fn new(options: BuildIdsOptions) -> BuildIds {
        BuildIds { options }
    }

    /// True if every DSO gets its record at its first mapping; this needs no survey.
    fn streams(&self, input: &Recording) -> bool {
        self.options.all && !input.is_compressed()
    }
}

impl Pass for BuildIds {
    fn name(&self) -> &'static str {
        BuildIdsArgs::NAME
    }

    fn needs(&self, input: &Recording) -> Needs {
        let recorded = Kinds::of(&[RecordType::HEADER_BUILD_ID]);
        // The pass only adds facts that a survey has seen, except to records that contradict the user.
        let barrier = !self.options.ids.correctable().is_empty();
        if self.streams(input) {
            let records = Kinds::PATHS.and(RecordType::ID_INDEX);
            return Needs { records, barrier, ..Needs::default() };
        }
        let mut surveys = vec![Mapped::kinds().union(recorded)];
        if !self.options.all {
            surveys.push(Hits::kinds());
        }
        let records = self.options.ids.correctable();
        Needs { records, surveys, ids: !self.options.all, barrier, ..Needs::default() }
    }

    fn start(self: Box<Self>, input: &Recording) -> Stage {
        let (options, mut found) = (self.options.clone(), FoundIds::default());
        if !self.streams(input) {
            // The meaning of a mapping depends on those before it.
            return Stage::survey_in_order(MapSurvey { options, found, mapped: Mapped::default() });
        }
        Stage::begin(move |begin| {
            found.start(Ids::new(&options.ids, begin, &[]), begin.endian);
            let (guests, seen) = Default::default();
            Ok(Stage::rewrite_in_order(Stream { options, found, guests, seen }))
        })
    }
}

impl Survey for MapSurvey {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.found.contradicts(self.options.ids.correction(record, layouts));
        match record.kind() {
            RecordType::HEADER_BUILD_ID => self.found.learn(record),
            _ => self.mapped.learn(record, layouts),
        }
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let MapSurvey { options, mut found, mapped } = self;
        let aux = mapped.has_aux();
        let (first_uses, hits) = mapped.into_hits();
        let spaces = hits.spaces().clone();
        found.start(Ids::new(&options.ids, session, spaces.dsos()), session.endian);
        spaces.dsos().iter().for_each(|(dso, _)| found.mapped.learn(dso));
        if aux && !options.all {
            // The addresses in a trace are known only once it is decoded.
            session.report.say(
                Level::Info,
                "the recording has AUX data, which may hit any DSO, so all DSOs count as hit",
            );
        }
        if aux || options.all {
            let first_uses = (0..).zip(first_uses).collect();
            return Ok(PlaceRecords::stage(options, found, &spaces, first_uses, session));
        }
        if can_follow_hits(session) {
            let (options, placed, endian) = (Arc::new(options), Arc::default(), session.endian);
            let place = PlaceRecords { options, found, placed, endian, hits: Some(hits) };
            return Ok(Stage::rewrite_prescanned(place));
        }
        Ok(Stage::survey(HitSurvey { options, found, hits, first_uses: first_uses.into() }))
    }
}

impl Survey for HitSurvey {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.hits.look_at(record, layouts);
        Ok(())
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let HitSurvey { options, found, mut hits, first_uses: mapped } = self;
        let mut first_uses = hits.take_first();
        let unwound = hits.unwound_dsos();
        if !unwound.is_empty() {
            let dsos = counted(unwound.len() as u64, "more DSO", "more DSOs");
            session.report.say(
                Level::Info,
                format!(
                    "samples have user stacks, which may hit any DSO of their processes, so {dsos} of these \
                    count as hit"
                ),
            );
        }
        first_uses.extend(unwound.into_iter().map(|dso| (dso, mapped[dso as usize].clone())));
        drop(mapped);
        Ok(PlaceRecords::stage(options, found, hits.spaces(), first_uses, session))
    }
}

impl Fork for HitSurvey {
    fn fork(&self) -> HitSurvey {
        let (options, first_uses) = (self.options.clone(), self.first_uses.clone());
        HitSurvey { options, found: FoundIds::default(), hits: self.hits.fork(), first_uses }
    }

    fn absorb(&mut self, later: HitSurvey) {
        self.hits.absorb(later.hits);
    }
}

/// True if the first use of a DSO is known at its first sample: no sample lies inside a COMPRESSED record,
/// and no user stack counts as a use of all DSOs of its process. The events of pipe data may come late.
fn can_follow_hits(session: &Session) -> bool {
    let unwinds = session.events.iter().any(|event| event.attr().sample_type & st::STACK_USER != 0);
    session.nothing_hidden() && session.input != Form::Pipe && !unwinds
}

impl PlaceRecords {
    /// The stage that inserts the DSOs' records at these places, in file order.
    fn stage(
        options: BuildIdsOptions,
        mut found: FoundIds,
        spaces: &AddressSpaces,
        first_uses: Vec<(u32, FirstUse)>,
        session: &Session,
    ) -> Stage {
        let endian = session.endian;
        let placed = found.place(spaces, first_uses, endian, |origin| session.place(origin));
        Stage::begin(move |begin| {
            placed.keys().for_each(|&place| begin.want_at(place));
            let (options, placed) = (Arc::new(options), Arc::new(placed));
            Ok(Stage::rewrite(PlaceRecords { options, found, placed, endian, hits: None }))
        })
    }
}

impl Prescanned for PlaceRecords {
    type Prescan = HitsOfBatch;

    fn prescan(&self) -> HitsOfBatch {
        HitsOfBatch(self.hits.as_ref().map(Hits::fork))
    }

    fn absorb_prescan(&mut self, HitsOfBatch(later): HitsOfBatch) -> Result<Vec<Place>> {
        let Some((hits, later)) = self.hits.as_mut().zip(later) else { return Ok(Vec::new()) };
        hits.absorb(later);
        let first_uses = hits.take_first();
        self.placed = Arc::new(self.found.place(hits.spaces(), first_uses, self.endian, Place::of_origin));
        Ok(self.placed.keys().copied().collect())
    }
}

impl Prescan for HitsOfBatch {
    fn fork(&self) -> HitsOfBatch {
        HitsOfBatch(self.0.as_ref().map(Hits::fork))
    }

    fn batch(&mut self, batch: &Batch) -> Result<()> {
        let Some(hits) = &mut self.0 else { return Ok(()) };
        batch.each(Hits::kinds(), |record| {
            hits.look_at(record, &batch.layouts);
            Ok(())
        })
    }
}

impl Rewrite for PlaceRecords {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let records = out.place(&record).and_then(|place| self.placed.get(&place));
        for new in records.into_iter().flatten().filter(|_| !self.options.feature_only) {
            self.found.record_count += 1;
            out.put(new)?;
        }
        self.found.pass_on(record, &self.options, out)
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        self.found.finish(&self.options, session);
        Ok(())
    }
}

impl Fork for PlaceRecords {
    fn fork(&self) -> PlaceRecords {
        let (options, placed) = (self.options.clone(), self.placed.clone());
        PlaceRecords { options, found: FoundIds::default(), placed, endian: self.endian, hits: None }
    }

    fn absorb(&mut self, later: PlaceRecords) {
        self.found.record_count += later.found.record_count;
        self.found.corrected += later.found.corrected;
    }
}

impl Rewrite for Stream {
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let layouts = out.layouts();
        if record.kind() == RecordType::ID_INDEX {
            self.guests.learn(&record);
            return out.keep(record);
        }
        self.found.contradicts(self.options.ids.correction(&record, layouts));
        if record.kind() == RecordType::HEADER_BUILD_ID {
            self.found.learn(&record);
        } else if let Some(mapping) = Mapping::read(&record, layouts) {
            let dso = mapping.dso(self.guests.machine(&record, layouts, Some(mapping.pid)));
            if !self.seen.contains(&dso) {
                let first_use = FirstUse::of_mapping(&record, layouts);
                let new = self.found.take(&dso, mapping.flags, &first_use, record.endian());
                self.seen.insert(dso);
                if let Some(new) = new.filter(|_| !self.options.feature_only) {
                    self.found.record_count += 1;
                    out.put(&new)?;
                }
            }
        }
        self.found.pass_on(record, &self.options, out)
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        self.found.finish(&self.options, session);
        Ok(())
    }
}

//! Puts the records of one recording, or of several of one machine, in the order of time: as perf would have recorded them together. Each event is there once, and so is what several inputs say deduplicator.
//!
//! A record without a time (time 0, ~0, kinds from 64 on) is handed on by perf as soon as it is read, while those with a time wait for the end of
//! the next round. So that is where it goes: behind what perf has handed on by then, before all that waits and all that is behind it in its input,
//! and in the order of its like. In a recording without sample_id_all, which perf reads in the order of the file, it stays between its neighbours. Two FINISHED_ROUNDs before one of the kernel's kinds let perf finish what is older. Nothing of it waits longer
//! than its batch, so the payload of AUXTRACE is never held.

mod chunks;
mod index;
mod input;
mod lists;
mod missing_ids;
mod sorter;
pub(crate) mod spec;
mod unite;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use anyhow::{Result, ensure};
use perfx_format::header::Severity;
use perfx_format::read::{Batch, KCORE_DIR, Recording};
use perfx_format::record::builder::finished_round;
use perfx_format::{Kinds, Layouts, Record, RecordType, named_pid, sample_type};
use perfx_pipeline::{
    Begin, Emit, Fork, Interest, Level, Needs, Pass, Prescan, Prescanned, Report, Rewrite, Session, Stage,
    Survey, counted,
};

use crate::reindex::ids::kernel_kinds;
use crate::support::text::by_kind;
use chunks::Chunks;
use input::{Input, InputFacts, Translator, check_times};
use missing_ids::lacking;
use sorter::PreparedBatch;
use spec::InputSpec;
use unite::{JoinSource, Union, clocks, one_kernel, unite_features};

/// The pass: `join` with other inputs, `sort` without.
#[derive(Debug)]
pub struct Combine {
    name: &'static str,
    options: CombineOptions,
}

impl Combine {
    /// With these options, called `name`.
    pub(crate) fn new(name: &'static str, options: CombineOptions) -> Combine {
        Combine { name, options }
    }
}

/// What the user chose.
#[derive(Debug, Default)]
pub struct CombineOptions {
    /// What the first input's clock is ahead, ns.
    pub offset: Option<i64>,
    /// The other inputs.
    pub others: Vec<Joined>,
    /// Combine what is not of one machine and boot.
    pub mix: bool,
    /// The first input has no `kcore_dir`, so that another's can be the output's.
    pub take_kcore: bool,
}

/// An input beside the first.
#[derive(Debug)]
pub enum Joined {
    /// To be opened when its turn comes.
    Named(InputSpec),
    /// Open already, and what its clock is ahead, ns.
    Open(Box<Recording>, Option<i64>),
}

/// The first survey: what the first input holds.
struct FactSurvey {
    options: CombineOptions,
    facts: Box<InputFacts>,
}

/// The second survey: what records prove of ids that ID_INDEX lacks.
struct IndexSurvey {
    options: CombineOptions,
    facts: Box<InputFacts>,
}

/// Translates the records of a batch of the first input before its turn comes.
#[derive(Debug)]
struct HoldBatch {
    translator: Arc<Translator>,
    held: Option<PreparedBatch>,
}

/// What is said of a recording that need not be sorted.
pub const IN_ORDER: &str = "its records are in time order already: nothing to sort";

/// What is written between sorted records so that perf need not hold more of them: bytes.
const ROUND: usize = 2 << 20;

/// The most that goes into one plan, and into the writer, at a time: bytes.
const PUT_MAX: usize = 8 << 20;

/// Bytes that are put behind the first input's records at a time.
const STEP: usize = 4 << 20;

impl CombineOptions {
    /// Opens the other inputs, and surveys all of them.
    fn open(&mut self, session: &mut Session) -> Result<Vec<(Recording, Option<i64>, InputFacts)>> {
        let mut opened = Vec::new();
        for other in std::mem::take(&mut self.others) {
            let (mut recording, offset) = match other {
                Joined::Named(InputSpec { path, offset }) => (session.open(&path)?, offset),
                Joined::Open(recording, offset) => (recording.spooled(&session.temp_files())?, offset),
            };
            let name = recording.name.clone();
            ensure!(
                recording.endian == session.endian,
                "{name}: its byte order differs from that of {}; a recording has only one byte order",
                session.name
            );
            recording.check_whole()?;
            for fault in &recording.faults {
                let level = if fault.severity == Severity::Loss { Level::Loss } else { Level::Warning };
                session.report.say(level, fault.to_error().file(&name).to_string());
            }
            Layouts::new(&recording.events).check_ids().map_err(|e| e.file(&name))?;
            let facts = InputFacts::of(&mut recording, session.threads)?;
            facts.torn.iter().for_each(|torn| session.report.say(Level::Loss, torn.clone()));
            for (feature, section) in &facts.features {
                recording.features.entry(*feature).or_insert_with(|| section.clone());
            }
            opened.push((recording, offset, facts));
        }
        Ok(opened)
    }

    /// Begins to put the inputs together, of which the first has these facts.
    fn begin(mut self, mut facts: InputFacts, session: &mut Begin<'_>) -> Result<Stage> {
        facts.settle();
        let mut others = self.open(session)?;
        let alone = others.is_empty();
        if facts.index.is_needed() || others.iter().any(|(.., facts)| facts.index.is_needed()) {
            for (recording, _, facts) in &mut others {
                let late = std::mem::take(&mut facts.events);
                let ids = recording.events.iter().chain(&late).flat_map(|event| &event.ids);
                if facts.index.lacks(ids) {
                    facts.index.see_all(recording, session.threads)?;
                }
                facts.events = late;
            }
        }
        let offset = self.offset.unwrap_or(0);
        if alone && facts.late == 0 && offset == 0 {
            session.want_only(Kinds::NONE);
            let timeless = facts.earliest.is_none() && facts.records > 0;
            let what = "no record has a time to sort by";
            session.report.say(Level::Info, if timeless { what } else { IN_ORDER });
            return Ok(Stage::copy());
        }
        let (session_name, features) = (session.name.clone(), session.features().clone());
        let first_events = session.events.clone();
        let mut sources = vec![JoinSource {
            name: &session_name,
            events: session.events.clone(),
            features: &features,
            facts: &facts,
            offset: self.offset,
        }];
        for (recording, offset, facts) in &others {
            sources.push(JoinSource {
                name: &recording.name,
                events: recording.events.iter().chain(&facts.events).cloned().collect(),
                features: &recording.features,
                facts,
                offset: *offset,
            });
        }
        let endian = session.endian;
        let mut index = Vec::new();
        let translators = if alone {
            // It may say when the first and the last sample in file order were.
            unite_features(&sources, &[offset], session);
            vec![Translator { offset, ..Translator::default() }]
        } else {
            check(&sources)?;
            let offsets = clocks(&mut sources, self.mix, endian, &mut session.report)?;
            let mut union = Union::new(&sources, &facts.events, &offsets, endian)?;
            tell(&sources, &union, &mut session.report);
            let mut take_kcore = self.take_kcore;
            for (source, (recording, ..)) in sources.iter().skip(1).zip(&others) {
                for extra in &recording.extras {
                    let name = extra.file_name().unwrap_or_default();
                    // A kernel's memory is of use to those alone who ran on it.
                    if take_kcore && name == KCORE_DIR && one_kernel(&sources[0], source, endian) {
                        let what = format!("{}: its {KCORE_DIR} goes into the output", source.name);
                        session.report.say(Level::Info, what);
                        session.beside.push((extra.clone(), name.to_owned()));
                        take_kcore = false;
                        continue;
                    }
                    let what =
                        format!("{}: {}, which the output has no place for", source.name, name.display());
                    session.report.say(Level::Loss, what);
                }
            }
            index = lacking(&sources, &union, endian, &mut session.report);
            session.events.clone_from(&union.events);
            union.describe(session);
            unite_features(&sources, &offsets, session);
            if sources.iter().any(|source| source.facts.has_aux) {
                session.list_aux();
            }
            std::mem::take(&mut union.translators)
        };
        drop(sources);
        let mut translators = translators.into_iter();
        let mut own = || translators.next().unwrap_or_default();
        let spool = session.temp_files();
        let mut inputs = vec![Input::first(&facts, &first_events, own(), endian, spool.clone())];
        for (recording, _, facts) in &mut others {
            inputs.push(Input::other(recording, facts, own(), spool.clone(), session.threads)?);
        }
        if alone {
            let late = counted(facts.late, "record was", "records were");
            session.report.say(Level::Info, format!("at least {late} out of order"));
        }
        // Records are taken one after another.
        Ok(Stage::rewrite_prescanned(Combining::new(inputs, index)))
    }
}

/// What can't be joined whatever the user says.
fn check(sources: &[JoinSource<'_>]) -> Result<()> {
    for source in sources {
        ensure!(
            !source.events.is_empty() || source.facts.records == 0,
            "{}: it has no event, so its records can't be read",
            source.name
        );
        ensure!(
            !source.facts.has_stat,
            "{}: it was written by perf stat record, whose counts have no time",
            source.name
        );
        check_times(source.name, &source.events, source.facts)?;
    }
    let mut traced = sources.iter().filter(|source| source.facts.has_aux || source.facts.aux_info.is_some());
    if let Some(first) = traced.next() {
        for other in traced {
            ensure!(
                other.facts.aux_info == first.facts.aux_info && ids(other) == ids(first),
                "{}: it has AUX data, and so has {}; perf decodes the AUX data of one recording only",
                other.name,
                first.name
            );
        }
    }
    Ok(())
}

fn ids<'a>(source: &'a JoinSource<'_>) -> Vec<&'a [u64]> {
    source.events.iter().map(|event| &event.ids[..]).collect()
}

/// Reports the planned join.
fn tell(sources: &[JoinSource<'_>], union: &Union, report: &mut Report) {
    for (number, (source, translator)) in sources.iter().zip(&union.translators).enumerate() {
        let JoinSource { name, facts, events, .. } = source;
        if number > 0 {
            let records = counted(facts.records, "record", "records");
            report.say(Level::Info, format!("read {name}: {records}"));
        }
        let own = events.len() - union.shared[number];
        let mut said = Vec::new();
        if number > 0 && union.shared[number] > 0 {
            let shared = union.shared[number] as u64;
            said.push(counted(shared, "event merged with an earlier one", "events merged with earlier ones"));
        }
        if number > 0 && own > 0 {
            said.push(counted(own as u64, "event added", "events added"));
        }
        if !translator.ids.is_empty() {
            let changed = translator.ids.len() as u64;
            said.push(counted(
                changed,
                "id replaced that another input uses",
                "ids replaced that other inputs use",
            ));
        }
        if !said.is_empty() {
            report.say(Level::Info, format!("{name}: {}", said.join(", ")));
        }
    }
    if union.identify {
        let what = "every record gets an IDENTIFIER, so that perf finds its event";
        report.say(Level::Info, what);
    }
    // perf refuses a file whose attrs are larger than its own.
    let size = |source: &JoinSource<'_>| source.events.iter().map(|event| event.raw().len()).max();
    let sized = || sources.iter().filter_map(|source| Some((size(source)?, source.name)));
    if let (Some(small), Some(large)) =
        (sized().min_by_key(|(size, _)| *size), sized().max_by_key(|(size, _)| *size))
        && small.0 < large.0
    {
        let what = format!(
            "attrs have {} bytes, as in {}; the perf that recorded {} knows only {} bytes, so it can read the \
             output only as pipe data (--to pipe)",
            large.0, large.1, small.1, small.0
        );
        report.say(Level::Info, what);
    }
}

/// Kinds that say how things are, so that saying it twice says no more.
const STATE: Kinds = Kinds::of(&[
    RecordType::MMAP,
    RecordType::MMAP2,
    RecordType::COMM,
    RecordType::FORK,
    RecordType::EXIT,
    RecordType::NAMESPACES,
    RecordType::KSYMBOL,
    RecordType::BPF_EVENT,
    RecordType::CGROUP,
    RecordType::TEXT_POKE,
    RecordType::EVENT_UPDATE,
    RecordType::HEADER_BUILD_ID,
    RecordType::ID_INDEX,
    RecordType::AUXTRACE_INFO,
    RecordType::TIME_CONV,
    RecordType::THREAD_MAP,
    RecordType::CPU_MAP,
    RecordType::FINISHED_INIT,
    RecordType::BPF_METADATA,
]);

/// Kinds of which perf uses the first and complains about others.
const ONCE: [RecordType; 2] = [RecordType::THREAD_MAP, RecordType::CPU_MAP];

/// The pid whose state a record changes; `u32::MAX` for the kernel or when unstated.
fn owner(record: &Record<'_>) -> u32 {
    named_pid(record).unwrap_or(u32::MAX)
}

/// Drops records that several inputs have in common. It keeps digests of records, so its memory does not depend on
/// their length.
#[derive(Debug, Default)]
struct Deduplicator {
    digests: Digests,
    /// Records without a time, and after how many changes of their owner's state they stood.
    timeless: HashMap<Digest, u64>,
    /// How often the state of an owner has changed.
    changes: HashMap<u32, u64>,
    /// The time of the last record, and which records of that time several inputs may have.
    moment: u64,
    there: There,
    dropped: BTreeMap<RecordType, u64>,
    /// Kinds that are there once, and how many others are not.
    once: BTreeMap<RecordType, u64>,
    /// Samples and the like: what happened twice alike may have happened twice.
    doubled: u64,
}

/// The bytes of a record, shortened.
type Digest = u128;

/// Makes digests with keys that change from run to run, so that no input can be made in which different records have the same one.
#[derive(Debug, Default)]
struct Digests([RandomState; 2]);

impl Digests {
    fn of(&self, bytes: &[u8]) -> Digest {
        let [high, low] = self.0.each_ref().map(|keys| Digest::from(keys.hash_one(bytes)));
        high << 64 | low
    }
}

/// Records of one moment.
#[derive(Debug, Default)]
struct There {
    /// The input that has the record.
    inputs: HashMap<Digest, usize>,
    /// Records that say nothing of a state: of those no more than [`MANY`] are compared.
    stateless: usize,
}

/// The recording names no moment at which so much happens, unless its times mean nothing.
const MANY: usize = 1 << 16;

impl There {
    fn clear(&mut self) {
        if self.inputs.capacity() > MANY {
            // Emptying it takes time in proportion to the most it has held.
            self.inputs = HashMap::new();
        }
        self.inputs.clear();
        self.stateless = 0;
    }

    fn add(&mut self, digest: Digest, input: usize, is_state: bool) {
        if is_state || self.stateless < MANY {
            self.stateless += usize::from(!is_state);
            self.inputs.entry(digest).or_insert(input);
        }
    }

    /// An input whose turn was before this one's has the record.
    fn has(&self, digest: Digest, input: usize) -> bool {
        self.inputs.get(&digest).is_some_and(|&other| other != input)
    }
}

impl Deduplicator {
    /// The record says nothing new. `meets`: another input has a record of the same time.
    fn repeats(&mut self, record: &Record<'_>, key: u64, input: usize, timeless: bool, meets: bool) -> bool {
        let is_state = STATE.has(record.kind());
        if timeless && is_state {
            let changes = self.changes.get(&owner(record)).copied().unwrap_or(0);
            let before = self.timeless.insert(self.digests.of(record.bytes()), changes);
            let again = before == Some(changes);
            if again {
                *self.dropped.entry(record.kind()).or_default() += 1;
            } else if ONCE.contains(&record.kind()) {
                let others = self.once.get(&record.kind()).map(|others| others + 1);
                self.once.insert(record.kind(), others.unwrap_or(0));
                return others.is_some();
            }
            return again;
        }
        if timeless {
            return false;
        }
        if key != self.moment {
            self.moment = key;
            self.there.clear();
        }
        let mut again = false;
        if meets || !self.there.inputs.is_empty() {
            let digest = self.digests.of(record.bytes());
            again = self.there.has(digest, input);
            if meets {
                self.there.add(digest, input, is_state);
            }
        }
        if again && is_state {
            *self.dropped.entry(record.kind()).or_default() += 1;
            return true;
        }
        self.doubled += u64::from(again);
        if is_state {
            *self.changes.entry(owner(record)).or_default() += 1;
        }
        false
    }
}

/// Records being joined.
#[derive(Debug)]
struct Combining {
    /// The first one's come through the pipeline.
    inputs: Vec<Input>,
    /// Its current batch; if no other pass comes before this one, a prescan has prepared it from all its records.
    held: Option<PreparedBatch>,
    prescanned: bool,
    /// ID_INDEX records that stand before all others.
    index: Vec<Vec<u8>>,
    /// With several inputs.
    deduplicator: Option<Deduplicator>,
    chunks: Chunks,
    /// Bytes since the last FINISHED_ROUND.
    since_round: usize,
    /// Records with a time that perf may not have handed on yet.
    pending: bool,
}

impl Combining {
    fn new(inputs: Vec<Input>, index: Vec<Vec<u8>>) -> Combining {
        let deduplicator = (inputs.len() > 1).then(Deduplicator::default);
        let chunks = Chunks::default();
        Combining {
            inputs,
            held: None,
            prescanned: false,
            index,
            deduplicator,
            chunks,
            since_round: 0,
            pending: false,
        }
    }

    /// Puts records up to a time of the first input, and below it of the others (without one, all that can go), but not many more than `most` bytes;
    /// true if there are more.
    fn put(&mut self, limit: Option<u64>, most: usize, out: &mut Emit<'_>) -> Result<bool> {
        std::mem::take(&mut self.index).iter().try_for_each(|record| out.put(record))?;
        let mut left = most;
        loop {
            // The first to go, and when the next best's turn is.
            let mut best: Option<(u64, usize)> = None;
            let mut next = None;
            for (number, input) in self.inputs.iter_mut().enumerate() {
                let Some(ready) = input.peek()? else { continue };
                let here = (ready.key, number);
                if best.is_none_or(|best| here < best) {
                    next = best;
                    best = Some(here);
                } else if next.is_none_or(|next| here < next) {
                    next = Some(here);
                }
            }
            let Some((_, number)) = best else { return Ok(false) };
            let Combining { inputs, deduplicator, chunks, since_round, pending, .. } = self;
            let Some(input) = inputs.get_mut(number) else { return Ok(false) };
            while let Some(ready) = input.peek()? {
                let key = ready.key;
                if next.is_some_and(|next| (key, number) > next) {
                    break;
                }
                if limit.is_some_and(|limit| key > limit || key == limit && number > 0) {
                    return Ok(false);
                }
                if left == 0 {
                    return Ok(true);
                }
                let timeless = ready.is_timeless();
                let record = input.record(&ready)?;
                let size = record.whole_size() as usize;
                let meets = next.is_some_and(|next| next.0 == key);
                let again = deduplicator.as_mut().is_some_and(|deduplicator| {
                    chunks.repeats(&record, number)
                        || deduplicator.repeats(&record, key, number, timeless, meets)
                });
                if !again {
                    if timeless && *pending && record.kind().is_kernel() {
                        out.put(&finished_round(out.endian()))?;
                        out.put(&finished_round(out.endian()))?;
                        (*pending, *since_round) = (false, 0);
                    } else if *since_round >= ROUND {
                        out.put(&finished_round(out.endian()))?;
                        *since_round = 0;
                    }
                    out.keep(record)?;
                    *pending |= !timeless;
                    *since_round += size;
                }
                left = left.saturating_sub(size);
                input.pop(&ready);
            }
        }
    }

    fn report(&self, report: &mut Report) {
        let Some(deduplicator) = &self.deduplicator else { return };
        let mut all = deduplicator.dropped.clone();
        if self.chunks.dropped > 0 {
            all.insert(RecordType::AUXTRACE, self.chunks.dropped);
        }
        let dropped: u64 = all.values().sum();
        if dropped > 0 {
            let records = counted(dropped, "record", "records");
            report.say(
                Level::Info,
                format!("dropped {records} that are also in another input: {}", by_kind(&all)),
            );
        }
        let others: BTreeMap<_, _> = deduplicator
            .once
            .iter()
            .filter(|(_, others)| **others > 0)
            .map(|(kind, others)| (*kind, *others))
            .collect();
        if !others.is_empty() {
            report.say(Level::Info, format!("dropped {} (perf uses one of each kind)", by_kind(&others)));
        }
        if deduplicator.doubled > 0 {
            let what = counted(deduplicator.doubled, "record occurs", "records occur");
            report.say(
                Level::Warning,
                format!(
                    "{what} in several inputs, and so several times in the output; do the inputs overlap?"
                ),
            );
        }
    }
}

/// All records that have a time stand in its order.
pub fn in_time_order(recording: &mut Recording, threads: usize) -> Result<bool> {
    Ok(InputFacts::of(recording, threads)?.late == 0)
}

impl Pass for Combine {
    fn name(&self) -> &'static str {
        self.name
    }

    fn needs(&self, input: &Recording) -> Needs {
        let surveys = [Kinds::ALL, kernel_kinds()];
        let surveys = if self.options.others.is_empty() { &surveys[..1] } else { &surveys };
        Needs {
            records: Kinds::ALL,
            surveys: surveys.to_vec(),
            decompressed: true,
            ids: input.events.iter().any(|event| event.attr().sample_type & sample_type::TIME != 0),
            ..Needs::default()
        }
    }

    fn start(self: Box<Self>, _input: &Recording) -> Stage {
        Stage::survey(FactSurvey { options: self.options, facts: Box::default() })
    }
}

impl Survey for FactSurvey {
    fn begin_batch(&mut self, _batch: &Batch, declared: Kinds) -> Kinds {
        self.facts.begin();
        declared
    }

    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.facts.look_at(record, layouts)
    }

    fn end(self, session: &mut Session) -> Result<Stage> {
        let FactSurvey { options, facts } = self;
        let ids = session.events.iter().flat_map(|event| &event.ids);
        if !options.others.is_empty() && facts.index.lacks(ids) {
            return Ok(Stage::survey(IndexSurvey { options, facts }));
        }
        Ok(Stage::begin(move |begin| options.begin(*facts, begin)))
    }
}

impl Fork for FactSurvey {
    fn fork(&self) -> FactSurvey {
        let (options, facts) = Default::default();
        FactSurvey { options, facts }
    }

    fn absorb(&mut self, later: FactSurvey) -> Result<()> {
        self.facts.join(*later.facts);
        Ok(())
    }
}

impl Survey for IndexSurvey {
    fn record(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.facts.index.see(record, layouts);
        Ok(())
    }

    fn end(self, _session: &mut Session) -> Result<Stage> {
        Ok(Stage::begin(move |begin| self.options.begin(*self.facts, begin)))
    }
}

impl Fork for IndexSurvey {
    fn fork(&self) -> IndexSurvey {
        let (options, facts) = Default::default();
        IndexSurvey { options, facts }
    }

    fn absorb(&mut self, later: IndexSurvey) -> Result<()> {
        self.facts.join(*later.facts);
        Ok(())
    }
}

impl Rewrite for Combining {
    fn begin_batch(&mut self, _batch: &Batch) -> Interest {
        // After a prescan nothing is left to be read.
        if self.prescanned { Interest::DropRest(Kinds::NONE) } else { Interest::AsDeclared }
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let Some(first) = self.inputs.first() else { return Ok(()) };
        first.translator.push(&record, out.layouts(), self.held.get_or_insert_default())
    }

    fn end_batch(&mut self, out: &mut Emit<'_>) -> Result<()> {
        let held = self.held.take().unwrap_or_default();
        let Some(first) = self.inputs.first_mut() else { return Ok(()) };
        let level = first.take(held)?;
        self.put(Some(level), PUT_MAX, out).map(drop)
    }

    fn drain(&mut self, out: &mut Emit<'_>) -> Result<bool> {
        self.put(None, STEP, out)
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        self.report(&mut session.report);
        Ok(())
    }
}

impl Prescanned for Combining {
    type Prescan = HoldBatch;

    fn prescan(&self) -> HoldBatch {
        let translator = self.inputs.first().map(|first| first.translator.clone());
        HoldBatch { translator: translator.unwrap_or_default(), held: None }
    }

    fn absorb_prescan(&mut self, prescan: HoldBatch) -> Result<()> {
        self.held = prescan.held;
        self.prescanned = true;
        Ok(())
    }
}

impl Prescan for HoldBatch {
    fn fork(&self) -> HoldBatch {
        HoldBatch { translator: self.translator.clone(), held: None }
    }

    fn batch(&mut self, batch: &Batch) -> Result<()> {
        self.held = Some(input::held(batch, &self.translator, true)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use perfx_format::Endian;
    use perfx_format::Origin;

    use super::*;

    /// A record of 24 bytes that holds a number.
    fn record(kind: RecordType, number: u64) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..4].copy_from_slice(&kind.0.to_le_bytes());
        bytes[6] = 24;
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    #[test]
    fn of_many_records_of_one_moment_each_is_compared_once() {
        let mut deduplicator = Deduplicator::default();
        let mut repeats = |kind, number, input, meets| {
            let bytes = record(kind, number);
            let record = Record::new(&bytes, &[], Origin::Synthetic, Endian::Little).unwrap();
            deduplicator.repeats(&record, 5, input, false, meets)
        };
        // Compared with one another, they would take hours.
        let many = 1 << 20;
        assert!((0..many).all(|number| !repeats(RecordType::COMM, number, 0, true)));
        assert!((0..many).all(|number| repeats(RecordType::COMM, number, 1, false)));
        assert!(!repeats(RecordType::COMM, many, 1, false));
        assert!((0..many).all(|number| !repeats(RecordType::SAMPLE, number, 0, true)));
        assert!((0..many).all(|number| !repeats(RecordType::SAMPLE, number, 1, false)));
        assert_eq!(deduplicator.doubled, MANY as u64, "samples are not kept without end");
        assert!(deduplicator.there.inputs.len() <= many as usize + MANY);
    }
}

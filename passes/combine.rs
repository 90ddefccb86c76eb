//! Merges the records of one or several recordings of one machine into time order, as perf would have
//! recorded them together. Equal events become one event, and records that several inputs share are written
//! once.
//!
//! perf processes a record without a time (time 0, ~0, kinds from 64 on) as soon as it reads it, while
//! records with a time wait for the end of the next round. So such a record goes after the records that perf
//! has flushed by then, before all that still wait and all that follow it in its input, and stays in order
//! with others of its sort. perf reads a recording without sample_id_all in file order; there the record
//! stays between its neighbours. Two FINISHED_ROUNDs before a kernel record make perf flush everything older.
//! A record without a time waits no longer than its batch, so the payload of AUXTRACE is never buffered.

mod chunks;
mod index;
mod input;
mod lists;
mod missing_ids;
pub(crate) mod spec;
mod unite;

use std::collections::{BTreeMap, HashMap};
use std::hash::{BuildHasher as _, RandomState};
use std::sync::Arc;

use perfx_format::features::SampleTime;
use perfx_format::read::{Batch, KCORE_DIR, Recording};
use perfx_format::record::builder::finished_round;
use perfx_format::{Event, Feature, Kinds, Layouts, Record, RecordType, named_pid, sample_type};
use perfx_pipeline::{
    Begin, Emit, Fork, Interest, Level, Needs, OutputForm, Pass, Place, Prescan, Prescanned, Report, Result,
    Rewrite, Session, Stage, Survey, counted, ensure,
};

use crate::reindex::ids::kernel_kinds;
use crate::support::text::by_kind;
use chunks::Chunks;
pub(crate) use input::Batches;
use input::{Input, InputFacts, Translator, check_times, is_timeless};
use missing_ids::lacking;
use perfx_format::read::sort::PreparedBatch;
use spec::InputSpec;
use unite::{JoinSource, Union, clocks, one_kernel, unite_features};

/// The pass: `join` if there are other inputs, else `sort`, or a step that needs the records in time order.
#[derive(Debug)]
pub struct Combine {
    name: &'static str,
    options: CombineOptions,
    step: Option<Box<dyn Step>>,
}

impl Combine {
    /// The pass with these options and this name.
    pub(crate) fn new(name: &'static str, options: CombineOptions) -> Combine {
        Combine { name, options, step: None }
    }

    /// `sort`, called `name`, whose records go through the step.
    pub(crate) fn with_step(name: &'static str, step: impl Step) -> Combine {
        Combine { step: Some(Box::new(step)), ..Combine::new(name, CombineOptions::default()) }
    }

    /// The first of its stages, for a pass that surveys before it.
    pub(crate) fn stage(self) -> Stage {
        let Combine { options, step, .. } = self;
        Stage::survey(FactSurvey { options, facts: Box::default(), step })
    }
}

/// A step that all records go through in time order before they are written.
pub(crate) trait Step: Send + std::fmt::Debug + 'static {
    /// Called when everything except the records is known. Returns false if there is nothing to do, and the
    /// recording stays as it is.
    fn begin(&mut self, session: &mut Begin<'_>) -> Result<bool>;

    /// True if all records get an IDENTIFIER, which `begin` has added to the attrs.
    fn identifies(&self) -> bool {
        false
    }

    /// Records that the step makes, in the order of the times by which they are sorted among all others. They
    /// go through the step, too. Called after `begin`.
    fn made(&mut self) -> Option<Batches> {
        None
    }

    /// Keeps, replaces or drops a record. Returns true if it wrote a sample with this record's time.
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<bool>;

    /// Called after the last record.
    fn finish(&mut self, report: &mut Report);
}

/// The options, checked.
#[derive(Debug, Default)]
pub struct CombineOptions {
    /// How far the first input's clock is ahead, ns.
    pub offset: Option<i64>,
    /// The other inputs.
    pub others: Vec<Joined>,
    /// True to allow inputs of different machines or boots.
    pub mix: bool,
    /// True if the first input has no `kcore_dir`, so that the output may get another input's.
    pub take_kcore: bool,
}

/// An input after the first.
#[derive(Debug)]
pub enum Joined {
    /// To be opened when the pass starts.
    Named(InputSpec),
    /// An open recording, and how far its clock is ahead, ns.
    Open(Box<Recording>, Option<i64>),
}

/// The first survey: the facts about the first input.
struct FactSurvey {
    options: CombineOptions,
    facts: Box<InputFacts>,
    step: Option<Box<dyn Step>>,
}

/// The second survey: what records reveal about ids that ID_INDEX lacks.
struct IndexSurvey {
    options: CombineOptions,
    facts: Box<InputFacts>,
}

/// Prescans the first input: translates the records of a batch ahead of time.
#[derive(Debug)]
struct PrepareBatch {
    translator: Arc<Translator>,
    prepared: Option<PreparedBatch>,
}

/// The report for a recording that is already sorted.
pub const IN_ORDER: &str = "its records are in time order already: nothing to sort";

/// The number of bytes between two FINISHED_ROUNDs, so that perf need not buffer more.
const ROUND: usize = 2 << 20;

/// The most bytes that go into one plan, and so to the writer, at a time.
const PUT_MAX: usize = 8 << 20;

/// The number of bytes inserted at a time after the first input's records.
const STEP: usize = 4 << 20;

impl CombineOptions {
    /// Opens and surveys the other inputs.
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
                session.report.say_fault(fault, &name);
            }
            Layouts::new(&recording.events).check_ids().map_err(|e| e.file(&name))?;
            let facts = InputFacts::of(&mut recording, session.threads)?;
            facts.fragments.iter().for_each(|fragment| session.report.say(Level::Loss, fragment.clone()));
            for (feature, section) in &facts.features {
                recording.features.entry(*feature).or_insert_with(|| section.clone());
            }
            opened.push((recording, offset, facts));
        }
        Ok(opened)
    }

    /// Starts the union of the inputs; `facts` are those of the first one.
    fn begin(
        mut self,
        mut facts: InputFacts,
        mut step: Option<Box<dyn Step>>,
        session: &mut Begin<'_>,
    ) -> Result<Stage> {
        facts.end_survey();
        if let Some(step) = &mut step
            && !step.begin(session)?
        {
            session.want_only(Kinds::NONE);
            return Ok(Stage::copy());
        }
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
        if alone && facts.late == 0 && offset == 0 && step.is_none() {
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
        let (mut index, mut in_turn) = (Vec::new(), false);
        let translators = if alone {
            // The feature may hold the times of the first and last sample in file order.
            unite_features(&sources, &[offset], session);
            let first = |event: &Event| event.ids.first().copied().unwrap_or(0);
            let identify = step.as_ref().is_some_and(|step| step.identifies());
            let identify = identify.then(|| {
                session.report.say(Level::Info, IDENTIFIED);
                session.events.iter().map(first).collect()
            });
            vec![Translator { offset, identify, ..Translator::default() }]
        } else {
            in_turn = check(&sources)?;
            let offsets = clocks(&mut sources, self.mix, endian, &mut session.report)?;
            let mut union = Union::new(&sources, &facts.events, &offsets, endian)?;
            tell(&sources, &union, &mut session.report);
            let mut take_kcore = self.take_kcore;
            for (source, (recording, ..)) in sources.iter().skip(1).zip(&others) {
                for extra in &recording.extras {
                    let name = extra.file_name().unwrap_or_default();
                    // A copy of the kernel is useful only for inputs that ran on that kernel.
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
        let made = step.as_mut().and_then(|step| step.made());
        if made.is_some() {
            // The step's records may be earlier than all others, but not than those without a time before them.
            facts.earliest = Some(1);
        }
        let mut inputs = vec![Input::first(&facts, &first_events, own(), endian, spool.clone())];
        if let Some(made) = made {
            inputs.push(Input::made(session.name.clone(), made, endian, spool.clone(), session.threads)?);
        }
        for (recording, _, facts) in &mut others {
            inputs.push(Input::other(recording, facts, own(), spool.clone(), session.threads)?);
        }
        if alone && facts.late > 0 {
            let late = counted(facts.late, "record was", "records were");
            session.report.say(Level::Info, format!("at least {late} out of order"));
        }
        // Records are merged serially.
        let sets_times = step.is_some() && session.feature(Feature::SAMPLE_TIME).is_some();
        if sets_times {
            session.clear_feature(Feature::SAMPLE_TIME);
            if session.form == OutputForm::Pipe {
                let feature = Feature::SAMPLE_TIME;
                let what = format!("left out feature {feature}: pipe data begins before the times are known");
                session.report.say(Level::Info, what);
            }
        }
        if in_turn {
            let what = "no record has a time, so the records of each input follow those of the one before";
            session.report.say(Level::Info, what);
        }
        let deduplicator = (!alone).then(|| Deduplicator { in_turn, ..Deduplicator::default() });
        let combining = Combining { step, sets_times, deduplicator, ..Combining::new(inputs, index) };
        Ok(Stage::rewrite_prescanned_in_order(combining))
    }
}

/// Refuses inputs that cannot be joined with any options. Returns true if their records can only follow each other,
/// because none has a time.
fn check(sources: &[JoinSource<'_>]) -> Result<bool> {
    let in_turn = sources.iter().all(|source| is_timeless(&source.events));
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
        if !in_turn {
            check_times(source.name, &source.events, source.facts)?;
        }
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
    Ok(in_turn)
}

fn ids<'a>(source: &'a JoinSource<'_>) -> Vec<&'a [u64]> {
    source.events.iter().map(|event| &event.ids[..]).collect()
}

const IDENTIFIED: &str = "every record gets an IDENTIFIER, so that perf finds its event";

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
        report.say(Level::Info, IDENTIFIED);
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

/// Kinds that describe a state, so that a repeated record adds nothing.
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

/// Kinds that should occur once: perf uses the first record, and reports an error for others.
const ONCE: [RecordType; 2] = [RecordType::THREAD_MAP, RecordType::CPU_MAP];

/// The pid whose state a record changes; `u32::MAX` for the kernel or when unstated.
fn owner(record: &Record<'_>) -> u32 {
    named_pid(record).unwrap_or(u32::MAX)
}

/// Drops records that several inputs have in common. It keeps digests of records, so its memory does not
/// depend on their length.
#[derive(Debug, Default)]
struct Deduplicator {
    digests: Digests,
    /// True if the inputs follow each other, because no record has a time: an input then repeats the states of its
    /// processes, which a later one may have changed.
    in_turn: bool,
    /// Records without a time.
    timeless: HashMap<Digest, Timeless>,
    /// The number of changes of each owner's state.
    changes: HashMap<u32, u64>,
    /// The time of the last record, and the records of that time that several inputs may have.
    moment: u64,
    there: There,
    dropped: BTreeMap<RecordType, u64>,
    /// Kinds that may occur once, with the number of dropped records.
    once: BTreeMap<RecordType, u64>,
    /// Samples and similar records that occur in several inputs: equal records may be separate occurrences.
    doubled: u64,
}

/// A hash of a record's bytes.
type Digest = u128;

/// Equal records without a time. One recording may have several, so as many stay as the input with most of them has.
#[derive(Debug, Default)]
struct Timeless {
    /// The number of changes of their owner's state before them.
    changes: u64,
    /// The input that the last one came from, and how many have come from it. That another input's may come between
    /// those of one input is neglected.
    input: usize,
    seen: u64,
    written: u64,
}

impl Timeless {
    /// Takes in another one; true if another input had it already.
    fn repeats(&mut self, input: usize, changes: u64) -> bool {
        if self.changes != changes {
            *self = Timeless { changes, ..Timeless::default() };
        }
        self.seen = if self.input == input { self.seen + 1 } else { 1 };
        self.input = input;
        let again = self.seen <= self.written;
        self.written += u64::from(!again);
        again
    }
}

/// Computes digests with random keys, so that no input can be crafted in which different records collide.
#[derive(Debug, Default)]
struct Digests([RandomState; 2]);

impl Digests {
    fn of(&self, bytes: &[u8]) -> Digest {
        let [high, low] = self.0.each_ref().map(|keys| Digest::from(keys.hash_one(bytes)));
        high << 64 | low
    }
}

/// The records of one time.
#[derive(Debug, Default)]
struct There {
    /// The input that has each record.
    inputs: HashMap<Digest, usize>,
    /// The number of records that are not about a state; at most [`MANY`] of them are compared.
    stateless: usize,
}

/// No real recording has as many records of one time; more mean that its times are meaningless.
const MANY: usize = 1 << 16;

impl There {
    fn clear(&mut self) {
        if self.inputs.capacity() > MANY {
            // Clearing it would take time in proportion to its largest size.
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

    /// True if an earlier input has the record.
    fn has(&self, digest: Digest, input: usize) -> bool {
        self.inputs.get(&digest).is_some_and(|&other| other != input)
    }
}

impl Deduplicator {
    /// True if the record says nothing new. `shares_time` is true if another input has a record of the same
    /// time.
    fn repeats(
        &mut self,
        record: &Record<'_>,
        key: u64,
        input: usize,
        timeless: bool,
        shares_time: bool,
    ) -> bool {
        let is_state = STATE.contains(record.kind());
        if timeless && is_state {
            if self.in_turn && owner(record) != u32::MAX {
                return false;
            }
            let changes = self.changes.get(&owner(record)).copied().unwrap_or(0);
            let timeless = self.timeless.entry(self.digests.of(record.bytes())).or_default();
            let again = timeless.repeats(input, changes);
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
        if shares_time || !self.there.inputs.is_empty() {
            let digest = self.digests.of(record.bytes());
            again = self.there.has(digest, input);
            if shares_time {
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

/// The merge of the inputs' records.
#[derive(Debug)]
struct Combining {
    /// The first input's records come through the pipeline.
    inputs: Vec<Input>,
    /// The first input's current batch. If this pass is the first of the chain, a prescan has already
    /// prepared all its records.
    prepared: Option<PreparedBatch>,
    prescanned: bool,
    /// ID_INDEX records to write before all others.
    index: Vec<Vec<u8>>,
    /// Only with several inputs.
    deduplicator: Option<Deduplicator>,
    chunks: Chunks,
    step: Option<Box<dyn Step>>,
    /// With a step: feature SAMPLE_TIME is known when all is written.
    sets_times: bool,
    /// Times of the first and the last sample that went through the step.
    times: Option<(u64, u64)>,
    /// Bytes since the last FINISHED_ROUND.
    since_round: usize,
    /// True if there are records with a time that perf may not have flushed yet.
    pending: bool,
}

impl Combining {
    fn new(inputs: Vec<Input>, index: Vec<Vec<u8>>) -> Combining {
        Combining {
            inputs,
            prepared: None,
            prescanned: false,
            index,
            deduplicator: None,
            chunks: Chunks::default(),
            step: None,
            sets_times: false,
            times: None,
            since_round: 0,
            pending: false,
        }
    }

    /// Writes records up to and including time `limit` of the first input, and below it of the others;
    /// without `limit`, all that are ready. Stops after about `most` bytes; returns true if there are more.
    fn put(&mut self, limit: Option<u64>, most: usize, out: &mut Emit<'_>) -> Result<bool> {
        std::mem::take(&mut self.index).iter().try_for_each(|record| out.put(record))?;
        let mut left = most;
        loop {
            // The best record, and the time of the next best.
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
            let Combining { inputs, deduplicator, chunks, step, times, since_round, pending, .. } = self;
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
                let shares_time = next.is_some_and(|next| next.0 == key);
                let again = deduplicator.as_mut().is_some_and(|deduplicator| {
                    chunks.repeats(&record, number)
                        || deduplicator.repeats(&record, key, number, timeless, shares_time)
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
                    match step {
                        Some(step) => {
                            // What the step makes, as a rule many samples.
                            if number > 0
                                && let Some(bytes) = input.bytes(&ready)
                            {
                                out.hold(bytes);
                            }
                            if step.record(record, out)? && !timeless {
                                *times = Some((times.map_or(key, |(first, _)| first), key));
                            }
                        }
                        None => out.keep(record)?,
                    }
                    *pending |= !timeless;
                    *since_round += size;
                }
                left = left.saturating_sub(size);
                input.pop(&ready);
            }
        }
    }

    fn report(&mut self, report: &mut Report) {
        if let Some(step) = &mut self.step {
            step.finish(report);
        }
        let Some(deduplicator) = &self.deduplicator else { return };
        let mut all = deduplicator.dropped.clone();
        if self.chunks.dropped > 0 {
            all.insert(RecordType::AUXTRACE, self.chunks.dropped);
        }
        let dropped: u64 = all.values().sum();
        if dropped > 0 {
            let records = counted(dropped, "record that is", "records that are");
            report.say(Level::Info, format!("left out {records} also in another input: {}", by_kind(&all)));
        }
        let others: BTreeMap<_, _> = deduplicator
            .once
            .iter()
            .filter(|(_, others)| **others > 0)
            .map(|(kind, others)| (*kind, *others))
            .collect();
        if !others.is_empty() {
            report.say(Level::Info, format!("left out {} (perf uses one of each kind)", by_kind(&others)));
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

/// True if all records with a time are in time order.
///
/// # Errors
///
/// The recording cannot be read or decompressed.
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
        self.stage()
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
        let FactSurvey { options, facts, step } = self;
        let ids = session.events.iter().flat_map(|event| &event.ids);
        if !options.others.is_empty() && facts.index.lacks(ids) {
            return Ok(Stage::survey(IndexSurvey { options, facts }));
        }
        Ok(Stage::begin(move |begin| options.begin(*facts, step, begin)))
    }
}

impl Fork for FactSurvey {
    fn fork(&self) -> FactSurvey {
        let (options, facts, step) = Default::default();
        FactSurvey { options, facts, step }
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
        // Only with several inputs, none of which goes through a step.
        Ok(Stage::begin(move |begin| self.options.begin(*self.facts, None, begin)))
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
        // After a prescan nothing remains to be read.
        if self.prescanned { Interest::DropRest(Kinds::NONE) } else { Interest::AsDeclared }
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<()> {
        let Some(first) = self.inputs.first() else { return Ok(()) };
        first.translator.push(&record, out.layouts(), self.prepared.get_or_insert_default())
    }

    fn end_batch(&mut self, out: &mut Emit<'_>) -> Result<()> {
        let prepared = self.prepared.take().unwrap_or_default();
        let Some(first) = self.inputs.first_mut() else { return Ok(()) };
        let level = first.take(prepared)?;
        self.put(Some(level), PUT_MAX, out).map(drop)
    }

    fn drain(&mut self, out: &mut Emit<'_>) -> Result<bool> {
        self.put(None, STEP, out)
    }

    fn finish(&mut self, session: &mut Session, _out: &mut Emit<'_>) -> Result<()> {
        self.report(&mut session.report);
        if let Some((first_ns, last_ns)) = self.times.filter(|_| self.sets_times) {
            let section = SampleTime { first_ns, last_ns }.write(session.endian);
            session.set_feature(Feature::SAMPLE_TIME, section);
        }
        Ok(())
    }
}

impl Prescanned for Combining {
    type Prescan = PrepareBatch;

    fn prescan(&self) -> PrepareBatch {
        let translator = self.inputs.first().map(|first| first.translator.clone());
        PrepareBatch { translator: translator.unwrap_or_default(), prepared: None }
    }

    fn absorb_prescan(&mut self, prescan: PrepareBatch) -> Result<Vec<Place>> {
        self.prepared = prescan.prepared;
        self.prescanned = true;
        Ok(Vec::new())
    }
}

impl Prescan for PrepareBatch {
    fn fork(&self) -> PrepareBatch {
        PrepareBatch { translator: self.translator.clone(), prepared: None }
    }

    fn batch(&mut self, batch: &Batch) -> Result<()> {
        self.prepared = Some(input::prepare(batch, &self.translator, true)?);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use perfx_format::Endian;
    use perfx_format::Origin;

    use super::*;

    /// A record of 24 bytes that contains a number.
    fn record(kind: RecordType, number: u64) -> [u8; 24] {
        let mut bytes = [0; 24];
        bytes[..4].copy_from_slice(&kind.0.to_le_bytes());
        bytes[6] = 24;
        bytes[8..16].copy_from_slice(&number.to_le_bytes());
        bytes
    }

    /// All but one of them were dropped.
    #[test]
    fn equal_records_without_a_time_stay_as_often_as_one_input_has_them() {
        let mut deduplicator = Deduplicator::default();
        let mut repeats = |number, input| {
            let bytes = record(RecordType::COMM, number);
            let record = Record::new(&bytes, &[], Origin::Synthetic, Endian::Little).unwrap();
            deduplicator.repeats(&record, 0, input, true, false)
        };
        assert_eq!([1, 1, 2].map(|number| repeats(number, 0)), [false; 3]);
        assert_eq!([1, 1, 2].map(|number| repeats(number, 1)), [true; 3]);
        assert_eq!([1, 2, 2, 2, 1].map(|number| repeats(number, 2)), [true, true, false, false, true]);
    }

    #[test]
    fn of_many_records_of_one_moment_each_is_compared_once() {
        let mut deduplicator = Deduplicator::default();
        let mut repeats = |kind, number, input, shares_time| {
            let bytes = record(kind, number);
            let record = Record::new(&bytes, &[], Origin::Synthetic, Endian::Little).unwrap();
            deduplicator.repeats(&record, 5, input, false, shares_time)
        };
        // Comparing each with all others would take hours.
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

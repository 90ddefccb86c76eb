//! Surveys the records of one input, translates them for the output, and returns them in time order.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};
use std::sync::Arc;

use perfx_format::header::Features;
use perfx_format::names::KERNEL_NAME;
use perfx_format::read::sort::{PreparedBatch, Ready, Sorter, time_of, watermarks};
use perfx_format::read::{Batch, Form, Recording, TempFiles};
use perfx_format::record::header_records::HeaderRecord;
use perfx_format::record::identifier::write_with_identifier;
use perfx_format::record::ids::{replace_ids, set_missing_ids};
use perfx_format::record::time::replace_times;
use perfx_format::{Endian, Event, KERNEL_PID, Kinds, Layouts, Mmap, Record, RecordType, sample_type as st};
use perfx_pipeline::{Result, ahead, bail, scan};
use perfx_resolve::MappedIds;
use perfx_samples::{Rest, Rows};

use super::index::Indexed;
use crate::support::event_ids::{UnlistedIds, identified_late};

/// True for records of pipe data that a file has in its header, except build-ids, which are valid in both.
fn is_of_header(record: &Record<'_>) -> Result<bool> {
    Ok(match record.kind() {
        RecordType::HEADER_BUILD_ID => false,
        RecordType::HEADER_EVENT_TYPE => true,
        _ => HeaderRecord::read(record)?.is_some(),
    })
}

#[derive(Debug, Default)]
pub(super) struct InputFacts {
    /// For each batch, its earliest time and the time of its first record with one; `u64::MAX` for none.
    pub(super) batches: Vec<(u64, u64)>,
    pub(super) earliest: Option<u64>,
    pub(super) latest: u64,
    pub(super) sampled: Option<(u64, u64)>,
    /// A lower bound for the number of records that are earlier than one before them.
    pub(super) late: u64,
    pub(super) records: u64,
    pub(super) events: Vec<Event>,
    /// Features among the records of pipe data.
    pub(super) features: Features,
    /// Entries of feature BUILD_ID among the records of pipe data.
    pub(super) build_ids: Vec<u8>,
    pub(super) mapped_ids: MappedIds,
    pub(super) index: Indexed,
    pub(super) unlisted: UnlistedIds,
    /// AUXTRACE_INFO, and true if there is AUX data.
    pub(super) aux_info: Option<Box<[u8]>>,
    pub(super) has_aux: bool,
    pub(super) has_stat: bool,
    pub(super) kernel: Option<(u64, Box<[u8]>)>,
    pub(super) fragments: Vec<String>,
}

impl InputFacts {
    pub(super) fn begin(&mut self) {
        self.batches.push((u64::MAX, u64::MAX));
    }

    #[inline]
    pub(super) fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.records += 1;
        self.mapped_ids.learn_record(record, layouts);
        self.unlisted.learn(record, layouts);
        if let Some(time) = time_of(record, layouts) {
            self.late += u64::from(time < self.latest);
            self.latest = self.latest.max(time);
            if record.kind() == RecordType::SAMPLE {
                let (first, last) = self.sampled.unwrap_or((time, time));
                self.sampled = Some((first.min(time), last.max(time)));
            }
            // Usually only true for the first timed record of a batch.
            if let Some((earliest, first)) = self.batches.last_mut().filter(|batch| time < batch.0) {
                *first = if *first == u64::MAX { time } else { *first };
                *earliest = time;
            }
            return Ok(());
        }
        if matches!(record.kind(), RecordType::ID_INDEX | RecordType::AUXTRACE_INFO | RecordType::AUXTRACE) {
            self.index.learn(record)?;
        }
        match record.kind() {
            RecordType::MMAP if self.kernel.is_none() => {
                let kernel = Mmap::of(record).filter(|mmap| mmap.pid() == KERNEL_PID);
                let kernel = kernel.map(|mmap| (mmap.start(), mmap.name(0)));
                self.kernel = kernel
                    .filter(|(_, name)| name.starts_with(KERNEL_NAME))
                    .map(|(start, name)| (start, name.into()));
            }
            RecordType::AUXTRACE_INFO => self.aux_info = Some(record.bytes().into()),
            RecordType::AUXTRACE => self.has_aux = true,
            RecordType::STAT | RecordType::STAT_CONFIG => self.has_stat = true,
            kind if Kinds::HEADER.contains(kind) => match HeaderRecord::read(record)? {
                Some(HeaderRecord::Event(event)) => self.events.push(event),
                Some(HeaderRecord::Feature(feature, section)) => {
                    self.features.insert(feature, section);
                }
                Some(HeaderRecord::BuildId(entry)) => self.build_ids.extend(entry),
                Some(HeaderRecord::EventType(_) | HeaderRecord::EndOfFeatures) | None => {}
            },
            _ => {}
        }
        Ok(())
    }

    pub(super) fn join(&mut self, later: InputFacts) {
        let first = later.batches.iter().map(|batch| batch.0).min().unwrap_or(u64::MAX);
        self.late += later.late + u64::from(first < self.latest);
        self.latest = self.latest.max(later.latest);
        if let Some((first, last)) = later.sampled {
            let (earliest, latest) = self.sampled.unwrap_or((first, last));
            self.sampled = Some((earliest.min(first), latest.max(last)));
        }
        self.batches.extend(later.batches);
        self.records += later.records;
        self.events.extend(later.events);
        self.features.extend(later.features);
        self.build_ids.extend(later.build_ids);
        self.mapped_ids.join(later.mapped_ids);
        self.index.join(later.index);
        self.unlisted.join(later.unlisted);
        self.aux_info = self.aux_info.take().or(later.aux_info);
        self.has_aux |= later.has_aux;
        self.has_stat |= later.has_stat;
        self.kernel = self.kernel.take().or(later.kernel);
        self.fragments.extend(later.fragments);
    }

    pub(super) fn end_survey(&mut self) {
        self.earliest = self.batches.iter().map(|batch| batch.0).min().filter(|&time| time != u64::MAX);
    }

    pub(super) fn of(recording: &mut Recording, threads: usize) -> Result<InputFacts> {
        let is_pipe = recording.form == Form::Pipe;
        let mut facts = InputFacts::default();
        let work = |batch: &Batch| {
            let mut found = InputFacts::default();
            found.begin();
            let mut walker = batch.walk();
            while let Some(record) = walker.next_record()? {
                found.look_at(&record, &batch.layouts)?;
            }
            Ok(found)
        };
        scan(recording, threads, true, work, |batch, mut found| {
            if let Some(fragment) = &batch.fragment {
                let error = fragment.to_error().file(&batch.name);
                if !is_pipe && !fragment.is_of_zstd() {
                    return Err(error.into());
                }
                found.fragments.push(error.to_string());
            }
            facts.join(found);
            Ok(())
        })?;
        facts.end_survey();
        Ok(facts)
    }

    /// For each batch, two times of the batches after it: the first one and the earliest one.
    fn after(&self, offset: i64) -> VecDeque<(u64, u64)> {
        let shifted = |time: u64| if time == u64::MAX { time } else { shifted(time, offset).unwrap_or(0) };
        let mut next = u64::MAX;
        let first = self.batches.iter().rev().map(|&(_, first)| {
            let after = next;
            next = if first == u64::MAX { next } else { shifted(first) };
            after
        });
        let first: Vec<u64> = first.collect();
        let watermarks = watermarks(self.batches.iter().map(|&(earliest, _)| shifted(earliest)));
        first.into_iter().rev().zip(watermarks).collect()
    }
}

/// A time on the common clock; `None` if it is before the clock's start, or means no time.
pub(super) fn shifted(time: u64, offset: i64) -> Option<u64> {
    let there = i128::from(time) - i128::from(offset);
    u64::try_from(there).ok().filter(|&time| time != 0 && time != u64::MAX)
}

#[derive(Debug, Default)]
pub(super) struct Translator {
    pub(super) ids: HashMap<u64, u64>,
    pub(super) offset: i64,
    /// For each event of the input, its first id in the output; present if records get an IDENTIFIER.
    pub(super) identify: Option<Vec<u64>>,
    /// Replaces id 0. perf parses such records with the first output event, whose layout may differ.
    pub(super) id_for_unattributed: Option<u64>,
}

impl Translator {
    fn is_idle(&self) -> bool {
        self.ids.is_empty()
            && self.offset == 0
            && self.identify.is_none()
            && self.id_for_unattributed.is_none()
    }

    pub(super) fn id(&self, id: u64) -> u64 {
        self.ids.get(&id).copied().unwrap_or(id)
    }

    #[inline]
    pub(super) fn push(
        &self,
        record: &Record<'_>,
        layouts: &Layouts,
        prepared: &mut PreparedBatch,
    ) -> Result<()> {
        if record.kind() == RecordType::FINISHED_ROUND {
            prepared.finish_round();
            return Ok(());
        }
        let time = time_of(record, layouts);
        if self.is_idle() {
            return Ok(prepared.push(record, time)?);
        }
        let time = time.map(|time| shifted(time, self.offset).unwrap_or(time));
        let new = self.translate(record, layouts)?;
        let identifier = self.identifier(record, layouts)?;
        if identifier.is_none() && matches!(new, Cow::Borrowed(_)) {
            return Ok(prepared.push(record, time)?);
        }
        let new = Record::new(&new, record.payload(), record.origin(), record.endian())?;
        match identifier {
            Some(id) => prepared.push_made(&new, time, |made| write_with_identifier(&new, id, made))?,
            None => prepared.push(&new, time)?,
        }
        Ok(())
    }

    fn translate<'r>(&self, record: &Record<'r>, layouts: &Layouts) -> Result<Cow<'r, [u8]>> {
        let layout = layouts.layout_of_any(record);
        let mut new = Cow::Borrowed(record.bytes());
        if !self.ids.is_empty() {
            replace_ids(record, layout, &mut new, |id| self.ids.get(&id).copied());
        }
        if self.identify.is_some()
            && let Some(attr) = identified_late(record)
        {
            new = Cow::Owned(attr);
        }
        if self.offset != 0 {
            replace_times(record, layout, &mut new, |time| {
                shifted(time, self.offset).ok_or_else(|| {
                    record.error(format!(
                        "its time {time} would be before 0 on the others' clock: the offset is wrong"
                    ))
                })
            })?;
        }
        if let Some((id_for_unattributed, layout)) = self.id_for_unattributed.zip(layout)
            && record.kind() != RecordType::SAMPLE
        {
            set_missing_ids(record, layout, &mut new, id_for_unattributed);
        }
        Ok(new)
    }

    fn identifier(&self, record: &Record<'_>, layouts: &Layouts) -> Result<Option<u64>> {
        let of_event = || record.kind().is_kernel() || layouts.layout_of_any(record).is_some();
        let Some(first) = self.identify.as_ref().filter(|_| of_event()) else { return Ok(None) };
        let event = layouts.event_of(record);
        let Some((event, layout)) = event.zip(event.and_then(|event| layouts.all().get(event))) else {
            return Err(record.error("no event has its id").into());
        };
        if layout.sample_type & st::IDENTIFIER != 0
            || record.kind() != RecordType::SAMPLE && !layout.sample_id_all
        {
            return Ok(None);
        }
        let new_id = |id| match id {
            0 => self.id_for_unattributed.unwrap_or(0),
            id => self.id(id),
        };
        let id = layout.id(record).map(new_id);
        Ok(Some(id.or_else(|| first.get(event).copied()).unwrap_or(0)))
    }
}

/// Prepares a batch of one input for the output. Only the first input keeps header records of pipe data.
pub(super) fn prepare(batch: &Batch, translator: &Translator, is_first: bool) -> Result<PreparedBatch> {
    // Later passes do not need the origins of other inputs' records.
    let mut prepared = match is_first {
        true => PreparedBatch::new(batch.bytes.clone(), batch.origins.clone()),
        false => PreparedBatch::without_origins(batch.bytes.clone()),
    };
    let mut walker = batch.walk();
    while let Some(record) = walker.next_wanted(Kinds::ALL, usize::MAX)? {
        if is_first || !is_of_header(&record)? {
            translator
                .push(&record, &batch.layouts, &mut prepared)
                .map_err(|error| error.in_file(&batch.name))?;
        }
    }
    Ok(prepared.done())
}

struct Feed {
    name: Arc<str>,
    batches: Box<dyn Iterator<Item = Result<PreparedBatch>> + Send>,
}

pub(crate) type Batches = Box<dyn Iterator<Item = Result<Rows>> + Send>;

pub(crate) struct Made {
    pub(crate) rows: Rest,
    batches: Batches,
}

impl From<Batches> for Made {
    fn from(batches: Batches) -> Made {
        Made { rows: Rest::default(), batches }
    }
}

impl Made {
    pub(crate) fn peek(&mut self) -> Result<Option<u64>> {
        while self.rows.key().is_none()
            && let Some(rows) = self.batches.next()
        {
            self.rows = rows?.sorted().into();
        }
        Ok(self.rows.key())
    }
}

pub(super) struct Input {
    sorter: Sorter,
    pub(super) translator: Arc<Translator>,
    /// As by [`InputFacts::after`], for the batches not yet taken.
    after: VecDeque<(u64, u64)>,
    /// The source of batches; the first input's come through the pipeline.
    feed: Option<Feed>,
}

impl Input {
    pub(super) fn first(
        facts: &InputFacts,
        events: &[Event],
        translator: Translator,
        endian: Endian,
        temp_files: TempFiles,
    ) -> Input {
        let after = facts.after(translator.offset);
        // A record without a time goes before those of its own input that perf has not flushed yet, but not
        // before earlier records of other inputs.
        let earliest = facts.earliest.and_then(|time| shifted(time, translator.offset));
        let flushed_until = earliest.map_or(u64::MAX, |earliest| earliest - 1);
        // perf sorts only if the first event has a sample_id.
        let keeps_place = events.first().is_some_and(|event| !event.attr().sample_id_all());
        Input {
            sorter: Sorter::new(endian, flushed_until, keeps_place, temp_files),
            translator: Arc::new(translator),
            after,
            feed: None,
        }
    }

    /// Another input, which a thread reads ahead.
    pub(super) fn other(
        recording: &mut Recording,
        facts: &InputFacts,
        translator: Translator,
        temp_files: TempFiles,
        threads: usize,
    ) -> Result<Input> {
        let endian = recording.endian;
        let first = Input::first(facts, &recording.events, translator, endian, temp_files);
        let translator = first.translator.clone();
        let batches = recording.decompressed().map(move |batch| prepare(&batch?, &translator, false));
        Ok(Input {
            feed: Some(Feed { name: recording.name.clone(), batches: ahead(batches, threads)? }),
            ..first
        })
    }

    /// Adds a batch; returns the time up to which records are ready.
    pub(super) fn take(&mut self, prepared: PreparedBatch) -> Result<u64> {
        let (next, level) = self.after.pop_front().unwrap_or((u64::MAX, u64::MAX));
        self.sorter.take(prepared, next, level)?;
        Ok(level)
    }

    #[inline]
    pub(super) fn peek(&mut self) -> Result<Option<Ready>> {
        loop {
            if let Some(ready) = self.sorter.peek() {
                return Ok(Some(ready));
            }
            let Some(Feed { name, batches }) = self.feed.as_mut() else { return Ok(None) };
            let Some(prepared) = batches.next() else { return Ok(None) };
            let name = name.clone();
            self.take(prepared?).map_err(|error| error.in_file(&name))?;
        }
    }

    /// The record. Only the first input's records have an origin usable by later passes.
    #[inline]
    pub(super) fn record(&self, ready: &Ready) -> Result<Record<'_>> {
        Ok(self.sorter.record(ready)?)
    }

    #[inline]
    pub(super) fn pop(&mut self, ready: &Ready) {
        self.sorter.pop(ready);
    }
}

pub(super) fn is_timeless(events: &[Event]) -> bool {
    events.iter().all(|event| event.attr().sample_type & st::TIME == 0)
}

pub(super) fn check_times(name: &str, events: &[Event], facts: &InputFacts) -> Result<()> {
    if facts.records > 0
        && let Some(index) = events.iter().position(|event| event.attr().sample_type & st::TIME == 0)
    {
        bail!(
            "{name}: the records of event {index} have no time, so their order among those of another recording is \
             unknown: record with perf record --timestamp (--per-thread leaves times out)"
        );
    }
    Ok(())
}

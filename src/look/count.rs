//! Counts the records of a recording by kind and by event in one walk, batch by batch, on any thread.

use std::collections::hash_map::Entry;
use std::collections::{BTreeMap, HashMap};

use perfx_format::event_name::{EventName, event_names};
use perfx_format::read::{Batch, Form, Fragment, Recording};
use perfx_format::record::aux::Aux;
use perfx_format::record::event_update::name_update;
use perfx_format::record::header_records::HeaderRecord;
use perfx_format::record::lost::{Losses, Lost};
use perfx_format::sample::Read;
use perfx_format::{Kinds, Layout, Layouts, Origin, Record, RecordType, sample_type};
use perfx_pipeline::{Level, Purpose, Report, scan_both};
use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::json::Decimal;

/// Kinds below this number have an entry in a table.
const TABLE: usize = 128;

/// A count of records.
#[derive(Clone, Copy, Default, Debug, PartialEq, Eq, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct Count {
    /// The number of records
    pub records: u64,
    /// Their bytes, payloads included
    pub bytes: u64,
    /// Bytes of the largest
    pub largest_bytes: u64,
    /// Records too small for the fixed fields of their kind; perf 7.3 does not count these
    pub too_small: u64,
}

impl Count {
    #[inline(always)]
    pub(crate) fn add(&mut self, bytes: u64) {
        self.records += 1;
        self.bytes += bytes;
        self.largest_bytes = self.largest_bytes.max(bytes);
    }

    pub(crate) fn join(&mut self, other: Count) {
        self.records += other.records;
        self.bytes += other.bytes;
        self.largest_bytes = self.largest_bytes.max(other.largest_bytes);
        self.too_small += other.too_small;
    }
}

#[derive(Clone, Debug)]
pub(crate) struct ByKind {
    table: Vec<Count>,
    others: BTreeMap<u32, Count>,
}

impl Default for ByKind {
    fn default() -> ByKind {
        ByKind { table: vec![Count::default(); TABLE], others: BTreeMap::new() }
    }
}

impl ByKind {
    #[inline(always)]
    pub(crate) fn of(&mut self, kind: RecordType) -> &mut Count {
        match self.table.get_mut(kind.0 as usize) {
            Some(count) => count,
            None => self.others.entry(kind.0).or_default(),
        }
    }

    pub(crate) fn get(&self, kind: RecordType) -> Count {
        let place = self.table.get(kind.0 as usize).or_else(|| self.others.get(&kind.0));
        place.copied().unwrap_or_default()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (RecordType, Count)> {
        let table = self.table.iter().enumerate().map(|(kind, &count)| (kind as u32, count));
        let others = self.others.iter().map(|(&kind, &count)| (kind, count));
        table
            .chain(others)
            .filter(|(_, count)| count.records > 0)
            .map(|(kind, count)| (RecordType(kind), count))
    }

    pub(crate) fn total(&self) -> Count {
        let mut total = Count::default();
        self.iter().for_each(|(_, count)| total.join(count));
        total
    }

    pub(crate) fn join(&mut self, other: &ByKind) {
        other.iter().for_each(|(kind, count)| self.of(kind).join(count));
    }
}

/// The earliest and the latest time, ns, ignoring 0 and ~0, which perf's own records have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Span {
    /// The earliest minus one, so that 0 sorts last.
    before: u64,
    /// The latest plus one, so that ~0 sorts first.
    after: u64,
}

impl Default for Span {
    fn default() -> Span {
        Span { before: u64::MAX, after: 0 }
    }
}

impl Span {
    #[inline(always)]
    pub(crate) fn add(&mut self, time: u64) {
        self.before = self.before.min(time.wrapping_sub(1));
        self.after = self.after.max(time.wrapping_add(1));
    }

    pub(crate) fn join(&mut self, other: Span) {
        self.before = self.before.min(other.before);
        self.after = self.after.max(other.after);
    }

    pub(crate) fn bounds(self) -> Option<(u64, u64)> {
        // If only 0 and ~0 occurred, they are the bounds.
        let (first, last) = (self.before.wrapping_add(1), self.after.wrapping_sub(1));
        (first != 0 && first != u64::MAX && last != 0 && last != u64::MAX).then_some((first, last))
    }
}

/// The first and the last time.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct TimeSpan {
    /// ns of the recording's clock
    pub first_ns: Decimal<u64>,
    /// ns
    pub last_ns: Decimal<u64>,
}

impl TimeSpan {
    pub(crate) fn of(span: Span) -> Option<TimeSpan> {
        span.bounds().map(|(first, last)| TimeSpan { first_ns: Decimal(first), last_ns: Decimal(last) })
    }
}

#[derive(Clone, Copy, Default, Debug)]
pub(crate) struct OfEvent {
    pub(crate) samples: Count,
    /// Of samples that have one.
    pub(crate) period: u128,
    /// According to LOST_SAMPLES records.
    pub(crate) lost: u128,
    /// Dropped by a BPF filter, according to the same kind of record.
    pub(crate) filtered: u128,
}

impl OfEvent {
    fn join(&mut self, other: &OfEvent) {
        self.samples.join(other.samples);
        self.period += other.period;
        self.lost += other.lost;
        self.filtered += other.filtered;
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Largest {
    pub(crate) kind: RecordType,
    pub(crate) origin: Origin,
    pub(crate) bytes: u64,
}

#[derive(Clone, Debug)]
struct Readings<K>(HashMap<K, Reading>);

#[derive(Clone, Copy, Debug)]
struct Reading {
    first: u64,
    last: u64,
    steps: u64,
}

impl<K> Default for Readings<K> {
    fn default() -> Self {
        Readings(HashMap::new())
    }
}

impl<K: std::hash::Hash + Eq> Readings<K> {
    fn add(&mut self, key: K, later: Reading) {
        match self.0.entry(key) {
            Entry::Vacant(place) => drop(place.insert(later)),
            Entry::Occupied(mut before) => {
                let before = before.get_mut();
                before.steps += later.steps + u64::from(before.last != later.first);
                before.last = later.last;
            }
        }
    }

    /// How often a counter's value differed from the previous one, which is 0 at first, summed by `event`.
    fn steps(&self, event: impl Fn(&K) -> Option<usize>, events: usize) -> Vec<u64> {
        let mut steps = vec![0; events];
        for (key, reading) in &self.0 {
            if let Some(steps) = event(key).and_then(|event| steps.get_mut(event)) {
                *steps += reading.steps + u64::from(reading.first != 0);
            }
        }
        steps
    }
}

const AUX_FLAGS: [u64; 3] = [Aux::TRUNCATED, Aux::PARTIAL, Aux::COLLISION];

/// The counts of a run of records, to which those of later runs are added.
#[derive(Clone, Default, Debug)]
pub(crate) struct Tally {
    /// Compressed records count before they are expanded.
    pub(crate) stored: ByKind,
    pub(crate) expanded: ByKind,
    pub(crate) events: Vec<OfEvent>,
    /// Samples of unknown events.
    pub(crate) unattributed: Count,
    /// The largest record; the first one if several are equal.
    pub(crate) largest: Option<Largest>,
    pub(crate) sampled: Span,
    /// Of the kernel's other records.
    others: Span,
    pub(crate) lost: u128,
    pub(crate) losses: Losses,
    /// In payloads.
    pub(crate) aux_bytes: u64,
    pub(crate) aux_written: u128,
    pub(crate) aux_lost: [u64; 3],
    /// In samples, by id.
    readings: Readings<u64>,
    /// By id and thread: an inherited event counts for each thread separately.
    thread_readings: Readings<(u64, u32)>,
    /// Names from EVENT_UPDATE records, by event id.
    names: HashMap<u64, Vec<u8>>,
}

impl Tally {
    pub(crate) fn of(batch: &Batch) -> Result<Tally> {
        let mut tally = Tally::default();
        let mut walker = batch.walk();
        // `next_record` would pass the views through memory.
        while let Some(record) = walker.next_wanted(Kinds::ALL, usize::MAX)? {
            tally.add(&record, &batch.layouts);
        }
        Ok(tally)
    }

    #[inline(always)]
    pub(crate) fn add(&mut self, record: &Record<'_>, layouts: &Layouts) {
        let bytes = record.whole_size();
        let opened = matches!(record.origin(), Origin::Chunk { .. });
        let count = if opened { &mut self.expanded } else { &mut self.stored }.of(record.kind());
        count.add(bytes);
        if self.largest.is_none_or(|largest| bytes > largest.bytes) {
            self.largest = Some(Largest { kind: record.kind(), origin: record.origin(), bytes });
        }
        if record.kind() == RecordType::SAMPLE {
            self.sample(record, bytes, layouts);
        } else {
            count.too_small += u64::from(record.bytes().len() < record.kind().min_size());
            self.other(record, layouts);
        }
    }

    #[inline(always)]
    fn sample(&mut self, record: &Record<'_>, bytes: u64, layouts: &Layouts) {
        let Some(event) = layouts.event_of(record) else {
            self.unattributed.add(bytes);
            return;
        };
        let layout = &layouts.all()[event];
        let counted = self.event(event);
        counted.samples.add(bytes);
        if let Some(period) = layout.period(record) {
            counted.period += u128::from(period);
        }
        if let Some(time) = layout.recorded_time(record) {
            self.sampled.add(time);
        }
        if layout.sample_type & sample_type::READ != 0 {
            self.read(record, layout);
        }
    }

    #[cold]
    fn read(&mut self, record: &Record<'_>, layout: &Layout) {
        let Some(read) = Read::of_sample(record, layout) else { return };
        let tid = layout.pid_tid(record).map_or(0, |(_, tid)| tid);
        for count in read.counts() {
            let Some(id) = count.id else { continue };
            let reading = Reading { first: count.value, last: count.value, steps: 0 };
            self.readings.add(id, reading);
            self.thread_readings.add((id, tid), reading);
        }
    }

    #[inline(never)]
    fn other(&mut self, record: &Record<'_>, layouts: &Layouts) {
        if let Some(time) = layouts.recorded_time(record) {
            self.others.add(time);
        }
        self.losses.add(record, layouts);
        match record.kind() {
            kind if Kinds::LOST.contains(kind) => {
                let Some(lost) = Lost::of(record) else { return };
                match (lost, layouts.event_of(record)) {
                    (Lost::Records(number), _) => self.lost += u128::from(number),
                    (Lost::Samples(number), Some(event)) => self.event(event).lost += u128::from(number),
                    (Lost::Filtered(number), Some(event)) => self.event(event).filtered += u128::from(number),
                    (_, None) => {}
                }
            }
            RecordType::AUX => {
                if let Some(aux) = Aux::of(record) {
                    self.aux_written += u128::from(aux.size);
                    for (sum, flag) in self.aux_lost.iter_mut().zip(AUX_FLAGS) {
                        *sum += u64::from(aux.flags & flag != 0);
                    }
                }
            }
            RecordType::EVENT_UPDATE => {
                self.names.extend(name_update(record).map(|(id, name)| (id, name.to_vec())));
            }
            RecordType::AUXTRACE => self.aux_bytes += record.payload().len() as u64,
            _ => {}
        }
    }

    #[inline]
    fn event(&mut self, event: usize) -> &mut OfEvent {
        if self.events.len() <= event {
            self.events.resize(event + 1, OfEvent::default());
        }
        &mut self.events[event]
    }

    /// Counts the records inside compressed ones as if they were not compressed.
    pub(crate) fn count_as_stored(&mut self) {
        self.stored.join(&std::mem::take(&mut self.expanded));
    }

    /// The count of each kind, both as stored and inside compressed records.
    pub(crate) fn kinds(&self) -> ByKind {
        let mut kinds = self.stored.clone();
        kinds.join(&self.expanded);
        kinds
    }

    pub(crate) fn compressed(&self) -> Count {
        let mut count = self.stored.get(RecordType::COMPRESSED);
        count.join(self.stored.get(RecordType::COMPRESSED2));
        count
    }

    pub(crate) fn recorded(&self) -> Span {
        let mut span = self.sampled;
        span.join(self.others);
        span
    }

    /// How often the counter values of each event's samples changed: by id, and by id and thread. perf
    /// delivers a sample for each change instead of the recorded one: by which number depends on its version.
    pub(crate) fn new_values(&self, layouts: &Layouts) -> [Vec<u64>; 2] {
        let events = layouts.all().len();
        [
            self.readings.steps(|&id| layouts.event_of_id(id), events),
            self.thread_readings.steps(|&(id, _)| layouts.event_of_id(id), events),
        ]
    }

    pub(crate) fn join(&mut self, later: Tally) {
        self.stored.join(&later.stored);
        self.expanded.join(&later.expanded);
        for (event, counted) in later.events.iter().enumerate() {
            self.event(event).join(counted);
        }
        self.unattributed.join(later.unattributed);
        if self.largest.map_or(0, |largest| largest.bytes) < later.largest.map_or(0, |largest| largest.bytes)
        {
            self.largest = later.largest;
        }
        self.sampled.join(later.sampled);
        self.others.join(later.others);
        self.lost += later.lost;
        self.losses.join(later.losses);
        self.aux_bytes += later.aux_bytes;
        self.aux_written += later.aux_written;
        self.aux_lost.iter_mut().zip(later.aux_lost).for_each(|(sum, more)| *sum += more);
        later.readings.0.into_iter().for_each(|(id, reading)| self.readings.add(id, reading));
        later.thread_readings.0.into_iter().for_each(|(key, reading)| self.thread_readings.add(key, reading));
        self.names.extend(later.names);
    }
}

#[derive(Debug)]
pub(crate) struct Counted {
    pub(crate) tally: Tally,
    pub(crate) names: Vec<EventName>,
    /// Bytes that are not whole records.
    pub(crate) fragments: Vec<Fragment>,
}

/// Counts all records, as stored and, for compressed ones, also their contents. A recording that ends too
/// early is reported, and counted up to there.
pub(crate) fn count(recording: &mut Recording, threads: usize, report: &mut Report) -> Result<Counted> {
    count_with(recording, threads, report, |_| Ok(()), |()| {})
}

/// [`count`]; `work` also gets each batch, on any thread, and `join` gets its results in file order.
pub(crate) fn count_with<R: Send + 'static>(
    recording: &mut Recording,
    threads: usize,
    report: &mut Report,
    work: impl Fn(&Batch) -> Result<R> + Sync,
    join: impl FnMut(R),
) -> Result<Counted> {
    count_by(recording, threads, report, true, |batch| Ok((Tally::of(batch)?, work(batch)?)), join)
}

/// [`count_with`], except that `work` also counts; compressed records count only if `stored`.
pub(crate) fn count_by<R: Send + 'static>(
    recording: &mut Recording,
    threads: usize,
    report: &mut Report,
    stored: bool,
    work: impl Fn(&Batch) -> Result<(Tally, R)> + Sync,
    mut join: impl FnMut(R),
) -> Result<Counted> {
    report.say_faults(recording, Purpose::Describe);
    let mut tally = Tally::default();
    for batch in recording.head() {
        let (counted, learned) = work(batch)?;
        tally.join(counted);
        join(learned);
    }
    let mut closed = Tally::default();
    let look = |batch: &Batch| {
        let mut walker = batch.walk();
        while stored
            && batch.kinds.intersects(Kinds::COMPRESSED)
            // A batch holds whole records only.
            && let Ok(Some(record)) = walker.next_wanted(Kinds::COMPRESSED, usize::MAX)
        {
            closed.add(&record, &batch.layouts);
        }
    };
    let mut late = Vec::new();
    let mut fragments: Vec<Fragment> = recording.head().iter().filter_map(|batch| batch.fragment).collect();
    let is_pipe = recording.form == Form::Pipe;
    let done = |batch: &Batch, (counted, learned): (Tally, R)| -> Result<()> {
        tally.join(counted);
        join(learned);
        if let Some(end) = batch.fragment {
            report.say(Level::Warning, end.to_error().file(&batch.name).to_string());
            fragments.push(end);
        }
        let headers = Kinds::HEADER;
        let mut walker = batch.walk();
        while is_pipe
            && batch.kinds.intersects(headers)
            && let Some(record) = walker.next_wanted(headers, usize::MAX)?
        {
            late.extend(HeaderRecord::read(&record)?);
        }
        Ok(())
    };
    scan_both(recording, threads, look, work, done)?;
    closed.join(tally);
    // Pipe data may have a file's header among its records.
    for header in late {
        recording.absorb(header);
    }
    let names = event_names(recording, &closed.names);
    Ok(Counted { tally: closed, names, fragments })
}

//! Returns the records of a recording in the order of their times, in bounded memory.

use std::collections::VecDeque;
use std::sync::Arc;

use super::batch::Batch;
use super::records::ReadRecord;
use super::sort::{PreparedBatch, Ready, Sorter, time_of, watermarks};
use super::stream::TempFiles;
use crate::record::time::own_time;
use crate::{Endian, Error, Event, Layouts, Record, RecordType, Result};

/// The records of a recording in time order, COMPRESSED ones replaced by their contents. Made by
/// [`Recording::records_by_time`](super::Recording::records_by_time).
///
/// Records with equal times keep the order of the file. Records without a time are placed where perf handles
/// them: after all records that perf has sorted by then, before all later ones. FINISHED_ROUND records, which
/// only limit perf's sorting, are left out.
///
/// ```
/// use perfx_format::read::Recording;
///
/// # let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/data/recorded/default.p73.data");
/// let mut records = Recording::open(path)?.records_by_time()?;
/// let mut last = None;
/// while let Some(record) = records.next_record()? {
///     let time = record.time();
///     assert!(time.is_none() || time >= last);
///     last = time.or(last);
/// }
/// # Ok::<(), perfx_format::Error>(())
/// ```
pub struct TimeOrder {
    batches: Box<dyn Iterator<Item = Result<Batch>> + Send>,
    /// For each later batch, the first time and the earliest time after it.
    after: VecDeque<(u64, u64)>,
    sorter: Sorter,
    current: Option<Ready>,
    layouts: Arc<Layouts>,
    files: Vec<Arc<str>>,
    errors: VecDeque<Error>,
}

impl std::fmt::Debug for TimeOrder {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "TimeOrder({:?})", self.sorter)
    }
}

/// The time by which a record is sorted. An error in a trace has its own, between decoded samples.
fn time(record: &Record<'_>, layouts: &Layouts) -> Option<u64> {
    match record.kind() {
        RecordType::AUXTRACE_ERROR => own_time(record).filter(|time| *time != 0),
        _ => time_of(record, layouts),
    }
}

/// First and earliest time of the records of a batch; `u64::MAX` if none has a time.
fn times(batch: &Batch) -> (u64, u64) {
    let mut walker = batch.walk();
    let (mut first, mut earliest) = (u64::MAX, u64::MAX);
    // The reading that returns the records also returns the error.
    while let Ok(Some(record)) = walker.next_record() {
        if let Some(time) = time(&record, &batch.layouts) {
            first = if first == u64::MAX { time } else { first };
            earliest = earliest.min(time);
        }
    }
    (first, earliest)
}

impl TimeOrder {
    /// `survey` and `batches` are the same batches, which are read one after the other.
    pub(super) fn new(
        survey: impl Iterator<Item = Result<Batch>>,
        batches: impl Iterator<Item = Result<Batch>> + Send + 'static,
        events: &[Event],
        endian: Endian,
        files: Vec<Arc<str>>,
        temp_files: TempFiles,
    ) -> TimeOrder {
        let seen: Vec<(u64, u64)> = survey.filter_map(Result::ok).map(|batch| times(&batch)).collect();
        let mut next = u64::MAX;
        let first = seen.iter().rev().map(|&(first, _)| {
            let after = next;
            next = if first == u64::MAX { next } else { first };
            after
        });
        let first: Vec<u64> = first.collect();
        let after =
            first.into_iter().rev().zip(watermarks(seen.iter().map(|&(_, earliest)| earliest))).collect();
        let earliest = seen.iter().map(|&(_, earliest)| earliest).min().filter(|&time| time != u64::MAX);
        let flushed_until = earliest.map_or(u64::MAX, |earliest| earliest - 1);
        // perf decides by the first event: without a sample_id it does not sort.
        let keeps_place = events.first().is_some_and(|event| !event.attr().sample_id_all());
        TimeOrder {
            sorter: Sorter::new(endian, flushed_until, keeps_place, temp_files),
            batches: Box::new(batches),
            after,
            current: None,
            layouts: Arc::new(Layouts::new(events)),
            files,
            errors: VecDeque::new(),
        }
    }

    /// The next record; `None` at the end.
    ///
    /// # Errors
    ///
    /// The recording cannot be read, a record is cut short, compressed data is damaged, or there is no room
    /// for a temporary file. Calling again continues with the records that can be read.
    pub fn next_record(&mut self) -> Result<Option<ReadRecord<'_>>> {
        let Some(ready) = self.next_ready()? else { return Ok(None) };
        self.current = Some(ready);
        let record = self.sorter.record(&ready)?;
        let stream = record.origin().stored_at().map_or(0, |(stream, _)| stream as usize);
        let Some(file) = self.files.get(stream).or(self.files.first()) else { return Ok(None) };
        Ok(Some(ReadRecord { record, layouts: &self.layouts, file }))
    }

    fn next_ready(&mut self) -> Result<Option<Ready>> {
        if let Some(current) = self.current.take() {
            self.sorter.pop(&current);
        }
        loop {
            if let Some(ready) = self.sorter.peek() {
                return Ok(Some(ready));
            }
            if let Some(error) = self.errors.pop_front() {
                return Err(error);
            }
            match self.batches.next().transpose()? {
                Some(batch) => self.take(&batch)?,
                None => return Ok(None),
            }
        }
    }

    fn take(&mut self, batch: &Batch) -> Result<()> {
        let mut prepared = PreparedBatch::new(batch.bytes.clone(), batch.origins.clone());
        let mut walker = batch.walk();
        loop {
            match walker.next_record() {
                Ok(Some(record)) if record.kind() == RecordType::FINISHED_ROUND => prepared.finish_round(),
                Ok(Some(record)) => prepared.push(&record, time(&record, &batch.layouts))?,
                Ok(None) => break,
                Err(error) => {
                    self.errors.push_back(error.file(&batch.name));
                    break;
                }
            }
        }
        self.errors.extend(batch.faults());
        // Pipe data may name its events among the records.
        self.layouts = batch.layouts.clone();
        let (next, watermark) = self.after.pop_front().unwrap_or((u64::MAX, u64::MAX));
        self.sorter.take(prepared.done(), next, watermark)
    }
}

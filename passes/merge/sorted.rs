//! Sorts a guest's records by the host's time; the survey determines how long they must wait.

use std::collections::{VecDeque, vec_deque};
use std::sync::Arc;

use perfx_format::read::Batch;
use perfx_pipeline::{Error, Result, ahead};

use super::guest::Guest;
use super::translate::{TranslatedRecord, Translator};

/// A guest's records with a time, in the order of that time.
pub(crate) struct Sorted {
    parts: Box<dyn Iterator<Item = Result<Flushed>> + Send>,
    ready: VecDeque<TranslatedRecord>,
    bytes: Vec<u8>,
    /// No later record is before this time.
    until: u64,
}

impl Sorted {
    pub(crate) fn new(guest: &mut Guest, translator: Arc<Translator>, threads: usize) -> Result<Sorted> {
        let reader = GuestReader {
            batches: Some(Box::new(guest.recording.decompressed())),
            watermarks: guest.facts.watermarks(),
            translator,
            bytes: Vec::new(),
            waiting: Vec::new(),
        };
        let parts = ahead(reader, threads)?;
        Ok(Sorted { parts, ready: VecDeque::new(), bytes: Vec::new(), until: 0 })
    }

    pub(crate) fn peek(&mut self, limit: u64) -> Result<Option<u64>> {
        loop {
            if let Some(next) = self.ready.front() {
                return Ok(Some(next.time).filter(|&time| time <= limit));
            }
            if self.until >= limit {
                return Ok(None);
            }
            match self.parts.next() {
                Some(part) => {
                    let Flushed { made, bytes, until } = part?;
                    (self.ready, self.bytes, self.until) = (made.into(), bytes, until);
                }
                None => self.until = u64::MAX,
            }
        }
    }

    /// The ready records up to `limit`, at least the one that `peek` returned, with their adjacent bytes.
    pub(crate) fn take(&mut self, limit: u64) -> (vec_deque::Drain<'_, TranslatedRecord>, &mut [u8]) {
        let count = self.ready.partition_point(|made| made.time <= limit);
        let range = match (self.ready.front(), count.checked_sub(1).and_then(|last| self.ready.get(last))) {
            (Some(first), Some(last)) => first.range().start..last.range().end,
            _ => 0..0,
        };
        (self.ready.drain(..count), self.bytes.get_mut(range).unwrap_or_default())
    }
}

struct Flushed {
    made: Vec<TranslatedRecord>,
    bytes: Vec<u8>,
    until: u64,
}

struct GuestReader {
    batches: Option<Box<dyn Iterator<Item = perfx_format::Result<Batch>> + Send>>,
    /// For each batch, the earliest time after it, on the guest's clock.
    watermarks: VecDeque<u64>,
    translator: Arc<Translator>,
    waiting: Vec<TranslatedRecord>,
    bytes: Vec<u8>,
}

impl Iterator for GuestReader {
    type Item = Result<Flushed>;

    fn next(&mut self) -> Option<Result<Flushed>> {
        let Some(batch) = self.batches.as_mut()?.next() else {
            self.batches = None;
            return Some(Ok(self.flush_until(u64::MAX)));
        };
        let read = batch.map_err(Into::into).and_then(|batch| self.read(&batch));
        let level = self.watermarks.pop_front().unwrap_or(u64::MAX);
        // Later records may have exactly that time.
        let until = self.translator.clock.host_time(level).map_or(0, |time| time.saturating_sub(1));
        Some(read.map(|()| self.flush_until(until)))
    }
}

impl GuestReader {
    fn read(&mut self, batch: &Batch) -> Result<()> {
        let translator = self.translator.clone();
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(translator.chosen.kinds, usize::MAX)? {
            let made = translator.translate(&record, batch, &mut self.bytes);
            self.waiting.extend(made.map_err(|e| in_file(e, batch))?.filter(|made| made.time != 0));
        }
        Ok(())
    }

    fn flush_until(&mut self, until: u64) -> Flushed {
        self.waiting.sort_by_key(|made| made.time);
        let stay = self.waiting.split_off(self.waiting.partition_point(|made| made.time <= until));
        let mut made = std::mem::replace(&mut self.waiting, stay);
        let old = std::mem::take(&mut self.bytes);
        let moved = |made: &mut TranslatedRecord, to: &mut Vec<u8>| {
            let bytes = old.get(made.range()).unwrap_or_default();
            made.at = to.len();
            to.extend_from_slice(bytes);
        };
        let mut bytes = Vec::with_capacity(old.len());
        made.iter_mut().for_each(|made| moved(made, &mut bytes));
        self.waiting.iter_mut().for_each(|made| moved(made, &mut self.bytes));
        Flushed { made, bytes, until }
    }
}

fn in_file(error: Error, batch: &Batch) -> Error {
    match error.into_format() {
        Ok(error) => error.file(&batch.name).into(),
        Err(error) => error,
    }
}

pub(crate) fn timeless(
    guest: &mut Guest,
    translator: &Translator,
    mut put: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut left = guest.facts.timeless;
    let kinds = translator.chosen.kinds;
    let mut bytes = Vec::new();
    for batch in guest.recording.decompressed() {
        let batch = batch?;
        let mut walker = batch.walk();
        while left > 0
            && let Some(record) = walker.next_wanted(kinds, usize::MAX)?
        {
            if batch.layouts.time(&record).is_some() {
                continue;
            }
            bytes.clear();
            if translator.translate(&record, &batch, &mut bytes).map_err(|e| in_file(e, &batch))?.is_some() {
                left -= 1;
                put(&bytes)?;
            }
        }
        if left == 0 {
            break;
        }
    }
    Ok(())
}

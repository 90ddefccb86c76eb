//! A guest's records in the order of the host's time, of which two rounds at most wait.

use std::collections::VecDeque;
use std::sync::Arc;

use anyhow::Result;
use perfx_format::input::{Batch, Recording};
use perfx_format::{Kinds, RecordType};
use perfx_pipeline::opened;

use super::guest::Guest;
use super::translate::{Made, Translator};

/// Reads a guest's records with a time in the order of that time. A FINISHED_ROUND tells that nothing is to come that is older than what had been
/// seen at the one before, so no more than two rounds wait.
pub(crate) struct Sorted {
    batches: Box<dyn Iterator<Item = perfx_format::Result<Batch>> + Send>,
    translator: Arc<Translator>,
    /// In the order of the file.
    waiting: Vec<Made>,
    /// In order, and nothing is to come before them.
    ready: VecDeque<Made>,
    /// Up to this time nothing is to come.
    settled: u64,
    /// The latest time before the last FINISHED_ROUND, and by now.
    level: u64,
    latest: u64,
    /// Its FINISHED_ROUNDs mean something: a directory's files are not in step.
    rounds: bool,
    ended: bool,
    /// Records older than FINISHED_ROUND allows.
    pub(crate) late: u64,
}

impl std::fmt::Debug for Sorted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Sorted({} waiting)", self.waiting.len())
    }
}

impl Sorted {
    pub(crate) fn new(recording: &mut Recording, translator: Arc<Translator>) -> Sorted {
        Sorted {
            rounds: recording.stream_count() == 1,
            batches: Box::new(opened(recording)),
            translator,
            waiting: Vec::new(),
            ready: VecDeque::new(),
            settled: 0,
            level: 0,
            latest: 0,
            ended: false,
            late: 0,
        }
    }

    /// The time of the next record up to `limit`.
    pub(crate) fn peek(&mut self, limit: u64) -> Result<Option<u64>> {
        loop {
            if let Some(next) = self.ready.front() {
                return Ok(Some(next.time).filter(|&time| time <= limit));
            }
            if self.settled >= limit || self.ended {
                return Ok(None);
            }
            match self.batches.next() {
                Some(batch) => self.read(&batch?)?,
                None => {
                    self.ended = true;
                    self.settle(u64::MAX);
                }
            }
        }
    }

    /// The record that was peeked at.
    pub(crate) fn pop(&mut self) -> Option<Made> {
        self.ready.pop_front()
    }

    /// Nothing up to this time is to come. What waits is mostly in order, which a stable sort makes use of; and records of one moment stay as
    /// they are.
    fn settle(&mut self, time: u64) {
        self.settled = time;
        self.waiting.sort_by_key(|made| made.time);
        let old = self.waiting.partition_point(|made| made.time <= time);
        self.ready.extend(self.waiting.drain(..old));
    }

    fn read(&mut self, batch: &Batch) -> Result<()> {
        let translator = self.translator.clone();
        let wanted = translator.chosen.kinds.union(Kinds::of(&[RecordType::FINISHED_ROUND]));
        let mut walker = batch.walk(translator.endian);
        while let Some(record) = walker.next_wanted(wanted, usize::MAX)? {
            if record.kind() == RecordType::FINISHED_ROUND {
                if self.rounds {
                    self.settle(self.level);
                    self.level = self.latest;
                }
                continue;
            }
            let made = translator.translate(&record, batch).map_err(|e| in_file(e, batch))?;
            let Some(made) = made.filter(|made| made.time != 0) else { continue };
            self.late += u64::from(made.time < self.settled);
            self.latest = self.latest.max(made.time);
            self.waiting.push(made);
        }
        Ok(())
    }
}

fn in_file(error: anyhow::Error, batch: &Batch) -> anyhow::Error {
    match error.downcast::<perfx_format::Error>() {
        Ok(error) => error.file(&batch.name).into(),
        Err(error) => error,
    }
}

/// The records without a time, in the order of the file.
pub(crate) fn timeless(
    guest: &mut Guest,
    translator: &Translator,
    mut put: impl FnMut(&[u8]) -> Result<()>,
) -> Result<()> {
    let mut left = guest.facts.timeless;
    let kinds = translator.chosen.kinds;
    for batch in opened(&mut guest.recording) {
        let batch = batch?;
        let mut walker = batch.walk(translator.endian);
        while left > 0
            && let Some(record) = walker.next_wanted(kinds, usize::MAX)?
        {
            let time = batch.layouts.time(&record).unwrap_or(0);
            if time != 0 && time != u64::MAX {
                continue;
            }
            if let Some(made) = translator.translate(&record, &batch).map_err(|e| in_file(e, &batch))? {
                left -= 1;
                put(&made.on_cpu(0, translator.endian))?;
            }
        }
        if left == 0 {
            break;
        }
    }
    Ok(())
}

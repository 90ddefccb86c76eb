//! Merges the records of the inputs in time order, through a step if one is given.

use std::sync::Arc;

use perfx_format::features::SampleTime;
use perfx_format::read::Batch;
use perfx_format::read::sort::PreparedBatch;
use perfx_format::record::builder::finished_round;
use perfx_format::record::time::LAST_KEY;
use perfx_format::{Feature, Kinds, Origin, Record, RecordType};
use perfx_pipeline::{
    Begin, Emit, Interest, Level, Place, Prescan, Prescanned, Report, Result, Rewrite, Session,
};
use perfx_samples::Sampled;

use super::chunks::Chunks;
use super::dedup::Deduplicator;
use super::input::{Batches, Input, Made, Translator, prepare};

/// The distance of FINISHED_ROUNDs, bytes: perf buffers records between them.
const ROUND: usize = 2 << 20;

/// The maximum size of a plan, and so of a write, bytes.
const PUT_MAX: usize = 8 << 20;

/// The size of steps after the end of the first input, bytes.
const STEP: usize = ROUND;

/// A step through which all records go in time order.
pub(crate) trait Step: Send + 'static {
    /// Called when everything except the records is known. Returns false to leave the recording unchanged.
    fn begin(&mut self, session: &mut Begin<'_>) -> Result<bool>;

    /// All records get an IDENTIFIER, which `begin` added to the attrs.
    fn identifies(&self) -> bool {
        false
    }

    /// Samples that the step creates, to be merged with all other records. Called after `begin`.
    fn made(&mut self) -> Option<Batches> {
        None
    }

    /// The step keeps its own samples: they need not go through `record`.
    fn keeps_made(&self) -> bool {
        false
    }

    /// Keeps, replaces or drops a record. Returns true if it emitted a sample with this record's time.
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<bool>;

    fn finish(self: Box<Self>, report: &mut Report);
}

#[derive(Debug)]
pub(super) struct PrepareBatch {
    translator: Arc<Translator>,
    prepared: Option<PreparedBatch>,
}

#[derive(Default)]
pub(super) struct Combining {
    inputs: Vec<Input>,
    /// Samples of the step, which come after records of the inputs with the same time.
    made: Option<Made>,
    /// The first input's current batch, if a prescan has prepared it.
    prepared: Option<PreparedBatch>,
    prescanned: bool,
    index: Vec<Vec<u8>>,
    deduplicator: Option<Deduplicator>,
    chunks: Chunks,
    step: Option<Box<dyn Step>>,
    /// Set for a step: feature SAMPLE_TIME is known only at the end.
    sets_times: bool,
    /// Times of the first and the last timed sample that went through the step.
    times: Option<(u64, u64)>,
    since_round: usize,
    /// There are timed records that perf may not have flushed yet.
    pending: bool,
}

impl Combining {
    pub(super) fn new(
        (inputs, made): (Vec<Input>, Option<Made>),
        index: Vec<Vec<u8>>,
        step: Option<Box<dyn Step>>,
        sets_times: bool,
        deduplicator: Option<Deduplicator>,
    ) -> Combining {
        Combining { inputs, made, index, step, sets_times, deduplicator, ..Combining::default() }
    }

    /// Writes records of the first input up to and including time `limit`, of the others before it, or all
    /// that are ready. Stops after about `most` bytes; returns true if there are more.
    fn put(&mut self, limit: Option<u64>, most: usize, out: &mut Emit<'_>) -> Result<bool> {
        std::mem::take(&mut self.index).iter().try_for_each(|record| out.put(record))?;
        let mut left = most;
        loop {
            // The earliest record, and the time of the second.
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
            if let Some(key) = self.made.as_mut().map_or(Ok(None), Made::peek)? {
                if best.is_none_or(|(best, _)| key < best) {
                    if limit.is_some_and(|limit| key >= limit) {
                        return Ok(false);
                    }
                    if left == 0 {
                        return Ok(true);
                    }
                    let before = best.map_or(u64::MAX, |(best, _)| best).min(limit.unwrap_or(u64::MAX));
                    left = left.saturating_sub(self.put_made(before, left, out)?);
                    continue;
                }
                let here = (key, usize::MAX);
                next = Some(next.map_or(here, |next| next.min(here)));
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
                            if step.record(record, out)? && !timeless {
                                see(times, key);
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

    /// Writes the step's samples before this time, up to about `most` bytes; returns how many.
    fn put_made(&mut self, before: u64, most: usize, out: &mut Emit<'_>) -> Result<usize> {
        let Combining { made, step, times, since_round, pending, .. } = self;
        let (Some(Made { rows, .. }), Some(step)) = (made, step) else { return Ok(0) };
        if *since_round >= ROUND {
            out.put(&finished_round(out.endian()))?;
            *since_round = 0;
        }
        let (run, room) = (rows.run(|key| key < before), most.min(ROUND - *since_round));
        let mut bytes = Vec::with_capacity(room.min(2 * rows.rows().size_of(run.clone())));
        let (mut size, mut done, keeps) = (0, run.start..run.start, step.keeps_made());
        for number in run {
            if size >= room {
                break;
            }
            let begin = if keeps { size } else { 0 };
            bytes.truncate(begin);
            rows.rows().write(number, &mut bytes);
            let record = || Record::new(&bytes[begin..], &[], Origin::Synthetic, out.endian());
            let is_sample = match rows.rows().get(number) {
                _ if !keeps => step.record(record()?, out)?,
                Some(Sampled::Record(_)) => record()?.kind() == RecordType::SAMPLE,
                _ => true,
            };
            if let Some(key) = rows.rows().key(number).filter(|_| is_sample) {
                see(times, key);
            }
            size += bytes.len() - begin;
            done.end = number + 1;
        }
        if keeps {
            out.put_all(&bytes)?;
        }
        rows.drop_some(done);
        *pending = true;
        *since_round += size;
        Ok(size)
    }

    fn report(&mut self, report: &mut Report) {
        if let Some(step) = self.step.take() {
            step.finish(report);
        }
        if let Some(deduplicator) = &self.deduplicator {
            deduplicator.report(self.chunks.dropped, report);
        }
    }
}

/// Widens the range of times; samples without a time have a key that is not a time.
fn see(times: &mut Option<(u64, u64)>, key: u64) {
    if key < LAST_KEY {
        *times = Some((times.map_or(key, |(first, _)| first), key));
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
        match self.times {
            _ if !self.sets_times => {}
            Some((first_ns, last_ns)) => {
                let section = SampleTime { first_ns, last_ns }.write(session.endian);
                session.set_feature(Feature::SAMPLE_TIME, section);
            }
            None => {
                let feature = Feature::SAMPLE_TIME;
                session.report.say(Level::Info, format!("left out feature {feature}: no sample has a time"));
            }
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
        self.prepared = Some(prepare(batch, &self.translator, true)?);
        Ok(())
    }
}

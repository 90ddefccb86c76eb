//! Merges the records of the inputs in time order, through a step if one is given.

use std::sync::Arc;

use perfx_format::features::SampleTime;
use perfx_format::read::Batch;
use perfx_format::read::sort::PreparedBatch;
use perfx_format::record::builder::finished_round;
use perfx_format::record::time::LAST_KEY;
use perfx_format::{Feature, Kinds, Record};
use perfx_pipeline::{
    Begin, Emit, Interest, Level, Place, Prescan, Prescanned, Report, Result, Rewrite, Session,
};

use super::chunks::Chunks;
use super::dedup::Deduplicator;
use super::input::{Batches, Input, Translator, prepare};

/// The number of bytes between two FINISHED_ROUNDs, so that perf need not buffer more.
const ROUND: usize = 2 << 20;

/// Maximum number of bytes in one plan, and so in one write.
const PUT_MAX: usize = 8 << 20;

/// The number of bytes inserted at a time after the first input's records.
const STEP: usize = 4 << 20;

/// A step that all records go through in time order before they are written.
pub(crate) trait Step: Send + 'static {
    /// Called when everything but the records is known. Returns false if the recording stays unchanged.
    fn begin(&mut self, session: &mut Begin<'_>) -> Result<bool>;

    /// True if all records get an IDENTIFIER, which `begin` added to the attrs.
    fn identifies(&self) -> bool {
        false
    }

    /// Records that the step creates, in the order of their sort keys. They go through the step, too.
    fn made(&mut self) -> Option<Batches> {
        None
    }

    /// True if it keeps the samples that it creates: they need not go through `record`.
    fn keeps_made(&self) -> bool {
        false
    }

    /// Keeps, replaces or drops a record. Returns true if it emitted a sample with this record's time.
    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<bool>;

    /// Called after the last record.
    fn finish(&mut self, report: &mut Report);
}

/// Prescans the first input: translates the records of a batch ahead of time.
#[derive(Debug)]
pub(super) struct PrepareBatch {
    translator: Arc<Translator>,
    prepared: Option<PreparedBatch>,
}

#[derive(Default)]
pub(super) struct Combining {
    /// The inputs; the first one's records come through the pipeline.
    inputs: Vec<Input>,
    /// The first input's current batch, already prepared by a prescan if this pass is the first of the chain.
    prepared: Option<PreparedBatch>,
    prescanned: bool,
    /// ID_INDEX records to write before all others.
    index: Vec<Vec<u8>>,
    /// Only with several inputs.
    deduplicator: Option<Deduplicator>,
    chunks: Chunks,
    step: Option<Box<dyn Step>>,
    /// Set for a step: feature SAMPLE_TIME is known only at the end.
    sets_times: bool,
    /// Times of the first and the last timed sample that went through the step.
    times: Option<(u64, u64)>,
    since_round: usize,
    /// True if there are records with a time that perf may not have flushed yet.
    pending: bool,
}

impl Combining {
    pub(super) fn new(
        inputs: Vec<Input>,
        index: Vec<Vec<u8>>,
        step: Option<Box<dyn Step>>,
        sets_times: bool,
        deduplicator: Option<Deduplicator>,
    ) -> Combining {
        Combining { inputs, index, step, sets_times, deduplicator, ..Combining::default() }
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
                // The record after a whole round goes alone, with the FINISHED_ROUND before it.
                let room = left.min(ROUND.saturating_sub(*since_round));
                if number > 0
                    && room > 0
                    && step.as_ref().is_some_and(|step| step.keeps_made())
                    && let Some(until) = latest(number, next, limit)
                    && let Some(samples) = input.samples(&ready, until, room)
                {
                    out.borrow_source(&samples.bytes);
                    out.put_all(&samples.bytes)?;
                    see(times, key, samples.last);
                    *pending = true;
                    *since_round += samples.bytes.len();
                    left = left.saturating_sub(samples.bytes.len());
                    input.pop_samples(&samples);
                    continue;
                }
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
                            // Records of the step, usually many samples.
                            if number > 0
                                && let Some(bytes) = input.bytes(&ready)
                            {
                                out.borrow_source(bytes);
                            }
                            if step.record(record, out)? && !timeless {
                                see(times, key, key);
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
        if let Some(deduplicator) = &self.deduplicator {
            deduplicator.report(self.chunks.dropped, report);
        }
    }
}

/// Adds samples sorted from `first` to `last`. Those without a time sort last, by a key that is no time.
fn see(times: &mut Option<(u64, u64)>, first: u64, last: u64) {
    if last < LAST_KEY {
        *times = Some((times.map_or(first, |(first, _)| first), last));
    }
}

/// The latest time of a record of the input with this `number` that goes before the `next` one of another
/// input, and below the `limit`; `None` if there is no such time.
fn latest(number: usize, next: Option<(u64, usize)>, limit: Option<u64>) -> Option<u64> {
    let before =
        |(time, is_included): (u64, bool)| if is_included { Some(time) } else { time.checked_sub(1) };
    let next = next.map_or(Some(u64::MAX), |(time, other)| before((time, number < other)))?;
    let limit = limit.map_or(Some(u64::MAX), |limit| before((limit, number == 0)))?;
    Some(next.min(limit))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_times_of_earlier_inputs_come_first() {
        assert_eq!(latest(1, None, None), Some(u64::MAX));
        assert_eq!((latest(1, Some((7, 0)), None), latest(1, Some((7, 2)), None)), (Some(6), Some(7)));
        assert_eq!((latest(1, None, Some(5)), latest(0, None, Some(5))), (Some(4), Some(5)));
        assert_eq!((latest(1, Some((7, 0)), Some(5)), latest(1, Some((0, 0)), None)), (Some(4), None));
    }
}

//! Decodes the samples of a trace into rows among the recorded samples, without writing them to a recording.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use perfx_format::read::sort::time_of;
use perfx_format::read::{Batch, Recording};
use perfx_pipeline::{Error, Report, Result};
use perfx_samples::{Rest, Rows};

use crate::combine::{Batches, Made};

/// Receives the samples that [`Itrace`](super::Itrace) does not write.
#[derive(Clone, Default)]
pub struct Apart(Arc<Mutex<Option<Box<dyn Left>>>>);

/// Samples that are not written.
pub(super) trait Left: Send {
    /// Hands them out, once.
    fn samples(&mut self) -> Option<Batches>;
    /// True if they do not need `complete`.
    fn completes(&self) -> bool;
    /// Completes the samples among these rows, which also contain the records between them.
    fn complete(&mut self, rows: &mut Rows) -> Result<()>;
    /// The progress of decoding.
    fn progress(&self) -> TraceProgress;
    /// Reports what was decoded.
    fn say(&mut self, report: &mut Report);
}

/// The progress of decoding, which copies share: bytes of trace.
#[derive(Clone, Default, Debug)]
pub struct TraceProgress {
    done: Arc<AtomicU64>,
    total: u64,
}

impl TraceProgress {
    pub(super) fn of(total: u64) -> TraceProgress {
        TraceProgress { total, ..TraceProgress::default() }
    }

    pub(super) fn add(&self, size: u64) {
        self.done.fetch_add(size, Ordering::Relaxed);
    }

    /// The bytes decoded so far.
    pub fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// All bytes, also those before a sync point and frames, which are not decoded.
    pub fn total(&self) -> u64 {
        self.total
    }
}

impl fmt::Debug for Apart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Apart")
    }
}

impl Apart {
    pub(super) fn leave(&self, samples: Box<dyn Left>) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = Some(samples);
    }
}

/// The samples of a trace and the recorded ones, in the order in which `inject` writes them. They are decoded
/// on demand, since a trace of 200 MB may have 100 GB of them.
pub struct DecodedTrace {
    /// `None` if the recording has no trace.
    left: Option<Box<dyn Left>>,
    made: Option<Made>,
    /// The batches of the recording.
    batches: Box<dyn Iterator<Item = perfx_format::Result<Batch>> + Send>,
    recorded: Rest,
    /// The time of the last record with one: a record without a time follows it.
    last: u64,
    failed: Option<Error>,
}

/// The approximate size of a batch, bytes.
const BATCH: usize = 1 << 18;

impl DecodedTrace {
    /// `recording` was written by a job whose pass got this `apart`.
    pub fn new(apart: &Apart, mut recording: Recording) -> DecodedTrace {
        let mut left = apart.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        DecodedTrace {
            made: left.as_mut().and_then(|left| left.samples()).map(Made::from),
            left,
            batches: Box::new(recording.decompressed()),
            recorded: Rest::default(),
            last: 0,
            failed: None,
        }
    }

    fn batch(&mut self) -> Result<Rows> {
        let mut out = Rows::default();
        while out.size() < BATCH {
            while self.recorded.key().is_none()
                && let Some(batch) = self.batches.next().transpose()?
            {
                self.recorded = self.recorded(&batch)?.into();
            }
            let (decoded, recorded) = (self.made.as_mut().map_or(Ok(None), Made::peek)?, self.recorded.key());
            // At equal times, recorded samples come first.
            if let Some(made) = &mut self.made
                && decoded.is_some_and(|decoded| recorded.is_none_or(|recorded| decoded < recorded))
            {
                let run = made.rows.run(|key| recorded.is_none_or(|recorded| key < recorded));
                made.rows.pass(run, &mut out);
            } else if recorded.is_some() {
                let run = self.recorded.run(|key| decoded.is_none_or(|decoded| key <= decoded));
                self.recorded.pass(run, &mut out);
            } else {
                break;
            }
        }
        if let Some(left) = self.left.as_mut().filter(|left| !left.completes()) {
            left.complete(&mut out)?;
        }
        Ok(out)
    }

    fn recorded(&mut self, batch: &Batch) -> Result<Rows> {
        let (mut rows, mut walker) = (Rows::default(), batch.walk());
        while let Some(record) = walker.next_record()? {
            let place = || record.origin().stored_at().filter(|_| !batch.layouts.has_time());
            let time = time_of(&record, &batch.layouts).or_else(|| Some(place()?.1));
            self.last = time.unwrap_or(self.last);
            rows.push(self.last, |bytes| bytes.extend_from_slice(record.bytes()));
        }
        Ok(rows)
    }

    /// The progress of decoding.
    pub fn progress(&self) -> TraceProgress {
        self.left.as_ref().map(|left| left.progress()).unwrap_or_default()
    }

    /// Reports what was decoded, after the last sample.
    ///
    /// # Errors
    ///
    /// The trace could not be decoded to its end.
    pub fn end(self, report: &mut Report) -> Result<()> {
        if let Some(mut left) = self.left {
            left.say(report);
        }
        self.failed.map_or(Ok(()), Err)
    }
}

impl Iterator for DecodedTrace {
    type Item = Rows;

    fn next(&mut self) -> Option<Rows> {
        if self.failed.is_some() {
            return None;
        }
        match self.batch() {
            Ok(rows) => Some(rows).filter(|rows| rows.count() > 0),
            Err(error) => {
                self.failed = Some(error);
                None
            }
        }
    }
}

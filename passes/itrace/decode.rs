//! Makes samples of decoded records, in their order.

use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use perfx_format::read::sort::PreparedBatch;
use perfx_format::record::aux::Auxtrace;
use perfx_format::record::cpumode;
use perfx_format::record::time_conv::TimeConv;
use perfx_format::sample::NewSample;
use perfx_format::{Bytes, Endian, Origin, Origins, Record};
use perfx_model::spe::{SpeCounts, SpeRecords, TracedRecord};
use perfx_pipeline::{Context as _, Result};

use super::events::Events;
use super::stack::Stack;

/// The constant inputs of decoding.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) events: Events,
    pub(super) conv: Option<TimeConv>,
    pub(super) endian: Endian,
}

/// What decoding found, and the number of samples that were made of it.
pub(super) type Counts = (SpeCounts, u64);

/// Makes samples of records; yields batches of them for the sorter.
#[derive(Debug)]
pub(super) struct Decoder {
    context: Arc<Context>,
    records: SpeRecords,
    /// For each buffer, the records since the last one that was used.
    skipped: Vec<u64>,
    samples: u64,
    total: Arc<Mutex<Counts>>,
}

/// The approximate size of a batch, bytes.
const BATCH: usize = 1 << 20;

impl Decoder {
    /// Makes samples of these records, and writes what it found to `total` at the end.
    pub(super) fn new(context: Arc<Context>, records: SpeRecords, total: Arc<Mutex<Counts>>) -> Decoder {
        Decoder { context, records, skipped: Vec::new(), samples: 0, total }
    }

    /// The next batch; `None` at the end.
    fn batch(&mut self) -> Result<Option<PreparedBatch>> {
        let mut made = Made::default();
        let mut is_done = false;
        while made.bytes.len() < BATCH && !is_done {
            match self.records.next() {
                Some(record) => self.sample(&record, &mut made)?,
                None => is_done = true,
            }
        }
        if made.samples.is_empty() && is_done {
            let mut total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
            *total = (self.records.counts(), self.samples);
            return Ok(None);
        }
        self.samples += made.samples.len() as u64;
        made.prepared(self.context.endian).map(Some)
    }

    /// Makes the samples of a record.
    fn sample(&mut self, traced: &TracedRecord, made: &mut Made) -> Result<()> {
        let (context, record) = (&*self.context, &traced.record);
        let events = &context.events;
        if self.skipped.len() <= traced.buffer {
            self.skipped.resize(traced.buffer + 1, 0);
        }
        let skipped = &mut self.skipped[traced.buffer];
        *skipped += 1;
        if *skipped < events.period {
            return Ok(());
        }
        *skipped = 0;
        let source = traced.data_source();
        let stack = Stack::of(record, events.stack);
        let ip = record.pc.unwrap_or(0);
        for event in events.of_record(record) {
            let is_of_code = event.kind.is_of_code();
            let physical = record.physical_address.filter(|_| event.kind.has_data_source());
            let addr = if is_of_code { record.target } else { record.virtual_address };
            let sample = NewSample {
                cpumode: if ip >= cpumode::KERNEL_START { cpumode::KERNEL } else { cpumode::USER },
                ip,
                pid: Auxtrace::ANY,
                tid: traced.tid,
                time: context.conv.map_or(0, |conv| conv.time(record.timestamp.unwrap_or(0))),
                addr: addr.unwrap_or(0),
                id: event.id,
                cpu: traced.cpu,
                period: events.period,
                branches: if is_of_code { stack.branches() } else { &[] },
                weight: record.latency.unwrap_or(0).into(),
                data_src: if event.kind.has_data_source() { source } else { 0 },
                phys_addr: physical.unwrap_or(0),
            };
            let bytes = sample.build(&event.attr, context.endian);
            made.push(&bytes.context("internal error: a sample with unknown parts")?, traced.key);
        }
        Ok(())
    }
}

impl Iterator for Decoder {
    type Item = Result<PreparedBatch>;

    fn next(&mut self) -> Option<Result<PreparedBatch>> {
        self.batch().transpose()
    }
}

/// Samples, and the times by which they are sorted.
#[derive(Default)]
struct Made {
    bytes: Vec<u8>,
    samples: Vec<(Range<usize>, u64)>,
}

impl Made {
    fn push(&mut self, sample: &[u8], key: u64) {
        let start = self.bytes.len();
        self.bytes.extend_from_slice(sample);
        self.samples.push((start..self.bytes.len(), key));
    }

    fn prepared(self, endian: Endian) -> Result<PreparedBatch> {
        let bytes = Bytes::from(self.bytes);
        let mut prepared = PreparedBatch::new(bytes.clone(), Origins::default());
        for (range, key) in self.samples {
            let sample = Record::new(&bytes[range], &[], Origin::Synthetic, endian)?;
            prepared.push(&sample, Some(key))?;
        }
        Ok(prepared.done())
    }
}

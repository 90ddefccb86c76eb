//! Makes samples of decoded records, in their order.

use std::sync::{Arc, Mutex, PoisonError};

use perfx_format::Endian;
use perfx_format::record::aux::Auxtrace;
use perfx_format::record::cpumode;
use perfx_format::record::time_conv::TimeConv;
use perfx_format::sample::NewSample;
use perfx_model::spe::{SpeCounts, SpeRecords, TracedRecord};
use perfx_pipeline::{Context as _, Result};
use perfx_samples::Rows;

use super::events::Events;
use super::stack::Stack;

/// Counts of decoding, and the number of samples made.
pub(super) type Counts = (SpeCounts, u64);

/// Makes samples of records, in batches.
#[derive(Debug)]
pub(super) struct Samples {
    pub(super) records: SpeRecords,
    pub(super) events: Events,
    pub(super) conv: Option<TimeConv>,
    pub(super) endian: Endian,
    /// The number of skipped records of each buffer since its last used one.
    pub(super) skipped: Vec<u64>,
    /// The number of samples made, and where it goes at the end.
    pub(super) samples: u64,
    pub(super) total: Arc<Mutex<Counts>>,
}

/// The approximate size of a batch, bytes.
const BATCH: usize = 1 << 20;

impl Samples {
    fn batch(&mut self) -> Result<Option<Rows>> {
        let mut made = Rows::default();
        let mut is_done = false;
        while made.size() < BATCH && !is_done {
            match self.records.next() {
                Some(record) => self.sample(&record, &mut made)?,
                None => is_done = true,
            }
        }
        if made.count() == 0 && is_done {
            let mut total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
            *total = (self.records.counts(), self.samples);
            return Ok(None);
        }
        self.samples += made.count() as u64;
        Ok(Some(made))
    }

    fn sample(&mut self, traced: &TracedRecord, made: &mut Rows) -> Result<()> {
        let (events, record) = (&self.events, &traced.record);
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
        for (kind, event) in events.of_record(record) {
            let is_of_code = kind.is_of_code();
            let physical = record.physical_address.filter(|_| kind.has_data_source());
            let branches = if is_of_code { stack.branches() } else { &[] };
            let addr = if is_of_code { record.target } else { record.virtual_address };
            let sample = NewSample {
                cpumode: if ip >= cpumode::KERNEL_START { cpumode::KERNEL } else { cpumode::USER },
                ip,
                pid: Auxtrace::ANY,
                tid: traced.tid,
                time: self.conv.map_or(0, |conv| conv.time(record.timestamp.unwrap_or(0))),
                addr: addr.unwrap_or(0),
                id: event.ids.host,
                cpu: traced.cpu,
                period: events.period,
                branches: [branches, &[]],
                branch_index: if branches.is_empty() { 0 } else { u64::MAX },
                weight: record.latency.unwrap_or(0).into(),
                data_src: if kind.has_data_source() { source } else { 0 },
                phys_addr: physical.unwrap_or(0),
                ..NewSample::default()
            };
            let mut written = None;
            made.push(traced.key, |bytes| written = sample.write(&event.attr, self.endian, bytes));
            written.context("internal error: a sample with unknown parts")?;
        }
        Ok(())
    }
}

impl Iterator for Samples {
    type Item = Result<Rows>;

    fn next(&mut self) -> Option<Result<Rows>> {
        self.batch().transpose()
    }
}

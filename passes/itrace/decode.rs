//! Decodes the data of all buffers together, in the order of their timestamps, into samples.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

use perfx_format::read::StoredBytes;
use perfx_format::read::sort::PreparedBatch;
use perfx_format::record::aux::Auxtrace;
use perfx_format::record::cpumode;
use perfx_format::record::time_conv::TimeConv;
use perfx_format::sample::NewSample;
use perfx_format::spe::{Packets, Records, SpeRecord};
use perfx_format::{Bytes, Endian, Origin, Origins, Record};
use perfx_pipeline::{Context as _, Result};

use super::cpus::Cpus;
use super::data_source::data_source;
use super::events::Events;
use super::stack::Stack;

/// An AUXTRACE record, and where its data is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) auxtrace: Auxtrace,
    pub(super) origin: Origin,
    /// Size of the record in front of the data, bytes.
    pub(super) header: usize,
}

/// The constant inputs of decoding.
#[derive(Debug)]
pub(super) struct Context {
    pub(super) stored: StoredBytes,
    pub(super) events: Events,
    pub(super) conv: Option<TimeConv>,
    pub(super) endian: Endian,
}

/// What decoding found.
#[derive(Clone, Copy, Default, Debug)]
pub(super) struct Counts {
    pub(super) records: u64,
    pub(super) samples: u64,
    /// Bytes that are not packets, and the records that were dropped for them.
    pub(super) bad_bytes: u64,
    pub(super) broken: u64,
    /// Chunks whose bytes can't be read again.
    pub(super) unreadable: u64,
}

/// A buffer: the chunks with one index, CPU and thread.
#[derive(Debug)]
pub(super) struct Buffer {
    cpu: u32,
    /// The thread that runs, as far as the buffer or its records say so.
    tid: u32,
    midr: Option<u64>,
    reported: u64,
    /// Its chunks; those before `next` have been read.
    chunks: Vec<Chunk>,
    next: usize,
    data: Bytes,
    /// The position in `data`, and that of `data` in the AUX buffer, bytes.
    at: usize,
    base: u64,
    records: Records,
    /// The latest timestamp, by which records are sorted: one that goes back keeps its place.
    latest: u64,
    /// Records since the last one that was used.
    skipped: u64,
}

impl Buffer {
    /// The buffers of these chunks, in the order of their first ones.
    pub(super) fn of(chunks: &[Chunk], cpus: &Cpus) -> Vec<Buffer> {
        let mut numbers = std::collections::HashMap::new();
        let mut buffers: Vec<Buffer> = Vec::new();
        for &chunk in chunks {
            let Auxtrace { idx, cpu, tid, .. } = chunk.auxtrace;
            let number = *numbers.entry((idx, cpu, tid)).or_insert_with(|| {
                let (midr, reported) = cpus.get(cpu);
                // On a CPU, other records may say which thread runs.
                let tid = if cpu == Auxtrace::ANY { tid } else { Auxtrace::ANY };
                buffers.push(Buffer {
                    cpu,
                    tid,
                    midr,
                    reported,
                    chunks: Vec::new(),
                    next: 0,
                    data: Bytes::default(),
                    at: 0,
                    base: 0,
                    records: Records::default(),
                    latest: 0,
                    skipped: 0,
                });
                buffers.len() - 1
            });
            buffers[number].chunks.push(chunk);
        }
        buffers
    }

    /// The next record.
    fn next(&mut self, stored: &StoredBytes, counts: &mut Counts) -> Option<SpeRecord> {
        loop {
            let mut packets = Packets::new(&self.data[self.at..], self.base.wrapping_add(self.at as u64));
            let record = packets.by_ref().find_map(|packet| self.records.push(packet));
            self.at += packets.position();
            if let Some(record) = record {
                self.latest = self.latest.max(record.timestamp.unwrap_or(0));
                return Some(record);
            }
            let Some(chunk) = self.chunks.get(self.next) else {
                counts.bad_bytes += std::mem::take(&mut self.records.bad_bytes);
                counts.broken += std::mem::take(&mut self.records.broken);
                return None;
            };
            self.next += 1;
            let len = usize::try_from(chunk.auxtrace.size).unwrap_or(usize::MAX);
            let data = stored.get(chunk.origin, chunk.header, len);
            counts.unreadable += u64::from(data.is_none());
            (self.data, self.at, self.base) = (data.unwrap_or_default(), 0, chunk.auxtrace.offset);
        }
    }
}

/// A record that waits for its turn: the latest timestamp of its buffer, and the buffer's number.
type Turn = Reverse<(u64, usize)>;

/// All buffers; yields batches of samples for the sorter.
#[derive(Debug)]
pub(super) struct Decoder {
    context: Arc<Context>,
    buffers: Vec<Buffer>,
    /// The next record of each buffer that has one, and their order.
    waiting: Vec<Option<SpeRecord>>,
    turns: BinaryHeap<Turn>,
    is_begun: bool,
    /// The time of the last sample, by which it was sorted.
    key: u64,
    counts: Counts,
    total: Arc<Mutex<Counts>>,
}

/// The approximate size of a batch, bytes.
const BATCH: usize = 1 << 20;

impl Decoder {
    /// Decodes these buffers, and adds what it found to `total` when everything is decoded.
    pub(super) fn new(context: Arc<Context>, buffers: Vec<Buffer>, total: Arc<Mutex<Counts>>) -> Decoder {
        let waiting = vec![None; buffers.len()];
        let (turns, counts) = Default::default();
        Decoder { context, buffers, waiting, turns, is_begun: false, key: 1, counts, total }
    }

    /// Makes the next record of a buffer wait.
    fn advance(&mut self, number: usize) {
        let buffer = &mut self.buffers[number];
        self.waiting[number] = buffer.next(&self.context.stored, &mut self.counts);
        if self.waiting[number].is_some() {
            self.turns.push(Reverse((buffer.latest, number)));
        }
    }

    /// The next batch; `None` at the end.
    fn batch(&mut self) -> Result<Option<PreparedBatch>> {
        if !std::mem::replace(&mut self.is_begun, true) {
            (0..self.buffers.len()).for_each(|number| self.advance(number));
        }
        let mut made = Made::default();
        while made.bytes.len() < BATCH {
            let Some(Reverse((latest, number))) = self.turns.pop() else { break };
            if let Some(record) = self.waiting[number].take() {
                self.counts.records += 1;
                self.sample(&record, number, latest, &mut made)?;
            }
            self.advance(number);
        }
        if made.samples.is_empty() && self.turns.is_empty() {
            let mut total = self.total.lock().unwrap_or_else(PoisonError::into_inner);
            *total = self.counts;
            return Ok(None);
        }
        self.counts.samples += made.samples.len() as u64;
        made.prepared(self.context.endian).map(Some)
    }

    /// Makes the samples of a record.
    fn sample(&mut self, record: &SpeRecord, number: usize, latest: u64, made: &mut Made) -> Result<()> {
        let (context, buffer) = (&*self.context, &mut self.buffers[number]);
        let events = &context.events;
        buffer.tid = record.context.unwrap_or(buffer.tid);
        buffer.skipped += 1;
        if buffer.skipped < events.period {
            return Ok(());
        }
        buffer.skipped = 0;
        let time = |counter: u64| context.conv.map_or(0, |conv| conv.time(counter));
        // Without times, samples come last, as perf decodes them.
        self.key = if events.has_time { self.key.max(time(latest)).min(u64::MAX - 1) } else { u64::MAX - 1 };
        let source = data_source(record, buffer.midr, buffer.reported);
        let stack = Stack::of(record, events.stack);
        for event in events.of_record(record) {
            let is_of_code = event.kind.is_of_code();
            let sample = NewSample {
                cpumode: if record.pc >= cpumode::KERNEL_START { cpumode::KERNEL } else { cpumode::USER },
                ip: record.pc,
                pid: Auxtrace::ANY,
                tid: buffer.tid,
                time: time(record.timestamp.unwrap_or(0)),
                addr: if is_of_code { record.target } else { record.virtual_address },
                id: event.id,
                cpu: buffer.cpu,
                period: events.period,
                branches: if is_of_code { stack.branches() } else { &[] },
                weight: record.latency.into(),
                data_src: if event.kind.has_data_source() { source } else { 0 },
                phys_addr: if event.kind.has_data_source() { record.physical_address } else { 0 },
            };
            let bytes = sample.build(&event.attr, context.endian);
            made.push(&bytes.context("internal error: a sample with unknown parts")?, self.key);
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

//! Decodes the data of all buffers together, in the order of their timestamps, without sorting.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use perfx_format::read::StoredBytes;
use perfx_format::record::aux::Auxtrace;
use perfx_format::record::time::LAST_KEY;
use perfx_format::record::time_conv::TimeConv;
use perfx_format::spe::{Packets, Records, SpeRecord};
use perfx_format::{Bytes, Origin};

use super::cpus::Cpus;
use super::data_source::data_source;

#[derive(Clone, Copy, Debug)]
pub(super) struct Chunk {
    pub(super) auxtrace: Auxtrace,
    pub(super) origin: Origin,
    /// Size of the record before the data, bytes.
    pub(super) header: usize,
}

/// Counts of decoded and lost data.
#[derive(Clone, Copy, Default, Debug)]
pub struct SpeCounts {
    /// The number of records.
    pub records: u64,
    /// Bytes that are not packets.
    pub bad_bytes: u64,
    /// The records that were dropped because of these bytes.
    pub broken: u64,
    /// Chunks whose bytes can't be read again.
    pub unreadable: u64,
}

/// A record, with its CPU and thread.
#[derive(Clone, Copy, Debug)]
pub struct TracedRecord {
    /// The record.
    pub record: SpeRecord,
    /// The number of its buffer, from 0.
    pub buffer: usize,
    /// The CPU, or [`Auxtrace::ANY`] in the buffer of a thread.
    pub cpu: u32,
    /// The thread, or [`Auxtrace::ANY`] if neither the buffer nor its records name one.
    pub tid: u32,
    /// The sort key among the other records of the recording, ns: the time of the buffer's latest timestamp.
    pub key: u64,
    midr: Option<u64>,
    reported: u64,
}

impl TracedRecord {
    /// The source of its data (`union perf_mem_data_src`), as perf derives it; 0 if it is not about memory.
    pub fn data_source(&self) -> u64 {
        data_source(&self.record, self.midr, self.reported)
    }
}

#[derive(Debug, Default)]
pub(super) struct Buffer {
    cpu: u32,
    tid: u32,
    midr: Option<u64>,
    reported: u64,
    /// Those before `next` have been read.
    chunks: Vec<Chunk>,
    next: usize,
    data: Bytes,
    /// The position in `data`, and that of `data` in the AUX buffer, bytes.
    at: usize,
    base: u64,
    records: Records,
    /// The latest timestamp, which is the sort key: it never goes back.
    latest: u64,
}

impl Buffer {
    /// The buffers of these chunks, in the order of their first ones.
    pub(super) fn of(chunks: &[Chunk], cpus: &Cpus) -> Vec<Buffer> {
        let mut numbers = HashMap::new();
        let mut buffers: Vec<Buffer> = Vec::new();
        for &chunk in chunks {
            let Auxtrace { idx, cpu, tid, .. } = chunk.auxtrace;
            let number = *numbers.entry((idx, cpu, tid)).or_insert_with(|| {
                let (midr, reported) = cpus.get(cpu);
                // On a CPU, other records may contain the current thread.
                let tid = if cpu == Auxtrace::ANY { tid } else { Auxtrace::ANY };
                buffers.push(Buffer { cpu, tid, midr, reported, ..Buffer::default() });
                buffers.len() - 1
            });
            buffers[number].chunks.push(chunk);
        }
        buffers
    }

    fn next(&mut self, stored: &StoredBytes, counts: &mut SpeCounts) -> Option<SpeRecord> {
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

/// The sort key of a waiting record: the latest timestamp of its buffer, and the buffer's number.
type Turn = Reverse<(u64, usize)>;

/// The records of all buffers, in the order of their sort keys.
#[derive(Debug)]
pub struct SpeRecords {
    stored: StoredBytes,
    buffers: Vec<Buffer>,
    conv: Option<TimeConv>,
    has_time: bool,
    /// The next record of each buffer, and their order.
    waiting: Vec<Option<SpeRecord>>,
    turns: BinaryHeap<Turn>,
    is_begun: bool,
    key: u64,
    counts: SpeCounts,
}

impl SpeRecords {
    pub(super) fn new(
        stored: StoredBytes,
        buffers: Vec<Buffer>,
        conv: Option<TimeConv>,
        has_time: bool,
    ) -> SpeRecords {
        let waiting = vec![None; buffers.len()];
        let (turns, counts) = Default::default();
        SpeRecords { stored, buffers, conv, has_time, waiting, turns, is_begun: false, key: 1, counts }
    }

    /// Losses in a buffer are known at its end.
    pub fn counts(&self) -> SpeCounts {
        self.counts
    }

    fn advance(&mut self, number: usize) {
        let buffer = &mut self.buffers[number];
        self.waiting[number] = buffer.next(&self.stored, &mut self.counts);
        if self.waiting[number].is_some() {
            self.turns.push(Reverse((buffer.latest, number)));
        }
    }
}

impl Iterator for SpeRecords {
    type Item = TracedRecord;

    fn next(&mut self) -> Option<TracedRecord> {
        if !std::mem::replace(&mut self.is_begun, true) {
            (0..self.buffers.len()).for_each(|number| self.advance(number));
        }
        let Reverse((latest, number)) = self.turns.pop()?;
        let record = self.waiting[number].take()?;
        self.counts.records += 1;
        let buffer = &mut self.buffers[number];
        buffer.tid = record.context.unwrap_or(buffer.tid);
        let &mut Buffer { cpu, tid, midr, reported, .. } = buffer;
        self.key = match self.conv {
            _ if !self.has_time => LAST_KEY,
            Some(conv) => self.key.max(conv.time(latest)).min(LAST_KEY),
            None => self.key,
        };
        let key = self.key;
        self.advance(number);
        Some(TracedRecord { record, buffer: number, cpu, tid, key, midr, reported })
    }
}

//! Statistics of AUX data: the tracers, the amount of data in each buffer, and the time span.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

use perfx_format::intel_pt::psbs;
use perfx_format::read::Batch;
use perfx_format::record::aux::{Auxtrace, AuxtraceInfo};
use perfx_format::{Kinds, Layouts, Record, RecordType};
use schemars::JsonSchema;
use serde::Serialize;

use crate::Result;
use crate::count::{Span, Tally, TimeSpan};
use crate::json::Decimal;

/// AUX data.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct AuxCount {
    /// In AUXTRACE records
    pub bytes: u64,
    /// From AUX records
    pub written_bytes: u64,
    /// AUX records with the flag TRUNCATED: the buffer was full
    pub truncated: u64,
    /// AUX records with the flag PARTIAL: the data has gaps
    pub partial: u64,
    /// AUX records with the flag COLLISION: the processor discarded data
    pub collisions: u64,
    /// Tracer, from AUXTRACE_INFO
    pub tracers: Vec<Cow<'static, str>>,
    /// The buffers, by CPU and thread
    pub buffers: Vec<AuxBuffer>,
    /// Of AUX records
    pub time: Option<TimeSpan>,
    /// Contents of the packets of Intel PT or CoreSight; null for other tracers, in pipe data, of selected
    /// samples, and if the data cannot be read
    pub packets: Option<PacketCounts>,
}

/// The packets of hardware traces.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct PacketCounts {
    /// By their kind in the words of perf (Intel PT) or OpenCSD (CoreSight), without padding
    pub by_kind: BTreeMap<&'static str, u64>,
    /// Sync points
    pub syncs: u64,
    /// How often the processor lost packets
    pub overflows: u64,
    /// Total time span of the traces of all buffers, ns; null if unknown
    pub span_ns: Option<Decimal<u64>>,
    /// Total time in which code was traced, ns
    pub traced_ns: Option<Decimal<u64>>,
}

/// The AUXTRACE records of a buffer.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
#[non_exhaustive]
pub struct AuxBuffer {
    /// null if the buffer is that of a thread
    pub cpu: Option<u32>,
    /// null if the buffer is that of a CPU
    pub tid: Option<u32>,
    /// AUXTRACE records
    pub records: u64,
    /// Bytes of their data
    pub bytes: u64,
    /// PSB packets of Intel PT, without those that lie in two AUXTRACE records
    pub psb: Option<u64>,
}

impl AuxBuffer {
    /// The CPU or thread of the buffer.
    pub fn owner(&self) -> String {
        match (self.cpu, self.tid) {
            (None, None) => "any CPU".to_owned(),
            (None, Some(tid)) => format!("thread {tid}"),
            (Some(cpu), _) => format!("CPU {cpu}"),
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct AuxTally {
    tracers: BTreeSet<AuxtraceInfo>,
    buffers: BTreeMap<(u32, u32), BufferCount>,
    times: Span,
}

#[derive(Clone, Copy, Debug, Default)]
struct BufferCount {
    records: u64,
    bytes: u64,
    psb: u64,
}

/// Maximum number of separate buffers. A recording has one for each CPU or thread.
const BUFFERS_MAX: usize = 1 << 14;

impl AuxTally {
    pub(crate) fn of(batch: &Batch) -> Result<AuxTally> {
        let mut data = AuxTally::default();
        let kinds = Kinds::of(&[RecordType::AUXTRACE_INFO, RecordType::AUXTRACE, RecordType::AUX]);
        if !batch.kinds.intersects(kinds) {
            return Ok(data);
        }
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(kinds, usize::MAX)? {
            data.look_at(&record, &batch.layouts);
        }
        Ok(data)
    }

    pub(crate) fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts) {
        match record.kind() {
            RecordType::AUXTRACE_INFO => {
                self.tracers.extend(AuxtraceInfo::of(record));
            }
            RecordType::AUX => {
                if let Some(time) = layouts.recorded_time(record) {
                    self.times.add(time);
                }
            }
            RecordType::AUXTRACE => {
                let Some(Auxtrace { cpu, tid, .. }) = Auxtrace::of(record) else { return };
                let payload = record.payload();
                let held = BufferCount {
                    records: 1,
                    bytes: payload.len() as u64,
                    psb: psbs(payload).count() as u64,
                };
                self.add((cpu, tid), held);
            }
            _ => {}
        }
    }

    /// Adds to a buffer. Buffers beyond the limit are counted together, without CPU and thread.
    fn add(&mut self, buffer: (u32, u32), held: BufferCount) {
        let known = self.buffers.contains_key(&buffer) || self.buffers.len() < BUFFERS_MAX;
        let buffer = if known { buffer } else { (Auxtrace::ANY, Auxtrace::ANY) };
        let sum = self.buffers.entry(buffer).or_default();
        sum.records += held.records;
        sum.bytes += held.bytes;
        sum.psb += held.psb;
    }

    pub(crate) fn join(&mut self, later: AuxTally) {
        self.tracers.extend(later.tracers);
        later.buffers.into_iter().for_each(|(buffer, held)| self.add(buffer, held));
        self.times.join(later.times);
    }

    pub(crate) fn count(&self, tally: &Tally) -> AuxCount {
        let tracer = |info: &AuxtraceInfo| match info.tracer() {
            Some(name) => Cow::Borrowed(name),
            None => Cow::Owned(format!("unknown tracer {}", info.kind)),
        };
        let has_psb = self.tracers.contains(&AuxtraceInfo::INTEL_PT);
        let any = |number: u32| Some(number).filter(|&number| number != Auxtrace::ANY);
        let buffer = |(&(cpu, tid), held): (&(u32, u32), &BufferCount)| AuxBuffer {
            cpu: any(cpu),
            tid: any(tid),
            records: held.records,
            bytes: held.bytes,
            psb: has_psb.then_some(held.psb),
        };
        let [truncated, partial, collisions] = tally.aux_lost;
        AuxCount {
            bytes: tally.aux_bytes,
            // A larger number is wrong.
            written_bytes: u64::try_from(tally.aux_written).unwrap_or(u64::MAX),
            truncated,
            partial,
            collisions,
            tracers: self.tracers.iter().map(tracer).collect(),
            buffers: self.buffers.iter().map(buffer).collect(),
            time: TimeSpan::of(self.times),
            packets: None,
        }
    }
}

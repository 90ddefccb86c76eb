//! The statistics of AUX data in `perfx stats`: the tracers, the amount of data in each buffer, and the time
//! span.

use std::collections::{BTreeMap, BTreeSet};

use perfx_format::read::Batch;
use perfx_format::record::aux::{Auxtrace, AuxtraceInfo, count_psb};
use perfx_format::{Kinds, RecordType};
use perfx_pipeline::Result;
use serde_json::{Value as Json, json};

use crate::tally::Span;
use crate::term::units;

/// Statistics of AUXTRACE_INFO, AUXTRACE and AUX records.
#[derive(Debug, Default)]
pub(super) struct AuxData {
    tracers: BTreeSet<u32>,
    /// The contents of each buffer, by CPU and tid.
    buffers: BTreeMap<(u32, u32), Held>,
    /// The time span of the AUX records.
    times: Span,
}

/// The contents of the AUXTRACE records of a buffer.
#[derive(Clone, Copy, Debug, Default)]
struct Held {
    records: u64,
    bytes: u64,
    /// The number of PSB packets, if the AUX data is from Intel PT.
    psb: u64,
}

/// The most buffers that are counted separately. A recording has one for each CPU or thread.
const BUFFERS_MAX: usize = 1 << 14;

/// The most buffers in the text output; the JSON output has all.
const SHOWN: usize = 16;

/// The value of Intel PT in `enum auxtrace_type`.
const INTEL_PT: u32 = 1;

impl AuxData {
    /// The statistics of one batch.
    pub(super) fn of(batch: &Batch) -> Result<AuxData> {
        let mut data = AuxData::default();
        let kinds = Kinds::of(&[RecordType::AUXTRACE_INFO, RecordType::AUXTRACE, RecordType::AUX]);
        if !batch.kinds.intersects(kinds) {
            return Ok(data);
        }
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(kinds, usize::MAX)? {
            data.tracers.extend(AuxtraceInfo::of(&record).map(|info| info.kind));
            if record.kind() == RecordType::AUX
                && let Some(time) = batch.layouts.time(&record)
            {
                data.times.add(time);
            }
            if let Some(Auxtrace { cpu, tid, .. }) = Auxtrace::of(&record) {
                let payload = record.payload();
                let held = Held { records: 1, bytes: payload.len() as u64, psb: count_psb(payload) };
                data.add((cpu, tid), held);
            }
        }
        Ok(data)
    }

    /// Adds to the counts of a buffer. Buffers beyond the limit are counted together, without CPU and thread.
    fn add(&mut self, buffer: (u32, u32), held: Held) {
        let known = self.buffers.contains_key(&buffer) || self.buffers.len() < BUFFERS_MAX;
        let buffer = if known { buffer } else { (Auxtrace::ANY, Auxtrace::ANY) };
        let sum = self.buffers.entry(buffer).or_default();
        sum.records += held.records;
        sum.bytes += held.bytes;
        sum.psb += held.psb;
    }

    /// Adds the statistics of a later batch.
    pub(super) fn join(&mut self, later: AuxData) {
        self.tracers.extend(later.tracers);
        later.buffers.into_iter().for_each(|(buffer, held)| self.add(buffer, held));
        self.times.join(later.times);
    }

    fn tracer(kind: u32) -> String {
        let info = AuxtraceInfo { kind };
        info.tracer().map_or_else(|| format!("unknown tracer {kind}"), ToOwned::to_owned)
    }

    fn has_psb(&self) -> bool {
        self.tracers.contains(&INTEL_PT)
    }

    /// The lines of the text output: a label and its text.
    pub(super) fn facts(&self) -> Vec<(&'static str, String)> {
        let mut facts = Vec::new();
        if !self.tracers.is_empty() {
            let tracers: Vec<_> = self.tracers.iter().map(|&kind| AuxData::tracer(kind)).collect();
            facts.push(("AUX tracer", tracers.join(", ")));
        }
        for (&(cpu, tid), held) in self.buffers.iter().take(SHOWN) {
            let whose = match (cpu, tid) {
                (Auxtrace::ANY, Auxtrace::ANY) => "any CPU".to_owned(),
                (Auxtrace::ANY, tid) => format!("thread {tid}"),
                (cpu, _) => format!("CPU {cpu}"),
            };
            let (bytes, records) = (units::size(held.bytes), units::count(held.records));
            let psb =
                if self.has_psb() { format!(", {} PSB", units::count(held.psb)) } else { String::new() };
            facts.push(("AUX buffer", format!("{whose}: {bytes} in {records} AUXTRACE{psb}")));
        }
        if self.buffers.len() > SHOWN {
            let more = units::count((self.buffers.len() - SHOWN) as u64);
            facts.push(("AUX buffer", format!("and {more} more (--json shows them)")));
        }
        if let Some((first, last)) = self.times.bounds() {
            let (from, to, long) = (units::time(first), units::time(last), units::duration(last - first));
            facts.push(("AUX records", format!("from {from} to {to}, {long}")));
        }
        facts
    }

    /// The JSON output: the tracers, the buffers, and the time span.
    pub(super) fn json(&self) -> [Json; 3] {
        let any = |number: u32| Some(number).filter(|&number| number != Auxtrace::ANY);
        let buffer = |(&(cpu, tid), held): (&(u32, u32), &Held)| {
            json!({
                "cpu": any(cpu), "tid": any(tid), "records": held.records, "bytes": held.bytes,
                "psb": self.has_psb().then_some(held.psb),
            })
        };
        let times = self.times.bounds();
        [
            self.tracers.iter().map(|&kind| AuxData::tracer(kind)).collect(),
            self.buffers.iter().map(buffer).collect(),
            json!(times.map(|(first, last)| json!({"first": first.to_string(), "last": last.to_string()}))),
        ]
    }
}

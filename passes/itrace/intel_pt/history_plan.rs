//! The recorded samples that get what the trace tells of the time before them: the last branches (`L`) and the calls that
//! have not returned (`G`).

use std::collections::HashMap;

use perfx_auxtrace::IntelPt;
use perfx_format::Endian;
use perfx_format::record::aux::AuxOwner;
use perfx_format::sample::{Branch, BranchFlags};

use super::events::Events;
use crate::itrace::recorded::{History, RecordedSample};

/// A sample of a buffer, in the order in which a sampler comes by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct HistoryRequest {
    buffer: usize,
    /// Its time, in ticks.
    pub(super) ticks: u64,
    pub(super) tid: u32,
    pub(super) ip: u64,
}

/// The recorded samples, and the history that they get.
#[derive(Debug)]
pub(super) struct HistoryPlan {
    /// Of all samples, sorted, each once.
    pub(super) requests: Vec<HistoryRequest>,
    /// The events for which a sampler keeps as much as is needed.
    pub(super) events: Events,
    /// The most branches and entries of a call chain that a sample gets; 0 for none.
    pub(super) stack: usize,
    pub(super) chain: usize,
    /// The first buffer of each CPU, and of each thread that has one of its own.
    buffers: HashMap<AuxOwner, usize>,
}

impl HistoryPlan {
    /// With the samples of a recording. Those without a time, or of a CPU that was not traced, get nothing.
    pub(super) fn new(
        samples: Vec<RecordedSample>,
        tracer: &IntelPt,
        events: Events,
        (stack, chain): (usize, usize),
    ) -> HistoryPlan {
        let mut plan = HistoryPlan { requests: Vec::new(), events, stack, chain, buffers: HashMap::new() };
        for (number, buffer) in tracer.buffers.iter().enumerate() {
            plan.buffers.entry(AuxOwner::of(buffer.cpu, buffer.tid)).or_insert(number);
        }
        if plan.events.is_timed {
            plan.requests = samples.iter().filter_map(|sample| plan.find(sample, tracer)).collect();
        }
        plan.requests.sort_unstable();
        plan.requests.dedup();
        plan
    }

    /// Where a sampler comes by a recorded sample.
    pub(super) fn find(&self, sample: &RecordedSample, tracer: &IntelPt) -> Option<HistoryRequest> {
        let RecordedSample { time, ip, cpu, tid } = *sample;
        let owners = [AuxOwner::Cpu(cpu), AuxOwner::Thread(tid)];
        let buffer = owners.iter().filter_map(|owner| self.buffers.get(owner)).min().copied()?;
        Some(HistoryRequest { buffer, ticks: tracer.clock().ticks(time?), tid, ip })
    }

    /// Those of a buffer, and the number of the first one among all.
    pub(super) fn of_buffer(&self, buffer: usize) -> (&[HistoryRequest], u64) {
        let first = self.requests.partition_point(|request| request.buffer < buffer);
        let end = self.requests.partition_point(|request| request.buffer <= buffer);
        (&self.requests[first..end], first as u64)
    }
}

/// Writes what a sample gets: two numbers, and the words of so many branches and entries of the chain.
pub(super) fn write(history: &History, bytes: &mut Vec<u8>) {
    let History { branches, chain } = history;
    bytes.extend((branches.len() as u32).to_le_bytes());
    bytes.extend((chain.len() as u32).to_le_bytes());
    let words = branches.iter().flat_map(|branch| [branch.from, branch.to, branch.flags.0]);
    words.chain(chain.iter().copied()).for_each(|word| bytes.extend(word.to_le_bytes()));
}

/// Reads it again.
pub(super) fn read(bytes: &[u8]) -> Option<History> {
    let count = |at| Some(Endian::Little.u32(bytes, at)? as usize);
    let word = |number: usize| Endian::Little.u64(bytes, 8 + 8 * number);
    let (branches, chain) = (count(0)?, count(4)?);
    let branch = |number: usize| {
        let (from, to, flags) = (word(3 * number)?, word(3 * number + 1)?, word(3 * number + 2)?);
        Some(Branch { from, to, flags: BranchFlags(flags) })
    };
    let chain = (0..chain).map(|number| word(3 * branches + number)).collect::<Option<_>>()?;
    Some(History { branches: (0..branches).map(branch).collect::<Option<_>>()?, chain })
}

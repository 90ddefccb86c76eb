//! Plans the history that recorded samples get from the trace: the last branches (`L`) and open calls (`G`).

use std::collections::HashMap;

use perfx_auxtrace::IntelPt;
use perfx_format::Endian;
use perfx_format::record::aux::AuxOwner;
use perfx_format::sample::{Branch, BranchFlags};

use super::events::Events;
use crate::itrace::recorded::{History, RecordedSample};

/// A recorded sample of a buffer, ordered as the sampler reaches it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct HistoryRequest {
    buffer: usize,
    /// Its time, in ticks.
    pub(super) ticks: u64,
    pub(super) tid: u32,
    pub(super) ip: u64,
}

#[derive(Debug)]
pub(super) struct HistoryPlan {
    /// The samples, sorted, without duplicates.
    pub(super) requests: Vec<HistoryRequest>,
    /// The events for which a sampler keeps enough history.
    pub(super) events: Events,
    /// Maximum of branches and of chain entries that a sample gets; 0 for none.
    pub(super) stack: usize,
    pub(super) chain: usize,
    /// The first buffer of each CPU, and of each thread that has one of its own.
    buffers: HashMap<AuxOwner, usize>,
}

impl HistoryPlan {
    /// Plans the samples of a recording. Those without a time, or on a CPU that was not traced, get nothing.
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

    /// The position at which a sampler reaches a recorded sample.
    pub(super) fn find(&self, sample: &RecordedSample, tracer: &IntelPt) -> Option<HistoryRequest> {
        let RecordedSample { time, ip, cpu, tid } = *sample;
        let owners = [AuxOwner::Cpu(cpu), AuxOwner::Thread(tid)];
        let buffer = owners.iter().filter_map(|owner| self.buffers.get(owner)).min().copied()?;
        Some(HistoryRequest { buffer, ticks: tracer.clock().ticks(time?), tid, ip })
    }

    /// The requests of a buffer, and the index of the first one.
    pub(super) fn of_buffer(&self, buffer: usize) -> (&[HistoryRequest], u64) {
        let first = self.requests.partition_point(|request| request.buffer < buffer);
        let end = self.requests.partition_point(|request| request.buffer <= buffer);
        (&self.requests[first..end], first as u64)
    }
}

/// Writes a history: the two lengths, then the words of the branches and the entries of the chain.
pub(super) fn write(history: &History, bytes: &mut Vec<u8>) {
    let History { branches, chain } = history;
    bytes.extend((branches.len() as u32).to_le_bytes());
    bytes.extend((chain.len() as u32).to_le_bytes());
    let words = branches.iter().flat_map(|branch| [branch.from, branch.to, branch.flags.0]);
    words.chain(chain.iter().copied()).for_each(|word| bytes.extend(word.to_le_bytes()));
}

/// Reads what [`write()`] wrote.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_history_is_read_as_it_was_written() {
        let branch = |number: u64| Branch { from: number, to: number + 1, flags: BranchFlags(number + 2) };
        for (branches, chain) in [(0, 0), (1, 0), (0, 2), (3, 2)] {
            let branches: Vec<Branch> = (0..branches).map(|number| branch(10 * number)).collect();
            let history = History { branches, chain: (100..100 + chain).collect() };
            let mut bytes = Vec::new();
            write(&history, &mut bytes);
            assert_eq!(bytes.len(), 8 + 24 * history.branches.len() + 8 * history.chain.len());
            let read = super::read(&bytes).unwrap();
            assert_eq!((read.branches.len(), &read.chain), (history.branches.len(), &history.chain));
            let words = |history: &History| {
                history
                    .branches
                    .iter()
                    .flat_map(|branch| [branch.from, branch.to, branch.flags.0])
                    .collect::<Vec<_>>()
            };
            assert_eq!(words(&read), words(&history));
            bytes.pop();
            assert!(super::read(&bytes).is_none());
        }
    }
}

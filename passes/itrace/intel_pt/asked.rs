//! The recorded samples that get what the trace tells of the time before them: the last branches (`L`) and the calls that
//! have not returned (`G`).

use perfx_auxtrace::Recorded;
use perfx_format::Endian;
use perfx_format::record::aux::Auxtrace;
use perfx_format::sample::{Branch, BranchFlags};

use super::events::Events;
use crate::itrace::others::{History, RecordedSample};

/// A sample of a buffer, in the order in which a sampler comes by.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(super) struct Asked {
    buffer: usize,
    /// Its time, in ticks.
    pub(super) ticks: u64,
    pub(super) tid: u32,
    pub(super) ip: u64,
}

/// What is asked for.
#[derive(Debug)]
pub(super) struct Asking {
    /// Of all samples, sorted, each once.
    pub(super) asked: Vec<Asked>,
    /// What a sampler keeps for it.
    pub(super) events: Events,
    /// The most branches and entries of a call chain that a sample gets; 0 for none.
    pub(super) stack: usize,
    pub(super) chain: usize,
}

impl Asking {
    /// With the samples of a recording. Those without a time, or of a CPU that was not traced, get nothing.
    pub(super) fn new(
        samples: Vec<RecordedSample>,
        recorded: &Recorded,
        events: Events,
        (stack, chain): (usize, usize),
    ) -> Asking {
        let asked = samples.into_iter().filter_map(|sample| Asked::of(&sample, recorded));
        let mut asked: Vec<Asked> = asked.filter(|_| events.is_timed).collect();
        asked.sort_unstable();
        asked.dedup();
        Asking { asked, events, stack, chain }
    }

    /// Those of a buffer, and the number of the first one among all.
    pub(super) fn of_buffer(&self, buffer: usize) -> (&[Asked], u64) {
        let first = self.asked.partition_point(|asked| asked.buffer < buffer);
        let end = self.asked.partition_point(|asked| asked.buffer <= buffer);
        (&self.asked[first..end], first as u64)
    }
}

impl Asked {
    pub(super) fn of(sample: &RecordedSample, recorded: &Recorded) -> Option<Asked> {
        let RecordedSample { time, ip, cpu, tid } = *sample;
        let is_its =
            |cpu_of: u32, tid_of: u32| if cpu_of == Auxtrace::ANY { tid_of == tid } else { cpu_of == cpu };
        let buffer = recorded.buffers.iter().position(|buffer| is_its(buffer.cpu, buffer.tid))?;
        Some(Asked { buffer, ticks: recorded.clock().ticks(time?), tid, ip })
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

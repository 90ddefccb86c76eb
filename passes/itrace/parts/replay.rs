//! Replays the logs of the parts of a buffer into samples in order: each sample depends on all that precedes
//! it.

use std::sync::Arc;

use perfx_auxtrace::{Part, Work};
use perfx_samples::Branches;
use perfx_trace::{Blocks, Event, PathId, Point, Sink, Space, Step, each_step};

use super::log::{Entry, PartLog, SelectedBranches};
use super::sample_queue::SampleQueue;
use super::sequencer::Sequencer;
use super::spill_file::SpillFile;
use crate::itrace::losses::Counts;

/// The decoding state of one buffer up to a position.
pub(crate) trait Sampler: Send {
    /// Advances to the end of the log, and adds its samples to `made`.
    fn make(&mut self, log: &mut PartLog, blocks: &Blocks, made: &mut SampleQueue);
    /// The counts so far.
    fn counts(&self) -> &Counts;
}

/// The state of each buffer before its next part.
pub(crate) struct SerialReplay<S> {
    buffers: Vec<Sequencer<S>>,
    spill: SpillFile,
    /// The branches that samples refer to.
    branches: Arc<Branches>,
}

impl<S: Sampler> SerialReplay<S> {
    /// `samplers` are the states at the beginnings of the buffers.
    pub(crate) fn new(samplers: impl Iterator<Item = S>, spill: SpillFile) -> SerialReplay<S> {
        SerialReplay { buffers: samplers.map(Sequencer::new).collect(), spill, branches: Arc::default() }
    }

    /// The counts of all buffers.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.each(|sampler| counts.add(sampler.counts()));
        counts
    }

    /// Calls `each` with the state at the end of each buffer.
    pub(crate) fn each(&self, mut each: impl FnMut(&S)) {
        self.buffers.iter().for_each(|buffer| buffer.look(&mut each));
    }
}

/// The most entries and paths of a log, some megabytes. A trace without sync points is one part of any
/// length.
const MOST: usize = 1 << 19;

/// The most paths of an entry; if a sample falls into an entry, every path in it is inspected.
const MOST_PATHS: u32 = 1 << 8;

/// Logs a part, and replays the log in the part's turn, or when the log is full.
pub(crate) struct Logger<'t, S> {
    replay: &'t SerialReplay<S>,
    log: PartLog,
    made: SampleQueue,
    time: u64,
    space: Option<Space>,
}

impl<S: Sampler> Logger<'_, S> {
    /// Waits for the part's turn, makes samples from the log, and clears it.
    fn replay(&mut self, blocks: &Blocks, is_done: bool) {
        let Logger { replay, log, made, .. } = self;
        let Part { buffer, number, .. } = log.part;
        // After a panic in a thread the turn never comes, and the samples are not used.
        replay.buffers[buffer].take(number, is_done, |sampler| sampler.make(log, blocks, made));
        log.entries.clear();
        log.paths.clear();
        log.events.clear();
    }

    #[inline(always)]
    fn make_room(&mut self, blocks: &Blocks) {
        if self.log.entries.len() + self.log.paths.len() >= MOST {
            self.replay(blocks, false);
        }
    }

    #[inline(always)]
    fn at(&mut self, time: u64, space: Option<Space>) {
        if self.is_new(time) {
            self.log.entries.push(Entry::Time(time));
        }
        if space != self.space {
            self.space = space;
            self.log.entries.push(Entry::Space(space));
        }
    }

    /// Notes a time; returns true if it differs from the last one.
    #[inline(always)]
    fn is_new(&mut self, time: u64) -> bool {
        std::mem::replace(&mut self.time, time) != time
    }
}

impl<S: Sampler> Sink for Logger<'_, S> {
    #[inline(always)]
    fn step(&mut self, blocks: &Blocks, point: &Point, step: Step) {
        self.make_room(blocks);
        self.at(point.time, point.space);
        self.log.entries.push(Entry::Step(step));
    }

    fn straight(&mut self, blocks: &Blocks, point: &Point, step: Step) {
        self.make_room(blocks);
        self.at(point.time, point.space);
        self.log.entries.push(Entry::Straight(step));
    }

    #[inline(always)]
    fn path(&mut self, blocks: &Blocks, point: &Point, id: PathId) {
        self.make_room(blocks);
        let path = blocks.path(id);
        if path.leaves_kernel {
            // Later samples have the time estimated there, even if it has no sample itself.
            return each_step(self, blocks, point, id);
        }
        let lead = usize::from(path.lead);
        self.at(if lead > 0 { point.time } else { self.time }, point.space);
        if lead < path.len() && self.is_new(point.now) {
            self.log.entries.push(Entry::AfterLead(point.now));
        }
        self.log.paths.push(id);
        match self.log.entries.last_mut() {
            Some(Entry::Paths(count, instructions)) if *count < MOST_PATHS => {
                *count += 1;
                *instructions += path.instructions;
            }
            _ => self.log.entries.push(Entry::Paths(1, path.instructions)),
        }
    }

    fn event(&mut self, _blocks: &Blocks, point: &Point, event: Event) {
        self.at(point.time, point.space);
        self.log.entries.push(Entry::Event(self.log.events.len() as u32));
        self.log.events.push(event);
    }

    #[inline(always)]
    fn time(&mut self, now: u64) {
        self.log.entries.push(Entry::Now(now));
    }

    fn cycles(&mut self, total: u64, exact: bool) {
        self.log.entries.push(Entry::Cycles(total, exact));
    }

    fn forget(&mut self, blocks: &Blocks) {
        self.replay(blocks, false);
        self.log.selected.clear();
    }
}

impl<'t, S: Sampler> Work for &'t SerialReplay<S> {
    type Sink = Logger<'t, S>;
    type Done = SampleQueue;

    fn sink(&self) -> Logger<'t, S> {
        let part = Part { buffer: 0, trace: 0, number: 0, time: 0, size: 0 };
        let (entries, paths, events) = (Vec::new(), Vec::new(), Vec::new());
        let log = PartLog { part, entries, paths, events, selected: SelectedBranches::default() };
        let made = SampleQueue::with_table(self.spill.clone(), self.branches.clone());
        Logger { replay: self, log, made, time: 0, space: None }
    }

    fn begin(&self, logger: &mut Logger<'t, S>, part: &Part) {
        logger.log.part = *part;
        // Whatever came before, the first step logs its time and thread.
        (logger.time, logger.space) = (u64::MAX, None);
        logger.log.entries.push(Entry::Space(None));
    }

    fn end(&self, logger: &mut Logger<'t, S>, blocks: &Blocks, _part: &Part) -> SampleQueue {
        logger.replay(blocks, true);
        logger.made.take()
    }

    fn abandon(&self) {
        self.buffers.iter().for_each(Sequencer::abandon);
    }
}

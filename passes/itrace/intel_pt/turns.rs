//! Lets the threads make samples of the parts of a buffer in their order: a sample depends on all that is in front of
//! it.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};

use perfx_auxtrace::{Part, Work};
use perfx_trace::Blocks;

use super::context::Context;
use super::log::{Log, Maker};
use super::sampler::Sampler;
use super::spool::Spool;
use crate::itrace::losses::Counts;

/// The state of each buffer.
#[derive(Debug)]
pub(super) struct Turns<'c> {
    context: &'c Context,
    buffers: Vec<(Mutex<Turn<'c>>, Condvar)>,
}

/// The part whose turn it is, and what is known in front of it.
#[derive(Debug)]
struct Turn<'c> {
    number: u64,
    sampler: Sampler<'c>,
}

impl<'c> Turns<'c> {
    /// The first parts come next.
    pub(super) fn new(context: &'c Context) -> Turns<'c> {
        let turn = |buffer| Turn { number: 0, sampler: Sampler::new(context, buffer) };
        let buffers =
            (0..context.recorded.buffers.len()).map(|buffer| (Mutex::new(turn(buffer)), Condvar::new()));
        Turns { context, buffers: buffers.collect() }
    }

    /// What was found in all buffers.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for (turn, _) in &self.buffers {
            counts.add(turn.lock().unwrap_or_else(PoisonError::into_inner).sampler.counts());
        }
        counts
    }

    /// Waits for a part's turn.
    fn wait(&self, part: &Part) -> (MutexGuard<'_, Turn<'c>>, &Condvar) {
        let (turn, changed) = &self.buffers[part.buffer];
        let mut turn = turn.lock().unwrap_or_else(PoisonError::into_inner);
        // Parts in front of it have begun, so that this ends.
        while turn.number != part.number {
            turn = changed.wait(turn).unwrap_or_else(PoisonError::into_inner);
        }
        (turn, changed)
    }
}

impl Maker for Turns<'_> {
    fn make(&self, log: &mut Log<'_>, blocks: &Blocks) {
        let (mut turn, _) = self.wait(&log.part);
        turn.sampler.make(log, blocks);
    }
}

impl<'c> Work for &'c Turns<'c> {
    type Sink = Log<'c>;
    type Done = Spool;

    fn sink(&self) -> Log<'c> {
        Log::new(*self, self.context.spool())
    }

    fn begin(&self, log: &mut Log<'c>, part: &Part) {
        log.begin(*part);
    }

    fn end(&self, log: &mut Log<'c>, blocks: &Blocks, part: &Part) -> Spool {
        let (mut turn, changed) = self.wait(part);
        turn.sampler.make(log, blocks);
        turn.number += 1;
        changed.notify_all();
        std::mem::replace(&mut log.made, self.context.spool())
    }
}

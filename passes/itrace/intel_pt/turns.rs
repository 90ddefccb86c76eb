//! Makes samples of the parts of a buffer in their order, on the threads that decoded them: a sample depends on all that
//! is in front of it.

use perfx_auxtrace::{Part, Work};
use perfx_trace::Blocks;

use super::context::Context;
use super::log::{Log, Maker};
use super::sampler::Sampler;
use super::spool::Spool;
use super::turn::Turn;
use crate::itrace::losses::Counts;

/// What is known of each buffer in front of the part whose turn it is.
#[derive(Debug)]
pub(super) struct Turns<'c> {
    context: &'c Context,
    buffers: Vec<Turn<Sampler<'c>>>,
}

impl<'c> Turns<'c> {
    /// The first parts come next.
    pub(super) fn new(context: &'c Context) -> Turns<'c> {
        let buffers = 0..context.recorded.buffers.len();
        Turns { context, buffers: buffers.map(|buffer| Turn::new(Sampler::new(context, buffer))).collect() }
    }

    /// What was found in all buffers.
    pub(super) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.buffers.iter().for_each(|buffer| buffer.look(|sampler| counts.add(sampler.counts())));
        counts
    }

    /// Makes the samples of what is noted of a part, when its turn has come.
    fn make_in_turn(&self, log: &mut Log<'_>, blocks: &Blocks, is_done: bool) {
        let Part { buffer, number, .. } = log.part;
        // The turn never comes if a thread has panicked: nothing comes of the samples then.
        self.buffers[buffer].take(number, is_done, |sampler| sampler.make(log, blocks)).unwrap_or_default();
    }
}

impl Maker for Turns<'_> {
    fn make(&self, log: &mut Log<'_>, blocks: &Blocks) {
        self.make_in_turn(log, blocks, false);
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

    fn end(&self, log: &mut Log<'c>, blocks: &Blocks, _part: &Part) -> Spool {
        self.make_in_turn(log, blocks, true);
        std::mem::replace(&mut log.made, self.context.spool())
    }

    fn abandon(&self) {
        self.buffers.iter().for_each(Turn::abandon);
    }
}

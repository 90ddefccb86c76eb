//! Makes samples of the parts of a buffer as if they were decoded one after the other: a sample depends on all that is in
//! front of it.

use perfx_auxtrace::{Part, Work};
use perfx_trace::Blocks;

use super::log::{Log, Maker, Notes};
use super::room::Room;
use super::spool::Spool;
use super::turn::Turn;
use crate::itrace::losses::Counts;

/// What is known of a buffer at a place, from the beginning up to there, and makes samples of what comes next.
pub(crate) trait Sampler: Clone + Send {
    /// Goes on to the end of what has been noted, and hands its samples to `made`.
    fn make(&mut self, notes: &Notes, blocks: &Blocks, made: &mut impl Samples);
    /// What was found so far.
    fn counts(&self) -> &Counts;
}

/// Takes samples, in order.
pub(crate) trait Samples {
    /// A sample, which `write` appends to others if it is needed here, and the time by which it is sorted.
    fn push(&mut self, key: u64, write: impl FnOnce(&mut Vec<u8>));
}

impl Samples for Spool {
    #[inline(always)]
    fn push(&mut self, key: u64, write: impl FnOnce(&mut Vec<u8>)) {
        self.add(key, write);
    }
}

/// Takes samples that only what follows depends on.
#[derive(Debug)]
struct Unmade;

impl Samples for Unmade {
    #[inline(always)]
    fn push(&mut self, _key: u64, _write: impl FnOnce(&mut Vec<u8>)) {}
}

/// What is known of each buffer in front of the part whose turn it is.
pub(crate) struct Turns<S> {
    buffers: Vec<Turn<S>>,
    /// Samples are so many that building them in turn would hold the other threads up.
    has_many: bool,
    room: Room,
}

impl<S: Sampler> Turns<S> {
    /// The first parts come next: `samplers` are those of the buffers at their beginnings. With `has_many` samples, a
    /// thread in its turn only finds out what the next part depends on, and builds the samples behind it. That is more
    /// work, of which less is done in turn.
    pub(crate) fn new(samplers: impl Iterator<Item = S>, has_many: bool, room: Room) -> Turns<S> {
        Turns { buffers: samplers.map(Turn::new).collect(), has_many, room }
    }

    /// What was found in all buffers.
    pub(crate) fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        self.buffers.iter().for_each(|buffer| buffer.look(|sampler| counts.add(sampler.counts())));
        counts
    }

    /// Calls `each` with what is known at the end of each buffer.
    pub(crate) fn each(&self, mut each: impl FnMut(&S)) {
        self.buffers.iter().for_each(|buffer| buffer.look(&mut each));
    }

    /// Makes the samples of what is noted of a part, when its turn has come.
    fn make_in_turn(&self, Log { notes, made, .. }: &mut Log<'_>, blocks: &Blocks, is_done: bool) {
        let Part { buffer, number, .. } = notes.part;
        let turn = &self.buffers[buffer];
        // The turn never comes if a thread has panicked: nothing comes of the samples then.
        let begin = turn.take(number, is_done, |sampler, is_held_up| {
            // Without others that wait, it is less work to build the samples at once.
            if self.has_many && is_held_up {
                let begin = sampler.clone();
                sampler.make(notes, blocks, &mut Unmade);
                return Some(begin);
            }
            sampler.make(notes, blocks, made);
            None
        });
        begin.flatten().into_iter().for_each(|mut sampler| sampler.make(notes, blocks, made));
        notes.clear();
    }
}

impl<S: Sampler> Maker for Turns<S> {
    fn make(&self, log: &mut Log<'_>, blocks: &Blocks) {
        self.make_in_turn(log, blocks, false);
    }
}

impl<'t, S: Sampler> Work for &'t Turns<S> {
    type Sink = Log<'t>;
    type Done = Spool;

    fn sink(&self) -> Log<'t> {
        Log::new(*self, Spool::new(self.room.clone()))
    }

    fn begin(&self, log: &mut Log<'t>, part: &Part) {
        log.begin(*part);
    }

    fn end(&self, log: &mut Log<'t>, blocks: &Blocks, _part: &Part) -> Spool {
        self.make_in_turn(log, blocks, true);
        log.made.take()
    }

    fn abandon(&self) {
        self.buffers.iter().for_each(Turn::abandon);
    }
}

//! Decodes all buffers on threads, and merges the samples of their parts in the order of time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};

use perfx_auxtrace::{Part, decode};
use perfx_format::Endian;
use perfx_pipeline::Result;

use super::context::Context;
use super::sampler::lost;
use super::skip::Skip;
use super::spool::Spool;
use super::turns::Turns;
use crate::combine::Batches;
use crate::itrace::losses::Counts;
use crate::itrace::made::Made;
use crate::itrace::producer::{HandOut, made_by};

/// The approximate size of a batch, bytes.
const BATCH: usize = 1 << 20;

/// Batches of samples, in the order of time. What was found is in `counts` when they are complete.
pub(super) fn of(context: Arc<Context>, counts: Arc<Mutex<Counts>>) -> Batches {
    made_by(move |hand_out| {
        let turns = Turns::new(&context);
        let mut merge = Merge::new(&context, hand_out);
        merge.add_lost(&context)?;
        let Context { recorded, code, threads, .. } = &*context;
        let buffers = (&recorded.tracer, &recorded.buffers[..]);
        let clock = recorded.clock();
        decode(buffers, code, *threads, &&turns, |part, made| {
            merge.release(if clock.conv.is_some() { clock.time(part.time) } else { 0 })?;
            merge.add(part, made)
        })?;
        *counts.lock().unwrap_or_else(PoisonError::into_inner) = turns.counts();
        merge.release(u64::MAX)?;
        merge.flush()
    })
}

/// A sample that is next in its part: its time, its buffer, and the part's number there.
type Next = Reverse<(u64, usize, u64)>;

/// Samples that wait until no earlier ones can come.
struct Merge<'h> {
    waiting: HashMap<(usize, u64), Waiting>,
    order: BinaryHeap<Next>,
    skip: Skip,
    out: Made,
    endian: Endian,
    hand_out: &'h mut HandOut<'h>,
}

struct Waiting {
    /// The samples that come first, and how many of them wait no more.
    made: Made,
    done: usize,
    /// The others.
    rest: Spool,
}

impl<'h> Merge<'h> {
    fn new(context: &Context, hand_out: &'h mut HandOut<'h>) -> Merge<'h> {
        let (waiting, order, endian) = (HashMap::new(), BinaryHeap::new(), context.endian);
        let skip = Skip::new(context.events.skip, context.events.sampled.instructions.as_ref(), endian);
        Merge { waiting, order, skip, out: Made::new(endian), endian, hand_out }
    }

    /// Adds the records of data that the kernel lost, if they are wanted.
    fn add_lost(&mut self, context: &Context) -> Result<()> {
        if !context.events.lost {
            return Ok(());
        }
        let mut errors: Vec<_> = context.recorded.lost.iter().collect();
        errors.sort_by_key(|error| error.time);
        let mut made = context.spool();
        errors.iter().for_each(|error| made.push(&lost(error, self.endian), error.time));
        self.add(Part { buffer: usize::MAX, trace: usize::MAX, number: 0, time: 0 }, made)
    }

    fn add(&mut self, part: Part, mut rest: Spool) -> Result<()> {
        let made = rest.next()?;
        if let Some((_, key)) = made.get(0) {
            self.order.push(Reverse((key, part.buffer, part.number)));
            self.waiting.insert((part.buffer, part.number), Waiting { made, done: 0, rest });
        }
        Ok(())
    }

    /// Nothing that is added later is earlier than this time.
    fn release(&mut self, time: u64) -> Result<()> {
        while let Some(&Reverse((key, buffer, number))) = self.order.peek()
            && key < time
        {
            self.order.pop();
            let Some(waiting) = self.waiting.get_mut(&(buffer, number)) else { continue };
            if let Some((sample, _)) = waiting.made.get(waiting.done) {
                let out = &mut self.out;
                self.skip.pass(buffer, sample, |sample| out.push(sample, key));
            }
            waiting.done += 1;
            if waiting.done as u64 == waiting.made.count() {
                (waiting.made, waiting.done) = (waiting.rest.next()?, 0);
            }
            match waiting.made.get(waiting.done) {
                Some((_, key)) => self.order.push(Reverse((key, buffer, number))),
                None => drop(self.waiting.remove(&(buffer, number))),
            }
            if self.out.len() >= BATCH {
                self.flush()?;
            }
        }
        Ok(())
    }

    fn flush(&mut self) -> Result<()> {
        let out = std::mem::replace(&mut self.out, Made::new(self.endian));
        if out.count() == 0 {
            return Ok(());
        }
        (self.hand_out)(out.prepared()?)
    }
}

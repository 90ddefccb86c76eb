//! Decodes all buffers on threads, and merges the samples of their parts in the order of time.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};

use perfx_auxtrace::{Part, decode};
use perfx_format::Endian;
use perfx_pipeline::Result;

use super::context::Context;
use super::sampler::{Made, lost};
use super::turns::Turns;
use crate::combine::Batches;
use crate::itrace::losses::Counts;
use crate::itrace::producer::{HandOut, made_by};

/// The approximate size of a batch, bytes.
const BATCH: usize = 1 << 20;

/// Batches of samples, in the order of time. What was found is in `counts` when they are complete.
pub(super) fn of(context: Arc<Context>, counts: Arc<Mutex<Counts>>) -> Batches {
    made_by(move |hand_out| {
        let turns = Turns::new(&context);
        let mut merge = Merge::new(&context, hand_out);
        let Context { recorded, code, threads, .. } = &*context;
        let buffers = (&recorded.tracer, &recorded.buffers[..]);
        let clock = recorded.clock();
        decode(buffers, code, *threads, &&turns, |part, made| {
            merge.release(if clock.conv.is_some() { clock.time(part.time) } else { 0 })?;
            merge.add(part, made);
            Ok(())
        })?;
        *counts.lock().unwrap_or_else(PoisonError::into_inner) = turns.counts();
        merge.release(u64::MAX)?;
        merge.flush()
    })
}

/// The next sample of a buffer: its time.
type Next = Reverse<(u64, usize)>;

/// Samples that wait until no earlier ones can come.
struct Merge<'h> {
    /// Of each buffer, the samples of its parts.
    waiting: HashMap<usize, VecDeque<Waiting>>,
    /// The buffers with samples, but not that whose sample was the last one. Of samples of one time, its next one comes
    /// first, as in perf, which decodes a buffer up to the time of the next one.
    order: BinaryHeap<Next>,
    current: Option<usize>,
    out: Made,
    endian: Endian,
    hand_out: &'h mut HandOut<'h>,
}

struct Waiting {
    made: Made,
    /// The number of samples that wait no more.
    done: usize,
}

impl<'h> Merge<'h> {
    fn new(context: &Context, hand_out: &'h mut HandOut<'h>) -> Merge<'h> {
        let endian = context.endian;
        let mut merge = Merge {
            waiting: HashMap::new(),
            order: BinaryHeap::new(),
            current: None,
            out: Made::new(endian),
            endian,
            hand_out,
        };
        if context.events.lost {
            let mut made = Made::new(endian);
            let mut errors: Vec<_> = context.recorded.lost.iter().collect();
            errors.sort_by_key(|error| error.time);
            errors.iter().for_each(|error| made.push(&lost(error, endian), error.time));
            merge.add(Part { buffer: usize::MAX, trace: usize::MAX, number: 0, time: 0 }, made);
        }
        merge
    }

    fn add(&mut self, part: Part, made: Made) {
        let Some((_, key)) = made.get(0) else { return };
        let parts = self.waiting.entry(part.buffer).or_default();
        if parts.is_empty() && self.current != Some(part.buffer) {
            self.order.push(Reverse((key, part.buffer)));
        }
        parts.push_back(Waiting { made, done: 0 });
    }

    /// The time of the next sample of a buffer.
    fn next(&self, buffer: usize) -> Option<u64> {
        let waiting = self.waiting.get(&buffer)?.front()?;
        Some(waiting.made.get(waiting.done)?.1)
    }

    /// The buffer whose sample is next, if that is earlier than `time`.
    fn choose(&mut self, time: u64) -> Option<usize> {
        let own = self.current.and_then(|current| self.next(current));
        let other = self.order.peek().map(|Reverse((key, _))| *key);
        if own.into_iter().chain(other).min()? >= time {
            return None;
        }
        if own.is_none_or(|own| other.is_some_and(|other| other < own)) {
            let Reverse((_, buffer)) = self.order.pop()?;
            let before = self.current.replace(buffer);
            self.order.extend(own.zip(before).map(Reverse));
        }
        self.current
    }

    /// Nothing that is added later is earlier than this time.
    fn release(&mut self, time: u64) -> Result<()> {
        while let Some(buffer) = self.choose(time) {
            let parts = self.waiting.entry(buffer).or_default();
            let Some(waiting) = parts.front_mut() else { continue };
            if let Some((sample, key)) = waiting.made.get(waiting.done) {
                self.out.push(sample, key);
            }
            waiting.done += 1;
            if waiting.made.get(waiting.done).is_none() {
                parts.pop_front();
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

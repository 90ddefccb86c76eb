//! Decodes all buffers on threads, into samples in the order of time.

use std::sync::{Arc, Mutex, PoisonError};

use perfx_auxtrace::{Part, UNIT, decode};
use perfx_pipeline::Result;

use super::context::Context;
use super::sampler::{Sampler, lost};
use crate::combine::Batches;
use crate::itrace::losses::Counts;
use crate::itrace::parts::{Merge, Skip, Spool, Turns};
use crate::itrace::producer::made_by;

/// Batches of samples, in the order of time. What was found is in `counts` when they are complete.
pub(super) fn of(context: Arc<Context>, counts: Arc<Mutex<Counts>>) -> Batches {
    made_by(move |hand_out| {
        let Context { recorded, code, events, threads, room, .. } = &*context;
        let samplers = (0..recorded.buffers.len()).map(|buffer| Sampler::new(&context, buffer));
        let turns = Turns::new(samplers, *threads > 1 && events.has_many(), room.clone());
        let counting = [&events.sampled.instructions, &events.sampled.cycles].into_iter().flatten();
        let skip = Skip::new(events.skip, counting, context.endian);
        let mut merge = Merge::new(skip, hand_out);
        add_lost(&context, &mut merge)?;
        let buffers = (&recorded.tracer, &recorded.buffers[..]);
        let clock = recorded.clock();
        // So that what is made of a part is seldom more than stays in memory.
        let size = if events.has_many() { UNIT / 32 } else { UNIT };
        decode(buffers, code, (*threads, size), &&turns, |part, made| {
            merge.release(if events.is_timed { clock.time(part.time) } else { 0 })?;
            merge.add(part, made)
        })?;
        *counts.lock().unwrap_or_else(PoisonError::into_inner) = turns.counts();
        merge.release(u64::MAX)?;
        merge.flush()
    })
}

/// Adds the records of data that the kernel lost, if they are wanted.
fn add_lost(context: &Context, merge: &mut Merge<'_>) -> Result<()> {
    if !context.events.lost {
        return Ok(());
    }
    let mut errors: Vec<_> = context.recorded.lost.iter().collect();
    errors.sort_by_key(|error| error.time);
    let mut made = Spool::new(context.room.clone());
    for error in errors {
        made.add(error.time, |bytes| bytes.extend(lost(error, context.endian)));
    }
    merge.add(Part { buffer: usize::MAX, trace: usize::MAX, number: 0, time: 0 }, made)
}

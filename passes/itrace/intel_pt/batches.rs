//! Decodes all buffers on threads into samples in time order.

use std::sync::{Arc, Mutex};

use perfx_auxtrace::Part;
use perfx_pipeline::Result;

use super::errors::lost;
use super::events::Context;
use super::sampler::Sampler;
use crate::combine::Batches;
use crate::itrace::losses::Counts;
use crate::itrace::parts::{Merge, SampleQueue, SerialReplay, SkipFirst, split};
use crate::itrace::producer::made_by;

/// Batches of samples, in time order. `counts` is set when they are complete.
pub(super) fn of(context: Arc<Context>, counts: Arc<Mutex<Counts>>) -> Batches {
    made_by(counts, move |hand_out| {
        let Context { tracer, code, events, threads, spill, endian, .. } = &*context;
        let samplers = (0..tracer.buffers.len()).map(|buffer| Sampler::new(&context, buffer));
        let replay = SerialReplay::new(samplers, spill.clone());
        let counting = [&events.sampled.instructions, &events.sampled.cycles].into_iter().flatten();
        let mut merge = Merge::new(SkipFirst::new(events.skip, counting, *endian), hand_out);
        add_lost(&context, &mut merge)?;
        let clock = tracer.clock();
        tracer.decode(code, split(*threads, events.has_many()), &&replay, |part, made| {
            context.progress.add(part.size);
            merge.release(if events.is_timed { clock.time(part.time) } else { 0 })?;
            merge.add(part, made)
        })?;
        merge.end()?;
        Ok(replay.counts())
    })
}

/// Adds the records of data that the kernel lost, if they are selected.
fn add_lost(context: &Context, merge: &mut Merge<'_>) -> Result<()> {
    if !context.events.lost {
        return Ok(());
    }
    let mut errors: Vec<_> = context.recorded.lost.iter().collect();
    errors.sort_by_key(|error| error.time);
    let mut made = SampleQueue::new(context.spill.clone());
    for error in errors {
        made.push(error.time, |bytes| bytes.extend(lost(error, context.endian)));
    }
    merge.add(Part { buffer: usize::MAX, trace: usize::MAX, number: 0, time: 0, size: 0 }, made)
}

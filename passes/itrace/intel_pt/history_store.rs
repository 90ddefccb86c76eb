//! Finds the history that recorded samples get from the trace.
//!
//! The traces are decoded once for this alone, before the samples are rewritten: when the [`Sampler`] of a
//! buffer reaches the time of a sample, it writes its history to a temporary file.

use std::io::{BufWriter, Write as _};

use perfx_auxtrace::IntelPt;
use perfx_format::{Bytes, Error};
use perfx_pipeline::Result;
use perfx_samples::Sampled;

use super::events::Context;
use super::history_plan::{HistoryPlan, read};
use super::sampler::Sampler;
use crate::itrace::losses::Counts;
use crate::itrace::parts::{SampleQueue, SerialReplay, split};
use crate::itrace::recorded::{History, RecordedSample};

/// The history of each recorded sample.
#[derive(Debug)]
pub(super) struct HistoryStore {
    /// The offset of each in the file; `u64::MAX` if it has none.
    places: Vec<u64>,
    file: Bytes,
}

impl HistoryStore {
    /// Decodes all; also returns the counts.
    pub(super) fn find(context: &Context, plan: &HistoryPlan) -> Result<(HistoryStore, Counts)> {
        let failed =
            |error| Error::io("a temporary file for call chains and branches can't be written", error);
        let file = context.spill.temp_file().map_err(failed)?;
        let mut out = BufWriter::new(file);
        let (mut places, mut end) = (vec![u64::MAX; plan.requests.len()], 0);
        let mut write = |mut made: SampleQueue| -> Result<()> {
            loop {
                let chunk = made.next()?;
                for number in 0.. {
                    let (Some(Sampled::Record(bytes)), Some(key)) = (chunk.get(number), chunk.key(number))
                    else {
                        break;
                    };
                    if let Some(place) = usize::try_from(key).ok().and_then(|key| places.get_mut(key)) {
                        *place = end;
                    }
                    out.write_all(bytes).map_err(failed)?;
                    end += bytes.len() as u64;
                }
                if chunk.count() == 0 {
                    return Ok(());
                }
            }
        };
        let Context { tracer, code, threads, spill, .. } = context;
        let samplers = (0..tracer.buffers.len()).map(|buffer| Sampler::for_requests(context, plan, buffer));
        let replay = SerialReplay::new(samplers, spill.clone());
        tracer.decode(code, split(*threads, false), &&replay, |_, made| write(made))?;
        let mut rest = SampleQueue::new(spill.clone());
        replay.each(|sampler| sampler.clone().serve_requests(u64::MAX, &mut rest));
        write(rest)?;
        let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
        Ok((HistoryStore { places, file: Bytes::map(&file)? }, replay.counts()))
    }

    pub(super) fn of(
        &self,
        plan: &HistoryPlan,
        sample: &RecordedSample,
        tracer: &IntelPt,
    ) -> Option<History> {
        let number = plan.requests.binary_search(&plan.find(sample, tracer)?).ok()?;
        let place = usize::try_from(*self.places.get(number)?).ok()?;
        read(self.file.get(place..)?)
    }
}

//! Finds what recorded samples get from the trace.
//!
//! The traces are decoded once for this alone, before the samples are rewritten: the [`Sampler`] of a buffer comes by the
//! times of the samples in order, and writes down what it knows there. That is in a temporary file until the samples pass.

use std::io::{BufWriter, Write as _};

use perfx_auxtrace::{Recorded, UNIT, decode};
use perfx_format::{Bytes, Error};
use perfx_pipeline::Result;

use super::asked::{Asking, read};
use super::context::Context;
use super::sampler::Sampler;
use crate::itrace::losses::Counts;
use crate::itrace::others::{History, RecordedSample};
use crate::itrace::parts::{Spool, Turns};

/// What was found for each of them.
#[derive(Debug)]
pub(super) struct Answers {
    /// Where it is in the file; `u64::MAX` if nothing is.
    places: Vec<u64>,
    file: Bytes,
}

impl Answers {
    /// Decodes all, and tells what was counted.
    pub(super) fn find(context: &Context, asking: &Asking) -> Result<(Answers, Counts)> {
        let failed =
            |error| Error::io("a temporary file for call chains and branches can't be written", error);
        let file = context.room.temp_file().map_err(failed)?;
        let mut out = BufWriter::new(file);
        let (mut places, mut end) = (vec![u64::MAX; asking.asked.len()], 0);
        let mut write = |mut made: Spool| -> Result<()> {
            loop {
                let chunk = made.next()?;
                for number in 0.. {
                    let Some((bytes, key)) = chunk.get(number) else { break };
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
        let recorded = &context.recorded;
        let samplers = (0..recorded.buffers.len()).map(|buffer| Sampler::asked(context, asking, buffer));
        let turns = Turns::new(samplers, false, context.room.clone());
        let buffers = (&recorded.tracer, &recorded.buffers[..]);
        decode(buffers, &context.code, (context.threads, UNIT), &&turns, |_, made| write(made))?;
        let mut rest = Spool::new(context.room.clone());
        turns.each(|sampler| sampler.clone().answer(u64::MAX, &mut rest));
        write(rest)?;
        let file = out.into_inner().map_err(|error| failed(error.into_error()))?;
        Ok((Answers { places, file: Bytes::map(&file)? }, turns.counts()))
    }

    /// What a sample gets.
    pub(super) fn of(
        &self,
        asking: &Asking,
        sample: &RecordedSample,
        recorded: &Recorded,
    ) -> Option<History> {
        let number = asking.asked.binary_search(&asking.find(sample, recorded)?).ok()?;
        let place = usize::try_from(*self.places.get(number)?).ok()?;
        read(self.file.get(place..)?)
    }
}

//! Makes samples from traces of CoreSight, as perf 7.3 does.
//!
//! AUX data is decoded piece by piece. A piece is what one AUX record wrote, and holds the traces of several
//! CPUs. If all trace units take timestamps from the virtual counter, samples have the times that perf
//! estimates from these. Otherwise perf gives them the time of the last AUX record that it has read; here
//! they get the time of their own AUX record. Without timestamps, perf decodes each thread by itself, and
//! samples have no time.

mod events;
mod sampler;
mod times;

use std::sync::{Arc, Mutex, PoisonError};

use perfx_auxtrace::{CoreSight, PieceOrder, Recorded};
use perfx_pipeline::{Begin, Context as _, Level, Report, Result, Session, Stage};
use perfx_resolve::IdOptions;

use self::events::{Clock, Context, Events};
use self::sampler::Sampler;
use super::apart::TraceProgress;
use super::found::{Found, NAME};
use super::losses::Counts;
use super::options::ItraceOptions;
use super::parts::{Merge, SerialReplay, SkipFirst, split};
use super::producer::{HandOut, made_by};
use super::step::{Decode, Decoder};
use crate::combine::{Batches, Combine};

pub(super) fn stage(
    options: &ItraceOptions,
    ids: &IdOptions,
    (tracer, recorded): (CoreSight, Recorded),
    found: Found,
    session: &Session,
) -> Result<Stage> {
    let in_file = || session.name.to_string();
    let events = Events::of(options, &tracer, &session.events).with_context(in_file)?;
    let decoded = events.sampled.decoded();
    let (no_clock, size) = (perfx_auxtrace::Clock { conv: None }, tracer.size());
    let context = Context::new((tracer, no_clock, events), size, recorded, ids, &found.build_ids, session)?;
    let etm = Etm { context: Arc::new(context), counts: Arc::default() };
    Ok(Combine::with_step(NAME, Decode::new(etm, decoded, found)).stage())
}

/// Decodes all pieces, and hands out samples in time order or, without times, buffer by buffer.
fn decode(context: &Context, hand_out: &mut HandOut<'_>) -> Result<Counts> {
    let Context { tracer, code, endian, events, threads, spill, .. } = context;
    let buffers = tracer.pieces.iter().map(|piece| piece.buffer + 1).max().unwrap_or(0);
    let samplers = (0..buffers * tracer.units.len()).map(|_| Sampler::new(context));
    let replay = SerialReplay::new(samplers, spill.clone());
    let mut merge = Merge::new(SkipFirst::new(0, [], *endian), hand_out);
    let conv = if let Clock::Virtual(conv) = events.clock { Some(conv) } else { None };
    let order = PieceOrder { pieces: order(context), conv };
    let split = split(*threads, events.has_many());
    let (_, unknown_units) = tracer.decode(code, split, order, &&replay, |part, made| {
        context.progress.add(part.size);
        // Without timestamps, all samples of a part have one time, and are in the order of the parts.
        merge.release(if conv.is_some() { part.time } else { u64::MAX })?;
        merge.add(part, made)
    })?;
    merge.end()?;
    Ok(Counts { unknown_units, ..replay.counts() })
}

/// The order in which to decode pieces. No sample of a piece or of later pieces is before the piece's time.
fn order(Context { tracer, events, .. }: &Context) -> Vec<(usize, u64)> {
    let pieces = tracer.pieces.iter().enumerate();
    let mut pieces: Vec<(usize, u64)> = match events.clock {
        Clock::None => pieces.map(|(number, piece)| (number, piece.buffer as u64)).collect(),
        Clock::Records => pieces.map(|(number, piece)| (number, piece.time)).collect(),
        Clock::Virtual(conv) => {
            let mut latest = vec![0; tracer.pieces.iter().map(|piece| piece.buffer + 1).max().unwrap_or(0)];
            let times = pieces.map(|(number, piece)| {
                let latest = &mut latest[piece.buffer];
                *latest = tracer.begin(piece, &conv).unwrap_or(0).max(*latest);
                (number, *latest)
            });
            times.collect()
        }
    };
    pieces.sort_by_key(|(_, time)| *time);
    pieces
}

struct Etm {
    context: Arc<Context>,
    counts: Arc<Mutex<Counts>>,
}

impl Decoder for Etm {
    fn begin(&mut self, session: &mut Begin<'_>) -> Result<()> {
        let what = match self.context.events.clock {
            Clock::None => "decoded samples have no time: the trace has no timestamps, or Z leaves them out",
            Clock::Records => {
                "decoded samples have the times of AUX records: no record says which counter timestamps are of; T \
                 takes them for the one of TIME_CONV"
            }
            Clock::Virtual(_) => return Ok(()),
        };
        session.report.say(Level::Info, what);
        Ok(())
    }

    fn samples(&mut self) -> Option<Batches> {
        let context = self.context.clone();
        Some(made_by(self.counts.clone(), move |hand_out| decode(&context, hand_out)))
    }

    fn progress(&self) -> TraceProgress {
        self.context.progress.clone()
    }

    fn finish(&mut self, report: &mut Report) {
        let Context { code, recorded, .. } = &*self.context;
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.say("CoreSight", code, recorded, report);
    }
}

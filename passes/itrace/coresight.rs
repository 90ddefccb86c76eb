//! Makes samples of the traces of CoreSight, as perf 7.3 does.
//!
//! The AUX data is decoded piece by piece: each holds the traces of several CPUs, and is what one AUX record wrote. If all
//! trace units take their timestamps from the virtual counter, samples have the times that perf estimates from these. Else
//! perf gives them the time of the last AUX record that it has read; here they have that of their own. If the trace has
//! no timestamps, perf decodes each thread by itself, and samples have no time.

mod context;
mod sampler;
mod times;

use std::sync::{Arc, Mutex, PoisonError};

use perfx_auxtrace::{Recorded, UNIT};
use perfx_format::read::StoredBytes;
use perfx_format::{Layouts, Record};
use perfx_pipeline::{Begin, Context as _, Level, Report, Result, Session, Stage, counted};
use perfx_resolve::IdOptions;

use self::context::{Clock, Context, Events};
use self::sampler::Sampler;
use super::code;
use super::found::{Found, NAME};
use super::losses::Counts;
use super::options::ItraceOptions;
use super::parts::{Merge, Room, Skip, Turns};
use super::producer::{HandOut, made_by};
use super::step::{Decode, Decoder};
use crate::combine::{Batches, Combine};

/// The stage that decodes the recording.
pub(super) fn stage(
    (options, letters): (&ItraceOptions, &str),
    places: &IdOptions,
    found: Found,
    stored: &StoredBytes,
    session: &Session,
) -> Result<Stage> {
    let in_file = || session.name.to_string();
    options.check_for_coresight(letters).with_context(in_file)?;
    let mut recorded = found.traces.done_coresight(stored).with_context(in_file)?;
    let events = Events::of(options, &recorded.tracer, &session.events).with_context(in_file)?;
    let no_clock = perfx_auxtrace::Clock { conv: None };
    let code = code::of(places, &mut recorded, no_clock, &found.build_ids, session)?;
    let decoded = events.sampled.decoded();
    let (endian, threads, is_named) = (session.endian, session.threads, recorded.tracer.names_threads());
    let room = Room::new(session.temp_files());
    let context = Arc::new(Context { recorded, code, events, endian, is_named, threads, room });
    let etm = Etm { context, counts: Arc::default() };
    Ok(Combine::with_step(NAME, Decode::new(etm, (decoded, options.events_only), found.names)).stage())
}

/// Decodes all, and hands on what is made, in the order of time; what has no time, one buffer after the other.
fn decode(context: &Context, hand_out: &mut HandOut<'_>) -> Result<Counts> {
    let Context { recorded: Recorded { tracer, .. }, code, endian, events, threads, room, .. } = context;
    let buffers = tracer.pieces.iter().map(|piece| piece.buffer + 1).max().unwrap_or(0);
    let samplers = (0..buffers * tracer.units.len()).map(|_| Sampler::new(context));
    let turns = Turns::new(samplers, *threads > 1 && events.has_many(), room.clone());
    let mut merge = Merge::new(Skip::new(0, [], *endian), hand_out);
    let conv = if let Clock::Virtual(conv) = events.clock { Some(conv) } else { None };
    // So that what is made of a part is seldom more than stays in memory.
    let size = if events.has_many() { UNIT / 32 } else { UNIT };
    let pieces = (order(context).into_iter(), conv);
    let (_, unknown_units) = tracer.decode(code, (*threads, size), pieces, &&turns, |part, made| {
        // Without timestamps, all samples of a part have one time, and come in the order of the parts.
        merge.release(if conv.is_some() { part.time } else { u64::MAX })?;
        merge.add(part, made)
    })?;
    merge.release(u64::MAX)?;
    merge.flush()?;
    Ok(Counts { unknown_units, ..turns.counts() })
}

/// The order in which pieces are decoded, with times before which no sample of them is, nor of those behind them.
fn order(Context { recorded: Recorded { tracer, .. }, events, .. }: &Context) -> Vec<(usize, u64)> {
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

/// Makes samples.
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
        let (context, counts) = (self.context.clone(), self.counts.clone());
        Some(made_by(move |hand_out| {
            let found = decode(&context, hand_out)?;
            *counts.lock().unwrap_or_else(PoisonError::into_inner) = found;
            Ok(())
        }))
    }

    fn see(&mut self, _record: &Record<'_>, _layouts: &Layouts) {}

    fn finish(&mut self, report: &mut Report) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = counted(counts.samples, "sample", "samples");
        let instructions = counted(counts.instructions, "instruction", "instructions");
        report.say(Level::Info, format!("made {samples} of {instructions} that CoreSight traced"));
        perfx_auxtrace::say_used(&self.context.code, report);
        counts.say(&self.context.recorded, report);
    }
}

//! Makes samples of the traces of CoreSight, as perf 7.3 does.
//!
//! The pieces of the AUX data are decoded one after the other: each holds the traces of several CPUs, and is what one
//! AUX record wrote. perf gives samples the time of the last record that it read; here they have that of the AUX record.
//! If the trace has no timestamps, perf decodes each thread by itself, and samples have no time.

mod context;
mod out;
mod sampler;

use std::cell::RefCell;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use perfx_auxtrace::{Clock, Recorded};
use perfx_format::read::StoredBytes;
use perfx_format::{Layouts, Record};
use perfx_pipeline::{Begin, Context as _, Emit, Level, Report, Result, Session, Stage, counted};
use perfx_resolve::IdOptions;
use perfx_trace::{Trace, coresight};

use self::context::{Context, Events};
use self::out::Out;
use self::sampler::{At, Sampler};
use super::code;
use super::found::{Found, NAME};
use super::losses::Counts;
use super::made::Made;
use super::options::ItraceOptions;
use super::producer::made_by;
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
    let events = Events::of(options, recorded.tracer.pmu_type, &session.events).with_context(in_file)?;
    let code = code::of(places, &mut recorded, Clock { conv: None }, &found.build_ids, session);
    let decoded = events.sampled.decoded();
    let context = Arc::new(Context { recorded, code, events, endian: session.endian });
    let etm = Etm { context, counts: Arc::default() };
    Ok(Combine::with_step(NAME, Decode::new(etm, decoded, found.names)).stage())
}

/// Decodes all, and hands on what is made, in the order of time; what has no time, one buffer after the other.
fn decode(context: &Context, done: &mut dyn FnMut(Made) -> Result<()>) -> Result<Counts> {
    let Context { recorded: Recorded { tracer, .. }, code, endian, events } = context;
    let mut counts = Counts::default();
    let Some(first) = tracer.units.values().next() else { return Ok(counts) };
    let (image, is_named) = (tracer.image(code), tracer.names_threads());
    let mut decoder = coresight::Decoder::new(&image, &first.config);
    let out = RefCell::new(Out::new(*endian, done));
    // The state of each trace; in the buffer of a thread, those of all CPUs are one.
    let mut samplers: HashMap<(usize, Option<u8>), Sampler<'_, '_>> = HashMap::new();
    let mut pieces: Vec<_> = tracer.pieces.iter().collect();
    pieces.sort_by_key(|piece| if events.timed { piece.time } else { piece.buffer as u64 });
    for piece in pieces {
        for (id, bytes) in piece.streams() {
            let Some(unit) = tracer.units.get(&id) else {
                counts.unknown_units += 1;
                continue;
            };
            let of_cpu = (piece.cpu != perfx_format::record::aux::Auxtrace::ANY).then_some(id);
            let sampler = samplers
                .entry((piece.buffer, of_cpu))
                .or_insert_with(|| Sampler::new(&context.events, context.endian, &out));
            sampler.turn(At { context, cpu: unit.cpu, time: piece.time, is_named });
            let trace = Trace::new(vec![&bytes], piece.switches.clone());
            for part in coresight::units(&trace, &unit.config, u64::MAX) {
                decoder.decode(&unit.config, &trace, &part, sampler);
            }
            sampler.end_piece();
        }
        out.borrow_mut().check()?;
    }
    samplers.values().for_each(|sampler| counts.add(&sampler.counts));
    out.borrow_mut().end()?;
    Ok(counts)
}

/// Makes samples.
#[derive(Debug)]
struct Etm {
    context: Arc<Context>,
    counts: Arc<Mutex<Counts>>,
}

impl Decoder for Etm {
    fn begin(&mut self, session: &mut Begin<'_>) {
        if !self.context.events.timed {
            let what = "the trace has no timestamps, so decoded samples have no time";
            session.report.say(Level::Info, what);
        }
    }

    fn samples(&mut self) -> Option<Batches> {
        let (context, counts) = (self.context.clone(), self.counts.clone());
        Some(made_by(move |hand_out| {
            let found = decode(&context, &mut |made| hand_out(made.prepared()?))?;
            *counts.lock().unwrap_or_else(PoisonError::into_inner) = found;
            Ok(())
        }))
    }

    fn sample(&mut self, record: Record<'_>, _layouts: &Layouts, out: &mut Emit<'_>) -> Result<()> {
        out.keep(record)
    }

    fn see(&mut self, _record: &Record<'_>, _layouts: &Layouts) {}

    fn finish(&mut self, report: &mut Report) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = counted(counts.samples, "sample", "samples");
        let instructions = counted(counts.instructions, "instruction", "instructions");
        report.say(Level::Info, format!("made {samples} of {instructions} that CoreSight traced"));
        code::say_used(&self.context.code, report);
        counts.say(&self.context.recorded, report);
    }
}

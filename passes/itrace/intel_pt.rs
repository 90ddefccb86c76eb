//! Makes samples of the traces of Intel PT, as perf 7.3 does.

mod batches;
mod context;
mod cycles;
mod events;
mod rare;
mod sampler;
mod stacks;

use std::sync::{Arc, Mutex, PoisonError};

use perfx_format::read::StoredBytes;
use perfx_format::{Layouts, Record};
use perfx_pipeline::{Begin, Context as _, Emit, Level, Report, Result, Session, Stage, counted};
use perfx_trace::intel_pt::Walk;

use self::context::Context;
use self::events::Events;
use super::code;
use super::found::{Found, NAME};
use super::losses::Counts;
use super::options::ItraceOptions;
use super::parts::Room;
use super::step::{Decode, Decoder};
use crate::combine::{Batches, Combine};
use perfx_resolve::IdOptions;

/// The stage that decodes the recording.
pub(super) fn stage(
    (options, letters): (&ItraceOptions, &str),
    places: &IdOptions,
    found: Found,
    stored: &StoredBytes,
    session: &Session,
) -> Result<Stage> {
    let in_file = || session.name.to_string();
    options.check_for_pt(letters).with_context(in_file)?;
    let mut recorded = found.traces.done(stored, &session.events).with_context(in_file)?;
    let events = Events::of(options, &recorded, &session.events).with_context(in_file)?;
    recorded.tracer.config.counts_cycles = events.cycles.is_some();
    recorded.tracer.config.walk = match options.quick {
        0 => Walk::Code,
        1 => Walk::Addresses,
        _ => Walk::Syncs,
    };
    let clock = recorded.clock();
    let code = code::of(places, &mut recorded, clock, &found.build_ids, session);
    let decoded = events.decoded();
    let (endian, threads) = (session.endian, session.threads);
    let room = Room { temp_files: session.temp_files(), endian };
    let context = Context { recorded, code, events, endian, threads, room };
    let pt = Pt { context: Arc::new(context), counts: Arc::default() };
    Ok(Combine::with_step(NAME, Decode::new(pt, decoded, found.names)).stage())
}

/// Makes samples.
#[derive(Debug)]
struct Pt {
    context: Arc<Context>,
    counts: Arc<Mutex<Counts>>,
}

impl Decoder for Pt {
    fn begin(&mut self, session: &mut Begin<'_>) {
        if self.context.recorded.clock().conv.is_none() {
            let what = "the time-stamp counter cannot be converted to times, so decoded samples have none";
            session.report.say(Level::Warning, what);
        }
    }

    fn samples(&mut self) -> Option<Batches> {
        Some(batches::of(self.context.clone(), self.counts.clone()))
    }

    fn sample(&mut self, record: Record<'_>, _layouts: &Layouts, out: &mut Emit<'_>) -> Result<()> {
        out.keep(record)
    }

    fn see(&mut self, _record: &Record<'_>, _layouts: &Layouts) {}

    fn finish(&mut self, report: &mut Report) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = counted(counts.samples, "sample", "samples");
        let instructions = counted(counts.instructions, "instruction", "instructions");
        report.say(Level::Info, format!("made {samples} of {instructions} that Intel PT traced"));
        code::say_used(&self.context.code, report);
        counts.say(&self.context.recorded, report);
    }
}

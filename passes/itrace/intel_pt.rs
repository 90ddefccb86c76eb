//! Makes samples of the traces of Intel PT, as perf 7.3 does.

mod answers;
mod asked;
mod batches;
mod context;
mod cycles;
mod events;
mod pebs;
mod rare;
mod sampler;
mod stacks;

use std::sync::{Arc, Mutex, PoisonError};

use perfx_auxtrace::Recorded;
use perfx_format::read::StoredBytes;
use perfx_format::{Layouts, Record, sample_type as st};
use perfx_pipeline::{Begin, Context as _, Level, Report, Result, Session, Stage, counted};
use perfx_resolve::IdOptions;
use perfx_trace::intel_pt::Walk;

use self::answers::Answers;
use self::asked::Asking;
use self::context::Context;
use self::events::Events;
use super::code;
use super::found::{Found, NAME};
use super::losses::Counts;
use super::options::ItraceOptions;
use super::others::{History, RecordedSample};
use super::parts::Room;
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
    let code = code::of(places, &mut recorded, clock, &found.build_ids, session)?;
    let decoded = events.decoded();
    let (endian, threads) = (session.endian, session.threads);
    let room = Room::new(session.temp_files());
    let mut asking = None;
    if options.changes_others() {
        let events = asked_events(options, &recorded, session).with_context(in_file)?;
        let most = (options.stack_of_others as usize, options.chain_of_others as usize);
        asking = Some(Asking::new(found.samples, &recorded, events, most));
    }
    let begins = recorded.begins();
    let is_empty = decoded.is_empty() && events.pebs.is_empty() && !options.errors;
    let context = Context { recorded, begins, code, events, endian, threads, room };
    let events_only = options.events_only;
    let context = Arc::new(context);
    let pt = Pt { context, counts: Arc::default(), asking, answers: None, is_empty, events_only };
    Ok(Combine::with_step(NAME, Decode::new(pt, (decoded, events_only), found.names)).stage())
}

/// What is kept of the trace to tell what was before recorded samples. In the kernel, they are taken some time after their
/// event: perf keeps so many more branches.
fn asked_events(options: &ItraceOptions, recorded: &Recorded, session: &Session) -> Result<Events> {
    const BEHIND: u64 = 1024;
    let traces_kernel = session.events.iter().any(|event| {
        u64::from(event.attr().type_) == recorded.tracer.info.pmu_type && !event.attr().flag(EXCLUDE_KERNEL)
    });
    let stack = match options.stack_of_others {
        0 => 0,
        stack => stack + if traces_kernel { BEHIND } else { 1 },
    };
    let (chain, timeless) = (options.chain_of_others, options.timeless);
    let options = ItraceOptions { stack, chain, timeless, ..ItraceOptions::default() };
    Events::of(&options, recorded, &session.events)
}

/// Bit of the flags of an attr: nothing in the kernel is traced.
const EXCLUDE_KERNEL: u32 = 5;

/// Makes samples.
struct Pt {
    context: Arc<Context>,
    counts: Arc<Mutex<Counts>>,
    /// What recorded samples get.
    asking: Option<Asking>,
    answers: Option<Answers>,
    /// There are no samples but the recorded ones.
    is_empty: bool,
    /// Nothing needs to be decoded.
    events_only: bool,
}

impl Decoder for Pt {
    fn begin(&mut self, session: &mut Begin<'_>) -> Result<()> {
        if self.context.recorded.clock().conv.is_none() {
            let what = "the time-stamp counter cannot be converted to times, so decoded samples have none";
            session.report.say(Level::Warning, what);
        }
        if let Some(asking) = self.asking.as_ref().filter(|_| !self.events_only) {
            let (answers, counts) = Answers::find(&self.context, asking)?;
            self.answers = Some(answers);
            self.counts = Arc::new(Mutex::new(counts));
        }
        Ok(())
    }

    fn parts_of_others(&self) -> u64 {
        self.asking.as_ref().map_or(0, |asking| {
            let chain = if asking.chain > 0 { st::CALLCHAIN } else { 0 };
            chain | if asking.stack > 0 { st::BRANCH_STACK } else { 0 }
        })
    }

    fn history(&self, sample: &RecordedSample) -> Option<History> {
        self.answers.as_ref()?.of(self.asking.as_ref()?, sample, &self.context.recorded)
    }

    fn samples(&mut self) -> Option<Batches> {
        (!self.is_empty).then(|| batches::of(self.context.clone(), self.counts.clone()))
    }

    fn see(&mut self, _record: &Record<'_>, _layouts: &Layouts) {}

    fn finish(&mut self, report: &mut Report) {
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = counted(counts.samples, "sample", "samples");
        let instructions = counted(counts.instructions, "instruction", "instructions");
        report.say(Level::Info, format!("made {samples} of {instructions} that Intel PT traced"));
        perfx_auxtrace::say_used(&self.context.code, report);
        counts.say(&self.context.recorded, report);
    }
}

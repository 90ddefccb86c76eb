//! Makes samples from traces of Intel PT, as perf 7.3 does.

mod batches;
mod cycles;
mod errors;
mod events;
mod history_plan;
mod history_store;
mod non_flow_events;
mod pebs;
mod period;
mod sampler;

use std::sync::{Arc, Mutex, PoisonError};

use perfx_auxtrace::{IntelPt, Recorded, Task};
use perfx_format::sample_type as st;
use perfx_pipeline::{Begin, Context as _, Level, Report, Result, Session, Stage};
use perfx_resolve::IdOptions;
use perfx_trace::intel_pt::Walk;

use self::events::{Context, Events};
use self::history_plan::HistoryPlan;
use self::history_store::HistoryStore;
use super::apart::TraceProgress;
use super::found::{Found, NAME};
use super::losses::Counts;
use super::options::ItraceOptions;
use super::recorded::{History, RecordedSample};
use super::step::{Decode, Decoder};
use crate::combine::{Batches, Combine};

pub(super) fn stage(
    options: &ItraceOptions,
    ids: &IdOptions,
    (mut tracer, recorded): (IntelPt, Recorded),
    mut found: Found,
    session: &Session,
) -> Result<Stage> {
    let in_file = || session.name.to_string();
    let events = Events::of(options, &tracer, &recorded.tasks, &session.events).with_context(in_file)?;
    tracer.config.counts_cycles = events.cycles.is_some();
    tracer.config.walk = match options.quick {
        0 => Walk::Code,
        1 => Walk::Addresses,
        _ => Walk::Syncs,
    };
    let mut plan = None;
    if options.extends_recorded() {
        let events = history_events(options, &tracer, &recorded.tasks, session).with_context(in_file)?;
        let most = (options.recorded_stack as usize, options.recorded_chain as usize);
        plan = Some(HistoryPlan::new(std::mem::take(&mut found.samples), &tracer, events, most));
    }
    let decoded = events.decoded();
    let is_empty = decoded.is_empty() && events.pebs.is_empty() && !options.errors;
    let (clock, size) = (tracer.clock(), tracer.size());
    let context = Context::new((tracer, clock, events), size, recorded, ids, &found.build_ids, session)?;
    let context = Arc::new(context);
    let pt = Pt { context, counts: Arc::default(), plan, store: None, is_empty };
    Ok(Combine::with_step(NAME, Decode::new(pt, decoded, found)).stage())
}

/// The events to keep for the history of recorded samples. The kernel takes samples some time after their
/// event, so if it is traced, more branches are kept, as in perf.
fn history_events(
    options: &ItraceOptions,
    tracer: &IntelPt,
    tasks: &[Task],
    session: &Session,
) -> Result<Events> {
    const BEHIND: u64 = 1024;
    let traces_kernel = session.events.iter().any(|event| {
        u64::from(event.attr().type_) == tracer.info.pmu_type && !event.attr().flag(EXCLUDE_KERNEL)
    });
    let stack = match options.recorded_stack {
        0 => 0,
        stack => stack + if traces_kernel { BEHIND } else { 1 },
    };
    let (chain, timeless) = (options.recorded_chain, options.timeless);
    let options = ItraceOptions { stack, chain, timeless, ..ItraceOptions::default() };
    Events::of(&options, tracer, tasks, &session.events)
}

/// Bit of an attr's flags: nothing in the kernel is traced.
const EXCLUDE_KERNEL: u32 = 5;

struct Pt {
    context: Arc<Context>,
    counts: Arc<Mutex<Counts>>,
    /// The history that recorded samples get.
    plan: Option<HistoryPlan>,
    store: Option<HistoryStore>,
    /// No samples are made; there are only the recorded ones.
    is_empty: bool,
}

impl Decoder for Pt {
    fn begin(&mut self, session: &mut Begin<'_>) -> Result<()> {
        if self.context.tracer.clock().conv.is_none() {
            let what = "the time-stamp counter cannot be converted to times, so decoded samples have none";
            session.report.say(Level::Warning, what);
        }
        if let Some(plan) = &self.plan {
            let (store, counts) = HistoryStore::find(&self.context, plan)?;
            self.store = Some(store);
            self.counts = Arc::new(Mutex::new(counts));
        }
        Ok(())
    }

    fn recorded_parts(&self) -> u64 {
        self.plan.as_ref().map_or(0, |plan| {
            let chain = if plan.chain > 0 { st::CALLCHAIN } else { 0 };
            chain | if plan.stack > 0 { st::BRANCH_STACK } else { 0 }
        })
    }

    fn history(&self, sample: &RecordedSample) -> Option<History> {
        self.store.as_ref()?.of(self.plan.as_ref()?, sample, &self.context.tracer)
    }

    fn samples(&mut self) -> Option<Batches> {
        (!self.is_empty).then(|| batches::of(self.context.clone(), self.counts.clone()))
    }

    fn progress(&self) -> TraceProgress {
        self.context.progress.clone()
    }

    fn makes_recorded(&self) -> bool {
        !self.context.events.pebs.is_empty()
    }

    fn finish(&mut self, report: &mut Report) {
        let Context { code, recorded, .. } = &*self.context;
        let counts = self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        counts.say("Intel PT", code, recorded, report);
    }
}

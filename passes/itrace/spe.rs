//! Makes samples of the records of Arm SPE.
//!
//! The model is perf 7.3: its events, ids, names and samples. One difference: perf 7.3 also reports a branch
//! record as one of memory if the branch is a call or a return, because it tests a bit that means something
//! else there.

mod decode;
mod events;
mod stack;

use std::sync::{Arc, Mutex, PoisonError};

use perfx_auxtrace::{say_spe_losses, say_unknown_threads};
use perfx_format::read::StoredBytes;
use perfx_format::record::aux::Auxtrace;
use perfx_format::{Feature, Layout, Layouts, Record};
use perfx_model::spe::{Running, TaskChange};
use perfx_pipeline::{Begin, Context as _, Level, Report, Result, Session, Stage, bail, counted};

use self::decode::{Counts, Samples};
use self::events::Events;
use super::found::{Found, NAME};
use super::options::ItraceOptions;
use super::step::{Decode, Decoder};
use crate::combine::{Batches, Combine};

pub(super) fn stage(
    options: &ItraceOptions,
    mut found: Found,
    stored: StoredBytes,
    session: &Session,
) -> Result<Stage> {
    let Some(spe) = found.spe.spe() else { bail!("internal error: no AUX data of Arm SPE") };
    let events = options.check_for_spe();
    let events = events.and_then(|()| Events::of(options, spe.pmu_type, &session.events));
    let events = events.with_context(|| session.name.to_string())?;
    let (conv, endian, counts) = (found.spe.conv(), session.endian, Arc::default());
    let cpuid = session.feature(Feature::CPUID).map(|section| &section[..]);
    let records = std::mem::take(&mut found.spe).records(stored, cpuid, endian, events.has_time);
    let decoded = events.decoded();
    let total = Arc::clone(&counts);
    let samples = Samples { records, events, conv, endian, skipped: Vec::new(), samples: 0, total };
    let spe = Spe { samples: Some(samples), running: Running::default(), unknown: 0, counts };
    Ok(Combine::with_step(NAME, Decode::new(spe, decoded, found)).stage())
}

/// Makes samples, and finds their threads.
#[derive(Debug)]
struct Spe {
    samples: Option<Samples>,
    running: Running,
    /// The number of samples without a known thread.
    unknown: u64,
    counts: Arc<Mutex<Counts>>,
}

impl Decoder for Spe {
    fn begin(&mut self, session: &mut Begin<'_>) -> Result<()> {
        if self.samples.as_ref().is_some_and(|samples| samples.conv.is_none() && samples.events.has_time) {
            let what =
                "there is no TIME_CONV record, so the times of decoded samples are unknown: they are 0";
            session.report.say(Level::Warning, what);
        }
        Ok(())
    }

    fn samples(&mut self) -> Option<Batches> {
        Some(Box::new(self.samples.take()?))
    }

    fn completes(&self) -> bool {
        false
    }

    fn task(&mut self, record: &Record<'_>, layout: &Layout) -> Option<(u32, u32)> {
        let cpu = layout.cpu(record).unwrap_or(Auxtrace::ANY);
        let (_, tid) = layout.pid_tid(record).unwrap_or((Auxtrace::ANY, Auxtrace::ANY));
        let (pid, tid) = self.running.task(cpu, tid);
        self.unknown += u64::from(tid == Auxtrace::ANY);
        Some((pid, tid))
    }

    fn see(&mut self, record: &Record<'_>, layouts: &Layouts) {
        if let Some(change) = TaskChange::of(record, layouts) {
            self.running.learn(change);
        }
    }

    fn finish(&mut self, report: &mut Report) {
        let (counts, samples) = *self.counts.lock().unwrap_or_else(PoisonError::into_inner);
        let samples = counted(samples, "sample", "samples");
        let records = counted(counts.records, "record", "records");
        report.say(Level::Info, format!("made {samples} of {records} of Arm SPE"));
        say_spe_losses(counts, report);
        say_unknown_threads(self.unknown, "samples", report);
    }
}

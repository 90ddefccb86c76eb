//! `sched-stat` merges each sched_stat_* sample with the preceding sched_switch sample of its task, as `perf
//! inject -s` does: the result has the call chain of the switch, and the waiting time as its period.
//!
//! The sched_stat_* sample is in the buffer of the CPU that woke the task up, the sched_switch sample in that
//! of the CPU that it left. So they are matched in time order, which is also the order of the output.

use std::collections::HashSet;

use clap::Args;
use perfx_format::{Record, RecordType, Task, sample_type as st};
use perfx_pipeline::{Begin, Emit, Level, Pass, Report, Result, counted};

use crate::combine::{Combine, Step};
use crate::support::options::PassOptions;
use crate::support::switched_out::SwitchedOut;
use crate::support::tracepoints::{Role, Tracepoints};

/// The options of `sched-stat`, which has none.
#[derive(Args, Clone, Copy, Debug)]
pub struct SchedStatArgs {}

impl PassOptions for SchedStatArgs {
    const NAME: &'static str = "sched-stat";
    const ABOUT: &'static str = "merge sched_stat_* samples with the sched_switch samples before them";

    fn pass(self) -> Result<Box<dyn Pass>> {
        Ok(Box::new(sched_stat()))
    }
}

/// The pass.
pub fn sched_stat() -> Combine {
    Combine::with_step(SchedStatArgs::NAME, MergeStats::default())
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Event {
    Switch,
    Exit,
    /// Field 0 is the tid of the task that waited, and the period is its waiting time, ns.
    Stat,
}

impl Role for Event {
    fn of(name: &[u8]) -> Option<(Event, &'static [&'static str])> {
        match name {
            b"sched_switch" => Some((Event::Switch, &[])),
            b"sched_process_exit" => Some((Event::Exit, &[])),
            name if name.starts_with(b"sched_stat_") => Some((Event::Stat, &["pid"])),
            _ => None,
        }
    }

    fn needs(self) -> u64 {
        match self {
            Event::Switch => st::TID | st::TIME | st::PERIOD,
            Event::Exit => st::TID,
            Event::Stat => st::TIME | st::PERIOD | st::RAW,
        }
    }
}

#[derive(Debug, Default)]
struct MergeStats {
    events: Tracepoints<Event>,
    switched_out: SwitchedOut,
    merged: u64,
    switched: HashSet<u32>,
    /// The sched_stat_* samples of tasks that were off the CPU when the recording began.
    early: u64,
    /// The other sched_stat_* samples without the sched_switch sample of their task.
    alone: u64,
}

impl Step for MergeStats {
    fn begin(&mut self, session: &mut Begin<'_>) -> Result<bool> {
        self.events = Tracepoints::of(session)?;
        for (event, name) in [(Event::Switch, "sched:sched_switch"), (Event::Stat, "sched:sched_stat_*")] {
            if !self.events.any(|role| role == event) {
                let what = format!("there is no event {name}, so there is nothing to merge");
                session.report.say(Level::Warning, what);
                return Ok(false);
            }
        }
        Ok(true)
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<bool> {
        let layouts = out.layouts();
        if record.kind() == RecordType::FORK {
            // If exits were not recorded, a new task may have the tid of an old one.
            if let Some(task) = Task::of(&record) {
                self.switched_out.remove(task.tid);
            }
            out.keep(record)?;
            return Ok(false);
        }
        let event = self.events.get(&record, layouts);
        let Some((event, layout)) = event.zip(layouts.layout_of(&record)) else {
            out.keep(record)?;
            return Ok(record.kind() == RecordType::SAMPLE);
        };
        let (_, tid) = layout.pid_tid(&record).unwrap_or_default();
        match event.role {
            Event::Switch => {
                self.switched.insert(tid);
                self.switched_out.insert(tid, &record, layouts);
            }
            Event::Exit => {
                self.switched_out.remove(tid);
            }
            Event::Stat => {
                let waited = layout.period(&record);
                let task = event.field(0, &record, layouts)? as u32;
                let time = layout.recorded_time(&record).unwrap_or(0);
                let period = |_| waited.unwrap_or(0);
                if let Some(switch) = self.switched_out.sample_at(task, time, period, record.endian()) {
                    self.merged += 1;
                    out.replace(&record, &switch)?;
                    return Ok(true);
                }
                let is_early = !self.switched.contains(&task);
                *if is_early { &mut self.early } else { &mut self.alone } += 1;
            }
        }
        out.drop_record(record);
        Ok(false)
    }

    fn finish(self: Box<Self>, report: &mut Report) {
        let merged = counted(self.merged, "sched_stat_* sample was", "sched_stat_* samples were");
        let what = format!("{merged} merged with the sched_switch samples of their tasks");
        report.say(Level::Info, what);
        let left_out = |count, why| {
            let samples = counted(count, "sched_stat_* sample was", "sched_stat_* samples were");
            format!("{samples} left out, because {why}")
        };
        if self.early > 0 {
            let why = "the task left its CPU before the recording began";
            report.say(Level::Info, left_out(self.early, why));
        }
        if self.alone > 0 {
            let why = "the sched_switch sample of the task is missing: it was lost or not recorded";
            report.say(Level::Loss, left_out(self.alone, why));
        }
        self.switched_out.report(report);
    }
}

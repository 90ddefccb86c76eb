//! `off-cpu` makes each sched_switch sample say how long its task was off the CPU: the sample of the way out,
//! with its call chain, stands where the task comes back, with the time between as its period. That needs no
//! CONFIG_SCHEDSTATS, unlike [`sched-stat`](crate::sched_stat).
//!
//! A task comes back with a sched_switch sample whose `next_pid` it is, or, where only some processes were
//! recorded, with a SWITCH record.

use anyhow::Result;
use clap::Args;
use perfx_format::{Record, RecordType, SWITCH_OUT, Task, sample_type as st};
use perfx_pipeline::{Begin, Emit, Level, Pass, Report, counted};

use crate::combine::{Combine, Step};
use crate::support::options::{PassCommand, PassOptions};
use crate::support::switched_out::SwitchedOut;
use crate::support::tracepoints::{Role, Tracepoints};

/// The pass, and its options.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct OffCpu {
    /// Leave out tasks that were preempted: only those that slept or waited
    #[arg(long)]
    pub blocked: bool,
}

impl PassOptions for OffCpu {
    const NAME: &'static str = "off-cpu";
    const ABOUT: &'static str = "give each sched_switch sample the time that its task was off the CPU";
    const EXAMPLES: &'static [&'static str] = &["", "blocked"];
    const COMMAND: Option<PassCommand> = Some(PassCommand {
        group: "Inject and merge",
        about: "Show where tasks wait, and for how long, from the sched_switch samples of a recording",
        help: "\
Each sched_switch sample says that a task leaves its CPU, and where (its call chain). It is written
where the task comes back, with that time, and the nanoseconds between as its period, so that
perf report shows which code waits, and how long. Samples of other events stay. The output is in the
order of time, and not compressed.

A task comes back with another sched_switch sample (all CPUs recorded, perf record -a), or with a
SWITCH record (perf record --switch-events). Idle tasks are left out.

Examples:
  perf record -e sched:sched_switch -a -g -- sleep 10
  perfx off-cpu perf.data -o off-cpu.data
  perf record -e sched:sched_switch --switch-events -g -o - ./program |
    perfx off-cpu --blocked | perf report -i -",
    });

    fn pass(self) -> Result<Box<dyn Pass>> {
        let step = MeasureAway { blocked: self.blocked, ..MeasureAway::default() };
        Ok(Box::new(Combine::with_step(OffCpu::NAME, step)))
    }
}

/// The only tracepoint that is needed: sched_switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Switch;

/// Its fields, by number.
const NEXT_PID: usize = 0;
const PREV_STATE: usize = 1;

/// The bits of `prev_state` that say what a task waits for. A task without them could run on; the bit above
/// says that it was preempted.
const WAITS: u64 = 0xff;

/// Those of a task that has ended (X and Z), which does not come back.
const ENDED: u64 = 0x30;

impl Role for Switch {
    fn of(name: &[u8]) -> Option<(Switch, &'static [&'static str])> {
        (name == b"sched_switch").then_some((Switch, &["next_pid", "prev_state"]))
    }

    fn needs(self) -> u64 {
        st::TID | st::TIME | st::PERIOD | st::RAW
    }
}

/// Measures how long tasks are away, in the order of time.
#[derive(Debug, Default)]
struct MeasureAway {
    blocked: bool,
    events: Tracepoints<Switch>,
    switched_out: SwitchedOut,
    measured: u64,
    preempted: u64,
    /// Tasks that left their CPU twice without coming back between.
    again: u64,
}

impl MeasureAway {
    /// The task comes back: the sample of its way out.
    fn back(&mut self, tid: u32, time: u64, record: &Record<'_>) -> Option<Vec<u8>> {
        let away = |since: u64| time.saturating_sub(since);
        let sample = self.switched_out.sample_at(tid, time, away, record.endian())?;
        self.switched_out.remove(tid);
        self.measured += 1;
        Some(sample)
    }
}

impl Step for MeasureAway {
    fn begin(&mut self, session: &mut Begin<'_>) -> Result<bool> {
        self.events = Tracepoints::of(session)?;
        if !self.events.any(|Switch| true) {
            let what = "there is no event sched:sched_switch, so it is not known when tasks were off the CPU";
            session.report.say(Level::Warning, what);
            return Ok(false);
        }
        Ok(true)
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<bool> {
        let layouts = out.layouts();
        let is_sample = record.kind() == RecordType::SAMPLE;
        let Some(layout) = layouts.layout_of(&record) else {
            out.keep(record)?;
            return Ok(is_sample);
        };
        let (_, tid) = layout.pid_tid(&record).unwrap_or_default();
        let time = layout.time(&record).unwrap_or(0);
        let Some(event) = self.events.get(&record, layouts) else {
            let back = match record.kind() {
                RecordType::SWITCH | RecordType::SWITCH_CPU_WIDE if record.misc() & SWITCH_OUT == 0 => {
                    self.back(tid, time, &record)
                }
                _ => None,
            };
            // A new task may have the number of an old one.
            if let Some(task) = Task::of(&record).filter(|_| record.kind() == RecordType::FORK) {
                self.switched_out.remove(task.tid);
            }
            if let Some(sample) = &back {
                out.put(sample)?;
            }
            out.keep(record)?;
            return Ok(is_sample || back.is_some());
        };
        let next = event.field(NEXT_PID, &record, layouts)? as u32;
        let back = self.back(next, time, &record);
        let state = event.field(PREV_STATE, &record, layouts)?;
        if state & ENDED != 0 {
            self.switched_out.remove(tid);
        } else if self.blocked && state & WAITS == 0 {
            self.preempted += u64::from(tid != 0);
            self.switched_out.remove(tid);
        } else {
            self.again += u64::from(self.switched_out.insert(tid, &record, layouts));
        }
        match &back {
            Some(sample) => out.replace(&record, sample)?,
            None => out.drop_record(record),
        }
        Ok(back.is_some())
    }

    fn finish(&mut self, report: &mut Report) {
        let measured = counted(self.measured, "sched_switch sample has", "sched_switch samples have");
        report.say(Level::Info, format!("{measured} the time off the CPU as period"));
        if self.preempted > 0 {
            let preempted = counted(self.preempted, "sample was", "samples were");
            report.say(Level::Info, format!("{preempted} dropped, because the task was preempted"));
        }
        let still = self.switched_out.len() as u64;
        if still > 0 {
            let sample = "sched_switch sample was dropped, because its task did not come back before the end";
            let samples =
                "sched_switch samples were dropped, because their tasks did not come back before the end";
            report.say(Level::Info, counted(still, sample, samples));
        }
        if self.again > 0 {
            let samples = counted(self.again, "sched_switch sample was", "sched_switch samples were");
            let what = format!(
                "{samples} dropped, because the recording does not say when the task came back: record with \
                 --switch-events, or all CPUs (-a)"
            );
            report.say(Level::Loss, what);
        }
        self.switched_out.report(report);
    }
}

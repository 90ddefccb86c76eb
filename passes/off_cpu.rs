//! `off-cpu` measures how long tasks are off the CPU: each sched_switch sample, with its call chain, moves to
//! the time when its task runs again, and its period becomes the time in between. Unlike
//! [`sched-stat`](crate::sched_stat), this needs no CONFIG_SCHEDSTATS.
//!
//! A task runs again at a sched_switch sample that has its tid as `next_pid`, or, if only some processes were
//! recorded, at a SWITCH record.

use clap::Args;
use perfx_format::{Record, RecordType, SWITCH_OUT, Task, sample_type as st};
use perfx_pipeline::{Begin, Emit, Level, Pass, Report, Result, counted};

use crate::combine::{Combine, Step};
use crate::support::options::{PassCommand, PassOptions};
use crate::support::switched_out::SwitchedOut;
use crate::support::tracepoints::{Role, Tracepoints};

/// The pass and its options.
#[derive(Args, Clone, Copy, Debug, Default)]
pub struct OffCpu {
    /// Leave out tasks that were preempted, and keep those that slept or waited
    #[arg(long)]
    pub blocked: bool,
}

impl PassOptions for OffCpu {
    const NAME: &'static str = "off-cpu";
    const ABOUT: &'static str =
        "set the period of each sched_switch sample to the time that its task was off the CPU";
    const EXAMPLES: &'static [&'static str] = &["", "blocked"];
    const COMMAND: Option<PassCommand> = Some(PassCommand {
        group: "Inject and merge",
        about: "Show where tasks wait, and for how long, from the sched_switch samples of a recording",
        help: "\
A sched_switch sample shows the code (the call chain) in which a task left its CPU. perfx moves it
to the time when the task runs again, and sets its period to the nanoseconds in between, so perf
report shows which code waits, and for how long. Samples of other events stay. The output is in
time order, and not compressed.

perfx learns that a task runs again from another sched_switch sample (if all CPUs are recorded,
perf record -a) or from a SWITCH record (perf record --switch-events). Idle tasks are left out.

Examples:
  perf record -e sched:sched_switch -a -g -- sleep 10
  perfx off-cpu perf.data -o off-cpu.data
  perf record -e sched:sched_switch --switch-events -g -o - ./program |
    perfx off-cpu --blocked | perf report -i -",
        one_of: &[],
    });

    fn pass(self) -> Result<Box<dyn Pass>> {
        let step = MeasureAway { blocked: self.blocked, ..MeasureAway::default() };
        Ok(Box::new(Combine::with_step(OffCpu::NAME, step)))
    }
}

/// The role of the only tracepoint that is needed, sched_switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Switch;

/// The numbers of its fields.
const NEXT_PID: usize = 0;
const PREV_STATE: usize = 1;

/// The bits of `prev_state` that are set if a task waits. A task with none of them could continue to run; the
/// next higher bit is set if it was preempted.
const WAITS: u64 = 0xff;

/// The bits of `prev_state` that are set if a task has ended (X and Z) and so never runs again.
const ENDED: u64 = 0x30;

impl Role for Switch {
    fn of(name: &[u8]) -> Option<(Switch, &'static [&'static str])> {
        (name == b"sched_switch").then_some((Switch, &["next_pid", "prev_state"]))
    }

    fn needs(self) -> u64 {
        st::TID | st::TIME | st::PERIOD | st::RAW
    }
}

/// Measures how long tasks are off the CPU, in time order.
#[derive(Debug, Default)]
struct MeasureAway {
    blocked: bool,
    events: Tracepoints<Switch>,
    /// The period of all samples of each event; `None` if they differ.
    periods: Vec<Option<u64>>,
    /// The number of sched_switch samples whose period is not that of a single switch.
    changed: u64,
    /// The number of samples of sched_switch events that do not have one for each switch.
    sampled: u64,
    switched_out: SwitchedOut,
    measured: u64,
    preempted: u64,
    /// How often a task left its CPU twice without a return in between.
    again: u64,
}

impl MeasureAway {
    /// For a task that runs again at `time`: the sample of the switch at which it left its CPU, with the
    /// period.
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
        self.periods = session.events.iter().map(|event| event.attr().fixed_period()).collect();
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
            // A new task may have the tid of an old one.
            if let Some(task) = Task::of(&record).filter(|_| record.kind() == RecordType::FORK) {
                self.switched_out.remove(task.tid);
            }
            if let Some(sample) = &back {
                out.put(sample)?;
            }
            out.keep(record)?;
            return Ok(is_sample || back.is_some());
        };
        let usual = layouts.event_of(&record).and_then(|event| *self.periods.get(event)?);
        match usual {
            Some(1) => self.changed += u64::from(layout.period(&record) != usual),
            _ => self.sampled += 1,
        }
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
        if self.changed > 0 {
            let samples = counted(self.changed, "sched_switch sample has", "sched_switch samples have");
            let what = format!(
                "{samples} a period that perf record did not set: if this is the output of off-cpu, measure the \
                 recording itself"
            );
            report.say(Level::Warning, what);
        }
        if self.sampled > 0 {
            let samples = counted(self.sampled, "sched_switch sample is", "sched_switch samples are");
            let what = format!(
                "{samples} of an event that was not recorded at each switch (perf record -F, or -c above 1): the times \
                 include switches that are missing, so they are too long; record without -F and -c"
            );
            report.say(Level::Warning, what);
        }
        let measured = counted(self.measured, "sched_switch sample", "sched_switch samples");
        report.say(Level::Info, format!("set the period of {measured} to the time off the CPU"));
        if self.preempted > 0 {
            let preempted = counted(self.preempted, "sample was", "samples were");
            report.say(Level::Info, format!("{preempted} dropped, because the task was preempted"));
        }
        let still = self.switched_out.len() as u64;
        if still > 0 {
            let sample = "sched_switch sample was dropped, because its task did not run again before the end";
            let samples =
                "sched_switch samples were dropped, because their tasks did not run again before the end";
            report.say(Level::Info, counted(still, sample, samples));
        }
        if self.again > 0 {
            let samples = counted(self.again, "sched_switch sample was", "sched_switch samples were");
            let what = format!(
                "{samples} dropped, because the recording does not show when the task ran again: record all CPUs (-a) \
                 or with --switch-events, and if records were lost, with a larger buffer (-m)"
            );
            report.say(Level::Loss, what);
        }
        self.switched_out.report(report);
    }
}

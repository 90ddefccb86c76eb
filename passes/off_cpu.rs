//! `off-cpu` measures how long tasks are off the CPU: each sched_switch sample, with its call chain, moves to
//! the time when its task runs again, and its period becomes the time in between. Unlike
//! [`sched-stat`](crate::sched_stat), this needs no CONFIG_SCHEDSTATS.
//!
//! A task runs again at a sched_switch sample with its tid as `next_pid`, or else at a SWITCH record.

use std::collections::HashMap;

use clap::Args;
use perfx_format::record::id_index::{ANY, IdIndex};
use perfx_format::{Kinds, Record, RecordType, SWITCH_OUT, SWITCH_PREEMPT, Task, sample_type as st};
use perfx_pipeline::{Begin, Emit, Level, Pass, Report, Result, bail, counted, seconds};

use crate::combine::{Combine, Step};
use crate::support::options::{PassCommand, PassOptions};
use crate::support::switched_out::SwitchedOut;
use crate::support::tracepoints::{Role, Tracepoints};

/// Show where tasks wait, and for how long, from the sched_switch samples of a recording
///
/// A sched_switch sample shows the code (the call chain) in which a task left its CPU. perfx moves it
/// to the time when the task runs again, and sets its period to the nanoseconds in between, so perf
/// report shows which code waits, and for how long. Samples of other events stay. The output is in
/// time order, and not compressed.
///
/// perfx learns that a task runs again from another sched_switch sample (if all CPUs are recorded,
/// perf record -a) or from a SWITCH record (perf record --switch-events). Idle tasks are left out.
///
/// If only some switches were sampled (perf record -F), the times come from SWITCH records: those of
/// switches without a sample are added to the next sample of the same task, so the sums are right.
/// Without SWITCH records such a recording is refused.
///
/// Examples:
///   perf record -e sched:sched_switch -a -g -- sleep 10
///   perfx off-cpu perf.data -o off-cpu.data
///   perf record -e sched:sched_switch --switch-events -g -o - ./program |
///     perfx off-cpu --blocked | perf report -i -
#[derive(Args, Clone, Copy, Debug, Default)]
#[command(verbatim_doc_comment)]
pub struct OffCpu {
    /// Leave out tasks that were preempted, and keep those that slept or waited
    #[arg(long)]
    pub blocked: bool,
}

impl PassOptions for OffCpu {
    const NAME: &'static str = "off-cpu";
    const ABOUT: &'static str =
        "set the period of each sched_switch sample to the time that its task was off the CPU";
    const COMMAND: Option<PassCommand> = Some(PassCommand { group: "Inject and merge", one_of: &[] });

    fn pass(self) -> Result<Box<dyn Pass>> {
        let step = MeasureAway { blocked: self.blocked, ..MeasureAway::default() };
        Ok(Box::new(Combine::with_step(OffCpu::NAME, step)))
    }
}

/// The only event needed: sched_switch.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Switch;

const NEXT_PID: usize = 0;
const PREV_STATE: usize = 1;

/// Bits of `prev_state`: a task that waits has one of them. A preempted task has the next higher bit.
const WAITS: u64 = 0xff;

/// Bits of `prev_state`: a task that has ended (X or Z) never runs again.
const ENDED: u64 = 0x30;

impl Role for Switch {
    fn of(name: &[u8]) -> Option<(Switch, &'static [&'static str])> {
        (name == b"sched_switch").then_some((Switch, &["next_pid", "prev_state"]))
    }

    fn needs(self) -> u64 {
        st::TID | st::TIME | st::PERIOD | st::RAW
    }
}

#[derive(Debug, Default)]
struct MeasureAway {
    blocked: bool,
    events: Tracepoints<Switch>,
    /// For each event, true if its attr samples every switch.
    each_switch: Vec<bool>,
    switch_records: bool,
    /// The switches without a sample; `None` if all are sampled.
    unsampled: Option<Unsampled>,
    /// The sched_switch samples whose period is not that of a single switch.
    changed: u64,
    /// Whole CPUs were recorded: there is an ID_INDEX or a sample of the idle task.
    whole_cpus: bool,
    switched_out: SwitchedOut,
    measured: u64,
    preempted: u64,
    /// The number of times that a task left its CPU twice without a return in between.
    again: u64,
}

#[derive(Debug, Default)]
struct Unsampled {
    tasks: HashMap<u32, Missed>,
    added: u64,
    forgotten: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct Missed {
    /// When it left its CPU, ns, if it has not returned.
    since: Option<u64>,
    /// The time off the CPU, ns, and the number of switches.
    away: u64,
    switches: u64,
}

impl Unsampled {
    /// These take some 30 MiB.
    const TASKS_MAX: usize = 1 << 19;

    fn leaves(&mut self, tid: u32, time: u64) {
        if self.tasks.len() >= Unsampled::TASKS_MAX && !self.tasks.contains_key(&tid) {
            self.forgotten += 1;
        } else {
            self.tasks.entry(tid).or_default().since = Some(time);
        }
    }

    fn returns(&mut self, tid: u32, time: u64) {
        let Some(missed) = self.tasks.get_mut(&tid) else { return };
        if let Some(since) = missed.since.take() {
            missed.away = missed.away.saturating_add(time.saturating_sub(since));
            missed.switches += 1;
        }
    }

    fn take(&mut self, tid: u32) -> u64 {
        let missed = self.tasks.remove(&tid).unwrap_or_default();
        self.added += missed.switches;
        missed.away
    }

    fn report(&self, report: &mut Report) {
        if self.added > 0 {
            let switches = counted(self.added, "switch has", "switches have");
            let what = format!(
                "{switches} no sample, because only some switches were sampled (perf record -F): the times are added to the next \
                 sample of the same task"
            );
            report.say(Level::Info, what);
        }
        let rest = self.tasks.values().fold(0, |sum: u64, missed| sum.saturating_add(missed.away));
        if rest > 0 {
            let what = format!(
                "{} s off the CPU are not in the output, because the tasks have no later sample: to see them, record \
                 without -F",
                seconds(rest)
            );
            report.say(Level::Loss, what);
        }
        if self.forgotten > 0 {
            let switches = counted(self.forgotten, "switch was", "switches were");
            let what = format!(
                "{switches} not measured, because more than {} tasks have unsampled switches",
                Unsampled::TASKS_MAX
            );
            report.say(Level::Loss, what);
        }
    }
}

impl MeasureAway {
    /// Returns the sample of the switch of a task that runs again at `time`, with the period.
    fn back(&mut self, tid: u32, time: u64, record: &Record<'_>) -> Option<Vec<u8>> {
        let unsampled = &mut self.unsampled;
        let away = |since: u64| {
            let others = unsampled.as_mut().map_or(0, |unsampled| unsampled.take(tid));
            time.saturating_sub(since).saturating_add(others)
        };
        let sample = self.switched_out.sample_at(tid, time, away, record.endian());
        if let Some(unsampled) = self.unsampled.as_mut().filter(|_| sample.is_none()) {
            unsampled.returns(tid, time);
        }
        let sample = sample?;
        self.switched_out.remove(tid);
        self.measured += 1;
        Some(sample)
    }
}

impl MeasureAway {
    /// Handles a SWITCH record of a task that leaves its CPU. Its sample, if any, came just before.
    fn leaves(&mut self, tid: u32, time: u64, misc: u16) {
        let counts =
            tid != 0 && !(self.blocked && misc & SWITCH_PREEMPT != 0) && !self.switched_out.contains(tid);
        if let Some(unsampled) = self.unsampled.as_mut().filter(|_| counts) {
            unsampled.leaves(tid, time);
        }
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
        self.each_switch = session.events.iter().map(|e| e.attr().fixed_period() == Some(1)).collect();
        self.switch_records = session.events.iter().any(|event| event.attr().context_switch());
        let mut events = self.each_switch.iter().enumerate();
        let is_sampled = events.any(|(event, each_switch)| !each_switch && self.events.has(event));
        self.unsampled = (is_sampled && self.switch_records).then(Unsampled::default);
        Ok(true)
    }

    fn record(&mut self, record: Record<'_>, out: &mut Emit<'_>) -> Result<bool> {
        let layouts = out.layouts();
        if let Some(index) = IdIndex::of(&record) {
            let is_switch = |id| layouts.event_of_id(id).is_some_and(|event| self.events.has(event));
            self.whole_cpus |= index.entries().any(|entry| entry.tid == ANY && is_switch(entry.id));
        }
        let is_sample = record.kind() == RecordType::SAMPLE;
        let Some(layout) = layouts.layout_of(&record) else {
            out.keep(record)?;
            return Ok(is_sample);
        };
        let (_, tid) = layout.pid_tid(&record).unwrap_or_default();
        let time = layout.recorded_time(&record).unwrap_or(0);
        let Some(event) = self.events.get(&record, layouts) else {
            let back = match record.kind() {
                kind if !Kinds::SWITCHES.contains(kind) => None,
                _ if record.misc() & SWITCH_OUT == 0 => self.back(tid, time, &record),
                _ => {
                    self.leaves(tid, time, record.misc());
                    None
                }
            };
            // A new task may have the tid of an old one.
            if let Some(task) = Task::of(&record).filter(|_| record.kind() == RecordType::FORK) {
                self.switched_out.remove(task.tid);
                self.unsampled
                    .as_mut()
                    .and_then(|unsampled| unsampled.tasks.get_mut(&task.tid)?.since.take());
            }
            if let Some(sample) = &back {
                out.put(sample)?;
            }
            out.keep(record)?;
            return Ok(is_sample || back.is_some());
        };
        let each_switch = layouts.event_of(&record).and_then(|event| self.each_switch.get(event).copied());
        let switches = layout.period(&record).unwrap_or(1);
        if each_switch == Some(true) {
            self.changed += u64::from(switches != 1);
        } else if switches > 1 && !self.switch_records {
            bail!(
                "a sched_switch sample represents {switches} switches, because only some were sampled (perf record -F, or \
                 perfx thin), and no SWITCH records show the others: record without -F, or with --switch-events"
            );
        }
        self.whole_cpus |= tid == 0;
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

    fn finish(self: Box<Self>, report: &mut Report) {
        if self.changed > 0 {
            let samples = counted(self.changed, "sched_switch sample has", "sched_switch samples have");
            let what = format!(
                "{samples} a period that perf record did not set: if this is the output of off-cpu, measure the \
                 recording itself"
            );
            report.say(Level::Warning, what);
        }
        let measured = counted(self.measured, "sched_switch sample", "sched_switch samples");
        report.say(Level::Info, format!("set the period of {measured} to the time off the CPU"));
        if self.preempted > 0 {
            let preempted = counted(self.preempted, "sample was", "samples were");
            report.say(Level::Info, format!("{preempted} left out, because the task was preempted"));
        }
        let still = self.switched_out.len() as u64;
        if still > 0 {
            let sample =
                "sched_switch sample was left out, because its task did not run again before the end";
            let samples =
                "sched_switch samples were left out, because their tasks did not run again before the end";
            report.say(Level::Info, counted(still, sample, samples));
        }
        if self.again > 0 {
            let samples = counted(self.again, "sched_switch sample was", "sched_switch samples were");
            let how = if self.whole_cpus {
                "if records were lost, record with a larger buffer (-m), and if only some CPUs were recorded (-C), all \
                 (-a)"
            } else {
                "record all CPUs (-a) or with --switch-events, and if records were lost, with a larger buffer (-m)"
            };
            let what = format!(
                "{samples} left out, because the recording does not show when the task ran again: {how}"
            );
            report.say(Level::Loss, what);
        }
        if let Some(unsampled) = &self.unsampled {
            unsampled.report(report);
        }
        self.switched_out.report(report);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unsampled_times_are_added_to_the_next_sample_of_the_task() {
        let mut missed = Unsampled::default();
        missed.returns(7, 50);
        missed.leaves(7, 100);
        missed.returns(7, 130);
        missed.returns(7, 140);
        missed.leaves(7, 200);
        missed.leaves(8, 200);
        missed.returns(7, 195);
        missed.leaves(7, 300);
        missed.returns(7, 305);
        missed.returns(8, 210);
        assert_eq!((missed.take(7), missed.added, missed.take(7), missed.added), (35, 3, 0, 3));
        let mut report = Report::default();
        missed.forgotten = 1;
        missed.report(&mut report);
        let lines: Vec<String> =
            report.lines.into_iter().map(|(level, line)| format!("{level:?} {line}")).collect();
        let [added, rest, forgotten] = &lines[..] else { panic!("{lines:?}") };
        assert!(added.starts_with("Info 3 switches have no sample"), "{added}");
        assert!(rest.starts_with("Loss 0.000000010 s off the CPU"), "{rest}");
        assert!(forgotten.starts_with("Loss 1 switch was not measured"), "{forgotten}");
    }
}

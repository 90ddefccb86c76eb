//! Collects the calls of chosen functions, or the spans from one function to another: all durations, and the
//! slowest ones with what they called.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use perfx_look::json::Decimal;
use schemars::JsonSchema;
use serde::Serialize;

use super::branch::Runner;
use crate::durations::{Bucket, Calls, DurationSummary, Durations, HistogramRow};

/// Selects functions by their names.
pub type IsNamed<'n> = &'n (dyn Fn(&str) -> bool + Sync);

/// The calls to watch.
pub struct WatchedCalls<'n> {
    /// The functions, or those whose calls begin a span.
    pub begin: IsNamed<'n>,
    /// The functions that end a span: with their call, or with their return if true.
    pub end: Option<(IsNamed<'n>, bool)>,
    /// The number of the slowest to keep.
    pub most: usize,
}

impl WatchedCalls<'_> {
    /// The role of a function.
    pub(super) fn role(&self, name: &str) -> Role {
        let ends = self.end.as_ref().filter(|(is_end, _)| is_end(name)).map(|(_, by_return)| *by_return);
        Role {
            begins: (self.begin)(name),
            in_span: self.end.is_some(),
            ends_by_call: ends == Some(false),
            ends_by_return: ends == Some(true),
        }
    }
}

impl fmt::Debug for WatchedCalls<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WatchedCalls").field("most", &self.most).finish_non_exhaustive()
    }
}

/// The watched calls or spans.
#[derive(Clone, Default, Debug)]
pub struct Watched {
    /// The names of the functions that were watched, and of those that end spans.
    pub functions: [BTreeSet<String>; 2],
    /// The names of all functions.
    pub names: BTreeSet<String>,
    /// The durations.
    pub durations: Durations,
    /// The number of calls or spans whose end is not in the trace.
    pub unfinished: u64,
    /// The slowest ones, in descending order of duration.
    pub slowest: Vec<Instance>,
    /// True if they have no durations because the trace has no times.
    pub is_timeless: bool,
}

/// The calls of functions, or the spans between functions.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[serde(tag = "what", rename_all = "kebab-case")]
#[schemars(deny_unknown_fields)]
pub enum CallList {
    /// The calls of functions.
    Calls {
        /// Their names
        functions: Vec<String>,
        /// Calls whose end is not in the trace
        unfinished: u64,
        /// The durations of the others; null if there are none
        durations: Option<DurationSummary>,
        /// Their number in each power of two of ns, from the shortest to the longest
        histogram: Vec<HistogramRow>,
        /// The slowest ones, in descending order of duration
        slowest: Vec<Instance>,
    },
    /// The spans from a call of one function to a call, or the return, of another one on the same thread. A
    /// span lasts from the first call if there are several before its end.
    Spans {
        /// The functions that begin a span
        functions: Vec<String>,
        /// The functions that end a span
        until: Vec<String>,
        /// Spans whose end is not in the trace
        unfinished: u64,
        /// The durations of the others; null if there are none
        durations: Option<DurationSummary>,
        /// Their number in each power of two of ns, from the shortest to the longest
        histogram: Vec<HistogramRow>,
        /// The slowest ones, in descending order of duration
        slowest: Vec<Instance>,
    },
}

impl Watched {
    /// These calls without durations, for a trace without times.
    pub(super) fn without_times(self) -> Watched {
        Watched { durations: Durations::default(), slowest: Vec::new(), is_timeless: true, ..self }
    }

    /// The list of the spans or the calls.
    pub fn list(&self, are_spans: bool) -> CallList {
        let [functions, until] = self.functions.each_ref().map(|names| names.iter().cloned().collect());
        let (unfinished, slowest) = (self.unfinished, self.slowest.clone());
        let (durations, histogram) = (self.durations.summary(), self.durations.histogram());
        match are_spans {
            true => CallList::Spans { functions, until, unfinished, durations, histogram, slowest },
            false => CallList::Calls { functions, unfinished, durations, histogram, slowest },
        }
    }
}

/// A call, or a span.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Instance {
    /// Its beginning, ns
    pub time_ns: Decimal<u64>,
    /// Its duration without the time for which its thread did not run, ns
    pub duration_ns: Decimal<u64>,
    /// The time for which its thread did not run, ns
    pub off_cpu_ns: Decimal<u64>,
    /// The process
    pub pid: u32,
    /// The thread
    pub tid: u32,
    /// The CPU on which it began; null if unknown
    pub cpu: Option<u32>,
    /// The functions called directly, or in a span at any depth, in descending order of time
    pub called: Vec<CalledRow>,
}

/// A function that was called.
#[derive(Clone, PartialEq, Eq, Debug, Serialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CalledRow {
    /// Its name; that of its file in brackets if no symbol was found
    pub function: String,
    /// The number of its calls
    pub calls: u64,
    /// The time in it, ns: for a call, with the functions that it called; for a span, without them
    pub duration_ns: Decimal<u64>,
}

/// The role of a function among the watched ones.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub(super) struct Role {
    /// True if its calls are watched, or with `in_span` the spans that begin with them.
    pub(super) begins: bool,
    pub(super) in_span: bool,
    /// True if its call, or its return, ends a span.
    pub(super) ends_by_call: bool,
    pub(super) ends_by_return: bool,
}

/// A time, and the thread's total time off the CPU before it, ns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct Moment {
    pub(super) time: u64,
    pub(super) off_cpu: u64,
}

impl Moment {
    /// The duration since an earlier moment, without the time off the CPU, and that time, ns.
    pub(super) fn since(self, begin: Moment) -> (u64, u64) {
        let off_cpu = self.off_cpu.saturating_sub(begin.off_cpu);
        (self.time.saturating_sub(begin.time).saturating_sub(off_cpu), off_cpu)
    }
}

/// The watched calls or the span of a thread that have not ended.
#[derive(Default, Debug)]
pub(super) struct Watching {
    /// The calls, outermost first.
    calls: Vec<Watch>,
    span: Option<Watch>,
    /// The effect of calls and returns on the span, until [`Watching::turn`].
    pending: Role,
}

#[derive(Debug)]
struct Watch {
    /// The number of open functions outside of it.
    level: usize,
    begin: Moment,
    cpu: u32,
    /// The number of calls and the time in ns, by function.
    called: BTreeMap<u32, (u64, u64)>,
}

/// The slowest calls or spans, with numbers of functions, and the durations of all.
#[derive(Debug)]
pub(super) struct Slowest {
    most: usize,
    durations: Durations,
    unfinished: u64,
    /// By duration and then in the order of their ends: the first of equal ones are kept.
    slowest: BTreeMap<(Reverse<u64>, u64), (u64, Runner, Watch)>,
    /// The number of calls and spans that have ended.
    ended: u64,
}

impl Watching {
    /// A function was called; `level` functions are open outside of it.
    pub(super) fn enter(&mut self, role: Role, begin: Option<Moment>, cpu: u32, level: usize) {
        self.pending.begins |= role.begins && role.in_span && begin.is_some();
        self.pending.ends_by_call |= role.ends_by_call;
        if let Some(begin) = begin.filter(|_| role.begins && !role.in_span) {
            self.calls.push(Watch { level, begin, cpu, called: BTreeMap::new() });
        }
    }

    /// A function ended, with this duration and time off the CPU if known; `level` functions are still open.
    pub(super) fn leave(
        &mut self,
        (function, role): (u32, Role),
        lasted: Option<(u64, u64)>,
        level: usize,
        runner: Runner,
        slowest: &mut Slowest,
    ) {
        self.pending.ends_by_return |= role.ends_by_return;
        let Some((ns, off_cpu)) = lasted else { return };
        if let Some(watch) = self.calls.pop_if(|watch| watch.level == level) {
            slowest.add(runner, watch, (ns, off_cpu));
        }
        if let Some(caller) = self.calls.last_mut().filter(|caller| caller.level + 1 == level) {
            caller.add(function, 1, ns);
        }
    }

    /// Another function runs from now on. `ran` is the function that ran until now, if known, with the number
    /// of its calls in that time, and the time in ns.
    pub(super) fn turn(
        &mut self,
        ran: Option<(u32, u64, u64)>,
        now: Moment,
        (runner, cpu): (Runner, u32),
        slowest: &mut Slowest,
    ) {
        if let Some((span, (function, calls, ns))) = self.span.as_mut().zip(ran) {
            span.add(function, calls, ns);
        }
        let Role { begins, ends_by_call, ends_by_return, .. } = std::mem::take(&mut self.pending);
        if (ends_by_call || ends_by_return)
            && let Some(span) = self.span.take()
        {
            let lasted = now.since(span.begin);
            slowest.add(runner, span, lasted);
        }
        if begins && self.span.is_none() {
            self.span = Some(Watch { level: 0, begin: now, cpu, called: BTreeMap::new() });
        }
    }

    /// The stack is unknown from now on, and with it the ends of calls.
    pub(super) fn forget_calls(&mut self, slowest: &mut Slowest) {
        slowest.unfinished += self.calls.len() as u64;
        self.calls.clear();
    }

    /// Data is lost, and with it the end of a span.
    pub(super) fn forget_span(&mut self, slowest: &mut Slowest) {
        slowest.unfinished += u64::from(self.span.take().is_some());
    }
}

impl Watch {
    fn add(&mut self, function: u32, calls: u64, ns: u64) {
        let sum = self.called.entry(function).or_default();
        *sum = (sum.0 + calls, sum.1 + ns);
    }
}

impl Slowest {
    pub(super) fn new(most: usize) -> Slowest {
        Slowest { most, durations: Durations::default(), unfinished: 0, slowest: BTreeMap::new(), ended: 0 }
    }

    fn add(&mut self, runner: Runner, watch: Watch, (ns, off_cpu): (u64, u64)) {
        self.durations.add(Bucket::of(ns), Calls::one(ns, off_cpu));
        self.ended += 1;
        self.slowest.insert((Reverse(ns), self.ended), (off_cpu, runner, watch));
        if self.slowest.len() > self.most {
            self.slowest.pop_last();
        }
    }

    /// The watched calls or spans, with the names of functions.
    pub(super) fn named(self, name: impl Fn(u32) -> String) -> Watched {
        let Slowest { durations, unfinished, slowest, .. } = self;
        let instance = |((Reverse(ns), _), (off_cpu, runner, watch)): ((_, _), (u64, Runner, Watch))| {
            let mut called: Vec<CalledRow> = Vec::new();
            for (function, (calls, ns)) in watch.called.into_iter().filter(|(_, sum)| *sum != (0, 0)) {
                called.push(CalledRow { function: name(function), calls, duration_ns: Decimal(ns) });
            }
            called.sort_by(|a, b| {
                (b.duration_ns, b.calls, &a.function).cmp(&(a.duration_ns, a.calls, &b.function))
            });
            Instance {
                time_ns: Decimal(watch.begin.time),
                duration_ns: Decimal(ns),
                off_cpu_ns: Decimal(off_cpu),
                pid: runner.pid,
                tid: runner.tid,
                cpu: (watch.cpu != u32::MAX).then_some(watch.cpu),
                called,
            }
        };
        let slowest = slowest.into_iter().map(instance).collect();
        Watched { durations, unfinished, slowest, ..Watched::default() }
    }
}

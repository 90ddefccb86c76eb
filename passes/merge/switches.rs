//! Finds when and where VCPU threads run, from the host's switch records, sorted at each FINISHED_ROUND.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use perfx_format::read::Batch;
use perfx_format::{Kinds, Layouts, Record, RecordType, SWITCH_OUT, Time};

#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Switch {
    time: u64,
    out: bool,
    /// The index among the logged threads.
    pub(crate) thread: u32,
    cpu: Option<u32>,
}

#[derive(Clone, Copy, Default, Debug)]
struct Round {
    latest: u64,
    switches: usize,
}

impl Round {
    fn and(self, other: Round) -> Round {
        Round { latest: self.latest.max(other.latest), switches: self.switches + other.switches }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct Switches {
    threads: Arc<[u32]>,
    /// Rounds that are not sorted yet; the last is the current one.
    rounds: VecDeque<Round>,
    open: Round,
    read: VecDeque<Switch>,
    waiting: VecDeque<Switch>,
    /// No later record is before this time.
    flushed_until: u64,
    level: u64,
    /// The time range of all records read; reversed if there were none.
    first: u64,
    last: u64,
}

/// Kinds with a time, or that mark the progress of time.
pub(crate) fn timed_kinds() -> Kinds {
    // A damaged record of kind 0 can have a time, too.
    Kinds::OF_KERNEL.and(RecordType(0)).and(RecordType::FINISHED_INIT).and(RecordType::FINISHED_ROUND)
}

impl Switches {
    pub(crate) fn of(threads: impl IntoIterator<Item = u32>) -> Switches {
        let threads: BTreeSet<u32> = threads.into_iter().collect();
        Switches::empty(threads.into_iter().collect())
    }

    fn empty(threads: Arc<[u32]>) -> Switches {
        Switches {
            threads,
            rounds: VecDeque::new(),
            open: Round::default(),
            read: VecDeque::new(),
            waiting: VecDeque::new(),
            flushed_until: 0,
            level: 0,
            first: u64::MAX,
            last: 0,
        }
    }

    pub(crate) fn empty_fork(&self) -> Switches {
        Switches::empty(self.threads.clone())
    }

    pub(crate) fn number_of(&self, thread: u32) -> Option<usize> {
        self.threads.binary_search(&thread).ok()
    }

    pub(crate) fn threads(&self) -> usize {
        self.threads.len()
    }

    pub(crate) fn look_into(&mut self, batch: &Batch) {
        let (mut walker, kinds) = (batch.walk(), timed_kinds());
        while let Ok(Some(record)) = walker.next_wanted(kinds, usize::MAX) {
            self.look_at(&record, &batch.layouts);
        }
    }

    #[inline(always)]
    pub(crate) fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts) {
        let kind = record.kind();
        if kind == RecordType::FINISHED_ROUND {
            self.rounds.push_back(std::mem::take(&mut self.open));
            return;
        }
        let Some(layout) = layouts.layout_of(record).filter(|_| kind.is_kernel()) else { return };
        let Some(time) = layout.time(record).map(Time::ns) else { return };
        (self.first, self.last) = (self.first.min(time), self.last.max(time));
        self.open.latest = self.open.latest.max(time);
        if Kinds::SWITCHES.contains(kind)
            && !record.is_of_guest()
            && let Some((_, tid)) = layout.pid_tid(record)
            && let Ok(thread) = self.threads.binary_search(&tid)
        {
            let out = record.misc() & SWITCH_OUT != 0;
            self.open.switches += 1;
            self.read.push_back(Switch { time, out, thread: thread as u32, cpu: layout.cpu(record) });
        }
    }

    pub(crate) fn join(&mut self, later: Switches) {
        let mut rounds = later.rounds.into_iter();
        if let Some(first) = rounds.next() {
            self.rounds.push_back(self.open.and(first));
            self.rounds.extend(rounds);
            self.open = later.open;
        } else {
            self.open = self.open.and(later.open);
        }
        self.read.extend(later.read);
        (self.first, self.last) = (self.first.min(later.first), self.last.max(later.last));
    }

    pub(crate) fn times(&self) -> Option<(u64, u64)> {
        (self.first <= self.last).then_some((self.first, self.last))
    }

    fn flush_round(&mut self) -> bool {
        let Some(round) = self.rounds.pop_front() else { return false };
        // No later record is older than the times before the previous FINISHED_ROUND.
        self.flushed_until = self.level;
        self.level = self.level.max(round.latest);
        if round.switches > 0 {
            self.waiting.extend(self.read.drain(..round.switches));
            self.waiting.make_contiguous().sort_unstable();
        }
        true
    }

    /// Ends a round; returns the time before which no switch follows.
    pub(crate) fn finish_round(&mut self) -> u64 {
        self.flush_round();
        self.flushed_until
    }

    pub(crate) fn finish(&mut self) {
        self.flushed_until = u64::MAX;
        self.waiting.extend(self.read.drain(..));
        self.waiting.make_contiguous().sort_unstable();
    }

    pub(crate) fn next_until(&mut self, time: u64) -> Option<Switch> {
        let until = time.min(self.flushed_until);
        self.waiting.front().filter(|switch| switch.time <= until)?;
        self.waiting.pop_front()
    }
}

#[derive(Clone, Default, Debug)]
pub(crate) struct VcpuRuns {
    /// (switched in, switched out), within the windows.
    pub(crate) spans: Vec<(u64, u64)>,
    since: Option<u64>,
    left_once: bool,
    pub(crate) first_cpu: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct LoggedWindow {
    pub(crate) from: u64,
    /// The end, lowered to the time at which room ran out.
    pub(crate) to: u64,
    room: usize,
}

/// Maximum number of spans kept to find an offset, for all threads together: 16 bytes each.
const SPANS_MAX: usize = 1 << 19;

impl VcpuRuns {
    /// Calls must be in time order.
    fn take(&mut self, switch: Switch, windows: &mut [LoggedWindow]) {
        if switch.out {
            // It was already running when the recording began.
            let since = self.since.take().or((!self.left_once).then_some(0));
            if let Some(since) = since {
                self.keep((since, switch.time), windows);
            }
            self.left_once = true;
            self.first_cpu = self.first_cpu.or(switch.cpu);
        } else {
            self.since = Some(switch.time);
        }
    }

    fn keep(&mut self, span: (u64, u64), windows: &mut [LoggedWindow]) {
        let first = windows.partition_point(|window| window.to <= span.0);
        let Some(window) = windows.get_mut(first).filter(|window| window.from < span.1) else { return };
        self.spans.push(span);
        // A window without room ends here; one current span of each other thread is still kept.
        window.room = window.room.saturating_sub(1);
        if window.room == 0 {
            window.to = window.to.min(span.1);
        }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct VcpuRunLog {
    pub(crate) switches: Switches,
    runs: Vec<VcpuRuns>,
    /// Ascending and disjoint.
    windows: Vec<LoggedWindow>,
    latest: u64,
    /// Shared with the workers that read later batches.
    enough: Arc<AtomicBool>,
}

impl VcpuRunLog {
    /// Logs these threads: with `spans`, all runs (to find an offset), otherwise only each one's first CPU.
    pub(crate) fn new(threads: impl IntoIterator<Item = u32>, spans: bool) -> VcpuRunLog {
        let switches = Switches::of(threads);
        let runs = vec![VcpuRuns::default(); switches.threads()];
        let all = LoggedWindow { from: 0, to: u64::MAX, room: SPANS_MAX };
        let windows = if spans { vec![all] } else { Vec::new() };
        VcpuRunLog { switches, runs, windows, latest: 0, enough: Arc::default() }
    }

    /// A log of the same threads, limited to these windows of the host's time.
    pub(crate) fn narrowed_to(&self, mut windows: Vec<(u64, u64)>) -> VcpuRunLog {
        windows.sort_unstable();
        let mut merged: Vec<LoggedWindow> = Vec::new();
        for (from, to) in windows {
            match merged.last_mut() {
                Some(last) if from <= last.to => last.to = last.to.max(to),
                _ => merged.push(LoggedWindow { from, to, room: 0 }),
            }
        }
        let room = SPANS_MAX / merged.len().max(1);
        merged.iter_mut().for_each(|window| window.room = room);
        let known = |run: &VcpuRuns| VcpuRuns { first_cpu: run.first_cpu, ..VcpuRuns::default() };
        VcpuRunLog {
            switches: self.switches.empty_fork(),
            runs: self.runs.iter().map(known).collect(),
            windows: merged,
            latest: 0,
            enough: Arc::default(),
        }
    }

    pub(crate) fn fork(&self) -> VcpuRunLog {
        let switches = self.switches.empty_fork();
        let enough = self.enough.clone();
        VcpuRunLog { switches, runs: Vec::new(), windows: Vec::new(), latest: 0, enough }
    }

    pub(crate) fn look_into(&mut self, batch: &Batch) {
        if !self.has_enough() {
            self.switches.look_into(batch);
        }
    }

    pub(crate) fn has_enough(&self) -> bool {
        self.enough.load(Ordering::Relaxed)
    }

    /// Absorbs a later batch. The result is the same however far other workers had read at the limit.
    pub(crate) fn join(&mut self, later: VcpuRunLog) {
        if self.has_enough() {
            return;
        }
        self.switches.join(later.switches);
        while self.switches.flush_round() {
            self.take_settled();
        }
        let end = self.windows.last().map_or(0, |window| window.to);
        let is_known = |run: &VcpuRuns| run.first_cpu.is_some() && run.since.is_none_or(|since| since >= end);
        if self.latest >= end && self.runs.iter().all(is_known) {
            self.enough.store(true, Ordering::Relaxed);
        }
    }

    fn take_settled(&mut self) {
        while let Some(switch) = self.switches.next_until(u64::MAX) {
            self.latest = self.latest.max(switch.time);
            if let Some(run) = self.runs.get_mut(switch.thread as usize) {
                run.take(switch, &mut self.windows);
            }
        }
    }

    pub(crate) fn covered(&self) -> Vec<(u64, u64)> {
        let Some((first, last)) = self.switches.times() else { return Vec::new() };
        let windows = self.windows.iter().map(|window| (window.from.max(first), window.to.min(last)));
        windows.filter(|(from, to)| from < to).collect()
    }

    pub(crate) fn is_cut(&self) -> bool {
        self.windows.iter().any(|window| window.room == 0)
    }

    pub(crate) fn finish(&mut self) {
        self.switches.finish();
        self.take_settled();
        for run in &mut self.runs {
            // Threads still running at the end of the recording.
            if let Some(since) = run.since.take() {
                run.keep((since, u64::MAX), &mut self.windows);
            }
        }
    }

    pub(crate) fn run(&self, thread: u32) -> Option<&VcpuRuns> {
        self.runs.get(self.switches.number_of(thread)?)
    }

    pub(crate) fn at_first(&self) -> Vec<ThreadState> {
        self.runs.iter().map(|run| ThreadState { cpu: run.first_cpu.unwrap_or(0), runs: None }).collect()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct ThreadState {
    /// The CPU of the last switch in; before that, of the first switch out; 0 if unknown.
    pub(crate) cpu: u32,
    /// `None` before its first switch.
    pub(crate) runs: Option<bool>,
}

impl ThreadState {
    /// Calls must be in time order.
    pub(crate) fn take(&mut self, switch: Switch) {
        self.runs = Some(!switch.out);
        if let Some(cpu) = switch.cpu.filter(|_| !switch.out) {
            self.cpu = cpu;
        }
    }
}

#[cfg(test)]
impl VcpuRunLog {
    /// Reads these spans of one thread, with room for this many.
    pub(crate) fn seen(mut self, spans: &[(u64, u64)], room: Option<usize>) -> VcpuRunLog {
        if let Some(room) = room {
            self.windows.iter_mut().for_each(|window| window.room = room);
        }
        for &(start, end) in spans {
            for (time, out) in [(start, false), (end, true)] {
                (self.switches.first, self.switches.last) =
                    (self.switches.first.min(time), self.switches.last.max(time));
                self.switches.read.push_back(Switch { time, out, thread: 0, cpu: Some(0) });
            }
        }
        self.finish();
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn switches() -> [Switch; 6] {
        [(10, true, 3), (20, false, 1), (30, true, 1), (40, false, 1), (50, true, 1), (60, false, 0)]
            .map(|(time, out, cpu)| Switch { time, out, thread: 0, cpu: Some(cpu) })
    }

    #[test]
    fn a_cpu_counts_from_the_switch_in_on() {
        let mut run_log = VcpuRunLog::new([7], true);
        for switch in switches() {
            run_log.runs[0].take(switch, &mut run_log.windows);
        }
        assert_eq!(run_log.runs[0].spans, [(0, 10), (20, 30), (40, 50)]);
        let mut now = run_log.at_first()[0];
        let mut seen = vec![(now.cpu, now.runs)];
        for switch in switches() {
            now.take(switch);
            seen.push((now.cpu, now.runs));
        }
        let (on, off) = (Some(true), Some(false));
        assert_eq!(seen, [(3, None), (3, off), (1, on), (1, off), (1, on), (1, off), (0, on)]);
    }

    #[test]
    fn switches_are_returned_when_no_older_ones_can_follow() {
        let mut switches = Switches::of([7]);
        let read = |switches: &mut Switches, times: &[u64]| {
            for &time in times {
                switches.read.push_back(Switch { time, out: false, thread: 0, cpu: None });
                switches.open = switches.open.and(Round { latest: time, switches: 1 });
            }
            switches.rounds.push_back(std::mem::take(&mut switches.open));
            switches.finish_round()
        };
        let left = |switches: &mut Switches| -> Vec<u64> {
            std::iter::from_fn(|| switches.next_until(u64::MAX)).map(|switch| switch.time).collect()
        };
        assert_eq!((read(&mut switches, &[5, 9]), left(&mut switches)), (0, vec![]));
        assert_eq!((read(&mut switches, &[20, 8]), left(&mut switches)), (9, vec![5, 8, 9]));
        assert_eq!((read(&mut switches, &[12, 30]), left(&mut switches)), (20, vec![12, 20]));
        switches.finish();
        assert_eq!(left(&mut switches), [30]);
    }

    #[test]
    fn windows_that_touch_are_one_and_share_the_room() {
        let narrowed =
            VcpuRunLog::new([7], true).narrowed_to(vec![(50, 60), (0, 10), (5, 8), (10, 20), (22, 30)]);
        let windows: Vec<_> =
            narrowed.windows.iter().map(|window| (window.from, window.to, window.room)).collect();
        let room = SPANS_MAX / 3;
        assert_eq!(windows, [(0, 20, room), (22, 30, room), (50, 60, room)]);
        assert!(VcpuRunLog::new([7], false).windows.is_empty());
    }
}

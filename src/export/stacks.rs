//! Collects the distinct call stacks of a recording with their weights, on all threads.
//!
//! A worker resolves the addresses of one batch to places in files, and keeps each distinct frame and stack
//! once. Batches are joined in file order, so numbers do not depend on threads.

use std::collections::BTreeMap;
use std::ops::{AddAssign, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};

use foldhash::fast::RandomState;
use indexmap::{IndexMap, IndexSet};
use perfx_filter::{FilterOptions, SelectedSamples};
use perfx_format::read::Recording;
use perfx_format::siblings::CountedAs;
use perfx_format::{Kinds, Layouts, OrderKey, Record, RecordType, Time, named_pid};
use perfx_model::address_space::Machine;
use perfx_pipeline::{Report, Result};
use perfx_resolve::{Facts, Frame, FrameName, Named, Search, name_frames};
use perfx_samples::{Before, Counters, Late, Losses, SampleView, Select, Visit, say_cut_off, visit};

use crate::chains::{At, Deferred, Lack, Resolver, StackTree, Waiting, numbered};
use crate::counted::counted_events;
use crate::durations::OfStacks;

/// The weight of samples.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Weight {
    /// The number of samples.
    pub samples: u64,
    /// The sum of their periods, in the event's unit.
    pub period: u64,
}

impl Weight {
    /// True if it counts for nothing.
    pub fn is_zero(&self) -> bool {
        *self == Weight::default()
    }
}

impl AddAssign for Weight {
    fn add_assign(&mut self, other: Weight) {
        self.samples += other.samples;
        // The recording can contain any period.
        self.period = self.period.saturating_add(other.period);
    }
}

/// The properties by which samples are grouped, besides event and stack.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Grouping {
    /// The name of the thread.
    pub comm: bool,
    /// The last name of the process's main thread instead, so that a process has one name.
    pub main: bool,
    /// The process.
    pub pid: bool,
    /// The thread.
    pub tid: bool,
    /// The CPU.
    pub cpu: bool,
    /// The cgroup.
    pub cgroup: bool,
    /// Of the cgroup, only the first digits of the container's id.
    pub container: bool,
    /// The time, rounded to [`Stacks::step`].
    pub time: bool,
    /// Unmapped addresses are distinct frames; otherwise they are one. In code without frame pointers, they
    /// are so many that few stacks would be equal.
    pub unmapped: bool,
    /// The function of the sample's own address, as in `perf report`; otherwise that of its chain's innermost
    /// frame, as in the lines of `perf script`.
    pub own_address: bool,
}

/// The group of a sample. Fields not grouped by, or missing in the sample, are `None`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Label {
    /// The machine of the thread, if grouped by thread.
    pub machine: Machine,
    /// The name of the thread at the time of the sample.
    pub comm: Option<Box<[u8]>>,
    /// The process.
    pub pid: Option<u32>,
    /// The thread.
    pub tid: Option<u32>,
    /// The CPU.
    pub cpu: Option<u32>,
    /// The path of the cgroup, or the container in it.
    pub cgroup: Option<Box<[u8]>>,
}

/// The common properties of samples.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Row {
    /// The number of the event or its first sibling.
    pub event: u32,
    /// The number of the label.
    pub label: u32,
    /// The node of the stack's innermost frame, or [`StackTree::ROOT`].
    pub stack: u32,
    /// The time, rounded down to a multiple of [`Stacks::step`]; `None` if missing or not grouped by.
    pub time: Option<Time>,
}

/// All stacks of a recording.
#[derive(Clone, Default, Debug)]
pub struct Stacks {
    /// The stacks.
    pub tree: StackTree,
    /// The groups.
    pub labels: IndexSet<Label, RandomState>,
    /// The weight of each group of samples.
    pub rows: IndexMap<Row, Weight, RandomState>,
    pub(crate) durations: OfStacks,
    /// The sampled events, each with the times of its earliest and latest sample that has one.
    pub times: BTreeMap<u32, Option<(Time, Time)>>,
    pub(crate) counted_as: Vec<Option<CountedAs>>,
    /// The unit to which times of rows are rounded, ns; 0 if they are exact.
    pub step: u64,
    /// Bytes of records read, decompressed.
    pub bytes: u64,
}

/// With more rows, times are rounded.
pub(crate) const MOST_ROWS: usize = 1 << 20;

/// The smallest and the largest step of sample times, ns.
const FIRST_STEP: u64 = 10_000;
const LAST_STEP: u64 = 1_000_000_000;

impl Stacks {
    /// Reads the samples that `filter` selects; if that is empty, all.
    ///
    /// # Errors
    ///
    /// The recording cannot be read or decompressed, or its samples lack a field to select by.
    pub fn collect(
        recording: &mut Recording,
        facts: &Facts,
        grouping: Grouping,
        filter: &Arc<FilterOptions>,
        threads: usize,
        report: &mut Report,
    ) -> Result<Stacks> {
        let selected = SelectedSamples::if_any(recording, filter, threads, report)?;
        let counted_as = counted_events(facts, filter);
        let read = (facts, selected.as_ref());
        let mut stacks = Stacks::read(recording, read, &counted_as, grouping, threads, report)?;
        stacks.counted_as = counted_as;
        if let Some(selected) = selected.filter(|_| stacks.rows.is_empty()) {
            selected.say_none(&recording.name, false, report);
        }
        Ok(stacks)
    }

    pub(crate) fn read(
        recording: &mut Recording,
        (facts, selected): (&Facts, Option<&impl Select>),
        counted_as: &[Option<CountedAs>],
        grouping: Grouping,
        threads: usize,
        report: &mut Report,
    ) -> Result<Stacks> {
        // Workers round by the latest known step, to join less. Each step divides the next: results are
        // equal.
        let step = AtomicU64::new(0);
        // The number of rows of the last batch: most of the next one have as many.
        let size = AtomicUsize::new(0);
        let most = if grouping.time { MOST_ROWS } else { usize::MAX };
        let new = || {
            let rows =
                IndexMap::with_capacity_and_hasher(size.load(Ordering::Relaxed), RandomState::default());
            let stacks = Stacks { step: step.load(Ordering::Relaxed), rows, ..Stacks::default() };
            let part = Part { stacks, ..Part::default() };
            let resolver = Resolver::new(facts, grouping.unmapped);
            let (label, times, known) = (LastLabel::default(), vec![None; counted_as.len()], Vec::new());
            Worker { facts, grouping, counted_as, resolver, part, label, times, known }
        };
        let (stacks, waiting) = (Stacks::default(), Waiting::default());
        let mut all = Joined { stacks, waiting, most, step: &step, size: &size };
        let (losses, bytes) = visit(recording, (facts, selected), threads, report, new, &mut all)?;
        let mut stacks = all.finish(losses, report)?;
        stacks.round_times(most, FIRST_STEP);
        stacks.bytes = bytes;
        Ok(stacks)
    }

    /// Passes the names of all frames to `visit`, as [`name_frames`] does, and counts the named samples.
    ///
    /// # Errors
    ///
    /// A thread cannot be started.
    pub(crate) fn name_frames(
        &self,
        search: Search<'_>,
        mut visit: impl FnMut(u32, Frame, FrameName<'_>) + Send,
    ) -> Result<Named> {
        let mut has_name = vec![false; self.tree.frames().len()];
        let mut named = name_frames(self.tree.frames(), search, |number, frame, name| {
            has_name[number as usize] = !name.functions.is_empty();
            visit(number, frame, name);
        })?;
        for (row, weight) in &self.rows {
            let innermost = self.tree.nodes().nth(row.stack as usize);
            let is_named = innermost.is_some_and(|(_, frame)| has_name[frame as usize]);
            named.samples[0] += if is_named { weight.samples } else { 0 };
            named.samples[1] += weight.samples;
        }
        Ok(named)
    }

    /// The times of the earliest and the latest sample; `None` if no sample has a time.
    pub fn span(&self) -> Option<(Time, Time)> {
        self.times.values().copied().reduce(spanning)?
    }

    pub(crate) fn seen(&mut self, event: u32, times: Option<(Time, Time)>) {
        let all = self.times.entry(event).or_default();
        *all = spanning(*all, times);
    }

    /// True if some samples have a period: those of decoded calls have one if the trace has times.
    pub fn have_periods(&self) -> bool {
        self.rows.values().any(|weight| weight.period > 0)
    }

    pub(crate) fn add(&mut self, row: Row, weight: Weight) {
        *self.weight(row).1 += weight;
    }

    /// The weight of a row, after the row's number.
    fn weight(&mut self, row: Row) -> (usize, &mut Weight) {
        let rounded = |ns: u64| Time::from_ns(ns - ns.checked_rem(self.step).unwrap_or(0));
        let time = row.time.and_then(|time| rounded(time.ns()));
        let entry = self.rows.entry(Row { time, ..row });
        (entry.index(), entry.or_default())
    }

    /// Rounds times to multiples of `first`, a power of ten, then of larger steps, until there are at most
    /// `most` rows or the step reaches its limit. The result depends only on the rows added so far.
    pub(crate) fn round_times(&mut self, most: usize, first: u64) {
        while self.rows.len() > most && self.step < LAST_STEP {
            self.step = match self.step {
                0 => first,
                step if step.ilog10() == (step * 2).ilog10() => step * 5,
                step => step * 2,
            };
            // The map keeps its memory: it will grow again.
            let rows: Vec<(Row, Weight)> = self.rows.drain(..).collect();
            rows.into_iter().for_each(|(row, weight)| self.add(row, weight));
        }
    }
}

pub(crate) fn spanning(one: Option<(Time, Time)>, other: Option<(Time, Time)>) -> Option<(Time, Time)> {
    match (one, other) {
        (Some(one), Some(other)) => Some((one.0.min(other.0), one.1.max(other.1))),
        (one, other) => one.or(other),
    }
}

/// The row that a sample counts for in its batch, before its counters are known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Target {
    row: Row,
    time: Option<Time>,
    /// Its number among the samples whose user part comes later.
    deferred: Option<u32>,
}

#[derive(Default)]
struct Part {
    stacks: Stacks,
    late: Late<Target>,
    deferred: Vec<Deferred<Vec<(Row, Weight)>>>,
}

struct Worker<'f> {
    facts: &'f Facts,
    grouping: Grouping,
    /// For each event, how its samples are counted, if they are.
    counted_as: &'f [Option<CountedAs>],
    resolver: Resolver<'f>,
    part: Part,
    label: LastLabel,
    /// For each event, the times of its earliest and latest sample, if it has any.
    times: Vec<Option<Option<(Time, Time)>>>,
    /// For each stack, the last row with it, if rows have no time.
    known: Vec<u32>,
}

/// The label of the last sample, for those of the same thread.
#[derive(Default)]
struct LastLabel {
    machine: Machine,
    task: Option<(u32, u32)>,
    cpu: Option<u32>,
    /// The times at which the thread has it.
    during: Range<OrderKey>,
    number: u32,
}

impl<'f> Visit for Worker<'f> {
    type Part = Part;
    type All = Joined<'f>;
    const OTHERS: Kinds = Kinds::of(&[RecordType::CALLCHAIN_DEFERRED]);

    fn other(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        self.part.deferred.extend(self.resolver.user_part(record, layouts)?);
        Ok(())
    }

    fn sample(&mut self, sample: SampleView<'_>, event: usize, counters: &mut Counters<'_>) -> Result<()> {
        let at = At::of(sample);
        let lack = self.resolver.sample(at)?;
        // A sample without a chain already has its own address.
        if self.grouping.own_address && lack != Lack::Chain {
            self.resolver.begin_at_own_address(at)?;
        }
        let Worker { facts, grouping, counted_as, resolver, part, label, times, known } = self;
        let Part { stacks, late, deferred } = part;
        let losses = &mut counters.losses;
        losses.see(sample);
        let label = label.of(at, facts, *grouping, &mut stacks.labels, losses)?;
        losses.torn += u64::from(lack == Lack::Torn);
        let time = sample.time();
        let seen = time.map(|time| (time, time));
        let counted = |event: usize| Some(counted_as[event].as_ref()?.first as u32);
        let own = counted(event);
        if let Some(times) = own.and_then(|event| times.get_mut(event as usize)) {
            *times = Some(spanning(times.flatten(), seen));
        }
        let place = match lack {
            Lack::User(cookie) => {
                let tid = sample.task().map_or(0, |(_, tid)| tid);
                let kernel = std::mem::take(&mut resolver.chain).into();
                deferred.push(Deferred::Sample { tid, cookie, kernel, sample: Vec::new() });
                Some(numbered(deferred.len() - 1)?)
            }
            _ => None,
        };
        let stack = resolver.stack()?;
        let shown = time.filter(|_| grouping.time);
        let target = |event: usize| {
            let row = Row { event: counted(event)?, label, stack, time: shown };
            Some(Target { row, time, deferred: place })
        };
        counters.count(sample, event, late, target, |target, period| {
            // `seen` was called for its own event.
            if Some(target.row.event) != own {
                stacks.seen(target.row.event, seen);
            }
            count(stacks, known, deferred, target, period);
        });
        Ok(())
    }

    fn part(mut self, _passed_over: u64) -> Result<Part> {
        for (event, times) in (0..).zip(self.times) {
            times.into_iter().for_each(|times| self.part.stacks.seen(event, times));
        }
        self.part.stacks.tree = self.resolver.tree;
        Ok(self.part)
    }

    fn join(all: &mut Joined<'f>, part: Part, before: &Before) -> Result<()> {
        all.size.store(part.stacks.rows.len(), Ordering::Relaxed);
        all.join(part, before)?;
        all.stacks.round_times(all.most, FIRST_STEP);
        all.step.store(all.stacks.step, Ordering::Relaxed);
        Ok(())
    }
}

impl LastLabel {
    /// The number of a sample's label; see [`Label::of`].
    fn of(
        &mut self,
        at: At<'_>,
        facts: &Facts,
        grouping: Grouping,
        labels: &mut IndexSet<Label, RandomState>,
        losses: &mut Losses,
    ) -> Result<u32> {
        let machine = Label::machine_of(at, facts, grouping);
        let (task, cpu) = (at.sample.task(), at.sample.cpu().filter(|_| grouping.cpu));
        if (self.machine, self.task, self.cpu) != (machine, task, cpu) || !self.during.contains(&at.key) {
            let (label, during) = Label::during(at, facts, machine, grouping, losses);
            *self = LastLabel { machine, task, cpu, during, number: numbered(labels.insert_full(label).0)? };
        }
        Ok(self.number)
    }
}

impl Label {
    /// The label of a sample. A truncated sample that lacks needed parts is added to `losses`.
    pub(crate) fn of(at: At<'_>, facts: &Facts, grouping: Grouping, losses: &mut Losses) -> Label {
        Label::during(at, facts, Label::machine_of(at, facts, grouping), grouping, losses).0
    }

    fn machine_of(at: At<'_>, facts: &Facts, grouping: Grouping) -> Machine {
        let SampleView { record, layouts, .. } = at.sample;
        match grouping.tid || grouping.comm {
            true => facts.guests.machine(record, layouts, named_pid(record)),
            false => Machine::Host,
        }
    }

    /// The label of a sample, and the times at which its thread has it.
    fn during(
        at: At<'_>,
        facts: &Facts,
        machine: Machine,
        grouping: Grouping,
        losses: &mut Losses,
    ) -> (Label, Range<OrderKey>) {
        let (pid, tid) = at.sample.task().unzip();
        let (named, when) = if grouping.main { (pid, OrderKey::END) } else { (tid, at.key) };
        let comm = named.filter(|_| grouping.comm).map(|task| facts.tasks.name_during(machine, task, when));
        let (comm, named_during) = comm.unzip();
        let during = match named_during {
            // It can be another one in the next sample.
            _ if grouping.cgroup && !facts.cgroups.is_empty() => OrderKey::FIRST..OrderKey::FIRST,
            Some(during) if !grouping.main => during,
            _ => OrderKey::ALL,
        };
        let cgroup = || match at.sample.parts() {
            Ok(sample) => {
                let path = facts.cgroups.get(&sample.cgroup?)?;
                let container = || Some(container(path)?.get(..CONTAINER)?.as_bytes().into());
                if grouping.container { container() } else { Some(path.clone()) }
            }
            Err(_) => {
                losses.partial += 1;
                None
            }
        };
        let label = Label {
            machine: if grouping.tid { machine } else { Machine::Host },
            comm: comm.map(|comm| comm.into_owned().into()),
            pid: pid.filter(|_| grouping.pid),
            tid: tid.filter(|_| grouping.tid),
            cpu: at.sample.cpu().filter(|_| grouping.cpu),
            cgroup: (grouping.cgroup && !facts.cgroups.is_empty()).then(cgroup).flatten(),
        };
        (label, during)
    }

    /// The CPU, the cgroup or container, and the thread or process, as text, if grouped by these.
    pub(crate) fn texts(&self, grouping: Grouping) -> [Option<String>; 3] {
        let text =
            |bytes: &Option<Box<[u8]>>| bytes.as_ref().map(|of| String::from_utf8_lossy(of).into_owned());
        let without = if grouping.container { "[no container]" } else { "[no cgroup]" };
        let number = |mark: char, task: Option<u32>| {
            task.map_or_else(String::new, |task| format!("{mark}{}", task as i32))
        };
        let thread = || {
            let name = text(&self.comm).unwrap_or_default();
            format!("{name}{}{}", number('-', self.pid), number('/', self.tid))
        };
        [
            self.cpu.map(|cpu| format!("cpu-{cpu}")),
            grouping.cgroup.then(|| text(&self.cgroup).unwrap_or_else(|| without.to_owned())),
            grouping.comm.then(thread),
        ]
    }
}

/// The digits of a container's id that tools show.
const CONTAINER: usize = 12;

/// The id of the container in the path of a cgroup: `/docker/ID`, `/…/cri-containerd-ID.scope`.
pub(crate) fn container(cgroup: &[u8]) -> Option<&str> {
    let parts = str::from_utf8(cgroup).ok()?.rsplit('/');
    parts.into_iter().find_map(|part| {
        let id = part.strip_suffix(".scope").unwrap_or(part).rsplit(['-', ':']).next()?;
        (id.len() == 64 && id.bytes().all(|byte| byte.is_ascii_hexdigit())).then_some(id)
    })
}

/// Counts a sample, or defers it until the user part of its chain is known.
/// `known` has a row of each stack: most samples count for the one that was counted last.
fn count(
    stacks: &mut Stacks,
    known: &mut Vec<u32>,
    deferred: &mut [Deferred<Vec<(Row, Weight)>>],
    Target { row, deferred: place, .. }: Target,
    period: u64,
) {
    let weight = Weight { samples: 1, period };
    if let Some(Deferred::Sample { sample, .. }) = place.and_then(|place| deferred.get_mut(place as usize)) {
        sample.push((row, weight));
        return;
    }
    let stack = row.stack as usize;
    let same = known.get(stack).and_then(|&number| stacks.rows.get_index_mut(number as usize));
    if let Some((_, sum)) = same.filter(|(same, _)| **same == row) {
        *sum += weight;
        return;
    }
    let (number, sum) = stacks.weight(row);
    *sum += weight;
    if row.time.is_none() && row.stack != StackTree::ROOT {
        known.resize(known.len().max(stack + 1), 0);
        known[stack] = number as u32;
    }
}

struct Joined<'s> {
    stacks: Stacks,
    waiting: Waiting<Vec<(Row, Weight)>>,
    most: usize,
    /// The step and the number of rows for workers of further batches.
    step: &'s AtomicU64,
    size: &'s AtomicUsize,
}

impl Joined<'_> {
    fn join(&mut self, part: Part, before: &Before) -> Result<()> {
        let numbers = self.stacks.tree.absorb(&part.stacks.tree)?;
        let stacks = &mut self.stacks;
        let labels = part.stacks.labels.into_iter().map(|label| numbered(stacks.labels.insert_full(label).0));
        let labels: Vec<u32> = labels.collect::<Result<_>>()?;
        let row =
            |row: Row| Row { label: labels[row.label as usize], stack: numbers.stack(row.stack), ..row };
        for (key, weight) in part.stacks.rows {
            stacks.add(row(key), weight);
        }
        part.stacks.times.into_iter().for_each(|(event, times)| stacks.seen(event, times));
        for deferred in part.deferred {
            match deferred {
                Deferred::Sample { tid, cookie, kernel, sample } => {
                    let weights = sample.into_iter().map(|(key, weight)| (row(key), weight)).collect();
                    self.waiting.push((tid, cookie), numbers.chain(&kernel), weights);
                }
                Deferred::User(user) => {
                    for (kernel, weights) in self.waiting.take(user) {
                        stacks.complete(&kernel, weights, numbers.stack(user.stack))?;
                    }
                }
            }
        }
        before.count(part.late, |Target { row: key, time, .. }, period| {
            let row = row(key);
            stacks.seen(row.event, time.map(|time| (time, time)));
            stacks.add(row, Weight { samples: 1, period });
        });
        Ok(())
    }

    fn finish(self, mut losses: Losses, report: &mut Report) -> Result<Stacks> {
        let Joined { mut stacks, waiting, .. } = self;
        for (kernel, weights) in waiting.rest() {
            losses.incomplete += 1;
            stacks.complete(&kernel, weights, StackTree::ROOT)?;
        }
        losses.say("not counted", report);
        let mut sums: BTreeMap<u32, u64> = BTreeMap::new();
        for (row, weight) in &stacks.rows {
            let sum = sums.entry(row.event).or_default();
            *sum = sum.saturating_add(weight.period);
        }
        say_cut_off(sums.into_values(), u64::MAX, report);
        Ok(stacks)
    }
}

impl Stacks {
    fn complete(&mut self, kernel: &[u32], weights: Vec<(Row, Weight)>, user: u32) -> Result<()> {
        let stack = self.tree.push(user, kernel)?;
        weights.into_iter().for_each(|(row, weight)| self.add(Row { stack, ..row }, weight));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_container_is_found_in_the_paths_that_runtimes_make() {
        let id = "0123456789abcdef".repeat(4);
        for path in [
            format!("/docker/{id}"),
            format!("/system.slice/docker-{id}.scope"),
            format!(
                "/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod1.slice/cri-containerd-{id}.scope"
            ),
            format!("/kubepods/burstable/pod1/{id}/init"),
            format!("/machine.slice/libpod-{id}.scope"),
        ] {
            assert_eq!(container(path.as_bytes()), Some(&*id), "{path}");
        }
        assert_eq!(container(b"/user.slice/user-1000.slice/session-2.scope"), None);
    }

    #[test]
    fn times_are_rounded_as_much_as_necessary() {
        let mut stacks = Stacks::default();
        for time in (0..1000).map(|ms| 7 + ms * 1_000_000) {
            let row = Row { event: 0, label: 0, stack: StackTree::ROOT, time: Time::from_ns(time) };
            stacks.add(row, Weight { samples: 1, period: 2 });
        }
        stacks.round_times(1000, FIRST_STEP);
        assert_eq!((stacks.rows.len(), stacks.step), (1000, 0));
        for (most, step) in [(999, 5_000_000), (199, 10_000_000), (3, 500_000_000), (0, 1_000_000_000)] {
            stacks.round_times(most, FIRST_STEP);
            assert_eq!((stacks.rows.len() as u64, stacks.step), (1_000_000_000 / step, step));
            let samples: u64 = stacks.rows.values().map(|weight| weight.samples).sum();
            assert_eq!(samples, 1000);
            assert!(stacks.rows.keys().all(|row| row.time.unwrap().ns() % step == 0));
        }
        stacks.round_times(0, FIRST_STEP);
        assert_eq!(stacks.step, 1_000_000_000);
    }

    #[test]
    fn weights_add_up_to_the_largest_number() {
        let mut weight = Weight::default();
        assert!(weight.is_zero() && !Weight { samples: 1, period: 0 }.is_zero());
        [u64::MAX - 4, 3, 9].into_iter().for_each(|period| weight += Weight { samples: 2, period });
        assert_eq!(weight, Weight { samples: 6, period: u64::MAX });
    }

    #[test]
    fn the_span_of_all_events_is_from_the_earliest_to_the_latest_time() {
        let times = |first, last| Time::from_ns(first).zip(Time::from_ns(last));
        let mut stacks = Stacks::default();
        assert_eq!(stacks.span(), None);
        stacks.seen(3, None);
        assert_eq!(stacks.span(), None);
        stacks.seen(3, times(5, 7));
        stacks.seen(3, times(6, 6));
        stacks.seen(3, None);
        assert_eq!(stacks.times[&3], times(5, 7));
        stacks.seen(1, times(2, 6));
        stacks.seen(9, times(6, 8));
        assert_eq!(stacks.span(), times(2, 8));
    }

    #[test]
    fn a_sample_counts_at_once_or_after_the_user_part_of_its_chain() {
        let row = |stack| Row { event: 0, label: 0, stack, time: None };
        let target = |deferred| Target { row: row(7), time: None, deferred };
        let sample = Deferred::Sample { tid: 1, cookie: 2, kernel: [4, 5].into(), sample: Vec::new() };
        let (mut stacks, mut known, mut deferred) = (Stacks::default(), Vec::new(), vec![sample]);
        count(&mut stacks, &mut known, &mut deferred, target(None), 3);
        count(&mut stacks, &mut known, &mut deferred, target(Some(0)), 4);
        let weights = |stacks: &Stacks| {
            stacks.rows.iter().map(|(row, of)| (row.stack, of.samples, of.period)).collect::<Vec<_>>()
        };
        assert_eq!(weights(&stacks), [(7, 1, 3)]);
        let Some(Deferred::Sample { sample, kernel, .. }) = deferred.pop() else { panic!() };
        assert_eq!(sample, [(row(7), Weight { samples: 1, period: 4 })]);
        let user = stacks.tree.child(StackTree::ROOT, 9).unwrap();
        stacks.complete(&kernel, sample, user).unwrap();
        assert_eq!(weights(&stacks), [(7, 1, 3), (2, 1, 4)]);
        assert_eq!(stacks.tree.nodes().collect::<Vec<_>>(), [(StackTree::ROOT, 9), (0, 5), (1, 4)]);
    }
}

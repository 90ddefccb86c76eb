//! Collects the distinct call stacks of a recording with their weights, on all threads.
//!
//! A worker resolves the addresses of one batch to places in files, and keeps each distinct frame and stack
//! once. The batches are joined in the order of the file, so numbers do not depend on the threads.

use std::collections::{BTreeMap, HashMap};
use std::ops::{AddAssign, Range};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use foldhash::fast::RandomState;
use indexmap::{IndexMap, IndexSet};
use perfx_format::read::{Batch, Recording};
use perfx_format::record::cpumode::USER;
use perfx_format::record::deferred::CallchainDeferred;
use perfx_format::sample::{Marker, Sample, callchain, frames};
use perfx_format::{Kinds, Layout, Layouts, Record, RecordType, named_pid, sample_type};
use perfx_model::address_space::{Machine, Space, moment};
use perfx_passes::{FilterOptions, SampleChooser, SelectedSamples};
use perfx_pipeline::{Context as _, Level, Report, Result, counted};

use crate::batches::each_batch;
use crate::counters::{Counters, event_of};
use crate::facts::Facts;

/// An address in a chain, resolved.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame {
    /// The DSO that was mapped there; `None` if none was.
    pub dso: Option<u32>,
    /// The offset in its file, bytes; in a kernel, in no mapping and in memory without a file, the address.
    pub at: u64,
    /// The cpumode of the code.
    pub mode: u16,
    /// In memory without a file, where JIT compilers put their code: the process, else 0.
    pub process: u32,
}

/// The frame at an address of a space, and from when until when it is there.
fn frame_in(facts: &Facts, space: Space, time: u64, (mode, address): (u16, u64)) -> (Frame, Range<u64>) {
    let (hit, valid) = facts.spaces.find(space, address, time);
    let process = if hit.is_some_and(|hit| facts.has_jit(hit.dso, space)) { space.pid } else { 0 };
    let at = match hit {
        Some(hit) if process == 0 => facts.files.offset(hit, address),
        _ => address,
    };
    (Frame { dso: hit.map(|hit| hit.dso), at, mode, process }, valid)
}

/// The frame at an address, given after its cpumode, when a record of process `pid` was written.
pub(crate) fn frame_at(
    facts: &Facts,
    (record, layouts): (&Record<'_>, &Layouts),
    pid: Option<u32>,
    time: u64,
    (mode, address): (u16, u64),
) -> Frame {
    match facts.guests.space(record, layouts, pid, mode) {
        Some(space) => frame_in(facts, space, time, (mode, address)).0,
        None => Frame { dso: None, at: address, mode, process: 0 },
    }
}

/// Distinct stacks as a tree: a node is a frame that was called from the stack of its parent.
#[derive(Clone, Default, Debug)]
pub struct StackTree {
    frames: IndexSet<Frame, RandomState>,
    /// Parent, or [`StackTree::ROOT`], and frame. A parent has a lower number than its children.
    nodes: IndexSet<(u32, u32), RandomState>,
}

impl StackTree {
    /// The stack without frames.
    pub const ROOT: u32 = u32::MAX;

    /// The distinct frames, in the order of their numbers.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = Frame> {
        self.frames.iter().copied()
    }

    /// The parent and the frame of each node, in the order of their numbers.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (u32, u32)> {
        self.nodes.iter().copied()
    }

    /// Adds the stacks to `nodes`, a tree of names: `names` has those of each frame, outermost first. A name for which
    /// `restarts` is true drops its callers. Returns the node of each stack.
    pub(crate) fn renamed(
        &self,
        nodes: &mut IndexSet<(u32, u32), RandomState>,
        names: &[Vec<u32>],
        restarts: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let mut placed: Vec<u32> = Vec::with_capacity(self.nodes.len());
        // A parent has a lower number than its children, so its node is known.
        for (parent, frame) in self.nodes() {
            let mut node = placed.get(parent as usize).copied().unwrap_or(Self::ROOT);
            for &name in &names[frame as usize] {
                let parent = if restarts(name) { Self::ROOT } else { node };
                node = nodes.insert_full((parent, name)).0 as u32;
            }
            placed.push(node);
        }
        placed
    }

    fn frame(&mut self, frame: Frame) -> Result<u32> {
        numbered(self.frames.insert_full(frame).0)
    }

    fn child(&mut self, parent: u32, frame: u32) -> Result<u32> {
        numbered(self.nodes.insert_full((parent, frame)).0)
    }

    /// Adds the frames and nodes of another tree; returns their new numbers.
    fn absorb(&mut self, other: &StackTree) -> Result<(Vec<u32>, Vec<u32>)> {
        let frames: Vec<u32> = other.frames().map(|frame| self.frame(frame)).collect::<Result<_>>()?;
        let mut nodes: Vec<u32> = Vec::with_capacity(other.nodes.len());
        for (parent, frame) in other.nodes() {
            let parent = if parent == Self::ROOT { parent } else { nodes[parent as usize] };
            nodes.push(self.child(parent, frames[frame as usize])?);
        }
        Ok((frames, nodes))
    }
}

/// Numbers have 32 bits to save memory; a tree of so many nodes would take 100 GB.
fn numbered(index: usize) -> Result<u32> {
    let number = u32::try_from(index).ok().filter(|&number| number != StackTree::ROOT);
    number.context("the recording has more than 4 billion distinct stacks; filter it first")
}

/// How much samples count for.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Weight {
    /// The number of samples.
    pub samples: u64,
    /// The sum of their periods, in the event's unit.
    pub period: u64,
}

impl AddAssign for Weight {
    fn add_assign(&mut self, other: Weight) {
        self.samples += other.samples;
        // The recording can claim any period.
        self.period = self.period.saturating_add(other.period);
    }
}

/// What samples are grouped by, apart from event and stack.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Grouping {
    /// The name of the thread.
    pub comm: bool,
    /// The process.
    pub pid: bool,
    /// The thread.
    pub tid: bool,
    /// The CPU.
    pub cpu: bool,
    /// The cgroup.
    pub cgroup: bool,
    /// The time, as exactly as [`Stacks::step`] says.
    pub time: bool,
}

/// The group of a sample. Fields that it is not grouped by, and those that it lacks, are `None`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Debug)]
pub struct Label {
    /// The name of the thread at the time of the sample.
    pub comm: Option<Box<[u8]>>,
    /// The process.
    pub pid: Option<u32>,
    /// The thread.
    pub tid: Option<u32>,
    /// The CPU.
    pub cpu: Option<u32>,
    /// The path of the cgroup.
    pub cgroup: Option<Box<[u8]>>,
}

/// What samples have in common.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Row {
    /// The number of the event.
    pub event: u32,
    /// The number of the label.
    pub label: u32,
    /// The node of the stack's innermost frame, or [`StackTree::ROOT`].
    pub stack: u32,
    /// The time, ns, rounded down to a multiple of [`Stacks::step`]; [`Row::TIMELESS`] without one, or if not grouped
    /// by time.
    pub time: u64,
}

impl Row {
    /// No time.
    pub const TIMELESS: u64 = u64::MAX;
}

/// All stacks of a recording.
#[derive(Clone, Default, Debug)]
pub struct Stacks {
    /// The stacks.
    pub tree: StackTree,
    /// The groups.
    pub labels: IndexSet<Label, RandomState>,
    /// What was sampled, and how often.
    pub rows: IndexMap<Row, Weight, RandomState>,
    /// The times of each event's earliest and latest sample, ns.
    pub times: BTreeMap<u32, (u64, u64)>,
    /// What the times of rows are multiples of, ns; 0 if they are exact.
    pub step: u64,
    /// Bytes of records read, decompressed.
    pub bytes: u64,
}

/// With more rows than this, their times are rounded.
const MOST_ROWS: usize = 1 << 20;

/// The smallest and the largest step.
const STEPS: std::ops::RangeInclusive<u64> = 10_000..=1_000_000_000;

impl Stacks {
    /// Reads the samples that `filter` selects; if that is empty, all.
    ///
    /// # Errors
    ///
    /// The recording cannot be read or decompressed, or its samples lack what they are selected by.
    pub fn collect(
        recording: &mut Recording,
        facts: &Facts,
        grouping: Grouping,
        filter: &Arc<FilterOptions>,
        threads: usize,
        report: &mut Report,
    ) -> Result<Stacks> {
        let selected = match filter.is_empty() {
            true => None,
            false => Some(SelectedSamples::survey(recording, &facts.late, filter, threads, report)?),
        };
        let mut all = Joined::default();
        // Workers round by the latest known step, so that there is less to join. As each step divides the next, the
        // result is the same.
        let step = AtomicU64::new(0);
        let work = |batch: &Batch| {
            let chooser = selected.as_ref().map(SelectedSamples::chooser);
            let mut worker = Worker::new(facts, grouping, chooser);
            worker.part.stacks.step = step.load(Ordering::Relaxed);
            worker.read(batch)
        };
        let most = if grouping.time { MOST_ROWS } else { usize::MAX };
        let bytes = each_batch(recording, threads, report, work, |_, part| {
            all.join(part)?;
            all.stacks.round_times(most);
            step.store(all.stacks.step, Ordering::Relaxed);
            Ok(())
        })?;
        let mut stacks = all.finish(report)?;
        stacks.round_times(most);
        stacks.bytes = bytes;
        if let Some(selected) = selected.filter(|_| stacks.rows.is_empty()) {
            selected.hints(&recording.name).for_each(|hint| report.say(Level::Warning, hint));
        }
        Ok(stacks)
    }

    /// The sampled event that `perf script | stackcollapse-perf.pl` sees first: of those with call chains the
    /// earliest, else of all.
    pub fn first_event(&self, facts: &Facts) -> Option<u32> {
        let chains = |event: u32| facts.events.get(event as usize).is_some_and(|event| event.has_chains);
        let first = self.times.iter().min_by_key(|&(&event, &(first, _))| (!chains(event), first, event));
        first.map(|(&event, _)| event)
    }

    fn seen(&mut self, event: u32, (first, last): (u64, u64)) {
        let times = self.times.entry(event).or_insert((first, last));
        *times = (times.0.min(first), times.1.max(last));
    }

    fn add(&mut self, row: Row, weight: Weight) {
        let past = row.time.checked_rem(self.step).filter(|_| row.time != Row::TIMELESS);
        let row = Row { time: row.time - past.unwrap_or(0), ..row };
        *self.rows.entry(row).or_default() += weight;
    }

    /// Rounds times until there are at most so many rows, or rounding more would leave nothing to see. The result depends
    /// only on which rows there have been.
    fn round_times(&mut self, most: usize) {
        while self.rows.len() > most && self.step < *STEPS.end() {
            // 10 µs, 50 µs, 100 µs, …
            self.step = match self.step {
                0 => *STEPS.start(),
                step if step.ilog10() == (step * 2).ilog10() => step * 5,
                step => step * 2,
            };
            for (row, weight) in std::mem::take(&mut self.rows) {
                self.add(row, weight);
            }
        }
    }
}

/// What a sample counts for in its batch, before its counters are known.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
struct Target {
    row: Row,
    /// The sample's place among those whose user part comes later.
    deferred: Option<u32>,
}

/// A sample whose chain lacks its user part, or that user part.
#[derive(Debug)]
enum Deferred {
    /// The kernel's part, innermost frame first, as numbers of frames. The user part has the cookie of a
    /// record that comes later, of the same thread.
    Sample { tid: u32, cookie: u64, kernel: Box<[u32]>, weights: Vec<(Row, Weight)> },
    /// The stack of the user part.
    User { tid: u32, cookie: u64, stack: u32 },
}

/// The stacks of one batch.
#[derive(Default)]
struct Part {
    stacks: Stacks,
    counters: Counters<Target>,
    deferred: Vec<Deferred>,
    /// Samples whose chain does not fit into the record.
    torn: u64,
}

/// Resolves the addresses of one batch.
struct Worker<'f> {
    facts: &'f Facts,
    grouping: Grouping,
    chooser: Option<SampleChooser>,
    known: Box<[Known]>,
    /// Frames of the current chain, innermost first.
    chain: Vec<u32>,
    part: Part,
}

/// The frame at an address of a space between two changes.
#[derive(Clone, Copy)]
struct Known {
    space: Space,
    address: u64,
    from: u64,
    until: u64,
    frame: u32,
}

/// The number of known frames, a power of two.
const KNOWN: usize = 1 << 13;

impl<'f> Worker<'f> {
    fn new(facts: &'f Facts, grouping: Grouping, chooser: Option<SampleChooser>) -> Worker<'f> {
        let space = Space { machine: Machine::Host, pid: 0 };
        // `from` above `until` matches no time.
        let empty = Known { space, address: 0, from: 1, until: 0, frame: 0 };
        Worker {
            facts,
            grouping,
            chooser,
            known: vec![empty; KNOWN].into(),
            chain: Vec::new(),
            part: Part::default(),
        }
    }

    fn read(mut self, batch: &Batch) -> Result<Part> {
        let wanted = Kinds::of(&[RecordType::SAMPLE, RecordType::CALLCHAIN_DEFERRED]);
        let mut walker = batch.walk();
        while let Some(record) = walker.next_wanted(wanted, usize::MAX)? {
            match CallchainDeferred::of(&record) {
                Some(deferred) => self.user_part(&record, deferred, &batch.layouts)?,
                None if record.kind() == RecordType::SAMPLE => self.sample(&record, &batch.layouts)?,
                None => {}
            }
        }
        Ok(self.part)
    }

    fn sample(&mut self, sample: &Record<'_>, layouts: &Layouts) -> Result<()> {
        let Some((event, layout)) = event_of(sample, layouts, self.facts) else {
            self.part.counters.astray += 1;
            return Ok(());
        };
        if self.chooser.as_mut().is_some_and(|chooser| !chooser.takes(sample, layouts)) {
            return Ok(());
        }
        let task = layout.pid_tid(sample);
        let time = moment(sample, Some(layout), layouts);
        let cookie = self.resolve(sample, layout, layouts, task.map(|(pid, _)| pid), time)?;
        let label = self.label(sample, layout, layouts, task, time)?;
        let Worker { facts, grouping, chain, part, .. } = self;
        let Part { stacks, counters, deferred, .. } = part;
        stacks.seen(event as u32, (time, time));
        let place = match cookie {
            None => None,
            Some(cookie) => {
                let tid = task.map_or(0, |(_, tid)| tid);
                let kernel = std::mem::take(chain).into();
                deferred.push(Deferred::Sample { tid, cookie, kernel, weights: Vec::new() });
                Some(numbered(deferred.len() - 1)?)
            }
        };
        let mut stack = StackTree::ROOT;
        for &frame in chain.iter().rev() {
            stack = stacks.tree.child(stack, frame)?;
        }
        let time = layout.time(sample).filter(|_| grouping.time).unwrap_or(Row::TIMELESS);
        let target = |event| Target { row: Row { event, label, stack, time }, deferred: place };
        counters.sample((sample, event, layout), layouts, facts, target, |target, period| {
            count(stacks, deferred, target, period);
        });
        Ok(())
    }

    /// Resolves the addresses of a sample into `chain`; returns the cookie of its user part, if that comes
    /// later.
    fn resolve(
        &mut self,
        sample: &Record<'_>,
        layout: &Layout,
        layouts: &Layouts,
        pid: Option<u32>,
        time: u64,
    ) -> Result<Option<u64>> {
        self.chain.clear();
        let Some(addresses) = callchain(sample, layout) else {
            // perf shows the address of the sample if there is no chain.
            self.part.torn += u64::from(layout.sample_type & sample_type::CALLCHAIN != 0);
            let ip = layout.ip(sample).unwrap_or(0);
            return self.push(sample, layouts, (sample.cpumode(), ip), pid, time).map(|()| None);
        };
        // Before the first marker, perf takes addresses for those of a process.
        for entry in frames(addresses, USER) {
            self.push(sample, layouts, entry, pid, time)?;
        }
        let marker = addresses.len().checked_sub(2).and_then(|at| addresses.get(at));
        let deferred = marker == Some(Marker::USER_DEFERRED.0);
        Ok(addresses.get(addresses.len().wrapping_sub(1)).filter(|_| deferred))
    }

    fn push(
        &mut self,
        record: &Record<'_>,
        layouts: &Layouts,
        (mode, address): (u16, u64),
        pid: Option<u32>,
        time: u64,
    ) -> Result<()> {
        let facts = self.facts;
        let Some(space) = facts.guests.space(record, layouts, pid, mode) else {
            let frame = self.part.stacks.tree.frame(Frame { dso: None, at: address, mode, process: 0 })?;
            self.chain.push(frame);
            return Ok(());
        };
        let slot = (address ^ address >> 13 ^ u64::from(space.pid) << 4) as usize % KNOWN;
        let known = self.known[slot];
        if known.address == address && known.space == space && known.from <= time && time < known.until {
            self.chain.push(known.frame);
            return Ok(());
        }
        let (frame, valid) = frame_in(facts, space, time, (mode, address));
        let frame = self.part.stacks.tree.frame(frame)?;
        self.known[slot] = Known { space, address, from: valid.start, until: valid.end, frame };
        self.chain.push(frame);
        Ok(())
    }

    fn label(
        &mut self,
        sample: &Record<'_>,
        layout: &Layout,
        layouts: &Layouts,
        task: Option<(u32, u32)>,
        time: u64,
    ) -> Result<u32> {
        let Worker { facts, grouping, .. } = self;
        let (pid, tid) = task.unzip();
        let comm = |tid| {
            let machine = facts.guests.machine(sample, layouts, named_pid(sample));
            facts.tasks.name(machine, tid, time).into_owned().into()
        };
        let cgroup = || {
            let id = Sample::parse(sample, layout).ok()?.cgroup?;
            facts.cgroups.get(&id).cloned()
        };
        let label = Label {
            comm: tid.filter(|_| grouping.comm).map(comm),
            pid: pid.filter(|_| grouping.pid),
            tid: tid.filter(|_| grouping.tid),
            cpu: layout.cpu(sample).filter(|_| grouping.cpu),
            cgroup: grouping.cgroup.then(cgroup).flatten(),
        };
        numbered(self.part.stacks.labels.insert_full(label).0)
    }

    fn user_part(
        &mut self,
        record: &Record<'_>,
        user: CallchainDeferred<'_>,
        layouts: &Layouts,
    ) -> Result<()> {
        let layout = layouts.layout_of(record);
        let Some((pid, tid)) = layout.and_then(|layout| layout.pid_tid(record)) else { return Ok(()) };
        let time = moment(record, layout, layouts);
        self.chain.clear();
        for entry in frames(user.ips, USER) {
            self.push(record, layouts, entry, Some(pid), time)?;
        }
        let mut stack = StackTree::ROOT;
        for &frame in self.chain.iter().rev() {
            stack = self.part.stacks.tree.child(stack, frame)?;
        }
        self.part.deferred.push(Deferred::User { tid, cookie: user.cookie, stack });
        Ok(())
    }
}

/// Counts a sample, or lets it wait for the user part of its chain.
fn count(stacks: &mut Stacks, deferred: &mut [Deferred], target: Target, period: u64) {
    let weight = Weight { samples: 1, period };
    match target.deferred.and_then(|place| deferred.get_mut(place as usize)) {
        Some(Deferred::Sample { weights, .. }) => weights.push((target.row, weight)),
        _ => stacks.add(target.row, weight),
    }
}

/// A sample that waits for its user part: the kernel's frames, innermost first, and what they count for.
type Waiting = (Box<[u32]>, Vec<(Row, Weight)>);

/// The stacks of all batches so far.
#[derive(Default)]
struct Joined {
    stacks: Stacks,
    counters: Counters<Target>,
    /// Samples that wait for the user part of their chain, by thread and cookie.
    waiting: HashMap<(u32, u64), Vec<Waiting>>,
    torn: u64,
}

impl Joined {
    fn join(&mut self, part: Part) -> Result<()> {
        let (frames, nodes) = self.stacks.tree.absorb(&part.stacks.tree)?;
        let stacks = &mut self.stacks;
        let labels = part.stacks.labels.into_iter().map(|label| numbered(stacks.labels.insert_full(label).0));
        let labels: Vec<u32> = labels.collect::<Result<_>>()?;
        let node = |stack: u32| if stack == StackTree::ROOT { stack } else { nodes[stack as usize] };
        let row = |row: Row| Row { label: labels[row.label as usize], stack: node(row.stack), ..row };
        for (key, weight) in part.stacks.rows {
            stacks.add(row(key), weight);
        }
        part.stacks.times.into_iter().for_each(|(event, times)| stacks.seen(event, times));
        for deferred in part.deferred {
            match deferred {
                Deferred::Sample { tid, cookie, kernel, weights } => {
                    let kernel = kernel.iter().map(|&frame| frames[frame as usize]).collect();
                    let weights = weights.into_iter().map(|(key, weight)| (row(key), weight)).collect();
                    self.waiting.entry((tid, cookie)).or_default().push((kernel, weights));
                }
                Deferred::User { tid, cookie, stack } => {
                    let waiting = self.waiting.remove(&(tid, cookie)).unwrap_or_default();
                    stacks.complete(waiting, node(stack))?;
                }
            }
        }
        let mut late = Vec::new();
        let mut counters = part.counters;
        counters.retarget(|target| Target { row: row(target.row), ..target });
        self.counters.join(counters, |target, period| late.push((target.row, period)));
        for (row, period) in late {
            stacks.add(row, Weight { samples: 1, period });
        }
        self.torn += part.torn;
        Ok(())
    }

    fn finish(self, report: &mut Report) -> Result<Stacks> {
        let Joined { mut stacks, counters, waiting, torn } = self;
        let mut incomplete = 0;
        let mut waiting: Vec<_> = waiting.into_iter().collect();
        waiting.sort_by_key(|(key, _)| *key);
        for (_, samples) in waiting {
            incomplete += samples.len() as u64;
            stacks.complete(samples, StackTree::ROOT)?;
        }
        if counters.astray > 0 {
            let samples = counted(counters.astray, "sample belongs", "samples belong");
            report.say(Level::Loss, format!("{samples} to no event of the recording and is not counted"));
        }
        if incomplete > 0 {
            let chains = counted(incomplete, "call chain lacks its", "call chains lack their");
            report.say(Level::Warning, format!("{chains} user part: its record is not in the recording"));
        }
        if torn > 0 {
            let chains = counted(torn, "call chain does", "call chains do");
            report.say(Level::Loss, format!("{chains} not fit into its sample; only the address is used"));
        }
        Ok(stacks)
    }
}

impl Stacks {
    /// Puts the kernel's frames of samples onto the stack of their user part.
    fn complete(&mut self, samples: Vec<Waiting>, user: u32) -> Result<()> {
        for (kernel, weights) in samples {
            let mut stack = user;
            for &frame in kernel.iter().rev() {
                stack = self.tree.child(stack, frame)?;
            }
            for (row, weight) in weights {
                self.add(Row { stack, ..row }, weight);
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_rounded_as_much_as_necessary() {
        let mut stacks = Stacks::default();
        for time in (0..1000).map(|ms| 7 + ms * 1_000_000) {
            let row = Row { event: 0, label: 0, stack: StackTree::ROOT, time };
            stacks.add(row, Weight { samples: 1, period: 2 });
        }
        stacks.round_times(1000);
        assert_eq!((stacks.rows.len(), stacks.step), (1000, 0));
        for (most, step) in [(999, 5_000_000), (199, 10_000_000), (3, 500_000_000), (0, 1_000_000_000)] {
            stacks.round_times(most);
            assert_eq!((stacks.rows.len() as u64, stacks.step), (1_000_000_000 / step, step));
            let samples: u64 = stacks.rows.values().map(|weight| weight.samples).sum();
            assert_eq!(samples, 1000);
            assert!(stacks.rows.keys().all(|row| row.time % step == 0));
        }
        stacks.round_times(0);
        assert_eq!(stacks.step, 1_000_000_000);
    }
}

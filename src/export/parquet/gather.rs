//! Reads the samples of a recording on all threads, sorts them by time, and collects the distinct frames and chains.

use std::collections::{BTreeMap, HashMap};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use perfx_filter::{FilterOptions, SampleChooser, SelectedSamples};
use perfx_format::read::{Batch, Recording};
use perfx_format::record::deferred::CallchainDeferred;
use perfx_format::record::lost;
use perfx_format::sample::{BranchFlags, Branches, Sample, Weight as Cost};
use perfx_format::{
    BranchStacks, ByTracepoint, Kinds, Layout, Layouts, OrderKey, Record, RecordType, Time, sample_type as st,
};
use perfx_look::trace::TracePrinter;
use perfx_model::address_space::Machine;
use perfx_pipeline::{Report, Result};
use perfx_resolve::Facts;

use super::history::{Thread, signed};
use super::row::{Part, SampleRow, renumber};
use crate::batches::each_batch;
use crate::chains::{At, Deferred, Lack, Resolver, StackTree, Waiting, numbered};
use crate::counters::{event_of, period};
use crate::losses::{Losses, say_cut_off};
use crate::sorted::{RowEnd, Sorted, rows_mut, sorted};
use crate::stacks::{Weight, spanning};

/// Distinct texts of a recording, by number.
pub(super) type Texts = IndexSet<Box<[u8]>, RandomState>;

/// What the second reading finds.
pub(super) struct Gathered {
    pub(super) samples: Sorted,
    pub(super) tree: StackTree,
    /// For each frame the lowest address at which it was found.
    pub(super) lowest: Vec<u64>,
    pub(super) chains: Chains,
    pub(super) comms: Texts,
    pub(super) cgroups: Texts,
    pub(super) events: Vec<Weight>,
    pub(super) threads: HashMap<Thread, Weight, RandomState>,
    /// The times of the first and the last sample.
    pub(super) times: Option<(Time, Time)>,
    /// Records lost while recording.
    pub(super) lost: lost::Losses,
    pub(super) rows: u64,
}

/// The distinct chains that samples have.
#[derive(Default)]
pub(super) struct Chains {
    /// The node of each, and whether outer frames may be missing.
    pub(super) list: Vec<(u32, bool)>,
    /// The number of each node's chain, or [`NONE`].
    numbers: Vec<u32>,
    /// The chains of samples whose user part came later.
    pub(super) deferred: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Chains {
    /// The number of the chain that ends at a node. The chain without frames has a number, too.
    fn number(&mut self, node: u32, truncated: bool) -> u32 {
        let at = if node == StackTree::ROOT { 0 } else { node as usize + 1 };
        if self.numbers.len() <= at {
            self.numbers.resize(at + 1, NONE);
        }
        if self.numbers[at] == NONE {
            self.numbers[at] = self.list.len() as u32;
            self.list.push((node, false));
        }
        let number = self.numbers[at];
        self.list[number as usize].1 |= truncated;
        number
    }
}

/// A branch: the sample, its place, from and to, and details.
pub(super) struct BranchRow {
    pub(super) sample: u64,
    pub(super) nr: u32,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) flags: BranchFlags,
}

/// Reads the samples that `filter` selects; if that is empty, all. `branch` gets the branches of their stacks, in
/// the order of the file. `spill` is an empty file.
pub(super) fn gather(
    recording: &mut Recording,
    (facts, traces): (&Facts, &ByTracepoint<TracePrinter<'_>>),
    filter: &Arc<FilterOptions>,
    spill: File,
    branch: Option<&mut dyn FnMut(BranchRow) -> Result<()>>,
    threads: usize,
    report: &mut Report,
) -> Result<Gathered> {
    let selected = SelectedSamples::if_any(recording, filter, threads, report)?;
    let mut joined = Joined {
        all: Gathered {
            samples: Sorted::new(spill),
            tree: StackTree::default(),
            lowest: Vec::new(),
            chains: Chains::default(),
            comms: Texts::default(),
            cgroups: Texts::default(),
            events: vec![Weight::default(); facts.events.len()],
            threads: HashMap::default(),
            times: None,
            lost: lost::Losses::default(),
            rows: 0,
        },
        waiting: Waiting::default(),
        losses: Losses::default(),
    };
    let with_branches = branch.is_some();
    let work = |batch: &Batch| {
        let chooser = selected.as_ref().map(SelectedSamples::chooser);
        let (resolver, part) = (Resolver::new(facts, true), Found::default());
        Worker { facts, traces, chooser, with_branches, resolver, comm: None, thread: None, part }.read(batch)
    };
    let mut ignore = |_| Ok(());
    let branch = branch.unwrap_or(&mut ignore);
    each_batch(recording, threads, report, work, |_, part| joined.join(part, branch))?;
    let all = joined.finish(report)?;
    if let Some(selected) = selected.filter(|_| all.rows == 0) {
        selected.say_none(&recording.name, false, report);
    }
    Ok(all)
}

/// What is found in one batch.
#[derive(Default)]
struct Found {
    text: Vec<u8>,
    rows: Vec<RowEnd>,
    tree: StackTree,
    lowest: Vec<u64>,
    comms: Texts,
    cgroups: Texts,
    events: BTreeMap<u32, Weight>,
    threads: HashMap<Thread, Weight, RandomState>,
    times: Option<(Time, Time)>,
    /// The number of samples, also of those that are left out.
    samples: u64,
    lost: lost::Losses,
    deferred: Vec<Deferred<u32>>,
    deferred_samples: u32,
    branches: Vec<BranchRow>,
    losses: Losses,
}

impl Found {
    /// Adds to the sum of a thread.
    fn add(&mut self, thread: Option<(Thread, Weight)>) {
        if let Some((thread, weight)) = thread {
            *self.threads.entry(thread).or_default() += weight;
        }
    }
}

/// Reads one batch.
struct Worker<'f> {
    facts: &'f Facts,
    /// For each event, whether its raw data has fields.
    traces: &'f ByTracepoint<TracePrinter<'f>>,
    chooser: Option<SampleChooser>,
    with_branches: bool,
    resolver: Resolver<'f>,
    /// The name of the last sample's thread, and when it is its name. Most samples have the thread of the one before.
    comm: Option<(Machine, u32, Range<OrderKey>, u32)>,
    /// The last sample's thread, and what is not yet in the sums.
    thread: Option<(Thread, Weight)>,
    part: Found,
}

/// Parts of a sample that only a complete parse finds.
const BEHIND: u64 = st::RAW
    | st::BRANCH_STACK
    | st::WEIGHT
    | st::WEIGHT_STRUCT
    | st::DATA_SRC
    | st::TRANSACTION
    | st::PHYS_ADDR
    | st::CGROUP
    | st::DATA_PAGE_SIZE
    | st::CODE_PAGE_SIZE;

impl Worker<'_> {
    fn read(mut self, batch: &Batch) -> Result<Found> {
        let (mut walker, mut wanted) = (batch.walk(), Kinds::SAMPLES.union(Kinds::LOST));
        if let Some(chooser) = &self.chooser {
            self.part.samples += chooser.leave_out(batch, &mut wanted);
        }
        while let Some(record) = walker.next_wanted(wanted, usize::MAX)? {
            match record.kind() {
                RecordType::SAMPLE => {
                    let index = self.part.samples;
                    self.part.samples += 1;
                    self.sample(&record, &batch.layouts, index)?;
                }
                RecordType::CALLCHAIN_DEFERRED => {
                    let Some(deferred) = CallchainDeferred::of(&record) else { continue };
                    let user = self.resolver.user_part(&record, deferred, &batch.layouts)?;
                    self.part.deferred.extend(user.map(Deferred::User));
                }
                _ => self.part.lost.add(&record, &batch.layouts),
            }
        }
        self.part.add(self.thread);
        (self.part.tree, self.part.lowest) = (self.resolver.tree, self.resolver.lowest);
        Ok(self.part)
    }

    fn sample(&mut self, sample: &Record<'_>, layouts: &Layouts, index: u64) -> Result<()> {
        let Some((event, layout)) = event_of(sample, layouts, self.facts) else {
            self.part.losses.astray += 1;
            return Ok(());
        };
        if self.chooser.as_mut().is_some_and(|chooser| !chooser.takes(sample, layouts)) {
            return Ok(());
        }
        self.part.losses.see(sample, layout);
        let facts = self.facts;
        let task = layout.pid_tid(sample);
        let at = At {
            record: sample,
            layouts,
            pid: task.map(|(pid, _)| pid),
            key: OrderKey::of(sample, Some(layout), layouts),
        };
        let machine = facts.guests.machine(sample, layouts, at.pid);
        let mut row = SampleRow {
            event: event as u32,
            mode: sample.cpumode() as u8,
            period: period(sample, layout, &facts.events[event]),
            ..SampleRow::default()
        };
        row.frame = self.resolver.frame(at, sample.cpumode(), layout.ip(sample).unwrap_or(0))?;
        self.stack(at, layout, &mut row, facts.events[event].max_stack)?;
        row.set(Part::Pid, task.map(|(pid, _)| u64::from(pid)));
        row.set(Part::Tid, task.map(|(_, tid)| u64::from(tid)));
        row.set(Part::Cpu, layout.cpu(sample).map(u64::from));
        if let Some((_, tid)) = task {
            row.set(Part::Comm, u64::from(self.comm(machine, tid, at.key)?));
        }
        if let Some(pid) = machine.guest() {
            row.set(Part::MachinePid, u64::from(pid));
            row.set(Part::Vcpu, layout.id(sample).and_then(|id| facts.guests.vcpu(id)).map(u64::from));
        }
        if let Some(addr) = layout.addr(sample) {
            row.set(Part::Addr, addr);
            row.set(Part::DataFrame, self.data_frame(at, addr)?.map(u64::from));
        }
        let mut raw = None;
        if layout.sample_type & BEHIND != 0 {
            raw = self.behind(at, layout, &mut row, index)?;
        }
        let part = &mut self.part;
        row.pack(&mut part.text);
        if self.traces.get(event).is_some() {
            part.text.extend_from_slice(raw.unwrap_or_default());
        }
        let time = layout.recorded_time(sample).filter(|&time| time != u64::MAX);
        let index = numbered(index as usize)?;
        part.rows.push(RowEnd { time: time.map(|time| signed(time) as u64), index, end: part.text.len() });
        part.times = spanning(part.times, layout.time(sample).map(|time| (time, time)));
        let weight = Weight { samples: 1, period: row.period };
        *part.events.entry(row.event).or_default() += weight;
        if let Some((pid, tid)) = task {
            let thread = (machine, pid, tid);
            match &mut self.thread {
                Some((last, sum)) if *last == thread => *sum += weight,
                last => part.add(last.replace((thread, weight))),
            }
        }
        Ok(())
    }

    /// The number of the name of a thread.
    fn comm(&mut self, machine: Machine, tid: u32, key: OrderKey) -> Result<u32> {
        match &self.comm {
            Some((of, thread, during, comm)) if (*of, *thread) == (machine, tid) && during.contains(&key) => {
                Ok(*comm)
            }
            _ => {
                let (name, during) = self.facts.tasks.name_during(machine, tid, key);
                let comm = text(&mut self.part.comms, &name)?;
                self.comm = Some((machine, tid, during, comm));
                Ok(comm)
            }
        }
    }

    fn stack(&mut self, at: At<'_, '_>, layout: &Layout, row: &mut SampleRow, most: usize) -> Result<()> {
        let lack = self.resolver.sample(at, layout)?;
        row.truncated = self.resolver.chain.len() >= most;
        match lack {
            Lack::Chain => {}
            Lack::Torn => self.part.losses.torn += 1,
            Lack::Nothing => row.set(Part::Stack, u64::from(self.resolver.stack()?)),
            Lack::User(cookie) => {
                let tid = layout.pid_tid(at.record).map_or(0, |(_, tid)| tid);
                let number = self.part.deferred_samples;
                self.part.deferred_samples += 1;
                let kernel = std::mem::take(&mut self.resolver.chain).into();
                self.part.deferred.push(Deferred::Sample { tid, cookie, kernel, sample: number });
                row.set(Part::Stack, u64::from(number));
                row.deferred = true;
            }
        }
        Ok(())
    }

    /// The frame of an address of data, if it is in a file or kernel.
    fn data_frame(&mut self, at: At<'_, '_>, addr: u64) -> Result<Option<u32>> {
        let mode = at.record.level_of(addr);
        let facts = self.facts;
        let space = facts.guests.space(at.record, at.layouts, at.pid, mode);
        let hit = space.and_then(|space| facts.spaces.find(space, addr, at.key).0);
        match hit.filter(|hit| !facts.is_memory(hit.dso)) {
            Some(_) => self.resolver.frame(at, mode, addr).map(Some),
            None => Ok(None),
        }
    }

    /// Reads the parts behind the call chain; returns the raw data.
    fn behind<'a>(
        &mut self,
        at: At<'_, 'a>,
        layout: &Layout,
        row: &mut SampleRow,
        index: u64,
    ) -> Result<Option<&'a [u8]>> {
        let Ok(sample) = Sample::parse_known(at.record, layout) else {
            self.part.losses.partial += 1;
            return Ok(None);
        };
        match sample.weight {
            Some(Cost::Full(cost)) => row.set(Part::Weight, cost),
            Some(Cost::Parts { var1_dw, var2_w, var3_w }) => {
                row.set(Part::Weight, u64::from(var1_dw));
                row.set(Part::Weight2, u64::from(var2_w));
                row.set(Part::Weight3, u64::from(var3_w));
            }
            None => {}
        }
        row.set(Part::DataSrc, sample.data_src.map(|source| source.0));
        row.set(Part::Transaction, sample.transaction);
        row.set(Part::PhysAddr, sample.phys_addr);
        row.set(Part::CodePageSize, sample.code_page_size);
        row.set(Part::DataPageSize, sample.data_page_size);
        if let Some(cgroup) = sample.cgroup.and_then(|id| self.facts.cgroups.get(&id)) {
            row.set(Part::Cgroup, u64::from(text(&mut self.part.cgroups, cgroup)?));
        }
        if self.with_branches && layout.branch_stacks() != BranchStacks::Calls {
            for (branch, nr) in sample.branches.iter().flat_map(Branches::iter).zip(0..) {
                let from = self.resolver.frame(at, at.record.level_of(branch.from), branch.from)?;
                let to = self.resolver.frame(at, at.record.level_of(branch.to), branch.to)?;
                self.part.branches.push(BranchRow { sample: index, nr, from, to, flags: branch.flags });
            }
        }
        Ok(sample.raw)
    }
}

/// The number of a text.
fn text(texts: &mut Texts, text: &[u8]) -> Result<u32> {
    match texts.get_index_of(text) {
        Some(number) => Ok(number as u32),
        None => numbered(texts.insert_full(text.into()).0),
    }
}

/// What is found in the batches so far.
struct Joined {
    all: Gathered,
    waiting: Waiting<usize>,
    losses: Losses,
}

impl Joined {
    fn join(&mut self, mut part: Found, branch: &mut dyn FnMut(BranchRow) -> Result<()>) -> Result<()> {
        let all = &mut self.all;
        let numbers = all.tree.absorb(&part.tree)?;
        for (&frame, &address) in numbers.frames.iter().zip(&part.lowest) {
            match all.lowest.get_mut(frame as usize) {
                Some(lowest) => *lowest = address.min(*lowest),
                None => all.lowest.push(address),
            }
        }
        let renumbered = |all: &mut Texts, texts: Texts| -> Result<Vec<u32>> {
            texts.iter().map(|name| text(all, name)).collect()
        };
        let comms = renumbered(&mut all.comms, part.comms)?;
        let cgroups = renumbered(&mut all.cgroups, part.cgroups)?;
        let before = all.chains.deferred.len();
        all.chains.deferred.resize(before + part.deferred_samples as usize, NONE);
        numbered(all.chains.deferred.len())?;
        all.rows += part.rows.len() as u64;
        let mut run = sorted(&part.text, &part.rows);
        let frame = |number: u32| numbers.frames[number as usize];
        for row in rows_mut(&mut run) {
            let chains = &mut all.chains;
            let stack = |number: u32, is_deferred: bool, truncated: bool| match is_deferred {
                true => before as u32 + number,
                false => chains.number(numbers.stack(number), truncated),
            };
            renumber(row, frame, stack, |n| comms[n as usize], |n| cgroups[n as usize]);
        }
        let first = all.samples.records();
        all.samples.push(&run, part.samples)?;
        for deferred in part.deferred {
            match deferred {
                Deferred::Sample { tid, cookie, kernel, sample } => {
                    self.waiting.push((tid, cookie), numbers.chain(&kernel), before + sample as usize);
                }
                Deferred::User(user) => {
                    for (kernel, sample) in self.waiting.take(user) {
                        all.complete(&kernel, sample, numbers.stack(user.stack), false)?;
                    }
                }
            }
        }
        for (event, weight) in part.events {
            all.events[event as usize] += weight;
        }
        for (thread, weight) in part.threads.drain() {
            *all.threads.entry(thread).or_default() += weight;
        }
        all.times = spanning(all.times, part.times);
        all.lost.join(part.lost);
        self.losses += part.losses;
        for row in part.branches {
            branch(BranchRow {
                sample: first + row.sample,
                from: frame(row.from),
                to: frame(row.to),
                ..row
            })?;
        }
        Ok(())
    }

    fn finish(self, report: &mut Report) -> Result<Gathered> {
        let Joined { mut all, waiting, mut losses } = self;
        for (kernel, sample) in waiting.rest() {
            losses.incomplete += 1;
            all.complete(&kernel, sample, StackTree::ROOT, true)?;
        }
        losses.say("left out", report);
        // Columns have numbers with a sign.
        say_cut_off(all.events.iter().map(|weight| weight.period), i64::MAX as u64, report);
        Ok(all)
    }
}

impl Gathered {
    /// Puts the kernel's frames of a sample onto the stack of its user part.
    fn complete(&mut self, kernel: &[u32], sample: usize, user: u32, truncated: bool) -> Result<()> {
        let stack = self.tree.push(user, kernel)?;
        self.chains.deferred[sample] = self.chains.number(stack, truncated);
        Ok(())
    }
}

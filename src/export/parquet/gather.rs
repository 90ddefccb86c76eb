//! Reads samples on all threads, sorts them by time, and collects distinct frames and chains.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fs::File;
use std::ops::Range;
use std::sync::Arc;

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use perfx_filter::{FilterOptions, SelectedSamples};
use perfx_format::read::Recording;
use perfx_format::record::lost;
use perfx_format::sample::{BranchFlags, Branches, Weight as Cost};
use perfx_format::{
    BranchStacks, ByTracepoint, Kinds, Layouts, OrderKey, Record, RecordType, Time, sample_type as st,
};
use perfx_look::trace::TracePrinter;
use perfx_model::address_space::Machine;
use perfx_pipeline::{Report, Result};
use perfx_resolve::Facts;
use perfx_samples::{Before, Counters, Late, Losses, SampleView, Visit, say_cut_off, visit};

use super::history::{Thread, signed};
use super::row::{Part, SampleRow, renumber, set_period};
use crate::chains::{At, Deferred, Lack, Resolver, StackTree, Waiting, numbered};
use crate::counted::wanted_events;
use crate::sorted::{RowPlace, Sorted, rows_mut, sorted};
use crate::stacks::{Weight, spanning};

pub(super) type Texts = IndexSet<Box<[u8]>, RandomState>;

pub(super) struct Gathered {
    pub(super) samples: Sorted,
    pub(super) tree: StackTree,
    pub(super) lowest: Vec<u64>,
    pub(super) chains: Chains,
    pub(super) comms: Texts,
    pub(super) cgroups: Texts,
    pub(super) events: Vec<Weight>,
    pub(super) threads: HashMap<Thread, Weight, RandomState>,
    pub(super) times: Option<(Time, Time)>,
    pub(super) lost: lost::Losses,
    pub(super) rows: u64,
}

#[derive(Default)]
pub(super) struct Chains {
    /// The node of each chain, and true if outer frames may be missing.
    pub(super) list: Vec<(u32, bool)>,
    numbers: Vec<u32>,
    pub(super) deferred: Vec<u32>,
}

const NONE: u32 = u32::MAX;

impl Chains {
    /// The number of the chain that ends at a node. The empty chain has a number, too.
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

pub(super) struct BranchRow {
    pub(super) sample: u64,
    pub(super) nr: u32,
    pub(super) from: u32,
    pub(super) to: u32,
    pub(super) flags: BranchFlags,
}

/// Reads the samples that `filter` selects; if that is empty, all. `branch` gets the branches of their
/// stacks, in file order. `spill` is an empty file.
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
    let mut ignore = |_| Ok(());
    let (wanted, with_branches) = (wanted_events(facts, filter), branch.is_some());
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
        branch: branch.unwrap_or(&mut ignore),
    };
    let new = || {
        let (resolver, part) = (Resolver::new(facts, true), Found::default());
        Worker { facts, traces, wanted: &wanted, with_branches, resolver, comm: None, thread: None, part }
    };
    let (losses, _) = visit(recording, (facts, selected.as_ref()), threads, report, new, &mut joined)?;
    let all = joined.finish(losses, report)?;
    if let Some(selected) = selected.filter(|_| all.rows == 0) {
        selected.say_none(&recording.name, false, report);
    }
    Ok(all)
}

#[derive(Default)]
struct Found {
    text: Vec<u8>,
    rows: Vec<RowPlace>,
    /// The rows, events and threads of samples whose counters were first read in this batch.
    late: Late<(usize, u32, Option<Thread>)>,
    tree: StackTree,
    lowest: Vec<u64>,
    comms: Texts,
    cgroups: Texts,
    events: BTreeMap<u32, Weight>,
    threads: HashMap<Thread, Weight, RandomState>,
    times: Option<(Time, Time)>,
    /// Including those left out.
    samples: u64,
    deferred: Vec<Deferred<u32>>,
    deferred_samples: u32,
    branches: Vec<BranchRow>,
}

impl Found {
    fn add(&mut self, thread: Option<(Thread, Weight)>) {
        if let Some((thread, weight)) = thread {
            *self.threads.entry(thread).or_default() += weight;
        }
    }
}

struct Worker<'f> {
    facts: &'f Facts,
    traces: &'f ByTracepoint<TracePrinter<'f>>,
    wanted: &'f [bool],
    with_branches: bool,
    resolver: Resolver<'f>,
    /// The last sample's thread name, and the keys for which it is valid: the next is often of that thread.
    comm: Option<(Machine, u32, Range<OrderKey>, u32)>,
    /// The last sample's thread, and its weight that is not yet in the sums.
    thread: Option<(Thread, Weight)>,
    part: Found,
}

/// The parts that only a complete parse of a sample finds.
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

impl<'f> Visit for Worker<'f> {
    type Part = Found;
    type All = Joined<'f>;
    const OTHERS: Kinds = Kinds::SAMPLES;

    fn other(&mut self, record: &Record<'_>, layouts: &Layouts) -> Result<()> {
        match record.kind() {
            RecordType::SAMPLE => self.part.samples += 1,
            RecordType::CALLCHAIN_DEFERRED => {
                self.part.deferred.extend(self.resolver.user_part(record, layouts)?);
            }
            _ => {}
        }
        Ok(())
    }

    fn sample(&mut self, sample: SampleView<'_>, event: usize, counters: &mut Counters<'_>) -> Result<()> {
        counters.losses.see(sample);
        let (mut gained, mut late) = (Vec::new(), Late::new());
        let target = |event: usize| self.wanted[event].then_some(event as u32);
        counters.count(sample, event, &mut late, target, |event, period| gained.push((event, period, None)));
        gained.extend(late.into_iter().map(|(event, first)| (event, 0, Some(first))));
        let losses = &mut counters.losses;
        let (facts, index) = (self.facts, self.part.samples - 1);
        let (at, task) = (At::of(sample), sample.task());
        let machine = sample.machine(&facts.guests);
        let mode = sample.record.cpumode();
        let mut row = SampleRow { mode: mode as u8, ..SampleRow::default() };
        row.frame = self.resolver.frame(at, mode, sample.ip().unwrap_or(0))?;
        self.stack(at, &mut row, facts.events[event].max_stack, losses)?;
        row.set(Part::Pid, task.map(|(pid, _)| u64::from(pid)));
        row.set(Part::Tid, task.map(|(_, tid)| u64::from(tid)));
        row.set(Part::Cpu, sample.cpu().map(u64::from));
        if let Some((_, tid)) = task {
            row.set(Part::Comm, u64::from(self.comm(machine, tid, at.key)?));
        }
        if let Some(pid) = machine.guest() {
            row.set(Part::MachinePid, u64::from(pid));
            row.set(Part::Vcpu, sample.id().and_then(|id| facts.guests.vcpu(id)).map(u64::from));
        }
        if let Some(addr) = sample.layout.addr(sample.record) {
            row.set(Part::Addr, addr);
            row.set(Part::DataFrame, self.data_frame(at, addr)?.map(u64::from));
        }
        let mut raw = None;
        if sample.has(BEHIND) {
            raw = self.after_chain(at, &mut row, index, losses)?;
        }
        let part = &mut self.part;
        let time = sample.layout.recorded_time(sample.record).filter(|&time| time != u64::MAX);
        let time = time.map(|time| signed(time) as u64);
        let index = numbered(index as usize)?;
        part.times = spanning(part.times, sample.time().map(|time| (time, time)));
        let thread = task.map(|(pid, tid)| (machine, pid, tid));
        for (of, period, first) in gained {
            (row.event, row.period) = (of, period);
            let start = part.text.len();
            row.pack(&mut part.text);
            if of as usize == event && self.traces.get(event).is_some() {
                part.text.extend_from_slice(raw.unwrap_or_default());
            }
            part.rows.push(RowPlace { time, index, text: start..part.text.len() });
            if let Some(first) = first {
                part.late.push(((part.rows.len() - 1, of, thread), first));
                continue;
            }
            let weight = Weight { samples: 1, period };
            *part.events.entry(of).or_default() += weight;
            match (thread, &mut self.thread) {
                (None, _) => {}
                (Some(thread), Some((last, sum))) if *last == thread => *sum += weight,
                (Some(thread), last) => part.add(last.replace((thread, weight))),
            }
        }
        Ok(())
    }

    fn part(mut self, passed_over: u64) -> Result<Found> {
        self.part.samples += passed_over;
        self.part.add(self.thread);
        (self.part.tree, self.part.lowest) = (self.resolver.tree, self.resolver.lowest);
        Ok(self.part)
    }

    fn join(all: &mut Joined<'f>, mut part: Found, before: &Before) -> Result<()> {
        all.weigh(&mut part, before);
        all.join(part)
    }
}

impl Worker<'_> {
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

    fn stack(&mut self, at: At<'_>, row: &mut SampleRow, most: usize, losses: &mut Losses) -> Result<()> {
        let lack = self.resolver.sample(at)?;
        row.truncated = self.resolver.chain.len() >= most;
        match lack {
            Lack::Chain => {}
            Lack::Torn => losses.torn += 1,
            Lack::Nothing => row.set(Part::Stack, u64::from(self.resolver.stack()?)),
            Lack::User(cookie) => {
                let tid = at.sample.task().map_or(0, |(_, tid)| tid);
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

    fn data_frame(&mut self, at: At<'_>, addr: u64) -> Result<Option<u32>> {
        let mode = at.sample.record.level_of(addr);
        let facts = self.facts;
        let hit = at.space(&facts.guests, mode).and_then(|space| facts.spaces.find(space, addr, at.key).0);
        match hit.filter(|hit| !facts.is_memory(hit.dso)) {
            Some(_) => self.resolver.frame(at, mode, addr).map(Some),
            None => Ok(None),
        }
    }

    /// Reads the parts after the call chain; returns the raw data.
    fn after_chain<'a>(
        &mut self,
        at: At<'a>,
        row: &mut SampleRow,
        index: u64,
        losses: &mut Losses,
    ) -> Result<Option<&'a [u8]>> {
        let Ok(sample) = at.sample.parts() else {
            losses.partial += 1;
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
        if self.with_branches && at.sample.layout.branch_stacks() != BranchStacks::Calls {
            for (branch, nr) in sample.branches.iter().flat_map(Branches::iter).zip(0..) {
                let from = self.resolver.frame(at, at.sample.record.level_of(branch.from), branch.from)?;
                let to = self.resolver.frame(at, at.sample.record.level_of(branch.to), branch.to)?;
                self.part.branches.push(BranchRow { sample: index, nr, from, to, flags: branch.flags });
            }
        }
        Ok(sample.raw)
    }
}

fn text(texts: &mut Texts, text: &[u8]) -> Result<u32> {
    match texts.get_index_of(text) {
        Some(number) => Ok(number as u32),
        None => numbered(texts.insert_full(text.into()).0),
    }
}

struct Joined<'b> {
    all: Gathered,
    waiting: Waiting<usize>,
    branch: &'b mut dyn FnMut(BranchRow) -> Result<()>,
}

impl Joined<'_> {
    /// Sets periods that depend on counters in earlier batches, and drops rows that gained nothing.
    fn weigh(&mut self, part: &mut Found, before: &Before) {
        let Found { rows, text, late, .. } = part;
        let mut unsampled: HashSet<usize> = late.iter().map(|((row, ..), _)| *row).collect();
        before.count(std::mem::take(late), |(row, event, thread), period| {
            unsampled.remove(&row);
            set_period(&mut text[rows[row].text.clone()], period);
            let weight = Weight { samples: 1, period };
            self.all.events[event as usize] += weight;
            if let Some(thread) = thread {
                *self.all.threads.entry(thread).or_default() += weight;
            }
        });
        let mut numbers = 0..;
        rows.retain(|_| !numbers.next().is_some_and(|number| unsampled.contains(&number)));
    }

    fn join(&mut self, mut part: Found) -> Result<()> {
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
        for row in part.branches {
            (self.branch)(BranchRow {
                sample: first + row.sample,
                from: frame(row.from),
                to: frame(row.to),
                ..row
            })?;
        }
        Ok(())
    }

    fn finish(self, mut losses: Losses, report: &mut Report) -> Result<Gathered> {
        let Joined { mut all, waiting, .. } = self;
        for (kernel, sample) in waiting.rest() {
            losses.incomplete += 1;
            all.complete(&kernel, sample, StackTree::ROOT, true)?;
        }
        all.lost = losses.recording;
        losses.say("left out", report);
        // Columns are signed.
        say_cut_off(all.events.iter().map(|weight| weight.period), i64::MAX as u64, report);
        Ok(all)
    }
}

impl Gathered {
    fn complete(&mut self, kernel: &[u32], sample: usize, user: u32, truncated: bool) -> Result<()> {
        let stack = self.tree.push(user, kernel)?;
        self.chains.deferred[sample] = self.chains.number(stack, truncated);
        Ok(())
    }
}

//! Makes samples from a decoded buffer, as perf 7.3 does (tools/perf/util/intel-pt.c, intel-pt-decoder.c).

use std::borrow::Cow;
use std::iter::once;
use std::ops::Range;

use perfx_auxtrace::{Change, Task};
use perfx_format::pebs::Items;
use perfx_format::record::aux::Auxtrace;
use perfx_format::record::cpumode;
use perfx_format::record::time::LAST_KEY;
use perfx_format::sample::{BranchFlags, DataSrc, FlowFlags, NewSample, Stencil, TemplateFields};
use perfx_format::{Attr, Layout, sample_type as st};
use perfx_trace::intel_pt::Walk;
use perfx_trace::{
    Block, Blocks, Event, Fault, Image as _, Kind, PathId, Reason, Space, Step, instruction_length,
};

use super::cycles::{Counted, Counts as Kinds, Cycles};
use super::errors::error;
use super::events::{Context, Events};
use super::history_plan::{self, HistoryPlan, HistoryRequest};
use super::non_flow_events::{NonFlow, power};
use super::period::PeriodState;
use crate::itrace::events::Decoded;
use crate::itrace::flow::{Class, INTERRUPTED, LEFT_GUEST, depth_words, flow, with_word};
use crate::itrace::losses::Counts;
use crate::itrace::parts::{self, Entry, PartLog, PathBranch, SampleQueue, SelectedBranches};
use crate::itrace::recorded::History;
use crate::itrace::stacks::Stacks;
use crate::itrace::templates::{TemplateKey, Templates};

/// The decoding state of a buffer up to a position.
#[derive(Clone)]
pub(super) struct Sampler<'c> {
    context: &'c Context,
    events: &'c Events,
    /// The next recorded samples, the number of the first one, and the history that they get.
    requests: (&'c [HistoryRequest], u64),
    plan: Option<&'c HistoryPlan>,
    buffer: usize,
    cpu: u32,
    stacks: Stacks,
    space: Option<Space>,
    task: Task,
    /// The TSC of the last control-flow packet, and the instructions since the packet with that TSC.
    flow_tsc: u64,
    insns_since_tsc: u64,
    /// The TSC of the branch at the end of the next step. Instructions before it have the previous TSC.
    pending_tsc: Option<u64>,
    /// The same for the steps of the next path after its lead.
    pending_tsc_after_lead: Option<u64>,
    /// The ratio of the core's frequency to the bus clock (0 if unknown), and the last one with a sample.
    ratio: u8,
    sampled_ratio: u8,
    /// The address at which the ratio changed, until a sample reports it.
    changed: Option<u64>,
    /// The flag of branches in a transaction, or 0.
    in_transaction: u64,
    /// The interrupt flag after the next branch that needs a packet, if that changes it.
    flag: Option<bool>,
    /// The interrupt flag; at how many instructions it last changed, and true if a branch changed it.
    interrupts: bool,
    toggled: Option<(u64, bool)>,
    /// Address size of the last code, bits.
    bits: u32,
    /// The event data (EVD) of the next event such as an interrupt, as in its raw data.
    data: Vec<u32>,
    /// The items of the next PEBS sample.
    items: Option<Box<Items>>,
    /// Where tracing has ended.
    ended: u64,
    /// The time of samples, in ticks, and in ns.
    ticks: u64,
    time: u64,
    /// The latest time, by which records are sorted.
    latest: u64,
    /// The number of the trace (data is lost between two of a buffer); true before its first sync point.
    trace: usize,
    before_first_psb: bool,
    /// The last sync point that perf notes; it does not note the first one of a trace.
    sync: u64,
    /// Paths of the log whose branches are not in the stack yet.
    pending: Range<usize>,
    instructions: u64,
    /// The instructions up to the last sample.
    sampled: u64,
    /// Core cycles, if samples need them.
    cycles: Option<Cycles>,
    due: PeriodState,
    templates: Templates,
    counts: Counts,
}

/// A branch. Where tracing begins, it is from 0; where it ends, it is to 0.
struct Taken {
    from: u64,
    /// The address after it.
    next: u64,
    to: u64,
    /// The flags in branch stacks.
    flags: u64,
    class: Class,
    /// The flags in raw data.
    flow: u32,
}

impl Taken {
    /// The branch at the end of a block.
    #[inline(always)]
    fn between(block: &Block, to: u64) -> Taken {
        let Block { last, next, kind, .. } = *block;
        Taken { from: last, next, to, flags: 0, class: Class::of(kind), flow: flow(kind) }
    }
}

impl<'c> Sampler<'c> {
    /// The state at the beginning of a buffer.
    pub(super) fn new(context: &'c Context, buffer: usize) -> Sampler<'c> {
        Sampler::with_events(context, &context.events, buffer)
    }

    /// The same, for the history of recorded samples.
    pub(super) fn for_requests(context: &'c Context, plan: &'c HistoryPlan, buffer: usize) -> Sampler<'c> {
        let sampler = Sampler::with_events(context, &plan.events, buffer);
        Sampler { requests: plan.of_buffer(buffer), plan: Some(plan), ..sampler }
    }

    fn with_events(context: &'c Context, events: &'c Events, buffer: usize) -> Sampler<'c> {
        let period = events.sampled.counts().then_some(events.period);
        Sampler {
            context,
            events,
            requests: (&[], 0),
            plan: None,
            buffer,
            cpu: context.tracer.buffers[buffer].cpu,
            stacks: Stacks::new(events.sampled.stack, events.sampled.chain, events.sampled.extras.depths),
            space: None,
            task: Task::UNKNOWN,
            flow_tsc: 0,
            insns_since_tsc: 0,
            pending_tsc: None,
            pending_tsc_after_lead: None,
            ratio: 0,
            sampled_ratio: 0,
            changed: None,
            in_transaction: 0,
            flag: None,
            interrupts: true,
            toggled: None,
            bits: 64,
            data: Vec::new(),
            items: None,
            ended: 0,
            ticks: 0,
            time: context.tracer.clock().time(0),
            latest: 0,
            trace: 0,
            before_first_psb: true,
            sync: 0,
            pending: 0..0,
            instructions: 0,
            sampled: 0,
            cycles: events.cycles,
            due: PeriodState::new(period),
            templates: Templates::default(),
            counts: Counts::default(),
        }
    }

    /// Reaches the packet with the time of the next branch.
    #[inline(always)]
    fn arrive(&mut self, made: &mut SampleQueue) {
        if let Some(ticks) = self.pending_tsc.take() {
            self.at(ticks, made);
        }
    }

    fn at(&mut self, ticks: u64, made: &mut SampleQueue) {
        (self.flow_tsc, self.insns_since_tsc) = (ticks, self.due.elapsed);
        if ticks > self.ticks {
            self.set_ticks(ticks, made);
        }
    }

    fn set_ticks(&mut self, ticks: u64, made: &mut SampleQueue) {
        self.serve_requests(ticks, made);
        self.ticks = ticks;
        self.time = self.context.tracer.clock().time(ticks);
        self.latest = self.latest.max(self.time);
    }

    /// Writes the history of the recorded samples up to a time, in ticks.
    #[inline(always)]
    pub(super) fn serve_requests(&mut self, ticks: u64, made: &mut SampleQueue) {
        while let Some(plan) = self.plan
            && let ([HistoryRequest { ticks: at, tid, ip, .. }, rest @ ..], number) = self.requests
            && *at <= ticks
        {
            let branches = self.stacks.branches_before(*tid, *ip, plan.stack);
            let chain =
                if plan.chain > 0 { self.stacks.chain_before(*tid, *ip, plan.chain) } else { Vec::new() };
            made.push(number, |bytes| history_plan::write(&History { branches, chain }, bytes));
            self.requests = (rest, number + 1);
        }
    }

    /// perf estimates the time of a branch to user code from the kernel or the beginning of the trace: two
    /// cycles for each instruction since the last packet with a time.
    #[inline(always)]
    fn estimate(&mut self, from: u64, to: u64, made: &mut SampleQueue) {
        let is_in = (from == 0 || from >= cpumode::KERNEL_START) && to != 0 && to < cpumode::KERNEL_START;
        if is_in {
            let (cycles, tsc_ratio) = (self.insns_since_tsc << 1, self.context.tracer.config.tsc_ratio);
            let ticks = match self.ratio {
                0 => cycles,
                _ if tsc_ratio == 0 => cycles,
                ratio => cycles.wrapping_mul(tsc_ratio.into()) / u64::from(ratio),
            };
            self.set_ticks(self.flow_tsc.wrapping_add(ticks), made);
        }
    }

    fn switch(&mut self, space: Option<Space>) {
        self.space = space;
        let task = space.and_then(|space| self.context.recorded.tasks.get(space.0 as usize));
        self.task = task.copied().unwrap_or(Task::UNKNOWN);
        self.templates.switch();
        self.stacks.switch(self.task, space);
    }

    /// Replays `some` of `all` paths of the log, which have this many instructions.
    fn paths(
        &mut self,
        (all, mut some): (&[PathId], Range<usize>),
        selected: &mut SelectedBranches,
        mut instructions: u64,
        blocks: &Blocks,
        made: &mut SampleQueue,
    ) {
        // The first path reaches the packet.
        while self.awaits_packet()
            && let Some(first) = some.next()
        {
            self.path((all, first), selected, blocks, made);
            instructions -= u64::from(blocks.path(all[first]).instructions);
        }
        if some.is_empty() {
            return;
        }
        if !self.has_samples(instructions) {
            return self.skip(some, instructions);
        }
        while !some.is_empty() {
            let counts = all[some.clone()].iter().map(|id| u64::from(blocks.path(*id).instructions));
            let (passed, instructions) = self.before_sample(counts);
            if passed > 0 {
                self.skip(some.start..some.start + passed, instructions);
                some.start += passed;
            }
            if let Some(at) = some.next() {
                self.path((all, at), selected, blocks, made);
            }
        }
    }

    /// The number of these counts of instructions before the next sample, and their sum; 0 if samples depend
    /// on more.
    #[inline(always)]
    fn before_sample(&mut self, counts: impl Iterator<Item = u64>) -> (usize, u64) {
        if !self.due.is_regular() || self.events.sampled.branches.is_some() || !self.requests.0.is_empty() {
            return (0, 0);
        }
        let (mut due, mut passed, mut instructions) = (self.due, 0, 0);
        let next = due.next().unwrap_or(u64::MAX);
        for count in counts {
            if instructions + count >= next {
                break;
            }
            (passed, instructions) = (passed + 1, instructions + count);
        }
        if passed > 0 {
            self.due = due;
        }
        (passed, instructions)
    }

    /// True if the next branch that needs a packet changes the time or the cycles.
    fn awaits_packet(&self) -> bool {
        let awaits_cycles = self.cycles.as_ref().is_some_and(Cycles::is_new);
        self.pending_tsc.is_some() || self.pending_tsc_after_lead.is_some() || awaits_cycles
    }

    /// True if there may be a sample in this many instructions.
    fn has_samples(&mut self, instructions: u64) -> bool {
        let (passed, _) = self.before_sample(once(instructions));
        passed == 0
    }

    /// Skips paths without samples: only the state at their end matters.
    fn skip(&mut self, paths: Range<usize>, instructions: u64) {
        self.pass(instructions);
        if self.pending.is_empty() {
            self.pending.start = paths.start;
        }
        self.pending.end = paths.end;
    }

    /// Counts instructions without a sample.
    fn pass(&mut self, instructions: u64) {
        self.instructions += instructions;
        self.insns_since_tsc += instructions;
        self.due.count(instructions);
    }

    /// Pushes the branches of skipped paths onto the stack.
    #[inline(always)]
    fn push_pending(&mut self, paths: &[PathId], blocks: &Blocks) {
        let pending = std::mem::replace(&mut self.pending, 0..0);
        if !pending.is_empty() && self.stacks.are_kept() {
            let function = self.context.functions(self.space, self.ticks);
            self.stacks.extend(&paths[pending], blocks, self.in_transaction, function);
        }
    }

    /// Replays the path with this number in the log.
    fn path(
        &mut self,
        (all, at): (&[PathId], usize),
        selected: &mut SelectedBranches,
        blocks: &Blocks,
        made: &mut SampleQueue,
    ) {
        let path = blocks.path(all[at]);
        let after_lead = self.pending_tsc_after_lead.take();
        if self.has_samples(path.instructions.into()) {
            if after_lead.is_none()
                && self.selects_branches()
                && !self.stacks.are_kept()
                && !self.awaits_branch()
            {
                // All its branches have the current time.
                let sampled = &self.events.sampled;
                for branch in selected.of(all[at], blocks, |kind| sampled.selects(Class::of(kind))) {
                    let PathBranch { from, next, to, kind, number } = branch;
                    let (class, flow) = (Class::of(*kind), flow(*kind));
                    let taken = Taken { from: *from, next: *next, to: *to, flags: 0, class, flow };
                    self.sample_branch(taken, number, made);
                }
                return self.pass(path.instructions.into());
            }
            self.push_pending(all, blocks);
            let (lead, others) = blocks.steps(all[at]).split_at(usize::from(path.lead));
            lead.iter().for_each(|step| self.step(*step, blocks, made));
            self.pending_tsc = after_lead.or(self.pending_tsc);
            self.steps(others, blocks, made);
            return;
        }
        self.skip(at..at + 1, path.instructions.into());
        let lead = usize::from(path.lead);
        if lead > 0 {
            self.arrive(made);
        }
        self.pending_tsc = after_lead.or(self.pending_tsc);
        if lead < path.len() {
            self.arrive(made);
            if let Some(cycles) = &mut self.cycles {
                let is_taken = blocks.steps(all[at])[lead].to.is_some();
                cycles.reach(is_taken);
            }
        }
    }

    /// Replays steps of a path. If only instructions are sampled, steps between samples are just counted.
    fn steps(&mut self, steps: &[Step], blocks: &Blocks, made: &mut SampleQueue) {
        let mut steps = steps.iter();
        while !steps.as_slice().is_empty() {
            if !self.stacks.are_kept() && !self.awaits_branch() {
                let (passed, instructions) = match &self.events.sampled.branches {
                    Some(_) => self.before_branch(steps.as_slice(), blocks),
                    None => self.before_sample(steps.clone().map(|step| step.count.into())),
                };
                self.pass(instructions);
                steps = steps.as_slice()[passed..].iter();
            }
            if let Some(step) = steps.next() {
                self.step(*step, blocks, made);
            }
        }
    }

    /// The number of steps before the next selected branch, and their instructions; 0 if samples depend on more.
    fn before_branch(&self, steps: &[Step], blocks: &Blocks) -> (usize, u64) {
        if !self.selects_branches() {
            return (0, 0);
        }
        let sampled = &self.events.sampled;
        let is_selected =
            |step: &Step| step.to.is_some() && sampled.selects(Class::of(blocks[step.block].kind));
        let passed = steps.iter().position(is_selected).unwrap_or(steps.len());
        (passed, steps[..passed].iter().map(|step| u64::from(step.count)).sum())
    }

    /// True if all samples are of branches, without counts or code.
    fn selects_branches(&self) -> bool {
        let sampled = &self.events.sampled;
        let has_more = self.cycles.is_some() || sampled.extras.instructions;
        sampled.branches.is_some() && self.due.period.is_none() && !has_more
    }

    /// True if the next branch changes the time, the cycles or the interrupt flag.
    fn awaits_branch(&self) -> bool {
        self.awaits_packet() || self.flag.is_some() || self.toggled.is_some()
    }

    #[inline(always)]
    fn step(&mut self, step: Step, blocks: &Blocks, made: &mut SampleQueue) {
        let block = &blocks[step.block];
        if self.events.sampled.extras.instructions {
            self.bits = block.bits();
        }
        // A branch out of the traced code needs one, too.
        let leads_out = step.to.is_none() && matches!(block.kind, Kind::Jump | Kind::Call);
        let needs_packet = step.count == block.count && (leads_out || needs_packet(block.kind));
        if self.pending_tsc.is_some() && !needs_packet {
            self.arrive(made);
        }
        self.instructions += u64::from(step.count);
        self.insns_since_tsc += u64::from(step.count);
        let to = step.to.map(|to| blocks[to].start);
        let mut has_sample = false;
        if self.due.period.is_some() {
            has_sample = self.sample(step, (to, needs_packet), blocks, made);
        } else {
            self.due.elapsed += u64::from(step.count);
        }
        self.arrive(made);
        if !has_sample {
            self.count_cycles(needs_packet, to.is_some() || block.kind != Kind::Conditional);
        }
        if let Some(to) = to {
            if needs_packet {
                self.change_flag(block.last, to, made);
            }
            let function = self.context.functions(self.space, self.ticks);
            self.stacks.call(to, || Change::of(block), false, function);
            self.branch(Taken { flags: self.in_transaction, ..Taken::between(block, to) }, made);
        }
    }

    /// Counts cycles up to the end of a step or to an event. `is_seen` if perf reads the count there: at
    /// taken branches, branches out of the trace, and samples.
    #[inline(always)]
    fn count_cycles(&mut self, needs_packet: bool, is_seen: bool) {
        if let Some(cycles) = &mut self.cycles {
            match needs_packet {
                true => cycles.reach(is_seen),
                false => cycles.pass(),
            }
        }
    }

    /// Makes the samples of a step's instructions; returns true if the last one has a sample. It is a taken
    /// branch if there is `to`.
    #[inline(always)]
    fn sample(
        &mut self,
        step: Step,
        (to, needs_packet): (Option<u64>, bool),
        blocks: &Blocks,
        made: &mut SampleQueue,
    ) -> bool {
        let mut done = 0;
        while done < step.count {
            let rest = u64::from(step.count - done);
            let next = self.due.next().unwrap_or(u64::MAX);
            if next > rest {
                self.due.count(rest);
                return false;
            }
            self.due.count(next);
            self.due.sampled();
            done += next as u32;
            let ip = blocks.nth(step.block, done - 1).unwrap_or_default();
            let is_last = done == step.count;
            if is_last {
                self.arrive(made);
                self.estimate(ip, to.unwrap_or(0), made);
                if needs_packet {
                    self.change_flag(ip, to.unwrap_or(0), made);
                }
            }
            self.count_cycles(is_last && needs_packet, true);
            let total = self.instructions - u64::from(step.count - done);
            let block = &blocks[step.block];
            let flow = if done == block.count { flow(block.kind) } else { 0 };
            // A branch without target leads out of the trace.
            let ends = flow != 0 && to.is_none() && block.kind != Kind::Conditional;
            let addr = to.filter(|_| is_last).unwrap_or(0);
            self.instruction((ip, addr), total, if ends { flow | FlowFlags::END } else { flow }, made);
        }
        step.count > 0
    }

    /// Makes the samples of the instruction at `ip`, number `total`. A branch goes to `addr`.
    #[cold]
    fn instruction(&mut self, (ip, addr): (u64, u64), total: u64, flow: u32, made: &mut SampleQueue) {
        let period = total.wrapping_sub(std::mem::replace(&mut self.sampled, total));
        let time = self.time;
        if let Some(event) = &self.events.sampled.instructions {
            let raw = self.raw(flow, 0, Kinds::Instructions, total);
            let raw = self.raw_at(&raw, ip);
            self.push_code(
                Kinds::Instructions,
                TemplateFields { ip, time, addr, period, raw: &raw },
                event,
                made,
            );
        }
        if let Some(event) = &self.events.sampled.cycles
            && let Some(counted) = self.counted(Kinds::Cycles, total)
        {
            let raw = raw(flow | self.state_flow(flow, total), 0, counted);
            let raw = self.raw_at(&raw, ip);
            let period = counted.cycles;
            self.push_code(Kinds::Cycles, TemplateFields { ip, time, addr, period, raw: &raw }, event, made);
        }
    }

    /// Adds a sample of instructions or cycles.
    fn push_code(
        &mut self,
        kind: Kinds,
        fields: TemplateFields<'_, u32>,
        event: &Decoded,
        made: &mut SampleQueue,
    ) {
        match self.events.sampled.has_history() {
            true => self.push_with_history(self.sample_with(fields, fields.ip, event), event, made),
            false => self.push_from_template(kind, fields, None, event, made),
        }
    }

    /// The counts since the last sample of a kind, at this number of instructions.
    fn counted(&mut self, kind: Kinds, instructions: u64) -> Option<Counted> {
        self.cycles.as_mut()?.since(kind, instructions)
    }

    fn raw(&mut self, flow: u32, next: u64, kind: Kinds, instructions: u64) -> [u32; 7] {
        let counted = self.counted(kind, instructions).unwrap_or_default();
        raw(flow | self.state_flow(flow, instructions), next, counted)
    }

    /// Raw data without counts if nothing is counted.
    fn counted_part<'r>(&self, raw: &'r [u32; 7]) -> &'r [u32] {
        if self.cycles.is_some() { raw } else { &raw[..3] }
    }

    /// Raw data, with the bytes of the instruction at `ip` and the call depth if they are selected.
    #[inline(always)]
    fn raw_at<'r>(&self, raw: &'r [u32; 7], ip: u64) -> Cow<'r, [u32]> {
        match self.events.sampled.extras.instructions || self.events.sampled.extras.depths {
            true => Cow::Owned(self.longer_raw(raw, ip)),
            false => Cow::Borrowed(self.counted_part(raw)),
        }
    }

    #[cold]
    fn longer_raw(&self, raw: &[u32; 7], ip: u64) -> Vec<u32> {
        let mut longer = self.counted_part(raw).to_vec();
        if self.events.sampled.extras.instructions {
            longer.extend(self.instruction_at(ip));
        }
        if self.events.sampled.extras.depths {
            longer.extend(depth_words(raw[0], self.stacks.depth()));
        }
        longer
    }

    /// The bytes of an instruction, after their number.
    #[cold]
    fn instruction_at(&self, ip: u64) -> [u32; 4] {
        let mut bytes = [0; 16];
        if ip != 0
            && let Some(mapping) = self.context.code.code(self.space, ip, self.ticks)
            && let Some(code) = mapping.bytes.get((ip - mapping.start) as usize..)
            && let Some(len) = instruction_length(self.bits, code)
        {
            bytes[0] = FlowFlags::length_and_bits(len as u8, self.bits);
            bytes[1..].iter_mut().zip(&code[..len]).for_each(|(to, from)| *to = *from);
        }
        std::array::from_fn(|at| u32::from_le_bytes([0, 1, 2, 3].map(|byte| bytes[4 * at + byte])))
    }

    /// Adds a sample with its history.
    fn push_with_history(&mut self, sample: NewSample<'_>, event: &Decoded, made: &mut SampleQueue) {
        self.count(sample.tid);
        made.push(self.key(), |bytes| {
            let (branches, callchain) = (self.stacks.branches(), self.stacks.chain(sample.ip));
            self.write(&NewSample { branches, callchain: &callchain, ..sample }, &event.attr, bytes);
        });
    }

    /// Adds a sample of an event that is neither a branch nor an instruction.
    fn push_non_flow(&mut self, event: NonFlow, ip: u64, raw: &[u32], made: &mut SampleQueue) {
        if let Some(event) = self.events.non_flow.get(event) {
            self.push_with_history(NewSample { ip, raw, ..self.sample_of(event, ip) }, event, made);
        }
    }

    /// Makes a sample if the branch changes the interrupt flag.
    #[inline(always)]
    fn change_flag(&mut self, from: u64, to: u64, made: &mut SampleQueue) {
        if let Some(on) = self.flag.take() {
            (self.interrupts, self.toggled) = (on, Some((self.instructions, true)));
            const VIA_BRANCH: u32 = 1 << 1;
            self.estimate(from, to, made);
            if let Some(event) = self.events.non_flow.get(NonFlow::Flag) {
                let raw = with_word(u32::from(on) | VIA_BRANCH, to);
                let sample = self.sample_of(event, if from != 0 { from } else { to });
                self.push_with_history(NewSample { ip: from, raw: &raw, ..sample }, event, made);
            }
        }
    }

    /// Makes the samples that PEBS wrote to the trace. Their own address, time and branches take precedence.
    fn pebs(&mut self, ip: u64, is_32_bit: bool, made: &mut SampleQueue) {
        let items = self.items.take().unwrap_or_default();
        let pebs = &self.events.pebs;
        if pebs.is_empty() {
            return;
        }
        let ip = items.ip().unwrap_or(ip);
        let time = items.ticks().map(|ticks| self.context.tracer.clock().time(ticks));
        let recorded = items.branches();
        let (weight, latency) = items.weight();
        for event in pebs.of_sample(self.buffer, self.ticks, &items) {
            let Some((event, id)) = event else {
                self.counts.uncounted += 1;
                continue;
            };
            self.count(self.task.tid);
            made.push(self.key(), |bytes| {
                let registers = event.registers(&items, is_32_bit);
                let branches = recorded.as_deref().map_or_else(|| self.stacks.branches(), |all| [all, &[]]);
                let sample = NewSample {
                    is_exact: true,
                    ip,
                    id,
                    time: time.unwrap_or(if self.events.is_timed { self.time } else { 0 }),
                    addr: items.address().unwrap_or(0),
                    period: event.period,
                    // As in perf, it has one entry less.
                    callchain: &self.stacks.shorter_chain(ip, 1),
                    branches,
                    weight,
                    latency,
                    data_src: DataSrc::UNKNOWN.0,
                    transaction: items.transaction(),
                    registers: registers.as_ref().map(|(abi, values)| (*abi, &values[..])),
                    ..self.new_sample(id, ip)
                };
                self.write(&sample, &event.attr, bytes);
            });
        }
    }

    /// A sample of an event such as an interrupt, with its event data.
    fn control(&mut self, ip: Option<u64>, kind: u8, vector: u8, made: &mut SampleQueue) {
        let data = std::mem::take(&mut self.data);
        let count = (data.len() / DATA_WORDS) as u32;
        let event = u32::from(kind) | u32::from(ip.is_some()) << 7 | u32::from(vector) << 8 | count << 16;
        let raw = [&[event], &data[..]].concat();
        self.push_non_flow(NonFlow::Control, ip.unwrap_or(self.ended), &raw, made);
    }

    /// Makes a sample of the new ratio, unless a sync point that follows makes it.
    #[cold]
    fn frequency(&mut self, next: &Entry, events: &[Event], made: &mut SampleQueue) {
        match next {
            Entry::Now(_) | Entry::Time(_) | Entry::Space(_) | Entry::Cycles(..) => {}
            Entry::Event(number)
                if matches!(events[*number as usize], Event::Sync { .. } | Event::PageTable { .. }) => {}
            _ => self.ratio_at(self.changed.unwrap_or(0), made),
        }
    }

    /// Makes a sample of the ratio at an address, if it has changed.
    fn ratio_at(&mut self, ip: u64, made: &mut SampleQueue) {
        if self.changed.take().is_some() && self.sampled_ratio != self.ratio {
            self.sampled_ratio = self.ratio;
            let tracer = &self.context.tracer;
            let ratios = u32::from(self.ratio) | (tracer.info.max_non_turbo_ratio & 0xff) << 16;
            let raw = [ratios, tracer.core_khz(self.ratio), 0];
            self.push_non_flow(NonFlow::Cbr, ip, &raw, made);
        }
    }

    #[inline(always)]
    fn branch(&mut self, taken: Taken, made: &mut SampleQueue) {
        self.estimate(taken.from, taken.to, made);
        self.stacks.push(taken.from, taken.to, taken.flags);
        self.sample_branch(taken, &mut None, made);
        self.toggled = self.toggled.filter(|(at, _)| *at > self.instructions);
    }

    /// A sample of a branch, if it is selected. `number` is that of the branch in no special state, if known.
    #[inline(always)]
    fn sample_branch(&mut self, taken: Taken, number: &mut Option<u32>, made: &mut SampleQueue) {
        let Taken { from, next, to, class, flow, .. } = taken;
        let events = &self.events;
        let Some(event) = &events.sampled.branches else { return };
        if !events.sampled.selects(class) {
            return;
        }
        let fields = TemplateFields { ip: from, time: self.time, addr: to, period: 1, raw: &[] };
        if event.attr.sample_type & st::RAW == 0 {
            return self.push_from_template(Kinds::Branches, fields, None, event, made);
        }
        // The samples of a table have the time by which they are sorted.
        let shares = events.sampled.shares_branches() && (self.time == self.latest || !events.is_timed);
        let state = if shares { self.state_flow(flow, self.instructions) } else { 0 };
        let mut known = number.filter(|_| shares && state == 0);
        if known.is_some() {
            let raw = [0; 3];
            let fields = TemplateFields { raw: &raw, ..fields };
            return self.push_from_template(Kinds::Branches, fields, known, event, made);
        }
        let raw = self.raw(flow, next, Kinds::Branches, self.instructions);
        let raw = self.raw_at(&raw, from);
        if shares {
            known = made.number(from, to, &raw, self.context.endian);
            *number = known.filter(|_| state == 0);
        }
        self.push_from_template(Kinds::Branches, TemplateFields { raw: &raw, ..fields }, known, event, made);
    }

    /// Adds a sample without history. It usually differs from the last one of its kind only in these fields.
    /// `number` is that of a branch in the table.
    #[inline(always)]
    fn push_from_template(
        &mut self,
        kind: Kinds,
        fields: TemplateFields<'_, u32>,
        number: Option<u32>,
        event: &Decoded,
        made: &mut SampleQueue,
    ) {
        self.count(self.task.tid);
        let code = if fields.ip != 0 { fields.ip } else { fields.addr };
        let key = (self.level(code), fields.raw.len());
        let at = kind as usize;
        if self.templates.lacks(at, key) {
            self.find_template(at, key, fields, code, event);
        }
        match (self.templates.last(at), number) {
            (Some(stencil), Some(number)) => made.push_branch(self.key(), stencil, number),
            (Some(stencil), None) => made.push_alike(self.key(), stencil, fields),
            _ => made.push(self.key(), |bytes| {
                self.write(&self.sample_with(fields, code, event), &event.attr, bytes);
            }),
        }
    }

    /// A sample with these fields; `code` is an address that determines the CPU mode.
    fn sample_with<'r>(&self, fields: TemplateFields<'r, u32>, code: u64, event: &Decoded) -> NewSample<'r> {
        let TemplateFields { ip, addr, period, raw, .. } = fields;
        NewSample { ip, addr, period, raw, ..self.sample_of(event, code) }
    }

    #[cold]
    fn find_template(
        &mut self,
        at: usize,
        key: TemplateKey,
        fields: TemplateFields<'_, u32>,
        code: u64,
        event: &Decoded,
    ) {
        let (attr, endian) = (&event.attr, self.context.endian);
        let mut templates = std::mem::take(&mut self.templates);
        templates.set(at, (self.task, self.cpu), key, || {
            let sample = self.sample_with(fields, code, event).build(attr, endian)?;
            Stencil::of(&sample, &Layout::new(attr), endian)
        });
        self.templates = templates;
    }

    /// The flags of the state at this number of instructions: in a transaction (not for interrupts and where
    /// tracing begins), interrupts off before, and interrupts toggled.
    fn state_flow(&self, flow: u32, instructions: u64) -> u32 {
        const NOT: u32 = FlowFlags::ASYNC | FlowFlags::BEGIN | FlowFlags::ABORT;
        let transaction =
            if self.in_transaction != 0 && flow & NOT == 0 { FlowFlags::IN_TRANSACTION } else { 0 };
        if !self.context.tracer.info.has_event_trace {
            return transaction;
        }
        let toggles = self.toggled == Some((instructions, flow & FlowFlags::BRANCH != 0));
        let off = if self.interrupts == toggles { FlowFlags::INTERRUPTS_OFF } else { 0 };
        transaction | off | if toggles { FlowFlags::TOGGLES_INTERRUPTS } else { 0 }
    }

    /// The common parts of an event's samples; `code` is an address that determines the CPU mode.
    fn sample_of(&self, event: &Decoded, code: u64) -> NewSample<'static> {
        self.new_sample(event.ids.of(self.task.vcpu), code)
    }

    fn new_sample(&self, id: u64, code: u64) -> NewSample<'static> {
        NewSample {
            cpumode: self.level(code),
            pid: self.task.pid,
            tid: self.task.tid,
            time: self.time,
            id,
            cpu: self.cpu,
            ..NewSample::default()
        }
    }

    /// The CPU mode of code at an address.
    #[inline(always)]
    fn level(&self, code: u64) -> u16 {
        match (code >= cpumode::KERNEL_START, self.task.vcpu) {
            (true, None) => cpumode::KERNEL,
            (false, None) => cpumode::USER,
            (true, Some(_)) => cpumode::GUEST_KERNEL,
            (false, Some(_)) => cpumode::GUEST_USER,
        }
    }

    /// Counts a sample of a thread.
    fn count(&mut self, tid: u32) {
        self.counts.samples += 1;
        self.counts.unknown += u64::from(tid == Auxtrace::ANY);
    }

    fn write(&self, sample: &NewSample<'_>, attr: &Attr, bytes: &mut Vec<u8>) {
        // Fails only if the event records something that a new sample lacks.
        sample.write(attr, self.context.endian, bytes).unwrap_or_default();
    }

    /// The time by which records are sorted. Those without times are last, in the order of decoding.
    fn key(&self) -> u64 {
        if self.events.is_timed { self.latest } else { LAST_KEY }
    }

    fn event(&mut self, event: Event, blocks: &Blocks, made: &mut SampleQueue) {
        match event {
            Event::InterruptFlag { ip: None, on } => return self.flag = Some(on),
            Event::ControlData { kind, payload } => {
                let [low, high] = [payload as u32, (payload >> 32) as u32];
                if self.data.len() < MOST_DATA * DATA_WORDS {
                    self.data.extend([kind.into(), 0, low, high]);
                }
                return;
            }
            Event::Item { group, id, value } => {
                if !self.events.pebs.is_empty() {
                    self.items.get_or_insert_default().add(group, id, value);
                }
                return;
            }
            _ => {}
        }
        self.arrive(made);
        if matches!(
            event,
            Event::Sync { .. } | Event::Frequency { .. } | Event::Power { .. } | Event::Control { .. }
        ) {
            self.at(self.due.now, made);
        }
        match event {
            Event::PageTable { .. } => {}
            Event::Fault(_) => self.cycles.iter_mut().for_each(Cycles::lose),
            // The step up to that branch has counted them.
            Event::End { block: Some(_), .. } => {}
            _ => self.count_cycles(true, true),
        }
        match event {
            Event::Begin { .. } | Event::Resumed { .. } | Event::End { .. } | Event::Interrupt { .. } => {
                self.flow_event(event, blocks, made);
            }
            _ => self.non_flow_event(event, made),
        }
    }

    /// An event that is a branch: tracing begins or ends, or an interrupt.
    fn flow_event(&mut self, event: Event, blocks: &Blocks, made: &mut SampleQueue) {
        let taken = match event {
            Event::Begin { ip, is_exchange: true } => {
                self.change_flag(0, ip, made);
                let flow = if self.task.vcpu.is_some() { flow(Kind::GuestEntry) } else { LEFT_GUEST };
                Taken { from: 0, next: 0, to: ip, flags: 0, class: Class::Call, flow }
            }
            Event::Begin { ip, is_exchange: false } | Event::Resumed { ip } => {
                self.change_flag(0, ip, made);
                self.stacks.call(ip, || Change::Begin, false, |_| None);
                let flow = FlowFlags::BRANCH | FlowFlags::BEGIN;
                Taken { from: 0, next: 0, to: ip, flags: 0, class: Class::Begin, flow }
            }
            Event::End { ip, block, exchange: Some(to), .. } => {
                self.change_flag(ip, to, made);
                self.estimate(ip, to, made);
                let (next, flow) = block.map_or((ip, LEFT_GUEST), |block| {
                    let block = &blocks[block];
                    (block.next, flow(block.kind))
                });
                Taken { from: ip, next, to: 0, flags: 0, class: Class::Call, flow }
            }
            Event::End { ip, block, to, exchange: None } => {
                self.change_flag(ip, to.unwrap_or(0), made);
                self.ended = to.unwrap_or(ip);
                let (block, to) = (block.map(|block| &blocks[block]), to.unwrap_or(0));
                let function = self.context.functions(self.space, self.ticks);
                self.stacks.call(to, || block.map_or(Change::None, Change::of), true, function);
                let is_return = block.is_some_and(|block| Class::of(block.kind) == Class::Return);
                let class = if is_return && self.events.sampled.returns { Class::Return } else { Class::End };
                let (next, flags, flow) = match block {
                    Some(block) => (block.next, self.in_transaction, flow(block.kind)),
                    None => (ip, 0, FlowFlags::BRANCH | FlowFlags::ASYNC),
                };
                // Tracing continues after the entry into a guest.
                let end = if flow & FlowFlags::GUEST_ENTRY != 0 { 0 } else { FlowFlags::END };
                self.due.is_continuous = false;
                Taken { from: ip, next, to, flags, class, flow: flow | end }
            }
            Event::Interrupt { from, to, aborts: true } => {
                self.push_non_flow(NonFlow::Transactions, from, &[], made);
                self.in_transaction = 0;
                self.change_flag(from, to, made);
                let (class, flow) = (Class::Other, FlowFlags::BRANCH | FlowFlags::ABORT);
                Taken { from, next: from, to, flags: BranchFlags::ABORT, class, flow }
            }
            Event::Interrupt { from, to, aborts: false } => {
                self.stacks.call(to, || Change::Call(from), false, |_| None);
                self.change_flag(from, to, made);
                Taken { from, next: from, to, flags: 0, class: Class::Call, flow: INTERRUPTED }
            }
            _ => return,
        };
        self.branch(taken, made);
    }

    fn non_flow_event(&mut self, event: Event, made: &mut SampleQueue) {
        match event {
            Event::Passed { ip } => {
                self.sampled = self.instructions.wrapping_sub(1);
                self.instruction((ip, 0), self.instructions, 0, made);
            }
            Event::Fault(fault) => self.fault(fault, made),
            // The next entry makes the sample.
            Event::Frequency { ip, ratio } => (self.ratio, self.changed) = (ratio, Some(ip.unwrap_or(0))),
            Event::Sync { ip, offset, interrupts } => {
                self.interrupts = interrupts;
                let ip = ip.unwrap_or(0);
                // perf begins at the first sync point, and does not note it.
                if !std::mem::take(&mut self.before_first_psb) {
                    let begin = self.context.tracer.begins.get(self.trace);
                    self.sync = begin.map_or(offset, |begin| begin + offset);
                }
                self.push_non_flow(NonFlow::Psb, ip, &with_word(0, self.sync), made);
                self.ratio_at(ip, made);
            }
            Event::Ptwrite { ip, exact, value } => {
                let raw = with_word(exact.into(), value);
                self.push_non_flow(NonFlow::Ptwrite, ip.unwrap_or(0), &raw, made);
            }
            Event::Transaction { ip, inside } => {
                self.push_non_flow(NonFlow::Transactions, ip.unwrap_or(0), &[], made);
                self.in_transaction = if inside { BranchFlags::IN_TX } else { 0 };
            }
            Event::Control { ip, kind, vector } => self.control(ip, kind, vector, made),
            Event::Sampled { ip, is_32_bit } => self.pebs(ip.unwrap_or(self.ended), is_32_bit, made),
            Event::InterruptFlag { ip, on } => {
                self.push_non_flow(NonFlow::Flag, ip.unwrap_or(0), &[on.into(), 0, 0], made);
                // As in perf, the flag changes at the next instruction, unless that is a branch.
                let is_code = self.context.tracer.config.walk == Walk::Code;
                let next = self.instructions + u64::from(is_code);
                (self.interrupts, self.toggled) = (on, Some((next, false)));
            }
            Event::Power { ip, exact, what } => {
                if let Some((event, raw)) = power(what, exact) {
                    self.push_non_flow(event, ip.unwrap_or(self.ended), &raw, made);
                }
            }
            _ => {}
        }
    }

    fn fault(&mut self, Fault { reason, ip, .. }: Fault, made: &mut SampleQueue) {
        let code = &self.context.code;
        // Addresses of guests are not in this code.
        let known = ip.filter(|_| reason != Reason::Guest);
        let name = known.and_then(|ip| code.name(self.space, ip, self.ticks));
        *self.counts.faults.entry((reason, name.map(Into::into))).or_default() += 1;
        (self.flag, self.ended) = (None, 0);
        self.data.clear();
        match reason {
            Reason::Overflow => self.due.elapsed = 0,
            Reason::BadPacket | Reason::CutPacket => self.due.is_continuous = false,
            _ => {}
        }
        let events = &self.events;
        let is_wanted = if reason == Reason::Overflow { events.overflows } else { events.errors };
        if is_wanted {
            self.counts.samples += 1;
            let (ip, endian) = (ip.unwrap_or(0), self.context.endian);
            made.push(self.key(), |bytes| {
                bytes.extend(error(reason, self.cpu, self.task, ip, self.time, endian));
            });
        }
    }
}

impl parts::Sampler for Sampler<'_> {
    fn make(&mut self, log: &mut PartLog, blocks: &Blocks, made: &mut SampleQueue) {
        let PartLog { part, entries, paths: all, events, selected } = log;
        if std::mem::replace(&mut self.trace, part.trace) != part.trace {
            let times = entries.iter().find_map(|entry| match entry {
                Entry::Now(time) | Entry::Time(time) if *time > 0 => Some(*time),
                _ => None,
            });
            self.serve_requests(times.unwrap_or(self.ticks), made);
            self.stacks.forget();
            self.before_first_psb = true;
            self.cycles.iter_mut().for_each(Cycles::begin);
        }
        let mut paths = 0..0;
        for entry in &*entries {
            use Entry::{AfterLead, Cycles, Now, Paths, Time};
            if !matches!(entry, Paths(..) | AfterLead(_) | Time(_) | Now(_) | Cycles(..)) {
                self.push_pending(all, blocks);
            }
            if self.changed.is_some() {
                self.push_pending(all, blocks);
                self.frequency(entry, events, made);
            }
            match *entry {
                Entry::Step(step) | Entry::Straight(step) => self.step(step, blocks, made),
                Entry::Paths(count, instructions) => {
                    paths = paths.end..paths.end + count as usize;
                    self.paths((all, paths.clone()), selected, instructions.into(), blocks, made);
                }
                Entry::AfterLead(ticks) => self.pending_tsc_after_lead = Some(ticks),
                Entry::Time(ticks) => self.pending_tsc = Some(ticks),
                Entry::Now(now) => {
                    (self.due.now, self.due.elapsed) = (now, 0);
                    if now == self.flow_tsc {
                        self.insns_since_tsc = 0;
                    }
                }
                Entry::Cycles(count, is_exact) => {
                    self.cycles.iter_mut().for_each(|cycles| cycles.packet(count, is_exact));
                }
                Entry::Space(space) => self.switch(space),
                Entry::Event(number) => self.event(events[number as usize], blocks, made),
            }
        }
        self.push_pending(all, blocks);
        self.pending = 0..0;
        self.counts.instructions = self.instructions;
    }

    fn counts(&self) -> &Counts {
        &self.counts
    }
}

/// The raw data of samples of branches, instructions and cycles: flags, return address and counts.
fn raw(flow: u32, next: u64, Counted { instructions, cycles }: Counted) -> [u32; 7] {
    // Not by `map`, which is a call for each branch.
    let halves = |word: u64| (word as u32, (word >> 32) as u32);
    let (next, instructions, cycles) = (halves(next), halves(instructions), halves(cycles));
    [flow, next.0, next.1, instructions.0, instructions.1, cycles.0, cycles.1]
}

/// True if a packet says where a branch goes, or whether it is taken.
fn needs_packet(kind: Kind) -> bool {
    !matches!(kind, Kind::Jump | Kind::Call | Kind::Next | Kind::NoCode | Kind::BadCode)
}

/// The words of an item of event data (EVD) in raw data, and the most items of an event.
const DATA_WORDS: usize = 4;
const MOST_DATA: usize = 64;

//! Makes samples of what is decoded of a trace, as perf 7.3 does (tools/perf/util/cs-etm.c).

use std::cell::RefCell;
use std::collections::VecDeque;

use perfx_auxtrace::Task;
use perfx_format::Endian;
use perfx_format::record::aux::Auxtrace;
use perfx_format::record::cpumode;
use perfx_format::sample::{Branch, BranchFlags, FlowFlags, NewSample};
use perfx_trace::{BlockId, Blocks, Event, Fault, Kind, Point, Sink, Space, Step};

use super::context::{Context, Events};
use super::out::Out;
use crate::itrace::events::Decoded;
use crate::itrace::flow::{INTERRUPTED, flow, is_jump, with_word};
use crate::itrace::losses::Counts;

/// Where the trace that comes next is from.
#[derive(Clone, Copy, Debug)]
pub(super) struct At<'c> {
    pub(super) context: &'c Context,
    pub(super) cpu: u32,
    pub(super) time: u64,
    /// True if spaces are the numbers of threads.
    pub(super) is_named: bool,
}

/// What is known of a trace at a place, from the beginning up to there.
pub(super) struct Sampler<'c, 'd> {
    events: &'c Events,
    endian: Endian,
    at: Option<At<'c>>,
    task: Task,
    space: Option<Space>,
    /// The last branches, newest first.
    stack: VecDeque<Branch>,
    /// The last instruction that was executed, if tracing has not ended behind it.
    last: Option<u64>,
    /// Instructions since the last sample.
    since: u64,
    /// A branch whose sample comes behind those of the instructions at its target.
    branch: Option<Taken>,
    out: &'c RefCell<Out<'d>>,
    pub(super) counts: Counts,
}

/// A branch.
#[derive(Clone, Copy, Debug)]
struct Taken {
    /// 0 where tracing begins.
    from: u64,
    /// 0 where it ends.
    to: u64,
    class: Class,
    flow: u32,
    /// To where a call returns, or 0.
    behind: u64,
}

impl Taken {
    /// Where tracing begins.
    fn begin(to: u64) -> Taken {
        Taken { from: 0, to, class: Class::Edge, flow: FlowFlags::BRANCH | FlowFlags::BEGIN, behind: 0 }
    }

    /// Where it ends.
    fn end(from: u64) -> Taken {
        Taken { from, to: 0, class: Class::Edge, flow: FlowFlags::BRANCH | FlowFlags::END, behind: 0 }
    }
}

/// What perf knows of a branch, for `c` and `r`.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Class {
    Call,
    Return,
    /// Tracing begins or ends.
    Edge,
    /// A jump that no condition decides.
    Jump,
    Other,
}

impl Class {
    fn of(kind: Kind) -> Class {
        match kind {
            Kind::Call | Kind::IndirectCall | Kind::FarCall => Class::Call,
            Kind::Return | Kind::FarReturn => Class::Return,
            _ if is_jump(kind) => Class::Jump,
            _ => Class::Other,
        }
    }
}

/// A thread that no record names.
const UNKNOWN: Task = Task { pid: Auxtrace::ANY, tid: Auxtrace::ANY };

impl<'c, 'd> Sampler<'c, 'd> {
    /// At the beginning of a trace.
    pub(super) fn new(events: &'c Events, endian: Endian, out: &'c RefCell<Out<'d>>) -> Sampler<'c, 'd> {
        Sampler {
            events,
            endian,
            at: None,
            task: UNKNOWN,
            space: None,
            stack: VecDeque::new(),
            last: None,
            since: 0,
            branch: None,
            out,
            counts: Counts::default(),
        }
    }

    /// A piece comes next.
    pub(super) fn turn(&mut self, at: At<'c>) {
        self.at = Some(at);
        // Another piece may name another thread by the same number.
        self.space = None;
    }

    /// Ends a piece: with branch stacks, perf makes a sample there of the instructions since the last one. It does not
    /// count a branch behind which nothing was executed.
    pub(super) fn end_piece(&mut self) {
        self.branch = None;
        self.rest();
    }

    /// Makes a sample of the last instruction, with the branches in front of it, which would be lost.
    fn rest(&mut self) {
        if let Some(last) = self.last.filter(|_| self.events.sampled.stack > 0) {
            let period = std::mem::take(&mut self.since);
            self.instruction(last, period);
        }
    }

    #[inline(always)]
    fn look(&mut self, point: &Point) {
        if point.space != self.space {
            self.switch(point.space);
        }
    }

    #[cold]
    fn switch(&mut self, space: Option<Space>) {
        self.space = space;
        let Some(At { context, is_named, .. }) = self.at else { return };
        let recorded = &context.recorded;
        let known = match is_named {
            true => space.and_then(|Space(tid)| recorded.tracer.spaces.get(&tid).copied()),
            false => space,
        };
        let task = known.and_then(|Space(number)| recorded.tasks.get(number as usize)).copied();
        let unnamed = space.filter(|_| is_named).map(|Space(tid)| Task { pid: Auxtrace::ANY, tid });
        self.task = task.or(unnamed).unwrap_or(UNKNOWN);
    }

    /// The sample of an instruction.
    #[cold]
    fn instruction(&mut self, ip: u64, period: u64) {
        if let Some(event) = &self.events.sampled.instructions {
            let branches = &*self.stack.make_contiguous();
            let sample = NewSample { ip, period, branches, raw: &[0], ..NewSample::default() };
            let bytes = fill(sample, ip, event, self.at.as_ref(), self.task).build(&event.attr, self.endian);
            self.push(&bytes.unwrap_or_default());
        }
    }

    /// Makes the sample of the last branch.
    #[inline(always)]
    fn send_branch(&mut self) {
        if let Some(taken) = self.branch.take() {
            self.branch_sample(taken);
        }
    }

    fn branch_sample(&mut self, Taken { from, to, class, flow, behind }: Taken) {
        let Some(event) = &self.events.sampled.branches else { return };
        let is_selected = match class {
            _ if !self.events.sampled.calls && !self.events.sampled.returns => true,
            Class::Call => self.events.sampled.calls,
            Class::Return => self.events.sampled.returns,
            Class::Edge => true,
            Class::Jump => self.events.sampled.jumps,
            Class::Other => false,
        };
        if is_selected {
            let raw = with_word(flow, behind);
            let sample = NewSample { ip: from, addr: to, period: 1, raw: &raw, ..NewSample::default() };
            let code = if from != 0 { from } else { to };
            let bytes =
                fill(sample, code, event, self.at.as_ref(), self.task).build(&event.attr, self.endian);
            self.push(&bytes.unwrap_or_default());
        }
    }

    fn push(&mut self, sample: &[u8]) {
        self.counts.samples += 1;
        self.counts.unknown += u64::from(self.task == UNKNOWN);
        // Samples without a time come last.
        let time = self.at.as_ref().map_or(0, |at| at.time);
        self.out.borrow_mut().push(sample, if self.events.timed { time } else { u64::MAX - 1 });
    }

    /// Puts the last branch on the stack, when something is executed behind it.
    #[inline(always)]
    fn push_branch(&mut self) {
        let is_kept = |taken: &Taken| taken.from != 0 && self.events.sampled.stack > 0;
        if let Some(Taken { from, to, .. }) = self.branch.filter(is_kept) {
            self.stack.truncate(self.events.sampled.stack - 1);
            self.stack.push_front(Branch { from, to, flags: BranchFlags(0) });
        }
    }

    /// Tracing ended, or what follows is not known.
    fn end(&mut self) {
        self.send_branch();
        self.rest();
        if let Some(last) = self.last.take() {
            self.branch_sample(Taken::end(last));
        }
        self.stack.clear();
    }

    fn begin(&mut self, ip: u64) {
        self.end();
        self.branch = Some(Taken::begin(ip));
    }

    fn fault(&mut self, Fault { reason, ip }: Fault) {
        let code = self.at.map(|at| &at.context.code);
        let name = ip.and_then(|ip| code?.name(self.space, ip, 0));
        *self.counts.faults.entry((reason, name.map(Into::into))).or_default() += 1;
    }
}

/// The parts of a sample that do not depend on its kind; `code` is an address that tells the level.
fn fill<'a>(
    sample: NewSample<'a>,
    code: u64,
    event: &Decoded,
    at: Option<&At<'_>>,
    task: Task,
) -> NewSample<'a> {
    NewSample {
        cpumode: if code >= cpumode::KERNEL_START { cpumode::KERNEL } else { cpumode::USER },
        pid: task.pid,
        tid: task.tid,
        time: at.map_or(0, |at| at.time),
        id: event.id,
        cpu: at.map_or(Auxtrace::ANY, |at| at.cpu),
        ..sample
    }
}

impl Sink for Sampler<'_, '_> {
    #[inline(always)]
    fn step(&mut self, blocks: &Blocks, point: &Point, step: Step) {
        self.look(point);
        let count = u64::from(step.count);
        self.counts.instructions += count;
        if step.count > 0 {
            self.push_branch();
            self.since += count;
            if self.since >= self.events.period {
                self.sample(blocks, step.block, count);
            }
            self.send_branch();
            self.last = blocks.nth(step.block, step.count - 1);
        }
        if let Some(to) = step.to {
            let block = &blocks[step.block];
            self.branch = Some(Taken {
                from: block.last,
                to: blocks[to].start,
                class: Class::of(block.kind),
                flow: flow(block.kind),
                behind: block.next,
            });
        }
    }

    fn event(&mut self, _blocks: &Blocks, point: &Point, event: Event) {
        self.look(point);
        match event {
            Event::Begin { ip } | Event::Resumed { ip } => self.begin(ip),
            Event::Sync { ip: Some(ip), .. } if self.last.is_none() && self.branch.is_none() => {
                self.begin(ip)
            }
            Event::End { .. } => self.end(),
            Event::Interrupt { from, to, .. } => {
                // perf omits a branch behind which nothing was executed.
                self.send_branch();
                if let Some(last) = self.last {
                    let (class, flow) = (Class::Call, INTERRUPTED);
                    self.branch = Some(Taken { from: last, to, class, flow, behind: from });
                }
            }
            Event::Fault(fault) => {
                self.fault(fault);
                self.end();
            }
            _ => {}
        }
    }
}

impl Sampler<'_, '_> {
    /// Makes the samples of the instructions of a block, the first `count` of which were executed.
    #[cold]
    fn sample(&mut self, blocks: &Blocks, block: BlockId, count: u64) {
        let period = self.events.period;
        if self.events.sampled.instructions.is_none() {
            self.since %= period;
            return;
        }
        // The number in the block of the instruction with the next sample.
        let mut next = period.saturating_sub(self.since - count);
        while self.since >= period {
            let ip = blocks.nth(block, next.saturating_sub(1) as u32).unwrap_or_default();
            self.instruction(ip, period);
            next += period;
            self.since -= period;
        }
    }
}

//! Makes samples from a decoded trace, as perf 7.3 does (tools/perf/util/cs-etm.c).

use std::mem::take;

use perfx_auxtrace::{Change, Task};
use perfx_format::Layout;
use perfx_format::record::aux::Auxtrace;
use perfx_format::record::cpumode;
use perfx_format::record::time::LAST_KEY;
use perfx_format::sample::{FlowFlags, NewSample, Stencil, TemplateFields};
use perfx_samples::{Rows, Sampled};
use perfx_trace::{Blocks, Event, Fault, Image as _, Space, Step};

use super::events::{Clock, Context};
use super::times::Times;
use crate::itrace::events::Decoded;
use crate::itrace::flow::{Class, INTERRUPTED, depth_words, exception_flow, flow, with_word};
use crate::itrace::losses::Counts;
use crate::itrace::parts::{self, Entry, PartLog, SampleQueue};
use crate::itrace::stacks::Stacks;
use crate::itrace::templates::{TemplateKey, Templates};

/// The decoding state of a buffer up to a position.
#[derive(Clone)]
pub(super) struct Sampler<'c> {
    context: &'c Context,
    /// The number of the current trace.
    trace: usize,
    cpu: u32,
    /// The time of its AUX record, ns.
    recorded: u64,
    times: Times,
    /// The latest time, by which samples are sorted.
    latest: u64,
    /// Samples that wait for the next timestamp, each with its event.
    early: Rows,
    task: Task,
    space: Option<Space>,
    /// The last branches, and the calls that have not returned.
    stacks: Stacks,
    /// Executed code whose end is not yet known: its start, and the number of instructions so far.
    front: Option<(u64, u64)>,
    /// The last executed instruction, if tracing has not ended after it.
    last: Option<u64>,
    /// Instructions since the last sample.
    since: u64,
    /// A branch whose sample follows those of the instructions at its target.
    branch: Option<Taken>,
    /// The next exception.
    exception: Option<u16>,
    templates: Templates,
    counts: Counts,
}

/// A branch. Where tracing begins, it is from 0.
#[derive(Clone, Copy, Debug)]
struct Taken {
    from: u64,
    to: u64,
    class: Class,
    change: Change,
    /// Its [`FlowFlags`].
    flow: u32,
}

impl Taken {
    /// The branch at which tracing begins.
    fn begin(to: u64) -> Taken {
        let flow = FlowFlags::BRANCH | FlowFlags::BEGIN;
        Taken { from: 0, to, class: Class::Edge, change: Change::None, flow }
    }

    /// The branch with these flags at which tracing ends.
    fn end(from: u64, flow: u32) -> Taken {
        let flow = flow | FlowFlags::BRANCH | FlowFlags::END;
        Taken { from, to: 0, class: Class::Edge, change: Change::None, flow }
    }
}

/// The most bytes of samples that wait for their time. perf's limit is the samples of 1,023 trace elements.
const MOST_EARLY: usize = 1 << 20;

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Kind {
    Branches,
    Instructions,
}

/// The size of an AArch64 instruction, bytes.
const INSTRUCTION: u64 = 4;

impl<'c> Sampler<'c> {
    /// The state at the beginning of a buffer.
    pub(super) fn new(context: &'c Context) -> Sampler<'c> {
        let sampled = &context.events.sampled;
        Sampler {
            context,
            trace: usize::MAX,
            cpu: Auxtrace::ANY,
            recorded: 0,
            times: Times::default(),
            latest: 0,
            early: Rows::default(),
            task: Task::UNKNOWN,
            space: None,
            stacks: Stacks::new(sampled.stack, sampled.chain, sampled.extras.depths),
            front: None,
            last: None,
            since: 0,
            branch: None,
            exception: None,
            templates: Templates::default(),
            counts: Counts::default(),
        }
    }

    /// Continues with another trace.
    fn turn(&mut self, trace: usize) {
        self.trace = trace;
        let tracer = &self.context.tracer;
        let (piece, unit) = (trace / tracer.units.len(), trace % tracer.units.len());
        self.recorded = tracer.pieces[piece].time;
        self.cpu = tracer.units.values().nth(unit).map_or(Auxtrace::ANY, |unit| unit.cpu);
        self.times.forget();
        // Another piece may use the same number for another thread.
        self.space = None;
        self.templates.switch();
    }

    /// Ends a trace: with branch stacks, perf makes a sample of the instructions since the last one. It does
    /// not count a branch after which nothing was executed.
    fn end_trace(&mut self, made: &mut SampleQueue) {
        self.branch = None;
        self.rest(made);
        self.release(made);
    }

    /// Makes a sample of the last instruction, so that the branches before it are not lost.
    fn rest(&mut self, made: &mut SampleQueue) {
        if let Some(last) = self.last.filter(|_| self.context.events.sampled.stack > 0) {
            let period = take(&mut self.since);
            self.instruction(last, period, made);
        }
    }

    #[cold]
    fn switch(&mut self, space: Option<Space>) {
        self.space = space;
        let Context { tracer, recorded, .. } = self.context;
        let is_named = tracer.names_threads();
        let known = match is_named {
            true => space.and_then(|Space(tid)| tracer.spaces.get(&tid).copied()),
            false => space,
        };
        let task = known.and_then(|Space(number)| recorded.tasks.get(number as usize)).copied();
        let unnamed = space.filter(|_| is_named).map(|Space(tid)| Task { tid, ..Task::UNKNOWN });
        self.task = task.or(unnamed).unwrap_or(Task::UNKNOWN);
        self.templates.switch();
    }

    /// The sample of an instruction.
    #[cold]
    fn instruction(&mut self, ip: u64, period: u64, made: &mut SampleQueue) {
        if self.context.events.sampled.instructions.is_some() {
            let (words, count) = self.raw(0, 0, ip);
            let sample = NewSample { ip, period, raw: &words[..count], ..NewSample::default() };
            self.push(sample, Kind::Instructions, made);
        }
    }

    /// The raw data of a sample, and its number of words: flags, return address, and if selected, room for
    /// what Intel PT counts, the bytes of the instruction, and the call depth.
    #[inline(always)]
    fn raw(&self, flow: u32, next: u64, ip: u64) -> ([u32; 13], usize) {
        let (mut words, mut count) = ([0; 13], 3);
        words[..3].copy_from_slice(&with_word(flow, next));
        let sampled = &self.context.events.sampled;
        if sampled.extras.instructions {
            (words[7], words[8]) = self.instruction_at(ip);
            count = 11;
        }
        if sampled.extras.depths {
            words[count..count + 2].copy_from_slice(&depth_words(flow, self.stacks.depth()));
            count += 2;
        }
        (words, count)
    }

    /// The size of an instruction and its bytes, as in raw data; 0 if unknown.
    #[cold]
    fn instruction_at(&self, ip: u64) -> (u32, u32) {
        let Context { tracer, code, .. } = self.context;
        let image = tracer.image(code);
        let mapping = image.code(self.space, ip, 0).filter(|_| ip != 0);
        let bytes = mapping.and_then(|mapping| mapping.bytes.get((ip - mapping.start) as usize..));
        let Some(&[a, b, c, d]) = bytes.and_then(|bytes| bytes.first_chunk()) else { return (0, 0) };
        (u32::from_le_bytes([INSTRUCTION as u8, a, b, c]), d.into())
    }

    /// Makes the sample of the last branch.
    #[inline(always)]
    fn send_branch(&mut self, made: &mut SampleQueue) {
        if let Some(taken) = self.branch.take() {
            self.branch_sample(taken, made);
        }
    }

    fn branch_sample(&mut self, taken: Taken, made: &mut SampleQueue) {
        let Taken { from, to, class, change, flow } = taken;
        let sampled = &self.context.events.sampled;
        if sampled.selects(class) && sampled.branches.is_some() {
            let next = if let Change::Call(next) = change { next } else { 0 };
            let (words, count) = self.raw(flow, next, from);
            let raw = &words[..count];
            let sample = NewSample { ip: from, addr: to, period: 1, raw, ..NewSample::default() };
            self.push(sample, Kind::Branches, made);
        }
    }

    fn push(&mut self, sample: NewSample<'_>, sampled: Kind, made: &mut SampleQueue) {
        self.counts.samples += 1;
        self.counts.unknown += u64::from(self.task == Task::UNKNOWN);
        let events = &self.context.events;
        if !matches!(events.clock, Clock::Virtual(_)) || self.times.is_known() {
            let (key, time) = self.time();
            let sample = NewSample { time, ..sample };
            if sampled == Kind::Branches && self.push_from_template(key, &sample, made) {
                return;
            }
            return made.push(key, |bytes| self.write(sample, sampled, bytes));
        }
        let mut early = take(&mut self.early);
        early.push(sampled as u64, |bytes| self.write(sample, sampled, bytes));
        self.early = early;
        if self.early.size() > MOST_EARLY {
            self.release(made);
        }
    }

    /// Adds the sample of a branch, unless its fields have no fixed places.
    #[inline(always)]
    fn push_from_template(&mut self, key: u64, sample: &NewSample<'_>, made: &mut SampleQueue) -> bool {
        let NewSample { ip, time, addr, period, raw, .. } = *sample;
        let at = Kind::Branches as usize;
        let template = (level(sample), raw.len());
        if self.templates.lacks(at, template) {
            self.find_template(at, template, sample);
        }
        let Some(stencil) = self.templates.last(at) else { return false };
        // The samples of a table have the time by which they are sorted.
        let shares = self.context.events.sampled.shares_branches() && time == key;
        let number = shares.then(|| made.number(ip, addr, raw, self.context.endian)).flatten();
        match number {
            Some(number) => made.push_branch(key, stencil, number),
            None => made.push_alike(key, stencil, TemplateFields { ip, time, addr, period, raw }),
        }
        true
    }

    #[cold]
    fn find_template(&mut self, at: usize, key: TemplateKey, sample: &NewSample<'_>) {
        let mut templates = take(&mut self.templates);
        templates.set(at, (self.task, self.cpu), key, || {
            let mut bytes = Vec::new();
            self.write(*sample, Kind::Branches, &mut bytes);
            Stencil::of(&bytes, &Layout::new(&self.event_of(Kind::Branches)?.attr), self.context.endian)
        });
        self.templates = templates;
    }

    /// The time by which a sample is sorted, and its own.
    fn time(&mut self) -> (u64, u64) {
        match self.context.events.clock {
            // Samples without a time are last.
            Clock::None => (LAST_KEY, 0),
            Clock::Records => (self.recorded, self.recorded),
            Clock::Virtual(_) => {
                let time = if self.times.now() > 0 { self.times.now() } else { self.recorded };
                self.latest = self.latest.max(time);
                (self.latest, time)
            }
        }
    }

    /// Makes the samples that waited for their time.
    fn release(&mut self, made: &mut SampleQueue) {
        let early = take(&mut self.early);
        if early.count() == 0 {
            return;
        }
        let (key, time) = self.time();
        for number in 0..early.count() {
            let Some(Sampled::Record(sample)) = early.get(number) else { continue };
            let events = [Kind::Branches, Kind::Instructions];
            let event = events.into_iter().find(|event| early.key(number) == Some(*event as u64));
            made.push(key, |bytes| {
                let start = bytes.len();
                bytes.extend_from_slice(sample);
                if let Some(event) = event.and_then(|event| self.event_of(event)) {
                    // Fails only for an event without times.
                    let _ = Layout::new(&event.attr).set_time(&mut bytes[start..], time, self.context.endian);
                }
            });
        }
    }

    fn event_of(&self, sampled: Kind) -> Option<&'c Decoded> {
        let events = &self.context.events.sampled;
        match sampled {
            Kind::Branches => events.branches.as_ref(),
            Kind::Instructions => events.instructions.as_ref(),
        }
    }

    fn write(&self, sample: NewSample<'_>, sampled: Kind, bytes: &mut Vec<u8>) {
        let Some(event) = self.event_of(sampled) else { return };
        let is_instruction = sampled == Kind::Instructions;
        let branches = if is_instruction { self.stacks.branches() } else { Default::default() };
        let callchain = if is_instruction { self.stacks.chain(sample.ip) } else { Vec::new() };
        let sample = NewSample {
            cpumode: level(&sample),
            pid: self.task.pid,
            tid: self.task.tid,
            id: event.ids.host,
            cpu: self.cpu,
            branches,
            callchain: &callchain,
            ..sample
        };
        // Fails only if the event records something that a new sample lacks.
        sample.write(&event.attr, self.context.endian, bytes).unwrap_or_default();
    }

    /// Pushes the last branch onto the stack, once something is executed after it.
    #[inline(always)]
    fn push_branch(&mut self) {
        let Some(Taken { from, to, change, .. }) = self.branch.filter(|branch| branch.from != 0) else {
            return;
        };
        let (context, space) = (self.context, self.space);
        self.stacks.push(from, to, 0);
        self.stacks.call(to, || change, false, |ip| context.tracer.image(&context.code).function(space, ip));
    }

    /// Ends the traced code, after a branch with these flags; `None` stands for those of the last branch.
    fn end(&mut self, flow: Option<u32>, made: &mut SampleQueue) {
        self.times.forget();
        let flow = flow.or(self.branch.map(|branch| branch.flow)).unwrap_or(0);
        self.send_branch(made);
        self.rest(made);
        if let Some(last) = self.last.take() {
            self.branch_sample(Taken::end(last, flow), made);
        }
        self.stacks.forget();
    }

    fn begin(&mut self, ip: u64, made: &mut SampleQueue) {
        self.end(None, made);
        self.branch = Some(Taken::begin(ip));
    }

    fn fault(&mut self, Fault { reason, ip, .. }: Fault) {
        let name = ip.and_then(|ip| self.context.code.name(self.space, ip, 0));
        *self.counts.faults.entry((reason, name.map(Into::into))).or_default() += 1;
    }

    /// Adds a step whose end is not yet known.
    #[inline(always)]
    fn straight(&mut self, blocks: &Blocks, step: Step) {
        let (start, count) = self.front.unwrap_or((blocks[step.block].start, 0));
        self.front = Some((start, count + u64::from(step.count)));
    }

    #[inline(always)]
    fn step(&mut self, blocks: &Blocks, step: Step, made: &mut SampleQueue) {
        self.straight(blocks, step);
        self.execute(made);
        if let Some(to) = step.to {
            let block = &blocks[step.block];
            let (class, change, flow) = (Class::of(block.kind), Change::of(block), flow(block.kind));
            self.branch = Some(Taken { from: block.last, to: blocks[to].start, class, change, flow });
        }
    }

    /// Makes the samples of executed code whose end is now known.
    #[inline(always)]
    fn execute(&mut self, made: &mut SampleQueue) {
        let Some((start, count)) = self.front.take().filter(|(_, count)| *count > 0) else { return };
        self.counts.instructions += count;
        self.times.execute(count);
        self.push_branch();
        self.since += count;
        if self.since >= self.context.events.period {
            self.sample(start, count, made);
        }
        self.send_branch(made);
        self.last = Some(start.wrapping_add((count - 1) * INSTRUCTION));
    }

    /// Makes the samples of this many instructions.
    #[cold]
    fn sample(&mut self, start: u64, count: u64, made: &mut SampleQueue) {
        let period = self.context.events.period;
        if self.context.events.sampled.instructions.is_none() {
            self.since %= period;
            return;
        }
        // The number of instructions up to the next sample.
        let mut next = period.saturating_sub(self.since - count);
        while self.since >= period {
            self.instruction(start.wrapping_add(next.saturating_sub(1) * INSTRUCTION), period, made);
            next += period;
            self.since -= period;
        }
    }

    fn event(&mut self, event: Event, blocks: &Blocks, made: &mut SampleQueue) {
        if let Event::Exception { number } = event {
            return self.exception = Some(number);
        }
        self.execute(made);
        let exception = self.exception.take();
        match event {
            Event::Begin { ip, .. } | Event::Resumed { ip } => self.begin(ip, made),
            Event::Sync { ip: Some(ip), .. } if self.last.is_none() && self.branch.is_none() => {
                self.begin(ip, made);
            }
            Event::End { block, .. } => {
                let of_block = block.map(|block| flow(blocks[block].kind));
                self.end(of_block.or(exception.map(exception_flow)), made);
            }
            Event::Interrupt { to, .. } => {
                // Unlike perf, makes the sample of a branch after which nothing was executed.
                self.send_branch(made);
                if let Some(from) = self.last {
                    let change = Change::Call(from.wrapping_add(INSTRUCTION));
                    let flow = exception.map_or(INTERRUPTED, exception_flow);
                    self.branch = Some(Taken { from, to, class: Class::Call, change, flow });
                }
            }
            Event::Fault(fault) => {
                self.fault(fault);
                self.end(None, made);
            }
            Event::Context => self.times.forget(),
            Event::Over => self.end_trace(made),
            _ => {}
        }
    }
}

/// The CPU mode of a sample.
fn level(sample: &NewSample<'_>) -> u16 {
    let code = if sample.ip != 0 { sample.ip } else { sample.addr };
    if code >= cpumode::KERNEL_START { cpumode::KERNEL } else { cpumode::USER }
}

impl parts::Sampler for Sampler<'_> {
    fn make(&mut self, log: &mut PartLog, blocks: &Blocks, made: &mut SampleQueue) {
        if self.trace != log.part.trace {
            self.turn(log.part.trace);
        }
        for entry in &log.entries {
            match *entry {
                Entry::Step(step) => self.step(blocks, step, made),
                Entry::Straight(step) => self.straight(blocks, step),
                Entry::Now(ticks) => {
                    if let Clock::Virtual(conv) = &self.context.events.clock {
                        self.times.reach(if ticks > 0 { conv.time(ticks) } else { 0 });
                        self.release(made);
                    }
                }
                Entry::Space(space) if space != self.space => self.switch(space),
                Entry::Event(number) => self.event(log.events[number as usize], blocks, made),
                // CoreSight has no paths.
                _ => {}
            }
        }
    }

    fn counts(&self) -> &Counts {
        &self.counts
    }
}

//! Follows the branches of each thread from function to function.
//!
//! Calls return as in perf (tools/perf/util/thread-stack.c): a return leaves the newest call that returns to
//! its target, with everything that it called, and a jump to the start of another function is a call that
//! returns with its caller. Differences from perf:
//! - if a return leads to a function that was not called yet, that function is the caller from the beginning
//!   of the trace;
//! - functions that jump to each other do not pile up;
//! - a new stack begins after lost data.

use std::ops::Range;

use foldhash::fast::RandomState;
use indexmap::IndexMap;
use perfx_auxtrace::{Calls, Change};
use perfx_format::Time;
use perfx_format::sample::FlowFlags;
use perfx_pipeline::Result;
use perfx_resolve::Frame;

use super::branch::{Branch, Event, Part, Runner};
use super::functions::{Functions, Place};
use super::nodes::{MOST_DEPTH, Nodes};
use super::watched::{Moment, Role, Slowest, Watched, Watching};
use crate::chains::{StackTree, numbered};
use crate::durations::{Bucket, Calls as Lasted, OfStacks};
use crate::stacks::{Grouping, MOST_ROWS, Row, Stacks, Weight, spanning};

pub(super) struct Follower<'f> {
    functions: Functions<'f>,
    /// The frames; there are no stacks.
    frames: StackTree,
    threads: IndexMap<Runner, Thread, RandomState>,
    /// The events of each reader, and the numbers of their threads.
    known: Vec<Vec<(Event<Place>, usize)>>,
    shared: Shared<'f>,
}

/// State shared by the threads.
struct Shared<'f> {
    nodes: Nodes,
    /// The frame of untraced code.
    untraced: u32,
    out: Out<'f>,
    /// Set if calls are watched.
    slowest: Option<Slowest>,
}

/// A function that has not returned.
#[derive(Clone, Copy, Debug)]
struct Open {
    node: u32,
    function: u32,
    is_kernel: bool,
    /// The number of open calls while it runs.
    level: usize,
    /// True if it was running when first seen, so its return address is unknown.
    is_found: bool,
    /// The time of its call; `None` if unknown, or if the call is not selected.
    begin: Option<Moment>,
    role: Role,
}

const UNTRACED: u32 = u32::MAX;

/// The function that runs in a thread, and since when.
#[derive(Clone, Copy, Debug)]
struct Current {
    node: u32,
    function: u32,
    label: u32,
    since: u64,
    /// 1 if it was called then.
    calls: u64,
    is_chosen: bool,
}

#[derive(Debug)]
struct Thread {
    runner: Runner,
    calls: Calls,
    /// The functions that have not returned, outermost first.
    open: Vec<Open>,
    current: Option<Current>,
    last: u64,
    is_traced: bool,
    /// The number of callers found for the outermost function.
    callers: u32,
    /// The CPU of the last branch, and whether it is selected.
    cpu: u32,
    is_chosen: bool,
    /// The time off the CPU so far, ns, and the time at which it left the CPU, if it has not returned.
    off_cpu: u64,
    left: Option<u64>,
    watching: Watching,
}

/// A function is searched for among this many of the newest.
const SEARCHED: usize = 64;

/// Maximum number of functions that have not returned; beyond it, the oldest half is dropped.
const MOST_OPEN: usize = 1 << 16;

impl<'f> Follower<'f> {
    pub(super) fn new(
        functions: Functions<'f>,
        out: Out<'f>,
        slowest: Option<Slowest>,
    ) -> Result<Follower<'f>> {
        let mut frames = StackTree::default();
        let untraced = frames.frame(Frame::UNTRACED)?;
        let shared = Shared { nodes: Nodes::default(), untraced, out, slowest };
        Ok(Follower { functions, frames, threads: IndexMap::default(), known: Vec::new(), shared })
    }

    pub(super) fn join(&mut self, part: Part) -> Result<()> {
        let Follower { functions, frames, threads, known, shared } = self;
        let numbers = frames.absorb(&part.tree)?;
        let stacks = &mut shared.out.stacks;
        let labels = part.labels.into_iter().map(|label| numbered(stacks.labels.insert_full(label).0));
        let labels: Vec<u32> = labels.collect::<Result<_>>()?;
        let mut place = |frame: Option<u32>| {
            frame.map(|frame| functions.at(numbers.frames[frame as usize], frames)).transpose()
        };
        known.resize(known.len().max(part.reader + 1), Vec::new());
        let known = &mut known[part.reader];
        if part.is_anew {
            known.clear();
        }
        for event in part.events {
            let (event, runner) = match event {
                Event::Branch(branch) => {
                    let (from, to) = (place(branch.from)?, place(branch.to)?);
                    let branch = branch.at(from, to, labels[branch.label as usize]);
                    (Event::Branch(branch), branch.runner)
                }
                Event::Switch { runner, leaves } => (Event::Switch { runner, leaves }, runner),
            };
            let thread = threads.entry(runner);
            known.push((event, thread.index()));
            thread.or_insert_with(|| Thread::new(runner));
        }
        let mut seen = part.seen.into_iter().peekable();
        while let Some((number, time)) = seen.next() {
            let (event, at) = &known[number as usize];
            let thread = &mut threads[*at];
            match event {
                Event::Branch(branch) => {
                    if let Some(&(number, then)) = seen.peek()
                        && let (Event::Branch(back), same) = &known[number as usize]
                        && same == at
                        && thread.calls_leaf((branch, time), (back, then), shared)?
                    {
                        seen.next();
                        continue;
                    }
                    thread.follow(branch, time, shared)?;
                }
                Event::Switch { leaves, .. } => thread.switch(time, *leaves),
            }
        }
        shared.out.round();
        Ok(())
    }

    /// Ends with the last branches; returns the stacks, and the watched calls.
    pub(super) fn finish(self) -> Result<(Stacks, Option<Watched>)> {
        let Follower { frames, mut threads, mut shared, functions, .. } = self;
        threads.sort_unstable_keys();
        threads.into_values().for_each(|mut thread| thread.lose(&mut shared));
        shared.out.round();
        let (tree, numbers) = shared.nodes.into_tree(&frames)?;
        let mut stacks = shared.out.done();
        for (row, weight) in std::mem::take(&mut stacks.rows) {
            stacks.add(Row { stack: numbers[row.stack as usize], ..row }, weight);
        }
        let mut durations = OfStacks::default();
        for ((node, bucket), lasted) in std::mem::take(&mut stacks.durations) {
            *durations.entry((numbers[node as usize], bucket)).or_default() += lasted;
        }
        let watched = shared.slowest.map(|slowest| functions.named(slowest));
        Ok((Stacks { tree, durations, ..stacks }, watched))
    }
}

impl Thread {
    fn new(runner: Runner) -> Thread {
        Thread {
            runner,
            calls: Calls::default(),
            open: Vec::new(),
            current: None,
            last: 0,
            is_traced: false,
            callers: 0,
            cpu: u32::MAX,
            is_chosen: false,
            off_cpu: 0,
            left: None,
            watching: Watching::default(),
        }
    }

    /// The thread leaves its CPU, or runs again.
    fn switch(&mut self, time: u64, leaves: bool) {
        if leaves {
            self.left = Some(time);
        } else if let Some(left) = self.left.take() {
            self.off_cpu = self.off_cpu.saturating_add(time.saturating_sub(left));
        }
    }

    /// The time of the last branch.
    fn now(&self) -> Moment {
        let left = self.left.map_or(0, |left| self.last.saturating_sub(left));
        Moment { time: self.last, off_cpu: self.off_cpu.saturating_add(left) }
    }

    fn follow(&mut self, branch: &Branch<Place>, time: u64, shared: &mut Shared<'_>) -> Result<()> {
        const EXCHANGES: u32 = FlowFlags::GUEST_ENTRY | FlowFlags::GUEST_EXIT;
        let goes_on = branch.from.is_none() && branch.has(EXCHANGES);
        let begins = branch.has(FlowFlags::BEGIN) || goes_on;
        if begins && self.is_traced {
            self.lose(shared);
        }
        self.is_traced = true;
        self.last = self.last.max(time);
        (self.cpu, self.is_chosen) = (branch.cpu, branch.is_chosen);
        if self.open.last().is_some_and(|open| open.function == UNTRACED) {
            self.leave(self.open.len() - 1, shared);
        }
        if self.open.is_empty()
            && let Some(from) = branch.from
        {
            self.find(from, shared)?;
        }
        let ends = branch.has(FlowFlags::END) || branch.to.is_none();
        let mut is_call = false;
        if let Some(place) = branch.to {
            let change = match branch {
                _ if begins => Change::Begin,
                _ if branch.has(FlowFlags::CALL) => Change::Call(branch.behind),
                _ if branch.has(FlowFlags::RETURN) => Change::Return(branch.behind),
                _ if self.is_in(place) || place.is_start => Change::None,
                _ => Change::Jump(branch.behind),
            };
            let before = self.calls.depth();
            // Functions are searched for below, by name.
            self.calls.branch(branch.address, change, ends, |_| None);
            let depth = self.calls.depth();
            while self.open.last().is_some_and(|open| open.level > depth) {
                self.leave(self.open.len() - 1, shared);
            }
            is_call = match change {
                Change::Call(_) if depth > before => self.call(place, shared)?,
                Change::Call(_) => false,
                Change::Return(_) if depth < before && !place.is_start => false,
                Change::Return(_) => self.return_from(branch, place, shared)?,
                Change::None if place.is_start && !self.is_in(place) => self.tail_call(place, shared)?,
                Change::None => false,
                Change::Jump(_) => self.jump(place, shared)?,
                Change::Begin => self.start(place, shared)?,
            };
        } else if branch.has(FlowFlags::RETURN) && branch.has(FlowFlags::SYSCALL) {
            // Only the kernel is traced.
            self.leave_kernel(shared);
        }
        self.turn(branch, is_call, shared);
        if ends {
            self.is_traced = false;
            if let Some(open) = self.open.last() {
                let node = shared.nodes.child(open.node, shared.untraced)?;
                let (function, begin, role) = (UNTRACED, self.begin(shared), Role::default());
                self.open.push(Open { node, function, begin, role, ..*open });
            }
            self.turn(branch, !self.open.is_empty(), shared);
        }
        Ok(())
    }

    /// Most calls are of functions that call nothing. Follows a call and the next branch, with their times,
    /// if that returns from it and nothing else happens; else does nothing and returns false.
    fn calls_leaf(
        &mut self,
        (call, time): (&Branch<Place>, u64),
        (back, then): (&Branch<Place>, u64),
        shared: &mut Shared<'_>,
    ) -> Result<bool> {
        const EDGES: u32 = FlowFlags::BEGIN | FlowFlags::END;
        let is_call = call.has(FlowFlags::CALL) && !call.has(EDGES);
        let is_return = back.has(FlowFlags::RETURN) && !back.has(EDGES | FlowFlags::CALL);
        let (Some(_), Some(place), Some(to)) = (call.from, call.to, back.to) else { return Ok(false) };
        let is_back = back.address == call.behind && call.address != call.behind && !to.is_start;
        let (Some(&Open { node, function, .. }), Some(current)) = (self.open.last(), &mut self.current)
        else {
            return Ok(false);
        };
        let group = |branch: &Branch<Place>| (branch.label, branch.is_chosen);
        let is_same = (current.node, current.label, current.is_chosen) == (node, call.label, call.is_chosen);
        let has_room = self.open.len() < MOST_OPEN && self.calls.has_room();
        if !(is_call && is_return && is_back && is_same && group(call) == group(back) && has_room)
            || function == UNTRACED
            || !self.is_traced
            || self.left.is_some()
            || shared.slowest.is_some()
        {
            return Ok(false);
        }
        let begin = self.last.max(time);
        let end = begin.max(then);
        (self.last, self.cpu, self.is_chosen) = (end, back.cpu, back.is_chosen);
        let node = shared.nodes.child(node, place.start)?;
        let caller = Current { since: end, calls: 0, ..*current };
        shared.out.add(std::mem::replace(current, caller), begin);
        let called = Current { node, function: place.function, since: begin, calls: 1, ..caller };
        shared.out.add(called, end);
        if self.is_chosen && begin != u64::MAX && shared.out.has(begin) {
            let ns = end - begin;
            shared.out.lasted(node, Bucket::of(ns), Lasted::one(ns, 0));
        }
        self.calls.call_and_return(back.address);
        Ok(true)
    }

    /// True if the place is in the innermost function.
    fn is_in(&self, place: Place) -> bool {
        self.open.last().is_some_and(|open| open.function == place.function)
    }

    fn call(&mut self, place: Place, shared: &mut Shared<'_>) -> Result<bool> {
        let Place { function, start, is_kernel, role, .. } = place;
        let node = match self.open.last() {
            Some(caller) => shared.nodes.child(caller.node, start)?,
            None => shared.nodes.root(start)?,
        };
        if self.open.len() == MOST_OPEN {
            self.open.drain(..MOST_OPEN / 2);
            // The outermost one had callers.
            self.callers = MOST_DEPTH;
            shared.slowest.iter_mut().for_each(|slowest| self.watching.forget_calls(slowest));
        }
        let level = self.calls.depth();
        self.enter(Open { node, function, is_kernel, level, is_found: false, begin: None, role }, shared);
        Ok(true)
    }

    /// A function is called now.
    fn enter(&mut self, open: Open, shared: &Shared<'_>) {
        let begin = self.begin(shared);
        if shared.slowest.is_some() {
            self.watching.enter(open.role, begin, self.cpu, self.open.len());
        }
        self.open.push(Open { begin, ..open });
    }

    /// The time of the last branch, if known and if a call there is selected.
    fn begin(&self, shared: &Shared<'_>) -> Option<Moment> {
        let is_known = self.is_chosen && self.last != u64::MAX && shared.out.has(self.last);
        is_known.then(|| self.now())
    }

    /// The innermost functions end; the outermost `count` go on.
    fn leave(&mut self, count: usize, shared: &mut Shared<'_>) {
        let now = self.now();
        while self.open.len() > count
            && let Some(Open { node, function, begin, role, .. }) = self.open.pop()
        {
            let lasted = begin.map(|begin| now.since(begin));
            if let Some((ns, off_cpu)) = lasted {
                shared.out.lasted(node, Bucket::of(ns), Lasted::one(ns, off_cpu));
            }
            if let Some(slowest) = &mut shared.slowest {
                self.watching.leave((function, role), lasted, self.open.len(), self.runner, slowest);
            }
        }
    }

    /// Adds a function that is found running: it was called before, unless it begins here.
    fn find(&mut self, place: Place, shared: &mut Shared<'_>) -> Result<bool> {
        let role = if place.is_start { place.role } else { Role::default() };
        self.call(Place { role, ..place }, shared)?;
        if let Some(open) = self.open.last_mut() {
            open.is_found = true;
            open.begin = open.begin.filter(|_| place.is_start);
        }
        Ok(place.is_start)
    }

    /// A jump to the start of another function: a call, which returns with the jumping function.
    fn tail_call(&mut self, place: Place, shared: &mut Shared<'_>) -> Result<bool> {
        let depth = self.calls.depth();
        let own = self.open.iter().rev().take(SEARCHED).take_while(|open| open.level == depth);
        if let Some(above) = own.clone().position(|open| open.function == place.function) {
            self.leave(self.open.len() - above, shared);
            // It ends, too, and is called again from the same stack.
            if let Some(open) = self.open.last().copied() {
                self.leave(self.open.len() - 1, shared);
                self.enter(Open { role: place.role, ..open }, shared);
            }
            return Ok(true);
        }
        self.call(place, shared)
    }

    /// The number of open functions up to the newest call of the function at a place; `None` without one.
    fn count_to(&self, place: Place) -> Option<usize> {
        let mut newest = self.open.iter().rev().take(SEARCHED);
        newest.position(|open| open.function == place.function).map(|above| self.open.len() - above)
    }

    /// If the function at a place is open, makes it the innermost and returns true.
    fn is_open(&mut self, place: Place, shared: &mut Shared<'_>) -> bool {
        let found = self.count_to(place);
        found.into_iter().for_each(|count| self.cut(count, shared));
        found.is_some()
    }

    /// A jump into the middle of another function: to an open one, as by longjmp, or to code without symbols.
    fn jump(&mut self, place: Place, shared: &mut Shared<'_>) -> Result<bool> {
        if self.is_open(place, shared) { Ok(false) } else { self.find(place, shared) }
    }

    /// Tracing begins, or the kernel returns to another place than it was called from: a signal handler, the
    /// code that a handler interrupted, or another stack.
    fn start(&mut self, place: Place, shared: &mut Shared<'_>) -> Result<bool> {
        if self.is_open(place, shared) {
            return Ok(false);
        }
        if !place.is_start {
            self.forget(shared);
        }
        self.find(place, shared)
    }

    /// A return to a place from which nothing was called.
    fn return_from(&mut self, branch: &Branch<Place>, place: Place, shared: &mut Shared<'_>) -> Result<bool> {
        if branch.from.is_some_and(|from| from.is_kernel) && !place.is_kernel {
            self.leave_kernel(shared);
            return self.start(place, shared);
        }
        // A function that was not called returns: a signal handler, to code that ends it.
        if self.open.len() > 1 && self.open.last().is_some_and(|open| open.is_found) {
            self.cut(self.open.len() - 1, shared);
        }
        let has_callers = self.calls.depth() == 0 && self.callers < MOST_DEPTH;
        if let (false, true, Some(outermost)) = (place.is_start, has_callers, self.open.first())
            && self.count_to(place).is_none()
        {
            self.callers += 1;
            let Place { function, start, is_kernel, .. } = place;
            let node = shared.nodes.adopt(outermost.node, start)?;
            self.leave(0, shared);
            let (begin, role) = (None, Role::default());
            self.open.push(Open { node, function, is_kernel, level: 0, is_found: true, begin, role });
            return Ok(false);
        }
        // To protect it from speculation (retpoline), a function is also called by a return to its start.
        self.start(place, shared)
    }

    /// Keeps the outermost `count` functions.
    fn cut(&mut self, count: usize, shared: &mut Shared<'_>) {
        self.leave(count, shared);
        self.calls.cut(self.open.last().map_or(0, |open| open.level));
    }

    fn leave_kernel(&mut self, shared: &mut Shared<'_>) {
        let of_kernel = self.open.iter().rev().take_while(|open| open.is_kernel).count();
        self.cut(self.open.len() - of_kernel, shared);
    }

    /// The stack is unknown from now on.
    fn forget(&mut self, shared: &mut Shared<'_>) {
        self.calls = Calls::default();
        self.open.clear();
        self.callers = 0;
        shared.slowest.iter_mut().for_each(|slowest| self.watching.forget_calls(slowest));
    }

    fn lose(&mut self, shared: &mut Shared<'_>) {
        self.stop(shared);
        self.forget(shared);
        shared.slowest.iter_mut().for_each(|slowest| self.watching.forget_span(slowest));
    }

    /// Ends the current function at the last branch.
    fn stop(&mut self, shared: &mut Shared<'_>) {
        if let Some(current) = self.current.take() {
            shared.out.add(current, self.last);
        }
    }

    /// The innermost function runs from now on; it was called now if `is_call`.
    fn turn(&mut self, branch: &Branch<Place>, is_call: bool, shared: &mut Shared<'_>) {
        let innermost = self.open.last().map(|open| (open.node, open.function));
        let node = innermost.map(|(node, _)| node);
        let Branch { label, is_chosen, .. } = *branch;
        if let Some(current) = &self.current
            && !is_call
            && (Some(current.node), current.label, current.is_chosen) == (node, label, is_chosen)
        {
            return;
        }
        if let Some(slowest) = &mut shared.slowest {
            let ran = |current: &Current| (current.function, current.calls, self.last - current.since);
            let ran = self.current.as_ref().map(ran);
            let now = self.now();
            self.watching.turn(ran, now, (self.runner, self.cpu), slowest);
        }
        self.stop(shared);
        let (since, calls) = (self.last, is_call.into());
        let current = |(node, function)| Current { node, function, label, since, calls, is_chosen };
        self.current = innermost.map(current);
    }
}

/// Collects the stacks.
pub(super) struct Out<'t> {
    event: u32,
    grouping: Grouping,
    times: Option<&'t [Range<u64>]>,
    /// The rows contain node numbers as stacks.
    stacks: Stacks,
    /// The weights of the first label without times, by node.
    of_nodes: Vec<Weight>,
    /// The durations of each node that are 0, and the last ones that are in one other bucket.
    lasted: Vec<(Lasted, Option<(Bucket, Lasted)>)>,
    /// The times of the first and the last change, if there is one.
    span: Option<Option<(Time, Time)>>,
}

/// The smallest step of rounded times, ns.
const FIRST_STEP: u64 = 10;

impl<'t> Out<'t> {
    pub(super) fn new(event: u32, grouping: Grouping, times: Option<&'t [Range<u64>]>) -> Out<'t> {
        let (stacks, of_nodes, lasted) = (Stacks::default(), Vec::new(), Vec::new());
        Out { event, grouping, times, stacks, of_nodes, lasted, span: None }
    }

    /// True if a time is selected.
    fn has(&self, time: u64) -> bool {
        self.times.is_none_or(|times| {
            let at = times.partition_point(|times| times.end <= time);
            times.get(at).is_some_and(|times| times.contains(&time))
        })
    }

    fn lasted(&mut self, node: u32, bucket: Bucket, lasted: Lasted) {
        if self.lasted.len() <= node as usize {
            self.lasted.resize(node as usize + 1, Default::default());
        }
        match &mut self.lasted[node as usize] {
            (zero, _) if bucket == Bucket::of(0) => *zero += lasted,
            (_, Some((known, sum))) if *known == bucket => *sum += lasted,
            (_, last) => {
                let before = last.replace((bucket, lasted));
                before.into_iter().for_each(|(bucket, sum)| self.add_lasted(node, bucket, sum));
            }
        }
    }

    fn add_lasted(&mut self, node: u32, bucket: Bucket, sum: Lasted) {
        *self.stacks.durations.entry((node, bucket)).or_default() += sum;
    }

    /// Adds the time until `until`.
    fn add(&mut self, current: Current, until: u64) {
        if !current.is_chosen {
            return;
        }
        let Some(times) = self.times else { return self.add_at(current, until) };
        let first = times.partition_point(|times| times.end <= current.since);
        for times in times[first..].iter().take_while(|times| times.start <= until) {
            let since = current.since.max(times.start);
            let calls = if times.contains(&current.since) { current.calls } else { 0 };
            self.add_at(Current { since, calls, ..current }, until.min(times.end));
        }
    }

    fn add_at(&mut self, Current { node, label, since, calls, .. }: Current, until: u64) {
        let weight = Weight { samples: calls, period: until - since };
        if !weight.is_zero() {
            let (since, until) = (Time::from_ns(since), Time::from_ns(until));
            self.span = Some(spanning(self.span.flatten(), since.zip(until)));
            if label > 0 || self.grouping.time {
                let time = since.filter(|_| self.grouping.time);
                return self.stacks.add(Row { event: self.event, label, stack: node, time }, weight);
            }
            if self.of_nodes.len() <= node as usize {
                self.of_nodes.resize(node as usize + 1, Weight::default());
            }
            self.of_nodes[node as usize] += weight;
        }
    }

    /// The stacks; their rows contain node numbers in place of stacks.
    fn done(mut self) -> Stacks {
        for (node, (zero, last)) in (0..).zip(std::mem::take(&mut self.lasted)) {
            if zero != Lasted::default() {
                self.add_lasted(node, Bucket::of(0), zero);
            }
            last.into_iter().for_each(|(bucket, sum)| self.add_lasted(node, bucket, sum));
        }
        let (event, stacks) = (self.event, &mut self.stacks);
        for (node, weight) in (0..).zip(self.of_nodes).filter(|(_, weight)| !weight.is_zero()) {
            stacks.add(Row { event, label: 0, stack: node, time: None }, weight);
        }
        self.span.into_iter().for_each(|span| stacks.seen(event, span));
        self.stacks
    }

    fn round(&mut self) {
        if self.grouping.time {
            self.stacks.round_times(MOST_ROWS, FIRST_STEP);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap as Map;

    use perfx_format::record::cpumode::{KERNEL, USER};
    use perfx_model::address_space::Machine;

    use super::*;

    /// A function has the addresses from a hundred times its number on.
    fn place(address: u64) -> Option<Place> {
        let (function, is_kernel) = ((address % 1_000_000 / 100) as u32, address >= 1_000_000);
        let number = function + if is_kernel { 100 } else { 0 };
        (address > 0).then_some(Place {
            function: number,
            start: number,
            is_start: address.is_multiple_of(100),
            is_kernel,
            role: Role::default(),
        })
    }

    /// Follows branches of a thread, one per ns, each with flags, source and target. Calls return to the
    /// address after the branch. Returns the calls and the time of each stack of functions.
    fn follow(branches: &[(u32, u64, u64)]) -> Map<Vec<u64>, (u64, u64)> {
        let [pairs, singly] = [true, false].map(|in_pairs| follow_all(branches, in_pairs));
        assert_eq!(pairs, singly, "{branches:?}");
        pairs.0
    }

    /// The same and the durations, with a call and its return at once or one after the other.
    fn follow_all(branches: &[(u32, u64, u64)], in_pairs: bool) -> (Map<Vec<u64>, (u64, u64)>, String) {
        let mut frames = StackTree::default();
        for at in 0..200 {
            let mode = if at >= 100 { KERNEL } else { USER };
            frames.frame(Frame { dso: None, at, mode, process: 0 }).unwrap();
        }
        let untraced = frames.frame(Frame::UNTRACED).unwrap();
        let out = Out::new(0, Grouping::default(), None);
        let mut shared = Shared { nodes: Nodes::default(), untraced, out, slowest: None };
        let runner = Runner { machine: Machine::Host, pid: 1, tid: 1, cpu: 0 };
        let mut thread = Thread::new(runner);
        let branch = |(time, &(flags, from, to)): (u64, &(u32, u64, u64))| {
            let branch = Branch {
                runner,
                cpu: 0,
                from: place(from),
                to: place(to),
                address: to,
                behind: from + 1,
                flags: FlowFlags(flags),
                label: 0,
                is_chosen: true,
            };
            (branch, time)
        };
        let mut branches = (1000..).zip(branches).map(branch).peekable();
        while let Some((branch, time)) = branches.next() {
            if let Some((back, then)) = branches.peek().filter(|_| in_pairs)
                && thread.calls_leaf((&branch, time), (back, *then), &mut shared).unwrap()
            {
                branches.next();
            } else {
                thread.follow(&branch, time, &mut shared).unwrap();
            }
        }
        thread.stop(&mut shared);
        let (tree, numbers) = shared.nodes.into_tree(&frames).unwrap();
        let nodes: Vec<_> = tree.nodes().collect();
        let mut sums = Map::new();
        let done = shared.out.done();
        let durations: Map<_, _> = done.durations.into_iter().collect();
        for (row, weight) in done.rows {
            let (mut path, mut at) = (Vec::new(), numbers[row.stack as usize]);
            while at != StackTree::ROOT {
                let frame = tree.frame_of(nodes[at as usize].1).unwrap();
                path.insert(0, if frame == Frame::UNTRACED { 0 } else { frame.at });
                at = nodes[at as usize].0;
            }
            let sum: &mut (u64, u64) = sums.entry(path).or_default();
            *sum = (sum.0 + weight.samples, sum.1 + weight.period);
        }
        (sums, format!("{durations:?}"))
    }

    const BEGIN: u32 = FlowFlags::BRANCH | FlowFlags::BEGIN;
    const END: u32 = FlowFlags::BRANCH | FlowFlags::END;
    const CALL: u32 = FlowFlags::BRANCH | FlowFlags::CALL;
    const RETURN: u32 = FlowFlags::BRANCH | FlowFlags::RETURN;
    const JUMP: u32 = FlowFlags::BRANCH;

    fn expected(stacks: &[(&[u64], u64, u64)]) -> Map<Vec<u64>, (u64, u64)> {
        stacks.iter().map(|(stack, calls, ns)| (stack.to_vec(), (*calls, *ns))).collect()
    }

    #[test]
    fn each_call_counts_and_lasts_until_it_returns() {
        let twice = [(CALL, 110, 200), (RETURN, 250, 111), (CALL, 120, 200), (RETURN, 250, 121)];
        let found = follow(&[&[(BEGIN, 0, 105)], &twice[..], &[(END, 130, 0)]].concat());
        assert_eq!(found, expected(&[(&[1], 0, 3), (&[1, 2], 2, 2), (&[1, 0], 1, 0)]));
    }

    #[test]
    fn a_call_and_its_return_are_the_same_at_once_or_one_after_the_other() {
        let mut random = 1_u64;
        let mut next = |count: u64| {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (random >> 33) % count
        };
        for _ in 0..200 {
            let (mut open, mut branches) = (vec![101], vec![(BEGIN, 0, 101)]);
            for _ in 0..60 {
                let here = *open.last().unwrap_or(&101);
                let to = 100 * (1 + next(4));
                let (from, inside) = (here + next(5), to + 1 + next(20));
                match next(10) {
                    0 => branches.push((JUMP, from, [to, inside][next(2) as usize])),
                    1 => branches.push((RETURN, from, inside)),
                    2 => branches.extend([(END, from, 0), (BEGIN, 0, from)]),
                    3..6 if open.len() > 1 => {
                        open.pop();
                        branches.push((RETURN, from, *open.last().unwrap_or(&101)));
                    }
                    _ => {
                        branches.push((CALL, from, to));
                        open.pop();
                        open.extend([from + 1, to + 1]);
                    }
                }
            }
            follow(&branches);
        }
    }

    #[test]
    fn a_recursive_function_is_called_by_itself() {
        let found = follow(&[
            (BEGIN, 0, 200),
            (CALL, 210, 200),
            (CALL, 210, 200),
            (RETURN, 250, 211),
            (RETURN, 250, 211),
        ]);
        assert_eq!(found, expected(&[(&[2], 1, 1), (&[2, 2], 1, 2), (&[2, 2, 2], 1, 1)]));
    }

    #[test]
    fn callers_that_are_found_when_they_are_returned_to_had_called_before() {
        let found = follow(&[
            (BEGIN, 0, 310),
            (RETURN, 320, 215),
            (CALL, 220, 300),
            (RETURN, 320, 221),
            (RETURN, 230, 115),
        ]);
        assert_eq!(found, expected(&[(&[1, 2, 3], 1, 2), (&[1, 2], 0, 2)]));
    }

    #[test]
    fn a_jump_to_another_function_is_a_call_that_returns_with_its_caller() {
        let found = follow(&[
            (CALL, 110, 200),
            (JUMP, 210, 300),
            (JUMP, 310, 250),
            (JUMP, 255, 300),
            (RETURN, 320, 111),
            (END, 112, 0),
        ]);
        // 310 jumps back into the middle of the function.
        assert_eq!(found, expected(&[(&[1], 0, 1), (&[1, 2], 1, 2), (&[1, 2, 3], 2, 2), (&[1, 0], 1, 0)]));
    }

    #[test]
    fn functions_that_jump_to_each_other_do_not_pile_up() {
        let mut branches = vec![(BEGIN, 0, 110), (CALL, 110, 200)];
        (0..10).for_each(|_| branches.extend([(JUMP, 210, 300), (JUMP, 310, 200)]));
        branches.push((RETURN, 250, 111));
        let found = follow(&branches);
        assert_eq!(found, expected(&[(&[1], 0, 1), (&[1, 2], 11, 11), (&[1, 2, 3], 10, 10)]));
    }

    #[test]
    fn the_time_off_the_cpu_is_not_part_of_the_duration_of_a_call() {
        let mut frames = StackTree::default();
        (0..3).for_each(|at| drop(frames.frame(Frame { dso: None, at, mode: USER, process: 0 })));
        let untraced = frames.frame(Frame::UNTRACED).unwrap();
        let out = Out::new(0, Grouping::default(), None);
        let slowest = Some(Slowest::new(1));
        let mut shared = Shared { nodes: Nodes::default(), untraced, out, slowest };
        let runner = Runner { machine: Machine::Host, pid: 1, tid: 1, cpu: u32::MAX };
        let mut thread = Thread::new(runner);
        let mut follow = |thread: &mut Thread, time, flags, from, to| {
            let watched = |place: Place| {
                let role = Role { begins: place.function == 2, ..Role::default() };
                Place { role, ..place }
            };
            let (from, to, behind) = (place(from), place(to).map(watched), from + 1);
            let (address, flags, cpu) = (to.map_or(0, |_| 200), FlowFlags(flags), 3);
            let address = if flags.0 & FlowFlags::RETURN != 0 { 111 } else { address };
            let (label, is_chosen) = (0, true);
            let branch = Branch { runner, cpu, from, to, address, behind, flags, label, is_chosen };
            thread.follow(&branch, time, &mut shared).unwrap();
        };
        follow(&mut thread, 10, BEGIN, 0, 105);
        follow(&mut thread, 20, CALL, 110, 200);
        thread.switch(30, true);
        thread.switch(75, false);
        follow(&mut thread, 90, RETURN, 210, 111);
        let watched = shared.slowest.unwrap().named(|function| function.to_string());
        let summary = watched.durations.summary().unwrap();
        assert_eq!((summary.calls, summary.max_ns.0, summary.off_cpu_ns.0), (1, 25, 45));
        let call = &watched.slowest[0];
        assert_eq!((call.time_ns.0, call.duration_ns.0, call.off_cpu_ns.0, call.cpu), (20, 25, 45, Some(3)));
    }

    #[test]
    fn longjmp_leaves_all_functions_up_to_that_of_setjmp() {
        let found = follow(&[
            (BEGIN, 0, 105),
            (CALL, 110, 200),
            (RETURN, 210, 111),
            (CALL, 120, 300),
            (CALL, 310, 300),
            (CALL, 310, 400),
            (JUMP, 410, 111),
            (CALL, 130, 200),
        ]);
        let stacks: &[(&[u64], u64, u64)] =
            &[(&[1], 0, 3), (&[1, 2], 2, 1), (&[1, 3], 1, 1), (&[1, 3, 3], 1, 1), (&[1, 3, 3, 4], 1, 1)];
        assert_eq!(found, expected(stacks));
    }

    #[test]
    fn a_handler_of_a_signal_is_called_by_what_it_interrupts() {
        let found = follow(&[
            (BEGIN, 0, 105),
            (CALL, 110, 200),
            (END | FlowFlags::ASYNC, 210, 0),
            (BEGIN, 0, 500),
            (RETURN, 510, 600),
            (END, 610, 0),
            (BEGIN, 0, 210),
            (RETURN, 220, 111),
        ]);
        let stacks: &[(&[u64], u64, u64)] = &[
            (&[1], 0, 1),
            (&[1, 2], 1, 2),
            (&[1, 2, 0], 1, 1),
            (&[1, 2, 5], 1, 1),
            (&[1, 2, 6], 1, 1),
            (&[1, 2, 6, 0], 1, 1),
        ];
        assert_eq!(found, expected(stacks));
    }

    #[test]
    fn what_follows_on_lost_data_has_a_new_stack() {
        let found =
            follow(&[(BEGIN, 0, 105), (CALL, 110, 200), (BEGIN, 0, 310), (RETURN, 320, 210), (END, 215, 0)]);
        // The time between the last branch before and the first one after belongs to no function.
        assert_eq!(
            found,
            expected(&[(&[1], 0, 1), (&[1, 2], 1, 0), (&[2, 3], 0, 1), (&[2], 0, 1), (&[2, 0], 1, 0)])
        );
    }

    #[test]
    fn the_kernel_returns_to_user_code() {
        let kernel = 1_000_000;
        let system = FlowFlags::SYSCALL;
        let found = follow(&[
            (BEGIN, 0, 105),
            (CALL | system, 110, kernel + 100),
            (CALL, kernel + 110, kernel + 200),
            (RETURN | system, kernel + 210, 111),
            (CALL, 120, 200),
        ]);
        let stacks: &[(&[u64], u64, u64)] =
            &[(&[1], 0, 2), (&[1, 101], 1, 1), (&[1, 101, 102], 1, 1), (&[1, 2], 1, 0)];
        assert_eq!(found, expected(stacks));
        // Only the kernel is traced.
        let found = follow(&[
            (BEGIN, 0, kernel + 100),
            (CALL, kernel + 110, kernel + 200),
            (RETURN | system | FlowFlags::END, kernel + 210, 0),
            (BEGIN, 0, kernel + 100),
            (END, kernel + 120, 0),
        ]);
        let stacks: &[(&[u64], u64, u64)] = &[(&[101], 2, 2), (&[101, 102], 1, 1), (&[101, 0], 1, 0)];
        assert_eq!(found, expected(stacks));
    }
}

//! Counts how often each branch was taken and how far execution ran straight on after it.
//!
//! Paths are counted by number, and the runs that end with their first branch in a hash table. Paths are
//! resolved into runs when blocks are dropped and at the end.

use std::collections::HashMap;
use std::hash::BuildHasher;

use crate::block::Blocks;
use crate::sink::{Event, Point, Sink};
use crate::step::{BlockId, PathId, Step};

/// An address of a mapping.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Place {
    /// The mapping's [`Mapping::id`](crate::Mapping::id); `None` if there is no code.
    pub mapping: Option<u64>,
    /// The address.
    pub ip: u64,
}

/// Code that ran straight on, and the branch to it.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Run {
    /// The branch to it. `None` at the start of tracing, and at the start or end of an interrupt.
    pub from: Option<Place>,
    /// The first instruction.
    pub to: Place,
    /// The last instruction: a branch that was taken or left the traced code, or the one before an interrupt.
    /// `None` if unknown or if no instruction was executed.
    pub end: Option<Place>,
}

/// The runs that cross the start and the end of a unit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Ends {
    /// First block executed, and the end of the run carried in from the previous unit (`None`: still open).
    first: Option<(Option<Place>, Stop)>,
    last: Option<Going>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stop {
    At(Place),
    /// Before the next block.
    Here,
    Unknown,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Going {
    /// The branch to it and its first block; `None` if the run was carried in from the previous unit.
    begin: Option<(Option<Place>, Place)>,
    last: Option<Place>,
}

/// Joins the ends of the units of a trace, in order. The default is the state before the first unit.
#[derive(Clone, Copy, Default, Debug)]
pub struct Joint(Option<Going>);

impl Joint {
    /// Takes the next unit. Returns the run that began before it and ended in it.
    pub fn join(&mut self, next: &Ends) -> Option<Run> {
        let Some((to, stop)) = next.first else {
            if let Some(Going { begin, last }) = next.last {
                let before = self.0.take();
                let begin = before.and_then(|before| before.begin).or(begin);
                self.0 = Some(Going { begin, last: last.or(before.and_then(|before| before.last)) });
            }
            return None;
        };
        let before = std::mem::replace(&mut self.0, next.last);
        let last = before.and_then(|before| before.last);
        let (from, to) = before.and_then(|before| before.begin).or(to.map(|to| (None, to)))?;
        Some(Run { from, to, end: stop.resolve(last) })
    }

    /// The run that is open at the end of the trace; its end is unknown.
    pub fn end(self) -> Option<Run> {
        Some(Run { end: None, ..self.end_told()? })
    }

    /// Like [`Joint::end`] for a trace of every branch (CoreSight): the run is known up to the last one.
    pub fn end_told(self) -> Option<Run> {
        let Going { begin, last } = self.0?;
        let (from, to) = begin?;
        Some(Run { from, to, end: last })
    }
}

impl Stop {
    fn resolve(self, before: Option<Place>) -> Option<Place> {
        match self {
            Stop::At(place) => Some(place),
            Stop::Here => before,
            Stop::Unknown => None,
        }
    }
}

/// A run by two blocks: the one with the branch to it, or NONE, and its first one.
type Edge = (BlockId, BlockId);

/// Takes counts of runs.
pub trait Sums {
    /// Adds to the count of a run.
    fn add(&mut self, run: Run, count: u64);
}

impl<S: BuildHasher> Sums for HashMap<Run, u64, S> {
    fn add(&mut self, run: Run, count: u64) {
        *self.entry(run).or_default() += count;
    }
}

/// Counts [`Run`]s. The counts are added to the sums at the latest when blocks are dropped.
///
/// The decoder's [`forget`](crate::intel_pt::Decoder::forget) adds the rest at the end.
#[derive(Debug)]
pub struct Counter<S> {
    sums: S,
    runs: Table,
    paths: Vec<Taken>,
    /// The open run. Until its second block, it is in `state`.
    edge: Edge,
    state: State,
    last: Last,
    first: Option<(Option<Place>, Stop)>,
    /// The trace has every branch, also those not taken.
    has_every_branch: bool,
}

/// The count of a path, and the run that it ended last and probably ends next; in one cache line.
#[derive(Clone, Copy, Debug)]
struct Taken {
    count: u64,
    /// That run, and its slot in the table.
    edge: Edge,
    at: u32,
    /// The number of repetitions that are not yet in `count` nor in the table.
    repeated: u64,
    /// The path's first and last taken branch; NONE if none is taken.
    first: BlockId,
    last: Edge,
}

impl Taken {
    /// Equals no run's edge.
    const UNSET: Edge = (BlockId(0), BlockId::NONE);
    const NEVER: Taken =
        Taken { count: 0, edge: Taken::UNSET, at: 0, repeated: 0, first: BlockId::NONE, last: NOWHERE };
}

impl Taken {
    fn add_up(&mut self, runs: &mut Table) {
        if self.edge != Taken::UNSET {
            runs.add_at(self.at, self.repeated);
            self.count += self.repeated;
            (self.edge, self.repeated) = (Taken::UNSET, 0);
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Last {
    /// Unknown, or a taken branch.
    None,
    /// A block, and the number of its executed instructions.
    Step(BlockId, u32),
    Path(PathId),
}

/// The state of an open run that is not identified by its blocks.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum State {
    None,
    /// It begins with the next block.
    Begins,
    /// It was carried in: its first block in this unit, and its last instruction before blocks were dropped.
    First(Option<Place>, Option<Place>),
    Kept(Going),
}

const NOWHERE: Edge = (BlockId::NONE, BlockId::NONE);

impl<S: Sums> Counter<S> {
    /// A counter that adds to these sums.
    pub fn new(sums: S) -> Counter<S> {
        Counter {
            sums,
            runs: Table::default(),
            paths: Vec::new(),
            edge: NOWHERE,
            state: State::First(None, None),
            last: Last::None,
            first: None,
            has_every_branch: false,
        }
    }

    /// A counter for traces of every branch (CoreSight): an interrupted run is known up to its last branch.
    pub fn of_every_branch(sums: S) -> Counter<S> {
        Counter { has_every_branch: true, ..Counter::new(sums) }
    }

    /// Returns the sums.
    pub fn into_inner(self) -> S {
        self.sums
    }

    /// Ends a unit; another one may follow.
    pub fn end_unit(&mut self, blocks: &Blocks) -> Ends {
        let last = self.going(blocks);
        (self.edge, self.state, self.last) = (NOWHERE, State::First(None, None), Last::None);
        Ends { first: self.first.take(), last }
    }

    fn going(&self, blocks: &Blocks) -> Option<Going> {
        let last = self.last(blocks);
        if self.edge.1 != BlockId::NONE {
            let (from, to) = (branch(blocks, self.edge.0), start(blocks, self.edge.1));
            return Some(Going { begin: Some((from, to)), last });
        }
        match self.state {
            State::None | State::Begins => None,
            State::First(to, before) => Some(Going { begin: to.map(|to| (None, to)), last: last.or(before) }),
            State::Kept(going) => Some(Going { last: last.or(going.last), ..going }),
        }
    }

    fn last(&self, blocks: &Blocks) -> Option<Place> {
        let (block, count) = match self.last {
            Last::None => return None,
            Last::Step(block, count) => (block, count),
            Last::Path(id) => blocks.path(id).rest?,
        };
        let ip = blocks.nth(block, count.checked_sub(1)?)?;
        Some(Place { mapping: blocks.mapping_of(block), ip })
    }

    /// Starts a run at a block; the branch to it is unknown.
    #[cold]
    fn begin(&mut self, blocks: &Blocks, block: BlockId) {
        match &mut self.state {
            State::None | State::Begins => self.edge = (BlockId::NONE, block),
            State::First(to, _) => *to = to.or(Some(start(blocks, block))),
            State::Kept(_) => {}
        }
    }

    #[inline(always)]
    fn end(&mut self, blocks: &Blocks, block: BlockId) {
        if self.edge.1 == BlockId::NONE {
            self.stop(blocks, branch(blocks, block).map_or(Stop::Unknown, Stop::At));
        } else {
            self.count(blocks, block);
        }
    }

    /// Counts the open run, whose blocks are known. Returns its slot in the table.
    #[inline(always)]
    fn count(&mut self, blocks: &Blocks, block: BlockId) -> u32 {
        self.runs.add(self.edge, block).unwrap_or_else(|| self.make_room(blocks, block))
    }

    #[cold]
    fn make_room(&mut self, blocks: &Blocks, block: BlockId) -> u32 {
        if self.runs.is_full() {
            self.hand_out(blocks);
        } else {
            self.add_up();
            self.runs.grow();
        }
        self.runs.add(self.edge, block).unwrap_or_default()
    }

    /// A path was taken that ends a different run than last time.
    #[inline(never)]
    fn end_other(&mut self, blocks: &Blocks, id: PathId) {
        if self.edge.1 == BlockId::NONE {
            self.begin(blocks, blocks.steps(id)[0].block);
        }
        if id.index() >= self.paths.len() {
            self.add_path(blocks, id);
        }
        let taken = &mut self.paths[id.index()];
        let (first, last) = (taken.first, taken.last);
        if first == BlockId::NONE {
            return;
        }
        taken.add_up(&mut self.runs);
        taken.count += 1;
        if self.edge.1 == BlockId::NONE {
            self.end(blocks, first);
        } else {
            let at = self.count(blocks, first);
            let taken = &mut self.paths[id.index()];
            (taken.edge, taken.at) = (self.edge, at);
        }
        self.edge = last;
    }

    /// A path was taken with a higher number than all before; numbers between may be unused.
    #[cold]
    fn add_path(&mut self, blocks: &Blocks, id: PathId) {
        for number in self.paths.len()..=id.index() {
            let path = blocks.path(PathId::new(number));
            let (first, last) = path.first.map_or((BlockId::NONE, NOWHERE), |first| (first, path.last));
            self.paths.push(Taken { first, last, ..Taken::NEVER });
        }
    }

    #[cold]
    fn stop_here(&mut self, blocks: &Blocks) {
        self.stop(blocks, self.last(blocks).map_or(Stop::Here, Stop::At));
    }

    #[cold]
    fn break_off(&mut self, blocks: &Blocks) {
        match self.has_every_branch {
            true => self.stop_here(blocks),
            false => self.stop(blocks, Stop::Unknown),
        }
    }

    #[cold]
    fn stop(&mut self, blocks: &Blocks, stop: Stop) {
        self.last = Last::None;
        let (edge, state) =
            (std::mem::replace(&mut self.edge, NOWHERE), std::mem::replace(&mut self.state, State::None));
        let (from, to, before) = match state {
            _ if edge.1 != BlockId::NONE => (branch(blocks, edge.0), start(blocks, edge.1), None),
            State::None | State::Begins => return,
            State::First(to, before) => {
                let stop = if stop == Stop::Here { before.map_or(stop, Stop::At) } else { stop };
                return self.first = Some((to, stop));
            }
            State::Kept(Going { begin, last: before }) => match begin {
                Some((from, to)) => (from, to, before),
                None => return,
            },
        };
        self.sums.add(Run { from, to, end: stop.resolve(before) }, 1);
    }

    /// Moves the repetitions of paths to the table. Slots in `paths` become invalid.
    fn add_up(&mut self) {
        self.paths.iter_mut().for_each(|taken| taken.add_up(&mut self.runs));
    }

    fn hand_out(&mut self, blocks: &Blocks) {
        self.add_up();
        for ((from, to), end, count) in self.runs.drain() {
            let run = Run { from: branch(blocks, from), to: start(blocks, to), end: branch(blocks, end) };
            self.sums.add(run, count);
        }
        for (number, taken) in self.paths.iter_mut().enumerate() {
            let count @ 1.. = std::mem::take(&mut taken.count) else { continue };
            let mut before: Option<Edge> = None;
            for step in blocks.steps(PathId::new(number)) {
                let Some(to) = step.to else { continue };
                if let Some((from, to)) = before.replace((step.block, to)) {
                    let end = branch(blocks, step.block);
                    self.sums.add(Run { from: branch(blocks, from), to: start(blocks, to), end }, count);
                }
            }
        }
    }
}

fn branch(blocks: &Blocks, block: BlockId) -> Option<Place> {
    (block != BlockId::NONE).then(|| Place { mapping: blocks.mapping_of(block), ip: blocks[block].last })
}

fn start(blocks: &Blocks, block: BlockId) -> Place {
    Place { mapping: blocks.mapping_of(block), ip: blocks[block].start }
}

impl<S: Sums> Sink for Counter<S> {
    #[inline(always)]
    fn step(&mut self, blocks: &Blocks, _point: &Point, step: Step) {
        if self.edge.1 == BlockId::NONE {
            self.begin(blocks, step.block);
        }
        match step.to {
            Some(to) => {
                self.end(blocks, step.block);
                (self.edge, self.last) = ((step.block, to), Last::None);
            }
            None => self.last = Last::Step(step.block, step.count),
        }
    }

    #[inline(always)]
    fn path(&mut self, blocks: &Blocks, _point: &Point, id: PathId) {
        match self.paths.get_mut(id.index()) {
            Some(taken) if taken.edge == self.edge => {
                taken.repeated += 1;
                self.edge = taken.last;
            }
            _ => self.end_other(blocks, id),
        }
        self.last = Last::Path(id);
    }

    fn event(&mut self, blocks: &Blocks, _point: &Point, event: Event) {
        match event {
            Event::Begin { .. } | Event::Resumed { .. } => {
                self.break_off(blocks);
                self.state = State::Begins;
            }
            Event::Interrupt { .. } => {
                self.stop_here(blocks);
                self.state = State::Begins;
            }
            Event::End { block: Some(block), to, .. } => {
                self.end(blocks, block);
                (self.edge, self.state, self.last) = (NOWHERE, State::None, Last::None);
                if let (Some(ip), from) = (to, branch(blocks, block)) {
                    self.sums.add(Run { from, to: Place { mapping: None, ip }, end: None }, 1);
                }
            }
            Event::End { block: None, .. } => self.stop_here(blocks),
            Event::Fault(_) | Event::Sync { ip: None, .. } => self.break_off(blocks),
            Event::Sync { ip: Some(_), .. } if self.edge == NOWHERE && self.state == State::None => {
                self.state = State::Begins;
            }
            _ => {}
        }
    }

    fn forget(&mut self, blocks: &Blocks) {
        self.hand_out(blocks);
        self.paths.clear();
        self.state = match (self.going(blocks), self.state) {
            (Some(Going { last, .. }), State::First(to, _)) if self.edge == NOWHERE => State::First(to, last),
            (Some(going), _) => State::Kept(going),
            (None, state) => state,
        };
        (self.edge, self.last) = (NOWHERE, Last::None);
    }
}

/// Counts of runs by their blocks: a hash table that is at most half full.
#[derive(Debug)]
struct Table {
    /// The length is a power of two.
    slots: Vec<Slot>,
    used: usize,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    edge: Edge,
    end: BlockId,
    count: u64,
}

impl Slot {
    const EMPTY: Slot = Slot { edge: NOWHERE, end: BlockId::NONE, count: 0 };
}

impl Default for Table {
    fn default() -> Table {
        Table { slots: vec![Slot::EMPTY; 1 << 10], used: 0 }
    }
}

impl Table {
    /// A larger table is added to the sums.
    const MOST: usize = 1 << 17;

    fn is_full(&self) -> bool {
        self.slots.len() >= Table::MOST
    }

    /// The slot where the search for a run begins.
    #[inline(always)]
    fn home(&self, (from, to): Edge, end: BlockId) -> usize {
        let ends = u64::from(from.0) << 32 | u64::from(end.0);
        let mixed = (ends ^ u64::from(to.0).rotate_left(20)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (mixed >> 40) as usize & (self.slots.len() - 1)
    }

    /// Counts a run once. Returns its slot; `None` if the table is full.
    #[inline(always)]
    fn add(&mut self, edge: Edge, end: BlockId) -> Option<u32> {
        let mut at = self.home(edge, end);
        loop {
            let slot = &mut self.slots[at];
            if slot.edge == edge && slot.end == end {
                slot.count += 1;
                return Some(at as u32);
            }
            if slot.end == BlockId::NONE {
                return self.insert(at, edge, end);
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    fn add_at(&mut self, at: u32, count: u64) {
        self.slots[at as usize].count += count;
    }

    #[cold]
    fn insert(&mut self, at: usize, edge: Edge, end: BlockId) -> Option<u32> {
        let has_room = self.used * 2 < self.slots.len();
        if has_room {
            self.slots[at] = Slot { edge, end, count: 1 };
            self.used += 1;
        }
        has_room.then_some(at as u32)
    }

    fn grow(&mut self) {
        let larger = vec![Slot::EMPTY; self.slots.len() * 2];
        for slot in std::mem::replace(&mut self.slots, larger) {
            if slot.end != BlockId::NONE {
                let mut at = self.home(slot.edge, slot.end);
                while self.slots[at].end != BlockId::NONE {
                    at = (at + 1) & (self.slots.len() - 1);
                }
                self.slots[at] = slot;
            }
        }
    }

    fn drain(&mut self) -> impl Iterator<Item = (Edge, BlockId, u64)> {
        self.used = 0;
        let taken = self.slots.iter_mut().map(|slot| std::mem::replace(slot, Slot::EMPTY));
        taken.filter(|slot| slot.count > 0).map(|slot| (slot.edge, slot.end, slot.count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(ip: u64) -> Place {
        Place { mapping: Some(1), ip }
    }

    /// A unit whose first run began at `to` and ended at `end`, and whose last run goes on from `begin`.
    fn unit(first: Option<(Option<u64>, Stop)>, begin: Option<u64>, last: Option<u64>) -> Ends {
        let first = first.map(|(to, stop)| (to.map(place), stop));
        let begin = begin.map(|to| (Some(place(to - 1)), place(to)));
        Ends { first, last: Some(Going { begin, last: last.map(place) }) }
    }

    #[test]
    fn a_run_that_crosses_units_is_one() {
        let run = |from: Option<u64>, to, end: Option<u64>| {
            Some(Run { from: from.map(place), to: place(to), end: end.map(place) })
        };
        let mut joint = Joint::default();
        assert_eq!(joint.end(), None);
        // The first unit begins in the middle of a run, of which only the address is known.
        let first = unit(Some((Some(50), Stop::At(place(60)))), Some(101), Some(105));
        assert_eq!(joint.join(&first), run(None, 50, Some(60)));
        assert_eq!(
            (joint.end(), joint.end_told()),
            (run(Some(100), 101, None), run(Some(100), 101, Some(105)))
        );
        // No branch in the second: the run began in the first.
        assert_eq!(joint.join(&unit(None, None, Some(110))), None);
        assert_eq!(joint.end_told(), run(Some(100), 101, Some(110)));
        assert_eq!(joint.join(&unit(None, Some(900), None)), None);
        assert_eq!(joint.end_told(), run(Some(100), 101, Some(110)));
        let mut stopped = joint;
        assert_eq!(stopped.join(&unit(Some((None, Stop::Here)), None, None)), run(Some(100), 101, Some(110)));
        assert_eq!(
            joint.join(&unit(Some((Some(5), Stop::Unknown)), Some(201), None)),
            run(Some(100), 101, None)
        );
        assert_eq!(
            joint.join(&Ends { first: Some((None, Stop::Unknown)), last: None }),
            run(Some(200), 201, None)
        );
        assert_eq!(joint.join(&Ends { first: None, last: None }), None);
        assert_eq!(joint.join(&unit(None, Some(301), Some(302))), None);
        assert_eq!(joint.end_told(), run(Some(300), 301, Some(302)));
        assert_eq!(Joint::default().join(&unit(Some((None, Stop::At(place(7)))), None, None)), None);
    }

    #[test]
    fn the_table_counts_each_run_while_it_has_room_and_after_it_grew() {
        let edge = |number: u32| (BlockId(number % 5), BlockId(number / 5));
        let mut table = Table::default();
        let mut added = 0;
        while table.add(edge(added), BlockId(added % 3)).is_some() {
            added += 1;
        }
        assert_eq!((added, table.used, table.slots.len(), table.is_full()), (512, 512, 1024, false));
        table.grow();
        let all = 1000;
        for number in added..all {
            table.add(edge(number), BlockId(number % 3)).unwrap();
        }
        for number in (0..all).step_by(2) {
            let at = table.add(edge(number), BlockId(number % 3)).unwrap();
            table.add_at(at, 10);
        }
        assert_eq!((table.used, table.slots.len()), (1000, 2048));
        let mut drained: Vec<_> = table.drain().collect();
        drained.sort_unstable();
        let count = |number: u32| if number.is_multiple_of(2) { 12 } else { 1 };
        let mut expected: Vec<_> =
            (0..all).map(|number| (edge(number), BlockId(number % 3), count(number))).collect();
        expected.sort_unstable();
        assert!(drained == expected);
        assert_eq!((table.used, table.drain().count()), (0, 0));
        let full = |slots: usize| Table { slots: vec![Slot::EMPTY; slots], used: 0 }.is_full();
        assert!(!full((1 << 17) - 1) && full(1 << 17));
    }
}

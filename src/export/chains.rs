//! Resolves the addresses of samples and their call chains, and keeps each distinct frame and chain once.

use std::collections::HashMap;
use std::ops::Range;

use foldhash::fast::RandomState;
use indexmap::IndexSet;
use perfx_format::record::cpumode::USER;
use perfx_format::record::deferred::CallchainDeferred;
use perfx_format::sample::{CallStack, U64s, frames};
use perfx_format::{Layouts, OrderKey, Record, sample_type};
use perfx_model::address_space::Space;
use perfx_model::callers::Callers;
use perfx_model::guests::Guests;
use perfx_pipeline::{Context as _, Error, Result};
use perfx_resolve::{Facts, Frame, FrameCache};
use perfx_samples::SampleView;

use crate::recent::{Recent, key};

/// Distinct stacks as a tree: a node is a frame called from the stack of its parent.
#[derive(Clone, Default, Debug)]
pub struct StackTree {
    frames: IndexSet<Frame, RandomState>,
    /// Parent, or [`StackTree::ROOT`], and frame. A parent has a lower number than its children.
    nodes: IndexSet<(u32, u32), RandomState>,
}

impl StackTree {
    /// The stack without frames.
    pub const ROOT: u32 = u32::MAX;

    /// All frames, in the order of their numbers.
    pub fn frames(&self) -> impl ExactSizeIterator<Item = Frame> {
        self.frames.iter().copied()
    }

    pub(crate) fn frame_of(&self, number: u32) -> Option<Frame> {
        self.frames.get_index(number as usize).copied()
    }

    pub(crate) fn innermost(&self, stack: u32) -> Option<Frame> {
        self.frame_of(self.nodes.get_index(stack as usize)?.1)
    }

    /// The parent and the frame of each node, in the order of their numbers.
    pub fn nodes(&self) -> impl ExactSizeIterator<Item = (u32, u32)> {
        self.nodes.iter().copied()
    }

    /// Adds the stacks to `nodes`, a tree of names; `names` has those of each frame, outermost first. A name
    /// for which `restarts` is true drops its callers. Returns the node of each stack.
    pub(crate) fn renamed(
        &self,
        nodes: &mut IndexSet<(u32, u32), RandomState>,
        names: &[Vec<u32>],
        restarts: impl Fn(u32) -> bool,
    ) -> Vec<u32> {
        let mut placed: Vec<u32> = Vec::with_capacity(self.nodes.len());
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

    pub(crate) fn frame(&mut self, frame: Frame) -> Result<u32> {
        numbered(self.frames.insert_full(frame).0)
    }

    pub(crate) fn child(&mut self, parent: u32, frame: u32) -> Result<u32> {
        numbered(self.nodes.insert_full((parent, frame)).0)
    }

    pub(crate) fn push(&mut self, outer: u32, chain: &[u32]) -> Result<u32> {
        chain.iter().rev().try_fold(outer, |stack, &frame| self.child(stack, frame))
    }

    /// Adds another tree; returns the new numbers of its frames and nodes.
    pub(crate) fn absorb(&mut self, other: &StackTree) -> Result<Numbers> {
        let frames: Vec<u32> = other.frames().map(|frame| self.frame(frame)).collect::<Result<_>>()?;
        let mut nodes: Vec<u32> = Vec::with_capacity(other.nodes.len());
        for (parent, frame) in other.nodes() {
            let parent = if parent == Self::ROOT { parent } else { nodes[parent as usize] };
            nodes.push(self.child(parent, frames[frame as usize])?);
        }
        Ok(Numbers { frames, nodes })
    }
}

pub(crate) struct Numbers {
    pub(crate) frames: Vec<u32>,
    nodes: Vec<u32>,
}

impl Numbers {
    pub(crate) fn stack(&self, stack: u32) -> u32 {
        if stack == StackTree::ROOT { stack } else { self.nodes[stack as usize] }
    }

    pub(crate) fn chain(&self, frames: &[u32]) -> Box<[u32]> {
        frames.iter().map(|&frame| self.frames[frame as usize]).collect()
    }
}

/// 32 bits save memory; a tree with 2^32 nodes would take 100 GB.
pub(crate) fn numbered(index: usize) -> Result<u32> {
    let number = u32::try_from(index).ok().filter(|&number| number != StackTree::ROOT);
    number.context("the recording has more than 4 billion distinct stacks; filter it first")
}

pub(crate) struct Resolver<'f> {
    facts: &'f Facts,
    unmapped: bool,
    known: FrameCache<u32>,
    pub(crate) tree: StackTree,
    pub(crate) lowest: Vec<u64>,
    /// Innermost first.
    pub(crate) chain: Vec<u32>,
    /// The last recorded chain, and its frames, outermost first.
    last: Callers,
    callers: Vec<u32>,
    /// The frames of the previous stack with their nodes, outermost first.
    previous: Vec<(u32, u32)>,
    /// Recent nodes by parent and frame: most samples are in few places.
    recent: Recent,
    /// Memory for a chain that is not in its sample.
    buffer: Vec<u8>,
}

#[derive(Clone, Copy)]
pub(crate) struct At<'s> {
    pub(crate) sample: SampleView<'s>,
    pub(crate) pid: Option<u32>,
    pub(crate) key: OrderKey,
}

impl<'s> At<'s> {
    pub(crate) fn of(sample: SampleView<'s>) -> At<'s> {
        At { sample, pid: sample.pid(), key: sample.key() }
    }

    #[inline]
    pub(crate) fn space(&self, guests: &Guests, mode: u16) -> Option<Space> {
        guests.space(self.sample.record, self.sample.layouts, self.pid, mode)
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Lack {
    Nothing,
    /// The user part is in a later record of the same thread with this cookie.
    User(u64),
    Chain,
    /// The chain exceeds its record, or lacks a frame.
    Torn,
}

impl<'f> Resolver<'f> {
    pub(crate) fn new(facts: &'f Facts, unmapped: bool) -> Resolver<'f> {
        Resolver {
            facts,
            unmapped,
            known: FrameCache::default(),
            tree: StackTree::default(),
            lowest: Vec::new(),
            chain: Vec::new(),
            last: Callers::default(),
            callers: Vec::new(),
            previous: Vec::new(),
            recent: Recent::default(),
            buffer: Vec::new(),
        }
    }

    pub(crate) fn take(&mut self) -> StackTree {
        self.known.clear();
        self.lowest.clear();
        self.last = Callers::default();
        self.previous.clear();
        self.recent.clear();
        std::mem::take(&mut self.tree)
    }

    /// Adds the current chain to the tree, sharing outer frames with the previous one; returns its stack.
    pub(crate) fn stack(&mut self) -> Result<u32> {
        let both = self.previous.iter().zip(self.chain.iter().rev());
        let shared = both.take_while(|((known, _), frame)| known == *frame).count();
        self.previous.truncate(shared);
        let mut stack = self.previous.last().map_or(StackTree::ROOT, |&(_, node)| node);
        for &frame in self.chain.iter().rev().skip(shared) {
            let place = key(stack, frame);
            stack = match self.recent.get(place) {
                Some(node) => node,
                None => {
                    let node = self.tree.child(stack, frame)?;
                    self.recent.set(place, node);
                    node
                }
            };
            self.previous.push((frame, stack));
        }
        Ok(stack)
    }

    /// Resolves the call stack of a sample into `chain`. As in perf, without frames, its own address is one.
    pub(crate) fn sample(&mut self, at: At<'_>) -> Result<Lack> {
        self.chain.clear();
        let SampleView { record, layout, .. } = at.sample;
        let mut buffer = std::mem::take(&mut self.buffer);
        let lack = self.resolve(at, self.facts.stacks.call_stack(record, layout, &mut buffer));
        self.buffer = buffer;
        lack
    }

    fn resolve(&mut self, at: At<'_>, stack: Option<CallStack<'_>>) -> Result<Lack> {
        match stack.and_then(|stack| stack.recorded()) {
            Some(chain) => self.recorded(at, chain)?,
            None => stack.iter().flat_map(CallStack::frames).try_for_each(|(mode, address)| {
                let frame = self.frame(at, mode, address)?;
                self.chain.push(frame);
                Ok::<_, Error>(())
            })?,
        }
        let lack = match stack.map(|stack| stack.cookie()) {
            Some(cookie) => cookie.map_or(Lack::Nothing, Lack::User),
            None if at.sample.has(sample_type::CALLCHAIN) => Lack::Torn,
            None => Lack::Chain,
        };
        if self.chain.is_empty() && !matches!(lack, Lack::User(_)) {
            let own = self.frame(at, at.sample.record.cpumode(), at.sample.ip().unwrap_or(0))?;
            self.chain.push(own);
        }
        Ok(lack)
    }

    /// Resolves a recorded chain; the callers shared with the last one are known.
    fn recorded(&mut self, at: At<'_>, chain: U64s<'_>) -> Result<()> {
        let record = at.sample.record;
        let new = chain.len() - self.last.begin(record, (at.pid, at.key), chain, USER);
        let shared = U64s::new(&chain.bytes()[8 * new..], record.endian());
        self.callers.truncate(frames(shared, USER).count());
        for (mode, address) in frames(chain.first(new), USER) {
            let space = at.space(&self.facts.guests, mode);
            let (frame, mapped) = self.frame_during(space, at.key, (record.level(mode), address))?;
            self.last.are_during(record, mode, &mapped);
            self.chain.push(frame);
        }
        let new = self.chain.len();
        self.chain.extend(self.callers.iter().rev());
        self.callers.extend(self.chain[..new].iter().rev());
        Ok(())
    }

    /// Makes the sample's own address the innermost frame, as `perf report` does: a kernel sample's chain may
    /// begin in user mode (`exclude_callchain_kernel`), or some instructions later.
    pub(crate) fn begin_at_own_address(&mut self, at: At<'_>) -> Result<()> {
        let (mode, Some(address)) = (at.sample.record.cpumode(), at.sample.ip()) else { return Ok(()) };
        let own = self.frame(at, mode, address)?;
        let first = self.chain.first().and_then(|&first| self.tree.frames.get_index(first as usize));
        match first.map(|first| first.mode == mode) {
            Some(true) => self.chain[0] = own,
            Some(false) | None => self.chain.insert(0, own),
        }
        Ok(())
    }

    pub(crate) fn user_part<T>(
        &mut self,
        record: &Record<'_>,
        layouts: &Layouts,
    ) -> Result<Option<Deferred<T>>> {
        let sample = CallchainDeferred::of(record).zip(SampleView::of(record, layouts));
        let task = sample.and_then(|(_, sample)| sample.task());
        let Some(((user, sample), (_, tid))) = sample.zip(task) else { return Ok(None) };
        self.chain.clear();
        for (mode, address) in frames(user.ips, USER) {
            let frame = self.frame(At::of(sample), mode, address)?;
            self.chain.push(frame);
        }
        let stack = self.stack()?;
        Ok(Some(Deferred::User(UserPart { tid, cookie: user.cookie, stack })))
    }

    pub(crate) fn frame(&mut self, at: At<'_>, mode: u16, address: u64) -> Result<u32> {
        let space = at.space(&self.facts.guests, mode);
        self.frame_in(space, at.key, (at.sample.record.level(mode), address))
    }

    /// The frame of an address in the space given after its cpumode; without a space, nothing is mapped.
    pub(crate) fn frame_in(&mut self, space: Option<Space>, key: OrderKey, place: (u16, u64)) -> Result<u32> {
        Ok(self.frame_during(space, key, place)?.0)
    }

    /// Like [`Resolver::frame_in`], with the times for which the frame is at this address.
    #[inline]
    fn frame_during(
        &mut self,
        space: Option<Space>,
        key: OrderKey,
        (mode, address): (u16, u64),
    ) -> Result<(u32, Range<OrderKey>)> {
        let Resolver { unmapped, tree, lowest, .. } = self;
        self.known.get_during(self.facts, space, key, (mode, address), |frame| {
            let is_place = *unmapped || frame.dso.is_some();
            let number = tree.frame(Frame { at: if is_place { frame.at } else { 0 }, ..frame })?;
            match lowest.get_mut(number as usize) {
                Some(lowest) => *lowest = address.min(*lowest),
                None => lowest.push(address),
            }
            Ok(number)
        })
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct UserPart {
    pub(crate) tid: u32,
    pub(crate) cookie: u64,
    pub(crate) stack: u32,
}

/// A sample whose chain lacks its user part, or that part.
#[derive(Debug)]
pub(crate) enum Deferred<T> {
    /// The kernel's frames, innermost first. A later record of the thread with this cookie has the rest.
    Sample {
        tid: u32,
        cookie: u64,
        kernel: Box<[u32]>,
        sample: T,
    },
    User(UserPart),
}

/// A sample without the user part of its chain: the kernel's frames, innermost first, and its weight.
pub(crate) type Incomplete<T> = (Box<[u32]>, T);

/// By thread and cookie.
#[derive(Debug)]
pub(crate) struct Waiting<T>(HashMap<(u32, u64), Vec<Incomplete<T>>>);

impl<T> Default for Waiting<T> {
    fn default() -> Self {
        Waiting(HashMap::new())
    }
}

impl<T> Waiting<T> {
    pub(crate) fn push(&mut self, task_and_cookie: (u32, u64), kernel: Box<[u32]>, sample: T) {
        self.0.entry(task_and_cookie).or_default().push((kernel, sample));
    }

    pub(crate) fn take(&mut self, user: UserPart) -> Vec<Incomplete<T>> {
        self.0.remove(&(user.tid, user.cookie)).unwrap_or_default()
    }

    /// The samples whose user part is not in the recording.
    pub(crate) fn rest(self) -> impl Iterator<Item = Incomplete<T>> {
        let mut rest: Vec<_> = self.0.into_iter().collect();
        rest.sort_by_key(|(key, _)| *key);
        rest.into_iter().flat_map(|(_, samples)| samples)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stacks_of_two_trees_have_the_same_numbers_after_they_are_joined() {
        let frame = |at| Frame { dso: None, at, mode: USER, process: 0 };
        let (mut one, mut other) = (StackTree::default(), StackTree::default());
        for (tree, at) in [(&mut one, [1, 2]), (&mut other, [3, 1])] {
            let frames = at.map(|at| tree.frame(frame(at)).unwrap());
            tree.push(StackTree::ROOT, &frames).unwrap();
        }
        // Innermost first: 2 calls 1, and 1 calls 3.
        assert_eq!(one.nodes().collect::<Vec<_>>(), [(StackTree::ROOT, 1), (0, 0)]);
        assert_eq!((one.innermost(1), one.innermost(2)), (Some(frame(1)), None));
        let numbers = one.absorb(&other).unwrap();
        assert_eq!(one.frames().map(|frame| frame.at).collect::<Vec<_>>(), [1, 2, 3]);
        assert_eq!([0, 1, StackTree::ROOT].map(|stack| numbers.stack(stack)), [2, 3, StackTree::ROOT]);
        assert_eq!(*numbers.chain(&[1, 0]), [0, 2]);
        assert_eq!(one.nodes().skip(2).collect::<Vec<_>>(), [(StackTree::ROOT, 0), (2, 2)]);
        // A frame can have several names; one of them restarts the stack.
        let mut nodes = IndexSet::default();
        let placed = one.renamed(&mut nodes, &[vec![10], vec![20, 21], vec![30]], |name| name == 21);
        let named: Vec<_> = nodes.into_iter().collect();
        assert_eq!(placed, [1, 2, 3, 4]);
        let root = StackTree::ROOT;
        assert_eq!(named, [(root, 20), (root, 21), (1, 10), (root, 10), (3, 30)]);
    }

    #[test]
    fn numbers_end_before_the_root() {
        assert_eq!(numbered(0).unwrap(), 0);
        assert_eq!(numbered(u32::MAX as usize - 1).unwrap(), u32::MAX - 1);
        assert!(numbered(u32::MAX as usize).is_err() && numbered(1 << 40).is_err());
    }

    #[test]
    fn samples_wait_for_the_user_part_of_their_thread_and_cookie() {
        let mut waiting = Waiting::default();
        for (tid, cookie, sample) in [(2, 1, 'a'), (1, 7, 'b'), (1, 6, 'c'), (1, 7, 'd')] {
            waiting.push((tid, cookie), Box::default(), sample);
        }
        let user = |tid, cookie| UserPart { tid, cookie, stack: 0 };
        let samples =
            |of: Vec<Incomplete<char>>| of.into_iter().map(|(_, sample)| sample).collect::<String>();
        assert_eq!(samples(waiting.take(user(1, 7))), "bd");
        assert_eq!(samples(waiting.take(user(1, 7))), "");
        assert_eq!(samples(waiting.rest().collect()), "ca");
    }
}

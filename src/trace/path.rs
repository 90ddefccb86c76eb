//! Paths: what a few branches in a row lead through, worked out once and then found by number.
//!
//! A packet tells of up to six conditional branches. Where they lead depends on nothing else, so the next time the
//! same ones are taken from the same block, one look-up is enough. A path ends in front of a return, which depends on
//! the calls before it, and of a branch to another mapping, which may lead elsewhere later.

use crate::id::BlockId;

/// Branches of a path, at most.
pub(crate) const MOST_BITS: u32 = 6;

/// Steps of a path, at most.
pub(crate) const MOST_STEPS: usize = 32;

/// More paths are not kept, nor more steps of them.
const MOST_PATHS: usize = 1 << 15;
const MOST_KEPT_STEPS: usize = 1 << 18;

/// The number of a path of [`Blocks`](crate::Blocks).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathId(u32);

impl PathId {
    pub(crate) fn new(number: usize) -> PathId {
        PathId(number as u32)
    }

    /// The number, to index a table with. Paths are numbered from 0 without gaps.
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// Instructions of a block that were executed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Step {
    /// Its first `count` instructions were executed.
    pub block: BlockId,
    /// At least 0 (an interrupt came before the first), at most the block's.
    pub count: u32,
    /// The block that the branch at the end of `block` went to; then `count` is the block's. `None` if a
    /// conditional branch was not taken, if the block has no branch at its end, and if an event follows that
    /// says where execution went.
    pub to: Option<BlockId>,
}

/// Steps that follow from up to six conditional branches.
#[derive(Clone, Debug)]
pub struct Path {
    /// The instructions of all steps.
    pub instructions: u32,
    /// The first of the blocks whose branch is taken; `None` if none is.
    pub first: Option<BlockId>,
    /// The last branch that is taken, or any blocks if none is.
    pub last: (BlockId, BlockId),
    /// The last block and the number of its instructions, if its branch is not taken.
    pub rest: Option<(BlockId, u32)>,
    /// The steps in front of the first conditional branch: they happened at [`Point::time`](crate::Point::time), the
    /// others at [`Point::now`](crate::Point::now).
    pub lead: u8,
    /// The conditional branches.
    pub(crate) bits: u8,
    /// The steps that no conditional branch ends.
    pub(crate) free: u8,
    /// Where it ends.
    pub(crate) end: BlockId,
    /// Where its steps and its calls are.
    steps: (u32, u8),
    calls: (u32, u8),
}

/// What a path is found by: where it begins, and the branches below a stop bit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key {
    pub(crate) at: BlockId,
    pub(crate) bits: u32,
}

#[derive(Clone, Copy, Debug)]
struct Slot {
    key: Key,
    path: PathId,
}

impl Slot {
    const EMPTY: Slot = Slot { key: Key { at: BlockId::NONE, bits: 0 }, path: PathId(0) };
}

/// A path that is being made.
#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) end: BlockId,
    pub(crate) steps: Vec<Step>,
    /// The addresses and blocks that its calls return to.
    pub(crate) calls: Vec<(u64, BlockId)>,
    pub(crate) lead: u8,
    pub(crate) bits: u8,
    pub(crate) free: u8,
}

/// The paths that are remembered.
#[derive(Debug, Default)]
pub(crate) struct Paths {
    list: Vec<Path>,
    steps: Vec<Step>,
    calls: Vec<(u64, BlockId)>,
    /// A hash table, at most half full: the length is a power of two, or 0.
    slots: Vec<Slot>,
}

impl std::ops::Index<PathId> for Paths {
    type Output = Path;

    #[inline(always)]
    fn index(&self, id: PathId) -> &Path {
        &self.list[id.index()]
    }
}

impl Paths {
    pub(crate) fn is_full(&self) -> bool {
        self.list.len() >= MOST_PATHS || self.steps.len() >= MOST_KEPT_STEPS
    }

    pub(crate) fn clear(&mut self) {
        self.list.clear();
        self.steps.clear();
        self.calls.clear();
        self.slots.fill(Slot::EMPTY);
    }

    #[inline(always)]
    pub(crate) fn steps(&self, id: PathId) -> &[Step] {
        let (start, len) = self[id].steps;
        &self.steps[start as usize..][..usize::from(len)]
    }

    #[inline(always)]
    pub(crate) fn calls(&self, id: PathId) -> &[(u64, BlockId)] {
        let (start, len) = self[id].calls;
        &self.calls[start as usize..][..usize::from(len)]
    }

    /// Where the search for a key begins.
    #[inline(always)]
    fn home(&self, key: Key) -> usize {
        let hash = (u64::from(key.at.0) << 7 | u64::from(key.bits)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 32) as usize & self.slots.len().wrapping_sub(1)
    }

    #[inline(always)]
    pub(crate) fn find(&self, key: Key) -> Option<PathId> {
        let mut at = self.home(key);
        loop {
            let slot = self.slots.get(at)?;
            if slot.key == key {
                return Some(slot.path);
            }
            if slot.key == Slot::EMPTY.key {
                return None;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    /// Remembers a path that is not there yet.
    pub(crate) fn insert(&mut self, key: Key, draft: &Draft) -> PathId {
        let id = PathId::new(self.list.len());
        let mut taken = draft.steps.iter().filter_map(|step| Some((step.block, step.to?)));
        let first = taken.next();
        let last = taken.next_back().or(first);
        self.list.push(Path {
            instructions: draft.steps.iter().map(|step| step.count).sum(),
            first: first.map(|(from, _)| from),
            last: last.unwrap_or((key.at, key.at)),
            rest: draft.steps.last().filter(|step| step.to.is_none()).map(|step| (step.block, step.count)),
            lead: draft.lead,
            bits: draft.bits,
            free: draft.free,
            end: draft.end,
            steps: (self.steps.len() as u32, draft.steps.len() as u8),
            calls: (self.calls.len() as u32, draft.calls.len() as u8),
        });
        self.steps.extend(&draft.steps);
        self.calls.extend(&draft.calls);
        if self.list.len() * 2 > self.slots.len() {
            let larger = vec![Slot::EMPTY; (self.slots.len() * 2).max(1 << 10)];
            let old = std::mem::replace(&mut self.slots, larger);
            old.into_iter().filter(|slot| slot.key != Slot::EMPTY.key).for_each(|slot| self.place(slot));
        }
        self.place(Slot { key, path: id });
        id
    }

    fn place(&mut self, slot: Slot) {
        let mut at = self.home(slot.key);
        while self.slots[at].key != Slot::EMPTY.key {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = slot;
    }
}

//! Paths: the code between several branches in a row, walked once and then found by number.
//!
//! A packet contains some conditional branches and compressed returns, or the target of an indirect branch.
//! They determine the path, given the current block and the earlier calls, so the next time one look-up is
//! enough. A path continues through a return to a call of its own. It ends before any other return, and the
//! target of that return is part of the next path's key. It also ends before a direct branch into another
//! mapping, whose target may change later.

use crate::step::{BlockId, PathId, Step};

/// Maximum of traced branches in a path. With 6, as in a short packet, counting takes a quarter more time.
pub(crate) const MOST_BITS: u32 = 12;

pub(crate) const MOST_STEPS: usize = 64;

/// Cache limits: paths, and steps of all of them.
const MOST_PATHS: usize = 1 << 15;
const MOST_KEPT_STEPS: usize = 1 << 18;

/// The steps determined by some conditional branches and returns, or by the target of an indirect branch.
#[derive(Clone, Debug)]
pub struct Path {
    /// The number of instructions in all steps.
    pub instructions: u32,
    /// The first block whose branch is taken; `None` if none is.
    pub first: Option<BlockId>,
    /// The last branch that is taken; meaningless if none is.
    pub last: (BlockId, BlockId),
    /// The last block and the number of its instructions, if its branch is not taken.
    pub rest: Option<(BlockId, u32)>,
    /// The steps before the first traced branch: they happened at [`Point::time`](crate::Point::time), the
    /// others at [`Point::now`](crate::Point::now).
    pub lead: u8,
    /// The number of branches that are taken.
    pub taken: u8,
    /// True if the last one leads from the kernel to user code.
    pub leaves_kernel: bool,
    /// The index of the first step, and the number of steps.
    steps: (u32, u8),
}

impl Path {
    /// The number of steps, at least 1.
    #[inline(always)]
    #[expect(clippy::len_without_is_empty, reason = "none is empty")]
    pub fn len(&self) -> usize {
        self.steps.1.into()
    }
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct PathSummary {
    pub(crate) path: PathId,
    pub(crate) end: BlockId,
    pub(crate) bits: u8,
    pub(crate) free: u8,
    /// Calls that it pops from the return stack, at most 1, and the most that it has pushed at any time.
    /// `calls` are those that it leaves there.
    pub(crate) pops: u8,
    pub(crate) peak: u8,
    calls: (u32, u8),
}

/// The key of a path: its first block, and the contents of a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct PathKey {
    pub(crate) at: BlockId,
    /// The target of the return that it begins with or of the indirect branch that it ends with; else NONE.
    pub(crate) to: BlockId,
    /// The branches below a stop bit; 0 if the packet has the target of an indirect branch.
    pub(crate) bits: u32,
}

/// Small enough that a look-up touches one cache line.
#[derive(Clone, Copy, Debug)]
#[repr(align(32))]
struct Slot {
    key: PathKey,
    way: PathSummary,
}

impl Slot {
    const EMPTY: Slot = Slot {
        key: PathKey { at: BlockId::NONE, to: BlockId::NONE, bits: 0 },
        way: PathSummary {
            path: PathId(0),
            end: BlockId::NONE,
            bits: 0,
            free: 0,
            pops: 0,
            peak: 0,
            calls: (0, 0),
        },
    };
}

#[derive(Debug)]
pub(crate) struct Draft {
    pub(crate) end: BlockId,
    pub(crate) steps: Vec<Step>,
    /// The return addresses of its open calls, and the blocks there.
    pub(crate) calls: Vec<(u64, BlockId)>,
    pub(crate) lead: u8,
    pub(crate) bits: u8,
    pub(crate) free: u8,
    pops: bool,
    peak: u8,
}

impl Draft {
    pub(crate) fn new(at: BlockId) -> Draft {
        let (steps, calls) = (Vec::new(), Vec::new());
        Draft { end: at, steps, calls, lead: 0, bits: 0, free: 0, pops: false, peak: 0 }
    }

    pub(crate) fn push(&mut self, ip: u64, block: BlockId) {
        self.calls.push((ip, block));
        self.peak = self.peak.max(self.calls.len() as u8);
    }

    /// Pops the target of a return. `first` is that of a return at the beginning, or NONE.
    pub(crate) fn go_back(&mut self, first: BlockId) -> Option<BlockId> {
        let to = match self.calls.pop() {
            Some((_, block)) => block,
            None if self.steps.is_empty() => {
                self.pops = first != BlockId::NONE;
                first
            }
            None => BlockId::NONE,
        };
        (to != BlockId::NONE).then_some(to)
    }

    /// Pops the last call. False if there is none, but earlier calls were popped before the path.
    pub(crate) fn pop(&mut self) -> bool {
        let is_own = self.calls.pop().is_some();
        self.pops = !is_own && self.peak == 0;
        is_own || self.pops
    }
}

#[derive(Debug, Default)]
pub(crate) struct Paths {
    list: Vec<Path>,
    steps: Vec<Step>,
    calls: Vec<(u64, BlockId)>,
    /// A hash table that is at most half full: the length is a power of two, or 0.
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

    /// The return addresses of the calls that a path leaves open, and the blocks there.
    #[inline(always)]
    pub(crate) fn calls(&self, way: &PathSummary) -> &[(u64, BlockId)] {
        let (start, len) = way.calls;
        &self.calls[start as usize..][..usize::from(len)]
    }

    /// The slot where the search for a key begins.
    #[inline(always)]
    fn home(&self, key: PathKey) -> usize {
        let from = u64::from(key.at.0) << 32 | u64::from(key.bits);
        let hash = (from ^ u64::from(key.to.0).rotate_left(12)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        (hash >> 40) as usize & self.slots.len().wrapping_sub(1)
    }

    #[inline(always)]
    pub(crate) fn find(&self, key: PathKey) -> Option<PathSummary> {
        let mut at = self.home(key);
        loop {
            let slot = self.slots.get(at)?;
            if slot.key == key {
                return Some(slot.way);
            }
            if slot.key == Slot::EMPTY.key {
                return None;
            }
            at = (at + 1) & (self.slots.len() - 1);
        }
    }

    pub(crate) fn insert(&mut self, key: PathKey, draft: &Draft, leaves_kernel: bool) -> PathSummary {
        let id = PathId::new(self.list.len());
        let mut taken = draft.steps.iter().filter_map(|step| Some((step.block, step.to?)));
        let count = taken.clone().count() as u8;
        let first = taken.next();
        let last = taken.next_back().or(first);
        self.list.push(Path {
            instructions: draft.steps.iter().map(|step| step.count).sum(),
            first: first.map(|(from, _)| from),
            last: last.unwrap_or((key.at, key.at)),
            rest: draft.steps.last().filter(|step| step.to.is_none()).map(|step| (step.block, step.count)),
            lead: draft.lead,
            taken: count,
            leaves_kernel,
            steps: (self.steps.len() as u32, draft.steps.len() as u8),
        });
        let way = PathSummary {
            path: id,
            end: draft.end,
            bits: draft.bits,
            free: draft.free,
            pops: draft.pops.into(),
            peak: draft.peak,
            calls: (self.calls.len() as u32, draft.calls.len() as u8),
        };
        self.steps.extend(&draft.steps);
        self.calls.extend(&draft.calls);
        if self.list.len() * 2 > self.slots.len() {
            let larger = vec![Slot::EMPTY; (self.slots.len() * 2).max(1 << 10)];
            let old = std::mem::replace(&mut self.slots, larger);
            old.into_iter().filter(|slot| slot.key != Slot::EMPTY.key).for_each(|slot| self.place(slot));
        }
        self.place(Slot { key, way });
        way
    }

    fn place(&mut self, slot: Slot) {
        let mut at = self.home(slot.key);
        while self.slots[at].key != Slot::EMPTY.key {
            at = (at + 1) & (self.slots.len() - 1);
        }
        self.slots[at] = slot;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn block(number: u32) -> BlockId {
        BlockId(number)
    }

    /// A path that takes the branches at the ends of these blocks to the next, and ends within the last one.
    fn draft(blocks: &[u32]) -> Draft {
        let mut draft = Draft::new(block(*blocks.last().unwrap()));
        draft.steps = blocks
            .windows(2)
            .map(|pair| Step { block: block(pair[0]), count: 3, to: Some(block(pair[1])) })
            .collect();
        draft.steps.push(Step { block: draft.end, count: 2, to: None });
        draft
    }

    #[test]
    fn each_of_many_paths_is_found_by_its_key() {
        let mut paths = Paths::default();
        let key = |number: u32| PathKey { at: block(number / 7), to: block(number % 7), bits: number % 3 };
        assert!(paths.find(key(0)).is_none() && !paths.is_full());
        for number in 0..2000 {
            let mut draft = draft(&[number, number + 1]);
            draft.push(u64::from(number), block(number + 9));
            (draft.bits, draft.lead) = (2, 1);
            assert!(paths.find(key(number)).is_none());
            let way = paths.insert(key(number), &draft, number % 2 == 0);
            assert_eq!(
                (way.path.index(), way.bits, way.free, way.pops, way.peak),
                (number as usize, 2, 0, 0, 1)
            );
        }
        for number in 0..2000 {
            let way = paths.find(key(number)).unwrap();
            assert_eq!((way.path, way.end), (PathId(number), block(number + 1)));
            assert_eq!(paths.calls(&way), [(number.into(), block(number + 9))]);
            assert_eq!(paths.steps(way.path), draft(&[number, number + 1]).steps);
            let path = &paths[way.path];
            assert_eq!((path.instructions, path.taken, path.lead, path.len()), (5, 1, 1, 2));
            assert_eq!((path.first, path.rest), (Some(block(number)), Some((block(number + 1), 2))));
            assert_eq!(
                (path.last, path.leaves_kernel),
                ((block(number), block(number + 1)), number % 2 == 0)
            );
        }
        assert!(paths.find(PathKey { at: block(9999), to: block(0), bits: 0 }).is_none() && !paths.is_full());
        paths.clear();
        assert!(paths.find(key(0)).is_none());
        let mut straight = draft(&[4]);
        straight.steps.pop();
        let way = paths.insert(key(0), &straight, false);
        let path = &paths[way.path];
        assert_eq!(
            (way.path, path.first, path.rest, path.last.0, path.len()),
            (PathId(0), None, None, block(0), 0)
        );
        paths.steps.resize(MOST_KEPT_STEPS - 1, draft(&[1]).steps[0]);
        assert!(!paths.is_full());
        paths.steps.resize(1 << 18, draft(&[1]).steps[0]);
        assert!(paths.is_full());
        paths.clear();
        let path = draft(&[1, 2, 3]);
        (0..1 << 15).for_each(|number| {
            assert!(!paths.is_full() && paths.insert(key(number), &path, false).peak == 0)
        });
        assert!(paths.is_full());
        assert_eq!(
            (paths.list[0].first, paths.list[0].last, paths.list[0].taken),
            (Some(block(1)), (block(2), block(3)), 2)
        );
    }

    #[test]
    fn a_path_goes_back_to_its_own_calls_and_then_to_the_first_caller() {
        let mut draft = Draft::new(block(1));
        draft.push(10, block(5));
        draft.push(20, block(6));
        assert_eq!((draft.go_back(block(9)), draft.peak), (Some(block(6)), 2));
        assert_eq!(draft.go_back(block(9)), Some(block(5)));
        // Only before its first step can it return to the call that its key has.
        assert_eq!((draft.go_back(block(9)), draft.pops), (Some(block(9)), true));
        assert_eq!((draft.go_back(BlockId::NONE), draft.pops), (None, false));
        draft.steps = super::tests::draft(&[1]).steps;
        assert_eq!((draft.go_back(block(9)), draft.pops), (None, false));
        let mut own = Draft::new(block(1));
        own.push(10, block(5));
        assert_eq!([(own.pop(), own.pops), (own.pop(), own.pops)], [(true, false), (false, false)]);
        let mut other = Draft::new(block(1));
        assert!(other.pop() && other.pops);
    }
}

//! A step from block to block, and the numbers of blocks and paths.

use crate::kind::Kind;

/// The number of a block of [`Blocks`](crate::Blocks).
///
/// The highest bit is set if a return ends the block, so that the walk through paths need not read the block.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub(crate) u32);

impl BlockId {
    pub(crate) const NONE: BlockId = BlockId(u32::MAX);
    const RETURN: u32 = 1 << 31;

    pub(crate) fn new(number: u32, kind: Kind) -> BlockId {
        BlockId(if kind == Kind::Return { number | BlockId::RETURN } else { number })
    }

    /// True for a block that a return ends, and for NONE.
    #[inline(always)]
    pub(crate) fn may_return(self) -> bool {
        self.0 & BlockId::RETURN != 0
    }

    /// The number, to index a table with. Blocks are numbered from 0 without gaps.
    #[inline(always)]
    pub fn index(self) -> usize {
        (self.0 & !BlockId::RETURN) as usize
    }
}

/// The number of a path of [`Blocks`](crate::Blocks).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct PathId(pub(crate) u32);

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

/// Executed instructions of a block.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Step {
    /// Its first `count` instructions were executed.
    pub block: BlockId,
    /// At least 0 (an interrupt came before the first), at most all of the block.
    pub count: u32,
    /// The target of the branch at the end of `block`; then `count` is that of the block. `None` if a
    /// conditional branch was not taken, at its end without one, and if an event with the target follows.
    pub to: Option<BlockId>,
}

//! Numbers blocks.

/// The number of a block of [`Blocks`](crate::Blocks).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub(crate) u32);

impl BlockId {
    /// None.
    pub(crate) const NONE: BlockId = BlockId(u32::MAX);

    /// The number, to index a table with. Blocks are numbered from 0 without gaps.
    #[inline(always)]
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

//! Blocks: straight runs of instructions up to a branch, each decoded once and then found by number.

/// The number of a block of [`Blocks`].
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct BlockId(pub(crate) u32);

impl BlockId {
    /// The number, to index a table with. Blocks are numbered from 0 without gaps.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

/// How a block ends.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Kind {
    /// A conditional branch.
    Conditional,
    /// A jump to a fixed address.
    Jump,
    /// A call of a fixed address.
    Call,
    /// A jump to an address that only execution tells.
    IndirectJump,
    /// A call of an address that only execution tells.
    IndirectCall,
    /// A near return.
    Return,
    /// A system call, a software interrupt, a far call, a call of the hypervisor.
    FarCall,
    /// Back from one: SYSRET, IRET, a far return, VMLAUNCH.
    FarReturn,
    /// A far jump.
    FarJump,
    /// No branch: the next instruction is in another block, because this one would be too long.
    Next,
    /// The code behind the last instruction is not known.
    NoCode,
    /// The bytes behind the last instruction are not an instruction.
    BadCode,
}

/// Instructions that are executed one after the other, the last of which may be a branch.
#[derive(Clone, Debug)]
pub struct Block {
    /// The address of the first instruction.
    pub start: u64,
    /// The address of the last instruction; `start` if there is none.
    pub last: u64,
    /// The address behind the last instruction.
    pub next: u64,
    /// Where the branch goes if it has a fixed target, else 0.
    pub target: u64,
    /// How many instructions there are; 0 if there is no code. One that is repeated (REP) counts once.
    pub count: u32,
    /// The end.
    pub kind: Kind,
}

/// The blocks that were decoded, of all mappings.
///
/// Each thread has its own: to decode the code a program executes takes some milliseconds, and a lock would cost
/// more than that at every branch. The bytes are shared, see [`Image`](crate::Image).
#[derive(Debug, Default)]
pub struct Blocks {
    blocks: Vec<Block>,
}

impl std::ops::Index<BlockId> for Blocks {
    type Output = Block;

    #[inline(always)]
    fn index(&self, id: BlockId) -> &Block {
        &self.blocks[id.index()]
    }
}

impl Blocks {
    /// How many there are.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// True if there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The address of an instruction of a block, which is decoded for it: 0 is the first. `None` if the block
    /// has fewer.
    pub fn nth(&self, id: BlockId, number: u32) -> Option<u64> {
        let _ = (id, number);
        todo!()
    }
}

//! Blocks: straight runs of instructions up to a branch, each decoded once; and cached paths through them.

use std::hash::BuildHasher as _;

use foldhash::fast::RandomState;
use hashbrown::HashTable;
use iced_x86::{Code, Decoder, DecoderOptions, FlowControl, Instruction};

use crate::a64;
use crate::image::Mapping;
use crate::kind::Kind;
use crate::path::{Path, Paths};
use crate::step::{BlockId, PathId, Step};

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum InstructionSet {
    /// x86 with addresses of 16, 32 and 64 bits.
    X86,
    /// AArch64. `waits`: WFI and WFE are traced like branches.
    A64 { waits: bool },
}

/// Instructions that are executed in sequence; the last may be a branch.
#[derive(Clone, Debug)]
pub struct Block {
    /// The address of the first instruction.
    pub start: u64,
    /// The address of the last instruction; `start` if there is none.
    pub last: u64,
    /// The address after the last instruction.
    pub next: u64,
    /// The target of the branch if it is fixed, else 0.
    pub target: u64,
    /// The number of instructions; 0 if there is no code. A repeated instruction (REP) counts once.
    pub count: u32,
    /// The block at `target` and the one at `next`, if they are known and in the same mapping.
    pub(crate) taken: BlockId,
    pub(crate) fall: BlockId,
    mapping: u32,
    /// The index in `Blocks::lengths` of its first instruction's length.
    lengths: u32,
    /// How the block ends.
    pub kind: Kind,
    /// The size of addresses, in bits: 16, 32 or 64.
    bits: u8,
}

/// A longer run without a branch is split into several blocks, which bounds the work for one packet.
const MOST_INSTRUCTIONS: u32 = 1 << 7;

impl Block {
    /// The address size of its code, bits: 16, 32 or 64.
    pub fn bits(&self) -> u32 {
        self.bits.into()
    }
}

/// The length in bytes of the first x86 instruction; `None` if cut off. `bits`: address size, 16, 32 or 64.
pub fn instruction_length(bits: u32, code: &[u8]) -> Option<usize> {
    let mut decoder = Decoder::new(bits, code, DecoderOptions::NONE);
    let instruction = decoder.decode();
    (!instruction.is_invalid()).then(|| instruction.len())
}

/// Cache limits: blocks, and instructions in them.
const MOST_BLOCKS: usize = 1 << 16;
const MOST_LENGTHS: usize = 1 << 21;

/// The decoded blocks of all mappings.
///
/// Each thread has its own: decoding a program's code takes some milliseconds, and a lock at every branch
/// would cost more. The bytes are shared, see [`Image`](crate::Image).
#[derive(Debug)]
pub struct Blocks {
    set: InstructionSet,
    blocks: Vec<Block>,
    index: HashTable<u32>,
    lengths: Vec<u8>,
    mappings: Vec<MappingBlocks>,
    mapping_index: HashTable<u32>,
    hasher: RandomState,
    pub(crate) paths: Paths,
}

#[derive(Debug)]
struct MappingBlocks {
    id: u64,
    start: u64,
    end: u64,
}

/// For blocks without code.
const NO_MAPPING: u32 = u32::MAX;

impl std::ops::Index<BlockId> for Blocks {
    type Output = Block;

    #[inline(always)]
    fn index(&self, id: BlockId) -> &Block {
        &self.blocks[id.index()]
    }
}

impl Blocks {
    pub(crate) fn new(set: InstructionSet) -> Blocks {
        Blocks {
            set,
            blocks: Vec::new(),
            index: HashTable::new(),
            lengths: Vec::new(),
            mappings: Vec::new(),
            mapping_index: HashTable::new(),
            hasher: RandomState::default(),
            paths: Paths::default(),
        }
    }

    /// The number of blocks.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// True if there are no blocks.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// A path.
    #[inline(always)]
    pub fn path(&self, id: PathId) -> &Path {
        &self.paths[id]
    }

    /// The steps of a path.
    #[inline(always)]
    pub fn steps(&self, id: PathId) -> &[Step] {
        self.paths.steps(id)
    }

    /// The [`Mapping::id`] of a block; `None` if its code is unknown.
    pub fn mapping_of(&self, id: BlockId) -> Option<u64> {
        self.mappings.get(self[id].mapping as usize).map(|known| known.id)
    }

    /// The address of an instruction of a block: 0 is the first. `None` if the block has fewer.
    pub fn nth(&self, id: BlockId, number: u32) -> Option<u64> {
        let before = self.lengths(id).get(..number as usize).filter(|_| number < self[id].count)?;
        Some(before.iter().fold(self[id].start, |ip, length| ip.wrapping_add(u64::from(*length))))
    }

    /// The number of a block's instructions before `ip`; `None` if no instruction begins there.
    pub(crate) fn before(&self, id: BlockId, ip: u64) -> Option<u32> {
        let block = &self[id];
        let distance = ip.wrapping_sub(block.start);
        if distance > block.last.wrapping_sub(block.start) || block.count == 0 {
            return None;
        }
        let (mut sum, mut count) = (0, 0);
        for length in self.lengths(id) {
            if sum >= distance {
                break;
            }
            sum += u64::from(*length);
            count += 1;
        }
        (sum == distance).then_some(count)
    }

    fn lengths(&self, id: BlockId) -> &[u8] {
        let (start, count) = (self[id].lengths as usize, self[id].count as usize);
        &self.lengths[start..start + count]
    }

    /// True if the caches exceed their limits and should be dropped.
    #[inline(always)]
    pub(crate) fn is_full(&self) -> bool {
        self.blocks.len() >= MOST_BLOCKS || self.lengths.len() >= MOST_LENGTHS || self.paths.is_full()
    }

    pub(crate) fn clear(&mut self) {
        self.blocks.clear();
        self.index.clear();
        self.lengths.clear();
        self.mappings.clear();
        self.mapping_index.clear();
        self.paths.clear();
    }

    #[inline(always)]
    pub(crate) fn is_near(&self, id: BlockId, ip: u64) -> bool {
        self.mappings
            .get(self[id].mapping as usize)
            .is_some_and(|known| (known.start..known.end).contains(&ip))
    }

    pub(crate) fn link(&mut self, id: BlockId, to: BlockId, is_taken: bool) {
        if self[id].mapping == self[to].mapping {
            let block = &mut self.blocks[id.index()];
            *(if is_taken { &mut block.taken } else { &mut block.fall }) = to;
        }
    }

    /// The block that begins at `ip` of a mapping, or one without code.
    pub(crate) fn at(&mut self, ip: u64, mapping: Option<&Mapping<'_>>, bits: u32) -> BlockId {
        let number = mapping.map_or(NO_MAPPING, |mapping| self.mapping(mapping));
        let bits = bits as u8;
        let hash = self.hasher.hash_one((ip, number, bits));
        let is_it = |at: &u32| {
            let block = &self.blocks[*at as usize];
            (block.start, block.mapping, block.bits) == (ip, number, bits)
        };
        if let Some(at) = self.index.find(hash, is_it) {
            return BlockId::new(*at, self.blocks[*at as usize].kind);
        }
        let mut block = Block {
            start: ip,
            last: ip,
            next: ip,
            target: 0,
            count: 0,
            taken: BlockId::NONE,
            fall: BlockId::NONE,
            mapping: number,
            lengths: self.lengths.len() as u32,
            kind: Kind::NoCode,
            bits,
        };
        let code = mapping.and_then(|mapping| {
            let begin = usize::try_from(ip.checked_sub(mapping.start)?).ok()?;
            mapping.bytes.get(begin..)
        });
        let code = code.unwrap_or_default();
        match self.set {
            InstructionSet::X86 => self.decode_x86(&mut block, code),
            InstructionSet::A64 { waits } => self.decode_a64(&mut block, code, waits),
        }
        let at = self.blocks.len() as u32;
        let id = BlockId::new(at, block.kind);
        self.blocks.push(block);
        let Blocks { blocks, hasher, .. } = self;
        let rehash = |at: &u32| {
            let block = &blocks[*at as usize];
            hasher.hash_one((block.start, block.mapping, block.bits))
        };
        self.index.insert_unique(hash, at, rehash);
        id
    }

    fn mapping(&mut self, mapping: &Mapping<'_>) -> u32 {
        let Blocks { mappings, mapping_index, hasher, .. } = self;
        let hash = hasher.hash_one(mapping.id);
        if let Some(at) = mapping_index.find(hash, |at| mappings[*at as usize].id == mapping.id) {
            return *at;
        }
        let at = mappings.len() as u32;
        let end = mapping.start.saturating_add(mapping.bytes.len() as u64);
        mappings.push(MappingBlocks { id: mapping.id, start: mapping.start, end });
        mapping_index.insert_unique(hash, at, |at| hasher.hash_one(mappings[*at as usize].id));
        at
    }

    fn decode_a64(&mut self, block: &mut Block, code: &[u8], waits: bool) {
        for bytes in code.as_chunks::<{ a64::SIZE }>().0 {
            let word = u32::from_le_bytes(*bytes);
            if a64::is_undefined(word) {
                block.kind = Kind::BadCode;
                return;
            }
            self.lengths.push(a64::SIZE as u8);
            block.count += 1;
            block.last = block.next;
            block.next = block.last.wrapping_add(a64::SIZE as u64);
            if let Some((kind, target)) = a64::branch(word, block.last, waits) {
                (block.kind, block.target) = (kind, target);
                return;
            }
            if block.count == MOST_INSTRUCTIONS {
                block.kind = Kind::Next;
                return;
            }
        }
    }

    fn decode_x86(&mut self, block: &mut Block, code: &[u8]) {
        let mut decoder = Decoder::with_ip(u32::from(block.bits), code, block.start, DecoderOptions::NONE);
        let mut instruction = Instruction::default();
        while decoder.can_decode() {
            let rest = decoder.max_position() - decoder.position();
            decoder.decode_out(&mut instruction);
            if instruction.is_invalid() {
                // An instruction cut off by the mapping's end is unknown.
                block.kind = if rest < LONGEST_INSTRUCTION { Kind::NoCode } else { Kind::BadCode };
                return;
            }
            self.lengths.push(instruction.len() as u8);
            block.count += 1;
            block.last = instruction.ip();
            block.next = instruction.next_ip();
            if let Some((kind, target)) = branch(&instruction) {
                (block.kind, block.target) = (kind, target);
                return;
            }
            if block.count == MOST_INSTRUCTIONS {
                block.kind = Kind::Next;
                return;
            }
        }
        // The bytes after the mapping's end may be in another one, as where kernel code was patched.
        if block.count > 0 {
            block.kind = Kind::Next;
        }
    }
}

const LONGEST_INSTRUCTION: usize = 15;

fn branch(instruction: &Instruction) -> Option<(Kind, u64)> {
    let target = || instruction.near_branch_target();
    Some(match instruction.flow_control() {
        // The trace has an interrupt packet for an exception and for an aborted transaction.
        FlowControl::Next | FlowControl::Exception | FlowControl::XbeginXabortXend => return None,
        FlowControl::ConditionalBranch => (Kind::Conditional, target()),
        FlowControl::UnconditionalBranch if instruction.is_jmp_short_or_near() => (Kind::Jump, target()),
        FlowControl::Call if instruction.is_call_near() => (Kind::Call, target()),
        FlowControl::IndirectBranch if instruction.is_jmp_near_indirect() => (Kind::IndirectJump, 0),
        FlowControl::IndirectCall if instruction.is_call_near_indirect() => (Kind::IndirectCall, 0),
        FlowControl::Return => match instruction.code() {
            Code::Retnw | Code::Retnd | Code::Retnq => (Kind::Return, 0),
            Code::Retnw_imm16 | Code::Retnd_imm16 | Code::Retnq_imm16 => (Kind::Return, 0),
            Code::Iretw | Code::Iretd | Code::Iretq => (Kind::InterruptReturn, 0),
            Code::Retfw | Code::Retfd | Code::Retfq => (Kind::FarReturn, 0),
            Code::Retfw_imm16 | Code::Retfd_imm16 | Code::Retfq_imm16 => (Kind::FarReturn, 0),
            _ => (Kind::SystemReturn, 0),
        },
        FlowControl::Call => match instruction.code() {
            Code::Vmlaunch | Code::Vmresume => (Kind::GuestEntry, 0),
            Code::Call_ptr1616 | Code::Call_ptr1632 => (Kind::FarCall, 0),
            _ => (Kind::SystemCall, 0),
        },
        FlowControl::IndirectCall => (Kind::FarCall, 0),
        FlowControl::Interrupt => (Kind::Interrupt, 0),
        FlowControl::UnconditionalBranch | FlowControl::IndirectBranch => (Kind::FarJump, 0),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: u64 = 0x1000;

    fn block(bits: u32, code: &[u8]) -> (Blocks, BlockId) {
        let mut blocks = Blocks::new(InstructionSet::X86);
        let mapping = Mapping { id: 1, start: START, bytes: code, until: u64::MAX };
        let id = blocks.at(START, Some(&mapping), bits);
        (blocks, id)
    }

    #[test]
    fn a_block_ends_at_a_branch_of_its_kind() {
        let cases: &[(&[u8], Kind, u64)] = &[
            (&[0x75, 0xfe], Kind::Conditional, START),
            (&[0xe3, 2], Kind::Conditional, START + 4),
            (&[0xe2, 0xfe], Kind::Conditional, START),
            (&[0xeb, 1], Kind::Jump, START + 3),
            (&[0xe8, 0, 0, 0, 0], Kind::Call, START + 5),
            (&[0xff, 0xe0], Kind::IndirectJump, 0),
            (&[0x3e, 0xff, 0xe0], Kind::IndirectJump, 0),
            (&[0xff, 0xd0], Kind::IndirectCall, 0),
            (&[0xff, 0x18], Kind::FarCall, 0),
            (&[0xff, 0x28], Kind::FarJump, 0),
            (&[0xc3], Kind::Return, 0),
            (&[0xf2, 0xc3], Kind::Return, 0),
            (&[0xc2, 8, 0], Kind::Return, 0),
            (&[0xcb], Kind::FarReturn, 0),
            (&[0x48, 0xcf], Kind::InterruptReturn, 0),
            (&[0xca, 8, 0], Kind::FarReturn, 0),
            (&[0x48, 0x0f, 7], Kind::SystemReturn, 0),
            (&[0x0f, 5], Kind::SystemCall, 0),
            (&[0x0f, 0x34], Kind::SystemCall, 0),
            (&[0x0f, 0x35], Kind::SystemReturn, 0),
            (&[0xcd, 0x80], Kind::Interrupt, 0),
            (&[0xcc], Kind::Interrupt, 0),
            (&[0x0f, 1, 0xc2], Kind::GuestEntry, 0),
        ];
        for (code, kind, target) in cases {
            // A nop before and one after.
            let (blocks, id) = block(64, &[&[0x90][..], code, &[0x90]].concat());
            let target = if *target == 0 { 0 } else { target + 1 };
            let block = &blocks[id];
            let next = START + 1 + code.len() as u64;
            let found = (block.kind, block.target, block.count, block.last, block.next);
            assert_eq!(found, (*kind, target, 2, START + 1, next), "{code:x?}");
            assert_eq!([0, 1, 2].map(|at| blocks.nth(id, at)), [Some(START), Some(START + 1), None]);
            let before = [START - 1, START, START + 1, START + 2].map(|ip| blocks.before(id, ip));
            assert_eq!(before, [None, Some(0), Some(1), None], "{code:x?}");
        }
    }

    #[test]
    fn code_of_32_bits_has_other_instructions() {
        // inc, dec; call far; into; jmp far; sysenter is in both.
        let cases: &[(&[u8], Kind, u32)] = &[
            (&[0x40, 0x48, 0x75, 0xfb], Kind::Conditional, 3),
            (&[0x9a, 1, 2, 3, 4, 0x23, 0], Kind::FarCall, 1),
            (&[0xce], Kind::Interrupt, 1),
            (&[0xea, 1, 2, 3, 4, 0x33, 0], Kind::FarJump, 1),
            (&[0x0f, 0x34], Kind::SystemCall, 1),
            (&[0x66, 0x81, 0xc2, 0x34, 0x12, 0xcf], Kind::InterruptReturn, 2),
        ];
        for (code, kind, count) in cases {
            let (blocks, id) = block(32, code);
            assert_eq!((blocks[id].kind, blocks[id].count), (*kind, *count), "{code:x?}");
            assert_eq!(blocks[id].next, START + code.len() as u64, "{code:x?}");
        }
        // Direct branches stay below 4 GB.
        let (blocks, id) = block(32, &[0xe9, 0, 0, 0, 0xf0]);
        assert_eq!(blocks[id].target, 0xf000_1005);
    }

    #[test]
    fn a_block_ends_where_the_code_does() {
        let long = [0x90; 1100];
        for (code, kind, count) in [
            (&long[..], Kind::Next, MOST_INSTRUCTIONS),
            (&[0x90; 3], Kind::Next, 3),
            (&[0x90, 0xe8, 0], Kind::NoCode, 1),
            (&[], Kind::NoCode, 0),
            (&[6; 16], Kind::BadCode, 0),
        ] {
            let (blocks, id) = block(64, code);
            assert_eq!((blocks[id].kind, blocks[id].count), (kind, count));
            assert_eq!(blocks.before(id, START + u64::from(count)), None, "nothing begins there");
        }
        let (blocks, id) = block(32, &[6, 0x66, 0xe9, 0, 0]);
        assert_eq!((blocks[id].kind, blocks[id].count, blocks[id].target), (Kind::Jump, 2, START + 5));
    }
}

//! Walks the code from block to block, as the packets of any tracer direct.

mod atoms;

use crate::block::{Blocks, InstructionSet};
use crate::image::{Image, Space, is_user};
use crate::kind::Kind;
use crate::path::{Draft, MOST_STEPS, PathKey, PathSummary};
use crate::sink::{Event, Fault, Point, Reason, Sink};
use crate::step::{BlockId, Step};

/// Size of the cache of blocks at recent addresses; a power of two.
const RECENT: usize = 1 << 12;

/// A block that was found at an address, valid in one generation.
#[derive(Clone, Copy, Debug)]
struct Recent {
    ip: u64,
    block: BlockId,
    generation: u32,
}

/// A call, and the block after it in the current generation; NONE if unknown.
#[derive(Clone, Copy, Debug)]
struct Call {
    back: u64,
    block: BlockId,
}

#[derive(Debug)]
struct Stack {
    calls: Box<[Call; Stack::DEPTH]>,
    top: usize,
    depth: usize,
}

impl Stack {
    const DEPTH: usize = 64;

    #[inline(always)]
    fn push(&mut self, call: Call) {
        self.calls[self.top % Stack::DEPTH] = call;
        self.top = self.top.wrapping_add(1);
        self.depth = Stack::DEPTH.min(self.depth + 1);
    }

    #[inline(always)]
    fn last(&self) -> BlockId {
        let last = self.calls[self.top.wrapping_sub(1) % Stack::DEPTH].block;
        if self.depth > 0 { last } else { BlockId::NONE }
    }

    /// Pops up to `pops` calls, then evicts the oldest to make room for `room`.
    #[inline(always)]
    fn make_room(&mut self, pops: u8, room: u8) {
        let pops = self.depth.min(pops.into());
        self.top = self.top.wrapping_sub(pops);
        self.depth = (self.depth - pops).min(Stack::DEPTH - usize::from(room));
    }

    #[inline(always)]
    fn pop(&mut self) -> Option<Call> {
        self.depth = self.depth.checked_sub(1)?;
        self.top = self.top.wrapping_sub(1);
        Some(self.calls[self.top % Stack::DEPTH])
    }
}

/// Step budget earned per trace byte, and its cap. A byte holds about six branches, and programs seldom have
/// more than a few direct jumps and calls between two of them.
const STEPS_PER_BYTE: u32 = 1 << 6;
const MOST_SAVED: u32 = 1 << 12;

/// Maximum number of blocks that `leads_straight` visits.
const MOST_STRAIGHT: usize = 16;

/// The current position in the code, and the calls that led there.
#[derive(Debug)]
pub(crate) struct Flow<I> {
    image: I,
    blocks: Blocks,
    recent: Box<[Recent]>,
    /// Incremented whenever an address may have another block.
    generation: u32,
    /// The image is valid up to this time.
    until: u64,
    bits: u32,
    /// Returns to the last call are traced like conditional branches.
    has_compressed_returns: bool,
    /// The block that starts at the current position; NONE if unknown.
    at: BlockId,
    stack: Stack,
    /// Remaining budget of steps without a packet.
    steps: u32,
    has_grown: bool,
    pub(crate) point: Point,
}

impl<I: Image> Flow<I> {
    pub(crate) fn new(image: I, set: InstructionSet, has_compressed_returns: bool) -> Flow<I> {
        let none = Recent { ip: 0, block: BlockId::NONE, generation: 0 };
        Flow {
            image,
            blocks: Blocks::new(set),
            recent: vec![none; RECENT].into(),
            generation: 1,
            until: u64::MAX,
            bits: 64,
            has_compressed_returns,
            at: BlockId::NONE,
            stack: Stack {
                calls: Box::new([Call { back: 0, block: BlockId::NONE }; Stack::DEPTH]),
                top: 0,
                depth: 0,
            },
            steps: MOST_SAVED,
            has_grown: false,
            point: Point { time: 0, now: 0, space: None, offset: 0 },
        }
    }

    pub(crate) fn blocks(&self) -> &Blocks {
        &self.blocks
    }

    /// Forgets the position; the caches are kept.
    pub(crate) fn reset(&mut self, bits: u32, space: Option<Space>, now: u64) {
        self.lose();
        self.renew();
        self.bits = bits;
        (self.point.space, self.point.now) = (space, now);
    }

    #[inline(always)]
    pub(crate) fn begin_packet<S: Sink>(&mut self, len: u32, sink: &mut S) {
        self.steps = MOST_SAVED.min(self.steps + len * STEPS_PER_BYTE);
        if self.has_grown {
            self.make_room(sink);
        }
    }

    #[cold]
    fn make_room<S: Sink>(&mut self, sink: &mut S) {
        self.has_grown = false;
        if self.blocks.is_full() {
            self.forget(sink);
        }
    }

    #[cold]
    pub(crate) fn forget<S: Sink>(&mut self, sink: &mut S) {
        sink.forget(&self.blocks);
        let ip = self.ip();
        self.blocks.clear();
        self.renew();
        self.at = ip.map_or(BlockId::NONE, |ip| self.find(ip));
    }

    #[cold]
    fn renew(&mut self) {
        self.until = u64::MAX;
        self.stack.calls.iter_mut().for_each(|call| call.block = BlockId::NONE);
        self.generation = self.generation.wrapping_add(1);
        if self.generation == 0 {
            self.recent.fill(Recent { ip: 0, block: BlockId::NONE, generation: 0 });
            self.generation = 1;
        }
    }

    /// Invalidates cached addresses and looks up the current one again.
    #[cold]
    fn look_again(&mut self) {
        let ip = self.ip();
        self.renew();
        self.at = ip.map_or(BlockId::NONE, |ip| self.find(ip));
    }

    #[inline(always)]
    pub(crate) fn set_now(&mut self, now: u64) {
        let is_earlier = now < self.point.now;
        self.point.now = now;
        if now >= self.until || is_earlier {
            self.look_again();
        }
    }

    #[inline(always)]
    pub(crate) fn set_space(&mut self, space: Option<Space>) {
        if space != self.point.space {
            self.point.space = space;
            self.look_again();
        }
    }

    #[inline(always)]
    pub(crate) fn set_bits(&mut self, bits: u32) {
        if bits != self.bits {
            self.bits = bits;
            self.at = BlockId::NONE;
            self.renew();
        }
    }

    pub(crate) fn ip(&self) -> Option<u64> {
        self.is_known().then(|| self.blocks[self.at].start)
    }

    #[inline(always)]
    pub(crate) fn is_known(&self) -> bool {
        self.at != BlockId::NONE
    }

    pub(crate) fn set_ip(&mut self, ip: Option<u64>) {
        self.at = ip.map_or(BlockId::NONE, |ip| self.find(ip));
    }

    pub(crate) fn lose(&mut self) {
        self.at = BlockId::NONE;
        self.stack.depth = 0;
    }

    /// A sync point resets all state except the current position.
    pub(crate) fn synchronize(&mut self) {
        self.stack.depth = 0;
        self.steps = MOST_SAVED;
    }

    #[inline(always)]
    pub(crate) fn event<S: Sink>(&self, event: Event, sink: &mut S) {
        sink.event(&self.blocks, &self.point, event);
    }

    /// Reports a fault at the current position and forgets the position.
    #[cold]
    pub(crate) fn fault<S: Sink>(&mut self, reason: Reason, sink: &mut S) {
        let mut ip = self.ip();
        if self.is_known() {
            let block = &self.blocks[self.at];
            if matches!(reason, Reason::NoCode | Reason::BadCode) {
                ip = Some(block.next);
                if block.count > 0 {
                    self.step(block.count, None, sink);
                }
            }
        }
        self.event(Event::Fault(Fault { reason, ip }), sink);
        self.lose();
    }

    #[inline(always)]
    fn find(&mut self, ip: u64) -> BlockId {
        let recent = &self.recent[slot(ip)];
        if recent.ip == ip && recent.generation == self.generation { recent.block } else { self.look_up(ip) }
    }

    #[cold]
    fn look_up(&mut self, ip: u64) -> BlockId {
        let mapping = self.image.code(self.point.space, ip, self.point.now);
        let inside = mapping.filter(|mapping| {
            usize::try_from(ip.wrapping_sub(mapping.start)).is_ok_and(|at| at < mapping.bytes.len())
        });
        let block = self.blocks.at(ip, inside.as_ref(), self.bits);
        self.has_grown = true;
        // Unknown code is not cached: it may be mapped later.
        if let Some(mapping) = inside {
            self.until = self.until.min(mapping.until);
            self.recent[slot(ip)] = Recent { ip, block, generation: self.generation };
        }
        block
    }

    #[inline(always)]
    fn taken(&mut self, id: BlockId) -> BlockId {
        let linked = self.blocks[id].taken;
        if linked != BlockId::NONE { linked } else { self.link(id, true) }
    }

    #[inline(always)]
    fn fall(&mut self, id: BlockId) -> BlockId {
        let linked = self.blocks[id].fall;
        if linked != BlockId::NONE { linked } else { self.link(id, false) }
    }

    #[cold]
    fn link(&mut self, id: BlockId, is_taken: bool) -> BlockId {
        let block = &self.blocks[id];
        let to = self.find(if is_taken { block.target } else { block.next });
        self.blocks.link(id, to, is_taken);
        to
    }

    #[inline(always)]
    fn step<S: Sink>(&self, count: u32, to: Option<BlockId>, sink: &mut S) {
        sink.step(&self.blocks, &self.point, Step { block: self.at, count, to });
    }

    /// Executes the current block; its branch goes to block `to`.
    #[inline(always)]
    fn take<S: Sink>(&mut self, to: BlockId, sink: &mut S) {
        self.step(self.blocks[self.at].count, Some(to), sink);
        self.at = to;
    }

    #[inline(always)]
    pub(crate) fn pass<S: Sink>(&mut self, sink: &mut S) {
        let to = self.fall(self.at);
        self.step(self.blocks[self.at].count, None, sink);
        self.at = to;
    }

    #[inline(always)]
    fn push_call(&mut self) {
        let id = self.at;
        let (back, mut block) = (self.blocks[id].next, self.blocks[id].fall);
        if block == BlockId::NONE && self.blocks.is_near(id, back) {
            block = self.link(id, false);
        }
        self.stack.push(Call { back, block });
    }

    /// Executes the current block, which ends in a direct branch or without one.
    #[inline(always)]
    fn advance<S: Sink>(&mut self, kind: Kind, sink: &mut S) {
        if kind == Kind::Next {
            self.pass(sink);
        } else {
            let block = &self.blocks[self.at];
            // A call of the next instruction, used to read the instruction pointer, never returns.
            if kind == Kind::Call && block.target != block.next {
                self.push_call();
            }
            let to = self.taken(self.at);
            self.take(to, sink);
        }
    }

    /// Goes on to a block whose end needs a packet, and returns how it ends.
    #[inline(always)]
    pub(crate) fn run<S: Sink>(&mut self, sink: &mut S) -> Result<Kind, Reason> {
        loop {
            match self.blocks[self.at].kind {
                kind @ (Kind::Jump | Kind::Call | Kind::Next) => {
                    self.steps = self.steps.checked_sub(1).ok_or(Reason::Endless)?;
                    self.advance(kind, sink);
                }
                Kind::NoCode => return Err(Reason::NoCode),
                Kind::BadCode => return Err(Reason::BadCode),
                kind => return Ok(kind),
            }
        }
    }

    /// Takes a cached path that matches the branches below a stop bit; without one, goes on to a block whose
    /// end needs a packet. Returns the number of branches taken; the caller takes the rest step by step.
    #[inline(always)]
    pub(crate) fn take_path<S: Sink>(&mut self, bits: u32, sink: &mut S) -> u32 {
        let mut key = PathKey { at: self.at, to: BlockId::NONE, bits };
        if self.at.may_return() && self.has_compressed_returns {
            key.to = self.stack.last();
        }
        self.take_path_of(key, sink)
    }

    /// Like [`Flow::take_path`], up to an indirect branch, which goes to `ip`. True if that was executed.
    #[inline(always)]
    pub(crate) fn take_path_to<S: Sink>(&mut self, ip: u64, bits: u32, sink: &mut S) -> bool {
        if bits != self.bits {
            return false;
        }
        let to = self.find(ip);
        self.take_path_of(PathKey { at: self.at, to, bits: 0 }, sink) > 0
    }

    #[inline(always)]
    fn take_path_of<S: Sink>(&mut self, key: PathKey, sink: &mut S) -> u32 {
        let way = match self.blocks.paths.find(key) {
            Some(way) => way,
            None => self.make_path(key),
        };
        let Some(left) = self.steps.checked_sub(u32::from(way.free)) else { return 0 };
        if way.end == self.at && way.bits == 0 {
            return 0;
        }
        self.steps = left;
        sink.path(&self.blocks, &self.point, way.path);
        self.stack.make_room(way.pops, way.peak);
        for &(back, block) in self.blocks.paths.calls(&way) {
            self.stack.push(Call { back, block });
        }
        self.at = way.end;
        way.bits.into()
    }

    #[cold]
    fn make_path(&mut self, key: PathKey) -> PathSummary {
        self.has_grown = true;
        let count = key.bits.checked_ilog2().unwrap_or(1) as u8;
        let mut draft = Draft::new(key.at);
        // Steps after the last branch belong to the next packet.
        while draft.steps.len() < MOST_STEPS && draft.bits < count {
            let at = draft.end;
            let block = &self.blocks[at];
            let (kind, instructions, back) = (block.kind, block.count, block.next);
            let is_call = kind == Kind::IndirectCall || kind == Kind::Call && block.target != back;
            let is_set = key.bits >> (count - draft.bits - 1) & 1 != 0;
            let (to, is_taken) = match kind {
                Kind::Jump | Kind::Call => (self.linked(at, true), true),
                Kind::Next => (self.linked(at, false), false),
                Kind::Conditional if key.bits != 0 => (self.linked(at, is_set), is_set),
                Kind::Return if key.bits == 0 => (draft.pop().then_some(key.to), true),
                Kind::Return if is_set => (draft.go_back(key.to), true),
                kind if key.bits == 0 && kind.needs_address() => (Some(key.to), true),
                _ => break,
            };
            let Some(to) = to else { break };
            if is_call {
                let block = match self.linked(at, false) {
                    Some(block) => block,
                    None if kind == Kind::Call => break,
                    None => BlockId::NONE,
                };
                draft.push(back, block);
            }
            draft.steps.push(Step { block: at, count: instructions, to: is_taken.then_some(to) });
            draft.end = to;
            if matches!(kind, Kind::Jump | Kind::Call | Kind::Next) {
                draft.free += 1;
                draft.lead += u8::from(draft.bits == 0);
            } else {
                draft.bits += 1;
            }
        }
        // If so, the path ends with this step: only an address in the trace leads to user code.
        let leaves_kernel = draft.steps.last().is_some_and(|step| {
            let is_of_kernel = !is_user(self.blocks[step.block].last);
            is_of_kernel && step.to.is_some_and(|to| is_user(self.blocks[to].start))
        });
        self.blocks.paths.insert(key, &draft, leaves_kernel)
    }

    /// The block to which a branch leads, taken or not, if that never changes.
    fn linked(&mut self, id: BlockId, is_taken: bool) -> Option<BlockId> {
        let block = &self.blocks[id];
        let ip = if is_taken { block.target } else { block.next };
        if !self.blocks.is_near(id, ip) {
            return None;
        }
        let to = if is_taken { self.taken(id) } else { self.fall(id) };
        let block = &self.blocks[id];
        (to == if is_taken { block.taken } else { block.fall }).then_some(to)
    }

    #[inline(always)]
    pub(crate) fn jump<S: Sink>(&mut self, sink: &mut S) {
        let to = self.taken(self.at);
        self.take(to, sink);
    }

    /// Executes the return at the end of the current block; it returns to the last call.
    #[inline(always)]
    pub(crate) fn go_back<S: Sink>(&mut self, sink: &mut S) -> Result<(), Reason> {
        let call = self.stack.pop().ok_or(Reason::UnknownReturn)?;
        let to = if call.block != BlockId::NONE { call.block } else { self.find(call.back) };
        self.take(to, sink);
        Ok(())
    }

    /// Updates the return stack for the branch at the end of the current block.
    #[inline(always)]
    fn call_or_return(&mut self, kind: Kind) {
        match kind {
            Kind::IndirectCall => self.push_call(),
            Kind::Return => drop(self.stack.pop()),
            _ => {}
        }
    }

    /// Executes the current block, whose branch of this kind goes to an address in a packet.
    #[inline(always)]
    pub(crate) fn go<S: Sink>(&mut self, kind: Kind, ip: u64, bits: u32, sink: &mut S) {
        self.call_or_return(kind);
        if bits == self.bits {
            let to = self.find(ip);
            self.take(to, sink);
        } else {
            self.change_bits(ip, bits, sink);
        }
    }

    #[cold]
    fn change_bits<S: Sink>(&mut self, ip: u64, bits: u32, sink: &mut S) {
        self.bits = bits;
        self.renew();
        let to = self.find(ip);
        self.take(to, sink);
    }

    /// Goes on to `ip` without needing a packet.
    pub(crate) fn run_to<S: Sink>(&mut self, ip: u64, sink: &mut S) -> Result<(), Reason> {
        loop {
            if let Some(count) = self.blocks.before(self.at, ip) {
                if count > 0 {
                    self.step(count, None, sink);
                    self.at = self.find(ip);
                }
                return Ok(());
            }
            match self.blocks[self.at].kind {
                kind @ (Kind::Jump | Kind::Call | Kind::Next) => {
                    self.steps = self.steps.checked_sub(1).ok_or(Reason::Endless)?;
                    self.advance(kind, sink);
                }
                Kind::NoCode if self.blocks[self.at].next == ip => {
                    // The code before `ip` was executed; the code at `ip` is unknown.
                    let count = self.blocks[self.at].count;
                    if count > 0 {
                        self.step(count, None, sink);
                        self.at = self.find(ip);
                    }
                    return Ok(());
                }
                Kind::NoCode => return Err(Reason::NoCode),
                Kind::BadCode => return Err(Reason::BadCode),
                _ => return Err(Reason::Mismatch),
            }
        }
    }

    /// True if no branch is between the instructions at `from` and `to`.
    pub(crate) fn leads_straight(&mut self, from: u64, to: u64) -> bool {
        let mut at = self.find(from);
        // Blocks are long, so few continue in another block.
        for _ in 0..MOST_STRAIGHT {
            if self.blocks.before(at, to).is_some() {
                return true;
            }
            if self.blocks[at].kind != Kind::Next {
                break;
            }
            at = self.fall(at);
        }
        false
    }

    pub(crate) fn enters_guest(&self) -> bool {
        let block = &self.blocks[self.at];
        block.kind == Kind::GuestEntry && block.count == 1
    }

    /// Goes on to the branch that leaves the traced code and ends tracing there; `to` is its target if the
    /// trace has it. A direct branch to untraced code has no target in the trace (erratum SKL014). The branch
    /// is executed at the time `now`.
    pub(crate) fn run_out<S: Sink>(&mut self, to: Option<u64>, now: u64, sink: &mut S) -> Result<(), Reason> {
        self.run_over((to, None), now, sink)
    }

    /// Like [`Flow::run_out`], where a guest runs next at `exchange`.
    pub(crate) fn run_over<S: Sink>(
        &mut self,
        (to, exchange): (Option<u64>, Option<u64>),
        now: u64,
        sink: &mut S,
    ) -> Result<(), Reason> {
        loop {
            let block = &self.blocks[self.at];
            let is_direct = matches!(block.kind, Kind::Jump | Kind::Call);
            let filtered = (is_direct && to.is_none() && exchange.is_none())
                .then_some(block.target)
                .filter(|target| !self.image.is_traced(self.point.space, *target, self.point.now));
            let to = to.or(filtered);
            let leaves = match block.kind {
                Kind::Jump | Kind::Call => to == Some(block.target),
                // With address filters, TIP.PGD replaces the TNT bit.
                Kind::Conditional => to.is_some_and(|to| to == block.target || to == block.next),
                Kind::Next => false,
                Kind::NoCode => return Err(Reason::NoCode),
                Kind::BadCode => return Err(Reason::BadCode),
                _ => true,
            };
            let (kind, count, last) = (block.kind, block.count, block.last);
            if leaves {
                self.point.time = now;
                self.call_or_return(kind);
                self.step(count, None, sink);
                let block = Some(self.at);
                self.event(Event::End { ip: last, block, to, exchange }, sink);
                self.at = BlockId::NONE;
                return Ok(());
            }
            if kind == Kind::Conditional {
                return Err(Reason::Mismatch);
            }
            self.steps = self.steps.checked_sub(1).ok_or(Reason::Endless)?;
            self.advance(kind, sink);
        }
    }
}

#[inline(always)]
fn slot(ip: u64) -> usize {
    (ip.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> (64 - RECENT.ilog2())) as usize
}

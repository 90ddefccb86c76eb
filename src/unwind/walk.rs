//! Walks a user stack from its innermost frame to its outermost, using the files mapped at the time.

use std::sync::{Arc, Mutex};

use perfx_format::{Endian, OrderKey};
use perfx_model::address_space::{Hit, Lookup, Space};

use crate::arch::{Architecture, MOST_SAVED, Registers};
use crate::images::{Images, Loaded};
use crate::rules::{Context, LOST, Rule, SAME};

/// Longer call chains are endless loops, and readers do not show them.
const MOST_FRAMES: usize = 1024;

#[derive(Clone, Copy)]
pub(crate) struct Stack<'a> {
    pub(crate) start: u64,
    pub(crate) bytes: &'a [u8],
    pub(crate) is_cut: bool,
    pub(crate) endian: Endian,
    /// 8 or 4 bytes.
    pub(crate) word: u8,
}

impl Stack<'_> {
    #[inline]
    fn read(&self, address: u64) -> Option<u64> {
        let at = address.checked_sub(self.start).and_then(|at| usize::try_from(at).ok())?;
        match self.word {
            4 => self.endian.u32(self.bytes, at).map(u64::from),
            _ => self.endian.u64(self.bytes, at),
        }
    }

    fn end_at(&self, address: u64) -> End {
        let end = self.start.saturating_add(self.bytes.len() as u64);
        if self.is_cut && address.saturating_add(self.word.into()) > end {
            End::StackCut
        } else {
            End::Broken
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum End {
    Outermost,
    StackCut,
    /// The file of this DSO's code is missing.
    Missing(u32),
    TooLong,
    Broken,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Caller {
    /// The link register contains it: the address of the last byte of the call.
    Linked(u64),
    /// The link register belongs to another call.
    NotLinked,
    /// The file of this DSO's code is missing.
    Missing(u32),
}

pub(crate) struct Shared {
    pub(crate) images: Images,
    found: Mutex<Vec<WalkCaches>>,
}

impl Shared {
    pub(crate) fn new(images: Images) -> Shared {
        Shared { images, found: Mutex::default() }
    }
}

pub(crate) struct Walker {
    pub(crate) shared: Arc<Shared>,
    found: WalkCaches,
}

struct WalkCaches {
    lookup: Lookup,
    known: RuleCache,
    context: Context,
}

impl Walker {
    pub(crate) fn new(shared: Arc<Shared>) -> Walker {
        let found = shared.found.lock().ok().and_then(|mut found| found.pop());
        let found = found.unwrap_or_else(|| {
            let lookup = Lookup::new(shared.images.spaces.clone());
            WalkCaches { lookup, known: RuleCache::default(), context: Context::default() }
        });
        Walker { shared, found }
    }

    /// Passes its caches on to a later batch.
    pub(crate) fn end(self) {
        if let Ok(mut found) = self.shared.found.lock() {
            found.push(self.found);
        }
    }

    /// Appends the addresses of a stack's frames: the instruction pointer, and for each caller the last byte
    /// of its call, as perf inject stores them. `start` is the instruction pointer, and `regs` has the stack
    /// pointer.
    pub(crate) fn walk(
        &mut self,
        (space, key): (Space, OrderKey),
        arch: &Architecture,
        start: u64,
        mut regs: Registers,
        stack: Stack<'_>,
        frames: &mut Vec<u64>,
    ) -> End {
        let Walker { shared, found } = self;
        let images = &shared.images;
        let WalkCaches { lookup, known, context } = found;
        let most = frames.len() + MOST_FRAMES;
        let mut frame = Frame { pc: start, is_next: true };
        loop {
            // A return address may be after its function, if that ends with a call.
            let at = if frame.is_next { frame.pc } else { frame.pc.wrapping_sub(1) };
            let hit = lookup.find(space, at, key);
            let mut rule = match hit {
                Some(hit) => known.get(images, hit, at, context),
                None => &Rule::FramePointer,
            };
            if matches!(rule, Rule::NoCode) {
                // The instruction pointer may be in any mapping.
                match frame.is_next {
                    true => rule = &Rule::FramePointer,
                    false => return End::Broken,
                }
            }
            // Without tables, the innermost function may have no frame of its own.
            let is_uncovered = matches!(rule, Rule::Uncovered);
            if frame.is_next && (is_uncovered || matches!(rule, Rule::FramePointer) && !arch.call_pushes) {
                let linked = return_of_leaf(&regs, arch, stack);
                let own = recorded_return(&regs, arch, stack).filter(|_| !is_uncovered);
                let is_code = |pc: u64| pc > 0 && lookup.find(space, pc - 1, key).is_some();
                let is_leaf = linked != own && linked.is_some_and(is_code);
                rule = if is_leaf { &Rule::Uncovered } else { &Rule::FramePointer };
            }
            frames.push(if rule.is_of_signal() { frame.pc } else { at });
            if frames.len() >= most {
                return End::TooLong;
            }
            frame = match caller(rule, frame, &mut regs, arch, stack) {
                Ok(caller) if caller.pc == 0 => return End::Outermost,
                Ok(Frame { pc, .. }) if is_uncovered && lookup.find(space, pc - 1, key).is_none() => {
                    return End::Broken;
                }
                Ok(caller) => caller,
                Err(End::Broken) if matches!(rule, Rule::Missing | Rule::Refused) => {
                    return hit.map_or(End::Broken, |hit| End::Missing(hit.dso));
                }
                Err(end) => return end,
            };
        }
    }
}

impl Walker {
    /// The caller of an innermost frame at `pc`, if only the link register `lr` is known.
    pub(crate) fn linked(
        &mut self,
        (space, key): (Space, OrderKey),
        arch: &Architecture,
        pc: u64,
        lr: u64,
    ) -> Caller {
        let WalkCaches { lookup, known, context } = &mut self.found;
        let hit = lookup.find(space, pc, key);
        let rule = match hit {
            Some(hit) => known.get(&self.shared.images, hit, pc, context),
            None => &Rule::FramePointer,
        };
        let is_linked = match rule {
            Rule::Simple { saved, .. } => saved[0] == SAME,
            Rule::Complex(complex) => complex.keeps_return_address(arch),
            Rule::Uncovered | Rule::FramePointer | Rule::NoCode => true,
            Rule::SignalReturn(_) | Rule::Outermost | Rule::Refused => false,
            Rule::Missing => return hit.map_or(Caller::NotLinked, |hit| Caller::Missing(hit.dso)),
        };
        let caller = arch.pointer(lr);
        let call = caller.wrapping_sub(1);
        match lookup.find(space, call, key) {
            Some(hit) if is_linked => {
                let is_of_signal = known.get(&self.shared.images, hit, call, context).is_of_signal();
                Caller::Linked(if is_of_signal { caller } else { call })
            }
            _ => Caller::NotLinked,
        }
    }
}

fn return_of_leaf(regs: &Registers, arch: &Architecture, stack: Stack<'_>) -> Option<u64> {
    let found = match arch.call_pushes {
        true => regs.get(arch.sp).and_then(|sp| stack.read(sp)),
        false => regs.get(arch.return_address),
    };
    found.map(|value| arch.pointer(value))
}

/// The return address in the frame at the frame pointer.
fn recorded_return(regs: &Registers, arch: &Architecture, stack: Stack<'_>) -> Option<u64> {
    let cfa = regs.get(arch.fp)?.checked_add(u64::from(arch.frame_record? * arch.word))?;
    stack.read(cfa.checked_sub(arch.word.into())?).map(|value| arch.pointer(value))
}

#[derive(Clone, Copy)]
struct Frame {
    pc: u64,
    /// `pc` is the address of the next instruction, not a return address.
    is_next: bool,
}

#[inline]
fn caller(
    rule: &Rule,
    frame: Frame,
    regs: &mut Registers,
    arch: &Architecture,
    stack: Stack<'_>,
) -> Result<Frame, End> {
    match rule {
        Rule::Simple { base, offset, saved } => {
            let cfa = regs.get(*base).and_then(|base| base.checked_add_signed(i64::from(*offset)));
            restore(cfa.ok_or(End::Broken)?, saved, frame, regs, arch, stack)
        }
        Rule::Complex(complex) => {
            let mut unread = None;
            let mut read = |address| {
                let value = stack.read(address);
                unread = value.is_none().then_some(address).or(unread);
                value
            };
            regs.set(arch.pc, frame.pc);
            let found = complex.apply(regs, arch, &mut read);
            let sp = regs.get(arch.sp);
            let end = || unread.map_or(End::Broken, |address| stack.end_at(address));
            let found = found.ok_or_else(end)?;
            let pc = match complex.keeps_return_address(arch) {
                // Only the innermost frame may still have it in the register.
                true if frame.is_next => regs.get(arch.return_address),
                true => return Err(End::Outermost),
                false => found.get(complex.return_address),
            };
            let pc = pc.ok_or_else(end)?;
            if !complex.is_signal && !goes_up(sp, found.get(arch.sp), frame) {
                return Err(End::Broken);
            }
            *regs = found;
            Ok(Frame { pc: arch.pointer(pc), is_next: complex.is_signal })
        }
        Rule::Uncovered if frame.is_next => {
            let sp = regs.get(arch.sp).ok_or(End::Broken)?;
            let mut saved = [SAME; MOST_SAVED];
            if arch.call_pushes {
                saved[0] = -1;
            }
            let cfa = arch.cfa_of_leaf(sp).ok_or(End::Broken)?;
            restore(cfa, &saved, frame, regs, arch, stack)
        }
        Rule::Uncovered | Rule::FramePointer | Rule::NoCode => {
            let (fp, record) = regs.get(arch.fp).zip(arch.frame_record).ok_or(End::Broken)?;
            if fp == 0 {
                return Err(End::Outermost);
            }
            let mut saved = [LOST; MOST_SAVED];
            (saved[0], saved[1]) = (-1, -2);
            let cfa = fp.checked_add(u64::from(record * arch.word)).ok_or(End::Broken)?;
            restore(cfa, &saved, frame, regs, arch, stack)
        }
        &Rule::SignalReturn(of) => {
            let sp = regs.get(arch.sp).ok_or(End::Broken)?;
            let interrupted = Registers::interrupted(sp, of, arch, |address| stack.read(address));
            *regs = interrupted.ok_or_else(|| stack.end_at(sp))?;
            Ok(Frame { pc: regs.get(arch.pc).ok_or(End::Broken)?, is_next: true })
        }
        Rule::Outermost => Err(End::Outermost),
        Rule::Refused if !frame.is_next => Err(End::Outermost),
        Rule::Refused | Rule::Missing => Err(End::Broken),
    }
}

#[inline]
fn restore(
    cfa: u64,
    saved: &[i8],
    frame: Frame,
    regs: &mut Registers,
    arch: &Architecture,
    stack: Stack<'_>,
) -> Result<Frame, End> {
    let sp = regs.get(arch.sp);
    let caller_sp = cfa.wrapping_sub(arch.cfa_above_sp);
    if !goes_up(sp, Some(caller_sp), frame) {
        return Err(End::Broken);
    }
    let place = |distance: i8| cfa.wrapping_add_signed(i64::from(arch.word) * i64::from(distance));
    let pc = match saved[0] {
        // Only the innermost frame may still have it in the register.
        SAME if frame.is_next => regs.get(arch.return_address).ok_or(End::Broken)?,
        SAME | LOST => return Err(End::Outermost),
        distance => stack.read(place(distance)).ok_or_else(|| stack.end_at(place(distance)))?,
    };
    for (&number, &distance) in arch.saved.iter().zip(saved).skip(1) {
        match distance {
            SAME => {}
            LOST => regs.forget(number),
            distance => match stack.read(place(distance)) {
                Some(value) => regs.set(number, value),
                // At the end of a function, the register may already be restored, and its slot is below the
                // stack pointer, which is not recorded.
                None if frame.is_next && sp.is_some_and(|sp| place(distance) < sp) => {}
                None => regs.forget(number),
            },
        }
    }
    regs.keep(arch.kept);
    regs.set(arch.sp, caller_sp);
    Ok(Frame { pc: arch.pointer(pc), is_next: false })
}

/// True if a caller's stack pointer is above that of its callee, which ensures that a walk ends. Only the
/// innermost function may have its return address in a register.
#[inline]
fn goes_up(sp: Option<u64>, caller: Option<u64>, frame: Frame) -> bool {
    sp.zip(caller).is_some_and(|(sp, caller)| caller > sp || caller == sp && frame.is_next)
}

#[derive(Default)]
struct RuleCache {
    /// By the lowest bits of a hash of the block.
    entries: Vec<Entry>,
    misses: usize,
}

struct Entry {
    dso: u32,
    /// The length of the range where it applies, bytes.
    len: u32,
    start: u64,
    rule: Rule,
}

/// The size of a block of code in bytes, as a power of two. Most blocks have one rule.
const BLOCK_BITS: u32 = 4;

const LEAST_ENTRIES: usize = 1 << 10;
const MOST_ENTRIES: usize = 1 << 15;

impl RuleCache {
    #[inline]
    fn get(&mut self, images: &Images, hit: Hit, at: u64, context: &mut Context) -> &Rule {
        let offset = images.offset(hit, at);
        let slot = slot(hit.dso, offset, self.entries.len());
        let is_known =
            |entry: &Entry| entry.dso == hit.dso && offset.wrapping_sub(entry.start) < entry.len.into();
        let slot = match self.entries.get(slot) {
            Some(entry) if is_known(entry) => slot,
            _ => self.find(images, hit, offset, context),
        };
        &self.entries[slot].rule
    }

    #[cold]
    fn find(&mut self, images: &Images, hit: Hit, offset: u64, context: &mut Context) -> usize {
        let size = self.entries.len();
        if self.misses >= size && size < MOST_ENTRIES {
            self.entries.clear();
            let empty = || Entry { dso: 0, len: 0, start: 0, rule: Rule::Missing };
            self.entries.resize_with((2 * size).max(LEAST_ENTRIES), empty);
            self.misses = 0;
        }
        self.misses += 1;
        let start = offset >> BLOCK_BITS << BLOCK_BITS;
        let everywhere = start..u64::MAX;
        let (rule, range) = match images.get(hit) {
            Loaded::Memory => (Rule::FramePointer, everywhere),
            Loaded::Data => (Rule::NoCode, everywhere),
            Loaded::Missing(_) => (Rule::Missing, everywhere),
            Loaded::Image(rules) => rules.get(offset, context),
        };
        let slot = slot(hit.dso, offset, self.entries.len());
        let len = u32::try_from(range.end.saturating_sub(range.start)).unwrap_or(u32::MAX);
        self.entries[slot] = Entry { dso: hit.dso, len, start: range.start, rule };
        slot
    }
}

/// The slot of a block in a table of this size, which is a power of two.
#[inline]
fn slot(dso: u32, offset: u64, size: usize) -> usize {
    let block = offset >> BLOCK_BITS ^ u64::from(dso) << 40;
    // 2^64 divided by the golden ratio spreads neighbours.
    (block.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as usize & size.wrapping_sub(1)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use perfx_format::header::Features;
    use perfx_format::sample::{Regs, U64s};
    use perfx_model::address_space::{AddressSpaces, Changes, Machine};
    use perfx_model::mapped_files::MappedFiles;
    use symbols::SignalFrame;

    use super::*;
    use crate::arch::{AARCH64, Architectures, X86_64};
    use perfx_resolve::{IdOptions, RecordedIds};

    /// Walks a stack in code that is in no file.
    fn walk(arch: &'static Architecture, mask: u64, values: &[u64], words: &[u64]) -> (Vec<u64>, End) {
        let endian = Endian::Little;
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let spaces = Arc::new(AddressSpaces::new(Changes::default()));
        let ids = RecordedIds::new(&Features::new(), endian, &[]);
        let (files, options, made) = (MappedFiles::default(), IdOptions::default(), HashMap::new());
        let archs = Architectures::of_machine("x86_64");
        let images = Images::new((archs, endian), spaces, files, ids, options, &Default::default(), made);
        let (values, stack) = (bytes(values), bytes(words));
        let regs = Regs { abi: 2, mask, values: U64s::new(&values, endian) };
        let regs = Registers::recorded(&regs, arch);
        let (pc, sp) = regs.get(arch.pc).zip(regs.get(arch.sp)).expect("it has the registers");
        let stack = Stack { start: sp, bytes: &stack, is_cut: true, endian, word: arch.word };
        let (space, mut frames) = (Space { machine: Machine::Host, pid: 1 }, Vec::new());
        let mut walker = Walker::new(Arc::new(Shared::new(images)));
        let end = walker.walk((space, OrderKey::FIRST), arch, pc, regs, stack, &mut frames);
        (frames, end)
    }

    #[test]
    fn frame_pointers_lead_through_code_without_a_file() {
        // rbp, rsp, rip; a frame pointer and a return address at rbp, and again; then the copy ends.
        let words = [0, 0x1020, 0x5001, 7, 0x1040, 0x6001, 7, 8];
        let found = walk(&X86_64, 0b1_1100_0000, &[0x1008, 0x1000, 0x4000], &words);
        assert_eq!(found, (vec![0x4000, 0x5000, 0x6000], End::StackCut));
        // A frame pointer of 0 is the outermost.
        let found = walk(&X86_64, 0b1_1100_0000, &[0x1008, 0x1000, 0x4000], &[0, 0, 0x5001]);
        assert_eq!(found, (vec![0x4000, 0x5000], End::Outermost));
        // One below the stack pointer leads nowhere.
        let found = walk(&X86_64, 0b1_1100_0000, &[0x800, 0x1000, 0x4000], &[0, 0, 0x5001]);
        assert_eq!(found, (vec![0x4000], End::Broken));
    }

    #[test]
    fn return_addresses_of_aarch64_lose_their_authentication_codes() {
        // x29, x30, sp, pc.
        let words = [0, 0x1020, 0x00ab_0000_0000_5004, 7, 0, 0x00cd_0000_0000_6004, 7];
        let values = [0x1008, 0x4f04, 0x1000, 0x4000];
        let (frames, end) = walk(&AARCH64, 0b1111 << 29, &values, &words);
        assert_eq!((&frames[..2], end), (&[0x4000, 0x5003][..], End::Outermost));
        assert!(frames[2..].iter().all(|&frame| frame == 0x6003), "{frames:x?}");
    }

    #[test]
    fn the_frame_of_a_signal_holds_the_registers_of_the_interrupted_code() {
        let interrupted = |arch| Registers::interrupted(0x1000, SignalFrame::Rt, arch, Some).unwrap();
        let x86 = interrupted(&X86_64);
        // rip, rsp and rbp are 168, 160 and 120 bytes after the stack pointer.
        let found = [X86_64.pc, X86_64.sp, X86_64.fp].map(|number| x86.get(number));
        assert_eq!(found, [Some(0x10a8), Some(0x10a0), Some(0x1078)]);
        let aarch64 = interrupted(&AARCH64);
        let x = |number: u64| Some(0x1000 + 0x138 + 8 * number);
        assert_eq!([32, 31, 30, 29].map(|number| aarch64.get(number)), [x(32), x(31), x(30), x(29)]);
        assert!(Registers::interrupted(0x1000, SignalFrame::Rt, &X86_64, |_| None).is_none());
    }

    /// Regression: the dynamic linker's resolver finds its frame by rbx, which its callees have saved.
    #[test]
    fn a_frame_is_found_by_any_register_that_callees_save() {
        let bytes: Vec<u8> =
            [7, 0x1020, 0x5001, 8, 9, 0x6001].iter().flat_map(|word: &u64| word.to_le_bytes()).collect();
        let stack = Stack { start: 0x1000, bytes: &bytes, is_cut: true, endian: Endian::Little, word: 8 };
        let (values, mask) = (0x1000u64.to_le_bytes(), 1 << 7);
        let sample = Regs { abi: 2, mask, values: U64s::new(&values, Endian::Little) };
        let mut regs = Registers::recorded(&sample, &X86_64);
        // rbx is at CFA - 16 and rip at CFA - 8.
        let callee = Rule::Simple { base: 7, offset: 24, saved: [-1, SAME, -2, SAME, SAME, SAME, LOST] };
        let resolver = Rule::Simple { base: 3, offset: 16, saved: [-1, SAME, SAME, SAME, SAME, SAME, SAME] };
        let frame = Frame { pc: 0x4000, is_next: true };
        let frame = caller(&callee, frame, &mut regs, &X86_64, stack).unwrap();
        assert_eq!((frame.pc, regs.get(3)), (0x5001, Some(0x1020)));
        let frame = caller(&resolver, frame, &mut regs, &X86_64, stack).unwrap();
        assert_eq!((frame.pc, regs.get(X86_64.sp)), (0x6001, Some(0x1030)));
    }
}

//! Walks a user stack from its innermost frame to its outermost, by the files that were mapped at the time.

use std::sync::Arc;

use framehop::{FrameAddress, Unwinder as _};
use perfx_format::Endian;
use perfx_model::address_space::{Lookup, Space};

use super::arch::Architecture;
use super::images::{Images, Loaded};

/// The most frames of a call chain. More are those of an endless loop, and readers do not show so many.
const MOST_FRAMES: usize = 1024;

/// A copy of the top of a stack.
#[derive(Clone, Copy)]
pub(super) struct Stack<'a> {
    /// The stack pointer.
    pub(super) start: u64,
    /// What was copied.
    pub(super) bytes: &'a [u8],
    /// The stack has more than was copied.
    pub(super) is_cut: bool,
    pub(super) endian: Endian,
}

impl Stack<'_> {
    fn read(&self, address: u64) -> Result<u64, ()> {
        let at = address.checked_sub(self.start).and_then(|at| usize::try_from(at).ok());
        at.and_then(|at| self.endian.u64(self.bytes, at)).ok_or(())
    }

    /// How a walk ends that can't read this address.
    fn end_at(&self, address: u64) -> End {
        let end = self.start.saturating_add(self.bytes.len() as u64);
        if self.is_cut && address.saturating_add(8) > end { End::StackCut } else { End::Broken }
    }
}

/// Why a walk ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum End {
    /// At the outermost frame.
    Outermost,
    /// The recorded stack ends there.
    StackCut,
    /// At code of this DSO, whose file is missing.
    Missing(u32),
    /// At the most frames that a call chain may have.
    TooLong,
    /// The tables do not fit the stack.
    Broken,
}

/// Walks stacks on one thread.
pub(super) struct Walker<A: Architecture> {
    pub(super) images: Arc<Images<A>>,
    lookup: Lookup,
    cache: A::Cache,
}

impl<A: Architecture> Walker<A> {
    pub(super) fn new(images: Arc<Images<A>>) -> Walker<A> {
        Walker { lookup: Lookup::new(images.spaces.clone()), images, cache: A::Cache::default() }
    }

    /// Appends the addresses of a stack's frames: the instruction pointer, and for each caller the last byte
    /// of its call, as perf inject stores them.
    pub(super) fn walk(
        &mut self,
        (space, time): (Space, u64),
        (mut pc, mut regs): (u64, A::Regs),
        stack: Stack<'_>,
        frames: &mut Vec<u64>,
    ) -> End {
        let Walker { images, lookup, cache } = self;
        let most = frames.len() + MOST_FRAMES;
        // The address is that of the next instruction, and not a return address.
        let mut is_next = true;
        loop {
            // A return address may be behind its function, if that ends with a call.
            let at = if is_next { pc } else { pc.wrapping_sub(1) };
            let hit = lookup.find(space, at, time);
            let image = match hit.map(|hit| (hit, images.get(hit))) {
                None | Some((_, Loaded::Memory)) => None,
                Some((hit, Loaded::Image(image))) => {
                    let own = image.address_of(images.offset(hit, at));
                    own.map(|own| (image, own.wrapping_sub(at)))
                }
                Some((hit, Loaded::Missing(_))) => {
                    frames.push(at);
                    return End::Missing(hit.dso);
                }
            };
            let (unwinder, shift) =
                image.map_or((&images.nowhere, 0), |(image, shift)| (&image.unwinder, shift));
            let own = pc.wrapping_add(shift);
            let is_signal = image.is_some_and(|(image, _)| image.is_signal_return(own));
            frames.push(if is_signal { pc } else { at });
            if frames.len() >= most {
                return End::TooLong;
            }
            if is_signal {
                let sp = A::sp(&regs);
                let Ok(interrupted) = A::interrupted(sp, |address| stack.read(address)) else {
                    return stack.end_at(sp);
                };
                (pc, regs) = interrupted;
                is_next = true;
                continue;
            }
            let address = match is_next {
                true => Some(FrameAddress::from_instruction_pointer(own)),
                false => FrameAddress::from_return_address(own),
            };
            let Some(address) = address else { return End::Broken };
            let mut unread = None;
            let caller = unwinder.unwind_frame(address, &mut regs, cache, &mut |address| {
                stack.read(address).inspect_err(|()| unread = Some(address))
            });
            if unread.is_some() || caller.is_err() {
                // If the rule for an address does not work, framehop takes the one for frame pointers, also for
                // later stacks, which may fit the rule. This puts another entry into its place in the cache.
                let _ = images.nowhere.unwind_frame(address, &mut regs.clone(), cache, &mut |_| Err(()));
            }
            match caller {
                Ok(None | Some(0)) => return End::Outermost,
                Ok(Some(caller)) => (pc, is_next) = (caller, false),
                Err(_) => return unread.map_or(End::Broken, |address| stack.end_at(address)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use perfx_format::header::Features;
    use perfx_format::sample::{Regs, U64s};
    use perfx_model::address_space::{AddressSpaces, Changes, Machine};
    use perfx_model::mapped_files::MappedFiles;

    use super::super::arch::{Aarch64, X86_64};
    use super::*;
    use crate::support::ids::{IdOptions, RecordedIds};

    /// Walks a stack in code that is in no file.
    fn walk<A: Architecture>(mask: u64, values: &[u64], words: &[u64]) -> (Vec<u64>, End) {
        let endian = Endian::Little;
        let bytes = |words: &[u64]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
        let spaces = Arc::new(AddressSpaces::new(Changes::default()));
        let ids = RecordedIds::new(&Features::new(), endian, &[]);
        let (files, options, made) = (MappedFiles::default(), IdOptions::default(), Vec::new());
        let temp_files: perfx_format::read::TempFiles = Arc::new(tempfile::tempfile);
        let images = Images::<A>::new(spaces, files, ids, options, &Default::default(), made, temp_files);
        let (values, stack) = (bytes(values), bytes(words));
        let regs = Regs { abi: 2, mask, values: U64s::new(&values, endian) };
        let (pc, sp, start) = A::start(&regs).expect("it has the registers");
        let stack = Stack { start: sp, bytes: &stack, is_cut: true, endian };
        let (space, mut frames) = (Space { machine: Machine::Host, pid: 1 }, Vec::new());
        let end = Walker::new(Arc::new(images)).walk((space, 0), (pc, start), stack, &mut frames);
        (frames, end)
    }

    #[test]
    fn frame_pointers_lead_through_code_without_a_file() {
        // rbp, rsp, rip; a frame pointer and a return address at rbp, and again; then the copy ends.
        let words = [0, 0x1020, 0x5001, 7, 0x1040, 0x6001, 7, 8];
        let found = walk::<X86_64>(0b1_1100_0000, &[0x1008, 0x1000, 0x4000], &words);
        assert_eq!(found, (vec![0x4000, 0x5000, 0x6000], End::StackCut));
        // A frame pointer of 0 is the outermost.
        let found = walk::<X86_64>(0b1_1100_0000, &[0x1008, 0x1000, 0x4000], &[0, 0, 0x5001]);
        assert_eq!(found, (vec![0x4000, 0x5000], End::Outermost));
        // One below the stack pointer leads nowhere.
        let found = walk::<X86_64>(0b1_1100_0000, &[0x800, 0x1000, 0x4000], &[0, 0, 0x5001]);
        assert_eq!(found, (vec![0x4000], End::Broken));
    }

    #[test]
    fn return_addresses_of_aarch64_lose_their_authentication_codes() {
        // x29, x30, sp, pc.
        let words = [0, 0x1020, 0x00ab_0000_0000_5004, 7, 0, 0x00cd_0000_0000_6004, 7];
        let values = [0x1008, 0x4f04, 0x1000, 0x4000];
        let (frames, end) = walk::<Aarch64>(0b1111 << 29, &values, &words);
        assert_eq!((&frames[..2], end), (&[0x4000, 0x5003][..], End::Outermost));
        assert!(frames[2..].iter().all(|&frame| frame == 0x6003), "{frames:x?}");
    }

    #[test]
    fn the_frame_of_a_signal_holds_the_registers_of_the_interrupted_code() {
        let x86 = |address: u64| Ok(address);
        let (ip, regs) = X86_64::interrupted(0x1000, x86).unwrap();
        // rip, rsp and rbp are 168, 160 and 120 bytes behind the stack pointer.
        assert_eq!((ip, regs.sp(), regs.bp()), (0x10a8, 0x10a0, 0x1078));
        let (pc, regs) = Aarch64::interrupted(0x1000, Ok).unwrap();
        let x = |number: u64| 0x1000 + 0x138 + 8 * number;
        assert_eq!((pc, regs.sp(), regs.lr(), regs.fp()), (x(32), x(31), x(30), x(29)));
        assert!(X86_64::interrupted(0x1000, |_| Err(())).is_err());
    }
}

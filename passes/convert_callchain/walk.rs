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

//! Finds the file or kernel of an address in a sample, and the offset in it.

use std::ops::Range;

use perfx_format::record::cpumode::USER;
use perfx_format::sample::frames_of;
use perfx_format::{Layout, Layouts, OrderKey, Record};
use perfx_model::address_space::{Machine, Space};

use crate::facts::Facts;

/// A resolved address of a chain.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Frame {
    /// The DSO mapped there; `None` if none was.
    pub dso: Option<u32>,
    /// The offset in the file, bytes; the address for a kernel, memory without a file, and no mapping.
    pub at: u64,
    /// The cpumode of the code.
    pub mode: u16,
    /// The process, for memory without a file, where JIT compilers put their code; else 0.
    pub process: u32,
}

impl Frame {
    /// Stands for the time in which a thread was not traced.
    pub const UNTRACED: Frame = Frame { dso: None, at: 0, mode: USER, process: u32::MAX };

    fn nowhere(mode: u16, address: u64) -> Frame {
        Frame { dso: None, at: address, mode, process: 0 }
    }
}

/// The frame at an address of a space, and the times for which this result holds.
fn frame_in(
    facts: &Facts,
    space: Space,
    key: OrderKey,
    (mode, address): (u16, u64),
) -> (Frame, Range<OrderKey>) {
    let (hit, valid) = facts.spaces.find(space, address, key);
    let process = if hit.is_some_and(|hit| facts.has_jit(hit, space)) { space.pid } else { 0 };
    let at = match hit {
        Some(hit) if process == 0 => facts.files.offset(hit, address),
        _ => address,
    };
    let dso = hit.map(|hit| hit.dso).or_else(|| facts.beyond_kernel(space.machine, mode, address));
    (Frame { dso, at, mode, process }, valid)
}

/// The frame at an address with its cpumode, at the time of a record of process `pid`.
pub fn frame_at(
    facts: &Facts,
    (record, layouts): (&Record<'_>, &Layouts),
    pid: Option<u32>,
    key: OrderKey,
    (mode, address): (u16, u64),
) -> Frame {
    match facts.guests.space(record, layouts, pid, mode) {
        Some(space) => frame_in(facts, space, key, (mode, address)).0,
        None => Frame::nowhere(mode, address),
    }
}

/// The addresses of a sample as `perf report` counts it, with their cpumodes, innermost first: the sampled
/// address replaces the first one of its call chain. Before the first marker, perf assumes user mode.
pub fn stack_of(
    sample: &Record<'_>,
    layout: &Layout,
    chain: impl Iterator<Item = u64>,
) -> impl Iterator<Item = (u16, u64)> {
    let own = layout.ip(sample).map(|ip| (sample.cpumode(), ip));
    let level = |(mode, address)| (sample.level(mode), address);
    let mut chain = frames_of(chain, USER).map(level).peekable();
    // The chain of a kernel sample may begin in user mode (exclude_callchain_kernel).
    if let Some((mode, _)) = own {
        chain.next_if(|(first, _)| *first == mode);
    }
    own.into_iter().chain(chain)
}

/// Caches values by frame: most samples share frames with earlier ones.
#[derive(Clone, Debug)]
pub struct FrameCache<T> {
    known: Box<[Known<T>]>,
}

/// The value for an address of a space between two changes.
#[derive(Clone, Copy, Debug)]
struct Known<T> {
    space: Space,
    address: u64,
    from: OrderKey,
    until: OrderKey,
    value: T,
}

const KNOWN: usize = 1 << 13;

impl<T: Default> Default for Known<T> {
    fn default() -> Self {
        let space = Space { machine: Machine::Host, pid: 0 };
        // `from` above `until` matches no key.
        Known { space, address: 0, from: OrderKey::END, until: OrderKey::FIRST, value: T::default() }
    }
}

impl<T: Copy + Default> Default for FrameCache<T> {
    fn default() -> Self {
        FrameCache { known: vec![Known::default(); KNOWN].into() }
    }
}

impl<T: Copy + Default> FrameCache<T> {
    /// Forgets all values.
    pub fn clear(&mut self) {
        self.known.fill(Known::default());
    }
}

impl<T: Copy> FrameCache<T> {
    /// The value for the frame at an address of a space, given with its cpumode; without a space, nothing is
    /// mapped. A missing value is computed by `learn`, which may be called several times for a frame.
    ///
    /// # Errors
    ///
    /// The errors of `learn`.
    pub fn get<E>(
        &mut self,
        facts: &Facts,
        space: Option<Space>,
        key: OrderKey,
        place: (u16, u64),
        learn: impl FnOnce(Frame) -> Result<T, E>,
    ) -> Result<T, E> {
        Ok(self.get_during(facts, space, key, place, learn)?.0)
    }

    /// [`FrameCache::get`], with the times for which the value holds.
    ///
    /// # Errors
    ///
    /// The errors of `learn`.
    #[inline]
    pub fn get_during<E>(
        &mut self,
        facts: &Facts,
        space: Option<Space>,
        key: OrderKey,
        (mode, address): (u16, u64),
        learn: impl FnOnce(Frame) -> Result<T, E>,
    ) -> Result<(T, Range<OrderKey>), E> {
        let Some(space) = space else { return Ok((learn(Frame::nowhere(mode, address))?, OrderKey::ALL)) };
        let slot = (address ^ address >> 13 ^ u64::from(space.pid) << 4) as usize % KNOWN;
        let known = self.known[slot];
        if known.address == address && known.space == space && known.from <= key && key < known.until {
            return Ok((known.value, known.from..known.until));
        }
        let (frame, valid) = frame_in(facts, space, key, (mode, address));
        let value = learn(frame)?;
        self.known[slot] = Known { space, address, from: valid.start, until: valid.end, value };
        Ok((value, valid))
    }
}

/// The last resolved chain's addresses: most chains share their outer frames with it.
#[derive(Clone, Debug, Default)]
pub struct LastChain {
    addresses: Vec<ChainAddress>,
    before: Vec<ChainAddress>,
    /// The times for which its frames are valid.
    during: Range<OrderKey>,
}

/// An address of a chain with its cpumode, and its space.
pub type ChainAddress = (Option<Space>, (u16, u64));

impl LastChain {
    /// Sets the addresses of the next chain, innermost first, and its key. Returns the number of outermost
    /// frames shared with the last chain.
    pub fn next(&mut self, key: OrderKey, chain: impl Iterator<Item = ChainAddress>) -> usize {
        std::mem::swap(&mut self.addresses, &mut self.before);
        self.addresses.clear();
        self.addresses.extend(chain);
        if !self.during.contains(&key) {
            self.during = OrderKey::ALL;
            return 0;
        }
        let both = self.addresses.iter().rev().zip(self.before.iter().rev());
        both.take_while(|(new, known)| new == known).count()
    }

    /// The addresses, innermost first.
    pub fn addresses(&self) -> &[ChainAddress] {
        &self.addresses
    }

    /// Limits its validity to the keys of one of its frames.
    pub fn is_during(&mut self, keys: &Range<OrderKey>) {
        self.during = self.during.start.max(keys.start)..self.during.end.min(keys.end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_shared_from_the_outermost_on_while_the_mappings_last() {
        let space = |pid| Some(Space { machine: Machine::Host, pid });
        let chain = |addresses: &[u64]| -> Vec<ChainAddress> {
            addresses.iter().map(|&address| (space(1), (USER, address))).collect()
        };
        let mut last = LastChain::default();
        let mut next = |key, addresses: &[u64], until: u64| {
            let shared = last.next(OrderKey::at(key), chain(addresses).into_iter());
            last.is_during(&(OrderKey::FIRST..OrderKey::at(until)));
            (shared, last.addresses().len())
        };
        assert_eq!(next(1, &[7, 8, 9], 50), (0, 3));
        assert_eq!(next(2, &[5, 8, 9], 50), (2, 3));
        assert_eq!(next(3, &[6, 5, 8, 9], 50), (3, 4));
        assert_eq!(next(4, &[8, 9, 8], 50), (0, 3));
        assert_eq!(next(5, &[8], 10), (1, 1));
        assert_eq!(next(9, &[7, 8], 50), (1, 2), "one of its frames is there up to 10");
        assert_eq!(next(10, &[7, 8], 50), (0, 2));
        assert_eq!(next(11, &[7, 8], 50), (2, 2));
        let other: Vec<_> = chain(&[7, 8]).into_iter().map(|(_, address)| (space(2), address)).collect();
        assert_eq!(last.next(OrderKey::at(12), other.into_iter()), 0);
    }
}

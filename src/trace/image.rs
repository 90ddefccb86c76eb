//! The code that was executed, provided by the caller: the bytes at an address of an address space at a time.

use std::ops::Deref;
use std::sync::Arc;

/// An address space, numbered by the caller: a process, or a guest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Space(pub u32);

/// From `time` on, a CPU or thread runs in `space`.
///
/// The list of a buffer is sorted by time. A switch takes effect once the trace has reached its time and the
/// flow is in the kernel: user code cannot change the address space, and a tracer's times are often late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch {
    /// In the trace's unit: for Intel PT ticks of the time-stamp counter.
    pub time: u64,
    /// `None` if unknown; then only kernel code is found.
    pub space: Option<Space>,
    /// The space of the guest that this thread runs; `None` if unknown. Then the guest is not decoded.
    pub guest: Option<Space>,
}

/// The switches of a buffer, sorted by time. Copies share them: a buffer can have many traces.
#[derive(Clone, Debug, Default)]
pub struct Switches(Arc<[Switch]>);

impl From<Vec<Switch>> for Switches {
    /// Sorts them by time if necessary.
    fn from(mut switches: Vec<Switch>) -> Switches {
        switches.sort_by_key(|switch| switch.time);
        Switches(switches.into())
    }
}

impl Deref for Switches {
    type Target = [Switch];

    fn deref(&self) -> &[Switch] {
        &self.0
    }
}

/// Contiguous bytes of mapped code.
///
/// Longer mappings decode better: links between blocks do not leave a mapping, and an instruction that
/// crosses its end is not decoded. Adjacent mappings of adjacent bytes of a file should be one.
#[derive(Clone, Copy, Debug)]
pub struct Mapping<'a> {
    /// Identifies these bytes at this address: two mappings with the same id have the same `start` and the
    /// same bytes, in any space at any time. Blocks are cached by it: the kernel should have one.
    pub id: u64,
    /// The address of the first byte.
    pub start: u64,
    /// The code.
    pub bytes: &'a [u8],
    /// The mapping is valid up to this time; `u64::MAX` if the space does not change later.
    pub until: u64,
}

/// Finds the code at an address. Implementations are shared by all threads.
pub trait Image {
    /// The mapping with code at `ip` of `space` at `time`, which need only contain the byte at `ip`.
    ///
    /// An unknown space, an unknown address, and a file that is not the recorded one must give `None`, never
    /// similar code, which would give wrong branches. The result must not depend on earlier calls. Addresses
    /// of the kernel have bit 63 set.
    ///
    /// The decoder caches blocks of recent addresses, and calls this again only for others or after `until`.
    fn code(&self, space: Option<Space>, ip: u64, time: u64) -> Option<Mapping<'_>>;

    /// False if address filters exclude the code at `ip` from the trace.
    fn is_traced(&self, space: Option<Space>, ip: u64, time: u64) -> bool {
        let _ = (space, ip, time);
        true
    }
}

pub(crate) fn is_user(ip: u64) -> bool {
    ip.cast_signed() >= 0
}

impl<I: Image + ?Sized> Image for &I {
    fn code(&self, space: Option<Space>, ip: u64, time: u64) -> Option<Mapping<'_>> {
        (**self).code(space, ip, time)
    }

    fn is_traced(&self, space: Option<Space>, ip: u64, time: u64) -> bool {
        (**self).is_traced(space, ip, time)
    }
}

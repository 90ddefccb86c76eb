//! The code that ran, as the caller has it: bytes at an address of an address space at a time, or nothing.

use std::ops::Deref;
use std::sync::Arc;

/// An address space, numbered by the caller: a process, or a guest.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct Space(pub u32);

/// From `time` on, a CPU or thread runs in `space`.
///
/// The list of a buffer is sorted by time. A switch takes effect when the time of the trace has reached it
/// and the flow is not in user code, which cannot change the address space: a tracer's times are often late.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Switch {
    /// In the trace's unit: for Intel PT ticks of the time-stamp counter.
    pub time: u64,
    /// `None` if it is not known. Then only the code of the kernel can be found.
    pub space: Option<Space>,
    /// Where the code of the guest is that runs while this one runs a guest; `None` if it is not known. Then
    /// the guest is not decoded.
    pub guest: Option<Space>,
}

/// The switches of a buffer, sorted by time. Copies share them: a buffer can have many traces.
#[derive(Clone, Debug, Default)]
pub struct Switches(Arc<[Switch]>);

impl From<Vec<Switch>> for Switches {
    /// Sorts them, if they are not.
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

/// Contiguous bytes of code that are mapped.
///
/// The longer, the better: links between blocks do not leave a mapping, and an instruction that goes across
/// its end is not decoded. Neighbours with neighbouring bytes of one file are better given as one.
#[derive(Clone, Copy, Debug)]
pub struct Mapping<'a> {
    /// Names these bytes at this address: two mappings with one id have the same `start` and the same bytes,
    /// whatever the space and the time. Blocks are kept by it, so the kernel should have one id in all
    /// spaces.
    pub id: u64,
    /// The address of the first byte.
    pub start: u64,
    /// The code.
    pub bytes: &'a [u8],
    /// From this time on the answer may be another one; `u64::MAX` if there is no later change of the space.
    pub until: u64,
}

/// Finds the code at an address. Implementations are shared by all threads.
pub trait Image {
    /// The mapping with code at `ip` of `space` at `time`, of which only the byte at `ip` must be inside.
    ///
    /// An unknown space, an unknown address, and a file that is not the recorded one are `None`, never
    /// something similar: wrong code gives wrong branches. The answer must not depend on earlier questions.
    /// Addresses of the kernel have bit 63 set.
    ///
    /// Asked again only for a block that is not in a small table of recent ones, or after `until`.
    fn code(&self, space: Option<Space>, ip: u64, time: u64) -> Option<Mapping<'_>>;

    /// False if the tracer was told to leave out the code at `ip`, by address filters.
    fn is_traced(&self, space: Option<Space>, ip: u64, time: u64) -> bool {
        let _ = (space, ip, time);
        true
    }
}

/// True for an address of user code.
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

//! An address that a trace tells, and how much of the trace belongs to it.

use crate::image::Space;

/// An address that a packet tells, and the trace up to the next one.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Visit {
    /// Whose code it is; `None` if it is not known.
    pub space: Option<Space>,
    /// The address.
    pub ip: u64,
    /// The time, in ticks.
    pub time: u64,
    /// From the packet up to the next one that tells an address, or that tracing ended.
    pub bytes: u64,
}

/// What a packet tells.
pub(crate) enum Told {
    Nothing,
    At(u64),
    /// Tracing ended, or what comes next is not known.
    End,
}

/// The last address, which waits for the next one.
#[derive(Default)]
pub(crate) struct Last(Option<(Visit, u64)>);

impl Last {
    /// Execution is at another address, or at none, from the packet at `offset` on. Returns the visit that ends there.
    pub(crate) fn replace(&mut self, next: Option<Visit>, offset: u64) -> Option<Visit> {
        let (visit, begin) = std::mem::replace(&mut self.0, next.map(|visit| (visit, offset)))?;
        Some(Visit { bytes: offset.saturating_sub(begin), ..visit })
    }
}

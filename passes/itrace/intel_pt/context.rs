//! The constant inputs of decoding.

use perfx_auxtrace::{Code, Function, Recorded};
use perfx_format::Endian;
use perfx_trace::Space;

use super::events::Events;
use crate::itrace::parts::Room;

/// The constant inputs of decoding.
pub(super) struct Context {
    pub(super) recorded: Recorded,
    /// Where each trace begins in the data of its buffer.
    pub(super) begins: Vec<u64>,
    pub(super) code: Code,
    pub(super) events: Events,
    pub(super) endian: Endian,
    pub(super) threads: usize,
    pub(super) room: Room,
}

impl Context {
    /// Finds functions in the code of a space at a time.
    pub(super) fn functions(&self, space: Option<Space>, ticks: u64) -> impl Fn(u64) -> Option<Function> {
        move |ip| self.code.function(space, ip, ticks)
    }
}

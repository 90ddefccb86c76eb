//! The data of one buffer, and the threads that ran there.

use perfx_format::Bytes;
use perfx_trace::{Switches, Trace};

/// A buffer of a CPU or a thread.
#[derive(Clone, Debug)]
pub struct Buffer {
    /// The CPU, or [`Auxtrace::ANY`](perfx_format::record::aux::Auxtrace::ANY).
    pub cpu: u32,
    /// The thread, or [`Auxtrace::ANY`](perfx_format::record::aux::Auxtrace::ANY).
    pub tid: u32,
    /// Its data; each list is without gaps.
    pub(crate) traces: Vec<Vec<Bytes>>,
    pub(crate) switches: Switches,
}

impl Buffer {
    pub(crate) fn traces(&self) -> impl Iterator<Item = Trace<'_>> {
        self.traces.iter().map(|pieces| {
            let pieces = pieces.iter().map(|piece| &piece[..]).collect();
            Trace::new(pieces, self.switches.clone())
        })
    }
}

//! The facts about the traces of a recording that do not depend on the tracer.

use perfx_model::address_space::Dso;

use crate::mappings::Mappings;
use crate::running::Task;

/// Data of a trace that the kernel lost because a buffer was full (AUX record).
#[derive(Clone, Copy, Debug)]
pub struct Lost {
    /// The time, ns.
    pub time: u64,
    /// The CPU.
    pub cpu: u32,
    /// The thread that ran.
    pub task: Task,
}

/// The assignment of a counter to an event whose samples are written to the trace (AUX_OUTPUT_HW_ID record).
#[derive(Clone, Copy, Debug)]
pub struct Counter {
    /// The time from which it holds, ns.
    pub time: u64,
    /// The CPU, or [`Auxtrace::ANY`](perfx_format::record::aux::Auxtrace::ANY).
    pub cpu: u32,
    /// The thread, or `ANY`.
    pub tid: u32,
    /// The number of the counter.
    pub number: u64,
    /// An id of the event.
    pub id: u64,
}

/// The facts about traces that do not depend on the tracer.
#[derive(Debug)]
pub struct Recorded {
    /// The thread of each [`Space`](perfx_trace::Space).
    pub tasks: Vec<Task>,
    /// The losses reported by the kernel, in file order.
    pub lost: Vec<Lost>,
    /// The number of AUXTRACE records whose data cannot be read again.
    pub unreadable: u64,
    /// The number of AUX records that cover data of earlier ones.
    pub repeated: u64,
    pub(crate) mappings: Mappings,
}

impl Recorded {
    /// The DSOs of the recording, and the process that mapped each first, `None` for those of a kernel.
    pub fn dsos(&self) -> impl ExactSizeIterator<Item = (&Dso, u32, Option<u32>)> {
        self.mappings.dsos()
    }
}

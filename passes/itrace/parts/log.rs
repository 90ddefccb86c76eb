//! The log of what was decoded of a part: a few bytes for each step or path, kept until all that comes before it is known.

use perfx_auxtrace::Part;
use perfx_trace::{Event, PathId, Space, Step};

/// An item that was decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    Step(Step),
    /// A step at whose end the trace tells nothing.
    Straight(Step),
    /// This many paths of the log, one after the other without a new time between them, and their instructions.
    Paths(u32, u32),
    /// The steps of the next path after its lead are at this time, in ticks.
    AfterLead(u64),
    /// The steps and events that follow are at this time, in ticks.
    Time(u64),
    /// A packet contains this time, in ticks.
    Now(u64),
    /// A packet contains this number of core cycles; true if it is exact.
    Cycles(u64, bool),
    /// The steps that follow are of this thread.
    Space(Option<Space>),
    /// An event, by its number.
    Event(u32),
}

/// What was decoded of a part, or of the rest of it that has not been replayed.
#[derive(Debug)]
pub(crate) struct PartLog {
    pub(crate) part: Part,
    pub(crate) entries: Vec<Entry>,
    pub(crate) paths: Vec<PathId>,
    pub(crate) events: Vec<Event>,
}

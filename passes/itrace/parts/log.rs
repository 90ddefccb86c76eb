//! The log of a decoded part: a few bytes for each step or path, kept until all earlier parts are known.

use perfx_auxtrace::Part;
use perfx_trace::{Event, PathId, Space, Step};

/// A decoded item.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    Step(Step),
    /// A step whose end has no packet.
    Straight(Step),
    /// This many paths of the log in a row without a new time between them, and their instructions.
    Paths(u32, u32),
    /// The steps of the next path after its lead are at this time, in ticks.
    AfterLead(u64),
    /// The following steps and events are at this time, in ticks.
    Time(u64),
    /// A packet contains this time, in ticks.
    Now(u64),
    /// A packet contains this number of core cycles; true if it is exact.
    Cycles(u64, bool),
    /// The following steps are of this thread.
    Space(Option<Space>),
    /// An event, by its number.
    Event(u32),
}

/// The decoded part, or its rest that has not been replayed.
#[derive(Debug)]
pub(crate) struct PartLog {
    pub(crate) part: Part,
    pub(crate) entries: Vec<Entry>,
    pub(crate) paths: Vec<PathId>,
    pub(crate) events: Vec<Event>,
}

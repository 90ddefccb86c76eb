//! Notes what was decoded of a part, in a few bytes for each step or path, until all that is in front of it is known.

use perfx_auxtrace::Part;
use perfx_trace::{Blocks, Event, PathId, Point, Sink, Space, Step, each_step};

use super::spool::Spool;

/// What was decoded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Entry {
    Step(Step),
    /// A step at whose end the trace tells nothing.
    Straight(Step),
    /// So many paths of the log, one after the other without a new time between them, and their instructions.
    Paths(u32, u32),
    /// The steps of the next path are at this time, in ticks, but not those of its lead.
    Behind(u64),
    /// The steps and events that follow are at this time, in ticks.
    Time(u64),
    /// A packet told this time, in ticks.
    Now(u64),
    /// A packet told this number of core cycles; true if it is exact.
    Cycles(u64, bool),
    /// The steps that follow are of this thread.
    Space(Option<Space>),
    /// An event, by its number.
    Event(u32),
}

/// What was decoded of a part, or of the front of it that is not done yet.
#[derive(Debug)]
pub(crate) struct Notes {
    pub(crate) part: Part,
    pub(crate) entries: Vec<Entry>,
    pub(crate) paths: Vec<PathId>,
    pub(crate) events: Vec<Event>,
}

/// Makes samples of what a log holds when a part's turn has come, and empties it.
pub(super) trait Maker: Sync {
    fn make(&self, log: &mut Log<'_>, blocks: &Blocks);
}

/// The most entries and paths of a log, some megabytes. A trace without points of synchronization is one part, however
/// long.
const MOST: usize = 1 << 19;

/// The most paths of an entry, of which each is looked at if a sample is among them.
const MOST_PATHS: u32 = 1 << 8;

/// The log of a part, and the samples that were made of its front.
pub(crate) struct Log<'t> {
    maker: &'t dyn Maker,
    pub(super) notes: Notes,
    pub(super) made: Spool,
    time: u64,
    space: Option<Space>,
}

impl Notes {
    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.paths.clear();
        self.events.clear();
    }
}

impl<'t> Log<'t> {
    pub(super) fn new(maker: &'t dyn Maker, made: Spool) -> Log<'t> {
        let part = Part { buffer: 0, trace: 0, number: 0, time: 0 };
        let notes = Notes { part, entries: Vec::new(), paths: Vec::new(), events: Vec::new() };
        Log { maker, notes, made, time: 0, space: None }
    }

    /// A part comes next.
    pub(super) fn begin(&mut self, part: Part) {
        self.notes.part = part;
        // Whatever was there before, the first step has its time and thread.
        self.time = u64::MAX;
        self.space = None;
        self.notes.entries.push(Entry::Space(None));
    }

    /// Makes samples if there are many entries.
    #[inline(always)]
    fn make_room(&mut self, blocks: &Blocks) {
        if self.notes.entries.len() + self.notes.paths.len() >= MOST {
            self.maker.make(self, blocks);
        }
    }

    #[inline(always)]
    fn at(&mut self, time: u64, space: Option<Space>) {
        if self.is_new(time) {
            self.notes.entries.push(Entry::Time(time));
        }
        if space != self.space {
            self.space = space;
            self.notes.entries.push(Entry::Space(space));
        }
    }

    /// Notes a time. True if it is another one.
    #[inline(always)]
    fn is_new(&mut self, time: u64) -> bool {
        std::mem::replace(&mut self.time, time) != time
    }
}

impl Sink for Log<'_> {
    #[inline(always)]
    fn step(&mut self, blocks: &Blocks, point: &Point, step: Step) {
        self.make_room(blocks);
        self.at(point.time, point.space);
        self.notes.entries.push(Entry::Step(step));
    }

    fn straight(&mut self, blocks: &Blocks, point: &Point, step: Step) {
        self.make_room(blocks);
        self.at(point.time, point.space);
        self.notes.entries.push(Entry::Straight(step));
    }

    #[inline(always)]
    fn path(&mut self, blocks: &Blocks, point: &Point, id: PathId) {
        self.make_room(blocks);
        let path = blocks.path(id);
        if path.leaves_kernel {
            // Samples behind it have the time that is estimated there, also if it has none itself.
            return each_step(self, blocks, point, id);
        }
        let lead = usize::from(path.lead);
        self.at(if lead > 0 { point.time } else { self.time }, point.space);
        if lead < path.len() && self.is_new(point.now) {
            self.notes.entries.push(Entry::Behind(point.now));
        }
        self.notes.paths.push(id);
        match self.notes.entries.last_mut() {
            Some(Entry::Paths(count, instructions)) if *count < MOST_PATHS => {
                *count += 1;
                *instructions += path.instructions;
            }
            _ => self.notes.entries.push(Entry::Paths(1, path.instructions)),
        }
    }

    fn event(&mut self, _blocks: &Blocks, point: &Point, event: Event) {
        self.at(point.time, point.space);
        self.notes.entries.push(Entry::Event(self.notes.events.len() as u32));
        self.notes.events.push(event);
    }

    #[inline(always)]
    fn time(&mut self, now: u64) {
        self.notes.entries.push(Entry::Now(now));
    }

    fn cycles(&mut self, total: u64, exact: bool) {
        self.notes.entries.push(Entry::Cycles(total, exact));
    }

    fn forget(&mut self, blocks: &Blocks) {
        self.maker.make(self, blocks);
    }
}

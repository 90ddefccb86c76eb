//! Notes what was decoded, in a few bytes for each step, until the samples of all that is in front of it are made.

use perfx_auxtrace::Part;
use perfx_format::Endian;
use perfx_trace::{Blocks, Event, Point, Sink, Space, Step};

use crate::itrace::made::Made;

/// What was decoded.
#[derive(Clone, Copy, Debug)]
pub(super) enum Entry {
    Step(Step),
    /// The steps and events that follow are at this time, in ticks.
    Time(u64),
    /// A packet told this time, in ticks.
    Now(u64),
    /// The steps that follow are of this thread.
    Space(Option<Space>),
    /// An event, by its number.
    Event(u32),
}

/// Makes samples of what a log holds when a part's turn has come, and empties it.
pub(super) trait Maker: std::fmt::Debug + Sync {
    fn make(&self, log: &mut Log<'_>, blocks: &Blocks);
}

/// The most entries of a log, some megabytes. A trace without points of synchronization is one part, however long.
const MOST: usize = 1 << 19;

/// The log of a part, and the samples that were made of its front.
#[derive(Debug)]
pub(super) struct Log<'t> {
    maker: &'t dyn Maker,
    pub(super) part: Part,
    pub(super) entries: Vec<Entry>,
    pub(super) events: Vec<Event>,
    pub(super) made: Made,
    time: u64,
    space: Option<Space>,
}

impl<'t> Log<'t> {
    pub(super) fn new(maker: &'t dyn Maker, endian: Endian) -> Log<'t> {
        Log {
            maker,
            part: Part { buffer: 0, trace: 0, number: 0, time: 0 },
            entries: Vec::new(),
            events: Vec::new(),
            made: Made::new(endian),
            time: 0,
            space: None,
        }
    }

    /// A part comes next.
    pub(super) fn begin(&mut self, part: Part) {
        self.part = part;
        // Whatever was there before, the first step has its time and thread.
        self.time = u64::MAX;
        self.space = None;
        self.entries.push(Entry::Space(None));
    }

    #[inline(always)]
    fn at(&mut self, point: &Point) {
        if point.time != self.time {
            self.time = point.time;
            self.entries.push(Entry::Time(point.time));
        }
        if point.space != self.space {
            self.space = point.space;
            self.entries.push(Entry::Space(point.space));
        }
    }
}

impl Sink for Log<'_> {
    #[inline(always)]
    fn step(&mut self, blocks: &Blocks, point: &Point, step: Step) {
        if self.entries.len() >= MOST {
            self.maker.make(self, blocks);
        }
        self.at(point);
        self.entries.push(Entry::Step(step));
    }

    fn event(&mut self, _blocks: &Blocks, point: &Point, event: Event) {
        self.at(point);
        self.entries.push(Entry::Event(self.events.len() as u32));
        self.events.push(event);
    }

    #[inline(always)]
    fn time(&mut self, now: u64) {
        self.entries.push(Entry::Now(now));
    }

    fn forget(&mut self, blocks: &Blocks) {
        self.maker.make(self, blocks);
    }
}

//! Reads the fields of a sample on demand.

use perfx_format::sample::Sample;
use perfx_format::{Layout, Layouts, OrderKey, Record, Result, Time};
use perfx_model::address_space::{Machine, Space};
use perfx_model::guests::Guests;
use perfx_resolve::Facts;

/// A sample, or another record of the kernel with the fields of its event's sample_id.
#[derive(Clone, Copy, Debug)]
pub struct SampleView<'s> {
    /// The record.
    pub record: &'s Record<'s>,
    /// The layout of its fields.
    pub layout: &'s Layout,
    /// The layouts of all events.
    pub layouts: &'s Layouts,
}

impl<'s> SampleView<'s> {
    /// `None` if the fields of the record are unknown.
    #[inline]
    pub fn of(record: &'s Record<'s>, layouts: &'s Layouts) -> Option<SampleView<'s>> {
        Some(SampleView { record, layout: layouts.layout_of(record)?, layouts })
    }

    /// True if samples of its event have a part, given as a bit of `attr.sample_type`.
    #[inline]
    pub fn has(self, part: u64) -> bool {
        self.layout.sample_type & part != 0
    }

    /// The number of its event.
    #[inline]
    pub fn event(self) -> Option<usize> {
        self.layouts.event_of(self.record)
    }

    /// The number of its event in `facts`; `None` if they lack the event.
    #[inline]
    pub fn event_in(self, facts: &Facts) -> Option<usize> {
        self.event().filter(|&event| event < facts.events.len())
    }

    /// The key for finding mappings and names at its time.
    #[inline]
    pub fn key(self) -> OrderKey {
        OrderKey::of(self.record, Some(self.layout), self.layouts)
    }

    /// Its time.
    #[inline]
    pub fn time(self) -> Option<Time> {
        self.layout.time(self.record)
    }

    /// Its process and thread.
    #[inline]
    pub fn task(self) -> Option<(u32, u32)> {
        self.layout.pid_tid(self.record)
    }

    /// Its process.
    #[inline]
    pub fn pid(self) -> Option<u32> {
        self.task().map(|(pid, _)| pid)
    }

    /// Its CPU.
    #[inline]
    pub fn cpu(self) -> Option<u32> {
        self.layout.cpu(self.record)
    }

    /// The id of its event.
    #[inline]
    pub fn id(self) -> Option<u64> {
        self.layout.id(self.record)
    }

    /// Its instruction pointer.
    #[inline]
    pub fn ip(self) -> Option<u64> {
        self.layout.ip(self.record)
    }

    /// Its period, if recorded.
    #[inline]
    pub fn period(self) -> Option<u64> {
        self.layout.period(self.record)
    }

    /// Its parts, which may end at registers of an unknown ABI.
    ///
    /// # Errors
    ///
    /// The record is shorter than its parts.
    #[inline]
    pub fn parts(self) -> Result<Sample<'s>> {
        Sample::parse_known(self.record, self.layout)
    }

    /// The address space of code with this cpumode.
    #[inline]
    pub fn space(self, guests: &Guests, cpumode: u16) -> Option<Space> {
        guests.space(self.record, self.layouts, self.pid(), cpumode)
    }

    /// The machine of the sample.
    #[inline]
    pub fn machine(self, guests: &Guests) -> Machine {
        guests.machine(self.record, self.layouts, self.pid())
    }
}

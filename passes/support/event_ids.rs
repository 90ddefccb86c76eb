//! Finds unused event ids, and checks whether the recording's events can be distinguished by ids.

use std::collections::BTreeSet;

use perfx_format::record::header_records::with_attr;
use perfx_format::{Endian, Event, Layouts, Record, add_to_sample_type, sample_type as st};

/// True if ids cannot distinguish events: where attrs place the id differently, perf adds IDENTIFIER.
pub(crate) fn lacks_identifier(events: &[Event]) -> bool {
    events.iter().any(|event| event.attr().sample_type & st::IDENTIFIER == 0)
}

pub(crate) fn identified(event: &Event, endian: Endian) -> Event {
    event.edited(endian, |raw| add_to_sample_type(raw, st::IDENTIFIER, endian))
}

/// [`identified`] for the event in a HEADER_ATTR of pipe data; `None` for other records.
pub(crate) fn identified_late(record: &Record<'_>) -> Option<Vec<u8>> {
    with_attr(record, |raw| add_to_sample_type(raw, st::IDENTIFIER, record.endian()))
}

#[derive(Debug)]
pub(crate) struct FreeIds {
    pub(crate) used: BTreeSet<u64>,
    last: u64,
}

impl FreeIds {
    /// Ids above the used ones and `late`, while there are any.
    pub(crate) fn beyond(used: BTreeSet<u64>, late: u64) -> FreeIds {
        let last = used.last().copied().unwrap_or(0).max(late).max(1);
        FreeIds { used, last }
    }

    pub(crate) fn next(&mut self) -> u64 {
        loop {
            self.last = self.last.wrapping_add(1);
            if self.last != 0 && self.used.insert(self.last) {
                return self.last;
            }
        }
    }
}

/// The ids that records of a recording's only event have and the event does not list.
#[derive(Debug, Default)]
pub(crate) struct UnlistedIds(BTreeSet<u64>);

/// Damaged records can have any number.
const MOST_UNLISTED: usize = 1 << 16;

impl UnlistedIds {
    #[inline]
    pub(crate) fn learn(&mut self, record: &Record<'_>, layouts: &Layouts) {
        if layouts.all().len() == 1
            && let Some(id) = layouts.layout_of_any(record).and_then(|layout| layout.id(record))
            && id != 0
            && layouts.event_of_id(id).is_none()
            && self.0.len() < MOST_UNLISTED
        {
            self.0.insert(id);
        }
    }

    pub(crate) fn join(&mut self, later: UnlistedIds) {
        self.0.extend(later.0);
    }

    /// Lists them in the event, in place of id 0, which means none.
    pub(crate) fn list_in(&self, events: &mut [Event]) {
        if let [event] = events {
            event.ids.retain(|id| *id != 0);
            event.ids.extend(&self.0);
        }
    }
}

//! Event ids that are not in use, and whether the recording's events can be told apart by the ids they have.

use std::collections::BTreeSet;

use perfx_format::{Event, sample_type as st};

/// perf tells records of different events apart by IDENTIFIER wherever else their attrs put an id.
pub(crate) fn lacks_identifier(events: &[Event]) -> bool {
    events.iter().any(|event| event.attr().sample_type & st::IDENTIFIER == 0)
}

/// ids that are not in use, ascending.
#[derive(Debug)]
pub(crate) struct FreeIds {
    pub(crate) used: BTreeSet<u64>,
    last: u64,
}

impl FreeIds {
    /// Larger ones than these and `late`, as long as there are any.
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

//! A summary of a batch's samples: their number, time span and processes.

use std::sync::Arc;

use crate::{Kinds, Layouts, RecordType, Time, Walker};

const SAMPLES: Kinds = Kinds::of(&[RecordType::SAMPLE]);

/// Maximum number of processes that are listed.
const PIDS_MAX: usize = 1 << 10;

/// The samples of a batch.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct SampleSpan {
    /// The time of the earliest sample, ns; `u64::MAX` if none has a time.
    pub first: u64,
    /// The time of the latest sample, ns; 0 if none has a time.
    pub last: u64,
    /// The number of samples.
    pub count: u64,
    /// The processes of its samples, ascending; `None` if there are too many or some are unknown.
    pub pids: Option<Arc<[u32]>>,
}

impl SampleSpan {
    pub(super) const NONE: SampleSpan = SampleSpan { first: u64::MAX, last: 0, count: 0, pids: None };

    /// Reads only the times of samples, up to unreadable bytes, which later reading reports.
    pub(super) fn of_times((mut walker, layouts): (Walker<'_>, &Layouts)) -> SampleSpan {
        let mut span = SampleSpan::NONE;
        while let Ok(Some(record)) = walker.next_wanted(SAMPLES, usize::MAX) {
            span.add(layouts.time(&record));
        }
        span
    }

    pub(super) fn of_times_and_pids((mut walker, layouts): (Walker<'_>, &Layouts)) -> SampleSpan {
        let (mut span, mut last, mut known) = (SampleSpan::NONE, None, true);
        let mut pids = Vec::new();
        while let Ok(Some(record)) = walker.next_wanted(SAMPLES, usize::MAX) {
            span.add(layouts.time(&record));
            // A sample of an unknown event is lost, whatever its process, and must be counted.
            let event = layouts.event_of(&record);
            let pid = event.and_then(|_| layouts.layout_of(&record)?.pid_tid(&record));
            known &= pid.is_some();
            if let Some((pid, _)) = pid.filter(|&(pid, _)| known && last != Some(pid)) {
                last = Some(pid);
                if let Err(at) = pids.binary_search(&pid) {
                    pids.insert(at, pid);
                    known = pids.len() <= PIDS_MAX;
                }
            }
        }
        SampleSpan { pids: known.then(|| pids.into()), ..span }
    }

    fn add(&mut self, time: Option<Time>) {
        if let Some(time) = time.map(Time::ns) {
            (self.first, self.last) = (self.first.min(time), self.last.max(time));
        }
        self.count += 1;
    }
}

//! Checks that no record is older than those that perf flushed at an earlier FINISHED_ROUND.

use perfx_format::read::Batch;
use perfx_format::{Record, RecordType, Time};

use crate::finding::{Findings, Location};

/// The times between two FINISHED_ROUND records, ns. If there are none, `oldest` is above `newest`.
#[derive(Clone, Copy, Debug)]
struct Span {
    start: usize,
    oldest: u64,
    newest: u64,
}

impl Span {
    fn empty(start: usize) -> Span {
        Span { start, oldest: u64::MAX, newest: 0 }
    }
}

/// The rounds of a batch; the last one continues in the next batch.
#[derive(Clone, Debug)]
pub(crate) struct Rounds {
    spans: Vec<Span>,
}

impl Rounds {
    pub(crate) fn new() -> Rounds {
        Rounds { spans: vec![Span::empty(0)] }
    }

    /// Adds a record that perf sorts: it has a time.
    #[inline]
    pub(crate) fn time(&mut self, time: u64) {
        if let Some(span) = self.spans.last_mut() {
            span.oldest = span.oldest.min(time);
            span.newest = span.newest.max(time);
        }
    }

    pub(crate) fn finished(&mut self, end: usize) {
        self.spans.push(Span::empty(end));
    }
}

/// The time up to which perf has flushed (tools/perf/util/ordered-events.c): a FINISHED_ROUND flushes
/// everything up to the largest time seen before the previous one.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Order {
    /// Older records are late.
    let_go: u64,
    /// The time up to which the next round flushes.
    next: u64,
    newest: u64,
}

impl Order {
    /// Adds a batch. Rounds with late records are walked again to locate them.
    pub(crate) fn batch(&mut self, batch: &Batch, rounds: &Rounds, findings: &mut Findings) {
        for (index, span) in rounds.spans.iter().enumerate() {
            if index > 0 {
                (self.let_go, self.next) = (self.next, self.newest);
            }
            if span.oldest < self.let_go {
                self.name_late(batch, span.start, findings);
            }
            self.newest = self.newest.max(span.newest);
        }
    }

    fn name_late(&self, batch: &Batch, start: usize, findings: &mut Findings) {
        let mut walker = batch.walk();
        walker.seek(start);
        while let Ok(Some(record)) = walker.next_record() {
            if record.kind() == RecordType::FINISHED_ROUND {
                break;
            }
            let time = batch.layouts.time(&record).map(Time::ns);
            if let Some(time) = time.filter(|&time| time < self.let_go) {
                findings.add("out-of-order", self.late(&record, time));
            }
        }
    }

    fn late(&self, record: &Record<'_>, time: u64) -> Location {
        let what = format!(
            "its time {time} is {} ns older than records that an earlier FINISHED_ROUND flushed",
            self.let_go - time
        );
        Location { origin: Some(record.origin()), kind: Some(record.kind()), what }
    }
}

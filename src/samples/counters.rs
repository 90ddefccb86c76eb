//! Gives each sample its weight as `perf report -n` does: its period, or what the counters it read have gained.

use std::collections::HashMap;

use perfx_format::sample::{Count, Read};
use perfx_format::sample_type;
use perfx_resolve::Facts;

use crate::losses::Losses;
use crate::sample::SampleView;

/// Counters that the samples of a batch read (`attr.sample_type` READ), and what is lost of the samples: the weight of
/// a sample is what its counters gained since the previous sample, and it counts as a sample of each event in its group.
#[derive(Debug)]
pub struct Counters<'f> {
    facts: &'f Facts,
    /// The last value of each.
    last: HashMap<(u64, u32), u64>,
    /// Samples and counters that are not counted.
    pub losses: Losses,
}

/// The first value of a counter in a batch.
#[derive(Clone, Copy, Debug)]
pub struct First {
    key: (u64, u32),
    value: u64,
}

/// The last value of each counter in the batches so far.
#[derive(Debug, Default)]
pub struct Before(pub(crate) HashMap<(u64, u32), u64>);

/// What samples count for whose weights are known when the batches before theirs are.
pub type Late<T> = Vec<(T, First)>;

impl Before {
    /// Calls `count` with what the samples of the next batch count for, and what their counters gained.
    pub fn count<T>(&self, late: Late<T>, mut count: impl FnMut(T, u64)) {
        for (target, First { key, value }) in late {
            let gained = value.wrapping_sub(self.0.get(&key).copied().unwrap_or(0));
            // A counter that gained nothing was not sampled.
            if gained > 0 {
                count(target, gained);
            }
        }
    }
}

/// A counter that a sample read, of an event.
#[derive(Clone, Copy, Debug)]
pub struct Reading {
    /// The number of the event.
    pub event: usize,
    /// Its id, plus the thread if the event is inherited.
    pub key: (u64, u32),
    /// Its value.
    pub value: u64,
}

/// The counters that a sample of an event read. Those of unknown events, and samples into which they do not fit, are
/// added to `losses`.
pub fn readings(
    sample: SampleView<'_>,
    event: usize,
    facts: &Facts,
    losses: &mut Losses,
) -> impl Iterator<Item = Reading> {
    let tid = sample.task().map_or(0, |(_, tid)| tid);
    let read = Read::of_sample(sample.record, sample.layout);
    losses.short += u64::from(read.is_none());
    let reading = move |counter: Count| {
        let event = match counter.id {
            Some(id) => sample.layouts.event_of_id(id).filter(|&event| event < facts.events.len())?,
            None => event,
        };
        let thread = if facts.events[event].inherit { tid } else { 0 };
        Some(Reading { event, key: (counter.id.unwrap_or(0), thread), value: counter.value })
    };
    read.into_iter().flat_map(|read| read.counts()).filter_map(move |counter| {
        let reading = reading(counter);
        losses.counters += u64::from(reading.is_none());
        reading
    })
}

impl<'f> Counters<'f> {
    pub(crate) fn new(facts: &'f Facts) -> Counters<'f> {
        Counters { facts, last: HashMap::new(), losses: Losses::default() }
    }

    /// Counts a sample of an event. `target` makes from an event what the sample counts for, nothing for one that is
    /// not wanted; `count` takes it with its weight. What needs the batches before is added to `late`.
    pub fn count<T>(
        &mut self,
        sample: SampleView<'_>,
        event: usize,
        late: &mut Late<T>,
        target: impl Fn(usize) -> Option<T>,
        mut count: impl FnMut(T, u64),
    ) {
        if !sample.has(sample_type::READ) {
            if let Some(target) = target(event) {
                count(target, sample.period().unwrap_or(self.facts.events[event].period));
            }
            return;
        }
        for Reading { event, key, value } in readings(sample, event, self.facts, &mut self.losses) {
            let last = self.last.insert(key, value);
            let Some(target) = target(event) else { continue };
            match last {
                // A counter that gained nothing was not sampled.
                Some(last) if value == last => {}
                Some(last) => count(target, value.wrapping_sub(last)),
                None => late.push((target, First { key, value })),
            }
        }
    }

    /// The last values, and what was lost.
    pub(crate) fn end(self) -> (HashMap<(u64, u32), u64>, Losses) {
        (self.last, self.losses)
    }
}

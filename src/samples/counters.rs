//! Determines each sample's weight as `perf report -n` does: its period, or the gain of the counters it read.

use std::collections::HashMap;

use perfx_format::sample::Read;
use perfx_format::sample_type;
use perfx_resolve::Facts;

use crate::losses::Losses;
use crate::sample::SampleView;

/// The counters read by samples of a batch (`attr.sample_type` READ), and losses. A sample's weight is the
/// gain of its counters since the previous sample, and it counts for each event in its group.
#[derive(Debug)]
pub struct Counters<'f> {
    facts: &'f Facts,
    ends: CounterEnds,
    /// Uncounted samples and counters.
    pub losses: Losses,
}

/// The last value of each counter, by its id and, if the event is inherited, thread.
pub type CounterEnds = HashMap<(u64, u32), u64>;

/// The first value of a counter in a batch.
#[derive(Clone, Copy, Debug)]
pub struct First {
    key: (u64, u32),
    value: u64,
}

/// The last value of each counter in the batches so far.
#[derive(Debug, Default)]
pub struct Before(CounterEnds);

/// Targets of samples whose weights depend on earlier batches.
pub type Late<T> = Vec<(T, First)>;

impl Before {
    /// Adds the counters of the next batch.
    pub fn add(&mut self, ends: CounterEnds) {
        self.0.extend(ends);
    }

    /// Calls `count` with the targets of samples in the next batch, and the gain of their counters.
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

impl<'f> Counters<'f> {
    /// Starts a batch.
    pub fn new(facts: &'f Facts) -> Counters<'f> {
        Counters { facts, ends: CounterEnds::new(), losses: Losses::default() }
    }

    /// Counts a sample. `target` returns where to count it for an event, or `None` to skip it; `count` adds
    /// its weight there. Samples that depend on earlier batches are added to `late`. Counters of unknown
    /// events, and samples too short for them, are losses.
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
        let Some(read) = Read::of_sample(sample.record, sample.layout) else {
            self.losses.short += 1;
            return;
        };
        let tid = sample.task().map_or(0, |(_, tid)| tid);
        for counter in read.counts() {
            let events = &self.facts.events;
            let known = |id| sample.layouts.event_of_id(id).filter(|&event| event < events.len());
            let Some(event) = counter.id.map_or(Some(event), known) else {
                self.losses.counters += 1;
                continue;
            };
            let key = (counter.id.unwrap_or(0), if events[event].inherit { tid } else { 0 });
            let last = self.ends.insert(key, counter.value);
            let Some(target) = target(event) else { continue };
            match last {
                // A counter that gained nothing was not sampled.
                Some(last) if counter.value == last => {}
                Some(last) => count(target, counter.value.wrapping_sub(last)),
                None => late.push((target, First { key, value: counter.value })),
            }
        }
    }

    /// Takes the counters of a sample that is not selected: the next one counts what they gain after it.
    pub fn pass_over(&mut self, sample: SampleView<'_>, event: usize) {
        if self.facts.events[event].reads_counters {
            let losses = self.losses;
            self.count(sample, event, &mut Late::<()>::new(), |_| None, |(), _| {});
            self.losses = losses;
        }
    }

    /// Ends a batch. Returns the last values, and the losses.
    pub fn end(self) -> (CounterEnds, Losses) {
        (self.ends, self.losses)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_value_in_a_batch_counts_what_its_counter_gained_since_the_batches_before() {
        let mut before = Before::default();
        before.add(CounterEnds::from([((1, 0), 5), ((1, 7), 8)]));
        let first = |id, thread, value| First { key: (id, thread), value };
        let late = vec![
            ("same", first(1, 0, 5)),
            ("more", first(1, 0, 9)),
            ("of a thread", first(1, 7, 9)),
            ("new", first(2, 0, 3)),
        ];
        let mut counted = Vec::new();
        before.count(late, |target, gained| counted.push((target, gained)));
        assert_eq!(counted, [("more", 4), ("of a thread", 1), ("new", 3)]);
    }
}

//! Gives each sample its weight as `perf report -n` does: its period, or what the counters it read have gained.

use std::collections::HashMap;

use perfx_filter::FilterOptions;
use perfx_format::sample::{Count, Read};
use perfx_format::siblings::CountedAs;
use perfx_format::{Layout, Layouts, Record, sample_type};
use perfx_resolve::{EventFacts, Facts};

use crate::losses::Losses;

/// Counters that samples read (`attr.sample_type` READ): the sample's weight is what its counters gained
/// since the previous sample, and it counts as a sample of each event in its group. `T` is what a sample
/// counts for.
#[derive(Debug)]
pub(crate) struct Counters<T> {
    /// The last value of each.
    last: HashMap<(u64, u32), u64>,
    /// The first values in a batch, which need the last values of the previous batch.
    first: Vec<First<T>>,
    /// Samples and counters that are not counted.
    pub(crate) losses: Losses,
}

impl<T> Default for Counters<T> {
    fn default() -> Self {
        Counters { last: HashMap::new(), first: Vec::new(), losses: Losses::default() }
    }
}

/// The first value of a counter in a batch. The key is its id, plus the thread if the event is inherited.
#[derive(Debug)]
struct First<T> {
    key: (u64, u32),
    value: u64,
    target: T,
}

/// The event of a sample and its layout; `None` if the recording does not have the event.
pub(crate) fn event_of<'l>(
    sample: &Record<'_>,
    layouts: &'l Layouts,
    facts: &Facts,
) -> Option<(usize, &'l Layout)> {
    let event = layouts.event_of(sample).filter(|&event| event < facts.events.len())?;
    Some((event, layouts.layout_of(sample)?))
}

/// For each event, true if the filter wants what samples count for it: a sample that read the counters of a group is
/// kept for one of them, and is one of its leader and of all others, too.
pub(crate) fn wanted_events(facts: &Facts, filter: &FilterOptions) -> Vec<bool> {
    filter.wanted_events(facts.events.iter().map(|event| &event.name[..]))
}

/// How the wanted events are counted: wanted siblings count as one event. `None` for the other events.
pub(crate) fn counted_events(facts: &Facts, filter: &FilterOptions) -> Vec<Option<CountedAs>> {
    let wanted = wanted_events(facts, filter);
    let mut siblings: HashMap<usize, Vec<usize>> = HashMap::new();
    for (event, counted) in facts.counted_as.iter().enumerate().filter(|(event, _)| wanted[*event]) {
        siblings.entry(counted.first).or_default().push(event);
    }
    let counted = |(event, counted): (usize, &CountedAs)| {
        let siblings = siblings.get(&counted.first).filter(|_| wanted[event])?;
        Some(match siblings[..] {
            [_] => CountedAs { first: event, name: facts.events[event].name.clone() },
            _ => CountedAs { first: siblings[0], name: counted.name.clone() },
        })
    };
    facts.counted_as.iter().enumerate().map(counted).collect()
}

/// The period of a sample.
pub(crate) fn period(sample: &Record<'_>, layout: &Layout, event: &EventFacts) -> u64 {
    layout.period(sample).unwrap_or(event.period)
}

/// A counter that a sample read, of an event.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) event: usize,
    /// Its id, plus the thread if the event is inherited.
    pub(crate) key: (u64, u32),
    pub(crate) value: u64,
}

/// The counters that a sample read. Those of unknown events, and samples into which they do not fit, are added to
/// `losses`.
pub(crate) fn readings(
    (sample, event, layout): (&Record<'_>, usize, &Layout),
    layouts: &Layouts,
    facts: &Facts,
    losses: &mut Losses,
) -> impl Iterator<Item = Reading> {
    let tid = layout.pid_tid(sample).map_or(0, |(_, tid)| tid);
    let read = Read::of_sample(sample, layout);
    losses.short += u64::from(read.is_none());
    let reading = move |counter: Count| {
        let event = match counter.id {
            Some(id) => layouts.event_of_id(id).filter(|&event| event < facts.events.len())?,
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

impl<T: Copy> Counters<T> {
    /// Counts a sample of an event. `target` makes from an event what the sample counts for, nothing for one that is
    /// not wanted; `count` takes it with its weight.
    pub(crate) fn sample(
        &mut self,
        (sample, event, layout): (&Record<'_>, usize, &Layout),
        layouts: &Layouts,
        facts: &Facts,
        target: impl Fn(u32) -> Option<T>,
        mut count: impl FnMut(T, u64),
    ) {
        if layout.sample_type & sample_type::READ == 0 {
            if let Some(target) = target(event as u32) {
                count(target, period(sample, layout, &facts.events[event]));
            }
            return;
        }
        for Reading { event, key, value } in
            readings((sample, event, layout), layouts, facts, &mut self.losses)
        {
            let last = self.last.insert(key, value);
            let Some(target) = target(event as u32) else { continue };
            match last {
                // A counter that gained nothing was not sampled.
                Some(last) if value == last => {}
                Some(last) => count(target, value.wrapping_sub(last)),
                None => self.first.push(First { key, value, target }),
            }
        }
    }

    /// Changes what the waiting samples count for.
    pub(crate) fn retarget(&mut self, new: impl Fn(T) -> T) {
        self.first.iter_mut().for_each(|first| first.target = new(first.target));
    }

    /// Takes in the counters of the next batch; `count` gets what could not be counted without this one.
    pub(crate) fn join(&mut self, later: Counters<T>, mut count: impl FnMut(T, u64)) {
        for First { key, value, target } in later.first {
            let gained = value.wrapping_sub(self.last.get(&key).copied().unwrap_or(0));
            if gained > 0 {
                count(target, gained);
            }
        }
        self.last.extend(later.last);
        self.losses += later.losses;
    }
}

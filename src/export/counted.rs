//! Decides which events are counted, and how: siblings count as one event.

use std::collections::HashMap;

use perfx_filter::FilterOptions;
use perfx_format::siblings::CountedAs;
use perfx_resolve::Facts;

/// For each event, true if the filter selects it. A sample that read a group is kept if one of its counters
/// is selected, but it also has counts of the others.
pub(crate) fn wanted_events(facts: &Facts, filter: &FilterOptions) -> Vec<bool> {
    filter.wanted_events(facts.events.iter().map(|event| &event.name[..]))
}

/// How selected events are counted, siblings as one; `None` for other events.
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

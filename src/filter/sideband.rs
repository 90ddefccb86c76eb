//! Remembers where the records of each part of a split recording are, and which batches hold other records
//! that it may need, so that it is written without reading the rest.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use perfx_format::record::deferred::CallchainDeferred;
use perfx_format::{Layouts, OrderKey, Record, RecordType};
use perfx_model::tasks::Process;
use perfx_pipeline::Place;

use crate::chooser::Chooser;
use crate::cut::FilterPlan;
use crate::kept_kinds::NEEDED;
use crate::owner::{OfParts, Ranges, Rule};

#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Needer {
    Everyone,
    /// Parts that need all processes whose start and end are unknown.
    Timeless,
    Process(Process),
    Part(usize),
    /// Parts with the sample whose call chain the record completes.
    Cookie(u64),
}

/// The largest gap within a range, bytes: walking over it takes no longer than beginning another range.
const GAP: usize = 1 << 10;

/// The ranges of one part's event records in a batch, up to the end of the round of the last one.
#[derive(Default, Debug)]
struct OwnRanges {
    ranges: Vec<Range<usize>>,
    open: bool,
}

impl OwnRanges {
    fn add(&mut self, record: Range<usize>) {
        match self.ranges.last_mut() {
            Some(last) if record.start - last.end <= GAP => last.end = record.end,
            _ => self.ranges.push(record),
        }
    }
}

#[derive(Default, Debug)]
pub(crate) struct BatchNeeders {
    needers: HashSet<Needer>,
    /// The earliest record that later parts need.
    earliest: Option<OrderKey>,
    own: OfParts<OwnRanges>,
    /// The parts with event records in the current round.
    open: Vec<usize>,
}

impl BatchNeeders {
    pub(crate) fn own(&mut self, part: usize, record: Range<usize>) {
        let own = self.own.of(part, OwnRanges::default);
        own.add(record);
        if !std::mem::replace(&mut own.open, true) {
            self.open.push(part);
        }
    }

    pub(crate) fn end_round(&mut self, record: Range<usize>) {
        for part in self.open.drain(..) {
            let own = self.own.of(part, OwnRanges::default);
            own.add(record.clone());
            own.open = false;
        }
    }

    /// Adds a record of another kind, by the rules of [`FilterPlan::keeps`].
    pub(crate) fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts, chooser: &Chooser, rule: &Rule) {
        let kind = record.kind();
        let part = Needer::Part(rule.part_of(record, layouts));
        if kind == RecordType::LOST_SAMPLES {
            self.needers.insert(part);
        } else if let Some(deferred) = CallchainDeferred::of(record) {
            self.needers.extend([part, Needer::Cookie(deferred.cookie)]);
        } else if chooser.options.keep_all_sideband || !NEEDED.contains(kind) {
            self.needers.insert(Needer::Everyone);
        } else {
            self.needers.insert(part);
            match chooser.process_that_needs(record, layouts, None) {
                Some(process) => {
                    self.needers.insert(Needer::Process(process));
                    if matches!(process, Process::Timeless(_)) {
                        self.needers.insert(Needer::Timeless);
                    }
                }
                None => {
                    let key = OrderKey::of(record, layouts.layout_of(record), layouts);
                    self.earliest = Some(self.earliest.map_or(key, |earliest| earliest.min(key)));
                }
            }
        }
    }
}

#[derive(Default, Debug)]
pub(crate) struct SideBand {
    batches: HashMap<Needer, Vec<Place>>,
    later: Vec<(OrderKey, Place)>,
    own: HashMap<usize, HashMap<Place, Ranges>>,
}

impl SideBand {
    pub(crate) fn join(&mut self, batch: Place, found: BatchNeeders) {
        for needer in found.needers {
            self.batches.entry(needer).or_default().push(batch);
        }
        self.later.extend(found.earliest.map(|earliest| (earliest, batch)));
        for (part, own) in found.own.all() {
            self.own.entry(part).or_default().insert(batch, own.ranges.into());
        }
    }

    /// The ranges of the event records of a part; the next call returns nothing.
    pub(crate) fn take_own(&mut self, part: usize) -> HashMap<Place, Ranges> {
        self.own.remove(&part).unwrap_or_default()
    }

    pub(crate) fn needed_by(&self, part: usize, plan: &FilterPlan) -> HashSet<Place> {
        let everyone = [Needer::Everyone, Needer::Part(part)].into_iter();
        let needers = everyone.chain(plan.timeless.then_some(Needer::Timeless));
        let needers = needers.chain(plan.needed.iter().map(Needer::Process));
        let needers = needers.chain(plan.chosen.cookies.iter().copied().map(Needer::Cookie));
        let places = needers.filter_map(|needer| self.batches.get(&needer)).flatten().copied();
        let end = plan.windows.end();
        let later = self.later.iter().filter(|&&(key, _)| !plan.chooser.has_time || key < end);
        let own = plan.owner.iter().flat_map(|owner| owner.ranges.keys().copied());
        places.chain(later.map(|&(_, place)| place)).chain(own).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_a_part_that_are_close_are_one_range_which_ends_with_their_round() {
        let mut batch = BatchNeeders::default();
        batch.own(1, 0..8);
        batch.own(1, 8 + GAP..24 + GAP);
        batch.own(2, 0..8);
        batch.own(2, 30 + GAP..40 + GAP);
        batch.end_round(100 + GAP..108 + GAP);
        // No part has a record in the second round, so it belongs to none.
        batch.end_round(200 + GAP..208 + GAP);
        batch.own(1, 1000 + 2 * GAP..1008 + 2 * GAP);
        let ranges: Vec<_> = batch.own.all().map(|(part, own)| (part, own.open, own.ranges)).collect();
        let first = vec![0..108 + GAP, 1000 + 2 * GAP..1008 + 2 * GAP];
        assert_eq!(ranges, [(1, true, first), (2, false, vec![0..8, 30 + GAP..108 + GAP])]);
    }
}

//! Remembers which batches hold records that a part of a split recording may need besides its samples, so that the
//! part is written without reading the others.

use std::collections::{HashMap, HashSet};

use perfx_format::record::deferred::CallchainDeferred;
use perfx_format::{Layouts, Record, RecordType};
use perfx_model::address_space::moment;
use perfx_model::tasks::Process;
use perfx_pipeline::Place;

use super::chooser::Chooser;
use super::cut::FilterPlan;
use super::kept_kinds::{CHOSEN, OF_ALL, OF_PROCESS, UNTOLD};
use super::owner::Rule;

/// Who may need a record.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
enum Needer {
    Everyone,
    /// Parts that end after the time.
    Later,
    /// Parts that need all processes whose start and end are unknown.
    Timeless,
    Process(Process),
    Part(usize),
    /// Parts with the sample whose call chain the record completes.
    Cookie(u64),
}

/// The records of one batch.
#[derive(Default, Debug)]
pub(super) struct BatchNeeders {
    needers: HashSet<Needer>,
    /// The earliest time of a record that later parts need.
    earliest: u64,
}

impl BatchNeeders {
    /// Takes in a record, by the rules of [`FilterPlan::keeps`].
    pub(super) fn look_at(&mut self, record: &Record<'_>, layouts: &Layouts, chooser: &Chooser, rule: &Rule) {
        let kind = record.kind();
        if UNTOLD.contains(&kind) {
            return;
        }
        let part = Needer::Part(rule.part_of(record, layouts));
        if CHOSEN.contains(&kind) || kind == RecordType::LOST_SAMPLES {
            self.needers.insert(part);
        } else if let Some(deferred) = CallchainDeferred::of(record) {
            self.needers.extend([part, Needer::Cookie(deferred.cookie)]);
        } else if chooser.options.keep_all_sideband || !OF_PROCESS.contains(&kind) && !OF_ALL.contains(&kind)
        {
            self.needers.insert(Needer::Everyone);
        } else {
            self.needers.insert(part);
            match chooser.process_that_needs(record, layouts) {
                Some(process) => {
                    self.needers.insert(Needer::Process(process));
                    if matches!(process, Process::Timeless(_)) {
                        self.needers.insert(Needer::Timeless);
                    }
                }
                None => {
                    let time = moment(record, layouts.layout_of(record), layouts);
                    let is_first = self.needers.insert(Needer::Later);
                    self.earliest = if is_first { time } else { self.earliest.min(time) };
                }
            }
        }
    }
}

/// The records of all batches.
#[derive(Default, Debug)]
pub(super) struct SideBand {
    batches: HashMap<Needer, Vec<Place>>,
    later: Vec<(u64, Place)>,
}

impl SideBand {
    /// Takes in the next batch.
    pub(super) fn join(&mut self, batch: Place, found: BatchNeeders) {
        for needer in found.needers {
            match needer {
                Needer::Later => self.later.push((found.earliest, batch)),
                _ => self.batches.entry(needer).or_default().push(batch),
            }
        }
    }

    /// The batches that the part with this number may need besides those with its samples.
    pub(super) fn needed_by(&self, part: usize, plan: &FilterPlan) -> HashSet<Place> {
        let everyone = [Needer::Everyone, Needer::Part(part)].into_iter();
        let needers = everyone.chain(plan.timeless.then_some(Needer::Timeless));
        let needers = needers.chain(plan.needed.iter().map(Needer::Process));
        let needers = needers.chain(plan.chosen.cookies.iter().copied().map(Needer::Cookie));
        let places = needers.filter_map(|needer| self.batches.get(&needer)).flatten().copied();
        let end = plan.windows.end();
        let later = self.later.iter().filter(|&&(time, _)| !plan.chooser.has_time || time < end);
        places.chain(later.map(|&(_, place)| place)).collect()
    }
}

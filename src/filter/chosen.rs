//! Notes which samples are kept, and what they need.

use std::collections::{HashMap, HashSet};

use perfx_format::sample::{Sample, deferred_cookie};
use perfx_format::{Layouts, Record, Time, sample_type};
use perfx_model::tasks::{Process, Processes};
use perfx_pipeline::Place;
use perfx_samples::SampleView;

use crate::chooser::{Chooser, Lookups};

#[derive(Debug, Default)]
pub(crate) struct ChosenSamples {
    pub(crate) samples: u64,
    pub(crate) by_event: Vec<u64>,
    pub(crate) processes: Processes,
    /// Of the previous sample, to save lookups in the set.
    pub(crate) last: Option<Process>,
    /// Cookies of call chains whose user part comes later.
    pub(crate) cookies: HashSet<u64>,
    pub(crate) places: Option<(Place, Place)>,
    pub(crate) times: Option<(u64, u64)>,
    /// The number of kept samples of each batch with any; the current batch, and `samples` at its start.
    pub(crate) batches: HashMap<Place, u64>,
    pub(crate) batch: Option<Place>,
    pub(crate) before: u64,
}

impl ChosenSamples {
    pub(crate) fn look_at(
        &mut self,
        record: &Record<'_>,
        layouts: &Layouts,
        chooser: &Chooser,
        lookups: &mut Lookups,
    ) {
        let sample = SampleView::of(record, layouts);
        if let Some((process, _)) = sample.and_then(|sample| chooser.choose(sample, lookups)) {
            self.take(record, layouts, process);
        }
    }

    pub(crate) fn take(&mut self, record: &Record<'_>, layouts: &Layouts, process: Option<Process>) {
        self.samples += 1;
        if let Some(process) = process.filter(|&process| self.last != Some(process)) {
            self.last = Some(process);
            self.processes.insert(process);
        }
        self.of_event(layouts.event_of(record));
        let layout = layouts.layout_of(record);
        // A group's counters are named by ids, so readers need all events of the group.
        if let Some(layout) = layout.filter(|layout| layout.sample_type & sample_type::READ != 0)
            && let Some(read) = Sample::parse_known(record, layout).ok().and_then(|sample| sample.read)
        {
            read.counts().for_each(|count| self.of_event(count.id.and_then(|id| layouts.event_of_id(id))));
        }
        self.cookies.extend(layout.and_then(|layout| deferred_cookie(record, layout)));
        // Calls are in file order.
        if let Some(here) = Place::of_record(record) {
            self.places = Some((self.places.map_or(here, |(first, _)| first), here));
        }
        let time = layout.and_then(|layout| layout.time(record)).map(Time::ns);
        self.add(None, time.map(|time| (time, time)));
    }

    /// Continues with another batch, or with none.
    pub(crate) fn turn_to(&mut self, batch: Option<Place>) {
        let count = self.samples - std::mem::replace(&mut self.before, self.samples);
        let ended = std::mem::replace(&mut self.batch, batch);
        self.batches.extend(ended.filter(|_| count > 0).map(|ended| (ended, count)));
    }

    pub(crate) fn of_event(&mut self, event: Option<usize>) {
        if let Some(event) = event {
            self.by_event.resize(self.by_event.len().max(event + 1), 0);
            self.by_event[event] += 1;
        }
    }

    fn add(&mut self, places: Option<(Place, Place)>, times: Option<(u64, u64)>) {
        fn widen<T: Ord + Copy>(all: &mut Option<(T, T)>, more: Option<(T, T)>) {
            *all = match (*all, more) {
                (Some((a, b)), Some((c, d))) => Some((a.min(c), b.max(d))),
                (all, more) => all.or(more),
            };
        }
        widen(&mut self.places, places);
        widen(&mut self.times, times);
    }

    pub(crate) fn join(&mut self, mut later: ChosenSamples) {
        later.turn_to(None);
        self.samples += later.samples;
        self.before = self.samples;
        if self.by_event.len() < later.by_event.len() {
            self.by_event.resize(later.by_event.len(), 0);
        }
        self.by_event.iter_mut().zip(later.by_event).for_each(|(all, later)| *all += later);
        self.processes.absorb(later.processes);
        self.cookies.extend(later.cookies);
        self.batches.extend(later.batches);
        self.add(later.places, later.times);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_two_threads_chose_is_added_up_in_the_order_of_the_file() {
        let place = |offset| Place::of_origin(perfx_format::Origin::Input { stream: 0, offset });
        let mut first = ChosenSamples { samples: 3, by_event: vec![3], ..ChosenSamples::default() };
        first.add(place(8).zip(place(24)), Some((50, 90)));
        first.cookies.insert(1);
        let mut later = ChosenSamples::default();
        later.turn_to(place(100));
        later.samples = 2;
        later.of_event(Some(2));
        later.of_event(Some(2));
        later.of_event(None);
        later.turn_to(place(200));
        later.add(place(100).zip(place(120)), Some((40, 60)));
        later.cookies.insert(2);
        first.join(later);
        assert_eq!((first.samples, &first.by_event[..]), (5, &[3, 0, 2][..]));
        assert_eq!((first.places, first.times), (place(8).zip(place(120)), Some((40, 90))));
        assert_eq!(first.cookies, HashSet::from([1, 2]));
        // The batch at 200 has no samples, so it is not listed.
        assert_eq!(first.batches, HashMap::from([(place(100).unwrap(), 2)]));
        first.join(ChosenSamples::default());
        assert_eq!((first.samples, first.times, first.batches.len()), (5, Some((40, 90)), 1));
    }
}

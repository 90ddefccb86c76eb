//! Determines to which part of a split recording a record belongs.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::ops::Range;
use std::sync::Arc;

use perfx_format::sample::Sample;
use perfx_format::{Layouts, OrderKey, Record, named_pid};
use perfx_pipeline::Place;

use crate::chooser::Chooser;
use crate::kept_kinds::{CHOSEN, OF_PROCESS};
use crate::time::Windows;

pub(crate) enum Rule {
    /// The start of each part except the first.
    Times(Vec<OrderKey>),
    /// By pid. Records without a pid, or with an unlisted one, are in the first part.
    Pids(BTreeMap<u32, usize>),
    Events(Vec<usize>),
    /// By another property. Records without it are in the first part.
    Keys {
        of: Property,
        parts: BTreeMap<Key, usize>,
        chooser: Arc<Chooser>,
    },
}

/// A property of samples that a recording is split by.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Property {
    /// The thread.
    Tid,
    /// The name of the thread at that time.
    Comm,
    /// The CPU.
    Cpu,
    /// The cgroup.
    Cgroup,
}

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) enum Key {
    Number(u64),
    Name(Box<[u8]>),
}

impl Property {
    pub(crate) fn of(self, record: &Record<'_>, layouts: &Layouts, chooser: &Chooser) -> Option<Key> {
        let layout = layouts.layout_of(record)?;
        let task = || layout.pid_tid(record);
        Some(match self {
            Property::Tid => Key::Number(task()?.1.into()),
            Property::Cpu => Key::Number(layout.cpu(record)?.into()),
            Property::Cgroup => Key::Number(Sample::parse(record, layout).ok()?.cgroup?),
            Property::Comm => {
                let (pid, tid) = task()?;
                let machine = chooser.guests.machine(record, layouts, Some(pid));
                let key = OrderKey::of(record, Some(layout), layouts);
                Key::Name(chooser.tasks.name(machine, tid, key).into())
            }
        })
    }
}

impl Rule {
    pub(crate) fn part_of(&self, record: &Record<'_>, layouts: &Layouts) -> usize {
        let layout = layouts.layout_of(record);
        match self {
            Rule::Times(starts) => {
                let key = OrderKey::of(record, layout, layouts);
                starts.partition_point(|&start| start <= key)
            }
            Rule::Pids(parts) => {
                let named = named_pid(record).filter(|_| OF_PROCESS.contains(record.kind()));
                let pid = named.or_else(|| layout?.pid_tid(record).map(|(pid, _)| pid));
                pid.and_then(|pid| parts.get(&pid).copied()).unwrap_or(0)
            }
            Rule::Events(parts) => {
                layouts.event_of(record).and_then(|event| parts.get(event).copied()).unwrap_or(0)
            }
            Rule::Keys { of, parts, chooser } => {
                let is_event_record = CHOSEN.contains(record.kind());
                let key = is_event_record.then(|| of.of(record, layouts, chooser)).flatten();
                key.and_then(|key| parts.get(&key).copied()).unwrap_or(0)
            }
        }
    }

    /// `part_of`, faster if the previous record was in the same part: searching thousands of parts is slow.
    pub(crate) fn part_after(&self, before: usize, record: &Record<'_>, layouts: &Layouts) -> usize {
        let same = self.is_of_times(before, record, layouts) == Some(true);
        if same { before } else { self.part_of(record, layouts) }
    }

    /// True if the record belongs to this part; `None` if times do not decide that.
    fn is_of_times(&self, number: usize, record: &Record<'_>, layouts: &Layouts) -> Option<bool> {
        let (begin, end) = self.times(number)?;
        let key = OrderKey::of(record, layouts.layout_of(record), layouts);
        Some(begin <= key && end.is_none_or(|end| key < end))
    }

    /// The beginning of a part of times, and of the next part.
    fn times(&self, number: usize) -> Option<(OrderKey, Option<OrderKey>)> {
        let Rule::Times(starts) = self else { return None };
        let begin = number.checked_sub(1).and_then(|before| starts.get(before));
        Some((begin.copied().unwrap_or(OrderKey::FIRST), starts.get(number).copied()))
    }
}

/// A value for each part that occurs. Neighbours are mostly in one part, so the last one is tried first.
#[derive(Debug)]
pub(crate) struct OfParts<T> {
    parts: Vec<(usize, T)>,
    places: HashMap<usize, usize>,
    last: usize,
}

impl<T> Default for OfParts<T> {
    fn default() -> OfParts<T> {
        OfParts { parts: Vec::new(), places: HashMap::new(), last: 0 }
    }
}

impl<T> OfParts<T> {
    pub(crate) fn of(&mut self, part: usize, new: impl FnOnce() -> T) -> &mut T {
        if self.parts.get(self.last).is_none_or(|last| last.0 != part) {
            self.last = *self.places.entry(part).or_insert(self.parts.len());
            if self.last == self.parts.len() {
                self.parts.push((part, new()));
            }
        }
        &mut self.parts[self.last].1
    }

    /// All values, with the numbers of their parts.
    pub(crate) fn all(self) -> impl Iterator<Item = (usize, T)> {
        self.parts.into_iter()
    }
}

pub(crate) type Ranges = Arc<[Range<usize>]>;

pub(crate) struct Owner {
    pub(crate) rule: Arc<Rule>,
    pub(crate) number: usize,
    /// Ranges of its event records: samples, and other kinds of [`CHOSEN`](crate::kept_kinds::CHOSEN).
    pub(crate) ranges: HashMap<Place, Ranges>,
    /// Shared by all parts: cookies of call chains whose user part comes later.
    pub(crate) cookies: Arc<HashSet<u64>>,
}

impl Owner {
    pub(crate) fn owns(&self, record: &Record<'_>, layouts: &Layouts) -> bool {
        let of_times = self.rule.is_of_times(self.number, record, layouts);
        of_times.unwrap_or_else(|| self.rule.part_of(record, layouts) == self.number)
    }

    /// True if no part has the sample whose call chain this record completes.
    pub(crate) fn owns_cookie(&self, cookie: Option<u64>) -> bool {
        cookie.is_none_or(|cookie| !self.cookies.contains(&cookie))
    }

    pub(crate) fn windows(&self) -> Windows {
        match self.rule.times(self.number) {
            Some((begin, end)) => Windows::one(begin..end.unwrap_or(OrderKey::END)),
            None => Windows::new(None),
        }
    }

    /// True if the part needs all processes alive in its time.
    pub(crate) fn is_of_time(&self) -> bool {
        matches!(*self.rule, Rule::Times(_))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_of_times_ends_where_the_next_begins() {
        let key = OrderKey::at;
        let rule = Rule::Times(vec![key(10), key(20)]);
        assert_eq!(rule.times(0), Some((OrderKey::FIRST, Some(key(10)))));
        assert_eq!(rule.times(1), Some((key(10), Some(key(20)))));
        assert_eq!(rule.times(2), Some((key(20), None)));
        assert_eq!(Rule::Pids(BTreeMap::new()).times(0), None);
        let windows = |number| {
            let rule = Arc::new(Rule::Times(vec![key(10)]));
            Owner { rule, number, ranges: HashMap::new(), cookies: Arc::default() }.windows()
        };
        assert_eq!(windows(0).ranges(), [OrderKey::FIRST..key(10)]);
        assert_eq!(windows(1).ranges(), [key(10)..OrderKey::END]);
    }

    #[test]
    fn each_part_that_occurs_has_one_value_in_the_order_of_their_first_records() {
        let mut counts = OfParts::default();
        for part in [7, 7, 0, 7, 3, 0] {
            *counts.of(part, || 0) += 1;
        }
        assert_eq!(counts.all().collect::<Vec<_>>(), [(7, 3), (0, 2), (3, 1)]);
    }

    #[test]
    fn a_user_part_is_nobody_s_if_no_sample_waits_for_it() {
        let rule = Arc::new(Rule::Events(Vec::new()));
        let cookies = Arc::new(HashSet::from([5]));
        let owner = Owner { rule, number: 0, ranges: HashMap::new(), cookies };
        assert_eq!([None, Some(4), Some(5)].map(|cookie| owner.owns_cookie(cookie)), [true, true, false]);
        assert!(!owner.is_of_time());
    }
}

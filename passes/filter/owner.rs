//! Determines to which part of a split recording a record belongs.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;

use perfx_format::{Layouts, Record, named_pid};
use perfx_model::address_space::moment;

use super::kept_kinds::OF_PROCESS;
use super::time::Windows;

/// Finds the part that a record belongs to.
#[derive(Debug)]
pub(super) enum Rule {
    /// The times at which all parts but the first begin.
    Times(Vec<u64>),
    /// By pid. Records without a pid, or with an unlisted one, are in the first part.
    Pids(BTreeMap<u32, usize>),
    /// By event.
    Events(Vec<usize>),
}

impl Rule {
    pub(super) fn part_of(&self, record: &Record<'_>, layouts: &Layouts) -> usize {
        let layout = layouts.layout_of(record);
        match self {
            Rule::Times(starts) => {
                let time = moment(record, layout, layouts);
                starts.partition_point(|&start| start <= time)
            }
            Rule::Pids(parts) => {
                let named = named_pid(record).filter(|_| OF_PROCESS.contains(&record.kind()));
                let pid = named.or_else(|| layout?.pid_tid(record).map(|(pid, _)| pid));
                pid.and_then(|pid| parts.get(&pid).copied()).unwrap_or(0)
            }
            Rule::Events(parts) => {
                layouts.event_of(record).and_then(|event| parts.get(event).copied()).unwrap_or(0)
            }
        }
    }
}

/// The records of one part.
#[derive(Clone, Debug)]
pub(super) struct Owner {
    pub(super) rule: Arc<Rule>,
    pub(super) number: usize,
    /// Shared by all parts: cookies of call chains whose user part comes later.
    pub(super) cookies: Arc<HashSet<u64>>,
}

impl Owner {
    /// True if the record belongs to this part and no other.
    pub(super) fn owns(&self, record: &Record<'_>, layouts: &Layouts) -> bool {
        match self.times() {
            // With thousands of parts, the search for the right one takes longer than all else.
            Some((begin, end)) => {
                let time = moment(record, layouts.layout_of(record), layouts);
                begin <= time && end.is_none_or(|end| time < end)
            }
            None => self.rule.part_of(record, layouts) == self.number,
        }
    }

    /// True if no part has the sample whose call chain this record completes.
    pub(super) fn owns_cookie(&self, cookie: Option<u64>) -> bool {
        cookie.is_none_or(|cookie| !self.cookies.contains(&cookie))
    }

    pub(super) fn windows(&self) -> Windows {
        self.times().map_or_else(Windows::all, |(begin, end)| Windows::one(begin, end))
    }

    /// When a part of times begins, and when the next one does, if there is one.
    fn times(&self) -> Option<(u64, Option<u64>)> {
        let Rule::Times(starts) = &*self.rule else { return None };
        let begin = self.number.checked_sub(1).and_then(|before| starts.get(before));
        Some((begin.copied().unwrap_or(0), starts.get(self.number).copied()))
    }

    /// True if processes alive in the part's time are needed.
    pub(super) fn is_of_time(&self) -> bool {
        self.times().is_some()
    }
}

//! Collects the inputs' ID_INDEX records, and creates missing entries, as `reindex-ids` does.

use std::collections::{HashMap, HashSet};

use perfx_format::read::{Batch, Recording};
use perfx_format::record::id_index::IdEntry;
use perfx_format::{Kinds, Layouts, Record};
use perfx_pipeline::{Result, scan};

use crate::support::id_index::{IndexFacts, Seen};

#[derive(Debug, Default)]
pub(super) struct Indexed {
    found: IndexFacts,
    seen: HashMap<u64, Seen>,
}

impl Indexed {
    pub(super) fn learn(&mut self, record: &Record<'_>) -> Result<()> {
        self.found.learn(record)
    }

    pub(super) fn see(&mut self, record: &Record<'_>, layouts: &Layouts) {
        if let Some((id, now)) =
            Seen::of(record, layouts).filter(|(id, _)| layouts.event_of_id(*id).is_some())
        {
            self.seen.entry(id).or_default().and(now);
        }
    }

    pub(super) fn see_all(&mut self, recording: &mut Recording, threads: usize) -> Result<()> {
        let work = |batch: &Batch| {
            let mut seen = Indexed::default();
            let mut walker = batch.walk();
            while let Some(record) = walker.next_wanted(Kinds::OF_KERNEL, usize::MAX)? {
                seen.see(&record, &batch.layouts);
            }
            Ok(seen)
        };
        scan(recording, threads, true, work, |_, seen| {
            self.join(seen);
            Ok(())
        })
    }

    pub(super) fn join(&mut self, later: Indexed) {
        self.found.join(later.found);
        for (id, later) in later.seen {
            self.seen.entry(id).or_default().and(later);
        }
    }

    pub(super) fn is_needed(&self) -> bool {
        self.found.is_needed()
    }

    pub(super) fn listed(&self) -> impl Iterator<Item = u64> {
        self.found.indexes.iter().flat_map(|index| &index.entries).map(|entry| entry.id)
    }

    pub(super) fn entries(&self, ids: &[(u64, usize)], wanted: &[(u64, usize)]) -> Vec<IdEntry> {
        self.found.entries(ids, wanted, &self.seen)
    }

    pub(super) fn lacks<'a>(&self, ids: impl IntoIterator<Item = &'a u64>) -> bool {
        let listed: HashSet<u64> = self.listed().collect();
        ids.into_iter().any(|id| *id != 0 && !listed.contains(id))
    }
}

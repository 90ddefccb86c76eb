//! What ID_INDEX records of the inputs tell, and entries for those ids that none of them names, made as `reindex-ids` makes them.

use std::collections::{HashMap, HashSet};

use anyhow::Result;
use perfx_format::read::{Batch, Recording};
use perfx_format::record::id_index::write_id_index;
use perfx_format::{Endian, Layouts, Record};
use perfx_pipeline::{Level, Report, counted, scan};

use super::unite::{Party, United};
use crate::reindex::ids::{Found, Seen, each_once, kernel_kinds, unknown};

/// Of one input.
#[derive(Debug, Default)]
pub(super) struct Indexed {
    found: Found,
    /// What records prove of their ids, if that is looked for.
    seen: HashMap<u64, Seen>,
}

impl Indexed {
    /// Takes in an ID_INDEX, AUXTRACE_INFO or AUXTRACE record.
    pub(super) fn learn(&mut self, record: &Record<'_>) -> Result<()> {
        self.found.learn(record)
    }

    /// What a record of the kernel's proves.
    pub(super) fn see(&mut self, record: &Record<'_>, layouts: &Layouts) {
        if let Some((id, now)) =
            Seen::of(record, layouts).filter(|(id, _)| layouts.event_of_id(*id).is_some())
        {
            self.seen.entry(id).or_default().and(now);
        }
    }

    /// The same of all records.
    pub(super) fn see_all(&mut self, recording: &mut Recording, threads: usize) -> Result<()> {
        let work = |batch: &Batch| {
            let mut seen = Indexed::default();
            let mut walker = batch.walk();
            while let Some(record) = walker.next_wanted(kernel_kinds(), usize::MAX)? {
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

    /// The output needs an ID_INDEX if any input does.
    pub(super) fn is_needed(&self) -> bool {
        self.found.is_needed()
    }

    fn listed(&self) -> impl Iterator<Item = u64> {
        self.found.indexes.iter().flat_map(|index| &index.entries).map(|entry| entry.id)
    }

    /// Some of these ids have no entry.
    pub(super) fn lacks<'a>(&self, ids: impl IntoIterator<Item = &'a u64>) -> bool {
        let listed: HashSet<u64> = self.listed().collect();
        ids.into_iter().any(|id| *id != 0 && !listed.contains(id))
    }
}

/// ID_INDEX records for the ids of the output that no input's name.
pub(super) fn lacking(
    parties: &[Party<'_>],
    united: &United,
    endian: Endian,
    report: &mut Report,
) -> Vec<Vec<u8>> {
    if !parties.iter().any(|party| party.facts.index.is_needed()) {
        return Vec::new();
    }
    let both = || parties.iter().zip(&united.translators);
    let mut listed: HashSet<u64> =
        both().flat_map(|(party, own)| party.facts.index.listed().map(|id| own.id(id))).collect();
    listed.insert(0);
    let mut added = Vec::new();
    for (party, own) in both() {
        let ids = each_once(party.events.iter().map(|event| &event.ids));
        let wanted: Vec<_> = ids.iter().copied().filter(|(id, _)| listed.insert(own.id(*id))).collect();
        let Indexed { found, seen } = &party.facts.index;
        added.extend(found.entries(&ids, &wanted, seen).into_iter().map(|mut entry| {
            entry.id = own.id(entry.id);
            entry
        }));
    }
    // Ids of events that had none.
    let made = united.events.iter().flat_map(|event| &event.ids).copied();
    added.extend(made.filter(|&id| listed.insert(id)).map(unknown));
    if !added.is_empty() {
        let ids = counted(added.len() as u64, "id", "ids");
        report.say(Level::Info, format!("ID_INDEX: {ids} added that the inputs' own lack"));
    }
    let long = added.iter().any(|entry| entry.machine_pid != 0);
    write_id_index(&added, long, endian)
}

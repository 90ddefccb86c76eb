//! ID_INDEX entries for ids of the output that no input names, made as `reindex-ids` makes them.

use std::collections::HashSet;

use perfx_format::Endian;
use perfx_format::record::id_index::write_id_index;
use perfx_pipeline::{Level, Report, counted};

use super::unite::{Party, United};
use crate::reindex::ids::{each_once, unknown};

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
        added.extend(party.facts.index.entries(&ids, &wanted).into_iter().map(|mut entry| {
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

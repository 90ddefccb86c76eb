//! Creates ID_INDEX entries for ids of the output that no input's index has, as `reindex-ids` does.

use std::collections::HashSet;

use perfx_format::Endian;
use perfx_format::record::id_index::write_id_index;
use perfx_pipeline::{Level, Report, counted};

use super::unite::{JoinSource, Union};
use crate::support::id_index::{each_once, unknown};

pub(super) fn lacking(
    sources: &[JoinSource<'_>],
    union: &Union,
    endian: Endian,
    report: &mut Report,
) -> Vec<Vec<u8>> {
    if !sources.iter().any(|source| source.facts.index.is_needed()) {
        return Vec::new();
    }
    let both = || sources.iter().zip(&union.translators);
    let mut listed: HashSet<u64> =
        both().flat_map(|(source, own)| source.facts.index.listed().map(|id| own.id(id))).collect();
    listed.insert(0);
    let mut added = Vec::new();
    for (source, own) in both() {
        let ids = each_once(source.events.iter().map(|event| &event.ids));
        let wanted: Vec<_> = ids.iter().copied().filter(|(id, _)| listed.insert(own.id(*id))).collect();
        added.extend(source.facts.index.entries(&ids, &wanted).into_iter().map(|mut entry| {
            entry.id = own.id(entry.id);
            entry
        }));
    }
    let made = union.events.iter().flat_map(|event| &event.ids).copied();
    added.extend(made.filter(|&id| listed.insert(id)).map(unknown));
    if !added.is_empty() {
        let ids = counted(added.len() as u64, "id", "ids");
        report.say(Level::Info, format!("ID_INDEX: added {ids} missing from the inputs"));
    }
    let long = added.iter().any(|entry| entry.machine_pid != 0);
    write_id_index(&added, long, endian)
}

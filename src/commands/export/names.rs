//! Names DSOs and symbols in a table as `perf report` does, in text that any program reads.

use std::collections::BTreeMap;

use perfx_format::Endian;
use perfx_format::header::Features;
use perfx_model::address_space::Machine;
use perfx_passes::{IdOptions, can_have_id, dso_name, object_of, recorded_on};
use symbols::Sources;

use super::cell::plain;
use super::gather::{Count, ExportFacts, Hits};

/// A row of `results.csv`: event, DSO, symbol or address.
pub(super) type Named = (u32, String, String);

/// The named hits.
#[derive(Default)]
pub(super) struct Naming {
    /// By event, DSO and symbol.
    pub(super) results: BTreeMap<Named, Count>,
    /// DSOs whose symbols were found.
    pub(super) with_symbols: u64,
    /// DSOs without symbols.
    pub(super) without: Vec<String>,
}

/// perf's name for an address in no mapping.
const UNKNOWN: &str = "[unknown]";

/// Gives every hit its DSO and symbol. The symbols of one DSO are in memory at a time.
pub(super) fn name_hits(
    hits: &Hits,
    facts: &ExportFacts,
    features: &Features,
    endian: Endian,
    ids: &IdOptions,
) -> Naming {
    let sources = Sources::new(!ids.no_files(), ids.roots(), ids.caches(), &recorded_on(features, endian));
    let mut sorted: Vec<_> = hits.iter().collect();
    sorted.sort_unstable_by_key(|(hit_key, _)| (hit_key.dso, hit_key.address, hit_key.event));
    let mut naming = Naming::default();
    for hits in sorted.chunk_by(|(a, _), (b, _)| a.dso == b.dso) {
        let dso = hits[0].0.dso.map(|number| (number as usize, &facts.spaces.dsos()[number as usize]));
        let name = dso.map_or(UNKNOWN.into(), |(_, (dso, _))| plain(dso_name(dso)).into_owned());
        let image = dso.and_then(|(number, (dso, flags))| {
            // This machine has no files of a guest.
            let known = dso.machine == Machine::Host && can_have_id(dso, *flags);
            let object = known.then(|| object_of(dso, facts.files.process(number)))?;
            sources.image(&object, facts.ids.get(dso), facts.reference.as_ref())
        });
        match &image {
            Some(_) => naming.with_symbols += 1,
            None if dso.is_some() => naming.without.push(name.clone()),
            None => {}
        }
        for (hit_key, count) in hits {
            let symbol = image.as_ref().and_then(|image| image.find(hit_key.address));
            let symbol = match symbol {
                Some(symbol) => plain(symbol.shown().as_bytes()).into_owned(),
                None => format!("{:#x}", hit_key.address),
            };
            *naming.results.entry((hit_key.event, name.clone(), symbol)).or_default() += **count;
        }
    }
    naming
}

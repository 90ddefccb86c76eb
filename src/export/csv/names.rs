//! Names DSOs and symbols in a table as `perf report` does, in text that any program reads.

use std::collections::BTreeMap;

use perfx_resolve::{Images, Named as Tally, Search, dso_name};
use symbols::ShownNames;

use super::cell::plain;
use super::gather::Hits;
use crate::stacks::Weight;

/// A row of `results.csv`: event, DSO, symbol or address.
pub(super) type Named = (u32, String, String);

#[derive(Default)]
pub(super) struct Naming {
    pub(super) results: BTreeMap<Named, Weight>,
    pub(super) dsos: Tally,
}

const UNKNOWN: &str = "[unknown]";

/// Names the DSO and symbol of every hit, with the symbols of one DSO in memory at a time.
pub(super) fn name_hits(hits: &Hits, search: Search<'_>) -> Naming {
    let images = Images::new(search);
    let mut sorted: Vec<_> = hits.iter().collect();
    sorted.sort_unstable_by_key(|(hit_key, _)| (hit_key.dso, hit_key.address, hit_key.event));
    let mut naming = Naming::default();
    for hits in sorted.chunk_by(|(a, _), (b, _)| a.dso == b.dso) {
        let number = hits[0].0.dso;
        let dso = number.and_then(|number| images.dso(number));
        let name = dso.map_or(UNKNOWN.into(), |dso| plain(dso_name(dso)).into_owned());
        let image = number.and_then(|number| images.of(number));
        let (mut shown, mut has_named) = (ShownNames::default(), false);
        for (hit_key, count) in hits {
            let symbol = image.as_ref().and_then(|image| image.find(hit_key.address));
            has_named |= symbol.is_some();
            let symbol = match symbol {
                Some(symbol) => plain(shown.of(&symbol.name).as_bytes()).into_owned(),
                None => format!("{:#x}", hit_key.address),
            };
            *naming.results.entry((hit_key.event, name.clone(), symbol)).or_default() += **count;
        }
        if has_named {
            naming.dsos.with_symbols += 1;
        } else if dso.is_some() {
            naming.dsos.without.push(name);
        }
    }
    naming
}

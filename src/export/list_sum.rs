//! Adds up the lists of several recordings.

use std::cmp::Reverse;
use std::hash::Hash;
use std::mem;

use indexmap::IndexMap;
use indexmap::map::Entry;
use perfx_look::json::Decimal;

use crate::list::{BuildIdRow, CgroupRow, DsoRow, EventRow, Listing, What};

impl What {
    /// True if the rows of several recordings add up. Processes, threads, namespaces and mappings of
    /// different recordings are unrelated, even if their numbers are equal.
    pub fn adds_up(self) -> bool {
        matches!(self, What::Events | What::Dsos | What::BuildIds | What::Cgroups)
    }
}

impl Listing {
    /// Adds the rows of another recording. Rows with the same name are added up; build-ids, and cgroups
    /// without a path, are compared by number.
    pub fn add(&mut self, later: Listing) {
        match (self, later) {
            (Listing::Events { rows }, Listing::Events { rows: later }) => {
                add_rows(rows, later, |row| row.name.0.clone());
            }
            (Listing::Dsos { counted, rows }, Listing::Dsos { counted: more, rows: later }) => {
                counted.add(more);
                add_rows(rows, later, |row| (row.name.0.clone(), row.build_id.clone(), row.guest));
                rows.sort_by(|a, b| a.name.0.cmp(&b.name.0));
                rows.sort_by_key(|row| Reverse((row.period.0, row.samples)));
            }
            (Listing::BuildIds { counted, rows }, Listing::BuildIds { counted: more, rows: later }) => {
                counted.add(more);
                add_rows(rows, later, |row| (row.build_id.clone(), row.name.0.clone(), row.guest));
                rows.sort_by(|a, b| a.name.0.cmp(&b.name.0));
                rows.sort_by_key(|row| Reverse((row.period.0, row.samples)));
            }
            (Listing::Cgroups { counted, rows }, Listing::Cgroups { counted: more, rows: later }) => {
                counted.add(more);
                add_rows(rows, later, |row| {
                    let path = row.path.as_ref().map(|path| path.0.clone());
                    (path.is_none().then_some(row.id.0), path)
                });
                rows.sort_by_key(|row| Reverse((row.period.0, row.samples)));
            }
            _ => {}
        }
    }
}

trait Sum {
    fn add(&mut self, more: &Self);
}

macro_rules! sum {
    ($($row:ty: $($more:ident $names:ident)?;)*) => {$(
        impl Sum for $row {
            fn add(&mut self, more: &Self) {
                self.samples += more.samples;
                self.period = Decimal(self.period.0.saturating_add(more.period.0));
                $(
                    self.$more += more.$more;
                    self.$names = self.$names.take().or_else(|| more.$names.clone());
                )?
            }
        }
    )*};
}

sum! { EventRow: ; DsoRow: mappings names; BuildIdRow: ; CgroupRow: ; }

fn add_rows<R: Sum, K: Hash + Eq>(rows: &mut Vec<R>, later: Vec<R>, key: impl Fn(&R) -> K) {
    let mut sums: IndexMap<K, R> = IndexMap::new();
    for row in mem::take(rows).into_iter().chain(later) {
        match sums.entry(key(&row)) {
            Entry::Occupied(mut sum) => sum.get_mut().add(&row),
            Entry::Vacant(place) => {
                place.insert(row);
            }
        }
    }
    *rows = sums.into_values().collect();
}
